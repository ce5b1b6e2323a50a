"""Sessions: conversations in a store, one prompt at a time."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TextIO, overload

import anyio

from glue.backoff import Backoff
from glue.checks import check_flag, check_text, show
from glue.closing import Closeable
from glue.context import AnyTool, Cancel, Host
from glue.decision import PendingCall
from glue.errors import SessionBusy, StoreError, attach_result
from glue.events import Event, Listener
from glue.function.hooks import ToolHook
from glue.limits import Limits, LimitsSource, read_limits
from glue.listeners import Listeners, join
from glue.loop.transcript import History
from glue.messages import Effort, Json, Message, UserMessage, new_id
from glue.pending import Decisions, pending_calls, rejections
from glue.perform import perform
from glue.permission import Permission
from glue.policies import FollowUp, Policy, Steering
from glue.result import RunResult
from glue.settings import (
    Instructions,
    Model,
    Prompt,
    Schema,
    Settings,
    check_listener,
    checked,
    instructions_text,
    prompt_messages,
)
from glue.signature import blocking, hinted, streaming, streaming_sync
from glue.stores.log import Log
from glue.stores.memory import MemoryStore
from glue.stores.store import Store, copy
from glue.tasks import caller

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from glue.agent import Agent
    from glue.telemetry import OpenTelemetry

    DepsT = TypeVar("DepsT", default=None)
    OutputT = TypeVar("OutputT", default=None)
    T = TypeVar("T", default=Any)  # Any if the output is a JSON schema
else:
    from typing import TypeVar

    DepsT, OutputT = TypeVar("DepsT"), TypeVar("OutputT")

_BUSY = Backoff(first=0.005, cap=0.1)  # between attempts to open a busy session
UNCHANGED: Any = ...  # the default of parameters of `configure`, in which None has a meaning


@dataclass(slots=True)
class _Turn:
    """A prompt that is running or waiting in a session.

    The context variable `_inside` contains the prompts whose tools called the current code.
    """

    id: str
    store: Store
    ended: bool = False

    def is_running_in(self, session: Session[Any, Any]) -> bool:
        """Return whether this prompt still runs, and belongs to the conversation of `session`."""
        return (
            not self.ended and self.id == session.id and _place(self.store) == _place(session.store)
        )


def _place(store: Store) -> tuple[object, ...]:
    """Return a key of a store, which is equal for two store objects if they share sessions.

    The key is the class with the folder, file or URL of the store. A store without any of these
    shares its sessions with no other object, so its key has the id of the object instead.
    """
    for name in ("root", "path", "url"):
        place = getattr(store, name, None)
        if isinstance(place, (str, os.PathLike)):
            return type(store), place if name == "url" else os.path.realpath(place)
    return type(store), id(store)


# The prompts whose tools called the current code, the outermost prompt first.
_inside: ContextVar[tuple[_Turn, ...]] = ContextVar("glue.session.inside", default=())


class Session(Closeable, Generic[DepsT, OutputT]):
    """A named conversation of an agent, in a store. `agent.session(...)` creates a session.

        session = agent.session("demo", store=glue.FileStore(".glue"))
        session.run_sync("Weather in Toronto?")
        session.run_sync("And tomorrow?")

    A session runs one prompt at a time. Its messages survive the end of the process: another
    process continues the conversation by opening the same name in the same store.
    """

    @hinted
    def __init__(
        self,
        agent: Agent[DepsT, OutputT],
        id: str = "",
        *,
        store: Store | None = None,
        queue: bool = False,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        if not callable(getattr(agent, "merge", None)):
            raise TypeError(
                f"agent must be a glue.Agent, not {show(agent)}; "
                "agent.session('demo') makes a session"
            )
        check_text("id", id)
        check_flag("queue", queue)
        store = MemoryStore() if store is None else store
        if isinstance(store, type) or not callable(getattr(store, "log", None)):
            folder = str(store) if isinstance(store, (str, os.PathLike)) else ".glue"
            raise TypeError(
                f"store must be a store such as glue.FileStore({folder!r}), not {show(store)}"
            )
        self.agent = agent
        self.id = id or new_id()
        self.store = store
        self.queue = queue
        self.last: RunResult[Any] | None = None
        self._own = dict(settings or {})
        self._log: Log = store.log(self.id, meta=self._description())
        self._history = History()
        # The running prompt, then the waiting prompts, of any thread. Each has a function that
        # schedules a call in its event loop, and the function to call there.
        self._turns: deque[tuple[Any, Any]] = deque()
        self._cancel: Cancel | None = None
        self._call_limits: LimitsSource | None = None
        self._subscribers = Listeners(())
        self._steering: deque[str | UserMessage] = deque()
        self._follow_ups: deque[str | UserMessage] = deque()

    def _description(self) -> dict[str, Any] | None:
        """Return the instructions and tools to store with a transcript; None if both are empty."""
        settings = self.settings
        said = instructions_text(settings.instructions)[0]
        tools = [
            {"name": tool.spec.name, "description": tool.spec.description}
            for tool in settings.tools or ()
        ]
        found = {"instructions": said, "tools": tools}
        return {name: value for name, value in found.items() if value} or None

    @overload
    async def run(
        self,
        prompt: Prompt,
        *,
        output: type[T] | Schema,
        deps: DepsT | None = None,
        stream: TextIO | None = None,
        tool_log: TextIO | None = None,
        on_event: Listener | None = None,
        cancel: Cancel | None = None,
        unwrap: bool = True,
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
    ) -> RunResult[T]: ...
    @overload
    async def run(
        self,
        prompt: Prompt,
        *,
        output: None = None,
        deps: DepsT | None = None,
        stream: TextIO | None = None,
        tool_log: TextIO | None = None,
        on_event: Listener | None = None,
        cancel: Cancel | None = None,
        unwrap: bool = True,
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
    ) -> RunResult[OutputT]: ...
    @hinted
    async def run(
        self,
        prompt: Prompt,
        *,
        output: type[Any] | Schema | None = None,
        deps: DepsT | None = None,
        stream: TextIO | None = None,
        tool_log: TextIO | None = None,
        on_event: Listener | None = None,
        cancel: Cancel | None = None,
        unwrap: bool = True,
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
    ) -> RunResult[Any]:
        """Run a prompt in the conversation, and return the result or raise the error of the run.

            session = agent.session("demo", store=glue.FileStore(".glue"))
            result = await session.run("Weather in Toronto?")

        Settings that are given here take precedence over those of the session and of the agent.

        Args:
            prompt: A text, parts such as `glue.Image`, or messages.
            output: A type or a JSON schema; the answer is validated, and is `result.output`.
            deps: The object that tools read as `context.deps`.
            stream: A text file that gets the answer as it arrives, such as `sys.stdout`.
            tool_log: A text file that gets a line for each tool call, such as `sys.stderr`.
            on_event: A function called with each event.
            cancel: A `glue.Cancel` whose `cancel()` ends the run.
            unwrap: False returns the result of a failed run, instead of raising its error.
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
        return await self._perform(prompt_messages(prompt), checked(locals()))

    run_sync = blocking(run)
    stream = streaming(run)
    stream_sync = streaming_sync(run)
    prompt = run  # another name of the same method
    prompt_sync = run_sync

    @hinted
    async def resume(
        self,
        *,
        decisions: Decisions | None = None,
        deps: DepsT | None = None,
        stream: TextIO | None = None,
        tool_log: TextIO | None = None,
        on_event: Listener | None = None,
        cancel: Cancel | None = None,
        unwrap: bool = True,
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
    ) -> RunResult[OutputT]:
        """Continue the last run, which stopped early, without a new prompt. Return the new result.

        If the resumed run fails, its error is raised. If the last run is complete or was
        refused, raise InvalidContinuation.

            result = await session.run("Tidy up", limits=glue.Limits(max_turns=5), unwrap=False)
            if result.outcome == "max_turns":
                result = await session.resume(limits=glue.Limits(max_turns=20))

        A run that is `paused` continues when a person has decided, in this process or in another:

            decisions = {call.id: glue.allow() for call in await session.pending()}
            result = await session.resume(decisions=decisions)

        Args:
            decisions: Answers to pending calls by call id: `glue.allow()`, `glue.deny("why")`, or
                the result of the call.
            deps: The object that tools read as `context.deps`.
            stream: A text file that gets the answer as it arrives, such as `sys.stdout`.
            tool_log: A text file that gets a line for each tool call, such as `sys.stderr`.
            on_event: A function called with each event.
            cancel: A `glue.Cancel` whose `cancel()` ends the run.
            unwrap: False returns the result of a failed run, instead of raising its error.
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
        return await self._perform(None, checked(locals()), decisions)

    resume_sync = blocking(resume)

    async def pending(self) -> tuple[PendingCall, ...]:
        """Read the store, and return the tool calls that wait for a decision or a result."""
        return pending_calls(await self.load())

    pending_sync = blocking(pending)

    async def reject_pending(self, reason: str = "") -> tuple[PendingCall, ...]:
        """Store a refusal as the result of every pending tool call, and return these calls.

        No request is sent to the model. Afterwards the session accepts a new prompt, or `resume`
        sends the refusals to the model.
        """
        check_text("reason", reason)
        async with self._turn(Cancel()) as log:
            if log is None:
                return ()
            log.check_writable()
            calls = pending_calls(self._log.view)
            for result, before in rejections(self._log.view, reason):
                if before is None:
                    await log.append(result)
                else:
                    await log.insert(result, before)
        return calls

    reject_pending_sync = blocking(reject_pending)

    def steer(self, message: str | UserMessage) -> None:
        """Queue a message that the loop adds to its next request, in this run or the next one."""
        self._steering.append(_checked_message(message))

    def follow_up(self, message: str | UserMessage) -> None:
        """Queue a message that the loop sends when the model has answered, and the run continues.

        The run continues until the model has answered the message. If no prompt is running, the
        next run sends the message.
        """
        self._follow_ups.append(_checked_message(message))

    def cancel(self) -> None:
        """Cancel the running prompt, if there is one, from any thread or signal handler."""
        if (cancel := self._cancel) is not None:
            cancel.cancel()

    def subscribe(self, listener: Callable[[Event], object]) -> Callable[[], None]:
        """Call `listener` with every event from now on. Return a function that removes `listener`.

            unsubscribe = session.subscribe(print)
            session.run_sync("Weather in Toronto?")
            unsubscribe()

        Calling `unsubscribe` again has no effect.
        """
        check_listener("listener", listener)
        subscribers = self._subscribers
        subscribers.listeners += (listener,)

        def unsubscribe() -> None:
            if listener in subscribers.listeners:
                at = subscribers.listeners.index(listener)
                others = subscribers.listeners
                subscribers.listeners = others[:at] + others[at + 1 :]

        return unsubscribe

    @property
    def limits(self) -> Limits:
        """The session's limits, or else the agent's. New limits also apply to a running prompt."""
        return read_limits(self._own.get("limits") or self.agent.settings.limits)

    @limits.setter
    def limits(self, limits: Limits | None) -> None:
        if limits is not None and not isinstance(limits, Limits):
            raise TypeError(
                "limits must be a glue.Limits, such as glue.Limits(max_turns=5), "
                f"not {show(limits)}"
            )
        self.configure(limits=limits)
        self._call_limits = None  # these take precedence over the limits of the running call

    @property
    def settings(self) -> Settings:
        """The settings of the next prompt, merged from those of this session and of the agent."""
        return self.agent.merge(self._own)

    @hinted
    def configure(
        self,
        *,
        model: Model | None = UNCHANGED,
        instructions: Instructions | None = UNCHANGED,
        role: str | None = UNCHANGED,
        tools: Iterable[AnyTool] | None = UNCHANGED,
        limits: LimitsSource | None = UNCHANGED,
        permission: Permission | None = UNCHANGED,
        hooks: Iterable[ToolHook] | None = UNCHANGED,
        policies: Iterable[Policy] | None = UNCHANGED,
        max_tokens: int | None = UNCHANGED,
        temperature: float | None = UNCHANGED,
        reasoning: Effort | None = UNCHANGED,
        cache: bool | None = UNCHANGED,
        options: Mapping[str, Json] | None = UNCHANGED,
        prices: Mapping[str, tuple[float, float]] | None = UNCHANGED,
        telemetry: bool | OpenTelemetry | None = UNCHANGED,
    ) -> None:
        """Change settings from the next prompt on. None restores the setting of the agent.

        New limits also apply to a running prompt, unless its call has limits of its own.

            session.configure(model="anthropic:claude-haiku-4-5", reasoning="low")

        Args:
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
        named = locals()
        changed = {name: value for name, value in named.items() if value is not UNCHANGED}
        kept = {name: value for name, value in self._own.items() if name not in changed}
        self._own = kept | checked(changed)

    @property
    def running(self) -> bool:
        """Whether a prompt of this session object is running."""
        return self._cancel is not None

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages that this object has read or written. Use `load` to read the store."""
        return self._log.messages

    async def load(self) -> tuple[Message, ...]:
        """Return the messages in the store, or () if the conversation does not exist yet."""
        try:
            return await self.store.load(self.id)
        except StoreError:
            if self.id in {info.id for info in await self.store.list()}:
                raise
            return ()

    async def fork(self, at: int | None = None, id: str = "") -> Session[DepsT, OutputT]:
        """Store a copy of the first `at` messages, by default of all, and return its session."""
        if not self._turns:
            # Creates the conversation in the store, if it does not exist yet.
            async with self._turn(Cancel()):
                pass
        new = await copy(self.store, self.id, self.store, id or new_id(), at=at)
        return self.reopen(new, self.store)

    def reopen(self, id: str, store: Store) -> Session[DepsT, OutputT]:
        """Return a session for the conversation `id` in `store`, with this session's settings."""
        return Session(self.agent, id, store=store, queue=self.queue, settings=self._own)

    async def clone(self, id: str = "") -> Session[DepsT, OutputT]:
        """Store a copy of all messages of this session, and return a session for the copy."""
        return await self.fork(id=id)

    async def disconnect(self) -> None:
        """Close the connections that the agent opened in the current event loop."""
        await self.agent.disconnect()

    async def aclose(self) -> None:
        """Cancel the running prompt, and close the agent's connections of this event loop."""
        self.cancel()
        await self.agent.aclose()

    def __repr__(self) -> str:
        return f"Session({self.id!r}, {self.agent!r})"

    async def _perform(
        self,
        prompt: Sequence[Message] | None,
        call: dict[str, Any],
        decisions: Decisions | None = None,
    ) -> RunResult[Any]:
        """Lock the conversation, run `prompt`, and return the result or raise the run's error.

        If `prompt` is None, continue the last run. `call` contains the settings of the call. If its
        `unwrap` is False, the result of a failed run is returned.
        """
        cancel: Cancel = call.get("cancel") or Cancel()
        steering = (
            _from_queue(Steering, self._steering),
            _from_queue(FollowUp, self._follow_ups),
        )
        # The limits are read before each request: they may be changed while the prompt runs.
        own = {
            "limits": lambda: read_limits(self._call_limits) if self._call_limits else self.limits,
            "on_event": join((self._subscribers, call.get("on_event"))),
            "cancel": cancel,
            "unwrap": False,
        }
        result: RunResult[Any] | None = None
        first: BaseException | None = None
        try:
            async with self._turn(cancel) as log:
                if log is not None:
                    log.check_writable()
                self._call_limits = call.get("limits")
                try:
                    self.last = result = await perform(
                        self.agent,
                        self.agent.merge({**call, **own}, self._own),
                        prompt,
                        self._log.view,
                        host=Host(session_id=self.id),
                        journal=log,
                        sent=self._history,
                        policies=steering,
                        decisions=decisions,
                    )
                except BaseException as error:
                    first = error
                    raise
                finally:
                    self._call_limits = None
        except BaseException as error:
            # Closing the log may have raised another error; the first error is raised.
            if first is not None:
                raise first
            attach_result(error, result)
            raise
        return result if call.get("unwrap") is False else result.unwrap()

    @asynccontextmanager
    async def _turn(self, cancel: Cancel) -> AsyncIterator[Log | None]:
        """Reserve and lock the session for a prompt. Yield its log, or None after a cancellation.

        If another prompt runs, or another writer has locked the session, raise SessionBusy, or wait
        if `queue` is True. A prompt that a tool sends to its own session always raises SessionBusy.
        Yield None if `cancel` was called while the prompt waited.
        """
        if self._turns and not self.queue:
            raise SessionBusy(
                f"session {self.id!r} is busy with a prompt; wait for it, "
                "or open the session with queue=True"
            )
        if any(inside.is_running_in(self) for inside in _inside.get()):
            raise SessionBusy(
                f"a tool of session {self.id!r} sent a prompt to its own session, which would wait "
                "for itself for ever; use session.follow_up(...) or another session"
            )
        first = anyio.Event()
        ours = caller(), first.set  # `caller()` schedules `first.set` in this event loop
        self._turns.append(ours)
        inside = _Turn(self.id, self.store)
        outer = _inside.set((*_inside.get(), inside))
        cancel.attach(first.set)
        try:
            if self._turns[0] is not ours:
                await first.wait()
            if self._turns[0] is ours:
                self._cancel = cancel
                async with self._open(cancel) as log:
                    yield log
            else:
                yield None
        finally:
            inside.ended = True
            with suppress(ValueError):  # the variable was set in another context
                _inside.reset(outer)
            cancel.detach(first.set)
            if self._turns[0] is ours:
                self._cancel = None
            self._turns.remove(ours)
            for call, wake in tuple(self._turns)[:1]:
                call(wake)

    @asynccontextmanager
    async def _open(self, cancel: Cancel) -> AsyncIterator[Log | None]:
        """Lock the conversation in the store. Yield its log, or None if cancelled while waiting.

        Until the `with` block ends, no other object or process can write to the conversation. If it
        is locked already, raise SessionBusy, or wait if `queue` is True.
        """
        entered, failures = False, 0
        while not entered:
            try:
                await self._log.__aenter__()
                entered = True
            except SessionBusy:
                if not self.queue:
                    raise
                if cancel.cancelled:
                    break
                failures += 1
                await anyio.sleep(_BUSY.delay(failures) or 0)
        try:
            # Other tasks run here, also if the store never waits.
            await anyio.lowlevel.checkpoint()
            yield self._log if entered else None
        finally:
            if entered:
                await self._log.__aexit__()


def _checked_message(message: str | UserMessage) -> str | UserMessage:
    if not isinstance(message, str | UserMessage):
        raise TypeError(f"message must be a text or a user message, not {show(message)}")
    return message


def _from_queue(
    policy: type[Steering] | type[FollowUp], queue: deque[str | UserMessage]
) -> Steering | FollowUp:
    """Return a policy that sends the messages in `queue`, and removes each message once stored."""
    return policy(lambda: tuple(queue), sent=lambda message: queue.popleft())
