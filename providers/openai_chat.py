"""The wire of OpenAI's chat completions, as OpenAI and most other servers speak it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

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
    UserMessage,
    new_id,
)
from glue.provider import ProviderEvent, TextDelta, ThinkingDelta, ToolCallDelta
from glue.providers import encoding, wire
from glue.providers.catalog import Quirks, Row, efforts

WIRE = "openai_chat"

_STOPS = {
    "stop": StopReason.END_TURN,
    "eos": StopReason.END_TURN,
    "eos_token": StopReason.END_TURN,
    "end_turn": StopReason.END_TURN,
    "stop_sequence": StopReason.END_TURN,
    "tool_calls": StopReason.TOOL_USE,
    "function_call": StopReason.TOOL_USE,
    "tool_use": StopReason.TOOL_USE,
    "length": StopReason.MAX_TOKENS,
    "max_tokens": StopReason.MAX_TOKENS,
    "content_filter": StopReason.REFUSAL,
    "sensitive": StopReason.REFUSAL,
    "model_length": StopReason.CONTEXT_WINDOW,
    "model_context_window_exceeded": StopReason.CONTEXT_WINDOW,
    "error": StopReason.ERROR,
    "network_error": StopReason.ERROR,
    "insufficient_system_resource": StopReason.ERROR,
}

_SAME = ("type", "index")  # what pieces of one reasoning detail have in common
_STREAMED = ("text", "summary", "data")  # what of it comes in pieces


class ChatDecoder(wire.Decoder):
    """Reads a stream of chunks, or a whole completion."""

    noun = "completion"
    end_mark = "a finish_reason or [DONE]"
    empty = "an empty stream; the prompt may be longer than the server's context"

    def __init__(self, quirks: Quirks, provider: str, model: str) -> None:
        super().__init__(quirks, provider, model)
        self._parts: list[tuple[str, list[str]]] = []  # texts and thoughts in the order they came
        self._kind = ""
        self._pieces: list[str] = []  # of the last part
        self._calls = _Calls()
        self._details: list[tuple[dict[str, Json], dict[str, list[str]]]] = []  # each with its texts in pieces
        self._listed = False  # thoughts came inside content
        self._extra: dict[str, Json] = {}
        self._refused = False
        self._native = ""
        self._tags = _ThinkTags() if quirks.think_tags else None

    def _done(self) -> None:
        self.ended = self.closed = True

    def _close(self, body: bytes | None) -> None:
        super()._close(body)
        if self._tags is not None:
            self._tagged(self._tags.end(), self.late)
        if not self.seen:
            raise self._nothing()

    def _event(self, data: bytes, events: list[ProviderEvent]) -> None:
        chunk = encoding.loads(data)
        self.seen = True
        if len(self.facts) < 2:
            self._identify(chunk)
        if chunk.get("usage"):
            self.counts = chunk["usage"]
        if chunk.get("error"):
            raise self.error(chunk["error"])
        choices = chunk.get("choices")
        if not choices or choices[0].get("index"):  # the usage chunk; another of several answers
            return
        choice = choices[0]
        delta = choice.get("delta")
        if delta:
            content = delta.get("content")
            if content and len(delta) == 1 and self._kind == "text" and type(content) is str and self._tags is None:
                self._pieces.append(content)  # nearly every chunk
                events.append(TextDelta(text=content))
            else:
                self._delta(delta, events)
        elif delta is None and choice.get("message") and not self._parts and not self._calls:
            self._delta(_indexed(choice["message"]), events)  # a whole completion as the only event
        reason = choice.get("finish_reason")
        if reason is not None:
            self._stop(choice, reason)
            if chunk.get("x_groq") and not self.counts:
                self.counts = chunk["x_groq"].get("usage")

    def _delta(self, delta: dict[str, Json], events: list[ProviderEvent]) -> None:
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        details = delta.get("reasoning_details")
        if details:
            thought = self._take_details(details, thought)
        if thought and type(thought) is str:
            self._add("thinking", thought)
            events.append(ThinkingDelta(text=thought))
        content = delta.get("content")
        if content:
            if type(content) is not str:
                self._content_list(content, events)
            elif self._tags is not None:
                self._tagged(self._tags.split(content), events)
            else:
                self._add("text", content)
                events.append(TextDelta(text=content))
        if delta.get("tool_calls"):
            self._kind = ""
            events.extend(self._calls.add(delta["tool_calls"]))
        call = delta.get("function_call")  # as it was before there were tools
        if call and (self._calls or call.get("name")):
            events.extend(self._calls.add([{"index": "function_call", "function": call}]))
        if refusal := encoding.text_of(delta.get("refusal")):
            self._refused = True
            self._add("text", refusal)
            events.append(TextDelta(text=refusal))
        if delta.get("extra_content"):
            self._extra["extra_content"] = delta["extra_content"]

    def _add(self, kind: str, text: str) -> None:
        if kind != self._kind:
            self._kind = kind
            self._pieces = []
            self._parts.append((kind, self._pieces))
        self._pieces.append(text)

    def _content_list(self, content: list[Json], events: list[ProviderEvent]) -> None:
        for block in content:
            if block.get("type") == "thinking":
                self._listed = True
                thinking = block.get("thinking")
                inner = thinking if isinstance(thinking, list) else [{"text": thinking}]
                text = "".join(encoding.text_of(piece.get("text")) for piece in inner)
                if text:
                    self._add("thinking", text)
                    events.append(ThinkingDelta(text=text))
            elif text := encoding.text_of(block.get("text")):
                self._add("text", text)
                events.append(TextDelta(text=text))

    def _take_details(self, details: list[dict[str, Json]], thought: Json) -> Json:
        """Keep the details; their text counts only where no plain field repeats it."""
        texts = []
        for detail in details:
            texts.append(encoding.text_of(detail.get("text")) or encoding.text_of(detail.get("summary")))
            last = self._details[-1] if self._details else None
            is_more = last is not None and "index" in detail and all(last[0].get(n) == detail.get(n) for n in _SAME)
            if last is None or not is_more:
                last = ({}, {})
                self._details.append(last)
            for name, value in detail.items():
                if name in _STREAMED and isinstance(value, str):
                    last[1].setdefault(name, []).append(value)
                elif name not in last[0] or (value is not None and value != ""):
                    last[0][name] = value
        return thought or "".join(texts)

    def _tagged(self, pieces: list[tuple[bool, str]], events: list[ProviderEvent]) -> None:
        for is_thought, text in pieces:
            self._add("thinking" if is_thought else "text", text)
            events.append(ThinkingDelta(text=text) if is_thought else TextDelta(text=text))

    def _identify(self, chunk: dict[str, Json]) -> None:
        for name in ("id", "model"):
            if isinstance(chunk.get(name), str) and chunk[name]:
                self.facts[name] = chunk[name]

    def _stop(self, choice: dict[str, Json], reason: Json) -> None:
        reason = reason if isinstance(reason, str) else str(reason)
        if reason or self.raw_stop is None:
            self.raw_stop = reason
        self.closed = self.closed or bool(reason)
        self._native = encoding.text_of(choice.get("native_finish_reason")) or self._native
        if choice.get("usage"):
            self.counts = choice["usage"]

    def _whole(self, reply: Json) -> None:
        if reply.get("usage"):
            self.counts = reply["usage"]
        choices = reply.get("choices")
        if reply.get("error") or not choices:
            if reply.get("error") or reply.get("object") == "error" or reply.get("detail"):
                raise self.error(reply.get("error") or reply)
            raise self.broken("JSON without choices")
        self._identify(reply)
        self.seen = True
        self._delta(_indexed(choices[0].get("message") or {}), self.late)
        if choices[0].get("finish_reason") is not None:
            self._stop(choices[0], choices[0]["finish_reason"])

    # The whole reply

    def _stop_reason(self) -> StopReason:
        if self._native in ("error", "network_error"):
            raise self.error({"message": f"the server stopped with {self._native!r}"})
        if not self.raw_stop:
            return StopReason.TOOL_USE if self._calls else StopReason.UNKNOWN
        stop = _STOPS.get(self.raw_stop, StopReason.UNKNOWN)
        return StopReason.REFUSAL if stop is StopReason.END_TURN and self._refused else stop

    def _content(self, *, cut: bool) -> list[Part]:
        cut = cut or (self.parser.body is None and not self.raw_stop)
        parts: list[Part] = []
        details = [{**detail, **{n: "".join(pieces) for n, pieces in texts.items()}} for detail, texts in self._details]
        data: dict[str, Json] | None = {"reasoning_details": details} if details else None
        if self._listed:
            data = {"content": True}
        for kind, pieces in self._parts:
            text = "".join(pieces)
            if kind == "text":
                parts.append(Text(text=text))
            else:
                parts.append(Thinking(text=text, opaque=Opaque(wire=WIRE, data=data) if data else None))
                data = None if self._details else data  # the details go back once, whole
        if self._details and data:
            parts.insert(0, Opaque(wire=WIRE, data=data))
        if self._extra:
            parts.append(Opaque(wire=WIRE, data={"message": self._extra}))
        return [*parts, *self._calls.parts(cut=cut, seed=self.facts.get("id", ""))]

    def _usage(self) -> Usage | None:
        raw = self.counts
        if not isinstance(raw, dict) or not raw:
            return None
        inputs = encoding.object_of(raw.get("prompt_tokens_details"))
        outputs = encoding.object_of(raw.get("completion_tokens_details"))
        prompt = encoding.number(raw.get("prompt_tokens")) or 0
        output = encoding.number(raw.get("completion_tokens")) or 0
        reasoning = encoding.first_number(outputs.get("reasoning_tokens"), raw.get("reasoning_tokens"))
        apart = self.quirks.reasoning_apart or raw.get("total_tokens") == prompt + output + (reasoning or 0)
        cached = (
            inputs.get("cached_tokens"),
            raw.get("prompt_cache_hit_tokens"),
            raw.get("cached_tokens"),
            raw.get("num_cached_tokens"),
        )
        cost = raw.get("cost")
        return Usage(
            input=prompt,
            output=output + (reasoning or 0) if apart else output,
            cache_read=encoding.first_number(*cached),
            cache_write=encoding.first_number(inputs.get("cache_write_tokens"), raw.get("cache_creation_input_tokens")),
            reasoning=reasoning,
            cost=float(cost) if isinstance(cost, (int, float)) and not isinstance(cost, bool) else None,
        )


def _indexed(message: dict[str, Json]) -> dict[str, Json]:
    """Number the calls of a whole message, as those of a stream are."""
    calls = message.get("tool_calls") or ()
    return {**message, "tool_calls": [{"index": index, **call} for index, call in enumerate(calls)]}


@dataclass(slots=True)
class _Slot:
    position: int
    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    extra: dict[str, Json] | None = None


class _Calls:
    """Join fragments to calls, whatever the server does to ids and indexes."""

    def __init__(self) -> None:
        self._slots: list[_Slot] = []
        self._by_index: dict[object, _Slot] = {}

    def __bool__(self) -> bool:
        return bool(self._slots)

    def add(self, fragments: list[Json]) -> list[ToolCallDelta]:
        """Take the fragments of one chunk."""
        deltas = []
        for fragment in fragments:
            function = fragment.get("function") or {}
            name, text = encoding.text_of(function.get("name")), _argument_text(function.get("arguments"))
            slot = self._slot(fragment.get("index"), encoding.text_of(fragment.get("id")), name)
            if text:
                slot.pieces.append(text)
            if fragment.get("extra_content"):
                slot.extra = {"extra_content": fragment["extra_content"]}
            deltas.append(ToolCallDelta(index=slot.position, id=slot.id, name=slot.name, arguments=text))
        return deltas

    def _slot(self, index: Json, call_id: str, name: str) -> _Slot:
        # An index is a key, not a position: one server starts at 1, others send none or repeat 0.
        slot = self._by_index.get(index) if index is not None else self._slots[-1] if self._slots else None
        if index is None and call_id and slot is not None and (name or slot.id != call_id):
            slot = None
        if slot is not None and call_id and slot.id and slot.id != call_id:
            slot = None
        if slot is None:
            slot = _Slot(len(self._slots))
            self._slots.append(slot)
        if index is not None:
            self._by_index[index] = slot
        slot.id = slot.id or call_id
        slot.name = slot.name or name
        return slot

    def parts(self, *, cut: bool, seed: str = "") -> list[ToolCall]:
        """Return the calls; of a reply that was cut, only what is whole counts as complete."""
        calls = []
        used: set[str] = set()
        for slot in self._slots:
            text = "".join(slot.pieces)
            is_last = slot is self._slots[-1]
            call_id = slot.id if slot.id and slot.id not in used else _made_up(seed, slot.position)
            used.add(call_id)
            calls.append(
                ToolCall(
                    id=call_id,
                    name=slot.name,
                    arguments=text,
                    complete=not cut or encoding.is_object(text) or not (text or is_last),
                    opaque=Opaque(wire=WIRE, data=slot.extra) if slot.extra else None,
                )
            )
        return calls


def _argument_text(value: Json) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else encoding.dumps(value).decode()


def _made_up(seed: str, position: int) -> str:
    return "call_" + (encoding.short_id(f"{seed} {position}", 20) if seed else new_id())


_TAGS = (("<think>", "</think>"), ("<thinking>", "</thinking>"))


class _ThinkTags:
    """Part a streamed text into thoughts and words, whatever the tags are cut into."""

    def __init__(self) -> None:
        self._state = "start"
        self._pending = ""  # what may still turn out to be a tag
        self._close = ""

    def split(self, text: str) -> list[tuple[bool, str]]:
        """Return pieces, each with whether it is a thought."""
        if self._state == "text":
            return [(False, text)]
        text = self._pending + text
        self._pending = ""
        pieces: list[tuple[bool, str]] = []
        if self._state == "start":
            start = text.lstrip()
            for opening, closing in _TAGS:
                if start.startswith(opening):
                    self._state, self._close, text = "thought", closing, start[len(opening) :]
                    break
                if opening.startswith(start):
                    self._pending = text
                    return []
            else:
                self._state = "text"
        if self._state == "thought":
            return self._thought(text)
        return [(False, text)] if text else pieces

    def _thought(self, text: str) -> list[tuple[bool, str]]:
        thought, tag, rest = text.partition(self._close)
        if tag:
            self._state = "text"
            rest = rest.lstrip("\n")
        else:
            keep = next((n for n in range(len(self._close) - 1, 0, -1) if thought.endswith(self._close[:n])), 0)
            self._pending = thought[len(thought) - keep :]
            thought = thought[: len(thought) - keep]
        return [piece for piece in ((True, thought), (False, rest)) if piece[1]]

    def end(self) -> list[tuple[bool, str]]:
        """Return what was held back."""
        held, self._pending = self._pending, ""
        return [(self._state == "thought", held)] if held else []


# Requests -----------------------------------------------------------------------------------------

_MARK = {"cache_control": {"type": "ephemeral"}}


def encode(request: Request, row: Row, model: str) -> bytes:
    """Make the body of a request; messages that were sent before are not encoded again."""
    quirks = row.quirks
    marks = request.cache and quirks.cache == "control"
    fields: dict[str, Json] = {"model": model, "messages": encoding.Pieces(_messages(request, row, model, marks))}
    if request.stream:
        fields["stream"] = True
        if quirks.stream_usage:
            fields["stream_options"] = {"include_usage": True}
    if request.tools and quirks.tools:
        tools = [encoding.encode_tool(tool, WIRE, _tool) for tool in request.tools]
        if marks:
            tools[-1] = encoding.dumps({**encoding.loads(tools[-1]), **_MARK})
        fields["tools"] = encoding.array(tools)
        if request.tool_choice != "auto":
            fields["tool_choice"] = _tool_choice(request.tool_choice)
    if request.max_tokens is not None:
        fields[quirks.max_tokens] = request.max_tokens
    if request.temperature is not None:
        fields["temperature"] = request.temperature
    if request.stop:
        fields["stop"] = request.stop
    if request.output_schema is not None and quirks.output:
        fields["response_format"] = _response_format(request.output_schema, quirks)
    if request.cache and quirks.cache == "key":
        fields["prompt_cache_key"] = encoding.cache_key(request)
    fields.update(_reasoning(request.reasoning, row, model))
    return encoding.assemble(fields, request.options)


def _messages(request: Request, row: Row, model: str, marks: bool) -> list[bytes]:
    key = encoding.memo_key(WIRE, row, model)
    pieces: list[bytes] = []
    if request.system:
        content: Json = [{"type": "text", "text": request.system, **_MARK}] if marks else request.system
        pieces.append(encoding.dumps({"role": row.quirks.system_role, "content": content}))
    messages = encoding.unique_calls(request.messages)
    if row.quirks.merge:
        messages = encoding.merge_users(messages)
    last = messages[-1] if marks and messages else None
    pictures: list[bytes] = []  # of tool results: they follow the whole batch, as a user's message
    for block in encoding.blocks(messages):
        bare = len(block) == encoding.BLOCK and not pictures and block[-1] is not last
        joined = encoding.block_memo(block, key) if bare else None
        if joined is None:
            found = _pieces(block, key, pictures, last, row, model)
            if bare and not pictures:
                encoding.keep_block(block, key, b",".join(found))
            pieces += found
        elif joined:
            pieces.append(joined)
    return pieces + pictures


def _pieces(
    messages: Sequence[Message], key: str, pictures: list[bytes], last: Message | None, row: Row, model: str
) -> list[bytes]:
    pieces: list[bytes] = []
    for message in messages:
        encoded: bytes | tuple[bytes, bytes] | None = message.memo.get(key)
        if encoded is None:
            encoded = message.memo[key] = _message(message, row, model)
        if pictures and not isinstance(message, ToolMessage):
            pieces += pictures
            pictures.clear()
        if message is last:
            encoded = _marked(encoded)
        if isinstance(encoded, tuple):
            encoded, picture = encoded
            pictures.append(picture)
        if encoded:
            pieces.append(encoded)
    return pieces


def _message(message: Message, row: Row, model: str) -> bytes | tuple[bytes, bytes]:
    """Encode a message to nothing, to one piece, or to a tool's result and the pictures that go with it."""
    if message.excluded:
        return b""
    if isinstance(message, UserMessage):
        content = _content(message.content, row.quirks)
        return encoding.dumps({"role": "user", "content": content}) if content else b""
    if isinstance(message, ToolMessage):
        return _result(message, row.quirks)
    body = _assistant(message, row, model)
    return encoding.dumps(body) if body else b""


