"""The wire of Gemini's generateContent, at Google's API and on Vertex."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar

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
from glue.provider import ProviderEvent, TextDelta, ThinkingDelta, ToolCallDelta
from glue.providers import encoding, wire
from glue.providers.catalog import Quirks, Row
from glue.providers.encoding import inline, is_remote, join_turns
from glue.providers.google import Tokens
from glue.providers.sse import Objects, Parser

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


class _Parser:
    """Cuts a body into responses: of an event stream, or of one growing JSON array, as its first byte tells."""

    body = None

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._inner: Parser | Objects | None = None

    def feed(self, block: bytes) -> list[bytes]:
        if self._inner is None:
            start = block.lstrip(_LEAD)
            if not start:
                return []
            self._inner = Objects(self._provider) if start[0] in b"{[" else Parser(self._provider)
        return self._inner.feed(block)

    def end(self) -> list[bytes]:
        return self._inner.end() if self._inner else []

    @property
    def stray(self) -> bytes:
        return self._inner.stray if self._inner else b""

    @property
    def is_cut(self) -> bool:
        return isinstance(self._inner, Objects)


class GeminiDecoder(wire.Decoder):
    """Reads a stream of responses: as events, as one growing JSON array, or a single response."""

    noun = "response"
    end_mark = "a finishReason"
    stops = _STOPS

    def __init__(self, quirks: Quirks, provider: str, model: str) -> None:
        super().__init__(quirks, provider, model)
        self._pieces: list[_Piece] = []
        self._calls = 0
        self._open: _Piece | None = None  # the call whose arguments go on

    def _new_parser(self) -> _Parser:
        return _Parser(self.provider)

    def _event(self, data: bytes, events: list[ProviderEvent]) -> None:
        response = encoding.loads(data)
        if response.get("error"):
            raise self.error(response)
        self.seen = True
        counted = response.get("usageMetadata") or response.get("usage_metadata") or {}
        self.counts |= {_camel(name): value for name, value in counted.items() if value is not None}
        self._learn(response, _FACTS)
        feedback = response.get("promptFeedback")
        if feedback and feedback.get("blockReason"):
            self._learn(feedback, _BLOCK_FACTS)
            self.closed = True
        for candidate in (response.get("candidates") or ())[:1]:
            content = candidate.get("content") or {}
            for part in content.get("parts") or ():
                self._part(part, events)
            self.raw_stop = encoding.text_of(candidate.get("finishReason")) or self.raw_stop
            self.closed = self.closed or self.raw_stop is not None
            self._learn(candidate, _CANDIDATE_FACTS)

    def _learn(self, place: dict[str, Json], names: Mapping[str, str]) -> None:
        self.facts |= {name: place[key] for key, name in names.items() if place.get(key)}

    def _part(self, part: dict[str, Json], events: list[ProviderEvent]) -> None:
        part = {name: value for name, value in part.items() if value is not None}  # proxies spell out what is not there
        signature = encoding.text_of(part.get("thoughtSignature"))
        if "functionCall" in part:
            self._call(part["functionCall"], signature, events)
        elif isinstance(part.get("text"), str) or not part.keys() - {"thought", "thoughtSignature"}:
            self._text(
                "thinking" if part.get("thought") else "text", encoding.text_of(part.get("text")), signature, events
            )
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
            text = encoding.dumps(arguments.value).decode()
            piece.texts, piece.partial, self._open = [text], None, None
        if text or call.get("name"):
            identity = {"id": piece.data["id"], "name": piece.data["name"]}
            events.append(ToolCallDelta(index=piece.position, arguments=text, **identity))

    def _new_call(self, call: dict[str, Json]) -> _Piece:
        seed = encoding.text_of(self.facts.get("id"))
        made_up = "call_" + (encoding.short_id(f"{seed} {self._calls}", 20) if seed else new_id())
        identity = {"id": encoding.text_of(call.get("id")) or made_up, "name": encoding.text_of(call.get("name"))}
        piece = _Piece("call", data=identity)
        piece.position = self._calls
        self._calls += 1
        self._pieces.append(piece)
        return piece

    def _stop_reason(self) -> StopReason:
        if self.raw_stop is None:
            return StopReason.REFUSAL  # the prompt was blocked
        return (
            StopReason.END_TURN if self.raw_stop == "UNEXPECTED_TOOL_CALL" and self._calls else super()._stop_reason()
        )

    def _content(self, *, cut: bool) -> list[Part]:
        return [piece.part() for piece in self._pieces]

    def _usage(self) -> Usage | None:
        """Normalise the tokens that were counted: thoughts and tool prompts stand apart from the rest."""
        raw = self.counts
        if not raw:
            return None
        thoughts = encoding.number(raw.get("thoughtsTokenCount"))
        return Usage(
            input=(encoding.number(raw.get("promptTokenCount")) or 0)
            + (encoding.number(raw.get("toolUsePromptTokenCount")) or 0),
            output=(encoding.number(raw.get("candidatesTokenCount")) or 0) + (thoughts or 0),
            cache_read=encoding.number(raw.get("cachedContentTokenCount")) or 0,
            cache_write=0,
            reasoning=thoughts,
        )

    def _nothing(self) -> ProviderError:
        cut = self.parser.is_cut and not self.parser.stray
        return self.broken("the answer ends in the middle") if cut else super()._nothing()


def _camel(name: str) -> str:
    """Name a field as Google's own servers do; some proxies write prompt_token_count."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


