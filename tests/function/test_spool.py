"""The spool: long texts are cut, and a private file keeps the whole text."""

from __future__ import annotations

import os
import pathlib
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import glue
from glue.context import Spending
from glue.function.spool import Spool, cap, current_spool
from glue.testing import call


def address_in(text: str) -> str:
    found = re.search(r"spool:[0-9a-f]{16}\.txt", text)
    assert found is not None
    return found[0]


@pytest.fixture
def spool(tmp_path: pathlib.Path) -> Iterator[Spool]:
    """A spool in an empty directory, which `cap` writes to."""
    made = Spool(tmp_path / "spool")
    token = current_spool.set(made)
    yield made
    current_spool.reset(token)


def test_a_text_below_the_limit_is_not_changed(spool: Spool) -> None:
    assert cap("x" * 100, 100) == "x" * 100
    assert os.listdir(spool.directory) == []


def test_a_long_text_keeps_its_beginning_and_end_and_the_address_of_the_whole(
    spool: Spool,
) -> None:
    lines = [f"line {number}" for number in range(1, 1001)]
    text = "\n".join(lines)

    short = cap(text, 300)

    head, note, tail = re.split(r"\n(\[.*\])\n", short)
    offset = int(re.findall(r"offset (\d+)", note)[0])
    with spool.open(address_in(note)) as file:
        assert file.read().decode() == text
    assert text.startswith(head)
    assert text.endswith(tail)
    assert head.splitlines() == lines[: offset - 1]
    assert len(head) + len(tail) <= 300
    assert f"{len(text) - len(head) - len(tail):,} of {len(text):,} characters" in note


@pytest.mark.usefixtures("spool")
def test_a_long_line_is_cut_at_the_limit() -> None:
    short = cap("ü" * 1000, 300)

    assert short.startswith("ü" * 200 + "\n[")
    assert short.endswith("]\n" + "ü" * 100)
    assert "read_file with offset 1]" in short


@pytest.mark.usefixtures("spool")
@pytest.mark.parametrize(
    ("first", "last", "head", "tail"),
    [(150, 925, 200, 100), (151, 924, 151, 75), (10, 900, 200, 99)],
)
def test_a_text_is_cut_at_line_breaks_that_are_near(
    first: int, last: int, head: int, tail: int
) -> None:
    text = "x" * first + "\n" + "x" * (last - first - 1) + "\n" + "x" * (999 - last)

    kept = cap(text, 300)

    begin, _, end = re.split(r"\n(\[.*\])\n", kept)
    assert (begin, end) == (text[:head], text[len(text) - tail :])


def test_spooled_files_are_private(tmp_path: pathlib.Path) -> None:
    spool = Spool(tmp_path / "new")
    spool.write("secret")

    (file,) = (tmp_path / "new").iterdir()

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(os.stat(Spool().directory).st_mode) == 0o700


@pytest.mark.parametrize(
    "address",
    [
        "spool:",
        "spool:../etc/passwd",
        "spool:/etc/passwd",
        "spool:0123456789abcdef.txt/../x",
        "0123456789abcdef.txt",
        "spool:0123456789abcdef.txt",
        "spool:0123456789abcdef.txt\n",
        "spool:spool:0123456789abcdef.txt",
    ],
)
def test_an_address_that_does_not_exist_is_file_not_found(
    tmp_path: pathlib.Path, address: str
) -> None:
    with pytest.raises(FileNotFoundError):
        Spool(tmp_path).open(address)


def test_a_symbolic_link_in_the_spool_is_not_followed(tmp_path: pathlib.Path) -> None:
    (tmp_path / "outside").write_text("secret")
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool" / "0123456789abcdef.txt").symlink_to(tmp_path / "outside")

    with pytest.raises(FileNotFoundError):
        Spool(tmp_path / "spool").open("spool:0123456789abcdef.txt")


def test_the_oldest_texts_are_removed(tmp_path: pathlib.Path) -> None:
    spool = Spool(tmp_path)
    first, second, third = (spool.write(name) for name in "abc")

    for _ in range(256 - 2):
        spool.write("later")

    with pytest.raises(FileNotFoundError):
        spool.open(first)
    for address, text in ((second, b"b"), (third, b"c")):
        with spool.open(address) as file:
            assert file.read() == text


def test_a_text_is_cut_even_if_the_spool_cannot_be_written(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    token = current_spool.set(Spool(tmp_path / "file" / "below"))

    short = cap("x" * 1000, 300)

    current_spool.reset(token)
    assert "[700 of 1,000 characters left out]" in short


def test_the_temporary_directory_is_removed_when_the_process_ends() -> None:
    code = """
from glue.function.spool import current_spool
current_spool.get().write("x")
print(current_spool.get().directory)
"""

    made = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )

    assert not pathlib.Path(made.stdout.strip()).exists()


async def test_a_long_result_of_a_tool_is_cut_and_written_to_the_spool() -> None:
    @glue.tool(max_output=200)
    async def big() -> Any:
        return ["first part", glue.Text(text="x" * 1000), glue.Image(data=b"png")]

    asked = call("big")
    context: glue.Context[Any] = glue.Context(
        call=asked,
        host=glue.context.Host(),
        cancel=glue.Cancel(),
        spending=Spending(),
        report=lambda *said: None,
    )
    result = await big.invoke(asked, context)

    with current_spool.get().open(address_in(result.text)) as file:
        assert file.read() == b"x" * 1000
    assert result.content[0] == glue.Text(text="first part")
    assert result.content[2] == glue.Image(data=b"png")
