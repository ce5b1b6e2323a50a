"""What a generated response says: events, a growing JSON array, or one object."""

from __future__ import annotations

from collections.abc import Mapping

from glue.errors import ProviderError
from glue.limits import StopReason
from glue.providers import wire
from glue.providers.jsonstream import Objects
from glue.providers.partial import PartialArguments
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

WIRE = "gemini"

_STOPS = {
    "STOP": StopReason.END_TURN,
    "MAX_TOKENS": StopReason.MAX_TOKENS,
    "MALFORMED_FUNCTION_CALL": StopReason.MALFORMED_CALL,
    "TOO_MANY_TOOL_CALLS": StopReason.ERROR,
    "UNEXPECTED_TOOL_CALL": StopReason.ERROR,
    **dict.fromkeys(
        (
            *("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR"),
            *("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"),
        ),
        StopReason.REFUSAL,
    ),
}
_FACTS = {"responseId": "id", "modelVersion": "model"}
_BLOCK_FACTS = {"blockReason": "block_reason", "blockReasonMessage": "block_message"}
_CANDIDATE_FACTS = {
    "finishMessage": "finish_message",
    "groundingMetadata": "grounding",
    "citationMetadata": "citations",
    "urlContextMetadata": "url_context",
}
_LEAD = b" \t\r\n\xef\xbb\xbf"  # white space and the bytes of a byte order mark


class _Piece:
    """One part under construction."""

    __slots__ = ("data", "kind", "partial", "position", "signature", "texts")

    def __init__(self, kind: str, *, signature: str = "", data: dict[str, Json] | None = None) -> None:
        self.kind = kind
        self.texts: list[str] = []
        self.signature = signature
        self.data = data or {}
        self.position = 0
        self.partial: PartialArguments | None = None  # of a call that goes on

    def part(self) -> Part:
        opaque = Opaque(wire=WIRE, data={"thoughtSignature": self.signature}) if self.signature else None
        text = "".join(self.texts)
        if self.kind == "text":
            return Text(text=text, opaque=opaque)
        if self.kind == "thinking":
            return Thinking(text=text, opaque=opaque)
        if self.kind == "call":
            complete = self.partial is None
            return ToolCall(**self.data, arguments=text, complete=complete, opaque=opaque)
        return Opaque(wire=WIRE, data=self.data)


