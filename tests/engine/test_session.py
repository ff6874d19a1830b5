"""Sessions: the same bits however the tokens are grouped, and state that can be cut, copied, restored."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.errors import CancelledError, ContextOverflow, UsageError
from engine.generate import Sampling
from engine.model import Model, RuntimeConfig
from engine.session import Entry, Session

Tiny = Callable[[str], Path]
IDS = [5, 9, 40, 7, 300, 2, 11]


@pytest.fixture(scope="module")
def model(tiny_model: Tiny) -> Iterator[Model]:
    with Model.open(tiny_model("qwen3-q8_0"), config=RuntimeConfig(context_tokens=200)) as opened:
        yield opened


@pytest.fixture
def session(model: Model) -> Iterator[Session]:
    with model.session(threads=1, sequences=3) as opened:
        yield opened


def test_shapes_and_lengths(model: Model, session: Session) -> None:
    vocab = model.info.vocab
    rows = session.eval(IDS, want="all")
    assert rows.shape == (len(IDS), vocab)
    assert rows.dtype == np.float32
    assert session.eval([3]).shape == (1, vocab)
    assert session.eval([3], want="none").shape == (0, vocab)
    assert session.length() == len(IDS) + 2
    assert session.length(1) == 0
    assert session.kv_bytes > 0


def test_grouping_changes_no_bit(model: Model, session: Session) -> None:
    whole = session.eval(IDS, want="all")
    for cut in range(1, len(IDS)):
        session.truncate(0)
        first, second = session.eval(IDS[:cut], want="all"), session.eval(IDS[cut:], want="all")
        assert np.concatenate([first, second]).tobytes() == whole.tobytes()
    with model.session(threads=3, batch=2, sequences=1) as other:
        assert other.eval(IDS, want="all").tobytes() == whole.tobytes()


def test_a_step_mixes_sequences(session: Session) -> None:
    whole = session.eval(IDS, want="all", seq=2)
    entries = []
    for position, token in enumerate(IDS):
        entries.append(Entry(token, position, 0, "logits"))
        entries.append(Entry(token + 1, position, 1, "none"))
    assert session.step(entries).tobytes() == whole.tobytes()
    assert session.length(1) == len(IDS)


def test_embeddings_stand_for_tokens_and_hidden_states_come_back(model: Model, session: Session) -> None:
    table = model.tensor_rows("token_embd.weight")
    wanted = session.eval(IDS, want="all")
    entries = [Entry(pos=i, seq=1, want="logits", embedding=table[token]) for i, token in enumerate(IDS)]
    assert session.step(entries).tobytes() == wanted.tobytes()
    hidden = session.step([Entry(token, i, 2, "hidden") for i, token in enumerate(IDS)])
    assert hidden.shape == (len(IDS), model.info.width)
    with pytest.raises(UsageError, match="logits or hidden"):
        session.step([Entry(1, 7, 2, "logits"), Entry(1, 8, 2, "hidden")])
    with pytest.raises(UsageError, match="shape"):
        session.step([Entry(pos=7, seq=2, embedding=table[0][:-1])])


def test_truncate_fork_snapshot_restore(session: Session) -> None:
    session.eval(IDS, want="none")
    wanted = session.eval([50, 51])
    session.truncate(len(IDS))
    session.fork(0, 1)
    state = session.snapshot(0)
    session.eval([99, 98, 97], want="none")
    assert session.eval([50, 51], seq=1).tobytes() == wanted.tobytes()
    session.restore(state, 2)
    assert session.length(2) == len(IDS)
    assert session.eval([50, 51], seq=2).tobytes() == wanted.tobytes()
    session.restore(state)
    assert session.eval([50, 51]).tobytes() == wanted.tobytes()


def test_a_foreign_or_damaged_state_is_refused(model: Model, session: Session) -> None:
    session.eval(IDS, want="none")
    state = session.snapshot()
    for bad in (b"", state[:-1], state + b"\0", bytes(len(state))):
        with pytest.raises(UsageError):
            session.restore(bad)
    assert session.length() == len(IDS)


@pytest.mark.parametrize(
    ("act", "kind"),
    [
        (lambda s: s.eval([]), UsageError),
        (lambda s: s.eval([1], want="some"), UsageError),
        (lambda s: s.eval([-1]), UsageError),
        (lambda s: s.eval([10**6]), UsageError),
        (lambda s: s.eval([2**40]), UsageError),
        (lambda s: s.eval(["x"]), UsageError),
        (lambda s: s.eval([1], seq=3), UsageError),
        (lambda s: s.eval([1] * 201), ContextOverflow),
        (lambda s: s.step([]), UsageError),
        (lambda s: s.step([Entry(1, 5)]), UsageError),
        (lambda s: s.step([Entry(1, 2, want="maybe")]), UsageError),
        (lambda s: s.truncate(9), UsageError),
        (lambda s: s.truncate(-1), UsageError),
        (lambda s: s.fork(0, 3), UsageError),
        (lambda s: s.length(-1), UsageError),
        (lambda s: s.snapshot(3), UsageError),
        (lambda s: s.snapshot("0"), UsageError),
        (lambda s: s.eval(5), UsageError),
        (lambda s: s.eval([1], seq=None), UsageError),
        (lambda s: s.step(None), UsageError),
        (lambda s: s.step([1]), UsageError),
        (lambda s: s.step([Entry(1, 2, want=["logits"])]), UsageError),
        (lambda s: s.step([Entry(1, 2, embedding=[0.0])]), UsageError),
        (lambda s: s.step([Entry(1, 2, embedding=np.array("x"))]), UsageError),
        (lambda s: s.step([Entry(1, 2.5)]), UsageError),
        (lambda s: s.truncate(None), UsageError),
        (lambda s: s.fork("0", 1), UsageError),
        (lambda s: s.restore("state"), UsageError),
        (lambda s: s.generate(7), UsageError),
        (lambda s: s.generate([1], max_tokens="3"), UsageError),
        (lambda s: s.generate([1], logprobs=1.5), UsageError),
        (lambda s: s.generate([1], stop=[1]), UsageError),
        (lambda s: s.generate([1], stop=3), UsageError),
        (lambda s: s.generate([1], sampling=None), UsageError),
        (lambda s: Sampling(temperature="hot"), UsageError),
        (lambda s: Sampling(seed=1.5), UsageError),
        (lambda s: Sampling(top_k=None), UsageError),
    ],
)
def test_misuse_is_refused_and_changes_nothing(session: Session, act: Callable, kind: type) -> None:
    session.eval([1, 2], want="none")
    with pytest.raises(kind):
        act(session)
    assert session.length() == 2


def test_a_cancelled_step_is_undone_and_the_request_is_spent(session: Session) -> None:
    wanted = session.eval(IDS)
    session.cancel()
    with pytest.raises(CancelledError):
        session.eval([1])
    assert session.length() == len(IDS)
    session.truncate(0)
    assert session.eval(IDS).tobytes() == wanted.tobytes()
    session.cancel()
    session.cancel(False)
    session.eval([1])


def test_closing_a_cancelled_session_does_not_hide_the_cancellation(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.cancel()
    step = session._context.step_tokens

    def close_first(*args: Any) -> Any:
        try:
            return step(*args)
        finally:
            session.close()

    monkeypatch.setattr(session._context, "step_tokens", close_first)
    with pytest.raises(CancelledError):
        session.eval(IDS)


def test_ids_may_be_an_array(session: Session) -> None:
    rows = session.eval(IDS)
    session.truncate(0)
    assert session.eval(np.array(IDS)).tobytes() == rows.tobytes()  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_computes_the_same_bits_and_can_close(tiny_model: Tiny) -> None:
    with Model.open(tiny_model("llama-f32")) as model, model.session(threads=3) as session:
        rows = session.eval(IDS * 20, want="all").tobytes()
        session.truncate(0)
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(30)  # waiting for workers that do not exist would never end
            same = session.eval(IDS * 20, want="all").tobytes() == rows
            session.close()
            os._exit(0 if same else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_cancelling_from_another_thread_stops_a_running_step(tiny_model: Tiny) -> None:
    config = RuntimeConfig(context_tokens=100_000)
    with Model.open(tiny_model("gemma3-q4_k_m"), config=config) as model, model.session(threads=1) as session:
        done: list[BaseException | None] = []

        def work() -> None:
            try:
                session.eval([3] * 60_000, want="none")
                done.append(None)
            except CancelledError as error:
                done.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        time.sleep(0.2)
        session.cancel()
        thread.join()
        assert isinstance(done[0], CancelledError)
        assert session.length() == 0


def test_calls_of_several_threads_take_turns(session: Session) -> None:
    wanted = session.eval(IDS, seq=2).tobytes()
    results: list[bytes] = []

    def work(seq: int) -> None:
        for _ in range(20):
            session.truncate(0, seq)
            results.append(session.eval(IDS, seq=seq).tobytes())

    threads = [threading.Thread(target=work, args=(seq,)) for seq in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(results) == {wanted}
