"""Sessions: conversations in a store, one prompt at a time, each message stored before the next step."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Generic, TypeVar, Unpack, overload

import anyio

from glue.agent import Agent, perform
from glue.context import Cancel, Host
from glue.errors import SessionBusy, StoreError, attach_result
from glue.events import Event, Listeners, RunResult, join
from glue.limits import Limits, LimitsSource, read_limits
from glue.loop.transcript import History
from glue.messages import Message, UserMessage, new_id
from glue.options import (
    CallOptions,
    Options,
    Overrides,
    Prompt,
    Schema,
    call_options,
    check_listener,
    instructions_text,
    prompt_messages,
    session_options,
)
from glue.policies import FollowUp, Steering
from glue.provider import Closeable
from glue.stores.store import Log, Store, copy
from glue.stream import Events
from glue.tasks import caller, run_blocking

DepsT = TypeVar("DepsT")
OutputT = TypeVar("OutputT")
T = TypeVar("T")


class Session(Closeable, Generic[DepsT, OutputT]):
    """A named conversation of an agent, in a store. Made by `agent.session(...)`."""

    def __init__(
        self,
        agent: Agent[DepsT, OutputT],
        id: str = "",
        *,
        store: Store | None = None,
        queue: bool = False,
        **overrides: Unpack[Overrides],
    ) -> None:
        if store is None:
            from glue.stores.memory import MemoryStore

            store = MemoryStore()
        if not callable(getattr(store, "log", None)):
            raise TypeError(f"store must be a store such as glue.FileStore({str(store)!r}), not {store!r}")
        self.agent = agent
        self.id = id or new_id()
        self.store = store
        self.queue = queue
        self.last: RunResult[Any] | None = None
        self._own = session_options(overrides)
        self._log: Log = store.log(self.id, meta=self._description())
        self._history = History()
        self._turns: deque[tuple[Any, Any]] = deque()  # how to wake each prompt, under way or waiting, in any thread
        self._cancel: Cancel | None = None
        self._call_limits: LimitsSource | None = None
        self._subscribers = Listeners(())
        self._steering: deque[str | UserMessage] = deque()
        self._follow_ups: deque[str | UserMessage] = deque()

    def _description(self) -> dict[str, Any] | None:
        """Give what a reader of the transcript wants to know besides the messages: instructions and tools."""
        settings = self.settings
        said = instructions_text(settings.instructions)[0]
        tools = [{"name": tool.spec.name, "description": tool.spec.description} for tool in settings.tools or ()]
        found = {"instructions": said, "tools": tools}
        return {name: value for name, value in found.items() if value} or None

    # Prompts --------------------------------------------------------------------------------------

    @overload
    async def prompt(
        self, prompt: Prompt, *, output: type[T], **options: Unpack[CallOptions[DepsT]]
    ) -> RunResult[T]: ...
    @overload
    async def prompt(
        self, prompt: Prompt, *, output: Schema, **options: Unpack[CallOptions[DepsT]]
    ) -> RunResult[Any]: ...
    @overload
    async def prompt(
        self, prompt: Prompt, *, output: None = None, **options: Unpack[CallOptions[DepsT]]
    ) -> RunResult[OutputT]: ...
    async def prompt(self, prompt: Prompt, *, output: Any = None, **options: Any) -> RunResult[Any]:
        """Say something and run to the end. What is set here goes before the session and the agent."""
        return await self._perform(prompt_messages(prompt), output, options)

    @overload
    def prompt_sync(
        self, prompt: Prompt, *, output: type[T], **options: Unpack[CallOptions[DepsT]]
    ) -> RunResult[T]: ...
    @overload
    def prompt_sync(
        self, prompt: Prompt, *, output: Schema, **options: Unpack[CallOptions[DepsT]]
    ) -> RunResult[Any]: ...
    @overload
    def prompt_sync(
        self, prompt: Prompt, *, output: None = None, **options: Unpack[CallOptions[DepsT]]
    ) -> RunResult[OutputT]: ...
    def prompt_sync(self, prompt: Prompt, *, output: Any = None, **options: Any) -> RunResult[Any]:
        """Do as `prompt`, from code that is not async."""
        return run_blocking(lambda: self._perform(prompt_messages(prompt), output, options), self.agent.aclose)

    @overload
    def stream(self, prompt: Prompt, *, output: type[T], **options: Unpack[CallOptions[DepsT]]) -> Events[T]: ...
    @overload
    def stream(self, prompt: Prompt, *, output: Schema, **options: Unpack[CallOptions[DepsT]]) -> Events[Any]: ...
    @overload
    def stream(
        self, prompt: Prompt, *, output: None = None, **options: Unpack[CallOptions[DepsT]]
    ) -> Events[OutputT]: ...
    def stream(self, prompt: Prompt, *, output: Any = None, **options: Any) -> Events[Any]:
        """Do as `prompt`, as an async iterator of events: `async with session.stream(...) as events`."""
        return Events(lambda options: self._perform(prompt_messages(prompt), output, options), options)

    async def resume(self, **options: Unpack[CallOptions[DepsT]]) -> RunResult[OutputT]:
        """Go on from where the last run stood, with no new prompt: after max_turns or a budget."""
        return await self._perform(None, None, dict(options))

    def steer(self, message: str | UserMessage) -> None:
        """Say something while a prompt runs: the model hears it at its next request."""
        self._steering.append(_said(message))

    def follow_up(self, message: str | UserMessage) -> None:
        """Say something when the model thinks that it is done."""
        self._follow_ups.append(_said(message))

    def cancel(self) -> None:
        """End the prompt that runs, from any thread or signal handler; nothing happens where none does."""
        if (cancel := self._cancel) is not None:
            cancel.cancel()

    def subscribe(self, listener: Callable[[Event], object]) -> Callable[[], None]:
        """Hear every event of this session; call what is returned to hear no more."""
        check_listener("a listener", listener)
        heard = self._subscribers
        heard.listeners += (listener,)

        def unsubscribe() -> None:
            if listener in heard.listeners:
                at = heard.listeners.index(listener)
                heard.listeners = heard.listeners[:at] + heard.listeners[at + 1 :]

        return unsubscribe

    # Settings -------------------------------------------------------------------------------------

    @property
    def limits(self) -> Limits:
        """What bounds the next request. Set it while a prompt runs to change that prompt too."""
        return read_limits(self._own.limits or self.agent.settings.limits)

    @limits.setter
    def limits(self, limits: Limits | None) -> None:
        if limits is not None and not isinstance(limits, Limits):
            raise TypeError(f"limits must be a glue.Limits, not {limits!r}")
        self.configure(limits=limits)
        self._call_limits = None  # the last word counts

    @property
    def settings(self) -> Options:
        """What holds for the next prompt: the agent's settings, under those of this session."""
        return self.agent.layer(self._own)

    def configure(self, **overrides: Unpack[Overrides]) -> None:
        """Change what holds from the next prompt on: the model, the tools, the role, ..."""
        session_options(overrides)
        self._own = replace(self._own, **overrides)

    # The conversation -----------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        return self._cancel is not None

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation as this session knows it; `load` reads what is in the store."""
        return self._log.messages

    async def load(self) -> tuple[Message, ...]:
        """Read the conversation from the store; empty where it has not begun."""
        try:
            return await self.store.load(self.id)
        except StoreError:
            if self.id in {info.id for info in await self.store.list()}:
                raise
            return ()

    async def fork(self, at: int | None = None, id: str = "") -> Session[DepsT, OutputT]:
        """Begin another conversation from the first `at` messages of this one, or from all."""
        if not self._turns:
            async with self._turn(Cancel()):  # makes it where there is none
                pass
        new = await copy(self.store, self.id, self.store, id or new_id(), at=at)
        return self.reopen(new, self.store)

    def reopen(self, id: str, store: Store) -> Session[DepsT, OutputT]:
        """Open another conversation with the settings of this one."""
        return Session(self.agent, id, store=store, queue=self.queue, **self._own.given())

    async def clone(self, id: str = "") -> Session[DepsT, OutputT]:
        """Begin another conversation that is the same so far."""
        return await self.fork(id=id)

    async def aclose(self) -> None:
        """Cancel what runs, and close what the agent opened in this event loop."""
        self.cancel()
        await self.agent.aclose()

    def __repr__(self) -> str:
        return f"Session({self.id!r}, {self.agent!r})"

    # One prompt at a time -------------------------------------------------------------------------

    async def _perform(self, prompt: Sequence[Message] | None, output: Any, options: dict[str, Any]) -> RunResult[Any]:
        call = call_options(options, output)
        cancel = call.cancel or Cancel()
        result: RunResult[Any] | None = None
        first: BaseException | None = None
        try:
            async with self._turn(cancel) as log:
                if log is not None:
                    log.check_writable()
                self._call_limits = call.limits
                layered = self.agent.layer(call, self._own)
                steering = (Steering(lambda: _take(self._steering)), FollowUp(lambda: _take(self._follow_ups)))
                ready = replace(
                    layered,
                    limits=lambda: read_limits(self._call_limits) if self._call_limits else self.limits,
                    policies=(*(layered.policies or ()), *steering),
                    on_event=join((self._subscribers, call.on_event)),
                    cancel=cancel,
                    unwrap=False,
                    host=Host(session_id=self.id),
                    journal=log,
                    hardened=self._history,
                )
                try:
                    self.last = result = await perform(self.agent, ready, prompt, self._log.view)
                except BaseException as error:
                    first = error
                    raise
                finally:
                    self._call_limits = None
        except BaseException as error:  # maybe another one, while the store was left
            if first is not None:
                raise first
            attach_result(error, result)
            raise
        return result if call.unwrap is False else result.unwrap()

    @asynccontextmanager
    async def _turn(self, cancel: Cancel) -> AsyncIterator[Log | None]:
        """Hold the session for one prompt; another is refused, or waits; None where it was cancelled meanwhile."""
        if self._turns and not self.queue:
            raise SessionBusy(f"session {self.id!r} is busy with a prompt; wait for it, or open it with queue=True")
        first = anyio.Event()
        ours = caller(), first.set  # in the event loop of its own thread
        self._turns.append(ours)
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
            cancel.detach(first.set)
            if self._turns[0] is ours:
                self._cancel = None
            self._turns.remove(ours)
            for call, wake in tuple(self._turns)[:1]:
                call(wake)

    @asynccontextmanager
    async def _open(self, cancel: Cancel) -> AsyncIterator[Log | None]:
        """Take the conversation from whoever holds it: objects, threads, processes; None where it is cancelled."""
        entered, delay = False, 0.005
        while not entered:
            try:
                await self._log.__aenter__()
                entered = True
            except SessionBusy:
                if not self.queue:
                    raise
                if cancel.cancelled:
                    break
                await anyio.sleep(delay)
                delay = min(2 * delay, 0.1)
        try:
            await anyio.lowlevel.checkpoint()  # others have their turn, also where a store does not wait
            yield self._log if entered else None
        finally:
            if entered:
                await self._log.__aexit__()


def _said(message: str | UserMessage) -> str | UserMessage:
    if not isinstance(message, str | UserMessage):
        raise TypeError(f"what is said must be a text or a user message, not {message!r}")
    return message


def _take(waiting: deque[str | UserMessage]) -> list[str | UserMessage]:
    return [waiting.popleft() for _ in range(len(waiting))]
