"""OpenAI Responses: typed items in, typed events out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from glue.providers import wire
from glue.providers.openai_responses_reply import WIRE as WIRE
from glue.providers.openai_responses_reply import Decoder as Decoder
from glue.providers.openai_responses_reply import decode_json as decode_json
from glue.providers.openai_responses_reply import identity
from glue.providers.row import Quirks, Row
from glue.types import (
    AssistantMessage,
    File,
    Image,
    Json,
    Message,
    Part,
    ProviderEvent,
    Request,
    Text,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)

PATH = "/responses"


class OpenAIResponses:
    """Ask one server for responses."""

    def __init__(self, row: Row, http: Any, model: str = "") -> None:
        self.row = row
        self.http = http
        self.name = row.name
        self.model = model or row.model

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        model = request.model or self.model
        decoder = Decoder(self.row.quirks, self.name, model)
        async with self.http.post(PATH, encode(request, self.row, model), model=model) as blocks:
            async for block in blocks:
                for event in decoder.feed(block):
                    yield event
                if decoder.failure is not None or decoder.ended:
                    break
        done = wire.settle(self.http, decoder)
        for event in decoder.late:
            yield event
        yield wire.priced(done, self.name, model)


# Requests -----------------------------------------------------------------------------------------


def encode(request: Request, row: Row, model: str) -> bytes:
    """Make the body of a request. The wire has no stop sequences; they are left out."""
    quirks = row.quirks
    key = wire.memo_key(WIRE, row, model)
    pieces = wire.Pieces()
    for message in wire.unique_calls(request.messages):
        encoded = message.memo.get(key)
        if encoded is None:
            encoded = message.memo[key] = tuple(map(wire.dumps, _items(message, row, model)))
        pieces += encoded
    fields: dict[str, Json] = {"model": model, "input": pieces}
    if request.system:
        fields["instructions"] = request.system
    if request.stream:
        fields["stream"] = True
    if request.tools and quirks.tools:
        fields["tools"] = wire.array(map(_tool, request.tools))
        if request.tool_choice != "auto":
            fields["tool_choice"] = _tool_choice(request.tool_choice)
    if request.max_tokens is not None:
        fields["max_output_tokens"] = request.max_tokens
    if request.temperature is not None:
        fields["temperature"] = request.temperature
    if request.reasoning is not None and quirks.reasoning:
        fields["reasoning"] = {"effort": request.reasoning}
    if request.output_schema is not None and quirks.output:
        fields["text"] = {"format": _format(request.output_schema, quirks)}
    if request.cache and quirks.cache == "key":
        fields["prompt_cache_key"] = wire.cache_key(request)
    if quirks.encrypted:
        # The transcript is ours, so nothing is kept there; reasoning comes back sealed instead.
        fields["store"] = False
        if not model.startswith(quirks.plain_models):
            fields["include"] = ["reasoning.encrypted_content"]
    return wire.assemble(fields, request.options)


def _items(message: Message, row: Row, model: str) -> Iterator[Json]:
    if message.excluded:
        return
    if isinstance(message, UserMessage):
        content = _content(message.content, row.quirks)
        if content:
            yield {"role": "user", "content": content}
    elif isinstance(message, ToolMessage):
        output: Json = _content(message.content, row.quirks)
        call_id = _call_id(message.call_id, row.quirks)
        yield {"type": "function_call_output", "call_id": call_id, "output": output or ""}
    else:
        yield from _assistant(message, row, model)


def _content(parts: Sequence[Part], quirks: Quirks) -> str | list[Json]:
    blocks: list[Json] = []
    for part in parts:
        if isinstance(part, Text) and part.text:
            blocks.append({"type": "input_text", "text": part.text})
        elif isinstance(part, Image) and quirks.images:
            blocks.append({"type": "input_image", "image_url": wire.data_url(part)})
        elif isinstance(part, File):
            blocks.append({"type": "input_file", "filename": part.name or "file", "file_data": wire.data_url(part)})
    if len(blocks) == 1 and blocks[0]["type"] == "input_text":
        text: str = blocks[0]["text"]
        return text
    return blocks


def _assistant(message: AssistantMessage, row: Row, model: str) -> Iterator[Json]:
    own = wire.is_own(message, row, model)
    sealed: list[tuple[Json, Json]] = []  # reasoning items, and what followed each
    open_text: dict[str, Json] | None = None  # a message item that more texts may join
    for part in message.content:
        kept = wire.object_of(wire.opaque_of(part, WIRE)) if own else {}
        item = kept.get("item")
        if item and item.get("type") == "reasoning":
            sealed.append((item, kept.get("next")))
            continue
        body = item or _own_words(part, kept, row.quirks)
        if not body:
            continue
        if open_text is not None and body.get("type") == "message" and body.get("id") == open_text.get("id"):
            open_text["content"].extend(body["content"])
            continue
        if open_text is not None:
            yield open_text
            open_text = None
        yield from _chain(sealed, body, row.quirks)
        sealed.clear()
        if body.get("type") == "message" and body.get("id"):
            open_text = body
        else:
            yield body
    if open_text is not None:
        yield open_text


def _chain(sealed: Sequence[tuple[Json, Json]], follower: Json, quirks: Quirks) -> list[Json]:
    """Return the reasoning that may go back before an item.

    It is refused without the very item that followed it, and, where nothing is stored, without its
    sealed content.
    """
    kept: list[Json] = []
    for item, wanted in reversed(sealed):
        is_sent = item.get("encrypted_content") or not quirks.encrypted
        if wanted is None or wanted != identity(follower) or not is_sent:
            break
        kept.append(item)
        follower = item
    return kept[::-1]


def _own_words(part: Part, kept: dict[str, Json], quirks: Quirks) -> dict[str, Json]:
    if isinstance(part, ToolCall):
        call: dict[str, Json] = {"type": "function_call", "call_id": _call_id(part.id, quirks), "name": part.name}
        call["arguments"] = wire.argument_text(part)
        return {**call, "id": kept["id"]} if kept.get("id") else call
    if not isinstance(part, Text) or not part.text:
        return {}
    if not kept.get("id"):
        return {"type": "message", "role": "assistant", "content": part.text}
    content: dict[str, Json] = {"type": "output_text", "text": part.text, "annotations": []}
    if kept.get("refusal"):
        content = {"type": "refusal", "refusal": part.text}
    body = {"type": "message", "role": "assistant", "id": kept["id"], "status": "completed", "content": [content]}
    return {**body, "phase": kept["phase"]} if kept.get("phase") else body


def _call_id(call_id: str, quirks: Quirks) -> str:
    return call_id if 0 < len(call_id) <= quirks.tool_id_limit else "call_" + wire.short_id(call_id, 20)


def _tool(tool: ToolSpec) -> bytes:
    encoded: bytes | None = tool.memo.get(WIRE)
    if encoded is None:
        body = {"type": "function", "name": tool.name, "parameters": tool.parameters, "strict": False}
        if tool.description:
            body["description"] = tool.description
        encoded = tool.memo[WIRE] = wire.dumps(body)
    return encoded


def _tool_choice(choice: str) -> Json:
    return choice if choice in ("none", "required") else {"type": "function", "name": choice}


def _format(schema: Json, quirks: Quirks) -> Json:
    if quirks.output == "json_object":
        return {"type": "json_object"}
    strict = quirks.strict and wire.is_strict(schema)
    return {"type": "json_schema", "name": wire.schema_name(schema), "schema": schema, "strict": strict}
