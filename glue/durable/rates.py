"""Rate limits of providers: requests and tokens a minute, in one process or over all workers."""

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
    """What a provider may be asked in a minute; None is no limit."""

    requests: float | None = None
    tokens: float | None = None

    def __post_init__(self) -> None:
        for name in ("requests", "tokens"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} a minute must be above 0, not {value!r}")


Rates: TypeAlias = Rate | Mapping[str, Rate] | None  # of every provider, or by name; "" is those not named


class Meter(Protocol):
    """A meter of requests: it hands out turns of so many seconds, each after those before it."""

    async def take(self, name: str, seconds: float) -> float:
        """Book a turn; give the seconds until it begins."""


class LocalMeter:
    """Turns of this process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._free: dict[str, float] = {}  # when the turns that are booked will be over

    async def take(self, name: str, seconds: float) -> float:
        now = self._clock()
        begins = max(self._free.get(name, now), now)
        self._free[name] = begins + seconds
        return begins - now


def limited(
    provider: Provider, rates: Rates, meter: Meter, sleep: Callable[[float], Awaitable[None]] = anyio.sleep
) -> Provider:
    """Hold every provider of a chain to its own rate, each try counted."""
    if not rates:
        return provider
    if isinstance(rates, Rate):
        rates = {"": rates}
    clone: Any = copy.copy(provider)
    if (wrapped := getattr(provider, "provider", None)) is not None and hasattr(wrapped, "stream"):
        clone.provider = limited(wrapped, rates, meter, sleep)
        return cast(Provider, clone)
    if (chain := getattr(provider, "providers", None)) is not None:
        clone.providers = tuple(limited(each, rates, meter, sleep) for each in chain)
        return cast(Provider, clone)
    rate = rates.get(provider.name) or rates.get("")
    return provider if rate is None else Limited(provider, rate, meter, sleep)


class Limited(Wrapper):
    """A provider that waits for its turn before each request."""

    def __init__(
        self, provider: Provider, rate: Rate, meter: Meter, sleep: Callable[[float], Awaitable[None]] = anyio.sleep
    ) -> None:
        super().__init__(provider)
        self.rate = rate
        self._meter, self._sleep = meter, sleep
        self._mean = 0.0  # tokens of a request so far, booked before its true number is known

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        wait, booked = 0.0, self._mean
        if self.rate.requests is not None:
            wait = await self._meter.take(f"{self.name} requests", 60 / self.rate.requests)
        if self.rate.tokens is not None:
            wait = max(wait, await self._take_tokens(booked))
        if wait > 0:
            await self._sleep(wait)
        async with opened(self.provider, request) as events:
            async for event in events:
                if isinstance(event, Done) and self.rate.tokens is not None and event.message.usage is not None:
                    used = event.message.usage.total
                    self._mean = used if not self._mean else 0.8 * self._mean + 0.2 * used
                    await self._take_tokens(used - booked)
                yield event

    async def _take_tokens(self, tokens: float) -> float:
        assert self.rate.tokens is not None
        return await self._meter.take(f"{self.name} tokens", 60 / self.rate.tokens * tokens)
