"""The wire of Amazon Bedrock's Converse and ConverseStream."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar
from urllib.parse import quote

from glue.errors import ConfigError, MissingKey, ProviderError
from glue.limits import StopReason
from glue.messages import (
    AssistantMessage,
    Effort,
    File,
    Image,
    Json,
    Message,
    Opaque,
    Part,
    Request,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    ToolSpec,
)
from glue.provider import ProviderEvent
from glue.providers import anthropic, aws, encoding, wire
from glue.providers.catalog import LEVELS, Row
from glue.providers.wire import Block

WIRE = "bedrock"


class BedrockDecoder(wire.Decoder):
    """Reads the frames of a stream, or a whole reply."""

    wire = WIRE
    noun = "reply"
    end_mark = "messageStop"
    stops: ClassVar = {
        StopReason.END_TURN: "end_turn stop_sequence",
        StopReason.TOOL_USE: "tool_use",
        StopReason.MAX_TOKENS: "max_tokens",
        StopReason.CONTEXT_WINDOW: "model_context_window_exceeded",
        StopReason.REFUSAL: "guardrail_intervened content_filtered",
        StopReason.MALFORMED_CALL: "malformed_tool_use",
        StopReason.ERROR: "malformed_model_output",
    }
    parse = aws.EventStream
    tokens: ClassVar = {
        "input": ("inputTokens",),
        "output": ("outputTokens",),
        "cache_read": ("cacheReadInputTokens", "cacheReadInputTokenCount"),
        "cache_write": ("cacheWriteInputTokens", "cacheWriteInputTokenCount"),
    }
    apart: ClassVar = {"input": ("cache_read", "cache_write")}
    uncounted = 0

    def _tail(self) -> None:
        if not self.closed:
            self.parser.end()

    def _event(self, frame: aws.Frame, events: list[ProviderEvent]) -> None:
        headers = frame.headers
        kind = headers.get(":event-type", "")
        self.seen = True
        if headers.get(":message-type") == "error":
            text = headers.get(":error-message", "the server broke off with an error")
            raise self.error({"type": headers.get(":error-code", ""), "message": text})
        event = encoding.loads(frame.payload) if frame.payload else {}
        exception = headers.get(":exception-type") or (kind if kind.endswith("Exception") else "")
        if exception or headers.get(":message-type") == "exception":
            raise self.error({**event, "type": exception})
        if kind == "contentBlockDelta":
            self._delta(event["contentBlockIndex"], event["delta"], events)
        elif kind == "contentBlockStart":
            self._start(event["contentBlockIndex"], event["start"], events)
        elif kind == "contentBlockStop":
            if event["contentBlockIndex"] in self.blocks:
                self.blocks[event["contentBlockIndex"]].closed = True
        elif kind == "messageStop":
            self.raw_stop = encoding.text_of(event["stopReason"])
            self.closed = True
            self._learn(event)
        elif kind == "metadata":
            self.counts = encoding.object_of(event.get("usage")) or self.counts
            self._learn(event)

    def _learn(self, place: dict[str, Json]) -> None:
        self.facts |= {name: place[name] for name in ("additionalModelResponseFields", "trace") if place.get(name)}

    def _start(self, at: int, start: dict[str, Json], events: list[ProviderEvent]) -> None:
        kind, fields = next(((key, value) for key, value in start.items() if isinstance(value, dict)), ("", {}))
        block = Block(kind, dict(fields))
        if kind == "toolUse" and fields.get("type") != "server_tool_use":
            block = self._open_call(fields.get("toolUseId"), fields.get("name"), fields.get("input"), events)
        elif kind == "citationsContent":
            block = Block("text", {kind: fields})
            block.texts = [encoding.text_of(piece.get("text")) for piece in encoding.list_of(fields.get("content"))]
        self.blocks[int(at)] = block

    def _delta(self, at: int, delta: dict[str, Json], events: list[ProviderEvent]) -> None:
        block = self.blocks.get(at)
        if block is None:  # only calls announce themselves
            block = self.blocks[int(at)] = Block("thinking" if delta.get("reasoningContent") else "text")
        if delta.get("text"):
            self._say(block, encoding.text_of(delta["text"]), events)
        elif delta.get("toolUse"):
            self._say(block, encoding.text_of(delta["toolUse"].get("input")), events)
        elif thought := delta.get("reasoningContent"):
            self._say(block, encoding.text_of(thought.get("text")), events)
            if signature := encoding.text_of(thought.get("signature")):
                block.add("signature", signature)
            if redacted := encoding.text_of(thought.get("redactedContent")):
                block.kind, block.closed = "redacted", True
                block.add("redactedContent", redacted)
        elif delta.get("citation"):
            block.fields.setdefault("citations", []).append(delta["citation"])
        elif delta.get("toolResult"):
            block.fields["content"] = [*encoding.list_of(block.fields.get("content")), *delta["toolResult"]]

    def _sealed(self, block: Block) -> Json:
        pieces = block.pieces.get("redactedContent")
        if not pieces:
            sealed = super()._sealed(block)
            return None if sealed is None else {block.kind: sealed}
        data = pieces[0]  # as it came
        if len(pieces) > 1:
            data = encoding.base64_text(b"".join(base64.b64decode(piece) for piece in pieces))
        return {"reasoningContent": {"redactedContent": data}}

    def _whole(self, reply: Json) -> None:
        if "output" not in reply and reply.keys() & {"message", "Message", "error"}:
            raise self.error(reply)
        for at, block in enumerate(reply["output"]["message"]["content"]):
            if block.get("text"):
                self._delta(at, block, self.late)
            elif thought := block.get("reasoningContent"):
                thought = encoding.object_of(thought.get("reasoningText")) or thought
                self._delta(at, {"reasoningContent": thought}, self.late)
            else:
                self._start(at, block, self.late)
            self.blocks[at].closed = True
        self.raw_stop = encoding.text_of(reply["stopReason"])
        self.counts = encoding.object_of(reply.get("usage"))
        self._learn(reply)


# Requests -----------------------------------------------------------------------------------------

REGION = "us-east-1"

_FILLER = b'{"text":"(continued)"}'  # a conversation must begin with a user, and not with a blank
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


def encode(request: Request, row: Row, model: str) -> bytes:
    """Make the body of a request; messages that were sent before are not encoded again."""
    known = anthropic.facts(model)
    messages = encoding.unique_calls(request.messages)
    key = encoding.memo_key(WIRE, row, model)
    is_claude = "claude" in model
    cache = request.cache and (is_claude or "nova" in model)
    more = anthropic.thinking(request, messages, row, model, WIRE) if is_claude else _effort(request.reasoning, model)
    thinks = encoding.object_of(more.get("thinking")).get("type")
    sampling = (known.sampling or not is_claude) and thinks not in ("enabled", "adaptive")
    settings = {
        "maxTokens": request.max_tokens or (known.max_output if thinks == "enabled" else None),
        "temperature": request.temperature if sampling else None,
        "stopSequences": [text for text in request.stop if text.strip()] or None,
    }
    system = b'{"text":' + encoding.quote(request.system) + b"}"
    fields = {
        "messages": anthropic.conversation(
            messages, key, lambda message: _blocks(message, row, model), _FILLER, _marked if cache else None
        ),
        "system": [_marked(system) if cache else system] if request.system.strip() else None,
        "inferenceConfig": {name: value for name, value in settings.items() if value is not None} or None,
        "toolConfig": _tools(request, messages, cache and is_claude) or None,
        "additionalModelRequestFields": more or None,
        "outputConfig": _output(request.output_schema, row, model),
    }
    return encoding.assemble(fields, request.options)


def _output(schema: Json, row: Row, model: str) -> Json:
    if schema is None or not takes_output(schema, row, model):
        return None
    text = encoding.dumps(anthropic.output_schema(schema)).decode()
    wanted = {"name": encoding.schema_name(schema), "schema": text}
    return {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": wanted}}}


def takes_output(schema: Json, row: Row, model: str, *, tools: bool = False) -> bool:
    """Say whether an answer can be held to a schema; else a final tool has to do."""
    return "claude" in model and anthropic.takes_output(schema, row, model)


def efforts(row: Row, model: str) -> tuple[str, ...]:
    if "claude" in model:
        return anthropic.facts(model).efforts
    return LEVELS if any(name in model for name in ("nova-2", "qwen", "gpt-oss", "openai.")) else ()


def _effort(effort: Effort | None, model: str) -> dict[str, Json]:
    """Return the fields by which models of others are asked to think."""
    level = encoding.lower(effort, LEVELS)
    if level is None:
        return {}
    if "nova-2" in model:
        return {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": level}}
    if "qwen" in model:
        return {"reasoning_config": level}
    return {"reasoning_effort": level} if "gpt-oss" in model or "openai." in model else {}


def _marked(blocks: bytes) -> bytes:
    return blocks + b',{"cachePoint":{"type":"default"}}'


def _tools(request: Request, messages: Sequence[Message], cache: bool) -> bytes:
    tools = request.tools
    if not tools or request.tool_choice == "none":
        # Calls in the history are refused without tools, and there is no choice "none".
        used = encoding.used_tools(messages)
        tools = tools or used
        if not used:
            return b""
    array = b",".join(encoding.encode_tools(tools, WIRE, _tool))
    config = b'{"tools":[' + (_marked(array) if cache else array) + b"]"
    if request.tools and request.tool_choice not in ("auto", "none"):
        name = request.tool_choice
        config += b',"toolChoice":' + encoding.dumps({"any": {}} if name == "required" else {"tool": {"name": name}})
    return config + b"}"


def _tool(tool: ToolSpec) -> Json:
    schema = {"inputSchema": {"json": tool.parameters}}
    return {"toolSpec": {"name": tool.name, **encoding.description(tool), **schema}}


def _blocks(message: Message, row: Row, model: str) -> Iterable[dict[str, Json]]:
    if message.excluded:
        return ()
    if isinstance(message, AssistantMessage):
        return anthropic.replay(message, row, model, WIRE, lambda part, kept: _reply_part(part, kept, message.id))
    blocks = list(_content(encoding.taken(message.content, row.quirks), message.id))
    if isinstance(message, ToolMessage):
        return ({"toolResult": _result(message, blocks, model)},)
    documents = [block["document"]["name"] for block in blocks if "document" in block]
    if documents and not any("text" in block for block in blocks):
        blocks.append({"text": documents[0]})  # a document must not come alone
    return blocks


def _content(content: Iterable[Part], owner: str) -> Iterator[dict[str, Json]]:
    for index, part in enumerate(content):
        if isinstance(part, Text) and part.text.strip():
            yield {"text": part.text}
        elif isinstance(part, Image) and encoding.is_remote(part):
            yield {"text": f"(an image: {part.url})"}  # only what is in S3 may be an address
        elif isinstance(part, Image):
            kind, data = encoding.inline(part)
            name = kind.removeprefix("image/")
            yield {"image": {"format": "jpeg" if name == "jpg" else name, "source": {"bytes": data}}}
        elif isinstance(part, File):
            yield {"document": _document(part, f"{owner} {index}")}


def _document(part: File, place: str) -> dict[str, Json]:
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
    name = f"{name[:50]} {encoding.short_id(place, 6)}"
    return {"name": name, "format": form, "source": {"bytes": encoding.base64_text(part.data)}}


def _reply_part(part: Part, kept: dict[str, Json], owner: str) -> Iterable[dict[str, Json]]:
    if isinstance(part, ToolCall):
        call = {"toolUseId": encoding.safe_id(part.id), "name": encoding.call_name(part.name)}
        return ({"toolUse": {**call, "input": encoding.arguments(part)}},)
    if isinstance(part, Thinking):
        return ({"reasoningContent": {"reasoningText": {"text": part.text, **kept}}},)
    if isinstance(part, Opaque) or "citationsContent" in kept:
        return (kept,)
    return _content([part], owner)


def _result(message: ToolMessage, blocks: list[dict[str, Json]], model: str) -> dict[str, Json]:
    content = blocks or [{"text": "(no output)"}]  # neither nothing nor a blank is taken
    result: dict[str, Json] = {"toolUseId": encoding.safe_id(message.call_id), "content": content}
    if "claude" in model or "nova" in model:  # the models of others refuse a status
        result["status"] = "error" if message.is_error else "success"
    elif message.is_error:
        content.insert(0, {"text": "error:"})
    return result


class Bedrock(wire.Wire):
    """Asks Bedrock, with a bearer token where the connection has one, else with signed requests."""

    # Claude takes these keywords here, Nova, Llama and Mistral do not.
    tool_rules = wire.ToolRules(keywords=("$ref", "oneOf", *wire.CONDITIONS), at_root=wire.UNIONS)
    decoder = BedrockDecoder
    encode = staticmethod(encode)
    takes_output = staticmethod(takes_output)
    efforts = staticmethod(efforts)

    def __init__(self, row: Row, http: Any, model: str = "", credentials: aws.Credentials | None = None) -> None:
        super().__init__(row, http, model)
        self._credentials = credentials

    async def models(self) -> list[str]:
        raise ConfigError(f"{self.name}: AWS lists models elsewhere: aws bedrock list-foundation-models")

    def target(self, request: Request, model: str) -> str:
        return path(model, request.stream)

    async def headers(self, request: Request, target: str, body: bytes) -> dict[str, str]:
        if self.http.authorized:
            return {}
        # Looked up each time: credentials of a session expire and are replaced.
        credentials = self._credentials or aws.find_credentials(os.environ)
        if credentials is None:
            raise MissingKey(self.name, ("AWS_BEARER_TOKEN_BEDROCK", "AWS_ACCESS_KEY_ID"))
        self.http.hide(credentials.token)
        address = self.http.address
        found = re.search(r"\.([a-z]{2}(?:-[a-z]+)+-\d+)\.", address.host)
        return aws.sign(
            body,
            host=address.authority,
            path=address.target(target),
            region=found[1] if found else aws.find_region(os.environ) or REGION,
            credentials=credentials,
            now=datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ"),
        )
