"""Rate limits of providers: requests and tokens per minute, in one process or over all workers."""

from __future__ import annotations

import copy
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, cast

import anyio

from glue.messages import Request
from glue.provider import Done, Provider, ProviderEvent, Wrapper, opened


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """The requests and tokens that a provider accepts per minute; None means no limit.

    >>> Rate(requests=60, tokens=100_000)
    Rate(requests=60, tokens=100000)
    """

    requests: float | None = None
    tokens: float | None = None

    def __post_init__(self) -> None:
        for name in ("requests", "tokens"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} per minute must be above 0, not {value!r}")


# One rate for every provider, or rates by the name of the provider; "" is the rate of all others.
Rates: TypeAlias = Rate | Mapping[str, Rate] | None


class Meter(Protocol):
    """A clock of reservations: each name has a queue of time slots that follow one another."""

    async def reserve(self, name: str, seconds: float) -> float:
        """Reserve the next free time slot of `name`; return the seconds until it begins.

        The slot is `seconds` long. Negative `seconds` give back reserved time that was not used.
        """


class LocalMeter:
    """A meter for the requests of this process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._free_at: dict[str, float] = {}  # the end of the last reservation, by name

    async def reserve(self, name: str, seconds: float) -> float:
        now = self._clock()
        begins = max(self._free_at.get(name, now), now)
        self._free_at[name] = begins + seconds
        return begins - now


def limited(
    provider: Provider,
    rates: Rates,
    meter: Meter,
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
) -> Provider:
    """Return a copy of a provider that keeps to its rate.

    In a failover list, each provider keeps to its own rate. Every attempt counts as a request.
    """
    if not rates:
        return provider
    if isinstance(rates, Rate):
        rates = {"": rates}
    clone: Any = copy.copy(provider)
    wrapped = getattr(provider, "provider", None)
    if wrapped is not None and hasattr(wrapped, "stream"):
        clone.provider = limited(wrapped, rates, meter, sleep)
        return cast(Provider, clone)
    failover_list = getattr(provider, "providers", None)
    if failover_list is not None:
        clone.providers = tuple(limited(each, rates, meter, sleep) for each in failover_list)
        return cast(Provider, clone)
    rate = rates.get(provider.name) or rates.get("")
    return provider if rate is None else Limited(provider, rate, meter, sleep)


class Limited(Wrapper):
    """A provider that delays each request until its rate allows it."""

    def __init__(
        self,
        provider: Provider,
        rate: Rate,
        meter: Meter,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        super().__init__(provider)
        self.rate = rate
        self._meter, self._sleep = meter, sleep
        # The moving average of the tokens of a request. It is reserved before each request, and
        # corrected when the usage of the request is known.
        self._mean = 0.0

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        wait, reserved = 0.0, self._mean
        if self.rate.requests is not None:
            wait = await self._meter.reserve(f"{self.name} requests", 60 / self.rate.requests)
        if self.rate.tokens is not None:
            wait = max(wait, await self._reserve_tokens(reserved))
        if wait > 0:
            await self._sleep(wait)
        async with opened(self.provider, request) as events:
            async for event in events:
                usage = event.message.usage if isinstance(event, Done) else None
                if usage is not None and self.rate.tokens is not None:
                    used = usage.total
                    self._mean = used if not self._mean else 0.8 * self._mean + 0.2 * used
                    await self._reserve_tokens(used - reserved)
                yield event

    async def _reserve_tokens(self, tokens: float) -> float:
        assert self.rate.tokens is not None
        return await self._meter.reserve(f"{self.name} tokens", 60 / self.rate.tokens * tokens)
