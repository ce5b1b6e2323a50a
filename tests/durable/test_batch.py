"""`glue.map`: one agent on many inputs, and resuming a map after it was killed."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from fakes.zygote import Zygote
from trio.testing import MockClock

import glue
from glue import Agent, Limits, Request, SQLiteStore, Usage
from glue.durable import MapRow
from glue.durable.batch import EmbeddedEngine, MapRun
from glue.durable.rows import InputLine, Row
from glue.errors import ConfigError, ProviderError, SessionBusy, StoreError
from glue.project import Role
from glue.provider import Capabilities
from glue.providers.offline import Offline
from glue.testing import Repeat, Reply, Script, call, calls, fail, say, use_provider

COST = Usage(input=10, output=5, cost=0.01)


def echo(request: Request) -> Reply:
    return say(f"<{request.messages[-1].text}>", usage=COST)


def agent(*steps: Any, **options: Any) -> Agent[Any, Any]:
    return Agent(Script(*(steps or (Repeat(echo),))), **options)


async def rows(job: MapRun) -> list[MapRow]:
    return [row async for row in job]


async def test_rows_are_returned_in_the_order_of_the_inputs() -> None:
    found = await rows(glue.map(agent(), ["a", {"prompt": "b", "id": 7}, glue.user("c")]))

    assert [(row.number, row.id, row.outcome, row.text) for row in found] == [
        (1, None, "done", "<a>"),
        (2, 7, "done", "<b>"),
        (3, None, "done", "<c>"),
    ]
    assert [row.usage for row in found] == [COST] * 3


async def test_an_engine_may_have_settings_for_each_row() -> None:
    def settings_of(row: Row, session: str) -> dict[str, Any]:
        return {"instructions": f"row {row.number} in {session}", "temperature": row.number / 10}

    script = Script(Repeat(echo))
    engine = EmbeddedEngine(concurrency=1, settings_of=settings_of)

    await rows(glue.map(Agent(script, temperature=1), ["a", "b"], engine=engine))

    assert [(each.system, each.temperature) for each in script.requests] == [
        ("row 1 in row-1", 0.1),
        ("row 2 in row-2", 0.2),
    ]


async def test_a_function_may_return_the_limits_of_each_row() -> None:
    bounded = agent(limits=lambda: Limits(max_requests=0))

    own = await rows(glue.map(bounded, ["a", "b"]))
    given = await rows(glue.map(agent(), ["a", "b"], limits=lambda: Limits(max_requests=0)))

    assert [row.outcome for row in own + given] == ["max_turns"] * 4


async def test_inputs_may_be_an_async_iterator() -> None:
    async def source() -> AsyncIterator[str]:
        for text in "ab":
            await anyio.lowlevel.checkpoint()
            yield text

    assert [row.text for row in await rows(glue.map(agent(), source()))] == ["<a>", "<b>"]


@dataclass(frozen=True)
class Answer:
    value: int


async def test_structured_output_is_in_the_row_as_json() -> None:
    (row,) = await rows(glue.map(_answering(), ["a"]))

    assert row.output == {"value": 3}
    assert json.loads(json.dumps(row.to_json()))["output"] == {"value": 3}


class Gated:
    """A provider that answers a prompt when its gate is set, and counts waiting requests."""

    name = "gated"

    def __init__(self) -> None:
        self.events: dict[str, anyio.Event] = {}
        self.most = 0
        self.waiting = 0

    def gate(self, text: str) -> anyio.Event:
        return self.events.setdefault(text, anyio.Event())

    async def stream(self, request: Request) -> AsyncIterator[Any]:
        text = request.messages[-1].text
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        await self.gate(text).wait()
        self.waiting -= 1
        yield glue.provider.TextDelta(text=text)
        yield glue.provider.Done(
            message=glue.AssistantMessage(content=(glue.Text(text=text),), usage=COST)
        )


@pytest.mark.parametrize(("options", "most"), [({"concurrency": 2}, 2), ({}, 8)])
async def test_concurrency_limits_how_many_rows_run_at_once(options: Any, most: int) -> None:
    provider, texts = Gated(), "abcdefghijk"
    found: list[MapRow] = []

    async def read() -> None:
        found.extend(await rows(glue.map(Agent(provider), list(texts), **options)))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        for place, text in enumerate(texts):
            with anyio.fail_after(10):
                while provider.waiting < min(most, len(texts) - place):
                    await anyio.sleep(0)
            provider.gate(text).set()

    assert [row.text for row in found] == list(texts)
    assert provider.most == most


@pytest.mark.parametrize(("ordered", "order"), [(True, "abc"), (False, "cba")])
async def test_rows_are_returned_in_order_or_as_they_finish(ordered: bool, order: str) -> None:
    provider = Gated()
    seen: list[str] = []

    async def read() -> None:
        async for row in glue.map(Agent(provider), list("abc"), ordered=ordered):
            seen.append(row.text)  # noqa: PERF401

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        for count, text in enumerate("cba", 1):
            provider.gate(text).set()
            with anyio.fail_after(10):
                while len(seen) < (count if not ordered else 0):
                    await anyio.sleep(0)

    assert "".join(seen) == order


async def test_results_that_wait_for_an_earlier_row_are_returned_in_order() -> None:
    provider = Gated()
    for text in "bcdefg":
        provider.gate(text).set()
    found: list[MapRow] = []
    job = glue.map(Agent(provider), list("abcdefg"), concurrency=2)

    async def read() -> None:
        found.extend(await rows(job))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        with anyio.fail_after(10):
            while len(job._ready) < 6:
                await anyio.sleep(0)
        provider.gate("a").set()

    assert [row.text for row in found] == list("abcdefg")


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_write_ahead_log_of_the_state_file_does_not_grow_with_the_rows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("glue.durable.batch._CHECKPOINT", 20)
    agent, log = Agent(Offline(lambda _: "hi")), tmp_path / "map.db-wal"

    job = glue.map(agent, (f"r{number}" for number in range(600)), state=tmp_path / "map.db")
    sizes = [log.stat().st_size async for _ in job]

    assert sizes[-1] < 6 * sizes[30]  # a log that is never emptied is 15 times as long


async def test_a_failed_row_is_retried_from_its_transcript() -> None:
    maker = agent(fail("transient"), Repeat(echo))

    (row,) = await rows(glue.map(maker, ["a"], retries=1, retry_delay=0))

    assert (row.outcome, row.text, row.tries) == ("done", "<a>", 2)
    assert row.requests == 2  # of both attempts
    script: Any = maker.settings.model
    # The second attempt does not repeat the prompt.
    assert [len(request.messages) for request in script.requests] == [1, 1]


@pytest.mark.parametrize(
    "anyio_backend", [("trio", {"clock": MockClock(autojump_threshold=0)})], ids=["trio"]
)
async def test_a_failed_row_is_retried_after_a_delay(anyio_backend: object) -> None:
    script = Script(fail("transient"), fail("transient"), Repeat(echo))
    started = anyio.current_time()

    (row,) = await rows(glue.map(Agent(script), ["x"], retries=2, retry_delay=70.0))

    assert (row.outcome, row.tries) == ("done", 3)
    assert anyio.current_time() - started == pytest.approx(140.0)  # the cap is not below 70


async def test_a_row_fails_after_its_last_retry() -> None:
    busy = fail("transient", "too busy")
    maker = agent(busy, busy, Repeat(echo))

    found = await rows(glue.map(maker, ["a", "b"], retries=1, retry_delay=0, concurrency=1))

    assert [(row.outcome, row.tries) for row in found] == [("failed", 2), ("done", 1)]
    assert found[0].error == "script: too busy"


@pytest.mark.parametrize("kind", ["invalid_request", "context_overflow"])
async def test_permanent_errors_are_not_retried(kind: Any) -> None:
    found = await rows(
        glue.map(
            agent(fail(kind), Repeat(echo)), ["a", "b"], retries=3, retry_delay=0, concurrency=1
        )
    )

    assert [(row.complete, row.tries) for row in found] == [(False, 1), (True, 1)]


async def test_a_rejected_key_stops_the_map() -> None:
    seen = []

    with pytest.raises(ProviderError, match="no such key"):
        async for row in glue.map(
            agent(Repeat(fail("auth", "no such key"))), list("abc"), concurrency=1
        ):
            seen.append(row.outcome)  # noqa: PERF401

    assert seen == ["failed"]


async def test_a_bug_in_a_provider_fails_only_its_row() -> None:
    found = await rows(glue.map(agent(KeyError("oops"), Repeat(echo)), ["a", "b"], concurrency=1))

    assert [row.outcome for row in found] == ["failed", "done"]
    assert found[0].error == "KeyError: 'oops'"


async def test_missing_deps_are_raised_as_a_type_error() -> None:
    with pytest.raises(TypeError, match="needs deps"):
        await rows(glue.map(Agent(Script(Repeat(echo)), deps_type=int), ["a"]))


@pytest.mark.parametrize(("budget", "done"), [({"usd_budget": 0.02}, 2), ({"token_budget": 45}, 3)])
async def test_no_row_starts_after_the_budget_is_spent(budget: Any, done: int) -> None:
    job = glue.map(agent(), ["x"] * 10, concurrency=1, **budget)

    assert [row.outcome for row in await rows(job)] == ["done"] * done
    assert job.unfinished


async def test_a_running_row_sends_no_request_after_the_budget_is_spent() -> None:
    @glue.tool
    def look() -> str:
        """Return ok."""
        return "ok"

    maker = agent(Repeat(calls("look", usage=COST)), tools=[look])

    (row,) = await rows(glue.map(maker, ["x"], usd_budget=0.03))

    assert (row.outcome, row.requests) == ("budget", 3)
    assert row.cost == pytest.approx(0.03)


async def test_rows_that_run_at_once_share_one_budget() -> None:
    @glue.tool
    def look() -> str:
        """Return ok."""
        return "ok"

    maker = agent(Repeat(calls("look", usage=COST)), tools=[look])

    found = await rows(glue.map(maker, ["x", "y"], usd_budget=0.04, concurrency=2))

    assert {row.outcome for row in found} == {"budget"}
    assert sum(row.requests for row in found) <= 5  # four, and one that was already sent


async def test_a_budget_in_dollars_needs_a_known_price() -> None:
    script = Script(Repeat(say("x")))

    with pytest.raises(
        ConfigError, match="usd_budget cannot be checked: no price is known for script-1"
    ):
        await rows(glue.map(Agent(script), ["x"] * 20, usd_budget=1.0, concurrency=1))
    assert len(script.requests) == 1  # the model of a script is known only from its reply

    with pytest.raises(
        ValueError, match="token_budget must be a whole number of 0 or more, not -1"
    ):
        glue.map(agent(), ["x"], token_budget=-1)


async def test_a_model_without_a_known_price_gets_no_request_if_there_is_a_budget() -> None:
    class Named(Script):
        capabilities = Capabilities(provider="script", model="m")

    script = Named(Repeat(say("x")))

    with pytest.raises(ConfigError, match="no price is known for script:m"):
        await rows(glue.map(Agent(script), ["x"], usd_budget=1.0))

    assert script.requests == []


async def test_a_full_disk_raises_one_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr("glue.stores.sqlite._ExclusiveWriter.write", refuse)

    with pytest.raises(StoreError, match="the disk is full"):
        await rows(glue.map(agent(), ["x"] * 20, concurrency=4))


async def test_a_budget_spent_by_the_last_row_leaves_the_map_finished() -> None:
    job = glue.map(agent(), ["x", "y"], concurrency=1, usd_budget=0.02)

    assert [row.outcome for row in await rows(job)] == ["done", "done"]
    assert not job.unfinished


async def test_limits_override_those_of_the_agent() -> None:
    @glue.tool
    def look() -> str:
        """Return ok."""
        return "ok"

    (row,) = await rows(
        glue.map(
            agent(Repeat(calls("look")), tools=[look]), ["x"], limits=Limits(max_turns=2, grace=0)
        )
    )

    assert row.outcome == "max_turns"


async def test_a_role_chooses_the_model() -> None:
    maker = agent(
        Repeat("not this one"),
        roles={"critic": Role(name="critic", instructions="Find faults.", model="other")},
    )

    with use_provider(lambda name: Script(f"I am {name}")):
        (row,) = await rows(glue.map(maker, ["x"], role="critic"))

    assert (row.outcome, row.text) == ("done", "I am other")


@pytest.mark.parametrize("options", [{"concurrency": 0}, {"retries": -1}, {"resume": True}])
def test_invalid_settings_are_rejected_at_once(options: Any) -> None:
    with pytest.raises(ValueError):
        glue.map(agent(), [], **options)


async def test_leaving_the_iteration_cancels_running_rows(tmp_path: Path) -> None:
    provider = Gated()
    provider.gate("a").set()
    job = glue.map(Agent(provider), list("abc"), concurrency=2, state=tmp_path / "s.db")

    async with job:
        async for row in job:
            assert row.text == "a"
            break

    # The state file is no longer in use.
    resumed = glue.map(agent(), list("abc"), state=tmp_path / "s.db", resume=True)
    assert [row.text for row in await rows(resumed)] == ["a", "<b>", "<c>"]


async def test_a_cancelled_iteration_ends_after_its_running_rows() -> None:
    left = list[str]()

    class Slow(Gated):
        async def stream(self, request: Request) -> AsyncIterator[Any]:
            try:
                scope.cancel()
                await anyio.sleep_forever()
                yield
            finally:
                with anyio.CancelScope(shield=True):
                    for _ in range(9):
                        await anyio.lowlevel.checkpoint()
                left.append(request.messages[-1].text)

    with anyio.CancelScope() as scope:
        await rows(glue.map(Agent(Slow()), ["a"]))

    assert left == ["a"]


async def test_stop_cancels_runs_and_keeps_their_transcripts(tmp_path: Path) -> None:
    provider = Gated()
    provider.gate("a").set()
    job = glue.map(Agent(provider), list("abcd"), concurrency=2, state=tmp_path / "s.db")
    found = []

    async for row in job:
        found.append(row)
        job.stop()

    assert [row.outcome for row in found] == ["done", "cancelled", "cancelled"]
    assert job.unfinished
    again = glue.map(agent(), list("abcd"), state=tmp_path / "s.db", resume=True)
    assert [row.text for row in await rows(again)] == ["a", "<b>", "<c>", "<d>"]
    assert again.reused == 1


async def test_a_row_that_was_stopped_twice_continues_its_transcript_and_counts_its_cost(
    tmp_path: Path,
) -> None:
    @glue.tool
    def look() -> str:
        """Return ok."""
        return "ok"

    class Stopping:
        name = "stopping"

        async def stream(self, request: Request) -> AsyncIterator[Any]:
            if len(request.messages) == 1:
                yield glue.provider.Done(
                    message=glue.AssistantMessage(content=(call("look"),), usage=COST)
                )
            yield glue.provider.TextDelta(text="half ")
            job.stop()
            yield glue.provider.TextDelta(text="an answer")

    for resume in (False, True):
        job = glue.map(
            Agent(Stopping(), tools=[look]), ["a"], state=tmp_path / "s.db", resume=resume
        )
        assert [row.outcome for row in await rows(job)] == ["cancelled"]

    (row,) = await rows(glue.map(agent(), ["a"], state=tmp_path / "s.db", resume=True))

    assert (row.outcome, row.session) == ("done", "row-1")
    assert row.text.startswith("half ")
    assert row.cost == pytest.approx(0.02)
    messages = await SQLiteStore(tmp_path / "s.db").load(row.session)
    assert [message.text for message in messages].count("a") == 1


async def test_resume_does_not_run_or_bill_finished_rows_again(tmp_path: Path) -> None:
    first = glue.map(agent(), list("abcd"), state=tmp_path / "s.db", usd_budget=0.02, concurrency=1)
    await rows(first)
    maker = agent()

    job = glue.map(
        maker, list("abcd"), state=tmp_path / "s.db", resume=True, usd_budget=0.03, concurrency=1
    )
    found = await rows(job)

    assert [row.text for row in found] == ["<a>", "<b>", "<c>"]
    assert sum(row.cost or 0 for row in found) == pytest.approx(0.03)
    script: Any = maker.settings.model
    assert len(script.requests) == 1


async def test_resume_runs_failed_and_invalid_rows_again(tmp_path: Path) -> None:
    lines = [InputLine(number=1, text='"a"'), InputLine(number=2, text="oops")]
    found = await rows(
        glue.map(agent(fail("invalid_request"), Repeat(echo)), lines, state=tmp_path / "s.db")
    )
    assert [row.outcome for row in found] == ["failed", "invalid"]
    lines[1] = InputLine(number=2, text='"b"')

    found = await rows(glue.map(agent(), lines, state=tmp_path / "s.db", resume=True))

    assert [row.text for row in found] == ["<a>", "<b>"]


async def test_an_existing_state_file_is_neither_deleted_nor_continued_unasked(
    tmp_path: Path,
) -> None:
    state = tmp_path / "s.db"
    await rows(glue.map(agent(), ["a"], state=state, resume=True))  # begins

    with pytest.raises(ConfigError, match="resume=True continues it, overwrite=True starts again"):
        await rows(glue.map(agent(), ["a"], state=state))
    kept = await rows(glue.map(agent(fail("auth")), ["a"], state=state, resume=True))
    fresh = await rows(glue.map(agent("new"), ["b"], state=state, overwrite=True))

    assert [row.text for row in kept + fresh] == ["<a>", "new"]


async def test_two_maps_cannot_use_the_same_state_file(tmp_path: Path) -> None:
    provider = Gated()
    job = glue.map(Agent(provider), ["a"], state=tmp_path / "s.db")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(rows, job)
        with anyio.fail_after(10):
            while not provider.waiting:
                await anyio.sleep(0)
        for resume in (True, False):
            with pytest.raises(SessionBusy, match="in use by another map"):
                await rows(glue.map(agent(), ["a"], state=tmp_path / "s.db", resume=resume))
        provider.gate("a").set()

    assert job.outcomes == {"done": 1}


async def test_a_map_can_be_iterated_only_once() -> None:
    job = glue.map(agent(), ["a"])
    await rows(job)

    with pytest.raises(RuntimeError, match="only once"):
        await rows(job)


async def test_a_finished_run_without_a_stored_row_is_read_from_its_transcript(
    tmp_path: Path,
) -> None:
    await rows(glue.map(agent(), ["a", "b"], state=tmp_path / "s.db"))
    _forget(tmp_path / "s.db")
    maker = agent()

    found = await rows(glue.map(maker, ["a", "b"], state=tmp_path / "s.db", resume=True))

    assert [(row.text, row.outcome, row.usage) for row in found] == [
        ("<a>", "done", COST),
        ("<b>", "done", COST),
    ]
    script: Any = maker.settings.model
    assert script.requests == []


async def test_an_answer_given_through_a_tool_is_read_from_the_transcript(
    tmp_path: Path,
) -> None:
    (first,) = await rows(glue.map(_answering(), ["a"], state=tmp_path / "s.db"))
    _forget(tmp_path / "s.db")
    maker = _answering()

    (row,) = await rows(glue.map(maker, ["a"], state=tmp_path / "s.db", resume=True))

    assert (row.text, row.output, row.outcome) == (first.text, {"value": 3}, "done")
    script: Any = maker.settings.model
    assert script.requests == []


async def test_a_row_whose_last_run_cannot_be_resumed_has_a_further_session(
    tmp_path: Path,
) -> None:
    await rows(glue.map(agent(), ["a"], state=tmp_path / "s.db"))
    _forget(tmp_path / "s.db")
    answer = calls(call("final_answer", {"value": 3}), usage=COST)

    # The text of the stored answer is not an Answer.
    job = glue.map(agent(answer, output=Answer), ["a"], state=tmp_path / "s.db", resume=True)
    (row,) = await rows(job)

    assert (row.outcome, row.output, row.session) == ("done", {"value": 3}, "row-1-again")
    assert (row.cost, row.requests) == (0.02, 2)
    assert job.budget.balance.requests == 1  # of the earlier process; there is no budget


async def test_tools_of_a_map_read_its_deps() -> None:
    @glue.tool
    def city(context: glue.Context[str]) -> str:
        """Return the city."""
        return context.deps

    maker: Agent[Any, Any] = Agent(Script(calls("city"), Repeat(echo)), tools=[city], deps_type=str)

    (row,) = await rows(glue.map(maker, ["x"], deps="Oslo"))

    assert row.text == "<Oslo>"


def _answering() -> Agent[Any, Answer]:
    return Agent(Script(Repeat(calls(call("final_answer", {"value": 3})))), output=Answer)


def _forget(state: Path) -> None:
    import sqlite3

    with contextlib.closing(sqlite3.connect(state)) as connection:
        connection.execute("DELETE FROM map_rows")
        connection.commit()


async def test_each_row_is_a_session_that_other_stores_can_read(tmp_path: Path) -> None:
    await rows(glue.map(agent(), ["a", "b"], state=tmp_path / "s.db"))

    store = SQLiteStore(tmp_path / "s.db")

    assert sorted(info.id for info in await store.list()) == ["row-1", "row-2"]
    assert [message.text for message in await store.load("row-2")] == ["b", "<b>"]
    assert [hit.session for hit in await store.search("a", role="user")] == ["row-1"]


PROGRAM = """
import os, sys, glue
from glue import AssistantMessage, Text, ToolCall, Usage
from glue.project import Role
from glue.providers.offline import Offline

