"""Peers that the user names: what is asked of them, and how they fail. Stand-ins, and a real one if named."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from certify.references import ReferenceCrashed, ReferenceRefused, ReferenceUnavailable, SpeedReference
from certify.references.llama_cpp import LlamaCpp
from certify.references.llama_peer import LlamaBench, LlamaCppPython, features, open_peer, peer_environment
from certify.references.llama_timing import Timing, TimingError
from certify.references.table import open_speed

# A stand-in for the package: it notes calls in a file instead of computing.
PACKAGE = """
import ctypes, os
__version__ = "9.9.9"
llama_token = ctypes.c_int32
class Params: pass
def note(text):
    with open(os.environ["NOTES"], "a") as file:
        file.write(text + "\\n")
def llama_backend_init(): print("noise on standard output")
def llama_model_default_params(): return Params()
def llama_context_default_params(): return Params()
def llama_model_load_from_file(path, params): return None if b"absent" in path else 1
def llama_model_get_vocab(model): return 1
def llama_vocab_n_tokens(vocab): return 500
def llama_print_system_info(): return b"CPU : AVX2 = 1 | AVX512_VNNI = 1 | AVX_VNNI = 0 | "
def llama_init_from_model(model, params):
    note(f"context {params.n_ctx} {params.flash_attn_type} {params.n_batch} {params.n_ubatch}")
    return 7
def llama_free(context): note("free")
def llama_set_n_threads(context, one, many): note(f"threads {one} {many}")
def llama_get_memory(context): return 3
def llama_memory_clear(memory, data): note("clear")
def llama_batch_get_one(tokens, count): return count
def llama_decode(context, batch):
    note(f"decode {batch}")
    return 1 if batch == 13 else 0
def llama_synchronize(context): note("wait")
def llama_state_seq_get_size(context, seq): return 4
def llama_state_seq_get_data(context, out, size, seq): note("save"); return size
def llama_state_seq_set_data(context, data, size, seq): note("restore"); return size
class Llama:
    def __init__(self, path, **options): pass
    def create_completion(self, prompt, **options): return {"choices": [{"text": prompt[:1]}]}
"""
# What llama-bench of b1-0c1e570 prints, less the fields that nobody reads.
BENCH = """#!{python}
import json, sys
flags = dict(zip(sys.argv[1::2], sys.argv[2::2]))
if flags["-m"].endswith("broken"):
    print("error: failed to load model"); sys.exit(1)
shape = {{name: int(flags[flag]) for name, flag in (("n_prompt", "-p"), ("n_gen", "-n"), ("n_depth", "-d"))}}
if flags["-m"].endswith("stubborn"):
    shape["n_gen"] = 128
ns = 1000000 * (shape["n_prompt"] + 10 * shape["n_gen"]) // int(flags["-t"])
print(json.dumps([dict(build_commit="0c1e570", build_number=1, samples_ns=[ns], **shape)]))
"""


def script(path: Path, text: str) -> Path:
    """An executable file."""
    path.write_text(text, encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A Python in which the stand-in is installed, inside something like a virtual environment."""
    (tmp_path / "llama_cpp.py").write_text(PACKAGE, encoding="utf-8")
    (tmp_path / "bin").mkdir()
    lines = ["#!/bin/sh", f"export PYTHONPATH='{tmp_path}' NOTES='{tmp_path}/notes'"]
    return script(tmp_path / "bin" / "python", "\n".join([*lines, f"exec '{sys.executable}' \"$@\"", ""]))


def notes(folder: Path) -> list[str]:
    """The calls so far; forgotten afterwards."""
    path = folder / "notes"
    lines = path.read_text().splitlines()
    path.unlink()
    return lines


def test_the_binding_is_timed_with_the_calls_of_llama_bench(python: Path, tmp_path: Path) -> None:
    peer = open_peer(str(tmp_path), "model.gguf")  # the folder of the environment
    assert isinstance(peer, LlamaCppPython)
    assert isinstance(peer, SpeedReference)
    assert (peer.revision, peer.vocab) == ("llama-cpp-python-9.9.9", 500)
    assert peer.cpu_features == ("avx2", "avx512_vnni")
    assert peer.seconds([], [1] * 2050, together=True, flash="on", threads=2) > 0
    timed = ["threads 2 2", "decode 2048", "wait", "decode 2", "wait"]
    assert notes(tmp_path) == ["context 2304 1 2048 512", "clear", *timed]
    for known in (False, True):
        assert peer.seconds([5] * 20, [6] * 2, together=False, flash="off", threads=1) > 0
        first = ["free", "context 256 0 2048 512", "clear", "threads 1 1", "decode 20", "wait", "save"]
        again = ["clear", "restore"]
        timed = ["threads 1 1", "decode 1", "wait", "decode 1", "wait"]
        assert notes(tmp_path) == [*(again if known else first), *timed]
    with pytest.raises(ReferenceRefused, match="llama_decode answered 1 for 13 tokens"):
        peer.seconds([], [1] * 13, together=True, flash="on", threads=1)
    command = peer.start_command("xyz", 2, 64)
    assert command[0] == str(python)
    peer.close()
    peer.close()


