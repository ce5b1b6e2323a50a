"""`glue.map`: one agent, many inputs, each a session in a SQLite file, so that a killed map goes on where it was."""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, Self, TypeAlias

import anyio
import anyio.to_thread
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from glue.agent import Agent
from glue.context import Cancel
from glue.durable import rows
from glue.durable.rates import LocalMeter, Rates, limited
from glue.durable.rows import INVALID, OPEN, InputLine, Items, MapRow, MapState, Reader
from glue.errors import BudgetExceeded, ConfigError, ProviderError, StoreError, innermost
from glue.events import RunResult
from glue.limits import Outcome
from glue.loop.state import State
from glue.loop.transcript import needs_answer
from glue.messages import AssistantMessage, Message, Request, Usage
from glue.options import session_options
from glue.policies import Hook, Policy, Stop
from glue.policies.budgets import check_price, known_prices, unpriced
from glue.tasks import spawn

log = logging.getLogger("glue.map")

Put: TypeAlias = "Callable[[InputLine, MapRow], Awaitable[None]]"
Result: TypeAlias = tuple[InputLine, MapRow, bool]  # the flag says that it is new
_END: Any = object()
_CHECKPOINT = 500  # rows between two waits for the disk
_KEPT = 1000  # results in memory while an earlier row is awaited; the others are read again from the state
# Failures that the next row would meet too, and that a second try does not mend.
FATAL = frozenset(("auth", "quota", "not_found"))
FINAL = FATAL | {"invalid_request", "content_filter", "context_overflow"}


class Engine(Protocol):
    """What runs the rows. It reads lines as it has room for them, and puts each result once."""

    async def run(self, job: Map, lines: AsyncIterator[InputLine], put: Put) -> None: ...


class MapBudget(Policy):
    """Dollars and tokens of all rows together, those under way included: no request when they are spent."""

    place = "budgets"

    def __init__(self, usd: float | None, tokens: int | None) -> None:
        self.limit_usd, self.limit_tokens = usd, tokens
        self.usd, self.tokens = 0.0, 0
        self._live: dict[str, Usage] = {}

    def start(self) -> Self:
        return self  # one for all rows

    def settle(self, run: str, usage: Usage) -> None:
        self._live.pop(run, None)
        self.usd += usage.cost or 0.0
        self.tokens += usage.total

    def over(self) -> BudgetExceeded | None:
        live = self._live.values()
        for kind, most, used in (
            ("usd", self.limit_usd, self.usd + sum(usage.cost or 0.0 for usage in live)),
            ("tokens", self.limit_tokens, self.tokens + sum(usage.total for usage in live)),
        ):
            if most is not None and used >= most:
                return BudgetExceeded(kind, most, used)
        return None

    def before_request(self, state: State, request: Request) -> Hook:
        error = self.over()
        return None if error is None else Stop(Outcome.BUDGET, error)

    def on_reply(self, state: State, reply: AssistantMessage) -> Hook:
        self._live[state.host.run_id] = state.usage
        if self.limit_usd is None or state.usage.cost is not None:
            return None
        return Stop(Outcome.FAILED, unpriced(reply.model or reply.provider))


