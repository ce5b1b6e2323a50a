"""The ledger of rows: their budget, the rate limits of providers, and cooldowns after a 429.

    budget    before a request its estimated cost is reserved; after it the real cost is settled
    rate      requests and tokens per minute: each request reserves a time slot
    cooldown  a provider that refused a request gets none until the time that it advised

All rows of a map share one ledger. `Ledger` keeps the numbers in this process;
`glue.durable.shared.SharedLedger` keeps them in a database, for all workers.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, TypeAlias, cast

import anyio

from glue.backoff import Backoff
from glue.errors import BudgetExceeded, ProviderError
from glue.limits import Outcome
from glue.loop.state import State
from glue.loop.transcript import message_chars
from glue.messages import AssistantMessage, Request, Usage
from glue.policies import Hook, Policy, Stop
from glue.policies.budgets import Prices, price_of, unpriced
from glue.provider import (
    Attempt,
    Done,
    Provider,
    ProviderEvent,
    Wrapper,
    capabilities,
    opened,
)

log = logging.getLogger("glue.map")

PATIENCE = 600.0  # seconds that a request waits for a provider that refuses requests
COOLING = ("rate_limited", "overloaded")  # kinds of errors after which a provider cools down
_BACKOFF = Backoff(first=1.0, cap=60.0)  # cooldown of a provider that advises none
_ROUNDING = 1e-9  # dollars; sums of floats may exceed a budget by less
NOTHING = Usage(cost=0.0)
_WIDE = 64  # requests at once after which a cooldown no longer limits them


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


@dataclass(slots=True)
class Meter:
    """A rate limit: the end of its last time slot, and the mean tokens of a request."""

    free_at: float = 0.0
    mean: float = 0.0  # moving average of the tokens of a request

    def learn(self, used: float) -> None:
        self.mean = used if not self.mean else 0.8 * self.mean + 0.2 * used


@dataclass(slots=True)
class RateGate:
    """A gate that admits the requests of this process to one provider.

    After a refusal the gate is closed until the cooldown has passed. Then a single request tests
    the provider; each reply admits one more request at the same time, until the gate is open.
    """

    name: str
    until: float = 0.0  # the end of the cooldown
    width: int | None = None  # requests that may be under way; None if the gate is open
    inside: int = 0  # requests under way that entered after the last cooldown
    round: int = 0  # number of the last cooldown
    failures: int = 0  # refusals in a row
    changed: anyio.Event = field(default_factory=anyio.Event)

    def notify(self) -> None:
        """Wake the requests that wait."""
        self.changed.set()
        self.changed = anyio.Event()

    def close(self, until: float) -> None:
        """Begin a cooldown, or extend the current one."""
        if until > self.until:
            self.until = until
        self.width, self.inside, self.round = 1, 0, self.round + 1
        self.notify()

    def passed(self, number: int) -> None:
        """Allow one more parallel request, after a reply to a request of round `number`.

        A reply of an earlier round, which was requested before the last cooldown, is ignored.
        """
        if self.width is None or number != self.round:
            return
        self.failures = 0
        self.width = None if self.width >= _WIDE else self.width + 1
        self.notify()


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """The budget of a map: its limits, the spent and the reserved amounts, the mean per request."""

    usd_budget: float | None = None
    token_budget: float | None = None
    usd: float = 0.0
    tokens: float = 0.0
    held_usd: float = 0.0
    held_tokens: float = 0.0
    mean_usd: float = 0.0
    mean_tokens: float = 0.0

    def expected(self, usd: float, tokens: float) -> tuple[float, float]:
        """Return the expected dollars and tokens of a request: the mean, but at least the given."""
        return max(usd, self.mean_usd), max(tokens, self.mean_tokens)

    def over(self, usd: float = 0.0, tokens: float = 0.0) -> BudgetExceeded | None:
        """Return the error if a further request exceeds the budget, or None."""
        next_usd, next_tokens = self.expected(usd, tokens)
        if _exceeds(self.usd + self.held_usd, next_usd, self.usd_budget):
            return BudgetExceeded("usd", self.usd_budget or 0.0, self.usd)
        if _exceeds(self.tokens + self.held_tokens, next_tokens, self.token_budget):
            return BudgetExceeded("tokens", self.token_budget or 0, self.tokens)
        return None


def _exceeds(used: float, more: float, limit: float | None) -> bool:
    return limit is not None and (used >= limit or used + more > limit + _ROUNDING)


class Accounts(Protocol):
    """The budget that the rows of a map share."""

    usd_budget: float | None
    token_budget: float | None

    async def reserve(self, row: str, usd: float, tokens: float) -> BudgetExceeded | None:
        """Reserve the cost of a request of a row, or return the error if the budget is spent."""

    async def settle(self, row: str, usage: Usage) -> None:
        """Replace the reservation of a row, if there is one, by the usage of a reply."""

    async def release(self, row: str) -> None:
        """Drop the reservation of a row whose request got no reply."""

    def add_earlier(self, usage: Usage) -> None:
        """Add what a row used in an earlier process. Each call adds, so call it once for a row.

        A budget that is stored in tables already includes it, and ignores the call.
        """


class Ledger:
    """The budget, rate limits and cooldowns of the rows that run in this process.

    Args:
        usd_budget: dollars for all rows together; None for no limit.
        token_budget: tokens for all rows together; None for no limit.
        clock: returns the time in seconds.
        sleep: waits for this many seconds; if None, a wait also ends when a gate opens.
    """

    def __init__(
        self,
        usd_budget: float | None = None,
        token_budget: float | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] | None = None,
    ) -> None:
        self.usd_budget, self.token_budget = usd_budget, token_budget
        self.usd, self.tokens = 0.0, 0.0  # of the replies received
        self.clock, self._sleep = clock, sleep
        self._held: dict[str, tuple[float, float]] = {}  # reserved dollars and tokens, by row
        self._settled, self._mean_usd, self._mean_tokens = 0, 0.0, 0.0
        self._meters: dict[str, Meter] = {}
        self._gates: dict[str, RateGate] = {}

    # Budget ---------------------------------------------------------------------------------------

    def over(self, usd: float = 0.0, tokens: float = 0.0) -> BudgetExceeded | None:
        """Return the error if a further request exceeds the budget, or None."""
        return self._balance().over(usd, tokens)

    def _balance(self) -> Balance:
        return Balance(
            usd_budget=self.usd_budget,
            token_budget=self.token_budget,
            usd=self.usd,
            tokens=self.tokens,
            held_usd=sum(held[0] for held in self._held.values()),
            held_tokens=sum(held[1] for held in self._held.values()),
            mean_usd=self._mean_usd,
            mean_tokens=self._mean_tokens,
        )

    async def reserve(self, row: str, usd: float, tokens: float) -> BudgetExceeded | None:
        balance = self._balance()
        error = balance.over(usd, tokens)
        if error is None:
            self._held[row] = balance.expected(usd, tokens)
        return error

    async def settle(self, row: str, usage: Usage) -> None:
        if self._held.pop(row, None) is not None:
            self._settled += 1
            self._mean_usd += ((usage.cost or 0.0) - self._mean_usd) / self._settled
            self._mean_tokens += (usage.total - self._mean_tokens) / self._settled
        self.add_earlier(usage)

    async def release(self, row: str) -> None:
        self._held.pop(row, None)

    def add_earlier(self, usage: Usage) -> None:
        self.usd += usage.cost or 0.0
        self.tokens += usage.total

    # Rates ----------------------------------------------------------------------------------------

    async def slot(self, name: str, seconds: float, tokens: float = 0.0) -> tuple[float, float]:
        """Reserve the next time slot of a rate limit; return the wait and the reserved tokens.

        Args:
            name: the rate limit.
            seconds: the length of the slot for each token, or of the slot if `tokens` is 0.
            tokens: the estimated tokens of a request; the mean of all requests, if that is larger.

        Returns:
            The seconds until the slot begins, and the tokens that were reserved.
        """
        meter, now = self._meters.setdefault(name, Meter()), self.clock()
        reserved = max(tokens, meter.mean) if tokens else 0.0
        begins = max(meter.free_at, now)
        meter.free_at = begins + seconds * (reserved or 1.0)
        return begins - now, reserved

    async def correct(self, name: str, seconds: float, reserved: float, used: float) -> None:
        """Correct the last slot by the difference between the used and the reserved tokens."""
        meter = self._meters.setdefault(name, Meter())
        meter.learn(used)
        meter.free_at = max(meter.free_at, self.clock()) + seconds * (used - reserved)

    # Cooldowns ------------------------------------------------------------------------------------

    def gate(self, name: str) -> RateGate:
        return self._gates.setdefault(name, RateGate(name))

    def cooling(self) -> dict[str, float]:
        """Return the remaining seconds of each cooldown, by the name of the provider."""
        now = self.clock()
        left = {name: gate.until - now for name, gate in self._gates.items()}
        return {name: seconds for name, seconds in left.items() if seconds > 0}

    async def enter(self, gate: RateGate, deadline: float) -> bool:
        """Wait until a request may be sent. Return False if the deadline passes first."""
        while True:
            now = self.clock()
            if gate.until > now:
                if gate.until > deadline:
                    return False
                await self._wait(gate, gate.until - now)
            elif gate.width is None or (gate.width > 1 and gate.inside < gate.width):
                gate.inside += 1
                return True
            elif gate.inside < gate.width:
                gate.inside += 1
                number = gate.round
                wait = await self.probe(gate)
                if number != gate.round:
                    continue  # another request was refused meanwhile
                if wait <= 0:
                    return True
                gate.inside -= 1
                gate.until = max(gate.until, self.clock() + wait)
            elif now > deadline:
                return False
            else:
                await self._wait(gate, 1.0)

    async def probe(self, gate: RateGate) -> float:
        """Return the seconds before a request may test a provider after its cooldown: here 0.

        `SharedLedger` returns more if another worker tests the provider.
        """
        return 0.0

    async def refuse(self, gate: RateGate, number: int, advised: float | None) -> None:
        """Begin a cooldown, because the provider refused a request of round `number`."""
        if number != gate.round and advised is None:
            return  # sent before the cooldown, which has begun already
        if number == gate.round:
            gate.failures += 1
        delay = advised if advised is not None else _BACKOFF.delay(max(gate.failures, 1)) or 0.0
        log.info("%s refuses requests; all rows wait %.1f s", gate.name, delay)
        gate.close(self.clock() + delay)

    async def passed(self, gate: RateGate, number: int) -> None:
        """Allow one more parallel request, after a reply to a request of round `number`."""
        gate.passed(number)

    async def _wait(self, gate: RateGate, seconds: float) -> None:
        if self._sleep is not None:
            await self._sleep(seconds)
            return
        with anyio.move_on_after(seconds):
            await gate.changed.wait()

    async def sleep(self, seconds: float) -> None:
        await (self._sleep or anyio.sleep)(seconds)


# The provider -------------------------------------------------------------------------------------


def metered(
    provider: Provider, rates: Rates, ledger: Ledger, patience: float = PATIENCE
) -> Provider:
    """Return a copy of a provider that keeps to its rate and waits during cooldowns.

    In a failover list each provider has its own rate and cooldown, and the list waits only if all
    of its providers refuse. Every attempt counts as a request.
    """
    if isinstance(rates, Rate):
        rates = {"": rates}
    clone: Any = copy.copy(provider)
    wrapped = getattr(provider, "provider", None)
    if wrapped is not None and hasattr(wrapped, "stream"):
        clone.provider = metered(wrapped, rates, ledger, patience)
        return cast(Provider, clone)
    failover_list = getattr(provider, "providers", None)
    if failover_list is not None:
        clone.providers = tuple(metered(each, rates, ledger, 0.0) for each in failover_list)
        return Metered(clone, Rate(), ledger, patience)
    rate = (rates or {}).get(provider.name) or (rates or {}).get("") or Rate()
    return Metered(provider, rate, ledger, patience)


class Metered(Wrapper):
    """A provider that delays each request until its rate and its cooldown allow it."""

    def __init__(self, provider: Provider, rate: Rate, ledger: Ledger, patience: float) -> None:
        super().__init__(provider)
        self.rate, self.ledger, self.patience = rate, ledger, patience

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        gate, refused = self.ledger.gate(self.name), None
        deadline = self.ledger.clock() + self.patience
        while True:
            if not await self.ledger.enter(gate, deadline):
                raise refused or self._still_cooling(gate)
            number, emitted = gate.round, False
            try:
                async with (
                    self._slots(request) as correct,
                    opened(self.provider, request) as events,
                ):
                    async for event in events:
                        if not emitted and not isinstance(event, Attempt):
                            emitted = True
                            await self.ledger.passed(gate, number)
                        if isinstance(event, Done):
                            await correct(event.message.usage)
                        yield event
                return
            except ProviderError as error:
                if emitted or error.kind not in COOLING:
                    raise
                refused = error
                await self.ledger.refuse(gate, number, error.retry_after)
            finally:
                if number == gate.round and gate.inside:
                    gate.inside -= 1
                    gate.notify()

    def _still_cooling(self, gate: RateGate) -> ProviderError:
        left = max(gate.until - self.ledger.clock(), 0.0)
        return ProviderError(
            f"{self.name} refuses requests for another {left:.0f} s",
            kind="rate_limited",
            provider=self.name,
            retry_after=left,
        )

    @asynccontextmanager
    async def _slots(
        self, request: Request
    ) -> AsyncIterator[Callable[[Usage | None], Awaitable[None]]]:
        """Wait for the rate limits; yield a function that corrects them by the usage."""
        requests, tokens = self.rate.requests, self.rate.tokens
        wait, reserved, each = 0.0, 0.0, 60 / tokens if tokens is not None else 0.0
        if requests is not None:
            wait, _ = await self.ledger.slot(f"{self.name} requests", 60 / requests)
        if tokens is not None:
            more, reserved = await self.ledger.slot(
                f"{self.name} tokens", each, max(input_tokens(request), 1)
            )
            wait = max(wait, more)
        if wait > 0:
            await self.ledger.sleep(wait)

        async def correct(usage: Usage | None) -> None:
            if tokens is not None and usage is not None:
                await self.ledger.correct(f"{self.name} tokens", each, reserved, usage.total)

        yield correct


def input_tokens(request: Request) -> int:
    """Estimate the tokens of a request at four characters each."""
    texts = sum(len(message_chars(message)) for message in request.messages)
    return (texts + len(request.system)) // 4


# The policy ---------------------------------------------------------------------------------------


class RowBudget(Policy):
    """A policy that reserves the cost of each request of a row, and counts the real cost."""

    place = "budgets"

    def __init__(self, accounts: Accounts, row: str, prices: Prices) -> None:
        self.accounts, self.row, self.prices = accounts, row, prices
        self.is_limited = accounts.usd_budget is not None or accounts.token_budget is not None
        self._counted = NOTHING  # the usage of this run that the accounts have
        self._is_reserved = False

    def start(self) -> Self:
        return self  # not copied: the caller settles the usage after the run

    def before_request(self, state: State, request: Request) -> Hook:
        return self._reserve(state, request) if self.is_limited else None

    async def _reserve(self, state: State, request: Request) -> Stop | None:
        await self._settle(state.usage)  # of sub-agents
        tokens = input_tokens(request)
        error = await self.accounts.reserve(self.row, self._price(state, tokens), tokens)
        self._is_reserved = error is None
        return None if error is None else Stop(Outcome.BUDGET, error)

    def _price(self, state: State, tokens: int) -> float:
        able = capabilities(state.provider)
        known = price_of(self.prices, able.provider, able.model)
        per_million = able.input_price if known is None else known[0]
        return tokens * (per_million or 0.0) / 1_000_000

    def on_reply(self, state: State, reply: AssistantMessage) -> Hook:
        return self._reply(state, reply) if self.is_limited else None

    async def _reply(self, state: State, reply: AssistantMessage) -> Stop | None:
        await self._settle(state.usage)
        if self.accounts.usd_budget is not None and state.usage.cost is None:
            return Stop(Outcome.FAILED, unpriced(reply.model or reply.provider))
        return None

    async def _settle(self, usage: Usage) -> None:
        """Count the usage of the run that was added since the last call."""
        before, self._counted = self._counted, usage
        more = difference(usage, before)
        if more.total or more.cost:
            self._is_reserved = False
            await self.accounts.settle(self.row, more)

    def begin(self, usage: Usage) -> None:
        """Begin a run that starts with `usage`, which is not counted again."""
        self._counted = usage

    async def end(self, usage: Usage | None) -> None:
        """Count the usage of a run that has ended, and release a reservation that is left."""
        if usage is not None:
            await self._settle(usage)
        if self._is_reserved:
            self._is_reserved = False
            await self.accounts.release(self.row)


def difference(usage: Usage, before: Usage) -> Usage:
    """Return `usage` minus `before`: the additional tokens and cost."""
    cost = (usage.cost or 0.0) - (before.cost or 0.0)
    return Usage(input=usage.input - before.input, output=usage.output - before.output, cost=cost)
