"""Glob patterns for paths and for texts, matched in linear time.

Patterns may come from a hostile repository, so no pattern can make a match slow.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

MAX_PATTERN = 1024
MAX_ALTERNATIVES = 64
# Named classes such as [[:alpha:]], as in the C locale.
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
SPECIAL = re.compile(r"[*?[\\]")
# A member of a bracket expression: a named class, a range, or one character.
MEMBER = re.compile(r"\[:([^\]]*):\]|\\?+(.)-(?!\])\\?+(.)|\\?+(.)", re.DOTALL)
NEVER = "(?!)"  # a regular expression that matches nothing


class Glob:
    """A path pattern: `*`, `?` and `[...]` match in one component, `**` any number of components.

    A malformed bracket such as `[a` matches literally. If `strict`, a pattern with such a bracket
    matches nothing, as in git.

    >>> Glob("src/**/*.py").matches(["src", "app", "main.py"])
    True
    >>> Glob("src/*.py").matches(["src", "app", "main.py"])
    False
    """

    __slots__ = ("parts",)

    def __init__(self, pattern: str, *, strict: bool = False) -> None:
        self.parts: list[re.Pattern[str] | str | None] = []  # None means `**`
        for part in pattern[:MAX_PATTERN].split("/"):
            if len(part) > 1 and not part.strip("*"):
                # `**/**` means the same as `**`.
                if not self.parts or self.parts[-1] is not None:
                    self.parts.append(None)
            else:
                self.parts.append(_component(part, strict))

    @staticmethod
    @lru_cache(maxsize=4096)
    def of(pattern: str) -> Glob:
        """Return `Glob(pattern)` from a cache, or create it and add it to the cache."""
        return Glob(pattern)

    def matches(self, names: Sequence[str]) -> bool:
        """Return whether the pattern matches a whole path, whose components are `names`."""
        parts = self.parts
        part = name = 0
        # The position of the last `**`, and the first component that this `**` does not match.
        star, star_name = -1, 0
        while name < len(names):
            if part < len(parts) and parts[part] is None:
                star, star_name = part, name
                part += 1
            elif part < len(parts) and _fits(parts[part], names[name]):
                part += 1
                name += 1
            elif star >= 0:
                # The last `**` now matches one more component. An earlier `**` needs no other try.
                star_name += 1
                part, name = star + 1, star_name
            else:
                return False
        # `a/**` needs a component below `a`; `**/a` also matches `a` alone.
        rest = parts[part:]
        return not rest or (rest == [None] and part == 0)


def parse_globs(pattern: str, tops: Iterable[str] = ()) -> list[Glob]:
    """Return a Glob for each alternative of a pattern: two for `*.{a,b}`, one without braces.

    A pattern without `/` matches a name at any depth. `tops` are the absolute paths of the root
    folder. If the pattern starts with one of these paths, the path is removed from the pattern.
    """
    top = next((top for top in tops if pattern.startswith(f"{top}/")), "")
    plain = [each.removeprefix("./") for each in expand_braces(pattern.removeprefix(top))]
    return [Glob(each.removeprefix("/") if "/" in each else f"**/{each}") for each in plain]


def expand_braces(pattern: str) -> list[str]:
    """Return the alternatives of a pattern with braces as patterns: `*.a`, `*.b` for `*.{a,b}`.

    Return at most 64 patterns.
    """
    done: list[str] = []
    queue = [pattern[:MAX_PATTERN]]
    while queue and len(done) < MAX_ALTERNATIVES:
        text = queue.pop(0)
        found = re.search(r"\{([^{}]*,[^{}]*)\}", text) if len(queue) < MAX_ALTERNATIVES else None
        if found is None:
            done.append(text)
            continue
        head, tail = text[: found.start()], text[found.end() :]
        queue.extend(head + choice + tail for choice in found[1].split(","))
    return done


def matches_text(text: str, pattern: str) -> bool:
    """Return whether a pattern matches a whole text: `*` also matches `/`, and `\\` is not special.

    >>> matches_text("git push origin", "git push*")
    True
    """
    return _fits(_text_pattern(pattern), text)


@lru_cache(maxsize=4096)
def _text_pattern(pattern: str) -> re.Pattern[str] | str:
    return _component(pattern.replace("\\", "\\\\"), False)


def _fits(part: re.Pattern[str] | str | None, name: str) -> bool:
    return part == name if part is None or isinstance(part, str) else part.match(name) is not None


def _component(part: str, strict: bool) -> re.Pattern[str] | str:
    """Return a regex for a component of a pattern, or the component itself if it is plain text.

    Plain text has no special characters. If `strict`, the regex for a malformed component matches
    nothing.
    """
    if not SPECIAL.search(part):
        return part
    pieces, spot = [""], 0  # regular expressions of the texts between the stars
    while spot < len(part):
        char = part[spot]
        if char == "[" and (found := _bracket(part, spot + 1)) is not None:
            piece, spot = found
            pieces[-1] += piece
            continue
        if strict and (char == "[" or part[spot:] == "\\"):
            return re.compile(NEVER)
        if char == "*":
            pieces.append("")
        elif char == "?":
            pieces[-1] += "."
        else:
            spot += part.startswith("\\", spot, len(part) - 1)
            pieces[-1] += re.escape(part[spot])
        spot += 1
    text, *rest = pieces
    if rest:
        # The first match of a piece after a star is as good as any later match. An atomic group
        # keeps the engine from trying later matches, which could take exponential time.
        text += "".join(f"(?>.*?{piece})" for piece in rest[:-1] if piece) + f".*{rest[-1]}"
    return re.compile(rf"{text}\Z", re.DOTALL)


def _bracket(part: str, spot: int) -> tuple[str, int] | None:
    """Return a regex for the bracket expression at `spot`, and where it ends; None if malformed.

    `spot` is the position after the opening bracket, such as that of `a-z]` in `[a-z]`. The end is
    the position after the closing bracket.
    """
    negated = part[spot : spot + 1] in ("!", "^")
    spot += negated
    body, first = "", spot
    while found := MEMBER.match(part, spot):
        if part[spot] == "]" and spot > first:
            if not body:  # only empty ranges such as `[z-a]`
                return "." if negated else NEVER, spot + 1
            return f"[{'^' if negated else ''}{body}]", spot + 1
        name, low, high, char = found.groups()
        if char is not None:
            body += _quote(char)
        elif name is None:
            body += f"{_quote(low)}-{_quote(high)}" if low <= high else ""
        elif name in CLASSES:
            body += CLASSES[name]
        else:
            return None
        spot = found.end()
    return None


def _quote(char: str) -> str:
    return f"\\{char}" if char in "\\]^-[&~|" else char
