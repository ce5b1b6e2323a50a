"""The bases of all wires: an encoder of requests, a decoder of replies, and a provider that joins them with HTTP."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, TypeGuard

from glue import (
    AssistantMessage,
    Capabilities,
    Done,
    File,
    Image,
    Message,
    Opaque,
    Part,
    ProviderEvent,
    Request,
    StopReason,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCall,
    ToolCallDelta,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
    one_line,
)
from glue.errors import ErrorKind, ProviderError
from glue.messages import Json, new_id
from glue.provider import Closeable
from glue.providers import encoding
from glue.providers.catalog import Quirks, Row, efforts
from glue.providers.encoding import Said
from glue.providers.sse import Parser

# Requests -----------------------------------------------------------------------------------------


class Encoder(ABC):
    """Makes the body of one request: it walks the conversation, and a wire gives each piece its form.

    Messages and tools that were encoded before are joined as they are.
    """

    wire: ClassVar[str]

    def __init__(self, request: Request, row: Row, model: str) -> None:
        self.request = request
        self.row = row
        self.quirks = row.quirks
        self.model = model
        self.messages = encoding.unique_calls(request.messages)
        # Names the bytes that a message has here. A string, because its hash is computed once.
        self.key = f"{self.wire} {row.name} {model} {hash(row.quirks)}"
        self.waiting: list[bytes] = []  # pictures of a batch of results: they follow it as a user's

    @abstractmethod
    def body(self) -> bytes: ...
    @abstractmethod
    def tool(self, tool: ToolSpec) -> Json: ...
    @abstractmethod
    def user(self, message: UserMessage, content: Sequence[Said]) -> Iterable[Json]: ...
    @abstractmethod
    def reply(self, message: AssistantMessage) -> Iterable[Json]: ...
    @abstractmethod
    def result(self, message: ToolMessage, content: Sequence[Said]) -> Json: ...

    def pictures(self, message: ToolMessage, content: Sequence[Said]) -> Iterable[Json]:
        """Encode what of a tool's result the server takes only from a user."""
        return ()

    @property
    def efforts(self) -> tuple[str, ...]:
        """The levels of reasoning that the model tells apart; none where it cannot be asked to reason."""
        return efforts(self.row, self.model)

    def takes_output(self, schema: Json, *, tools: bool = False) -> bool:
        """Say whether an answer can be held to a schema; else a final tool has to do."""
        return self.quirks.output == "json_schema"

    def tools(self, tools: Iterable[ToolSpec]) -> list[bytes]:
        encoded = []
        for tool in tools:
            if self.wire not in tool.memo:
                tool.memo[self.wire] = encoding.dumps(self.tool(tool))
            encoded.append(tool.memo[self.wire])
        return encoded

    def turns(self, messages: Iterable[Message]) -> list[tuple[str, bytes]]:
        """Encode messages: to a role and what is said."""
        key, waiting = self.key, self.waiting
        turns: list[tuple[str, bytes]] = []
        for message in messages:
            known: tuple[bytes, bytes] | None = message.memo.get(key)
            if known is None:
                known = message.memo[key] = self._message(message)
            if waiting and not isinstance(message, ToolMessage):
                turns.append(("user", b",".join(waiting)))
                waiting.clear()
            turns.append(("assistant" if isinstance(message, AssistantMessage) else "user", known[0]))
            if known[1]:
                waiting.append(known[1])
        return turns

    def pieces(self, last: Message | None = None) -> list[bytes]:
        """Encode the conversation as elements of an array; all but the last message may come joined, a block as one."""
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
        content = tuple(encoding.taken(message.content, self.quirks))
        if isinstance(message, ToolMessage):
            return encoding.dumps(self.result(message, content)), encoding.join(self.pictures(message, content))
        return encoding.join(self.user(message, content)), b""


class TurnEncoder(Encoder):
    """For servers that take turns of users and models, each a list of blocks."""

    heads: ClassVar = {"user": b'{"role":"user","content":[', "assistant": b'{"role":"assistant","content":['}
    filler: ClassVar[bytes]  # what a user says first, where none does

    @abstractmethod
    def block(self, part: Said | Thinking | ToolCall, kept: dict[str, Json]) -> dict[str, Json]:
        """Encode a part, with what the server wants back beside it; {} leaves it out."""

    def blocks(self, message: UserMessage | ToolMessage, content: Iterable[Said]) -> list[dict[str, Json]]:
        return [block for part in content if (block := self.block(part, {}))]

    def user(self, message: UserMessage, content: Sequence[Said]) -> list[dict[str, Json]]:
        return self.blocks(message, content)

    def reply(self, message: AssistantMessage) -> list[dict[str, Json]]:
        """Encode what of a reply may go back: no half calls, and thoughts only to the server that had them."""
        own = message.provider == self.row.name
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
        """Join turns; neighbours of one role share one, and the filler begins where no user does."""
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


