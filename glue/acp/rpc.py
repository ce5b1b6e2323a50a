"""JSON-RPC over two byte streams: one message per line, requests in both directions."""

from __future__ import annotations

import contextlib
import json
import logging
import re
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import anyio
import anyio.from_thread
import anyio.to_thread
from anyio.abc import TaskGroup

from glue.tasks import in_thread
from glue.telemetry import inject

MAX_LINE = 16 * 1024 * 1024  # bytes of one line
MAX_BACKLOG = 1024 * 1024  # bytes not yet written, above which `drain` waits
FLUSH_SECONDS = 5.0  # time to write the backlog after the other side has closed its stream

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
NO_METHOD = -32601
INVALID_PARAMS = -32602
INTERNAL = -32603
AUTH_REQUIRED = -32000
NOT_FOUND = -32002
CANCELLED = -32800

logger = logging.getLogger("glue.acp")

Work: TypeAlias = Callable[[], Awaitable[Any]]


class RpcError(Exception):
    """A JSON-RPC error: the answer to a request that failed."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data


class Response(NamedTuple):
    """The result of a request, and a function to call right after the result is sent."""

    result: Any
    then: Callable[[], None]


class Peer:
    """One side of a JSON-RPC connection.

    Args:
        source: the stream to read messages from.
        sink: the stream to write messages to.
        on_request: called with method and params of each request, in the order of arrival. It
            returns the async function whose result answers the request, or raises RpcError.
        on_notification: called with method and params of each notification.
    """

    tasks: TaskGroup  # set by `serve`; for tasks that outlive the request that starts them

    def __init__(
        self,
        source: BinaryIO,
        sink: BinaryIO,
        on_request: Callable[[str, dict[str, Any]], Work],
        on_notification: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self._source, self._sink = source, sink
        self._on_request, self._on_notification = on_request, on_notification
        self._outbox: deque[bytes] = deque()
        self._backlog = 0  # bytes not yet written
        self._queued, self._flushed = anyio.Event(), anyio.Event()
        self._pending: dict[int, tuple[anyio.Event, list[dict[str, Any]]]] = {}
        self._running: dict[Any, anyio.CancelScope] = {}  # requests of the other side, by id
        self._last_id = 0
        self._closing = False

    async def serve(self) -> None:
        """Answer requests until the other side closes its stream; then cancel unfinished tasks.

        The tasks are those that answer requests, and all others in `tasks`. Queued messages are
        still written for at most FLUSH_SECONDS.
        """
        async with anyio.create_task_group() as writing:
            writing.start_soon(self._write)
            async with anyio.create_task_group() as tasks:
                self.tasks = tasks
                # A thread of anyio, because `_read` calls back into the event loop.
                await anyio.to_thread.run_sync(self._read, abandon_on_cancel=True)
                tasks.cancel_scope.cancel()
            self._closing = True
            self._queued.set()
            writing.cancel_scope.deadline = anyio.current_time() + FLUSH_SECONDS

    def notify(self, method: str, params: Any) -> None:
        """Send a notification: a message that the other side does not answer."""
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    async def request(self, method: str, params: Any) -> Any:
        """Send a request, wait for its answer and return the result; raise RpcError if it fails.

        If the caller is cancelled, the other side is asked to cancel the request.
        """
        if meta := inject({}):
            params = {**params, "_meta": meta}
        done, answer = anyio.Event(), list[dict[str, Any]]()
        number = self.send_request(method, params)
        self._pending[number] = (done, answer)
        try:
            await done.wait()
        finally:
            del self._pending[number]
            if not answer:
                self.notify("$/cancel_request", {"requestId": number})
        if "error" in answer[0]:
            error = answer[0]["error"] if isinstance(answer[0]["error"], dict) else {}
            message = str(error.get("message", "failed"))
            raise RpcError(error.get("code", INTERNAL), message, error.get("data"))
        return answer[0].get("result")

    def send_request(self, method: str, params: Any) -> int:
        """Send a request without waiting for its answer, and return the id of the request.

        The answer is ignored, unless the caller adds the id to `_pending`. A task that may have
        been cancelled, and therefore cannot wait, uses this method to clean up.
        """
        self._last_id += 1
        self._send({"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params})
        return self._last_id

    async def drain(self) -> None:
        """Wait until at most MAX_BACKLOG bytes are left to write, or the connection closes."""
        while self._backlog > MAX_BACKLOG and not self._closing:
            await self._flushed.wait()

    def _read(self) -> None:
        """Read lines in a worker thread until the input ends; pass each line to the event loop."""
        while True:
            line = self._source.readline(MAX_LINE + 1)
            if len(line) > MAX_LINE:
                head = line[:4096]
                while line and not line.endswith(b"\n"):
                    line = self._source.readline(MAX_LINE)
                anyio.from_thread.run_sync(self._refuse_long_line, head, line[-4096:])
            elif not line.endswith(b"\n"):
                return  # the end of the stream, or an incomplete line before it
            elif line.strip():
                anyio.from_thread.run_sync(self._receive, line)

    def _refuse_long_line(self, head: bytes, tail: bytes) -> None:
        """Refuse a line that is too long. Fail the request that the line answers, or send an error.

        If the line is a request, the error has the id of the request, so that the editor does not
        wait for ever. If the line answers a request of this side, that request fails, and nothing
        is sent. The id is searched at the outer level of the JSON, in the first and the last bytes
        of the line.
        """
        message = f"a line is longer than {MAX_LINE // 2**20} MiB; send less at once"
        number, is_request = _outer_fields(head, tail)
        if is_request and number is not None:
            self._answer(number, error=RpcError(INVALID_REQUEST, message))
            return
        waiter = self._pending.get(number) if isinstance(number, int) else None
        if is_request or waiter is None:
            self._refuse(INVALID_REQUEST, message)
            return
        done, answer = waiter
        refused = f"the answer to this request is too long: {message}"
        answer.append({"error": {"code": INVALID_REQUEST, "message": refused}})
        done.set()

    def _refuse(self, code: int, message: str) -> None:
        """Send an error with the id null, for a line that is not a valid message or is too long."""
        self._send({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}})

    def _receive(self, line: bytes) -> None:
        """Parse a line and handle its request, notification or answer."""
        try:
            message = json.loads(line, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            self._refuse(PARSE_ERROR, "the received line is not valid JSON")
            return
        # `type` instead of isinstance, because a boolean is an int and not a valid id.
        if not isinstance(message, dict) or type(message.get("id")) not in (str, int, type(None)):
            self._refuse(INVALID_REQUEST, "the received line is not a JSON-RPC message")
        elif isinstance(message.get("method"), str):
            self._dispatch(message)
        elif "method" not in message and ("result" in message or "error" in message):
            waiter = self._pending.get(message.get("id"))  # type: ignore[arg-type]
            if waiter is not None:
                done, answer = waiter
                answer.append(message)
                done.set()
        else:
            self._refuse(INVALID_REQUEST, "the received line is neither a request nor an answer")

    def _dispatch(self, message: dict[str, Any]) -> None:
        """Start the task that answers a request, or handle a notification.

        The notification `$/cancel_request` cancels such a task; `on_notification` handles all
        others. An RpcError is the answer to a request, and is ignored for a notification.
        """
        method, params = message["method"], message.get("params")
        params = {} if params is None else params
        try:
            if not isinstance(params, dict):
                raise RpcError(INVALID_PARAMS, "params must be an object")
            if "id" in message:
                self._start(message["id"], method, params)
            elif method == "$/cancel_request":
                self._cancel_running(params.get("requestId"))
            else:
                self._on_notification(method, params)
        except RpcError as error:
            if "id" in message:
                self._answer(message["id"], error=error)

    def _start(self, id: Any, method: str, params: dict[str, Any]) -> None:
        """Start the task that answers a request of the other side."""
        work = self._on_request(method, params)
        # The scope exists before the task begins, so that the next line can cancel it.
        scope = self._running[id] = anyio.CancelScope()
        self.tasks.start_soon(self._run, id, method, work, scope)

    def _cancel_running(self, id: Any) -> None:
        """Cancel the task that answers a request of the other side, if the task still runs."""
        running = self._running.get(id) if isinstance(id, (str, int)) else None
        if running is not None:
            running.cancel()

    async def _run(self, id: Any, method: str, work: Work, scope: anyio.CancelScope) -> None:
        """Call `work`, the function that answers a request, and send its result or error."""
        with scope:
            try:
                result = await work()
            except RpcError as error:
                self._answer(id, error=error)
            except Exception as error:  # a bug: without an answer the editor would wait for ever
                logger.exception("%s failed", method)
                self._answer(id, error=RpcError(INTERNAL, f"{type(error).__name__}: {error}"))
            else:
                self._answer(id, result=result.result if isinstance(result, Response) else result)
                if isinstance(result, Response):
                    result.then()
        self._running.pop(id, None)
        if scope.cancelled_caught:
            self._answer(id, error=RpcError(CANCELLED, "the request was cancelled"))

    def _answer(self, id: Any, result: Any = None, error: RpcError | None = None) -> None:
        """Send the answer to the request `id`: its result, or its error."""
        body = {"result": result}
        if error is not None:
            data = {} if error.data is None else {"data": error.data}
            body = {"error": {"code": error.code, "message": str(error), **data}}
        self._send({"jsonrpc": "2.0", "id": id, **body})

    def _send(self, message: dict[str, Any]) -> None:
        """Encode a message and append it to the outbox, which `_write` sends."""
        line = json.dumps(message, separators=(",", ":"), default=str).encode() + b"\n"
        self._outbox.append(line)
        self._backlog += len(line)
        self._queued.set()

    async def _write(self) -> None:
        """Write the messages of the outbox to the sink until the connection closes."""
        while True:
            while self._outbox:
                block = b"".join(self._outbox)
                self._outbox.clear()
                await in_thread(self._write_block, block)
                self._backlog -= len(block)
                self._flushed.set()
                self._flushed = anyio.Event()
            if self._closing:
                return
            self._queued = anyio.Event()
            await self._queued.wait()

    def _write_block(self, block: bytes) -> None:
        """Write bytes to the sink; drop them if the other side has closed its stream."""
        try:
            self._sink.write(block)
            self._sink.flush()
        except (OSError, ValueError):
            logger.debug("the editor has closed the connection")


_ID = rb'"id"\s*:\s*(-?\d+|"(?:[^"\\]|\\.)*")'
_METHOD = rb'"method"\s*:\s*"'


def _outer_fields(head: bytes, tail: bytes) -> tuple[str | int | None, bool]:
    """Return (id, has_method) for a JSON-RPC message. The id is None if it is missing or invalid.

    `head` and `tail` are the first and the last bytes of its line. Only fields of the outer object
    count, not those inside `params` or `result`.

    >>> _outer_fields(b'{"id": 3, "method": "x", "params": {"id": 4', b'}}')
    (3, True)
    """
    outer = _outer_level(head) + b" " + _outer_level(tail[::-1], backwards=True)[::-1]
    found = re.search(_ID, outer)
    number = None
    with contextlib.suppress(ValueError):  # such as 007, or bytes that are not UTF-8
        number = json.loads(found[1]) if found else None
    return number, re.search(_METHOD, outer) is not None


def _outer_level(text: bytes, *, backwards: bool = False) -> bytes:
    """Return the text at the outer level of a JSON object, without nested objects and lists.

    The JSON may be cut off at its end. If `backwards` is true, the text is a JSON object in
    reverse order, so that a closing brace begins it.
    """
    opening, closing = (b"}]", b"{[") if backwards else (b"{[", b"}]")
    depth, kept, is_string = 0, bytearray(), False
    for index, code in enumerate(text):
        char = bytes((code,))
        if char == b'"' and not _is_escaped(text, index, 1 if backwards else -1):
            is_string = not is_string
        elif not is_string and char in opening:
            depth += 1
            continue
        elif not is_string and char in closing:
            depth -= 1
            continue
        if depth == 1:
            kept += char
    return bytes(kept)


def _is_escaped(text: bytes, index: int, step: int) -> bool:
    """Return whether an odd number of backslashes is directly before the byte at `index`.

    If `step` is 1 instead of -1, look after the byte, because the text is read backwards.
    """
    at = index + step
    while 0 <= at < len(text) and text[at : at + 1] == b"\\":
        at += step
    return (at - index) % 2 == 0


def _refuse_constant(text: str) -> Any:
    """Raise ValueError for NaN and Infinity, which Python's JSON parser accepts by default."""
    raise ValueError(f"{text} is not a number in JSON")
