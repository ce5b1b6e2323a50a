"""Base classes of the wires: the encoder, the decoder, and the provider that joins them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeGuard

from glue import (
    AssistantMessage,
    File,
    Image,
    Message,
    Part,
    Request,
    StopReason,
    Text,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from glue.errors import ConfigError, ErrorKind, ProviderError
from glue.messages import Json, ToolSpec, new_id
from glue.provider import (
    Capabilities,
    Closeable,
    Done,
    Opaque,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCallDelta,
)
from glue.providers import encoding
from glue.providers.catalog import ENTRIES, Entry, Quirks
from glue.providers.encoding import Said
from glue.providers.models import cost, facts, find, is_free
from glue.providers.sse import Parser
from glue.text import one_line

if TYPE_CHECKING:
    from glue.provider import Notice, ProviderEvent

# Requests


class Encoder(ABC):
    """The base class of encoders of requests. A subclass encodes single messages and tools.

    The bytes of messages and tools that were encoded before are reused.
    """

    wire: ClassVar[str]
    searches: ClassVar[tuple[str, ...]] = ()  # the forms of web search that the wire can send

    def __init__(self, request: Request, entry: Entry, model: str) -> None:
        self.search = next((tool for tool in request.tools if tool.kind == "web_search"), None)
        if self.search is not None:
            functions = tuple(tool for tool in request.tools if tool.kind == "function")
            request = replace(request, tools=functions)
        self.request = request
        self.entry = entry
        self.quirks = entry.quirks
        self.model = model
        self.facts = facts(entry, model)
        # Notices about settings that were left out, because the server or the model refuses them.
        self.notes: list[str] = []
        self.messages = encoding.unique_calls(request.messages)
        # The key of the stored bytes of a message. A string, because its hash is computed once.
        self.key = f"{self.wire} {entry.name} {model} {hash(entry.quirks)}"
        self.waiting: list[bytes] = []  # images of tool results, to be sent as a user message

    @abstractmethod
    def body(self) -> bytes:
        """Return the encoded body of the request."""

    @abstractmethod
    def tool(self, tool: ToolSpec) -> Json:
        """Encode a tool definition."""

    @abstractmethod
    def user(self, message: UserMessage, content: Sequence[Said]) -> Iterable[Json]:
        """Encode a user message; `content` has only the parts that the server accepts."""

    @abstractmethod
    def reply(self, message: AssistantMessage) -> Iterable[Json]:
        """Encode an earlier reply of the model, as part of the transcript in the request."""

    @abstractmethod
    def result(self, message: ToolMessage, content: Sequence[Said]) -> Json:
        """Encode a tool result; `content` has only the parts that the server accepts."""

    def pictures(self, message: ToolMessage, content: Sequence[Said]) -> Iterable[Json]:
        """Encode the images and files of a tool result that the result itself cannot contain.

        They are sent after the tool results, as a user message or as parts of it. Return an empty
        iterable if there are none.
        """
        return ()

    def level(self) -> str | None:
        """Return the reasoning level to send, or None. If it is not the wanted level, add a note.

        If the result is None, no level is sent. The level "none" adds no note for a model without
        levels, because such a model never reasons.
        """
        effort, levels = self.request.reasoning, self.facts.efforts
        level = encoding.lower(effort, levels)
        if level == effort:
            return level
        if level is not None:
            self.notes.append(f"{self.model} has no reasoning level {effort!r}; {level!r} is used")
        elif effort != "none":
            self.notes.append(f"{self.model} has no reasoning levels; {effort!r} was left out")
        elif levels:
            self.notes.append(f"{self.model} cannot stop reasoning; its default level is used")
        return level

    def is_forced(self) -> bool:
        """Return whether a forced tool rules out thinking. Add a note if reasoning is left out."""
        request = self.request
        if self.facts.forced_thinking or not request.tools:
            return False
        forced = request.tool_choice not in ("auto", "none")
        if forced and request.reasoning not in (None, "none"):
            self.notes.append(
                f"{self.model} cannot think while a tool is forced; reasoning was left out"
            )
        return forced

    def temperature(self, *, thinks: bool = False) -> float | None:
        """Return the temperature to send, or None. Add a note if the model refuses a temperature.

        Some models refuse a temperature while they think; `thinks` means that the model thinks. If
        the request sets no temperature, the result is None without a note.
        """
        temperature = self.request.temperature
        if temperature is None or (self.facts.sampling and not thinks):
            return temperature
        reason = " while it thinks" if self.facts.sampling else ""
        self.notes.append(
            f"{self.model} takes no temperature{reason}; the temperature was left out"
        )
        return None

    def takes_output(self, schema: Json, *, tools: bool = False) -> bool:
        """Return whether the server can force a reply to match a schema."""
        return self.quirks.output == "json_schema" and self.facts.output

    def refused_search(self) -> str:
        """Return why the provider cannot search the web for the model, or "" if it can."""
        can = self.quirks.search in self.searches and self.quirks.search
        return "" if can else f"{self.entry.name} has no search of its own"

    def search_fields(self) -> dict[str, Json]:
        """Return the request fields of the web search, or {} if no search is sent."""
        if self.search is None or self.refused_search():
            return {}
        from glue.providers.search import search_fields  # start-up: few requests search the web

        return search_fields(self.quirks.search, self.search)

    def search_notes(self) -> list[str]:
        """Return a line for each setting of the web search that is left out of the request.

        If the whole search is left out, return one line with the reason.
        """
        if self.search is None:
            return []
        if reason := self.refused_search():
            return [f"web_search is left out of the request: {reason}"]
        from glue.providers.search import unsent_settings  # start-up: as above

        return [
            f"web_search: {self.entry.name} does not support {name}, which is left out"
            for name in unsent_settings(self.quirks.search, self.search)
        ]

    def tools(self, tools: Iterable[ToolSpec]) -> list[bytes]:
        """Encode tool definitions, store the bytes in each tool's memo, and return them.

        Bytes that a memo already contains are returned without encoding the tool again.
        """
        encoded, key = [], self.tool_key
        for tool in tools:
            if key not in tool.memo:
                tool.memo[key] = encoding.dumps(self.tool(tool))
            encoded.append(tool.memo[key])
        return encoded

    @property
    def tool_key(self) -> str:
        """The key in `ToolSpec.memo` under which the encoded definition of a tool is stored."""
        return self.wire

    def turns(self, messages: Iterable[Message]) -> list[tuple[str, bytes]]:
        """Return the role and the encoded content of each message, in order.

        Images of tool results become a user turn after the results. If no message follows the
        results, their images stay in `waiting`.
        """
        key, waiting = self.key, self.waiting
        turns: list[tuple[str, bytes]] = []
        for message in messages:
            known: tuple[bytes, bytes] | None = message.memo.get(key)
            if known is None:
                known = message.memo[key] = self._message(message)
            if waiting and not isinstance(message, ToolMessage):
                turns.append(("user", b",".join(waiting)))
                waiting.clear()
            turns.append(
                ("assistant" if isinstance(message, AssistantMessage) else "user", known[0])
            )
            if known[1]:
                waiting.append(known[1])
        return turns

    def pieces(self, last: Message | None = None) -> list[bytes]:
        """Return the encoded messages in pieces, to be joined with commas inside a JSON array.

        A piece is one message or several. The message `last` is never joined with others.
        """
        pieces: list[bytes] = []
        for block in encoding.blocks(self.messages):
            bare = len(block) == encoding.BLOCK and not self.waiting and block[-1] is not last
            joined = encoding.block_memo(block, self.key) if bare else None
            if joined is None:
                found = [piece for _, piece in self.turns(block) if piece]
                if bare and not self.waiting:
                    encoding.keep_block(block, self.key, b",".join(found))
                pieces += found
            elif joined:
                pieces.append(joined)
        return pieces + self.waiting

    def _message(self, message: Message) -> tuple[bytes, bytes]:
        if message.excluded:
            return b"", b""
        if isinstance(message, AssistantMessage):
            return encoding.join(self.reply(message)), b""
        content = tuple(encoding.taken(message.content, self.facts))
        if any(isinstance(part, (Image, File)) for part in message.content):
            self._note_attachments(message.content)
        if isinstance(message, ToolMessage):
            return encoding.dumps(self.result(message, content)), encoding.join(
                self.pictures(message, content)
            )
        return encoding.join(self.user(message, content)), b""

    def _note_attachments(self, parts: Iterable[Part]) -> None:
        """Add a note for each image or file that is sent only as a text placeholder."""
        for part in parts:
            if isinstance(part, Image):
                kinds, kind = self.facts.images, encoding.image_type(part)
            elif isinstance(part, File) and not encoding.is_text(part):
                kinds, kind = self.facts.files, part.media_type
            else:
                continue
            if not encoding.accepts(kinds, kind):
                self.notes.append(
                    f"{self.model} takes no {kind}; a text placeholder was sent instead"
                )


class TurnEncoder(Encoder):
    """An encoder for servers whose messages alternate between user and model."""

    heads: ClassVar = {
        "user": b'{"role":"user","content":[',
        "assistant": b'{"role":"assistant","content":[',
    }
    filler: ClassVar[bytes]  # the content of a user turn that is added if the first is missing

    @abstractmethod
    def block(self, part: Said | Thinking | ToolCall, kept: dict[str, Json]) -> dict[str, Json]:
        """Encode a part of a message, or return {} to leave it out.

        `kept` has the opaque fields that the server sent with the part and gets back.
        """

    def blocks(
        self, message: UserMessage | ToolMessage, content: Iterable[Said]
    ) -> list[dict[str, Json]]:
        """Return the encoded parts of a user message or a tool result."""
        encoded = (self.block(part, {}) for part in content)
        return [block for block in encoded if block]

    def user(self, message: UserMessage, content: Sequence[Said]) -> list[dict[str, Json]]:
        return self.blocks(message, content)

    def reply(self, message: AssistantMessage) -> list[dict[str, Json]]:
        """Return the encoded parts of a reply.

        Incomplete calls are left out. Thinking is sent only to the provider that wrote it.
        """
        own = message.provider == self.entry.name
        blocks: list[dict[str, Json]] = []
        for part in message.content:
            kept = encoding.kept_of(part, self.wire) if own else {}
            if isinstance(part, (Text, Image, File)) or (isinstance(part, Thinking) and own):
                blocks.append(self.block(part, kept))
            elif isinstance(part, ToolCall):
                blocks.append(self.block(part, kept) if part.complete else {})
            elif isinstance(part, Opaque):
                blocks.append(kept)
        return [block for block in blocks if block]

    def conversation(self, turns: Iterable[tuple[str, bytes]]) -> bytes:
        """Encode turns as a JSON array in which roles alternate, beginning with a user turn.

        Neighbouring turns of the same role are merged, and a missing first user turn is added.
        """
        parts: list[bytes] = []
        last = ""
        for role, blocks in turns:
            if not blocks:
                continue
            if role == last:
                parts += (b",", blocks)
                continue
            if not parts and role != "user":
                parts += (b"]},", self.heads["user"], self.filler)
            parts += (b"]},", self.heads[role], blocks)
            last = role
        if not parts:
            parts = [b"]},", self.heads["user"], self.filler]
        parts[0] = b"["
        parts.append(b"]}]")
        return b"".join(parts)


# Replies

_CUT = (
    StopReason.MAX_TOKENS,
    StopReason.CONTEXT_WINDOW,
    StopReason.REFUSAL,
    StopReason.MALFORMED_CALL,
)

SHOWN = ("text", "thinking", "call")


class Block:
    """A part of a reply while it is being decoded."""

    __slots__ = ("closed", "fields", "given", "id", "index", "kind", "name", "pieces", "texts")

    def __init__(
        self, kind: str, fields: dict[str, Json] | None = None, *, closed: bool = False
    ) -> None:
        self.kind = kind  # one of SHOWN; blocks of any other kind are only sent back
        self.fields = fields or {}  # the fields to send back unchanged
        self.pieces: dict[str, list[str]] = {}  # the fields that arrive in pieces
        self.texts: list[str] = []
        self.closed = closed
        self.index = 0  # the position of a call among the calls of the reply
        self.id = self.name = ""
        self.given = ""  # arguments that arrived with the start of a call; pieces replace them

    def add(self, key: str, piece: str) -> None:
        self.pieces.setdefault(key, []).append(piece)

    def kept(self) -> dict[str, Json]:
        """Join the streamed pieces of fields, and return the fields to send back to the server."""
        for key, pieces in self.pieces.items():
            self.fields[key] = encoding.text_of(self.fields.get(key)) + "".join(pieces)
        self.pieces.clear()
        return self.fields


class Decoder:
    """The base class of decoders: it decodes one reply, from a stream of events or one JSON body.

    Errors are raised only by `finish`, so that events before an error in the same block are kept.
    """

    wire: ClassVar[str]
    noun: ClassVar[str]  # the name of a complete response, for messages
    end_mark: ClassVar[str]  # the last event of a complete stream, for messages
    empty: ClassVar[str] = "the server sent an empty stream"
    done_closes: ClassVar[bool] = False  # whether [DONE] completes a reply
    parse: ClassVar[Any] = Parser  # the parser that splits a body into events
    # For each stop reason, the words by which the server names it, separated by spaces.
    stops: ClassVar[Mapping[StopReason, str]]
    # For each field of Usage, the places of its count; the first that is set counts.
    tokens: ClassVar[Mapping[str, Sequence[str]]]
    # Counts that the server does not include in "input" or "output" and that are added.
    apart: ClassVar[Mapping[str, Sequence[str]]] = {}
    uncounted: ClassVar[int | None] = None  # cached tokens if the server does not count them

    def __init__(self, quirks: Quirks, provider: str, model: str) -> None:
        self.failure: ProviderError | None = None
        self.late: list[ProviderEvent] = []  # events that only the end of the body completed
        self.closed = False  # whether the server has marked the reply as complete
        self.ended = False  # whether further bytes are ignored
        self.raw_stop: str | None = None
        self.facts: dict[str, Json] = {}
        self.counts: dict[str, Json] = {}  # the token counts of the server
        self.blocks: dict[int, Block] = {}
        self.calls = 0
        self.quirks = quirks
        self.provider = provider
        self.model = model
        self.seen = False
        self.parser: Any = self.parse(provider)

    def feed(self, block: bytes) -> list[ProviderEvent]:
        """Decode the next bytes of the body and return their events.

        An error is stored, and `finish` raises it. Bytes after an error or the end are ignored.
        """
        events: list[ProviderEvent] = []
        data: Any = b""
        if self.failure is None and not self.ended:
            try:
                for data in self.parser.feed(block):
                    self._take(data, events)
                    if self.ended:
                        break
            except ProviderError as error:
                self._fail(error)
            except encoding.BAD_SHAPE:
                self._fail(
                    self.broken(
                        "the server sent an event of an unknown shape",
                        getattr(data, "payload", data),
                    )
                )
        return events

    def _fail(self, error: ProviderError) -> None:
        """Store an error for `finish`; ignore a parse error after a complete reply."""
        if self.closed and error.kind == "protocol":
            self.ended = True
        else:
            self.failure = error

    def finish(self) -> Done:
        """Return the reply after the whole body was fed. Raise ProviderError if it is invalid."""
        if self.failure is None:
            body = self.parser.body
            try:
                self._close(body)
                return Done(message=self._message())
            except ProviderError as error:
                self.failure = error
            except encoding.BAD_SHAPE:
                self.failure = self.broken(
                    f"the server did not send a {self.noun}, or the {self.noun} was cut off",
                    body or b"",
                )
        raise self.failure

    def decode(self, body: bytes) -> Done:
        """Decode a complete body, and return the reply. Raise ProviderError if it is invalid."""
        self.feed(body)
        return self.finish()

    # For subclasses

    def _event(self, event: Json, events: list[ProviderEvent]) -> None:
        """Decode one event of the server, and append the deltas that it contains to `events`.

        The caller turns the exceptions in BAD_SHAPE into protocol errors.
        """
        raise NotImplementedError

    def _whole(self, reply: Json) -> None:
        """Decode a reply that is one JSON body. Append its deltas to `late`, to be yielded last.

        By default, the body is decoded like an event.
        """
        self._event(reply, self.late)

    def _learn(self, place: Mapping[str, Json], *names: str, **renamed: str) -> None:
        """Store the fields `names` and `renamed` of a response for the `meta` of the reply.

        `renamed` maps fields of the response to their names in `meta`. Empty fields are skipped.
        """
        for name in names:
            if place.get(name):
                self.facts[name] = place[name]
        for key, name in renamed.items():
            if place.get(key):
                self.facts[name] = place[key]

    def _cite(self, found: Iterable[Json]) -> None:
        """Add search results to `meta["sources"]` of the reply, each URL once."""
        from glue.providers.search import sources_of  # start-up: few replies have sources

        if sources := sources_of((*self.facts.get("sources", ()), *found)):
            self.facts["sources"] = sources

    def _take(self, data: Any, events: list[ProviderEvent]) -> None:
        if data[:6] == b"[DONE]":  # some proxies end every stream with it
            self.ended = True
            self.closed = self.closed or self.done_closes
        else:
            event = encoding.loads(data)
            self.seen = True
            self._event(event, events)

    def _stop_reason(self) -> StopReason:
        return self._known_stop(self.raw_stop)

    def _known_stop(self, word: Json) -> StopReason:
        return next(
            (reason for reason, words in self.stops.items() if word in words.split()),
            StopReason.UNKNOWN,
        )

    def _content(self, *, cut: bool) -> Iterable[Part]:
        """Return the parts of the reply; if the reply was cut off, mark incomplete calls."""
        return self._parts([self.blocks[at] for at in sorted(self.blocks)], cut=cut)

    def _sealed(self, block: Block) -> Json:
        """Return the fields of an opaque block to send back, or None if its input is incomplete.

        The input is incomplete if its streamed text is not valid JSON.
        """
        kept, text = block.kept(), "".join(block.texts)
        try:
            return {**kept, "input": encoding.loads(text.encode())} if text else kept
        except encoding.BAD_SHAPE:
            return None

    # Blocks

    def _say(self, block: Block, text: str, events: list[ProviderEvent]) -> None:
        """Append a text to a block, and its delta event to `events`. Ignore an empty text."""
        if not text:
            return
        block.texts.append(text)
        if block.kind == "text":
            events.append(TextDelta(text=text))
        elif block.kind == "thinking":
            events.append(ThinkingDelta(text=text))
        elif block.kind == "call":
            events.append(ToolCallDelta(index=block.index, arguments=text))

    def _open_call(
        self, call_id: Json, name: Json, given: Json, events: list[ProviderEvent]
    ) -> Block:
        block = Block("call")
        block.id, block.name, block.index = (
            encoding.text_of(call_id),
            encoding.text_of(name),
            self.calls,
        )
        block.given = encoding.json_text(given)
        self.calls += 1
        events.append(
            ToolCallDelta(index=block.index, id=block.id, name=block.name, arguments=block.given)
        )
        return block

    def _made_up_id(self, index: int) -> str:
        """Return an id for a call that came without an id, or with the id of another call.

        If the response has an id, the same response always results in the same id.
        """
        seed = encoding.text_of(self.facts.get("id"))
        return "call_" + (encoding.short_id(f"{seed} {index}", 20) if seed else new_id())

    def _parts(self, blocks: Sequence[Block], *, cut: bool) -> Iterator[Part]:
        used: set[str] = set()
        for block in blocks:
            text = "".join(block.texts)
            if block.kind not in SHOWN:
                if block.kind and block.closed and (sealed := self._sealed(block)) is not None:
                    yield Opaque(wire=self.wire, data=sealed)
                continue
            kept = block.kept()
            opaque = Opaque(wire=self.wire, data=kept) if kept else None
            if block.kind == "call":
                text = text or block.given
                if not (block.id or block.name or text):
                    continue  # some servers send an empty call with replies that call no tool
                call_id = (
                    block.id if block.id and block.id not in used else self._made_up_id(block.index)
                )
                used.add(call_id)
                # The last call of a cut reply may be marked as closed although it is incomplete:
                # it counts as complete only if its arguments are valid JSON.
                whole = not cut or encoding.is_object(text) or not (text or block is blocks[-1])
                complete = block.closed and whole
                yield ToolCall(
                    id=call_id, name=block.name, arguments=text, complete=complete, opaque=opaque
                )
            elif text or opaque:
                yield (
                    Text(text=text, opaque=opaque)
                    if block.kind == "text"
                    else Thinking(text=text, opaque=opaque)
                )

    def _usage(self) -> Usage | None:
        """Return the token counts as Usage, or None if the server sent no counts.

        Input includes cached tokens, and output includes reasoning.
        """
        raw = self.counts
        if not isinstance(raw, dict) or not raw:
            return None
        found = {name: _count(raw, places) for name, places in self.tokens.items()}

        def total(name: str) -> int:
            return sum(found[each] or 0 for each in (name, *self.apart.get(name, ())))

        read, write, cost = found.get("cache_read"), found.get("cache_write"), raw.get("cost")
        return Usage(
            input=total("input"),
            output=total("output"),
            cache_read=self.uncounted if read is None else read,
            cache_write=self.uncounted if write is None else write,
            reasoning=found.get("reasoning"),
            cost=float(cost) if _is_amount(cost) else None,
        )

    # The end

    def _close(self, body: bytes | None) -> None:
        if body is not None:
            reply = encoding.loads(body)
            self._whole(reply[0] if isinstance(reply, list) and reply else reply)
            self.closed = True
        elif not self.ended:
            self._tail()
        if not self.closed:
            raise (
                self.broken(f"the stream ended without {self.end_mark}")
                if self.seen
                else self._nothing()
            )

    def _tail(self) -> None:
        """Decode the last event if the stream ended without a blank line after it."""
        try:
            for data in self.parser.end():
                self._take(data, self.late)
        except (ProviderError, *encoding.BAD_SHAPE):
            if not self.closed:
                raise

    def _message(self) -> AssistantMessage:
        stop = self._stop_reason()
        if stop is StopReason.ERROR:
            why = f"the server ended its reply with the stop reason {self.raw_stop!r}"
            raise self.error({"message": why})
        content = tuple(self._content(cut=stop in _CUT))
        if stop is StopReason.END_TURN and any(isinstance(part, ToolCall) for part in content):
            stop = StopReason.TOOL_USE
        return AssistantMessage(
            content=content,
            stop_reason=stop,
            raw_stop_reason=self.raw_stop,
            usage=self._usage(),
            provider=self.provider,
            model=self.model,
            meta=self.facts or None,
        )

    # Errors

    def error(self, error: Json) -> ProviderError:
        """Return a ProviderError for an error that the server sent inside its response."""
        from glue.providers.errors import classify_event  # start-up: most requests succeed

        return classify_event(error, provider=self.provider, model=self.model, usage=self._usage())

    def broken(self, what: str, body: bytes = b"", kind: ErrorKind = "protocol") -> ProviderError:
        """Return the error for a malformed response; its message quotes the start of `body`."""
        text = body[:2000].decode("utf-8", "replace")
        if text:
            what = f"{what}: {one_line(text, 200)}"
        return ProviderError(what, kind=kind, provider=self.provider, model=self.model, body=text)

    def _nothing(self) -> ProviderError:
        if stray := self.parser.stray:
            return self.broken(f"the server did not send a {self.noun}", stray)
        if self.parser.is_body:
            return self.broken("the body of the response is cut off")
        return self.broken(self.empty, kind="empty")


def _count(raw: Mapping[str, Json], places: Sequence[str]) -> int | None:
    """Return the first usable number that `raw` has at one of `places`, or None if it has none.

    A place is a key, or two keys such as "details.cached": the key of an object and a key in it.
    """
    for place in places:
        outer, _, inner = place.rpartition(".")
        found = (encoding.object_of(raw.get(outer)) if outer else raw).get(inner)
        if _is_amount(found):
            return int(found)
    return None


def _is_amount(value: Json) -> TypeGuard[float]:
    """Return whether a JSON value is a usable amount: a number from 0 to below 1e15."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e15


