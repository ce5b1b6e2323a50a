"""One row: run it, resume it from its transcript, retry it, and return its result.

    no transcript ............................. run the prompt
    a transcript that can continue ............ resume it; its earlier cost counts
    a transcript that ends with an answer ..... return the answer, without a request
    a transcript that waits for a decision .... return the row as paused, without a request
    a transcript that cannot continue ......... begin a new session; the earlier cost counts

Every engine runs rows with this module: `glue.map` in one process, a worker of a queue, and any
other system through `run_row`. A row is a session in a store, so at most one process runs it, and a
tool call that had begun is not repeated unless the tool is idempotent.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import anyio

from glue.backoff import Backoff
from glue.codec import from_json, to_json, to_plain
from glue.context import Cancel
from glue.durable.ledger import (
    NOTHING,
    PATIENCE,
    Ledger,
    MapBudget,
    Rates,
    RowBudget,
    SharedBudget,
    SharedLedger,
    difference,
    metered,
)
from glue.durable.rows import OPEN, MapRow, Row, error_kind, row_from_transcript, waiting_text
from glue.durable.tables import STATES, Tables
from glue.errors import ConfigError, ProviderError, StoreError
from glue.events import Listener
from glue.limits import Outcome
from glue.loop.position import is_resumable, position_of
from glue.loop.transcript import last_reply
from glue.messages import Json, Message, Usage, new_id
from glue.pending import SPENT, pending_calls
from glue.policies.budgets import check_price, known_prices
from glue.result import RunResult
from glue.signature import blocking
from glue.stores.sql import SQLStore
from glue.stores.store import Store
from glue.tasks import finish_in_thread
from glue.telemetry import continued

if TYPE_CHECKING:
    from glue.agent import Agent

log = logging.getLogger("glue.map")

MAX_DELAY = 60.0  # seconds between two attempts at a row, unless `retry_delay` is longer
# Errors that every other row would get too; "config" is a mistake of the user.
FATAL = frozenset(("auth", "quota", "not_found", "config"))
# Errors that another attempt at the same row would get too.
FINAL = FATAL | {"invalid_request", "content_filter", "context_overflow"}
_ASKS = ("ask", "join", "repair", "pause_turn", "say")  # steps that send a request


SettingsOf: TypeAlias = Callable[[Row, str], Mapping[str, Any]]


def no_settings(row: Row, session: str) -> Mapping[str, Any]:
    """Return {}: all rows have the same settings."""
    return {}


@dataclass(eq=False, kw_only=True)
class Runner:
    """An object that runs rows with one agent. `async with runner` opens the agent's provider."""

    agent: Agent[Any, Any]  # runs on each row
    ledger: Ledger
    rates: Rates = None  # requests and tokens per minute
    patience: float = PATIENCE  # seconds that a request waits for a provider that refuses requests
    retry_delay: float = 1.0  # seconds before the first retry; doubled for each further one
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the session of each row
    settings_of: SettingsOf = no_settings  # further settings for a row and its session
    deps: Any = None  # the object that tools read as `context.deps`
    cancel: Cancel | None = None  # cancels the rows
    is_stopped: Callable[[], bool] = lambda: False  # whether failed rows are not tried again
    # Errors that `run` raises. All others, such as a bug in a provider, fail their row.
    raises: tuple[type[Exception], ...] = (ConfigError, StoreError, TypeError)

    async def __aenter__(self) -> Self:
        merged = self.agent.merge(self.settings)
        self._prices = known_prices(merged.prices)
        self._opened = self.agent.open(merged.model or "")
        self._provider = metered(self._opened, self.rates, self.ledger, self.patience)
        self._policies = tuple(merged.policies or ())
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):
            await self.agent.aclose()

    async def run(
        self,
        row: Row,
        store: Store,
        budget: MapBudget,
        *,
        on_lost: Callable[[int], Awaitable[object]],
        on_event: Listener | None = None,
    ) -> tuple[MapRow, RunResult[Any] | None]:
        """Run or resume a row; return its MapRow, and the RunResult of its last run or None.

        The RunResult is None if the transcript already had the answer, or if a bug failed the row.

        Args:
            row: the row.
            store: the store with the session of the row.
            budget: the budget of the row's map.
            on_lost: awaited with the number of lost requests, if the last process lost one.
            on_event: receives the events of the runs.
        """
        try:
            if budget.balance.usd_budget is not None:
                check_price(self._opened, self._prices)
            past, history, is_final = await self._past(row, store)
            budget.add_earlier(past.usage, past.requests)
            if is_final:
                return past, None
            if row.is_lost and history and position_of(history).step in _ASKS:
                row = replace(row, lost=row.lost + 1)
                await on_lost(row.lost)
            money = RowBudget(budget, row.id, self._prices)
            return await self._with_retries(row, past, history, store, money, on_event)
        except self.raises:
            raise
        except Exception as error:
            log.warning("row %d failed", row.number, exc_info=error)
            failed = row.ended(Outcome.FAILED)
            with contextlib.suppress(Exception):  # the replies before the bug were paid for
                failed, *_ = await self._past(replace(row, is_new=False), store)
            is_plain = isinstance(error, ConfigError)
            return replace(
                failed,
                outcome=Outcome.FAILED,
                error=str(error) if is_plain else f"{type(error).__name__}: {error}",
                kind=error_kind(error),
                tries=row.tries + 1,
            ), None

    async def run_stored(
        self, row: Row, tables: Tables, on_event: Listener | None = None
    ) -> tuple[Row, MapRow]:
        """Run a claimed row, and return the row and its result. The caller stores them."""
        budget = SharedBudget(tables, row.map, row.usd_budget, row.token_budget)

        async def add_lost(lost: int) -> None:
            await finish_in_thread(tables.add_lost, row.id)

        with continued(row.trace):
            ended, result = await self.run(
                row, tables.store, budget, on_lost=add_lost, on_event=on_event
            )
        run = None if row.map or result is None else _encoded(result, ended)
        return replace(row, result=ended, run=run), ended

    async def _past(self, row: Row, store: Store) -> tuple[MapRow, tuple[Message, ...], bool]:
        """Return the present result of a row, its transcript, and whether this result is final.

        If the last run of a session failed or was cancelled and cannot be resumed, the row has a
        further session. The result has the usage and the requests of all its sessions.
        """
        name, usage, requests = row.id, NOTHING, 0
        while True:
            history: tuple[Message, ...] = ()
            if not row.is_new:
                async with store.log(name) as session:
                    history = session.messages
            found = row_from_transcript(row, name, history, self.agent.output)
            usage, requests = usage + found.usage, requests + found.requests
            found = replace(found, usage=usage, requests=requests)
            if found.outcome == Outcome.PAUSED:
                return found, history, not _decisions(row, history)
            if not history or is_resumable(history):
                return found, history, False
            if found.outcome not in OPEN:
                return found, history, True
            name += "-again"

    async def _with_retries(
        self,
        row: Row,
        past: MapRow,
        history: Sequence[Message],
        store: Store,
        money: RowBudget,
        on_event: Listener | None,
    ) -> tuple[MapRow, RunResult[Any]]:
        """Run or resume a row, with retries; return its MapRow and the RunResult of its last run.

        A retry follows a transient failure of the provider, and resumes the row again. The MapRow
        has the usage and the requests of all runs.
        """
        policies = (*self._policies, money)
        overrides = {**self.settings, **self.settings_of(row, past.session)}
        overrides |= {"model": self._provider, "policies": policies}
        session = self.agent.session(past.session, store=store, **overrides)
        options: dict[str, Any] = {"unwrap": False, "cancel": self.cancel, "on_event": on_event}
        if self.deps is not None:
            options["deps"] = self.deps
        cap = max(self.retry_delay, MAX_DELAY)
        backoff = Backoff(first=self.retry_delay, cap=cap, attempts=row.retries + 1, jitter=0)
        usage, requests, tries = past.usage, past.requests, 0
        while True:
            carried = _carried(history)
            if carried is not None:  # the run counts what it used before the pause once more
                usage, requests = difference(usage, carried[0]), requests - carried[1]
            money.begin(carried[0] if carried is not None else NOTHING)
            result: RunResult[Any] | None = None
            try:
                if is_resumable(history):
                    result = await session.resume(decisions=_decisions(row, history), **options)
                else:
                    result = await session.run(row.prompt, **options)
            finally:
                with anyio.CancelScope(shield=True):
                    await money.end(None if result is None else result.usage)
            history, tries = result.messages, tries + 1
            usage, requests = usage + result.usage, requests + result.requests
            wait = backoff.delay(tries)
            if wait is None or not _is_transient(result) or self.is_stopped():
                break
            await anyio.sleep(wait)
        error = " ".join(str(result.error or "").split())
        return row.ended(
            result.outcome.value,
            text=result.text,
            output=to_plain(result.output),
            usage=usage,
            turns=result.turns,
            requests=requests,
            seconds=round(result.seconds, 3),
            tries=row.tries + tries,
            session=past.session,
            error=waiting_text(history) if result.outcome is Outcome.PAUSED else error,
            kind=error_kind(result.error),
            notice=result.notice,
        ), result


