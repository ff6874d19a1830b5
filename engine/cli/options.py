"""Options that several commands share, and what they stand for."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from engine.cli.console import CONSOLE
from engine.errors import UsageError
from engine.text import printable

if TYPE_CHECKING:
    from engine.constrain import Constraint, Kind
    from engine.envelope import Policy
    from engine.generate import Sampling
    from engine.model import Model
    from engine.session import Session

F = TypeVar("F", bound=Callable[..., Any])
ACTIVATIONS = ("wide", "int8", "f32")
KV_TYPES = ("f16", "f32", "q8")
PROMPT_BYTES = 256 << 20
CONSTRAINT_BYTES = 8 << 20
INT_MAX = 2**31 - 1


def _together(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    """One decorator out of several; the first stands first in the help."""

    def decorate(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


def _set_log_format(ctx: click.Context, parameter: click.Parameter, value: str) -> None:
    CONSOLE.log_format = value


log_format_option = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    expose_value=False,
    is_eager=True,
    callback=_set_log_format,
    help="Form of the messages on standard error.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
model_option = click.option(
    "-m", "--model", "path", type=click.Path(path_type=Path), required=True, help="The .gguf file."
)
mmap_option = click.option(
    "--no-mmap", is_flag=True, help="Read the file instead of mapping it: safe if it is cut while in use."
)
config_options = _together(
    click.option(
        "-c",
        "--context",
        type=click.IntRange(1, INT_MAX),
        default=2048,
        show_default=True,
        help="Positions of the context.",
    ),
    click.option("--activations", type=click.Choice(ACTIVATIONS), default="wide", show_default=True),
    click.option("--kv", type=click.Choice(KV_TYPES), default="f16", show_default=True),
)
gate_options = _together(
    click.option("--require", type=click.Choice(["certified"]), help="Refuse all but certified models."),
    click.option(
        "--trust-envelope",
        "trust",
        multiple=True,
        metavar="SHA256",
        help="With --require: sidecar files to believe. Repeatable.",
    ),
    click.option("--force-uncertified", "force", is_flag=True, help="Load a model measured to fail here."),
)
speed_options = _together(
    click.option("-t", "--threads", type=click.IntRange(1, 256), help="Threads. [default: all usable CPUs]"),
    click.option(
        "-b",
        "--batch",
        type=click.IntRange(1, 4096),
        default=512,
        show_default=True,
        help="Rows evaluated together; changes no result.",
    ),
    click.option(
        "--no-repack",
        is_flag=True,
        help="Read the weights as the file holds them: slower, without a copy in memory; the same results.",
    ),
)
prompt_options = _together(
    click.option("-p", "--prompt", help="The text itself."),
    click.option(
        "-f",
        "--file",
        type=click.Path(path_type=Path, allow_dash=True),
        help="A UTF-8 file that holds the text; - is standard input.",
    ),
)
sampling_options = _together(
    click.option("-n", "--tokens", type=click.IntRange(-1), default=256, show_default=True,
                 help="At most so many tokens; -1: until the context is full."),
    click.option("--temp", type=click.FloatRange(0), default=0.0, show_default=True, help="0 is greedy."),
    click.option("--top-k", type=click.IntRange(0, INT_MAX), default=0, show_default=True, help="0 is off."),
    click.option("--top-p", type=click.FloatRange(0, 1), default=1.0, show_default=True, help="1 is off."),
    click.option("--min-p", type=click.FloatRange(0, 1), default=0.0, show_default=True, help="0 is off."),
    click.option("--repeat-penalty", type=click.FloatRange(0, min_open=True), default=1.0, show_default=True),
    click.option("--frequency-penalty", type=float, default=0.0, show_default=True),
    click.option("--presence-penalty", type=float, default=0.0, show_default=True),
    click.option("--seed", type=click.IntRange(0, 2**64 - 1), default=0, show_default=True),
    click.option("--stop", multiple=True, metavar="TEXT", help="End before this text. Repeatable."),
)  # fmt: skip
constraint_options = _together(
    click.option("--json-object", is_flag=True, help="The text is a JSON object."),
    click.option(
        "--json-schema",
        type=click.Path(path_type=Path, allow_dash=True),
        help="A file with the JSON Schema that the text keeps to; - is standard input.",
    ),
    click.option("--regex", metavar="PATTERN", help="The whole text matches this pattern."),
    click.option("--choice", multiple=True, metavar="TEXT", help="The whole text is this. Repeatable."),
    click.option(
        "--grammar",
        type=click.Path(path_type=Path, allow_dash=True),
        help="A file with the text's grammar: GBNF (it has ::=) or Lark.",
    ),
    click.option(
        "--order",
        type=click.Choice(["declared", "any"]),
        default="declared",
        show_default=True,
        help="Members of JSON objects.",
    ),
    click.option(
        "--whitespace",
        type=click.Choice(["compact", "free"]),
        default="compact",
        show_default=True,
        help="Between the tokens of JSON.",
    ),
)
loading_options = _together(
    model_option, config_options, speed_options, gate_options, mmap_option, log_format_option
)


@dataclass(frozen=True)
class Loading:
    """The options of ``loading_options``; ``take`` removes them from a command's keywords and checks them."""

    path: Path
    context: int
    activations: str
    kv: str
    threads: int | None
    batch: int
    no_repack: bool
    require: str | None
    trust: tuple[str, ...]
    force: bool
    no_mmap: bool

    @classmethod
    def take(cls, values: dict[str, Any]) -> Loading:
        loading = cls(**{name: values.pop(name) for name in cls.__dataclass_fields__})
        loading.policy()
        return loading

    def policy(self) -> Policy:
        from engine.envelope import Policy

        require: Any = self.require
        return Policy(require=require, trust=frozenset(self.trust), force=self.force)

    def open(self) -> Model:
        """Open the model through the gate and say on standard error how it stands."""
        from engine.model import Model, RuntimeConfig

        config = RuntimeConfig(self.activations, self.kv, self.context)
        model = Model.open(self.path, config=config, policy=self.policy(), mmap=not self.no_mmap)
        standing = model.standing
        message = f"{printable(self.path.name)}: {standing.state}: {standing.detail}"
        if standing.warning:
            CONSOLE.log("standing", standing.warning, level="warning", standing=standing.document())
        else:
            CONSOLE.log("standing", message, standing=standing.document())
        trained = model.info.context_train
        source = click.get_current_context().get_parameter_source("context")
        if source is not ParameterSource.DEFAULT and 0 < trained < self.context:
            message = f"-c {self.context}: the model was trained for {trained} positions"
            CONSOLE.log("context", message, level="warning")
        return model

    def session(self, model: Model, sequences: int = 1) -> Session:
        return model.session(self.threads, self.batch, sequences, repack=not self.no_repack)


