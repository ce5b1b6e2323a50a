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

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import anyio

from glue.backoff import Backoff
from glue.codec import from_json, to_plain
from glue.context import Cancel
from glue.durable.ledger import (
    NOTHING,
    PATIENCE,
    Accounts,
    Ledger,
    Rates,
    RowBudget,
    difference,
    metered,
)
from glue.durable.rows import OPEN, InputLine, MapRow, error_kind, row_from_transcript, spent
from glue.durable.shared import MapAccounts, SharedLedger
from glue.durable.tables import STATES, EndedRow, RowRecord, Tables
from glue.errors import ConfigError, ProviderError, StoreError
from glue.events import Listener
from glue.limits import Outcome
from glue.loop.position import is_resumable, position_of
from glue.loop.transcript import last_reply
from glue.messages import AssistantMessage, Json, Message, Usage, messages_to_json, new_id
from glue.pending import SPENT, Decisions, is_paused, pending_calls
from glue.policies import Policy
from glue.policies.budgets import check_price, known_prices
from glue.result import RunResult
from glue.settings import Prompt, prompt_messages
from glue.signature import blocking
from glue.stores.sql import SQLStore
from glue.stores.store import Store
from glue.tasks import finish_in_thread

if TYPE_CHECKING:
    from glue.agent import Agent

log = logging.getLogger("glue.map")