_HEADS = {"user": b'{"role":"user","parts":[', "model": b'{"role":"model","parts":['}
_FILLER = b'{"text":" "}'  # a conversation must begin with a user, and an empty text is refused; a blank is not
# What Google says to put on calls that were made elsewhere: Gemini 3 refuses calls without a signature.
_FOREIGN = "skip_thought_signature_validator"
_BUDGETS: dict[str, int] = {"none": 0, "minimal": 512, "low": 2048, "medium": 8192, "high": 24576}
_LEAST_PRO_BUDGET = 128  # 2.5 Pro cannot stop thinking


def path(model: str, stream: bool) -> str:
    """Name the method of a model; a name with its own folder ("tunedModels/x") keeps it."""
    folder = model if "/" in model else f"models/{model}"
    return f"/{folder}:streamGenerateContent?alt=sse" if stream else f"/{folder}:generateContent"


# Requests -----------------------------------------------------------------------------------------


def encode(request: Request, row: Row, model: str) -> bytes:
    """Make the body of a request; messages that were sent before are not encoded again."""
    fields: dict[str, Json] = {"contents": _contents(encoding.unique_calls(request.messages), row, model)}
    if request.system:
        fields["systemInstruction"] = {"parts": [{"text": request.system}]}
    if request.tools:
        tools = encoding.array(encoding.encode_tool(tool, WIRE, _tool) for tool in request.tools)
        fields["tools"] = b'[{"functionDeclarations":' + tools + b"}]"
        if request.tool_choice != "auto":
            fields["toolConfig"] = {"functionCallingConfig": _tool_choice(request.tool_choice)}
    settings = _settings(request, row, model)
    if settings:
        fields["generationConfig"] = settings
    return encoding.assemble(fields, request.options)


def _settings(request: Request, row: Row, model: str) -> dict[str, Json]:
    settings: dict[str, Json] = {}
    if request.max_tokens is not None:
        settings["maxOutputTokens"] = request.max_tokens
    if request.temperature is not None:
        settings["temperature"] = request.temperature
    if request.stop:
        settings["stopSequences"] = list(request.stop)
    if request.output_schema is not None and takes_output(request.output_schema, row, model, tools=bool(request.tools)):
        settings["responseMimeType"] = "application/json"
        settings["responseJsonSchema"] = _schema(request.output_schema)
    thinking = _thinking(request.reasoning, row, model)
    if thinking:
        settings["thinkingConfig"] = thinking
    return settings


