"""Tokens and functions of source files in Python, JavaScript, TypeScript and Go.

Tokens do not depend on layout, quotes, comments or trailing commas, so reformatted code compares
equal.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import PurePosixPath

_LANGUAGES = {
    **dict.fromkeys((".py", ".pyi"), "python"),
    **dict.fromkeys((".js", ".jsx", ".ts", ".tsx", ".mjs", ".cjs", ".mts", ".cts"), "js"),
    ".go": "go",
}
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
_MAX_DEPTH = 6  # levels of nested functions
_MAX_TOKENS = 3_000  # tokens of a function to compare, without the common start and end

_STRING = r""""(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'"""
_JS = re.compile(
    r"(?P<comment>(?<![:\\])//[^\n]*|/\*.*?(?:\*/|\Z))"
    r"|(?P<regex>(?:(?<=[(,=:\[!&|?{};])|(?<=[(,=:\[!&|?{};] )|(?<=return ))"
    r"/(?![/*\s])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n\[])+/[dgimsuvy]*)"
    rf"|(?P<string>{_STRING}|`(?:\\.|[^`\\])*`)",
    re.DOTALL,
)
_LEXERS = {
    "python": re.compile(
        r"(?P<comment>\#[^\n]*)"
        r"""|(?P<string>[rRbBfFuU]{0,2}(?:\"{3}.*?(?:\"{3}|\Z)|'{3}.*?(?:'{3}|\Z)|"""
        + _STRING
        + "))",
        re.DOTALL,
    ),
    "js": _JS,
    "go": re.compile(
        rf"(?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))|(?P<string>{_STRING}|`[^`]*`)", re.DOTALL
    ),
}
_WORD = re.compile(r"[A-Za-z_$][\w$]*|\d[\w.]*|=>|===?|!==?|<=|>=|:=|&&|\|\||\?\?|\?\.|\.\.\.|\S")
_NOT_NEWLINE = re.compile(r"[^\n]")
_ARGS = r"\((?:[^(){};]|\{[^{}]*\}|\((?:[^()])*\))*\)"
# A return type may contain braces: `Promise<{ id: string }>`.
_RETURNS = r"\s*(?::(?:[^{};=]|=>|\{[^{}]*\}(?=\s*[>\]|&,]))+)?"
_HEADERS = {
    "go": re.compile(
        r"^func\s*(?:\([^)]*\)\s*)?(?P<name>\w+)\s*(?:\[[^\]]*\])?\([^{]*\{", re.MULTILINE
    ),
    "js": re.compile(
        rf"(?:(?:async\s+)?function\s*\*?\s*(?P<name>\w+)\s*(?:<[^>(]*>)?\s*{_ARGS}{_RETURNS}\{{)"
        r"|(?:(?:const|let|var)\s+(?P<arrow>\w+)\s*(?::[^=;]+)?=\s*"
        r"(?:React\.)?(?:memo\(|forwardRef\()?\s*(?:async\s*)?"
        rf"(?:{_ARGS}|\w+){_RETURNS}=>\s*\{{)"
        rf"|(?:^[\w.$]+\.(?P<member>\w+)\s*=\s*(?:async\s+)?function\s*\w*\s*{_ARGS}\s*\{{)"
        r"|(?:^[ \t]+(?:(?:public|private|protected|static|async|override|get|set)\s+)*"
        r"(?!(?:if|for|while|switch|catch|return|function|await|else)\b)(?P<method>\w+)"
        r"\s*(?:<[^>(]*>)?"
        rf"{_ARGS}{_RETURNS}\{{)",
        re.MULTILINE,
    ),
}


def language(path: str) -> str:
    """Return "python", "js" or "go" for a source file, "" for any other file."""
    return _LANGUAGES.get(PurePosixPath(path).suffix.lower(), "")


def is_test(path: str) -> bool:
    return _TEST.search(path) is not None


def is_doc(path: str) -> bool:
    return _DOC.search(path) is not None


