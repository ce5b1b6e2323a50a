"""What a reply of the Messages API says, streamed or whole."""

from __future__ import annotations

from glue.errors import ProviderError
from glue.limits import StopReason
from glue.providers import wire
from glue.providers.calls import is_object
from glue.providers.row import Quirks
from glue.providers.sse import Parser
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
        self.kind = wire.text_of(fields.get("type"))
        self.fields = fields
        self.index = index
        self.pieces: dict[str, list[str]] = {}
        self.json: list[str] = []
        self.closed = False

    def add(self, key: str, piece: str) -> None:
        pieces = self.pieces.get(key)
        if pieces is None:
            pieces = self.pieces[key] = [wire.text_of(self.fields.get(key))]
        pieces.append(piece)

    def whole(self) -> dict[str, Json]:
        return {**self.fields, **{key: "".join(pieces) for key, pieces in self.pieces.items()}}


class Decoder:
    """Read a stream of events, or a whole message where a server sends that instead.

    Nothing is raised before `finish`: what came before a fault in the same block must not be lost.
    """

    def __init__(self, quirks: Quirks, provider: str, model: str) -> None:
        self.failure: ProviderError | None = None
        self.late: list[ProviderEvent] = []  # what only the end of the body showed
        self._provider = provider
        self._model = model
        self._parser = Parser(provider)
        self._blocks: dict[int, _Block] = {}
        self._calls = 0
        self._usage: dict[str, Json] = {}
        self._facts: dict[str, Json] = {}  # id, model, stop_reason and what belongs to it
        self._started = False
        self._stopped = False

    def feed(self, block: bytes) -> list[ProviderEvent]:
        """Take the next bytes of the body and return what they say."""
        events: list[ProviderEvent] = []
        if self.failure is None:
            try:
                for data in self._parser.feed(block):
                    self._event(data, events)
            except ProviderError as error:
                self.failure = error
        return events

    @property
    def ended(self) -> bool:
        """Whether the last event came: a server may leave the connection open behind it."""
        return self._stopped

    def finish(self) -> Done:
        """Return the reply once the body has ended, or raise what went wrong."""
        if self.failure is not None:
            raise self.failure
        if self._parser.body is not None:
            self._whole(self._parser.body)
        for data in self._parser.end():
            self._event(data, self.late)
        if not self._stopped:
            raise self._broken("the stream ended without message_stop") if self._started else self._nothing()
        try:
            return Done(message=self._message())
        except wire.BAD_SHAPE:
            raise self._broken("a reply of an unknown shape") from None

    def _event(self, data: bytes, events: list[ProviderEvent]) -> None:
        try:
            event = wire.loads(data)
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
                self._stopped = True
            elif kind == "error":
                raise self._error(event)
        except wire.BAD_SHAPE:
            if data.strip() != b"[DONE]":  # some proxies end every stream with it
                text = data[:2000].decode("utf-8", "replace")
                raise self._broken("an event of an unknown shape", text) from None

    def _begin(self, message: dict[str, Json]) -> None:
        # Some proxies repeat message_start: the message begins anew.
        self._started = True
        self._blocks.clear()
        self._usage.clear()
        self._facts.clear()
        self._learn(message)
        self._count(message.get("usage"))

    def _learn(self, fields: dict[str, Json]) -> None:
        for key in ("id", "model", "stop_reason", "stop_sequence", "stop_details"):
            if fields.get(key) is not None:
                self._facts[key] = fields[key]

    def _count(self, usage: Json) -> None:
        # Cumulative, and corrected as it goes: the later value of a key replaces the earlier.
        for key, value in wire.object_of(usage).items():
            if value is not None:
                self._usage[key] = value

    def _start(self, at: int, fields: dict[str, Json], events: list[ProviderEvent]) -> None:
        block = self._blocks[int(at)] = _Block(dict(fields), self._calls)
        if block.kind == "tool_use":
            self._calls += 1
            name, call_id = wire.text_of(fields.get("name")), wire.text_of(fields.get("id"))
            given = wire.dumps(fields["input"]).decode() if fields.get("input") else ""
            events.append(ToolCallDelta(index=block.index, id=call_id, name=name, arguments=given))
        elif block.kind == "text" and (text := wire.text_of(fields.get("text"))):
            events.append(TextDelta(text=text))
        elif block.kind == "thinking" and (text := wire.text_of(fields.get("thinking"))):
            events.append(ThinkingDelta(text=text))

    def _delta(self, at: int, delta: dict[str, Json], events: list[ProviderEvent]) -> None:
        kind = delta["type"]
        block = self._blocks.get(at)
        if block is None:
            block = self._blocks[int(at)] = _Block({"type": "thinking" if kind == "thinking_delta" else "text"}, 0)
        if kind == "text_delta":
            text = wire.text_of(delta["text"])
            block.add("text", text)
            if text and block.kind == "text":
                events.append(TextDelta(text=text))
        elif kind == "input_json_delta":
            piece = wire.text_of(delta["partial_json"])
            block.json.append(piece)
            if piece and block.kind == "tool_use":
                events.append(ToolCallDelta(index=block.index, arguments=piece))
        elif kind == "thinking_delta":
            text = wire.text_of(delta["thinking"])
            block.add("thinking", text)
            if text and block.kind == "thinking":
                events.append(ThinkingDelta(text=text))
        elif kind == "citations_delta":
            block.fields["citations"] = [*wire.list_of(block.fields.get("citations")), delta["citation"]]
        else:  # signature_delta, compaction_delta and whatever comes next
            for key, value in delta.items():
                if key != "type" and isinstance(value, str):
                    block.add(key, value)

    def _whole(self, body: bytes) -> None:
        text = body[:2000].decode("utf-8", "replace")
        try:
            reply = wire.loads(body)
            if reply.get("error") or reply.get("type") == "error":
                raise self._error(reply)
            self._begin(reply)
            for at, fields in enumerate(reply["content"]):
                self._start(at, fields, self.late)
                self._blocks[at].closed = True
        except wire.BAD_SHAPE:
            raise self._broken("the answer is no message", text) from None
        self._stopped = True

    def _message(self) -> AssistantMessage:
        raw = wire.text_of(self._facts.pop("stop_reason", None)) or None
        stop = _STOPS.get(raw or "", StopReason.UNKNOWN)
        cut = stop in (StopReason.MAX_TOKENS, StopReason.CONTEXT_WINDOW, StopReason.REFUSAL)
        blocks = [self._blocks[at] for at in sorted(self._blocks)]
        parts = [_read(block, cut=cut, last=block is blocks[-1]) for block in blocks]
        content = tuple(part for part in parts if part is not None)
        if stop is StopReason.END_TURN and any(isinstance(part, ToolCall) for part in content):
            stop = StopReason.TOOL_USE
        return AssistantMessage(
            content=content,
            stop_reason=stop,
            raw_stop_reason=raw,
            usage=usage_of(self._usage),
            provider=self._provider,
            model=self._model,
            meta=self._facts or None,
        )

    def _error(self, event: dict[str, Json]) -> ProviderError:
        from glue.providers.classify import classify_event

        return classify_event(event, provider=self._provider, model=self._model, usage=usage_of(self._usage))

    def _broken(self, what: str, body: str = "") -> ProviderError:
        return wire.protocol_error(what, self._provider, self._model, body=body)

    def _nothing(self) -> ProviderError:
        if stray := self._parser.stray:
            text = stray.decode("utf-8", "replace")
            return self._broken(f"the answer is no message: {text!r}", text)
        return wire.protocol_error("an empty stream", self._provider, self._model, kind="empty")


