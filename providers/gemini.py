"""Encode and decode Gemini's generateContent API, which Google's servers and Vertex offer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar

from glue import AssistantMessage, StopReason, Text, ToolCall, ToolMessage
from glue.messages import Json, ToolSpec
from glue.provider import ProviderEvent, Thinking, ToolCallDelta
from glue.providers import encoding, wire
from glue.providers.catalog import Entry, Quirks
from glue.providers.encoding import Said
from glue.providers.google import Tokens
from glue.providers.sse import Parser
from glue.providers.wire import Block

WIRE = "gemini"


class GeminiDecoder(wire.Decoder):
    """A decoder of Gemini's replies: a stream of events, a JSON array, or a single response."""

    wire = WIRE
    noun = "response"
    end_mark = "a finishReason"
    stops: ClassVar = {
        StopReason.END_TURN: "STOP",
        StopReason.MAX_TOKENS: "MAX_TOKENS",
        StopReason.REFUSAL: "SAFETY RECITATION BLOCKLIST PROHIBITED_CONTENT SPII MODEL_ARMOR "
        "IMAGE_SAFETY IMAGE_PROHIBITED_CONTENT IMAGE_RECITATION",
        StopReason.MALFORMED_CALL: "MALFORMED_FUNCTION_CALL",
        StopReason.ERROR: "TOO_MANY_TOOL_CALLS UNEXPECTED_TOOL_CALL",
    }
    parse = staticmethod(partial(Parser, objects=True))
    tokens: ClassVar = {
        "input": ("promptTokenCount",),
        "output": ("candidatesTokenCount",),
        "cache_read": ("cachedContentTokenCount",),
        "reasoning": ("thoughtsTokenCount",),
        "tools": ("toolUsePromptTokenCount",),
    }
    apart: ClassVar = {"input": ("tools",), "output": ("reasoning",)}
    uncounted = 0

    def __init__(self, quirks: Quirks, provider: str, model: str) -> None:
        super().__init__(quirks, provider, model)
        self._open: Block | None = None  # the call whose arguments are still arriving
        self._arguments: dict[str, Json] = {}

    def _event(self, event: Json, events: list[ProviderEvent]) -> None:
        response = _named(event)
        if response.get("error"):
            raise self.error(response)
        self.counts |= _named(response.get("usageMetadata") or {})
        self._learn(response, responseId="id", modelVersion="model")
        feedback = _named(response.get("promptFeedback") or {})
        if feedback.get("blockReason"):
            self._learn(feedback, blockReason="block_reason", blockReasonMessage="block_message")
            self.closed = True
        for candidate in map(_named, (response.get("candidates") or ())[:1]):
            content = candidate.get("content") or {}
            for part in content.get("parts") or ():
                self._part(part, events)
            self.raw_stop = encoding.text_of(candidate.get("finishReason")) or self.raw_stop
            self.closed = self.closed or self.raw_stop is not None
            self._learn(candidate, finishMessage="finish_message", groundingMetadata="grounding")
            grounding = _named(candidate.get("groundingMetadata") or {})
            for chunk in encoding.list_of(grounding.get("groundingChunks")):
                self._cite([encoding.object_of(chunk).get("web")])
            self._learn(candidate, citationMetadata="citations", urlContextMetadata="url_context")

    def _part(self, part: dict[str, Json], events: list[ProviderEvent]) -> None:
        part = _named(part)
        signature = encoding.text_of(part.get("thoughtSignature"))
        signed = {"thoughtSignature": signature} if signature else {}
        if "functionCall" in part:
            self._call(_named(part["functionCall"]), signed, events)
        elif not isinstance(part.get("text"), str) and part.keys() - {
            "thought",
            "thoughtSignature",
        }:
            # Code that the server ran, its result, or a kind of part that does not exist yet.
            self._add(Block("part", part))
        elif part.get("text") or signed:
            kind = "thinking" if part.get("thought") else "text"
            block = self.blocks.get(len(self.blocks) - 1)
            # A signed part must be sent back unchanged, so no text is joined to it.
            if block is None or block.kind != kind or block.fields or signed:
                block = self._add(Block(kind, signed))
            self._say(block, encoding.text_of(part.get("text")), events)

    def _add(self, block: Block) -> Block:
        block.closed = True
        self.blocks[len(self.blocks)] = block
        return block

    def _call(
        self, call: dict[str, Json], signed: dict[str, Json], events: list[ProviderEvent]
    ) -> None:
        block = self._open
        if call.get("name"):
            block = self._add(Block("call"))
            block.index = self.calls
            block.id = encoding.text_of(call.get("id")) or self._made_up_id(self.calls)
            block.name = encoding.text_of(call["name"])
            self.calls += 1
            self._arguments = {}
        if block is None:
            return  # an end mark for a call that has ended already
        block.fields = block.fields or signed
        self._arguments.update(call.get("args") or {})
        _fill(self._arguments, call.get("partialArgs") or [])
        block.closed = not call.get("willContinue")
        self._open = None if block.closed else block
        if block.closed:
            block.given = encoding.json_text(self._arguments)
        if block.closed or call.get("name"):
            events.append(
                ToolCallDelta(
                    index=block.index, id=block.id, name=block.name, arguments=block.given
                )
            )

    def _stop_reason(self) -> StopReason:
        if self.raw_stop is None:
            return StopReason.REFUSAL  # the prompt was blocked
        if self.raw_stop == "UNEXPECTED_TOOL_CALL" and self.calls:
            return StopReason.END_TURN
        return super()._stop_reason()