def _content(parts: Sequence[Part], quirks: Quirks) -> str | list[Json]:
    blocks: list[Json] = []
    for part in parts:
        if isinstance(part, Text) and part.text:
            blocks.append({"type": "text", "text": part.text})
        elif isinstance(part, Image):
            if encoding.accepts(quirks.images, encoding.image_type(part)):
                blocks.append({"type": "image_url", "image_url": {"url": encoding.data_url(part)}})
            else:
                blocks.append({"type": "text", "text": "(an image)"})
        elif isinstance(part, File):
            if encoding.accepts(quirks.files, part.media_type):
                file = {"filename": part.name or "file", "file_data": encoding.data_url(part)}
                blocks.append({"type": "file", "file": file})
            else:
                blocks.append({"type": "text", "text": encoding.file_text(part)})
    if len(blocks) == 1 and blocks[0]["type"] == "text":
        text: str = blocks[0]["text"]
        return text
    return blocks


def _result(message: ToolMessage, quirks: Quirks) -> bytes | tuple[bytes, bytes]:
    call_id = _call_id(message.call_id, quirks)
    encoded = encoding.dumps({"role": "tool", "tool_call_id": call_id, "content": encoding.result_text(message)})
    pictures = [
        part
        for part in message.content
        if (isinstance(part, Image) and encoding.accepts(quirks.images, encoding.image_type(part)))
        or (isinstance(part, File) and encoding.accepts(quirks.files, part.media_type))
    ]
    content = _content([Text(text=f"From the result of {message.name}:"), *pictures], quirks)
    if not pictures or isinstance(content, str):
        return encoded
    return encoded, encoding.dumps({"role": "user", "content": content})


