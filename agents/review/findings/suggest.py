"""Check a suggested replacement before anyone is offered a button that applies it."""

from __future__ import annotations

import ast
import json
import re
import tomllib
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import PurePosixPath

from glue.agents.review.change.syntax import is_test, language, read
from glue.agents.review.records import Bundle, Finding

MAX_LINES = 40
_PAIRS = ("()", "[]", "{}")
_RELAXES = re.compile(
    r"\b(?:skip|xfail|todo|only)\b|\b(?:remove|delete|drop|relax|loosen|weaken|disable|comment out|update|rewrite)\b"
    r".{0,40}"
    r"\b(?:test|assert\w*|expectation|spec)s?\b",
    re.IGNORECASE,
)
_ASSERT = re.compile(r"\bassert|\bexpect\(|\bt\.(?:Error|Fatal)|\brequire\.")


def fault(finding: Finding, bundle: Bundle) -> str:
    """Say what is wrong with a finding's suggestion; the empty text where it may be offered."""
    text = finding.suggestion
    if text is None:
        return ""
    head = bundle.head.get(finding.path)
    if finding.line is None or finding.side == "LEFT" or head is None:
        return "the suggestion stands on no line that can be replaced"
    start, end = finding.start_line or finding.line, finding.line
    lines = head.split("\n")
    if not 1 <= start <= end <= len(lines):
        return "the suggestion stands outside of the file"
    old, new = lines[start - 1 : end], text.rstrip("\n").split("\n") if text else []
    return (
        _shape(old, new)
        or _repeats(lines, start, end, new)
        or _parses(finding.path, head, [*lines[: start - 1], *new, *lines[end:]])
    )


def weakens_test(finding: Finding, bundle: Bundle) -> bool:
    """Whether the way out that a finding proposes is to relax a test of this very change."""
    file = bundle.file(finding.path)
    if file is None or not is_test(finding.path) or finding.rule:
        return False
    if finding.suggestion is not None:
        before, after = len(_ASSERT.findall(finding.quote)), len(_ASSERT.findall(finding.suggestion))
        if after < before or re.search(r"\.skip\b|pytest\.mark\.(?:skip|xfail)|t\.Skip", finding.suggestion):
            return True
    return _RELAXES.search(f"{finding.title}\n{finding.body}\n{finding.acceptance}") is not None


def _shape(old: list[str], new: list[str]) -> str:
    if len(new) > MAX_LINES:
        return f"the suggestion is longer than {MAX_LINES} lines"
    if any(re.match(r"\s*(?:```|~~~)", line) for line in new):
        return "the suggestion holds a fence"
    if [line.rstrip() for line in old] == [line.rstrip() for line in new]:
        return "the suggestion changes nothing"
    was, now = _indent(old), _indent(new)
    if was is not None and now is not None and was != now:
        return "the suggestion is indented differently from what it replaces"
    return ""


def _indent(lines: list[str]) -> str | None:
    first = next((line for line in lines if line.strip()), None)
    return None if first is None else first[: len(first) - len(first.lstrip())]


def _repeats(lines: list[str], start: int, end: int, new: list[str]) -> str:
    """A model that cites one line and rewrites three leaves the other two standing twice."""
    above, below = lines[start - 2] if start > 1 else "", lines[end] if end < len(lines) else ""
    ink = [line.strip() for line in new if line.strip()]
    if len(ink) > 1 and len(ink[0]) > 4 and ink[0] == above.strip():
        return "the suggestion repeats the line above it"
    if len(ink) > 1 and len(ink[-1]) > 4 and ink[-1] == below.strip():
        return "the suggestion repeats the line below it"
    return ""


def _parses(path: str, old: str, lines: list[str]) -> str:
    """Nothing may parse worse than before."""
    new = "\n".join(lines)
    kind = PurePosixPath(path).suffix.lower()
    if kind in _PARSERS:
        before, after = _PARSERS[kind](old), _PARSERS[kind](new)
        return f"with the suggestion the file no longer parses: {after}" if after and not before else ""
    if not language(path):
        return ""
    was, now = (_balance(text, path) for text in (old, new))
    return "with the suggestion the brackets do not match" if was != now else ""


def _balance(text: str, path: str) -> tuple[int, ...]:
    code = read(text, language(path)).code
    return tuple(code.count(pair[0]) - code.count(pair[1]) for pair in _PAIRS)


def _refused(parse: Callable[[str], object], text: str) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return str(error)[:120]
    return ""


def _yaml(text: str) -> str:
    """Without a YAML library: no tabs in the indentation, and no key that stands nowhere."""
    for number, line in enumerate(text.split("\n"), 1):
        if re.match(r"\s*\t", line):
            return f"line {number} is indented with a tab"
        if re.match(r"\s*[^\s#'\"{}\[\],&*!|>%@`-][^:]*:\S", line) and "://" not in line and "{" not in line:
            return f"line {number} has no blank after its colon" if not re.search(r"['\"]", line) else ""
    return ""


_PARSERS: dict[str, Callable[[str], str]] = {
    **dict.fromkeys((".py", ".pyi"), partial(_refused, ast.parse)),
    ".json": partial(_refused, json.loads),
    ".toml": partial(_refused, tomllib.loads),
    **dict.fromkeys((".yaml", ".yml"), _yaml),
}
