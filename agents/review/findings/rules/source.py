"""Source text with its comments and strings told apart, and the functions of languages with braces."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

_STRING = r""""(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'"""
_LEXERS = {
    "python": re.compile(
        r"""(?P<comment>\#[^\n]*)|(?P<string>[rRbBfFuU]{0,2}(?:\"{3}.*?(?:\"{3}|\Z)|'{3}.*?(?:'{3}|\Z)|"""
        + _STRING
        + "))",
        re.DOTALL,
    ),
    "js": re.compile(
        r"(?P<comment>(?<![:\\])//[^\n]*|/\*.*?(?:\*/|\Z))"
        r"|(?P<regex>(?:(?<=[(,=:\[!&|?{};])|(?<=[(,=:\[!&|?{};] )|(?<=return ))"
        r"/(?![/*\s])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n\[])+/[dgimsuvy]*)"
        rf"|(?P<string>{_STRING}|`(?:\\.|[^`\\])*`)",
        re.DOTALL,
    ),
    "go": re.compile(
        rf"(?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))|(?P<string>{_STRING}|`[^`]*`)",
        re.DOTALL,
    ),
}
_NOT_NEWLINE = re.compile(r"[^\n]")

_ARGS = r"\((?:[^(){};]|\{[^{}]*\}|\((?:[^()])*\))*\)"
_HEADERS = {
    "go": re.compile(r"^func\s*(?:\([^)]*\)\s*)?(?P<name>\w+)?\s*(?:\[[^\]]*\])?\([^{]*\{", re.MULTILINE),
    "js": re.compile(
        rf"(?:function\s*\*?\s*(?P<name>\w+)?\s*(?:<[^>(]*>)?\s*{_ARGS}\s*(?::[^{{=;]+)?\{{)"
        r"|(?:(?:const|let|var)\s+(?P<arrow>\w+)\s*(?::[^=;]+)?=\s*(?:React\.)?(?:memo\(|forwardRef\()?\s*(?:async\s*)?"
        rf"(?:{_ARGS}|\w+)\s*(?::[^={{;]+)?=>\s*\{{)"
        r"|(?:^[ \t]+(?:(?:public|private|protected|static|async|override|get|set)\s+)*"
        r"(?!(?:if|for|while|switch|catch|return|function|await|else)\b)(?P<method>\w+)\s*(?:<[^>(]*>)?"
        rf"{_ARGS}\s*(?::(?:[^{{=;]|=>)+(?:\{{[^{{}}]*\}})?\s*)?\{{)",
        re.MULTILINE,
    ),
}


@dataclass(frozen=True, slots=True)
class Block:
    """A function: its name, its header, and its lines, counted from 1 and both inclusive."""

    name: str
    start: int
    end: int
    header: str
    body: str  # code only, strings and comments blanked
    at: int  # offset of the opening brace


@dataclass(frozen=True, slots=True)
class Source:
    """One text three times, each of the same shape: whole, without comments, and code alone."""

    text: str
    bare: str  # comments blanked
    code: str  # comments and the insides of strings blanked
    comments: str  # only comments
    starts: tuple[int, ...]  # offset of each line

    def line_of(self, offset: int) -> int:
        return bisect_right(self.starts, offset)

    def line(self, number: int) -> str:
        return self._cut(self.text, number)

    def code_line(self, number: int) -> str:
        return self._cut(self.code, number)

    def bare_line(self, number: int) -> str:
        return self._cut(self.bare, number)

    def comment_line(self, number: int) -> str:
        return self._cut(self.comments, number)

    def _cut(self, text: str, number: int) -> str:
        if not 1 <= number <= len(self.starts):
            return ""
        end = self.starts[number] if number < len(self.starts) else len(text)
        return text[self.starts[number - 1] : end].rstrip("\r\n")


def read(text: str, language: str) -> Source:
    """Tell code, strings and comments apart."""
    starts = [0]
    starts += [match.end() for match in re.finditer("\n", text)]
    lexer = _LEXERS.get(language)
    if lexer is None:
        return Source(text, text, text, "", tuple(starts))
    bare: list[str] = []
    code: list[str] = []
    comments: list[str] = []
    at = 0
    for match in lexer.finditer(text):
        before, token = text[at : match.start()], match.group()
        blank = _NOT_NEWLINE.sub(" ", token)
        comment = match.lastgroup == "comment"
        edge = 0 if comment else 1
        bare += (before, blank if comment else token)
        code += (before, token[:edge], blank[edge : len(token) - edge], token[len(token) - edge :] if edge else "")
        comments += (_NOT_NEWLINE.sub(" ", before), token if comment else blank)
        at = match.end()
    rest = text[at:]
    return Source(
        text,
        "".join((*bare, rest)),
        "".join((*code, rest)),
        "".join((*comments, _NOT_NEWLINE.sub(" ", rest))),
        tuple(starts),
    )


MOST = 1_000  # functions of a file that are looked at
DEEPEST = 8  # levels of functions in functions


def closing(code: str, at: int, pair: str = "{}") -> int:
    """The offset of the bracket that closes the one at `at`, or the end of the text."""
    return _closings(code, pair).get(at, len(code) - 1)


@lru_cache(maxsize=16)
def _closings(code: str, pair: str) -> dict[int, int]:
    """Where each bracket is closed, found in one pass: nested ones must not cost a scan each."""
    found: dict[int, int] = {}
    waiting: list[int] = []
    for match in re.finditer(f"[{re.escape(pair)}]", code):
        if match.group() == pair[0]:
            waiting.append(match.start())
        elif waiting:
            found[waiting.pop()] = match.start()
    return found


def functions(source: Source, language: str) -> tuple[Block, ...]:
    """Find the functions of a language with braces; nested ones come after what holds them."""
    pattern = _HEADERS.get(language)
    if pattern is None:
        return ()
    blocks = []
    around: list[int] = []  # ends of the functions that hold this one
    for match in islice(pattern.finditer(source.code), MOST):
        opening = match.end() - 1
        end = closing(source.code, opening)
        around = [one for one in around if one > opening]
        if len(around) >= DEEPEST:
            continue
        around.append(end)
        name = next((value for value in match.groupdict().values() if value), "")
        blocks.append(
            Block(
                name,
                source.line_of(match.start() + len(match.group()) - len(match.group().lstrip())),
                source.line_of(end),
                source.text[match.start() : opening],
                source.code[opening : end + 1],
                opening,
            )
        )
    return tuple(blocks)