def test_a_model_that_the_peer_cannot_load_is_refused(python: Path) -> None:
    with pytest.raises(ReferenceRefused, match=r"cannot load absent\.gguf"):
        open_peer(str(python), "absent.gguf")


def test_a_peer_that_dies_is_named(python: Path, tmp_path: Path) -> None:
    peer = open_peer(str(python), "model.gguf")
    assert isinstance(peer, LlamaCppPython)
    peer._process.kill()
    with pytest.raises(ReferenceCrashed, match="the peer ended"):
        peer.seconds([], [1], together=True, flash="on", threads=1)
    peer.close()


def test_a_python_without_the_package_is_unavailable(tmp_path: Path) -> None:
    python = script(tmp_path / "python3", f"#!/bin/sh\nexec '{sys.executable}' -I -S \"$@\"\n")
    with pytest.raises(ReferenceUnavailable, match="has no llama-cpp-python"):
        open_peer(str(python), "model.gguf")


@pytest.mark.parametrize(("name", "text"), [("absent", None), ("gcc", "#!/bin/sh\n")])
def test_other_programs_are_refused(name: str, text: str | None, tmp_path: Path) -> None:
    if text is not None:
        script(tmp_path / name, text)
    with pytest.raises(ReferenceUnavailable, match="--peer"):
        open_peer(str(tmp_path / name), "model.gguf")


def test_llama_bench_is_asked_for_the_same_counts(tmp_path: Path) -> None:
    program = script(tmp_path / "llama-bench", BENCH.format(python=sys.executable))
    peer = open_peer(str(program), "model.gguf")
    assert isinstance(peer, LlamaBench)
    assert isinstance(peer, SpeedReference)
    assert peer.revision == "b1-0c1e570"
    assert peer.seconds([], [1] * 32, together=True, flash="on", threads=2) == pytest.approx(0.016)
    assert peer.seconds([1], [1] * 8, together=False, flash="off", threads=1) == pytest.approx(0.08)
    assert peer.start_command("x", 1, 64) is None
    peer.close()


@pytest.mark.parametrize("model", ["broken", "stubborn"])
def test_a_llama_bench_without_the_figure_is_a_failure(model: str, tmp_path: Path) -> None:
    program = script(tmp_path / "llama-bench", BENCH.format(python=sys.executable))
    with pytest.raises(ReferenceCrashed, match="gave no figure"):
        open_peer(str(program), model)


def test_a_context_that_cannot_be_made_is_named() -> None:
    class Api:
        llama_context_default_params = staticmethod(lambda: type("Params", (), {})())
        llama_init_from_model = staticmethod(lambda model, params: None)

    options: dict[str, Any] = {"array": list, "buffer": bytes, "absent": lambda pointer: pointer is None}
    with pytest.raises(TimingError, match="cannot make a context of 256"):
        Timing(Api, 1, **options).seconds([], [1], together=True, flash="auto", threads=1)


def test_features_are_those_that_are_present() -> None:
    assert features("CPU : AVX = 1 | AVX2 = 0 | FMA = 1 | OPENMP = 1 | ") == ("avx", "fma", "openmp")


def test_nothing_of_our_own_python_reaches_the_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/ours")
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    assert not {"PYTHONPATH", "OMP_WAIT_POLICY"} & set(peer_environment())


def test_only_llama_cpp_can_be_timed() -> None:
    with pytest.raises(ReferenceUnavailable, match="'sentencepiece' cannot be timed"):
        open_speed("sentencepiece", "model.gguf", None)


@pytest.mark.reference
def test_the_prebuilt_wheel_is_timed_in_its_own_process(tiny_model: Callable[[str], Path]) -> None:
    pytest.importorskip("xllamacpp")
    with LlamaCpp(tiny_model("llama-q8_0"), hurried=True) as peer:
        assert isinstance(peer, SpeedReference)
        ids = list(range(1, 40))
        assert peer.seconds([], ids, together=True, flash="on", threads=2) > 0
        for _ in range(2):
            assert peer.seconds(ids, ids[:3], together=False, flash="off", threads=1) > 0
        with pytest.raises(ReferenceRefused, match="outside 0"):
            peer.seconds([], [10**6], together=True, flash="on", threads=1)
        assert peer.logits(ids[:4]).shape == (4, peer.vocab)  # the same process still answers


@pytest.mark.reference
@pytest.mark.models
def test_the_named_peer_is_timed(real_model: Callable[[str], Path]) -> None:
    named = os.environ.get("GAUGEBLOCK_PEER")
    if not named:
        pytest.skip("GAUGEBLOCK_PEER names no llama-cpp-python or llama-bench")
    peer = open_peer(named, str(real_model("SmolLM2-135M-Instruct.Q4_1.gguf")))
    assert peer.seconds([], list(range(1, 17)), together=True, flash="on", threads=1) > 0
    assert peer.seconds([1, 2, 3], [4, 5], together=False, flash="off", threads=1) > 0
    assert json.dumps(peer.cpu_features)
    peer.close()