def count(name):
    with open(name, "a") as file:
        file.write(".")
    return os.path.getsize(name)

@glue.tool
def note(row: str) -> str:
    "Note a row."
    if count(f"effect-{row}") and row == os.environ.get("KILL_IN_TOOL"):
        os.kill(os.getpid(), 9)
    return "noted"

def rules(request):
    row = request.messages[0].text
    if count("requests") == int(os.environ.get("KILL_AT", 0)):
        os.kill(os.getpid(), 9)
    usage = Usage(input=1, output=1, cost=0.5)
    if len(request.messages) == 1:
        parts = (ToolCall(id="1", name="note", arguments='{"row": "%s"}' % row),)
        return AssistantMessage(content=parts, stop_reason="tool_use", usage=usage)
    result = request.messages[-1].text
    return AssistantMessage(content=(Text(text=f"{row}: {result}"),), usage=usage)

agent = glue.Agent(Offline(rules), tools=[note])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agent.py").write_text(PROGRAM)
    (tmp_path / "in.jsonl").write_text(
        "".join(json.dumps({"prompt": f"r{number}"}) + "\n" for number in range(1, 7))
    )
    return tmp_path


@pytest.fixture
def glue_map(folder: Path, zygote: Zygote) -> Callable[..., tuple[int, str]]:
    """Return a function that runs `glue map` in a process, and returns its code and its errors."""

    def run(*args: str, **environ: str) -> tuple[int, str]:
        program = [sys.executable, "-c", "from glue.cli.app import main; main()"]
        command = [*program, "map", "agent.py", "in.jsonl", "-o", "out.jsonl", *args]
        code, _, errors = zygote.run(command, folder, {**os.environ, **environ})
        return code, errors

    return run