UNIONS = ("anyOf", "oneOf", "allOf")
CONDITIONS = ("if", "not", "allOf", "patternProperties", "dependentRequired", "dependentSchemas")


class ToolRules(NamedTuple):
    """The schema keywords and names in tool definitions that a wire's models refuse or ignore.

    Faults that the encoder fixes itself are not listed.
    """

    keywords: tuple[str, ...] = ()  # schema keywords that are refused everywhere
    at_root: tuple[str, ...] = ()  # keywords that are refused at the root of the parameters
    parameter_name: str = ""  # a pattern that the name of each parameter must match
    needs_items: bool = False  # whether an array needs `items`
    needs_letter: bool = False  # whether the name of a tool must begin with a letter


class RequestLogin(Protocol):
    """A source of access tokens for requests, used if no key is set."""

    async def headers(self) -> Mapping[str, str]:
        """Renew the token if it expires soon, and return the headers that authorize a request."""
        ...


class Wire(Closeable):
    """A provider on one wire: it encodes a request, sends it, and decodes the reply."""

    tool_rules: ClassVar[ToolRules]  # set only if the wire has such rules
    path: ClassVar[str] = ""  # the path below the base URL
    models_path: ClassVar[str] = "/models"
    encoder: ClassVar[type[Encoder]]
    decoder: ClassVar[type[Decoder]]
    login: RequestLogin | None = None  # the source of tokens, if no key is set

    def __init__(self, entry: Entry, http: Any, model: str = "") -> None:
        self.entry = entry
        self.http = http
        self.name = entry.name
        self.model = model or entry.model
        self._noted: set[str] = set()  # the texts of the notices that were sent

    @classmethod
    def encode(cls, request: Request, entry: Entry, model: str) -> bytes:
        """Return the encoded body of a request to a model."""
        return cls.encoder(request, entry, model).body()

    def _notices(self, texts: Iterable[str], model: str) -> list[Notice]:
        """Mark the texts as sent, and return a Notice for each text that was not marked before."""
        new = [text for text in dict.fromkeys(texts) if text not in self._noted]
        if not new:
            return []
        from glue.provider import Notice  # start-up: few requests have a notice

        self._noted.update(new)
        return [Notice(provider=self.name, text=text, model=model) for text in new]

    def target(self, model: str, stream: bool) -> str:
        """Return the path below the base URL to which a request is sent."""
        return self.path

    async def headers(
        self, options: Mapping[str, Json], target: str, body: bytes
    ) -> Mapping[str, str]:
        """Return the extra headers of one request, and mask their tokens in logs and errors.

        By default, the extra headers come from `login`; without a login there are none. All other
        headers are the same for each request, and `http` adds them.
        """
        if self.login is None:
            return {}
        headers = await self.login.headers()
        for value in headers.values():
            self.http.hide(value.removeprefix("Bearer "))
        return headers

    async def settled(self, decoder: Decoder, model: str) -> Decoder:
        """Return `decoder`. A subclass may wait for a complete response and return its decoder."""
        return decoder

    @property
    def capabilities(self) -> Capabilities:
        return capabilities_of(self.entry, self.model)

    async def aclose(self) -> None:
        await self.http.aclose()

    async def models(self) -> list[str]:
        """Ask the server for its list of models, and return their names."""
        headers = await self.headers({}, self.models_path, b"")
        async with self.http.get(self.models_path, headers) as blocks:
            body = b"".join([block async for block in blocks])
        try:
            found = encoding.loads(body)
            entries = found["data"] if "data" in found else found["models"]
            return sorted(
                (entry.get("id") or entry["name"]).removeprefix("models/") for entry in entries
            )
        except encoding.BAD_SHAPE:
            text = "the server's list of models cannot be read"
            raise ProviderError(text, kind="protocol", provider=self.name) from None

    def _check(self, request: Request, model: str) -> None:
        """Raise ProviderError if the model does not accept an attachment of a new user message.

        The new messages are those after the last reply. In other messages and in tool results, the
        encoder replaces such an attachment by a text placeholder.
        """
        for message in reversed(request.messages):
            if isinstance(message, AssistantMessage):
                return
            for part in message.content if isinstance(message, UserMessage) else ():
                if isinstance(part, Image):
                    what, kind = "images", encoding.image_type(part)
                elif isinstance(part, File) and not encoding.is_text(part):
                    what, kind = "files", part.media_type
                else:
                    continue
                if not encoding.accepts(getattr(facts(self.entry, model), what), kind):
                    others = [
                        entry.name
                        for entry in ENTRIES
                        if entry.is_vendor and encoding.accepts(getattr(entry.quirks, what), kind)
                    ]
                    hint = f"; these providers accept it: {', '.join(others)}" if others else ""
                    text = f"{model} does not accept {what} of type {kind}{hint}"
                    raise ProviderError(
                        text, kind="invalid_request", provider=self.name, model=model
                    )

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        """Send a request and yield the events of the reply, `Done` last.

        Raise ProviderError if the request fails.
        """
        model = request.model or self.model
        self._check(request, model)
        decoder = self.decoder(self.entry.quirks, self.name, model)
        encoder = self.encoder(request, self.entry, model)
        target, body = self.target(model, request.stream), encoder.body()
        encoder.notes += encoder.search_notes()
        for notice in self._notices(encoder.notes, model):
            yield notice
        headers = await self.headers(request.options or {}, target, body)
        emitted = False
        try:
            try:
                async with self.http.post(target, body, headers, model=model) as blocks:
                    async for block in blocks:
                        for event in decoder.feed(block):
                            emitted = True
                            yield event
                        if decoder.ended or decoder.failure is not None:
                            break
            except ProviderError as error:
                # The reply is complete; only the end of the body is missing.
                if not decoder.closed or error.kind not in ("timeout", "transient"):
                    raise
            decoder = await self.settled(decoder, model)
            done = decoder.finish()
        except ProviderError as error:
            # An error inside the stream may quote the key, as the body of an error response may.
            error.args = tuple(self.http.mask(str(part)) for part in error.args)
            error.body = self.http.mask(error.body)
            error.code = error.code and self.http.mask(error.code)
            error.request_id = error.request_id and self.http.mask(error.request_id)
            error.emitted = emitted
            raise
        for event in decoder.late:
            yield event
        usage = done.message.usage
        if usage is not None and usage.cost is None:  # else the server has sent the cost
            price = cost(self.name, model, usage)
            if price is not None:
                done = Done(message=replace(done.message, usage=replace(usage, cost=price)))
        yield done


