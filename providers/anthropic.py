"""Encode and decode Anthropic's Messages API. Bedrock's encoder inherits from ClaudeEncoder."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from glue import AssistantMessage, File, StopReason, Text, ToolCall, ToolMessage
from glue.errors import ProviderError
from glue.messages import Json, ToolSpec
from glue.provider import ProviderEvent, Thinking
from glue.providers import encoding, wire
from glue.providers.encoding import Said
from glue.providers.wire import Block

WIRE = "anthropic"

# The deltas to show: for each type, the kind of block and the field that contains the text.
_STREAMED = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "input_json_delta": ("call", "partial_json"),
}


class AnthropicDecoder(wire.Decoder):
    """A decoder of Anthropic's replies: a stream of events, or a complete message."""

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

    def _event(self, event: Json, events: list[ProviderEvent]) -> None:
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
            self._note(event["delta"], event.get("usage"))
        elif kind == "message_stop":
            self.closed = self.ended = True
        elif kind == "error":
            raise self.error(event)

    def _begin(self, message: dict[str, Json]) -> None:
        # Some proxies repeat message_start: the message starts again.
        self.blocks.clear()
        self.counts.clear()
        self.facts.clear()
        self._note(message, message.get("usage"))

    def _note(self, fields: dict[str, Json], usage: Json) -> None:
        self._learn(fields, "id", "model", "stop_sequence", "stop_details")
        self.raw_stop = encoding.text_of(fields.get("stop_reason")) or self.raw_stop
        # Counts are cumulative and may be corrected: a later value replaces an earlier one.
        self.counts |= {
            key: value for key, value in encoding.object_of(usage).items() if value is not None
        }

    def _start(self, at: int, fields: dict[str, Json], events: list[ProviderEvent]) -> None:
        kind = encoding.text_of(fields.get("type"))
        if kind == "tool_use":
            block = self._open_call(
                fields.get("id"), fields.get("name"), fields.get("input") or None, events
            )
            caller = encoding.object_of(fields.get("caller"))
            block.fields = {"caller": caller} if caller.get("type", "direct") != "direct" else {}
        elif kind in ("text", "thinking"):
            block = Block(
                kind,
                {name: fields[name] for name in ("citations", "signature") if fields.get(name)},
            )
            self._say(block, encoding.text_of(fields.get(kind)), events)
        else:
            block = Block(kind, dict(fields))
            if kind == "web_search_tool_result":  # an error is an object, not a list
                self._cite(encoding.list_of(fields.get("content")))
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
        else:  # signature_delta, compaction_delta, and types that do not exist yet
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


# Claude, on this wire and on Bedrock's

BUDGETS: dict[str, int] = {
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 16_000,
    "xhigh": 24_000,
    "max": 32_000,
}

_SUFFIX = re.compile(r"(?:-latest|[-@]20\d{6}|-v\d+(?::\d+)?|-0)+$")


def family(model: str) -> str:
    """Return the name of a Claude model without region, vendor, date and revision.

    Signed thinking is valid for another model only if this function returns the same name for both.
    """
    start = model.find("claude")
    return _SUFFIX.sub("", model[max(start, 0) :])


# Keywords that Claude's structured output refuses. The loop checks them after the reply.
_DROPPED = frozenset(
    (
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minLength", "maxLength", "pattern"),
        *("maxItems", "uniqueItems", "minProperties", "maxProperties"),
        *("default", "examples", "title", "$schema"),
    )
)


def output_schema(schema: Json) -> Json | None:
    """Return a schema rewritten for Claude's structured output, or None if that is impossible."""
    try:
        return encoding.rewritten(schema, _DROPPED, _closed)
    except ValueError:
        return None


def _closed(schema: Mapping[str, Json], result: Json) -> Json:
    if schema.get("type") == "object" or "properties" in schema:
        # Claude accepts only objects whose keys are all known.
        if schema.get("additionalProperties") not in (None, False) or not schema.get("properties"):
            raise ValueError("open object")
        result["additionalProperties"] = False
    if result.get("minItems", 0) not in (0, 1):
        del result["minItems"]
    return result


_MOST_MARKS = 2  # cache marks in messages; four are allowed, and tools and system use one each