# Replies ------------------------------------------------------------------------------------------

_CUT = (StopReason.MAX_TOKENS, StopReason.CONTEXT_WINDOW, StopReason.REFUSAL, StopReason.MALFORMED_CALL)

SHOWN = ("text", "thinking", "call")


class Block:
    """A part of a reply under construction."""

    __slots__ = ("closed", "fields", "given", "id", "index", "kind", "name", "pieces", "texts")

    def __init__(self, kind: str, fields: dict[str, Json] | None = None, *, closed: bool = False) -> None:
        self.kind = kind  # one of those that are shown; any other only goes back to the server
        self.fields = fields or {}  # what goes back, as the server gave it
        self.pieces: dict[str, list[str]] = {}  # of fields that come in pieces
        self.texts: list[str] = []
        self.closed = closed
        self.index = 0  # of a call among the calls
        self.id = self.name = ""
        self.given = ""  # the arguments of a call that came with its start; pieces replace them

    def add(self, key: str, piece: str) -> None:
        self.pieces.setdefault(key, []).append(piece)

    def kept(self) -> dict[str, Json]:
        """Return what goes back, put together."""
        for key, pieces in self.pieces.items():
            self.fields[key] = encoding.text_of(self.fields.get(key)) + "".join(pieces)
        self.pieces.clear()
        return self.fields


