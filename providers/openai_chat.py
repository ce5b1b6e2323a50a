"""OpenAI chat completions, as OpenAI and most other servers speak it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from glue.errors import ProviderError
from glue.providers import wire
from glue.providers.openai_chat_reply import WIRE as WIRE
from glue.providers.openai_chat_reply import Decoder as Decoder
from glue.providers.openai_chat_reply import decode_json as decode_json
from glue.providers.row import Quirks, Row
from glue.types import (
    AssistantMessage,
    File,
    Image,
    Json,
    Message,
    Opaque,
    Part,
    ProviderEvent,
    Request,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)

PATH = "/chat/completions"

_MARK = {"cache_control": {"type": "ephemeral"}}


class OpenAIChat:
    """Ask one server for chat completions."""

    def __init__(self, row: Row, http: Any, model: str = "") -> None:
        self.row = row
        self.http = http
        self.name = row.name
        self.model = model or row.model

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        model = request.model or self.model
        decoder = Decoder(self.row.quirks, self.name, model)
        try:
            async with self.http.post(PATH, encode(request, self.row, model), model=model) as blocks:
                async for block in blocks:
                    for event in decoder.feed(block):
                        yield event
                    if decoder.failure is not None or decoder.ended:
                        break
        except ProviderError as error:
            # With its finish_reason the answer has come, and [DONE] alone is missing.
            if not decoder.closed or error.kind not in ("timeout", "transient"):
                raise
        done = wire.settle(self.http, decoder)
        for event in decoder.late:
            yield event
        yield wire.priced(done, self.name, model)


# Requests -----------------------------------------------------------------------------------------


def encode(request: Request, row: Row, model: str) -> bytes:
    """Make the body of a request; messages that were sent before are not encoded again."""
    quirks = row.quirks
    marks = request.cache and quirks.cache == "control"
    fields: dict[str, Json] = {"model": model, "messages": wire.Pieces(_messages(request, row, model, marks))}
    if request.stream:
        fields["stream"] = True
        if quirks.stream_usage:
            fields["stream_options"] = {"include_usage": True}
    if request.tools and quirks.tools:
        fields["tools"] = wire.array(_tools(request.tools, marks))
        if request.tool_choice != "auto":
            fields["tool_choice"] = _tool_choice(request.tool_choice)
    if request.max_tokens is not None:
        fields[quirks.max_tokens] = request.max_tokens
    if request.temperature is not None:
        fields["temperature"] = request.temperature
    if request.stop:
        fields["stop"] = request.stop
    if request.output_schema is not None and quirks.output:
        fields["response_format"] = _response_format(request.output_schema, quirks)
    if request.cache and quirks.cache == "key":
        fields["prompt_cache_key"] = wire.cache_key(request)
    fields.update(_reasoning(request.reasoning, quirks))
    return wire.assemble(fields, request.options)


def _messages(request: Request, row: Row, model: str, marks: bool) -> list[bytes]:
    key = wire.memo_key(WIRE, row, model)
    pieces: list[bytes] = []
    if request.system:
        content: Json = [{"type": "text", "text": request.system, **_MARK}] if marks else request.system
        pieces.append(wire.dumps({"role": row.quirks.system_role, "content": content}))
    messages = wire.unique_calls(request.messages)
    if row.quirks.merge:
        messages = wire.merge_users(messages)
    last = messages[-1] if marks and messages else None
    pictures: list[bytes] = []  # of tool results: they follow the whole batch, as a user's message
    for block in wire.blocks(messages):
        bare = len(block) == wire.BLOCK and not pictures and block[-1] is not last
        joined = wire.block_memo(block, key) if bare else None
        if joined is None:
            found = _pieces(block, key, pictures, last, row, model)
            if bare and not pictures:
                wire.keep_block(block, key, b",".join(found))
            pieces += found
        elif joined:
            pieces.append(joined)
    return pieces + pictures


def _pieces(
    messages: Sequence[Message], key: str, pictures: list[bytes], last: Message | None, row: Row, model: str
) -> list[bytes]:
    pieces: list[bytes] = []
    for message in messages:
        encoded: bytes | tuple[bytes, bytes] | None = message.memo.get(key)
        if encoded is None:
            encoded = message.memo[key] = _message(message, row, model)
        if pictures and not isinstance(message, ToolMessage):
            pieces += pictures
            pictures.clear()
        if message is last:
            encoded = _marked(encoded)
        if isinstance(encoded, tuple):
            encoded, picture = encoded
            pictures.append(picture)
        if encoded:
            pieces.append(encoded)
    return pieces


def _message(message: Message, row: Row, model: str) -> bytes | tuple[bytes, bytes]:
    """Encode a message to nothing, to one piece, or to a tool's result and the pictures that go with it."""
    if message.excluded:
        return b""
    if isinstance(message, UserMessage):
        content = _content(message.content, row.quirks)
        return wire.dumps({"role": "user", "content": content}) if content else b""
    if isinstance(message, ToolMessage):
        return _result(message, row.quirks)
    body = _assistant(message, row, model)
    return wire.dumps(body) if body else b""


def _content(parts: Sequence[Part], quirks: Quirks) -> str | list[Json]:
    blocks: list[Json] = []
    for part in parts:
        if isinstance(part, Text) and part.text:
            blocks.append({"type": "text", "text": part.text})
        elif isinstance(part, Image) and quirks.images:
            blocks.append({"type": "image_url", "image_url": {"url": wire.data_url(part)}})
        elif isinstance(part, File):
            file = {"filename": part.name or "file", "file_data": wire.data_url(part)}
            blocks.append({"type": "file", "file": file})
    if len(blocks) == 1 and blocks[0]["type"] == "text":
        text: str = blocks[0]["text"]
        return text
    return blocks


