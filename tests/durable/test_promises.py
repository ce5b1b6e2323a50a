"""The promises of a row: the same tests in one process, on SQLite and on Postgres."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from itertools import pairwise
from typing import Any

import anyio
import pytest
from fakes.clock import VirtualClock
from fakes.maps import Maps

import glue
from glue import Agent, AssistantMessage, Request, Text, ToolCall, Usage
from glue.durable import Rate
from glue.durable.ledger import Ledger, SharedLedger, metered
from glue.durable.tables import Tables, engine_store
from glue.errors import ConfigError, ProviderError
from glue.provider import Done, Provider
from glue.testing import Repeat, Script, call, calls, fail, say

COST = Usage(input=10, output=5, cost=0.01)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # scheduling under trio is tested in test_batch.py and test_ledger.py


@glue.tool
def note(step: int = 0) -> str:
    """Note something."""
    noted.append("note")
    return "noted"


noted: list[str] = []


class Model:
    """A model that calls `note` until a row has `turns` replies, and then answers."""

    name = "model"

    def __init__(self, turns: int = 1, refuse: Any = lambda model: None) -> None:
        self.turns, self.refuse = turns, refuse
        self.requests = 0
        self.replies = 0
        self.inside = self.most = 0

    async def stream(self, request: Request) -> AsyncIterator[Any]:
        self.requests += 1
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            await anyio.sleep(0.002)
            error = self.refuse(self)
            if error is not None:
                raise error
            said = sum(isinstance(message, AssistantMessage) for message in request.messages)
            self.replies += 1
            part: Any = Text(text=f"{request.messages[0].text} is done")
            if said + 1 < self.turns:
                part = ToolCall(id=f"c{said}", name="note", arguments=f'{{"step": {said}}}')
            yield Done(message=AssistantMessage(content=(part,), usage=COST))
        finally:
            self.inside -= 1


async def test_a_failed_row_continues_from_its_transcript_and_keeps_its_cost(maps: Maps) -> None:
    noted.clear()
    first = Script(calls("note", usage=COST), fail("invalid_request"))
    (failed,) = await maps(Agent(first, tools=[note]), ["a"])
    assert failed.outcome == "failed"
    assert failed.cost == pytest.approx(0.01)
    second = Script(say("ready", usage=COST))

    (row,) = await maps(Agent(second, tools=[note]), ["a"], resume=True)

    assert (row.outcome, row.text) == ("done", "ready")
    assert row.cost == pytest.approx(0.02)
    assert (row.tries, row.requests) == (2, 2)
    assert [type(each).__name__ for each in second.requests[0].messages] == [
        "UserMessage",
        "AssistantMessage",
        "ToolMessage",
    ]
    assert noted == ["note"]


async def test_a_row_that_fails_again_and_again_runs_at_every_resume(maps: Maps) -> None:
    for resume in (False, True, True, True):
        script = Script(fail("invalid_request"))
        (row,) = await maps(Agent(script), ["a"], resume=resume)
        assert (row.outcome, len(script.requests)) == ("failed", 1)

    (row,) = await maps(Agent(Script("ready")), ["a"], resume=True)

    assert (row.outcome, row.text, row.tries) == ("done", "ready", 5)


async def test_resume_begins_a_map_and_nothing_else_continues_one(maps: Maps) -> None:
    (first,) = await maps(Agent(Script("ready")), ["a"], resume=True)

    with pytest.raises(ConfigError, match="resume=True continues it, overwrite=True starts again"):
        await maps(Agent(Script("never")), ["a"])
    (again,) = await maps(Agent(Script("never")), ["a"], resume=True)
    (fresh,) = await maps(Agent(Script("new")), ["a"], overwrite=True)

    assert [first.text, again.text, fresh.text] == ["ready", "ready", "new"]


async def test_a_budget_is_exceeded_by_at_most_one_request_of_each_row(maps: Maps) -> None:
    model = Model(turns=10)

    found = await maps(
        Agent(model, tools=[note]), ["x"] * 16, usd_budget=0.5, concurrency=4, workers=2
    )

    assert maps.job is not None
    assert maps.job.over_budget
    assert {row.outcome for row in found} <= {"done", "budget"}
    assert model.replies * 0.01 <= 0.5 + 8 * 0.01
    assert sum(row.cost or 0 for row in found) == pytest.approx(model.replies * 0.01)
    found = await maps(Agent(model, tools=[note]), ["x"] * 16, usd_budget=50, resume=True)
    assert [row.outcome for row in found] == ["done"] * 16
    assert sum(row.cost or 0 for row in found) == pytest.approx(1.6)
    assert model.replies == 160


async def test_a_storm_of_refusals_fails_no_row(maps: Maps) -> None:
    refused = 0

    def refuse(model: Model) -> ProviderError | None:
        nonlocal refused
        if refused >= 12 or model.requests <= 8:
            return None
        refused += 1
        return ProviderError("slow down", kind="rate_limited", retry_after=0.1)

    model = Model(refuse=refuse)

    found = await maps(Agent(model), ["x"] * 60, concurrency=4, workers=2)

    assert Counter(row.outcome for row in found) == {"done": 60}
    assert [row.tries for row in found] == [1] * 60
    assert (refused, model.requests) == (12, 72)


class Storm:
    """A provider that refuses every request for a minute, as one of several workers sees it."""

    name = "storm"

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.refused: list[tuple[float, float]] = []  # when a request was sent and refused

    async def stream(self, request: Request) -> AsyncIterator[Any]:
        sent = self.clock.now
        await self.clock.sleep(1.0)
        if 20 <= sent < 80:
            self.refused.append((sent, self.clock.now))
            raise ProviderError("slow down", kind="rate_limited", retry_after=30)
        yield Done(message=AssistantMessage(content=(Text(text="fine"),), usage=COST))

    def later(self) -> list[float]:
        """Return when requests were sent after the first refusal that were refused too."""
        first = min(answered for _, answered in self.refused)
        return [sent for sent, _ in self.refused if sent >= first]


async def test_a_worker_is_refused_at_most_twice_after_the_first_refusal(maps: Maps) -> None:
    clock, ledgers = virtual_ledgers(maps)
    storms = [Storm(clock) for _ in ledgers]

    async def rows(provider: Provider) -> None:
        async with clock.running():
            for _ in range(40):
                assert (await glue.run(provider, "hello")).outcome == "done"

    async with anyio.create_task_group() as tasks:
        for ledger, storm in zip(ledgers, storms, strict=True):
            for _ in range(12 // len(ledgers)):
                tasks.start_soon(rows, metered(storm, None, ledger))

    assert all(storm.refused for storm in storms)
    assert max(len(storm.later()) for storm in storms) <= 2
    # The requests that were under way together with the first refused one could not be held back.
    # Afterwards a single request of all workers tests the provider after each cooldown.
    first = min(answered for storm in storms for _, answered in storm.refused)
    tests = sorted(sent for storm in storms for sent in storm.later())
    assert all(after - before >= 30 for before, after in pairwise([first, *tests]))


async def test_waiting_for_a_provider_ends_with_patience(maps: Maps) -> None:
    error = ProviderError("slow down", kind="rate_limited", retry_after=60)
    model = Model(refuse=lambda model: error)

    found = await maps(Agent(model), ["x", "y"], patience=0.01)

    assert [(row.outcome, row.kind) for row in found] == [("failed", "rate_limited")] * 2


@pytest.mark.parametrize("kind", ["quota", "auth"])
async def test_an_exhausted_quota_stops_the_map(maps: Maps, kind: Any) -> None:
    script = Script(Repeat(fail(kind, "no credit")))

    with pytest.raises(ProviderError, match="no credit") as caught:
        await maps(Agent(script), ["x"] * 200, concurrency=2)

    assert caught.value.kind == kind
    assert len(script.requests) < 200


async def test_a_budget_without_a_known_price_stops_the_map(maps: Maps) -> None:
    with pytest.raises(ConfigError, match="usd_budget cannot be checked"):
        await maps(Agent(Script(Repeat(say("x")))), ["x"] * 20, usd_budget=1.0, concurrency=1)


def virtual_ledgers(maps: Maps) -> tuple[VirtualClock, list[Ledger]]:
    """Return a virtual clock and the ledger of a process, or of three workers of a queue."""
    clock = VirtualClock([engine_store(maps.engine) for _ in range(3)] if maps.is_queue else [])
    ledgers: list[Ledger] = [SharedLedger(Tables(store)) for store in clock.stores]
    ledgers = ledgers or [Ledger()]
    for ledger in ledgers:
        ledger.clock, ledger._sleep = clock, clock.sleep
    return clock, ledgers


class Recorder:
    """A provider that answers after 2 to 10 seconds, and records when requests arrive."""

    name = "recorder"

    def __init__(self, clock: VirtualClock, sizes: Iterable[int]) -> None:
        self.clock, self.sizes = clock, iter(sizes)
        self.arrived: list[tuple[float, int]] = []  # the time and the tokens of each request
        self.inside = self.most = 0

    async def stream(self, request: Request) -> AsyncIterator[Any]:
        tokens = next(self.sizes)
        self.arrived.append((self.clock.now, tokens))
        self.inside += 1
        self.most = max(self.most, self.inside)
        await self.clock.sleep(2 + 7 * len(self.arrived) % 9)
        self.inside -= 1
        usage = Usage(input=10, output=tokens - 10)
        yield Done(message=AssistantMessage(content=(Text(text="fine"),), usage=usage))

    def worst_minute(self, skipped: int = 0) -> int:
        """Return the tokens that arrived in the worst 60 seconds, without the first requests."""
        arrived = self.arrived[skipped:]
        return max(
            sum(tokens for at, tokens in arrived if start <= at < start + 60)
            for start, _ in arrived
        )


async def send_all(maps: Maps, sizes: list[int], at_once: int = 18) -> Recorder:
    """Send requests of some sizes at 60,000 tokens per minute: in one process, or in three."""
    clock, ledgers = virtual_ledgers(maps)
    model, left = Recorder(clock, sizes), list(sizes)

    async def rows(provider: Provider) -> None:
        async with clock.running():
            while left:
                left.pop()
                await glue.run(provider, "hello")

    async with anyio.create_task_group() as tasks:
        for ledger in ledgers:
            provider = metered(model, Rate(tokens=60_000), ledger)
            for _ in range(at_once // len(ledgers)):
                tasks.start_soon(rows, provider)
    assert len(model.arrived) == len(sizes)
    assert clock.now < 1.5 * sum(sizes) / 1_000  # seconds; the limit is nearly used up
    return model


@pytest.mark.parametrize(
    "sizes", [[200] * 120 + [3_000] * 120, [200, 200, 5_000] * 80], ids=["growing", "mixed"]
)
async def test_no_minute_exceeds_its_tokens_by_more_than_the_requests_under_way(
    maps: Maps, sizes: list[int]
) -> None:
    model = await send_all(maps, sizes)

    assert model.worst_minute() <= 60_000 + model.most * max(sizes)


async def test_the_first_reply_of_any_worker_slows_down_the_requests_of_all(maps: Maps) -> None:
    model = await send_all(maps, [1_000] * 200, at_once=48)

    # 48 requests are sent before the size of one is known. If the others were sent without the mean
    # of the replies, the worst minute would have 105,000 tokens.
    assert model.worst_minute() < 60_000 + 20_000
    assert model.worst_minute(skipped=48) <= 60_000


async def test_the_rate_of_a_map_or_worker_is_measured_with_the_replies(maps: Maps) -> None:
    await maps(Agent(Model()), ["x"] * 4, rate=Rate(tokens=60_000_000), workers=2)

    assert maps.job is not None
    ledger = SharedLedger(Tables(engine_store(maps.engine))) if maps.is_queue else maps.job.ledger
    assert await ledger.change("model tokens", lambda meter, now: meter.mean) == 15


async def test_a_row_that_waits_for_a_decision_is_paused_and_resumed(maps: Maps) -> None:
    @glue.tool(needs_permission=True)
    def deploy(version: str) -> str:
        """Deploy a version."""
        noted.append(version)
        return f"{version} is live"

    noted.clear()
    asking = Agent(
        Script(calls(call("deploy", {"version": "1.4"}, id="c1"), usage=COST), Repeat("other")),
        tools=[deploy],
        permission=glue.Ask(lambda request: glue.defer("needs a person")),
    )
    first, other = await maps(asking, ["deploy", "other"], concurrency=1)
    assert (first.outcome, other.outcome) == ("paused", "done")
    assert "deploy" in first.error
    again, _ = await maps(asking, ["deploy", "other"], resume=True)
    assert (again.outcome, noted) == ("paused", [])
    assert again.cost == pytest.approx(0.01)
    store = _store(maps)
    answering = Agent(Script(say("live", usage=COST)), tools=[deploy])
    session = answering.session(first.session, store=store)

    await session.resume(decisions={"c1": glue.allow()})
    row, _ = await maps(answering, ["deploy", "other"], resume=True)

    assert (row.outcome, row.text) == ("done", "live")
    assert row.cost == pytest.approx(0.02)
    assert noted == ["1.4"]


def _store(maps: Maps) -> Any:
    from glue.durable.tables import engine_store

    if maps.kind == "embedded":
        return glue.SQLiteStore(maps.folder / "state.db")
    return engine_store(maps.engine)


async def test_idempotent_calls_run_again_and_others_do_not(maps: Maps) -> None:
    ran: list[str] = []

    @glue.tool
    def charge() -> str:
        """Charge."""
        ran.append("charge")
        raise KeyboardInterrupt  # as if the process was killed: nothing is stored

    @glue.tool(idempotent=True)
    def look() -> str:
        """Look."""
        ran.append("look")
        return "looked"

    name = "row-1"
    store = glue.SQLiteStore(maps.folder / "direct.db")
    async with store.log(name) as log:
        await log.append(glue.user("a"))
        content = (call("charge", id="1"), call("look", id="2"))
        await log.append(AssistantMessage(content=content, usage=COST))
    agent = Agent(Script("ready"), tools=[charge, look])

    result = await agent.session(name, store=store).resume()

    assert ran == ["look"]
    assert [message.text for message in result.messages[2:]] == [
        "no result was recorded for this call",
        "looked",
        "ready",
    ]