class Decoder:
    """Reads one reply out of blocks of bytes: a stream of events, or a whole body where a server sends that instead.

    Nothing is raised before `finish`: what came before an error in the same block must not be lost.
    """

    wire: ClassVar[str]
    noun: ClassVar[str]  # what the server should have sent
    end_mark: ClassVar[str]  # what a complete stream ends with
    empty: ClassVar[str] = "an empty stream"
    done_closes: ClassVar[bool] = False  # whether [DONE] says that the answer is complete
    parse: ClassVar[Any] = Parser  # makes what cuts a body into events
    stops: ClassVar[Mapping[StopReason, str]]  # what this server calls the end of a reply; any other word is unknown
    tokens: ClassVar[Mapping[str, Sequence[str]]]  # fields of Usage, and the places of which the first is counted
    apart: ClassVar[Mapping[str, Sequence[str]]] = {}  # counts that those of input and output leave out
    uncounted: ClassVar[int | None] = None  # tokens of the cache where they are not counted

    def __init__(self, quirks: Quirks, provider: str, model: str) -> None:
        self.failure: ProviderError | None = None
        self.late: list[ProviderEvent] = []  # what only the end of the body showed
        self.closed = False  # the server said that the answer is complete
        self.ended = False  # nothing that follows is part of the answer; the connection may stay open behind it
        self.raw_stop: str | None = None
        self.facts: dict[str, Json] = {}
        self.counts: dict[str, Json] = {}  # of tokens, as the server gave them
        self.blocks: dict[int, Block] = {}
        self.calls = 0
        self.quirks = quirks
        self.provider = provider
        self.model = model
        self.seen = False
        self.parser: Any = self.parse(provider)

    def feed(self, block: bytes) -> list[ProviderEvent]:
        """Take the next bytes of the body and return what they say."""
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
                self._fail(self.broken("an event of an unknown shape", getattr(data, "payload", data)))
        return events

    def _fail(self, error: ProviderError) -> None:
        """Keep an error; what cannot be read behind a complete answer is no part of it."""
        if self.closed and error.kind == "protocol":
            self.ended = True
        else:
            self.failure = error

    def finish(self) -> Done:
        """Return the reply once the body has ended, or raise what went wrong."""
        if self.failure is None:
            body = self.parser.body
            try:
                self._close(body)
                return Done(message=self._message())
            except ProviderError as error:
                self.failure = error
            except encoding.BAD_SHAPE:
                self.failure = self.broken(f"the answer is no {self.noun}, or ends in the middle", body or b"")
        raise self.failure

    def decode(self, body: bytes) -> Done:
        """Read a reply that came in one piece."""
        self.feed(body)
        return self.finish()

    # What a wire says

    def _event(self, event: Json, events: list[ProviderEvent]) -> None:
        """Take one event of a stream; what it raises of BAD_SHAPE becomes a protocol error."""
        raise NotImplementedError

    def _whole(self, reply: Json) -> None:
        """Take a reply that came in one piece, which may look like an event."""
        self._event(reply, self.late)

    def _learn(self, place: Mapping[str, Json], *names: str, **renamed: str) -> None:
        """Note facts of a reply, under the server's names or better ones."""
        for name in names:
            if place.get(name):
                self.facts[name] = place[name]
        for key, name in renamed.items():
            if place.get(key):
                self.facts[name] = place[key]

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
        return next((reason for reason, words in self.stops.items() if word in words.split()), StopReason.UNKNOWN)

    def _content(self, *, cut: bool) -> Iterable[Part]:
        """Return the parts of the reply; of one that was cut, only whole calls are complete."""
        return self._parts([self.blocks[at] for at in sorted(self.blocks)], cut=cut)

    def _sealed(self, block: Block) -> Json:
        """Return what of a block goes back as it came; None where its input is cut, as half of it is of no use."""
        kept, text = block.kept(), "".join(block.texts)
        try:
            return {**kept, "input": encoding.loads(text.encode())} if text else kept
        except encoding.BAD_SHAPE:
            return None

    # Blocks

    def _say(self, block: Block, text: str, events: list[ProviderEvent]) -> None:
        """Add a piece to a block, and show it."""
        if not text:
            return
        block.texts.append(text)
        if block.kind == "text":
            events.append(TextDelta(text=text))
        elif block.kind == "thinking":
            events.append(ThinkingDelta(text=text))
        elif block.kind == "call":
            events.append(ToolCallDelta(index=block.index, arguments=text))

    def _open_call(self, call_id: Json, name: Json, given: Json, events: list[ProviderEvent]) -> Block:
        block = Block("call")
        block.id, block.name, block.index = encoding.text_of(call_id), encoding.text_of(name), self.calls
        block.given = encoding.json_text(given)
        self.calls += 1
        events.append(ToolCallDelta(index=block.index, id=block.id, name=block.name, arguments=block.given))
        return block

    def _made_up_id(self, index: int) -> str:
        """Return an id for a call without one: the same each time, where the server named its answer."""
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
                    continue  # some servers fill in every field of a reply that calls nothing
                call_id = block.id if block.id and block.id not in used else self._made_up_id(block.index)
                used.add(call_id)
                # A reply that is cut off may close its last call all the same; only the JSON tells.
                whole = not cut or encoding.is_object(text) or not (text or block is blocks[-1])
                complete = block.closed and whole
                yield ToolCall(id=call_id, name=block.name, arguments=text, complete=complete, opaque=opaque)
            elif text or opaque:
                yield Text(text=text, opaque=opaque) if block.kind == "text" else Thinking(text=text, opaque=opaque)

    def _usage(self) -> Usage | None:
        """Normalise the tokens that were counted: the whole input, and the whole output."""
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
            raise self.broken(f"the stream ended without {self.end_mark}") if self.seen else self._nothing()

    def _tail(self) -> None:
        """Take the event that the end of the stream left without its blank line."""
        try:
            for data in self.parser.end():
                self._take(data, self.late)
        except (ProviderError, *encoding.BAD_SHAPE):
            if not self.closed:
                raise

    def _message(self) -> AssistantMessage:
        stop = self._stop_reason()
        if stop is StopReason.ERROR:
            raise self.error({"message": f"the server stopped with {self.raw_stop!r}"})
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
        """Return the error that a server reports inside its answer."""
        from glue.providers.errors import classify_event

        return classify_event(error, provider=self.provider, model=self.model, usage=self._usage())

    def broken(self, what: str, body: bytes = b"", kind: ErrorKind = "protocol") -> ProviderError:
        """Return the error of an answer that is not what the wire says, with how it begins."""
        text = body[:2000].decode("utf-8", "replace")
        if text:
            what = f"{what}: {one_line(text, 200)}"
        return ProviderError(what, kind=kind, provider=self.provider, model=self.model, body=text)

    def _nothing(self) -> ProviderError:
        if stray := self.parser.stray:
            return self.broken(f"the answer is no {self.noun}", stray)
        if self.parser.is_body:
            return self.broken("the answer ends in the middle")
        return self.broken(self.empty, kind="empty")


