"""Evaluations: trials, answers, folders, the judge, budgets and resuming."""

from __future__ import annotations

import random
import signal
import sys
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from fakes.zygote import Zygote
from syrupy.assertion import SnapshotAssertion

import glue
from glue import Agent, Request, UserMessage
from glue.cases import Case
from glue.errors import ConfigError
from glue.evaluation import evaluate
from glue.messages import Usage, messages_to_json
from glue.project import Role
from glue.testing import Recorder, Replay, Script, call, calls, repeat, say, use_provider
from glue.tools import fs

USAGE = Usage(input=90, output=10, cost=0.001)
CASES: list[dict[str, Any]] = [
    {"id": "team", "prompt": "Which team?", "equals": "billing"},
    {"id": "city", "prompt": "Which city?", "contains": "Oslo"},
]


def model(name: str, **answers: str) -> Script:
    """Return a model that answers a prompt by its last word."""

    def answer(request: Request) -> Any:
        word = request.messages[-1].text.split()[-1].strip("?.")
        return say(answers.get(word, "no idea"), usage=USAGE)

    return Script(repeat(answer), name=name)


@glue.tool
def weather(city: str) -> str:
    """Return the weather in a city."""
    return f"{city}: 21 degrees"


def caller(*asked: Any) -> Script:
    """Return a model that makes these calls, and then answers with their results."""

    def answer(request: Request) -> Any:
        if isinstance(request.messages[-1], UserMessage):
            return calls(*asked)
        return " and ".join(
            message.text for message in request.messages if hasattr(message, "call_id")
        )

    return Script(repeat(answer))


async def test_every_case_runs_on_every_model_as_often_as_asked() -> None:
    good = model("good", team="billing", city="Oslo")
    poor = model("poor", city="Oslo")

    found = await glue.evaluate(Agent("offline"), CASES, models=[good, poor], repeat=3)

    assert found.models == ("good", "poor")
    assert Counter((trial.model, trial.case) for trial in found.trials) == {
        (name, case): 3 for name in ("good", "poor") for case in ("team", "city")
    }
    assert found.scores("good") == {"team": 1.0, "city": 1.0}
    assert found.scores("poor") == {"team": 0.0, "city": 1.0}
    assert {trial.reasons for trial in found.trials if not trial.score} == {
        ("equals: got 'no idea'",)
    }


async def test_a_summary_has_the_figures_of_a_model() -> None:
    poor = model("poor", city="Oslo")

    found = await evaluate(Agent(poor), CASES, repeat=2)

    (summary,) = found.summaries()
    assert (summary.model, summary.passed, summary.trials, summary.cases) == (
        "poor:script-1",
        2,
        4,
        2,
    )
    assert (summary.score, summary.tokens, summary.outcomes) == (0.5, 100, {"done": 4})
    assert summary.cost == pytest.approx(0.001)
    assert summary.low < 0.5 < summary.high


async def test_the_others_are_compared_with_the_first_model_on_the_same_cases() -> None:
    cases = [{"id": str(n), "prompt": f"Case {n}?", "contains": "yes"} for n in range(10)]
    good = model("good", **dict.fromkeys("01234567", "yes"))
    poor = model("poor", **dict.fromkeys("8", "yes"))
    same = model("same", **dict.fromkeys("01234567", "yes"))

    found = await evaluate(Agent("offline"), cases, models=[good, poor, same])

    first, second = found.pairs()
    assert (first.first, first.second) == ("good", "poor")
    assert (len(first.better), first.worse) == (8, ("8",))
    assert first.p == pytest.approx(2 * 10 / 512 * 2)  # two comparisons
    assert (second.p, second.needed) == (1.0, None)


async def test_tools_are_answered_from_the_case() -> None:
    case = {
        "prompt": "Weather?",
        "answers": {"weather": {"degrees": 12}},
        "equals": '{"degrees": 12}',
        "calls": [{"name": "weather", "arguments": {"city": "Oslo"}}],
    }
    agent = Agent(caller(call("weather", {"city": "Oslo"})), tools=[weather])

    found = await evaluate(agent, [case])

    found.assert_passed()


