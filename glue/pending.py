"""Tool calls that wait: for a person's decision, or for a result that another system supplies.

The reply that contains the calls stores their records in its `meta`. So another process can resume
the run from the stored transcript alone. The keys in `meta` are:

    pending  records by call id: the question for a person, and whether the run ended to wait
    started  ids of pending calls that were allowed and may have run
    later    ids of calls that run after the pending calls, because they must not run concurrently
    votes    ids of calls whose results have `terminate` set, which asks to end the run
    spent    turns, requests, tokens and dollars of the run up to the pause
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from glue.checks import show
from glue.codec import from_json, to_plain
from glue.loop.transcript import last_reply, next_result, open_calls
from glue.messages import (
    AssistantMessage,
    Json,
    Message,
    Text,
    ToolCall,
    ToolMessage,
    messages_from_json,
    messages_to_json,
)

if TYPE_CHECKING:
    from glue.context import ToolResult
    from glue.decision import Decision, PendingCall, PermissionRequest

Decisions: TypeAlias = Mapping[str, "Decision | ToolResult | str | Json"]

PENDING, STARTED, LATER, VOTES, SPENT = "pending", "started", "later", "votes", "spent"
# Why an allowed call waits again; for the user.
CHANGED = "the target of the call has changed since the decision was requested"


class CallDeferred(BaseException):
    """The exception that a tool raises if its call has to wait for a decision or a result.

    The loop catches it and ends the run `paused`. The class is not derived from `Exception`, so
    that `except Exception` in a tool does not catch it.
    """

    def __init__(
        self,
        arguments: Mapping[str, Any],
        request: PermissionRequest | None = None,
        reason: str = "",
        *,
        agent: str = "",
        messages: Sequence[Message] = (),
    ) -> None:
        super().__init__(reason)
        self.record: dict[str, Json] = record_of(arguments, request, reason)
        if agent:  # the call runs a sub-agent, which is paused itself
            self.record |= {"agent": agent, "messages": messages_to_json(messages)}


def record_of(
    arguments: Mapping[str, Any], request: PermissionRequest | None = None, reason: str = ""
) -> dict[str, Json]:
    """Return the JSON record of a pending call, which is stored in the `meta` of its reply."""
    record: dict[str, Json] = {"arguments": _plain(arguments)}
    if request is not None:
        record["request"] = shown_request(request)
    return record | ({"reason": reason} if reason else {})


def shown_request(request: PermissionRequest) -> Json:
    """Return a request as JSON, without `session_id`, which a resumed run sets again."""
    shown = _plain(request)
    shown.pop("session_id")
    return shown


def _plain(value: Any) -> Any:
    """Return a value as JSON data in which tuples are lists, as after loading it from a store."""
    return json.loads(json.dumps(to_plain(value)))


# Pending calls of a transcript --------------------------------------------------------------------


def waiting_records(reply: AssistantMessage | None) -> dict[str, dict[str, Json]]:
    """Return the records of a reply's pending calls that have not started, by call id."""
    meta = (reply.meta if reply is not None else None) or {}
    started = meta.get(STARTED, ())
    records = meta.get(PENDING, {})
    return {key: record for key, record in records.items() if key not in started}


def pending_calls(messages: Sequence[Message]) -> tuple[PendingCall, ...]:
    """Return the pending calls of the last reply and of its sub-agents, in their order."""
    records = waiting_records(last_reply(messages))
    found: list[PendingCall] = []
    for call in open_calls(messages):
        if (record := records.get(call.id)) is not None:
            found += _pending(call, record)
    return tuple(found)


def is_paused(messages: Sequence[Message]) -> bool:
    """Return whether the last run ended `paused` and still has a pending call."""
    records = waiting_records(last_reply(messages))
    return any(records.get(call.id, {}).get("deferred") for call in open_calls(messages))


def _pending(call: ToolCall, record: Mapping[str, Json]) -> list[PendingCall]:
    from glue.decision import PendingCall, PermissionRequest  # start-up: few runs have them

    if "messages" in record:
        inner = pending_calls(messages_from_json(record["messages"]))
        return [
            PendingCall(
                id=f"{call.id}/{each.id}",
                tool=each.tool,
                arguments=each.arguments,
                request=each.request,
                reason=each.reason,
                path=(str(record["agent"]), *each.path),
            )
            for each in inner
        ]
    shown = record.get("request")
    return [
        PendingCall(
            id=call.id,
            tool=call.name,
            arguments=record.get("arguments", {}),
            request=None if shown is None else from_json(PermissionRequest, shown),
            reason=record.get("reason", ""),
        )
    ]


def rejections(
    messages: Sequence[Message], reason: str = ""
) -> list[tuple[ToolMessage, str | None]]:
    """Return error results for the pending calls, each with the id of the message that follows it.

    The list contains pairs. The id is None if the result belongs at the end of the transcript.
    Calls that were to run after the pending calls get an error result too.
    """
    if (reply := last_reply(messages)) is None:
        return []
    records = waiting_records(reply)
    later = (reply.meta or {}).get(LATER, ())
    found: list[tuple[ToolMessage, str | None]] = []
    for call in open_calls(messages):
        if call.id in records:
            text = "permission denied: " + _target(call, records[call.id])
            text += f": {reason}" if reason else ""
        elif call.id in later:
            text = "not run, because an earlier call was denied"
        else:
            continue
        result = ToolMessage(
            call_id=call.id, name=call.name, content=(Text(text=text),), is_error=True
        )
        after = next_result(messages, reply, call.id)
        found.append((result, after.id if after is not None else None))
    return found


def _target(call: ToolCall, record: Mapping[str, Json]) -> str:
    request = record.get("request") or {"action": call.name, "target": ""}
    return f"{request['action']} {request['target']}".strip()


# Decisions ----------------------------------------------------------------------------------------


def check_decisions(messages: Sequence[Message], decisions: Mapping[str, Any] | None) -> None:
    """Raise ValueError or TypeError if a decision does not belong to a pending call or is invalid.

    `decisions` maps ids of pending calls to `glue.allow()`, `glue.deny(reason)` or a result.
    """
    if not decisions:
        return
    from glue.decision import Decision  # start-up: few runs have pending calls

    if not isinstance(decisions, Mapping):
        raise TypeError(
            "decisions must be a dict of call ids, such as {call.id: glue.allow()}, "
            f"not {show(decisions)}"
        )
    pending = {call.id: call for call in pending_calls(messages)}
    for key, decision in decisions.items():
        call = pending.get(key)
        if call is None:
            there = ", ".join(f"{each.id} ({each.summary})" for each in pending.values())
            raise ValueError(
                f"decisions contains {key!r}, which is not a pending call; "
                f"pending calls: {there or 'none'}"
            )
        if decision is None or isinstance(decision, bool) or callable(decision):
            raise TypeError(
                f"the decision for {key!r} must be glue.allow(), glue.deny(reason) or a result, "
                f"not {show(decision)}"
            )
        if call.request is None and isinstance(decision, Decision) and decision.allowed:
            raise ValueError(
                f"{call.tool} is an external tool, which glue does not run: "
                f"give its result, as in decisions={{{key!r}: 'the result'}}"
            )


def inner_decisions(id: str, decisions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the decisions for the calls in a sub-agent, which the call `id` runs, by call id.

    The keys of these decisions begin with "ID/". The prefix is removed, so that the keys are the
    ids of the calls in the sub-agent.
    """
    start = f"{id}/"
    return {key[len(start) :]: value for key, value in decisions.items() if key.startswith(start)}
