"""Encode and decode OpenAI's Responses API: requests of typed items, replies of typed events."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

import anyio

from glue import AssistantMessage, Image, Message, Part, StopReason, Text, ToolCall, ToolMessage
from glue.backoff import Backoff
from glue.errors import ProviderError
from glue.messages import Json, ToolSpec
from glue.provider import (
    Opaque,
    ProviderEvent,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCallDelta,
    deltas,
)
from glue.providers import encoding, wire
from glue.providers.catalog import Quirks
from glue.providers.encoding import Said
from glue.providers.openai_chat import OpenAIEncoder, argument_text, data_url

WIRE = "openai_responses"

# Calls that the client must answer, but glue cannot. If the server answers one, its output follows.
_UNANSWERABLE = (
    "shell_call",
    "local_shell_call",
    "apply_patch_call",
    "computer_call",
    "mcp_approval_request",
)
_POLL = Backoff(first=1.0, cap=10.0, factor=1.5, jitter=0)  # for responses in the background

_TERMINAL = (
    "response.completed",
    "response.incomplete",
    "response.failed",
    "response.cancelled",
    "response.done",
)


class ResponsesDecoder(wire.Decoder):
    """A decoder of responses: a stream of typed events, or a complete response.

    Events are matched by `output_index`, because one gateway changes the ids of an item between
    events. The reply is built from finished items; deltas are only for display.
    """

    wire = WIRE
    noun = "response"
    end_mark = "response.completed"
    stops: ClassVar = {
        StopReason.MAX_TOKENS: "max_output_tokens",
        StopReason.REFUSAL: "content_filter",
    }
    tokens: ClassVar = {
        "input": ("input_tokens",),
        "output": ("output_tokens",),
        "cache_read": ("input_tokens_details.cached_tokens",),
        "cache_write": ("input_tokens_details.cache_write_tokens",),
        "reasoning": ("output_tokens_details.reasoning_tokens",),
    }

    def __init__(self, quirks: Quirks, provider: str, model: str) -> None:
        super().__init__(quirks, provider, model)
        self._items: dict[Json, dict[str, Json]] = {}
        self._shown: dict[Json, list[str]] = {}  # the deltas of each item
        self._response: dict[str, Json] = {}  # from the terminal event
        self._whole_items: set[Json] = set()

    def _event(self, event: Json, events: list[ProviderEvent]) -> None:
        kind = event.get("type")
        if kind == "response.output_text.delta" or kind == "response.refusal.delta":
            if text := self._show(event):
                events.append(TextDelta(text=text))
        elif (
            kind == "response.reasoning_summary_text.delta"
            or kind == "response.reasoning_text.delta"
        ):
            if text := self._show(event):
                events.append(ThinkingDelta(text=text))
        elif kind in (
            "response.function_call_arguments.delta",
            "response.custom_tool_call_input.delta",
        ):
            index = self._index(event)
            item = self._items.get(index, {})
            name, call_id = (
                encoding.text_of(item.get("name")),
                encoding.text_of(item.get("call_id")),
            )
            position, arguments = self._position(index), self._show(event)
            events.append(ToolCallDelta(index=position, id=call_id, name=name, arguments=arguments))
        elif kind == "response.output_item.added":
            self._items[self._index(event)] = event["item"]
        elif kind == "response.output_item.done":
            index, item = self._index(event), event["item"]
            self._items[index] = item
            self._whole_items.add(index)
            if index not in self._shown:
                self._show_item(index, item, events)
        elif kind in _TERMINAL:
            response = event["response"]
            status = encoding.text_of(response.get("status")) or kind.removeprefix("response.")
            self._take_response(response, status, events)
            self.ended = True
        elif kind == "error" or (kind is None and event.get("error")):
            raise self.error(event.get("error") or event)

    def _index(self, event: dict[str, Json]) -> Json:
        """Return the key of the output item that an event belongs to, as in `_items`.

        The key is the item's index, or its id, or the key of the last item if it has neither.
        """
        index = event.get("output_index")
        if index is not None:
            return index
        item = encoding.object_of(event.get("item"))
        return (
            event.get("item_id")
            or item.get("id")
            or item.get("call_id")
            or next(reversed(self._items), 0)
        )

    def _show(self, event: dict[str, Json]) -> str:
        delta = encoding.text_of(event.get("delta"))
        if delta:
            self._shown.setdefault(self._index(event), []).append(delta)
        return delta

    def _show_item(self, index: Json, item: dict[str, Json], events: list[ProviderEvent]) -> None:
        # Some servers send items without deltas, so the events are built from the item.
        self._shown.setdefault(index, [])
        events.extend(deltas(_parts(item, None, complete=True), first=self._position(index)))

    def _position(self, index: Json) -> int:
        if isinstance(index, int):
            return index
        return list(self._items).index(index) if index in self._items else 0

    def _whole(self, reply: Json) -> None:
        status = reply.get("status")
        if not isinstance(status, str) or "output" not in reply:
            if (
                reply.get("error")
                or reply.get("object") == "error"
                or reply.get("detail")
                or reply.get("message")
            ):
                raise self.error(reply.get("error") or reply)
            raise self.broken(
                "the body is not a response object of the Responses API", encoding.dumps(reply)
            )
        self._take_response(reply, status, self.late)

    def _take_response(
        self, response: dict[str, Json], status: str, events: list[ProviderEvent]
    ) -> None:
        self.counts = encoding.object_of(response.get("usage"))
        if response.get("error") and status not in ("completed", "incomplete"):
            raise self.error(response["error"])
        self.closed = True
        self.raw_stop = status
        self._response = response
        output = encoding.list_of(response.get("output"))
        if len(output) > len(self._whole_items):
            self._items = dict(enumerate(output))
            self._whole_items = set(self._items)
            for index, item in () if self._shown else self._items.items():
                self._show_item(index, item, events)

    # The complete reply

    def _content(self, *, cut: bool) -> list[Part]:
        self._learn(self._response, "id", "model")
        self._cite(_citations(self._items.values()))
        indexes = sorted(
            self._items, key=lambda index: index if isinstance(index, int) else 1 << 30
        )
        following: Json = None
        content: list[Part] = []
        for index in reversed(indexes):
            item = self._items[index]
            complete = index in self._whole_items and item.get("status") not in (
                "incomplete",
                "in_progress",
            )
            # If the reply was cut, its last call is complete only if the arguments are valid JSON.
            if complete and self.raw_stop != "completed" and following is None:
                complete = encoding.is_object(encoding.json_text(item.get("arguments")))
            if index not in self._whole_items or not (
                item.get("arguments") or item.get("content") or item.get("input")
            ):
                text = "".join(self._shown.get(index, ()))
                if item.get("type") == "function_call":
                    item = {**item, "arguments": text}
                elif item.get("type") == "custom_tool_call":
                    item = {**item, "input": text}
                elif item.get("type") == "message" and text:
                    item = {**item, "content": [{"type": "output_text", "text": text}]}
            content[:0] = _parts(item, identity(following), complete=complete)
            following = self._items[index]
        return content

    def _check_answerable(self) -> None:
        """Raise ProviderError if the model made a call whose result glue cannot send.

        Such calls use OpenAI's tools for a shell, patches, a computer or tool search, or ask to
        approve an MCP call. A call that the server has answered is allowed.
        """
        items = self._items.values()
        answered = {
            item.get("call_id") or item.get("approval_request_id")
            for item in items
            if encoding.text_of(item.get("type")).endswith(("_output", "_response"))
        }
        for item in items:
            kind = item.get("type")
            is_open = kind in _UNANSWERABLE or (
                kind == "tool_search_call" and item.get("execution") == "client"
            )
            if is_open and (item.get("call_id") or item.get("id")) not in answered:
                raise ProviderError(
                    f"the model sent a {kind}, which glue cannot answer; remove the tool for it "
                    'from options["tools"], or configure that tool to run on the server',
                    kind="invalid_request",
                    provider=self.provider,
                    model=self.model,
                    usage=self._usage(),
                )

    def _stop_reason(self) -> StopReason:
        if self.raw_stop == "failed":
            raise self.error({"message": "the server reported a failure without a reason"})
        self._check_answerable()
        if self.raw_stop == "incomplete":
            return self._known_stop(
                encoding.object_of(self._response.get("incomplete_details")).get("reason")
            )
        if self.raw_stop == "cancelled":
            return StopReason.CANCELLED
        if self.raw_stop != "completed":
            return StopReason.UNKNOWN
        content = self._content(cut=False)
        texts = [part for part in content if isinstance(part, Text)]
        refused = texts and all(encoding.kept_of(part, WIRE).get("refusal") for part in texts)
        is_call = any(isinstance(part, ToolCall) for part in content)
        return StopReason.REFUSAL if refused and not is_call else StopReason.END_TURN


def _citations(items: Iterable[dict[str, Json]]) -> Iterator[Json]:
    """Yield the URL citations in the texts of a response."""
    for item in items:
        for block in encoding.list_of(item.get("content")):
            for note in encoding.list_of(encoding.object_of(block).get("annotations")):
                if encoding.object_of(note).get("type") == "url_citation":
                    yield note


def identity(item: Json) -> Json:
    """Return the first of `call_id`, `id` and `type` that an item has, or None if there is none."""
    return (
        (item.get("call_id") or item.get("id") or item.get("type"))
        if isinstance(item, dict)
        else None
    )


def _parts(item: dict[str, Json], following: Json, *, complete: bool) -> Iterator[Part]:
    kind = item.get("type")
    if kind == "message":
        kept = {name: item[name] for name in ("id", "phase") if item.get(name)}
        for block in item.get("content") or ():
            if block.get("type") == "refusal":
                data = {**kept, "refusal": True}
                yield Text(
                    text=encoding.text_of(block.get("refusal")), opaque=Opaque(wire=WIRE, data=data)
                )
            elif text := encoding.text_of(block.get("text")):
                yield Text(text=text, opaque=Opaque(wire=WIRE, data=kept) if kept else None)
    elif kind in ("function_call", "custom_tool_call"):
        # The namespace is that of a tool that the server's search found; it is sent back.
        kept = {name: item[name] for name in ("id", "namespace") if item.get(name)}
        if kind == "custom_tool_call":
            kept["custom"] = True
        yield ToolCall(
            id=encoding.text_of(item.get("call_id")) or encoding.text_of(item.get("id")),
            name=encoding.text_of(item.get("name")),
            arguments=encoding.json_text(item.get("input" if "custom" in kept else "arguments")),
            complete=complete,
            opaque=Opaque(wire=WIRE, data=kept) if kept else None,
        )
    elif kind == "reasoning":
        blocks = (*(item.get("summary") or ()), *(item.get("content") or ()))
        text = "".join(encoding.text_of(block.get("text")) for block in blocks)
        kept = {
            name: value for name, value in item.items() if name != "status" and value is not None
        }
        opaque = Opaque(wire=WIRE, data={"item": kept, "next": following})
        yield Thinking(text=text, opaque=opaque) if text else opaque
    elif kind:
        yield Opaque(wire=WIRE, data={"item": item})


# Requests


class ResponsesEncoder(OpenAIEncoder):
    """An encoder for the Responses API, whose input is a list of typed items."""

    wire = WIRE
    searches = ("openai", "xai")

    def body(self) -> bytes:
        request, quirks = self.request, self.quirks
        tools, choice = self.offered({"type": "function", "name": request.tool_choice})
        if search := self.search_fields():
            tools.append(encoding.dumps(search))
        level = self.level()
        wanted = self.output_format()
        sealed = quirks.encrypted and self.facts.encrypted
        stored = encoding.text_of((request.options or {}).get("previous_response_id"))
        if stored:
            self.messages = _messages_after(self.messages, stored)
        if request.stop:
            self.notes.append("the Responses API takes no stop sequences; they were left out")
        fields = {
            "model": self.model,
            "input": self.pieces(),
            "instructions": request.system or None,
            "stream": request.stream or None,
            "tools": tools or None,
            "tool_choice": choice,
            "max_output_tokens": request.max_tokens,
            "temperature": self.temperature(),
            "reasoning": {"effort": level} if level is not None else None,
            "text": {"format": wanted} if wanted else None,
            "prompt_cache_key": self.cache_key(),
            # The loop stores the transcript; the server stores nothing and encrypts its reasoning.
            "store": False if quirks.encrypted and not stored else None,
            "include": ["reasoning.encrypted_content"] if sealed else None,
        }
        return encoding.assemble(fields, request.options)

    def block(self, part: Said) -> dict[str, Json]:
        if isinstance(part, Text):
            return {"type": "input_text", "text": part.text}
        if isinstance(part, Image):
            return {"type": "input_image", "image_url": data_url(part)}
        return {"type": "input_file", "filename": part.name or "file", "file_data": data_url(part)}

    def result(self, message: ToolMessage, content: Sequence[Said]) -> Json:
        call_id, output = self.call_id(message.call_id), self.content(content)
        kind = "custom_tool_call" if self._is_custom(message.call_id) else "function_call"
        return {"type": f"{kind}_output", "call_id": call_id, "output": output or ""}

    def _is_custom(self, call_id: str) -> bool:
        """Return whether the requested model made a custom tool call with the id `call_id`.

        The input of a custom tool call is a text. Calls of other models do not count.
        """
        for message in reversed(self.messages):
            if isinstance(message, AssistantMessage) and self._is_own(message):
                for call in message.calls:
                    if call.id == call_id:
                        return bool(encoding.kept_of(call, WIRE).get("custom"))
        return False

    def _is_own(self, message: AssistantMessage) -> bool:
        return message.provider == self.entry.name and message.model == self.model

    def reply(self, message: AssistantMessage) -> list[Json]:
        own = self._is_own(message)
        items: list[Json] = []
        sealed: list[tuple[Json, Json]] = []  # reasoning items, each with the item that followed it
        for part in message.content:
            kept = encoding.kept_of(part, WIRE) if own else {}
            item = kept.get("item")
            if item and item.get("type") == "reasoning":
                sealed.append((item, kept.get("next")))
                continue
            body, last = item or self._words(part, kept), items[-1] if items else {}
            if not body:
                continue
            if (
                body.get("type") == "message" == last.get("type")
                and body.get("id")
                and body["id"] == last.get("id")
            ):
                last["content"] += body["content"]  # another text of the same item
                continue
            items += (*self._reasoning_before(sealed, body), body)
            sealed.clear()
        return items

    def _reasoning_before(self, sealed: Sequence[tuple[Json, Json]], follower: Json) -> list[Json]:
        """Return the reasoning items of `sealed` that the server accepts right before `follower`.

        `sealed` contains reasoning items, each with the item that followed it originally.
        `follower` is the item that comes next in the request.

        The server refuses a reasoning item if the item after it is not the one that followed it
        originally. A server that stores nothing also refuses a reasoning item
        without encrypted content.
        """
        kept: list[Json] = []
        for item, wanted in reversed(sealed):
            is_sent = item.get("encrypted_content") or not self.quirks.encrypted
            if wanted is None or wanted != identity(follower) or not is_sent:
                break
            kept.append(item)
            follower = item
        return kept[::-1]

    def _words(self, part: Part, kept: dict[str, Json]) -> dict[str, Json]:
        named = {"id": kept["id"]} if kept.get("id") else {}
        if isinstance(part, ToolCall):
            call = {"call_id": self.call_id(part.id), "name": encoding.call_name(part.name)}
            if kept.get("custom"):
                return {"type": "custom_tool_call", **call, "input": part.arguments, **named}
            if kept.get("namespace"):
                named["namespace"] = kept["namespace"]
            return {"type": "function_call", **call, "arguments": argument_text(part), **named}
        if not isinstance(part, Text) or not part.text:
            return {}
        message = {"type": "message", "role": "assistant", **named}
        if not named:
            return {**message, "content": part.text}
        content: dict[str, Json] = {"type": "output_text", "text": part.text, "annotations": []}
        if kept.get("refusal"):
            content = {"type": "refusal", "refusal": part.text}
        phase = {"phase": kept["phase"]} if kept.get("phase") else {}
        return {**message, "status": "completed", "content": [content], **phase}

    def tool(self, tool: ToolSpec) -> Json:
        body = {
            "type": "function",
            "name": tool.name,
            "parameters": tool.parameters,
            "strict": self.is_strict(tool),
        }
        return {**body, **encoding.description(tool)}


def _messages_after(messages: Sequence[Message], response: str) -> Sequence[Message]:
    """Return the messages that follow the reply with the id `response`, or else all messages.

    The server has stored that reply and the messages before it, so they are not sent again. If no
    reply has the id, the response belongs to another conversation.
    """
    for index, message in reversed(list(enumerate(messages, 1))):
        if isinstance(message, AssistantMessage) and (message.meta or {}).get("id") == response:
            return tuple(messages[index:])
    return messages


class OpenAIResponses(wire.Wire):
    """A provider on OpenAI's responses API."""

    tool_rules = wire.ToolRules(at_root=(*wire.UNIONS, "enum", "not"), needs_items=True)
    path = "/responses"
    encoder = ResponsesEncoder
    decoder = ResponsesDecoder

    async def settled(self, decoder: wire.Decoder, model: str) -> wire.Decoder:
        """Poll a background response until it is complete, and return the decoder of its body.

        Return `decoder` itself if the server is not still making its response. Raise ProviderError
        if the response is not complete at the total deadline.
        """
        polls, started = 0, time.monotonic()
        while decoder.failure is None and (waiting := _background_id(decoder)):
            polls += 1
            if time.monotonic() - started > self.http.deadlines.total:
                text = f"the response {waiting} is still not complete"
                raise ProviderError(text, kind="timeout", provider=self.name, model=model)
            await anyio.sleep(_POLL.delay(polls) or _POLL.cap)
            target = f"{self.path}/{waiting}"
            headers = await self.headers({}, target, b"")
            async with self.http.get(target, headers) as blocks:
                body = b"".join([block async for block in blocks])
            decoder = self.decoder(self.entry.quirks, self.name, model)
            decoder.feed(body)
        return decoder


def _background_id(decoder: wire.Decoder) -> str:
    """Return the id of a response that the server is still making, or "" for any other response."""
    if not decoder.parser.is_body:
        return ""
    try:
        reply = encoding.object_of(encoding.loads(decoder.parser.body or b""))
    except encoding.BAD_SHAPE:
        return ""
    is_open = reply.get("status") in ("queued", "in_progress")
    return encoding.text_of(reply.get("id")) if is_open else ""