async def test_an_answered_tool_needs_no_permission_and_does_not_run() -> None:
    @glue.tool(needs_permission=True)
    def refund(order: int) -> str:
        """Refund an order."""
        raise AssertionError("the tool ran")

    agent = Agent(caller(call("refund", {"order": 7})), tools=[refund])
    case = {"prompt": "Refund?", "answers": {"refund": "refunded"}, "equals": "refunded"}

    (await evaluate(agent, [case])).assert_passed()


async def test_tools_of_sub_agents_are_answered_from_the_case_too() -> None:
    helper = Agent(caller(call("weather", {"city": "Oslo"})), tools=[weather], name="helper")
    agent = Agent(caller(call("helper", {"prompt": "Oslo"})), tools=[helper.as_tool()])
    case = {"prompt": "Weather?", "answers": {"weather": "12 degrees"}, "equals": "12 degrees"}

    (await evaluate(agent, [case])).assert_passed()


async def test_each_trial_works_in_a_fresh_copy_of_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "a.txt").write_text("one")
    edit = call("edit_file", {"path": "a.txt", "old": "one", "new": "two"})
    read = call("read_file", {"path": "b/c.txt"})
    seen = []

    def check(case: Case, result: Any) -> bool:
        assert case.folder is not None
        seen.append(case.folder)
        return (case.folder / "a.txt").read_text() == "two"

    def make(root: Path) -> Agent[Any, Any]:
        tools = fs.tools(".", write=True)  # the current folder is the copy
        return Agent(caller(edit, read), tools=tools, permission=glue.AllowAll())

    case = {
        "prompt": "Edit.",
        "folder": str(folder),
        "files": {"b/c.txt": "three"},
        "python": "check",
        "contains": "three",
    }

    found = await evaluate(make, [case], repeat=3, functions={"check": check})

    found.assert_passed()
    assert len(set(seen)) == 3
    assert (folder / "a.txt").read_text() == "one"
    assert not any(path.exists() for path in seen)  # the temporary state is gone


async def test_a_long_setting_is_cut_in_the_name_of_a_model() -> None:
    script = Script(repeat("billing"))

    found = await evaluate(Agent(script), CASES[:1], models=[{"instructions": "Be kind. " * 50}])

    assert found.models == ("instructions=Be kind. Be kind. Be kind.…",)


async def test_the_model_of_a_role_is_used_without_a_model_of_the_setting() -> None:
    good = model("good", team="billing")
    roles = {"expert": Role(name="expert", instructions="You know the teams.", model="good")}

    with use_provider(lambda name: good if name == "good" else model("poor")):
        agent = Agent("poor", roles=roles)
        found = await evaluate(agent, CASES[:1], models=[{"role": "expert"}])

    found.assert_passed()
    assert good.requests[0].system == "You know the teams."