class ClaudeEncoder(wire.TurnEncoder):
    """The base of Claude encoders. It adds cache marks and omits thinking that Claude refuses."""

    @abstractmethod
    def mark(self, blocks: bytes) -> bytes:
        """Return encoded blocks of a message with a cache mark on the last block."""

    def takes_output(self, schema: Json, *, tools: bool = False) -> bool:
        return self.facts.output and output_schema(schema) is not None

    def marked_turns(self) -> list[tuple[str, bytes]]:
        """Return encoded turns with a cache mark at the end of this and of the previous request.

        The mark of the previous request lets the server find the beginning that it has cached.
        """
        turns = self.turns(self.messages)
        wanted, marks = True, 0
        for index in range(len(turns) - 1, -1, -1):
            role, blocks = turns[index]
            if role == "assistant":
                wanted = True
            elif wanted and blocks:
                turns[index] = (role, self.mark(blocks))
                wanted, marks = False, marks + 1
            if marks == _MOST_MARKS:
                break
        return turns

    def reply(self, message: AssistantMessage) -> list[dict[str, Json]]:
        """Return the encoded parts of a reply, without thinking that the server would refuse.

        The server refuses thinking that another model signed, and thinking at the end of a reply.
        """
        signed = self.is_signed(message)
        blocks = [block for block in super().reply(message) if signed or not _is_hidden(block)]
        while blocks and _is_hidden(blocks[-1]):  # a message must not end in thinking
            blocks.pop()
        return blocks

    def is_signed(self, message: AssistantMessage) -> bool:
        """Return whether the signatures in a reply are valid for this model."""
        return message.provider == self.entry.name and family(message.model) == family(self.model)

    def thinking(self) -> dict[str, Json]:
        """Return the fields that switch thinking on or off. If thinking is reduced, add to `notes`.

        {} leaves thinking to the default of the model.
        """
        request, known, effort = self.request, self.facts, self.request.reasoning
        # A forced tool and thinking exclude each other; the caller relies on the tool.
        if effort is None or self.is_forced():
            return {}
        if not known.thinking:
            self.level()  # notes that the level is left out
            return {}
        if known.thinking == "adaptive":
            if effort == "none":
                return {"thinking": {"type": "disabled"}}
            level = self.level()
            # Without `display` the newer models send signatures and no text.
            return {
                "thinking": {"type": "adaptive", "display": "summarized"},
                "output_config": {"effort": level},
            }
        # Thinking and answer share one cap, so at most half of the cap is used for thinking.
        cap = request.max_tokens or known.max_output
        wanted = BUDGETS.get(effort, 0)
        budget = min(wanted, cap // 2)
        if not wanted:
            return {}
        if budget < BUDGETS["minimal"]:
            self.notes.append(f"max_tokens={cap} leaves no room for thinking, which was left out")
            return {}
        if self._is_unsigned():
            self.notes.append("this round of tool calls began without thinking; thinking stays off")
            return {}
        if budget < wanted:
            self.notes.append(f"max_tokens={cap} limits thinking to {budget} tokens")
        return {"thinking": {"type": "enabled", "budget_tokens": budget}}

    def _is_unsigned(self) -> bool:
        """Return whether the current round of tool calls began without thinking.

        Claude refuses to start thinking within such a round.
        """
        for message in reversed(self.messages):
            if isinstance(message, AssistantMessage):
                parts = message.content if self.is_signed(message) else ()
                kept = [encoding.kept_of(part, self.wire) for part in parts]
                return bool(message.calls) and not any(
                    "signature" in each or _is_hidden(each) for each in kept
                )
            if not isinstance(message, ToolMessage):
                return False
        return False


def _is_hidden(block: dict[str, Json]) -> bool:
    return block.get("type") in ("thinking", "redacted_thinking") or "reasoningContent" in block


# Requests

VERSION = "2023-06-01"

_CHOICES: dict[str, Json] = {"auto": None, "none": {"type": "none"}, "required": {"type": "any"}}


class AnthropicEncoder(ClaudeEncoder):
    """An encoder for Anthropic's Messages API."""

    wire = WIRE
    searches = ("anthropic",)
    filler = b'{"type":"text","text":"(continued)"}'  # Anthropic refuses a blank text

    def body(self) -> bytes:
        request, known = self.request, self.facts
        thoughts = self.thinking() if self.quirks.reasoning else {}
        thinks = encoding.object_of(thoughts.get("thinking")).get("type", "disabled") != "disabled"
        system: Json = encoding.quote(request.system) if request.system.strip() else None
        if system and request.cache:
            system = [self.mark(b'{"type":"text","text":' + system + b"}")]
        config = encoding.object_of(thoughts.get("output_config"))
        if request.output_schema is not None and self.takes_output(request.output_schema):
            config = {
                **config,
                "format": {"type": "json_schema", "schema": output_schema(request.output_schema)},
            }
        fields = {
            "model": self.model,
            "max_tokens": request.max_tokens or known.max_output,
            "thinking": thoughts.get("thinking"),
            "output_config": config or None,
            "system": system,
            **self._tools(),
            "messages": self.conversation(
                self.marked_turns() if request.cache else self.turns(self.messages)
            ),
            "temperature": self.temperature(thinks=thinks),
            "stop_sequences": [text for text in request.stop if text.strip()] or None,
            "stream": request.stream or None,
        }
        options = {
            name: value for name, value in (request.options or {}).items() if name != "betas"
        }
        return encoding.assemble(fields, options)

    def mark(self, blocks: bytes) -> bytes:
        return blocks[:-1] + b',"cache_control":{"type":"ephemeral"}}'

    def _tools(self) -> dict[str, Json]:
        request, tools = self.request, self.tools(self.request.tools)
        choice = _CHOICES.get(request.tool_choice, {"type": "tool", "name": request.tool_choice})
        if search := self.search_fields():
            tools.append(encoding.dumps(search))
        if not tools:  # Anthropic refuses calls in the history if the request has no tools
            tools, choice = self.tools(encoding.used_tools(self.messages)), {"type": "none"}
        elif request.cache:
            tools[-1] = self.mark(tools[-1])
        return {"tools": tools, "tool_choice": choice} if tools else {}

    def tool(self, tool: ToolSpec) -> Json:
        return {"name": tool.name, **encoding.description(tool), "input_schema": tool.parameters}

    def block(self, part: Said | Thinking | ToolCall, kept: dict[str, Json]) -> dict[str, Json]:
        if isinstance(part, Text):
            return {"type": "text", "text": part.text, **kept} if part.text.strip() else {}
        if isinstance(part, Thinking):
            return {"type": "thinking", "thinking": part.text, **kept} if kept else {}
        if isinstance(part, ToolCall):
            name, arguments = encoding.call_name(part.name), encoding.arguments(part)
            return {
                "type": "tool_use",
                "id": encoding.safe_id(part.id),
                "name": name,
                "input": arguments,
                **kept,
            }
        if isinstance(part, File):
            return {
                "type": "document",
                "source": _document(part),
                **({"title": part.name} if part.name else {}),
            }
        if encoding.is_remote(part):
            return {"type": "image", "source": {"type": "url", "url": part.url}}
        kind, data = encoding.inline(part)
        return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}

    def result(self, message: ToolMessage, content: Sequence[Said]) -> Json:
        result: dict[str, Json] = {
            "type": "tool_result",
            "tool_use_id": encoding.safe_id(message.call_id),
        }
        if message.is_error:
            result["is_error"] = True
        if not all(isinstance(part, Text) for part in message.content):
            return {**result, "content": self.blocks(message, content)}
        # Anthropic refuses an error without text.
        text = message.text or ("error" if message.is_error else "")
        return {**result, "content": text} if text else result


def _document(part: File) -> dict[str, Json]:
    if part.media_type == "application/pdf":
        return {
            "type": "base64",
            "media_type": part.media_type,
            "data": encoding.base64_text(part.data),
        }
    try:
        text = part.data.decode("utf-8", "replace" if encoding.is_text(part) else "strict")
        return {"type": "text", "media_type": "text/plain", "data": text}
    except UnicodeDecodeError:
        text = f"cannot send a file of type {part.media_type}; only PDF and text can be sent"
        raise ProviderError(text, kind="invalid_request", provider=WIRE) from None


class Anthropic(wire.Wire):
    """A provider on Anthropic's messages API."""

    tool_rules = wire.ToolRules(at_root=wire.UNIONS, parameter_name=r"[a-zA-Z0-9_.-]{1,64}")
    path = "/messages"
    encoder = AnthropicEncoder
    decoder = AnthropicDecoder
    models_path = "/models?limit=1000"

    async def headers(
        self, options: Mapping[str, Json], target: str, body: bytes
    ) -> dict[str, str]:
        """Return the headers for the API version and the beta features in `options["betas"]`."""
        betas = options.get("betas")
        return {
            "anthropic-version": VERSION,
            **({"anthropic-beta": ",".join(betas)} if betas else {}),
        }
