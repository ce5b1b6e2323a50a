"""The Python files of the repository and their imports, found without a parser.

A parse of all files takes 3 seconds. Python code without its strings and comments is regular enough
for patterns: each line that begins with `import` or `from ... import` is a statement.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ("glue", "providers", "tools", "prompts", "agents")
FOLDERS = (*SHIPPED, "tests", "bench", "examples", "docs")
TOKEN = re.compile(
    r"""
    \#[^\n]*
    | (?P<quotes>\"{3}|'{3}) (?:\\.|[^\\])*? (?P=quotes)
    | "(?:\\.|[^"\\\n])*"
    | '(?:\\.|[^'\\\n])*'
    """,
    re.DOTALL | re.VERBOSE,
)
STATEMENT = re.compile(
    r"""
    ^(?P<indent>[ \t]*)
    (?P<statement>
        from\b (?:[^\n\\]|\\\n)+? \bimport\b \s* (?: \([^)]*\) | (?:[^\n\\]|\\\n)+ )
        | import\b (?:[^\n\\]|\\\n)+
    )
    """,
    re.MULTILINE | re.VERBOSE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """A name that a file imports from a module, or a module that it imports."""

    module: str
    name: str = ""  # empty for `import module`
    known_as: str = ""  # the local name
    is_indented: bool = False

    @property
    def full(self) -> str:
        return f"{self.module}.{self.name}" if self.name else self.module


@functools.cache
def python_files(*folders: str) -> tuple[Path, ...]:
    """Return the Python files below folders, without those that are reached through a link."""
    return tuple(
        sorted(
            path
            for folder in folders
            for path in (ROOT / folder).rglob("*.py")
            if not any(part.is_symlink() for part in path.parents if part != ROOT)
        )
    )


@functools.cache
def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def without_strings(text: str) -> tuple[str, list[str]]:
    """Return code with an empty string for each string and no comments, and the strings.

    >>> without_strings("print('a', 1)  # one")
    ('print("", 1)  ', ["'a'"])
    """
    strings: list[str] = []

    def blank(found: re.Match[str]) -> str:
        if found[0].startswith("#"):
            return ""
        strings.append(found[0])
        return '""'

    return TOKEN.sub(blank, text), strings


@functools.cache
def imports(path: Path) -> tuple[Import, ...]:
    """Return what the import statements of a file import, also those inside functions."""
    return tuple(imports_of(read(path)))


def imports_of(text: str) -> Iterator[Import]:
    for found in STATEMENT.finditer(without_strings(text)[0]):
        for module, name, known_as in _names(found["statement"]):
            yield Import(
                module=module, name=name, known_as=known_as, is_indented=bool(found["indent"])
            )


@functools.cache
def _names(statement: str) -> tuple[tuple[str, str, str], ...]:
    """Return the module, the name and the local name of each part of an import statement."""
    return tuple(_aliases(ast.parse(statement).body))


def _aliases(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str, str]]:
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, "", alias.asname or alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node.module or "", alias.name, alias.asname or alias.name


def parsed_imports(text: str) -> set[tuple[str, str, str]]:
    """Return the imports in a text as Python's parser finds them, which is slow."""
    return set(_aliases(ast.walk(ast.parse(text))))
