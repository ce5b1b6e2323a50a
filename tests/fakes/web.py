"""A client that calls an ASGI app in the same task, and may disconnect early."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio

Data = Mapping[str, Any]


@dataclass
class Answer:
    """The status, the headers and the body of a response."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    ended: bool = False

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def data(self) -> list[Any]:
        """The messages of a stream of server-sent events."""
        lines = self.body.decode().split("\n\n")
        texts = [line.removeprefix("data: ") for line in lines if line]
        return [text if text == "[DONE]" else json.loads(text) for text in texts]


async def fetch(
    app: Any,
    path: str,
    body: Any = None,
    *,
    headers: Mapping[str, str] | None = None,
    on_data: Callable[[Data], Any] | None = None,
    hang_up_at: str = "",
) -> Answer:
    """Send a request to an app and return its answer.

    `on_data` is awaited with each message of a stream. The client disconnects when a message
    contains `hang_up_at`.
    """
    route, _, query = path.partition("?")
    given = {"host": "127.0.0.1:80", **(headers or {})}
    scope = {
        "type": "http",
        "method": "GET" if body is None else "POST",
        "path": route,
        "raw_path": route.encode(),
        "root_path": "",
        "scheme": "http",
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        "http_version": "1.1",
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 1),
    }
    answer, gone = Answer(), anyio.Event()
    sent: list[bool] = []

    async def receive() -> dict[str, Any]:
        if not sent:
            sent.append(True)
            text = body if isinstance(body, bytes) else json.dumps(body).encode()
            return {"type": "http.request", "body": b"" if body is None else text}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            return
        block = message.get("body", b"")
        answer.body += block
        answer.ended = not message.get("more_body")
        if hang_up_at and hang_up_at.encode() in block:
            gone.set()
            await anyio.lowlevel.checkpoint()
        if on_data is not None and block.startswith(b"data: {"):
            await on_data(json.loads(block[6:]))

    await app(scope, receive, send)
    gone.set()
    return answer