MAX_DELAY = 60.0  # seconds between two attempts at a row, unless `retry_delay` is longer
# Errors that every other row would get too; "config" is a mistake of the user.
FATAL = frozenset(("auth", "quota", "not_found", "config"))
# Errors that another attempt at the same row would get too.
FINAL = FATAL | {"invalid_request", "content_filter", "context_overflow"}
_ASKS = ("ask", "join", "repair", "pause_turn", "say")  # steps that send a request


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row to run.

    >>> Row(id="order-17", prompt="Handle order 17", map="orders").number
    1
    """

    id: str  # of the row and of its session
    prompt: Prompt
    map: str = ""  # rows of the same map share a budget
    number: int = 1
    key: Json = None  # copied to the result as `id`
    is_new: bool = False  # there is no transcript of the row
    is_lost: bool = False  # the process that ran the row died
    lost: int = 0  # requests that were lost before
    tries: int = 0  # earlier tries
    decisions: Decisions = field(default_factory=dict)  # on pending calls


SettingsOf: TypeAlias = Callable[[Row, str], Mapping[str, Any]]


def no_settings(row: Row, session: str) -> Mapping[str, Any]:
    """Return {}: all rows have the same settings."""
    return {}


@dataclass(eq=False, kw_only=True)
class Runner:
    """The settings with which rows are run. Enter it to open the provider.

    Args:
        agent: the agent that runs on each row.
        ledger: the rate limits and cooldowns of the rows.
        rates: requests and tokens per minute.
        patience: seconds that a request waits for a provider that refuses requests.
        retries: how often a row is tried again after a transient failure of its provider.
        retry_delay: seconds before the first retry; doubled for each further one.
        settings: settings of the session of each row.
        settings_of: returns further settings for a row and the name of its session.
        deps: the object that tools read as `context.deps`.
        cancel: cancels the rows.
        is_stopped: returns True if a failed row shall not be tried again.
    """

    agent: Agent[Any, Any]
    ledger: Ledger
    rates: Rates = None
    patience: float = PATIENCE
    retries: int = 1
    retry_delay: float = 1.0
    settings: Mapping[str, Any] = field(default_factory=dict)
    settings_of: SettingsOf = no_settings
    deps: Any = None
    cancel: Cancel | None = None
    is_stopped: Callable[[], bool] = lambda: False

    async def __aenter__(self) -> Self:
        merged = self.agent.merge(self.settings)
        self._prices = known_prices(merged.prices)
        self._opened = self.agent.open(merged.model or "")
        self._provider = metered(self._opened, self.rates, self.ledger, self.patience)
        self._policies: tuple[Policy, ...] = tuple(merged.policies or ())
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):
            await self.agent.aclose()

    def check_price(self) -> None:
        """Raise ConfigError if the model's price is unknown, so a dollar budget cannot be kept."""
        check_price(self._opened, self._prices)

    async def run(
        self,
        row: Row,
        store: Store,
        accounts: Accounts,
        *,
        retries: int | None = None,
        on_event: Listener | None = None,
        on_lost: Callable[[int], Awaitable[object]] | None = None,
    ) -> tuple[MapRow, RunResult[Any] | None]:
        """Run a row to its end, and return it with the result of its last run.

        The result is None if the transcript already had the answer.

        Args:
            row: the row.
            store: the store with the session of the row.
            accounts: the budget of the row's map.
            retries: instead of that of the runner.
            on_event: receives the events of the runs.
            on_lost: awaited with the number of lost requests, if the last process lost one.
        """
        past = await self._past(row, store)
        if past.ended is not None:
            accounts.add_earlier(past.ended.usage)
            return past.ended, None
        accounts.add_earlier(past.usage)
        lost = row.lost
        if row.is_lost and past.history and position_of(past.history).step in _ASKS:
            lost += 1
            if on_lost is not None:
                await on_lost(lost)
        budget = RowBudget(accounts, row.id, self._prices)
        overrides = {
            **self.settings,
            **self.settings_of(row, past.name),
            "model": self._provider,
            "policies": (*self._policies, budget),
        }
        options: dict[str, Any] = {"unwrap": False, "cancel": self.cancel, "on_event": on_event}
        if self.deps is not None:
            options["deps"] = self.deps

        async def run(before: RunResult[Any] | None) -> RunResult[Any]:
            session = self.agent.session(past.name, store=store, **overrides)
            messages = past.history if before is None else before.messages
            carried = _carried(messages)
            budget.begin(carried)
            result: RunResult[Any] | None = None
            try:
                if messages and is_resumable(messages):
                    decisions = _decisions(row, messages) if before is None else None
                    result = await session.resume(decisions=decisions, **options)
                else:
                    result = await session.run(row.prompt, **options)
                return result
            finally:
                with anyio.CancelScope(shield=True):
                    await budget.end(None if result is None else result.usage)

        result, tries = await self._with_retries(run, self.retries if retries is None else retries)
        carried = _carried(past.history)
        return MapRow(
            number=row.number,
            id=row.key,
            outcome=result.outcome.value,
            text=result.text,
            output=to_plain(result.output),
            usage=_without(past.usage, carried) + result.usage,
            turns=result.turns,
            requests=past.requests + result.requests,
            seconds=round(result.seconds, 3),
            tries=row.tries + tries,
            session=past.name,
            error=" ".join(str(result.error).split()) if result.error is not None else "",
            kind=error_kind(result.error),
            notice=result.notice,
            lost=lost,
        ), result

    async def _past(self, row: Row, store: Store) -> _Past:
        """Return the transcript, usage and result that earlier processes stored for a row."""
        name, usage, requests = row.id, NOTHING, 0
        history = () if row.is_new else await _history(store, name)
        line = InputLine(number=row.number, text="")
        while history and not is_resumable(history):
            ended = row_from_transcript(line, row.key, history, name, self.agent.output)
            if ended.outcome not in OPEN:
                ended = replace(
                    ended, usage=usage + ended.usage, lost=row.lost, tries=row.tries or 1
                )
                return _Past(name=name, history=history, ended=ended)
            # That run failed or was cancelled and cannot be resumed, so a new session is used.
            usage, requests = usage + ended.usage, requests + ended.requests
            name += "-again"
            history = await _history(store, name)
        usage += spent(history)
        requests += _replies(history)
        waiting = pending_calls(history)
        if is_paused(history) and not _decisions(row, history):
            paused = MapRow(
                number=row.number,
                id=row.key,
                outcome=Outcome.PAUSED,
                usage=usage,
                requests=requests,
                tries=row.tries or 1,
                session=name,
                error=f"waits for {', '.join(call.summary for call in waiting)}",
                lost=row.lost,
            )
            return _Past(name=name, history=history, ended=paused)
        if _carried(history) is not NOTHING:
            requests = 0  # the resumed run counts them
        return _Past(name=name, history=history, usage=usage, requests=requests)

    async def _with_retries(
        self, run: Callable[[RunResult[Any] | None], Awaitable[RunResult[Any]]], retries: int
    ) -> tuple[RunResult[Any], int]:
        """Run a row with retries; return the result and the number of attempts.

        A retry resumes the row after a transient failure of its provider. The result is that of the
        last attempt, with the usage and requests of all attempts.
        """
        delay = max(self.retry_delay, MAX_DELAY)
        backoff = Backoff(first=self.retry_delay, cap=delay, attempts=retries + 1, jitter=0)
        result, tries = await run(None), 1
        while result.outcome is Outcome.FAILED and isinstance(result.error, ProviderError):
            wait = backoff.delay(tries)
            if wait is None or result.error.kind in FINAL or self.is_stopped():
                break
            await anyio.sleep(wait)
            before, tries = result, tries + 1
            result = await run(before)
            requests = before.requests + result.requests
            result = replace(result, usage=before.usage + result.usage, requests=requests)
        return result, tries


