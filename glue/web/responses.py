"""Responses that stream a run as server-sent events, and cancel it if the client disconnects."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import anyio

from glue.errors import GlueError
from glue.events import Event, event_to_json
from glue.result import RunResult
from glue.streams import Events
from glue.web.asgi import Receive, Response, Scope, Send

_HEAD = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # a proxy such as nginx must not collect the events
]


class RunEncoder(Protocol):
    """Translates a run into the messages of a protocol: JSON objects, one for each `data:` line."""

    headers: Mapping[str, str]
    last: str  # the text of the last `data:` line, or "" for none

    def event(self, event: Event) -> Iterable[Mapping[str, Any]]:
        """Return the messages that tell the client about an event of the run."""

    def end(self, result: RunResult[Any]) -> Iterable[Mapping[str, Any]]:
        """Return the messages that tell the client the result of the run."""

    def fail(self, error: GlueError) -> Iterable[Mapping[str, Any]]:
        """Return the messages that tell the client that the run raised `error`."""


class RunResponse(Response):
    """An HTTP response that runs an agent and sends the events of the run as they happen.

    The run is cancelled if the client disconnects, and the response ends when the run has ended.
    An error of the run is sent as a message of the stream.
    """

    def __init__(self, events: Events[Any], encoder: RunEncoder) -> None:
        self.events, self.encoder = events, encoder
        self.status_code, self.background = 200, None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        more = [(name.encode(), value.encode()) for name, value in self.encoder.headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": [*_HEAD, *more]})

        async def write(text: str) -> None:
            body = f"data: {text}\n\n".encode("utf-8", "replace")
            await send({"type": "http.response.body", "body": body, "more_body": True})

        async def write_all(messages: Iterable[Mapping[str, Any]]) -> None:
            for message in messages:
                await write(json.dumps(message, ensure_ascii=False, default=str))

        async with anyio.create_task_group() as group:
            group.start_soon(_cancel_on_hang_up, receive, group.cancel_scope)
            try:
                async with self.events as events:
                    async for event in events:
                        await write_all(self.encoder.event(event))
                await write_all(self.encoder.end(events.result))
            except GlueError as error:
                await write_all(self.encoder.fail(error))
            if self.encoder.last:
                await write(self.encoder.last)
            await send({"type": "http.response.body", "body": b""})
            group.cancel_scope.cancel()


async def _cancel_on_hang_up(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


class _PlainEncoder:
    """Encodes events as the JSON that `--json` prints, and the end of a run as one last message.

    The last message has the result of the run, or the error that ended it.
    """

    headers: Mapping[str, str] = {}
    last = ""

    def event(self, event: Event) -> Iterable[Mapping[str, Any]]:
        yield event_to_json(event)

    def end(self, result: RunResult[Any]) -> Iterable[Mapping[str, Any]]:
        yield {
            "type": "result",
            "outcome": str(result.outcome),
            "text": result.text,
            "cost": result.cost,
            "pending": [call.id for call in result.pending],
        }

    def fail(self, error: GlueError) -> Iterable[Mapping[str, Any]]:
        yield {"type": "error", "kind": type(error).__name__, "message": str(error)}


def sse(events: Events[Any]) -> RunResponse:
    """Return a response that sends the events of a run, each as the JSON that `--json` prints.

        async def ask(request):
            return sse(agent.stream(request.query_params["q"]))

    The last message is `{"type": "result", ...}`, or `{"type": "error", ...}` if the run failed.
    In the page, `new EventSource(url).onmessage` receives the messages.
    """
    if not isinstance(events, Events):
        raise TypeError(
            f"sse takes the events of a run, such as agent.stream(prompt), not {events!r}"
        )
    return RunResponse(events, _PlainEncoder())
