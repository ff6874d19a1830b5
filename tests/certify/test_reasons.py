"""docs/reasons.md is what the code says."""

from __future__ import annotations

from pathlib import Path

from certify import reasons
from engine.envelope import GateReason

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reasons.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == reasons.markdown(), (
        "run: python -m certify.reasons > docs/reasons.md"
    )


def test_every_code_has_a_meaning() -> None:
    assert all(item.meaning.endswith(".") for item in reasons.Reason)
    assert set(reasons.GATE_MEANINGS) == set(GateReason)
    assert set(reasons.CERTIFY_MEANINGS) == set(reasons.CertifyExit)
    assert reasons.known("timeout")
    assert not reasons.known("TIMEOUT")