def _result(message: ToolMessage, quirks: Quirks) -> bytes | tuple[bytes, bytes]:
    call_id = _call_id(message.call_id, quirks)
    encoded = wire.dumps({"role": "tool", "tool_call_id": call_id, "content": wire.result_text(message)})
    pictures = [part for part in message.content if isinstance(part, (Image, File))]
    content = _content([Text(text=f"From the result of {message.name}:"), *pictures], quirks)
    if not pictures or isinstance(content, str):
        return encoded
    return encoded, wire.dumps({"role": "user", "content": content})


def _assistant(message: AssistantMessage, row: Row, model: str) -> dict[str, Json]:
    quirks = row.quirks
    own = wire.is_own(message, row)
    text = message.text
    calls = [_call(part, own, quirks) for part in message.content if isinstance(part, ToolCall)]
    body: dict[str, Json] = {"role": "assistant", "content": text or None}
    if calls:
        body["tool_calls"] = calls
    if own:
        _echo(message, body, quirks, same_model=message.model == model)
    if quirks.echo == "reasoning_content" and calls:
        body.setdefault("reasoning_content", "")  # its absence is refused, also on calls of another model
    return body if text or calls else {}


def _echo(message: AssistantMessage, body: dict[str, Json], quirks: Quirks, *, same_model: bool) -> None:
    details: list[Json] = []
    thoughts: list[str] = []
    listed = False
    for part in message.content:
        data = wire.opaque_of(part, WIRE)
        kept = data if isinstance(data, dict) else {}
        if same_model:
            details.extend(kept.get("reasoning_details") or ())
            if isinstance(part, Opaque):
                body.update(kept.get("message") or {})
        if isinstance(part, Thinking):
            thoughts.append(part.text)
            listed = listed or bool(kept.get("content"))
    if details:
        body["reasoning_details"] = details
    elif listed:
        thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "".join(thoughts)}]}
        body["content"] = [thinking, *([{"type": "text", "text": body["content"]}] if body["content"] else [])]
    elif thoughts and quirks.echo in ("reasoning_content", "reasoning"):
        body[quirks.echo] = "".join(thoughts)


def _call(call: ToolCall, own: bool, quirks: Quirks) -> dict[str, Json]:
    function = {"name": call.name, "arguments": wire.argument_text(call)}
    body: dict[str, Json] = {"id": _call_id(call.id, quirks), "type": "function", "function": function}
    extra = wire.opaque_of(call, WIRE)
    if own and isinstance(extra, dict):
        body.update(extra)
    return body


def _call_id(call_id: str, quirks: Quirks) -> str:
    if quirks.tool_ids == "nine":
        return call_id if len(call_id) == 9 and call_id.isalnum() and call_id.isascii() else wire.short_id(call_id)
    return call_id if 0 < len(call_id) <= quirks.tool_id_limit else "call_" + wire.short_id(call_id, 20)


def _marked(encoded: bytes | tuple[bytes, bytes]) -> bytes | tuple[bytes, bytes]:
    """Set the cache mark on the last block of the last message."""
    if isinstance(encoded, tuple):
        return encoded[0], _marked_piece(encoded[1])
    return _marked_piece(encoded) if encoded else encoded


def _marked_piece(encoded: bytes) -> bytes:
    body = wire.loads(encoded)
    content = body.get("content")
    if isinstance(content, str) and content:
        content = [{"type": "text", "text": content}]
    if not isinstance(content, list) or not content:
        return encoded
    body["content"] = [*content[:-1], {**content[-1], **_MARK}]
    return wire.dumps(body)


def _tools(tools: Sequence[ToolSpec], marks: bool) -> list[bytes]:
    pieces = []
    for tool in tools:
        encoded = tool.memo.get(WIRE)
        if encoded is None:
            function: dict[str, Json] = {"name": tool.name, "parameters": tool.parameters}
            if tool.description:
                function["description"] = tool.description
            encoded = tool.memo[WIRE] = wire.dumps({"type": "function", "function": function})
        pieces.append(encoded)
    if marks:
        pieces[-1] = wire.dumps({**wire.loads(pieces[-1]), **_MARK})
    return pieces


def _tool_choice(choice: str) -> Json:
    return choice if choice in ("none", "required") else {"type": "function", "function": {"name": choice}}


def _response_format(schema: Json, quirks: Quirks) -> Json:
    if quirks.output == "json_object":
        return {"type": "json_object"}
    wanted = {"name": wire.schema_name(schema), "schema": schema}
    if quirks.strict and wire.is_strict(schema):
        wanted["strict"] = True
    return {"type": "json_schema", "json_schema": wanted}


def _reasoning(effort: str | None, quirks: Quirks) -> dict[str, Json]:
    if effort is None or not quirks.reasoning:
        return {}
    on = effort != "none"
    if quirks.reasoning == "object":
        return {"reasoning": {"effort": effort} if on else {"enabled": False}}
    if quirks.reasoning in ("thinking", "kept_thinking"):
        thinking: dict[str, Json] = {"type": "enabled" if on else "disabled"}
        if quirks.reasoning == "kept_thinking" and on:
            thinking["clear_thinking"] = False
        return {"thinking": thinking}
    if quirks.reasoning == "enable":
        return {"enable_thinking": on}
    if quirks.reasoning == "groq":
        return {"reasoning_effort": "low" if effort == "minimal" else effort, "reasoning_format": "parsed"}
    return {"reasoning_effort": effort}
