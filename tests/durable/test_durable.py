"""Durable runs on DBOS: steps are kept, a run goes on in another process, and what DBOS cannot do is said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

import glue
from glue import Agent, Limits, Usage
from glue.durable.engine import Durable, EngineDatabase, application, database_url, decode_result, encode_result
from glue.durable.rates import Rate
from glue.durable.steps import INTERRUPTED, DurableProvider, DurableTool, decode_error, encode_error
from glue.errors import BudgetExceeded, ConfigError, EmptyReply, FailoverError, ProviderError
from glue.messages import Json
from glue.testing import Repeat, Script, call, calls, fail, say

COST = Usage(input=10, output=5, cost=0.25)


class Kept:
    """Checkpoints in memory: what a second execution finds, and in which order steps began."""

    def __init__(self, kept: dict[int, tuple[str, Json]] | None = None) -> None:
        self.kept = dict(kept or {})
        self.begun: list[str] = []

    async def step(self, name: str, body: Callable[[], Any]) -> Json:
        number = len(self.begun)
        self.begun.append(name)
        if number in self.kept:
            assert self.kept[number][0] == name
            return self.kept[number][1]
        value = json.loads(json.dumps(await body()))
        self.kept[number] = name, value
        return value


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # DBOS runs on no other


def durably(agent: Agent[Any, Any], steps: Kept, **options: Any) -> Any:
    slots = anyio.Semaphore(2)
    provider: Any = agent.settings.model
    tools = [DurableTool(tool, steps, slots) for tool in agent.settings.tools or ()]
    limits = Limits(parallel_tools=100)
    return agent.run("go", model=DurableProvider(provider, steps), tools=tools, limits=limits, unwrap=False, **options)


def error_of(result: Any) -> Any:
    return result.error


def seen(result: Any) -> list[Any]:
    return [(type(message).__name__, message.text) for message in result.messages]


# The steps, on checkpoints in memory --------------------------------------------------------------------


async def test_a_run_that_is_played_again_asks_nobody_and_costs_the_same() -> None:
    done = []

    @glue.tool
    def act(x: int) -> str:
        """Act."""
        done.append(x)
        return f"did {x}"

    script = Script(calls(call("act", {"x": 1}), call("act", {"x": 2}), usage=COST), say("ready", usage=COST))
    agent, steps = Agent(script, tools=[act]), Kept()
    first = await durably(agent, steps)

    again = await durably(agent, Kept(steps.kept))

    assert seen(again) == seen(first)
    assert (again.text, again.usage, again.cost, again.requests) == ("ready", first.usage, 0.5, 2)
    assert len(script.requests) == 2
    assert sorted(done) == [1, 2]


async def test_steps_begin_in_the_order_of_the_calls_whichever_is_quicker() -> None:
    order = []

    @glue.tool
    async def act(x: int) -> str:
        """Act."""
        for _ in range(30 - 10 * x):
            await anyio.lowlevel.checkpoint()
        order.append(x)
        return str(x)

    @glue.tool(idempotent=True)
    async def look(x: int) -> str:
        """Look."""
        return str(x)

    asked = [call("act", {"x": 0}), call("look", {"x": 9}), call("act", {"x": 1}), call("act", {"x": 2})]
    script = Script(calls(*asked), say("ready"))
    steps = Kept()

    await durably(Agent(script, tools=[act, look]), steps)

    assert steps.begun == ["model", "call act", "tool act", "tool look"] + ["call act", "tool act"] * 2 + ["model"]
    assert order != [0, 1, 2]


@pytest.mark.parametrize("kept", range(9))
async def test_a_run_goes_on_after_any_step(kept: int) -> None:
    effects: list[str] = []

    @glue.tool
    def act() -> str:
        """Act."""
        effects.append("act")
        return "acted"

    @glue.tool(idempotent=True)
    def look() -> str:
        """Look."""
        effects.append("look")
        return "looked"

    def make() -> Agent[Any, Any]:
        replies = [calls("act", "look", usage=COST), calls("act", usage=COST), say("ready", usage=COST)]

        def answer(request: glue.Request) -> Any:
            return replies[sum(isinstance(message, glue.AssistantMessage) for message in request.messages)]

        return Agent(Script(Repeat(answer)), tools=[act, look])

    whole = Kept()
    await durably(make(), whole)
    assert len(whole.kept) == 8  # model, call, tool, tool; model, call, tool; model

    effects.clear()
    result = await durably(make(), Kept({at: whole.kept[at] for at in range(kept) if at in whole.kept}))

    assert result.text == "ready"
    assert result.cost == 0.75
    claimed = sum(1 for at in range(kept) if at in whole.kept and whole.kept[at][0] == "call act")
    ran = sum(1 for at in range(kept) if at in whole.kept and whole.kept[at][0] == "tool act")
    assert effects.count("act") == 2 - claimed  # what had begun is not begun again
    told = [message.text for message in result.messages if isinstance(message, glue.ToolMessage) and message.is_error]
    assert told == [INTERRUPTED] * (claimed - ran)


async def test_a_failed_request_is_kept_like_any_reply() -> None:
    chain = glue.with_failover(Script(Repeat(fail("overloaded", "busy", status=529))), Script(fail("quota", "empty")))
    steps = Kept()
    first = await durably(Agent(chain), steps)

    again = await durably(Agent(Script()), Kept(steps.kept))

    assert isinstance(error_of(again), FailoverError)
    assert str(error_of(again)) == str(error_of(first))
    assert (error_of(again).kind, len(error_of(again).attempts)) == ("quota", 2)
    assert (again.outcome, again.attempts, again.requests) == (first.outcome, first.attempts, first.requests)


async def test_tries_that_failed_are_told_again_with_the_reply_they_led_to() -> None:
    async def no_wait(_: float) -> None: ...

    steps = Kept()
    provider = glue.with_retries(Script(fail("overloaded"), say("ready", usage=COST)), sleep=no_wait)
    first = await durably(Agent(provider), steps)

    again = await durably(Agent(Script()), Kept(steps.kept))

    assert len(first.attempts) == 1
    assert (again.text, again.attempts, again.requests, again.usage) == ("ready", first.attempts, 2, first.usage)


async def test_pieces_of_a_reply_reach_listeners_while_they_come_and_not_again() -> None:
    def pieces(heard: list[Any]) -> list[str]:
        return [event.text for event in heard if isinstance(event, glue.TextDelta)]

    steps, heard, later = Kept(), [], []  # type: ignore[var-annotated]
    await durably(Agent(Script(say("abcdef", chunk=2))), steps, on_event=heard.append)

    again = await durably(Agent(Script()), Kept(steps.kept), on_event=later.append)

    assert pieces(heard) == ["ab", "cd", "ef"]
    assert pieces(later) == []
    assert again.text == "abcdef"


async def test_what_a_tool_raises_is_kept_as_the_model_was_told_it() -> None:
    @glue.tool
    def act() -> str:
        """Act."""
        raise glue.ToolError("no such thing")

    steps = Kept()
    await durably(Agent(Script(calls("act"), say("ready")), tools=[act]), steps)

    again = await durably(Agent(Script(), tools=[act]), Kept(steps.kept))

    assert [message.text for message in again.messages if isinstance(message, glue.ToolMessage)] == ["no such thing"]


async def test_a_run_that_is_cancelled_leaves_no_task_behind() -> None:
    import asyncio  # noqa: TID251

    started = anyio.Event()

    @glue.tool
    async def act() -> str:
        """Act."""
        started.set()
        await anyio.sleep_forever()
        return ""

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: durably(Agent(Script(calls("act")), tools=[act]), Kept()))
        await started.wait()
        tasks.cancel_scope.cancel()

    assert len(asyncio.all_tasks()) <= 2  # this test and its runner


async def test_so_many_calls_run_at_once_as_the_limit_says() -> None:
    running, most = 0, 0

    @glue.tool
    async def act() -> str:
        """Act."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.lowlevel.checkpoint()
        running -= 1
        return ""

    await durably(Agent(Script(calls(*["act"] * 6), say("ready")), tools=[act]), Kept())

    assert most == 2  # what `durably` allows