@dataclass(frozen=True)
class Choosing:
    """The options of ``sampling_options``, checked before any model is opened."""

    tokens: int
    temp: float
    top_k: int
    top_p: float
    min_p: float
    repeat_penalty: float
    frequency_penalty: float
    presence_penalty: float
    seed: int
    stop: tuple[str, ...]

    @classmethod
    def take(cls, values: dict[str, Any]) -> Choosing:
        choosing = cls(**{name: values.pop(name) for name in cls.__dataclass_fields__})
        choosing.sampling()
        return choosing

    @property
    def max_tokens(self) -> int | None:
        return None if self.tokens < 0 else self.tokens

    def sampling(self) -> Sampling:
        from engine.generate import Sampling

        filters = (self.temp, self.top_k, self.top_p, self.min_p)
        return Sampling(
            *filters, self.repeat_penalty, self.frequency_penalty, self.presence_penalty, self.seed
        )


@dataclass(frozen=True)
class Constraining:
    """The options of ``constraint_options``, compiled before any model is opened."""

    json_object: bool
    json_schema: Path | None
    regex: str | None
    choice: tuple[str, ...]
    grammar: Path | None
    order: str
    whitespace: str

    @classmethod
    def take(cls, values: dict[str, Any]) -> Constraint | None:
        """The constraint that the command line asks for."""
        return cls(**{name: values.pop(name) for name in cls.__dataclass_fields__})._compiled()

    def _compiled(self) -> Constraint | None:
        names = ("json_object", "json_schema", "regex", "choice", "grammar")
        given = [name for name in names if getattr(self, name) not in (None, False, ())]
        if not given:
            return None
        if len(given) > 1:
            raise UsageError("give one of --json-object, --json-schema, --regex, --choice and --grammar")
        from engine import constrain

        order: Any = self.order
        whitespace: Any = self.whitespace
        kind, source = self._source(given[0])
        return constrain.compile(kind, source, constrain.Options(order, whitespace))

    def _source(self, name: str) -> tuple[Kind, str | list[str]]:
        if name == "json_object":
            return "json", "object"
        if name == "regex":
            return "regex", _unicode(str(self.regex), "--regex")
        if name == "choice":
            return "choice", [_unicode(text, "--choice") for text in self.choice]
        if name == "json_schema":
            return "json_schema", _read(Path(str(self.json_schema)), CONSTRAINT_BYTES)
        text = _read(Path(str(self.grammar)), CONSTRAINT_BYTES)
        return ("gbnf" if "::=" in text else "lark"), text


def read_prompt(prompt: str | None, file: Path | None) -> str:
    """The text of -p or -f, of which exactly one must be given."""
    if (prompt is None) == (file is None):
        raise UsageError("give the text with -p TEXT or with -f FILE, and not with both")
    if prompt is not None:
        return _unicode(prompt, "-p")
    if file is None:
        raise UsageError("give the text with -p TEXT or with -f FILE")
    return _read(file, PROMPT_BYTES)


def _read(file: Path, limit: int) -> str:
    """The text of a UTF-8 file, or of standard input; at most ``limit`` bytes."""
    if str(file) == "-":
        data = sys.stdin.buffer.read(limit + 1)
    else:
        with file.open("rb") as stream:
            data = stream.read(limit + 1)
    if len(data) > limit:
        raise UsageError(f"{printable(file)} is longer than {limit} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{printable(file)} is not UTF-8 at byte {error.start}") from None


def _unicode(text: str, option: str) -> str:
    """An argument that the shell passed; bytes that are no UTF-8 arrive as surrogates."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UsageError(f"the text given with {option} is not UTF-8 at character {error.start}") from None
    return text
