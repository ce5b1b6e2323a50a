"""The bases of all wires: a decoder of replies, and a provider that joins encoder, decoder and HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from glue.errors import ErrorKind, ProviderError
from glue.limits import StopReason
from glue.messages import AssistantMessage, File, Image, Json, Part, Request, ToolCall, Usage, UserMessage
from glue.provider import Capabilities, Done, ProviderEvent
from glue.providers.catalog import Quirks, Row
from glue.providers.encoding import BAD_SHAPE, accepts, image_type, is_text, loads
from glue.providers.sse import Parser

_CUT = (StopReason.MAX_TOKENS, StopReason.CONTEXT_WINDOW, StopReason.REFUSAL, StopReason.MALFORMED_CALL)


class Decoder:
    """Reads one reply out of blocks of bytes: a stream of events, or a whole body where a server sends that instead.

    Nothing is raised before `finish`: what came before an error in the same block must not be lost.
    """

    noun: ClassVar[str]  # what the server should have sent
    end_mark: ClassVar[str]  # what a complete stream ends with
    empty: ClassVar[str] = "an empty stream"
    stops: ClassVar[Mapping[str, StopReason]] = {}

    def __init__(self, quirks: Quirks, provider: str, model: str) -> None:
        self.failure: ProviderError | None = None
        self.late: list[ProviderEvent] = []  # what only the end of the body showed
        self.closed = False  # the server said that the answer is complete
        self.ended = False  # nothing that follows is part of the answer; the connection may stay open behind it
        self.raw_stop: str | None = None
        self.facts: dict[str, Json] = {}
        self.counts: dict[str, Json] = {}  # of tokens, as the server gave them
        self.quirks = quirks
        self.provider = provider
        self.model = model
        self.seen = False
        self.parser: Any = self._new_parser()

    def feed(self, block: bytes) -> list[ProviderEvent]:
        """Take the next bytes of the body and return what they say."""
        events: list[ProviderEvent] = []
        data: Any = b""
        if self.failure is None and not self.ended:
            try:
                for data in self.parser.feed(block):
                    if data[:6] == b"[DONE]":  # some proxies end every stream with it
                        self._done()
                    else:
                        self._event(data, events)
                    if self.ended:
                        break
            except ProviderError as error:
                self.failure = error
            except BAD_SHAPE:
                self.failure = self.broken("an event of an unknown shape", data)
        return events

    def finish(self) -> Done:
        """Return the reply once the body has ended, or raise what went wrong."""
        if self.failure is None:
            body = self.parser.body
            try:
                self._close(body)
                return Done(message=self._message())
            except ProviderError as error:
                self.failure = error
            except BAD_SHAPE:
                self.failure = self.broken(f"the answer is no {self.noun}, or ends in the middle", body or b"")
        raise self.failure

    def decode(self, body: bytes) -> Done:
        """Read a reply that came in one piece."""
        self.feed(body)
        return self.finish()

    # What a wire says

    def _event(self, data: Any, events: list[ProviderEvent]) -> None:
        """Take one event of a stream; what it raises of BAD_SHAPE becomes a protocol error."""
        raise NotImplementedError

    def _whole(self, reply: Json) -> None:
        """Take a reply that came in one piece."""
        raise NotImplementedError

    def _content(self, *, cut: bool) -> Iterable[Part]:
        """Return the parts of the reply; of one that was cut, only whole calls are complete."""
        raise NotImplementedError

    def _usage(self) -> Usage | None:
        raise NotImplementedError

    def _new_parser(self) -> Any:
        return Parser(self.provider)

    def _done(self) -> None:
        self.ended = True

    def _stop_reason(self) -> StopReason:
        return self.stops.get(self.raw_stop or "", StopReason.UNKNOWN)

    # The end

    def _close(self, body: bytes | None) -> None:
        if body is not None:
            reply = loads(body)
            self._whole(reply[0] if isinstance(reply, list) and reply else reply)
            self.closed = True
        elif not self.ended:
            self._tail()
        if not self.closed:
            raise self.broken(f"the stream ended without {self.end_mark}") if self.seen else self._nothing()

    def _tail(self) -> None:
        """Take the event that the end of the stream left without its blank line."""
        closed = self.closed
        try:
            for data in self.parser.end():
                if data[:6] == b"[DONE]":
                    self._done()
                else:
                    self._event(data, self.late)
        except BAD_SHAPE:
            if not closed:
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

    def broken(self, what: str, body: Any = b"", kind: ErrorKind = "protocol") -> ProviderError:
        """Return the error of an answer that is not what the wire says."""
        text = body[:2000].decode("utf-8", "replace") if isinstance(body, bytes) else str(body)[:2000]
        return ProviderError(what, kind=kind, provider=self.provider, model=self.model, body=text)

    def _nothing(self) -> ProviderError:
        if stray := self.parser.stray:
            return self.broken(f"the answer is no {self.noun}: {stray.decode('utf-8', 'replace')!r}", stray)
        return self.broken(self.empty, kind="empty")


class Wire:
    """A provider on one wire: it encodes a request, sends it, and decodes the reply."""

    path: ClassVar[str] = ""
    models_query: ClassVar[Mapping[str, str | int]] = {}
    decoder: ClassVar[type[Decoder]]

    def __init__(self, row: Row, http: Any, model: str = "") -> None:
        self.row = row
        self.http = http
        self.name = row.name
        self.model = model or row.model

    @staticmethod
    def encode(request: Request, row: Row, model: str) -> bytes:
        """Make the body of a request."""
        raise NotImplementedError

    @staticmethod
    def takes_output(schema: Json, row: Row, model: str, *, tools: bool = False) -> bool:
        """Say whether an answer can be held to a schema; else a final tool has to do."""
        return row.quirks.output == "json_schema"

    @staticmethod
    def efforts(row: Row, model: str) -> tuple[str, ...]:
        """Return the levels of reasoning that a model tells apart; none where it cannot be asked to reason."""
        return row.quirks.efforts if row.quirks.reasoning else ()

    @staticmethod
    def files(row: Row, model: str) -> tuple[str, ...]:
        """Return the media types of files that a model takes."""
        return row.quirks.files

    def target(self, request: Request, model: str) -> str:
        """Return the path to send a request to."""
        return self.path

    async def headers(self, request: Request, target: str, body: bytes) -> Mapping[str, str]:
        """Return what this request needs beside the headers that all have."""
        return {}

    @property
    def capabilities(self) -> Capabilities:
        from glue.providers.models import capabilities_of

        return capabilities_of(self.row, self.model)

    async def models(self) -> list[str]:
        """Ask the server which models it has."""
        target = "/models"
        headers = await self.headers(Request(), target, b"")
        answer = await self.http.request("GET", target, query=self.models_query, headers=headers)
        if answer.status != 200:
            from glue.providers.errors import classify

            body = self.http.mask(answer.text).encode()
            raise classify(answer.status, answer.headers, body, provider=self.name)
        try:
            found = answer.json()
            rows = found["data"] if "data" in found else found["models"]
            return sorted((row.get("id") or row["name"]).removeprefix("models/") for row in rows)
        except BAD_SHAPE:
            text = "the server's list of models cannot be read"
            raise ProviderError(text, kind="protocol", provider=self.name) from None

    def _check(self, request: Request, model: str) -> None:
        """Refuse what the server cannot take, where it is new: what an earlier turn holds is described instead."""
        for message in reversed(request.messages):
            if isinstance(message, AssistantMessage):
                return
            for part in message.content if isinstance(message, UserMessage) else ():
                if isinstance(part, (Image, File)) and not self._takes(part, model):
                    raise self._refused(part, model)

    def _takes(self, part: Image | File, model: str) -> bool:
        if isinstance(part, Image):
            return accepts(self.row.quirks.images, image_type(part))
        return accepts(self.files(self.row, model), part.media_type) or is_text(part)

    def _refused(self, part: Image | File, model: str) -> ProviderError:
        from glue.providers import lookup
        from glue.providers.models import VENDORS

        what, kind = ("images", image_type(part)) if isinstance(part, Image) else ("files", part.media_type)
        others = [name for name in VENDORS if name != self.name and accepts(getattr(lookup(name).quirks, what), kind)]
        hint = f"; {', '.join(others)} can" if others else ""
        text = f"{model} cannot take {what} of type {kind}{hint}"
        return ProviderError(text, kind="invalid_request", provider=self.name, model=model)

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        model = request.model or self.model
        self._check(request, model)
        decoder = self.decoder(self.row.quirks, self.name, model)
        target, body = self.target(request, model), self.encode(request, self.row, model)
        headers = await self.headers(request, target, body)
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
            error.emitted = emitted
            raise
        for event in decoder.late:
            yield event
        yield self._priced(done, model)

    def _priced(self, done: Done, model: str) -> Done:
        """Put the cost on a reply, unless the provider said it."""
        from glue.providers.models import cost

        usage = done.message.usage
        price = cost(self.name, model, usage) if usage is not None and usage.cost is None else None
        if usage is None or price is None:
            return done
        return Done(message=replace(done.message, usage=replace(usage, cost=price)))