@pytest.mark.parametrize(
    "error",
    [
        ProviderError("no", kind="timeout", provider="acme", status=504, retry_after=3.0, usage=COST),
        EmptyReply(provider="acme"),
        BudgetExceeded("usd", 1.0, 2.0),
        glue.ToolError("odd"),
    ],
)
def test_an_error_survives_its_json(error: Any) -> None:
    again: Any = decode_error(json.loads(json.dumps(encode_error(error))))

    assert (type(again), str(again)) == (type(error), str(error))
    for name in ("kind", "status", "retry_after", "retryable", "emitted", "usage", "request_id"):
        assert getattr(again, name, None) == getattr(error, name, None)


def test_an_unknown_error_is_a_run_error() -> None:
    assert type(decode_error(encode_error(KeyError("x")))) is glue.RunError


async def test_a_result_survives_its_json() -> None:
    result = await Agent(Script(say("ready", usage=COST))).run("go")

    assert decode_result(json.loads(json.dumps(encode_result(result)))) == result


async def test_every_field_of_a_result_survives_its_json() -> None:
    asked, answer = glue.user("go"), glue.AssistantMessage(content=(glue.Text(text="ready"),), usage=COST)
    result: glue.RunResult[Any] = glue.RunResult(
        messages=(asked, answer),
        new_messages=(answer,),
        text="ready",
        outcome=glue.Outcome.TRUNCATED,
        stop_reason=glue.StopReason.MAX_TOKENS,
        usage=COST,
        attempts=(glue.Attempt(provider="acme", model="a-1", kind="overloaded", seconds=0.5),),
        notice="cut",
        turns=1,
        requests=2,
        continuations=3,
        repairs=4,
        seconds=5.5,
        run_id="r",
        delivered="done",
        meta={"agent": "a"},
        output={"x": [1]},
    )
    kept = [field.name for field in fields(result) if getattr(result, field.name) == field.default]
    assert kept == ["error"]  # has a test of its own

    assert decode_result(json.loads(json.dumps({**encode_result(result), "tries": 2}))) == result


