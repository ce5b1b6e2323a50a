"""`glue tools`: list the built-in tools, and check those of a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Cli = Callable[..., Any]


def test_the_check_reports_missing_descriptions(cli: Cli) -> None:
    Path("mine.py").write_text(
        "from glue import tool\n@tool\ndef plain(x: str) -> str:\n    return x\n"
    )

    ran = cli("tools", "check", "mine.py")

    assert ran.code == 1
    assert "plain: has no description; write a docstring" in ran.out
    assert "1 tool, 2 problems" in ran.err
    assert len(json.loads(cli("tools", "check", "--json", "mine.py").out)) == 2
    assert "fs " in cli("tools").out


def test_a_checked_file_can_import_modules_of_its_folder(cli: Cli) -> None:
    Path("work").mkdir()
    Path("work/neighbour_of_tools.py").write_text("NAME = 'act'\n")
    Path("work/mine.py").write_text(
        "from glue import tool\nfrom neighbour_of_tools import NAME\n"
        "@tool(name=NAME)\ndef plain() -> None:\n    'Act.'\n"
    )

    ran = cli("tools", "check", "work/mine.py")

    assert (ran.code, ran.err) == (0, "1 tool, no problems\n")


def test_a_file_without_tools_is_named(cli: Cli) -> None:
    Path("empty.py").write_text("x = 1\n")

    ran = cli("tools", "check", "empty.py")

    assert ran.code == 0
    assert "glue: empty.py defines no tools\n" in ran.err
    assert "0 tools, no problems\n" in ran.err


def test_the_sizes_of_all_built_in_tools_are_added_up(cli: Cli) -> None:
    *rows, last = json.loads(cli("tools", "--sizes", "--json").out)

    assert {"read_file", "write_file", "git_status", "shell", "fetch_url"} <= {
        row["name"] for row in rows
    }
    assert last == {"name": f"{len(rows)} tools", "tokens": sum(row["tokens"] for row in rows)}
