"""The wire of Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from glue.errors import ProviderError
from glue.providers import claude, wire
from glue.providers.anthropic_reply import WIRE, Decoder
from glue.providers.anthropic_reply import decode_json as decode_json
from glue.providers.media import inline, is_remote
from glue.providers.row import Row
from glue.providers.turns import join_turns, stable
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
)

PATH = "/messages"
VERSION = "2023-06-01"

_HEADS = {"user": b'{"role":"user","content":[', "assistant": b'{"role":"assistant","content":['}
_FILLER = b'{"type":"text","text":"(continued)"}'  # a conversation must begin with a user, and not with a blank
_MARK = b',"cache_control":{"type":"ephemeral"}}'
_HIDDEN = ("thinking", "redacted_thinking")


class Anthropic:
    """Ask one server for messages."""

    def __init__(self, row: Row, http: Any, model: str = "") -> None:
        self.row = row
        self.http = http
        self.name = row.name
        self.model = model or row.model

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        model = request.model or self.model
        decoder = Decoder(self.row.quirks, self.name, model)
        async with self.http.post(PATH, encode(request, self.row, model), headers(request), model=model) as blocks:
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


def headers(request: Request) -> dict[str, str]:
    """Name the version, and the beta features that `options["betas"]` asks for as Anthropic's own clients do."""
    betas = (request.options or {}).get("betas")
    return {"anthropic-version": VERSION, **({"anthropic-beta": ",".join(betas)} if betas else {})}


def encode(request: Request, row: Row, model: str) -> bytes:
    """Write a request; messages and tools that were written before are joined as they are."""
    known = claude.facts(model)
    messages = wire.unique_calls(request.messages)
    max_tokens = request.max_tokens or known.max_output
    forced = bool(request.tools) and request.tool_choice not in ("auto", "none")
    body: dict[str, Json] = {"model": model, "max_tokens": max_tokens}
    # A forced tool and thinking exclude each other; the tool is what the caller relies on.
    if not forced and row.quirks.reasoning:
        body |= claude.thinking(known, request.reasoning, max_tokens)
    mode = wire.object_of(body.get("thinking")).get("type")
    if mode == "enabled" and _lacks_thinking(messages, row, model):
        del body["thinking"]
        mode = None
    if request.system.strip():
        block = b'{"type":"text","text":' + wire.quote(request.system) + b"}"
        body["system"] = wire.array([_marked(block)]) if request.cache else wire.quote(request.system)
    body |= _tools(request, messages)
    body["messages"] = _messages(messages, request.cache, row, model)
    if request.temperature is not None and known.sampling and mode in (None, "disabled"):
        body["temperature"] = request.temperature
    stop = [text for text in request.stop if text.strip()]
    if stop:
        body["stop_sequences"] = stop
    if request.output_schema is not None and takes_output(request.output_schema, model):
        wanted = {"type": "json_schema", "schema": claude.output_schema(request.output_schema)}
        body["output_config"] = {**wire.object_of(body.get("output_config")), "format": wanted}
    if request.stream:
        body["stream"] = True
    options = {name: value for name, value in (request.options or {}).items() if name != "betas"}
    return wire.assemble(body, options)


def takes_output(schema: Json, model: str, *, tools: bool = False) -> bool:
    """Say whether an answer can be held to a schema; else a final tool has to do."""
    return claude.facts(model).output and claude.output_schema(schema) is not None


def _tools(request: Request, messages: Sequence[Message]) -> dict[str, Json]:
    if not request.tools:
        # Calls in the history are refused unless tools are named.
        names = sorted(
            {call.name for message in messages if isinstance(message, AssistantMessage) for call in message.calls}
        )
        if not names:
            return {}
        tools = [_tool(ToolSpec(name=name)) for name in names]
        return {"tools": wire.array(tools), "tool_choice": {"type": "none"}}
    tools = [_tool(tool) for tool in request.tools]
    if request.cache:
        tools[-1] = _marked(tools[-1])
    fields: dict[str, Json] = {"tools": wire.array(tools)}
    if request.tool_choice == "none":
        fields["tool_choice"] = {"type": "none"}
    elif request.tool_choice == "required":
        fields["tool_choice"] = {"type": "any"}
    elif request.tool_choice != "auto":
        fields["tool_choice"] = {"type": "tool", "name": request.tool_choice}
    return fields


def _tool(tool: ToolSpec) -> bytes:
    known: bytes | None = tool.memo.get(WIRE)
    if known is None:
        fields: dict[str, Json] = {"name": tool.name}
        if tool.description:
            fields["description"] = tool.description
        known = tool.memo[WIRE] = wire.dumps({**fields, "input_schema": dict(tool.parameters)})
    return known


