"""Encode and decode Amazon Bedrock's APIs Converse and ConverseStream."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar
from urllib.parse import quote

from glue import AssistantMessage, File, StopReason, Text, ToolCall, ToolMessage, UserMessage
from glue.errors import ConfigError, ProviderError
from glue.messages import Json, ToolSpec
from glue.provider import ProviderEvent, Thinking
from glue.providers import anthropic, aws, encoding, wire
from glue.providers.catalog import Entry
from glue.providers.encoding import Said
from glue.providers.eventstream import EventStream, Frame
from glue.providers.sigv4 import sign
from glue.providers.wire import Block
from glue.tasks import finish_in_thread

WIRE = "bedrock"

_FACTS = ("additionalModelResponseFields", "trace")  # fields of a reply that are kept in its meta


class BedrockDecoder(wire.Decoder):
    """A decoder of Bedrock's replies: the frames of a stream, or a complete reply."""

    wire = WIRE
    noun = "reply"
    end_mark = "messageStop"
    stops: ClassVar = {
        StopReason.END_TURN: "end_turn stop_sequence",
        StopReason.TOOL_USE: "tool_use",
        StopReason.MAX_TOKENS: "max_tokens",
        StopReason.CONTEXT_WINDOW: "model_context_window_exceeded",
        StopReason.REFUSAL: "guardrail_intervened content_filtered",
        StopReason.MALFORMED_CALL: "malformed_tool_use",
        StopReason.ERROR: "malformed_model_output",
    }
    parse = EventStream
    tokens: ClassVar = {
        "input": ("inputTokens",),
        "output": ("outputTokens",),
        "cache_read": ("cacheReadInputTokens", "cacheReadInputTokenCount"),
        "cache_write": ("cacheWriteInputTokens", "cacheWriteInputTokenCount"),
    }
    apart: ClassVar = {"input": ("cache_read", "cache_write")}
    uncounted = 0

    def _take(self, frame: Frame, events: list[ProviderEvent]) -> None:
        headers = frame.headers
        kind = headers.get(":event-type", "")
        self.seen = True
        if headers.get(":message-type") == "error":
            text = headers.get(":error-message", "the server sent an error without a message")
            raise self.error({"type": headers.get(":error-code", ""), "message": text})
        event = encoding.loads(frame.payload) if frame.payload else {}
        exception = headers.get(":exception-type") or (kind if kind.endswith("Exception") else "")
        if exception or headers.get(":message-type") == "exception":
            raise self.error({**event, "type": exception})
        if kind == "contentBlockDelta":
            self._delta(event["contentBlockIndex"], event["delta"], events)
        elif kind == "contentBlockStart":
            self._start(event["contentBlockIndex"], event["start"], events)
        elif kind == "contentBlockStop":
            if event["contentBlockIndex"] in self.blocks:
                self.blocks[event["contentBlockIndex"]].closed = True
        elif kind == "messageStop":
            self.raw_stop = encoding.text_of(event["stopReason"])
            self.closed = True
            self._learn(event, *_FACTS)
        elif kind == "metadata":
            self.counts = encoding.object_of(event.get("usage")) or self.counts
            self._learn(event, *_FACTS)

    def _start(self, at: int, start: dict[str, Json], events: list[ProviderEvent]) -> None:
        kind, fields = next(
            ((key, value) for key, value in start.items() if isinstance(value, dict)), ("", {})
        )
        block = Block(kind, dict(fields))
        if kind == "toolUse" and fields.get("type") != "server_tool_use":
            block = self._open_call(
                fields.get("toolUseId"), fields.get("name"), fields.get("input"), events
            )
        elif kind == "citationsContent":
            block = Block("text", {kind: fields})
            for piece in encoding.list_of(fields.get("content")):
                self._say(block, encoding.text_of(piece.get("text")), events)
        self.blocks[int(at)] = block

    def _delta(self, at: int, delta: dict[str, Json], events: list[ProviderEvent]) -> None:
        block = self.blocks.get(at)
        if block is None:  # Bedrock sends a start event only for calls
            block = self.blocks[int(at)] = Block(
                "thinking" if delta.get("reasoningContent") else "text"
            )
        if delta.get("text"):
            self._say(block, encoding.text_of(delta["text"]), events)
        elif delta.get("toolUse"):
            self._say(block, encoding.text_of(delta["toolUse"].get("input")), events)
        elif thought := delta.get("reasoningContent"):
            self._say(block, encoding.text_of(thought.get("text")), events)
            if signature := encoding.text_of(thought.get("signature")):
                block.add("signature", signature)
            if redacted := encoding.text_of(thought.get("redactedContent")):
                block.kind, block.closed = "redacted", True
                block.add("redactedContent", redacted)
        elif delta.get("citation"):
            block.fields.setdefault("citations", []).append(delta["citation"])
        elif delta.get("toolResult"):
            block.fields["content"] = [
                *encoding.list_of(block.fields.get("content")),
                *delta["toolResult"],
            ]

    def _sealed(self, block: Block) -> Json:
        pieces = block.pieces.get("redactedContent")
        if not pieces:
            sealed = super()._sealed(block)
            return None if sealed is None else {block.kind: sealed}
        data = pieces[0]  # unchanged
        if len(pieces) > 1:
            data = encoding.base64_text(b"".join(base64.b64decode(piece) for piece in pieces))
        return {"reasoningContent": {"redactedContent": data}}

    def _whole(self, reply: Json) -> None:
        if "output" not in reply and reply.keys() & {"message", "Message", "error"}:
            raise self.error(reply)
        for at, block in enumerate(reply["output"]["message"]["content"]):
            if block.get("text"):
                self._delta(at, block, self.late)
            elif thought := block.get("reasoningContent"):
                thought = encoding.object_of(thought.get("reasoningText")) or thought
                self._delta(at, {"reasoningContent": thought}, self.late)
            else:
                self._start(at, block, self.late)
            self.blocks[at].closed = True
        self.raw_stop = encoding.text_of(reply["stopReason"])
        self.counts = encoding.object_of(reply.get("usage"))
        self._learn(reply, *_FACTS)


