"""The model's own chat template, and why message content can never become a control token.

Templates are Jinja programs out of a file that nobody has read. They render in a sandbox inside a
child process with limits on time, memory and output (``template_child``, ``template_worker``), as
transformers renders them.

**Content stays content.** A rendered prompt mixes the template's control tokens with text from
users. Every string of the messages, tools and other variables is searched for *dangerous* ranges:
the text of a control token, whatever its case, and a beginning of one at the string's end, or an
end of one at its start, which neighbouring text could complete. Each such range is wrapped in two
sentinels, noncharacters (U+FDD0 … U+FDEF, or sequences of them) that occur in no input. The template
carries them to wherever the range ends up. After rendering they are taken out, and the range
between a pair becomes a *literal* span, which the tokenizer keeps from touching any control token.
A sentinel that lost its partner (a template that splits or cuts a string) protects the character
that it stands at. Strings without a dangerous range are passed untouched. What is not covered is a
template that deletes text from the middle of a string and so joins two harmless parts.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from engine import native
from engine.errors import TemplateError, UsageError
from engine.native import Span
from engine.template_child import CHILD, Limits

TEMPLATE_KEY = "tokenizer.chat_template"
NONCHARACTERS = tuple(chr(code) for code in range(0xFDD0, 0xFDF0))
REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")
Message = Mapping[str, Any]


@dataclass(frozen=True)
class Rendered:
    """A prompt. ``literal``: byte spans of its UTF-8 form that no control token may touch."""

    text: str
    literal: tuple[Span, ...] = ()


@dataclass(frozen=True)
class Template:
    """The chat templates of one model. ``sources`` maps names to Jinja text, "default" among them.

    ``special`` holds bos_token, eos_token and the like; ``control`` the texts of all control tokens.
    """

    sources: Mapping[str, str]
    name: str | None = None
    special: Mapping[str, str] | None = None
    control: frozenset[str] = frozenset()
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if self.name is not None and self.name not in self.sources:
            known = _list(self.sources)
            raise UsageError(f"the model has no chat template named '{self.name}', only {known}")

    def source(self, *, tools: bool = False) -> str:
        """The Jinja text that a rendering uses: the named one, "tool_use" with tools, or the default."""
        if self.name is not None:
            return self.sources[self.name]
        if tools and "tool_use" in self.sources:
            return self.sources["tool_use"]
        if "default" in self.sources:
            return self.sources["default"]
        raise UsageError(f"the model has no default chat template: name one of {_list(self.sources)}")

    @cached_property
    def _danger(self) -> Danger:
        return Danger(self.control)

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        now: datetime | None = None,
        **variables: Any,
    ) -> Rendered:
        """Render messages (dicts with ``role`` and ``content``) into a prompt.

        ``variables`` are further names that the template sees; ``now`` fixes its clock. Tokenise the
        result with ``special=True``, ``bos=False`` and its ``literal``. Raises TemplateError.
        """
        source = self.source(tools=tools is not None)
        given = {
            **variables,
            "messages": [_message(message) for message in messages],
            "tools": plain(tools),
            "documents": plain(documents),
        }
        given = plain(given)
        sentinels = Sentinels.absent_from([source, *_strings(given)])
        request = {
            "source": source,
            "variables": {
                **(self.special or {}),
                **self._danger.mark(given, sentinels),
                "add_generation_prompt": add_generation_prompt,
            },
            "now": None if now is None else now.isoformat(),
        }
        return sentinels.remove(CHILD.render(request, self.limits))


def model_template(metadata: Mapping[str, Any], vocab: native.Vocab) -> Template:
    """The chat templates of a GGUF. Raises TemplateError where it has none."""
    sources = {
        key[len(TEMPLATE_KEY) + 1 :] or "default": metadata[key]
        for key in metadata
        if key == TEMPLATE_KEY or key.startswith(TEMPLATE_KEY + ".")
    }
    broken = next((key for key, value in sources.items() if not isinstance(value, str)), None)
    if broken is not None:
        raise TemplateError(f"the chat template '{broken}' is not a string in the model's metadata")
    if not sources:
        raise TemplateError(
            f"the model has no chat template (no key {TEMPLATE_KEY}): it may be a base model; "
            "give it a raw prompt (`gaugeblock run`, /v1/completions)"
        )
    return Template(sources, None, special_tokens(vocab), control_texts(vocab))


def special_tokens(vocab: native.Vocab) -> dict[str, str]:
    """The variables bos_token, eos_token, unk_token and pad_token, as far as the model names them."""
    info = vocab.info
    ids = {"bos_token": info.bos, "eos_token": info.eos, "unk_token": info.unk, "pad_token": info.pad}
    return {name: vocab.token_text(token) for name, token in ids.items() if token is not None}


def control_texts(vocab: native.Vocab) -> frozenset[str]:
    """Texts of the tokens that steer the model: control and unknown ones, BOS, and all that end a turn."""
    return frozenset(text for token in vocab.steering() if (text := vocab.token_text(token)))


def plain(value: Any) -> Any:
    """A copy of JSON-like data in plain types. Raises UsageError where something is not JSON-like."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        return {_text(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        return [plain(item) for item in value]
    raise UsageError(f"a message may hold JSON values only, not {type(value).__name__}")


def _text(value: object) -> str:
    text = str(value)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UsageError(f"a message holds a lone surrogate at character {error.start}") from None
    return text


def _message(message: Message) -> dict[str, Any]:
    """A message as templates expect it: no null fields, reasoning under the names that are read."""
    if not isinstance(message, Mapping):
        raise UsageError(f"a message must be an object, not {type(message).__name__}")
    kept = {key: value for key, value in message.items() if value is not None}
    reasoning = next((kept[key] for key in REASONING_KEYS if key in kept), None)
    if reasoning is None:
        return kept
    return {"thinking": reasoning, **kept, "reasoning_content": reasoning}


