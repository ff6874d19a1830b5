"""What a skipped test says to whoever wants it to run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


def test_an_absent_model_says_how_to_get_it(
    real_model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GAUGEBLOCK_MODELS", raising=False)
    monkeypatch.delenv("REQUIRE_MODELS", raising=False)
    with pytest.raises(
        pytest.skip.Exception, match=r"absent\.gguf is absent.*GAUGEBLOCK_MODELS=models make test"
    ):
        real_model("absent.gguf")
    monkeypatch.setenv("REQUIRE_MODELS", "1")
    with pytest.raises(pytest.fail.Exception, match="make models"):
        real_model("absent.gguf")
