"""Documents and tool calls as a script of states: fixed text, constrained text, free text, forks.

A token may reach over the border between two states where the second one must read what is left of
it. Text goes to channels (``engine.guide.Part``); the tags of a protocol go to none. A cut walks the
states from the current one on, and completes what was begun from exactly the text that was delivered.

Invariant: a state that a walk has reached can be completed, since constraints can, and since fixed text
always can.
"""

from __future__ import annotations

import codecs
import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from engine.constrain import Constraint, Matcher, Tokens
from engine.errors import ConstraintError
from engine.guide import CallEnding, Channel, Ending, Mask, Part, Taken
from engine.native import Span, Vocab
from engine.spelling import Spelling
from engine.stops import StopStrings

# Bytes of a forced run that are taken at one time.
RUN_BYTES = 4096
Next = Callable[[], "State | None"]


class Kit:
    """What all states of a script share: the vocabulary in its forms, and the caller's stop strings."""

    def __init__(self, vocab: Vocab, stop: Sequence[str] = ()) -> None:
        self.vocab = vocab
        self.stop = tuple(stop)
        self.spelling = Spelling.of(vocab)
        self.size = vocab.info.size
        StopStrings(self.stop)  # refuses what is no stop string

    @cached_property
    def tokens(self) -> Tokens:
        return Tokens.of(self.vocab)

    @cached_property
    def ends(self) -> Mask:
        """Tokens that end a generation."""
        return self.bits(token for token in self.vocab.steering() if self.vocab.is_end(token))

    @cached_property
    def every(self) -> Mask:
        """All tokens."""
        return self.bits(range(self.size))

    def bits(self, ids: object) -> Mask:
        """A mask of these tokens."""
        wanted = np.fromiter(ids, np.int64)  # type: ignore[call-overload]
        flags = np.zeros((self.size + 31) // 32 * 32, np.uint8)
        flags[wanted] = 1
        return np.packbits(flags, bitorder="little").view("<u4").astype(np.uint32)

    def matcher(self, constraint: Constraint) -> Matcher:
        return Matcher(constraint, self.tokens)


@dataclass
class Run:
    """Bytes that must come; inside ``literal`` they are no control tokens."""

    data: bytearray = field(default_factory=bytearray)
    literal: list[Span] = field(default_factory=list)

    def add(self, data: bytes, *, literal: bool) -> None:
        if literal:
            self.literal.append((len(self.data), len(self.data) + len(data)))
        self.data += data


@dataclass
class Call:
    """A tool call that has begun."""

    done: bool = False
    truncated: bool = False
    filled: tuple[str, ...] = ()
    name_filled: bool = False


@dataclass
class Out:
    """What a script has given: parts since the last token, and the calls so far."""

    parts: list[Part] = field(default_factory=list)
    stopped: bool = False
    cut: bool = False
    truncated: bool = False
    filled: tuple[str, ...] = ()
    calls: list[Call] = field(default_factory=list)

    def add(self, channel: Channel, text: str, call: int = 0) -> None:
        if text:
            self.parts.append(Part(channel, text, call))

    def begin(self, call: int) -> None:
        """A call has begun: from here on it will be whole."""
        if len(self.calls) == call:
            self.calls.append(Call())

    @property
    def in_call(self) -> bool:
        return bool(self.calls) and not self.calls[-1].done


class Flow:
    """The text of one channel: whole characters, nothing of a stop string, and what was delivered."""

    def __init__(self, channel: Channel, call: int, stop: Sequence[str]) -> None:
        self.channel: Channel = channel
        self.call = call
        self.delivered = bytearray()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stops = StopStrings(stop)

    def feed(self, data: bytes, out: Out) -> None:
        """Take bytes; ``out.stopped`` where they complete a stop string."""
        self.text(self._decoder.decode(data), out)

    def text(self, text: str, out: Out) -> None:
        shown, stopped = self._stops.feed(text)
        self._deliver(shown, out)
        out.stopped |= stopped

    def cut(self, out: Out) -> None:
        """Release what might have begun a stop string; half a character was never there."""
        self._decoder.reset()
        self._deliver(self._stops.flush(), out)

    def finish(self, out: Out) -> None:
        """The end as the model meant it: half a character becomes U+FFFD."""
        self.text(self._decoder.decode(b"", final=True), out)
        if not out.stopped:
            self._deliver(self._stops.flush(), out)

    def _deliver(self, text: str, out: Out) -> None:
        self.delivered += text.encode()
        out.add(self.channel, text, self.call)


class State:
    """A place in a script. ``ends``: the generation may end here by the model's own choice."""

    ends = False

    def enter(self, kit: Kit, out: Out) -> State | None:
        """The walk has come here; what it goes on with."""
        return self

    def run(self, kit: Kit, run: Run) -> State | None:
        """Add the bytes that must come; the state behind this one where they use it up."""
        return None

    def mask(self, kit: Kit) -> Mask | None:
        """The tokens that may come; None: all."""
        raise NotImplementedError

    def feed(self, kit: Kit, data: bytes, token: int | None, out: Out) -> State | None:
        """Read bytes (of a whole token, where one is given); the state then reached, None at the end."""
        raise NotImplementedError

    def stop(self, out: Out) -> None:
        """The model ended the generation here."""

    def shut(self, kit: Kit, out: Out) -> State | None:
        """The generation is cut here: complete what was begun; the next state to shut."""
        return None

    def over(self, kit: Kit) -> bool:
        """Nothing can follow."""
        return False


class Fixed(State):
    """Text that must come, in which the text of control tokens is those tokens.

    ``call``: with the first byte from ``begins`` on, that call has begun.
    """

    def __init__(self, text: str, then: Next, call: int | None = None, begins: int = 0) -> None:
        self._data = text.encode()
        self._then = then
        self._call = call
        self._begins = begins
        self._at = 0

    @property
    def rest(self) -> bytes:
        return self._data[self._at :]

    def run(self, kit: Kit, run: Run) -> State | None:
        run.add(self.rest, literal=False)
        return self._then()

    def mask(self, kit: Kit) -> Mask | None:
        run = Run()
        state: State | None = self
        while state is not None and len(run.data) < RUN_BYTES:
            state = state.run(kit, run)
        return kit.bits(kit.spelling.ids(bytes(run.data), run.literal)[:1])

    def feed(self, kit: Kit, data: bytes, token: int | None, out: Out) -> State | None:
        if token is not None:
            data = kit.vocab.token_bytes(token, special=True)
        size = min(len(data), len(self.rest))
        if data[:size] != self.rest[:size]:
            raise ConstraintError(f"{data!r} is not what must come here: {self.rest!r}")
        moved = self._moved(size)
        if self._call is not None and moved._at > self._begins:
            out.begin(self._call)
        if moved.rest:
            return moved
        return _follow(kit, self._then(), data[size:], None, out)

    def _moved(self, size: int) -> Fixed:
        moved = Fixed("", self._then, self._call, self._begins)
        moved._data, moved._at = self._data, self._at + size
        return moved

    def shut(self, kit: Kit, out: Out) -> State | None:
        return self._then()

    def plain(self, kit: Kit) -> bytes:
        """The text up to its first control token."""
        at = 0
        for token in kit.spelling.ids(self.rest):
            data = kit.vocab.token_bytes(token, special=True)
            if kit.vocab.token_kind(token) in ("control", "user-defined") and len(data) > 1:
                return self.rest[:at]
            at += len(data)
        return self.rest


class Document(State):
    """Text under a constraint. Alone it is the whole answer; with ``then`` a part of one.

    ``then`` gets the document's bytes. ``tail`` is the fixed text behind it, into which a token may
    reach. A document inside a script ends as soon as it may, unless ``greedy`` is false: then as soon
    as it must, or with the first token of the tail (names that begin other names). ``suffix`` is what
    every text of a name ends with that is not part of the name.
    """

    def __init__(
        self,
        matcher: Matcher,
        flow: Flow | None,
        then: Callable[[bytes], State | None] | None = None,
        *,
        tail: Fixed | None = None,
        call: int | None = None,
        greedy: bool = True,
        suffix: str = "",
    ) -> None:
        self.suffix = suffix
        self._matcher = matcher
        self._origin = matcher.fork()
        self._flow = flow
        self._then = then
        self._tail = tail
        self._call = call
        self._greedy = greedy
        self._read = bytearray()

    @property
    def read(self) -> bytearray:
        """The bytes read so far."""
        return self._read

    @property
    def origin(self) -> Matcher:
        """Where reading began; not to be moved."""
        return self._origin

    @property
    def name(self) -> bool:
        """Whether it is a name, which has no channel of its own."""
        return self._flow is None

    @property
    def call(self) -> int | None:
        """The tool call whose arguments it is."""
        return self._call

    def beyond(self, kit: Kit, data: bytes) -> Mask:
        """The tokens that may come once ``data`` has been read as well; nothing is moved."""
        ahead = copy.copy(self)
        ahead._matcher = self._matcher.fork()
        ahead._matcher.commit_bytes(data)
        mask = ahead.mask(kit)
        return kit.every if mask is None else mask

    def last(self, kit: Kit, token: int) -> bool:
        """Whether a token that may come ends the document without being part of it."""
        if kit.vocab.is_end(token):
            return True
        behind = None if self._greedy or self._tail is None else self._tail.rest
        return behind is not None and kit.spelling.ids(behind)[:1] == [token]

    @property
    def ends(self) -> bool:  # type: ignore[override]
        return self._then is None and self._matcher.accepting

    def over(self, kit: Kit) -> bool:
        return self._then is None and self._closed(kit, self._matcher)

    def _closed(self, kit: Kit, matcher: Matcher) -> bool:
        """Whether nothing more can be read."""
        if not matcher.accepting:
            return False
        if self._then is not None and self._greedy:
            return True
        return not (matcher.mask() & ~kit.ends).any()

    def run(self, kit: Kit, run: Run) -> State | None:
        forced = self._matcher.forced()
        if not forced:
            return None
        run.add(forced, literal=True)
        if self._then is None:
            return None
        probe = self._matcher.fork()
        probe.commit_bytes(forced)
        return self._then(bytes(self._read) + forced) if self._closed(kit, probe) else None

    def mask(self, kit: Kit) -> Mask | None:
        mask = self._matcher.mask()
        if self._then is None:
            return mask
        if self._matcher.accepting and self._tail is not None:
            behind = self._tail.mask(kit)
            return mask & ~kit.ends if behind is None else mask & ~kit.ends | behind
        tail = b"" if self._tail is None else self._tail.plain(kit)
        edges = kit.spelling.edges(tail)
        ids = [token for data, tokens in edges if self._completes(data) for token in tokens]
        return mask | kit.bits(ids) if ids else mask

    def _completes(self, data: bytes) -> bool:
        probe = self._matcher.fork()
        try:
            probe.commit_bytes(data)
        except ConstraintError:
            return False
        return probe.accepting

    def feed(self, kit: Kit, data: bytes, token: int | None, out: Out) -> State | None:
        if token is not None:
            if self._then is not None and self._tail_token(kit, token):
                return self._leave(kit, b"", token, out)
            data = kit.vocab.token_bytes(token)
        size = self._commit(kit, data, token)
        self._read += data[:size]
        if self._flow is not None:
            self._flow.feed(data[:size], out)
        if self._then is None or not self._closed(kit, self._matcher):
            return self
        return self._leave(kit, data[size:], None, out)

    def _tail_token(self, kit: Kit, token: int) -> bool:
        """Whether a control token of the tail ends the document."""
        return bool(
            not self._greedy
            and self._matcher.accepting
            and self._tail is not None
            and kit.spelling.ids(self._tail.rest)[:1] == [token]
        )

    def _commit(self, kit: Kit, data: bytes, token: int | None) -> int:
        """Read as much of the data as belongs to the document; its size."""
        if token is not None and self._matcher.commit(token):
            return len(data)
        used = 0
        while used < len(data) and not (self._then is not None and self._closed(kit, self._matcher)):
            self._matcher.commit_bytes(data[used : used + 1])
            used += 1
        return used

    def _leave(self, kit: Kit, rest: bytes, token: int | None, out: Out) -> State | None:
        """The document is complete: what follows reads the rest."""
        self.stop(out)
        if self._call is not None:
            out.calls[self._call].done = True
        if out.stopped or self._then is None:
            return self
        return _follow(kit, self._then(bytes(self._read)), rest, token, out)

    def stop(self, out: Out) -> None:
        if self._flow is not None:
            self._flow.finish(out)

    def shut(self, kit: Kit, out: Out) -> State | None:
        if self._flow is None:
            return self._shut_name(out)
        self._flow.cut(out)
        if self._flow.delivered != self._read:
            self._matcher = self._origin.fork()
            self._matcher.commit_bytes(bytes(self._flow.delivered))
        if self._call is None and not self._matcher.begun:
            out.truncated = True
            return None
        closing = self._matcher.close()
        out.add(self._flow.channel, closing.data.decode(), self._flow.call)
        cut = not out.stopped or bool(closing.data)
        # What is no JSON has one value, the whole.
        whole = closing.data and self._matcher.kind not in ("json", "json_schema")
        filled = ("",) if whole else closing.filled
        if self._call is None:
            out.truncated, out.filled = cut, filled
            return None
        call = out.calls[self._call]
        call.done, call.truncated, call.filled = True, cut, filled
        return self._then(bytes(self._flow.delivered) + closing.data) if self._then is not None else None

    def _shut_name(self, out: Out) -> State | None:
        """Complete a name: it was the closer's choice unless there was no other."""
        closing = self._matcher.close()
        out.calls[-1].name_filled |= closing.data != self._matcher.forced()[: len(closing.data)]
        return self._then(bytes(self._read) + closing.data) if self._then is not None else None


class Announce(State):
    """Gives a call its name, and turns into the document of its arguments, which ``preset`` begins."""

    def __init__(self, name: str, call: int, arguments: Document, preset: bytes = b"") -> None:
        self._name = name
        self._call = call
        self._arguments = arguments
        self._preset = preset

    def run(self, kit: Kit, run: Run) -> State | None:
        return None if self._preset else self._arguments.run(kit, run)

    def enter(self, kit: Kit, out: Out) -> State | None:
        out.add("name", self._name, self._call)
        return self._arguments.feed(kit, self._preset, None, out) if self._preset else self._arguments

    def shut(self, kit: Kit, out: Out) -> State | None:
        return self.enter(kit, out)


@dataclass
class Exit:
    """Where free text turns into something else: at a tag, which is a token of its own or plain text.

    The state that ``make`` gives reads the tag, too. ``first``: plain text counts only where it begins
    the answer.
    """

    text: str
    make: Callable[[], State]
    first: bool = False


class Free(State):
    """Text that the model writes as it likes, until one of the exits, at most ``limit`` tokens."""

    def __init__(
        self,
        flow: Flow,
        exits: Sequence[Exit] = (),
        *,
        ends: bool = True,
        limit: int | None = None,
        beyond: Next | None = None,
        trim: bool = False,
    ) -> None:
        self.ends = ends
        self._flow = flow
        self._exits = list(exits)
        self._limit = limit
        self._beyond = beyond
        self._trim = trim
        self._count = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._blocks: dict[tuple[str, int], list[int]] = {}

    def mask(self, kit: Kit) -> Mask | None:
        blocked = [token for index in range(len(self._exits)) for token in self._blocked(kit, index)]
        if not blocked and self.ends:
            return None
        mask = kit.every & ~kit.bits(blocked)
        return mask if self.ends else mask & ~kit.ends

    def _blocked(self, kit: Kit, index: int) -> list[int]:
        """Tokens that would complete a plain tag and go on otherwise than its exit can read."""
        leave = self._exits[index]
        if kit.spelling.single(leave.text) is not None:
            return []
        if leave.first:
            sizes = [len(self._held.lstrip())]
        else:
            sizes = [size for size in range(len(leave.text)) if self._held.endswith(leave.text[:size])]
        found: list[int] = []
        for size in sizes:
            if (leave.text, size) not in self._blocks:
                self._blocks[leave.text, size] = self._illegal(kit, leave, size)
            found += self._blocks[leave.text, size]
        return found

    def _illegal(self, kit: Kit, leave: Exit, size: int) -> list[int]:
        tag = leave.text.encode()
        rows = [(data[len(tag) - size :], token) for data, token in kit.spelling.beginning(tag[size:])]
        if size == 0:
            known = {token for _, token in rows}
            holding = [(data, token) for data, token in kit.spelling.holding(tag) if token not in known]
            rows += [(data[data.index(tag) + len(tag) :], token) for data, token in holding]
        return [token for tail, token in rows if tail and not _readable(kit, leave, tail)]

    def feed(self, kit: Kit, data: bytes, token: int | None, out: Out) -> State | None:
        self._count += token is not None
        if token is not None:
            for leave in self._exits:
                if kit.spelling.single(leave.text) == token:
                    return self._exit(kit, leave, "", out)
            data = kit.vocab.token_bytes(token)
        state = self._text(kit, self._decoder.decode(data), out)
        if state is self and self._limit is not None and self._count >= self._limit and self._beyond:
            self.stop(out)
            return self._beyond()
        return state

    def _text(self, kit: Kit, text: str, out: Out) -> State | None:
        buffer = self._held + text
        if self._trim:
            buffer = buffer.lstrip("\n")
        for leave in self._exits:
            at = _first(buffer, leave)
            if at >= 0 and kit.spelling.single(leave.text) is None:
                self._held = ""
                self._show("" if leave.first else buffer[:at], out)
                return self._exit(kit, leave, buffer[at + len(leave.text) :], out)
        keep = max((_pending(buffer, leave) for leave in self._exits), default=0)
        self._held = buffer[len(buffer) - keep :]
        self._show(buffer[: len(buffer) - keep], out)
        return self

    def _show(self, text: str, out: Out) -> None:
        if text:
            self._trim = False
            self._exits = [leave for leave in self._exits if not leave.first]
            self._flow.text(text, out)

    def _exit(self, kit: Kit, leave: Exit, rest: str, out: Out) -> State | None:
        self._flow.cut(out)
        return self if out.stopped else leave.make().feed(kit, (leave.text + rest).encode(), None, out)

    def stop(self, out: Out) -> None:
        """What was held as the possible beginning of a tag is text after all."""
        self._flow.text(self._held + self._decoder.decode(b"", final=True), out)
        self._held = ""
        self._flow.finish(out)

    def shut(self, kit: Kit, out: Out) -> State | None:
        """The beginning of a tag is not shown: the text is cut before it."""
        out.truncated |= not out.stopped
        self._flow.cut(out)
        return None


class Fork(State):
    """One of several texts, told apart by their canonical tokens; else ``other``, or an end token."""

    def __init__(self, options: Sequence[Fixed], other: State | None = None, *, ends: bool = False) -> None:
        self._options = list(options)
        self._other = other
        self._taken: list[int] = []
        self._ends = ends

    @property
    def ends(self) -> bool:  # type: ignore[override]
        return not self._taken and (self._ends or (self._other is not None and self._other.ends))

    def _left(self, kit: Kit) -> list[tuple[list[int], Fixed]]:
        rows = [(kit.spelling.ids(option.rest), option) for option in self._options]
        return [row for row in rows if row[0][: len(self._taken)] == self._taken]

    def mask(self, kit: Kit) -> Mask | None:
        own = kit.bits(ids[len(self._taken)] for ids, _ in self._left(kit))
        if self._taken:
            return own
        if self._ends:
            own = own | kit.ends
        if self._other is None:
            return own
        other = self._other.mask(kit)
        return None if other is None else own | other

    def feed(self, kit: Kit, data: bytes, token: int | None, out: Out) -> State | None:
        size = len(self._taken)
        left = [row for row in self._left(kit) if token is not None and row[0][size] == token]
        if not left:
            if self._other is None or self._taken:
                raise ConstraintError(f"{data!r} is not one of what may come here")
            return self._other.feed(kit, data, token, out)
        if len(left) > 1:
            moved = Fork([option for _, option in left])
            moved._taken = left[0][0][: size + 1]
            return moved
        ids, option = left[0]
        state: State | None = option
        for each in ids[: size + 1]:
            state = None if state is None else state.feed(kit, b"", each, out)
        return state

    def stop(self, out: Out) -> None:
        if self._other is not None:
            self._other.stop(out)

    def shut(self, kit: Kit, out: Out) -> State | None:
        if self._other is not None and not self._taken:
            return self._other.shut(kit, out)
        out.truncated = True
        return None


@dataclass(frozen=True)
class Place:
    """The document that a script stands in; ``call`` is the tool call that it belongs to."""

    kit: Kit
    document: Document
    call: int | None


class Script:
    """A guide that walks through states."""

    def __init__(self, kit: Kit, state: State | None) -> None:
        self._kit = kit
        self._state = state
        self._out = Out()

    def forced(self) -> list[int]:
        """Canonical tokens of the bytes that must come."""
        run = Run()
        state = self._state
        while state is not None and len(run.data) < RUN_BYTES:
            state = state.run(self._kit, run)
        return self._kit.spelling.ids(bytes(run.data), run.literal)

    def mask(self) -> Mask | None:
        """What the state allows."""
        return None if self._state is None else self._state.mask(self._kit)

    def take(self, token: int) -> Taken:
        """A token; nothing can follow the end of the last state."""
        state = self._state
        if state is None:
            raise ConstraintError("the document is complete; nothing may follow it")
        self._out.parts = []
        if self._kit.vocab.is_end(token) and state.ends:
            state.stop(self._out)
            self._state = None
        else:
            self._state = state.feed(self._kit, b"", token, self._out)
        if self._out.stopped:
            return self._end("stop-string")
        if self._state is None:
            return Taken(tuple(self._out.parts), "stop")
        if self._state.over(self._kit):
            self._state.stop(self._out)
            if self._out.stopped:
                return self._end("stop-string")
            return Taken(tuple(self._out.parts), "stop")
        return Taken(tuple(self._out.parts))

    def cut(self) -> Taken:
        """Complete what was begun."""
        self._out.parts = []
        return self._end(None)

    def _end(self, finish: str | None) -> Taken:
        state = self._state
        first = True
        while state is not None and (first or self._out.in_call):
            state = state.shut(self._kit, self._out)
            first = False
        self._state = None
        return Taken(tuple(self._out.parts), "stop-string" if finish else None)

    def place(self) -> Place | None:
        """The document that the next token goes on with; None in any other state."""
        state = self._state
        if not isinstance(state, Document):
            return None
        return Place(self._kit, state, len(self._out.calls) - 1 if state.name else state.call)

    @property
    def ending(self) -> Ending:
        """How it ended."""
        out = self._out
        calls = tuple(CallEnding(call.truncated, call.filled, call.name_filled) for call in out.calls)
        return Ending(out.truncated or any(call.truncated for call in out.calls), out.filled, calls)


def document(vocab: Vocab, constraint: Constraint | Matcher, stop: Sequence[str] = ()) -> Script:
    """A guide whose text is one document. A matcher may stand inside a document that the prompt began."""
    kit = Kit(vocab, stop)
    matcher = constraint if isinstance(constraint, Matcher) else kit.matcher(constraint)
    return Script(kit, Document(matcher, Flow("content", 0, kit.stop)))


def _follow(kit: Kit, then: State | None, rest: bytes, token: int | None, out: Out) -> State | None:
    """Go to the next state, which reads what is left of a token."""
    state = None if then is None else then.enter(kit, out)
    return state if state is None or (token is None and not rest) else state.feed(kit, rest, token, out)


def _first(buffer: str, leave: Exit) -> int:
    """Where a plain tag stands; -1: nowhere."""
    if not leave.first:
        return buffer.find(leave.text)
    at = len(buffer) - len(buffer.lstrip())
    return at if buffer.startswith(leave.text, at) else -1


def _pending(buffer: str, leave: Exit) -> int:
    """Length of the end of the buffer that may still become the tag."""
    if leave.first:
        return len(buffer) if leave.text.startswith(buffer.lstrip()) else 0
    longest = min(len(buffer), len(leave.text) - 1)
    return next((n for n in range(longest, 0, -1) if buffer.endswith(leave.text[:n])), 0)


def _readable(kit: Kit, leave: Exit, tail: bytes) -> bool:
    """Whether what follows a tag can begin with these bytes."""
    try:
        leave.make().feed(kit, leave.text.encode() + tail, None, Out())
    except ConstraintError:
        return False
    return True
