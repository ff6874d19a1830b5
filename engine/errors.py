"""Every exception that the engine raises on purpose.

::

    EngineError
    ├── UsageError            an argument is wrong (id out of range, unknown option)
    │   └── ContextOverflow   the positions do not fit into the context
    ├── ModelError            the file cannot be used
    │   ├── FileError         unreadable, absent, not a regular file
    │   ├── FormatError       malformed GGUF; the text holds the byte offset
    │   └── UnsupportedError  well-formed, refused by name
    ├── FetchError            no source yielded an artifact with its pinned hash
    ├── RefusedError          the gate refuses the model; holds the Standing
    ├── ConstraintError       a constraint is malformed, refused by name, or not kept to
    ├── TemplateError         the chat template failed, or passed its limits
    ├── NonFiniteError        a NaN or an infinity arose in the arithmetic
    ├── CancelledError        Session.cancel() was called
    ├── SelfTestError         this machine does not reproduce the known answers
    ├── MeasureError          a benchmark gave no figure
    └── OutOfMemoryError      the C core could not allocate
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from engine.envelope import Standing


class EngineError(Exception):
    """Base of the hierarchy."""


class UsageError(EngineError):
    """An argument of the caller is wrong."""


class ContextOverflow(UsageError):
    """The positions do not fit into the context; nothing was evaluated."""


class ModelError(EngineError):
    """The model file cannot be used."""


class FileError(ModelError):
    """The file is absent, unreadable, or not a regular file."""


class FormatError(ModelError):
    """The GGUF is malformed; the text names the byte offset."""


class UnsupportedError(ModelError):
    """The file is well-formed and refused by name."""


class FetchError(EngineError):
    """No source yielded the artifact with its pinned hash; the text names each and why."""


class RefusedError(EngineError):
    """The gate refuses the model. ``standing`` says what was measured.

    ``finding`` is the text without what to do about it; ``way`` ("force", "require", "trust") says
    which of the gate's rules refused, so that the command line can name its own option.
    """

    REMEDIES: ClassVar[dict[str, str]] = {
        "force": "To load it all the same, pass policy=Policy(force=True)",
        "require": "Measure it with `certify run`, or load it without Policy(require=…)",
        "trust": "Check where it came from, then add that hash to Policy(trust=…)",
    }

    def __init__(self, message: str, standing: Standing, way: str | None = None) -> None:
        super().__init__(f"{message}. {self.REMEDIES[way]}" if way else message)
        self.standing = standing
        self.finding = message
        self.way = way


class ConstraintError(EngineError):
    """A constraint is malformed, says what cannot be held exactly, or does not allow a byte.

    ``pointer`` and ``keyword`` name the place in a JSON Schema, where the text does.
    """

    def __init__(self, message: str, pointer: str | None = None, keyword: str | None = None) -> None:
        super().__init__(message)
        self.pointer = pointer
        self.keyword = keyword


class TemplateError(EngineError):
    """The chat template failed, or passed its limits on time, memory or output."""


class NonFiniteError(EngineError):
    """A NaN or an infinity arose; the step was undone."""


class CancelledError(EngineError):
    """The step was cancelled; it was undone."""


class SelfTestError(EngineError):
    """This machine does not reproduce the known answers of the arithmetic."""


class OutOfMemoryError(EngineError):
    """The C core could not allocate."""


class MeasureError(EngineError):
    """A benchmark gave no figure: what was timed failed or did not end."""
