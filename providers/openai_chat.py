"""Encode and decode OpenAI's chat completions, as OpenAI and most other servers speak them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from glue import (
    AssistantMessage,
    File,
    Image,
    Part,
    Request,
    StopReason,
    Text,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from glue.messages import Json, ToolSpec
from glue.provider import Opaque, TextDelta, Thinking, ToolCallDelta
from glue.providers import encoding, wire
from glue.providers.catalog import Quirks
from glue.providers.encoding import Said
from glue.providers.wire import Block

if TYPE_CHECKING:
    from glue.provider import ProviderEvent

WIRE = "openai_chat"

# The fields in which servers send thinking. Only the first that is set is read.
_THOUGHTS = ("reasoning_content", "reasoning", "reasoning_text", "thinking")
_SAME = ("type", "index")  # fields that are equal in all pieces of one reasoning detail
_STREAMED = ("text", "summary", "data")  # fields of a reasoning detail that arrive in pieces


class ChatDecoder(wire.Decoder):
    """A decoder of chat completions: a stream of chunks, or a complete completion."""

    wire = WIRE
    noun = "completion"
    end_mark = "a finish_reason or [DONE]"
    done_closes = True
    # The words of all servers on this wire. Gateways pass on the words of other servers.
    stops: ClassVar = {
        StopReason.END_TURN: "stop eos eos_token end_turn stop_sequence",
        StopReason.TOOL_USE: "tool_calls function_call tool_use",
        StopReason.MAX_TOKENS: "length max_tokens",
        StopReason.CONTEXT_WINDOW: "model_length model_context_window_exceeded",
        StopReason.REFUSAL: "content_filter sensitive",
        StopReason.ERROR: "error network_error insufficient_system_resource",
    }
    empty = "the server sent an empty stream; the prompt may be longer than the server's context"
    tokens: ClassVar = {
        "input": ("prompt_tokens", "input_tokens"),
        "output": ("completion_tokens", "output_tokens"),
        "cache_read": (
            *("prompt_tokens_details.cached_tokens", "prompt_cache_hit_tokens"),
            *("cached_tokens", "num_cached_tokens", "cache_read_input_tokens"),
        ),
        "cache_write": ("prompt_tokens_details.cache_write_tokens", "cache_creation_input_tokens"),
        "reasoning": ("completion_tokens_details.reasoning_tokens", "reasoning_tokens"),
    }

    def __init__(self, quirks: Quirks, provider: str, model: str) -> None:
        super().__init__(quirks, provider, model)
        self._spoken: list[Block] = []  # texts and thinking in the order of their arrival
        self._last: Block | None = None  # the block that the next piece may continue
        self._calls: list[Block] = []
        self._calls_by_index: dict[object, Block] = {}
        self._details: list[Block] = []  # the reasoning details
        self._listed = False  # whether thinking arrived inside a content list
        self._extra: dict[str, Json] = {}
        self._refused = False
        self._tags = _ThinkTags() if quirks.think_tags else None

    def _close(self, body: bytes | None) -> None:
        super()._close(body)
        self._tagged("", self.late, is_end=True)
        if not self.seen:
            raise self._nothing()

    def _event(self, chunk: Json, events: list[ProviderEvent]) -> None:
        if len(self.facts) < 2:
            self._learn(chunk, "id", "model")
        if chunk.get("usage"):
            self.counts = chunk["usage"]
        if "search_results" in chunk or "citations" in chunk:
            found = chunk.get("search_results") or chunk.get("citations")
            self._cite(encoding.list_of(found))
        if chunk.get("error") or chunk.get("object") == "error":
            raise self.error(chunk.get("error") or chunk)
        choices = chunk.get("choices")
        # The usage chunk has no choice; choices after the first are ignored.
        if not choices or choices[0].get("index"):
            return
        choice = choices[0]
        delta = choice.get("delta")
        if delta:
            content, last = delta.get("content"), self._last
            if (
                content
                and len(delta) == 1
                and last
                and last.kind == "text"
                and type(content) is str
                and not self._tags
            ):
                last.texts.append(content)  # a shortcut for nearly every chunk
                events.append(TextDelta(text=content))
            else:
                self._delta(delta, events)
        elif delta is None and choice.get("message") and not self._spoken and not self._calls:
            # A complete completion is the only event.
            self._delta(_indexed(choice["message"]), events)
        reason = choice.get("finish_reason")
        if reason is not None:
            self._stop(choice, reason)
            if chunk.get("x_groq") and not self.counts:
                self.counts = chunk["x_groq"].get("usage")

    def _delta(self, delta: dict[str, Json], events: list[ProviderEvent]) -> None:
        if len(delta) == 1 and delta.get("tool_calls"):  # nearly every chunk of a call
            self._last = None
            self._take_calls(delta["tool_calls"], events)
            return
        thought = next((delta[name] for name in _THOUGHTS if delta.get(name)), None)
        if details := delta.get("reasoning_details"):
            thought = self._take_details(details, thought)
        if thought and type(thought) is str:
            self._add("thinking", thought, events)
        content = delta.get("content")
        if content:
            if isinstance(content, dict):  # one server sends structured output as an object
                self._add("text", encoding.json_text(content), events)
            elif type(content) is not str:
                self._content_list(content, events)
            elif self._tags is not None:
                self._tagged(content, events)
            else:
                self._add("text", content, events)
        if delta.get("tool_calls"):
            self._last = None
            self._take_calls(delta["tool_calls"], events)
        if call := delta.get("function_call"):  # the older form of a tool call
            self._take_calls([{"index": "function_call", "function": call}], events)
        if refusal := encoding.text_of(delta.get("refusal")):
            self._refused = True
            self._add("text", refusal, events)
        if notes := delta.get("annotations"):
            self._cite(encoding.object_of(note).get("url_citation") for note in notes)
        if delta.get("extra_content"):
            self._extra["extra_content"] = delta["extra_content"]

    def _add(self, kind: str, text: str, events: list[ProviderEvent]) -> None:
        if self._last is None or self._last.kind != kind:
            self._last = Block(kind)
            self._spoken.append(self._last)
        self._say(self._last, text, events)

    def _content_list(self, content: list[Json], events: list[ProviderEvent]) -> None:
        for block in content:
            if block.get("type") == "thinking":
                self._listed = True
                thinking = block.get("thinking")
                inner = thinking if isinstance(thinking, list) else [{"text": thinking}]
                if text := "".join(encoding.text_of(piece.get("text")) for piece in inner):
                    self._add("thinking", text, events)
            elif text := encoding.text_of(block.get("text")):
                self._add("text", text, events)

    def _take_details(self, details: list[dict[str, Json]], thought: Json) -> Json:
        """Add reasoning details to the reply. Return `thought` or, if that is empty, their text.

        `thought` is the thinking that another field of the same delta contains.
        """
        texts = []
        for detail in details:
            texts.append(
                encoding.text_of(detail.get("text")) or encoding.text_of(detail.get("summary"))
            )
            last = self._details[-1] if self._details else None
            if (
                last is None
                or "index" not in detail
                or any(last.fields.get(n) != detail.get(n) for n in _SAME)
            ):
                last = Block("detail")
                self._details.append(last)
            for name, value in detail.items():
                if name in _STREAMED and isinstance(value, str):
                    last.add(name, value)
                elif name not in last.fields or (value is not None and value != ""):
                    last.fields[name] = value
        return thought or "".join(texts)

    def _tagged(self, content: str, events: list[ProviderEvent], *, is_end: bool = False) -> None:
        for is_thought, text in self._tags.split(content, is_end=is_end) if self._tags else ():
            self._add("thinking" if is_thought else "text", text, events)

    def _take_calls(self, fragments: list[Json], events: list[ProviderEvent]) -> None:
        """Append each fragment of a tool call to that call, and append its delta to `events`."""
        for fragment in fragments:
            function = fragment.get("function") or {}
            custom = {} if function else fragment.get("custom") or {}  # arguments in plain text
            function = function or custom
            text = encoding.json_text(function.get("input" if custom else "arguments"))
            name = encoding.text_of(function.get("name"))
            call = self._call(
                fragment.get("index"), encoding.text_of(fragment.get("id")), name, text
            )
            call.texts.append(text)
            if fragment.get("extra_content"):
                call.fields = {"extra_content": fragment["extra_content"]}
            if custom:
                call.fields = {"type": "custom"}
            if call.id or call.name or text:
                events.append(
                    ToolCallDelta(index=call.index, id=call.id, name=call.name, arguments=text)
                )

    def _call(self, index: Json, call_id: str, name: str, text: str) -> Block:
        # An index is a key, not a position: one server starts at 1, and others send no index or
        # repeat 0, even without ids.
        last = self._calls[-1] if self._calls else None
        call = last if index is None else self._calls_by_index.get(index)
        if index is None and call_id and call is not None and (name or call.id != call_id):
            call = None
        if (
            call
            and name
            and text
            and not call_id
            and len(call.texts) == 1
            and encoding.is_object(call.texts[0])
        ):
            call = None
        if call is None or (call_id and call.id and call.id != call_id):
            call = Block("call", closed=True)
            call.index = len(self._calls)
            self._calls.append(call)
        if index is not None:
            self._calls_by_index[index] = call
        call.id = call.id or call_id
        call.name = call.name or name
        return call

    def _stop(self, choice: dict[str, Json], reason: Json) -> None:
        if choice.get("error"):
            raise self.error(choice["error"])
        native = choice.get("native_finish_reason")
        # A gateway may send an ordinary reason although the server failed.
        reason = native if native in ("error", "network_error") else str(reason)
        if reason or self.raw_stop is None:
            self.raw_stop = reason
        self.closed = self.closed or bool(reason)
        if choice.get("usage"):
            self.counts = choice["usage"]

    def _whole(self, reply: Json) -> None:
        self.seen = True
        if reply.get("choices") or reply.get("error") or reply.get("object") == "error":
            for choice in reply.get("choices") or ():
                if choice.get("message"):
                    choice.pop("delta", None)  # one server sends an empty delta beside the message
            super()._whole(reply)
        elif reply.get("detail"):
            raise self.error(reply)
        else:
            raise self.broken("the JSON has no `choices`", encoding.dumps(reply))

    # The complete reply

    def _stop_reason(self) -> StopReason:
        if not self.raw_stop:
            return StopReason.TOOL_USE if self._calls else StopReason.UNKNOWN
        stop = super()._stop_reason()
        return StopReason.REFUSAL if stop is StopReason.END_TURN and self._refused else stop

    def _content(self, *, cut: bool) -> Iterable[Part]:
        cut = cut or (self.parser.body is None and not self.raw_stop)
        blocks = list(self._spoken)
        thoughts = [block for block in blocks if block.kind == "thinking"]
        if self._listed:
            for thought in thoughts:
                thought.fields = {"content": True}
        elif self._details:  # sent back once, all together
            if not thoughts:
                thoughts = [Block("details", closed=True)]
                blocks[:0] = thoughts
            thoughts[0].fields = {"reasoning_details": [detail.kept() for detail in self._details]}
        if self._extra:
            blocks.append(Block("message", {"message": self._extra}, closed=True))
        return self._parts([*blocks, *self._calls], cut=cut)

    def _usage(self) -> Usage | None:
        usage = super()._usage()
        if usage is None or not usage.reasoning:
            return usage
        apart = (
            self.quirks.reasoning_apart
            or self.counts.get("total_tokens") == usage.total + usage.reasoning
        )
        return replace(usage, output=usage.output + usage.reasoning) if apart else usage


def _indexed(message: dict[str, Json]) -> dict[str, Json]:
    """Return a copy of a complete message whose tool calls have an `index`, as in a stream."""
    calls = message.get("tool_calls") or ()
    return {**message, "tool_calls": [{"index": index, **call} for index, call in enumerate(calls)]}


class _ThinkTags:
    """A filter that splits streamed text into a <think> block at its start and the text after it.

    A <thinking> block is recognised too. Later tags stay in the text.
    """

    def __init__(self) -> None:
        self._held = ""  # characters that may be the start of a tag
        self._close: str | None = None  # the tag that ends the thinking; "" after other text

    def split(self, text: str, *, is_end: bool = False) -> list[tuple[bool, str]]:
        """Split the next text of the stream; return its pieces as pairs of (is thinking, text).

        Characters that may start a tag are held back until the next call, unless `is_end` is true.
        """
        text, self._held = self._held + text, ""
        if self._close is None:
            start = text.lstrip()
            for tag in ("<think>", "<thinking>"):
                if start.startswith(tag):
                    self._close, text = tag.replace("<", "</"), start[len(tag) :]
                    break
                if tag.startswith(start) and not is_end:
                    self._held = text
                    return []
            else:
                self._close = ""
        if not self._close:
            return [(False, text)]
        thought, tag, rest = text.partition(self._close)
        if tag:
            self._close, rest = "", rest.lstrip("\n")
        elif not is_end:
            lengths = range(len(self._close) - 1, 0, -1)
            end = len(thought) - next((n for n in lengths if thought.endswith(self._close[:n])), 0)
            thought, self._held = thought[:end], thought[end:]
        return [piece for piece in ((True, thought), (False, rest)) if piece[1]]


# Requests

# The tool choices of both of OpenAI's wires; any other value names the tool to call.
_CHOICES = {"auto": None, "none": "none", "required": "required"}
_MARK = {"cache_control": {"type": "ephemeral"}}


class OpenAIEncoder(wire.Encoder):
    """The encoder methods that the chat completions and the Responses wire share."""

    @abstractmethod
    def block(self, part: Said) -> dict[str, Json]: ...

    def content(self, said: Sequence[Said]) -> str | list[Json]:
        """Encode content: as a string if it is a single text, otherwise as a list of blocks."""
        return (
            said[0].text
            if len(said) == 1 and isinstance(said[0], Text)
            else [self.block(part) for part in said]
        )

    def user(self, message: UserMessage, content: Sequence[Said]) -> Iterable[Json]:
        said = self.content(content)
        return ({"role": "user", "content": said},) if said else ()

    def call_id(self, text: str) -> str:
        """Return the id of a call, or a short hash of it if the server would refuse the id."""
        if self.quirks.tool_ids == "nine":
            return (
                text
                if len(text) == 9 and text.isalnum() and text.isascii()
                else encoding.short_id(text)
            )
        return (
            text
            if 0 < len(text) <= self.quirks.tool_id_limit
            else "call_" + encoding.short_id(text, 20)
        )

    def offered(self, named: Json) -> tuple[list[bytes], Json]:
        """Return the encoded tools and tool choice, or [] and None if no tools are sent.

        If the server does not support tools, a note in `notes` reports that they are left out.
        `named` is the encoded choice if the request forces one tool by name.
        """
        tools = self.tools(self.request.tools) if self.quirks.tools else []
        if self.request.tools and not tools:
            self.notes.append(
                f"{self.entry.name} takes no tools; they were left out "
                '(providers.new(..., tools="prompt") describes them in the prompt)'
            )
        return tools, _CHOICES.get(self.request.tool_choice, named) if tools else None

    def is_strict(self, tool: ToolSpec) -> bool:
        """Return whether to send a tool as strict: only for OpenAI's models and strict schemas.

        The arguments of a strict tool always match its schema. `encoding.is_strict_tool` describes
        strict schemas.
        """
        return self._serves_openai and encoding.is_strict_tool(tool.parameters)

    @property
    def _serves_openai(self) -> bool:
        return "openai" in (self.entry.name, self.entry.models_from)

    @property
    def tool_key(self) -> str:
        return f"{self.wire} strict" if self._serves_openai else self.wire

    def cache_key(self) -> str | None:
        """Return a hash of system prompt and tool names as prompt cache key, or None for no key.

        No key is sent if the request does not use prompt caching, or if the server takes no key.
        """
        if not self.request.cache or self.quirks.cache != "key":
            return None
        return encoding.short_id(
            "\n".join((self.request.system, *(tool.name for tool in self.request.tools))), 24
        )

    def output_format(self) -> dict[str, Json] | None:
        """Return the field that asks for JSON, or None if JSON is not asked for.

        JSON is asked for if the request has an output schema and the server supports JSON output.
        A server without support for schemas is asked for any JSON object. `strict` is set if both
        the schema and the server support it.
        """
        schema, quirks = self.request.output_schema, self.quirks
        if schema is None or not quirks.output:
            return None
        if quirks.output == "json_object":
            return {"type": "json_object"}
        strict = quirks.strict and encoding.is_strict(schema)
        return {
            "type": "json_schema",
            "name": encoding.schema_name(schema),
            "schema": schema,
            "strict": strict,
        }


def argument_text(call: ToolCall) -> str:
    """Return the arguments of a call as a JSON object in text; wrap any other value in an object.

    Servers require an object. The key `arguments` of the new object has the value, or the raw text
    if the text is not valid JSON. Blank arguments become an empty object.
    """
    value = encoding.arguments(call)
    return (
        call.arguments
        if call.arguments.strip() and "arguments" not in value
        else encoding.dumps(value).decode()
    )


def data_url(part: Image | File) -> str:
    """Return the URL of an image, or a data URL with the bytes of an image or file."""
    if isinstance(part, Image) and part.url is not None:
        return part.url
    return f"data:{part.media_type};base64,{encoding.base64_text(part.data or b'')}"


class ChatEncoder(OpenAIEncoder):
    """An encoder of requests for OpenAI's Chat Completions API."""

    wire = WIRE
    searches = ("openrouter", "perplexity", "xai")  # a search of xAI is sent on the Responses wire

    def body(self) -> bytes:
        request, quirks = self.request, self.quirks
        marks = request.cache and quirks.cache == "control"
        tools, choice = self.offered(
            {"type": "function", "function": {"name": request.tool_choice}}
        )
        if tools and marks:
            tools[-1] = encoding.dumps({**encoding.loads(tools[-1]), **_MARK})
        search = self.search_fields()
        if "type" in search:
            tools.append(encoding.dumps(search))
            search = {}
        fields = {
            "model": self.model,
            "messages": self._messages(marks),
            "stream": request.stream or None,
            "stream_options": {"include_usage": True}
            if request.stream and quirks.stream_usage
            else None,
            "tools": tools or None,
            "tool_choice": choice,
            quirks.max_tokens: request.max_tokens,
            "temperature": self.temperature(),
            "stop": request.stop or None,
            "response_format": self._response_format(),
            "prompt_cache_key": self.cache_key(),
            **self._reasoning(),
            **search,
        }
        return encoding.assemble(fields, request.options)

    def _messages(self, marks: bool) -> list[bytes]:
        if self.quirks.merge:
            self.messages = encoding.merge_users(self.messages)
        last = self.messages[-1] if marks and self.messages else None
        pieces = self.pieces(last)
        if last is not None and any(last.memo[self.key]):
            pieces[-1] = _marked(pieces[-1])
        if system := self.request.system:
            content: Json = [{"type": "text", "text": system, **_MARK}] if marks else system
            pieces.insert(0, encoding.dumps({"role": self.quirks.system_role, "content": content}))
        return pieces

    def block(self, part: Said) -> dict[str, Json]:
        if isinstance(part, Text):
            return {"type": "text", "text": part.text}
        if isinstance(part, Image):
            return {"type": "image_url", "image_url": {"url": data_url(part)}}
        return {
            "type": "file",
            "file": {"filename": part.name or "file", "file_data": data_url(part)},
        }

    def result(self, message: ToolMessage, content: Sequence[Said]) -> Json:
        """Encode a tool result as text, with a placeholder for each image and file.

        `pictures` encodes the images and files as a user message.
        """
        words = []
        for part in message.content:
            if isinstance(part, Text):
                words.append(part.text)
            elif isinstance(part, Image):
                words.append("(an image)")
            elif isinstance(part, File):
                words.append(f"(a file: {part.name or part.media_type})")
        text = "\n".join(filter(None, words))
        return {"role": "tool", "tool_call_id": self.call_id(message.call_id), "content": text}

    def pictures(self, message: ToolMessage, content: Sequence[Said]) -> Iterable[Json]:
        pictures = [self.block(part) for part in content if not isinstance(part, Text)]
        title = self.block(Text(text=f"From the result of {message.name}:"))
        return ({"role": "user", "content": [title, *pictures]},) if pictures else ()

    def reply(self, message: AssistantMessage) -> Iterable[Json]:
        own = message.provider == self.entry.name
        calls = []
        for call in message.calls:
            function = {"name": encoding.call_name(call.name), "arguments": argument_text(call)}
            extra = encoding.kept_of(call, WIRE) if own else {}
            encoded = {"id": self.call_id(call.id), "type": "function", "function": function}
            if extra.get("type") == "custom":
                del encoded["function"]
                encoded["custom"] = {"name": function["name"], "input": call.arguments}
            calls.append({**encoded, **extra})
        text = message.text
        body: dict[str, Json] = {"role": "assistant", "content": text or None}
        if calls:
            body["tool_calls"] = calls
        if own:
            self._echo(message, body)
        if self.quirks.echo == "reasoning_content" and calls:
            # The server requires the field, also with calls of another model.
            body.setdefault("reasoning_content", "")
        return (body,) if text or calls else ()

    def _echo(self, message: AssistantMessage, body: dict[str, Json]) -> None:
        details: list[Json] = []
        thoughts: list[str] = []
        listed = False
        for part in message.content:
            kept = encoding.kept_of(part, WIRE)
            if message.model == self.model:
                details.extend(kept.get("reasoning_details") or ())
                if isinstance(part, Opaque):
                    body.update(kept.get("message") or {})
            if isinstance(part, Thinking):
                thoughts.append(part.text)
                listed = listed or bool(kept.get("content"))
        if details:
            body["reasoning_details"] = details
        elif listed:
            thinking = {
                "type": "thinking",
                "thinking": [{"type": "text", "text": "".join(thoughts)}],
            }
            body["content"] = [
                thinking,
                *([{"type": "text", "text": body["content"]}] if body["content"] else []),
            ]
        elif thoughts and self.quirks.echo in ("reasoning_content", "reasoning"):
            body[self.quirks.echo] = "".join(thoughts)

    def tool(self, tool: ToolSpec) -> Json:
        function: dict[str, Json] = {"name": tool.name, "parameters": tool.parameters}
        function |= encoding.description(tool)
        if self.is_strict(tool):  # other servers may not know the field
            function["strict"] = True
        return {"type": "function", "function": function}

    def _response_format(self) -> Json:
        wanted = self.output_format()
        if wanted is None or "schema" not in wanted:
            return wanted
        kind = wanted.pop("type")
        if not wanted["strict"]:  # some servers refuse the field
            del wanted["strict"]
        return {"type": kind, "json_schema": wanted}

    def _reasoning(self) -> dict[str, Json]:
        style, effort = self.quirks.reasoning, self.request.reasoning
        if self.is_forced():
            # A model that thinks by default must be asked not to.
            return {"thinking": {"type": "disabled"}} if self.facts.thinks else {}
        if effort is None or not style:
            return {}
        on = effort != "none"
        if style in ("thinking", "kept_thinking"):
            thinking: dict[str, Json] = {"type": "enabled" if on else "disabled"}
            if style == "kept_thinking" and on:
                thinking["clear_thinking"] = False
            return {"thinking": thinking}
        if style == "enable":
            return {"enable_thinking": on}
        level = self.level()
        if style == "object":
            return {"reasoning": {"effort": level} if level and on else {"enabled": False}}
        if level is None:
            return {}
        return {
            "reasoning_effort": level,
            **({"reasoning_format": "parsed"} if style == "groq" else {}),
        }


def _marked(encoded: bytes) -> bytes:
    """Return an encoded message with `cache_control` added to the last block of its content.

    A message without content is returned unchanged.
    """
    body = encoding.loads(encoded)
    content = body.get("content")
    if isinstance(content, str) and content:
        content = [{"type": "text", "text": content}]
    if not content:
        return encoded
    return encoding.dumps({**body, "content": [*content[:-1], {**content[-1], **_MARK}]})


class OpenAIChat(wire.Wire):
    """A provider on OpenAI's chat completions API."""

    tool_rules = wire.ToolRules(at_root=(*wire.UNIONS, "enum", "not"), needs_items=True)
    path = "/chat/completions"
    encoder = ChatEncoder
    decoder = ChatDecoder

    def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        """Send a request as `Wire.stream` does; use the Responses wire for a web search of xAI."""
        provider: wire.Wire = self
        if self.entry.quirks.search == "xai" and any(
            tool.kind == "web_search" for tool in request.tools
        ):
            provider = wire.wire_class("openai_responses")(self.entry, self.http, self.model)
        return wire.Wire.stream(provider, request)
