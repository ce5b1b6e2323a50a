"""Parsers that split a stream of bytes into server-sent events, or into JSON objects."""

from __future__ import annotations

import re

from glue.errors import ProviderError

EVENT_LIMIT = 16 * 1024 * 1024
TOTAL_LIMIT = 32 * 1024 * 1024

_LEAD = b" \t\r\n\xef\xbb\xbf"  # white space and the bytes of a byte order mark
_OTHER_FIELDS = (b"", b"event", b"id", b"retry")  # the empty name is that of a comment


class Parser:
    """A parser of server-sent events that returns the data of each complete event.

    Blocks of bytes may be cut anywhere.

    The name of an event is dropped: every wire repeats it inside the data. Some servers answer a
    streaming request with JSON. Such a body is kept for `body`, or split into its outermost objects
    if `objects` is true.
    """

    def __init__(
        self,
        provider: str = "",
        *,
        objects: bool = False,
        event_limit: int = EVENT_LIMIT,
        total_limit: int = TOTAL_LIMIT,
    ) -> None:
        self._provider = provider
        self._objects = Objects(provider) if objects else None
        self._event_limit = event_limit
        self._total_limit = total_limit
        self._total = 0
        self._parts: list[bytes] = []  # the event that has not ended yet
        self._size = 0
        self._carriage = False  # the last byte was a CR; a LF that follows belongs to it
        self._fresh = True  # only white space and a byte order mark were seen
        self.is_body = False
        self.stray = b""  # the first line that is not part of an event stream

    def feed(self, block: bytes) -> list[bytes]:
        """Parse the next bytes of the stream; return the data of events that are now complete."""
        self._total += len(block)
        if self._total > self._total_limit:
            raise self._too_long("a stream", self._total_limit)
        if self._fresh:
            block = block.lstrip(_LEAD)
            self._fresh = not block
            self.is_body = block[:1] in (b"{", b"[")
        if self.is_body:
            if self._objects is not None:
                return self._objects.feed(block)
            self._parts.append(block)
            return []
        if self._carriage or b"\r" in block:
            block = self._newlines(block)

        parts = self._parts
        if parts:
            if b"\n\n" not in block and not (block.startswith(b"\n") and parts[-1].endswith(b"\n")):
                return self._keep(block)
            parts.append(block)
            block = b"".join(parts)
            parts.clear()
            self._size = 0
        pieces = block.split(b"\n\n")
        if len(block) > self._event_limit and max(map(len, pieces)) > self._event_limit:
            raise self._too_long("one event", self._event_limit)
        rest = pieces.pop()
        if rest:
            self._keep(rest)

        events: list[bytes] = []
        for piece in pieces:
            if piece.startswith(b"data: ") and b"\n" not in piece and len(piece) > 6:
                events.append(piece[6:])
            elif piece:
                self._fields(piece, events)
        return events

    def end(self) -> list[bytes]:
        """End the stream, and return a list with the data of an unfinished event, or [] if none.

        An event is unfinished if no blank line follows it.
        """
        events: list[bytes] = []
        if self._parts and not self.is_body:
            self._fields(b"".join(self._parts), events)
            self._parts.clear()
        return events

    @property
    def body(self) -> bytes | None:
        """The bytes of the response so far if they are JSON instead of events, else None.

        None also if the JSON is split into objects.
        """
        return b"".join(self._parts) if self.is_body and self._objects is None else None

    def _newlines(self, block: bytes) -> bytes:
        if self._carriage and block.startswith(b"\n"):
            block = block[1:]
            self._carriage = False
        if block:
            self._carriage = block.endswith(b"\r")
        return block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _keep(self, rest: bytes) -> list[bytes]:
        if rest:
            self._parts.append(rest)
            self._size += len(rest)
            if self._size > self._event_limit:
                raise self._too_long("one event", self._event_limit)
        return []

    def _too_long(self, what: str, limit: int) -> ProviderError:
        return ProviderError(
            f"{what} has more than {limit:,} bytes", kind="protocol", provider=self._provider
        )

    def _fields(self, piece: bytes, events: list[bytes]) -> None:
        data: list[bytes] = []
        for line in piece.split(b"\n"):
            name, _, value = line.partition(b":")
            if name == b"data":
                data.append(value[1:] if value.startswith(b" ") else value)
            # The form of an error in llama.cpp until late in 2025.
            elif name == b"error" and value.lstrip().startswith(b"{"):
                data.append(b'{"error":' + value + b"}")
            elif name not in _OTHER_FIELDS and not self.stray:
                self.stray = line[:200]
        if any(data):
            events.append(data[0] if len(data) == 1 else b"\n".join(data))


_TOKEN = re.compile(rb'["\\{}]')
_QUOTE, _ESCAPE, _OPEN = b'"\\{'


class Objects:
    """A parser that splits a stream of bytes into its outermost JSON objects.

    Blocks of bytes may be cut anywhere.
    """

    def __init__(self, provider: str = "") -> None:
        self._provider = provider
        self._buffer = bytearray()  # the object that has not ended yet
        self._at = 0  # the position in the buffer of the next byte to read
        self._depth = 0
        self._in_string = False

    def feed(self, block: bytes) -> list[bytes]:
        """Parse the next bytes of the stream; return the objects that are now complete."""
        self._buffer += block
        if len(self._buffer) > EVENT_LIMIT:
            raise ProviderError(
                "the response is too long", kind="protocol", provider=self._provider
            )
        objects: list[bytes] = []
        start = 0
        while found := _TOKEN.search(self._buffer, self._at):
            self._at = found.end()
            token = self._buffer[found.start()]
            if token == _ESCAPE:
                if self._at == len(self._buffer):  # the escaped character has not arrived
                    self._at -= 1
                    break
                self._at += 1
            elif token == _QUOTE:
                self._in_string = not self._in_string
            elif self._in_string:
                pass  # a brace in a text
            elif token == _OPEN:
                if self._depth == 0:
                    start = found.start()
                self._depth += 1
            elif self._depth:
                self._depth -= 1
                if self._depth == 0:
                    objects.append(bytes(self._buffer[start : self._at]))
                    start = self._at
        else:
            self._at = len(self._buffer)
        del self._buffer[:start]
        self._at -= start
        return objects
