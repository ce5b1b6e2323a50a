"""The ledger of rows: rate limits, budgets, and cooldowns after refusals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import glue
from glue import Agent, Limits, Request, Usage
from glue.durable import Rate
from glue.durable.ledger import (
    Balance,
    Hold,
    Ledger,
    MapBudget,
    Metered,
    RowBudget,
    SharedLedger,
    metered,
)
from glue.durable.tables import Tables, engine_store
from glue.errors import BudgetExceeded, ProviderError
from glue.provider import Capabilities
from glue.providers import with_retries
from glue.testing import Repeat, Reply, Script, fail, say

COST = Usage(input=10, output=5, cost=0.01)


def echo(request: Request) -> Reply:
    return say(f"<{request.messages[-1].text}>", usage=COST)


class Clock:
    """A clock that stands still, except while somebody sleeps."""

    def __init__(self, moves: bool = True) -> None:
        self.now, self.moves = 0.0, moves
        self.waited: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        await anyio.lowlevel.checkpoint()
        self.waited.append(round(seconds, 3))
        if self.moves:
            self.now += seconds


def test_a_rate_of_zero_is_rejected() -> None:
    with pytest.raises(ValueError, match="requests per minute must be above 0"):
        Rate(requests=0)


async def test_each_provider_of_a_failover_list_keeps_to_its_own_rate() -> None:
    clock = Clock(moves=False)
    busy, other = Script(Repeat(fail("empty"))), Script(Repeat(echo))
    busy.name, other.name = "busy", "other"
    failover = glue.with_failover(busy, other)
    held = metered(
        failover,
        {"busy": Rate(requests=60), "other": Rate(requests=6)},
        Ledger(clock=clock, sleep=clock.sleep),
    )

    for _ in range(3):
        await glue.run(held, "x")

    assert clock.waited == [1.0, 10.0, 2.0, 20.0]
    assert failover.providers == (busy, other)  # the original list is unchanged


async def test_tokens_per_minute_follow_the_usage_of_replies() -> None:
    clock = Clock(moves=False)
    ledger = Ledger(clock=clock, sleep=clock.sleep)

    # A new wrapper for each request, as for each row: the mean is kept in the ledger.
    for _ in range(3):
        await glue.run(Metered(Script(Repeat(echo)), Rate(tokens=60), ledger, 1.0), "x")

    assert clock.waited == [15.0, 30.0]  # 15 tokens per request at one token per second


async def test_a_provider_in_a_wrapper_keeps_to_its_rate() -> None:
    clock = Clock(moves=False)
    wrapped = with_retries(Script(Repeat(echo)))
    inner = wrapped.provider
    held = metered(wrapped, Rate(requests=60), Ledger(clock=clock, sleep=clock.sleep))

    for _ in range(3):
        await glue.run(held, "x")

    assert clock.waited == [1.0, 2.0]
    assert wrapped.provider is inner  # the original wrapper is unchanged


async def test_a_refused_request_is_sent_again_after_the_advised_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "glue.map")
    clock = Clock()
    script = Script(fail("rate_limited", retry_after=7.0), Repeat(echo))
    ledger = Ledger(clock=clock, sleep=clock.sleep)
    held = metered(script, None, ledger)

    result = await glue.run(held, "x")

    assert (result.text, result.requests, result.attempts) == ("<x>", 1, ())
    assert clock.waited == [7.0]
    assert caplog.messages == ["script refuses requests, so all rows wait 7.0 s"]
    assert ledger.gate("script").width == 2  # the reply admits two requests at the same time


async def test_a_cooldown_without_advice_doubles() -> None:
    clock = Clock()
    refusal = fail("overloaded")
    script = Script(refusal, refusal, refusal, Repeat(echo))
    held = metered(script, None, Ledger(clock=clock, sleep=clock.sleep))

    await glue.run(held, "x")

    first, second, third = clock.waited
    assert 0.75 <= first <= 1.0
    assert 1.5 <= second <= 2.0
    assert 3.0 <= third <= 4.0


async def test_the_error_is_raised_if_the_advised_time_exceeds_patience() -> None:
    clock = Clock()
    script = Script(fail("rate_limited", "slow down", retry_after=90.0), Repeat(echo))
    ledger = Ledger(clock=clock, sleep=clock.sleep)
    held = metered(script, None, ledger, patience=60)

    with pytest.raises(ProviderError, match="slow down"):
        (await glue.run(held, "x")).unwrap()
    with pytest.raises(ProviderError, match="script refuses requests for another 90 s"):
        (await glue.run(held, "y")).unwrap()

    assert len(script.requests) == 1
    assert ledger.cooling() == {"script": 90.0}


async def test_a_failover_list_does_not_wait_for_one_of_its_providers() -> None:
    clock = Clock()
    busy = Script(Repeat(fail("rate_limited", retry_after=50.0)), name="busy")
    other = Script(Repeat(echo), name="other")
    ledger = Ledger(clock=clock, sleep=clock.sleep)

    for _ in range(3):  # a new list each time: the cooldown is known to the ledger
        result = await glue.run(metered(glue.with_failover(busy, other), None, ledger), "x")
        assert result.text == "<x>"

    assert len(busy.requests) == 1
    assert clock.waited == []


async def test_one_request_tests_the_provider_after_a_cooldown_and_replies_admit_more() -> None:
    inside, most, refusals = 0, list[int](), 0

    class Provider:
        name = "acme"

        async def stream(self, request: Request):  # type: ignore[no-untyped-def]
            nonlocal inside, refusals
            inside += 1
            most.append(inside)
            try:
                await anyio.sleep(0.001)
                if refusals < 3:
                    refusals += 1
                    raise ProviderError("busy", kind="rate_limited", retry_after=0.1)
                yield glue.provider.Done(
                    message=glue.AssistantMessage(content=(glue.Text(text="x"),))
                )
            finally:
                inside -= 1

    held = metered(Provider(), None, Ledger())
    async with anyio.create_task_group() as tasks:
        for _ in range(12):
            tasks.start_soon(glue.run, held, "x")

    # Twelve at once; three are refused, nine answered. The others test the provider one by one.
    assert most[:12] == list(range(1, 13))
    assert all(count <= 3 for count in most[12:])


async def test_a_request_does_not_wait_longer_than_its_deadline_for_the_test_of_a_provider() -> (
    None
):
    clock = Clock()
    ledger = Ledger(clock=clock, sleep=clock.sleep)
    gate = ledger.gate("acme")
    gate.close(until=0.0)

    assert await ledger.enter(gate, deadline=0.0)  # this request tests the provider
    assert not await ledger.enter(gate, deadline=-1.0)
    assert clock.waited == []
    assert not await ledger.enter(gate, deadline=0.0)
    assert clock.waited == [1.0]
    assert gate.inside == 1


async def test_a_provider_is_open_again_after_64_replies() -> None:
    ledger = Ledger()
    gate = ledger.gate("acme")
    gate.close(until=0.0)

    for width in range(2, 65):
        await ledger.passed(gate, gate.round)
        assert gate.width == width
    await ledger.passed(gate, gate.round)

    assert gate.width is None


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[SharedLedger]:
    ledger = SharedLedger(Tables(engine_store(f"sqlite:///{tmp_path}/queue.db")))
    yield ledger
    ledger.tables.close()


async def test_a_reply_to_a_request_from_before_a_cooldown_does_not_end_it_for_other_workers(
    shared: SharedLedger,
) -> None:
    gate = shared.gate("acme")
    await shared.refuse(gate, 0, 60.0)

    await shared.passed(gate, 0)
    assert shared.tables.cooldowns() == {"acme": pytest.approx(60, abs=5)}
    await shared.passed(gate, gate.round)

    assert shared.tables.cooldowns() == {}


async def test_only_a_longer_time_of_a_late_refusal_begins_the_cooldown_of_other_workers_again(
    shared: SharedLedger,
) -> None:
    gate = shared.gate("acme")
    await shared.refuse(gate, 0, 60.0)
    shared.tables.cool_down("acme", None)  # another worker received a reply

    await shared.refuse(gate, 0, 60.0 - 0.25)
    assert shared.tables.cooldowns() == {}
    await shared.refuse(gate, 0, 90.0)

    assert shared.tables.cooldowns() == {"acme": pytest.approx(90, abs=5)}


def test_the_mean_of_a_balance_counts_each_request() -> None:
    balance = Balance()

    balance.add(COST, 1)
    balance.add(COST, 1)

    assert (balance.expected().usd, balance.expected().tokens) == (0.01, 15)


def test_a_balance_expects_the_mean_and_at_least_the_input() -> None:
    balance = Balance(usd_budget=1.0, usd=0.6, held_usd=0.2, requests=3)

    assert balance.expected(0.05, 10).usd == pytest.approx(0.2)
    assert balance.expected(0.05, 10).tokens == 10
    assert balance.over() is None
    assert isinstance(balance.over(usd=0.3), BudgetExceeded)
    assert isinstance(Balance(token_budget=10, tokens=10).over(), BudgetExceeded)
    assert Balance(usd=5.0).over(usd=100.0) is None


async def test_a_reservation_is_settled_or_released() -> None:
    balance = MapBudget(usd_budget=0.05).balance
    a, b, c = Hold(), Hold(), Hold()

    assert balance.reserve(a, 0.02, 10) is None
    assert balance.reserve(b, 0.02, 10) is None
    assert balance.reserve(c, 0.02, 10) is not None
    balance.release(b)
    balance.settle(a, COST, 1)

    assert balance.usd == pytest.approx(0.01)
    assert balance.held_usd == pytest.approx(0)
    assert balance.reserve(c, 0.02, 10) is None


async def test_a_reservation_is_released_once() -> None:
    class Counted(MapBudget):
        changes = 0

        async def change(self, row: str, hold: Hold, work: Any) -> Any:
            self.changes += 1
            return await super().change(row, hold, work)

    budget = Counted(token_budget=1_000)
    money = RowBudget(budget, "row", {})
    script = Script(fail("transient"))

    await glue.run(script, "x" * 40, policies=[money])
    assert (budget.balance.held_tokens, budget.changes) == (10, 1)
    for _ in range(2):
        await money.end(None)

    assert (budget.balance.held_tokens, budget.changes) == (0, 2)


async def test_the_price_of_the_input_is_reserved_before_the_first_request() -> None:
    class Priced(Script):
        capabilities = Capabilities(model="m", input_price=1_000_000.0, output_price=1.0)

    dear = Priced(Repeat(echo))

    found = [row async for row in glue.map(Agent(dear), ["long " * 100], usd_budget=50.0)]

    assert [row.outcome for row in found] == ["budget"]  # 125 tokens at a dollar each
    assert dear.requests == []


async def test_a_request_without_a_reply_leaves_no_reservation() -> None:
    script = Script(fail("transient"), Repeat(echo))

    job = glue.map(Agent(script), ["long " * 100], token_budget=1_000, retry_delay=0)
    found = [row async for row in job]

    balance = job.budget.balance
    assert [row.tries for row in found] == [2]
    assert (balance.held_tokens, balance.tokens, balance.requests) == (0, 15, 1)


async def test_usage_of_sub_agents_counts_towards_the_budget() -> None:
    child = Agent(Script(Repeat(say("below", usage=COST))), name="child")
    asking = glue.testing.calls(glue.testing.call("child", {"prompt": "x"}), usage=COST)
    above = Agent(Script(Repeat(asking)), tools=[child.as_tool()])

    (row,) = [row async for row in glue.map(above, ["x"], usd_budget=0.05)]

    assert row.outcome == "budget"
    assert row.cost == pytest.approx(0.04)  # two requests and their sub-agents


async def test_usage_of_a_sub_agent_in_the_last_turn_counts_towards_the_budget() -> None:
    child = Agent(Script(Repeat(say("below", usage=COST))), name="child")
    asking = glue.testing.calls(glue.testing.call("child", {"prompt": "x"}), usage=COST)
    limits = Limits(max_turns=1)
    above = Agent(Script(Repeat(asking)), tools=[child.as_tool()], limits=limits)

    job = glue.map(above, ["x"], usd_budget=1.0)
    (row,) = [row async for row in job]

    assert row.cost == pytest.approx(0.02)
    assert job.budget.balance.usd == pytest.approx(0.02)
