"""One prompt of a session: its events as updates, its questions as permission requests, its end as an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from glue.acp.rpc import AUTH_REQUIRED, INTERNAL, Peer, RpcError
from glue.acp.shapes import STOP_REASONS, chunk, plan_update, tool_call, tool_result, tool_summary
from glue.errors import ConfigError, ProviderError
from glue.events import (
    ContinuationAttempt,
    Event,
    MessageEnd,
    MessageStart,
    ToolEnd,
    ToolStart,
    ToolUpdate,
)
from glue.limits import Outcome
from glue.permission import Decision, PermissionRequest, allow, deny
from glue.result import RunResult
from glue.types import AssistantMessage, TextDelta, ThinkingDelta

OPTIONS = (
    {"optionId": "allow_once", "name": "Allow", "kind": "allow_once"},
    {"optionId": "allow_always", "name": "Always allow", "kind": "allow_always"},
    {"optionId": "reject_once", "name": "Reject", "kind": "reject_once"},
    {"optionId": "reject_always", "name": "Always reject", "kind": "reject_always"},
)
_DECISIONS = {
    "allow_once": allow(),
    "allow_always": allow("session"),
    "reject_once": deny("the user rejected it"),
    "reject_always": deny("the user rejected it", "session"),
}


class Reporter:
    """A listener that sends a run's events to the editor as session updates."""

    def __init__(self, send: Callable[[dict[str, Any]], None], cwd: str, window: int) -> None:
        self._send, self._cwd, self._window = send, cwd, window
        self._message = ""  # the id of the chain that is being told
        self._in_chain = False
        self._cost = 0.0

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
        elif isinstance(event, ToolStart):
            self._send(tool_call(event.call, self._cwd))
        elif isinstance(event, ToolUpdate):
            self._updated(event)
        elif isinstance(event, ToolEnd):
            self._send(tool_result(event.call, event.message, self._cwd))
        elif isinstance(event, MessageEnd) and isinstance(event.message, AssistantMessage):
            self._used(event.message)

    def _updated(self, event: ToolUpdate) -> None:
        if isinstance(event.data, dict) and isinstance(event.data.get("plan"), list):
            self._send(plan_update(event.data["plan"]))
        elif event.text:
            content = [{"type": "content", "content": {"type": "text", "text": event.text}}]
            self._send({"sessionUpdate": "tool_call_update", "toolCallId": event.call_id, "content": content})
        if isinstance(event.data, dict) and isinstance(event.data.get("terminal_id"), str):
            content = [{"type": "terminal", "terminalId": event.data["terminal_id"]}]
            self._send({"sessionUpdate": "tool_call_update", "toolCallId": event.call_id, "content": content})

    def _used(self, message: AssistantMessage) -> None:
        usage = message.usage
        if usage is None:
            return
        used = usage.input + usage.output
        update: dict[str, Any] = {"sessionUpdate": "usage_update", "used": used, "size": max(self._window, used)}
        if usage.cost is not None:
            self._cost += usage.cost
            update["cost"] = {"amount": self._cost, "currency": "USD"}
        self._send(update)


class EditorPermission:
    """Asks the person at the editor, unless the session's mode has answered already."""

    def __init__(self, peer: Peer, session_id: str, cwd: str, mode: Callable[[], str]) -> None:
        self._peer, self._session, self._cwd, self._mode = peer, session_id, cwd, mode

    async def __call__(self, request: PermissionRequest) -> Decision:
        mode = self._mode()
        if mode == "allow":
            return allow()
        if mode == "read":
            return deny("the session is read-only")
        shown = tool_summary(request.tool, request.target, request.call_id, dict(request.arguments), self._cwd)
        params = {"sessionId": self._session, "toolCall": shown, "options": list(OPTIONS)}
        try:
            answer = await self._peer.request("session/request_permission", params)
        except RpcError as error:
            return deny(f"the editor could not ask: {error}")
        outcome = answer.get("outcome") if isinstance(answer, dict) else None
        if not isinstance(outcome, dict) or outcome.get("outcome") != "selected":
            return deny("the question was cancelled")
        return _DECISIONS.get(str(outcome.get("optionId")), deny("the editor answered with an unknown option"))


def answer(result: RunResult[Any]) -> dict[str, Any]:
    """Give the protocol's stop reason for an outcome; a failure is an error with what is known of it."""
    if result.outcome is Outcome.FAILED:
        raise failure(result.error, result)
    usage = result.usage
    meta = {
        "outcome": str(result.outcome),
        "turns": result.turns,
        "requests": result.requests,
        "usage": {"inputTokens": usage.input, "outputTokens": usage.output, "totalTokens": usage.total},
        **({"notice": result.notice} if result.notice else {}),
        **({"detail": str(result.error)} if result.error else {}),
        **(dict(result.meta) if result.meta else {}),
    }
    return {"stopReason": STOP_REASONS[result.outcome], "_meta": meta}


def failure(error: BaseException | None, result: RunResult[Any] | None = None) -> RpcError:
    """Make the error that a prompt is answered with."""
    data: dict[str, Any] = {"outcome": str(Outcome.FAILED)}
    code = INTERNAL
    if isinstance(error, ProviderError):
        data |= {"kind": error.kind, "provider": error.provider, "model": error.model, "status": error.status}
        code = AUTH_REQUIRED if error.kind == "auth" else INTERNAL
    elif isinstance(error, ConfigError):
        code = AUTH_REQUIRED
    if result is not None:
        data |= {"turns": result.turns, "requests": result.requests}
    return RpcError(code, str(error or "the run failed"), data)
