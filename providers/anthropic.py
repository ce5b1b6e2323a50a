"""The wire of Anthropic's Messages API, and what is known of Claude models, which Bedrock's wire carries as well."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple

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
)
from glue.provider import ProviderEvent
from glue.providers import encoding, wire
from glue.providers.catalog import Row
from glue.providers.wire import Block

WIRE = "anthropic"

_STREAMED = {  # deltas that are shown: of which kind of block, and where their text is
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "input_json_delta": ("call", "partial_json"),
}


class AnthropicDecoder(wire.Decoder):
    """Reads a stream of events, or a whole message."""

    wire = WIRE
    noun = "message"
    end_mark = "message_stop"
    stops: ClassVar = {
        StopReason.END_TURN: "end_turn stop_sequence",
        StopReason.TOOL_USE: "tool_use",
        StopReason.MAX_TOKENS: "max_tokens",
        StopReason.CONTEXT_WINDOW: "model_context_window_exceeded",
        StopReason.REFUSAL: "refusal",
        StopReason.PAUSE_TURN: "pause_turn compaction",
    }
    tokens: ClassVar = {
        "input": ("input_tokens",),
        "output": ("output_tokens",),
        "cache_read": ("cache_read_input_tokens",),
        "cache_write": ("cache_creation_input_tokens",),
        "reasoning": ("output_tokens_details.thinking_tokens",),
    }
    apart: ClassVar = {"input": ("cache_read", "cache_write")}
    uncounted = 0

    def _event(self, data: bytes, events: list[ProviderEvent]) -> None:
        event = encoding.loads(data)
        self.seen = True
        kind = "error" if event.get("error") else event.get("type")
        if kind == "content_block_delta":
            self._delta(event["index"], event["delta"], events)
        elif kind == "content_block_start":
            self._start(event["index"], event["content_block"], events)
        elif kind == "content_block_stop":
            if event["index"] in self.blocks:
                self.blocks[event["index"]].closed = True
        elif kind == "message_start":
            self._begin(event["message"])
        elif kind == "message_delta":
            self._learn(event["delta"], event.get("usage"))
        elif kind == "message_stop":
            self.closed = self.ended = True
        elif kind == "error":
            raise self.error(event)

    def _begin(self, message: dict[str, Json]) -> None:
        # Some proxies repeat message_start: the message begins anew.
        self.blocks.clear()
        self.counts.clear()
        self.facts.clear()
        self._learn(message, message.get("usage"))

    def _learn(self, fields: dict[str, Json], usage: Json) -> None:
        for key in ("id", "model", "stop_sequence", "stop_details"):
            if fields.get(key) is not None:
                self.facts[key] = fields[key]
        self.raw_stop = encoding.text_of(fields.get("stop_reason")) or self.raw_stop
        # Cumulative, and corrected as it goes: the later value of a key replaces the earlier.
        self.counts |= {key: value for key, value in encoding.object_of(usage).items() if value is not None}

    def _start(self, at: int, fields: dict[str, Json], events: list[ProviderEvent]) -> None:
        kind = encoding.text_of(fields.get("type"))
        if kind == "tool_use":
            block = self._open_call(fields.get("id"), fields.get("name"), fields.get("input") or None, events)
            caller = encoding.object_of(fields.get("caller"))
            block.fields = {"caller": caller} if caller.get("type", "direct") != "direct" else {}
        elif kind in ("text", "thinking"):
            block = Block(kind, {name: fields[name] for name in ("citations", "signature") if fields.get(name)})
            self._say(block, encoding.text_of(fields.get(kind)), events)
        else:
            block = Block(kind, dict(fields))
        self.blocks[int(at)] = block

    def _delta(self, at: int, delta: dict[str, Json], events: list[ProviderEvent]) -> None:
        kind = delta["type"]
        block = self.blocks.get(at)
        if block is None:
            block = self.blocks[int(at)] = Block("thinking" if kind == "thinking_delta" else "text")
        shown, place = _STREAMED.get(kind, ("", "type"))
        text = encoding.text_of(delta[place])
        if shown == block.kind or (shown == "call" and block.kind not in ("text", "thinking")):
            self._say(block, text, events)
        elif kind == "citations_delta":
            block.fields.setdefault("citations", []).append(delta["citation"])
        else:  # signature_delta, compaction_delta and whatever comes next
            wanted = {"signature"} if block.kind in wire.SHOWN else delta.keys() - {"type"}
            for key, value in delta.items():
                if key in wanted and isinstance(value, str):
                    block.add(key, value)

    def _whole(self, reply: Json) -> None:
        if reply.get("error") or reply.get("type") == "error":
            raise self.error(reply)
        self._begin(reply)
        for at, fields in enumerate(reply["content"]):
            self._start(at, fields, self.late)
            self.blocks[at].closed = True


# Requests -----------------------------------------------------------------------------------------

VERSION = "2023-06-01"

_FILLER = b'{"type":"text","text":"(continued)"}'  # a conversation must begin with a user, and not with a blank
_CHOICES: dict[str, Json] = {"auto": None, "none": {"type": "none"}, "required": {"type": "any"}}


def encode(request: Request, row: Row, model: str) -> bytes:
    """Write a request; messages and tools that were written before are joined as they are."""
    known = facts(model)
    messages = encoding.unique_calls(request.messages)
    key = encoding.memo_key(WIRE, row, model)
    thoughts = thinking(request, messages, row, model, WIRE) if row.quirks.reasoning else {}
    thinks = encoding.object_of(thoughts.get("thinking")).get("type", "disabled") != "disabled"
    system: Json = encoding.quote(request.system) if request.system.strip() else None
    if system and request.cache:
        system = [_marked(b'{"type":"text","text":' + system + b"}")]
    config = encoding.object_of(thoughts.get("output_config"))
    if request.output_schema is not None and takes_output(request.output_schema, row, model):
        config = {**config, "format": {"type": "json_schema", "schema": output_schema(request.output_schema)}}
    fields = {
        "model": model,
        "max_tokens": request.max_tokens or known.max_output,
        "thinking": thoughts.get("thinking"),
        "output_config": config or None,
        "system": system,
        **_tools(request, messages),
        "messages": conversation(
            messages, key, lambda message: _blocks(message, row, model), _FILLER, _marked if request.cache else None
        ),
        "temperature": request.temperature if known.sampling and not thinks else None,
        "stop_sequences": [text for text in request.stop if text.strip()] or None,
        "stream": request.stream or None,
    }
    options = {name: value for name, value in (request.options or {}).items() if name != "betas"}
    return encoding.assemble(fields, options)


def takes_output(schema: Json, row: Row, model: str, *, tools: bool = False) -> bool:
    """Say whether an answer can be held to a schema; else a final tool has to do."""
    return facts(model).output and output_schema(schema) is not None


def _tools(request: Request, messages: Sequence[Message]) -> dict[str, Json]:
    tools = encoding.encode_tools(request.tools, WIRE, _tool)
    choice = _CHOICES.get(request.tool_choice, {"type": "tool", "name": request.tool_choice})
    if not tools:  # calls in the history are refused unless tools are named
        tools, choice = encoding.encode_tools(encoding.used_tools(messages), WIRE, _tool), {"type": "none"}
    elif request.cache:
        tools[-1] = _marked(tools[-1])
    return {"tools": tools, "tool_choice": choice} if tools else {}


def _tool(tool: ToolSpec) -> Json:
    return {"name": tool.name, **encoding.description(tool), "input_schema": tool.parameters}


def _marked(blocks: bytes) -> bytes:
    """Set the cache mark on the last of some blocks."""
    return blocks[:-1] + b',"cache_control":{"type":"ephemeral"}}'


def _blocks(message: Message, row: Row, model: str) -> Iterable[dict[str, Json]]:
    if message.excluded:
        return ()
    if isinstance(message, AssistantMessage):
        return replay(message, row, model, WIRE, _reply_part)
    blocks = _parts(encoding.taken(message.content, row.quirks))
    return (_result(message, blocks),) if isinstance(message, ToolMessage) else blocks


def _reply_part(part: Part, kept: dict[str, Json]) -> Iterable[dict[str, Json]]:
    if isinstance(part, ToolCall):
        call: dict[str, Json] = {"type": "tool_use", "id": encoding.safe_id(part.id)}
        return ({**call, "name": encoding.call_name(part.name), "input": encoding.arguments(part), **kept},)
    if isinstance(part, Thinking):
        return ({"type": "thinking", "thinking": part.text, **kept},)
    if isinstance(part, Opaque):
        return (kept,) if kept.get("type") else ()
    return ({**block, **kept} for block in _parts((part,)))


def _result(message: ToolMessage, blocks: Iterable[dict[str, Json]]) -> dict[str, Json]:
    result: dict[str, Json] = {"type": "tool_result", "tool_use_id": encoding.safe_id(message.call_id)}
    if message.is_error:
        result["is_error"] = True
    if not all(isinstance(part, Text) for part in message.content):
        return {**result, "content": list(blocks)}
    text = message.text or ("error" if message.is_error else "")  # an error must say something
    return {**result, "content": text} if text else result


def _parts(content: Iterable[Part]) -> Iterator[dict[str, Json]]:
    for part in content:
        if isinstance(part, Text) and part.text.strip():
            yield {"type": "text", "text": part.text}
        elif isinstance(part, Image):
            source: dict[str, Json] = {"type": "url", "url": part.url}
            if not encoding.is_remote(part):
                kind, data = encoding.inline(part)
                source = {"type": "base64", "media_type": kind, "data": data}
            yield {"type": "image", "source": source}
        elif isinstance(part, File):
            title = {"title": part.name} if part.name else {}
            yield {"type": "document", "source": _document(part), **title}


def _document(part: File) -> dict[str, Json]:
    if part.media_type == "application/pdf":
        return {"type": "base64", "media_type": part.media_type, "data": encoding.base64_text(part.data)}
    try:
        text = part.data.decode("utf-8", "replace" if encoding.is_text(part) else "strict")
        return {"type": "text", "media_type": "text/plain", "data": text}
    except UnicodeDecodeError:
        text = f"cannot send a file of type {part.media_type}; PDF and text are understood"
        raise ProviderError(text, kind="invalid_request", provider=WIRE) from None


class Anthropic(wire.Wire):
    """Asks one server for messages."""

    tool_rules = wire.ToolRules(at_root=wire.UNIONS, parameter_name=r"[a-zA-Z0-9_.-]{1,64}")
    path = "/messages"
    decoder = AnthropicDecoder
    encode = staticmethod(encode)
    takes_output = staticmethod(takes_output)
    models_path = "/models?limit=1000"

    @staticmethod
    def efforts(row: Row, model: str) -> tuple[str, ...]:
        return facts(model).efforts if row.quirks.reasoning else ()

    async def headers(self, request: Request, target: str, body: bytes) -> dict[str, str]:
        """Name the version, and the beta features that `options["betas"]` asks for as Anthropic's own clients do."""
        betas = (request.options or {}).get("betas")
        return {"anthropic-version": VERSION, **({"anthropic-beta": ",".join(betas)} if betas else {})}


