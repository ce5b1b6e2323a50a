"""The ledger of rows: their budget, the rate limits of providers, and cooldowns after a 429.

    budget    before a request its estimated cost is reserved; after it the real cost is settled
    rate      requests and tokens per minute: each request reserves a time slot
    cooldown  a provider that refused a request gets none until the time that it advised

`Ledger` and `MapBudget` keep the numbers in this process. `SharedLedger` and `SharedBudget` keep
them in the tables of a queue, for all workers. Both change them with the same functions: the
methods of `Balance` and `Meter`.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar, cast

import anyio

from glue.backoff import Backoff
from glue.errors import BudgetExceeded, ProviderError
from glue.limits import Outcome
from glue.loop.state import State
from glue.loop.transcript import message_chars
from glue.messages import AssistantMessage, Request, Usage
from glue.policies import Hook, Policy, Stop
from glue.policies.budgets import Prices, price_of, unpriced
from glue.provider import Attempt, Done, Provider, ProviderEvent, Wrapper, capabilities, opened
from glue.tasks import finish_in_thread

if TYPE_CHECKING:
    from glue.durable.tables import Tables

T = TypeVar("T")

log = logging.getLogger("glue.map")

PATIENCE = 600.0  # seconds that a request waits for a provider that refuses requests
COOLING = ("rate_limited", "overloaded")  # kinds of errors after which a provider cools down
NOTHING = Usage(cost=0.0)
_BACKOFF = Backoff(first=1.0, cap=60.0)  # cooldown of a provider that advises none
_ROUNDING = 1e-9  # dollars; sums of floats may exceed a budget by less
_WIDE = 64  # requests at once after which a cooldown no longer limits them
_LOOK = 1.0  # seconds after which a worker checks whether another one has ended a cooldown
_SAME = 0.5  # seconds; refusals of requests that were sent together advise nearly the same time


# Budget -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Hold:
    """The reservation of a row: the dollars and tokens that its next reply may cost."""

    usd: float = 0.0
    tokens: float = 0.0


@dataclass(slots=True)
class Balance:
    """The budget of a map: its limits, its spending, and the sum of its reservations."""

    usd_budget: float | None = None
    token_budget: float | None = None
    usd: float = 0.0  # of the replies received
    tokens: float = 0.0
    requests: int = 0
    held_usd: float = 0.0  # the sum of all reservations
    held_tokens: float = 0.0

    def expected(self, usd: float = 0.0, tokens: float = 0.0) -> Hold:
        """Return the expected dollars and tokens of a request.

        They are the means of the requests so far, but at least `usd` and `tokens`.
        """
        count = max(self.requests, 1)
        return Hold(max(usd, self.usd / count), max(tokens, self.tokens / count))

    def over(self, usd: float = 0.0, tokens: float = 0.0) -> BudgetExceeded | None:
        """Return a BudgetExceeded if a further request would exceed the budget, else None."""
        more = self.expected(usd, tokens)
        if _exceeds(self.usd + self.held_usd, more.usd, self.usd_budget):
            return BudgetExceeded("usd", self.usd_budget or 0.0, self.usd)
        if _exceeds(self.tokens + self.held_tokens, more.tokens, self.token_budget):
            return BudgetExceeded("tokens", self.token_budget or 0, self.tokens)
        return None

    def add(self, usage: Usage, requests: int) -> None:
        """Add `usage`, of `requests` requests, and their number to the spending of the map."""
        self.usd += usage.cost or 0.0
        self.tokens += usage.total
        self.requests += requests

    def reserve(self, hold: Hold, usd: float, tokens: float) -> BudgetExceeded | None:
        """Reserve the expected cost of a request; return None, or an error if the budget is spent.

        A reservation of the row that is left over from an interrupted try is replaced.
        """
        self.release(hold)
        error = self.over(usd, tokens)
        if error is None:
            more = self.expected(usd, tokens)
            hold.usd, hold.tokens = more.usd, more.tokens
            self.held_usd += hold.usd
            self.held_tokens += hold.tokens
        return error

    def settle(self, hold: Hold, usage: Usage, requests: int) -> None:
        """Release the reservation of a row, and add the usage of its requests to the spending."""
        self.release(hold)
        self.add(usage, requests)

    def release(self, hold: Hold) -> None:
        """Set the reservation of a row to 0, and subtract it from the sum of all reservations."""
        self.held_usd -= hold.usd
        self.held_tokens -= hold.tokens
        hold.usd = hold.tokens = 0.0


def _exceeds(used: float, more: float, limit: float | None) -> bool:
    return limit is not None and (used >= limit or used + more > limit + _ROUNDING)


class MapBudget:
    """The budget that the rows of a map share, in this process."""

    def __init__(self, usd_budget: float | None = None, token_budget: float | None = None) -> None:
        self.balance = Balance(usd_budget, token_budget)

    @property
    def is_limited(self) -> bool:
        return self.balance.usd_budget is not None or self.balance.token_budget is not None

    async def change(self, row: str, hold: Hold, work: Callable[[Balance, Hold], T]) -> T | None:
        """Call `work` to change the balance and a row's reservation. Return the result of `work`.

        Return None if the change was stored, but its result was lost with the connection.
        """
        return work(self.balance, hold)

    def add_earlier(self, usage: Usage, requests: int) -> None:
        """Add the usage of earlier processes to the balance of this budget. Call this only once."""
        self.balance.add(usage, requests)


class SharedBudget(MapBudget):
    """The budget that all workers of a map share; the tables of the queue contain its balance."""

    def __init__(
        self, tables: Tables, map: str, usd_budget: float | None, token_budget: float | None
    ) -> None:
        super().__init__(usd_budget, token_budget)
        self.tables, self.map = tables, map

    async def change(self, row: str, hold: Hold, work: Callable[[Balance, Hold], T]) -> T | None:
        return await finish_in_thread(self.tables.change_balance, self.map, row, work)

    def add_earlier(self, usage: Usage, requests: int) -> None:
        pass  # the tables have it


class RowBudget(Policy):
    """A policy that reserves and counts the costs of a row, and stops it if the budget is spent."""

    place = "budgets"

    def __init__(self, budget: MapBudget, row: str, prices: Prices) -> None:
        self.budget, self.row, self.prices = budget, row, prices
        self._hold = Hold()
        self._is_reserved = False
        self._counted = NOTHING  # the usage of this run that the budget has

    def start(self) -> Self:
        return self  # not copied: the caller settles the usage after the run

    def before_request(self, state: State, request: Request) -> Hook:
        return self._reserve(state, request) if self.budget.is_limited else None

    async def _reserve(self, state: State, request: Request) -> Stop | None:
        await self._settle(state.usage)  # of sub-agents
        tokens = input_tokens(request)
        price = self._price(state, tokens)
        error = await self.budget.change(
            self.row, self._hold, lambda balance, hold: balance.reserve(hold, price, tokens)
        )
        self._is_reserved = error is None
        return None if error is None else Stop(Outcome.BUDGET, error)

    def _price(self, state: State, tokens: int) -> float:
        able = capabilities(state.provider)
        known = price_of(self.prices, able.provider, able.model)
        per_million = able.input_price if known is None else known[0]
        return tokens * (per_million or 0.0) / 1_000_000

    def on_reply(self, state: State, reply: AssistantMessage) -> Hook:
        return self._reply(state, reply) if self.budget.is_limited else None

    async def _reply(self, state: State, reply: AssistantMessage) -> Stop | None:
        await self._settle(state.usage)
        if self.budget.balance.usd_budget is not None and state.usage.cost is None:
            return Stop(Outcome.FAILED, unpriced(reply.model or reply.provider))
        return None

    def begin(self, usage: Usage) -> None:
        """Prepare for a run: store its usage before a pause, which the budget contains already."""
        self._counted = usage

    async def end(self, usage: Usage | None) -> None:
        """Add the uncounted usage of an ended run to the budget, and release its open reservation.

        If `usage` is None, add nothing.
        """
        if usage is not None and self.budget.is_limited:
            await self._settle(usage)
        if self._is_reserved:
            self._is_reserved = False
            await self.budget.change(
                self.row, self._hold, lambda balance, hold: balance.release(hold)
            )

    async def _settle(self, usage: Usage) -> None:
        """Add the uncounted usage of the run to the budget, and release the reservation.

        `usage` is the usage of the run so far. If all of `usage` is counted already, do nothing.
        """
        more, self._counted = difference(usage, self._counted), usage
        if more.total or more.cost:
            requests, self._is_reserved = int(self._is_reserved), False
            await self.budget.change(
                self.row, self._hold, lambda balance, hold: balance.settle(hold, more, requests)
            )


def difference(usage: Usage, before: Usage) -> Usage:
    """Return `usage` minus `before`: the additional tokens and cost."""
    names = ("input", "output", "cache_read", "cache_write", "reasoning")
    counts: Any = {name: -(getattr(before, name) or 0) for name in names if getattr(usage, name)}
    return usage + Usage(**counts, cost=-(before.cost or 0.0))


def input_tokens(request: Request) -> int:
    """Estimate the tokens of a request's messages and system prompt, at four characters each."""
    texts = sum(len(message_chars(message)) for message in request.messages)
    return (texts + len(request.system)) // 4