def is_generated(path: str, text: str = "") -> bool:
    """Return whether a file is vendored, minified or generated, judging by its path and text."""
    if _GENERATED.search(path) or _MARK.search(text[:600]) or len(text) > _HUGE_FILE:
        return True
    return max(map(len, text.split("\n"))) > _LONG_LINE


@dataclass(frozen=True, slots=True)
class Token:
    """A token of source code and its line number, counted from 1."""

    text: str
    line: int


@dataclass(frozen=True)
class Function:
    """A function with its decorators.

    `name` includes the enclosing classes. `start` and `end` are its first and last line.
    """

    name: str
    start: int
    end: int
    tokens: tuple[Token, ...]

    @cached_property
    def words(self) -> list[str]:
        return [token.text for token in self.tokens]


def _parts(text: str, kind: str) -> Iterator[tuple[str, str]]:
    """Split source code; yield the kind ("code", "comment", "string" ...) and text of each part."""
    at = 0
    for match in _LEXERS[kind].finditer(text):
        yield "code", text[at : match.start()]
        yield match.lastgroup or "", match.group()
        at = match.end()
    yield "code", text[at:]


def blanked(text: str, kind: str) -> str:
    """Return the code with comments and the content of strings replaced with spaces.

    The length of the text and the positions of all other characters stay the same.
    """
    shown: list[str] = []
    for what, part in _parts(text, kind):
        if what != "code":
            edge = int(what != "comment")  # the quotes of a string are kept
            end = len(part) - edge
            part = part[:edge] + _NOT_NEWLINE.sub(" ", part[edge:end]) + part[end:]
        shown.append(part)
    return "".join(shown)


@lru_cache(maxsize=64)
def functions(text: str, kind: str) -> tuple[Function, ...]:
    """Return the functions of a file, or an empty tuple if its language is not supported.

    A nested function comes after the function that contains it.
    """
    if kind == "python":
        return tuple(_python(text))
    return tuple(_braced(text, kind)) if kind in _HEADERS else ()


def _python(text: str) -> Iterator[Function]:
    text = text.removeprefix("\ufeff")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the reviewed file may have invalid escapes
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    tokens = _python_tokens(text)
    lines = [token.line for token in tokens]

    def walk(node: ast.AST, prefix: str) -> Iterator[Function]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                start = min([child.lineno, *(node.lineno for node in child.decorator_list)])
                end = child.end_lineno or child.lineno
                body = tokens[bisect_right(lines, start - 1) : bisect_right(lines, end)]
                yield Function(prefix + child.name, start, end, tuple(body))
            name = (
                getattr(child, "name", "")
                if isinstance(child, ast.ClassDef | ast.FunctionDef)
                else ""
            )
            yield from walk(child, f"{prefix}{name}." if name else prefix)

    try:
        yield from islice(walk(tree, ""), _MAX_FUNCTIONS)
    except RecursionError:
        return


def _python_tokens(text: str) -> list[Token]:
    """Return the tokens of Python code, with braces around blocks and semicolons after statements.

    So one pattern can match code in Python and in languages with braces.
    """
    marks = {tokenize.NEWLINE: ";", tokenize.INDENT: "{", tokenize.DEDENT: "}"}
    found: list[Token] = []
    try:
        for kind, word, (line, _), _, _ in tokenize.generate_tokens(io.StringIO(text).readline):
            if kind in marks:
                is_end = kind == tokenize.DEDENT and found
                found.append(Token(marks[kind], found[-1].line if is_end else line))
            elif kind not in (tokenize.COMMENT, tokenize.NL, tokenize.ENDMARKER) and word:
                found.append(Token(_plain(word), line))
    except (tokenize.TokenError, SyntaxError, ValueError):
        pass
    return _without_commas(found)


