"""Tests of the search that the worker of grep runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fakes.trees import Tools, write_tree

from glue.tools.fs import Root
from glue.tools.fs.search import read_texts


async def test_hits_have_paths_line_numbers_and_context(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\r\ntwo needle\r\nthree\r\nfour\r\nneedle\r\n")
    write_tree(tmp_path, "sub/b.txt")

    plain = await tools["grep"]("needle$", context=1, path="a.txt")
    found = await tools["grep"]("needle", glob="sub/**")
    dotted = await tools["grep"]("needle", glob="./sub/*.txt")

    assert plain.split("\n") == [
        "a.txt-1- one",
        "a.txt:2: two needle",
        "a.txt-3- three",
        "a.txt-4- four",
        "a.txt:5: needle",
    ]
    assert found == dotted == "sub/b.txt:1: needle in sub/b.txt"


async def test_an_empty_file_has_no_lines_and_adjacent_contexts_are_joined(
    tools: Tools, tmp_path: Path
) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("a\n\nb\nc\nd\ne\n\n")

    found = await tools["grep"]("^$", context=1)
    first = await tools["grep"]("[abe]", context=1, limit=2)

    assert found.split("\n") == [
        "text-1- a",
        "text:2: ",
        "text-3- b",
        "--",
        "text-6- e",
        "text:7: ",
    ]
    assert first.split("\n")[:4] == ["text:1: a", "text-2- ", "text:3: b", "text-4- c"]


async def test_files_that_are_not_text_are_skipped(tools: Tools, tmp_path: Path) -> None:
    write_tree(tmp_path, "a", "ignored")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "binary").write_bytes(b"needle\0")
    (tmp_path / "latin").write_bytes(b"needle \xe9\n")
    (tmp_path / ".gitignore").write_text("ignored\n")
    (tmp_path / "link").symlink_to("a")

    found = await tools["grep"]("needle")

    assert found.split("\n") == ["a:1: needle in a", "latin:1: needle é"]


def test_a_link_is_not_opened(root: Root, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("file")

    assert list(read_texts(root.fd, "file", "file", b"")) == ["x"]
    with pytest.raises(OSError, match="symbolic link"):
        read_texts(root.fd, "link", "link", b"")


async def test_line_numbers_are_right_in_large_files(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "large").write_text(
        "".join(f"line {n}\n" for n in range(300_000)) + "needle\nend\n"
    )

    assert await tools["grep"]("needle") == "large:300001: needle"
    assert (
        await tools["grep"]("nee[d]le$", context=1)
        == "large-300000- line 299999\nlarge:300001: needle\nlarge-300002- end"
    )


async def test_a_long_line_is_cut_around_its_hit(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "minified").write_text("x" * 3_000_000 + "needle" + "y" * 1000)

    found = await tools["grep"]("needle")

    assert "needle" in found
    assert len(found) < 700
