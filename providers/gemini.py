"""The wire of Gemini's generateContent, at Google's own API and on Vertex."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from glue.errors import ProviderError
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
from glue.provider import Done, ProviderEvent, TextDelta, ThinkingDelta, ToolCallDelta
from glue.providers import wire
from glue.providers.catalog import Quirks, Row
from glue.providers.sse import Objects, Parser
from glue.providers.wire import inline, is_remote, join_turns

_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d{1,9})\]|\['([^']*)'\]|\[\"([^\"]*)\"\]")
_MOST_GAP = 1000  # elements that may be skipped in a list; no server does, a hostile one might
_VALUES = ("stringValue", "numberValue", "boolValue", "nullValue")


class PartialArguments:
    """Build the object that `[{jsonPath, stringValue, willContinue}, ...]` spells out."""

    def __init__(self) -> None:
        self.value: dict[str, Json] = {}

    def add(self, pieces: list[dict[str, Json]]) -> None:
        """Take the next pieces; raises ValueError, TypeError or KeyError where they make no sense."""
        for piece in pieces:
            place, last = _place(self.value, _steps(piece["jsonPath"]))
            name = next((name for name in _VALUES if name in piece), "stringValue")
            value = None if name == "nullValue" else piece.get(name, "")
            if isinstance(place[last], str) and isinstance(value, str):
                place[last] += value  # a path that comes again goes on
            else:
                place[last] = value


def _steps(path: str) -> list[str | int]:
    steps: list[str | int] = []
    at = 1
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None:
            raise ValueError(f"no path: {path!r}")
        number = found[2]
        steps.append(
            int(number) if number else next(name for name in (found[1], found[3], found[4]) if name is not None)
        )
        at = found.end()
    if not steps or path[0] != "$":
        raise ValueError(f"no path: {path!r}")
    return steps


def _place(root: Json, steps: list[str | int]) -> tuple[Json, str | int]:
    """Return the object or list that holds the last step, made on the way."""
    place = root
    for step, following in pairwise(steps):
        inner = _get(place, step)
        if not isinstance(inner, list if isinstance(following, int) else dict):
            inner = place[step] = [] if isinstance(following, int) else {}
        place = inner
    _get(place, steps[-1])
    return place, steps[-1]


def _get(place: Json, step: str | int) -> Json:
    if isinstance(step, str):
        return place.setdefault(step)
    if step > len(place) + _MOST_GAP:
        raise ValueError(f"a list of {len(place)} has no element {step}")
    place.extend([None] * (step + 1 - len(place)))
    return place[step]


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
        from glue.providers.errors import classify_event

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


_HEADS = {"user": b'{"role":"user","parts":[', "model": b'{"role":"model","parts":['}
_FILLER = b'{"text":""}'  # a conversation must begin with a user; an empty text will do
# What Google says to put on calls that were made elsewhere: Gemini 3 refuses calls without a signature.
_FOREIGN = "skip_thought_signature_validator"
_BUDGETS: dict[Effort, int] = {"none": 0, "minimal": 512, "low": 2048, "medium": 8192, "high": 24576}
_LEAST_PRO_BUDGET = 128  # 2.5 Pro cannot stop thinking


def path(model: str, stream: bool) -> str:
    """Name the method of a model; a name with its own folder ("tunedModels/x") keeps it."""
    folder = model if "/" in model else f"models/{model}"
    return f"/{folder}:streamGenerateContent?alt=sse" if stream else f"/{folder}:generateContent"


class Gemini:
    """Ask Google's API for content."""

    def __init__(self, row: Row, http: Any, model: str = "") -> None:
        self.row = row
        self.http = http
        self.name = row.name
        self.model = model or row.model

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        model = request.model or self.model
        decoder = Decoder(self.row.quirks, self.name, model)
        async with self.http.post(path(model, request.stream), encode(request, self.row, model), model=model) as blocks:
            async for block in blocks:
                for event in decoder.feed(block):
                    yield event
                if decoder.failure is not None:
                    break
        done = wire.settle(self.http, decoder)
        for event in decoder.late:
            yield event
        yield wire.priced(done, self.name, model)


