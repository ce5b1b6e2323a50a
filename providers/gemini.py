"""The wire of Gemini's generateContent, at Google's own API and on Vertex."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from glue.providers import wire
from glue.providers.gemini_reply import WIRE, Decoder
from glue.providers.gemini_reply import decode_json as decode_json
from glue.providers.media import inline, is_remote
from glue.providers.row import Row
from glue.providers.turns import join_turns
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
