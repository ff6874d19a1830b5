"""The script of one answer: reasoning, text, calls and documents in the protocol of a model's family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine import constrain
from engine.constrain import Constraint
from engine.script import Announce, Document, Exit, Fixed, Flow, Fork, Free, Kit, Script, State
from engine.serve.families import Family

MAX_CALLS = 128
# A prelude with less than this is not offered.
LEAST_THINKING = 16


@dataclass(frozen=True, slots=True)
class Protocol:
    """What an answer may be.

    ``tools``: the constraint of each callable tool's arguments. ``required``: it must be a call; else it may
    be text, or, with ``content``, must be that document. ``think`` as in Family, None where the model has
    no reasoning; ``thinking``: the prelude's budget in tokens; ``inside``: the prompt ends inside one.
    """

    family: Family
    tools: Mapping[str, Constraint]
    required: bool
    parallel: bool
    content: Constraint | None
    think: tuple[str, str, str] | None
    thinking: int
    inside: bool


def script(kit: Kit, protocol: Protocol) -> Script:
    """A guide for one answer."""
    return Script(kit, _Builder(kit, protocol).start())


class _Builder:
    """Makes the states of one script; every method may be called more than once."""

    def __init__(self, kit: Kit, protocol: Protocol) -> None:
        self._kit = kit
        self._protocol = protocol
        self._family = protocol.family

    def start(self) -> State:
        protocol = self._protocol
        think = protocol.think
        if think is None:
            return self._answer()
        if protocol.inside:
            return self._reasoning(think) if protocol.thinking else self._after_reasoning(think)
        if protocol.thinking < LEAST_THINKING:
            return self._answer()
        if self._kit.spelling.single(think[0]) is None and not self._family.text:
            return self._answer()  # no way to tell the tag from an answer's beginning
        return Fork([Fixed(think[0], lambda: self._reasoning(think))], self._answer())

    def _reasoning(self, think: tuple[str, str, str]) -> State:
        def after() -> State:
            return self._after_reasoning(think)

        flow, limit = Flow("reasoning", 0, ()), self._protocol.thinking
        return Free(flow, [Exit(think[1], after)], ends=False, limit=limit, beyond=after, trim=True)

    def _after_reasoning(self, think: tuple[str, str, str]) -> State:
        _, close, after = think
        free = not (self._protocol.required or self._protocol.content or self._family.text)
        return Fixed(close if free else close + after, self._answer)

    def _answer(self) -> State:
        """The answer behind any reasoning."""
        protocol = self._protocol
        if protocol.required:
            return self._call(0)
        if not protocol.tools:
            return Fixed(self._family.text, self._content) if self._family.text else self._content()
        if self._family.text:
            return Fork([self._call(0), Fixed(self._family.text, self._content)])
        if protocol.content is not None:
            return Fork([self._call(0)], self._content())
        leave = Exit(self._family.trigger, lambda: self._call(0), first=self._family.first)
        return Free(Flow("content", 0, self._kit.stop), [leave], trim=protocol.think is not None)

    def _content(self) -> State:
        flow = Flow("content", 0, self._kit.stop)
        if self._protocol.content is None:
            return Free(flow, trim=self._protocol.think is not None)
        return Document(self._kit.matcher(self._protocol.content), flow)

    def _call(self, index: int) -> Fixed:
        before = self._family.opening if index == 0 else self._family.between or ""
        skip = 0 if index == 0 else len(before.encode())
        return Fixed(before + self._family.before_name, lambda: self._name(index), index, skip)

    def _name(self, index: int) -> State:
        """The name with the plain text behind it, so that no name is the beginning of another."""
        after = Fixed(self._family.after_name, lambda: None)
        plain = after.plain(self._kit).decode()
        rest = self._family.after_name[len(plain) :]
        names = constrain.compile("choice", [name + plain for name in self._protocol.tools])

        def then(data: bytes) -> State:
            name = data.decode().removesuffix(plain)
            return Fixed(rest, lambda: self._arguments(index, name)) if rest else self._arguments(index, name)

        matcher = self._kit.matcher(names)
        return Document(matcher, None, then, tail=Fixed(rest, lambda: None), greedy=bool(plain), suffix=plain)

    def _arguments(self, index: int, name: str) -> State:
        after = self._family.after_arguments

        def then(data: bytes) -> State | None:
            return Fixed(after, lambda: self._next(index)) if after else self._next(index)

        document = Document(
            self._kit.matcher(self._protocol.tools[name]),
            Flow("arguments", index, self._kit.stop),
            then,
            tail=Fixed(after, lambda: None),
            call=index,
        )
        return Announce(name, index, document, self._family.preset.encode())

    def _next(self, index: int) -> State | None:
        """What may follow a call."""
        closing = self._family.closing
        last = self._family.between is None or index + 1 >= MAX_CALLS
        if last or not self._protocol.parallel:
            return Fixed(closing, lambda: None) if closing else None
        close = [Fixed(closing, lambda: None)] if closing else []
        return Fork([self._call(index + 1), *close], ends=not closing)
