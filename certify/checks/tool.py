"""What an agent asks for: tool calls and documents that are there, legal, and the same on every way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from certify.agent_cases import FAMILIES, AgentCase, cases
from certify.documents import parse, violation
from certify.endpoints import Answer, EventReader, Turn, streamed
from certify.parties import PARAMETERS as PARTIES
from certify.parties import Absence, Party, peer, recorded, subject
from certify.reasons import Reason
from certify.targets import Context, EvidenceWriter
from certify.types import Number, Outcome, OutcomeName, Variant

REQUIREMENT = (
    "A request that asks for a tool call MUST be answered by exactly one call of that tool with arguments "
    "that parse and keep its schema, whatever the budget; a request for a document MUST be answered by one; "
    "a stream MUST give the same events however its bytes are split. A declined call MUST be counted as such."
)
VERSION = 1
_RATIO = {"type": "number", "minimum": 0, "maximum": 1, "default": 1}
PARAMETERS = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        **PARTIES,
        "cases": {"type": "integer", "minimum": 1, "maximum": 10000, "default": 120},
        "families": {"type": "array", "items": {"enum": list(FAMILIES)}, "minItems": 1, "uniqueItems": True,
                     "description": "By default, all of them."},
        "call_ratio_min": {**_RATIO, "description": "Share of requests that were not declined."},
        "attempted_pass_ratio_min": {**_RATIO, "description": "Share of those that passed."},
    },
}  # fmt: skip

DECLINED, TRANSPORT, PROTOCOL, SCHEMA = "declined", "transport", "protocol", "schema"
SPLITS = 1 << 14
CATEGORIES = (DECLINED, TRANSPORT, PROTOCOL, SCHEMA)


@dataclass(frozen=True)
class Failure:
    """Why a case did not pass: a category, and a sentence for people."""

    category: str
    detail: str


@dataclass
class Tally:
    """One party's results, by family."""

    total: Counter[str] = field(default_factory=Counter)
    passed: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)  # by category
    first: list[str] = field(default_factory=list)

    def add(self, case: AgentCase, failure: Failure | None) -> None:
        """Count one case."""
        self.total[case.family] += 1
        self.passed[case.family] += failure is None
        if failure is not None:
            self.failed[failure.category] += 1
            self.first.append(f"{case.id}: {failure.category}: {failure.detail}")

    def figures(self, prefix: str = "") -> dict[str, Number | str | None]:
        """The ratios, and every count behind them."""
        total, passed = self.total.total(), self.passed.total()
        attempted = total - self.failed[DECLINED]
        found: dict[str, Number | str | None] = {
            "requests": total,
            "passed": passed,
            "failed": total - passed,
            "attempted": attempted,
            "call_ratio": attempted / total,
            "attempted_pass_ratio": passed / attempted if attempted else None,
        }
        found |= {f"failed_{name}": self.failed[name] for name in CATEGORIES}
        found |= {f"passed_{name}": self.passed[name] for name in self.total}
        return {prefix + name: value for name, value in found.items()}


def run(ctx: Context) -> Outcome:
    """The subject, then the peers."""
    given = ctx.parameters
    families = tuple(given["families"]) if "families" in given else None
    wanted = cases(given["cases"], families)
    peers: list[Variant] = []
    with ctx.evidence("tool.jsonl") as evidence:
        with subject(ctx) as party:
            tally = ask_all(party, wanted, evidence)
            gone = party.gone
        measurements = tally.figures()
        for name in given["compare"]:
            with peer(ctx, name) as other:
                if other is None:
                    peers.append(recorded(name, None))
                    continue
                measurements |= ask_all(other, wanted, evidence).figures(f"{other.key}_")
                peers.append(recorded(name, other))
    limits: dict[str, Number] = {name: given[name] for name in ("call_ratio_min", "attempted_pass_ratio_min")}
    return _outcome(tally, measurements, limits, peers, gone)