# Claude, on this wire and on Bedrock's ------------------------------------------------------------

_MOST_MARKS = 2  # of the four that are allowed; tools and system have one each


def conversation(
    messages: Sequence[Message],
    key: str,
    blocks: Callable[[Message], Iterable[dict[str, Json]]],
    filler: bytes,
    mark: Callable[[bytes], bytes] | None,
) -> bytes:
    """Encode the turns of a conversation, each message once; two of them are marked as worth caching."""
    pieces = encoding.encode_turns(
        messages, key, lambda message: (b",".join(map(encoding.dumps, blocks(message))), b""), []
    )
    if mark is not None:
        # The last message, to be found by the next request, and the last of the request before, which is cached.
        wanted, marks = True, 0
        for index in range(len(pieces) - 1, -1, -1):
            role, piece = pieces[index]
            if role == "assistant":
                wanted = True
            elif wanted and piece:
                pieces[index] = (role, mark(piece))
                wanted, marks = False, marks + 1
            if marks == _MOST_MARKS:
                break
    return encoding.join_turns(pieces, filler)


def replay(
    message: AssistantMessage,
    row: Row,
    model: str,
    wire: str,
    encode_part: Callable[[Part, dict[str, Json]], Iterable[dict[str, Json]]],
) -> list[dict[str, Json]]:
    """Encode what of a reply may go back: no half calls, and thinking only where it is signed for this model."""
    own, signed = message.provider == row.name, is_signed(message, row, model)
    blocks: list[dict[str, Json]] = []
    for part in message.content:
        kept = encoding.kept_of(part, wire) if own else {}
        is_half = isinstance(part, ToolCall) and not part.complete
        if not is_half and (kept or not isinstance(part, (Thinking, Opaque))):
            blocks += (block for block in encode_part(part, kept) if signed or not _is_hidden(block))
    while blocks and _is_hidden(blocks[-1]):  # a message must not end in thinking
        blocks.pop()
    return blocks