def takes_output(schema: Json, row: Row, model: str, *, tools: bool = False) -> bool:
    """Say whether an answer can be held to a schema: before version 3 not beside tools; else a final tool has to do."""
    return not tools or _version(model) >= 3


def _version(model: str) -> float:
    found = re.search(r"gemini-(\d+(?:\.\d+)?)", model)
    if found:
        return float(found[1])
    return 3.0 if "gemini" in model else 0.0  # gemini-flash-latest and the like are new; Gemma is not Gemini


def efforts(row: Row, model: str) -> tuple[str, ...]:
    version, pro = _version(model), "pro" in model
    if version < 2.5:
        return ()
    return tuple(_BUDGETS) if version < 3 else ("low", "high") if pro else ("minimal", "low", "medium", "high")


def _thinking(effort: Effort | None, row: Row, model: str) -> dict[str, Json]:
    version, pro, levels = _version(model), "pro" in model, efforts(row, model)
    level = encoding.lower(effort, levels) or (levels[0] if effort == "none" and levels else None)
    if level is None:
        return {}
    shown = {"includeThoughts": True} if effort not in ("none", "minimal") or (version < 3 and effort != "none") else {}
    if version < 3:
        return {"thinkingBudget": max(_BUDGETS[level], _LEAST_PRO_BUDGET if pro else 0), **shown}
    return {"thinkingLevel": level, **shown}


def _tool(tool: ToolSpec) -> Json:
    return {"name": tool.name, "description": tool.description, "parametersJsonSchema": _schema(tool.parameters)}


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
    key = encoding.memo_key(WIRE, row, model)
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
    return join_turns(pieces, _FILLER, _HEADS)


def _message(message: Message, row: Row, model: str) -> tuple[bytes, bytes]:
    if message.excluded:
        return b"", b""
    if isinstance(message, ToolMessage):
        return _result(message, model)
    if isinstance(message, AssistantMessage):
        return b",".join(encoding.dumps(part) for part in _reply(message, row, model)), b""
    return b",".join(encoding.dumps(part) for part in _parts(message.content)), b""


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
    own = encoding.is_own(message, row)
    unsigned = _version(model) >= 3 and not any(_signature(part) for part in message.calls if own)
    for part in message.content:
        kept = encoding.object_of(encoding.opaque_of(part, WIRE)) if own else {}
        if isinstance(part, ToolCall):
            if part.complete:
                call = {"name": encoding.call_name(part.name), "args": encoding.arguments(part), "id": part.id}
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
    return "thoughtSignature" in encoding.object_of(encoding.opaque_of(part, WIRE))


def _result(message: ToolMessage, model: str) -> tuple[bytes, bytes]:
    text = "\n".join(part.text for part in message.content if isinstance(part, Text))
    response: dict[str, Json] = {"error" if message.is_error else "output": text}
    answer: dict[str, Json] = {"name": encoding.call_name(message.name), "id": message.call_id, "response": response}
    pictures = list(_parts([part for part in message.content if not isinstance(part, Text)]))
    if pictures and _version(model) >= 3:
        answer["parts"] = pictures
        pictures = []
    return encoding.dumps({"functionResponse": answer}), b",".join(map(encoding.dumps, pictures))


class Gemini(wire.Wire):
    """Asks Google for content: with a key, or through a Cloud project (Vertex) with access tokens."""

    decoder = GeminiDecoder
    encode = staticmethod(encode)
    takes_output = staticmethod(takes_output)
    efforts = staticmethod(efforts)
    models_query: ClassVar[Mapping[str, str | int]] = {"pageSize": 1000}

    def __init__(self, row: Row, http: Any, model: str = "", tokens: Tokens | None = None) -> None:
        super().__init__(row, http, model)
        self._tokens = tokens or Tokens()

    def target(self, request: Request, model: str) -> str:
        return path(model, request.stream)

    async def headers(self, request: Request, target: str, body: bytes) -> dict[str, str]:
        if self.row.auth != "google" or self.http.authorized:
            return {}
        token = await self._tokens.get()
        self.http.hide(token)
        return {"authorization": f"Bearer {token}"}