class Decoder:
    """Read a stream of responses: as events, as one growing JSON array, or a single response.

    Nothing is raised before `finish`: what came before a fault in the same block must not be lost.
    """

    def __init__(self, quirks: Quirks, provider: str, model: str) -> None:
        self.failure: ProviderError | None = None
        self.late: list[ProviderEvent] = []  # what only the end of the body showed
        self._provider = provider
        self._model = model
        self._parser: Parser | Objects | None = None  # which one, the first byte tells
        self._pieces: list[_Piece] = []
        self._calls = 0
        self._open: _Piece | None = None  # the call whose arguments go on
        self._usage: dict[str, Json] = {}
        self._raw: str | None = None
        self._facts: dict[str, Json] = {}
        self._seen = False

    def feed(self, block: bytes) -> list[ProviderEvent]:
        """Take the next bytes of the body and return what they say."""
        events: list[ProviderEvent] = []
        if self.failure is None:
            try:
                for data in self._split(block):
                    self._response(data, events)
            except ProviderError as error:
                self.failure = error
        return events

    def finish(self) -> Done:
        """Return the reply once the body has ended, or raise what went wrong."""
        if self.failure is not None:
            raise self.failure
        closed = self._is_closed
        try:
            for data in self._parser.end() if self._parser else ():
                self._response(data, self.late)
        except ProviderError:
            if not closed:
                raise
        if not self._is_closed:
            raise self._broken("the stream ended without a finishReason") if self._seen else self._nothing()
        try:
            return Done(message=self._message())
        except wire.BAD_SHAPE:
            raise self._broken("a reply of an unknown shape") from None

    @property
    def _is_closed(self) -> bool:
        return self._raw is not None or "block_reason" in self._facts

    def _split(self, block: bytes) -> list[bytes]:
        if self._parser is None:
            start = block.lstrip(_LEAD)
            if not start:
                return []
            self._parser = Objects(self._provider) if start[0] in b"{[" else Parser(self._provider)
        return self._parser.feed(block)

    def _response(self, data: bytes, events: list[ProviderEvent]) -> None:
        try:
            response = wire.loads(data)
            if response.get("error"):
                raise self._error(response)
            self._seen = True
            if response.get("usageMetadata"):
                self._usage = dict(response["usageMetadata"])
            self._learn(response, _FACTS)
            feedback = response.get("promptFeedback")
            if feedback and feedback.get("blockReason"):
                self._learn(feedback, _BLOCK_FACTS)
            for candidate in (response.get("candidates") or ())[:1]:
                self._candidate(candidate, events)
        except wire.BAD_SHAPE:
            if data.strip() != b"[DONE]":
                text = data[:2000].decode("utf-8", "replace")
                raise self._broken("a response of an unknown shape", text) from None

    def _candidate(self, candidate: dict[str, Json], events: list[ProviderEvent]) -> None:
        content = candidate.get("content") or {}
        for part in content.get("parts") or ():
            self._part(part, events)
        self._raw = wire.text_of(candidate.get("finishReason")) or self._raw
        self._learn(candidate, _CANDIDATE_FACTS)

    def _learn(self, place: dict[str, Json], names: Mapping[str, str]) -> None:
        for key, name in names.items():
            if place.get(key):
                self._facts[name] = place[key]

    def _part(self, part: dict[str, Json], events: list[ProviderEvent]) -> None:
        signature = wire.text_of(part.get("thoughtSignature"))
        if "functionCall" in part:
            self._call(part["functionCall"], signature, events)
        elif isinstance(part.get("text"), str) or not part.keys() - {"thought", "thoughtSignature"}:
            self._text("thinking" if part.get("thought") else "text", wire.text_of(part.get("text")), signature, events)
        else:  # code that the server ran, its outcome, and whatever comes next
            self._pieces.append(_Piece("opaque", data=dict(part)))

    def _text(self, kind: str, text: str, signature: str, events: list[ProviderEvent]) -> None:
        if not text and not signature:
            return
        last = self._pieces[-1] if self._pieces else None
        # A part that is signed goes back as it came, so nothing is joined to it.
        if last is None or last.kind != kind or last.signature or signature:
            last = _Piece(kind, signature=signature)
            self._pieces.append(last)
        last.texts.append(text)
        if text:
            events.append(TextDelta(text=text) if kind == "text" else ThinkingDelta(text=text))

    def _call(self, call: dict[str, Json], signature: str, events: list[ProviderEvent]) -> None:
        piece = self._open
        if call.get("name"):
            piece = self._new_call(call)
        if piece is None:
            return  # the end of a call that had ended
        piece.signature = piece.signature or signature
        arguments = piece.partial = piece.partial or PartialArguments()
        if call.get("args"):
            arguments.value.update(call["args"])
        arguments.add(call.get("partialArgs") or [])
        text = ""
        self._open = piece
        if not call.get("willContinue"):
            text = wire.dumps(arguments.value).decode()
            piece.texts, piece.partial, self._open = [text], None, None
        if text or call.get("name"):
            identity = {"id": piece.data["id"], "name": piece.data["name"]}
            events.append(ToolCallDelta(index=piece.position, arguments=text, **identity))

    def _new_call(self, call: dict[str, Json]) -> _Piece:
        seed = wire.text_of(self._facts.get("id"))
        made_up = "call_" + (wire.short_id(f"{seed} {self._calls}", 20) if seed else new_id())
        identity = {"id": wire.text_of(call.get("id")) or made_up, "name": wire.text_of(call.get("name"))}
        piece = _Piece("call", data=identity)
        piece.position = self._calls
        self._calls += 1
        self._pieces.append(piece)
        return piece

    def _message(self) -> AssistantMessage:
        stop = StopReason.REFUSAL if self._raw is None else _STOPS.get(self._raw, StopReason.UNKNOWN)
        if self._calls and (stop is StopReason.END_TURN or self._raw == "UNEXPECTED_TOOL_CALL"):
            stop = StopReason.TOOL_USE
        if stop is StopReason.ERROR:
            raise self._error({"message": f"the model stopped with {self._raw}"})
        return AssistantMessage(
            content=tuple(piece.part() for piece in self._pieces),
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

    def _broken(self, what: str, body: str = "") -> ProviderError:
        return wire.protocol_error(what, self._provider, self._model, body=body)

    def _nothing(self) -> ProviderError:
        if self._parser is not None and self._parser.stray:
            text = self._parser.stray.decode("utf-8", "replace")
            return self._broken(f"the answer is no response: {text!r}", text)
        if isinstance(self._parser, Objects):
            return self._broken("the answer ends in the middle")
        return wire.protocol_error("an empty stream", self._provider, self._model, kind="empty")


def decode_json(body: bytes, quirks: Quirks, provider: str, model: str) -> Done:
    """Read a reply that came in one piece."""
    decoder = Decoder(quirks, provider, model)
    decoder.feed(body)
    return decoder.finish()


def usage_of(raw: dict[str, Json]) -> Usage | None:
    """Normalise the tokens that were counted: thoughts and tool prompts stand apart from the rest."""
    if not raw:
        return None
    thoughts = wire.number(raw.get("thoughtsTokenCount"))
    return Usage(
        input=(wire.number(raw.get("promptTokenCount")) or 0) + (wire.number(raw.get("toolUsePromptTokenCount")) or 0),
        output=(wire.number(raw.get("candidatesTokenCount")) or 0) + (thoughts or 0),
        cache_read=wire.number(raw.get("cachedContentTokenCount")) or 0,
        cache_write=0,
        reasoning=thoughts,
    )
