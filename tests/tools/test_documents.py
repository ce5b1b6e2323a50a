from __future__ import annotations

import io
import subprocess
import sys
import zlib
from pathlib import Path

import pypdf
import pytest
from fakes.documents import pdf, png

from glue.errors import ToolError
from glue.tasks import StopFlag
from glue.tools.documents import PDF, picture_size, picture_type, read_pdf


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (png(2, 3), "image/png"),
        (b"\xff\xd8\xff\xe0\x00\x10JFIF", "image/jpeg"),
        (b"GIF89a\x02\x00\x03\x00", "image/gif"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"),
        (b"RIFF\x00\x00\x00\x00WAVE", ""),
        (b"BM......", ""),
        (b"", ""),
    ],
)
def test_pictures_are_recognised_by_their_first_bytes(data: bytes, kind: str) -> None:
    assert picture_type(data) == kind


def test_the_size_of_a_picture_is_read() -> None:
    assert picture_size(png(640, 480)) == "640 x 480"
    assert picture_size(b"GIF89a\x02\x00\x03\x00\x04") == "2 x 3"
    assert picture_size(b"\x89PNG\r\n\x1a\n") == ""


def test_the_text_of_a_pdf_is_read_page_by_page() -> None:
    text = read_pdf(pdf("First page", "Second (page)"))

    assert text == "[page 1 of 2]\nFirst page\n\n[page 2 of 2]\nSecond (page)"


def test_a_pdf_without_text_is_named_as_such() -> None:
    assert "may be scanned pictures" in read_pdf(pdf(""))


@pytest.mark.parametrize("data", [PDF, PDF + b"1.7\nnonsense", pdf("x")[:60]])
def test_a_damaged_pdf_is_an_error(data: bytes) -> None:
    with pytest.raises(ToolError, match="the PDF cannot be read"):
        read_pdf(data)


def test_a_pdf_with_a_password_is_named_as_such() -> None:
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(pdf("Secret page")))
    writer.encrypt("open sesame", algorithm="RC4-128")
    locked = io.BytesIO()
    writer.write(locked)

    with pytest.raises(ToolError, match="it is protected by a password"):
        read_pdf(locked.getvalue())


def test_a_pdf_that_unpacks_without_end_is_ended() -> None:
    """The stream of the page unpacks to 100 MB of blanks."""
    packed = zlib.compress(b" " * 100_000_000, 1)

    try:
        text = read_pdf(pdf("x", stream=packed), seconds=5)
    except ToolError as error:
        text = str(error)

    assert "cannot be read" in text or "stopped after" in text


def test_a_pdf_that_takes_too_long_is_stopped_with_a_note() -> None:
    assert read_pdf(pdf("x"), seconds=0.001) == "[stopped after 0.001 s; the rest was not read]"


def test_a_pdf_of_more_than_32_mib_is_refused() -> None:
    with pytest.raises(
        ToolError, match=r"the PDF has 33554433 bytes; at most 33554432 can be read"
    ):
        read_pdf(PDF.ljust(32 * 1024 * 1024 + 1))
    assert "stopped after" in read_pdf(PDF.ljust(32 * 1024 * 1024), seconds=0.001)


def test_without_an_interpreter_no_pdf_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "")

    with pytest.raises(ToolError, match=r"sys\.executable is not set"):
        read_pdf(pdf("x"))


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("first line\nthe last line", "the last line"),
        ("x" * 201, "x" * 200),
        ("", "the reader failed"),
    ],
)
def test_the_error_of_a_reader_is_its_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, shown: str
) -> None:
    reader = tmp_path / "reader"
    reader.write_text(f"#!/bin/sh\nprintf '{said}' >&2\nexit 1\n")
    reader.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(reader))

    with pytest.raises(ToolError) as caught:
        read_pdf(pdf("x"))

    assert str(caught.value) == f"the PDF cannot be read: {shown}"


def test_a_cancelled_reading_ends_the_process() -> None:
    stop = StopFlag()
    stop.set()

    assert read_pdf(pdf("x"), stop) == ""


def test_the_reader_loads_nothing_of_the_users_environment() -> None:
    code = "import glue.tools.documents, sys; print('pypdf' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"


def test_the_text_of_a_pdf_is_read_up_to_4_mib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 4 * 1024 * 1024
    reader = tmp_path / "reader"
    monkeypatch.setattr(sys, "executable", str(reader))
    texts = []
    for size in (most - 1, most + 1):
        reader.write_text(f"#!/bin/sh\nhead -c {size} /dev/zero | tr '\\0' x\n")
        reader.chmod(0o755)
        texts.append(read_pdf(pdf("x")))

    assert texts[0] == "x" * (most - 1)
    assert texts[1] == "x" * most + "\n[the text is longer; the rest was not read]"
