"""`glue eval`: the table, exit codes, cassettes, the baseline, and mistakes."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from glue import Request, failures
from glue.cli.eval import TrialCount, parse_model
from glue.durable import MapRow
from glue.messages import Usage
from glue.testing import Script, call, calls, repeat, say, use_provider

Cli = Callable[..., Any]
AGENT = '''
from glue import Agent, tool
from glue.tools import fs

@tool
def weather(city: str) -> str:
    """Return the weather in a city."""
    return f"{city}: 21 degrees"

agent = Agent("good", tools=[weather, *fs.tools(".", write=True)])

def is_short(case, result):
    return len(result.text) <= case.data["most"] or f"{len(result.text)} characters"
'''
BESIDE = """
def wrote(case, result):
    return (case.folder / "out.txt").read_text() == "done"
"""
COSTS = {"good": 0.002, "poor": 0.0005}


def model(name: str) -> Script:
    """Return the model `good`, which passes every case, or another one, which fails some."""

    def answer(request: Request) -> Any:
        last = request.messages[-1]
        cost = COSTS.get(name.partition(" ")[0])
        usage = Usage(input=900, output=100, cost=cost)
        if "Which team" in last.text:
            return say("billing" if name == "good" else "shipping", usage=usage)
        if "Weather" in last.text:
            return calls(call("weather", {"city": "Oslo"}), usage=usage)
        if "Write" in last.text:
            return calls(call("write_file", {"path": "out.txt", "content": "done"}), usage=usage)
        return say(last.text, usage=usage)

    return Script(repeat(answer), name=name)


@pytest.fixture
def cases(cli: Cli) -> Iterator[str]:
    """Write an agent with ten cases, and replace the models."""
    teams: list[dict[str, Any]] = [
        {"id": f"team-{n}", "prompt": f"Which team handles {n}?", "equals": "billing"}
        for n in range(8)
    ]
    oslo = {
        "id": "oslo",
        "prompt": "Weather?",
        "answers": {"weather": "12 degrees"},
        "contains": "12",
        "python": "is_short",
        "data": {"most": 40},
    }
    write = {"id": "write", "prompt": "Write.", "folder": "repo", "python": "beside.py:wrote"}
    Path("agent.py").write_text(AGENT)
    Path("beside.py").write_text(BESIDE)
    Path("repo").mkdir()
    Path("cases.jsonl").write_text("\n".join(map(json.dumps, [*teams, oslo, write])))
    with use_provider(model):
        yield "cases.jsonl"


def test_the_table_and_the_comparison_are_printed(cli: Cli, cases: str) -> None:
    ran = cli("eval", "agent.py", cases, "-m", "good", "-m", "poor", "--repeat", "2", "--yes")

    assert ran.code == 0, ran.err
    heads, good, poor, line = ran.out.splitlines()
    assert heads.split() == "model pass cost/case p50 s p95 s tokens outcomes".split()
    assert good.split()[:2] == ["good:script-1", "20/20"]
    assert poor.split()[:2] == ["poor:script-1", "4/20"]
    assert "$0.0024" in good
    assert "20 done" in good
    wanted = "good against poor: better in 8 cases, worse in 0 (p = 0.0078); the 8 cases are in"
    assert line == f"{wanted} eval.html"
    assert "poor, case team-0: equals: got 'shipping'" in ran.err
    assert ran.err.count("poor, case") == 5  # the page has all of them
    assert Path("eval.html").read_text().startswith("<!doctype html>")
    assert not Path("out.txt").exists()


def test_settings_of_the_own_model_are_compared(cli: Cli, cases: str) -> None:
    ran = cli("eval", "agent.py", cases, "-m", "temperature=0", "-m", "temperature=1", "-y", "-q")

    assert ran.code == 0, ran.err
    assert "temperature=0 against temperature=1: the same score in all 10 cases" in ran.out


def test_the_model_of_the_header_of_an_agent_file_is_used(cli: Cli, cases: str) -> None:
    header = '# /// script\n# [tool.glue]\n# model = "poor"\n# max_turns = 9\n# ///\n'
    Path("agent.py").write_text(header + AGENT)

    ran = cli("eval", "agent.py", cases, "--yes", "-q")

    assert ran.code == 0, ran.err
    assert ran.out.splitlines()[1].split()[:2] == ["poor:script-1", "2/10"]


def test_a_baseline_of_other_models_is_refused_before_the_first_trial(cli: Cli, cases: str) -> None:
    two = ("eval", "agent.py", cases, "--yes", "-q", "-m", "good", "-m")
    cli(*two, "poor", "-o", "old.jsonl")

    ran = cli("eval", "agent.py", cases, "-m", "other", "-y", "--baseline", "old.jsonl")

    assert (ran.code, ran.out) == (2, "")
    assert "no model in common: other and good, poor" in ran.err
    assert not Path("eval.jsonl.state").exists()


def test_a_small_sample_is_said_to_be_too_small(cli: Cli, cases: str) -> None:
    lines = Path(cases).read_text().splitlines()
    Path(cases).write_text("\n".join([lines[0], *lines[8:]]))

    ran = cli("eval", "agent.py", cases, "-m", "good", "-m", "poor", "--yes", "-q")

    wanted = "better in 1 case, worse in 0 (p = 1); 3 cases cannot distinguish the models: "
    assert f"{wanted}about 24 cases are needed to detect a difference of 33 points" in ran.out
    assert ran.err == ""


def test_json_has_the_models_and_the_comparisons(cli: Cli, cases: str) -> None:
    ran = cli("eval", "agent.py", cases, "-m", "good", "-m", "poor", "--yes", "--json")

    found = json.loads(ran.out)
    assert [each["score"] for each in found["models"]] == [1.0, 0.2]
    assert found["comparisons"][0]["better"] == [f"team-{n}" for n in range(8)]
    assert (found["file"], found["page"], found["unfinished"]) == ("eval.jsonl", "eval.html", None)


@pytest.mark.parametrize(("share", "code"), [("0.2", 0), ("0.9", 1)])
def test_the_exit_code_is_1_below_the_wanted_share(
    cli: Cli, cases: str, share: str, code: int
) -> None:
    ran = cli("eval", "agent.py", cases, "-m", "poor", "--yes", "--at-least", share)

    assert ran.code == code


def test_the_exit_code_is_1_if_a_case_became_worse(cli: Cli, cases: str) -> None:
    cli("eval", "agent.py", cases, "-m", "good", "--yes", "-o", "old.jsonl")
    cli("eval", "agent.py", cases, "-m", "poor", "--yes", "-o", "new.jsonl")

    same = cli("eval", "agent.py", cases, "--yes", "--baseline", "old.jsonl")
    worse = cli(
        "eval", "agent.py", cases, "-m", "poor", "--yes", "--baseline", "old.jsonl", "--overwrite"
    )
    diff = cli("eval", "diff", "old.jsonl", "new.jsonl")
    better = cli("eval", "diff", "new.jsonl", "old.jsonl")

    assert (same.code, worse.code, diff.code, better.code) == (0, 1, 1, 0)
    assert "good against the baseline: the same score in all 10 cases" in same.out
    assert "poor against the baseline: better in 0 cases, worse in 8" in worse.out
    assert "  worse: team-0, team-1" in diff.out
    assert "  better: team-0, team-1" in better.out
    assert json.loads(cli("eval", "diff", "old.jsonl", "new.jsonl", "--json").out)[0]["worse"]


def test_cassettes_of_each_model_are_replayed_without_a_model(cli: Cli, cases: str) -> None:
    words = ("eval", "agent.py", cases, "-m", "offline", "-m", "offline temperature=1", "--yes")
    recorded = cli(*words, "--record", "tapes", "--json")

    replayed = cli(*words, "--replay", "tapes", "--overwrite", "--json")
    table = cli(*words, "--replay", "tapes", "--overwrite", "-q")

    assert sorted(path.name for path in Path("tapes").iterdir()) == [
        "offline-temperature-1.jsonl",
        "offline.jsonl",
    ]
    passed = [each["passed"] for each in json.loads(recorded.out)["models"]]
    assert [each["passed"] for each in json.loads(replayed.out)["models"]] == passed
    assert table.out.splitlines()[1].split()[4:6] == ["-", "-"]  # times mean nothing


def test_an_existing_evaluation_is_resumed_or_overwritten_only_if_asked(
    cli: Cli, cases: str
) -> None:
    words = ("eval", "agent.py", cases, "-m", "good", "--yes")
    cli(*words)

    again = cli(*words)

    assert (again.code, again.out) == (2, "")
    assert "eval.jsonl exists already; --resume continues it, --overwrite starts again" in again.err
    assert cli(*words, "--resume").code == 0
    assert cli(*words, "--overwrite").code == 0
    Path("new.html").touch()
    assert "new.html exists already" in cli(*words, "-o", "new.jsonl").err


def test_a_spent_budget_is_reported_and_exits_with_3(cli: Cli, cases: str) -> None:
    ran = cli("eval", "agent.py", cases, "-m", "good", "--yes", "--usd-budget", "0.005", "-n", "1")

    assert ran.code == 3
    assert "some trials were not run: the budget is spent; --resume continues" in ran.out


def test_a_judge_has_a_column_and_its_agreement_is_printed(cli: Cli, cases: str) -> None:
    lines = [
        {"prompt": "Which team?", "equals": "billing", "judge": "It names a team."},
        {"prompt": "Which team is it?", "judge": "It names a team."},
    ]
    Path(cases).write_text("\n".join(map(json.dumps, lines)))

    def open_model(name: str) -> Script:
        if name != "strict":
            return model(name)
        verdict = call("final_answer", {"reason": "No team.", "passes": False})
        return Script(repeat(calls(verdict, usage=Usage(input=9, output=1, cost=0.01))), name=name)

    with use_provider(open_model):
        ran = cli("eval", "agent.py", cases, "-m", "good", "--judge", "strict")
        missing = cli("eval", "agent.py", cases, "-m", "good", "--overwrite")

    assert "judge/case" in ran.out
    assert "$0.0100" in ran.out
    assert "the judge strict agrees with the plain checks in 0 of 1 trials" in ran.out
    assert "judge: No team." in ran.err
    assert missing.code == 2
    assert "case 1 needs a judge" in missing.err


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("none.py", "cases.jsonl"), "the file none.py does not exist"),
        (("agent.py", "none.jsonl"), "none.jsonl cannot be read"),
        (("agent.py",), "Missing argument"),
        (("agent.py", "cases.jsonl", "-m", "good temp=1"), "unknown setting 'temp'; there are:"),
        (("agent.py", "cases.jsonl", "-m", "good temperature=x"), "must be a number, not 'x'"),
        (("agent.py", "cases.jsonl", "--resume", "--overwrite"), "exclude each other"),
        (("agent.py", "cases.jsonl", "-o", "a.html"), "a.html is the name of the HTML page"),
        (("agent.py", "cases.jsonl", "--record", "a", "--resume"), "--record needs a new"),
        (("agent.py", "cases.jsonl", "--baseline", "none"), "does not exist"),
        (("diff", "agent.py", "cases.jsonl"), "agent.py was not written by glue eval"),
    ],
)
def test_a_mistake_prints_one_line_and_exits_with_2(
    cli: Cli, cases: str, words: tuple[str, ...], error: str
) -> None:
    ran = cli("eval", *words)

    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert error in ran.err


def test_a_missing_function_and_an_attachment_outside_are_mistakes(cli: Cli, cases: str) -> None:
    Path(cases).write_text('{"prompt": "hi", "python": "nope"}')
    missing = cli("eval", "agent.py", cases)
    Path(cases).write_text('{"prompt": "hi", "equals": "x", "attachments": ["../secret"]}')
    outside = cli("eval", "agent.py", cases)

    assert "case 1: there is no function 'nope' in the agent file" in missing.err
    assert f"attachment '../secret' is outside the folder {Path.cwd()}" in outside.err


def test_answers_of_the_stand_in_are_reported_once(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(failures, "_shows_notices", False)
    monkeypatch.setattr(failures, "_printed", set())
    Path("plain.py").write_text("from glue import Agent\nagent = Agent('offline')\n")
    Path("cases.jsonl").write_text('{"prompt": "Hello", "max_turns": 0}\n')

    result = cli("eval", "plain.py", "cases.jsonl")

    assert "offline, 1 trial: the offline stand-in answered, not a model" in result.out
    assert "stand-in" not in result.err + caplog.text


def test_a_model_may_have_settings() -> None:
    assert parse_model("") == {}
    assert parse_model("openai max_tokens=20") == {
        "name": "openai max_tokens=20",
        "model": "openai",
        "max_tokens": 20,
    }


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("", {}),
        ("openai:mini", {"name": "openai:mini", "model": "openai:mini"}),
        ("temperature=0.5", {"name": "temperature=0.5", "temperature": 0.5}),
        (
            "  max_tokens=9   groq reasoning=low instructions=Brief.",
            {
                "name": "max_tokens=9 groq reasoning=low instructions=Brief.",
                "max_tokens": 9,
                "model": "groq",
                "reasoning": "low",
                "instructions": "Brief.",
            },
        ),
    ],
)
def test_a_model_is_a_name_and_settings_in_any_order(text: str, settings: dict[str, Any]) -> None:
    assert parse_model(text) == settings


@pytest.mark.parametrize("text", ["groq openai", "groq model=x", "temperature"])
def test_a_second_model_or_an_unknown_setting_is_refused(cli: Cli, cases: str, text: str) -> None:
    ran = cli("eval", "agent.py", cases, "-m", f"good {text}")

    assert (ran.code, "--model: unknown setting " in ran.err) == (2, True)


def test_a_provider_object_of_an_agent_is_named_in_the_table(cli: Cli, cases: str) -> None:
    Path("agent.py").write_text(
        "from glue import Agent\nfrom glue.testing import Script, repeat\n"
        "agent = Agent(Script(repeat('billing'), name='acme'))\n"
    )
    Path(cases).write_text('{"prompt": "Which team?", "equals": "billing"}\n')

    (found,) = json.loads(cli("eval", "agent.py", cases, "--json").out)["models"]

    assert (found["model"], found["passed"]) == ("acme:script-1", 1)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("quiet", [False, True])
def test_the_trials_that_ended_are_counted_for_each_model(
    monkeypatch: pytest.MonkeyPatch, quiet: bool
) -> None:
    for name, value in (("TERM", "xterm"), ("NO_COLOR", "1"), ("COLUMNS", "80")):
        monkeypatch.setenv(name, value)
    file = Terminal()
    monkeypatch.setattr(sys, "stderr", file)
    count = TrialCount(4, quiet=quiet)

    for label in ("good", "good", "poor", "judge"):
        count.add(label, MapRow(number=1, outcome="done"))

    shown = ["good: 1 of 4 trials", "good: 2 of 4 trials", "poor: 1 of 4 trials", "judge: 1 trials"]
    drawn = file.getvalue().replace("\x1b[K", "").split("\r")[1:]
    assert drawn == ([] if quiet else shown)