def _is_transient(result: RunResult[Any]) -> bool:
    """Return whether a run failed with a provider error that another attempt may avoid."""
    error = result.error if result.outcome is Outcome.FAILED else None
    return isinstance(error, ProviderError) and error.kind not in FINAL


def _decisions(row: Row, messages: Sequence[Message]) -> dict[str, Any]:
    """Return, by call id, the decisions of a row on the calls that are still pending."""
    waiting = {call.id for call in pending_calls(messages)}
    return {key: each for key, each in row.decisions.items() if key in waiting}


def _carried(messages: Sequence[Message]) -> tuple[Usage, int] | None:
    """Return the usage and the requests of a paused run, or None if the run is not paused.

    The resumed run counts them too. None is also the result if the pause did not store them.
    """
    reply = last_reply(messages)
    if reply is None or position_of(messages).step != "await":
        return None
    spent = (reply.meta or {}).get(SPENT)
    return (from_json(Usage, spent["usage"]), spent["requests"]) if spent else None


def _encoded(result: RunResult[Any], row: MapRow) -> Json:
    """Encode the result of a single run without its messages, which are in the store."""
    bare = replace(
        result,
        messages=(),
        new_messages=(),
        usage=row.usage,
        requests=row.requests,
        meta=to_plain(result.meta),
    )
    return to_json(bare)