def decode_json(body: bytes, quirks: Quirks, provider: str, model: str) -> Done:
    """Read a reply that came in one piece."""
    decoder = Decoder(quirks, provider, model)
    decoder.feed(body)
    return decoder.finish()


def _read(block: _Block, *, cut: bool, last: bool) -> Part | None:
    fields = block.whole()
    if block.kind == "text":
        text, citations = wire.text_of(fields.get("text")), fields.get("citations")
        return Text(text=text, opaque=_kept({"citations": citations}) if citations else None) if text else None
    if block.kind == "thinking":
        text, signature = wire.text_of(fields.get("thinking")), wire.text_of(fields.get("signature"))
        opaque = _kept({"signature": signature}) if signature else None
        return Thinking(text=text, opaque=opaque) if text or signature else None
    if block.kind == "tool_use":
        return _call(block, fields, cut=cut, last=last)
    if not block.kind or not block.closed:
        return None
    if any(block.json):
        try:
            fields["input"] = wire.loads("".join(block.json).encode())
        except wire.BAD_SHAPE:
            return None  # half a block is of no use to anybody
    return Opaque(wire=WIRE, data=fields)


def _call(block: _Block, fields: dict[str, Json], *, cut: bool, last: bool) -> ToolCall:
    text = "".join(block.json)
    if not text and fields.get("input"):
        text = wire.dumps(fields["input"]).decode()
    caller = wire.object_of(fields.get("caller"))
    return ToolCall(
        id=wire.text_of(fields.get("id")) or "toolu_" + new_id(),
        name=wire.text_of(fields.get("name")),
        arguments=text,
        # A reply that is cut off closes its last block all the same; only the JSON tells.
        complete=block.closed and (not cut or is_object(text) or not (text or last)),
        opaque=_kept({"caller": caller}) if caller.get("type", "direct") != "direct" else None,
    )


def _kept(data: Json) -> Opaque:
    return Opaque(wire=WIRE, data=data)


def usage_of(raw: dict[str, Json]) -> Usage | None:
    """Normalise the tokens that were counted: their input leaves the cache out."""
    if not raw:
        return None
    read = wire.number(raw.get("cache_read_input_tokens")) or 0
    write = wire.number(raw.get("cache_creation_input_tokens")) or 0
    return Usage(
        input=(wire.number(raw.get("input_tokens")) or 0) + read + write,
        output=wire.number(raw.get("output_tokens")) or 0,
        cache_read=read,
        cache_write=write,
        reasoning=wire.number(wire.object_of(raw.get("output_tokens_details")).get("thinking_tokens")),
    )
