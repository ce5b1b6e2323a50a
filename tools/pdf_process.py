"""The program that `read_pdf` starts: it reads a PDF from stdin and prints its text."""

from __future__ import annotations

import io
import logging
import sys


def main() -> None:
    """Read a PDF from stdin and print the text of each page, one page at a time.

    If the process is killed, the first pages have been printed.
    """
    import pypdf  # an optional dependency, which only this process needs

    logging.disable()  # pypdf reports each small damage
    try:
        reader = pypdf.PdfReader(io.BytesIO(sys.stdin.buffer.read()))
        if reader.is_encrypted and not reader.decrypt(""):
            sys.exit("it is protected by a password")
        count, found = len(reader.pages), False
        for number in range(count):
            text = _page_text(reader, number)
            found = found or bool(text.strip())
            _print(f"[page {number + 1} of {count}]\n{text.strip()}\n\n")
    except Exception as error:  # pypdf raises many kinds for damaged files
        sys.exit(" ".join(f"{type(error).__name__}: {error}".split())[:200])
    if not found:
        _print("[the pages contain no text; they may be scanned pictures]\n")


def _page_text(reader: object, number: int) -> str:
    try:
        text: str = reader.pages[number].extract_text()  # type: ignore[attr-defined]
        return text
    except Exception as error:  # the other pages may be readable
        return f"[this page cannot be read: {type(error).__name__}]"


def _print(text: str) -> None:
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))
    sys.stdout.buffer.flush()