def _named(place: dict[str, Json]) -> dict[str, Json]:
    """Return the fields of a response with names in camelCase, and without nulls.

    Some proxies send snake_case.
    """
    if "_" not in "".join(place) and None not in place.values():
        return place  # the names are Google's own
    return {_camel_case(name): value for name, value in place.items() if value is not None}


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


_STEP = r"\.([^.\[\]]+)|\[(\d{1,9})\]|\['([^']*)'\]|\[\"([^\"]*)\"\]"
_MOST_GAP = (
    1000  # elements that a path may skip in a list, so that a hostile server cannot fill memory
)
_VALUES = ("stringValue", "numberValue", "boolValue", "nullValue")


def _fill(arguments: dict[str, Json], pieces: list[dict[str, Json]]) -> None:
    """Add streamed arguments, such as `[{jsonPath, stringValue, willContinue}]`, to `arguments`.

    Raise ValueError, TypeError or KeyError if the pieces do not form an object.
    """
    for piece in pieces:
        steps = _steps(piece["jsonPath"])
        place: Json = arguments
        for step, following in pairwise(steps):
            inner = _get(place, step)
            if not isinstance(inner, list if isinstance(following, int) else dict):
                inner = place[step] = [] if isinstance(following, int) else {}
            place = inner
        last = steps[-1]
        name = next((name for name in _VALUES if name in piece), "stringValue")
        value = None if name == "nullValue" else piece.get(name, "")
        if isinstance(before := _get(place, last), str) and isinstance(value, str):
            value = before + value  # a path that is repeated continues its string
        place[last] = value


def _steps(path: str) -> list[str | int]:
    if not re.fullmatch(rf"\$(?:{_STEP})+", path):
        raise ValueError(f"not a path: {path!r}")
    return [
        int(index) if index else name or quoted or twice
        for name, index, quoted, twice in re.findall(_STEP, path)
    ]


def _get(place: Json, step: str | int) -> Json:
    if isinstance(step, str):
        return place.setdefault(step)
    if step > len(place) + _MOST_GAP:
        raise ValueError(f"element {step} is too far behind the end of a list of {len(place)}")
    place.extend([None] * (step + 1 - len(place)))
    return place[step]


# Requests

