"""`glue.map`: one agent on many inputs, with results in a SQLite file.

Each input has a session in the file, so that a map that was killed can be resumed.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import Counter, deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
)
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, Self, TypeAlias, cast

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from glue.checks import check_flag, check_number, check_path, check_text, show
from glue.context import AnyTool, Cancel
from glue.durable import rows
from glue.durable.ledger import PATIENCE, Ledger, MapBudget, Rate, Rates
from glue.durable.rows import LOST, InputLine, Items, MapRow, MapState, Reader, Row
from glue.durable.runner import FATAL, Runner, SettingsOf, no_settings
from glue.errors import ConfigError, ErrorKind, ProviderError, innermost
from glue.function.hooks import ToolHook
from glue.limits import LimitsSource, Outcome
from glue.messages import Effort, Json
from glue.permission import Permission
from glue.policies import Policy
from glue.settings import Instructions, Model, checked
from glue.signature import hinted
from glue.tasks import finish_in_thread, spawn

if TYPE_CHECKING:
    from glue.agent import Agent
    from glue.telemetry import OpenTelemetry

Put: TypeAlias = "Callable[[InputLine, MapRow], Awaitable[None]]"
Result: TypeAlias = tuple[InputLine | None, MapRow]  # None if the row is stored already
_CHECKPOINT = 500  # rows between two checkpoints of the state file
_BATCH = 256  # results that are stored with one commit, at most


class Engine(Protocol):
    """The protocol of engines. An engine runs the rows of a map, in this process or on a queue."""

    async def run(self, job: MapRun, lines: AsyncIterator[InputLine], put: Put) -> None:
        """Run the lines of the input as rows, and await `put(line, row)` once for each result.

        Read a line only when it can be started, because the input may be endless.
        """


@dataclass(eq=False, kw_only=True)
class MapRun:
    """The async iterator of `glue.map`. Reading it, only once, runs the rows and yields results.

    `stop()` ends the map early. The arguments are those of `glue.map`, which checks them.
    """

    agent: Agent[Any, Any]
    inputs: Items
    reader: Reader
    engine: Engine
    settings: Mapping[str, Any]  # of the session of each row
    deps: Any
    rate: Rates
    path: str | os.PathLike[str] | None  # of the state; None means a temporary file
    resume: bool
    overwrite: bool
    ordered: bool
    retries: int
    budget: MapBudget

    def __post_init__(self) -> None:
        self.state: MapState  # set when the first row is read
        self.ledger = Ledger()  # of the rows that run in this process
        self.outcomes: Counter[str] = Counter()  # how many rows were returned, by outcome
        self.reused = 0  # returned rows that an earlier map had finished
        self.over_budget = False  # the budget allows no further request
        self.unfinished = False  # some rows were not run: the budget was spent or the map stopped
        self.cancel = Cancel()
        self.error: BaseException | None = None  # if set, no more rows start; raised at the end
        self._rows: AsyncGenerator[MapRow, None] | None = None
        self._pending: deque[int] = deque()  # numbers of rows not returned yet, in order
        self._ready: set[int] = set()  # numbers of stored rows whose turn has not come

    @property
    def stopped(self) -> bool:
        """True if the map starts no more rows."""
        return self.error is not None or self.cancel.cancelled

    def stop(self) -> None:
        """Cancel the running rows and start no others.

        The iteration ends when the cancelled rows have ended.
        """
        self.cancel.cancel()

    def check(self, row: MapRow) -> None:
        """Stop the map if a row failed with an error that would fail all rows, such as a wrong key.

        No more rows start. When the running rows have ended, the map raises the first such error.
        """
        if row.outcome == Outcome.FAILED and row.kind in FATAL and self.error is None:
            self.error = ConfigError(row.error)
            if row.kind != "config":
                self.error = ProviderError(row.error, kind=cast(ErrorKind, row.kind))

    def __await__(self) -> NoReturn:
        raise TypeError("a map is not awaited: read its rows with `async for row in glue.map(...)`")

    def __iter__(self) -> NoReturn:
        raise TypeError("read the rows of a map with `async for`, in an async function")

    def __aiter__(self) -> AsyncIterator[MapRow]:
        if self._rows is not None:
            raise RuntimeError("a map can be iterated only once; call glue.map again")
        self._rows = self._iterate()
        return self._rows

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._rows is not None:
            await self._rows.aclose()

    # A generator must not yield inside a task group. Therefore a separate task runs the rows.

    async def _iterate(self) -> AsyncGenerator[MapRow, None]:
        send, receive = anyio.create_memory_object_stream[MapRow](16)
        scope, ended = anyio.CancelScope(), anyio.Event()

        async def host() -> None:
            try:
                with scope, send, contextlib.ExitStack() as stack:
                    path = self.path
                    if path is None:
                        folder = tempfile.TemporaryDirectory(prefix="glue-map-")
                        path = Path(stack.enter_context(folder)) / "state.db"
                    self.state = MapState(path)
                    state = self.state.opened(resume=self.resume, overwrite=self.overwrite)
                    await finish_in_thread(stack.enter_context, state)
                    await self._host(send)
            except Exception as error:
                self.error = innermost(error)  # the first of a group, such as of a full disk
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
        if self.budget.is_limited:
            self.budget.add_earlier(*self.state.spent())
        send, receive = anyio.create_memory_object_stream[Result](64)

        async def put(line: InputLine, row: MapRow) -> None:
            await send.send((line, row))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._record, receive, out)
            with send:
                async with contextlib.aclosing(self._lines(send)) as lines:
                    await self.engine.run(self, lines, put)

    async def _lines(self, send: MemoryObjectSendStream[Result]) -> AsyncGenerator[InputLine, None]:
        """Yield the input lines to run. If `resume`, send the results of finished rows to `send`.

        The lines of finished rows are not yielded then.
        """
        given = self.inputs
        items: Any = aiter(given if isinstance(given, AsyncIterable) else _async(given))
        number = 0
        try:
            async for item in items:
                number += 1
                line = rows.numbered(number, item)
                self._pending.append(line.number)
                finished = self.state.finished(line) if self.resume else None
                if finished is None:
                    yield line
                else:
                    self.reused += 1
                    await send.send((None, finished))
        finally:
            if hasattr(items, "aclose"):
                await items.aclose()

    async def _record(
        self, receive: MemoryObjectReceiveStream[Result], out: MemoryObjectSendStream[MapRow]
    ) -> None:
        """Store new results, one commit for each batch, and then send all results to the caller."""
        stored = 0
        with receive:
            async for first in receive:
                batch = [first]
                with contextlib.suppress(anyio.WouldBlock, anyio.EndOfStream):
                    while len(batch) < _BATCH:
                        batch.append(receive.receive_nowait())
                new = [(line, row) for line, row in batch if line is not None]
                if new:
                    self.state.put(new)
                    stored += len(new)
                if stored >= _CHECKPOINT:
                    stored = 0
                    await self.state.checkpoint()
                for _, row in batch:
                    await self._send_in_order(row, out)

    async def _send_in_order(self, row: MapRow, out: MemoryObjectSendStream[MapRow]) -> None:
        """Send `row` and later rows that waited for it, or keep `row` until earlier rows are sent.

        If the map is not `ordered`, send `row` at once.
        """
        if not self.ordered:
            self._pending.clear()
            await out.send(row)
            return
        self._ready.add(row.number)
        while self._pending and self._pending[0] in self._ready:
            number = self._pending.popleft()
            self._ready.remove(number)
            # Rows that waited are read again, so that they take no memory.
            found = self.state.get(number) if number != row.number else None
            await out.send(found[1] if found is not None else row)


async def _async(items: Iterable[Any]) -> AsyncGenerator[Any, None]:
    for item in items:
        yield item


@dataclass(eq=False, kw_only=True)
class EmbeddedEngine:
    """An engine that runs the rows of a map in this process."""

    concurrency: int = 8
    retry_delay: float = 1.0
    patience: float = PATIENCE
    settings_of: SettingsOf = no_settings  # further settings for a row and its session

    async def run(self, job: MapRun, lines: AsyncIterator[InputLine], put: Put) -> None:
        runner = Runner(
            agent=job.agent,
            ledger=job.ledger,
            rates=job.rate,
            patience=self.patience,
            retry_delay=self.retry_delay,
            settings=job.settings,
            settings_of=self.settings_of,
            deps=job.deps,
            cancel=job.cancel,
            is_stopped=lambda: job.stopped,
        )
        reading = anyio.Lock()  # several tasks must not advance one generator

        async def work() -> None:
            while True:
                async with reading:
                    line = await anext(lines, None) if not job.unfinished else None
                    job.over_budget = job.over_budget or job.budget.balance.over() is not None
                    if line is not None and (job.stopped or job.over_budget):
                        job.unfinished = True
                if line is None or job.unfinished:
                    return
                await put(line, await self._row(job, runner, line))

        async with runner, anyio.create_task_group() as workers:
            for _ in range(self.concurrency):
                workers.start_soon(work)

    async def _row(self, job: MapRun, runner: Runner, line: InputLine) -> MapRow:
        try:
            key, prompt = job.reader.read(line)
        except ValueError as error:
            return rows.invalid_row(line, error)
        _, last = (job.state.get(line.number) if job.resume else None) or ("", None)
        row = Row(
            id=f"row-{line.number}",
            prompt=prompt,
            number=line.number,
            key=key,
            retries=job.retries,
            is_new=not job.resume,
            is_lost=job.resume and (last is None or last.outcome == LOST),
            lost=last.lost if last is not None else 0,
            result=last,
        )

        async def note(lost: int) -> None:
            job.state.put([(line, row.ended(LOST, lost=lost))])

        ended, _ = await runner.run(row, job.state.store, job.budget, on_lost=note)
        job.check(ended)
        return ended


@hinted
def map(  # noqa: A001 # called as `glue.map(agent, inputs)`, like the built-in map
    agent: Agent[Any, Any],
    inputs: Items,
    *,
    concurrency: int | None = None,
    template: str = "",
    state: str | os.PathLike[str] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    ordered: bool = True,
    retries: int = 1,
    retry_delay: float | None = None,
    usd_budget: float | None = None,
    token_budget: int | None = None,
    rate: Rates = None,
    patience: float | None = None,
    reader: Reader | None = None,
    engine: Engine | None = None,
    deps: Any = None,
    model: Model | None = None,
    instructions: Instructions | None = None,
    role: str | None = None,
    tools: Iterable[AnyTool] | None = None,
    limits: LimitsSource | None = None,
    permission: Permission | None = None,
    hooks: Iterable[ToolHook] | None = None,
    policies: Iterable[Policy] | None = None,
    max_tokens: int | None = None,
    temperature: float | None = None,
    reasoning: Effort | None = None,
    cache: bool | None = None,
    options: Mapping[str, Json] | None = None,
    prices: Mapping[str, tuple[float, float]] | None = None,
    telemetry: bool | OpenTelemetry | None = None,
) -> MapRun:
    """Return an async iterator of rows. Reading it runs an agent on each input, several at once.

        async for row in glue.map(agent, ["Weather in Oslo?", "Weather in Rome?"], concurrency=4):
            print(row.text, row.cost)

    Args:
        agent: The agent that runs on each input.
        inputs: Prompts, or mappings with "prompt" or with the fields that `template` names.
        concurrency: The number of rows that run at the same time, 8 by default.
        template: The prompt of a row, with a field of its mapping in braces: "Sum up {text}".
        state: The file for the results and transcripts of rows; if None, a temporary file.
        resume: Continue the map of the `state` file, if there is one: finished rows are returned
            again, and rows that failed or were interrupted continue from their transcript.
        overwrite: Delete an existing `state` file and start again.
        ordered: If False, rows are returned as they finish.
        retries: How often a row is tried again after a transient failure of its provider.
        retry_delay: Seconds before the first retry, 1 by default; doubled for each further one.
        usd_budget: Dollars for all rows together. The expected cost of each request is reserved
            before it is sent.
        token_budget: Tokens for all rows together.
        rate: Requests and tokens per minute, for all rows together.
        patience: Seconds that a request waits for a provider that refuses requests (HTTP 429), 600
            by default. All rows wait together, and waiting is not an attempt.
        reader: Reads an input as a prompt, instead of `template`.
        engine: Runs the rows elsewhere, such as on a queue; if None, in this process. It decides on
            `concurrency`, `retry_delay` and `patience`.
        deps: The object that tools read as `context.deps`.
        model: The name of a model, or a provider object.
        instructions: The system prompt: a text, or a prompt of a catalog.
        role: A name in the agent's `roles`; sets the instructions and perhaps the model.
        tools: Functions that the model may call, each made by `glue.tool`.
        limits: Turns, requests, tokens, dollars and seconds of one run.
        permission: Decides whether tools that need permission may run; None denies them.
        hooks: Functions called before and after each tool call.
        policies: Objects that may change requests, add messages or stop the run.
        max_tokens: The largest number of tokens in one reply.
        temperature: Sampling temperature; None leaves it to the model.
        reasoning: How much the model thinks: "none", "low", "medium", "high", ...
        cache: True requests prompt caching, if the provider does not cache by itself.
        options: Provider-specific fields, merged into the body of each request.
        prices: USD per million input and output tokens, by model: {"my-model": (0.5, 1.5)}.
        telemetry: True, or a `glue.telemetry.OpenTelemetry`, traces the run.
    """
    settings = checked(locals())
    if not callable(getattr(agent, "merge", None)):
        raise TypeError(f"agent must be a glue.Agent, not {show(agent)}")
    if isinstance(inputs, (str, Mapping)) or not isinstance(inputs, (Iterable, AsyncIterable)):
        example = "['Weather in Oslo?']"
        raise TypeError(f"inputs must be a list of prompts, such as {example}, not {show(inputs)}")
    check_number("retries", retries, whole=True)
    if concurrency is not None:
        check_number("concurrency", concurrency, least=1, whole=True)
    if token_budget is not None:
        check_number("token_budget", token_budget, whole=True)
    numbers = {"usd_budget": usd_budget, "retry_delay": retry_delay, "patience": patience}
    for name, value in numbers.items():
        if value is not None:
            check_number(name, value)
    check_text("template", template)
    check_flag("resume", resume)
    check_flag("overwrite", overwrite)
    check_flag("ordered", ordered)
    if state is not None:
        check_path("state", state, "map.db")
    if rate is not None and not isinstance(rate, (Rate, Mapping)):
        example = "glue.durable.Rate(requests=60)"
        raise TypeError(f"rate must be a glue.durable.Rate, such as {example}, not {show(rate)}")
    if reader is not None and not callable(getattr(reader, "read", None)):
        raise TypeError(f"reader must be a glue.durable.rows.Reader, not {show(reader)}")
    if resume and overwrite:
        raise ValueError("resume and overwrite exclude each other")
    if resume and state is None:
        raise ValueError("resume needs the argument state: pass the path of the map's file")
    local = {"concurrency": concurrency, "retry_delay": retry_delay, "patience": patience}
    given: dict[str, Any] = {name: each for name, each in local.items() if each is not None}
    if engine is None:
        engine = EmbeddedEngine(**given)
    elif not callable(getattr(engine, "run", None)):
        raise TypeError(f"engine must be an object that runs rows, not {show(engine)}")
    elif given:
        raise ConfigError(
            f"with an engine, glue.map does not take {', '.join(given)};"
            " remove these arguments, because the engine decides on them"
        )
    return MapRun(
        agent=agent,
        inputs=inputs,
        reader=reader or Reader(template=template),
        engine=engine,
        settings={name: each for name, each in settings.items() if name != "deps"},
        deps=deps,
        rate=rate,
        path=state,
        resume=resume,
        overwrite=overwrite,
        ordered=ordered,
        retries=retries,
        budget=MapBudget(usd_budget, token_budget),
    )
