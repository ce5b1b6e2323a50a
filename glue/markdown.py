"""Markdown code spans and fenced code blocks that may contain any text, also backticks."""

from __future__ import annotations

import re


def backticks(text: str, least: int = 1) -> str:
    """Return a sequence of backticks that is longer than every sequence of backticks in the text.

    The sequence can delimit the text as code. It has at least `least` backticks.

    >>> backticks("a `b` c")
    '``'
    """
    longest = max(map(len, re.findall("`+", text)), default=0)
    return "`" * max(least, longest + 1)


def code_span(text: str) -> str:
    """Return a text as a Markdown code span."""
    mark = backticks(text)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{mark}{pad}{text}{pad}{mark}"


def code_block(text: str, language: str = "") -> str:
    """Return a text as a fenced code block that no fence inside the text can end."""
    mark = backticks(text, least=3)
    return f"{mark}{language}\n{text}\n{mark}"


_FENCE = re.compile(r"[ \t]{0,12}(`{3,}|~{3,})[ \t]*([^\n`]*)\n?$")


class Fence:
    """A reader of Markdown lines that records which code fence is open after the last line.

    >>> fence = Fence()
    >>> for line in ("Look:", "```python", "x = 1"):
    ...     fence.read(line)
    >>> fence.mark
    '```'
    """

    def __init__(self) -> None:
        self.mark = ""  # the delimiter of the open fence, or "" if none is open

    def read(self, line: str) -> None:
        """Update `mark` if `line`, the next line of the text, opens or closes a fence.

        A fence is closed by a line of the same characters, at least as long, without a language.
        """
        found = _FENCE.match(line)
        if found is None:
            return
        mark, language = found.groups()
        if not self.mark:
            self.mark = mark
        elif mark.startswith(self.mark) and not language.strip():
            self.mark = ""
