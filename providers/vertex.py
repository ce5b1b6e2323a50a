"""Gemini on Vertex: the same wire, with the tokens of Google Cloud instead of a key."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from glue.messages import Request
from glue.provider import ProviderEvent
from glue.providers import wire
from glue.providers.catalog import Row
from glue.providers.gemini import Decoder, path
from glue.providers.gemini import decode_json as decode_json
from glue.providers.gemini import encode as encode
from glue.providers.google import Tokens


class Vertex:
    """Ask Gemini through a Google Cloud project; the base URL names project and location."""

    def __init__(self, row: Row, http: Any, model: str = "", tokens: Tokens | None = None) -> None:
        self.row = row
        self.http = http
        self.name = row.name
        self.model = model or row.model
        self._tokens = tokens or Tokens()

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        model = request.model or self.model
        decoder = Decoder(self.row.quirks, self.name, model)
        target, body = path(model, request.stream), encode(request, self.row, model)
        async with self.http.post(target, body, await self._headers(), model=model) as blocks:
            async for block in blocks:
                for event in decoder.feed(block):
                    yield event
                if decoder.failure is not None:
                    break
        done = decoder.finish()
        for event in decoder.late:
            yield event
        yield wire.priced(done, self.name, model)

    async def _headers(self) -> dict[str, str]:
        if self.http.authorized:
            return {}
        token = await self._tokens.get()
        self.http.hide(token)
        return {"authorization": f"Bearer {token}"}