# Requests -----------------------------------------------------------------------------------------


def encode(request: Request, row: Row, model: str) -> bytes:
    """Make the body of a request; messages that were sent before are not encoded again."""
    fields: dict[str, Json] = {"contents": _contents(wire.unique_calls(request.messages), row, model)}
    if request.system:
        fields["systemInstruction"] = {"parts": [{"text": request.system}]}
    if request.tools:
        tools = wire.array(_tool(tool) for tool in request.tools)
        fields["tools"] = b'[{"functionDeclarations":' + tools + b"}]"
        if request.tool_choice != "auto":
            fields["toolConfig"] = {"functionCallingConfig": _tool_choice(request.tool_choice)}
    settings = _settings(request, model)
    if settings:
        fields["generationConfig"] = settings
    return wire.assemble(fields, request.options)


def _settings(request: Request, model: str) -> dict[str, Json]:
    settings: dict[str, Json] = {}
    if request.max_tokens is not None:
        settings["maxOutputTokens"] = request.max_tokens
    if request.temperature is not None:
        settings["temperature"] = request.temperature
    if request.stop:
        settings["stopSequences"] = list(request.stop)
    if request.output_schema is not None and takes_output(request.output_schema, model, tools=bool(request.tools)):
        settings["responseMimeType"] = "application/json"
        settings["responseJsonSchema"] = _schema(request.output_schema)
    thinking = _thinking(request.reasoning, model)
    if thinking:
        settings["thinkingConfig"] = thinking
    return settings


def takes_output(schema: Json, model: str, *, tools: bool = False) -> bool:
    """Say whether an answer can be held to a schema: before version 3 not beside tools; else a final tool has to do."""
    return not tools or _version(model) >= 3


def _version(model: str) -> float:
    found = re.search(r"gemini-(\d+(?:\.\d+)?)", model)
    if found:
        return float(found[1])
    return 3.0 if "gemini" in model else 0.0  # gemini-flash-latest and the like are new; Gemma is not Gemini


def _thinking(effort: Effort | None, model: str) -> dict[str, Json]:
    version, pro = _version(model), "pro" in model
    if effort is None or version < 2.5:
        return {}
    if version < 3:
        budget = max(_BUDGETS[effort], _LEAST_PRO_BUDGET) if pro else _BUDGETS[effort]
        return {"thinkingBudget": budget, **({"includeThoughts": True} if effort != "none" else {})}
    if effort in ("none", "minimal"):
        return {"thinkingLevel": "low" if pro else "minimal"}
    return {"thinkingLevel": effort, "includeThoughts": True}


def _tool(tool: ToolSpec) -> bytes:
    known: bytes | None = tool.memo.get(WIRE)
    if known is None:
        fields: dict[str, Json] = {"name": tool.name, "description": tool.description}
        known = tool.memo[WIRE] = wire.dumps({**fields, "parametersJsonSchema": _schema(tool.parameters)})
    return known


_UNKNOWN_KEYWORDS = frozenset(("$schema", "const", "discriminator", "examples", "exclusiveMinimum", "exclusiveMaximum"))