# Rates and cooldowns ------------------------------------------------------------------------------


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
    """The state of a rate limit: the end of the last slot, and the mean tokens of a request."""

    free_at: float = 0.0
    mean: float = 0.0  # moving average of the tokens of a request

    def take(self, now: float, seconds: float, tokens: float = 0.0) -> tuple[float, float]:
        """Reserve the next time slot. Return its delay in seconds, and the number of its tokens.

        Args:
            now: the current time.
            seconds: the length of the slot for each token, or of the slot if `tokens` is 0.
            tokens: the estimated tokens of a request; the mean of all requests, if that is larger.
        """
        reserved = max(tokens, self.mean) if tokens else 0.0
        begins = max(self.free_at, now)
        self.free_at = begins + seconds * (reserved or 1.0)
        return begins - now, reserved

    def correct(self, now: float, seconds: float, reserved: float, used: float) -> None:
        """Correct the mean and the last time slot by the tokens that a request really used.

        The end moves by `seconds` for each token that was used but not reserved. It moves back if
        fewer tokens were used than reserved.
        """
        self.mean = used if not self.mean else 0.8 * self.mean + 0.2 * used
        self.free_at = max(self.free_at, now) + seconds * (used - reserved)


@dataclass(slots=True)
class RateGate:
    """A gate that delays the requests of this process to a provider that refused a request.

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
        """Wake the requests that wait for this gate, so that they try to enter again."""
        self.changed.set()
        self.changed = anyio.Event()

    def close(self, until: float) -> None:
        """Close the gate until `until`, or until the current cooldown ends if that is later."""
        self.until = max(self.until, until)
        self.width, self.inside, self.round = 1, 0, self.round + 1
        self.notify()


class Ledger:
    """The rate limits and cooldowns that the rows of a map share in this process.

    Args:
        clock: returns the time in seconds.
        sleep: waits for this many seconds; if None, a wait also ends when a gate opens.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] | None = None,
    ) -> None:
        self.clock, self._sleep = clock, sleep
        self._meters: dict[str, Meter] = {}
        self._gates: dict[str, RateGate] = {}

    async def change(self, name: str, work: Callable[[Meter, float], T]) -> T:
        """Call `work` with the meter `name` and the time, and return the result of `work`.

        The meter is created if it is missing, and `work` may change it.
        """
        return work(self._meters.setdefault(name, Meter()), self.clock())

    async def sleep(self, seconds: float) -> None:
        await (self._sleep or anyio.sleep)(seconds)

    def gate(self, name: str) -> RateGate:
        return self._gates.setdefault(name, RateGate(name))

    def cooling(self) -> dict[str, float]:
        """Return the remaining seconds of each cooldown, by the name of the provider."""
        now = self.clock()
        left = {name: gate.until - now for name, gate in self._gates.items()}
        return {name: seconds for name, seconds in left.items() if seconds > 0}

    async def enter(self, gate: RateGate, deadline: float) -> bool:
        """Wait until a request may be sent and return True, or False if the deadline comes first.

        Before True is returned, `gate.inside` is increased. The caller decreases it when the
        request has ended.
        """
        while True:
            now = self.clock()
            if gate.until > now:
                if gate.until > deadline:
                    return False
                await self._wait(gate, gate.until - now)
            elif gate.width is None or gate.inside < gate.width:
                gate.inside += 1
                number = gate.round
                wait = await self.probe(gate) if gate.width == 1 else 0.0
                if number == gate.round:  # otherwise another request was refused meanwhile
                    if wait <= 0:
                        return True
                    gate.inside -= 1
                    gate.until = max(gate.until, self.clock() + wait)
            elif now > deadline:
                return False
            else:
                await self._wait(gate, 1.0)

    async def _wait(self, gate: RateGate, seconds: float) -> None:
        if self._sleep is not None:
            await self._sleep(seconds)
            return
        with anyio.move_on_after(seconds):
            await gate.changed.wait()

    async def probe(self, gate: RateGate) -> float:
        """Return the seconds to wait before testing a provider after its cooldown. Here, always 0.

        `SharedLedger` reserves the test for this worker and returns 0, or returns more if another
        worker tests the provider.
        """
        return 0.0

    async def refuse(self, gate: RateGate, number: int, advised: float | None) -> None:
        """Begin or extend the cooldown of a provider that has refused a request.

        `number` is the number of the last cooldown before the request was sent. If a later cooldown
        has begun and the provider advises no time, do nothing.
        """
        if number != gate.round and advised is None:
            return  # sent before the cooldown, which has begun already
        if number == gate.round:
            gate.failures += 1
        delay = advised if advised is not None else _BACKOFF.delay(max(gate.failures, 1)) or 0.0
        log.info("%s refuses requests, so all rows wait %.1f s", gate.name, delay)
        gate.close(self.clock() + delay)

    async def passed(self, gate: RateGate, number: int) -> None:
        """Admit one more parallel request to a provider that has replied to a request.

        `number` is the number of the last cooldown before the request was sent. If a later cooldown
        has begun, do nothing.
        """
        if gate.width is not None and number == gate.round:
            gate.failures = 0
            gate.width = None if gate.width >= _WIDE else gate.width + 1
            gate.notify()


