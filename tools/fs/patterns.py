"""Patterns of file names: globs, .gitignore rules, and block lists of files that tend to hold secrets.

They match in time linear in the name: patterns may come from a hostile repository.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from glue.errors import UnsafePath
from glue.tools.fs.root import shorten

MAX_PATTERN = 1024
MAX_ALTERNATIVES = 64
MAX_RULES = 1000  # of a .gitignore
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
SPECIAL = re.compile(r"[*?[\\]")
# In a class: a named one, a range, or a character.
MEMBER = re.compile(r"\[:([^\]]*):\]|\\?+(.)-(?!\])\\?+(.)|\\?+(.)", re.DOTALL)
SECRETS = tuple(Path(__file__).with_name("blocklist.txt").read_text().split())  # files that tend to hold secrets


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
    return part == name if part is None or isinstance(part, str) else part.match(name) is not None


def _component(part: str, strict: bool) -> re.Pattern[str] | str:
    """Translate one component; plain ones stay strings."""
    if not SPECIAL.search(part):
        return part
    pieces, spot = [""], 0  # between the stars
    while spot < len(part):
        char = part[spot]
        if char == "[" and (found := _bracket(part, spot + 1)) is not None:
            piece, spot = found
            pieces[-1] += piece
            continue
        if strict and (char == "[" or part[spot:] == "\\"):
            return re.compile("(?!)")
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
        # After a star the first place that fits is as good as any other, so nothing need be tried twice:
        # an atomic group says so to the engine, which would otherwise backtrack for ever.
        text += "".join(f"(?>.*?{piece})" for piece in rest[:-1] if piece) + f".*{rest[-1]}"
    return re.compile(rf"{text}\Z", re.DOTALL)


def _bracket(part: str, spot: int) -> tuple[str, int] | None:
    """Translate a class that begins at `spot`, and give where it ends; None where it does not, or is malformed."""
    negated = part[spot : spot + 1] in ("!", "^")
    spot += negated
    body, first = "", spot
    while found := MEMBER.match(part, spot):
        if part[spot] == "]" and spot > first:
            return (f"[{'^' if negated else ''}{body}]" if body else "." if negated else "(?!)"), spot + 1
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


def globs(pattern: str, tops: Iterable[str] = ()) -> list[Glob]:
    """Read a pattern that may hold braces; one without `/` fits a name at any depth, `tops` are names of the root."""
    top = next((top for top in tops if pattern.startswith(f"{top}/")), "")
    plain = [each.removeprefix("./") for each in alternatives(pattern.removeprefix(top))]
    return [Glob(each.removeprefix("/") if "/" in each else f"**/{each}") for each in plain]


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


class Gitignore:
    """The rules of one .gitignore, for paths relative to its directory; the last rule that fits decides.

    As in git, characters are bytes: `?` fits half an umlaut. Names are held against rules as Latin-1, which keeps them.
    """

    __slots__ = ("depth", "rules")

    def __init__(self, content: bytes, depth: int) -> None:
        self.depth = depth  # how many components lie above
        self.rules: list[tuple[bool, bool, bool, str | Glob]] = []  # keeps, folders only, anchored; the last one first
        lines = content.removeprefix(codecs.BOM_UTF8).decode("latin-1").split("\n")
        for line in reversed(lines[:MAX_RULES]):
            if not line.startswith("#"):
                self._add(line.removesuffix("\r"))

    def _add(self, line: str) -> None:
        line = re.sub(r"((?:[^\\ ]|\\.| +(?=[^ ]))*) *", r"\1", line, count=1, flags=re.DOTALL)
        keep, folder = line.startswith("!"), line.endswith("/")
        line = line[keep:].removesuffix("/")
        if line and len(line) <= MAX_PATTERN:
            anchored = "/" in line
            plain = not anchored and not SPECIAL.search(line)
            self.rules.append((keep, folder, anchored, line if plain else Glob(line.removeprefix("/"), strict=True)))

    def judge(self, names: Sequence[str], is_folder: bool) -> bool | None:
        """Say whether a path is ignored; None where no rule speaks of it."""
        if not all(map(str.isascii, names)):
            names = [os.fsencode(name).decode("latin-1") for name in names]
        below, last = names[self.depth :], names[-1:]
        for keep, folder, anchored, wanted in self.rules:
            if folder and not is_folder:
                continue
            if wanted == last[0] if isinstance(wanted, str) else wanted.matches(below if anchored else last):
                return not keep
        return None


def ignored(rules: Sequence[Gitignore], names: Sequence[str], is_folder: bool) -> bool:
    """Ask the nearest .gitignore first, then those above it."""
    for layer in reversed(rules):
        verdict = layer.judge(names, is_folder)
        if verdict is not None:
            return verdict
    return False


@dataclass(frozen=True, slots=True)
class Blocklist:
    """Patterns of files that must not be read; `!` takes out of it what an earlier pattern put in.

    A pattern is held against the whole path, the base name and each component, without regard to case;
    `*` does not cross `/`, `**` does.
    """

    patterns: tuple[str, ...] = SECRETS

    @classmethod
    def default(cls) -> Blocklist:
        """Give the patterns of secret-shaped files."""
        return cls()

    def merge(self, other: Blocklist | Iterable[str]) -> Blocklist:
        """Add patterns; those given last have the last word."""
        more = other.patterns if isinstance(other, Blocklist) else tuple(other)
        return Blocklist((*self.patterns, *more))

    def match(self, path: str) -> str | None:
        """Name the pattern that blocks a path, or None."""
        parts = [part for part in path.casefold().split("/") if part not in ("", ".")]
        names, paths = _screen(self.patterns)
        if not any(map(names.match, parts)) and not any(glob.matches(parts) for glob in paths):
            return None  # as it is for nearly every file of a large tree
        found: str | None = None
        for pattern in self.patterns:
            wanted = pattern.removeprefix("!")
            if (found is None) == pattern.startswith("!"):
                continue  # it could only say again what already holds
            glob = Glob.of(wanted.strip("/").casefold())
            if glob.matches(parts) or any(glob.matches([part]) for part in parts):
                found = None if pattern.startswith("!") else pattern
        return found

    def blocks(self, path: str) -> bool:
        return self.match(path) is not None

    def guard(self, names: tuple[str, ...]) -> None:
        """Refuse a path, given as the plain names it leads through."""
        if (pattern := self.match("/".join(names))) is not None:
            raise UnsafePath(f"{shorten('/'.join(names))} is on the block list ({pattern})")

    def __contains__(self, path: str) -> bool:
        return self.blocks(path)


@lru_cache(maxsize=64)
def _screen(patterns: tuple[str, ...]) -> tuple[re.Pattern[str], tuple[Glob, ...]]:
    """Put all patterns of one component into one expression; the longer ones stay by themselves."""
    wanted = [each.strip("/").casefold() for each in patterns if not each.startswith("!")]
    names = [Glob(each).parts[0] for each in wanted if "/" not in each and each != "**"]
    sources = [each.pattern if isinstance(each, re.Pattern) else re.escape(each) + r"\Z" for each in names if each]
    return re.compile("|".join(sources) or "(?!)", re.DOTALL), tuple(
        Glob(each) for each in wanted if "/" in each or each == "**"
    )