async def test_settings_of_one_model_are_compared_under_their_own_names() -> None:
    def answer(request: Request) -> str:
        return "billing" if request.temperature == 0 else "no idea"

    script = Script(repeat(answer), name="small")
    models = [{"model": script, "temperature": 0}, {"model": script, "name": "warm"}]

    found = await evaluate(Agent("offline", temperature=1), CASES[:1], models=models)

    assert found.models == ("small temperature=0", "warm")
    assert [trial.score for trial in found.trials] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("case", "options", "error"),
    [
        ({"answers": {"wether": "x"}}, {}, "`answers` names the tool 'wether', which the agent"),
        ({"python": "missing"}, {}, "case 1: there is no function 'missing'"),
        ({"judge": "It is polite."}, {}, "case 1 needs a judge: judge=MODEL, or --judge MODEL"),
        ({"files": {"a": "b"}}, {}, "case 1 has a working folder: pass a function"),
        ({}, {"models": ["offline", "offline"]}, "each model needs a name of its own"),
        ({}, {"models": [{"name": "é"}, {"name": "è"}]}, "each model needs a name of its own"),
        ({}, {"models": ["offline", "openai:gpt-5-nano"]}, "OPENAI_API_KEY"),
        ({"judge": "It is polite."}, {"judge": "openai:gpt-5-nano"}, "OPENAI_API_KEY"),
        ({}, {"repeat": 0}, "repeat must be a whole number of 1 or more"),
        ({}, {"concurrency": 0}, "concurrency must be a whole number of 1 or more"),
    ],
)
async def test_a_mistake_is_found_before_the_first_request(
    case: dict[str, Any],
    options: dict[str, Any],
    error: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    script = Script(name="script")
    agent = Agent(script, tools=[weather])

    with pytest.raises((ConfigError, ValueError), match=error):
        await evaluate(agent, [{"prompt": "hi", "contains": "x", **case}], **options)

    assert script.requests == []


async def test_a_judge_checks_its_criteria_and_is_compared_with_the_plain_checks() -> None:
    def verdict(request: Request) -> Any:
        passes = "good answer" in request.messages[-1].text
        return calls(call("final_answer", {"reason": "I say so.", "passes": passes}), usage=USAGE)

    cases: list[dict[str, Any]] = [
        {"id": "both", "prompt": "One?", "judge": ["It is polite.", "It is true."], "equals": "x"},
        {"id": "judge", "prompt": "Two?", "judge": "It is polite."},
        {"id": "plain", "prompt": "Three?", "contains": "good"},
    ]
    agent = Agent(model("m", One="good answer", Two="bad answer", Three="good answer"))

    found = await evaluate(agent, cases, judge=Script(repeat(verdict), name="judge"))

    both, alone, plain = found.trials
    assert (both.plain, both.judged, both.score) == (0.0, 1.0, 0.0)
    assert (alone.plain, alone.judged, alone.score) == (None, 0.0, 0.0)
    assert alone.reasons == ("judge: I say so.",)
    assert (plain.judged, plain.judge_cost, plain.score) == (None, None, 1.0)
    assert both.judge_cost == pytest.approx(0.002)
    assert (found.judge, found.agreement()) == ("judge", (0, 1))


async def test_a_judge_that_gives_no_reason_or_no_verdict_fails_the_trial() -> None:
    silent = calls(call("final_answer", {"reason": "", "passes": False}), usage=USAGE)
    cases = [{"prompt": "One?", "judge": "It is polite."}]

    unexplained = await evaluate(Agent(model("m")), cases, judge=Script(silent))
    broken = await evaluate(Agent(model("m")), cases, judge=Script(repeat("I do not know.")))

    assert [trial.reasons for trial in unexplained.trials] == [("judge: no reason was given",)]
    assert [trial.score for trial in broken.trials] == [0.0]
    assert broken.trials[0].reasons[0].startswith("judge: no verdict: the model gave no answer")


async def test_calls_of_an_earlier_conversation_are_not_checked() -> None:
    asked = glue.AssistantMessage(content=(call("weather", {"city": "Oslo"}, id="1"),))
    result = glue.ToolMessage(call_id="1", name="weather", content=(glue.Text(text="21"),))
    messages = messages_to_json([glue.user("Weather?"), asked, result, glue.user("Thanks.")])
    case = {"messages": messages, "calls": {"never": ["weather"]}}

    found = await evaluate(Agent(model("m"), tools=[weather]), [case])

    found.assert_passed()


async def test_a_trial_that_was_not_judged_does_not_count_as_passed() -> None:
    verdict = calls(call("final_answer", {"reason": "Yes.", "passes": True}), usage=USAGE)
    cases = [{"prompt": f"Case {n}?", "judge": "It is polite."} for n in range(2)]

    found = await evaluate(
        Agent(model("m")),
        cases,
        judge=Script(repeat(verdict), name="judge"),
        usd_budget=0.003,
        concurrency=1,
    )

    assert [trial.case for trial in found.trials] == ["1"]
    assert found.unfinished == "the budget is spent"


async def test_the_texts_that_a_judge_sees(snapshot: SnapshotAssertion) -> None:
    judge = Script(calls(call("final_answer", {"reason": "Yes.", "passes": True})))
    cases = [{"prompt": "Say hello.", "judge": "It is a greeting."}]

    await evaluate(Agent(model("m", hello="Hello!")), cases, judge=judge)

    (request,) = judge.requests
    assert f"{request.system}\n----\n{request.messages[0].text}" == snapshot
    assert [tool.parameters for tool in request.tools] == snapshot


async def test_a_trial_that_did_not_end_with_an_answer_fails() -> None:
    agent = Agent(
        caller(call("weather", {"city": "Oslo"})), tools=[weather], limits=glue.Limits(max_turns=0)
    )

    found = await evaluate(agent, [{"prompt": "hi", "max_turns": 9}])

    (trial,) = found.trials
    assert (trial.score, trial.outcome) == (0.0, "max_turns")


async def test_a_trial_that_broke_is_a_failure_with_its_reason() -> None:
    found = await evaluate(Agent(Script("billing")), CASES, concurrency=1)

    assert [trial.score for trial in found.trials] == [1.0, 0.0]
    assert "AssertionError" in "; ".join(found.trials[1].reasons)
    assert [message.text for message in found.trials[1].messages] == ["Which city?"]


async def test_a_spent_budget_leaves_trials_out_and_resume_runs_them(tmp_path: Path) -> None:
    cases = [{"prompt": f"Case {n}?", "contains": "no idea"} for n in range(6)]
    first, second = model("first"), model("second")
    options: dict[str, Any] = {"models": [first, second], "state": tmp_path / "state"}

    cut = await evaluate(Agent("offline"), cases, usd_budget=0.008, concurrency=1, **options)
    whole = await evaluate(Agent("offline"), cases, resume=True, **options)

    assert Counter(trial.model for trial in cut.trials) == {"first": 6, "second": 2}
    assert cut.unfinished == "the budget is spent"
    assert (len(whole.trials), whole.unfinished) == (12, "")
    assert (len(first.requests), len(second.requests)) == (6, 6)


async def test_the_models_share_a_budget_of_tokens() -> None:
    first, second = model("first"), model("second")

    found = await evaluate(
        Agent("offline"), CASES, models=[first, second], token_budget=300, concurrency=1
    )

    assert Counter(trial.model for trial in found.trials) == {"first": 2, "second": 1}
    assert found.unfinished == "the budget is spent"


async def test_a_budget_that_is_spent_in_the_last_trial_leaves_it_out() -> None:
    ask = calls(call("weather", {"city": "Oslo"}), usage=USAGE)
    agent = Agent(Script(ask, say("21 degrees", usage=USAGE)), tools=[weather])

    found = await evaluate(agent, CASES[:1], usd_budget=0.001)

    assert (found.trials, found.unfinished) == ((), "the budget is spent")


async def test_resume_checks_finished_trials_again_without_a_request(tmp_path: Path) -> None:
    script = model("m", team="billing")
    strict: dict[str, Any] = {"id": "team", "prompt": "Which team?", "equals": "Billing"}

    first = await evaluate(Agent(script), [strict], state=tmp_path / "state")
    again = await evaluate(
        Agent(script), [strict | {"equals": "billing"}], state=tmp_path / "state", resume=True
    )

    assert (first.trials[0].score, again.trials[0].score) == (0.0, 1.0)
    assert len(script.requests) == 1
    with pytest.raises(ConfigError, match="exists already; resume=True continues in it"):
        await evaluate(Agent(script), [strict], state=tmp_path / "state")


async def test_a_cancelled_evaluation_returns_the_trials_so_far() -> None:
    cancel = glue.Cancel()

    def stop(label: str, row: Any) -> None:
        cancel.cancel()

    found = await evaluate(Agent(model("m")), CASES, cancel=cancel, on_row=stop, concurrency=1)

    assert found.unfinished == "cancelled"
    assert len(found.trials) == 1
    with pytest.raises(AssertionError, match="cancelled"):
        found.assert_passed(0.0)


KILLED = """
import sys, anyio, glue
from pathlib import Path
from glue.testing import Script, repeat

def answer(request):
    with open("asked.txt", "a") as file:
        file.write(request.messages[-1].text + "\\n")
    return "yes"

cases = [{"id": str(n), "prompt": f"Case {n}", "contains": "yes"} for n in range(40)]
rows = []

def report(label, row):
    rows.append(row)
    if len(rows) == 50:
        print("half", flush=True)
        if sys.argv[1] == "first":
            sys.stdin.read()  # until it is killed

async def main():
    models = [Script(repeat(answer), name=name) for name in ("a", "b", "c")]
    found = await glue.evaluate(
        glue.Agent("offline"), cases, models=models, state="state", resume=True, on_row=report
    )
    print(len(found.trials), len({(trial.model, trial.case) for trial in found.trials}))

anyio.run(main)
"""


def test_a_killed_evaluation_resumes_and_has_each_case_once(tmp_path: Path, zygote: Zygote) -> None:
    command = [sys.executable, "-c", KILLED]
    process = zygote.start([*command, "first"], tmp_path)
    with process.stdin, process.stdout, process.stderr:
        assert process.stdout.readline() == b"half\n"
        process.kill()
        assert process.wait() == -signal.SIGKILL

    code, out, errors = zygote.run([*command, "second"], tmp_path)

    asked = Counter((tmp_path / "asked.txt").read_text().splitlines())
    assert code == 0, errors
    assert out == "half\n120 120\n"
    assert len(asked) == 40
    assert sum(asked.values()) <= 120 + 24  # trials that ran when it was killed are asked again


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # the numbers are the same under trio
@pytest.mark.parametrize(
    ("count", "width"), [(120, 0.19), pytest.param(500, 0.1, marks=pytest.mark.soak)]
)
async def test_intervals_contain_known_rates_and_the_models_differ_significantly(
    count: int, width: float
) -> None:
    rates = {"good": 0.95, "fair": 0.8, "poor": 0.5}
    cases = [{"id": str(n), "prompt": f"Case {n}", "equals": "yes"} for n in range(count)]

    def chance(name: str) -> Script:
        def answer(request: Request) -> Any:
            text = request.messages[-1].text
            seed = random.Random(zlib.crc32(f"{name} {text}".encode()))
            return say("yes" if seed.random() < rates[name] else "no", usage=USAGE)

        return Script(repeat(answer), name=name)

    found = await evaluate(
        Agent("offline"), cases, models=[chance(name) for name in rates], concurrency=32
    )

    for summary, rate in zip(found.summaries(), rates.values(), strict=True):
        assert summary.low <= rate <= summary.high
        assert summary.high - summary.low < width
    assert all(pair.significant for pair in found.pairs())


async def test_a_comparison_is_recorded_and_replayed_without_the_models(tmp_path: Path) -> None:
    from contextlib import contextmanager

    path = tmp_path / "m.jsonl"

    @contextmanager
    def recorded(label: str) -> Any:
        yield lambda provider: Recorder(provider, path)

    @contextmanager
    def replayed(label: str) -> Any:
        replay = Replay(path, by="hash")
        yield lambda provider: replay

    agent = Agent(model("m", team="billing"))
    first = await evaluate(agent, CASES, around=recorded, concurrency=1)
    again = await evaluate(Agent(Script(name="m")), CASES, around=replayed)

    assert [trial.text for trial in again.trials] == [trial.text for trial in first.trials]


async def test_each_case_has_its_own_answers_of_tools() -> None:
    cases = [
        {"id": city, "prompt": "Weather?", "answers": {"weather": city}, "equals": city}
        for city in ("Oslo", "Rome", "Lima")
    ]
    agent = Agent(caller(call("weather", {"city": "x"})), tools=[weather])

    found = await evaluate(agent, cases)

    found.assert_passed()
    assert [trial.text for trial in found.trials] == ["Oslo", "Rome", "Lima"]
    assert all(trial.repeat == 1 for trial in found.trials)


async def test_a_working_folder_has_the_links_and_the_nested_files_of_its_case(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "broken").symlink_to("nowhere")

    def check(case: Case, result: Any) -> bool:
        assert case.folder is not None
        link = (case.folder / "broken").readlink()
        return str(link) == "nowhere" and (case.folder / "a/b/c.txt").read_text() == "deep"

    case = {
        "prompt": "Go.",
        "folder": str(folder),
        "files": {"a/b/c.txt": "deep"},
        "python": "check",
    }

    def make(root: Path) -> Agent[Any, Any]:
        return Agent(Script(repeat("ok")))

    state = tmp_path / "runs" / "first" / "state"  # its parents do not exist yet
    found = await evaluate(make, [case], functions={"check": check}, state=state)

    found.assert_passed()
    assert state.is_dir()


async def test_a_case_with_only_a_judge_has_no_plain_score() -> None:
    judge = Script(repeat('{"reason": "", "passes": true}'), name="judge")
    cases = [
        {"id": "both", "prompt": "Which team?", "contains": "billing", "judge": "It is short."},
        {"id": "judged", "prompt": "Which team?", "judge": "It is short."},
    ]

    found = await evaluate(Agent(model("m", team="billing")), cases, judge=judge)

    assert [trial.plain for trial in found.trials] == [1.0, None]
    assert found.agreement() == (1, 1)


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("repeat", 0, ValueError),
        ("repeat", 1.5, TypeError),
        ("concurrency", 0, ValueError),
        ("concurrency", 1.5, TypeError),
        ("retries", -1, ValueError),
        ("retries", 1.5, TypeError),
    ],
)
async def test_numbers_of_runs_are_whole_numbers(
    name: str, value: Any, error: type[Exception]
) -> None:
    options: dict[str, Any] = {name: value}

    with pytest.raises(error, match=f"{name} must be a whole number"):
        await evaluate(Agent(model("m")), CASES, **options)


