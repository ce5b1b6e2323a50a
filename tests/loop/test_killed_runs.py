"""Processes that are killed at every step of a run with a call that waits; another one goes on."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from fakes.sessions import POSTGRES
from fakes.zygote import Zygote

# A program that runs or resumes one session, and is killed at step number N. A step is the moment
# before or after a write to the store, a request, a question to a person, or the effect of a tool.
PROGRAM = """
import os, signal, sys
import anyio, glue
from glue.permission import PermissionTarget
from glue.stores import PostgresStore
from glue.stores.log import Log
from glue.testing import Script, call, calls

kind, scenario, address, number, mode = sys.argv[1:]
if kind == "postgres":
    store = PostgresStore(address)
else:
    store = glue.FileStore("s") if kind == "files" else glue.SQLiteStore("s.db")
left = [int(number)]

def step():
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)

async def write(self, records, messages=(None,), original=Log._write):
    step()
    await original(self, records, messages)
    step()

Log._write = write

def note(file, text):
    step()
    with open(file, "a") as opened:
        opened.write(text + "\\n")
    step()

def target(arguments):
    mark = open("target").read() if os.path.exists("target") else ""
    return PermissionTarget(text=f"x={arguments.get('x', 0)}", mark=mark, preview=mark)

@glue.tool(needs_permission=True, target=target)
def deploy(x: int = 0) -> str:
    "Deploy."
    note("effects", f"deploy {x}")
    return "deployed"

@glue.tool(idempotent=True)
def look() -> str:
    "Look."
    return "seen"

@glue.tool(external=True)
def outside(x: int = 0) -> str:
    "Ask another system."
    raise AssertionError("an external tool was run")

async def decide(request):
    step()
    await anyio.lowlevel.checkpoint()
    step()
    if scenario == "ask_yes":
        return glue.allow()
    return glue.deny("no") if scenario == "ask_no" else glue.defer("later")

first = {
    "mixed": [call("look", id="a"), call("deploy", id="b"), call("look", id="c")],
    "two": [call("deploy", {"x": 1}, id="a"), call("deploy", {"x": 2}, id="b")],
    "external": [call("outside", id="b")],
    "nested": [call("outer", {"prompt": "go"}, id="o")],
}.get(scenario, [call("deploy", id="b")])

def reply(*asked):
    def answer(request):
        note("requests", f"{len(request.messages)} {asked[0].name}")
        return calls(*asked) if len(request.messages) == 1 else "done"
    return answer

def agent(name, asked, tools):
    return glue.Agent(
        Script(reply(*asked), reply(*asked), reply(*asked)),
        name=name, tools=tools, permission=glue.Ask(decide),
    )

tools = [deploy, look, outside]
if scenario == "nested":
    inner = agent("inner", [call("deploy", id="b")], [deploy])
    outer = agent("outer", [call("inner", {"prompt": "go"}, id="i")], [inner.as_tool()])
    tools = [outer.as_tool()]
session = agent("top", first, tools).session("s", store=store)

def decisions(pending):
    no = glue.deny("no")
    answers = {"ask_no": no, "defer_no": no, "defer_text": "given", "external": "given"}
    given = {each.id: answers.get(scenario, glue.allow()) for each in pending}
    if scenario == "two":  # one of the two is decided now, the other one in the next round
        return dict(list(given.items())[:1])
    if scenario == "changed" and not os.path.exists("target"):
        with open("target", "w") as file:
            file.write("another state")
    return given

try:
    result = session.run_sync("go", unwrap=False) if mode == "first" else None
    while mode == "again" and (result is None or result.outcome == "paused"):
        given = decisions(session.pending_sync())
        result = session.resume_sync(decisions=given, unwrap=False)
    print(result.outcome)
except glue.errors.InvalidContinuation:
    print("over")
messages = session.messages if mode == "again" else ()
for message in messages:
    print(type(message).__name__, getattr(message, "call_id", ""), message.text)
