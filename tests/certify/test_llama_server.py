"""llama.cpp's own server as a peer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from certify.endpoints import Endpoint, ask
from certify.references import ReferenceCrashed, ReferenceUnavailable
from certify.references.llama_server import LlamaServer
from certify.references.table import open_reference
from certify.truncation_cases import BY_ID
from tests.certify.fakes import make_job


@pytest.mark.reference
def test_it_serves_answers_and_ends(tiny_model: Callable[[str], Path]) -> None:
    pytest.importorskip("xllamacpp", reason="the [reference] extra is not installed")
    server = LlamaServer(str(tiny_model("llama-q8_0")), 128)
    try:
        endpoint = Endpoint(server.url, timeout_s=60)
        answer, turn = ask(endpoint, BY_ID["marks"].body(4), stream=False)
        assert (answer.status, turn.finish, turn.completion_tokens) == (200, "length", 4)
        assert ask(endpoint, BY_ID["marks"].body(4), stream=True)[1].finish == "length"
        assert server.revision.startswith("b")
        assert server.cpu_features
        server.check()
    finally:
        server.close()
    assert not endpoint.listens()
    with pytest.raises(ReferenceCrashed, match="ended"):
        server.check()


@pytest.mark.reference
def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="the [reference] extra is not installed")
    (tmp_path / "no.gguf").write_bytes(b"GGUF but not really")
    with pytest.raises(ReferenceCrashed, match="did not start"):
        LlamaServer(str(tmp_path / "no.gguf"), 128)


def test_no_other_reference_has_a_server(tmp_path: Path) -> None:
    with pytest.raises(ReferenceUnavailable, match="has no server"):
        open_reference("sentencepiece/server", make_job(tmp_path, "tool"))
