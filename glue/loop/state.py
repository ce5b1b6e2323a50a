r"""The state of one run: its transcript, its position, its counters and its spending.

    settings             progress                    reply in progress    recorder
    provider, tools      position, turns, requests   reply_id, partial    messages, new
    limits, policies     chain, spending, answer     results              journal, late_error
    host, on_event       wrapped_up, attempts
          \                     |                          |                   /
           `---------------------+----------- State --------+------------------'
                                              |
                                              v
                                          RunResult

The functions in `glue.loop` read and change a `State`. The policies of users only read it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio

from glue.context import AnyTool, Cancel, Host, Spending
from glue.events import MessageEnd, MessageStart
from glue.failures import report_bug
from glue.limits import Limits, StopReason, read_limits
from glue.listeners import listener_name
from glue.loop.position import ASK, Position
from glue.loop.recorder import RunRecorder
from glue.loop.transcript import merge, message_chars
from glue.messages import (
    AssistantMessage,
    Message,
    Request,
    Text,
    ToolMessage,
    Usage,
    UserMessage,
)
from glue.policies import Policy
from glue.policies.budgets import Prices, overspent
from glue.provider import Provider
from glue.result import RunResult

if TYPE_CHECKING:
    from glue.events import Event, Listener
    from glue.provider import Attempt


class Chain:
    """Counters of a reply that was cut at its output limit and is continued."""

    def __init__(self) -> None:
        self.chars = 0
        self.tokens = 0
        self.attempts = 0


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class State:
    """The data of one run. Policies may read all fields."""

    provider: Provider
    recorder: RunRecorder
    tools: Mapping[str, AnyTool]
    limits: Limits
    limits_source: Callable[[], Limits] | None
    template: Request
    policies: Sequence[Policy]
    host: Host
    cancel: Cancel
    spending: Spending
    on_event: Listener | None = None
    prices: Prices = field(default_factory=dict)

    decisions: Mapping[str, Any] = field(default_factory=dict)  # on pending calls, by their ids
    resumed: bool  # True if this continues an earlier run, whose prompt is not in `new`
    turns: int = 0
    requests: int = 0
    continuations: int = 0
    repairs: int = 0
    batches: int = 0
    attempts: list[Attempt] = field(default_factory=list)
    chain: Chain | None = None
    position: Position = ASK  # the next step
    turn_open: int = 0  # the number of the turn that was started and has not ended
    wrapped_up: bool = False
    compacted: bool = False
    delivered: str | None = None
    offered: frozenset[str] = frozenset()  # names of the tools in the last request
    answer: list[str] = field(default_factory=list)  # the pieces of the final text
    reply_id: str = ""  # of the reply that is being streamed
    partial: list[str] = field(default_factory=list)  # streamed text of a reply that is not stored
    results: list[ToolMessage] = field(default_factory=list)  # tool results that are not stored yet
    result: RunResult[None] | None = None
    hooked: dict[str, list[Policy]] = field(init=False)  # the policies that override each hook

    def __post_init__(self) -> None:
        self.hooked = {
            hook: [each for each in self.policies if _overrides(each, hook)] for hook in HOOKS
        }

    @property
    def messages(self) -> list[Message]:
        """The whole transcript: the history and the messages of this run."""
        return self.recorder.messages

    @property
    def new(self) -> list[Message]:
        """The messages of this run, including its prompt."""
        return self.recorder.new

    @property
    def text(self) -> str:
        """The answer so far. The parts of a continued reply are joined."""
        return merge(self.answer)

    def emit(self, event: Event) -> None:
        """Pass an event to the listener. An exception of the listener is reported, not raised."""
        if self.on_event is None:
            return
        try:
            self.on_event(event)
        except Exception as error:
            report_bug(f"listener {listener_name(self.on_event)}", error, once=True)
        except BaseException as error:
            if not self.recorder.ending:
                raise
            self.recorder.late_error = self.recorder.late_error or error

    def refresh(self) -> None:
        """Update `limits` if a function supplies the limits, which may change during a run."""
        if self.limits_source is not None:
            self.limits = read_limits(self.limits_source)

    def budgets(self) -> Iterator[tuple[Spending, Limits]]:
        """Yield the spending and the limits of this run, then of the run that called it, and so on.

        A run has a caller if it is the run of a sub-agent.
        """
        yield self.spending, self.limits
        above = self.host.parent
        while above is not None:
            yield above.spending, above.limits
            above = above.host.parent

    def may_ask(self, requests: int = 1) -> bool:
        """Return whether the limits of this run and its callers allow `requests` more requests."""
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
    def in_chain(self) -> bool:
        """True if the next request continues the last reply. Policies cannot add messages then."""
        return self.position.continues

    @property
    def may_say(self) -> bool:
        """True if the run can answer a message that a policy adds after a reply without tool calls.

        The message and the next reply need two turns, a request and some budget. The run must not
        be cancelled, and the next reply must not continue the last reply.
        """
        held = self.in_chain or self.cancel.cancelled
        return not held and self.may_turn(2) and self.may_ask() and overspent(self) is None

    @property
    def usage(self) -> Usage:
        """The tokens and the cost of this run so far, including its sub-agents."""
        return self.spending.usage

    @property
    def last_reply(self) -> AssistantMessage | None:
        return next(
            (message for message in reversed(self.new) if isinstance(message, AssistantMessage)),
            None,
        )

    async def store(
        self, message: Message, *, write: bool = True, before: Message | None = None
    ) -> None:
        """Add a message to `messages` and `new`, write it to the journal, and emit its events.

        The message is added at the end, or in front of `before`. If `write` is False, it is not
        written to the journal. A tool result has no events here: `ToolEnd` was emitted before. The
        estimated tokens of a prompt or of a tool result are added to the spending.
        """
        try:
            await self.recorder.add(message, before=before, write=write)
        finally:
            if isinstance(message, UserMessage):
                self.emit(MessageStart(id=message.id, role="user"))
            if not isinstance(message, ToolMessage):
                if message.id == self.reply_id:
                    self.reply_id = ""
                self.emit(MessageEnd(message=message))
            if not isinstance(message, AssistantMessage) and not self.recorder.ending:
                self.spending.spend(tokens_in=self.limits.estimator(message_chars(message)))

    def discard(self) -> None:
        """Forget a partly streamed reply that will not be stored, and emit its MessageEnd.

        If no reply is being streamed, do nothing.
        """
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

    def charge_reply(self, usage: Usage | None, text: str) -> None:
        """Add the usage of a reply to the spending. If `usage` is None, estimate it from `text`."""
        usage = usage or Usage(output=self.limits.estimator(text))
        self.spending.spend(tokens_out=usage.output, usage=usage)

    def charge_lost(self, usage: Usage | None) -> None:
        """Add the usage of a failed reply to the spending.

        If `usage` is None, estimate it from the streamed text.
        """
        if usage is not None or self.partial:
            self.charge_reply(usage, "".join(self.partial))


HOOKS = ("before_request", "on_reply", "after_tools", "on_settle")


def _overrides(policy: Policy, hook: str) -> bool:
    return getattr(getattr(policy, hook), "__func__", None) is not getattr(Policy, hook)


@contextmanager
def watched(state: State) -> Iterator[anyio.CancelScope]:
    """Yield a scope that is cancelled if the run is cancelled or reaches its time limit."""
    with anyio.CancelScope() as scope:
        if state.limits.seconds is not None:
            left = state.limits.seconds - (time.monotonic() - state.spending.started)
            scope.deadline = anyio.current_time() + max(left, 0)
        state.cancel.attach(scope.cancel)
        try:
            yield scope
        finally:
            state.cancel.detach(scope.cancel)