def output(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("at", [1, 4, 7, 12])
def test_resume_after_kill_9_repeats_only_the_interrupted_request(
    folder: Path, glue_map: Callable[..., tuple[int, str]], at: int
) -> None:
    killed, _ = glue_map("-n", "1", KILL_AT=str(at))
    assert killed == -signal.SIGKILL

    code, errors = glue_map("--resume")

    assert code == 0, errors
    assert [(row["number"], row["text"]) for row in output(folder)] == [
        (n, f"r{n}: noted") for n in range(1, 7)
    ]
    assert [row["cost"] for row in output(folder)] == [1.0] * 6
    assert all((folder / f"effect-r{number}").read_text() == "." for number in range(1, 7))
    asked = (folder / "requests").stat().st_size
    assert asked == 13  # only the request that was killed was sent again


def test_a_tool_call_that_was_killed_is_not_repeated(
    folder: Path, glue_map: Callable[..., tuple[int, str]]
) -> None:
    assert glue_map("-n", "1", KILL_IN_TOOL="r3")[0] == -signal.SIGKILL

    assert glue_map("--resume")[0] == 0

    assert (folder / "effect-r3").read_text() == "."
    assert output(folder)[2]["text"] == "r3: no result was recorded for this call"


@pytest.fixture
def only_new_objects() -> Iterator[None]:
    """Hide the objects of earlier tests from the garbage collector."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("only_new_objects")
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("ordered", [True, False])
async def test_rows_are_not_kept_in_memory(ordered: bool) -> None:
    most = given = 0
    inputs = (f"r{number}" for number in range(200))

    async for _ in glue.map(Agent(Offline(lambda _: "hi")), inputs, concurrency=4, ordered=ordered):
        given += 1
        if given % 50 == 0:
            gc.collect()
            most = max(
                most, sum(isinstance(each, (MapRow, glue.UserMessage)) for each in gc.get_objects())
            )

    assert given == 200
    assert 0 < most < 100
