"""OpenAI chat completions, as OpenAI and most other servers speak it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

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
    Usage,
    UserMessage,
)
from glue.provider import Done, ProviderEvent, TextDelta, ThinkingDelta
from glue.providers import wire
from glue.providers.catalog import Quirks, Row
from glue.providers.sse import Parser
from glue.providers.wire import Calls, ThinkTags

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


def decode_json(body: bytes, quirks: Quirks, provider: str, model: str) -> Done:
    """Read a reply that came in one piece."""
    decoder = Decoder(quirks, provider, model)
    decoder.feed(body)
    return decoder.finish()


class Decoder:
    """Read a stream of chunks, or a whole completion where a server sends that instead.

    Nothing is raised before `finish`: what came before a fault in the same block must not be lost.
    """

    def __init__(self, quirks: Quirks, provider: str, model: str) -> None:
        self.failure: ProviderError | None = None
        self.late: list[ProviderEvent] = []  # what only the end of the body showed
        self.raw_stop: str | None = None
        self._quirks = quirks
        self._provider = provider
        self._model = model
        self._parser = Parser(provider)
        self._parts: list[tuple[str, list[str]]] = []  # texts and thoughts in the order they came
        self._kind = ""
        self._pieces: list[str] = []  # of the last part
        self._calls = Calls()
        self._details: list[tuple[dict[str, Json], dict[str, list[str]]]] = []  # each with its texts in pieces
        self._listed = False  # thoughts came inside content
        self._extra: dict[str, Json] = {}
        self._refused = False
        self._usage: Json = None
        self._native = ""
        self._done = False  # [DONE] came
        self._seen = False  # some chunk came
        self._identity: dict[str, str] = {}
        self._tags = ThinkTags() if quirks.think_tags else None

    def feed(self, block: bytes) -> list[ProviderEvent]:
        """Take the next bytes of the body and return what they say."""
        events: list[ProviderEvent] = []
        if self.failure is None:
            try:
                for data in self._parser.feed(block):
                    self._chunk(data, events)
            except ProviderError as error:
                self.failure = error
            except wire.BAD_SHAPE:
                self.failure = self._broken("a chunk of an unknown shape")
        return events

    @property
    def ended(self) -> bool:
        """Whether the last event came: a server may leave the connection open behind it."""
        return self._done

    def finish(self) -> Done:
        """Return the reply once the body has ended, or raise what went wrong."""
        try:
            if self.failure is None:
                return Done(message=self._end(self._parser.body))
        except ProviderError as error:
            self.failure = error
        except wire.BAD_SHAPE:
            self.failure = self._broken("the answer is no completion, or ends in the middle")
        assert self.failure is not None
        raise self.failure

    def _end(self, whole: bytes | None) -> AssistantMessage:
        if whole is not None:
            self._completion(wire.loads(whole))
        else:
            self._tail()
        if self._tags is not None:
            self._tagged(self._tags.end(), self.late)
        if not self._seen:
            raise self._nothing()
        if whole is None and not self.closed:
            raise self._broken("the stream ended without a finish_reason or [DONE]")
        return self._message(cut=whole is None and not self.raw_stop)

    def _tail(self) -> None:
        try:
            for data in self._parser.end():
                self._chunk(data, self.late)
        except wire.BAD_SHAPE:
            if not self.closed:
                raise

    @property
    def closed(self) -> bool:
        """Whether the server said that the answer is complete."""
        return self._done or bool(self.raw_stop)

    def _chunk(self, data: bytes, events: list[ProviderEvent]) -> None:
        if data.startswith(b"[DONE]"):
            self._done = True
            return
        chunk = wire.loads(data)
        self._seen = True
        if len(self._identity) < 2:
            self._identify(chunk)
        if chunk.get("usage"):
            self._usage = chunk["usage"]
        if chunk.get("error"):
            raise self._error(chunk["error"])
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
            if chunk.get("x_groq") and not self._usage:
                self._usage = chunk["x_groq"].get("usage")

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
        if delta.get("function_call"):  # as it was before there were tools
            events.extend(self._calls.add([{"index": "function_call", "function": delta["function_call"]}]))
        if refusal := wire.text_of(delta.get("refusal")):
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
                text = "".join(wire.text_of(piece.get("text")) for piece in inner)
                if text:
                    self._add("thinking", text)
                    events.append(ThinkingDelta(text=text))
            elif text := wire.text_of(block.get("text")):
                self._add("text", text)
                events.append(TextDelta(text=text))

    def _take_details(self, details: list[dict[str, Json]], thought: Json) -> Json:
        """Keep the details; their text counts only where no plain field repeats it."""
        texts = []
        for detail in details:
            texts.append(wire.text_of(detail.get("text")) or wire.text_of(detail.get("summary")))
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
                self._identity[name] = chunk[name]

    def _stop(self, choice: dict[str, Json], reason: Json) -> None:
        reason = reason if isinstance(reason, str) else str(reason)
        if reason or self.raw_stop is None:
            self.raw_stop = reason
        self._native = wire.text_of(choice.get("native_finish_reason")) or self._native
        if choice.get("usage"):
            self._usage = choice["usage"]

    def _completion(self, body: Json) -> None:
        if isinstance(body, list) and body:
            body = body[0]
        if body.get("usage"):
            self._usage = body["usage"]
        choices = body.get("choices")
        if body.get("error") or not choices:
            if body.get("error") or body.get("object") == "error" or body.get("detail"):
                raise self._error(body.get("error") or body)
            raise self._broken("JSON without choices")
        self._identify(body)
        self._seen = True
        self._delta(_indexed(choices[0].get("message") or {}), self.late)
        if choices[0].get("finish_reason") is not None:
            self._stop(choices[0], choices[0]["finish_reason"])

    # The whole reply

    def _message(self, cut: bool) -> AssistantMessage:
        stop = self._stop_reason()
        if stop is StopReason.ERROR or self._native in ("error", "network_error"):
            raise self._error({"message": f"the server stopped with {self._native or self.raw_stop!r}"})
        cut = cut or stop in (StopReason.MAX_TOKENS, StopReason.REFUSAL, StopReason.CONTEXT_WINDOW)
        return AssistantMessage(
            content=(*self._content(), *self._calls.parts(cut=cut, seed=self._identity.get("id", ""))),
            stop_reason=stop,
            raw_stop_reason=self.raw_stop,
            usage=usage_of(self._usage, self._quirks),
            provider=self._provider,
            model=self._model,
            meta=self._identity or None,
        )

    def _stop_reason(self) -> StopReason:
        if not self.raw_stop:
            return StopReason.TOOL_USE if self._calls else StopReason.UNKNOWN
        stop = _STOPS.get(self.raw_stop, StopReason.UNKNOWN)
        if stop is StopReason.END_TURN and self._refused:
            return StopReason.REFUSAL
        return StopReason.TOOL_USE if stop is StopReason.END_TURN and self._calls else stop

    def _content(self) -> list[Part]:
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
        return parts

    # Faults

    def _error(self, error: Json) -> ProviderError:
        from glue.providers.errors import classify_event

        usage = usage_of(self._usage, self._quirks)
        return classify_event(error, provider=self._provider, model=self._model, usage=usage)

    def _broken(self, what: str) -> ProviderError:
        return wire.protocol_error(what, self._provider, self._model)

    def _nothing(self) -> ProviderError:
        if stray := self._parser.stray:
            text = stray.decode("utf-8", "replace")
            return wire.protocol_error(f"the answer is no completion: {text!r}", self._provider, self._model, body=text)
        what = "an empty stream; the prompt may be longer than the server's context"
        return wire.protocol_error(what, self._provider, self._model, kind="empty")


def _indexed(message: dict[str, Json]) -> dict[str, Json]:
    """Number the calls of a whole message, as those of a stream are."""
    calls = message.get("tool_calls") or ()
    return {**message, "tool_calls": [{"index": index, **call} for index, call in enumerate(calls)]}


def usage_of(raw: Json, quirks: Quirks) -> Usage | None:
    """Normalise the tokens that a server counted."""
    if not isinstance(raw, dict):
        return None
    inputs, outputs = (
        wire.object_of(raw.get("prompt_tokens_details")),
        wire.object_of(raw.get("completion_tokens_details")),
    )
    prompt = wire.number(raw.get("prompt_tokens")) or 0
    output = wire.number(raw.get("completion_tokens")) or 0
    reasoning = wire.first_number(outputs.get("reasoning_tokens"), raw.get("reasoning_tokens"))
    apart = quirks.reasoning_apart or raw.get("total_tokens") == prompt + output + (reasoning or 0)
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
        cache_read=wire.first_number(*cached),
        cache_write=wire.first_number(inputs.get("cache_write_tokens"), raw.get("cache_creation_input_tokens")),
        reasoning=reasoning,
        cost=float(cost) if isinstance(cost, (int, float)) and not isinstance(cost, bool) else None,
    )


PATH = "/chat/completions"

_MARK = {"cache_control": {"type": "ephemeral"}}


class OpenAIChat:
    """Ask one server for chat completions."""

    def __init__(self, row: Row, http: Any, model: str = "") -> None:
        self.row = row
        self.http = http
        self.name = row.name
        self.model = model or row.model

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        model = request.model or self.model
        decoder = Decoder(self.row.quirks, self.name, model)
        try:
            async with self.http.post(PATH, encode(request, self.row, model), model=model) as blocks:
                async for block in blocks:
                    for event in decoder.feed(block):
                        yield event
                    if decoder.failure is not None or decoder.ended:
                        break
        except ProviderError as error:
            # With its finish_reason the answer has come, and [DONE] alone is missing.
            if not decoder.closed or error.kind not in ("timeout", "transient"):
                raise
        done = wire.settle(self.http, decoder)
        for event in decoder.late:
            yield event
        yield wire.priced(done, self.name, model)


# Requests -----------------------------------------------------------------------------------------


def encode(request: Request, row: Row, model: str) -> bytes:
    """Make the body of a request; messages that were sent before are not encoded again."""
    quirks = row.quirks
    marks = request.cache and quirks.cache == "control"
    fields: dict[str, Json] = {"model": model, "messages": wire.Pieces(_messages(request, row, model, marks))}
    if request.stream:
        fields["stream"] = True
        if quirks.stream_usage:
            fields["stream_options"] = {"include_usage": True}
    if request.tools and quirks.tools:
        fields["tools"] = wire.array(_tools(request.tools, marks))
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
        fields["prompt_cache_key"] = wire.cache_key(request)
    fields.update(_reasoning(request.reasoning, quirks))
    return wire.assemble(fields, request.options)


def _messages(request: Request, row: Row, model: str, marks: bool) -> list[bytes]:
    key = wire.memo_key(WIRE, row, model)
    pieces: list[bytes] = []
    if request.system:
        content: Json = [{"type": "text", "text": request.system, **_MARK}] if marks else request.system
        pieces.append(wire.dumps({"role": row.quirks.system_role, "content": content}))
    messages = wire.unique_calls(request.messages)
    if row.quirks.merge:
        messages = wire.merge_users(messages)
    last = messages[-1] if marks and messages else None
    pictures: list[bytes] = []  # of tool results: they follow the whole batch, as a user's message
    for block in wire.blocks(messages):
        bare = len(block) == wire.BLOCK and not pictures and block[-1] is not last
        joined = wire.block_memo(block, key) if bare else None
        if joined is None:
            found = _pieces(block, key, pictures, last, row, model)
            if bare and not pictures:
                wire.keep_block(block, key, b",".join(found))
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
        return wire.dumps({"role": "user", "content": content}) if content else b""
    if isinstance(message, ToolMessage):
        return _result(message, row.quirks)
    body = _assistant(message, row, model)
    return wire.dumps(body) if body else b""


def _content(parts: Sequence[Part], quirks: Quirks) -> str | list[Json]:
    blocks: list[Json] = []
    for part in parts:
        if isinstance(part, Text) and part.text:
            blocks.append({"type": "text", "text": part.text})
        elif isinstance(part, Image) and quirks.images:
            blocks.append({"type": "image_url", "image_url": {"url": wire.data_url(part)}})
        elif isinstance(part, File):
            file = {"filename": part.name or "file", "file_data": wire.data_url(part)}
            blocks.append({"type": "file", "file": file})
    if len(blocks) == 1 and blocks[0]["type"] == "text":
        text: str = blocks[0]["text"]
        return text
    return blocks


def _result(message: ToolMessage, quirks: Quirks) -> bytes | tuple[bytes, bytes]:
    call_id = _call_id(message.call_id, quirks)
    encoded = wire.dumps({"role": "tool", "tool_call_id": call_id, "content": wire.result_text(message)})
    pictures = [part for part in message.content if isinstance(part, (Image, File))]
    content = _content([Text(text=f"From the result of {message.name}:"), *pictures], quirks)
    if not pictures or isinstance(content, str):
        return encoded
    return encoded, wire.dumps({"role": "user", "content": content})


def _assistant(message: AssistantMessage, row: Row, model: str) -> dict[str, Json]:
    quirks = row.quirks
    own = wire.is_own(message, row)
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
        data = wire.opaque_of(part, WIRE)
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
    function = {"name": call.name, "arguments": wire.argument_text(call)}
    body: dict[str, Json] = {"id": _call_id(call.id, quirks), "type": "function", "function": function}
    extra = wire.opaque_of(call, WIRE)
    if own and isinstance(extra, dict):
        body.update(extra)
    return body


def _call_id(call_id: str, quirks: Quirks) -> str:
    if quirks.tool_ids == "nine":
        return call_id if len(call_id) == 9 and call_id.isalnum() and call_id.isascii() else wire.short_id(call_id)
    return call_id if 0 < len(call_id) <= quirks.tool_id_limit else "call_" + wire.short_id(call_id, 20)


def _marked(encoded: bytes | tuple[bytes, bytes]) -> bytes | tuple[bytes, bytes]:
    """Set the cache mark on the last block of the last message."""
    if isinstance(encoded, tuple):
        return encoded[0], _marked_piece(encoded[1])
    return _marked_piece(encoded) if encoded else encoded


def _marked_piece(encoded: bytes) -> bytes:
    body = wire.loads(encoded)
    content = body.get("content")
    if isinstance(content, str) and content:
        content = [{"type": "text", "text": content}]
    if not isinstance(content, list) or not content:
        return encoded
    body["content"] = [*content[:-1], {**content[-1], **_MARK}]
    return wire.dumps(body)


def _tools(tools: Sequence[ToolSpec], marks: bool) -> list[bytes]:
    pieces = []
    for tool in tools:
        encoded = tool.memo.get(WIRE)
        if encoded is None:
            function: dict[str, Json] = {"name": tool.name, "parameters": tool.parameters}
            if tool.description:
                function["description"] = tool.description
            encoded = tool.memo[WIRE] = wire.dumps({"type": "function", "function": function})
        pieces.append(encoded)
    if marks:
        pieces[-1] = wire.dumps({**wire.loads(pieces[-1]), **_MARK})
    return pieces


def _tool_choice(choice: str) -> Json:
    return choice if choice in ("none", "required") else {"type": "function", "function": {"name": choice}}


def _response_format(schema: Json, quirks: Quirks) -> Json:
    if quirks.output == "json_object":
        return {"type": "json_object"}
    wanted = {"name": wire.schema_name(schema), "schema": schema}
    if quirks.strict and wire.is_strict(schema):
        wanted["strict"] = True
    return {"type": "json_schema", "json_schema": wanted}


def _reasoning(effort: str | None, quirks: Quirks) -> dict[str, Json]:
    if effort is None or not quirks.reasoning:
        return {}
    on = effort != "none"
    if quirks.reasoning == "object":
        return {"reasoning": {"effort": effort} if on else {"enabled": False}}
    if quirks.reasoning in ("thinking", "kept_thinking"):
        thinking: dict[str, Json] = {"type": "enabled" if on else "disabled"}
        if quirks.reasoning == "kept_thinking" and on:
            thinking["clear_thinking"] = False
        return {"thinking": thinking}
    if quirks.reasoning == "enable":
        return {"enable_thinking": on}
    if quirks.reasoning == "groq":
        return {"reasoning_effort": "low" if effort == "minimal" else effort, "reasoning_format": "parsed"}
    return {"reasoning_effort": effort}