def _strings(value: Any) -> Iterator[str]:
    """Every string in JSON-like data, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield key
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


def _list(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names))


class Danger:
    """Finds the ranges of a string that could be, or become, part of a control token."""

    def __init__(self, control: Iterable[str]) -> None:
        texts = sorted({text.casefold() for text in control}, key=lambda text: (-len(text), text))
        self._whole = frozenset(texts)
        self._lengths: dict[str, list[int]] = {}
        for text in texts:
            lengths = self._lengths.setdefault(text[0], [])
            if len(text) not in lengths:
                lengths.append(len(text))
        self._starts = {text[:n] for text in texts for n in range(1, len(text))}
        self._ends = {text[-n:] for text in texts for n in range(1, len(text))}
        self._longest = len(texts[0]) - 1 if texts else 0

    def ranges(self, text: str) -> list[Span]:
        """Dangerous character ranges of a string, ascending and apart."""
        if not self._whole:
            return []
        found = []
        for at, char in enumerate(text):
            known = self._lengths.get(char.casefold()[:1], [])
            found += [(at, at + n) for n in known if text[at : at + n].casefold() in self._whole][:1]
        # Templates like to trim, so the trimmed string has edges too.
        begin, end = len(text) - len(text.lstrip()), len(text.rstrip())
        for edge in {end, len(text)}:
            lengths = range(min(self._longest, edge), 0, -1)
            found += [(edge - n, edge) for n in lengths if text[edge - n : edge].casefold() in self._starts][
                :1
            ]
        for edge in {begin, 0}:
            lengths = range(min(self._longest, len(text) - edge), 0, -1)
            found += [(edge, edge + n) for n in lengths if text[edge : edge + n].casefold() in self._ends][:1]
        return merge(found)

    def mark(self, value: Any, sentinels: Sentinels) -> Any:
        """Copy JSON-like data with every dangerous range wrapped, in keys too."""
        if isinstance(value, str):
            return self._mark_text(value, sentinels)
        if isinstance(value, dict):
            return {self.mark(key, sentinels): self.mark(item, sentinels) for key, item in value.items()}
        if isinstance(value, list):
            return [self.mark(item, sentinels) for item in value]
        return value

    def _mark_text(self, text: str, sentinels: Sentinels) -> str:
        parts, last = [], 0
        for begin, end in self.ranges(text):
            parts += [text[last:begin], sentinels.open, text[begin:end], sentinels.close]
            last = end
        return "".join([*parts, text[last:]])


def merge(spans: Iterable[Span]) -> list[Span]:
    """Sort spans and join those that overlap or touch."""
    merged: list[Span] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


@dataclass(frozen=True)
class Sentinels:
    """Two strings of noncharacters that occur in no input, raw or as a ``\\u`` escape."""

    open: str
    close: str

    @classmethod
    def absent_from(cls, texts: Sequence[str]) -> Sentinels:
        """Choose a pair. Sequences are tried once all single noncharacters are taken.

        The first character of a sentinel does not recur in it, so that none can begin inside another.
        """
        used = "\n".join(texts)
        used += "\n" + _unescape(used)
        length = 1
        while True:
            free = (
                "".join(chars)
                for chars in itertools.product(NONCHARACTERS, repeat=length)
                if chars[0] not in chars[1:] and "".join(chars) not in used
            )
            pair = list(itertools.islice(free, 2))
            if len(pair) == 2:
                return cls(*pair)
            length += 1

    def remove(self, text: str) -> Rendered:
        """Take the sentinels out of a rendered text and turn their places into literal byte spans.

        A template may have written them as escapes (``tojson(ensure_ascii=true)``, Python's repr).
        """
        either = "|".join(_either_form(sentinel) for sentinel in (self.open, self.close))
        parts: list[str] = []
        marks: list[tuple[bool, int]] = []
        last = at = 0
        for match in re.finditer(either, text):
            parts.append(text[last : match.start()])
            at += match.start() - last
            last = match.end()
            marks.append((_unescape(match.group()) == self.open, at))
        parts.append(text[last:])
        clean = "".join(parts)
        return Rendered(clean, tuple(_byte_spans(clean, _pair(marks, len(clean)))))


def _either_form(sentinel: str) -> str:
    """A pattern for a sentinel, each of its characters raw or escaped."""
    return "".join(f"(?:{char}|\\\\u{ord(char):04x})" for char in sentinel)


def _unescape(text: str) -> str:
    return re.sub(r"\\u(fd[de][0-9a-f])", lambda match: chr(int(match[1], 16)), text, flags=re.IGNORECASE)


def _pair(marks: Sequence[tuple[bool, int]], length: int) -> list[Span]:
    """Character spans from sentinels: between a pair, else the one character beside a single one."""
    spans: list[Span] = []
    opened: int | None = None
    for is_open, at in marks:
        if is_open:
            if opened is not None:
                spans.append((opened, min(opened + 1, length)))
            opened = at
        elif opened is not None:
            spans.append((opened, at))
            opened = None
        else:
            spans.append((max(at - 1, 0), at))
    if opened is not None:
        spans.append((opened, min(opened + 1, length)))
    return merge(span for span in spans if span[0] < span[1])


def _byte_spans(text: str, spans: Sequence[Span]) -> Iterator[Span]:
    """Character spans as spans of the UTF-8 form."""
    at = done = 0
    for begin, end in spans:
        at += len(text[done:begin].encode("utf-8"))
        first = at
        at += len(text[begin:end].encode("utf-8"))
        done = end
        yield first, at