def _is_hidden(block: dict[str, Json]) -> bool:
    return block.get("type") in ("thinking", "redacted_thinking") or "reasoningContent" in block


BUDGETS: dict[str, int] = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16_000, "xhigh": 24_000, "max": 32_000}

_LEVELS = ("none", "low", "medium", "high")


class Claude(NamedTuple):
    max_output: int  # a cap that the model accepts, for requests that name none
    thinking: Literal["", "budget", "adaptive"]
    sampling: bool  # whether it takes a temperature
    output: bool  # whether it takes a schema for its answer
    levels: tuple[str, ...] = ()  # of adaptive thinking; with a budget all levels are told apart

    @property
    def efforts(self) -> tuple[str, ...]:
        return ("none", *BUDGETS) if self.thinking == "budget" else self.levels


# By version, newest first; a model has the facts of the first row that is not newer than itself.
_FACTS = (
    ((4, 7), Claude(32_000, "adaptive", False, True, (*_LEVELS, "xhigh", "max"))),
    ((4, 6), Claude(32_000, "adaptive", True, True, (*_LEVELS, "max"))),
    ((4, 5), Claude(32_000, "budget", True, True)),
    ((3, 7), Claude(32_000, "budget", True, False)),
    ((3, 5), Claude(8_192, "", True, False)),
    ((0, 0), Claude(4_096, "", True, False)),
)
# Other vendors serve their own models on Anthropic's wire.
_OTHER = Claude(8_192, "budget", True, False)