def _braced(text: str, kind: str) -> Iterator[Function]:
    code = blanked(text, kind)
    starts = (0, *(match.end() for match in re.finditer("\n", text)))
    # Position of each opening brace -> position of its closing brace. One pass finds all of them,
    # so that deep nesting does not need a scan for each function.
    closed: dict[int, int] = {}
    waiting: list[int] = []
    for brace in re.finditer("[{}]", code):
        if brace.group() == "{":
            waiting.append(brace.start())
        elif waiting:
            closed[waiting.pop()] = brace.start()
    around: list[int] = []  # ends of the enclosing functions
    for match in islice(_HEADERS[kind].finditer(code), _MAX_FUNCTIONS):
        opening = match.end() - 1
        end = closed.get(opening, len(text) - 1)
        around = [position for position in around if position > opening]
        if len(around) >= _MAX_DEPTH:
            continue
        around.append(end)
        name = next((value for value in match.groupdict().values() if value), "")
        start = match.end() - len(match.group().lstrip())
        first, last = bisect_right(starts, start), bisect_right(starts, end)
        yield Function(name, first, last, tuple(lex(text[start : end + 1], kind, first)))


def lex(text: str, kind: str, first: int = 1) -> list[Token]:
    """Return the tokens of code without comments; a string is one token with normalised quotes."""
    found: list[Token] = []
    line = first
    for what, part in _parts(text, kind):
        if what == "code":
            for number, row in enumerate(part.split("\n"), line):
                found += (
                    Token(word, number)
                    for word in _WORD.findall(row)
                    if not (kind == "js" and word == ";")
                )
        elif what != "comment":
            found.append(Token(_plain(part), line))
        line += part.count("\n")
    return _without_commas(found)


def _plain(word: str) -> str:
    """Return a string token with double quotes, because formatters change quotes."""
    is_single = len(word) > 1 and word[0] == word[-1] == "'" and not word.startswith("'''")
    if is_single and '"' not in word:
        return f'"{word[1:-1]}"'
    return word


def _without_commas(tokens: list[Token]) -> list[Token]:
    """Remove commas before a closing bracket, because formatters add them."""
    following = [*(token.text for token in tokens[1:]), ""][: len(tokens)]
    return [
        token
        for token, after in zip(tokens, following, strict=True)
        if token.text != "," or after not in ")]}"
    ]


@dataclass(frozen=True, slots=True)
class Edit:
    """Consecutive tokens that were removed, added or replaced.

    `line` is the line number in the new text.
    """

    old: tuple[str, ...]
    new: tuple[str, ...]
    line: int
    start: int  # index of `old` in the old tokens


def edits(old: Function, new: Function) -> tuple[Edit, ...] | None:
    """Return the edits that turn `old` into `new`, or None if the functions differ too much."""
    before, after = old.words, new.words
    left = _shared(before, after)
    right = _shared(before[left:][::-1], after[left:][::-1])
    before, after = before[left : len(before) - right], after[left : len(after) - right]
    if len(before) > _MAX_TOKENS or len(after) > _MAX_TOKENS:
        return None
    lines = [token.line for token in new.tokens]
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    return tuple(
        Edit(tuple(before[i:j]), tuple(after[k:m]), lines[min(left + k, len(lines) - 1)], left + i)
        for kind, i, j, k, m in matcher.get_opcodes()
        if kind != "equal"
    )


def _shared(one: list[str], other: list[str]) -> int:
    """Return the length of the common start of two lists."""
    differ = (at for at, (left, right) in enumerate(zip(one, other, strict=False)) if left != right)
    return next(differ, min(len(one), len(other)))


def pairs(
    before: tuple[Function, ...], after: tuple[Function, ...]
) -> Iterator[tuple[Function, Function]]:
    """Yield each function before the change with the same function after it.

    Functions are matched by name. Several functions of one name are matched in order, if their
    number did not change; otherwise they are left out.
    """
    groups: dict[str, tuple[list[Function], list[Function]]] = {}
    for side, found in enumerate((before, after)):
        for function in found:
            groups.setdefault(function.name, ([], []))[side].append(function)
    for old, new in groups.values():
        if len(old) == len(new):
            yield from zip(old, new, strict=True)
