"""Tests of the worker process of grep: deadline, memory and cancellation."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from fakes.trees import Tools

from glue.errors import ToolError
from glue.tasks import StopFlag, in_stoppable_thread
from glue.tools.fs import Root
from glue.tools.fs.grep_process import grep


def test_a_search_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    (tmp_path / "first").write_text("aaa\n")
    (tmp_path / "second").write_text("a" * 40 + "b\n")
    switches = dict.fromkeys(("ignore_case", "fixed", "ignored", "context"), 0)
    query: dict[str, Any] = {
        "pattern": "^(a+)+$",
        "path": ".",
        "glob": "",
        "limit": 100,
        "blocked": None,
        **switches,
    }

    found = grep(Root(tmp_path), query, seconds=1.0)

    assert found == (
        "first:1: aaa\n[the search was stopped after 1 s: simplify the pattern or narrow the path]"
    )


async def test_hits_of_many_kilobytes_are_shown_and_more_are_cut_with_a_note(
    tools: Tools, tmp_path: Path
) -> None:
    (tmp_path / "a").write_text(f"needle{'x' * 400}\n" * 1000)

    some = await tools["grep"]("needle", limit=100)
    every = await tools["grep"]("needle", limit=1000)

    line = len("a:100: needle") + 400
    assert some.count("\n") == 100
    assert len(some) > 40_000
    shown, _, note = every.rpartition("\n")
    assert note == "[the other hits are too long to show: narrow the pattern or the path]"
    assert 200 * 1024 - line - 80 < len(shown.rpartition("\n[")[0]) + 1 <= 200 * 1024


@pytest.mark.parametrize(
    "pattern", ["(", "*", "a" * 5000, "(?P<x>a)(?P<x>b)", "a{99999999999}", "[z-a]"]
)
async def test_an_invalid_pattern_is_an_error(tools: Tools, pattern: str) -> None:
    with pytest.raises(ToolError, match="the pattern cannot be used"):
        await tools["grep"](pattern)


async def test_a_missing_path_is_an_error_of_one_line(tools: Tools) -> None:
    with pytest.raises(ToolError) as caught:
        await tools["grep"]("x", "no/such\x1b\nfile")

    assert str(caught.value) == r"'no/such\x1b\nfile': no such file or directory"


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="needs /proc")
async def test_a_cancelled_search_ends_at_once_and_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "evil").write_text("a" * 40 + "b\n")
    query: dict[str, object] = {
        "pattern": "(a+)+$",
        "path": ".",
        "glob": "",
        "limit": 9,
        "blocked": None,
    }
    query |= dict.fromkeys(("ignore_case", "fixed", "ignored", "context"), 0)
    returned: list[str] = []

    def search(stop: StopFlag) -> None:
        returned.append(grep(Root(tmp_path), query, stop, seconds=30.0))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(in_stoppable_thread, search)
        while not (workers := _workers()):
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()

    assert returned == ["no match"]  # a search that waits for its deadline returns a note
    assert len(workers) == 1
    assert _workers() == []


def _workers() -> list[str]:
    """Return the ids of child processes that run the search."""
    found = []
    for thread in os.listdir("/proc/self/task"):
        try:
            children = Path(f"/proc/self/task/{thread}/children").read_text().split()
        except OSError:  # the thread has ended
            continue
        for pid in children:
            with contextlib.suppress(OSError):
                if b"glue.tools.fs.search" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
    return found


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="others do not hold a process to its limit"
)
def test_a_pattern_that_needs_too_much_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("a" * 900_000)
    monkeypatch.setattr("glue.tools.fs.grep_process.MEMORY", 100 * 1024 * 1024)
    query: dict[str, object] = {
        "pattern": "(?:(?:(a)|(b))|(c)|(d)|(e)|(f)|(g)|(h))*!",
        "path": ".",
        "glob": "",
        "context": 0,
        "limit": 9,
    }
    query |= {"ignore_case": False, "fixed": False, "ignored": False, "blocked": None}

    with (
        Root(tmp_path) as root,
        pytest.raises(ToolError, match="cannot be used: the search takes too much memory"),
    ):
        grep(root, query, seconds=30.0)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("exit 1", "grep failed: 1"),
        ("echo some text, boom >&2; exit 4", "grep failed: some text, boom"),
        (None, "grep needs a Python interpreter, but sys.executable is not set"),
    ],
)
async def test_a_worker_that_fails_is_an_error_with_its_reason(
    tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, message: str
) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program) if script else "")

    with pytest.raises(ToolError) as caught:
        await tools["grep"]("needle")

    assert str(caught.value) == message
