"""A budget never breaks a document: every budget from one token to completion, buffered and streamed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from certify.documents import Breach
from certify.endings import Cut, Whole, breaches, ending_of, text_of, whole_of
from certify.endpoints import Answer, Turn
from certify.parties import PARAMETERS as PARTIES
from certify.parties import Absence, Party, peer, recorded, subject
from certify.reasons import Reason
from certify.targets import Context, EvidenceWriter
from certify.truncation_cases import BY_ID, CASES, Case
from certify.types import Number, Outcome, Variant

REQUIREMENT = (
    "For every budget from one token to completion, buffered and streamed alike, an answer that is bound to "
    "a tool or a schema MUST hold exactly one document that parses and conforms, with nothing beside it; "
    "finish_reason MUST tell a cut from an ending, and the values that the model did not write MUST be "
    "named; a stop string MUST cut no worse, and nothing MUST be invented where no document has begun."
)
VERSION = 1
PARAMETERS = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        **PARTIES,
        "schemas": {
            "type": "array",
            "items": {"enum": [case.id for case in CASES]},
            "minItems": 1,
            "uniqueItems": True,
            "description": "By default, all of them.",
        },
        "control_tokens": {
            "type": "integer",
            "minimum": 64,
            "maximum": 4096,
            "default": 256,
            "description": "The budget within which every answer must complete.",
        },
        "stops": {
            "type": "integer",
            "minimum": 0,
            "maximum": 64,
            "default": 6,
            "description": "Stop strings tried in each document that is the content itself.",
        },
    },
}

LADDER = (1, 2, 3, 5, 8, 16, 64)
CONTROL_RUNG = LADDER[-1]


@dataclass
class Found:
    """What one party's answers to one case were."""

    case: Case
    requests: int = 0
    held: int = 0
    completed: bool = False
    rules: Counter[str] = field(default_factory=Counter)
    ladder: int = 0  # rungs of the reference's ladder that held, buffered
    first: str = ""

    def add(self, broken: list[Breach], where: str) -> None:
        """Count one answer."""
        self.requests += 1
        self.held += not broken
        self.rules.update(item.rule for item in broken)
        if broken and not self.first:
            self.first = f"{self.case.id}, {where}: {broken[0].rule}: {broken[0].detail}"


def run(ctx: Context) -> Outcome:
    """The subject, then the peers."""
    cases = [BY_ID[name] for name in ctx.parameters.get("schemas", [case.id for case in CASES])]
    measurements: dict[str, Number | str | None] = {}
    peers: list[Variant] = []
    with ctx.evidence("truncation.jsonl") as evidence:
        with subject(ctx) as party:
            found = [walk(ctx, party, case, evidence) for case in cases]
            measurements |= figures(found)
            gone = party.gone
        for name in ctx.parameters["compare"]:
            with peer(ctx, name) as other:
                if other is None:
                    peers.append(recorded(name, None))
                    continue
                seen = [walk(ctx, other, case, evidence) for case in cases]
                measurements |= figures(seen, f"{other.key}_")
                peers.append(recorded(name, other))
    return _outcome(found, measurements, peers, gone)


def walk(ctx: Context, party: Party, case: Case, evidence: EvidenceWriter) -> Found:
    """The control, then every budget up to completion, then stop strings; each buffered and streamed."""
    found = Found(case)
    control = int(ctx.parameters["control_tokens"])
    answer, turn = party.ask(case.body(control), stream=False)
    whole, broken = whole_of(case, answer, turn, control)
    found.completed = whole is not None
    found.add(broken, "control")
    _write(evidence, party, case, Cut(control), "buffered", answer, turn, broken)
    reports = party.reports or turn.extension is not None
    for cut in [*_budgets(case, whole), *_stops(case, whole, ctx.parameters["stops"], control)]:
        if party.gone:
            break
        buffered = party.ask(case.body(cut.budget, cut.stop), stream=False)
        streamed = party.ask(case.body(cut.budget, cut.stop), stream=True)
        for mode, (got, said) in (("buffered", buffered), ("streamed", streamed)):
            broken = breaches(case, cut, got, said, whole, reports=reports)
            if mode == "streamed" and not said.same(buffered[1]):
                broken.append(Breach("stream_differs", f"{text_of(case, said)!r:.80}"))
            found.add(broken, f"{mode}, {_name(cut)}")
            _write(evidence, party, case, cut, mode, got, said, broken)
            if case.ladder and cut.stop is None and cut.budget in LADDER and mode == "buffered":
                found.ladder += not broken
    return found


