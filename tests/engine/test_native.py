"""The seam to C: statuses become exceptions, handles outlive their users, nothing leaks."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engine import errors, native

Tiny = Callable[[str], Path]
NAME = "llama-q4_0"


def opened(path: Path) -> native.File:
    fd = os.open(path, os.O_RDONLY)
    try:
        return native.File.open(fd)
    finally:
        os.close(fd)


def options(**changes: object) -> native.ContextOptions:
    base = {"activations": "wide", "kv": "f16", "context_tokens": 64, "sequences": 2}
    return native.ContextOptions(**{**base, "threads": 1, "batch": 8, **changes})  # type: ignore[arg-type]


def test_every_status_has_an_exception_of_its_own() -> None:
    kinds = native._EXCEPTIONS
    names = [name for name in dir(native.lib) if name.startswith("ENGINE_E")]
    assert {getattr(native.lib, name) for name in names} == set(kinds)
    assert len(set(kinds.values())) == len(kinds)


def test_a_refusal_carries_the_c_text(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"GGUF\x09\0\0\0" + bytes(16))
    with pytest.raises(errors.ModelError, match="9"):
        opened(tmp_path / "x.gguf")


def test_metadata_values_have_python_types(tiny_model: Tiny) -> None:
    file = opened(tiny_model(NAME))
    values = {key: file.value(index) for index, key in enumerate(file.keys())}
    gguf = pytest.importorskip("gguf")
    reader = gguf.GGUFReader(tiny_model(NAME))
    for key, value in values.items():
        assert value == reader.fields[key].contents()
    file.close()


def test_tensors_and_rows(tiny_model: Tiny) -> None:
    file = opened(tiny_model("llama-f32"))
    tensor = next(item for item in file.tensors() if item.name == "token_embd.weight")
    data = tiny_model("llama-f32").read_bytes()[tensor.offset : tensor.offset + tensor.bytes]
    whole = np.frombuffer(data, "<f4").reshape(tensor.dims[::-1])
    assert np.array_equal(file.tensor_rows(tensor.name), whole)
    assert np.array_equal(file.tensor_rows(tensor.name, 3, 2), whole[3:5])
    for first, count in ((-1, 1), (0, len(whole) + 1), (len(whole) + 1, 0)):
        with pytest.raises(errors.UsageError):
            file.tensor_rows(tensor.name, first, count)
    with pytest.raises(errors.UsageError, match="no tensor named 'absent'"):
        file.tensor_rows("absent")
    file.close()


def test_a_closed_handle_refuses_calls(tiny_model: Tiny) -> None:
    file = opened(tiny_model(NAME))
    vocab = native.Vocab.open(file)
    file.close()
    file.close()
    assert vocab.tokenize(b"ab")
    vocab.close()
    with pytest.raises(errors.UsageError, match="the vocabulary is closed"):
        vocab.tokenize(b"ab")
    with pytest.raises(errors.UsageError, match="the model file is closed"):
        file.keys()


def test_closing_waits_for_the_last_user(tiny_model: Tiny) -> None:
    file = opened(tiny_model(NAME))
    released: list[str] = []
    weights = native.Weights.load(file)
    context = native.Context.new(weights, options())
    for handle, name in ((file, "file"), (weights, "model"), (context, "context")):
        free = handle._free
        handle._free = lambda pointer, free=free, name=name: (released.append(name), free(pointer))[1]
    file.close()
    weights.close()
    assert released == []
    assert context.step_tokens([1, 2], 0, 0, "last", weights_vocab(tiny_model)).shape[0] == 1
    with context.use():
        context.close()
        assert released == []
    assert released == ["context", "model", "file"]


def weights_vocab(tiny_model: Tiny) -> int:
    file = opened(tiny_model(NAME))
    size = native.Vocab.open(file).info.size
    file.close()
    return size


def test_garbage_collection_releases_everything(tiny_model: Tiny) -> None:
    released: list[int] = []
    file = opened(tiny_model(NAME))
    free = file._free
    file._free = lambda pointer: (released.append(1), free(pointer))[1]
    context = native.Context.new(native.Weights.load(file), options())
    del file
    gc.collect()
    assert released == []
    del context
    gc.collect()
    assert released == [1]


def test_hundreds_of_openings_leak_no_memory(tiny_model: Tiny) -> None:
    resident = Path("/proc/self/statm")
    if not resident.exists():
        pytest.skip("/proc/self/statm is absent")

    def once() -> None:
        file = opened(tiny_model(NAME))
        native.Vocab.open(file).tokenize(b"some text")
        context = native.Context.new(native.Weights.load(file), options())
        context.step_tokens([1, 2, 3], 0, 0, "none", 0)
        with pytest.raises(errors.UsageError):
            context.step_tokens([10**6], 0, 3, "none", 0)

    for _ in range(50):
        once()
    before = int(resident.read_text().split()[1])
    for _ in range(300):
        once()
    pages = int(resident.read_text().split()[1]) - before
    assert pages * os.sysconf("SC_PAGE_SIZE") < 300 * 2000  # the smallest of the four objects takes 3,500


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"activations": "int4"}, "wide, int8, f32"),
        ({"kv": "q4"}, "f16, f32, q8"),
        ({"context_tokens": 0}, "context"),
        ({"threads": 0}, "threads"),
        ({"threads": 257}, "threads"),
        ({"batch": 0}, "batch"),
        ({"sequences": 0}, "sequences"),
        ({"context_tokens": 2**31}, "out of range"),
        ({"batch": "8"}, "must be an integer"),
    ],
)
def test_bad_options_are_refused_by_name(tiny_model: Tiny, change: dict, said: str) -> None:
    weights = native.Weights.load(opened(tiny_model(NAME)))
    with pytest.raises(errors.UsageError, match=said):
        native.Context.new(weights, options(**change))


def test_the_gil_is_released_during_a_step(tiny_model: Tiny) -> None:
    weights = native.Weights.load(opened(tiny_model("llama-q4_k")))
    context = native.Context.new(weights, options(context_tokens=512, batch=512))
    started, counted = threading.Event(), []

    def count() -> None:
        started.wait()
        for _ in range(1000):
            counted.append(None)

    other = threading.Thread(target=count)
    other.start()
    err = native.ffi.new("char[]", 64)
    raw = native.ffi.new("engine_entry[]", 512)
    for index in range(512):
        raw[index].pos, raw[index].token = index, index % 7
    with context.use() as pointer:
        started.set()
        assert native.lib.engine_step(pointer, raw, 512, native.ffi.NULL, 0, err, 64) == native.lib.ENGINE_OK
        done = len(counted)
    other.join()
    assert done > 0


def test_sampling_and_logprobs() -> None:
    logits = np.array([0.0, 3.0, 3.0, -1.0], np.float32)
    assert native.sample(logits, native.SamplerOptions(), [], 0) == 1
    values = native.log_softmax(logits)
    exact = logits.astype(np.float64) - np.log(np.exp(logits.astype(np.float64)).sum())
    assert np.allclose(values, exact, atol=1e-6)
    assert native.top(values, 3) == [1, 2, 0]
    assert native.top(values, 99) == [1, 2, 0, 3]
    with pytest.raises(errors.NonFiniteError):
        native.sample(np.array([0.0, np.nan], np.float32), native.SamplerOptions(), [], 0)
    with pytest.raises(errors.UsageError):
        native.sample(logits, native.SamplerOptions(top_p=2.0, temperature=1.0), [], 0)


def test_the_library_describes_itself_and_passes_its_self_test() -> None:
    build = native.build()
    assert build.numerics == "gb1"
    assert build.tokenizer == "t1"
    assert all(vars(build).values())
    assert Path(native.library_path()).is_file()
    native.selftest()
