"""JSON-RPC over two byte streams: one message a line, requests both ways, bounded lines and backlog."""

from __future__ import annotations

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

from glue.telemetry import inject

MAX_LINE = 16 * 1024 * 1024  # bytes of one line
MAX_BACKLOG = 1024 * 1024  # bytes that may wait for a slow reader before a run waits for it too
FLUSH_SECONDS = 5.0  # seconds to send what is left when the other end has gone quiet

PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS, INTERNAL = -32700, -32600, -32601, -32602, -32603
AUTH_REQUIRED, NOT_FOUND, CANCELLED = -32000, -32002, -32800

logger = logging.getLogger("glue.acp")

Work: TypeAlias = Callable[[], Awaitable[Any]]


class RpcError(Exception):
    """An error that answers a request."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data


class Response(NamedTuple):
    """A result, with something to do right after it is sent."""

    result: Any
    then: Callable[[], None]


class Peer:
    """One end of a connection.

    `call` is told of each request the moment it is read, so that order counts, and gives the work that
    answers it; `notice` is told of each notification.
    """

    tasks: TaskGroup  # while it serves: for what must outlive one request

    def __init__(
        self,
        source: BinaryIO,
        sink: BinaryIO,
        call: Callable[[str, dict[str, Any]], Work],
        notice: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self._source, self._sink = source, sink
        self._call, self._notice = call, notice
        self._outbox: deque[bytes] = deque()
        self._backlog = 0  # bytes not yet written
        self._queued, self._flushed = anyio.Event(), anyio.Event()
        self._pending: dict[int, tuple[anyio.Event, list[dict[str, Any]]]] = {}
        self._running: dict[Any, anyio.CancelScope] = {}  # requests of the other end, by their ids
        self._last_id = 0
        self._closing = False

    async def serve(self) -> None:
        """Answer until the other end closes; then cancel what is still under way."""
        async with anyio.create_task_group() as writing:
            writing.start_soon(self._write)
            async with anyio.create_task_group() as tasks:
                self.tasks = tasks
                await anyio.to_thread.run_sync(self._read, abandon_on_cancel=True)
                tasks.cancel_scope.cancel()
            self._closing = True
            self._queued.set()
            writing.cancel_scope.deadline = anyio.current_time() + FLUSH_SECONDS

    def notify(self, method: str, params: Any) -> None:
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    async def request(self, method: str, params: Any) -> Any:
        """Ask the other end and wait for its answer."""
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
            raise RpcError(error.get("code", INTERNAL), str(error.get("message", "failed")), error.get("data"))
        return answer[0].get("result")

    def send_request(self, method: str, params: Any) -> int:
        """Ask without waiting: for tidying up, when whoever asks may be cancelled."""
        self._last_id += 1
        self._send({"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params})
        return self._last_id

    async def drain(self) -> None:
        """Wait while the other end is far behind with reading."""
        while self._backlog > MAX_BACKLOG and not self._closing:
            await self._flushed.wait()

    # Reading --------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Read lines in a thread and hand each to the event loop, in order."""
        while True:
            line = self._source.readline(MAX_LINE + 1)
            if len(line) > MAX_LINE:
                head = line[:4096]
                while line and not line.endswith(b"\n"):
                    line = self._source.readline(MAX_LINE)
                anyio.from_thread.run_sync(self._too_long, head, line[-4096:])
            elif not line.endswith(b"\n"):
                return  # the end, or half a line before it
            elif line.strip():
                anyio.from_thread.run_sync(self._receive, line)

    def _too_long(self, head: bytes, tail: bytes) -> None:
        """Refuse a line that is too long; whoever waits for it as an answer must not wait for ever."""
        message = f"a line is longer than {MAX_LINE} bytes"
        found = re.search(rb'"id"\s*:\s*(\d+)', head) or re.search(rb'"id"\s*:\s*(\d+)\s*}?\s*$', tail)
        waiter = self._pending.get(int(found[1])) if found and b'"method"' not in head else None
        if waiter is None:
            self._refuse(INVALID_REQUEST, message)
        else:
            waiter[1].append({"error": {"code": INVALID_REQUEST, "message": f"the answer was refused: {message}"}})
            waiter[0].set()

    def _refuse(self, code: int, message: str) -> None:
        self._send({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}})

    def _receive(self, line: bytes) -> None:
        try:
            message = json.loads(line, parse_constant=_no_number)
        except (ValueError, RecursionError):
            self._refuse(PARSE_ERROR, "not a line of JSON")
            return
        if not isinstance(message, dict) or type(message.get("id")) not in (str, int, type(None)):  # True is no id
            self._refuse(INVALID_REQUEST, "not a JSON-RPC message")
        elif isinstance(message.get("method"), str):
            self._dispatch(message)
        elif "method" not in message and ("result" in message or "error" in message):
            if (waiter := self._pending.get(message.get("id"))) is not None:  # type: ignore[arg-type]
                waiter[1].append(message)
                waiter[0].set()
        else:
            self._refuse(INVALID_REQUEST, "neither a request nor an answer")

    def _dispatch(self, message: dict[str, Any]) -> None:
        method, params = message["method"], message.get("params")
        params = {} if params is None else params
        try:
            if not isinstance(params, dict):
                raise RpcError(INVALID_PARAMS, "params must be an object")
            if "id" not in message:
                wanted = params.get("requestId")
                if method != "$/cancel_request":
                    self._notice(method, params)
                elif isinstance(wanted, (str, int)) and (running := self._running.get(wanted)) is not None:
                    running.cancel()
                return
            work = self._call(method, params)
        except RpcError as error:
            if "id" in message:
                self._answer(message["id"], error=error)
        else:
            scope = self._running[message["id"]] = anyio.CancelScope()  # from now on it can be cancelled
            self.tasks.start_soon(self._run, message["id"], method, work, scope)

    async def _run(self, id: Any, method: str, work: Work, scope: anyio.CancelScope) -> None:
        with scope:
            try:
                result = await work()
            except RpcError as error:
                self._answer(id, error=error)
            except Exception as error:  # a bug must answer too, or the editor waits for ever
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
        body = {"result": result}
        if error is not None:
            data = {} if error.data is None else {"data": error.data}
            body = {"error": {"code": error.code, "message": str(error), **data}}
        self._send({"jsonrpc": "2.0", "id": id, **body})

    # Writing --------------------------------------------------------------------------------------

    def _send(self, message: dict[str, Any]) -> None:
        line = json.dumps(message, separators=(",", ":"), default=str).encode() + b"\n"
        self._outbox.append(line)
        self._backlog += len(line)
        self._queued.set()

    async def _write(self) -> None:
        while True:
            while self._outbox:
                block = b"".join(self._outbox)
                self._outbox.clear()
                await anyio.to_thread.run_sync(self._put, block, abandon_on_cancel=True)
                self._backlog -= len(block)
                self._flushed.set()
                self._flushed = anyio.Event()
            if self._closing:
                return
            self._queued = anyio.Event()
            await self._queued.wait()

    def _put(self, block: bytes) -> None:
        try:
            self._sink.write(block)
            self._sink.flush()
        except (OSError, ValueError):
            logger.debug("the editor is gone")  # the reader will see its end too


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")
