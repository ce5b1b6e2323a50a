"""The wire of Amazon Bedrock's Converse and ConverseStream."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any
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
    Usage,
    new_id,
)
from glue.provider import ProviderEvent, TextDelta, ThinkingDelta, ToolCallDelta
from glue.providers import aws, claude, encoding, wire
from glue.providers.aws import EventStream, Frame
from glue.providers.catalog import Quirks, Row
from glue.providers.encoding import inline, is_object, is_remote, join_turns, stable

WIRE = "bedrock"

_STOPS = {
    "end_turn": StopReason.END_TURN,
    "stop_sequence": StopReason.END_TURN,
    "tool_use": StopReason.TOOL_USE,
    "max_tokens": StopReason.MAX_TOKENS,
    "model_context_window_exceeded": StopReason.CONTEXT_WINDOW,
    "guardrail_intervened": StopReason.REFUSAL,
    "content_filtered": StopReason.REFUSAL,
    "malformed_tool_use": StopReason.MALFORMED_CALL,
    "malformed_model_output": StopReason.ERROR,
}


class _Block:
    """One content block under construction."""

    __slots__ = ("closed", "fields", "index", "kind", "more", "texts")

    def __init__(self, kind: str, fields: dict[str, Json] | None = None, index: int = 0) -> None:
        self.kind = kind  # text, thinking, redacted, call, or that of a block kept as it is
        self.texts: list[str] = []
        self.fields = fields or {}
        self.index = index
        self.more: list[Json] = []  # citations, results
        self.closed = False


class BedrockDecoder(wire.Decoder):
    """Reads the frames of a stream, or a whole reply."""

    noun = "reply"
    end_mark = "messageStop"
    stops = _STOPS

    def __init__(self, quirks: Quirks, provider: str, model: str) -> None:
        super().__init__(quirks, provider, model)
        self._blocks: dict[int, _Block] = {}
        self._calls = 0

    def _new_parser(self) -> EventStream:
        return EventStream(self.provider)

    def _tail(self) -> None:
        if not self.closed:
            self.parser.end()

    def _event(self, frame: Frame, events: list[ProviderEvent]) -> None:
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
            if event["contentBlockIndex"] in self._blocks:
                self._blocks[event["contentBlockIndex"]].closed = True
        elif kind == "messageStop":
            self.raw_stop = encoding.text_of(event["stopReason"])
            self.closed = True
            self._learn(event, ("additionalModelResponseFields",))
        elif kind == "metadata":
            self.counts = encoding.object_of(event.get("usage")) or self.counts
            self._learn(event, ("trace",))

    def _learn(self, place: dict[str, Json], names: Sequence[str]) -> None:
        self.facts |= {name: place[name] for name in names if place.get(name)}

    def _start(self, at: int, start: dict[str, Json], events: list[ProviderEvent]) -> None:
        kind, fields = next(((key, value) for key, value in start.items() if isinstance(value, dict)), ("", {}))
        if kind != "toolUse" or fields.get("type") == "server_tool_use":
            self._blocks[int(at)] = _Block(kind, dict(fields))
            return
        block = self._blocks[int(at)] = _Block("call", dict(fields), self._calls)
        self._calls += 1
        name, call_id = encoding.text_of(fields.get("name")), encoding.text_of(fields.get("toolUseId"))
        events.append(ToolCallDelta(index=block.index, id=call_id, name=name))

    def _delta(self, at: int, delta: dict[str, Json], events: list[ProviderEvent]) -> None:
        block = self._blocks.get(at)
        if block is None:  # only calls announce themselves
            block = self._blocks[int(at)] = _Block("thinking" if "reasoningContent" in delta else "text")
        if "text" in delta:
            text = encoding.text_of(delta["text"])
            block.texts.append(text)
            if text:
                events.append(TextDelta(text=text))
        elif "toolUse" in delta:
            piece = encoding.text_of(delta["toolUse"].get("input"))
            block.texts.append(piece)
            if piece and block.kind == "call":
                events.append(ToolCallDelta(index=block.index, arguments=piece))
        elif "reasoningContent" in delta:
            self._thought(block, delta["reasoningContent"], events)
        elif "citation" in delta:
            block.more.append(delta["citation"])
        elif "toolResult" in delta:
            block.more += delta["toolResult"]

    def _thought(self, block: _Block, thought: dict[str, Json], events: list[ProviderEvent]) -> None:
        if text := encoding.text_of(thought.get("text")):
            block.texts.append(text)
            events.append(ThinkingDelta(text=text))
        if signature := encoding.text_of(thought.get("signature")):
            block.fields["signature"] = encoding.text_of(block.fields.get("signature")) + signature
        if redacted := encoding.text_of(thought.get("redactedContent")):
            block.kind = "redacted"
            block.more.append(redacted)

    def _whole(self, reply: Json) -> None:
        if "output" not in reply and ("message" in reply or "Message" in reply):
            raise self.error(reply)
        for at, block in enumerate(reply["output"]["message"]["content"]):
            self._blocks[at] = self._block(block)
        self.raw_stop = encoding.text_of(reply["stopReason"])
        self.counts = encoding.object_of(reply.get("usage"))
        self._learn(reply, ("additionalModelResponseFields", "trace"))

    def _block(self, content: dict[str, Json]) -> _Block:
        kind, value = next((key, value) for key, value in content.items() if value is not None)
        block = _Block(kind, value if isinstance(value, dict) else {})
        if kind == "text":
            block.texts.append(encoding.text_of(value))
            self.late.append(TextDelta(text=block.texts[0]))
        elif kind == "toolUse" and value.get("type") != "server_tool_use":
            block.kind, block.index = "call", self._calls
            self._calls += 1
            text = encoding.dumps(value["input"]).decode() if value.get("input") is not None else ""
            block.texts.append(text)
            name, call_id = encoding.text_of(value.get("name")), encoding.text_of(value.get("toolUseId"))
            self.late.append(ToolCallDelta(index=block.index, id=call_id, name=name, arguments=text))
        elif kind == "reasoningContent":
            block.fields = {}
            block.kind = "thinking"
            self._thought(block, encoding.object_of(value.get("reasoningText")) or value, self.late)
        block.closed = True
        return block

    def _content(self, *, cut: bool) -> Iterator[Part]:
        last = max(self._blocks, default=0)
        parts = (_read(self._blocks[at], cut=cut, last=at == last) for at in sorted(self._blocks))
        return (part for part in parts if part is not None)

    def _usage(self) -> Usage | None:
        """Normalise the tokens that were counted: their input leaves the cache out."""
        raw = self.counts
        if not raw:
            return None
        read = encoding.first_number(raw.get("cacheReadInputTokens"), raw.get("cacheReadInputTokenCount")) or 0
        write = encoding.first_number(raw.get("cacheWriteInputTokens"), raw.get("cacheWriteInputTokenCount")) or 0
        return Usage(
            input=(encoding.number(raw.get("inputTokens")) or 0) + read + write,
            output=encoding.number(raw.get("outputTokens")) or 0,
            cache_read=read,
            cache_write=write,
        )


def _read(block: _Block, *, cut: bool, last: bool) -> Part | None:
    text = "".join(block.texts)
    if block.kind == "text":
        opaque = Opaque(wire=WIRE, data={"citations": block.more}) if block.more else None
        return Text(text=text, opaque=opaque) if text else None
    if block.kind == "thinking":
        opaque = Opaque(wire=WIRE, data=block.fields) if block.fields else None
        return Thinking(text=text, opaque=opaque) if text or opaque else None
    if block.kind == "redacted":
        return Opaque(wire=WIRE, data={"reasoningContent": {"redactedContent": _joined(block.more)}})
    if block.kind == "call":
        return ToolCall(
            id=encoding.text_of(block.fields.get("toolUseId")) or "tooluse_" + new_id(),
            name=encoding.text_of(block.fields.get("name")),
            arguments=text,
            # A reply that is cut off closes its last block all the same; only the JSON tells.
            complete=block.closed and (not cut or is_object(text) or not (text or last)),
        )
    if block.kind == "citationsContent":
        text = "".join(encoding.text_of(piece.get("text")) for piece in encoding.list_of(block.fields.get("content")))
        return Text(text=text, opaque=Opaque(wire=WIRE, data={block.kind: block.fields}))
    return _verbatim(block, text)


def _verbatim(block: _Block, text: str) -> Part | None:
    if not block.kind or not block.closed:
        return None
    fields = dict(block.fields)
    if text:
        try:
            fields["input"] = encoding.loads(text.encode())
        except encoding.BAD_SHAPE:
            return None  # half a block is of no use to anybody
    if block.more:
        fields["content"] = [*encoding.list_of(fields.get("content")), *block.more]
    return Opaque(wire=WIRE, data={block.kind: fields})


def _joined(pieces: list[str]) -> str:
    if len(pieces) == 1:
        return pieces[0]  # as it came
    return encoding.base64_text(b"".join(base64.b64decode(piece) for piece in pieces))


REGION = "us-east-1"

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


# Requests -----------------------------------------------------------------------------------------


def encode(request: Request, row: Row, model: str) -> bytes:
    """Make the body of a request; messages that were sent before are not encoded again."""
    known = claude.facts(model)
    messages = encoding.unique_calls(request.messages)
    cache = request.cache and _caches(model)
    more = _thinking(request, messages, row, model)
    thinks = encoding.object_of(more.get("thinking")).get("type")
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
        text = b'{"text":' + encoding.quote(request.system) + b"}"
        fields["system"] = encoding.array([text, _POINT] if cache else [text])
    if settings:
        fields["inferenceConfig"] = settings
    tools = _tools(request, messages, cache and "claude" in model)
    if tools:
        fields["toolConfig"] = tools
    if more:
        fields["additionalModelRequestFields"] = more
    if request.output_schema is not None and takes_output(request.output_schema, row, model):
        schema = encoding.dumps(claude.output_schema(request.output_schema)).decode()
        wanted = {"name": encoding.schema_name(request.output_schema), "schema": schema}
        fields["outputConfig"] = {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": wanted}}}
    return encoding.assemble(fields, request.options)


def takes_output(schema: Json, row: Row, model: str, *, tools: bool = False) -> bool:
    """Say whether an answer can be held to a schema; else a final tool has to do."""
    return "claude" in model and claude.facts(model).output and claude.output_schema(schema) is not None


def _caches(model: str) -> bool:
    return "claude" in model or "nova" in model


_LEVELS = ("low", "medium", "high")


def _thinking(request: Request, messages: Sequence[Message], row: Row, model: str) -> dict[str, Json]:
    effort: Effort | None = request.reasoning
    if effort is None:
        return {}
    if "claude" in model:
        if request.tools and request.tool_choice not in ("auto", "none"):
            return {}  # a forced tool and thinking exclude each other
        known = claude.facts(model)
        fields = claude.thinking(known, effort, request.max_tokens or known.max_output)
        if encoding.object_of(fields.get("thinking")).get("type") == "enabled" and encoding.lacks_thinking(
            messages, lambda reply: _has_thinking(reply, row, model)
        ):
            return {}
        return fields
    level = encoding.lower(effort, _LEVELS)
    if level is None:
        return {}
    if "nova-2" in model:
        return {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": level}}
    if "qwen" in model:
        return {"reasoning_config": level}
    return {"reasoning_effort": level} if "gpt-oss" in model or "openai." in model else {}


def _has_thinking(message: AssistantMessage, row: Row, model: str) -> bool:
    return claude.is_signed(message, row, model) and any(encoding.opaque_of(part, WIRE) for part in message.content)


def _tools(request: Request, messages: Sequence[Message], cache: bool) -> bytes:
    tools = request.tools
    if not tools or request.tool_choice == "none":
        # Calls in the history are refused without tools, and there is no choice "none".
        used = encoding.used_names(messages)
        tools = tools or tuple(ToolSpec(name=name) for name in used)
        if not used:
            return b""
    pieces = [encoding.encode_tool(tool, WIRE, _tool) for tool in tools]
    config = b'{"tools":' + encoding.array([*pieces, _POINT] if cache else pieces)
    if request.tools and request.tool_choice not in ("auto", "none"):
        name = request.tool_choice
        config += b',"toolChoice":' + encoding.dumps({"any": {}} if name == "required" else {"tool": {"name": name}})
    return config + b"}"


def _tool(tool: ToolSpec) -> Json:
    schema = {"inputSchema": {"json": tool.parameters}}
    return {"toolSpec": {"name": tool.name, **encoding.description(tool), **schema}}


def _messages(messages: Sequence[Message], cache: bool, row: Row, model: str) -> bytes:
    key = encoding.memo_key(WIRE, row, model)
    pieces = encoding.turns(messages, key, lambda message: _blocks(message, row, model))
    if cache:
        for index in stable(messages, pieces):
            pieces[index] = (pieces[index][0], pieces[index][1] + b"," + _POINT)
    return join_turns(pieces, _FILLER)


def _blocks(message: Message, row: Row, model: str) -> Iterator[bytes]:
    if message.excluded:
        return iter(())
    if isinstance(message, AssistantMessage):
        return map(encoding.dumps, _reply(message, row, model))
    if isinstance(message, ToolMessage):
        return iter((encoding.dumps({"toolResult": _result(message, model)}),))
    blocks = list(_content(message.content, message.id))
    documents = [block["document"]["name"] for block in blocks if "document" in block]
    if documents and not any("text" in block for block in blocks):
        blocks.append({"text": documents[0]})  # a document must not come alone
    return map(encoding.dumps, blocks)


def _content(content: Sequence[Part], owner: str) -> Iterator[dict[str, Json]]:
    for index, part in enumerate(content):
        if isinstance(part, Text) and part.text.strip():
            yield {"text": part.text}
        elif isinstance(part, Image) and is_remote(part):
            yield {"text": f"(an image: {part.url})"}  # only what is in S3 may be an address
        elif isinstance(part, Image):
            kind, data = inline(part)
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


def _reply(message: AssistantMessage, row: Row, model: str) -> list[dict[str, Json]]:
    own, signed = encoding.is_own(message, row), claude.is_signed(message, row, model)
    blocks: list[dict[str, Json]] = []
    for part in message.content:
        kept = encoding.object_of(encoding.opaque_of(part, WIRE)) if own else {}
        if isinstance(part, ToolCall):
            if part.complete:
                name = encoding.call_name(part.name)
                call = {"toolUseId": encoding.safe_id(part.id), "name": name, "input": encoding.arguments(part)}
                blocks.append({"toolUse": call})
        elif isinstance(part, Thinking):
            if signed and kept:
                blocks.append({"reasoningContent": {"reasoningText": {"text": part.text, **kept}}})
        elif isinstance(part, Opaque):
            if kept and (signed or "reasoningContent" not in kept):
                blocks.append(kept)
        else:
            blocks += [kept] if "citationsContent" in kept else _content([part], message.id)
    while blocks and "reasoningContent" in blocks[-1]:  # a message must not end in thinking
        blocks.pop()
    return blocks


def _result(message: ToolMessage, model: str) -> dict[str, Json]:
    # Neither nothing nor a blank is taken.
    content = list(_content(message.content, message.id)) or [{"text": "(no output)"}]
    result: dict[str, Json] = {"toolUseId": encoding.safe_id(message.call_id), "content": content}
    if "claude" in model or "nova" in model:  # the models of others refuse a status
        result["status"] = "error" if message.is_error else "success"
    elif message.is_error:
        content.insert(0, {"text": "error:"})
    return result


class Bedrock(wire.Wire):
    """Asks Bedrock, with a bearer token where the connection has one, else with signed requests."""

    decoder = BedrockDecoder
    encode = staticmethod(encode)
    takes_output = staticmethod(takes_output)

    def __init__(self, row: Row, http: Any, model: str = "", credentials: aws.Credentials | None = None) -> None:
        super().__init__(row, http, model)
        self._credentials = credentials

    @staticmethod
    def efforts(row: Row, model: str) -> tuple[str, ...]:
        if "claude" in model:
            return claude.facts(model).efforts
        return _LEVELS if any(name in model for name in ("nova-2", "qwen", "gpt-oss", "openai.")) else ()

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
            now=aws.timestamp(),
        )