def _budgets(case: Case, whole: Whole | None) -> Iterator[Cut]:
    """1 to completion and one more; the ladder where it belongs, or where there is no completion."""
    last = whole.tokens + 1 if whole is not None else 0
    ladder = LADDER if case.ladder or whole is None else ()
    for budget in sorted({*range(1, last + 1), *ladder}):
        yield Cut(budget)


def _stops(case: Case, whole: Whole | None, count: int, budget: int) -> Iterator[Cut]:
    """Stop strings out of the document, at its beginning and spread over it."""
    if whole is None or case.tools is not None or count == 0:
        return
    text = whole.text
    for place in dict.fromkeys([0, *(len(text) * i // count for i in range(1, count))]):
        stop = text[place : place + 2] if place else text[:1]
        yield Cut(budget, stop, text[: text.index(stop)])


def _name(cut: Cut) -> str:
    return f"budget {cut.budget}" if cut.stop is None else f"stop {cut.stop!r}"


def _write(
    evidence: EvidenceWriter,
    party: Party,
    case: Case,
    cut: Cut,
    mode: str,
    answer: Answer,
    turn: Turn,
    broken: Iterable[Breach],
) -> None:
    extension = ending_of(case, turn)
    evidence.write(
        {
            "party": party.name,
            "case": case.id,
            "mode": mode,
            "budget": cut.budget,
            "stop": cut.stop,
            "status": answer.status,
            "finish": turn.finish,
            "tokens": turn.completion_tokens,
            "tools": [call.name for call in turn.calls],
            "text": text_of(case, turn),
            "content": turn.content if case.tools is not None else None,
            "ending": None if extension is None else dict(extension),
            "breaches": [vars(item) for item in broken],
        }
    )


# ---- Judging -----------------------------------------------------------------------------------


def figures(found: Iterable[Found], prefix: str = "") -> dict[str, Number | str | None]:
    """Counts over all cases; the rules that were broken by name."""
    items = list(found)
    requests, held = sum(item.requests for item in items), sum(item.held for item in items)
    rules: Counter[str] = sum((item.rules for item in items), Counter())
    figures: dict[str, Number | str | None] = {
        "schemas": len(items),
        "completed_schemas": sum(item.completed for item in items),
        "answers": requests,
        "held_answers": held,
        "held_ratio": held / requests if requests else None,
        "violations": rules.total(),
    }
    if any(item.case.ladder for item in items):
        figures["ladder_rungs_held"] = sum(item.ladder for item in items)
    figures |= {f"violations_{rule}": count for rule, count in sorted(rules.items())}
    return {prefix + name: value for name, value in figures.items()}


def _outcome(
    found: list[Found], measurements: dict[str, Any], peers: list[Variant], gone: Absence | None
) -> Outcome:
    limits: dict[str, Number] = {"violations_max": 0, "completed_schemas_min": len(found)}
    variants = []
    for item in found:
        bad = bool(item.rules)
        reason = Reason.ENDING_BROKEN if bad else None
        variants.append(Variant(f"schema={item.case.id}", "fail" if bad else "pass", reason))
    variants += peers
    broken = [item.first for item in found if item.first]
    if gone:
        reason = Reason.TIMEOUT if gone.late else Reason.ENDING_BROKEN
        detail = f"it no longer answers: {gone.detail}; {'; '.join(broken[:1])}"
        return Outcome("fail", reason, detail, measurements, limits, tuple(variants))
    if broken:
        detail = "; ".join(broken[:3])
        return Outcome("fail", Reason.ENDING_BROKEN, detail, measurements, limits, tuple(variants))
    return Outcome("pass", None, "", measurements, limits, tuple(variants))
