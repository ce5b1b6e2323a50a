"""Objects out of one JSON array that grows block by block."""

from __future__ import annotations

import re

from glue.errors import ProviderError
from glue.providers.sse import EVENT_LIMIT, TOTAL_LIMIT

_TOKEN = re.compile(rb'["\\{}]')
_QUOTE, _ESCAPE, _OPEN = b'"\\{'


class Objects:
    """Take blocks cut anywhere, give each whole outermost object as bytes."""

    def __init__(self, provider: str = "") -> None:
        self._provider = provider
        self._buffer = bytearray()  # of the object that has not ended yet
        self._at = 0  # what is before it was looked at
        self._depth = 0
        self._in_string = False
        self._total = 0
        self.stray = b""

    def feed(self, block: bytes) -> list[bytes]:
        """Take the next bytes and return the objects that they complete."""
        self._total += len(block)
        self._buffer += block
        if len(self._buffer) > EVENT_LIMIT or self._total > TOTAL_LIMIT:
            raise ProviderError("an answer that is too long", kind="protocol", provider=self._provider)
        objects: list[bytes] = []
        start = 0
        while found := _TOKEN.search(self._buffer, self._at):
            self._at = found.end()
            token = self._buffer[found.start()]
            if token == _ESCAPE:
                if self._at == len(self._buffer):  # what it escapes is yet to come
                    self._at -= 1
                    break
                self._at += 1
            elif token == _QUOTE:
                self._in_string = not self._in_string
            elif self._in_string:
                continue
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

    def end(self) -> list[bytes]:
        """Return nothing: an object that was cut off is of no use."""
        return []