def wire_class(name: str) -> type[Wire]:
    """Import the module of a wire and return its provider class.

    Raise ConfigError if no wire has this name.
    """
    wires = sorted({entry.wire for entry in ENTRIES})
    if name not in wires:
        raise ConfigError(f"there is no wire {name!r}; there are: {', '.join(wires)}")
    module = import_module(f"glue.providers.{name}")
    for value in vars(module).values():
        is_class = isinstance(value, type) and issubclass(value, Wire)
        if is_class and value.__module__ == module.__name__:
            found: type[Wire] = value
            return found
    raise TypeError(f"{module.__name__} does not define a subclass of Wire")


def tool_rules() -> dict[str, ToolRules]:
    """Return the `ToolRules` of each wire that limits tool definitions, by the name of the wire."""
    wires = {entry.wire: wire_class(entry.wire) for entry in ENTRIES}
    return {
        name: wire.tool_rules for name, wire in sorted(wires.items()) if "tool_rules" in vars(wire)
    }


def capabilities_of(entry: Entry, model: str = "") -> Capabilities:
    """Return the capabilities and prices of `model`, or of the default model if `model` is ""."""
    model = model or entry.model
    found = find(entry.name, model)
    price = found.price if found else (None, None)
    if is_free(entry.name):
        price = (0.0, 0.0)
    window = found.window if found else None
    wire = wire_class(entry.wire).encoder(Request(), entry, model) if entry.wire else None
    known = facts(entry, model)
    return Capabilities(
        provider=entry.name,
        model=model,
        window=window or (entry.window if model == entry.model else None),
        tools=entry.quirks.tools,
        images=known.images,
        files=known.files if wire else (),
        efforts=known.efforts if wire else (),
        local=entry.quirks.local,
        otel_names=((entry.name, entry.otel),) if entry.otel else (),
        input_price=price[0],
        output_price=price[1],
        takes_output=wire.takes_output if wire else lambda schema, *, tools=False: False,
    )
