"""Every reason code and exit code, in one place; ``python -m certify.reasons`` prints docs/reasons.md.

A code is stable: it may be added, never renamed or given another meaning.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

from engine.envelope import GateReason


class Reason(StrEnum):
    """Why a check, or a variant of one, did not pass."""

    meaning: str

    def __new__(cls, code: str, meaning: str) -> Reason:
        member = str.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    # The subject failed.
    ARTIFACT_DIFFERS = "artifact_differs", "A file has another hash or size than the manifest pins."
    REFUSED = "refused", "The engine refused the file by name; the detail holds its sentence."
    CRASHED = "crashed", "Our engine died (a signal, or an exit that it did not announce)."
    ENGINE_FAILED = "engine_failed", "Our engine raised an error in the middle of its work."
    TIMEOUT = "timeout", "Our engine passed the time limit of the check."
    FLOODED = "flooded", "The check wrote more output than its limit and was stopped."
    ARCHITECTURE_DIFFERS = (
        "architecture_differs",
        "The file is of another architecture than the manifest says.",
    )
    THRESHOLD_MISSED = "threshold_missed", "A measurement is past its threshold."
    IDS_DIFFER = (
        "ids_differ",
        "Token ids differ from the primary reference's, or from the second's undisputed ones.",
    )
    DISPUTED_ABOVE_CAP = (
        "disputed_above_cap",
        "The references, or one with itself, disagree on more than max_disputed_ratio.",
    )
    PICKS_DIFFER = "picks_differ", "A greedy pick differs and is no near-tie with both gaps measured."
    DIGESTS_DIFFER = "digests_differ", "Logits digests differ between variants that must agree to the bit."
    NONFINITE = "nonfinite", "A NaN or an infinity arose in the logits."
    LOGITS_CONSTANT = "logits_constant", "The logits are the same everywhere: their digest shows nothing."
    ZERO_POINT_FAILED = "zero_point_failed", "The engine, compared with itself, is not at zero."
    REFERENCE_REVISION = (
        "reference_revision_differs",
        "The reference answers with another revision than the pinned one.",
    )
    ROUND_TRIP_DIFFERS = (
        "round_trip_differs",
        "Decoding the ids gives other bytes than were encoded, where the reference gives the same.",
    )
    ENDING_BROKEN = (
        "ending_broken",
        "An answer that was cut holds no legal document, or says something untrue about how it ended.",
    )
    ANSWER_WRONG = (
        "answer_wrong",
        "Too many requests that had to be answered by a tool call or a document were not, or wrongly.",
    )
    CAPTURE_DIFFERS = "capture_differs", "A capture belongs to another corpus or reference revision."

    # It did not run.
    NOT_SELECTED = "not_selected", "Left out by --model or --check."
    NOT_REACHED = "not_reached", "The run stopped before it (--fail-fast)."
    ARTIFACT_MISSING = "artifact_missing", "A file is not there, and no source yielded it."
    OFFLINE = "offline", "It needs the network, and --offline was given."
    LOAD_FAILED = "load_failed", "The check of loading failed first, so this one had no subject."
    REFERENCE_MISSING = (
        "reference_missing",
        "The reference is not installed, or the manifest does not name it.",
    )
    CORPUS_MISSING = "corpus_missing", "A corpus is not there, or has another hash."
    PARAMETERS_UNSUITABLE = (
        "parameters_unsuitable",
        "The check's parameters do not fit this model (too many positions for the context, say).",
    )
    NOTHING_COMPARED = "nothing_compared", "There was nothing to compare, so nothing was shown."
    NO_DEVICE = "no_device", "This machine has no such device."
    PEER_UNSUITABLE = (
        "peer_unsuitable",
        "The peer is not built with the CPU features that the manifest asks of it, or does not state them.",
    )
    ENDPOINT_ABSENT = "endpoint_absent", "Nothing answers at the endpoint that the manifest names."
    TOO_NOISY = (
        "too_noisy",
        "Too few pairs were left without those with stolen time, a crowded machine or a drifting peer.",
    )
    UNSUPPORTED_VARIANT = "unsupported_variant", "This build does not have that variant."

    # The harness, a reference or a dependency failed.
    REFERENCE_FAILED = "reference_failed", "The reference crashed, hung, or answered with nonsense."
    HARNESS_FAILED = "harness_failed", "The harness itself failed; a defect of ours."
    DEPENDENCY_FAILED = "dependency_failed", "A library that the check needs is missing or failed."
    OUT_OF_MEMORY = "out_of_memory", "Memory ran out."
    KILLED = "killed", "Something outside killed the process of the check (out of memory, perhaps)."
    PROCESS_LEFT_BEHIND = "process_left_behind", "Processes outlived the check; they were killed."


class CertifyExit(IntEnum):
    """Exit codes of ``certify run``; precedence 2 > 4 > 1 > 3 > 0."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    INCOMPLETE = 3
    HARNESS = 4
    INTERRUPTED = 130


