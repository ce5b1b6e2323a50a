"""What Converse replies: frames of an event stream, or one object."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from glue.errors import ProviderError
from glue.limits import StopReason
from glue.providers import wire
from glue.providers.calls import is_object
from glue.providers.eventstream import EventStream, Frame
from glue.providers.row import Quirks
from glue.types import (
    AssistantMessage,
    Done,
    Json,
    Opaque,
    Part,
    ProviderEvent,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
    new_id,
)

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


class Decoder:
    """Read the frames of a stream, or a whole reply where that comes instead.

    Nothing is raised before `finish`: what came before a fault in the same block must not be lost.
    """

    def __init__(self, quirks: Quirks, provider: str, model: str) -> None:
        self.failure: ProviderError | None = None
        self.late: list[ProviderEvent] = []  # what only the end of the body showed
        self._provider = provider
        self._model = model
        self._frames = EventStream()
        self._body: list[bytes] | None = None
        self._blocks: dict[int, _Block] = {}
        self._calls = 0
        self._usage: dict[str, Json] = {}
        self._raw: str | None = None
        self._facts: dict[str, Json] = {}
        self._seen = False

    def feed(self, block: bytes) -> list[ProviderEvent]:
        """Take the next bytes of the body and return what they say."""
        events: list[ProviderEvent] = []
        if self.failure is not None or not block:
            return events
        if not self._seen and self._body is None and block.lstrip()[:1] == b"{":
            self._body = []  # no frame can begin so: it would be two gigabytes long
        self._seen = True
        if self._body is not None:
            self._body.append(block)
            return events
        try:
            for frame in self._frames.feed(block):
                self._frame(frame, events)
        except ProviderError as error:
            self.failure = self._named(error)
        return events

    def finish(self) -> Done:
        """Return the reply once the body has ended, or raise what went wrong."""
        if self.failure is not None:
            raise self.failure
        if self._body is not None:
            self._whole(b"".join(self._body))
        if self._raw is None:
            try:
                self._frames.finish()
            except ProviderError as error:
                raise self._named(error) from None
            if self._seen:
                raise self._broken("the stream ended without messageStop")
            raise wire.protocol_error("an empty stream", self._provider, self._model, kind="empty")
        try:
            return Done(message=self._message())
        except wire.BAD_SHAPE:
            raise self._broken("a reply of an unknown shape") from None

    def _frame(self, frame: Frame, events: list[ProviderEvent]) -> None:
        headers = frame.headers
        kind = headers.get(":event-type", "")
        try:
            if headers.get(":message-type") == "error":
                text = headers.get(":error-message", "the server broke off with an error")
                raise self._error({"type": headers.get(":error-code", ""), "message": text})
            event = wire.loads(frame.payload) if frame.payload else {}
            fault = headers.get(":exception-type") or (kind if kind.endswith("Exception") else "")
            if fault or headers.get(":message-type") == "exception":
                raise self._error({**event, "type": fault})
            if kind == "contentBlockDelta":
                self._delta(event["contentBlockIndex"], event["delta"], events)
            elif kind == "contentBlockStart":
                self._start(event["contentBlockIndex"], event["start"], events)
            elif kind == "contentBlockStop":
                if event["contentBlockIndex"] in self._blocks:
                    self._blocks[event["contentBlockIndex"]].closed = True
            elif kind == "messageStop":
                self._raw = wire.text_of(event["stopReason"])
                self._learn(event, ("additionalModelResponseFields",))
            elif kind == "metadata":
                self._usage = wire.object_of(event.get("usage")) or self._usage
                self._learn(event, ("trace",))
        except wire.BAD_SHAPE:
            text = frame.payload[:2000].decode("utf-8", "replace")
            raise self._broken("an event of an unknown shape", text) from None

    def _learn(self, place: dict[str, Json], names: Sequence[str]) -> None:
        self._facts |= {name: place[name] for name in names if place.get(name)}

    def _start(self, at: int, start: dict[str, Json], events: list[ProviderEvent]) -> None:
        kind, fields = next(((key, value) for key, value in start.items() if isinstance(value, dict)), ("", {}))
        if kind != "toolUse" or fields.get("type") == "server_tool_use":
            self._blocks[int(at)] = _Block(kind, dict(fields))
            return
        block = self._blocks[int(at)] = _Block("call", dict(fields), self._calls)
        self._calls += 1
        name, call_id = wire.text_of(fields.get("name")), wire.text_of(fields.get("toolUseId"))
        events.append(ToolCallDelta(index=block.index, id=call_id, name=name))

    def _delta(self, at: int, delta: dict[str, Json], events: list[ProviderEvent]) -> None:
        block = self._blocks.get(at)
        if block is None:  # only calls announce themselves
            block = self._blocks[int(at)] = _Block("thinking" if "reasoningContent" in delta else "text")
        if "text" in delta:
            text = wire.text_of(delta["text"])
            block.texts.append(text)
            if text:
                events.append(TextDelta(text=text))
        elif "toolUse" in delta:
            piece = wire.text_of(delta["toolUse"].get("input"))
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
        if text := wire.text_of(thought.get("text")):
            block.texts.append(text)
            events.append(ThinkingDelta(text=text))
        if signature := wire.text_of(thought.get("signature")):
            block.fields["signature"] = wire.text_of(block.fields.get("signature")) + signature
        if redacted := wire.text_of(thought.get("redactedContent")):
            block.kind = "redacted"
            block.more.append(redacted)

    def _whole(self, body: bytes) -> None:
        text = body[:2000].decode("utf-8", "replace")
        try:
            reply = wire.loads(body)
            if "output" not in reply and ("message" in reply or "Message" in reply):
                raise self._error(reply)
            for at, block in enumerate(reply["output"]["message"]["content"]):
                self._blocks[at] = self._block(block)
            self._raw = wire.text_of(reply["stopReason"])
            self._usage = wire.object_of(reply.get("usage"))
            self._learn(reply, ("additionalModelResponseFields", "trace"))
        except wire.BAD_SHAPE:
            raise self._broken("the answer is no reply", text) from None

    def _block(self, content: dict[str, Json]) -> _Block:
        kind, value = next((key, value) for key, value in content.items() if value is not None)
        block = _Block(kind, value if isinstance(value, dict) else {})
        if kind == "text":
            block.texts.append(wire.text_of(value))
            self.late.append(TextDelta(text=block.texts[0]))
        elif kind == "toolUse" and value.get("type") != "server_tool_use":
            block.kind, block.index = "call", self._calls
            self._calls += 1
            text = wire.dumps(value["input"]).decode() if value.get("input") is not None else ""
            block.texts.append(text)
            name, call_id = wire.text_of(value.get("name")), wire.text_of(value.get("toolUseId"))
            self.late.append(ToolCallDelta(index=block.index, id=call_id, name=name, arguments=text))
        elif kind == "reasoningContent":
            block.fields = {}
            block.kind = "thinking"
            self._thought(block, wire.object_of(value.get("reasoningText")) or value, self.late)
        block.closed = True
        return block

    def _message(self) -> AssistantMessage:
        stop = _STOPS.get(self._raw or "", StopReason.UNKNOWN)
        if stop is StopReason.ERROR:
            raise self._error({"message": f"the model stopped with {self._raw}"})
        cut = stop in (StopReason.MAX_TOKENS, StopReason.CONTEXT_WINDOW, StopReason.REFUSAL)
        cut = cut or stop is StopReason.MALFORMED_CALL
        blocks = [self._blocks[at] for at in sorted(self._blocks)]
        parts = [_read(block, cut=cut, last=block is blocks[-1]) for block in blocks]
        content = tuple(part for part in parts if part is not None)
        if stop is StopReason.END_TURN and any(isinstance(part, ToolCall) for part in content):
            stop = StopReason.TOOL_USE
        return AssistantMessage(
            content=content,
            stop_reason=stop,
            raw_stop_reason=self._raw,
            usage=usage_of(self._usage),
            provider=self._provider,
            model=self._model,
            meta=self._facts or None,
        )

    def _error(self, error: Json) -> ProviderError:
        from glue.providers.classify import classify_event

        return classify_event(error, provider=self._provider, model=self._model, usage=usage_of(self._usage))

    def _named(self, error: ProviderError) -> ProviderError:
        return error if error.provider else self._broken(str(error))

    def _broken(self, what: str, body: str = "") -> ProviderError:
        return wire.protocol_error(what, self._provider, self._model, body=body)


def decode_json(body: bytes, quirks: Quirks, provider: str, model: str) -> Done:
    """Read a reply that came in one piece."""
    decoder = Decoder(quirks, provider, model)
    decoder.feed(body)
    return decoder.finish()


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
            id=wire.text_of(block.fields.get("toolUseId")) or "tooluse_" + new_id(),
            name=wire.text_of(block.fields.get("name")),
            arguments=text,
            # A reply that is cut off closes its last block all the same; only the JSON tells.
            complete=block.closed and (not cut or is_object(text) or not (text or last)),
        )
    if block.kind == "citationsContent":
        text = "".join(wire.text_of(piece.get("text")) for piece in wire.list_of(block.fields.get("content")))
        return Text(text=text, opaque=Opaque(wire=WIRE, data={block.kind: block.fields}))
    return _verbatim(block, text)


def _verbatim(block: _Block, text: str) -> Part | None:
    if not block.kind or not block.closed:
        return None
    fields = dict(block.fields)
    if text:
        try:
            fields["input"] = wire.loads(text.encode())
        except wire.BAD_SHAPE:
            return None  # half a block is of no use to anybody
    if block.more:
        fields["content"] = [*wire.list_of(fields.get("content")), *block.more]
    return Opaque(wire=WIRE, data={block.kind: fields})


def _joined(pieces: list[str]) -> str:
    if len(pieces) == 1:
        return pieces[0]  # as it came
    return wire.base64_text(b"".join(base64.b64decode(piece) for piece in pieces))


def usage_of(raw: dict[str, Json]) -> Usage | None:
    """Normalise the tokens that were counted: their input leaves the cache out."""
    if not raw:
        return None
    read = wire.first_number(raw.get("cacheReadInputTokens"), raw.get("cacheReadInputTokenCount")) or 0
    write = wire.first_number(raw.get("cacheWriteInputTokens"), raw.get("cacheWriteInputTokenCount")) or 0
    return Usage(
        input=(wire.number(raw.get("inputTokens")) or 0) + read + write,
        output=wire.number(raw.get("outputTokens")) or 0,
        cache_read=read,
        cache_write=write,
    )