_NAME = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
_SUFFIX = re.compile(r"(?:-latest|[-@]20\d{6}|-v\d+(?::\d+)?|-0)+$")


def facts(model: str) -> Claude:
    """Return what is known of a model by its name."""
    if "claude" not in model:
        return _OTHER
    found = _NAME.search(model)
    if found is None:
        return _FACTS[0][1]  # a name without a version is a newer one
    version = (int(found[1]), int(found[2] or 0))
    return next(known for since, known in _FACTS if version >= since)


def family(model: str) -> str:
    """Strip a name of region, vendor, date and revision: what is left must agree for a signature to be valid."""
    start = model.find("claude")
    return _SUFFIX.sub("", model[max(start, 0) :])


def is_signed(message: AssistantMessage, row: Row, model: str) -> bool:
    """Say whether the signatures in a reply are valid for a model."""
    return message.provider == row.name and family(message.model) == family(model)


def thinking(request: Request, messages: Sequence[Message], row: Row, model: str, wire: str) -> dict[str, Json]:
    """Return the fields that ask for thinking; empty where nothing is to be said."""
    known, effort = facts(model), request.reasoning
    # A forced tool and thinking exclude each other; the tool is what the caller relies on.
    forced = request.tools and request.tool_choice not in ("auto", "none")
    if effort is None or not known.thinking or forced:
        return {}
    if known.thinking == "adaptive":
        if effort == "none":
            return {"thinking": {"type": "disabled"}}
        level = encoding.lower(effort, known.levels)
        # Without `display` the newer models send signatures and no text.
        return {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": level}}
    most = (request.max_tokens or known.max_output) // 2  # the answer needs room below the same cap
    budget = min(BUDGETS.get(effort, 0), most)
    if budget < BUDGETS["minimal"] or _is_unsigned(messages, row, model, wire):
        return {}
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _is_unsigned(messages: Sequence[Message], row: Row, model: str, wire: str) -> bool:
    """Say whether the tool round under way began without thinking, which forbids Claude to think now."""
    for message in reversed(messages):
        if isinstance(message, AssistantMessage):
            kept = [encoding.kept_of(part, wire) for part in message.content] if is_signed(message, row, model) else []
            return bool(message.calls) and not any("signature" in each or _is_hidden(each) for each in kept)
        if not isinstance(message, ToolMessage):
            return False
    return False


# What its grammar compiler refuses; we check these after the reply anyway.
_DROPPED = frozenset(
    (
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength"),
        *("pattern", "maxItems", "uniqueItems", "minProperties", "maxProperties"),
        *("default", "examples", "title", "$schema"),
    )
)


def output_schema(schema: Json) -> Json | None:
    """Return a schema in the dialect of structured output, or None where it cannot be said in it."""
    try:
        return encoding.rewritten(schema, _DROPPED, _closed)
    except ValueError:
        return None


def _closed(schema: Mapping[str, Json], result: Json) -> Json:
    if schema.get("type") == "object" or "properties" in schema:
        # An object of free keys has no closed form.
        if schema.get("additionalProperties") not in (None, False) or not schema.get("properties"):
            raise ValueError("open object")
        result["additionalProperties"] = False
    if result.get("minItems", 0) not in (0, 1):
        del result["minItems"]
    return result
