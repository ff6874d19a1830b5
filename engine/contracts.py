"""Contract revisions: each changes only when results may change, and a receipt binds all three."""

from __future__ import annotations

from engine import native

TEMPLATE_REVISION = "j1"


def contracts() -> dict[str, str]:
    """This engine's revisions of the arithmetic, of tokenisation, and of template rendering."""
    build = native.build()
    return {"numerics": build.numerics, "tokenizer": build.tokenizer, "template": TEMPLATE_REVISION}
