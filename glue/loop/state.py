"""The state of one run: its transcript, its counts, its budget."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import anyio

from glue.context import AnyTool, Cancel, Host, Spending
from glue.events import Event, Listener, MessageEnd, MessageStart, RunResult, log_event, logger
from glue.limits import Limits, StopReason, read_limits
from glue.loop.transcript import History, merge, message_chars
from glue.messages import AssistantMessage, Json, Message, Request, Text, ToolMessage, ToolSpec, Usage, UserMessage
from glue.policies import Policy
from glue.policies.budgets import Prices, overspent
from glue.provider import Attempt, Provider
from glue.tasks import complete

T = TypeVar("T")


class Journal(Protocol):
    """Where a transcript is written down; each call returns when it is safe."""

    async def append(self, message: Message) -> None: ...
    async def insert(self, message: Message, before: str) -> None: ...
    async def amend(self, id: str, fields: Mapping[str, Json]) -> None: ...
    async def drop(self, ids: Sequence[str]) -> None: ...
    async def exclude(self, ids: Sequence[str]) -> None: ...


@dataclass(slots=True)
class Chain:
    """A truncated text and its continuations."""

    cap: int | None
    chars: int = 0
    tokens: int = 0
    attempts: int = 0


@dataclass(slots=True, kw_only=True)
class State:
    """Counts and lists of a run; policies may read all of it."""

    provider: Provider
    messages: list[Message]  # the whole transcript
    new: list[Message] = field(default_factory=list)  # what this run added, its prompt included
    tools: Mapping[str, AnyTool]
    specs: tuple[ToolSpec, ...]
    limits: Limits
    limits_source: Callable[[], Limits] | None
    template: Request
    policies: Sequence[Policy]
    host: Host
    cancel: Cancel
    spending: Spending
    on_event: Listener | None = None
    drain: Callable[[], Awaitable[None]] | None = None
    journal: Journal | None = None
    prices: Prices = field(default_factory=dict)
    history: History = field(default_factory=History)

    resumed: bool = False  # goes on with an earlier run, whose prompt is not in `new`
    turns: int = 0
    requests: int = 0
    continuations: int = 0
    repairs: int = 0
    batches: int = 0
    attempts: list[Attempt] = field(default_factory=list)
    chain: Chain | None = None
    in_chain: bool = False  # the next request carries on the last reply, or is the same one again: nobody may speak
    paused: bool = False  # so it is, and counts as a turn
    joins: bool = False  # the text of the next reply belongs to that of the last
    repairing: str = ""  # the tool whose call was asked for again
    turn_open: int = 0  # the number of the turn that was started and has not ended
    wrapped_up: bool = False
    compacted: bool = False
    notice: str = ""
    delivered: str | None = None
    offered: frozenset[str] = frozenset()  # the tools of the last request
    answer: list[str] = field(default_factory=list)  # the pieces of the final text
    reply_id: str = ""  # of the reply that is being streamed
    partial: list[str] = field(default_factory=list)  # what has been streamed of a reply not yet judged
    pending: list[ToolMessage] = field(default_factory=list)  # results of a batch not yet stored
    late_error: BaseException | None = None  # of the journal, or of a listener while the run ends: raised at the end
    ending: bool = False
    result: RunResult[None] | None = None
    hooked: dict[str, list[Policy]] = field(init=False)  # the policies that have something to say at each hook

    def __post_init__(self) -> None:
        self.hooked = {hook: [each for each in self.policies if _overrides(each, hook)] for hook in HOOKS}

    @property
    def text(self) -> str:
        """The final answer as far as it has come, the parts of a chain joined."""
        return merge(self.answer)

    def emit(self, event: Event) -> None:
        """Log an event and tell the listener."""
        log_event(event)
        if self.on_event is not None:
            self.tell(event)

    def tell(self, event: Event) -> None:
        """Tell the listener alone; what it raises is logged and dropped."""
        try:
            self.on_event(event)  # type: ignore[misc]
        except Exception:
            logger.debug("a listener failed", exc_info=True)
        except BaseException as error:
            if not self.ending:
                raise
            self.late_error = self.late_error or error

    def refresh(self) -> None:
        """Read the limits anew: they may be replaced between requests."""
        if self.limits_source is not None:
            self.limits = read_limits(self.limits_source)

    def budgets(self) -> Iterator[tuple[Spending, Limits]]:
        """Yield what was spent and what is allowed, here and in every run above."""
        yield self.spending, self.limits
        above = self.host.parent
        while above is not None:
            yield above.spending, above.limits
            above = above.host.parent

    def may_ask(self, requests: int = 1) -> bool:
        """Tell whether that many more requests are allowed."""
        return all(
            limits.max_requests is None or spending.requests + requests <= limits.max_requests
            for spending, limits in self.budgets()
        )

    def count_request(self) -> None:
        self.requests += 1
        self.spending.spend(requests=1)

    def may_turn(self, turns: int = 1) -> bool:
        return self.limits.max_turns is None or self.turns + turns <= self.limits.max_turns

    @property
    def may_say(self) -> bool:
        """Whether a policy may speak now that the model has settled: two turns, a request and money are left."""
        held = self.in_chain or self.cancel.cancelled
        return not held and self.may_turn(2) and self.may_ask() and overspent(self) is None

    @property
    def usage(self) -> Usage:
        """What this run has used, its sub-agents included."""
        return self.spending.usage

    @property
    def last_reply(self) -> AssistantMessage | None:
        return next((message for message in reversed(self.new) if isinstance(message, AssistantMessage)), None)

    async def store(self, message: Message, *, write: bool = True) -> None:
        """Add a message to both lists, write it down and tell of it; of a tool's result tool_end has told."""
        self.messages.append(message)
        self.new.append(message)
        try:
            if write:
                await self.record(lambda journal: journal.append(message))
        finally:
            if isinstance(message, UserMessage):
                self.emit(MessageStart(id=message.id, role="user"))
            if not isinstance(message, ToolMessage):
                if message.id == self.reply_id:
                    self.reply_id = ""
                self.emit(MessageEnd(message=message))
            if not isinstance(message, AssistantMessage) and not self.ending:
                self.spending.spend(tokens_in=self.limits.estimator(message_chars(message)))

    def discard(self) -> None:
        """Tell the listeners of a reply that was begun and is thrown away."""
        if not self.reply_id:
            return
        content = (Text(text="".join(self.partial)),) if self.partial else ()
        message = AssistantMessage(
            id=self.reply_id,
            content=content,
            stop_reason=StopReason.ERROR,
            provider=self.provider.name,
            meta={"discarded": True},
        )
        self.reply_id = ""
        self.partial.clear()
        self.emit(MessageEnd(message=message))

    async def whole(self, work: Coroutine[Any, Any, T]) -> T:
        """Await something that writes; where the journal takes its time, a cancellation waits for it."""
        waits = self.journal is not None and getattr(self.journal, "blocks", True)
        return await (complete(work) if waits else work)

    async def record(self, write: Callable[[Journal], Awaitable[None]]) -> None:
        """Write to the journal, whole or not at all; one that has failed is left as it is, so that no gap is made."""
        journal = self.journal
        if journal is None:
            return

        async def work() -> None:
            try:
                await write(journal)
            except Exception as error:
                self.journal, self.late_error = None, error
                if not self.ending:  # the end goes on without it, and says so when it is through
                    raise

        await self.whole(work())

    def charge_reply(self, usage: Usage | None, text: str) -> None:
        """Count what a reply cost; without usage its text is estimated."""
        usage = usage or Usage(output=self.limits.estimator(text))
        self.spending.spend(tokens_out=usage.output, usage=usage)

    def charge_lost(self, usage: Usage | None) -> None:
        """Count what a reply cost of which only pieces have come."""
        if usage is not None or self.partial:
            self.charge_reply(usage, "".join(self.partial))


HOOKS = ("before_request", "on_reply", "after_tools", "on_settle")


def _overrides(policy: Policy, hook: str) -> bool:
    return getattr(getattr(policy, hook), "__func__", None) is not getattr(Policy, hook)


@contextmanager
def watched(state: State) -> Iterator[anyio.CancelScope]:
    """Cancel what is inside when the run is cancelled or its time is up."""
    with anyio.CancelScope() as scope:
        if state.limits.seconds is not None:
            left = state.limits.seconds - (time.monotonic() - state.spending.started)
            scope.deadline = anyio.current_time() + max(left, 0)
        state.cancel.attach(scope.cancel)
        try:
            yield scope
        finally:
            state.cancel.detach(scope.cancel)
