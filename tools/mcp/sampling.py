"""Ask the model for a reply if an MCP server requests this, within the budget of the run."""

from __future__ import annotations

from typing import Any

from glue import AssistantMessage, Limits, Message, Request, Text, run, user
from glue.context import Context, Host
from glue.errors import ToolError
from glue.limits import StopReason
from glue.permission import PermissionRequest, decide
from glue.tools.mcp.content import content_part
from glue.tools.mcp.gate import clean
from glue.tools.mcp.sdk import types


async def sample(server: str, params: Any, context: Context[Any] | None) -> Any:
    """Ask for permission, send an MCP server's messages to the run's model, and return the reply.

    The permission policy decides about the action `mcp-sampling:SERVER`. The request counts in the
    budget of the run. Raise ToolError if the request is refused.
    """
    if context is None or context.provider is None:
        raise ToolError("no run is calling this server, so there is no model to ask")
    messages = [_message(each) for each in params.messages]
    system = clean(params.system_prompt or "")
    await _ask_permission(server, system, messages, context)
    request = Request(
        system=system,
        max_tokens=params.max_tokens,
        temperature=params.temperature,
        stop=tuple(params.stop_sequences or ()),
    )
    result = await run(
        context.provider,
        messages,
        limits=Limits(max_requests=1, continuation_max_attempts=0),
        request=request,
        host=Host(parent=context, session_id=context.session_id),
        cancel=context.cancel,
    )
    if result.error is not None and not result.text:
        raise result.error
    replies = [each for each in result.messages if isinstance(each, AssistantMessage)]
    is_cut = bool(replies) and replies[-1].stop_reason is StopReason.MAX_TOKENS
    return types.CreateMessageResult(
        role="assistant",
        content=types.TextContent(text=result.text),
        model=(replies[-1].model if replies else "") or "unknown",
        stop_reason="maxTokens" if is_cut else "endTurn",
    )


def _message(given: Any) -> Message:
    blocks = given.content if isinstance(given.content, list) else [given.content]
    parts = [content_part(block.model_dump(by_alias=True, mode="json")) for block in blocks]
    if given.role == "assistant":
        return AssistantMessage(content=tuple(each for each in parts if isinstance(each, Text)))
    return user(*parts)


async def _ask_permission(
    server: str, system: str, messages: list[Message], context: Context[Any]
) -> None:
    """Raise ToolError if the run's permission policy does not allow the request of the server."""
    policy = context.host.permission
    texts = [message.text for message in messages]
    request = PermissionRequest(
        tool=context.call.name,
        action=f"mcp-sampling:{server}",
        target=texts[-1] if texts else "",
        arguments={"system": system, "messages": texts},
        call_id=context.call.id,
        session_id=context.scope,
    )
    if policy is None:
        raise ToolError("no permission policy is set; pass permission= to the agent")
    decision = await decide(policy, request)
    if not decision.allowed:
        raise ToolError(f"permission denied: {request.action}: {decision.reason}".rstrip(": "))
