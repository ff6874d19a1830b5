"""The checks of endings and tool calls on servers that break one rule each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from certify import agent_cases
from certify.checks import tool, truncation
from certify.documents import filled_breaches, formats, parse, places, pointer, values, violation
from certify.endings import RULES
from certify.endpoints import Answer, Endpoint, EventReader, Turn, ask, streamed
from certify.reasons import Reason
from certify.truncation_cases import CASES
from certify.types import Outcome
from tests.certify import fake_endpoint as servers
from tests.certify import fakes
from tests.certify.fakes import run_check

SCHEMAS = ["weather", "person"]


def of_endpoint(
    folder: Path, check: str, model: type[servers.Honest], **parameters: Any
) -> tuple[Outcome, list[dict[str, Any]]]:
    """Run a check on a server of this process; returns what it wrote as evidence, too."""
    with servers.running(model) as url:
        outcome, context = run_check(folder, check, endpoint=url, **parameters)
    path = context.folder / f"{check}.jsonl"
    return outcome, [json.loads(line) for line in path.read_text().splitlines()]


def rules_of(outcome: Outcome) -> set[str]:
    return {name.removeprefix("violations_") for name in outcome.measurements if "violations_" in name}


# ---- truncation ------------------------------------------------------------------------------------


def test_every_budget_of_every_schema_is_asked_for_in_both_modes(tmp_path: Path) -> None:
    outcome, records = of_endpoint(tmp_path, "truncation", servers.Honest)
    assert outcome.outcome == "pass", outcome
    found = outcome.measurements
    assert (found["schemas"], found["completed_schemas"]) == (len(CASES), len(CASES))
    assert (found["held_ratio"], found["violations"], found["ladder_rungs_held"]) == (1.0, 0, 7)
    assert found["answers"] == len(records)
    for case in CASES:
        mine = [item for item in records if item["case"] == case.id]
        tokens = mine[0]["tokens"]
        for mode in ("buffered", "streamed"):
            asked = [item["budget"] for item in mine[1:] if item["mode"] == mode and not item["stop"]]
            ladder = {16, 64} if case.ladder else set()
            assert asked == sorted({*range(1, tokens + 2), *ladder})
        assert any(item["stop"] for item in mine) == (case.tools is None)


BREAKS: list[tuple[type[servers.Honest], set[str]]] = [
    (servers.Unparseable, {"unparseable"}),
    (servers.NoCall, {"no_document"}),
    (servers.Leak, {"leak"}),
    (servers.WrongFinish, {"finish"}),
    (servers.ControlTruncated, {"control"}),
    (servers.InventsBeforeBegin, {"invented"}),
    (servers.InventsOfNoTokens, {"invented"}),
    (servers.WrongTool, {"tool_name"}),
    (servers.TwoCalls, {"call_count"}),
    (servers.BreaksSchema, {"schema"}),
    (servers.BreaksFormat, {"schema"}),
    (servers.RepeatsKeys, {"unparseable"}),
    (servers.Status500, {"http_status"}),
    (servers.StreamDiffers, {"stream_differs"}),
    (servers.OneBudgetStreamed, {"unparseable", "stream_differs"}),
    (servers.Short, {"no_answer"}),
    (servers.NotJSON, {"malformed"}),
    (servers.NoDone, {"malformed"}),
    (servers.LosesPrefix, {"prefix"}),
    (servers.SaysNothing, {"filled"}),
    (servers.HidesFilled, {"filled"}),
    (servers.NamesGhosts, {"filled"}),
    (servers.FillsTheWhole, {"filled"}),
    (servers.DeniesTheCut, {"filled"}),
    (servers.ClaimsTooMuch, {"filled"}),
    (servers.PicksATool, {"filled"}),
    (servers.IgnoresBudget, {"budget"}),
    (servers.ClaimsOneToken, {"budget"}),
    (servers.CountsNothing, {"budget"}),
    (servers.EndsEarly, {"finish"}),
    (servers.WrongReason, {"filled"}),
    (servers.DisownsItsText, {"filled"}),
    (servers.HidesNothing, {"filled"}),
    (servers.NoFinish, {"finish", "control"}),
]


@pytest.mark.parametrize(("model", "rules"), BREAKS, ids=lambda item: getattr(item, "__name__", None))
def test_a_server_that_breaks_one_rule_fails_by_its_name(
    model: type[servers.Honest], rules: set[str], tmp_path: Path
) -> None:
    schemas = ["select"] if model is servers.PicksATool else SCHEMAS
    outcome, _ = of_endpoint(tmp_path, "truncation", model, schemas=schemas)
    assert (outcome.outcome, outcome.reason) == ("fail", Reason.ENDING_BROKEN), outcome
    assert rules <= rules_of(outcome) <= set(RULES), outcome.measurements
    extra = {"stream_differs", "finish", "filled", "prefix"}  # a broken text may break these as well
    assert rules_of(outcome) <= rules | extra, outcome.measurements
    if model is servers.OneBudgetStreamed:
        assert outcome.measurements["violations_unparseable"] == 1
        assert [item.name for item in outcome.variants if item.outcome == "fail"] == ["schema=weather"]


def test_every_rule_has_a_server_that_breaks_it() -> None:
    assert set().union(*(rules for _, rules in BREAKS)) == set(RULES)


@pytest.mark.parametrize("model", [servers.Hangs, servers.Trickles, servers.TricklesHeaders])
def test_a_server_that_hangs_is_given_up_in_time(model: type[servers.Honest], tmp_path: Path) -> None:
    outcome, records = of_endpoint(tmp_path, "truncation", model, schemas=SCHEMAS, request_timeout_s=0.3)
    assert (outcome.outcome, outcome.reason) == ("fail", Reason.TIMEOUT), outcome
    assert "no whole answer within 0.3 s" in outcome.detail
    assert len(records) < 12


@pytest.mark.parametrize("check", ["truncation", "tool"])
def test_a_server_that_ends_its_connections_is_not_late(check: str, tmp_path: Path) -> None:
    outcome, _ = of_endpoint(tmp_path, check, servers.HangsUp)
    assert (outcome.outcome, outcome.reason) != ("fail", Reason.TIMEOUT), outcome
    assert "it no longer answers: RemoteDisconnected" in outcome.detail


def test_a_stream_without_a_length_that_is_cut_by_the_deadline_is_late() -> None:
    with servers.running(servers.Endless) as url:
        answer, turn = ask(Endpoint(url, timeout_s=0.3), CASES[0].body(64), stream=True)
    assert (answer.status, answer.late) == (200, True)
    assert turn.fault == "no whole answer within 0.3 s"


def test_a_server_that_says_nothing_about_endings_is_judged_by_the_rest(tmp_path: Path) -> None:
    outcome, _ = of_endpoint(tmp_path, "truncation", servers.Silent, schemas=SCHEMAS)
    assert outcome.outcome == "pass", outcome


def test_our_own_server_must_say_what_it_filled_in(tmp_path: Path) -> None:
    class SilentServer(fakes.Honest):
        server = "Silent"

    outcome, _ = run_check(tmp_path, "truncation", SilentServer, schemas=["weather"])
    assert rules_of(outcome) == {"filled"}


@pytest.mark.parametrize("check", ["truncation", "tool"])
def test_an_endpoint_that_is_not_there_is_an_error(check: str, tmp_path: Path) -> None:
    with servers.running(servers.Honest) as url:
        pass
    outcome, _ = run_check(tmp_path, check, endpoint=url)
    assert (outcome.outcome, outcome.reason) == ("error", Reason.ENDPOINT_ABSENT)


def test_only_loopback_endpoints_are_asked() -> None:
    from certify import registry

    check = registry.get("truncation")
    assert check.problems({"endpoint": "http://example.org:80/v1"})
    assert check.problems({"compare": ["vllm"]})
    assert not check.problems({"endpoint": "http://127.0.0.1:8080", "compare": ["llama.cpp"]})


@pytest.mark.parametrize("check", ["truncation", "tool"])
def test_a_peer_is_recorded_and_never_judged(check: str, tmp_path: Path) -> None:
    few: dict[str, Any] = {"schemas": ["weather"]} if check == "truncation" else {"cases": 8}
    with servers.running(servers.Unparseable) as url:
        outcome, context = run_check(tmp_path, check, compare=[url], **few)
    assert outcome.outcome == "pass", outcome
    assert outcome.variants[-1].name == f"peer={url}"
    key = next(name for name in outcome.measurements if name.startswith("127_0_0_1_"))
    prefix = key[: key.index("_", len("127_0_0_1_"))]
    name = "violations" if check == "truncation" else "failed_schema"
    assert int(str(outcome.measurements[f"{prefix}_{name}"])) > 0
    lines = (context.folder / f"{check}.jsonl").read_text().splitlines()
    parties = {json.loads(line)["party"] for line in lines}
    assert parties == {"ours", url}


@pytest.mark.parametrize("check", ["truncation", "tool"])
def test_a_peer_that_goes_away_is_no_pass(check: str, tmp_path: Path) -> None:
    few: dict[str, Any] = {"schemas": ["weather"]} if check == "truncation" else {"cases": 8}
    with servers.running(servers.Trickles) as url:
        outcome, _ = run_check(tmp_path, check, compare=[url], request_timeout_s=0.3, **few)
    last = outcome.variants[-1]
    assert outcome.outcome == "pass", outcome
    assert (last.name, last.outcome, last.reason) == (f"peer={url}", "skip", Reason.REFERENCE_MISSING)


def test_a_reference_serves_as_a_peer_and_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(fakes.REFERENCES, "llama.cpp", fakes.PeerServer)
    outcome, context = run_check(tmp_path, "truncation", schemas=["weather"], compare=["llama.cpp"])
    assert outcome.outcome == "pass", outcome
    assert outcome.measurements["llama_cpp_ladder_rungs_held"] == 2  # what needs no cut
    assert int(str(outcome.measurements["llama_cpp_violations_unparseable"])) > 0
    assert "llama.cpp" in context.uses
    context.close()


def test_a_peer_that_is_not_installed_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fakes.REFERENCES, "llama.cpp", fakes.PeerMissing)
    outcome, _ = run_check(tmp_path, "truncation", schemas=["weather"], compare=["llama.cpp"])
    assert outcome.outcome == "pass"
    assert (outcome.variants[-1].outcome, outcome.variants[-1].reason) == ("skip", Reason.REFERENCE_MISSING)


def test_the_same_run_writes_the_same_evidence(tmp_path: Path) -> None:
    written = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        _, context = run_check(tmp_path / name, "truncation", schemas=["weather"])
        written.append((context.folder / "truncation.jsonl").read_bytes())
    assert written[0] == written[1]


def test_the_cases_are_schemas_whose_formats_are_checked() -> None:
    for case in CASES:
        for schema in [case.schema] if case.tools is None else case.tools.values():
            assert schema is not None
            jsonschema.Draft202012Validator.check_schema(schema)
            named = {item for where, item in values(schema) if where.endswith("/format")}
            assert named <= set(formats().checkers)


# ---- tool ------------------------------------------------------------------------------------------


def test_figures_count_what_was_asked_and_what_was_answered(tmp_path: Path) -> None:
    outcome, records = of_endpoint(tmp_path, "tool", servers.Honest, cases=40)
    assert outcome.outcome == "pass", outcome
    found = outcome.measurements
    assert (found["requests"], found["passed"], found["attempted"], found["failed_declined"]) == (
        40,
        40,
        40,
        0,
    )
    assert (found["call_ratio"], found["attempted_pass_ratio"]) == (1.0, 1.0)
    assert all(found[f"passed_{family}"] == 5 for family in agent_cases.FAMILIES)
    assert len({item["case"] for item in records}) == 40


TOOL_BREAKS: list[tuple[type[servers.Honest], str]] = [
    (servers.NoCall, "declined"),
    (servers.Unparseable, "schema"),
    (servers.BreaksSchema, "schema"),
    (servers.WrongTool, "schema"),
    (servers.TwoCalls, "protocol"),
    (servers.NoDone, "protocol"),
    (servers.Status500, "transport"),
    (servers.Short, "transport"),
    (servers.NoFinish, "protocol"),
    (servers.CutIsACall, "protocol"),
    (servers.SaysNoWord, "protocol"),
    (servers.NotJSON, "protocol"),
]


@pytest.mark.parametrize(("model", "category"), TOOL_BREAKS)
def test_failures_have_their_category(model: type[servers.Honest], category: str, tmp_path: Path) -> None:
    outcome, _ = of_endpoint(tmp_path, "tool", model, cases=40)
    assert (outcome.outcome, outcome.reason) == ("fail", Reason.ANSWER_WRONG), outcome
    found = outcome.measurements
    assert {name for name in ("declined", "transport", "protocol", "schema") if found[f"failed_{name}"]} == {
        category
    }
    if category == "declined":
        assert found["attempted_pass_ratio"] == 1.0
        assert found["call_ratio"] == 1 - int(str(found["failed_declined"])) / 40


def test_thresholds_of_the_manifest_count(tmp_path: Path) -> None:
    outcome, _ = of_endpoint(tmp_path, "tool", servers.NoCall, cases=40, call_ratio_min=0.5)
    assert outcome.outcome == "pass", outcome


def test_nothing_attempted_is_no_pass(tmp_path: Path) -> None:
    outcome, _ = of_endpoint(
        tmp_path, "tool", servers.NoCall, families=["forced_truncation"], call_ratio_min=0
    )
    assert outcome.outcome == "fail"
    assert outcome.measurements["attempted_pass_ratio"] is None


def test_the_cases_are_the_same_every_time_and_their_schemas_are_real() -> None:
    once = agent_cases.cases(120)
    assert once == agent_cases.cases(120)
    assert len({case.id for case in once}) == 120
    for case in once:
        if case.schema is not None:
            jsonschema.Draft202012Validator.check_schema(case.schema)
    enum = next(case for case in once if case.family == "large_enum_selection").schema
    assert enum is not None
    assert len(enum["properties"]["label"]["enum"]) == 50


# ---- The parts -------------------------------------------------------------------------------------


def test_events_are_the_same_however_the_bytes_are_split() -> None:
    body = "event: a\r\ndata: größe\r\n\r\n: a remark\n\ndata: one\ndata:two\n\ndata: [DONE]\n\n".encode()
    expected = [("a", "größe"), ("", "one\ntwo"), ("", "[DONE]")]
    for place in range(len(body) + 1):
        reader = EventReader()
        assert [*reader.feed(body[:place]), *reader.feed(body[place:])] == expected
        assert not reader.pending
    reader = EventReader()
    assert list(reader.feed(body[:-1])) == expected[:2]
    assert reader.pending


def test_what_stands_behind_done_or_finish_is_malformed() -> None:
    with servers.running(servers.Honest) as url:
        answer, turn = ask(Endpoint(url, timeout_s=10), CASES[0].body(64), stream=True)
    assert turn.fault is None
    assert streamed(answer, range(1, len(answer.body))) == turn
    more = type(answer)(200, answer.content_type, answer.body + b"data: {}\n\n")
    assert "after [DONE]" in str(streamed(more).fault)
    other = type(answer)(200, "application/json", answer.body)
    assert "content type" in str(streamed(other).fault)
    assert streamed(type(answer)(200, answer.content_type, answer.body[:-3])).fault


def test_values_have_places_in_any_json_text() -> None:
    text = ' { "a" : [ 1 , {} , "}\\"," ] , "b/" : { "c" : -1.5e3 } , "d" : true }\n'
    ends = dict(places(text))
    assert list(ends) == [at for at, _ in values(json.loads(text))]
    for at, end in ends.items():
        value = dict(values(json.loads(text)))[at]
        number = type(value) in (int, float)
        assert any(_reads(text[i : end - number], value) for i in range(end))
        assert text[end - 1 - number] not in " ,:\n"
    assert dict(places("12")) == {"": 3}


def _reads(text: str, value: Any) -> bool:
    try:
        return bool(json.loads(text) == value)
    except ValueError:
        return False


def test_a_long_stream_is_compared_at_so_many_places() -> None:
    body = b"".join(b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n' for _ in range(4000))
    answer = Answer(200, "text/event-stream", body + b"data: [DONE]\n\n")
    read = []

    class Counted(EventReader):
        def feed(self, piece: bytes) -> Any:
            read.append(len(piece))
            return super().feed(piece)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tool, "EventReader", Counted)
        patch.setattr(tool, "SPLITS", 16)
        assert tool.same_when_split(answer, streamed(answer))
    assert len(read) <= 2 * 18 + 1


def test_filled_must_be_exactly_what_the_model_did_not_write() -> None:
    whole = {"city": "Paris", "days": 15, "list": [1, 2], "a/b~": True}

    def wrong(filled: Any, document: Any) -> list[str]:
        return [item.detail for item in filled_breaches(filled, document, whole)]

    assert not wrong(["/city", "/days"], {"city": "Pa", "days": 0})
    assert not wrong([], {"city": "Paris", "list": [1]})
    assert not wrong(["/a~1b~0"], {"a/b~": False})
    assert wrong([], {"city": "Paris", "days": 1})  # a number that was cut: 15
    assert wrong(["/days"], {"city": "Paris"})
    assert wrong(["/days", "/days"], {"city": "Paris", "days": 0})
    assert wrong([], {"a/b~": 1})
    assert wrong("/city", {"city": ""})
    assert wrong([], {"city": "Paris", "list": {}})
    assert wrong(["/list"], {"list": [0]})
    assert not wrong(["/list", "/list/0"], {"list": [0]})
    assert pointer(["a/b~", 0]) == "/a~1b~0/0"


def test_documents_are_parsed_strictly_and_validated_with_formats() -> None:
    for text in ('{"a":1,"a":2}', "[NaN]", '"\\ud800"', "{", '"\t"', "[1,]", "'a'", "\ud800"):
        assert parse(text)[1] is not None, text
    assert parse("[18446744073709551615]")[1] is None
    assert violation("2026-02-30", {"type": "string", "format": "date"}) is not None
    assert violation("2026-02-28", {"type": "string", "format": "date"}) is None


def test_answers_are_compared_with_what_they_say_of_their_endings() -> None:
    one = Turn("length", "x", extension={"truncated": True, "filled": ["/a"], "seed": 1})
    assert one.same(Turn("length", "x", extension={"truncated": True, "filled": ["/a"], "seed": 2}))
    assert not one.same(Turn("length", "x", extension={"truncated": True, "filled": []}))
    assert not one.same(Turn("stop", "x", extension=one.extension))


def test_the_ladder_is_the_reference_s() -> None:
    assert truncation.LADDER == (1, 2, 3, 5, 8, 16, 64)
    body = CASES[0].body(3)
    assert body["messages"][0]["content"] == "What is the weather in Paris? Use fahrenheit."
    assert (body["temperature"], body["max_tokens"], body["tool_choice"]) == (0, 3, "required")
    assert body["tools"][0]["function"]["description"] == "Get the current weather for a city."
