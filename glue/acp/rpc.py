"""JSON-RPC over lines: one message a line, requests both ways, nothing lost and nothing else sent."""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, BinaryIO

import anyio
import anyio.from_thread
import anyio.to_thread
from anyio.abc import TaskGroup

LONGEST = 16 * 1024 * 1024  # bytes of one line

PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS, INTERNAL = -32700, -32600, -32601, -32602, -32603
AUTH_REQUIRED, NOT_FOUND = -32000, -32002

logger = logging.getLogger("glue.acp")


class RpcError(Exception):
    """What a request is answered with when it cannot be done."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data

    def to_json(self) -> dict[str, Any]:
        error: dict[str, Any] = {"code": self.code, "message": str(self)}
        return error if self.data is None else {**error, "data": self.data}


class Peer:
    """One end of a connection. `accept` may do things at once, before the request's own task runs."""

    def __init__(
        self,
        source: BinaryIO,
        sink: BinaryIO,
        handle: Callable[[str, Any], Awaitable[Any]],
        accept: Callable[[str, Any], None] = lambda method, params: None,
    ) -> None:
        self._source, self._sink = source, sink
        self._handle, self._accept = handle, accept
        self._out: deque[bytes] = deque()
        self._more = anyio.Event()
        self._pending: dict[int, tuple[anyio.Event, list[Any]]] = {}
        self._last = 0
        self._closing = False
        self._tasks: TaskGroup | None = None

    async def serve(self) -> None:
        """Answer until the other end closes; then cancel what is still under way."""
        async with anyio.create_task_group() as writing:
            writing.start_soon(self._write)
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                await anyio.to_thread.run_sync(self._read, abandon_on_cancel=True)
                tasks.cancel_scope.cancel()
            self._closing = True
            self._more.set()

    def notify(self, method: str, params: Any) -> None:
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    async def request(self, method: str, params: Any) -> Any:
        """Ask the other end and wait for its answer."""
        self._last += 1
        number, done, answer = self._last, anyio.Event(), []  # type: ignore[var-annotated]
        self._pending[number] = (done, answer)
        self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        try:
            await done.wait()
        finally:
            self._pending.pop(number, None)
        message = answer[0]
        if "error" in message:
            error = message["error"] if isinstance(message["error"], dict) else {}
            raise RpcError(error.get("code", INTERNAL), str(error.get("message", "failed")), error.get("data"))
        return message.get("result")

    def send_request(self, method: str, params: Any) -> None:
        """Ask without waiting: for tidying up, when whoever asked may be cancelled."""
        self._last += 1
        self._send({"jsonrpc": "2.0", "id": self._last, "method": method, "params": params})

    # Reading --------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Read lines in a thread and hand each to the event loop, in order."""
        while True:
            line = self._source.readline(LONGEST + 1)
            if len(line) > LONGEST:
                while line and not line.endswith(b"\n"):
                    line = self._source.readline(LONGEST)
                anyio.from_thread.run_sync(self._refuse, INVALID_REQUEST, f"a line is longer than {LONGEST} bytes")
            elif not line.endswith(b"\n"):
                return  # the end, or half a line before it
            elif line.strip():
                anyio.from_thread.run_sync(self._line, line)

    def _refuse(self, code: int, message: str) -> None:
        self._send({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}})

    def _line(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            self._refuse(PARSE_ERROR, "not a line of JSON")
            return
        if not isinstance(message, dict) or not isinstance(message.get("method", ""), str):
            self._refuse(INVALID_REQUEST, "not a JSON-RPC message")
        elif "method" in message:
            self._called(message)
        elif message.get("id") in self._pending and ("result" in message or "error" in message):
            done, answer = self._pending[message["id"]]
            answer.append(message)
            done.set()
        elif "result" not in message and "error" not in message:
            self._refuse(INVALID_REQUEST, "neither a request nor an answer")

    def _called(self, message: dict[str, Any]) -> None:
        method, params = message["method"], message.get("params")
        params = {} if params is None else params
        tasks = self._tasks
        if tasks is None:
            return
        try:
            self._accept(method, params)
        except RpcError as error:
            if "id" in message:
                self._answer(message["id"], error=error)
            return
        if "id" in message:
            tasks.start_soon(self._run, message["id"], method, params)

    async def _run(self, id: Any, method: str, params: Any) -> None:
        try:
            result = await self._handle(method, params)
        except RpcError as error:
            self._answer(id, error=error)
        except Exception as error:  # a bug must answer too, or the editor waits for ever
            logger.exception("%s failed", method)
            self._answer(id, error=RpcError(INTERNAL, f"{type(error).__name__}: {error}"))
        else:
            self._answer(id, result=result)

    def _answer(self, id: Any, result: Any = None, error: RpcError | None = None) -> None:
        body = {"result": result} if error is None else {"error": error.to_json()}
        self._send({"jsonrpc": "2.0", "id": id, **body})

    # Writing --------------------------------------------------------------------------------------

    def _send(self, message: dict[str, Any]) -> None:
        self._out.append(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        self._more.set()

    async def _write(self) -> None:
        while True:
            if not self._out:
                if self._closing:
                    return
                self._more = anyio.Event()
                if not self._out:
                    await self._more.wait()
                continue
            block = b"".join(self._out)
            self._out.clear()
            await anyio.to_thread.run_sync(self._put, block)

    def _put(self, block: bytes) -> None:
        try:
            self._sink.write(block)
            self._sink.flush()
        except (BrokenPipeError, ValueError):
            self._out.clear()  # the editor is gone; the reader will see its end too
