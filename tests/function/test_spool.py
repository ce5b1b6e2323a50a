"""A text above the cap keeps its head and tail, and the whole of it can be read again."""

from __future__ import annotations

import os
import pathlib
import re
import stat
import subprocess
import sys
from typing import Any

import pytest

import glue
from glue.context import Spending
from glue.function.call import Spool, cap, current_spool
from glue.testing import call


def address_in(text: str) -> str:
    found = re.search(r"spool:[0-9a-f]{16}\.txt", text)
    assert found is not None
    return found[0]


def test_a_short_text_is_left_alone(tmp_path: pathlib.Path) -> None:
    assert cap("x" * 100, 100, Spool(tmp_path)) == "x" * 100
    assert list(tmp_path.iterdir()) == []


def test_a_long_text_keeps_head_and_tail_and_says_where_the_rest_is(tmp_path: pathlib.Path) -> None:
    lines = [f"line {number}" for number in range(1, 1001)]
    text = "\n".join(lines)
    spool = Spool(tmp_path)

    short = cap(text, 300, spool)

    head, note, tail = re.split(r"\n(\[.*\])\n", short)
    offset = int(re.findall(r"offset (\d+)", note)[0])
    with spool.open(address_in(note)) as file:
        assert file.read().decode() == text
    assert text.startswith(head)
    assert text.endswith(tail)
    assert head.splitlines() == lines[: offset - 1]
    assert len(head) + len(tail) <= 300
    assert f"{len(text) - len(head) - len(tail):,} of {len(text):,} characters" in note


def test_one_long_line_is_cut_where_it_must_be(tmp_path: pathlib.Path) -> None:
    short = cap("ü" * 1000, 300, Spool(tmp_path))

    assert short.startswith("ü" * 200 + "\n[")
    assert short.endswith("]\n" + "ü" * 100)
    assert "offset 1 goes on" in short


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
def test_only_addresses_of_texts_that_exist_open(tmp_path: pathlib.Path, address: str) -> None:
    with pytest.raises(FileNotFoundError):
        Spool(tmp_path).open(address)


def test_a_link_in_the_spool_is_not_followed(tmp_path: pathlib.Path) -> None:
    (tmp_path / "outside").write_text("secret")
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool" / "0123456789abcdef.txt").symlink_to(tmp_path / "outside")

    with pytest.raises(FileNotFoundError):
        Spool(tmp_path / "spool").open("spool:0123456789abcdef.txt")


def test_old_texts_make_room(tmp_path: pathlib.Path) -> None:
    spool = Spool(tmp_path, keep=2)
    first, second, third = (spool.write(name) for name in "abc")

    with pytest.raises(FileNotFoundError):
        spool.open(first)
    for address, text in ((second, b"b"), (third, b"c")):
        with spool.open(address) as file:
            assert file.read() == text


def test_a_spool_that_cannot_be_written_still_cuts(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")

    short = cap("x" * 1000, 300, Spool(tmp_path / "file" / "below"))

    assert "[700 of 1,000 characters left out]" in short


def test_the_temporary_directory_goes_with_the_process() -> None:
    code = """
from glue.function.call import current_spool
current_spool.get().write("x")
print(current_spool.get().directory)
"""

    made = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)

    assert not pathlib.Path(made.stdout.strip()).exists()


async def test_a_tool_s_output_is_capped_and_spooled() -> None:
    @glue.tool(max_output=200)
    async def big() -> Any:
        return ["first part", glue.Text(text="x" * 1000), glue.Image(data=b"png")]

    asked = call("big")
    context: glue.Context[Any] = glue.Context(
        call=asked, host=glue.Host(), cancel=glue.Cancel(), spending=Spending(), report=lambda *said: None
    )
    result = await big.invoke(asked, context)

    with current_spool.get().open(address_in(result.text)) as file:
        assert file.read() == b"x" * 1000
    assert result.content[0] == glue.Text(text="first part")
    assert result.content[2] == glue.Image(data=b"png")
