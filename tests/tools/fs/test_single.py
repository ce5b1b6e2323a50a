"""Tests of the functions that return one file tool each."""

from __future__ import annotations

from pathlib import Path

import pytest

from glue.errors import UnsafePath
from glue.tools import fs


def test_each_file_tool_is_returned_alone_by_a_function_of_its_name(tmp_path: Path) -> None:
    together = {tool.name: tool for tool in fs.tools(tmp_path, write=True)}

    assert len(together) == 6
    for name, expected in together.items():
        made = getattr(fs, name)(tmp_path)
        assert made.spec == expected.spec
        assert made.needs_permission == expected.needs_permission
        assert made.alone == expected.alone
        assert made.root == expected.root


def test_a_single_tool_reads_below_its_root_only(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / ".env").write_text("TOKEN=x")
    read_file = fs.read_file(tmp_path, blocklist=fs.Blocklist.default())

    assert read_file("a.txt") == "text"
    with pytest.raises(UnsafePath, match="block list"):
        read_file(".env")
    with pytest.raises(UnsafePath, match="outside"):
        read_file("../x")
