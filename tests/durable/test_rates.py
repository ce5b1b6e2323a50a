"""Rate limits of providers: requests and tokens per minute."""

from __future__ import annotations

import pytest

import glue
from glue import Request, Usage
from glue.durable import Rate
from glue.durable.rates import Limited, LocalMeter, limited
from glue.testing import Repeat, Reply, Script, fail, say

COST = Usage(input=10, output=5, cost=0.01)


def echo(request: Request) -> Reply:
    return say(f"<{request.messages[-1].text}>", usage=COST)


async def test_each_provider_of_a_failover_list_keeps_to_its_own_rate() -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(round(seconds, 3))

    busy, other = Script(Repeat(fail("empty"))), Script(Repeat(echo))
    busy.name, other.name = "busy", "other"
    failover = glue.with_failover(busy, other)
    held = limited(
        failover,
        {"busy": Rate(requests=60), "other": Rate(requests=6)},
        LocalMeter(lambda: 0.0),
        sleep,
    )

    for _ in range(3):
        await glue.run(held, "x")

    assert waited == [1.0, 10.0, 2.0, 20.0]
    assert failover.providers == (busy, other)  # the original list is unchanged


async def test_tokens_per_minute_follow_the_usage_of_replies() -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(round(seconds, 3))

    held = Limited(Script(Repeat(echo)), Rate(tokens=60), LocalMeter(lambda: 0.0), sleep)

    for _ in range(3):
        await glue.run(held, "x")

    assert waited == [15.0, 30.0]  # 15 tokens per request at one token per second


def test_a_rate_of_zero_is_rejected() -> None:
    with pytest.raises(ValueError, match="requests per minute must be above 0"):
        Rate(requests=0)