# Names and addresses ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "url"),
    [
        ("dbos://me@host/db", "postgresql://me@host/db"),
        ("dbos+postgresql://me@host/db", "postgresql://me@host/db"),
        ("dbos+postgres://me@host/db", "postgresql://me@host/db"),
        ("dbos+sqlite:///jobs.db", "sqlite:///jobs.db"),
        ("postgresql://host/db", "postgresql://host/db"),
    ],
)
def test_an_engine_names_its_database(engine: str, url: str) -> None:
    assert database_url(engine) == url


@pytest.mark.parametrize("engine", ["redis://host", "dbos+mysql://host/db", "jobs.db", ""])
def test_another_engine_is_refused(engine: str) -> None:
    with pytest.raises(ConfigError, match=r"an engine is dbos\+postgresql://"):
        database_url(engine)


@pytest.mark.parametrize("name", ["", "Big", "a b", "x" * 201])
def test_a_queue_has_a_plain_name(name: str) -> None:
    with pytest.raises(ConfigError, match="a queue's name"):
        application(name)


# On DBOS ------------------------------------------------------------------------------------------------

PROGRAM = """
import os, sys, time, anyio, glue
from glue import AssistantMessage, Text, ToolCall, Usage
from glue.providers.offline import Offline

def note(text):
    with open("notes", "a") as file:
        file.write(text + "\\n")
    if text == os.environ.get("KILL_AT"):
        os.kill(os.getpid(), 9)

@glue.tool
def act() -> str:
    "Act."
    note("act")
    return "acted"

@glue.tool(idempotent=True)
def look() -> str:
    "Look."
    note("look")
    return "looked"

def rules(request):
    turn = sum(isinstance(message, AssistantMessage) for message in request.messages)
    note(f"model {turn}")
    spent = Usage(input=10, output=5, cost=0.25)
    if turn < 2:
        calls = tuple(ToolCall(id=f"{turn}{name}", name=name, arguments="{}") for name in ("act", "look")[: 2 - turn])
        return AssistantMessage(content=calls, stop_reason="tool_use", usage=spent)
    return AssistantMessage(content=(Text(text="ready: " + request.messages[-1].text),), usage=spent)

agent = glue.Agent(Offline(rules), tools=[act, look])

async def main():
    async with agent.durable(engine=sys.argv[1], name="test", lease=1.0) as durable:
        result = await durable.run("go", id="order-1")
        print(result.text, result.cost, result.usage.total, flush=True)

if __name__ == "__main__":
    anyio.run(main)
"""