def ask_all(party: Party, wanted: Sequence[AgentCase], evidence: EvidenceWriter) -> Tally:
    """Every case once; a party that no longer answers is given up, its remaining cases failed."""
    tally = Tally()
    for case in wanted:
        if party.gone:
            tally.add(case, Failure(TRANSPORT, "not asked: it no longer answers"))
            continue
        answer, turn = party.ask(case.body, stream=case.stream)
        failure = judge(case, answer, turn)
        tally.add(case, failure)
        evidence.write(
            {
                "party": party.name,
                "case": case.id,
                "status": answer.status,
                "finish": turn.finish,
                "tokens": turn.completion_tokens,
                "calls": [{"name": call.name, "arguments": call.arguments} for call in turn.calls],
                "content": turn.content,
                "failure": None if failure is None else vars(failure),
            }
        )
    return tally


def judge(case: AgentCase, answer: Answer, turn: Turn) -> Failure | None:
    """Whether the answer is what the case asks for."""
    if answer.status is None or (answer.fault is not None and answer.status == 200):
        return Failure(TRANSPORT, str(answer.fault))
    if answer.status != 200:
        return Failure(TRANSPORT, f"status {answer.status}: {turn.fault}")
    if turn.fault is not None:
        return Failure(PROTOCOL, turn.fault)
    if case.stream and not same_when_split(answer, turn):
        return Failure(PROTOCOL, "the stream says something else when its bytes are split")
    if case.tool is not None and not turn.calls:
        return Failure(DECLINED, f"no call; content {turn.content[:60]!r}")
    wrong = _protocol(case, turn)
    return Failure(PROTOCOL, wrong) if wrong else _schema(case, turn)


def _protocol(case: AgentCase, turn: Turn) -> str | None:
    if len(turn.calls) != (case.tool is not None):
        return f"{len(turn.calls)} calls"
    if case.silent and turn.content.strip():
        return f"content {turn.content[:60]!r} beside the call"
    if case.schema is None and not turn.content:
        return "no text"
    if turn.finish not in case.finish:
        return f"finish_reason {turn.finish}, not {' or '.join(sorted(case.finish))}"
    return None


def _schema(case: AgentCase, turn: Turn) -> Failure | None:
    if case.schema is None:
        return None
    if case.tool is not None and turn.calls[0].name != case.tool:
        return Failure(SCHEMA, f"{turn.calls[0].name!r} was called, not {case.tool!r}")
    text = turn.content if case.tool is None else turn.calls[0].arguments
    if not isinstance(text, str):
        return Failure(SCHEMA, "the arguments are no string")
    document, broken = parse(text)
    broken = broken or violation(document, case.schema)
    return None if broken is None else Failure(SCHEMA, broken.detail)


def same_when_split(answer: Answer, turn: Turn) -> bool:
    """Events are the same when the stream is split at any one byte, and the answer is when split at all.

    A stream that is longer than ``SPLITS`` is split at so many places, spread over it.
    """
    body = answer.body
    expected = list(EventReader().feed(body))
    step = len(body) // SPLITS + 1
    for place in range(0, len(body) + 1, step):
        reader = EventReader()
        if [*reader.feed(body[:place]), *reader.feed(body[place:])] != expected:
            return False
    return streamed(answer, range(1, len(body), step)) == turn


def _outcome(
    tally: Tally,
    measurements: Mapping[str, Any],
    limits: Mapping[str, Number],
    peers: Iterable[Variant],
    gone: Absence | None,
) -> Outcome:
    missed = [
        f"{name.removesuffix('_min')} {measurements[name.removesuffix('_min')]} is below {limit}"
        for name, limit in limits.items()
        if (measurements[name.removesuffix("_min")] or 0) < limit
    ]
    bad = bool(missed or gone)
    variants = []
    for family, total in tally.total.items():
        state: OutcomeName = "fail" if bad and tally.passed[family] < total else "pass"
        reason = Reason.ANSWER_WRONG if state == "fail" else None
        variants.append(Variant(f"family={family}", state, reason))
    variants += peers
    if not bad:
        return Outcome("pass", None, "", measurements, limits, tuple(variants))
    reason = Reason.TIMEOUT if gone is not None and gone.late else Reason.ANSWER_WRONG
    absent = [] if gone is None else [f"it no longer answers: {gone.detail}"]
    detail = "; ".join([*absent, *missed, *tally.first[:3]])
    return Outcome("fail", reason, detail, measurements, limits, tuple(variants))
