"""A conversation: one prompt at a time, each kept before the next step is taken."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar, Unpack, overload

import anyio

from glue.agent import Agent
from glue.context import Cancel
from glue.errors import NewerSchema, SessionBusy, StoreError
from glue.events import Event, Listener
from glue.limits import Limits
from glue.listeners import Events, Listeners, join
from glue.messages import Json, Message, UserMessage, new_id
from glue.options import CALL_OPTIONS, OVERRIDES, CallOptions, Overrides, Prompt, prompt_messages
from glue.policies.steering import FollowUp, Steering
from glue.result import RunResult
from glue.running import Job, perform
from glue.stores.store import Log, Store, copy

DepsT = TypeVar("DepsT")
OutputT = TypeVar("OutputT")
T = TypeVar("T")


class Session(Generic[DepsT, OutputT]):
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
        for name in overrides:
            if name not in OVERRIDES:
                raise TypeError(f"a session has no option {name!r}; there are: {', '.join(sorted(OVERRIDES))}")
        self.agent = agent
        self.id = id or new_id()
        self.store = store
        self.queue = queue
        self.last: RunResult[Any] | None = None
        self._overrides: dict[str, Any] = dict(overrides)
        self._log: Log = store.log(self.id)
        self._turns: deque[anyio.Event] = deque()  # of the prompts under way and waiting, in order
        self._cancel: Cancel | None = None
        self._call_limits: Limits | None = None
        self._subscribers: list[Listener] = []
        self._steering: deque[str | UserMessage] = deque()
        self._follow_ups: deque[str | UserMessage] = deque()

    # Prompts --------------------------------------------------------------------------------------

    @overload
    async def prompt(
        self, prompt: Prompt, *, output: type[T], **options: Unpack[CallOptions[DepsT]]
    ) -> RunResult[T]: ...
    @overload
    async def prompt(
        self, prompt: Prompt, *, output: Mapping[str, Json], **options: Unpack[CallOptions[DepsT]]
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
        self, prompt: Prompt, *, output: Mapping[str, Json], **options: Unpack[CallOptions[DepsT]]
    ) -> RunResult[Any]: ...
    @overload
    def prompt_sync(
        self, prompt: Prompt, *, output: None = None, **options: Unpack[CallOptions[DepsT]]
    ) -> RunResult[OutputT]: ...
    def prompt_sync(self, prompt: Prompt, *, output: Any = None, **options: Any) -> RunResult[Any]:
        """Do as `prompt`, from code that is not async."""
        from glue.agent import run_blocking

        async def work() -> RunResult[Any]:
            try:
                return await self._perform(prompt_messages(prompt), output, options)
            finally:
                await self.agent.aclose()

        return run_blocking(work)

    @overload
    def stream(self, prompt: Prompt, *, output: type[T], **options: Unpack[CallOptions[DepsT]]) -> Events[T]: ...
    @overload
    def stream(
        self, prompt: Prompt, *, output: Mapping[str, Json], **options: Unpack[CallOptions[DepsT]]
    ) -> Events[Any]: ...
    @overload
    def stream(
        self, prompt: Prompt, *, output: None = None, **options: Unpack[CallOptions[DepsT]]
    ) -> Events[OutputT]: ...
    def stream(self, prompt: Prompt, *, output: Any = None, **options: Any) -> Events[Any]:
        """Do as `prompt`, as an async iterator of events: `async with session.stream(...) as events`."""

        async def start(listener: Listener, cancel: Cancel) -> RunResult[Any]:
            heard = join((options.get("on_event"), listener))
            return await self._perform(
                prompt_messages(prompt), output, {**options, "on_event": heard, "cancel": cancel}
            )

        return Events(start, options.get("cancel"))

    async def resume(self, **options: Unpack[CallOptions[DepsT]]) -> RunResult[OutputT]:
        """Go on from where the last run stood, with no new prompt: after max_turns or a budget."""
        return await self._perform(None, None, dict(options))

    def steer(self, message: str | UserMessage) -> None:
        """Say something while a prompt runs: the model hears it at its next request."""
        self._steering.append(message)

    def follow_up(self, message: str | UserMessage) -> None:
        """Say something when the model thinks that it is done."""
        self._follow_ups.append(message)

    def cancel(self) -> None:
        """End the prompt that runs; nothing happens where none does."""
        if self._cancel is not None:
            self._cancel.cancel()

    def subscribe(self, listener: Callable[[Event], object]) -> Callable[[], None]:
        """Hear every event of this session; call what is returned to hear no more."""
        self._subscribers.append(listener)

        def unsubscribe() -> None:
            if listener in self._subscribers:
                self._subscribers.remove(listener)

        return unsubscribe

    # Settings -------------------------------------------------------------------------------------

    @property
    def limits(self) -> Limits:
        """What bounds the next request. Set it while a prompt runs to change that prompt too."""
        found: Limits | None = self._overrides.get("limits") or self.agent.settings["limits"]
        return found or Limits()

    @limits.setter
    def limits(self, limits: Limits | None) -> None:
        if limits is not None and not isinstance(limits, Limits):
            raise TypeError(f"limits must be a glue.Limits, not {limits!r}")
        self._overrides["limits"] = limits
        self._call_limits = None  # the last word counts

    @property
    def settings(self) -> Mapping[str, Any]:
        """What holds for the next prompt: the agent's settings, under those of this session."""
        return {**self.agent.settings, **{name: value for name, value in self._overrides.items() if value is not None}}

    def configure(self, **overrides: Unpack[Overrides]) -> None:
        """Change what holds from the next prompt on: the model, the tools, the role, ..."""
        for name, value in overrides.items():
            if name not in OVERRIDES:
                raise TypeError(f"a session has no option {name!r}; there are: {', '.join(sorted(OVERRIDES))}")
            self._overrides[name] = value

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
        await self._begin()
        new = await copy(self.store, self.id, self.store, id or new_id(), at=at)
        return Session(self.agent, new, store=self.store, queue=self.queue, **self._overrides)

    async def clone(self, id: str = "") -> Session[DepsT, OutputT]:
        """Begin another conversation that is the same so far."""
        return await self.fork(id=id)

    async def _begin(self) -> None:
        if self._cancel is None:
            async with self._log:  # makes it where there is none
                pass

    async def aclose(self) -> None:
        """Cancel what runs, and close what the agent opened in this event loop."""
        self.cancel()
        await self.agent.aclose()

    async def __aenter__(self) -> Session[DepsT, OutputT]:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"Session({self.id!r}, {self.agent!r})"

    # One prompt at a time -------------------------------------------------------------------------

    async def _perform(self, prompt: Sequence[Message] | None, output: Any, options: dict[str, Any]) -> RunResult[Any]:
        for name in options:
            if name not in CALL_OPTIONS:
                raise TypeError(f"there is no option {name!r}; there are: {', '.join(sorted(CALL_OPTIONS))}")
        async with self._turn(), self._log as log:
            if log.read_only:
                raise NewerSchema(log.read_only)
            self._cancel = options.get("cancel") or Cancel()
            self._call_limits = options.pop("limits", None)
            job = Job(
                agent=self.agent,
                prompt=prompt,
                history=log.messages,
                layers=({**options, "cancel": self._cancel, "unwrap": False}, self._overrides),
                output=output,
                journal=log,
                session_id=self.id,
                policies=(Steering(lambda: _take(self._steering)), FollowUp(lambda: _take(self._follow_ups))),
                limits=lambda: self._call_limits or self.limits,
                subscribers=(self._tell,),
            )
            try:
                self.last = await perform(job)
            finally:
                self._cancel = self._call_limits = None
            return self.last.unwrap() if options.get("unwrap", True) else self.last

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Hold the session for one prompt; another is refused, or waits for its turn."""
        if self._turns and not self.queue:
            raise SessionBusy(f"session {self.id!r} is busy with a prompt; wait for it, or open it with queue=True")
        ours = anyio.Event()
        self._turns.append(ours)
        try:
            while self._turns[0] is not ours:
                await self._turns[0].wait()
            yield
        finally:
            self._turns.remove(ours)
            ours.set()

    def _tell(self, event: Event) -> None:
        if self._subscribers:
            Listeners(self._subscribers)(event)


def _take(waiting: deque[str | UserMessage]) -> list[str | UserMessage]:
    taken = []
    while waiting:
        taken.append(waiting.popleft())
    return taken
