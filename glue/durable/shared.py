"""Rate limits, cooldowns and budgets that all workers share, in the tables of their queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import anyio

from glue.backoff import Backoff
from glue.durable.ledger import Ledger, RateGate
from glue.durable.tables import Tables
from glue.errors import BudgetExceeded, StoreError
from glue.messages import Usage
from glue.tasks import finish_in_thread

T = TypeVar("T")

_BACKOFF = Backoff(first=0.2, cap=5.0)  # while the database does not respond
_LOOK = 1.0  # seconds after which a worker checks whether another one has ended a cooldown
_SAME = 0.5  # seconds; refusals of requests that were sent together advise nearly the same time


async def when_available(
    tables: Tables, notice: Callable[[str], None], work: Callable[..., T], *values: Any
) -> T:
    """Call a function that uses the database, and return its result.

    If the database was there before and does not respond now, call the function again until it
    does. `notice` receives a message for each failed call.
    """
    failures = 0
    while True:
        try:
            return await finish_in_thread(work, *values)
        except StoreError as error:
            if not tables.is_transient(error):
                raise
            failures += 1
            notice(f"{error}; waiting")
            await anyio.sleep(_BACKOFF.delay(failures) or 0.0)


class SharedLedger(Ledger):
    """The rate limits and cooldowns of all workers, in the tables of their queue."""

    def __init__(self, tables: Tables) -> None:
        super().__init__()
        self.tables = tables

    async def slot(self, name: str, seconds: float, tokens: float = 0.0) -> tuple[float, float]:
        return await finish_in_thread(self.tables.slot, name, seconds, tokens)

    async def correct(self, name: str, seconds: float, reserved: float, used: float) -> None:
        await finish_in_thread(self.tables.correct, name, seconds, reserved, used)

    async def refuse(self, gate: RateGate, number: int, advised: float | None) -> None:
        before, is_first = gate.until, number == gate.round
        await super().refuse(gate, number, advised)
        if is_first or gate.until > before + _SAME:
            seconds = gate.until - self.clock()
            await finish_in_thread(self.tables.cool_down, gate.name, seconds)

    async def probe(self, gate: RateGate) -> float:
        wait = await finish_in_thread(self.tables.probe, gate.name)
        return min(wait, _LOOK)

    async def passed(self, gate: RateGate, number: int) -> None:
        first = gate.width == 1 and number == gate.round
        gate.passed(number)
        if first:
            await finish_in_thread(self.tables.end_cooldown, gate.name)

    def learn(self, cooldowns: Mapping[str, float]) -> None:
        """Begin the cooldowns that other workers found: seconds by the name of the provider."""
        for name, seconds in cooldowns.items():
            gate, until = self.gate(name), self.clock() + seconds
            if gate.width is None and until > gate.until:
                gate.close(until)

    def reopen(self, name: str) -> None:
        """End the cooldown of a provider that has answered another worker."""
        gate = self.gate(name)
        gate.until = min(gate.until, self.clock())
        gate.notify()


class MapAccounts:
    """The budget of one map in the tables of its queue."""

    def __init__(
        self, tables: Tables, map: str, usd_budget: float | None, token_budget: float | None
    ) -> None:
        self.tables, self.map = tables, map
        self.usd_budget, self.token_budget = usd_budget, token_budget

    async def reserve(self, row: str, usd: float, tokens: float) -> BudgetExceeded | None:
        return await finish_in_thread(self.tables.reserve, row, self.map, usd, tokens)

    async def settle(self, row: str, usage: Usage) -> None:
        if self.usd_budget is not None or self.token_budget is not None:
            await finish_in_thread(self.tables.settle, row, self.map, usage)

    async def release(self, row: str) -> None:
        await finish_in_thread(self.tables.settle, row, self.map, None)

    def add_earlier(self, usage: Usage) -> None:
        pass  # the tables have it
