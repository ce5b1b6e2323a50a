"""Durable runs on DBOS, in several processes."""

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
from glue import Agent, Usage
from glue.durable.engine import (
    Durable,
    decode_result,
    encode_result,
)
from glue.durable.rates import Rate
from glue.errors import ConfigError, ProviderError
from glue.loop.position import Position
from glue.pending import PendingCall
from glue.testing import Repeat, Script, call, calls, fail, say

COST = Usage(input=10, output=5, cost=0.25)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # DBOS supports only asyncio


async def test_a_result_is_the_same_after_encoding_and_decoding() -> None:
    result = await Agent(Script(say("ready", usage=COST))).run("go")

    assert decode_result(json.loads(json.dumps(encode_result(result)))) == result


async def test_every_field_of_a_result_is_encoded() -> None:
    asked, answer = (
        glue.user("go"),
        glue.AssistantMessage(content=(glue.Text(text="ready"),), usage=COST),
    )
    result: glue.RunResult[Any] = glue.RunResult(
        messages=(asked, answer),
        new_messages=(answer,),
        text="ready",
        outcome=glue.Outcome.TRUNCATED,
        stop_reason=glue.StopReason.MAX_TOKENS,
        usage=COST,
        attempts=(
            glue.provider.Attempt(provider="acme", model="a-1", kind="overloaded", seconds=0.5),
        ),
        notice="cut",
        turns=1,
        requests=2,
        continuations=3,
        repairs=4,
        seconds=5.5,
        run_id="r",
        delivered="done",
        pending=(PendingCall(id="c", tool="deploy", arguments={"x": 1}),),
        position=Position(step="await", calls=("c",)),
        meta={"agent": "a"},
        output={"x": [1]},
    )
    unset = [field.name for field in fields(result) if getattr(result, field.name) == field.default]
    assert unset == ["error"]  # tests/durable/test_steps.py tests errors

    assert decode_result(json.loads(json.dumps({**encode_result(result), "tries": 2}))) == result


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
        names = ("act", "look")[: 2 - turn]
        calls = tuple(ToolCall(id=f"{turn}{name}", name=name, arguments="{}") for name in names)
        return AssistantMessage(content=calls, stop_reason="tool_use", usage=spent)
    answer = Text(text="ready: " + request.messages[-1].text)
    return AssistantMessage(content=(answer,), usage=spent)

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
def test_another_process_resumes_a_killed_run(
    program: Callable[..., Any], tmp_path: Path, at: str
) -> None:
    assert program(KILL_AT=at).returncode == -9
    before = (tmp_path / "notes").read_text().splitlines()

    ran = program()

    notes = (tmp_path / "notes").read_text().splitlines()
    again = notes[len(before) :]
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("ready: ")
    assert ran.stdout.endswith(" 0.75 45\n")
    assert notes.count("act") <= 2
    # Stored steps are not repeated. Only the interrupted step may be.
    for done in before[:-1]:
        if done.startswith("model"):
            assert done not in again


@pytest.mark.scale
def test_a_finished_run_is_not_run_again(program: Callable[..., Any], tmp_path: Path) -> None:
    first = program()
    before = (tmp_path / "notes").read_text()

    second = program()

    assert second.stdout == first.stdout == "ready: acted 0.75 45\n"
    assert (tmp_path / "notes").read_text() == before


@pytest.mark.scale
async def test_a_durable_run_has_events_outputs_and_errors(tmp_path: Path, engine: str) -> None:
    heard: list[Any] = []
    maker = Agent(
        Script(say("abcd", chunk=2), say("7"), fail("invalid_request", "no")), output=None
    )

    async with maker.durable(engine=engine, name="events") as durable:
        result = await durable.run("go", on_event=heard.append)
        with pytest.raises(ConfigError, match="DBOS allows one queue per process"):
            async with maker.durable(engine=engine, name="other"):
                pass
        await durable.run("go")
        with pytest.raises(ProviderError, match="no"):
            await durable.run("go")

    assert result.text == "abcd"
    assert [event.text for event in heard if isinstance(event, glue.provider.TextDelta)] == [
        "ab",
        "cd",
    ]
    async with Durable(
        Agent(Script(Repeat(calls(call("final_answer", {"value": 7})))), output=int), engine=engine
    ) as typed:
        assert (await typed.run("go")).output == 7


@pytest.mark.scale
async def test_a_retried_row_resumes_from_its_transcript(tmp_path: Path, engine: str) -> None:
    from dbos import DBOS

    script = Script(fail("overloaded"), say("ready", usage=COST))
    async with Agent(script).durable(engine=engine, name="retries") as durable:
        handle = await DBOS.start_workflow_async(
            durable._worker.workflow,
            {"prompt": glue.to_json([glue.user("go")]), "retries": 1},
        )
        kept = await handle.get_result()

    assert (kept["outcome"], kept["text"], kept["tries"], kept["requests"]) == (
        "done",
        "ready",
        2,
        2,
    )


@pytest.mark.scale
@pytest.mark.parametrize(("losses", "status"), [(0, "ENQUEUED"), (4, "ENQUEUED"), (5, "CANCELLED")])
async def test_a_run_that_lost_too_many_processes_is_cancelled(
    engine: str, losses: int, status: str
) -> None:
    from dbos import DBOS

    class Waiting:
        name = "waiting"

        async def stream(self, request: glue.Request) -> Any:
            asked.set()
            await anyio.sleep_forever()
            yield glue.provider.TextDelta(text="")

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
    # This process may have taken the run from the queue again.
    assert found.status in (status, "PENDING" if status == "ENQUEUED" else status)
    assert (found.attributes or {})["losses"] == min(losses + 1, 5)


@pytest.mark.scale
async def test_the_cost_of_sub_agents_is_counted(tmp_path: Path, engine: str) -> None:
    child = Agent(Script(say("below", usage=COST)), name="child")
    above = Agent(
        Script(calls(call("child", {"prompt": "x"}), usage=COST), say("ready", usage=COST)),
        tools=[child.as_tool()],
    )

    async with above.durable(engine=engine, name="above") as durable:
        result = await durable.run("go")

    assert result.cost == 0.75


@pytest.mark.scale
async def test_a_durable_agent_respects_its_rate_limit(engine: str) -> None:
    maker = Agent(Script(Repeat(say("ready"))))

    async with maker.durable(engine=engine, name="rated", rate=Rate(requests=120)) as durable:
        started = time.monotonic()
        for _ in range(3):
            await durable.run("go")

    assert time.monotonic() - started > 0.9


@pytest.mark.scale
@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_durable_runs_on_trio_are_rejected(anyio_backend: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="durable runs need asyncio"):
        async with Agent(Script()).durable(engine=f"dbos+sqlite:///{tmp_path}/runs.db"):
            pass