async def run_row(
    agent: Agent[Any, Any],
    store: SQLStore,
    row: Row,
    *,
    usd_budget: float | None = None,
    token_budget: int | None = None,
    rate: Rates = None,
    retries: int = 1,
    patience: float = PATIENCE,
    deps: Any = None,
) -> MapRow:
    """Run or continue a row, unless it has a final result. Store the result and return it.

        store = glue.stores.PostgresStore("postgresql://me@host/db")
        result = await run_row(agent, store, Row(id="order-17", prompt="Handle order 17"))

    Any process that can reach the store may call it: a task of Celery, an actor of Ray, an activity
    of Temporal or a function of AWS Lambda.
    If the row has a final result already, it is returned. If an earlier process died, the row
    continues from its transcript. If another process runs the row now, SessionBusy is raised. The
    budget, the rate and cooldowns are shared by all processes that use the store.

    Args:
        agent: the agent that runs on the row.
        store: a `glue.stores.PostgresStore` or a `glue.SQLiteStore`.
        row: the row.
        usd_budget: dollars for all rows of `row.map` together.
        token_budget: tokens for all rows of `row.map` together.
        rate: requests and tokens per minute, for all rows together.
        retries: how often the row is tried again after a transient failure of its provider.
        patience: seconds that a request waits for a provider that refuses requests.
        deps: the object that tools read as `context.deps`.
    """
    tables = Tables(store)
    row = replace(row, map=row.map or row.id, retries=retries)
    try:
        async with store.log(row.id):  # raises SessionBusy if another process runs the row
            pass
        before = await finish_in_thread(tables.find, row.id)
        is_lost = before is not None and before.state == "running"
        last = before.result if before is not None and not is_lost else None
        if last is not None and last.outcome not in OPEN:
            return last
        if usd_budget is not None or token_budget is not None:
            begin = (row.map, "", usd_budget, token_budget)
            await finish_in_thread(tables.begin_map, *begin)
        worker = f"run_row-{new_id()}"
        taken = await finish_in_thread(tables.take, worker, "", row, STATES) or row
        ledger = SharedLedger(tables)
        ledger.learn(await finish_in_thread(tables.cooldowns))
        runner = Runner(agent=agent, ledger=ledger, rates=rate, patience=patience, deps=deps)
        async with runner:
            row, ended = await runner.run_stored(replace(taken, is_lost=is_lost), tables)
        await finish_in_thread(partial(tables.exchange, worker, "", ended=[row]))
        return ended
    finally:
        tables.close()


run_row_sync = blocking(run_row)