"""

# For each scenario: the effects of a run that is not killed, and its requests.
SCENARIOS = {
    "ask_yes": (1, 2),
    "ask_no": (0, 2),
    "defer_yes": (1, 2),
    "defer_no": (0, 2),
    "defer_text": (0, 2),
    "mixed": (1, 2),
    "two": (2, 2),
    "external": (0, 2),
    "changed": (1, 2),
    "nested": (1, 6),
}
MOST_STEPS = 200


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("files", marks=pytest.mark.soak),
        pytest.param("sqlite", marks=pytest.mark.soak),
        POSTGRES,
    ],
)
def test_s151_a_run_killed_at_any_step_is_answered_by_another_process(
    kind: str, scenario: str, tmp_path: Path, zygote: Zygote, request: pytest.FixtureRequest
) -> None:
    kill_everywhere(kind, scenario, tmp_path, zygote, request)


@pytest.mark.parametrize(("kind", "scenario"), [("files", "ask_yes"), ("sqlite", "ask_no")])
def test_s151_a_run_killed_around_a_question_repeats_the_question_not_the_effect(
    kind: str, scenario: str, tmp_path: Path, zygote: Zygote, request: pytest.FixtureRequest
) -> None:
    kill_everywhere(kind, scenario, tmp_path, zygote, request)


def kill_everywhere(
    kind: str, scenario: str, tmp_path: Path, zygote: Zygote, request: pytest.FixtureRequest
) -> None:
    """Kill the program at each step, in its first process and in the one that resumes the run."""
    address = request.getfixturevalue("database") if kind == "postgres" else ""
    kills = 0

    def run(folder: Path, number: int, mode: str) -> tuple[int, str]:
        command = [sys.executable, "-c", PROGRAM, kind, scenario, address, str(number), mode]
        code, out, errors = zygote.run(command, folder)
        assert "Traceback" not in errors, errors
        return code, out

    def forget() -> None:
        if kind == "postgres":
            change_sessions(address, "DELETE FROM glue_sessions")

    def take_over() -> None:
        if kind == "postgres":  # the lease of the killed process expires
            change_sessions(address, "UPDATE glue_sessions SET expires = now() - interval '1 s'")

    for killed in ("first", "again"):
        for number in range(1, MOST_STEPS):
            folder = tmp_path / f"{killed}{number}"
            folder.mkdir()
            if killed == "again":
                assert run(folder, 0, "first")[0] == 0
            code, _ = run(folder, number, killed)
            if code == 0:
                break
            assert code == -signal.SIGKILL
            kills += 1
            take_over()
            check_end(run(folder, 0, "again")[1], folder, scenario)
            forget()
        else:
            pytest.fail("the program never ran to its end")
        check_end(run(folder, 0, "again")[1], folder, scenario, killed=False)
        forget()
    print(f"{kind} {scenario}: {kills} kills")


def check_end(out: str, folder: Path, scenario: str, *, killed: bool = True) -> None:
    """Check the story after a kill: no effect twice, no stored reply asked for again."""
    effects, requests = (lines(folder / name) for name in ("effects", "requests"))
    most_effects, usual_requests = SCENARIOS[scenario]
    outcome, *story = out.splitlines()

    assert len(effects) == len(set(effects)) <= most_effects
    assert len(requests) <= usual_requests + killed  # only a reply that was not stored
    if not story:
        assert outcome == "over"  # killed before the prompt was stored
        return
    assert outcome in ("done", "over"), out
    results = [line.split()[1] for line in story if line.startswith("ToolMessage")]
    assert len(results) == len(set(results))
    assert story[-1] == "AssistantMessage  done"
    if not killed:
        assert len(effects) == most_effects
        assert len(requests) == usual_requests


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def change_sessions(address: str, sql: str) -> None:
    import psycopg

    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(sql)  # type: ignore[call-overload,unused-ignore]
