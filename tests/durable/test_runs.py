"""Durable runs: runs that another process continues, pauses and decisions."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from fakes.zygote import Zygote

import glue
from glue import Agent, Usage
from glue.durable import Row
from glue.durable.ledger import Rate
from glue.durable.runs import Durable
from glue.durable.tables import Tables, engine_store
from glue.errors import ConfigError, ProviderError, RunPaused, StoreError
from glue.testing import Repeat, Script, call, calls, fail, say

COST = Usage(input=10, output=5, cost=0.25)

PROGRAM = """
import os, sys, anyio, glue
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

@glue.tool(needs_permission=True)
def deploy() -> str:
    "Deploy."
    note("deploy")
    return "deployed"

def ask(request):
    note("question")
    return glue.allow() if os.environ.get("ALLOW") else glue.defer("needs a person")

def rules(request):
    turn = sum(isinstance(message, AssistantMessage) for message in request.messages)
    note(f"model {turn}")
    spent = Usage(input=10, output=5, cost=0.25)
    names = {0: ("act", "look"), 1: ("deploy",) if os.environ.get("DEPLOY") else ("act",)}
    if turn in names:
        calls = tuple(
            ToolCall(id=f"{turn}{name}", name=name, arguments="{}") for name in names[turn]
        )
        return AssistantMessage(content=calls, stop_reason="tool_use", usage=spent)
    answer = Text(text="ready: " + request.messages[-1].text)
    return AssistantMessage(content=(answer,), usage=spent)

agent = glue.Agent(Offline(rules), tools=[act, look, deploy], permission=glue.Ask(ask))

async def main():
    async with agent.durable(engine=sys.argv[1], name="test", lease=1.0) as durable:
        if os.environ.get("DECIDE"):
            decisions = {call.id: glue.allow() for call in await durable.pending("order-1")}
            result = await durable.resume("order-1", decisions=decisions)
        else:
            result = await durable.run("go", id="order-1", unwrap=False)
        print(result.outcome.value, result.text, result.cost, result.usage.total, flush=True)

if __name__ == "__main__":
    anyio.run(main)