def _assistant(message: AssistantMessage, row: Row, model: str) -> dict[str, Json]:
    quirks = row.quirks
    own = encoding.is_own(message, row)
    text = message.text
    calls = [_call(part, own, quirks) for part in message.content if isinstance(part, ToolCall)]
    body: dict[str, Json] = {"role": "assistant", "content": text or None}
    if calls:
        body["tool_calls"] = calls
    if own:
        _echo(message, body, quirks, same_model=message.model == model)
    if quirks.echo == "reasoning_content" and calls:
        body.setdefault("reasoning_content", "")  # its absence is refused, also on calls of another model
    return body if text or calls else {}


def _echo(message: AssistantMessage, body: dict[str, Json], quirks: Quirks, *, same_model: bool) -> None:
    details: list[Json] = []
    thoughts: list[str] = []
    listed = False
    for part in message.content:
        data = encoding.opaque_of(part, WIRE)
        kept = data if isinstance(data, dict) else {}
        if same_model:
            details.extend(kept.get("reasoning_details") or ())
            if isinstance(part, Opaque):
                body.update(kept.get("message") or {})
        if isinstance(part, Thinking):
            thoughts.append(part.text)
            listed = listed or bool(kept.get("content"))
    if details:
        body["reasoning_details"] = details
    elif listed:
        thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "".join(thoughts)}]}
        body["content"] = [thinking, *([{"type": "text", "text": body["content"]}] if body["content"] else [])]
    elif thoughts and quirks.echo in ("reasoning_content", "reasoning"):
        body[quirks.echo] = "".join(thoughts)