@pytest.fixture
def program(tmp_path: Path, engine: str) -> Callable[..., Any]:
    (tmp_path / "program.py").write_text(PROGRAM)

    def run(**environ: str) -> Any:
        command = [sys.executable, "program.py", engine]
        options: Any = {"cwd": tmp_path, "capture_output": True, "text": True, "timeout": 90}
        return subprocess.run(command, env={**os.environ, **environ}, **options)

    return run


@pytest.mark.scale
@pytest.mark.parametrize("at", ["model 0", "act", "look", "model 1", "model 2"])
def test_a_killed_run_goes_on_in_another_process(program: Callable[..., Any], tmp_path: Path, at: str) -> None:
    assert program(KILL_AT=at).returncode == -9
    before = (tmp_path / "notes").read_text().splitlines()

    ran = program()

    notes = (tmp_path / "notes").read_text().splitlines()
    again = notes[len(before) :]
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("ready: ")
    assert ran.stdout.endswith(" 0.75 45\n")
    assert notes.count("act") <= 2
    for done in before[:-1]:  # what had been kept is not done again; only what was under way may be
        if done.startswith("model"):
            assert done not in again


@pytest.mark.scale
def test_a_run_that_has_ended_is_not_run_again(program: Callable[..., Any], tmp_path: Path) -> None:
    first = program()
    before = (tmp_path / "notes").read_text()

    second = program()

    assert second.stdout == first.stdout == "ready: acted 0.75 45\n"
    assert (tmp_path / "notes").read_text() == before


@pytest.mark.scale
async def test_events_outputs_and_errors_of_a_durable_run(tmp_path: Path, engine: str) -> None:
    heard: list[Any] = []
    maker = Agent(Script(say("abcd", chunk=2), say("7"), fail("invalid_request", "no")), output=None)

    async with maker.durable(engine=engine, name="events") as durable:
        result = await durable.run("go", on_event=heard.append)
        with pytest.raises(ConfigError, match="DBOS is one to a process"):
            async with maker.durable(engine=engine, name="other"):
                pass
        await durable.run("go")
        with pytest.raises(ProviderError, match="no"):
            await durable.run("go")

    assert result.text == "abcd"
    assert [event.text for event in heard if isinstance(event, glue.TextDelta)] == ["ab", "cd"]
    async with Durable(
        Agent(Script(Repeat(calls(call("final_answer", {"value": 7})))), output=int), engine=engine
    ) as typed:
        assert (await typed.run("go")).output == 7


@pytest.mark.scale
async def test_retries_of_a_row_begin_from_its_transcript(tmp_path: Path, engine: str) -> None:
    from dbos import DBOS

    script = Script(fail("overloaded"), say("ready", usage=COST))
    async with Agent(script).durable(engine=engine, name="retries") as durable:
        handle = await DBOS.start_workflow_async(
            durable._worker.workflow, {"prompt": glue.messages_to_json([glue.user("go")]), "retries": 1}
        )
        kept = await handle.get_result()

    assert (kept["outcome"], kept["text"], kept["tries"], kept["requests"]) == ("done", "ready", 2, 2)


