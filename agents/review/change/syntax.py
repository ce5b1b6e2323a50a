"""Source files as tokens and functions, for Python, JavaScript, TypeScript and Go: layout and quotes take no part."""

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
    r"(?:^|/)(?:(?:[\w-]*[_-]|unit)?tests?|__tests__|__mocks__|spec|specs|testdata|\w*fixtures?_*|e2e|cypress)/"
    r"|(?:^|/)(?:test_[^/]+|tests?|conftest)\.py$|_test\.(?:go|py)$|\.(?:test|spec|stories)\.[cm]?[jt]sx?$",
    re.IGNORECASE,
)
_DOC = re.compile(r"\.(?:md|mdx|markdown|rst|adoc|txt)$|(?:^|/)(?:docs?|examples?|samples?)/", re.IGNORECASE)
_GENERATED = re.compile(
    r"(?:^|/)(?:vendor|node_modules|third_party|_?vendored|dist|build|packages/urllib3|packages/chardet)/"
    r"|\.min\.(?:js|css)$|\.pb\.go$|_pb2(?:_grpc)?\.py$|\.(?:snap|lock|map|svg)$|\.generated\.|_generated\."
    r"|(?:^|/)(?:package-lock\.json|go\.sum|pnpm-lock\.yaml)$",
    re.IGNORECASE,
)
_MARK = re.compile(r"code generated .{0,80}do not edit|@generated\b", re.IGNORECASE)
_LONG = 2_000  # characters of a line that people do not write
_HUGE = 600_000  # characters of a file
_MOST = 1_000  # functions of a file that are looked at
_DEEPEST = 6  # levels of functions in functions
_TOKENS = 3_000  # of two functions that are compared, without what they share at both ends

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
        r"""(?P<comment>\#[^\n]*)|(?P<string>[rRbBfFuU]{0,2}(?:\"{3}.*?(?:\"{3}|\Z)|'{3}.*?(?:'{3}|\Z)|"""
        + _STRING
        + "))",
        re.DOTALL,
    ),
    "js": _JS,
    "go": re.compile(rf"(?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))|(?P<string>{_STRING}|`[^`]*`)", re.DOTALL),
}
_WORD = re.compile(r"[A-Za-z_$][\w$]*|\d[\w.]*|=>|===?|!==?|<=|>=|:=|&&|\|\||\?\?|\?\.|\.\.\.|\S")
_NOT_NEWLINE = re.compile(r"[^\n]")
_ARGS = r"\((?:[^(){};]|\{[^{}]*\}|\((?:[^()])*\))*\)"
# A return type may hold braces of its own: `Promise<{ id: string }>`.
_RETURNS = r"\s*(?::(?:[^{};=]|=>|\{[^{}]*\}(?=\s*[>\]|&,]))+)?"
_HEADERS = {
    "go": re.compile(r"^func\s*(?:\([^)]*\)\s*)?(?P<name>\w+)\s*(?:\[[^\]]*\])?\([^{]*\{", re.MULTILINE),
    "js": re.compile(
        rf"(?:(?:async\s+)?function\s*\*?\s*(?P<name>\w+)\s*(?:<[^>(]*>)?\s*{_ARGS}{_RETURNS}\{{)"
        r"|(?:(?:const|let|var)\s+(?P<arrow>\w+)\s*(?::[^=;]+)?=\s*(?:React\.)?(?:memo\(|forwardRef\()?\s*(?:async\s*)?"
        rf"(?:{_ARGS}|\w+){_RETURNS}=>\s*\{{)"
        rf"|(?:^[\w.$]+\.(?P<member>\w+)\s*=\s*(?:async\s+)?function\s*\w*\s*{_ARGS}\s*\{{)"
        r"|(?:^[ \t]+(?:(?:public|private|protected|static|async|override|get|set)\s+)*"
        r"(?!(?:if|for|while|switch|catch|return|function|await|else)\b)(?P<method>\w+)\s*(?:<[^>(]*>)?"
        rf"{_ARGS}{_RETURNS}\{{)",
        re.MULTILINE,
    ),
}