CERTIFY_MEANINGS = {
    CertifyExit.DONE: "every declared check ran and passed, or is waived",
    CertifyExit.FAILED: (
        "a check failed, a waiver has expired or is not needed, or a reference is not the pinned one"
    ),
    CertifyExit.USAGE: "usage, manifest or schema error: nothing ran",
    CertifyExit.INCOMPLETE: "a declared check did not run (`--allow-incomplete` turns this into 0)",
    CertifyExit.HARNESS: "harness or reference error",
    CertifyExit.INTERRUPTED: "interrupted; the journal can be resumed",
}

GAUGEBLOCK_MEANINGS = {
    0: "done",
    1: "failure",
    2: "usage",
    5: "refused by the gate",
    130: "interrupted",
}

GATE_MEANINGS = {
    GateReason.APPLIES: "The receipt binds this file and this configuration; its verdict is the state.",
    GateReason.ABSENT: "No sidecar lies beside the path as given, nor beside its symlink target.",
    GateReason.UNREADABLE: "A sidecar is there and cannot be read (permissions, a dangling or looping link).",
    GateReason.NOT_REGULAR: "The sidecar is a directory, a FIFO, a socket or a device.",
    GateReason.TOO_LARGE: "The sidecar is larger than 1 MiB.",
    GateReason.MALFORMED: "The sidecar is not strict JSON (syntax, UTF-8, duplicate keys, depth, numbers).",
    GateReason.SCHEMA: "The sidecar is of another schema or major version.",
    GateReason.CRITICAL: "`critical` names something that this engine does not implement.",
    GateReason.FIELD: "A field that binds is missing or has the wrong type.",
    GateReason.BODY: "`body_sha256` is not the digest of the body.",
    GateReason.ARTIFACTS: "The receipt is about several files, the model is one.",
    GateReason.HASH: "The model file has another size or SHA-256.",
    GateReason.CHANGED: "The model file changed while it was hashed.",
    GateReason.ARCHITECTURE: "The file is of another architecture.",
    GateReason.NUMERICS: "Another contract revision of the arithmetic.",
    GateReason.TOKENIZER: "Another contract revision of tokenisation.",
    GateReason.TEMPLATE: "Another contract revision of chat templates.",
    GateReason.BACKEND: "This backend was not measured.",
    GateReason.ACTIVATIONS: "Another activation mode.",
    GateReason.KV: "Another KV type.",
    GateReason.CONTEXT: "A longer context than was measured.",
    GateReason.RULE: "Another verdict rule.",
    GateReason.VALUE: "An outcome or verdict that this engine does not know.",
    GateReason.VERDICT: "The stated verdict is not what the checks yield.",
    GateReason.FIGURES: "A check is stated to pass although its figures do not meet its thresholds.",
}


def known(code: str) -> bool:
    """Whether ``code`` is a reason of a check."""
    return code in Reason._value2member_map_


def markdown() -> str:
    """The text of docs/reasons.md."""
    lines = [
        "# Exit codes and reason codes",
        "",
        "Generated by `python -m certify.reasons`; a test keeps this page current. Codes are stable:",
        "one may be added, none is renamed.",
        "",
        "## `certify run` (precedence 2 > 4 > 1 > 3 > 0)",
        "",
        *_table("exit", {str(int(code)): text for code, text in CERTIFY_MEANINGS.items()}),
        "",
        "The other `certify` commands end with 0 (done), 1 (a negative answer or a failure), 2 (usage,",
        "manifest or schema error) or 130.",
        "",
        "## `gaugeblock`",
        "",
        *_table("exit", {str(code): text for code, text in GAUGEBLOCK_MEANINGS.items()}),
        "",
        "## Reasons of a check that did not pass",
        "",
        *_table("reason", {str(item): item.meaning for item in Reason}),
        "",
        "## Reasons of the gate",
        "",
        "All but the first two make a model `indeterminate`: it loads with a warning, and is refused under",
        "`--require certified`.",
        "",
        *_table("reason", {str(item): GATE_MEANINGS[item] for item in GateReason}),
    ]
    return "\n".join(lines) + "\n"


def _table(head: str, rows: dict[str, str]) -> list[str]:
    return [
        f"| {head} | meaning |",
        "| --- | --- |",
        *(f"| `{code}` | {text} |" for code, text in rows.items()),
    ]


if __name__ == "__main__":
    print(markdown(), end="")