@pytest.mark.scale
@pytest.mark.parametrize(("losses", "status"), [(0, "ENQUEUED"), (4, "ENQUEUED"), (5, "CANCELLED")])
async def test_a_run_that_loses_its_process_again_and_again_is_given_up(engine: str, losses: int, status: str) -> None:
    from dbos import DBOS

    class Waiting:
        name = "waiting"

        async def stream(self, request: glue.Request) -> Any:
            asked.set()
            await anyio.sleep_forever()
            yield glue.TextDelta(text="")

    asked = anyio.Event()
    async with Agent(Waiting()).durable(engine=engine, name="lost", lease=60.0) as durable:
        worker = durable._worker
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: durable.run("go", id="run"))
            await asked.wait()
            await DBOS.update_workflow_attributes_async("run", {"losses": losses})
            table = worker.database._table
            with worker.database.begin() as connection:
                worker.database._execute(connection, f"UPDATE {table} SET executor_id = 'dead'")
            await anyio.to_thread.run_sync(worker._recover, set())
            found = await DBOS.get_workflow_status_async("run")
            tasks.cancel_scope.cancel()

    assert found is not None
    assert found.status in (status, "PENDING" if status == "ENQUEUED" else status)  # this process may have it again
    assert (found.attributes or {})["losses"] == min(losses + 1, 5)


@pytest.mark.scale
async def test_what_sub_agents_spend_is_counted(tmp_path: Path, engine: str) -> None:
    child = Agent(Script(say("below", usage=COST)), name="child")
    above = Agent(
        Script(calls(call("child", {"prompt": "x"}), usage=COST), say("ready", usage=COST)), tools=[child.as_tool()]
    )

    async with above.durable(engine=engine, name="above") as durable:
        result = await durable.run("go")

    assert result.cost == 0.75


@pytest.mark.scale
async def test_a_rate_holds_over_all_workers(engine: str) -> None:
    first, second = EngineDatabase(engine), EngineDatabase(engine)
    first.migrate()
    second.migrate()

    waits = [await database.take("acme requests", 10.0) for database in (first, second, first)]

    assert waits[0] == pytest.approx(0, abs=1)
    assert waits[1] == pytest.approx(10, abs=1)
    assert waits[2] == pytest.approx(20, abs=1)
    assert await first.take("acme tokens", -5.0) == 0.0
    first.close()
    second.close()


@pytest.mark.scale
async def test_a_durable_agent_keeps_its_rate(engine: str) -> None:
    maker = Agent(Script(Repeat(say("ready"))))

    async with maker.durable(engine=engine, name="rated", rate=Rate(requests=120)) as durable:
        started = time.monotonic()
        for _ in range(3):
            await durable.run("go")

    assert time.monotonic() - started > 0.9


# Mistakes: one line each ----------------------------------------------------------------------------------


@pytest.mark.scale
def test_a_database_that_does_not_answer_is_one_line(cli: Callable[..., Any]) -> None:
    Path("agent.py").write_text(PROGRAM)
    Path("in.jsonl").write_text('"a"\n')
    there = ["--engine", "dbos+postgresql://me:secret@127.0.0.1:1/db"]

    for command in (
        ["map", "agent.py", "in.jsonl", "-o", "out.jsonl", "--queue", "q", *there],
        ["worker", "agent.py", "--queue", "q", *there],
        ["queue", *there],
    ):
        ran = cli(*command)
        assert ran.code == 1
        assert len(ran.err.splitlines()) == 1
        assert ran.err.startswith("glue: postgresql://me:***@127.0.0.1:1/db: ")
        assert "secret" not in ran.err
    assert not Path("out.jsonl").exists()


@pytest.mark.scale
def test_tables_of_a_newer_version_are_left_alone(cli: Callable[..., Any], engine: str) -> None:
    database = EngineDatabase(engine)
    database.migrate()
    with database.begin() as connection:
        database._execute(connection, "UPDATE glue_engine SET version = 9")
    database.close()

    ran = cli("queue", "--engine", engine)

    assert ran.code == 1
    assert "has schema 9 of glue, this version knows 1: upgrade glue-agents" in ran.err
    assert len(ran.err.splitlines()) == 1


@pytest.mark.scale
@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_another_event_loop_is_refused(anyio_backend: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="durable runs need asyncio"):
        async with Agent(Script()).durable(engine=f"dbos+sqlite:///{tmp_path}/runs.db"):
            pass