async def test_no_further_model_runs_after_an_evaluation_was_cancelled(tmp_path: Path) -> None:
    cancel = glue.Cancel()
    models = [model("first"), model("second")]

    found = await evaluate(
        Agent("offline"),
        CASES,
        models=models,
        cancel=cancel,
        on_row=lambda label, row: cancel.cancel(),
        state=tmp_path / "state",
    )

    assert found.unfinished == "cancelled"
    assert len(models[1].requests) == 0
    assert [path.name for path in (tmp_path / "state").glob("*.db")] == ["first.db"]


async def test_a_working_folder_that_was_not_completed_is_made_again(tmp_path: Path) -> None:
    folders: list[Path] = []

    def check(case: Case, result: Any) -> bool:
        assert case.folder is not None
        folders.append(case.folder)
        return [path.name for path in case.folder.iterdir()] == ["a.txt"]

    case = {"prompt": "Go.", "files": {"a.txt": "one"}, "python": "check"}
    script = Script(repeat("ok"))

    async def run(**options: Any) -> None:
        found = await evaluate(
            lambda root: Agent(script),
            [case],
            functions={"check": check},
            state=tmp_path / "state",
            **options,
        )
        found.assert_passed()

    await run()
    draft = folders[0].with_name(f"{folders[0].name}.draft")
    folders[0].rename(draft)
    (draft / "left over").touch()
    await run(resume=True)

    assert len(script.requests) == 1
    assert not draft.exists()
