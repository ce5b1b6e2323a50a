"""Globs that match in time linear in the name: patterns may come from a hostile repository."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

MAX_PATTERN = 1024
MAX_ALTERNATIVES = 64
# As in the C locale, for classes such as [[:alpha:]].
CLASSES = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": " \\t",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "!-\\~",
    "lower": "a-z",
    "print": " -\\~",
    "punct": "!-/:-@\\[-`{-\\~",
    "space": " \\t\\n\\r\\f\\v",
    "upper": "A-Z",
    "xdigit": "0-9a-fA-F",
}


class Glob:
    """A pattern split at `/`: `*`, `?` and `[...]` stay within a component, `**` spans any number.

    What is malformed stands for itself, or, if `strict`, matches nothing, as in git.
    """

    __slots__ = ("parts",)

    def __init__(self, pattern: str, *, strict: bool = False) -> None:
        self.parts: list[re.Pattern[str] | str | None] = []
        for part in pattern[:MAX_PATTERN].split("/"):
            if len(part) > 1 and not part.strip("*"):
                if not self.parts or self.parts[-1] is not None:  # several in a row say no more than one
                    self.parts.append(None)
            else:
                self.parts.append(_component(part, strict))

    @staticmethod
    @lru_cache(maxsize=4096)
    def of(pattern: str) -> Glob:
        return Glob(pattern)

    def matches(self, names: Sequence[str]) -> bool:
        """Match a path given as its components."""
        parts = self.parts
        at, spot, star, back = 0, 0, -1, 0
        while spot < len(names):
            if at < len(parts) and parts[at] is None:
                star, back = at, spot
                at += 1
            elif at < len(parts) and _fits(parts[at], names[spot]):
                at += 1
                spot += 1
            elif star >= 0:  # let the last `**` take one name more; earlier ones need never be asked again
                back += 1
                at, spot = star + 1, back
            else:
                return False
        # `a/**` wants something below `a`; `**/a` is content with `a` alone.
        rest = parts[at:]
        return not rest or (rest == [None] and at == 0)


def _fits(part: re.Pattern[str] | str | None, name: str) -> bool:
    if isinstance(part, str):
        return part == name
    return part is not None and part.match(name) is not None


def _component(part: str, strict: bool) -> re.Pattern[str] | str:
    """Translate one component; plain ones stay strings."""
    pieces: list[str] = []
    literal = True
    stars: list[int] = []
    spot = 0
    while spot < len(part):
        char = part[spot]
        spot += 1
        if char == "*":
            literal = False
            if not stars or stars[-1] != len(pieces) - 1:
                stars.append(len(pieces))
                pieces.append("*")
        elif char == "?":
            literal = False
            pieces.append(".")
        elif char == "[" and (found := _bracket(part, spot)) is not None:
            literal = False
            pieces.append(found[0])
            spot = found[1]
        elif strict and (char == "[" or (char == "\\" and spot == len(part))):
            return re.compile("(?!)")
        else:
            if char == "\\" and spot < len(part):
                char = part[spot]
                spot += 1
            pieces.append(re.escape(char) if not char.isalnum() else char)
    if literal:
        return "".join(piece.removeprefix("\\") for piece in pieces)
    return re.compile(_join(pieces, stars), re.DOTALL)


def _join(pieces: list[str], stars: list[int]) -> str:
    if not stars:
        return "".join(pieces) + r"\Z"
    # After a star the first place that fits is as good as any other, so nothing need be tried twice:
    # an atomic group says so to the engine, which would otherwise backtrack for ever.
    text = "".join(pieces[: stars[0]])
    for start, end in pairwise(stars):
        text += f"(?>.*?{''.join(pieces[start + 1 : end])})"
    return f"{text}.*{''.join(pieces[stars[-1] + 1 :])}\\Z"


def _bracket(part: str, spot: int) -> tuple[str, int] | None:
    """Translate a class that begins at `spot`, and give where it ends; None where it does not, or is malformed."""
    negated = part[spot : spot + 1] in ("!", "^")
    spot += negated
    body, first, low = "", True, ""
    while spot < len(part):
        char = part[spot]
        if char == "]" and not first:
            if not body:
                return ("." if negated else "(?!)"), spot + 1
            return f"[{'^' if negated else ''}{body}]", spot + 1
        first = False
        if char == "[" and part[spot + 1 : spot + 2] == ":":
            end = part.find("]", spot + 2)
            name = part[spot + 2 : end - 1] if end > spot + 2 and part[end - 1] == ":" else None
            if end < 0 or (name is not None and name not in CLASSES):
                return None
            if name is not None:
                body, spot, low = body + CLASSES[name], end + 1, ""
                continue
        if char == "-" and low and part[spot + 1 : spot + 2] not in ("", "]"):
            spot += 1
            high, spot = _escaped(part, spot)
            body += f"{_quote(low)}-{_quote(high)}" if low <= high else ""
            low = ""
            continue
        char, spot = _escaped(part, spot)
        body, low = body + _quote(char), char
    return None


def _escaped(part: str, spot: int) -> tuple[str, int]:
    return (part[spot + 1], spot + 2) if part[spot] == "\\" and spot + 1 < len(part) else (part[spot], spot + 1)


def _quote(char: str) -> str:
    return f"\\{char}" if char in "\\]^-[&~|" else char


def alternatives(pattern: str) -> list[str]:
    """Expand braces: `*.{ts,tsx}` is `*.ts` and `*.tsx`; stop at a sane number."""
    done: list[str] = []
    queue = [pattern[:MAX_PATTERN]]
    while queue and len(done) < MAX_ALTERNATIVES:
        text = queue.pop(0)
        found = re.search(r"\{([^{}]*,[^{}]*)\}", text) if len(queue) < MAX_ALTERNATIVES else None
        if found is None:
            done.append(text)
        else:
            queue.extend(text[: found.start()] + choice + text[found.end() :] for choice in found[1].split(","))
    return done
