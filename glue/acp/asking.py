"""Permission from the person at the editor."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from glue.acp.calls import Ids, describe, old_text, tool_update
from glue.acp.rpc import Peer, RpcError
from glue.permission import Ask, Decision, Permission, PermissionRequest, allow, as_decision, deny
from glue.types import ToolCall

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


class EditorPermission:
    """A policy for one session: its mode first, then the agent's own policy where it has one, then the person."""

    def __init__(
        self,
        peer: Peer,
        session_id: str,
        cwd: str,
        *,
        ids: Ids,
        mode: Callable[[], str],
        own: Permission | None = None,
    ) -> None:
        self._peer, self._session, self._cwd = peer, session_id, cwd
        self._ids, self._mode, self._own = ids, mode, own
        self._asked = Ask(self._ask)

    async def decide(self, request: PermissionRequest) -> Decision:
        decision = await self._decide(request)
        if decision.allowed:
            update = tool_update(self._ids.current(request.call_id), status="in_progress")
            self._peer.notify("session/update", {"sessionId": self._session, "update": update})
        return decision

    async def _decide(self, request: PermissionRequest) -> Decision:
        mode = self._mode()
        if mode == "read":
            return deny("the session is read-only")
        if self._own is not None:
            said = self._own.decide(request)
            return as_decision(await said if isinstance(said, Awaitable) else said)
        return allow() if mode == "allow" else await self._asked.decide(request)

    async def _ask(self, request: PermissionRequest) -> Decision:
        arguments = json.dumps(dict(request.arguments), default=str)
        call = ToolCall(id=request.call_id, name=request.tool, arguments=arguments)
        shown = describe(call, self._ids.current(call.id), self._cwd, "pending", old_text(call, self._cwd))
        if request.target:
            shown["title"] = f"{request.tool}: {request.target}"
        params = {"sessionId": self._session, "toolCall": shown, "options": OPTIONS}
        try:
            answer = await self._peer.request("session/request_permission", params)
        except RpcError as error:
            return deny(f"the editor could not ask: {error}")
        return _decision(answer)


def _decision(answer: Any) -> Decision:
    outcome = answer.get("outcome") if isinstance(answer, dict) else None
    if not isinstance(outcome, dict) or outcome.get("outcome") != "selected":
        return deny("the question was cancelled")
    return _DECISIONS.get(str(outcome.get("optionId")), deny("the editor answered with an unknown option"))