class SharedLedger(Ledger):
    """The rate limits and cooldowns that all workers with the same database share."""

    def __init__(self, tables: Tables) -> None:
        super().__init__()
        self.tables = tables

    async def change(self, name: str, work: Callable[[Meter, float], T]) -> T:
        return await finish_in_thread(self.tables.change_meter, name, work)

    async def probe(self, gate: RateGate) -> float:
        return min(await finish_in_thread(self.tables.probe, gate.name), _LOOK)

    async def refuse(self, gate: RateGate, number: int, advised: float | None) -> None:
        before, is_first = gate.until, number == gate.round
        await super().refuse(gate, number, advised)
        if is_first or gate.until > before + _SAME:
            seconds = gate.until - self.clock()
            await finish_in_thread(self.tables.cool_down, gate.name, seconds)

    async def passed(self, gate: RateGate, number: int) -> None:
        is_first = gate.width == 1 and number == gate.round
        await super().passed(gate, number)
        if is_first:
            await finish_in_thread(self.tables.cool_down, gate.name, None)

    def learn(self, cooldowns: Mapping[str, float]) -> None:
        """Begin cooldowns that other workers reported. `cooldowns` maps providers to seconds.

        A provider that is cooling down or being tested already is left unchanged.
        """
        for name, seconds in cooldowns.items():
            gate, until = self.gate(name), self.clock() + seconds
            if gate.width is None and until > gate.until:
                gate.close(until)

    def reopen(self, name: str) -> None:
        """End the cooldown of a provider that has answered another worker."""
        gate = self.gate(name)
        gate.until = min(gate.until, self.clock())
        gate.notify()


