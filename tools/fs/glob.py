"""Globs that match in time linear in the name: patterns may come from a hostile repository."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

MAX_PATTERN = 1024
MAX_ALTERNATIVES = 64


class Glob:
    """A pattern split at `/`: `*`, `?` and `[...]` stay within a component, `**` spans any number."""

    __slots__ = ("parts",)

    def __init__(self, pattern: str) -> None:
        self.parts: list[re.Pattern[str] | str | None] = []
        for part in pattern[:MAX_PATTERN].split("/"):
            if part == "**":
                if not self.parts or self.parts[-1] is not None:  # several in a row say no more than one
                    self.parts.append(None)
            else:
                self.parts.append(_component(part))

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


def _component(part: str) -> re.Pattern[str] | str:
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
        elif char == "[" and (end := _bracket_end(part, spot)) > 0:
            literal = False
            pieces.append(_bracket(part[spot:end]))
            spot = end + 1
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


def _bracket_end(part: str, spot: int) -> int:
    """Find the `]` that closes a class; 0 where there is none and `[` is only itself."""
    first = spot + 1 if part[spot : spot + 1] in ("!", "^") else spot
    return max(part.find("]", first + 1), 0)


def _bracket(inner: str) -> str:
    negated = inner[:1] in ("!", "^")
    inner = inner[1:] if negated else inner
    body = ""
    spot = 0
    while spot < len(inner):
        low = inner[spot]
        if inner[spot + 1 : spot + 2] == "-" and spot + 2 < len(inner):
            high = inner[spot + 2]
            body += f"{_quote(low)}-{_quote(high)}" if low <= high else ""
            spot += 3
        else:
            body += _quote(low)
            spot += 1
    if not body:
        return "." if negated else "(?!)"
    return f"[{'^' if negated else ''}{body}]"


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