def _count(raw: Mapping[str, Json], places: Sequence[str]) -> int | None:
    """Return the first of several places that holds a count; a dot leads into an object."""
    for place in places:
        outer, _, inner = place.rpartition(".")
        found = (encoding.object_of(raw.get(outer)) if outer else raw).get(inner)
        if _is_amount(found):
            return int(found)
    return None


def _is_amount(value: Json) -> TypeGuard[float]:
    """Say whether a server's number can be counted with; NaN is none, and nothing is less than nothing."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e15


UNIONS = ("anyOf", "oneOf", "allOf")
CONDITIONS = ("if", "not", "allOf", "patternProperties", "dependentRequired", "dependentSchemas")


class ToolRules(NamedTuple):
    """What models on a wire are known to refuse or to ignore in a tool, and its encoder does not mend."""

    keywords: tuple[str, ...] = ()  # of a schema, wherever they stand
    at_root: tuple[str, ...] = ()  # of the parameters
    parameter_name: str = ""  # what one must match
    needs_items: bool = False  # a list without `items` is an error
    needs_letter: bool = False  # a tool's name must begin with one


class Wire(Closeable):
    """A provider on one wire: it encodes a request, sends it, and decodes the reply."""

    tool_rules: ClassVar[ToolRules]
    path: ClassVar[str] = ""
    models_path: ClassVar[str] = "/models"
    encoder: ClassVar[type[Encoder]]
    decoder: ClassVar[type[Decoder]]

    def __init__(self, row: Row, http: Any, model: str = "") -> None:
        self.row = row
        self.http = http
        self.name = row.name
        self.model = model or row.model

    @classmethod
    def encode(cls, request: Request, row: Row, model: str) -> bytes:
        """Make the body of a request."""
        return cls.encoder(request, row, model).body()

    def target(self, model: str, stream: bool) -> str:
        """Return the path to send a request to."""
        return self.path

    async def headers(self, options: Mapping[str, Json], target: str, body: bytes) -> Mapping[str, str]:
        """Return what this request needs beside the headers that all have."""
        return {}

    @property
    def capabilities(self) -> Capabilities:
        from glue.providers.models import capabilities_of

        return capabilities_of(self.row, self.model)

    async def aclose(self) -> None:
        await self.http.aclose()

    async def models(self) -> list[str]:
        """Ask the server which models it has."""
        headers = await self.headers({}, self.models_path, b"")
        async with self.http.get(self.models_path, headers) as blocks:
            body = b"".join([block async for block in blocks])
        try:
            found = encoding.loads(body)
            rows = found["data"] if "data" in found else found["models"]
            return sorted((row.get("id") or row["name"]).removeprefix("models/") for row in rows)
        except encoding.BAD_SHAPE:
            text = "the server's list of models cannot be read"
            raise ProviderError(text, kind="protocol", provider=self.name) from None

    def _check(self, request: Request, model: str) -> None:
        """Refuse what the server cannot take, where it is new: what an earlier turn holds is described instead."""
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
                if not encoding.accepts(getattr(self.row.quirks, what), kind):
                    from glue.providers import lookup
                    from glue.providers.models import VENDORS

                    others = [name for name in VENDORS if encoding.accepts(getattr(lookup(name).quirks, what), kind)]
                    hint = f"; {', '.join(others)} can" if others else ""
                    text = f"{model} cannot take {what} of type {kind}{hint}"
                    raise ProviderError(text, kind="invalid_request", provider=self.name, model=model)

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        model = request.model or self.model
        self._check(request, model)
        decoder = self.decoder(self.row.quirks, self.name, model)
        target, body = self.target(model, request.stream), self.encode(request, self.row, model)
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
                # The answer has come; what is lost is the end of its body.
                if not decoder.closed or error.kind not in ("timeout", "transient"):
                    raise
            done = decoder.finish()
        except ProviderError as error:
            # What a server says inside its stream may hold the key, as the body of an error may.
            error.args = tuple(self.http.mask(str(part)) for part in error.args)
            error.body = self.http.mask(error.body)
            error.code = error.code and self.http.mask(error.code)
            error.request_id = error.request_id and self.http.mask(error.request_id)
            error.emitted = emitted
            raise
        for event in decoder.late:
            yield event
        usage = done.message.usage
        if usage is not None and usage.cost is None:  # else the provider said it
            from glue.providers.models import cost

            done = Done(message=replace(done.message, usage=replace(usage, cost=cost(self.name, model, usage))))
        yield done
