"""A connection to an MCP server that runs as a process, with limits on its output."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

import anyio
from anyio.abc import ByteReceiveStream, Process

from glue.text import one_line
from glue.tools.mcp.config import ServerConfig
from glue.tools.mcp.gate import clean
from glue.tools.mcp.sdk import SessionMessage, get_default_environment, types

MAX_MESSAGE = 32 * 1024 * 1024  # bytes of one message of a server
TAIL = 4_000  # bytes of standard error that are kept
EXIT_SECONDS = 2.0  # the time for a server to end by itself, and again after SIGTERM
FLUSH_SECONDS = 0.5  # the time to write messages that are still queued


class ServerOutput:
    """The last stderr of a server process, and how many of its stdout lines are not messages."""

    def __init__(self) -> None:
        self.tail = b""  # the last bytes of standard error
        self.noise = 0  # lines of standard output that are not messages
        self.fault = ""  # why the output is no longer read

    def add(self, block: bytes) -> None:
        """Add a block of standard error; only the last bytes are kept."""
        self.tail = (self.tail + block)[-TAIL:]

    @property
    def last_line(self) -> str:
        """The last line of standard error that is not empty, or "" if there is none."""
        lines = clean(self.tail.decode("utf-8", "replace")).split("\n")
        return next((one_line(line, 300) for line in reversed(lines) if line.strip()), "")


@asynccontextmanager
async def open_process(
    config: ServerConfig, output: ServerOutput, on_noise: Callable[[], None]
) -> AsyncIterator[tuple[Any, Any]]:
    """Run the process of a server in an `async with` block; yield streams to receive and to send.

    Args:
        config: the command of the server.
        output: receives standard error.
        on_noise: is called at the first line of standard output that is not a message.
    """
    process = await anyio.open_process(
        [config.command, *config.args],
        env={**get_default_environment(), **config.env},
        cwd=config.cwd,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    received, incoming = anyio.create_memory_object_stream[Any](0)
    outgoing, queued = anyio.create_memory_object_stream[Any](0)
    written = anyio.Event()

    async def read() -> None:
        async with received, aclosing(_lines(process.stdout, output)) as lines:
            async for line in lines:
                message = _parse(line)
                if message is not None:
                    await received.send(message)
                elif line.strip():
                    output.noise += 1
                    if output.noise == 1:
                        on_noise()

    async def read_quietly() -> None:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            await read()

    async def read_errors() -> None:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            async for block in _stream(process.stderr):
                output.add(block)

    async def write() -> None:
        try:
            async with queued:
                async for message in queued:
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await process.stdin.send(f"{text}\n".encode())  # type: ignore[union-attr]
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            await received.aclose()  # so that no request waits for an answer
        finally:
            written.set()

    async with anyio.create_task_group() as tasks:
        for task in (read_quietly, read_errors, write):
            tasks.start_soon(task)
        try:
            yield incoming, outgoing
        finally:
            with anyio.CancelScope(shield=True):
                incoming.close()
                outgoing.close()
                with anyio.move_on_after(FLUSH_SECONDS):
                    await written.wait()
                await _end(process)
            tasks.cancel_scope.cancel()


def _stream(stream: ByteReceiveStream | None) -> ByteReceiveStream:
    assert stream is not None  # every stream of the process is a pipe
    return stream


async def _lines(
    stream: ByteReceiveStream | None, output: ServerOutput
) -> AsyncGenerator[bytes, None]:
    """Yield the lines of a stream; if a line is too long, set `output.fault` and stop."""
    pieces: list[bytes] = []
    size = 0
    async for block in _stream(stream):
        first, *rest = block.split(b"\n")
        pieces.append(first)
        size += len(first)
        for line in rest:
            yield b"".join(pieces)
            pieces, size = [line], len(line)
        if size > MAX_MESSAGE:
            output.fault = f"the server sent a message of more than {MAX_MESSAGE // 2**20} MiB"
            return


def _parse(line: bytes) -> Any:
    """Parse a line as an MCP message; return None if the line is not a message."""
    try:
        message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except (ValueError, RecursionError):
        return None
    return SessionMessage(message)


async def _end(process: Process) -> None:
    """End a process and its group: close its input, then SIGTERM, then SIGKILL."""
    with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        await _close(process.stdin)
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
        with anyio.move_on_after(EXIT_SECONDS):
            while process.returncode is None or _has_members(process.pid):
                await anyio.sleep(0.01)
            break
    for stream in (process.stdout, process.stderr):
        with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            await _close(stream)
    # asyncio keeps its transport open while a descendant holds the pipe.
    transport = getattr(getattr(process, "_process", None), "_transport", None)
    if transport is not None:
        with suppress(PermissionError):
            transport.close()


def _has_members(group: int) -> bool:
    """Return whether a process group still has processes."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


async def _close(stream: Any) -> None:
    if stream is not None:
        await stream.aclose()