@dataclass(frozen=True, slots=True, kw_only=True)
class _Past:
    """The earlier tries of a row: the transcript, the usage, and the result or None."""

    name: str  # of the session
    history: tuple[Message, ...]
    usage: Usage = NOTHING
    requests: int = 0
    ended: MapRow | None = None


async def _history(store: Store, name: str) -> tuple[Message, ...]:
    async with store.log(name) as session:
        return session.messages


def _decisions(row: Row, messages: Iterable[Message]) -> dict[str, Any]:
    """Return the decisions of a row, without those on calls that do not wait any more."""
    waiting = {call.id for call in pending_calls(tuple(messages))}
    return {key: each for key, each in row.decisions.items() if key in waiting}


def _replies(messages: Iterable[Message]) -> int:
    return sum(isinstance(message, AssistantMessage) for message in messages)


def _carried(messages: Iterable[Message]) -> Usage:
    """Return the usage so far of a paused run, which its resumed run includes; else zero."""
    messages = tuple(messages)
    if not messages or position_of(messages).step != "await":
        return NOTHING
    reply = last_reply(messages)
    record = ((reply.meta if reply is not None else None) or {}).get(SPENT)
    return from_json(Usage, record["usage"]) if record else NOTHING


def _without(usage: Usage, carried: Usage) -> Usage:
    return difference(usage, carried) if carried is not NOTHING else usage


def failed_row(row: Row, error: Exception) -> MapRow:
    """Return the row of a run that raised an error, such as a bug in a provider."""
    log.warning("row %d failed", row.number, exc_info=error)
    is_plain = isinstance(error, ConfigError)
    return MapRow(
        number=row.number,
        id=row.key,
        outcome=Outcome.FAILED,
        error=str(error) if is_plain else f"{type(error).__name__}: {error}",
        kind=error_kind(error),
        tries=row.tries + 1,
        session=row.id,
        lost=row.lost,
    )


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
    """Run or continue a row and return its result, in any process that can reach the store.

        store = glue.stores.PostgresStore("postgresql://me@host/db")
        result = await run_row(agent, store, Row(id="order-17", prompt="Handle order 17"))

    A task of Celery, an actor of Ray, an activity of Temporal or a function of AWS Lambda calls it.
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
    try:
        async with store.log(row.id):  # raises SessionBusy if another process runs the row
            pass
        found = await finish_in_thread(tables.find, row.id)
        state, record = found or ("", None)
        last = MapRow.from_json(record.result) if record is not None and record.result else None
        if last is not None and last.outcome not in OPEN and state != "running":
            return last
        if usd_budget is not None or token_budget is not None:
            begin = (row.map, "", usd_budget, token_budget)
            await finish_in_thread(tables.begin_map, *begin)
        prompt = messages_to_json(prompt_messages(row.prompt))
        wanted = RowRecord(id=row.id, map=row.map, number=row.number, task={"prompt": prompt})
        worker = f"run_row-{new_id()}"
        claim = await finish_in_thread(tables.take, worker, "", wanted, STATES)
        row = replace(
            row,
            is_lost=state == "running",
            lost=record.lost if record is not None else 0,
            tries=last.tries if last is not None else 0,
        )
        ledger = SharedLedger(tables)
        ledger.learn(await finish_in_thread(tables.cooldowns))
        accounts = MapAccounts(tables, row.map, usd_budget, token_budget)
        runner = Runner(
            agent=agent, ledger=ledger, rates=rate, patience=patience, retries=retries, deps=deps
        )

        async with runner:
            if usd_budget is not None:
                runner.check_price()
            try:
                ended, _ = await runner.run(
                    row,
                    store,
                    accounts,
                    on_lost=lambda _: finish_in_thread(tables.add_lost, row.id),
                )
            except (ConfigError, StoreError, TypeError):
                raise
            except Exception as error:
                ended = failed_row(row, error)
        await finish_in_thread(_store, tables, worker, row, claim, ended)
        return ended
    finally:
        tables.close()


run_row_sync = blocking(run_row)


def _store(tables: Tables, worker: str, row: Row, claim: str, ended: MapRow) -> None:
    result = EndedRow(
        id=row.id, claim=claim, outcome=ended.outcome, cost=ended.cost, result=ended.to_json()
    )
    tables.exchange(worker, "", ended=[result])
