"""Tests of the program that reads a PDF; test_documents.py tests it as a process."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pypdf
import pytest
from fakes.documents import pdf

from glue.tools import pdf_process


@pytest.fixture(autouse=True)
def logs() -> Iterator[None]:
    """Switch logging on again, which the program switches off."""
    yield
    logging.disable(logging.NOTSET)


class Output(io.BytesIO):
    """A standard output that records what was written before each flush."""

    def __init__(self) -> None:
        super().__init__()
        self.flushed: list[bytes] = []

    def flush(self) -> None:
        self.flushed.append(self.getvalue())


def read(data: bytes, monkeypatch: pytest.MonkeyPatch) -> Output:
    """Run the program on a PDF and return its output."""
    output = Output()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=output))
    pdf_process.main()
    return output


def locked(password: str) -> bytes:
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(pdf("Secret page")))
    writer.encrypt(password, "owner", algorithm="RC4-128")
    made = io.BytesIO()
    writer.write(made)
    return made.getvalue()


def test_each_page_is_printed_when_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    output = read(pdf("First", "Second"), monkeypatch)

    first, second = b"[page 1 of 2]\nFirst\n\n", b"[page 2 of 2]\nSecond\n\n"
    assert output.flushed == [first, first + second]


def test_pages_without_text_are_followed_by_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    note = b"[the pages contain no text; they may be scanned pictures]\n"

    assert read(pdf(""), monkeypatch).getvalue() == b"[page 1 of 1]\n\n\n" + note
    assert note not in read(pdf("", "text", ""), monkeypatch).getvalue()


def test_a_pdf_with_an_empty_password_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert b"Secret page" in read(locked(""), monkeypatch).getvalue()


def test_a_pdf_with_a_password_ends_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match=r"^it is protected by a password$"):
        read(locked("open sesame"), monkeypatch)


def test_the_reason_of_a_failure_has_one_line_of_200_characters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Broken:
        def __init__(self, stream: io.BytesIO) -> None:
            raise ValueError("a\nb " + "x" * 300)

    monkeypatch.setattr(pypdf, "PdfReader", Broken)

    with pytest.raises(SystemExit) as ended:
        read(b"", monkeypatch)

    assert ended.value.code == "ValueError: a b " + "x" * 184


def test_a_page_that_cannot_be_read_is_named_and_the_others_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Page:
        def __init__(self, text: str) -> None:
            self.text = text

        def extract_text(self) -> str:
            if not self.text:
                raise KeyError("/Contents")
            return self.text

    class Reader:
        is_encrypted = False

        def __init__(self, stream: io.BytesIO) -> None:
            self.pages = [Page(""), Page("fine")]

    monkeypatch.setattr(pypdf, "PdfReader", Reader)

    said = read(b"", monkeypatch).getvalue().decode()

    assert said.startswith("[page 1 of 2]\n[this page cannot be read: KeyError]\n\n")
    assert said.endswith("[page 2 of 2]\nfine\n\n")


def test_damage_that_the_reader_reports_is_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    read(pdf("x"), monkeypatch)

    assert not logging.getLogger("pypdf").isEnabledFor(logging.ERROR)