def metered(
    provider: Provider, rates: Rates, ledger: Ledger, patience: float = PATIENCE
) -> Provider:
    """Return a copy of a provider whose requests wait for its rate limit and its cooldown.

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
    """A wrapper that delays requests until the rate and the cooldown of its provider allow them."""

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
                reserved = await self._wait_for_slot(request)
                async with opened(self.provider, request) as events:
                    async for event in events:
                        if not emitted and not isinstance(event, Attempt):
                            emitted = True
                            await self.ledger.passed(gate, number)
                        if isinstance(event, Done):
                            await self._correct(reserved, event.message.usage)
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

    async def _wait_for_slot(self, request: Request) -> float:
        """Wait until the rate allows a request. Return the tokens that were reserved for it."""
        requests, tokens = self.rate.requests, self.rate.tokens
        wait = more = reserved = 0.0
        if requests is not None:
            each = 60 / requests
            wait, _ = await self.ledger.change(
                f"{self.name} requests", lambda meter, now: meter.take(now, each)
            )
        if tokens is not None:
            each_token, size = 60 / tokens, max(input_tokens(request), 1)
            more, reserved = await self.ledger.change(
                f"{self.name} tokens", lambda meter, now: meter.take(now, each_token, size)
            )
        if max(wait, more) > 0:
            await self.ledger.sleep(max(wait, more))
        return reserved

    async def _correct(self, reserved: float, usage: Usage | None) -> None:
        if self.rate.tokens is not None and usage is not None:
            each, used = 60 / self.rate.tokens, usage.total
            await self.ledger.change(
                f"{self.name} tokens", lambda meter, now: meter.correct(now, each, reserved, used)
            )
