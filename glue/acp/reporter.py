"""A run's events as session updates."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from glue.acp.calls import Ids, diff_of, old_text, tool_call, tool_result, tool_update
from glue.acp.shapes import chunk, plan_update, text_block
from glue.events import (
    ContinuationAttempt,
    Event,
    MessageEnd,
    MessageStart,
    RequestStart,
    ToolEnd,
    ToolStart,
    ToolUpdate,
)
from glue.limits import StopReason, estimate_tokens
from glue.transcript import estimate
from glue.types import AssistantMessage, Message, TextDelta, ThinkingDelta, ToolMessage


class Reporter:
    """A listener that sends what a run says to the editor, and waits for an editor that is slow."""

    def __init__(
        self,
        send: Callable[[dict[str, Any]], None],
        drain: Callable[[], Awaitable[None]],
        *,
        cwd: str,
        ids: Ids,
        gated: Collection[str] = (),
        window: int = 0,
        cost: float = 0.0,
    ) -> None:
        self._send, self.drain = send, drain
        self._cwd, self._ids, self._gated = cwd, ids, gated
        self._window, self.cost = window, cost
        self._message = ""  # the id of the chain that is being told
        self._in_chain = False
        self._asked: Sequence[Message] = ()
        self._open: dict[str, dict[str, Any] | None] = {}  # the calls under way, with their diffs
        self._terminals: dict[str, str] = {}

    def __call__(self, event: Event) -> None:
        if isinstance(event, TextDelta):
            self._send(chunk("agent_message_chunk", event.text, self._message))
        elif isinstance(event, ThinkingDelta):
            self._send(chunk("agent_thought_chunk", event.text, self._message))
        elif isinstance(event, MessageStart) and event.role == "assistant":
            if not self._in_chain:
                self._message = event.id
            self._in_chain = False
        elif isinstance(event, ContinuationAttempt):
            self._in_chain = True
        elif isinstance(event, RequestStart):
            self._asked = event.request.messages
        elif isinstance(event, ToolStart):
            self._started(event)
        elif isinstance(event, ToolUpdate):
            self._updated(event)
        elif isinstance(event, ToolEnd):
            self._ended(event.message)
        elif isinstance(event, MessageEnd) and isinstance(event.message, AssistantMessage):
            self._in_chain = self._in_chain or event.message.stop_reason is StopReason.PAUSE_TURN
            self._used(event.message)

    def _started(self, event: ToolStart) -> None:
        call = event.call
        before = old_text(call, self._cwd)
        self._open[call.id] = diff_of(call, self._cwd, before)
        status = "pending" if call.name in self._gated else "in_progress"
        self._send(tool_call(call, self._ids.begin(call.id), self._cwd, status, before))

    def _updated(self, event: ToolUpdate) -> None:
        data = event.data if isinstance(event.data, dict) else {}
        shown: dict[str, Any] | None = None
        if isinstance(data.get("plan"), list):
            self._send(plan_update(data["plan"]))
        elif isinstance(data.get("terminal_id"), str):
            self._terminals[event.call_id] = data["terminal_id"]
            shown = {"type": "terminal", "terminalId": data["terminal_id"]}
        elif event.text:
            shown = {"type": "content", "content": text_block(event.text)}
        if shown is not None:
            self._send(tool_update(self._ids.current(event.call_id), status="in_progress", content=[shown]))

    def _ended(self, message: ToolMessage) -> None:
        diff = self._open.pop(message.call_id, None)
        terminal = self._terminals.pop(message.call_id, "")
        self._send(tool_result(self._ids.current(message.call_id), message, diff, terminal))

    def _used(self, message: AssistantMessage) -> None:
        """Tell how full the context is; where the provider does not say, by estimate. A size of 0 is not known."""
        usage = message.usage
        used = usage.total if usage is not None else estimate((*self._asked, message), estimate_tokens)
        update: dict[str, Any] = {"sessionUpdate": "usage_update", "used": used, "size": self._window}
        if usage is None:
            update["_meta"] = {"estimated": True}
        elif usage.cost is not None:
            self.cost += usage.cost
        if self.cost:
            update["cost"] = {"amount": self.cost, "currency": "USD"}
        self._send(update)
