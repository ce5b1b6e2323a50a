"""Pictures and PDF documents: detect the kind of a file, and read the text of a PDF.

The text of a PDF is read by pypdf (extra `documents`) in a process of its own: a damaged or hostile
file can make any PDF reader use all memory or run without end, and a process can be killed.
"""

from __future__ import annotations

import struct
import sys
from importlib.util import find_spec
from pathlib import Path

import glue
from glue.errors import ToolError
from glue.tasks import StopFlag
from glue.tools.process import run

__all__ = ["read_pdf"]

PDF = b"%PDF-"
SECONDS = 10.0
MEMORY = 1024 * 1024 * 1024
OUTPUT = 4 * 1024 * 1024  # bytes of text
MAX_PDF = 32 * 1024 * 1024
MAX_PICTURE = 3_900_000  # bytes: as base64 below the 5 MB that the vendors allow
HOME = Path(glue.__file__).absolute().parents[1]  # the folder that contains the package
PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from glue.tools.pdf_process import main; main()"


def picture_type(data: bytes) -> str:
    """Return the media type of a PNG, JPEG, GIF or WebP picture by its first bytes, or "".

    >>> picture_type(b"GIF89a...")
    'image/gif'
    """
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    return ""


def picture_size(data: bytes) -> str:
    """Return the size of a PNG or GIF as "640 x 480", or "" for other pictures."""
    try:
        if data.startswith(b"\x89PNG"):
            return "{} x {}".format(*struct.unpack(">II", data[16:24]))
        if data.startswith(b"GIF8"):
            return "{} x {}".format(*struct.unpack("<HH", data[6:10]))
    except struct.error:  # the file is cut
        pass
    return ""


def read_pdf(data: bytes, stop: StopFlag | None = None, seconds: float = SECONDS) -> str:
    """Return the text of a PDF, with a line "[page 1 of 9]" before each page.

    Raise ToolError if the PDF cannot be read. If the time is up or the text is too long, return the
    first pages and a note.
    """
    if find_spec("pypdf") is None:
        raise ToolError(
            "a PDF can be read only if pypdf is installed: pip install 'glue-agents[documents]'"
        )
    if not sys.executable:
        raise ToolError("reading a PDF needs a Python interpreter, but sys.executable is not set")
    if len(data) > MAX_PDF:
        raise ToolError(f"the PDF has {len(data)} bytes; at most {MAX_PDF} can be read")
    path = [str(HOME), *(entry for entry in sys.path if Path(entry).is_absolute())]
    done = run(
        [sys.executable, "-I", "-S", "-B", "-c", PROGRAM, *path],
        env={"LC_ALL": "C.UTF-8"},
        cwd="/",
        deadline=seconds,
        cap=OUTPUT,
        feed=data,
        memory=MEMORY,
        stop=stop,
    )
    text = done.out.decode("utf-8", "replace").rstrip()
    if done.reason == "deadline":
        return f"{text}\n[stopped after {seconds:g} s; the rest was not read]".lstrip("\n")
    if done.reason == "cap":
        return f"{text}\n[the text is longer; the rest was not read]"
    if done.code and not done.reason:
        reason = done.err.decode("utf-8", "replace").strip().rpartition("\n")[2][:200]
        raise ToolError(f"the PDF cannot be read: {reason or 'the reader failed'}")
    return text