class Map:
    """Run an agent on every input, `concurrency` at once: `async for row in glue.map(agent, prompts)`.

    An input is a prompt, or a mapping with "prompt" or with the fields that `template` names. With a
    `state` file, `resume` goes on after anything: what has ended is given again, what was under way
    goes on from its transcript. `overrides` are those of a session: model, limits, tools, ...
    """

    state: MapState  # from the first row on

    def __init__(
        self,
        agent: Agent[Any, Any],
        inputs: Items,
        *,
        concurrency: int = 8,
        template: str = "",
        state: str | os.PathLike[str] | None = None,
        resume: bool = False,
        ordered: bool = True,
        retries: int = 1,
        retry_delay: float = 1.0,
        usd_budget: float | None = None,
        token_budget: int | None = None,
        rate: Rates = None,
        reader: Reader | None = None,
        engine: Engine | None = None,
        deps: Any = None,
        **overrides: Any,
    ) -> None:
        if concurrency < 1:
            raise ValueError(f"concurrency must be 1 or more, not {concurrency}")
        for name, value in (("retries", retries), ("usd_budget", usd_budget), ("token_budget", token_budget)):
            if value is not None and value < 0:
                raise ValueError(f"{name} must be 0 or more, not {value}")
        if resume and state is None:
            raise ValueError("resume needs the state file of the map to go on with")
        self.agent, self.inputs, self.deps, self.overrides = agent, inputs, deps, overrides
        self.resume, self.ordered, self.rate = resume, ordered, rate
        self.reader = reader or Reader(template=template)
        self.engine = engine or EmbeddedEngine(concurrency, retries, retry_delay)
        self.budget = MapBudget(usd_budget, token_budget)
        self.outcomes: Counter[str] = Counter()  # of the rows that were given out
        self.reused = 0  # of these, those that had ended before
        self.unfinished = False  # some inputs were not run, for want of money or time
        self.cancel = Cancel()
        self.error: BaseException | None = None  # why no more rows are started; raised at the end
        self._path = state  # None is a file that ends with the map
        self._rows: AsyncGenerator[MapRow, None] | None = None
        self._given: deque[int] = deque()  # started and not given out, in order
        self._ready: dict[int, MapRow | None] = {}

    @property
    def stopped(self) -> bool:
        """Whether no more rows are to be started."""
        return self.error is not None or self.cancel.cancelled

    def stop(self) -> None:
        """End what is under way, start nothing more; the iteration ends when the rows have."""
        self.cancel.cancel()

    def fail(self, error: Exception) -> None:
        """Start nothing more, and raise this at the end."""
        self.error = self.error or error

    def __aiter__(self) -> AsyncIterator[MapRow]:
        if self._rows is not None:
            raise RuntimeError("a map is read once")
        self._rows = self._iterate()
        return self._rows

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._rows is not None:
            await self._rows.aclose()

    # The rows are run by a task of their own: a generator must not yield inside a task group.

    async def _iterate(self) -> AsyncGenerator[MapRow, None]:
        send, receive = anyio.create_memory_object_stream[MapRow](16)
        scope, ended = anyio.CancelScope(), anyio.Event()

        async def host() -> None:
            try:
                with scope, send, contextlib.ExitStack() as stack:
                    path = self._path
                    if path is None:
                        path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="glue-map-"))) / "state.db"
                    self.state = MapState(path)
                    await anyio.to_thread.run_sync(stack.enter_context, self.state.opened(resume=self.resume))
                    await self._host(send)
            except Exception as error:
                self.error = innermost(error)  # a full disk stops all workers at once; the first error wins
            finally:
                ended.set()

        spawn(host)
        try:
            async for row in receive:
                self.outcomes[row.outcome] += 1
                yield row
        finally:
            scope.cancel()
            receive.close()
            with anyio.CancelScope(shield=True):
                await ended.wait()
        if self.error is not None:
            raise self.error

    async def _host(self, out: MemoryObjectSendStream[MapRow]) -> None:
        self.budget.usd, self.budget.tokens = self.state.spent()
        send, receive = anyio.create_memory_object_stream[Result](64)

        async def put(line: InputLine, row: MapRow) -> None:
            await send.send((line, row, True))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._record, receive, out)
            with send:
                async with contextlib.aclosing(self._lines(send)) as lines:
                    await self.engine.run(self, lines, put)

    async def _lines(self, send: MemoryObjectSendStream[Result]) -> AsyncGenerator[InputLine, None]:
        """Give the lines that are to be run; the results of the others are passed on as they stand."""
        source = self.inputs
        items = source.__aiter__() if isinstance(source, AsyncIterable) else iter(source)
        number = 0
        try:
            while True:
                item: Any = await anext(items, _END) if isinstance(items, AsyncIterator) else next(items, _END)
                if item is _END:
                    return
                number += 1
                line = rows.numbered(number, item)
                self._given.append(line.number)
                finished = self.state.finished(line) if self.resume else None
                if finished is None:
                    yield line
                else:
                    self.reused += 1
                    await send.send((line, finished, False))
        finally:
            if (close := getattr(items, "aclose", None)) is not None:
                await close()

    async def _record(self, receive: MemoryObjectReceiveStream[Result], out: MemoryObjectSendStream[MapRow]) -> None:
        """Keep results before anybody sees them, as many with one commit as there are."""
        kept = 0
        with receive:
            async for first in receive:
                batch = [first]
                with contextlib.suppress(anyio.WouldBlock, anyio.EndOfStream):
                    while len(batch) < 256:
                        batch.append(receive.receive_nowait())
                if new := [(line, row) for line, row, is_new in batch if is_new]:
                    self.state.put(new)
                    kept += len(new)
                if kept >= _CHECKPOINT:
                    kept = 0
                    await anyio.to_thread.run_sync(self.state.checkpoint)
                for _, row, _ in batch:
                    await self._give(row, out)

    async def _give(self, row: MapRow, out: MemoryObjectSendStream[MapRow]) -> None:
        if not self.ordered:
            self._given.clear()
            return await out.send(row)
        self._ready[row.number] = row if len(self._ready) < _KEPT else None
        while self._given and self._given[0] in self._ready:
            number = self._given.popleft()
            ready = self._ready.pop(number)
            if ready is None:
                found = self.state.get(number)
                ready = found[1] if found is not None else row
            await out.send(ready)
        return None