def language(path: str) -> str:
    return _LANGUAGES.get(PurePosixPath(path).suffix.lower(), "")


def is_test(path: str) -> bool:
    return _TEST.search(path) is not None


def is_doc(path: str) -> bool:
    return _DOC.search(path) is not None


def is_generated(path: str, text: str = "") -> bool:
    """Whether no person wrote a file: vendored, minified, generated, or of lines that nobody types."""
    if _GENERATED.search(path) or _MARK.search(text[:600]) or len(text) > _HUGE:
        return True
    return max(map(len, text.split("\n"))) > _LONG


@dataclass(frozen=True, slots=True)
class Token:
    text: str
    line: int


@dataclass(frozen=True)
class Function:
    """A function with its decorators. `name` holds the classes around it; lines count from 1, both inclusive."""

    name: str
    start: int
    end: int
    tokens: tuple[Token, ...]

    @cached_property
    def words(self) -> list[str]:
        return [token.text for token in self.tokens]


def _parts(text: str, kind: str) -> Iterator[tuple[str, str]]:
    """Part a text into code, comments, strings and the like: what each is, and its text."""
    at = 0
    for match in _LEXERS[kind].finditer(text):
        yield "code", text[at : match.start()]
        yield match.lastgroup or "", match.group()
        at = match.end()
    yield "code", text[at:]


def blanked(text: str, kind: str) -> str:
    """Blank the comments and the insides of the strings of a text; the rest keeps its place."""
    shown: list[str] = []
    for what, part in _parts(text, kind):
        if what != "code":
            edge = int(what != "comment")  # quotes stay
            end = len(part) - edge
            part = part[:edge] + _NOT_NEWLINE.sub(" ", part[edge:end]) + part[end:]
        shown.append(part)
    return "".join(shown)


@lru_cache(maxsize=64)
def functions(text: str, kind: str) -> tuple[Function, ...]:
    """Find the functions of a file; those inside others come after what holds them."""
    if kind == "python":
        return tuple(_python(text))
    return tuple(_braced(text, kind)) if kind in _HEADERS else ()


def _python(text: str) -> Iterator[Function]:
    text = text.removeprefix("\ufeff")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a bad escape in the reviewed file is not our warning
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    tokens = _python_tokens(text)
    lines = [token.line for token in tokens]

    def walk(node: ast.AST, prefix: str) -> Iterator[Function]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                start = min([child.lineno, *(one.lineno for one in child.decorator_list)])
                end = child.end_lineno or child.lineno
                body = tokens[bisect_right(lines, start - 1) : bisect_right(lines, end)]
                yield Function(prefix + child.name, start, end, tuple(body))
            name = getattr(child, "name", "") if isinstance(child, ast.ClassDef | ast.FunctionDef) else ""
            yield from walk(child, f"{prefix}{name}." if name else prefix)

    try:
        yield from islice(walk(tree, ""), _MOST)
    except RecursionError:
        return


def _python_tokens(text: str) -> list[Token]:
    """Tokens with blocks as braces and statements ended by semicolons, so that other languages' patterns fit."""
    marks = {tokenize.NEWLINE: ";", tokenize.INDENT: "{", tokenize.DEDENT: "}"}
    found: list[Token] = []
    try:
        for kind, word, (line, _), _, _ in tokenize.generate_tokens(io.StringIO(text).readline):
            if kind in marks:
                found.append(Token(marks[kind], found[-1].line if kind == tokenize.DEDENT and found else line))
            elif kind not in (tokenize.COMMENT, tokenize.NL, tokenize.ENDMARKER) and word:
                found.append(Token(_plain(word), line))
    except (tokenize.TokenError, SyntaxError, ValueError):
        pass
    return _without_commas(found)


