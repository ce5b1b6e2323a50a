"""Draws the terminal picture of the README from a real run of the demo.

    python bench/picture.py [--until TEXT] [--columns N] [-o docs/demo.svg]

Runs `make demo` in a pseudo-terminal and draws its output, up to the line that begins with TEXT.
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from fcntl import ioctl
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent
SGR = re.compile(r"\x1b\[([\d;]*)m")
OTHER = re.compile(r"\x1b\[[\d;?]*[A-Za-ln-z]|\x1b[()][A-Z0-9]|[\x00-\x08\x0b-\x1a\x1c-\x1f]")
# Words with single spaces. A browser would join two spaces, so each such text is placed by itself.
WORDS = re.compile(r"\S+(?: \S+)*")
# A dark window is readable on a light page and on a dark one.
COLOURS = {31: "#ff7b72", 32: "#7ee787", 33: "#e3b341", 34: "#79c0ff", 35: "#d2a8ff", 36: "#76e3ea"}
BACK, FRAME, TEXT, DIM = "#161b22", "#484f58", "#d1d7e0", "#8b949e"
# Pixels. Each run of text is stretched to the width of its cells.
SIZE, CELL, LINE, PAD, TOP = 13, 7.8, 18, 18, 40


class Run(NamedTuple):
    """Neighbouring characters with the same colour and weight."""

    column: int
    text: str
    colour: str
    bold: bool


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Draw the terminal picture of the README from a real run."
    )
    parser.add_argument(
        "--until", default="  full report", help="leave out this line and all after it"
    )
    parser.add_argument("--columns", type=int, default=118)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "docs" / "demo.svg")
    given = parser.parse_args()
    # Install first, so that the picture does not show the installation.
    subprocess.run(["make", "-s", ".venv/.base"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    shown = f"$ make demo\n{played(['make', 'demo'], given.columns)}"
    kept = shown.split(f"\n{given.until}")[0].rstrip()
    given.output.write_text(draw(kept, given.columns), encoding="utf-8")
    print(given.output)
    return 0


def played(command: list[str], columns: int) -> str:
    """Run a command in its own pseudo-terminal, and return its output."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    names = ("PATH", "HOME", "LANG")
    env = {name: os.environ[name] for name in names if name in os.environ} | {
        "TERM": "xterm-256color"
    }
    blocks = []
    with subprocess.Popen(
        command, cwd=ROOT, env=env, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        while block := _block(ours):
            blocks.append(block)
    os.close(ours)
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with exit code {process.returncode}")
    return b"".join(blocks).decode(errors="replace").replace("\r\n", "\n")


def _block(fd: int) -> bytes:
    try:
        return os.read(fd, 65_536)
    except OSError:  # Linux raises this if the other end is closed
        return b""


def draw(text: str, columns: int, label: str = "make demo in a terminal") -> str:
    """Return the output of a terminal with so many columns as SVG."""
    rows = [row for line in text.expandtabs(8).split("\n") for row in _rows(line, columns)]
    width, height = round(2 * PAD + columns * CELL), TOP + len(rows) * LINE + PAD
    dots = "".join(
        f'<circle cx="{PAD + 4 + 18 * n}" cy="18" r="5" fill="{FRAME}"/>' for n in range(3)
    )
    body = "".join(
        f'<text x="{PAD + run.column * CELL:.1f}" y="{TOP + (number + 1) * LINE - 5}"'
        f' textLength="{len(run.text) * CELL:.1f}"{_look(run)}>{escape(run.text)}</text>\n'
        for number, row in enumerate(rows)
        for run in row
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        f' width="{width}" height="{height}"'
        f' role="img" aria-label="{label}">\n'
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"'
        f' fill="{BACK}" stroke="{FRAME}"/>{dots}\n'
        f'<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas,'
        f" 'DejaVu Sans Mono', monospace\""
        f' font-size="{SIZE}" fill="{TEXT}">\n{body}</g></svg>\n'
    )


def _look(run: Run) -> str:
    colour = f' fill="{run.colour}"' if run.colour else ""
    return colour + (' font-weight="bold"' if run.bold else "")


def _rows(line: str, columns: int) -> list[list[Run]]:
    """Split a line into rows of the screen, and each row into runs of the same colour."""
    rows: list[list[Run]] = [[]]
    column, colour, bold = 0, "", line.startswith("$ ")
    pieces = SGR.split(OTHER.sub("", line.rsplit("\r", 1)[-1]))
    for index, piece in enumerate(pieces):
        if index % 2:
            colour, bold = _changed(piece, colour, bold)
            continue
        while piece:
            if column == columns:
                rows.append([])
                column = 0
            part, piece = piece[: columns - column], piece[columns - column :]
            for words in WORDS.finditer(part):
                rows[-1].append(Run(column + words.start(), words[0], colour, bold))
            column += len(part)
    return rows


def _changed(codes: str, colour: str, bold: bool) -> tuple[str, bool]:
    for code in map(int, filter(None, (codes or "0").split(";"))):
        if code == 0:
            colour, bold = "", False
        elif code in (1, 22):
            bold = code == 1
        elif code == 2:
            colour = DIM
        elif code == 39 or code in COLOURS:
            colour = COLOURS.get(code, "")
    return colour, bold


if __name__ == "__main__":
    sys.exit(main())