# The signature that Google documents for calls of other models; Gemini 3 requires a signature.
_FOREIGN = "skip_thought_signature_validator"
_BUDGETS: dict[str, int] = {"none": 0, "minimal": 512, "low": 2048, "medium": 8192, "high": 24576}
_CHOICES: dict[str, Json] = {"auto": None, "none": {"mode": "NONE"}, "required": {"mode": "ANY"}}
_UNKNOWN_KEYWORDS = frozenset(
    ("$schema", "const", "discriminator", "examples", "exclusiveMinimum", "exclusiveMaximum")
)


class GeminiEncoder(wire.TurnEncoder):
    """An encoder for Gemini's API generateContent."""

    wire = WIRE
    heads: ClassVar = {
        "user": b'{"role":"user","parts":[',
        "assistant": b'{"role":"model","parts":[',
    }
    searches = ("gemini", "vertex")
    filler = b'{"text":" "}'  # Gemini refuses an empty text, but accepts a blank

    @property
    def version(self) -> float:
        """The version in the name of a Gemini model, such as 2.5, or 0 if this is another model.

        If the name of a Gemini model contains no version, the value is 3.
        """
        if found := re.search(r"gemini-(\d+(?:\.\d+)?)", self.model):
            return float(found[1])
        # Names without a version, such as gemini-flash-latest, belong to new models. Gemma is not
        # a Gemini model.
        return 3.0 if "gemini" in self.model else 0.0

    def body(self) -> bytes:
        request, tools = self.request, self.tools(self.request.tools)
        choice = _CHOICES.get(
            request.tool_choice, {"mode": "ANY", "allowedFunctionNames": [request.tool_choice]}
        )
        schema, search = request.output_schema, self.search_fields()
        if schema is not None and not self.takes_output(schema, tools=bool(tools or search)):
            self.notes.append(
                f"{self.model} takes no schema together with tools or web search; "
                "the schema was left out"
            )
            schema = None
        settings = {
            "maxOutputTokens": request.max_tokens,
            "temperature": self.temperature(),
            "stopSequences": list(request.stop) or None,
            "responseMimeType": "application/json" if schema is not None else None,
            "responseJsonSchema": _schema(schema),
            "thinkingConfig": self._thinking() or None,
        }
        turns = self.turns(self.messages)
        offered = [encoding.assemble({"functionDeclarations": tools})] if tools else []
        config: dict[str, Json] = {"functionCallingConfig": choice} if tools and choice else {}
        if search:
            offered.append(encoding.dumps(search))
            if tools and self.quirks.search == "gemini":  # Vertex does not know the field
                config["includeServerSideToolInvocations"] = True
        fields = {
            "contents": self.conversation([*turns, ("user", b",".join(self.waiting))]),
            "systemInstruction": {"parts": [{"text": request.system}]} if request.system else None,
            "tools": offered or None,
            "toolConfig": config or None,
            "generationConfig": {
                name: value for name, value in settings.items() if value is not None
            }
            or None,
        }
        return encoding.assemble(fields, request.options)

    def refused_search(self) -> str:
        if self.request.tools and self.version < 3:
            return f"{self.model} does not search the web in a request with other tools"
        return super().refused_search()

    def takes_output(self, schema: Json, *, tools: bool = False) -> bool:
        return not tools or self.facts.output_with_tools

    def _thinking(self) -> dict[str, Json]:
        effort, levels = self.request.reasoning, self.facts.efforts
        is_old = self.facts.thinking == "budget"
        level = self.level() or (levels[0] if effort == "none" and levels else None)
        if level is None:
            return {}
        shown = (
            {"includeThoughts": True}
            if effort not in ("none", "minimal") or (is_old and effort != "none")
            else {}
        )
        if is_old:
            return {
                "thinkingBudget": max(_BUDGETS[level], self.facts.least_budget),
                **shown,
            }
        return {"thinkingLevel": level, **shown}

    def tool(self, tool: ToolSpec) -> Json:
        return {
            "name": tool.name,
            "description": tool.description,
            "parametersJsonSchema": _schema(tool.parameters),
        }

    def block(self, part: Said | Thinking | ToolCall, kept: dict[str, Json]) -> dict[str, Json]:
        if isinstance(part, Text):
            # An empty text may carry a signature.
            return {"text": part.text, **kept} if part.text or kept else {}
        if isinstance(part, Thinking):
            return {"text": part.text, "thought": True, **kept}
        if isinstance(part, ToolCall):
            name, arguments = encoding.call_name(part.name), encoding.arguments(part)
            return {"functionCall": {"name": name, "args": arguments, "id": part.id}, **kept}
        if encoding.is_remote(part):
            return {"fileData": {"fileUri": part.url, "mimeType": part.media_type}}
        kind, data = encoding.inline(part)
        return {"inlineData": {"mimeType": kind, "data": data}}

    def reply(self, message: AssistantMessage) -> list[dict[str, Json]]:
        blocks = super().reply(message)
        calls = [block for block in blocks if "functionCall" in block]
        if calls and self.version >= 3 and not any("thoughtSignature" in call for call in calls):
            calls[0]["thoughtSignature"] = _FOREIGN  # only the first of parallel calls is signed
        return blocks

    def result(self, message: ToolMessage, content: Sequence[Said]) -> Json:
        text = "\n".join(part.text for part in content if isinstance(part, Text))
        response = {"error" if message.is_error else "output": text}
        answer: dict[str, Json] = {
            "name": encoding.call_name(message.name),
            "id": message.call_id,
            "response": response,
        }
        pictures = [self.block(part, {}) for part in content if not isinstance(part, Text)]
        return {
            "functionResponse": {**answer, "parts": pictures}
            if pictures and self.version >= 3
            else answer
        }

    def pictures(self, message: ToolMessage, content: Sequence[Said]) -> list[Json]:
        return [
            self.block(part, {})
            for part in content
            if not isinstance(part, Text) and self.version < 3
        ]