def _call(call: ToolCall, own: bool, quirks: Quirks) -> dict[str, Json]:
    function = {"name": encoding.call_name(call.name), "arguments": encoding.argument_text(call)}
    body: dict[str, Json] = {"id": _call_id(call.id, quirks), "type": "function", "function": function}
    extra = encoding.opaque_of(call, WIRE)
    if own and isinstance(extra, dict):
        body.update(extra)
    return body


def _call_id(call_id: str, quirks: Quirks) -> str:
    if quirks.tool_ids == "nine":
        return call_id if len(call_id) == 9 and call_id.isalnum() and call_id.isascii() else encoding.short_id(call_id)
    return call_id if 0 < len(call_id) <= quirks.tool_id_limit else "call_" + encoding.short_id(call_id, 20)


def _marked(encoded: bytes | tuple[bytes, bytes]) -> bytes | tuple[bytes, bytes]:
    """Set the cache mark on the last block of the last message."""
    if isinstance(encoded, tuple):
        return encoded[0], _marked_piece(encoded[1])
    return _marked_piece(encoded) if encoded else encoded


def _marked_piece(encoded: bytes) -> bytes:
    body = encoding.loads(encoded)
    content = body.get("content")
    if isinstance(content, str) and content:
        content = [{"type": "text", "text": content}]
    if not isinstance(content, list) or not content:
        return encoded
    body["content"] = [*content[:-1], {**content[-1], **_MARK}]
    return encoding.dumps(body)


