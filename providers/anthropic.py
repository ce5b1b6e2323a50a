"""The wire of Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from glue.errors import ProviderError
from glue.limits import StopReason
from glue.messages import (
    AssistantMessage,
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
from glue.providers import claude, encoding, wire
from glue.providers.catalog import Quirks, Row
from glue.providers.encoding import inline, is_object, is_remote, join_turns, stable

WIRE = "anthropic"

_STOPS = {
    "end_turn": StopReason.END_TURN,
    "stop_sequence": StopReason.END_TURN,
    "tool_use": StopReason.TOOL_USE,
    "max_tokens": StopReason.MAX_TOKENS,
    "model_context_window_exceeded": StopReason.CONTEXT_WINDOW,
    "refusal": StopReason.REFUSAL,
    "pause_turn": StopReason.PAUSE_TURN,
    "compaction": StopReason.PAUSE_TURN,
}


class _Block:
    """One content block under construction: what it began with, and the pieces that came since."""

    __slots__ = ("closed", "fields", "index", "json", "kind", "pieces")

    def __init__(self, fields: dict[str, Json], index: int) -> None:
        self.kind = encoding.text_of(fields.get("type"))
        self.fields = fields
        self.index = index
        self.pieces: dict[str, list[str]] = {}
        self.json: list[str] = []
        self.closed = False

    def add(self, key: str, piece: str) -> None:
        pieces = self.pieces.get(key)
        if pieces is None:
            pieces = self.pieces[key] = [encoding.text_of(self.fields.get(key))]
        pieces.append(piece)

    def whole(self) -> dict[str, Json]:
        return {**self.fields, **{key: "".join(pieces) for key, pieces in self.pieces.items()}}


class AnthropicDecoder(wire.Decoder):
    """Reads a stream of events, or a whole message."""

    noun = "message"
    end_mark = "message_stop"
    stops = _STOPS

    def __init__(self, quirks: Quirks, provider: str, model: str) -> None:
        super().__init__(quirks, provider, model)
        self._blocks: dict[int, _Block] = {}
        self._calls = 0

    def _event(self, data: bytes, events: list[ProviderEvent]) -> None:
        event = encoding.loads(data)
        kind = event["type"]
        if kind == "content_block_delta":
            self._delta(event["index"], event["delta"], events)
        elif kind == "content_block_start":
            self._start(event["index"], event["content_block"], events)
        elif kind == "content_block_stop":
            if event["index"] in self._blocks:
                self._blocks[event["index"]].closed = True
        elif kind == "message_start":
            self._begin(event["message"])
        elif kind == "message_delta":
            self._learn(event["delta"])
            self._count(event.get("usage"))
        elif kind == "message_stop":
            self.closed = self.ended = True
        elif kind == "error":
            raise self.error(event)

    def _begin(self, message: dict[str, Json]) -> None:
        # Some proxies repeat message_start: the message begins anew.
        self.seen = True
        self._blocks.clear()
        self.counts.clear()
        self.facts.clear()
        self._learn(message)
        self._count(message.get("usage"))

    def _learn(self, fields: dict[str, Json]) -> None:
        for key in ("id", "model", "stop_sequence", "stop_details"):
            if fields.get(key) is not None:
                self.facts[key] = fields[key]
        self.raw_stop = encoding.text_of(fields.get("stop_reason")) or self.raw_stop

    def _count(self, usage: Json) -> None:
        # Cumulative, and corrected as it goes: the later value of a key replaces the earlier.
        self.counts |= {key: value for key, value in encoding.object_of(usage).items() if value is not None}

    def _start(self, at: int, fields: dict[str, Json], events: list[ProviderEvent]) -> None:
        block = self._blocks[int(at)] = _Block(dict(fields), self._calls)
        if block.kind == "tool_use":
            self._calls += 1
            name, call_id = encoding.text_of(fields.get("name")), encoding.text_of(fields.get("id"))
            given = encoding.dumps(fields["input"]).decode() if fields.get("input") else ""
            events.append(ToolCallDelta(index=block.index, id=call_id, name=name, arguments=given))
        elif block.kind == "text" and (text := encoding.text_of(fields.get("text"))):
            events.append(TextDelta(text=text))
        elif block.kind == "thinking" and (text := encoding.text_of(fields.get("thinking"))):
            events.append(ThinkingDelta(text=text))

    def _delta(self, at: int, delta: dict[str, Json], events: list[ProviderEvent]) -> None:
        kind = delta["type"]
        block = self._blocks.get(at)
        if block is None:
            block = self._blocks[int(at)] = _Block({"type": "thinking" if kind == "thinking_delta" else "text"}, 0)
        if kind == "text_delta":
            text = encoding.text_of(delta["text"])
            block.add("text", text)
            if text and block.kind == "text":
                events.append(TextDelta(text=text))
        elif kind == "input_json_delta":
            piece = encoding.text_of(delta["partial_json"])
            block.json.append(piece)
            if piece and block.kind == "tool_use":
                events.append(ToolCallDelta(index=block.index, arguments=piece))
        elif kind == "thinking_delta":
            text = encoding.text_of(delta["thinking"])
            block.add("thinking", text)
            if text and block.kind == "thinking":
                events.append(ThinkingDelta(text=text))
        elif kind == "citations_delta":
            block.fields["citations"] = [*encoding.list_of(block.fields.get("citations")), delta["citation"]]
        else:  # signature_delta, compaction_delta and whatever comes next
            for key, value in delta.items():
                if key != "type" and isinstance(value, str):
                    block.add(key, value)

    def _whole(self, reply: Json) -> None:
        if reply.get("error") or reply.get("type") == "error":
            raise self.error(reply)
        self._begin(reply)
        for at, fields in enumerate(reply["content"]):
            self._start(at, fields, self.late)
            self._blocks[at].closed = True

    def _content(self, *, cut: bool) -> Iterator[Part]:
        last = max(self._blocks, default=0)
        parts = (_read(self._blocks[at], cut=cut, last=at == last) for at in sorted(self._blocks))
        return (part for part in parts if part is not None)

    def _usage(self) -> Usage | None:
        """Normalise the tokens that were counted: their input leaves the cache out."""
        raw = self.counts
        if not raw:
            return None
        read = encoding.number(raw.get("cache_read_input_tokens")) or 0
        write = encoding.number(raw.get("cache_creation_input_tokens")) or 0
        return Usage(
            input=(encoding.number(raw.get("input_tokens")) or 0) + read + write,
            output=encoding.number(raw.get("output_tokens")) or 0,
            cache_read=read,
            cache_write=write,
            reasoning=encoding.number(encoding.object_of(raw.get("output_tokens_details")).get("thinking_tokens")),
        )


def _read(block: _Block, *, cut: bool, last: bool) -> Part | None:
    fields = block.whole()
    if block.kind == "text":
        text, citations = encoding.text_of(fields.get("text")), fields.get("citations")
        return Text(text=text, opaque=_kept({"citations": citations}) if citations else None) if text else None
    if block.kind == "thinking":
        text, signature = encoding.text_of(fields.get("thinking")), encoding.text_of(fields.get("signature"))
        opaque = _kept({"signature": signature}) if signature else None
        return Thinking(text=text, opaque=opaque) if text or signature else None
    if block.kind == "tool_use":
        return _call(block, fields, cut=cut, last=last)
    if not block.kind or not block.closed:
        return None
    if any(block.json):
        try:
            fields["input"] = encoding.loads("".join(block.json).encode())
        except encoding.BAD_SHAPE:
            return None  # half a block is of no use to anybody
    return Opaque(wire=WIRE, data=fields)


def _call(block: _Block, fields: dict[str, Json], *, cut: bool, last: bool) -> ToolCall:
    text = "".join(block.json)
    if not text and fields.get("input"):
        text = encoding.dumps(fields["input"]).decode()
    caller = encoding.object_of(fields.get("caller"))
    return ToolCall(
        id=encoding.text_of(fields.get("id")) or "toolu_" + new_id(),
        name=encoding.text_of(fields.get("name")),
        arguments=text,
        # A reply that is cut off closes its last block all the same; only the JSON tells.
        complete=block.closed and (not cut or is_object(text) or not (text or last)),
        opaque=_kept({"caller": caller}) if caller.get("type", "direct") != "direct" else None,
    )


def _kept(data: Json) -> Opaque:
    return Opaque(wire=WIRE, data=data)


VERSION = "2023-06-01"

_FILLER = b'{"type":"text","text":"(continued)"}'  # a conversation must begin with a user, and not with a blank
_MARK = b',"cache_control":{"type":"ephemeral"}}'
_HIDDEN = ("thinking", "redacted_thinking")


# Requests -----------------------------------------------------------------------------------------


def encode(request: Request, row: Row, model: str) -> bytes:
    """Write a request; messages and tools that were written before are joined as they are."""
    known = claude.facts(model)
    messages = encoding.unique_calls(request.messages)
    max_tokens = request.max_tokens or known.max_output
    forced = bool(request.tools) and request.tool_choice not in ("auto", "none")
    body: dict[str, Json] = {"model": model, "max_tokens": max_tokens}
    # A forced tool and thinking exclude each other; the tool is what the caller relies on.
    if not forced and row.quirks.reasoning:
        body |= claude.thinking(known, request.reasoning, max_tokens)
    mode = encoding.object_of(body.get("thinking")).get("type")
    if mode == "enabled" and encoding.lacks_thinking(messages, lambda reply: _has_thinking(reply, row, model)):
        del body["thinking"]
        mode = None
    if request.system.strip():
        block = b'{"type":"text","text":' + encoding.quote(request.system) + b"}"
        body["system"] = encoding.array([_marked(block)]) if request.cache else encoding.quote(request.system)
    body |= _tools(request, messages)
    body["messages"] = _messages(messages, request.cache, row, model)
    if request.temperature is not None and known.sampling and mode in (None, "disabled"):
        body["temperature"] = request.temperature
    stop = [text for text in request.stop if text.strip()]
    if stop:
        body["stop_sequences"] = stop
    if request.output_schema is not None and takes_output(request.output_schema, row, model):
        wanted = {"type": "json_schema", "schema": claude.output_schema(request.output_schema)}
        body["output_config"] = {**encoding.object_of(body.get("output_config")), "format": wanted}
    if request.stream:
        body["stream"] = True
    options = {name: value for name, value in (request.options or {}).items() if name != "betas"}
    return encoding.assemble(body, options)


def takes_output(schema: Json, row: Row, model: str, *, tools: bool = False) -> bool:
    """Say whether an answer can be held to a schema; else a final tool has to do."""
    return claude.facts(model).output and claude.output_schema(schema) is not None


def _tools(request: Request, messages: Sequence[Message]) -> dict[str, Json]:
    if not request.tools:
        # Calls in the history are refused unless tools are named.
        names = encoding.used_names(messages)
        if not names:
            return {}
        tools = [_tool(ToolSpec(name=name)) for name in names]
        return {"tools": encoding.array(tools), "tool_choice": {"type": "none"}}
    tools = [_tool(tool) for tool in request.tools]
    if request.cache:
        tools[-1] = _marked(tools[-1])
    fields: dict[str, Json] = {"tools": encoding.array(tools)}
    if request.tool_choice == "none":
        fields["tool_choice"] = {"type": "none"}
    elif request.tool_choice == "required":
        fields["tool_choice"] = {"type": "any"}
    elif request.tool_choice != "auto":
        fields["tool_choice"] = {"type": "tool", "name": request.tool_choice}
    return fields


def _tool(tool: ToolSpec) -> bytes:
    return encoding.encode_tool(tool, WIRE, _tool_form)


def _tool_form(tool: ToolSpec) -> Json:
    return {"name": tool.name, **encoding.description(tool), "input_schema": tool.parameters}


def _messages(messages: Sequence[Message], cache: bool, row: Row, model: str) -> bytes:
    key = encoding.memo_key(WIRE, row, model)
    pieces = encoding.turns(messages, key, lambda message: _blocks(message, row, model))
    if cache:
        for index in stable(messages, pieces):
            written = list(_blocks(messages[index], row, model))
            written[-1] = _marked(written[-1])
            pieces[index] = (pieces[index][0], b",".join(written))
    return join_turns(pieces, _FILLER)


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
    own = encoding.is_own(message, row)
    signed = claude.is_signed(message, row, model)
    blocks: list[tuple[str, bytes]] = []
    for part in message.content:
        written = _reply_part(part, own, signed)
        if written is not None:
            blocks.append(written)
    while blocks and blocks[-1][0] in _HIDDEN:  # a message must not end in thinking
        blocks.pop()
    return (block for _, block in blocks)


def _reply_part(part: Part, own: bool, signed: bool) -> tuple[str, bytes] | None:
    kept = encoding.opaque_of(part, WIRE) if own else None
    if isinstance(part, ToolCall):
        if not part.complete:
            return None
        call: dict[str, Json] = {"type": "tool_use", "id": encoding.safe_id(part.id)}
        call |= {"name": encoding.call_name(part.name), "input": encoding.arguments(part)}
        return "tool_use", encoding.dumps({**call, **encoding.object_of(kept)})
    if isinstance(part, Thinking):
        if not signed or not isinstance(kept, dict):
            return None
        return "thinking", encoding.dumps({"type": "thinking", "thinking": part.text, **kept})
    if isinstance(part, Opaque):
        kind = encoding.text_of(encoding.object_of(kept).get("type"))
        return (kind, encoding.dumps(kept)) if kind and (signed or kind not in _HIDDEN) else None
    if isinstance(part, Text) and isinstance(kept, dict) and part.text.strip():
        return "text", encoding.dumps({"type": "text", "text": part.text, **kept})
    block = _part(part)
    return None if block is None else ("text", block)


def _has_thinking(message: AssistantMessage, row: Row, model: str) -> bool:
    return claude.is_signed(message, row, model) and any(_is_thinking(part) for part in message.content)


def _is_thinking(part: Part) -> bool:
    kept = encoding.object_of(encoding.opaque_of(part, WIRE))
    return "signature" in kept or kept.get("type") == "redacted_thinking"


def _result(message: ToolMessage) -> bytes:
    fields: dict[str, Json] = {"type": "tool_result", "tool_use_id": encoding.safe_id(message.call_id)}
    if message.is_error:
        fields["is_error"] = True
    if all(isinstance(part, Text) for part in message.content):
        text = message.text or ("error" if message.is_error else "")  # an error must say something
        if text:
            fields["content"] = text
        return encoding.dumps(fields)
    blocks = (block for part in message.content if (block := _part(part)) is not None)
    return encoding.dumps(fields)[:-1] + b',"content":' + encoding.array(blocks) + b"}"


def _part(part: Part) -> bytes | None:
    if isinstance(part, Text):
        return b'{"type":"text","text":' + encoding.quote(part.text) + b"}" if part.text.strip() else None
    if isinstance(part, Image):
        return encoding.dumps({"type": "image", "source": _image(part)})
    if isinstance(part, File):
        return encoding.dumps(
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
        return {"type": "base64", "media_type": part.media_type, "data": encoding.base64_text(part.data)}
    try:
        return {"type": "text", "media_type": "text/plain", "data": part.data.decode("utf-8")}
    except UnicodeDecodeError:
        text = f"cannot send a file of type {part.media_type}; PDF and text are understood"
        raise ProviderError(text, kind="invalid_request", provider=WIRE) from None


class Anthropic(wire.Wire):
    """Asks one server for messages."""

    path = "/messages"
    decoder = AnthropicDecoder
    encode = staticmethod(encode)
    takes_output = staticmethod(takes_output)
    models_query: ClassVar[Mapping[str, str | int]] = {"limit": 1000}

    @staticmethod
    def efforts(row: Row, model: str) -> tuple[str, ...]:
        return claude.facts(model).efforts if row.quirks.reasoning else ()

    async def headers(self, request: Request, target: str, body: bytes) -> dict[str, str]:
        """Name the version, and the beta features that `options["betas"]` asks for as Anthropic's own clients do."""
        betas = (request.options or {}).get("betas")
        return {"anthropic-version": VERSION, **({"anthropic-beta": ",".join(betas)} if betas else {})}
