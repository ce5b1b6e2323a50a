"""Cases: mistakes are found before anything runs, and each check passes and fails as described."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from glue import AssistantMessage, Outcome, RunResult, Text, ToolCall, Usage, user
from glue.cases import Case, check, read_cases
from glue.errors import ConfigError
from glue.testing import call


def result(
    text: str = "It is 12 degrees in Oslo.",
    *calls: ToolCall,
    outcome: Outcome = Outcome.DONE,
    cost: float | None = 0.01,
    turns: int = 1,
    output: Any = None,
) -> RunResult[Any]:
    messages = (user("hi"), AssistantMessage(content=(*calls, Text(text=text))))
    return RunResult(
        messages=messages,
        new_messages=messages,
        text=text,
        outcome=outcome,
        stop_reason=None,
        usage=Usage(cost=cost),
        turns=turns,
        output=output,
    )


def score(checks: Mapping[str, Any], given: RunResult[Any]) -> tuple[float, tuple[str, ...]]:
    (case,) = read_cases([{"prompt": "Weather in Oslo?", **checks}])
    return check(case, given)


SEARCH = call("search", {"query": "oslo", "pages": 2})
REFUND = call("refund", {"order": 7})


@pytest.mark.parametrize(
    ("checks", "given"),
    [
        ({"equals": " billing\n"}, result("billing ")),
        ({"equals": {"team": "billing"}}, result('```json\n{"team": "billing"}\n```')),
        ({"contains": "12"}, result()),
        ({"contains": ["12", "Oslo"]}, result()),
        ({"matches": r"\d+ degrees"}, result()),
        ({"json": {"schema": {"type": "object", "required": ["a"]}}}, result('{"a": 1}')),
        ({"json": {"fields": {"a": {"b": [1, "x"]}}}}, result('{"a": {"b": [1, "x"], "c": 2}}')),
        ({"json": {"fields": {"total": 12.5}, "tolerance": 0.1}}, result('{"total": 12.45}')),
        ({"json": {"fields": {"n": 1}}}, result(output={"n": 1})),
        ({"calls": ["search", "refund"]}, result("", SEARCH, REFUND)),
        ({"calls": [{"name": "search", "arguments": {"pages": 2}}]}, result("", SEARCH)),
        ({"calls": {"any_order": ["refund", "search"]}}, result("", SEARCH, REFUND)),
        ({"calls": {"never": ["refund"]}}, result("", SEARCH)),
        ({"calls": {"never": [{"name": "refund", "arguments": {"order": 8}}]}}, result("", REFUND)),
        ({"outcome": "max_turns"}, result(outcome=Outcome.MAX_TURNS)),
        ({"outcome": ["done", "refused"]}, result()),
        ({"max_cost": 0.01, "max_turns": 1}, result()),
    ],
)
def test_a_check_passes(checks: Mapping[str, Any], given: RunResult[Any]) -> None:
    assert score(checks, given) == (1.0, ())


@pytest.mark.parametrize(
    ("checks", "given", "reason"),
    [
        ({"equals": "billing"}, result("Billing"), "equals: got 'Billing'"),
        ({"equals": 7}, result("8"), "equals: got 8"),
        ({"contains": ["12", "13"]}, result(), "contains: the answer lacks '13'"),
        ({"matches": r"^\d"}, result(), r"matches: the answer does not match '^\\d'"),
        ({"json": {"fields": {"a": 1}}}, result("no"), "json: the answer contains no JSON"),
        (
            {"json": {"schema": {"type": "object", "required": ["a"]}}},
            result("{}"),
            "json: a: missing, expected a value",
        ),
        ({"json": {"fields": {"a": 1}}}, result('{"a": 1.5}'), "json: a is 1.5"),
        ({"json": {"fields": {"a": 1}}}, result('{"a": true}'), "json: a is True"),
        ({"json": {"fields": {"a": {"b": 1}}}}, result('{"a": {}}'), "json: a.b is missing"),
        ({"json": {"fields": {"a": [1, 2]}}}, result('{"a": [1, 3]}'), "json: a.1 is 3"),
        (
            {"calls": ["refund", "search"]},
            result("", SEARCH, REFUND),
            "calls: the run did not call search in the given order; it called search, refund",
        ),
        (
            {"calls": [{"name": "search", "arguments": {"pages": 3}}]},
            result("", SEARCH),
            'calls: the run did not call search {"pages": 3} in the given order; it called search',
        ),
        (
            {"calls": {"any_order": ["refund"]}},
            result(),
            "calls: the run did not call refund; it called nothing",
        ),
        ({"calls": {"never": ["refund"]}}, result("", REFUND), "calls: the run called refund"),
        ({"outcome": "refused"}, result(), "outcome: the run ended with done"),
        ({"contains": "12"}, result(outcome=Outcome.MAX_TURNS), "the run ended with max_turns"),
        ({"max_cost": 0.001}, result(), "max_cost: $0.0100, at most $0.0010"),
        ({"max_cost": 1}, result(cost=None), "max_cost: cost unknown, at most $1.00"),
        ({"max_turns": 0}, result(), "max_turns: it took 1 turn"),
    ],
)
def test_a_check_fails_with_a_reason(
    checks: Mapping[str, Any], given: RunResult[Any], reason: str
) -> None:
    assert score(checks, given) == (0.0, (reason,))


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (True, (1.0, ())),
        ("", (1.0, ())),
        (False, (0.0, ("own: False",))),
        ("too long", (0.0, ("own: too long",))),
        (0.25, (0.25, ("own: 0.25",))),
    ],
)
def test_a_function_returns_a_flag_a_reason_or_a_score(value: Any, wanted: Any) -> None:
    (case,) = read_cases([{"prompt": "hi", "python": "own", "contains": "12"}])

    assert check(case, result(), {"own": lambda case, result: value}) == wanted


def test_the_score_is_the_lowest_of_all_checks() -> None:
    (case,) = read_cases([{"prompt": "hi", "python": ["half", "most"], "contains": "12"}])
    functions = {"half": lambda case, result: 0.5, "most": lambda case, result: 0.9}

    found = check(case, result(), functions)

    assert found == (0.5, ("half: 0.5", "most: 0.9"))


def test_an_exception_of_a_function_is_a_failure() -> None:
    (case,) = read_cases([{"prompt": "hi", "python": "own"}])

    def wrong(case: Case, result: RunResult[Any]) -> bool:
        assert "13" in result.text, "not 13"
        return True

    def broken(case: Case, result: RunResult[Any]) -> bool:
        return bool(case.data["missing"])

    assert check(case, result(), {"own": wrong})[1][0].startswith("own: not 13")
    assert check(case, result(), {"own": broken}) == (0.0, ("own raised KeyError: 'missing'",))
    with pytest.raises(ConfigError, match="own must return True, False, a reason or a score"):
        check(case, result(), {"own": lambda case, result: 7})


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("{", "not valid JSON"),
        ("[]", "must be a JSON object or a string, not list"),
        ('"Which team?"', "the case has no check; add one"),
        ({"prompt": "hi"}, "the case has no check; add one"),
        ({"contains": "x"}, 'the case needs either a "prompt" or "messages"'),
        ({"prompt": " ", "contains": "x"}, 'prompt: got " ", expected a string that matches'),
        ({"prompt": "hi", "contain": "x"}, "contain: unknown name; there are: id"),
        ({"prompt": "hi", "contains": 7}, "contains: got 7, expected a string"),
        ({"prompt": "hi", "contains": []}, "contains: got [], expected a list of strings"),
        ({"prompt": "hi", "matches": "("}, "a pattern is not a valid regular expression: "),
        ({"prompt": "hi", "outcome": "finished"}, 'outcome: got "finished", expected'),
        ({"prompt": "hi", "max_cost": "x"}, 'max_cost: got "x", expected a number'),
        (
            {"prompt": "hi", "json": {"field": {}}},
            "json.field: unknown name; there are: schema, fields",
        ),
        ({"prompt": "hi", "json": {"schema": {"type": "int"}}}, "wrong at type"),
        ({"prompt": "hi", "calls": [7]}, "calls[0]: got 7, expected a string"),
        ({"prompt": "hi", "calls": {"none": []}}, "calls.none: unknown name; there are: in_order"),
        ({"prompt": "hi", "contains": "x", "answers": []}, "answers: got [], expected an object"),
        ({"prompt": "hi", "contains": "x", "folder": "nope"}, "the folder nope does not exist"),
        ({"prompt": "hi", "contains": "x", "files": {"../x": ""}}, "is outside the working folder"),
        (
            {"prompt": "hi", "contains": "x", "attachments": ["a"]},
            "only the command line reads 'attachments'",
        ),
        ({"messages": [{"role": "assistant", "content": []}], "contains": "x"}, "the last of the"),
    ],
)
def test_a_mistake_names_the_line(
    line: Any, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = line if isinstance(line, str) else json.dumps(line)
    Path("cases.jsonl").write_text(f'{{"prompt": "hi", "contains": "x"}}\n\n{text}\n')

    with pytest.raises(ConfigError) as raised:
        read_cases("cases.jsonl")

    assert str(raised.value).startswith("cases.jsonl, line 3: ")
    assert error in str(raised.value)
    assert "\n" not in str(raised.value)


def test_ids_are_unique_and_a_file_has_cases(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")

    with pytest.raises(ConfigError, match="case 2: the id 'a' is used twice"):
        read_cases([{"id": "a", "prompt": "x", "equals": "y"}] * 2)
    with pytest.raises(ConfigError, match="has no cases"):
        read_cases(tmp_path / "empty.jsonl")
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_cases(tmp_path / "none.jsonl")


def test_a_case_has_messages_files_and_attachments(tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    earlier = {"role": "user", "content": [{"type": "text", "text": "Earlier."}]}
    last = {"role": "user", "content": [{"type": "text", "text": "Now."}]}
    lines = [
        {"messages": [earlier, last], "contains": "x", "folder": "repo"},
        {"prompt": "Sum up.", "attachments": ["a.txt"], "contains": "x"},
    ]
    (tmp_path / "cases.jsonl").write_text("\n".join(map(json.dumps, lines)))

    first, second = read_cases(tmp_path / "cases.jsonl", attach=lambda name: Text(text=name))

    assert (first.id, first.prompt, len(first.messages)) == ("1", "Now.", 2)
    assert (first.has_folder, first.folder) == (True, tmp_path / "repo")
    assert second.prompt == "Sum up.a.txt"


def test_cases_may_be_given_as_objects_beside_mappings() -> None:
    case = Case(id="a", messages=(user("hi"),), checks={"contains": "x"})

    assert read_cases([case, {"prompt": "hi", "contains": "y"}])[0] is case
    with pytest.raises(ConfigError, match="case 2: the id 'a' is used twice"):
        read_cases([case, case])


def test_a_source_without_cases_is_an_error_that_names_the_source(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n")

    with pytest.raises(ConfigError, match=r"^there are no cases$"):
        read_cases([])
    with pytest.raises(ConfigError, match=r"empty\.jsonl has no cases$"):
        read_cases(empty)


@pytest.mark.parametrize(
    ("fields", "found", "problem"),
    [
        ({"a": {"b": 1}}, '{"a": [1]}', "json: a is [1]"),
        ({"a": 3}, '{"a": {"b": 1}}', "json: a is {'b': 1}"),
        ({"a": {"b": 1}}, '{"a": {"c": 1}}', "json: a.b is missing"),
        ({"a": [1, 2]}, '{"a": [1]}', "json: a is [1]"),
        ({"a": [1, 2]}, '{"a": [1, 3]}', "json: a.1 is 3"),
        ({"a": 1.5}, '{"a": 2.0}', ""),
        ({"a": 1.5}, '{"a": 2.25}', "json: a is 2.25"),
        ({"a": True}, '{"a": 1}', "json: a is 1"),
    ],
)
def test_the_first_difference_of_a_json_answer_is_reported(
    fields: Any, found: str, problem: str
) -> None:
    _, reasons = score({"json": {"fields": fields, "tolerance": 0.5}}, result(found))

    assert reasons == ((problem,) if problem else ())


def test_a_whole_number_equals_the_same_number_with_decimals() -> None:
    assert score({"json": {"fields": {"a": 1}}}, result('{"a": 1.0}')) == (1.0, ())


def test_a_missing_call_is_named_with_its_arguments_if_the_case_gives_any() -> None:
    calls: Any = {"any_order": [{"name": "refund"}]}
    assert score({"calls": calls}, result())[1] == (
        "calls: the run did not call refund; it called nothing",
    )
    calls = {"any_order": [{"name": "refund", "arguments": {"order": 8}}]}
    assert score({"calls": calls}, result("", REFUND))[1] == (
        'calls: the run did not call refund {"order": 8}; it called refund',
    )


@pytest.mark.parametrize("value", [1.5, -0.5, 2, None, [1]])
def test_a_score_is_a_number_from_0_to_1(value: Any) -> None:
    (case,) = read_cases([{"prompt": "hi", "python": "own"}])

    with pytest.raises(ConfigError, match=r"own must return .*, not "):
        check(case, result(), {"own": lambda case, result: value})
    for score in (0, 1):
        assert check(case, result(), {"own": lambda case, result: score})[0] == score  # noqa: B023