def _tool(tool: ToolSpec) -> Json:
    function = {"name": tool.name, "parameters": tool.parameters, **encoding.description(tool)}
    return {"type": "function", "function": function}


def _tool_choice(choice: str) -> Json:
    return choice if choice in ("none", "required") else {"type": "function", "function": {"name": choice}}


def _response_format(schema: Json, quirks: Quirks) -> Json:
    if quirks.output == "json_object":
        return {"type": "json_object"}
    wanted = {"name": encoding.schema_name(schema), "schema": schema}
    if quirks.strict and encoding.is_strict(schema):
        wanted["strict"] = True
    return {"type": "json_schema", "json_schema": wanted}


def _reasoning(effort: Effort | None, row: Row, model: str) -> dict[str, Json]:
    style = row.quirks.reasoning
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
    level = encoding.lower(effort, efforts(row, model))
    if style == "object":
        return {"reasoning": {"effort": level} if level and on else {"enabled": False}}
    if level is None:
        return {}
    return {"reasoning_effort": level, **({"reasoning_format": "parsed"} if style == "groq" else {})}


class OpenAIChat(wire.Wire):
    """Asks one server for chat completions."""

    path = "/chat/completions"
    decoder = ChatDecoder
    encode = staticmethod(encode)
    efforts = staticmethod(efforts)
