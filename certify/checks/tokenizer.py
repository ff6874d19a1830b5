"""Token ids equal the reference tokenizers' on a corpus of hard strings."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from certify import captures
from certify.phase import PartyError
from certify.reasons import Reason
from certify.references import ReferenceUnavailable, TokenizerReference
from certify.targets import Context, EvidenceWriter, stop
from certify.types import Number, Outcome, Variant

REQUIREMENT = (
    "On every string of the corpus, with special-token parsing on and off, ids MUST equal the primary "
    "reference's, and the second reference's wherever the two references agree; strings on which they "
    "disagree MUST be listed and stay below max_disputed_ratio; and decoding MUST give back the bytes "
    "wherever the primary reference's does."
)
VERSION = 1
PARAMETERS = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "corpus": {"type": "string", "default": "core-1"},
        "references": {
            "type": "array",
            "items": {"type": "string"},
            "minItems": 1,
            "maxItems": 2,
            "uniqueItems": True,
            "default": ["llama.cpp"],
            "description": "The primary reference, then the second one.",
        },
        "max_disputed_ratio": {"type": "number", "minimum": 0, "maximum": 1, "default": 0.02},
        "min_strings": {"type": "integer", "minimum": 1, "default": 700},
        "live": {
            "type": "boolean",
            "default": True,
            "description": "false: committed captures only, never a live reference.",
        },
    },
}

Answers = Callable[[int, bool], list[int]]


@dataclass
class Count:
    """What was found in one mode."""

    compared: int = 0
    differences: int = 0
    second_differences: int = 0
    disputed: int = 0
    round_trips: int = 0
    round_trip_differences: int = 0
    reference_round_trip_losses: int = 0


@dataclass
class Source:
    """A reference's answers by string number and mode, live or captured."""

    name: str
    ids: Answers
    round_trips: Callable[[int, bool], bool | None] = field(default=lambda index, special: None)


def run(ctx: Context) -> Outcome:
    """Compare every string in both modes."""
    data = ctx.text(ctx.parameters["corpus"])
    strings = distinct_strings(data)
    if len(strings) < ctx.parameters["min_strings"]:
        detail = (
            f"the corpus has {len(strings)} distinct strings, {ctx.parameters['min_strings']} are required"
        )
        return Outcome("skip", Reason.PARAMETERS_UNSUITABLE, detail)
    names = ctx.parameters["references"]
    sources = [_source(ctx, name, strings) for name in names]
    counts = {}
    with ctx.evidence("tokenizer.jsonl") as evidence:
        for special in (False, True):
            counts[special] = _compare(ctx, strings, sources, special, evidence)
    return _outcome(ctx, strings, sources, counts)


def distinct_strings(data: bytes) -> list[str]:
    """The strings of a corpus, one JSON string (or object with ``text``) a line, first come first."""
    seen: dict[str, None] = {}
    for line in data.decode("utf-8").split("\n"):
        if line.strip():
            item = json.loads(line)
            seen.setdefault(item if isinstance(item, str) else item["text"])
    return list(seen)


def _source(ctx: Context, name: str, strings: Sequence[str]) -> Source:
    """A live reference where one can be had, else a capture of it."""
    why = "the check asks for captures only"
    if ctx.parameters["live"]:
        try:
            reference = ctx.tokenizer_reference(name)
        except ReferenceUnavailable as error:
            why = str(error)
        else:
            return _live(name, reference, strings)
    capture = captures.find(ctx.job.captures, ctx.job.artifacts[0].sha256, name)
    if capture is None:
        raise stop(
            "skip", Reason.REFERENCE_MISSING, f"{why}, and there is no capture of {name} for this file"
        )
    ctx.note_reference(name, f"capture:{capture.provider}", capture.package_version, capture.revision)
    if capture.corpus_sha256 != ctx.job.texts[ctx.parameters["corpus"]].sha256:
        raise stop("skip", Reason.CAPTURE_DIFFERS, f"the capture of {name} is of another corpus")
    if len(capture.ids[False]) != len(strings) or len(capture.ids[True]) != len(strings):
        raise stop("error", Reason.HARNESS_FAILED, f"the capture of {name} has another number of strings")
    trips = capture.round_trips
    return Source(
        name,
        lambda index, special: capture.ids[special][index],
        lambda index, special: trips[special][index] if trips else None,
    )