def _messages(messages: Sequence[Message], cache: bool, row: Row, model: str) -> bytes:
    key = wire.memo_key(WIRE, row, model)
    pieces: list[tuple[str, bytes]] = []
    for message in messages:
        blocks: bytes | None = message.memo.get(key)
        if blocks is None:
            blocks = message.memo[key] = b",".join(_blocks(message, row, model))
        pieces.append(("assistant" if isinstance(message, AssistantMessage) else "user", blocks))
    if cache:
        for index in stable(messages, pieces):
            written = list(_blocks(messages[index], row, model))
            written[-1] = _marked(written[-1])
            pieces[index] = (pieces[index][0], b",".join(written))
    return join_turns(pieces, _HEADS, _FILLER)


def _marked(block: bytes) -> bytes:
    return block[:-1] + _MARK


def _blocks(message: Message, row: Row, model: str) -> Iterator[bytes]:
    if message.excluded:
        return iter(())
    if isinstance(message, AssistantMessage):
        return _assistant(message, row, model)
    if isinstance(message, ToolMessage):
        return iter((_result(message),))
    return (block for part in message.content if (block := _part(part)) is not None)


def _assistant(message: AssistantMessage, row: Row, model: str) -> Iterator[bytes]:
    own = wire.is_own(message, row)
    signed = own and claude.family(message.model) == claude.family(model)
    blocks: list[tuple[str, bytes]] = []
    for part in message.content:
        written = _reply_part(part, own, signed)
        if written is not None:
            blocks.append(written)
    while blocks and blocks[-1][0] in _HIDDEN:  # a message must not end in thinking
        blocks.pop()
    return (block for _, block in blocks)


def _reply_part(part: Part, own: bool, signed: bool) -> tuple[str, bytes] | None:
    kept = wire.opaque_of(part, WIRE) if own else None
    if isinstance(part, ToolCall):
        if not part.complete:
            return None
        call = {"type": "tool_use", "id": wire.safe_id(part.id), "name": part.name, "input": wire.arguments(part)}
        return "tool_use", wire.dumps({**call, **wire.object_of(kept)})
    if isinstance(part, Thinking):
        if not signed or not isinstance(kept, dict):
            return None
        return "thinking", wire.dumps({"type": "thinking", "thinking": part.text, **kept})
    if isinstance(part, Opaque):
        kind = wire.text_of(wire.object_of(kept).get("type"))
        return (kind, wire.dumps(kept)) if kind and (signed or kind not in _HIDDEN) else None
    if isinstance(part, Text) and isinstance(kept, dict) and part.text.strip():
        return "text", wire.dumps({"type": "text", "text": part.text, **kept})
    block = _part(part)
    return None if block is None else ("text", block)


def _lacks_thinking(messages: Sequence[Message], row: Row, model: str) -> bool:
    """Say whether the tool round under way began without thinking, which forbids asking for it now."""
    for message in reversed(messages):
        if isinstance(message, AssistantMessage):
            signed = wire.is_own(message, row) and claude.family(message.model) == claude.family(model)
            return bool(message.calls) and not (signed and any(_is_thinking(part) for part in message.content))
        if not isinstance(message, ToolMessage):
            return False
    return False


def _is_thinking(part: Part) -> bool:
    kept = wire.object_of(wire.opaque_of(part, WIRE))
    return "signature" in kept or kept.get("type") == "redacted_thinking"


def _result(message: ToolMessage) -> bytes:
    fields: dict[str, Json] = {"type": "tool_result", "tool_use_id": wire.safe_id(message.call_id)}
    if message.is_error:
        fields["is_error"] = True
    if all(isinstance(part, Text) for part in message.content):
        text = message.text or ("error" if message.is_error else "")  # an error must say something
        if text:
            fields["content"] = text
        return wire.dumps(fields)
    blocks = (block for part in message.content if (block := _part(part)) is not None)
    return wire.dumps(fields)[:-1] + b',"content":' + wire.array(blocks) + b"}"


def _part(part: Part) -> bytes | None:
    if isinstance(part, Text):
        return b'{"type":"text","text":' + wire.quote(part.text) + b"}" if part.text.strip() else None
    if isinstance(part, Image):
        return wire.dumps({"type": "image", "source": _image(part)})
    if isinstance(part, File):
        return wire.dumps(
            {"type": "document", "source": _document(part), **({"title": part.name} if part.name else {})}
        )
    return None


def _image(part: Image) -> dict[str, Json]:
    if is_remote(part):
        return {"type": "url", "url": part.url}
    kind, data = inline(part)
    return {"type": "base64", "media_type": kind, "data": data}


def _document(part: File) -> dict[str, Json]:
    if part.media_type == "application/pdf":
        return {"type": "base64", "media_type": part.media_type, "data": wire.base64_text(part.data)}
    try:
        return {"type": "text", "media_type": "text/plain", "data": part.data.decode("utf-8")}
    except UnicodeDecodeError:
        text = f"cannot send a file of type {part.media_type}; PDF and text are understood"
        raise ProviderError(text, kind="invalid_request", provider=WIRE) from None