class EmbeddedEngine:
    """Runs rows in this process."""

    def __init__(self, concurrency: int, retries: int, retry_delay: float) -> None:
        self.concurrency, self.retries, self.retry_delay = concurrency, retries, retry_delay

    async def run(self, job: Map, lines: AsyncIterator[InputLine], put: Put) -> None:
        settings = job.agent.layer(session_options(job.overrides))
        provider = job.agent.open(settings.model or "")
        if job.budget.limit_usd is not None:
            check_price(provider, known_prices(settings.prices))
        overrides = {
            **job.overrides,
            "model": limited(provider, job.rate, LocalMeter()),
            "policies": (*(settings.policies or ()), job.budget),
        }
        turn = anyio.Lock()

        async def work() -> None:
            while True:
                async with turn:  # one reader at a time
                    line = await anext(lines, None) if not job.unfinished else None
                    if line is not None and (job.stopped or job.budget.over() is not None):
                        job.unfinished = True
                if line is None or job.unfinished:
                    return
                await put(line, await self._row(job, line, overrides))

        try:
            async with anyio.create_task_group() as workers:
                for _ in range(self.concurrency):
                    workers.start_soon(work)
        finally:
            with anyio.CancelScope(shield=True):
                await job.agent.aclose()

    async def _row(self, job: Map, line: InputLine, overrides: Mapping[str, Any]) -> MapRow:
        try:
            key, prompt = job.reader.read(line)
        except ValueError as error:
            return MapRow(number=line.number, outcome=INVALID, error=f"line {line.number}: {error}")
        name, earlier = f"row-{line.number}", Usage(cost=0.0)
        history = await _history(job.state, name) if job.resume else ()
        while history and not needs_answer(history):
            ended = rows.row_from_transcript(line, key, history, name, job.agent.output)
            if ended.outcome not in OPEN:
                job.budget.settle("", earlier + ended.usage)
                return replace(ended, usage=earlier + ended.usage)
            earlier += ended.usage  # cancelled, say, in the middle of a reply: what was paid is paid
            name += "-again"
            history = await _history(job.state, name)
        earlier += rows.spent(history)
        job.budget.settle("", earlier)
        options: dict[str, Any] = {"unwrap": False, "cancel": job.cancel}
        if job.deps is not None:
            options["deps"] = job.deps

        async def run(before: RunResult[Any] | None) -> RunResult[Any]:
            session = job.agent.session(name, store=job.state.store, **overrides)
            said = history if before is None else before.messages
            again = bool(said) and needs_answer(said)
            result = await (session.resume(**options) if again else session.prompt(prompt, **options))
            job.budget.settle(result.run_id, result.usage)
            error = result.error  # a model without a price, say, or a key that is refused
            if isinstance(error, ConfigError) or (isinstance(error, ProviderError) and error.kind in FATAL):
                job.fail(error)
            return result

        try:
            result, tries = await run_row(
                run,
                retries=lambda: 0 if job.stopped else self.retries,
                sleep=lambda seconds: anyio.sleep(self.retry_delay * seconds),
            )
        except (ConfigError, StoreError, TypeError):  # the next row would meet them too
            raise
        except Exception as bug:
            log.warning("row %d failed", line.number, exc_info=True)
            return MapRow(number=line.number, id=key, outcome=Outcome.FAILED, error=f"{type(bug).__name__}: {bug}")
        return rows.finished_row(line, key, result, earlier=earlier, tries=tries, session=name)


async def run_row(
    run: Callable[[RunResult[Any] | None], Awaitable[RunResult[Any]]],
    *,
    retries: Callable[[], int],
    sleep: Callable[[float], Awaitable[object]],
) -> tuple[RunResult[Any], int]:
    """Run, and go on from the result where the failure of a provider may pass; what was spent is added up."""
    result, tries = await run(None), 1
    while result.outcome is Outcome.FAILED and isinstance(result.error, ProviderError):
        if result.error.kind in FINAL or tries > retries():
            break
        await sleep(2.0 ** (tries - 1))
        before, tries = result, tries + 1
        result = await run(before)
        result = replace(result, usage=before.usage + result.usage, requests=before.requests + result.requests)
    return result, tries


async def _history(state: MapState, name: str) -> tuple[Message, ...]:
    async with state.store.log(name) as session:
        return session.messages


map = Map  # noqa: A001 # `glue.map(agent, inputs)` says what it does