def _schema(schema: Json) -> Json:
    """Leave out what Gemini refuses in a schema; our own check of the arguments still knows it."""
    if isinstance(schema, (list, tuple)):
        return [_schema(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    if "$ref" in schema:  # nothing may stand beside it
        return {name: value for name, value in schema.items() if name in ("$ref", "$defs")}
    result: dict[str, Json] = {}
    for name, value in schema.items():
        if name in ("properties", "$defs", "definitions") and isinstance(value, Mapping):
            result[name] = {key: _schema(inner) for key, inner in value.items()}
        elif name in ("enum", "required", "default"):
            result[name] = value
        elif name not in _UNKNOWN_KEYWORDS:
            result[name] = _schema(value)
    if "const" in schema:
        result["enum"] = [schema["const"]]
    return result


def _tool_choice(choice: str) -> dict[str, Json]:
    if choice in ("none", "required"):
        return {"mode": "NONE" if choice == "none" else "ANY"}
    return {"mode": "ANY", "allowedFunctionNames": [choice]}


def _contents(messages: Sequence[Message], row: Row, model: str) -> bytes:
    key = wire.memo_key(WIRE, row, model)
    pieces: list[tuple[str, bytes]] = []
    pictures: list[bytes] = []  # of tool results: they follow the whole batch
    for message in messages:
        known: tuple[bytes, bytes] | None = message.memo.get(key)
        if known is None:
            known = message.memo[key] = _message(message, row, model)
        if isinstance(message, ToolMessage):
            pieces.append(("user", known[0]))
            if known[1]:
                pictures.append(known[1])
            continue
        if pictures:
            pieces.append(("user", b",".join(pictures)))
            pictures.clear()
        pieces.append(("model" if isinstance(message, AssistantMessage) else "user", known[0]))
    if pictures:
        pieces.append(("user", b",".join(pictures)))
    return join_turns(pieces, _HEADS, _FILLER)


def _message(message: Message, row: Row, model: str) -> tuple[bytes, bytes]:
    if message.excluded:
        return b"", b""
    if isinstance(message, ToolMessage):
        return _result(message, model)
    if isinstance(message, AssistantMessage):
        return b",".join(wire.dumps(part) for part in _reply(message, row, model)), b""
    return b",".join(wire.dumps(part) for part in _parts(message.content)), b""


def _parts(content: Sequence[Part]) -> Iterator[dict[str, Json]]:
    for part in content:
        if isinstance(part, Text) and part.text:
            yield {"text": part.text}
        elif isinstance(part, Image) and is_remote(part):
            yield {"fileData": {"fileUri": part.url, "mimeType": part.media_type}}
        elif isinstance(part, (Image, File)):
            kind, data = inline(part)
            yield {"inlineData": {"mimeType": kind, "data": data}}


def _reply(message: AssistantMessage, row: Row, model: str) -> Iterator[dict[str, Json]]:
    own = wire.is_own(message, row)
    unsigned = _version(model) >= 3 and not any(_signature(part) for part in message.calls if own)
    for part in message.content:
        kept = wire.object_of(wire.opaque_of(part, WIRE)) if own else {}
        if isinstance(part, ToolCall):
            if part.complete:
                call = {"name": part.name, "args": wire.arguments(part), "id": part.id}
                yield {"functionCall": call, **({"thoughtSignature": _FOREIGN} if unsigned else {}), **kept}
                unsigned = False  # of parallel calls only the first is signed
        elif isinstance(part, Text):
            if part.text or kept:
                yield {"text": part.text, **kept}
        elif isinstance(part, Thinking):
            if own:
                yield {"text": part.text, "thought": True, **kept}
        elif isinstance(part, Opaque) and kept:
            yield kept


def _signature(part: Part) -> bool:
    return "thoughtSignature" in wire.object_of(wire.opaque_of(part, WIRE))


def _result(message: ToolMessage, model: str) -> tuple[bytes, bytes]:
    text = "\n".join(part.text for part in message.content if isinstance(part, Text))
    response: dict[str, Json] = {"error" if message.is_error else "output": text}
    answer: dict[str, Json] = {"name": message.name, "id": message.call_id, "response": response}
    pictures = list(_parts([part for part in message.content if not isinstance(part, Text)]))
    if pictures and _version(model) >= 3:
        answer["parts"] = pictures
        pictures = []
    return wire.dumps({"functionResponse": answer}), b",".join(map(wire.dumps, pictures))
