"""`run_row`: rows that any process runs, and a task of Celery that calls it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import glue
from glue import Agent, Outcome, RunResult, Usage
from glue.durable import Row, run_row
from glue.durable.ledger import Ledger, MapBudget
from glue.durable.runner import Runner, _is_transient
from glue.durable.tables import Tables, engine_store
from glue.errors import ConfigError, ProviderError, SessionBusy
from glue.stores import MemoryStore
from glue.testing import Repeat, Script, calls, fail, say

COST = Usage(input=10, output=5, cost=0.25)
PAGE = Path(__file__).parents[2] / "docs" / "scale-engines.md"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # the row itself is tested under trio in test_batch.py


@glue.tool
def charge() -> str:
    """Charge the customer."""
    return "charged"


async def test_a_finished_row_is_returned_and_not_run_again(engine: str) -> None:
    script, store = Script(say("ready", usage=COST), "never"), engine_store(engine)
    row = Row(id="order-1", prompt="go", key="k")

    first = await run_row(Agent(script), store, row)
    again = await run_row(Agent(script), store, row)

    assert first == again
    assert (first.outcome, first.text, first.cost, first.id) == ("done", "ready", 0.25, "k")
    assert len(script.requests) == 1


async def test_a_row_of_a_dead_process_continues_and_its_lost_request_is_counted(
    engine: str,
) -> None:
    store = engine_store(engine)
    dying = Agent(Script(calls("charge", usage=COST), Repeat(OSError("killed"))), tools=[charge])
    tables = Tables(store)
    await run_row(dying, store, Row(id="order-1", prompt="go"))
    # As a killed process leaves it: the row is running, and its last record is a tool result.
    sql = "UPDATE glue_rows SET state = 'running', result = NULL"
    tables.transact(lambda run: run(sql))
    tables.close()
    agent = Agent(Script(say("ready", usage=COST)), tools=[charge])

    row = await run_row(agent, store, Row(id="order-1", prompt="go"))

    assert (row.outcome, row.text, row.cost, row.lost) == ("done", "ready", 0.5, 1)


async def test_a_row_that_runs_elsewhere_is_not_run_a_second_time(engine: str) -> None:
    script, store = Script("never"), engine_store(engine)

    async with store.log("order-1"):
        with pytest.raises(SessionBusy):
            await run_row(Agent(script), engine_store(engine), Row(id="order-1", prompt="go"))

    assert script.requests == []


async def test_rows_of_a_map_share_a_budget_in_the_store(engine: str) -> None:
    script = Script(Repeat(say("ready", usage=COST)))
    outcomes = []

    for number in range(1, 5):
        row = Row(id=f"o-{number}", prompt="go", map="orders", number=number)
        store = engine_store(engine)
        outcomes.append((await run_row(Agent(script), store, row, usd_budget=0.5)).outcome)

    assert outcomes == ["done", "done", "budget", "budget"]
    assert len(script.requests) == 2


async def test_a_failed_row_is_run_again_from_its_transcript(engine: str) -> None:
    store = engine_store(engine)
    first = Agent(Script(calls("charge", usage=COST), fail("invalid_request")), tools=[charge])
    assert (await run_row(first, store, Row(id="o", prompt="go"))).outcome == "failed"
    script = Script(say("ready", usage=COST))

    row = await run_row(Agent(script, tools=[charge]), store, Row(id="o", prompt="go"))

    assert (row.outcome, row.cost, row.tries) == ("done", 0.5, 2)
    assert len(script.requests[0].messages) == 3


async def test_rows_need_a_database() -> None:
    with pytest.raises(
        TypeError, match=r"store must be a glue.SQLiteStore or a glue.stores.PostgresStore"
    ):
        await run_row(Agent(Script()), MemoryStore(), Row(id="o", prompt="x"))  # type: ignore[arg-type]


AGENT = """
import os, time
import glue
from glue import AssistantMessage, Text, ToolCall, Usage
from glue.providers.offline import Offline

def note(name, row):
    fd = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, f"{row}\\n".encode())
    os.close(fd)

