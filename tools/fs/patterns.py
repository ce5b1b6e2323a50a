"""Rules for file names: .gitignore files, and block lists of files that may contain secrets."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from glue.errors import UnsafePath
from glue.globs import MAX_PATTERN, SPECIAL, Glob
from glue.tools.fs.root import shorten

MAX_RULES = 1000  # of a .gitignore
# Patterns of files that often contain secrets.
SECRETS = tuple(Path(__file__).with_name("blocklist.txt").read_text().split())


class Gitignore:
    """The rules of one .gitignore file; of the rules that match a path, the last one decides.

    As in git, a character is a byte, so `?` matches one byte of `ü`. Rules and names are therefore
    compared as Latin-1 text, in which each character is one byte.
    """

    __slots__ = ("depth", "rules")

    def __init__(self, content: bytes, depth: int) -> None:
        self.depth = depth  # components of the path above the .gitignore
        # Each rule: keeps the file, matches folders only, is anchored, pattern. Last rule first.
        self.rules: list[tuple[bool, bool, bool, str | Glob]] = []
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
            pattern = line if plain else Glob(line.removeprefix("/"), strict=True)
            self.rules.append((keep, folder, anchored, pattern))

    def judge(self, names: Sequence[str], is_folder: bool) -> bool | None:
        """Return whether the rules ignore a path, or None if no rule matches the path."""
        if not all(map(str.isascii, names)):
            names = [os.fsencode(name).decode("latin-1") for name in names]
        below, last = names[self.depth :], names[-1:]
        for keep, folder, anchored, wanted in self.rules:
            if folder and not is_folder:
                continue
            if isinstance(wanted, str):
                fits = wanted == last[0]
            else:
                fits = wanted.matches(below if anchored else last)
            if fits:
                return not keep
        return None


def is_ignored(rules: Sequence[Gitignore], names: Sequence[str], is_folder: bool) -> bool:
    """Return whether a path is ignored; the innermost .gitignore with a matching rule decides.

    `rules` has the .gitignore files above the path, the outermost first.
    """
    for layer in reversed(rules):
        verdict = layer.judge(names, is_folder)
        if verdict is not None:
            return verdict
    return False


@dataclass(frozen=True, slots=True)
class Blocklist:
    """Patterns of files that tools must not read or write.

    `!pattern` allows files that an earlier pattern blocks.

    A pattern is compared with the whole path and with each component of the path, ignoring case.
    `*` does not match `/`, `**` does.

    >>> mine = Blocklist.default().merge(["*.sql"], allow=["secrets.yaml"])
    >>> mine.blocks("db/dump.sql"), mine.blocks(".env"), mine.blocks("secrets.yaml")
    (True, True, False)
    """

    patterns: tuple[str, ...] = SECRETS

    @classmethod
    def default(cls) -> Blocklist:
        """Return the built-in list of files that often contain secrets."""
        return cls()

    def merge(
        self, other: Blocklist | Iterable[str] = (), *, allow: Iterable[str] = ()
    ) -> Blocklist:
        """Return a block list with the patterns of this list and `other`, and unblock `allow`.

        A pattern in `other` that starts with `!` is a ValueError, because it could unblock files
        that this list blocks.

        Args:
            other: the patterns to add, or another list.
            allow: patterns of files to unblock, without `!`.
        """
        for name, given in (("other", other), ("allow", allow)):
            if isinstance(given, str):
                raise TypeError(f"{name} must be a list of patterns, such as [{given!r}]")
        added = other.patterns if isinstance(other, Blocklist) else tuple(other)
        new = [pattern for pattern in dict.fromkeys(added) if pattern not in self.patterns]
        for pattern in new:
            if pattern.startswith("!"):
                raise ValueError(
                    f"the pattern {pattern!r} would unblock files;"
                    f" to unblock them, pass allow=[{pattern[1:]!r}]"
                )
        exceptions = [f"!{pattern.removeprefix('!')}" for pattern in allow]
        return Blocklist((*self.patterns, *new, *exceptions))

    def match(self, path: str) -> str | None:
        """Return the pattern that blocks a path, or None if the path is not blocked."""
        parts = [part for part in path.casefold().split("/") if part not in ("", ".")]
        names, paths = _screen(self.patterns)
        if not any(map(names.match, parts)) and not any(glob.matches(parts) for glob in paths):
            return None  # the usual case, decided with few comparisons
        found: str | None = None
        for pattern in self.patterns:
            wanted = pattern.removeprefix("!")
            if (found is None) == pattern.startswith("!"):
                continue  # the pattern would not change the result
            glob = Glob.of(wanted.strip("/").casefold())
            if glob.matches(parts) or any(glob.matches([part]) for part in parts):
                found = None if pattern.startswith("!") else pattern
        return found

    def blocks(self, path: str) -> bool:
        """Return whether a path is blocked."""
        return self.match(path) is not None

    def guard(self, names: tuple[str, ...]) -> None:
        """Raise UnsafePath if a path, given as its components, is blocked."""
        if (pattern := self.match("/".join(names))) is not None:
            raise UnsafePath(f"{shorten('/'.join(names))} is on the block list ({pattern})")


@lru_cache(maxsize=64)
def _screen(patterns: tuple[str, ...]) -> tuple[re.Pattern[str], tuple[Glob, ...]]:
    """Return a regular expression for the patterns without `/`, and globs for the other patterns.

    A path that neither the expression nor a glob matches is not blocked. Slashes at the ends of a
    pattern do not count. `**` becomes a glob. Patterns with `!` are left out, since they unblock.
    """
    globs = [Glob(each.strip("/").casefold()) for each in patterns if not each.startswith("!")]
    names = [glob.parts[0] for glob in globs if len(glob.parts) == 1]
    sources = [
        each.pattern if isinstance(each, re.Pattern) else re.escape(each) + r"\Z"
        for each in names
        if each is not None
    ]
    paths = tuple(glob for glob in globs if glob.parts[1:] or glob.parts == [None])
    return re.compile("|".join(sources) or "(?!)", re.DOTALL), paths
