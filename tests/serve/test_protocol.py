"""Every family's protocol, driven by random choices among what is allowed and cut anywhere."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jsonschema
import numpy as np
import pytest

from engine import constrain
from engine.guide import Ending, Part
from engine.native import Vocab
from engine.script import Kit, Script
from engine.serve import families
from engine.serve.families import Family
from engine.serve.protocol import Protocol, script
from engine.serve.requests import chat_request
from engine.serve.steering import Chat
from fixtures.vocab import CONTROL, USER_DEFINED
from tests.engine.vocabularies import bpe, open_vocab

TAGS = [
    "<|channel|>", "<|message|>", "<|constrain|>", "<|start|>", "<|call|>", "<|tool_call>", "<tool_call|>",
    "[TOOL_CALLS]", "[ARGS]",
]  # fmt: skip
WORDS = [
    '"}}\n', '"}', '":', ' {"', '":"', '",', '{"', '"}}', "name", "get_weather", "arguments", "city", "units",
    "celsius", "fahrenheit", "Paris", ">\n", "tool", "call", '","', "\n\n", "日本", "Zähler", "é",
]  # fmt: skip
SPECIALS = [("<|end|>", CONTROL), *((tag, CONTROL) for tag in TAGS)]
OWN = [("<think>", USER_DEFINED), ("</think>", USER_DEFINED), ("<tool_call>", USER_DEFINED)]

SCHEMAS: dict[str, Any] = {
    "get_weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 8},
            "units": {"enum": ["celsius", "fahrenheit"]},
        },
        "required": ["city", "units"],
        "additionalProperties": False,
    },
    "get": {
        "type": "object",
        "properties": {
            "été": {"$ref": "#/$defs/n"},
            "more": {"type": "array", "items": {"$ref": "#/$defs/n"}},
        },
        "required": ["été"],
        "additionalProperties": False,
        "$defs": {"n": {"type": ["integer", "null"], "minimum": -3, "maximum": 12}},
    },
    "none": {"type": "object", "properties": {}, "additionalProperties": False},
}
ALL = [*families.FAMILIES, families.GENERIC]


@cache
def vocabulary(own: bool = True) -> Vocab:
    """One whose tags are tokens of their own, or where only control tokens are."""
    return open_vocab(
        bpe(WORDS, specials=[*SPECIALS, *(OWN if own else ())], eos_token_id=None, bos_token_id=None)
    )


@dataclass
class Walk:
    """What one generation gave."""

    parts: list[Part] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    finish: str | None = None
    ending: Ending = field(default_factory=Ending)

    def text(self, channel: str, call: int = 0) -> str:
        return "".join(part.text for part in self.parts if (part.channel, part.call) == (channel, call))

    @property
    def calls(self) -> list[tuple[str, Any]]:
        names = [part for part in self.parts if part.channel == "name"]
        assert [part.call for part in names] == list(range(len(names)))
        return [(part.text, json.loads(self.text("arguments", part.call))) for part in names]


def walk(vocab: Vocab, guide: Script, budget: int, rng: random.Random, closing: float = 0.3) -> Walk:
    """Take what is forced, else a random allowed token, at times one that closes something."""
    made = Walk()
    while True:
        forced = guide.forced()[: budget - len(made.tokens)]
        for token in forced or [choose(vocab, guide, rng, closing)]:
            made.tokens.append(token)
            taken = guide.take(token)
            made.parts += taken.parts
            if taken.finish is None and len(made.tokens) >= budget:
                made.parts += guide.cut().parts
                made.finish = "length"
            elif taken.finish is not None:
                made.finish = taken.finish
            if made.finish is not None:
                made.ending = guide.ending
                return made


def choose(vocab: Vocab, guide: Script, rng: random.Random, closing: float) -> int:
    mask = guide.mask()
    size = vocab.info.size
    if mask is None:
        allowed = list(range(size))
    else:
        allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")[:size]).tolist()
    assert allowed, "a dead end"
    closers = [
        token
        for token in allowed
        if vocab.is_end(token) or vocab.token_bytes(token)[:1] in (b'"', b"}", b"]")
    ]
    return rng.choice(closers if closers and rng.random() < closing else allowed)


def guide(vocab: Vocab, family: Family, stop: Sequence[str] = (), **changes: Any) -> Script:
    tools = {name: constrain.compile("json_schema", schema) for name, schema in SCHEMAS.items()}
    given: dict[str, Any] = {
        "family": family, "tools": tools, "required": True, "parallel": True, "content": None, "think": None,
        "thinking": 0, "inside": False,
    }  # fmt: skip
    return script(Kit(vocab, stop), Protocol(**given | changes))


def check_calls(made: Walk) -> None:
    """Every call parses and conforms; what says that nothing was filled was written by the model."""
    assert len(made.ending.calls) == len(made.calls)
    for (name, arguments), ending in zip(made.calls, made.ending.calls, strict=True):
        jsonschema.validate(arguments, SCHEMAS[name])
        assert ending.truncated or not (ending.filled or ending.name_filled)
        for pointer in ending.filled:
            jsonschema_pointer(arguments, pointer)
    if made.finish == "stop":
        assert not made.ending.truncated


def jsonschema_pointer(value: Any, pointer: str) -> Any:
    """The value that a pointer names; KeyError where there is none."""
    for step in pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        value = value[int(key)] if isinstance(value, list) else value[key]
    return value


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("family", ALL, ids=lambda family: family.name)
def test_required_calls_are_whole_at_every_budget(family: Family, own: bool) -> None:
    vocab = vocabulary(own)
    finished = 0
    for seed in range(8):
        for budget in (1, 2, 3, 5, 8, 9, 11, 13, 16, 19, 24, 60, 200):
            made = walk(vocab, guide(vocab, family, parallel=seed % 2 == 0), budget, random.Random(seed))
            assert made.calls
            assert not made.text("content")
            check_calls(made)
            finished += made.finish == "stop"
    assert finished > 8


@pytest.mark.parametrize("family", ALL, ids=lambda family: family.name)
def test_a_named_tool_is_not_the_closers_choice(family: Family) -> None:
    vocab = vocabulary()
    tools = {"get_weather": constrain.compile("json_schema", SCHEMAS["get_weather"])}
    made = walk(vocab, guide(vocab, family, tools=tools), 1, random.Random(0))
    assert made.calls == [("get_weather", {"city": "", "units": "celsius"})]
    assert not made.ending.calls[0].name_filled
    assert {"/city", "/units"} <= set(made.ending.calls[0].filled)


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("family", ALL, ids=lambda family: family.name)
def test_automatic_calls_begin_at_the_tag_and_are_whole(family: Family, own: bool) -> None:
    """The model's text is scripted up to the call, then chosen at random."""
    vocab = vocabulary(own)
    before = "" if family.first or family.text else "Let me see < "
    opening = (family.opening + family.before_name) if not family.first else family.trigger
    for seed in range(40):
        rng = random.Random(seed)
        script_ = guide(vocab, family, required=False)
        shown = []
        for token in vocab.tokenize((before + opening).encode(), special=True):
            mask = script_.mask()
            assert mask is None or mask[token // 32] >> (token % 32) & 1
            shown += script_.take(token).parts
        made = walk(vocab, script_, rng.choice([1, 2, 5, 9, 40]), rng)
        made.parts = shown + made.parts
        assert made.text("content") == before
        assert made.calls
        check_calls(made)


@pytest.mark.parametrize("family", [row for row in ALL if not row.text], ids=lambda family: family.name)
def test_a_tag_that_a_cut_left_unfinished_is_not_shown(family: Family) -> None:
    vocab = vocabulary(own=False)
    for size in range(len(family.trigger)):
        script_ = guide(vocab, family, required=False)
        parts = []
        for token in vocab.tokenize(family.trigger[:size].encode()):
            parts += script_.take(token).parts
        parts += script_.cut().parts
        assert parts == []
        assert script_.ending == Ending(truncated=True)


def test_text_that_only_looks_like_a_call_is_text() -> None:
    vocab = vocabulary(own=False)
    for family, text in ((families.HERMES, "a <tool b <tool_cal"), (families.GENERIC, '{"names": 1}')):
        script_ = guide(vocab, family, required=False)
        parts = []
        for token in vocab.tokenize(text.encode()):
            parts += script_.take(token).parts
        taken = script_.take(next(token for token in vocab.steering() if vocab.is_end(token)))
        parts += taken.parts
        assert "".join(part.text for part in parts) == text
        assert taken.finish == "stop"
        assert script_.ending == Ending()


def test_free_text_may_not_run_from_the_tag_into_what_no_call_is() -> None:
    vocab = open_vocab(bpe(["<tool_call", ">x", ">\n", ">"], eos_token_id=None, bos_token_id=None))
    script_ = guide(vocab, families.HERMES, required=False)
    ids = {vocab.token_bytes(token): token for token in range(vocab.info.size)}
    script_.take(ids[b"<tool_call"])
    mask = script_.mask()
    assert mask is not None
    allowed = {data for data, token in ids.items() if data and mask[token // 32] >> (token % 32) & 1}
    assert b">x" not in allowed
    assert {b">", b">\n", b"a"} <= allowed


def test_several_calls_need_leave() -> None:
    vocab = vocabulary()
    counts = set()
    for seed in range(60):
        made = walk(vocab, guide(vocab, families.HERMES), 400, random.Random(seed), closing=0.6)
        single = walk(vocab, guide(vocab, families.HERMES, parallel=False), 400, random.Random(seed), 0.6)
        counts.add(len(made.calls))
        assert len(single.calls) == 1
    assert max(counts) > 1


@pytest.mark.parametrize("family", [families.HERMES, families.HARMONY], ids=lambda family: family.name)
@pytest.mark.parametrize("content", [True, False])
def test_reasoning_has_a_budget_of_its_own(family: Family, content: bool) -> None:
    """At most ``thinking`` tokens of prelude, then the document or the call, whole."""
    vocab = vocabulary()
    schema = SCHEMAS["get_weather"]
    think = family.think or ("<think>", "</think>", "\n\n")
    document = constrain.compile("json_schema", schema) if content else None
    for seed in range(30):
        script_ = guide(
            vocab, family, required=not content, content=document, parallel=False,
            think=think, thinking=20, inside=seed % 2 == 0,
            tools={} if content else {"none": constrain.compile("json_schema", SCHEMAS["none"])},
        )  # fmt: skip
        made = walk(vocab, script_, 120, random.Random(seed))
        assert not made.text("content") or content
        if content and made.text("content"):
            jsonschema.validate(json.loads(made.text("content")), schema)
        if not content:
            assert made.calls == [("none", {})]
        assert made.finish == "stop" or made.text("content")
        assert "<" not in made.text("name")


@pytest.mark.parametrize(("end", "offered"), [("", True), ("<think>\n\n</think>\n\n", False)])
def test_a_prelude_that_the_prompt_closed_is_not_opened_again(end: str, offered: bool) -> None:
    vocab = vocabulary()
    body = {"messages": [{"role": "user", "content": "a"}], "response_format": {"type": "json_object"}}
    chat = Chat(vocab, _Source("<think>"), chat_request(body))  # type: ignore[arg-type]
    steering = chat.steering(f"a{end}", 100)
    assert steering is not None
    mask = steering.make().mask()
    assert mask is not None
    token = Kit(vocab).spelling.single("<think>")
    assert token is not None
    assert bool(mask[token // 32] >> (token % 32) & 1) is offered


def test_a_stop_string_in_arguments_ends_them_legally() -> None:
    vocab = vocabulary()
    stopped = 0
    for seed in range(60):
        made = walk(vocab, guide(vocab, families.GENERIC, ["a", "1"]), 200, random.Random(seed))
        check_calls(made)
        for call, ending in enumerate(made.ending.calls):
            stopped += ending.truncated and made.finish == "stop-string"
            assert call == 0 or made.calls[call]
    assert stopped


def test_marks_tell_the_families_apart() -> None:
    for row in families.FAMILIES:
        source = "{{ tools }} " + " ".join(row.marks)
        assert families.family_of(_Source(source), tools=True).name == row.name  # type: ignore[arg-type]
        assert families.family_of(_Source(" ".join(row.marks)), tools=True) is families.GENERIC  # type: ignore[arg-type]
    coder = "{{ tools }} <tool_call> <function=name>"
    assert families.family_of(_Source(coder), tools=True) is families.GENERIC  # type: ignore[arg-type]


@dataclass
class _Source:
    text: str

    def source(self, *, tools: bool) -> str:
        return self.text
