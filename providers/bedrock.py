"""The wire of Amazon Bedrock's Converse and ConverseStream."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any
from urllib.parse import quote

from glue.errors import MissingKey, ProviderError
from glue.providers import claude, sigv4, wire
from glue.providers.bedrock_reply import WIRE, Decoder
from glue.providers.bedrock_reply import decode_json as decode_json
from glue.providers.media import inline, is_remote
from glue.providers.row import Row
from glue.providers.turns import join_turns, stable
from glue.types import (
    AssistantMessage,
    Effort,
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

REGION = "us-east-1"

_HEADS = {"user": b'{"role":"user","content":[', "assistant": b'{"role":"assistant","content":['}
_FILLER = b'{"text":"(continued)"}'  # a conversation must begin with a user, and not with a blank
_POINT = b'{"cachePoint":{"type":"default"}}'
_FORMATS = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "text/html": "html",
    "text/plain": "txt",
    "text/markdown": "md",
}


def path(model: str, stream: bool) -> str:
    """Name the operation of a model; colons and the slashes of ARNs are escaped."""
    return f"/model/{quote(model, safe='')}/{'converse-stream' if stream else 'converse'}"


class Bedrock:
    """Ask Bedrock, with a bearer token where the connection has one, else with signed requests."""

    def __init__(self, row: Row, http: Any, model: str = "", credentials: sigv4.Credentials | None = None) -> None:
        self.row = row
        self.http = http
        self.name = row.name
        self.model = model or row.model
        self._credentials = credentials

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        model = request.model or self.model
        decoder = Decoder(self.row.quirks, self.name, model)
        body, target = encode(request, self.row, model), path(model, request.stream)
        async with self.http.post(target, body, self._headers(target, body), model=model) as blocks:
            async for block in blocks:
                for event in decoder.feed(block):
                    yield event
                if decoder.failure is not None:
                    break
        done = wire.settle(self.http, decoder)
        for event in decoder.late:
            yield event
        yield wire.priced(done, self.name, model)

    def _headers(self, target: str, body: bytes) -> dict[str, str]:
        if self.http.authorized:
            return {}
        # Looked up each time: credentials of a session expire and are replaced.
        credentials = self._credentials or sigv4.find_credentials(os.environ)
        if credentials is None:
            raise MissingKey(self.name, ("AWS_BEARER_TOKEN_BEDROCK", "AWS_ACCESS_KEY_ID"))
        self.http.hide(credentials.token)
        address = self.http.address
        found = re.search(r"\.([a-z]{2}(?:-[a-z]+)+-\d+)\.", address.host)
        return sigv4.sign(
            body,
            host=address.authority,
            path=address.target(target),
            region=found[1] if found else sigv4.find_region(os.environ) or REGION,
            credentials=credentials,
            now=sigv4.timestamp(),
        )


# Requests -----------------------------------------------------------------------------------------


def encode(request: Request, row: Row, model: str) -> bytes:
    """Make the body of a request; messages that were sent before are not encoded again."""
    known = claude.facts(model)
    messages = wire.unique_calls(request.messages)
    cache = request.cache and _caches(model)
    more = _thinking(request, messages, row, model)
    thinks = wire.object_of(more.get("thinking")).get("type")
    settings: dict[str, Json] = {}
    max_tokens = request.max_tokens or (known.max_output if thinks == "enabled" else None)
    if max_tokens:
        settings["maxTokens"] = max_tokens
    sampling = known.sampling or "claude" not in model
    if request.temperature is not None and sampling and thinks not in ("enabled", "adaptive"):
        settings["temperature"] = request.temperature
    stop = [text for text in request.stop if text.strip()]
    if stop:
        settings["stopSequences"] = stop

    fields: dict[str, Json] = {"messages": _messages(messages, cache, row, model)}
    if request.system.strip():
        text = b'{"text":' + wire.quote(request.system) + b"}"
        fields["system"] = wire.array([text, _POINT] if cache else [text])
    if settings:
        fields["inferenceConfig"] = settings
    tools = _tools(request, messages, cache and "claude" in model)
    if tools:
        fields["toolConfig"] = tools
    if more:
        fields["additionalModelRequestFields"] = more
    if request.output_schema is not None and takes_output(request.output_schema, model):
        schema = wire.dumps(claude.output_schema(request.output_schema)).decode()
        wanted = {"name": wire.schema_name(request.output_schema), "schema": schema}
        fields["outputConfig"] = {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": wanted}}}
    return wire.assemble(fields, request.options)


def takes_output(schema: Json, model: str, *, tools: bool = False) -> bool:
    """Say whether an answer can be held to a schema; else a final tool has to do."""
    return "claude" in model and claude.facts(model).output and claude.output_schema(schema) is not None


def _caches(model: str) -> bool:
    return "claude" in model or "nova" in model


def _thinking(request: Request, messages: Sequence[Message], row: Row, model: str) -> dict[str, Json]:
    effort: Effort | None = request.reasoning
    if effort is None:
        return {}
    if "claude" in model:
        if request.tools and request.tool_choice not in ("auto", "none"):
            return {}  # a forced tool and thinking exclude each other
        known = claude.facts(model)
        fields = claude.thinking(known, effort, request.max_tokens or known.max_output)
        if wire.object_of(fields.get("thinking")).get("type") == "enabled" and _lacks_thinking(messages, row, model):
            return {}
        return fields
    if effort == "none":
        return {}
    level = "low" if effort == "minimal" else effort
    if "nova-2" in model:
        return {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": level}}
    if "qwen" in model:
        return {"reasoning_config": level}
    return {"reasoning_effort": level} if "gpt-oss" in model or "openai." in model else {}


def _lacks_thinking(messages: Sequence[Message], row: Row, model: str) -> bool:
    """Say whether the tool round under way began without thinking, which forbids asking for it now."""
    for message in reversed(messages):
        if isinstance(message, AssistantMessage):
            signed = _is_signed(message, row, model) and any(wire.opaque_of(part, WIRE) for part in message.content)
            return bool(message.calls) and not signed
        if not isinstance(message, ToolMessage):
            return False
    return False


def _is_signed(message: AssistantMessage, row: Row, model: str) -> bool:
    return wire.is_own(message, row) and claude.family(message.model) == claude.family(model)


def _tools(request: Request, messages: Sequence[Message], cache: bool) -> bytes:
    tools = request.tools
    if not tools or request.tool_choice == "none":
        # Calls in the history are refused without tools, and there is no choice "none".
        used = {call.name for message in messages if isinstance(message, AssistantMessage) for call in message.calls}
        tools = tools or tuple(ToolSpec(name=name) for name in sorted(used))
        if not used:
            return b""
    pieces = [_tool(tool) for tool in tools]
    config = b'{"tools":' + wire.array([*pieces, _POINT] if cache else pieces)
    if request.tools and request.tool_choice not in ("auto", "none"):
        name = request.tool_choice
        config += b',"toolChoice":' + wire.dumps({"any": {}} if name == "required" else {"tool": {"name": name}})
    return config + b"}"


def _tool(tool: ToolSpec) -> bytes:
    known: bytes | None = tool.memo.get(WIRE)
    if known is None:
        fields: dict[str, Json] = {"name": tool.name}
        if tool.description.strip():
            fields["description"] = tool.description
        known = tool.memo[WIRE] = wire.dumps({"toolSpec": {**fields, "inputSchema": {"json": tool.parameters}}})
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
            pieces[index] = (pieces[index][0], pieces[index][1] + b"," + _POINT)
    return join_turns(pieces, _HEADS, _FILLER)


def _blocks(message: Message, row: Row, model: str) -> Iterator[bytes]:
    if message.excluded:
        return iter(())
    if isinstance(message, AssistantMessage):
        return map(wire.dumps, _reply(message, row, model))
    if isinstance(message, ToolMessage):
        return iter((wire.dumps({"toolResult": _result(message, model)}),))
    blocks = list(_content(message.content))
    documents = [block["document"]["name"] for block in blocks if "document" in block]
    if documents and not any("text" in block for block in blocks):
        blocks.append({"text": documents[0]})  # a document must not come alone
    return map(wire.dumps, blocks)


def _content(content: Sequence[Part]) -> Iterator[dict[str, Json]]:
    for part in content:
        if isinstance(part, Text) and part.text.strip():
            yield {"text": part.text}
        elif isinstance(part, Image) and is_remote(part):
            yield {"text": f"(an image: {part.url})"}  # only what is in S3 may be an address
        elif isinstance(part, Image):
            kind, data = inline(part)
            name = kind.removeprefix("image/")
            yield {"image": {"format": "jpeg" if name == "jpg" else name, "source": {"bytes": data}}}
        elif isinstance(part, File):
            yield {"document": _document(part)}


def _document(part: File) -> dict[str, Json]:
    form = _FORMATS.get(part.media_type.partition(";")[0].strip())
    if form is None:
        try:
            part.data.decode("utf-8")
        except UnicodeDecodeError:
            text = f"cannot send a file of type {part.media_type}; it takes {', '.join(sorted(_FORMATS.values()))}"
            raise ProviderError(text, kind="invalid_request", provider=WIRE) from None
        form = "txt"
    # Few characters are allowed, and no two documents of a request may have one name.
    name = " ".join(re.sub(r"[^A-Za-z0-9()\[\]-]", " ", part.name.rpartition("/")[2]).split()) or "document"
    name = f"{name[:60]} {wire.short_id(wire.base64_text(part.data), 4)}"
    return {"name": name, "format": form, "source": {"bytes": wire.base64_text(part.data)}}


def _reply(message: AssistantMessage, row: Row, model: str) -> list[dict[str, Json]]:
    own, signed = wire.is_own(message, row), _is_signed(message, row, model)
    blocks: list[dict[str, Json]] = []
    for part in message.content:
        kept = wire.object_of(wire.opaque_of(part, WIRE)) if own else {}
        if isinstance(part, ToolCall):
            if part.complete:
                call = {"toolUseId": wire.safe_id(part.id), "name": part.name, "input": wire.arguments(part)}
                blocks.append({"toolUse": call})
        elif isinstance(part, Thinking):
            if signed and kept:
                blocks.append({"reasoningContent": {"reasoningText": {"text": part.text, **kept}}})
        elif isinstance(part, Opaque):
            if kept and (signed or "reasoningContent" not in kept):
                blocks.append(kept)
        else:
            blocks += [kept] if "citationsContent" in kept else _content([part])
    while blocks and "reasoningContent" in blocks[-1]:  # a message must not end in thinking
        blocks.pop()
    return blocks


def _result(message: ToolMessage, model: str) -> dict[str, Json]:
    content = list(_content(message.content)) or [{"text": "(no output)"}]  # neither nothing nor a blank is taken
    result: dict[str, Json] = {"toolUseId": wire.safe_id(message.call_id), "content": content}
    if "claude" in model or "nova" in model:  # the models of others refuse a status
        result["status"] = "error" if message.is_error else "success"
    elif message.is_error:
        content.insert(0, {"text": "error:"})
    return result