"""


@pytest.fixture
def program(tmp_path: Path, engine: str, zygote: Zygote) -> Callable[..., Any]:

    def run(**environ: str) -> Any:
        command = [sys.executable, "-c", PROGRAM, engine]
        code, out, errors = zygote.run(command, tmp_path, {**os.environ, **environ})
        return subprocess.CompletedProcess(command, code, out, errors)

    return run


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # the worker is tested with trio below


@pytest.mark.parametrize("at", ["model 0", "act", "look", "model 2"])
def test_another_process_resumes_a_killed_run(
    program: Callable[..., Any], tmp_path: Path, at: str
) -> None:
    assert program(KILL_AT=at).returncode == -9
    before = (tmp_path / "notes").read_text().splitlines()

    ran = program()

    notes = (tmp_path / "notes").read_text().splitlines()
    again = notes[len(before) :]
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("done ready: ")
    assert ran.stdout.endswith(" 0.75 45\n")
    assert notes.count("act") <= 2
    # Stored replies are not requested again. Only the interrupted request is.
    assert not {note for note in before[:-1] if note.startswith("model")} & set(again)


def test_a_finished_run_is_not_run_again(program: Callable[..., Any], tmp_path: Path) -> None:
    first = program()
    before = (tmp_path / "notes").read_text()

    second = program()

    assert second.stdout == first.stdout == "done ready: acted 0.75 45\n"
    assert (tmp_path / "notes").read_text() == before


def test_another_process_decides_a_paused_run(program: Callable[..., Any], tmp_path: Path) -> None:
    paused = program(DEPLOY="1")
    assert paused.stdout.startswith("paused "), paused.stderr

    ran = program(DEPLOY="1", DECIDE="1")

    assert ran.stdout == "done ready: deployed 0.75 45\n", ran.stderr
    notes = (tmp_path / "notes").read_text().splitlines()
    assert [notes.count(each) for each in ("model 1", "deploy", "question")] == [1, 1, 1]


def test_a_kill_during_a_question_repeats_the_question_and_no_call(
    program: Callable[..., Any], tmp_path: Path
) -> None:
    assert program(DEPLOY="1", ALLOW="1", KILL_AT="question").returncode == -9

    ran = program(DEPLOY="1", ALLOW="1")

    assert ran.stdout == "done ready: deployed 0.75 45\n", ran.stderr
    notes = (tmp_path / "notes").read_text().splitlines()
    assert [notes.count(each) for each in ("question", "deploy", "model 1")] == [2, 1, 1]


async def test_a_durable_run_has_events_outputs_and_errors(engine: str) -> None:
    heard: list[Any] = []
    maker = Agent(Script(say("abcd", chunk=2), say("7"), fail("invalid_request", "no")))

    async with maker.durable(engine=engine, name="events") as durable:
        result = await durable.run("go", on_event=heard.append)
        await durable.run("go")
        with pytest.raises(ProviderError, match="no"):
            await durable.run("go")

    assert result.text == "abcd"
    assert [message.text for message in result.messages] == ["go", "abcd"]
    assert [event.text for event in heard if isinstance(event, glue.provider.TextDelta)] == [
        "ab",
        "cd",
    ]
    async with Durable(
        Agent(Script(Repeat(calls(call("final_answer", {"value": 7})))), output=int), engine=engine
    ) as typed:
        assert (await typed.run("go")).output == 7


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_paused_run_is_resumed_with_decisions(anyio_backend: str, engine: str) -> None:
    @glue.tool(external=True)
    def ask_colleague(question: str) -> str:
        """Ask a colleague."""
        raise NotImplementedError

    script = Script(calls(call("ask_colleague", {"question": "?"}, id="c1"), usage=COST), "Port 80")
    maker = Agent(script, tools=[ask_colleague])
    async with maker.durable(engine=engine, name="pauses") as durable:
        with pytest.raises(RunPaused):
            await durable.run("go", id="one")
        waiting = await durable.pending("one")
        with pytest.raises(ValueError, match="which is not a pending call"):
            await durable.resume("one", decisions={"wrong": "x"})

        result = await durable.resume("one", decisions={waiting[0].id: "80"})

        assert (result.outcome, result.text) == ("done", "Port 80")
        assert len(script.requests) == 2
        assert (await durable.run("go", id="one")).text == "Port 80"
        with pytest.raises(ValueError, match="does not wait for a decision"):
            await durable.resume("one", decisions={"c1": "80"})
        with pytest.raises(ConfigError, match="there is no run 'two'"):
            await durable.resume("two")


async def test_two_calls_with_one_id_are_one_run(engine: str) -> None:
    script = Script("first", "second")
    results = []

    async with Agent(script).durable(engine=engine, name="same") as durable:

        async def run() -> None:
            results.append((await durable.run("go", id="x")).text)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            tasks.start_soon(run)

    assert results == ["first", "first"]


async def test_a_run_without_a_stored_result_is_read_from_its_transcript(engine: str) -> None:
    script = Script(say("ready", usage=COST))
    async with Agent(script).durable(engine=engine, name="stored") as durable:
        await durable.run("go", id="one")
        tables = Tables(engine_store(engine))
        # As a process leaves it that is killed between the last reply and the result.
        sql = "UPDATE glue_rows SET state = 'waiting', result = NULL, run = NULL"
        tables.transact(lambda run: run(sql))
        tables.close()

        result = await durable.run("go", id="one")

    assert (result.outcome, result.text, result.cost) == ("done", "ready", 0.25)
    assert [message.text for message in result.messages] == ["go", "ready"]
    assert len(script.requests) == 1


async def test_a_run_continues_when_its_caller_stops_waiting(engine: str) -> None:
    class Slow:
        name = "slow"
        requests = 0

        async def stream(self, request: glue.Request) -> AsyncIterator[Any]:
            self.requests += 1
            if self.requests == 1:
                waiting.cancel()
                await anyio.sleep_forever()
            message = glue.AssistantMessage(content=(glue.Text(text="ready"),), usage=COST)
            yield glue.provider.Done(message=message)

    provider = Slow()
    async with Agent(provider).durable(engine=engine, name="left") as durable:
        with anyio.CancelScope() as waiting:
            await durable.run("go", id="one")
        assert waiting.cancelled_caught

        with anyio.fail_after(30):
            result = await durable.run("go", id="one")

    assert (result.text, provider.requests) == ("ready", 2)
    assert [message.text for message in result.messages] == ["go", "ready"]


async def test_the_cost_of_sub_agents_is_counted(engine: str) -> None:
    child = Agent(Script(say("below", usage=COST)), name="child")
    above = Agent(
        Script(calls(call("child", {"prompt": "x"}), usage=COST), say("ready", usage=COST)),
        tools=[child.as_tool()],
    )

    async with above.durable(engine=engine, name="above") as durable:
        result = await durable.run("go")

    assert result.cost == 0.75


async def test_a_durable_agent_keeps_to_its_rate(engine: str) -> None:
    maker = Agent(Script(Repeat(say("ready"))))

    async with maker.durable(engine=engine, name="rated", rate=Rate(requests=240)) as durable:
        started = anyio.current_time()
        for _ in range(3):
            await durable.run("go")
        assert anyio.current_time() - started > 0.45


async def test_a_run_outside_of_the_block_is_an_error(engine: str) -> None:
    durable = Agent(Script(Repeat("ready"))).durable(engine=engine, name="x")

    with pytest.raises(RuntimeError, match="enter the agent first"):
        await durable.run("go")
    async with durable:
        await durable.run("go", id="one")
    with pytest.raises(RuntimeError, match="enter the agent first"):
        await durable.run("go", id="one")


async def test_a_caller_does_not_wait_for_a_worker_that_has_failed(engine: str) -> None:
    tables = Tables(engine_store(engine))
    async with Agent(Script()).durable(engine=engine, name="failing") as durable:
        tables.enqueue("failing", [Row(id="failing/one", prompt="go")])
        tables.heartbeat("another process", "failing", 1, 600.0)
        tables.exchange("another process", "failing", free=1)
        with anyio.fail_after(20):
            tables.transact(lambda run: run("ALTER TABLE glue_rows RENAME TO hidden"))
            await durable._over.wait()  # the worker cannot claim rows
            tables.transact(lambda run: run("ALTER TABLE hidden RENAME TO glue_rows"))

            with pytest.raises(StoreError, match="rows"):
                await durable.run("go", id="one")
    tables.close()


@dataclass
class Weather:
    """The weather in a city."""

    degrees: int


async def test_the_output_of_a_durable_run_has_the_type_of_the_agent(engine: str) -> None:
    answer = calls(call("final_answer", {"degrees": 21}))

    async with Agent(Script(answer), output=Weather).durable(engine=engine) as durable:
        result = await durable.run("go", id="one")

    assert result.output == Weather(degrees=21)


async def test_a_failed_durable_run_has_no_output(engine: str) -> None:
    maker = Agent(Script(fail("invalid_request", "no")), output=Weather)

    async with maker.durable(engine=engine) as durable:
        result = await durable.run("go", unwrap=False)

    assert result.outcome == "failed"
    assert result.output is None