# Requests

_FORMATS = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "text/html": "html",
    "text/plain": "txt",
    "text/markdown": "md",
}


class BedrockEncoder(anthropic.ClaudeEncoder):
    """An encoder for Bedrock's Converse API, for Claude and for models of other vendors."""

    wire = WIRE
    filler = b'{"text":"(continued)"}'  # Bedrock refuses a blank text

    @property
    def is_claude(self) -> bool:
        return "claude" in self.model

    def body(self) -> bytes:
        request, known = self.request, self.facts
        cache = request.cache and (self.is_claude or "nova" in self.model)
        more = self.thinking() if self.is_claude else self._effort()
        thinks = encoding.object_of(more.get("thinking")).get("type")
        settings = {
            "maxTokens": request.max_tokens or (known.max_output if thinks == "enabled" else None),
            "temperature": self.temperature(thinks=thinks in ("enabled", "adaptive")),
            "stopSequences": [text for text in request.stop if text.strip()] or None,
        }
        system = b'{"text":' + encoding.quote(request.system) + b"}"
        if cache:
            system = self.mark(system)
        fields = {
            "messages": self.conversation(
                self.marked_turns() if cache else self.turns(self.messages)
            ),
            "system": [system] if request.system.strip() else None,
            "inferenceConfig": {
                name: value for name, value in settings.items() if value is not None
            }
            or None,
            "toolConfig": self._tools(cache and self.is_claude) or None,
            "additionalModelRequestFields": more or None,
            "outputConfig": self._output(request.output_schema),
        }
        return encoding.assemble(fields, request.options)

    def _output(self, schema: Json) -> Json:
        if schema is None or not self.takes_output(schema):
            return None
        text = encoding.dumps(anthropic.output_schema(schema)).decode()
        wanted = {"name": encoding.schema_name(schema), "schema": text}
        return {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": wanted}}}

    def _effort(self) -> dict[str, Json]:
        """Return the fields that set the reasoning level of a model other than Claude, or {}.

        {} means that no level is sent.
        """
        level = self.level()
        if level is None:
            return {}
        if "nova-2" in self.model:
            return {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": level}}
        return {"reasoning_config" if "qwen" in self.model else "reasoning_effort": level}

    def mark(self, blocks: bytes) -> bytes:
        return blocks + b',{"cachePoint":{"type":"default"}}'

    def _tools(self, cache: bool) -> bytes:
        tools, choice = self.request.tools, self.request.tool_choice
        if not tools or choice == "none":
            # Bedrock refuses calls in the history without tools, and does not know "none".
            used = encoding.used_tools(self.messages)
            tools = tools or used
            if not used:
                return b""
        array = b",".join(self.tools(tools))
        config = b'{"tools":[' + (self.mark(array) if cache else array) + b"]"
        if self.request.tools and choice not in ("auto", "none"):
            wanted: Json = {"any": {}} if choice == "required" else {"tool": {"name": choice}}
            config += b',"toolChoice":' + encoding.dumps(wanted)
        return config + b"}"

    def tool(self, tool: ToolSpec) -> Json:
        schema = {"inputSchema": {"json": tool.parameters}}
        return {"toolSpec": {"name": tool.name, **encoding.description(tool), **schema}}

    def user(self, message: UserMessage, content: Sequence[Said]) -> list[dict[str, Json]]:
        blocks = self.blocks(message, content)
        documents = [block["document"]["name"] for block in blocks if "document" in block]
        if documents and not any("text" in block for block in blocks):
            blocks.append({"text": documents[0]})  # Bedrock refuses a document without a text
        return blocks

    def blocks(
        self, message: UserMessage | ToolMessage, content: Iterable[Said]
    ) -> list[dict[str, Json]]:
        return _numbered(super().blocks(message, content), message.id)

    def reply(self, message: AssistantMessage) -> list[dict[str, Json]]:
        return _numbered(super().reply(message), message.id)

    def block(self, part: Said | Thinking | ToolCall, kept: dict[str, Json]) -> dict[str, Json]:
        if "citationsContent" in kept:
            return kept
        if isinstance(part, Text):
            return {"text": part.text} if part.text.strip() else {}
        if isinstance(part, Thinking):
            return (
                {"reasoningContent": {"reasoningText": {"text": part.text, **kept}}} if kept else {}
            )
        if isinstance(part, ToolCall):
            name, arguments = encoding.call_name(part.name), encoding.arguments(part)
            return {
                "toolUse": {
                    "toolUseId": encoding.safe_id(part.id),
                    "name": name,
                    "input": arguments,
                }
            }
        if isinstance(part, File):
            # Bedrock allows only these characters in the name of a document.
            name = " ".join(
                re.sub(r"[^A-Za-z0-9()\[\]-]", " ", part.name.rpartition("/")[2]).split()
            )[:50]
            source = {"bytes": encoding.base64_text(part.data)}
            return {
                "document": {"name": name or "document", "format": _format(part), "source": source}
            }
        if encoding.is_remote(part):
            # Bedrock fetches only objects in S3.
            return {"text": f"(an image: {part.url})"}
        kind, data = encoding.inline(part)
        form = kind.removeprefix("image/").replace("jpg", "jpeg")
        return {"image": {"format": form, "source": {"bytes": data}}}

    def result(self, message: ToolMessage, content: Sequence[Said]) -> Json:
        # Bedrock refuses an empty list and a blank text.
        blocks = self.blocks(message, content) or [{"text": "(no output)"}]
        result: dict[str, Json] = {
            "toolUseId": encoding.safe_id(message.call_id),
            "content": blocks,
        }
        if self.is_claude or "nova" in self.model:  # other models refuse a status
            result["status"] = "error" if message.is_error else "success"
        elif message.is_error:
            blocks.insert(0, {"text": "error:"})
        return {"toolResult": result}


def _numbered(blocks: list[dict[str, Json]], owner: str) -> list[dict[str, Json]]:
    """Append a hash to the name of each document in `blocks`, and return `blocks`.

    Bedrock refuses two documents with equal names. The hash depends on the position of the block
    and on `owner`, the id of its message.
    """
    for index, block in enumerate(blocks):
        if "document" in block:
            block["document"]["name"] += f" {encoding.short_id(f'{owner} {index}', 6)}"
    return blocks


def _format(part: File) -> str:
    form = _FORMATS.get(part.media_type.partition(";")[0].strip())
    if form is None:
        try:
            part.data.decode("utf-8")
        except UnicodeDecodeError:
            formats = ", ".join(sorted(_FORMATS.values()))
            text = (
                f"cannot send a file of type {part.media_type}; only these can be sent: {formats}"
            )
            raise ProviderError(text, kind="invalid_request", provider=WIRE) from None
    return form or "txt"


class Bedrock(wire.Wire):
    """A provider on Bedrock. If no bearer token is set, it signs requests with AWS credentials."""

    # On Bedrock, Claude accepts these keywords; Nova, Llama and Mistral do not.
    tool_rules = wire.ToolRules(keywords=("$ref", "oneOf", *wire.CONDITIONS), at_root=wire.UNIONS)
    encoder = BedrockEncoder
    decoder = BedrockDecoder

    def __init__(
        self, entry: Entry, http: Any, model: str = "", credentials: aws.Credentials | None = None
    ) -> None:
        super().__init__(entry, http, model)
        self._credentials = credentials
        self._login = aws.AwsLogin()

    async def models(self) -> list[str]:
        raise ConfigError(
            f"{self.name}: this API does not list models; run aws bedrock list-foundation-models"
        )

    def target(self, model: str, stream: bool) -> str:
        # Colons and the slashes of ARNs are escaped.
        return f"/model/{quote(model, safe='')}/{'converse-stream' if stream else 'converse'}"

    async def headers(
        self, options: Mapping[str, Json], target: str, body: bytes
    ) -> dict[str, str]:
        if self.http.authorized:
            return {}
        # Read for each request: session credentials expire and are replaced.
        credentials = self._credentials or aws.find_credentials(os.environ)
        if credentials is None:
            credentials = await finish_in_thread(self._login.get)
        self.http.hide(credentials.token)
        address = self.http.address
        found = re.search(r"\.([a-z]{2}(?:-[a-z]+)+-\d+)\.", address.host)
        return sign(
            body,
            host=address.authority,
            path=address.target(target),
            region=found[1] if found else aws.find_region(os.environ) or aws.REGION,
            credentials=credentials,
            now=datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ"),
        )
