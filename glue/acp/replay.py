"""A stored conversation as updates, as if it were said again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from glue.acp.calls import Ids, diff_of, tool_call, tool_result, tool_update
from glue.acp.shapes import chunk, content_blocks, text_block
from glue.limits import StopReason
from glue.types import AssistantMessage, Message, Text, Thinking, ToolCall, ToolMessage, UserMessage

_SAID = ("user", "steering", "follow_up")  # what people said, and not the loop


def replay(messages: Sequence[Message], cwd: str, ids: Ids) -> Iterator[dict[str, Any]]:
    """Tell everything again, but for refused prompts: those have left the context."""
    calls: dict[str, ToolCall] = {}
    chain = ""  # the id that a continuation goes on with
    for message in _kept(messages):
        if isinstance(message, UserMessage):
            if message.origin != "continue":
                chain = ""
            if message.origin in _SAID:
                for block in content_blocks(message.content):
                    yield {"sessionUpdate": "user_message_chunk", "content": block, "messageId": message.id}
        elif isinstance(message, AssistantMessage):
            chain = chain or message.id
            yield from _said(message, chain)
            for call in message.calls:
                calls[call.id] = call
                yield tool_call(call, ids.begin(call.id), cwd, "in_progress")
            if message.stop_reason not in (StopReason.PAUSE_TURN, StopReason.MAX_TOKENS):
                chain = ""
        elif (call_made := calls.pop(message.call_id, None)) is not None:
            yield tool_result(ids.current(message.call_id), message, diff_of(call_made, cwd))
    for left in calls:  # the process was killed before it had their results
        content = [{"type": "content", "content": text_block("interrupted")}]
        yield tool_update(ids.current(left), status="failed", content=content)


def _said(message: AssistantMessage, id: str) -> Iterator[dict[str, Any]]:
    for part in message.content:
        if isinstance(part, Text) and part.text:
            yield chunk("agent_message_chunk", part.text, id)
        elif isinstance(part, Thinking) and part.text:
            yield chunk("agent_thought_chunk", part.text, id)


def _kept(messages: Sequence[Message]) -> Iterator[Message]:
    """Leave out runs that were refused; what a compaction took out of the context is still told."""
    prompts = [at for at, each in enumerate(messages) if isinstance(each, UserMessage) and each.origin == "user"]
    starts = sorted({0, *prompts, len(messages)})
    for start, stop in pairwise(starts):
        run = messages[start:stop]
        if not _refused(run):
            yield from (message for message in run if not _delivered(message))


def _refused(run: Sequence[Message]) -> bool:
    replies = [message for message in run if isinstance(message, AssistantMessage)]
    excluded = all(message.excluded for message in run)
    return excluded and (not replies or replies[-1].stop_reason is StopReason.REFUSAL)


def _delivered(message: Message) -> bool:
    return isinstance(message, ToolMessage) and message.call_id == "delivered"