def _schema(schema: Json) -> Json:
    """Return a schema without the keywords that Gemini refuses.

    The loop checks calls and replies against the complete schema.
    """
    return encoding.rewritten(schema, _UNKNOWN_KEYWORDS, _finish)


def _finish(schema: Mapping[str, Json], result: Json) -> Json:
    if "$ref" in schema:  # Gemini refuses other keywords next to $ref
        return {name: value for name, value in schema.items() if name in ("$ref", "$defs")}
    return {**result, "enum": [schema["const"]]} if "const" in schema else result


class Gemini(wire.Wire):
    """A provider on Gemini's API: with a key, or on Vertex with access tokens."""

    tool_rules = wire.ToolRules(
        keywords=(
            "uniqueItems",
            "propertyNames",
            "multipleOf",
            "contentEncoding",
            *wire.CONDITIONS,
        ),
        needs_letter=True,
    )
    encoder = GeminiEncoder
    decoder = GeminiDecoder
    models_path = "/models?pageSize=1000"

    def __init__(
        self, entry: Entry, http: Any, model: str = "", tokens: Tokens | None = None
    ) -> None:
        super().__init__(entry, http, model)
        self._tokens = tokens or Tokens()

    def target(self, model: str, stream: bool) -> str:
        # A name such as "tunedModels/x" contains its folder already.
        folder = model if "/" in model else f"models/{model}"
        return (
            f"/{folder}:streamGenerateContent?alt=sse" if stream else f"/{folder}:generateContent"
        )

    async def headers(
        self, options: Mapping[str, Json], target: str, body: bytes
    ) -> dict[str, str]:
        if self.entry.auth != "google" or self.http.authorized:
            return {}
        token = await self._tokens.get()
        self.http.hide(token)
        return {"authorization": f"Bearer {token}"}
