"""OpenAI Responses: typed items in, typed events out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
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
from glue.provider import Done, ProviderEvent, TextDelta, ThinkingDelta, ToolCallDelta
from glue.providers import wire
from glue.providers.catalog import Quirks, Row
from glue.providers.sse import Parser
from glue.providers.wire import is_object

WIRE = "openai_responses"

_TERMINAL = ("response.completed", "response.incomplete", "response.failed", "response.cancelled", "response.done")


def decode_json(body: bytes, quirks: Quirks, provider: str, model: str) -> Done:
    """Read a reply that came in one piece."""
    decoder = Decoder(quirks, provider, model)
    decoder.feed(body)
    return decoder.finish()


class Decoder:
    """Read a stream of typed events, or a whole response where a server sends that instead.

    Everything hangs on `output_index`: one gateway changes the ids of an item between events. The
    reply is made of finished items; deltas are for display. Nothing is raised before `finish`.
    """

    def __init__(self, quirks: Quirks, provider: str, model: str) -> None:
        self.failure: ProviderError | None = None
        self.late: list[ProviderEvent] = []  # what only the end of the body showed
        self.raw_stop: str | None = None
        self._provider = provider
        self._model = model
        self._parser = Parser(provider)
        self._items: dict[Json, dict[str, Json]] = {}
        self._shown: dict[Json, list[str]] = {}  # what deltas said of each item
        self._response: dict[str, Json] = {}  # as the terminal event gave it
        self._closed: set[Json] = set()
        self._seen = False

    def feed(self, block: bytes) -> list[ProviderEvent]:
        """Take the next bytes of the body and return what they say."""
        events: list[ProviderEvent] = []
        if self.failure is None:
            try:
                for data in self._parser.feed(block):
                    self._event(data, events)
            except ProviderError as error:
                self.failure = error
            except wire.BAD_SHAPE:
                self.failure = self._broken("an event of an unknown shape")
        return events

    @property
    def ended(self) -> bool:
        """Whether the last event came: a server may leave the connection open behind it."""
        return bool(self._response)

    def finish(self) -> Done:
        """Return the reply once the body has ended, or raise what went wrong."""
        whole = self._parser.body
        try:
            if self.failure is None:
                self._end(whole)
                return Done(message=self._message())
        except ProviderError as error:
            self.failure = error
        except wire.BAD_SHAPE:
            self.failure = self._broken("the answer is no response, or ends in the middle")
        assert self.failure is not None
        raise self.failure

    def _end(self, whole: bytes | None) -> None:
        if whole is not None:
            self._take_response(wire.loads(whole))
            for index, item in self._items.items():
                self._show_item(index, item, self.late)
        elif not self._response:
            for data in self._parser.end():
                self._event(data, self.late)
        if self._response:
            return
        if self._seen:
            raise self._broken("the stream ended without response.completed")
        if stray := self._parser.stray:
            raise self._broken(f"the answer is no response: {stray.decode('utf-8', 'replace')!r}")
        raise wire.protocol_error("an empty stream", self._provider, self._model, kind="empty")

    def _event(self, data: bytes, events: list[ProviderEvent]) -> None:
        if data.startswith(b"[DONE]"):
            return
        event = wire.loads(data)
        kind = event.get("type")
        self._seen = True
        if kind == "response.output_text.delta" or kind == "response.refusal.delta":
            events.append(TextDelta(text=self._show(event)))
        elif kind == "response.reasoning_summary_text.delta" or kind == "response.reasoning_text.delta":
            events.append(ThinkingDelta(text=self._show(event)))
        elif kind == "response.function_call_arguments.delta":
            call = self._items.get(_index(event), {})
            events.append(_call_delta(_index(event), call, self._show(event)))
        elif kind == "response.output_item.added":
            self._items[_index(event)] = event["item"]
        elif kind == "response.output_item.done":
            self._item_done(_index(event), event["item"], events)
        elif kind in _TERMINAL:
            self._take_response(event["response"])
        elif kind == "error" or (kind is None and event.get("error")):
            raise self._error(event.get("error") or event)

    def _show(self, event: dict[str, Json]) -> str:
        delta = event["delta"]
        if not isinstance(delta, str):
            raise TypeError
        self._shown.setdefault(_index(event), []).append(delta)
        return delta

    def _item_done(self, index: Json, item: dict[str, Json], events: list[ProviderEvent]) -> None:
        self._items[index] = item
        self._closed.add(index)
        if index not in self._shown:
            self._show_item(index, item, events)

    def _show_item(self, index: Json, item: dict[str, Json], events: list[ProviderEvent]) -> None:
        # Some servers send no deltas; what they say is shown all the same.
        for part in _parts(item, None, complete=True):
            if isinstance(part, Text) and part.text:
                events.append(TextDelta(text=part.text))
            elif isinstance(part, Thinking) and part.text:
                events.append(ThinkingDelta(text=part.text))
            elif isinstance(part, ToolCall):
                events.append(_call_delta(index, item, part.arguments))

    def _take_response(self, response: Json) -> None:
        if isinstance(response, list) and response:
            response = response[0]
        status = response.get("status")
        if response.get("error") and status not in ("completed", "incomplete"):
            self.raw_stop = wire.text_of(status) or None
            self._response = response
            raise self._error(response["error"])
        if not isinstance(status, str) or "output" not in response:
            if response.get("object") == "error" or response.get("detail") or response.get("message"):
                raise self._error(response)
            raise self._broken("JSON that is no response")
        self.raw_stop = status
        self._response = response
        output = wire.list_of(response.get("output"))
        if len(output) > len(self._closed):
            self._items = dict(enumerate(output))
            self._closed = set(self._items)

    # The whole reply

    def _message(self) -> AssistantMessage:
        status = self.raw_stop or ""
        if status == "failed":
            raise self._error({"message": "the server failed and did not say why"})
        items = [self._items[index] for index in sorted(self._items, key=_order)]
        content: list[Part] = []
        for position, (index, item) in enumerate(zip(sorted(self._items, key=_order), items, strict=True)):
            following = items[position + 1] if position + 1 < len(items) else None
            if index not in self._closed:
                item = self._unfinished(index, item)
            complete = index in self._closed and self._is_complete(item, is_last=following is None)
            content.extend(_parts(item, identity(following), complete=complete))
        names = {name: self._response[name] for name in ("id", "model") if isinstance(self._response.get(name), str)}
        return AssistantMessage(
            content=tuple(content),
            stop_reason=self._stop_reason(status, content),
            raw_stop_reason=self.raw_stop,
            usage=usage_of(self._response.get("usage")),
            provider=self._provider,
            model=self._model,
            meta=names or None,
        )

    def _unfinished(self, index: Json, item: dict[str, Json]) -> dict[str, Json]:
        text = "".join(self._shown.get(index, ()))
        if item.get("type") == "message" and text:
            return {**item, "content": [{"type": "output_text", "text": text}]}
        return {**item, "arguments": text} if item.get("type") == "function_call" else item

    def _is_complete(self, item: dict[str, Json], *, is_last: bool) -> bool:
        if item.get("status") in ("incomplete", "in_progress"):
            return False
        return self.raw_stop == "completed" or not is_last or is_object(wire.text_of(item.get("arguments")))

    def _stop_reason(self, status: str, content: Sequence[Part]) -> StopReason:
        if status == "incomplete":
            reason = wire.object_of(self._response.get("incomplete_details")).get("reason")
            return _INCOMPLETE.get(reason, StopReason.UNKNOWN) if isinstance(reason, str) else StopReason.UNKNOWN
        if status == "cancelled":
            return StopReason.CANCELLED
        if status != "completed":
            return StopReason.UNKNOWN
        if any(isinstance(part, ToolCall) for part in content):
            return StopReason.TOOL_USE
        texts = [part for part in content if isinstance(part, Text)]
        if texts and all(wire.object_of(wire.opaque_of(part, WIRE)).get("refusal") for part in texts):
            return StopReason.REFUSAL
        return StopReason.END_TURN

    # Faults

    def _error(self, error: Json) -> ProviderError:
        from glue.providers.errors import classify_event

        usage = usage_of(self._response.get("usage"))
        return classify_event(error, provider=self._provider, model=self._model, usage=usage)

    def _broken(self, what: str) -> ProviderError:
        return wire.protocol_error(what, self._provider, self._model)


_INCOMPLETE = {"max_output_tokens": StopReason.MAX_TOKENS, "content_filter": StopReason.REFUSAL}


def _index(event: dict[str, Json]) -> Json:
    index = event.get("output_index")
    return event.get("item_id") if index is None else index


def _order(index: Json) -> tuple[int, str]:
    return (index, "") if isinstance(index, int) else (1 << 30, str(index))


def identity(item: Json) -> Json:
    """Return what tells an item from its neighbours, also once it was made anew from its part."""
    return (item.get("call_id") or item.get("id") or item.get("type")) if isinstance(item, dict) else None


def _call_delta(index: Json, item: dict[str, Json], arguments: str) -> ToolCallDelta:
    return ToolCallDelta(
        index=index if isinstance(index, int) else 0,
        id=wire.text_of(item.get("call_id")),
        name=wire.text_of(item.get("name")),
        arguments=arguments,
    )


def _parts(item: dict[str, Json], following: Json, *, complete: bool) -> Iterator[Part]:
    kind = item.get("type")
    if kind == "message":
        kept = {name: item[name] for name in ("id", "phase") if item.get(name)}
        for block in item.get("content") or ():
            if block.get("type") == "refusal":
                data = {**kept, "refusal": True}
                yield Text(text=wire.text_of(block.get("refusal")), opaque=Opaque(wire=WIRE, data=data))
            elif text := wire.text_of(block.get("text")):
                yield Text(text=text, opaque=Opaque(wire=WIRE, data=kept) if kept else None)
    elif kind == "function_call":
        yield ToolCall(
            id=wire.text_of(item.get("call_id")) or wire.text_of(item.get("id")),
            name=wire.text_of(item.get("name")),
            arguments=wire.text_of(item.get("arguments")),
            complete=complete,
            opaque=Opaque(wire=WIRE, data={"id": item["id"]}) if item.get("id") else None,
        )
    elif kind == "reasoning":
        blocks = (*(item.get("summary") or ()), *(item.get("content") or ()))
        text = "".join(wire.text_of(block.get("text")) for block in blocks)
        kept = {name: value for name, value in item.items() if name != "status" and value is not None}
        opaque = Opaque(wire=WIRE, data={"item": kept, "next": following})
        yield Thinking(text=text, opaque=opaque) if text else opaque
    elif kind:
        yield Opaque(wire=WIRE, data={"item": item})


def usage_of(raw: Json) -> Usage | None:
    """Normalise the tokens that a server counted."""
    if not isinstance(raw, dict):
        return None
    inputs, outputs = wire.object_of(raw.get("input_tokens_details")), wire.object_of(raw.get("output_tokens_details"))
    cost = raw.get("cost")
    return Usage(
        input=wire.number(raw.get("input_tokens")) or 0,
        output=wire.number(raw.get("output_tokens")) or 0,
        cache_read=wire.number(inputs.get("cached_tokens")),
        cache_write=wire.number(inputs.get("cache_write_tokens")),
        reasoning=wire.number(outputs.get("reasoning_tokens")),
        cost=float(cost) if isinstance(cost, (int, float)) and not isinstance(cost, bool) else None,
    )


PATH = "/responses"


class OpenAIResponses:
    """Ask one server for responses."""

    def __init__(self, row: Row, http: Any, model: str = "") -> None:
        self.row = row
        self.http = http
        self.name = row.name
        self.model = model or row.model

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        model = request.model or self.model
        decoder = Decoder(self.row.quirks, self.name, model)
        async with self.http.post(PATH, encode(request, self.row, model), model=model) as blocks:
            async for block in blocks:
                for event in decoder.feed(block):
                    yield event
                if decoder.failure is not None or decoder.ended:
                    break
        done = wire.settle(self.http, decoder)
        for event in decoder.late:
            yield event
        yield wire.priced(done, self.name, model)


# Requests -----------------------------------------------------------------------------------------


def encode(request: Request, row: Row, model: str) -> bytes:
    """Make the body of a request. The wire has no stop sequences; they are left out."""
    quirks = row.quirks
    key = wire.memo_key(WIRE, row, model)
    pieces = wire.Pieces()
    for message in wire.unique_calls(request.messages):
        encoded = message.memo.get(key)
        if encoded is None:
            encoded = message.memo[key] = tuple(map(wire.dumps, _items(message, row, model)))
        pieces += encoded
    fields: dict[str, Json] = {"model": model, "input": pieces}
    if request.system:
        fields["instructions"] = request.system
    if request.stream:
        fields["stream"] = True
    if request.tools and quirks.tools:
        fields["tools"] = wire.array(map(_tool, request.tools))
        if request.tool_choice != "auto":
            fields["tool_choice"] = _tool_choice(request.tool_choice)
    if request.max_tokens is not None:
        fields["max_output_tokens"] = request.max_tokens
    if request.temperature is not None:
        fields["temperature"] = request.temperature
    if request.reasoning is not None and quirks.reasoning:
        fields["reasoning"] = {"effort": request.reasoning}
    if request.output_schema is not None and quirks.output:
        fields["text"] = {"format": _format(request.output_schema, quirks)}
    if request.cache and quirks.cache == "key":
        fields["prompt_cache_key"] = wire.cache_key(request)
    if quirks.encrypted:
        # The transcript is ours, so nothing is kept there; reasoning comes back sealed instead.
        fields["store"] = False
        if not model.startswith(quirks.plain_models):
            fields["include"] = ["reasoning.encrypted_content"]
    return wire.assemble(fields, request.options)


def _items(message: Message, row: Row, model: str) -> Iterator[Json]:
    if message.excluded:
        return
    if isinstance(message, UserMessage):
        content = _content(message.content, row.quirks)
        if content:
            yield {"role": "user", "content": content}
    elif isinstance(message, ToolMessage):
        output: Json = _content(message.content, row.quirks)
        call_id = _call_id(message.call_id, row.quirks)
        yield {"type": "function_call_output", "call_id": call_id, "output": output or ""}
    else:
        yield from _assistant(message, row, model)


def _content(parts: Sequence[Part], quirks: Quirks) -> str | list[Json]:
    blocks: list[Json] = []
    for part in parts:
        if isinstance(part, Text) and part.text:
            blocks.append({"type": "input_text", "text": part.text})
        elif isinstance(part, Image) and quirks.images:
            blocks.append({"type": "input_image", "image_url": wire.data_url(part)})
        elif isinstance(part, File):
            blocks.append({"type": "input_file", "filename": part.name or "file", "file_data": wire.data_url(part)})
    if len(blocks) == 1 and blocks[0]["type"] == "input_text":
        text: str = blocks[0]["text"]
        return text
    return blocks


def _assistant(message: AssistantMessage, row: Row, model: str) -> Iterator[Json]:
    own = wire.is_own(message, row, model)
    sealed: list[tuple[Json, Json]] = []  # reasoning items, and what followed each
    open_text: dict[str, Json] | None = None  # a message item that more texts may join
    for part in message.content:
        kept = wire.object_of(wire.opaque_of(part, WIRE)) if own else {}
        item = kept.get("item")
        if item and item.get("type") == "reasoning":
            sealed.append((item, kept.get("next")))
            continue
        body = item or _own_words(part, kept, row.quirks)
        if not body:
            continue
        if open_text is not None and body.get("type") == "message" and body.get("id") == open_text.get("id"):
            open_text["content"].extend(body["content"])
            continue
        if open_text is not None:
            yield open_text
            open_text = None
        yield from _chain(sealed, body, row.quirks)
        sealed.clear()
        if body.get("type") == "message" and body.get("id"):
            open_text = body
        else:
            yield body
    if open_text is not None:
        yield open_text


def _chain(sealed: Sequence[tuple[Json, Json]], follower: Json, quirks: Quirks) -> list[Json]:
    """Return the reasoning that may go back before an item.

    It is refused without the very item that followed it, and, where nothing is stored, without its
    sealed content.
    """
    kept: list[Json] = []
    for item, wanted in reversed(sealed):
        is_sent = item.get("encrypted_content") or not quirks.encrypted
        if wanted is None or wanted != identity(follower) or not is_sent:
            break
        kept.append(item)
        follower = item
    return kept[::-1]


def _own_words(part: Part, kept: dict[str, Json], quirks: Quirks) -> dict[str, Json]:
    if isinstance(part, ToolCall):
        call: dict[str, Json] = {"type": "function_call", "call_id": _call_id(part.id, quirks), "name": part.name}
        call["arguments"] = wire.argument_text(part)
        return {**call, "id": kept["id"]} if kept.get("id") else call
    if not isinstance(part, Text) or not part.text:
        return {}
    if not kept.get("id"):
        return {"type": "message", "role": "assistant", "content": part.text}
    content: dict[str, Json] = {"type": "output_text", "text": part.text, "annotations": []}
    if kept.get("refusal"):
        content = {"type": "refusal", "refusal": part.text}
    body = {"type": "message", "role": "assistant", "id": kept["id"], "status": "completed", "content": [content]}
    return {**body, "phase": kept["phase"]} if kept.get("phase") else body


def _call_id(call_id: str, quirks: Quirks) -> str:
    return call_id if 0 < len(call_id) <= quirks.tool_id_limit else "call_" + wire.short_id(call_id, 20)


def _tool(tool: ToolSpec) -> bytes:
    encoded: bytes | None = tool.memo.get(WIRE)
    if encoded is None:
        body = {"type": "function", "name": tool.name, "parameters": tool.parameters, "strict": False}
        if tool.description:
            body["description"] = tool.description
        encoded = tool.memo[WIRE] = wire.dumps(body)
    return encoded


def _tool_choice(choice: str) -> Json:
    return choice if choice in ("none", "required") else {"type": "function", "name": choice}


def _format(schema: Json, quirks: Quirks) -> Json:
    if quirks.output == "json_object":
        return {"type": "json_object"}
    strict = quirks.strict and wire.is_strict(schema)
    return {"type": "json_schema", "name": wire.schema_name(schema), "schema": schema, "strict": strict}