def _braced(text: str, kind: str) -> Iterator[Function]:
    code = blanked(text, kind)
    starts = (0, *(match.end() for match in re.finditer("\n", text)))
    closed: dict[int, int] = {}  # where each brace is closed, found in one pass: nested ones must not cost a scan each
    waiting: list[int] = []
    for brace in re.finditer("[{}]", code):
        if brace.group() == "{":
            waiting.append(brace.start())
        elif waiting:
            closed[waiting.pop()] = brace.start()
    around: list[int] = []  # ends of the functions that hold this one
    for match in islice(_HEADERS[kind].finditer(code), _MOST):
        opening = match.end() - 1
        end = closed.get(opening, len(text) - 1)
        around = [one for one in around if one > opening]
        if len(around) >= _DEEPEST:
            continue
        around.append(end)
        name = next((value for value in match.groupdict().values() if value), "")
        start = match.end() - len(match.group().lstrip())
        first, last = bisect_right(starts, start), bisect_right(starts, end)
        yield Function(name, first, last, tuple(lex(text[start : end + 1], kind, first)))


def lex(text: str, kind: str, first: int = 1) -> list[Token]:
    """Split code into tokens: strings whole and with one kind of quote, no comments."""
    found: list[Token] = []
    line = first
    for what, part in _parts(text, kind):
        if what == "code":
            for number, row in enumerate(part.split("\n"), line):
                found += (Token(word, number) for word in _WORD.findall(row) if not (kind == "js" and word == ";"))
        elif what != "comment":
            found.append(Token(_plain(part), line))
        line += part.count("\n")
    return _without_commas(found)


def _plain(word: str) -> str:
    """One kind of quote: formatters change them."""
    if word[:1] == "'" and word[-1:] == "'" and '"' not in word and len(word) > 1 and not word.startswith("'''"):
        return f'"{word[1:-1]}"'
    return word


def _without_commas(tokens: list[Token]) -> list[Token]:
    """Drop commas in front of a closing bracket: formatters add them."""
    following = [*(token.text for token in tokens[1:]), ""][: len(tokens)]
    return [token for token, after in zip(tokens, following, strict=True) if token.text != "," or after not in ")]}"]


@dataclass(frozen=True, slots=True)
class Edit:
    """A run of tokens that was taken out, put in, or replaced. `line` is where it stood or stands in the new text."""

    old: tuple[str, ...]
    new: tuple[str, ...]
    line: int
    start: int  # of `old` in the old tokens


def edits(old: Function, new: Function) -> tuple[Edit, ...] | None:
    """How one function became the other; None where they are too large to say."""
    before, after = old.words, new.words
    left = _shared(before, after)
    right = _shared(before[left:][::-1], after[left:][::-1])
    before, after = before[left : len(before) - right], after[left : len(after) - right]
    if len(before) > _TOKENS or len(after) > _TOKENS:
        return None
    lines = [token.line for token in new.tokens]
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    return tuple(
        Edit(tuple(before[i:j]), tuple(after[k:m]), lines[min(left + k, len(lines) - 1)], left + i)
        for kind, i, j, k, m in matcher.get_opcodes()
        if kind != "equal"
    )


def _shared(one: list[str], other: list[str]) -> int:
    """How many words both start with."""
    differ = (at for at, (left, right) in enumerate(zip(one, other, strict=False)) if left != right)
    return next(differ, min(len(one), len(other)))


def pairs(before: tuple[Function, ...], after: tuple[Function, ...]) -> Iterator[tuple[Function, Function]]:
    """Put together what is one function on both sides: by name, and by order where a name is there several times."""
    groups: dict[str, tuple[list[Function], list[Function]]] = {}
    for side, found in enumerate((before, after)):
        for function in found:
            groups.setdefault(function.name, ([], []))[side].append(function)
    for old, new in groups.values():
        if len(old) == len(new):
            yield from zip(old, new, strict=True)
