"""Classify files (language, test, documentation, generated), and find the functions in them.

Functions are found by their headers and indentation, without a parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath

_SUFFIXES = {
    "python": ".py .pyi",
    "js": ".js .jsx .ts .tsx .mjs .cjs .mts .cts .vue .svelte",
    "go": ".go",
    "ruby": ".rb .rake",
    "rust": ".rs",
    "java": ".java .kt .kts .scala .groovy",
    "c": ".c .h .cc .cpp .hpp .cs .m .swift",
    "php": ".php",
    "shell": ".sh .bash",
    "elixir": ".ex .exs",
    "dart": ".dart",
    "lua": ".lua",
}
_LANGUAGES = {suffix: name for name, row in _SUFFIXES.items() for suffix in row.split()}
_TEST = re.compile(
    r"(?:^|/)(?:(?:[\w-]*[_-]|unit)?tests?|__tests__|__mocks__|spec|specs|testdata|\w*fixtures?_*"
    r"|e2e|cypress)/"
    r"|(?:^|/)(?:test_[^/]+|tests?|conftest)\.py$|_test\.(?:go|py)$"
    r"|\.(?:test|spec|stories)\.[cm]?[jt]sx?$",
    re.IGNORECASE,
)
_DOC = re.compile(
    r"\.(?:md|mdx|markdown|rst|adoc|txt)$|(?:^|/)(?:docs?|examples?|samples?)/", re.IGNORECASE
)
_GENERATED = re.compile(
    r"(?:^|/)(?:vendor|node_modules|third_party|_?vendored|dist|build|packages/urllib3"
    r"|packages/chardet)/"
    r"|\.min\.(?:js|css)$|\.pb\.go$|_pb2(?:_grpc)?\.py$|\.(?:snap|lock|map|svg)$"
    r"|\.generated\.|_generated\."
    r"|(?:^|/)(?:package-lock\.json|go\.sum|pnpm-lock\.yaml)$",
    re.IGNORECASE,
)
_MARK = re.compile(r"code generated .{0,80}do not edit|@generated\b", re.IGNORECASE)
_LONG_LINE = 2_000  # characters; a file with a longer line was generated
_HUGE_FILE = 600_000  # characters; a larger file was generated
_MAX_FUNCTIONS = 1_000  # functions of one file
_MAX_HEADER = 300  # characters of a line that is read as a header
# The line that opens a function or a class, and its name.
_HEADER = re.compile(
    r"[ \t]*(?:(?:export|default|public|private|protected|internal|static|final|abstract|async|pub"
    r"|override|virtual|inline|suspend)(?:\([^)]*\))?\s+)*"
    r"(?:(?P<kind>def|defp|func|function|fn|fun|class|struct|interface|impl|module|trait|sub"
    r"|namespace)\b\s*\*?\s*(?:\([^)]*\)\s*)?(?:self\.)?(?P<name>[\w$]+[?!]?)?"
    r"|(?:const|let|var)\s+(?P<arrow>[\w$]+)[^=]*=\s*(?:async\s*)?(?:function\b|\(|\w+\s*=>)"
    r"|(?!(?:if|for|while|switch|catch|return|else|await|throw|new|do|try|elif|with)\b)"
    r"(?:[\w<>\[\],.&*:]+\s+){0,6}(?P<method>[\w$]+)\s*\([^;]*\)[^;(){}]*\{\s*$)"
)
_CLASSES = ("class", "struct", "interface", "impl", "module", "trait", "namespace")


def language(path: str) -> str:
    """Return the language of a source file, such as "python", or "" for any other file."""
    return _LANGUAGES.get(PurePosixPath(path).suffix.lower(), "")


def is_test(path: str) -> bool:
    return _TEST.search(path) is not None


def is_doc(path: str) -> bool:
    return _DOC.search(path) is not None


def is_generated(path: str, text: str = "") -> bool:
    """Return whether the path or the text of a file shows that no person wrote the file.

    Such files are vendored, minified, generated or huge.
    """
    if _GENERATED.search(path) or _MARK.search(text[:600]) or len(text) > _HUGE_FILE:
        return True
    return max(map(len, text.split("\n"))) > _LONG_LINE


@dataclass(frozen=True, slots=True)
class Function:
    """A function in a source file: its name, and the line numbers of its start, header and end.

    The start is the line of the first decorator, if the function has one, else the header.
    """

    name: str
    start: int
    header: int
    end: int
    depth: int  # indentation of the header
    owner: str = ""  # the class that contains the function


def opens_block(line: str) -> bool:
    """Return whether a line opens a function or a class."""
    return _HEADER.match(line[:_MAX_HEADER]) is not None


def block_end(rows: list[str], start: int) -> int:
    """Return the number of the last line of the block that begins at line `start`.

    The end of the block is found by indentation.
    """
    depth = indentation(rows[start - 1])
    last = start
    for at in range(start, len(rows)):
        row = rows[at]
        if not row.strip():
            continue
        if indentation(row) <= depth:
            # A closing bracket belongs to the block; so does `end` of Ruby.
            closes = row.lstrip()[0] in ")]}{:" or row.strip() == "end"
            if not closes:
                return last
            if row.strip()[-1] not in "({[:,>":
                return at + 1
        last = at + 1
    return last


def indentation(row: str) -> int:
    return len(row) - len(row.lstrip())


@lru_cache(maxsize=64)
def functions(text: str) -> tuple[Function, ...]:
    """Return the functions and methods in the text of a file, in the order of their headers.

    Classes are left out, and so are functions after the first _MAX_FUNCTIONS.
    """
    return tuple(_functions(text.split("\n")))


def _functions(rows: list[str]) -> Iterator[Function]:
    count = 0
    classes: list[tuple[int, str]] = []  # indentation and name of the classes around a line
    for at, row in enumerate(rows, 1):
        match = _HEADER.match(row[:_MAX_HEADER])
        if match is None:
            continue
        depth = indentation(row)
        classes = [outer for outer in classes if outer[0] < depth]
        if match["kind"] in _CLASSES:
            classes.append((depth, match["name"] or ""))
            continue
        name = match["name"] or match["arrow"] or match["method"]
        if not name:
            continue
        count += 1
        if count > _MAX_FUNCTIONS:
            return
        owner = classes[-1][1] if classes else ""
        yield Function(name, _decorated(rows, at), at, block_end(rows, at), depth, owner)


def _decorated(rows: list[str], header: int) -> int:
    """Return the line number of a function's first decorator, or `header` if it has none.

    `header` is the line number of the line that defines the function.
    """
    start, depth = header, indentation(rows[header - 1])
    for at in range(header - 1, max(header - 20, 0), -1):
        row = rows[at - 1]
        if not row.strip() or indentation(row) < depth:
            break
        if row.lstrip().startswith("@"):
            start = at
        elif indentation(row) == depth and row.strip()[0] not in ")]}":
            break
    return start