@glue.tool
def charge(row: str) -> str:
    "Charge a customer."
    note("charges", row)
    if row == "order 2" and not os.path.exists("killed"):
        note("killed", row)
        os.kill(os.getpid(), 9)
    return "charged"

def rules(request):
    row = request.messages[0].text
    usage = Usage(input=10, output=5, cost=0.25)
    if len(request.messages) == 1:
        arguments = '{"row": "%s"}' % row
        parts = (ToolCall(id="1", name="charge", arguments=arguments),)
        return AssistantMessage(content=parts, stop_reason="tool_use", usage=usage)
    text = f"{row}: {request.messages[-1].text}"
    return AssistantMessage(content=(Text(text=text),), usage=usage)

agent = glue.Agent(Offline(rules), tools=[charge])
"""


@pytest.fixture
def celery(tmp_path: Path) -> Iterator[Any]:
    """Start workers of Celery with the program of docs/scale-engines.md and an agent."""
    pytest.importorskip("celery", reason="`make scale` installs Celery")
    found = re.search(r"```py title=\"tasks.py\"\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    (tmp_path / "tasks.py").write_text(found[1])
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "broker").mkdir()
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "celery", "-A", "tasks", "worker", "--pool", "solo"]
        with open(tmp_path / "log", "ab") as log:
            process = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait(30)


@pytest.mark.scale
def test_a_celery_task_runs_each_row_once_although_a_worker_is_killed(
    celery: Any, tmp_path: Path
) -> None:
    send = "import tasks\nfor n in range(1, 6): tasks.handle.delay(n)\n"
    subprocess.run([sys.executable, "-c", send], cwd=tmp_path, check=True, timeout=60)
    worker = celery()
    end = time.monotonic() + 90
    while worker.poll() is None:
        assert time.monotonic() < end, (tmp_path / "log").read_text()[-3000:]
        time.sleep(0.1)
    assert worker.poll() == -signal.SIGKILL

    # A broker delivers the message of a killed worker again. The folder broker does not, so that
    # the test sends it.
    again = "import tasks\nfor n in range(1, 6): tasks.handle.delay(n)\n"
    subprocess.run([sys.executable, "-c", again], cwd=tmp_path, check=True, timeout=60)
    celery()

    results = tmp_path / "results.jsonl"
    while not results.exists() or len({row["id"] for row in _rows(results)}) < 5:
        assert time.monotonic() < end, (tmp_path / "log").read_text()[-3000:]
        time.sleep(0.1)
    charges = (tmp_path / "charges").read_text().splitlines()
    assert sorted(charges) == [f"order {number}" for number in range(1, 6)]
    texts = {row["id"]: (row["text"], row["cost"]) for row in _rows(results)}
    assert texts[2] == ("order 2: no result was recorded for this call", 0.5)
    assert texts[5] == ("order 5: charged", 0.5)


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_only_a_failed_run_is_tried_again() -> None:
    busy, rejected = ProviderError("x", kind="overloaded"), ProviderError("x", kind="auth")
    result: RunResult[None] = RunResult(
        messages=(),
        new_messages=(),
        text="",
        outcome=Outcome.FAILED,
        stop_reason=None,
        usage=Usage(),
        error=busy,
    )

    assert _is_transient(result)
    assert not _is_transient(replace(result, error=rejected))
    assert not _is_transient(replace(result, error=ConfigError("x")))
    assert not _is_transient(replace(result, outcome=Outcome.HALTED))


@pytest.mark.parametrize(
    ("error", "shown"),
    [(ConfigError("there is no role x"), "there is no role x"), (KeyError("x"), "KeyError: 'x'")],
)
async def test_a_bug_is_reported_with_its_class_and_a_mistake_without(
    error: Exception, shown: str
) -> None:
    def settings_of(row: Row, session: str) -> dict[str, Any]:
        raise error

    async def ignore(lost: int) -> None: ...

    agent = Agent(Script("never"))
    async with Runner(agent=agent, ledger=Ledger(), settings_of=settings_of, raises=()) as runner:
        row = Row(id="o", prompt="go")
        found, _ = await runner.run(row, MemoryStore(), MapBudget(), on_lost=ignore)

    assert (found.outcome, found.error, found.tries) == ("failed", shown, 1)
