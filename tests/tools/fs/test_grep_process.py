"""Tests of the worker process of grep: deadline, memory and cancellation."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from fakes.trees import Tools

from glue.errors import ToolError
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

    found = grep(Root(tmp_path), query, seconds=1.5)

    assert found == "first:1: aaa\n[stopped after 1.5 s: simplify the pattern or narrow the path]"


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


async def test_a_cancelled_search_leaves_no_process(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "evil").write_text("a" * 40 + "b\n")

    before = _children()

    with anyio.move_on_after(0.2):
        await tools["grep"]("(a+)+$")

    assert _children() == before


def _children() -> list[str]:
    return [pid for pid in _tasks() if pid]


def _tasks() -> list[str]:
    try:
        threads = os.listdir("/proc/self/task")
        return [
            pid
            for one in threads
            for pid in Path(f"/proc/self/task/{one}/children").read_text().split()
        ]
    except OSError:
        return []


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
        pytest.raises(ToolError, match="cannot be used: it takes too much memory"),
    ):
        grep(root, query, seconds=30.0)