def _live(name: str, reference: TokenizerReference, strings: Sequence[str]) -> Source:
    def ids(index: int, special: bool) -> list[int]:
        return list(reference.tokenize(strings[index], special=special))

    def round_trips(index: int, special: bool) -> bool | None:
        try:
            decode = reference.detokenize  # type: ignore[attr-defined]
        except (AttributeError, PartyError):
            return None  # this reference only encodes
        return bool(decode(ids(index, special), special=True) == strings[index].encode())

    return Source(name, ids, round_trips)


def _compare(
    ctx: Context, strings: Sequence[str], sources: Sequence[Source], special: bool, evidence: EvidenceWriter
) -> Count:
    count = Count()
    for index, text in enumerate(strings):
        ours = list(ctx.target.tokenize(text, special=special))
        answers = [source.ids(index, special) for source in sources]
        kinds = _judge(count, ours, answers)
        if _loses_bytes(ctx, count, text, ours, sources[0].round_trips(index, special), special):
            kinds.append("round_trip")
        if kinds:
            named = {source.name: found for source, found in zip(sources, answers, strict=True)}
            evidence.write({"kinds": kinds, "text": text, "special": special, "ours": ours, **named})
    return count


def _judge(count: Count, ours: list[int], answers: Sequence[list[int]]) -> list[str]:
    primary = answers[0]
    kinds = []
    count.compared += 1
    if ours != primary:
        count.differences += 1
        kinds.append("differs")
    for second in answers[1:]:
        if second != primary:
            count.disputed += 1
            kinds.append("disputed")
        elif ours != second:
            count.second_differences += 1
            kinds.append("differs_from_second")
    return kinds


def _loses_bytes(
    ctx: Context, count: Count, text: str, ours: list[int], reference_keeps: bool | None, special: bool
) -> bool:
    """Whether ours loses bytes that the reference keeps. A reference that cannot say counts as keeping."""
    keeps = ctx.target.detokenize(ours, special=True) == text.encode()
    count.round_trips += keeps
    count.reference_round_trip_losses += reference_keeps is False
    lost = not keeps and reference_keeps is not False
    count.round_trip_differences += lost
    return lost


def _outcome(
    ctx: Context, strings: Sequence[str], sources: Sequence[Source], counts: dict[bool, Count]
) -> Outcome:
    both = counts.values()
    compared = sum(count.compared for count in both)
    if compared == 0:
        return Outcome("skip", Reason.NOTHING_COMPARED, "no string was compared")
    measurements: dict[str, Number | str | None] = {
        "strings": len(strings),
        "comparisons": compared,
        "differences": sum(count.differences for count in both),
        "round_trips": sum(count.round_trips for count in both),
        "round_trip_differences": sum(count.round_trip_differences for count in both),
        "reference_round_trip_losses": sum(count.reference_round_trip_losses for count in both),
    }
    thresholds: dict[str, Number] = {"differences_max": 0, "round_trip_differences_max": 0}
    if len(sources) > 1:
        measurements |= {
            "second_differences": sum(count.second_differences for count in both),
            "disputed": sum(count.disputed for count in both),
            "disputed_ratio": max(count.disputed for count in both) / len(strings),
        }
        thresholds |= {
            "second_differences_max": 0,
            "disputed_ratio_max": ctx.parameters["max_disputed_ratio"],
        }
    variants = tuple(_variant(special, count) for special, count in counts.items())
    reason, detail = _verdict(measurements, thresholds)
    return Outcome("pass" if reason is None else "fail", reason, detail, measurements, thresholds, variants)


def _variant(special: bool, count: Count) -> Variant:
    name = f"special={'on' if special else 'off'}"
    if count.differences or count.second_differences:
        return Variant(name, "fail", Reason.IDS_DIFFER)
    if count.round_trip_differences:
        return Variant(name, "fail", Reason.ROUND_TRIP_DIFFERS)
    return Variant(name, "pass")


def _verdict(
    measurements: dict[str, Number | str | None], thresholds: dict[str, Number]
) -> tuple[Reason | None, str]:
    rules = (
        ("differences", Reason.IDS_DIFFER, "strings have other ids than the primary reference's"),
        ("second_differences", Reason.IDS_DIFFER, "undisputed strings have other ids than the second's"),
        ("round_trip_differences", Reason.ROUND_TRIP_DIFFERS, "strings do not decode to their bytes"),
        ("disputed_ratio", Reason.DISPUTED_ABOVE_CAP, "of the strings are disputed between the references"),
    )
    for name, reason, text in rules:
        value = measurements.get(name)
        if isinstance(value, (int, float)) and value > thresholds[f"{name}_max"]:
            return reason, f"{value:.4g} {text}"
    return None, ""
