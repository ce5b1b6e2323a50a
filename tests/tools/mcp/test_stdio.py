"""Tests of the connection to an MCP server that runs as a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from glue.tools.mcp import stdio
from glue.tools.mcp.config import ServerConfig
from glue.tools.mcp.stdio import ServerOutput, open_process

MIB = 1024 * 1024


class Blocks:
    """A stream of blocks."""

    def __init__(self, *blocks: bytes) -> None:
        self.blocks = iter(blocks)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        for block in self.blocks:
            return block
        raise StopAsyncIteration


async def read_lines(*given: bytes) -> tuple[list[bytes], str]:
    """Return the lines of a stream of blocks, and the fault."""
    output = ServerOutput()
    stream: Any = Blocks(*given)
    found = [line async for line in stdio._lines(stream, output)]
    return found, output.fault


async def test_lines_are_joined_from_blocks_and_a_line_without_an_end_is_left_out() -> None:
    assert await read_lines(b"on", b"e\ntwo\n", b"\nfo", b"ur") == ([b"one", b"two", b""], "")


async def test_a_message_may_have_32_mib() -> None:
    block, fault = b"x" * MIB, "the server sent a message of more than 32 MiB"

    longest, none = await read_lines(*[block] * 32, b"\n")
    longer, one = await read_lines(*[block] * 32, b"x", b"\nnext\n")
    several, nothing = await read_lines(*[block] * 20, b"\n" + block, *[block] * 20, b"\n")

    assert ([len(line) for line in longest], none) == ([32 * MIB], "")
    assert (longer, one) == ([], fault)
    assert ([len(line) for line in several], nothing) == ([20 * MIB, 21 * MIB], "")


def test_the_last_4000_bytes_of_standard_error_are_kept() -> None:
    output = ServerOutput()

    output.add(b"a" * 3000)
    output.add(b"b" * 2000)

    assert output.tail == b"a" * 2000 + b"b" * 2000


def test_the_last_line_of_standard_error_is_short_and_not_empty() -> None:
    output = ServerOutput()
    assert output.last_line == ""

    output.add(b"first\n\x1b[31mlast \n \n\n")
    assert output.last_line == "last"
    output.add(b"x" * 400)
    assert output.last_line == "x" * 299 + "\u2026"


def config(code: str, folder: Path) -> ServerConfig:
    return ServerConfig(name="demo", command=sys.executable, args=("-c", code), cwd=str(folder))


async def test_each_server_is_reported_once_for_lines_that_are_not_messages(
    tmp_path: Path,
) -> None:
    output, reports = ServerOutput(), list[int]()
    code = "print(); print('noise'); print('{}')"

    async with open_process(
        config(code, tmp_path), output, lambda: reports.append(output.noise)
    ) as (incoming, _):
        with pytest.raises(anyio.EndOfStream):
            await incoming.receive()

    assert (output.noise, reports) == (2, [1])


async def test_a_server_may_end_by_itself_when_its_input_is_closed(tmp_path: Path) -> None:
    code = "import sys; sys.stdin.read(); open('ended', 'w')"

    async with open_process(config(code, tmp_path), ServerOutput(), lambda: None):
        pass

    assert (tmp_path / "ended").exists()


STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, {handler})
print(os.getpid(), file=sys.stderr, flush=True)
time.sleep(60)
"""


def has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("handler", ["signal.SIG_DFL", "signal.SIG_IGN"])
async def test_a_server_that_does_not_end_by_itself_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handler: str
) -> None:
    monkeypatch.setattr(stdio, "EXIT_SECONDS", 0.05)
    output = ServerOutput()

    async with open_process(
        config(STUBBORN.format(handler=handler), tmp_path), output, lambda: None
    ):
        while not output.last_line:
            await anyio.sleep(0.001)

    assert has_ended(int(output.last_line))


async def test_a_server_that_closes_its_input_ends_the_connection(tmp_path: Path) -> None:
    output = ServerOutput()
    code = "import os, sys, time; os.close(0); print(os.getpid(), file=sys.stderr); time.sleep(60)"
    message = stdio._parse(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}')

    async with open_process(config(code, tmp_path), output, lambda: None) as (incoming, outgoing):
        while not output.last_line:
            await anyio.sleep(0.001)
        await outgoing.send(message)
        with anyio.fail_after(20), pytest.raises(anyio.EndOfStream):
            await incoming.receive()
        os.kill(int(output.last_line), signal.SIGKILL)


def test_a_group_has_members_until_its_processes_have_ended() -> None:
    with subprocess.Popen(["true"], start_new_session=True) as child:
        pass

    assert stdio._has_members(os.getpgid(0))
    assert not stdio._has_members(child.pid)
