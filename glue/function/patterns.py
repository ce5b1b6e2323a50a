"""Removal of slow regular expressions from JSON schemas, for example of MCP servers.

A pattern such as `(a+)+$` can take exponential time on a text that a model chose, and would block
the event loop meanwhile. So values are not checked against patterns that may be slow.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import inf
from typing import Any, TypeAlias

_MAX_DEPTH = 64  # of a schema; parts that are nested deeper accept every value
_MAX_PATTERN = 1000  # characters
_MAX_WAYS = 1000  # the number of ways in which a pattern may match a text
_MANY = 64  # repetitions that count as unlimited
# Keywords whose value is a dict of schemas by name. The names may look like keywords.
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")


def without_slow_patterns(schema: Any, depth: int = 0, *, named: bool = False) -> Any:
    """Return a copy of a schema without the regular expressions that may be slow.

    Such expressions are removed everywhere, also from examples, because a `$ref` may point to any
    place. If `named` is True, the keys of `schema` are names, not keywords.
    """
    if not isinstance(schema, (list, Mapping)):
        return schema
    if depth > _MAX_DEPTH:
        return True
    if isinstance(schema, list):
        return [without_slow_patterns(each, depth + 1) for each in schema]
    kept = {}
    for keyword, value in schema.items():
        if keyword == "pattern" and isinstance(value, str) and not is_quick(value):
            continue
        quick = without_slow_patterns(value, depth + 1, named=not named and keyword in _NAMED)
        # A changed enum or const would reject values that are right.
        if named or keyword not in ("enum", "const") or quick == value:
            kept[keyword] = quick
    patterns = kept.get("patternProperties")
    if isinstance(patterns, Mapping) and not all(map(is_quick, patterns)):
        for keyword in ("patternProperties", "additionalProperties", "unevaluatedProperties"):
            kept.pop(keyword, None)
    return kept


def is_quick(pattern: str) -> bool:
    """Return whether the time to search for a pattern surely grows only linearly with the text.

    >>> is_quick("^[a-z]+$"), is_quick("(a+)+$")
    (True, False)
    """
    if len(pattern) > _MAX_PATTERN:
        return False
    try:
        tokens = _Parser(pattern).read()
        re.compile(pattern)
    except (_Unknown, re.error, RecursionError, OverflowError):
        return False
    counts = _Counts()
    if not _count(tokens, False, counts):
        return False
    is_anchored = tokens[:1] == [(_START, None)]
    return counts.ways <= _MAX_WAYS and counts.unlimited <= (1 if is_anchored else 0)


class _Counts:
    """Two counts: the ways in which a pattern may match, and its unlimited repetitions."""

    def __init__(self) -> None:
        self.ways = 1
        self.unlimited = 0


def _count(tokens: Iterable[_Token], is_repeated: bool, counts: _Counts) -> bool:
    """Add a parsed pattern to the totals in `counts`; return False if the pattern may be slow.

    A pattern may be slow if a repetition contains a part that can match in several ways.
    """
    for kind, value in tokens:
        if kind == _REPEAT:
            low, high, inner = value
            if is_repeated or not _count(inner, high > 1, counts):
                return False
            counts.ways *= int(high) - low + 1 if high <= _MANY else 1
            counts.unlimited += high > _MANY
        elif kind == _GROUP:
            if not _count(value, is_repeated, counts):
                return False
        elif kind == _BRANCH:
            counts.ways *= len(value)
            if is_repeated or not all(_count(each, False, counts) for each in value):
                return False
        elif kind == _LOOK and (is_repeated or not _count(value, False, counts)):
            return False
    return True


_Token: TypeAlias = tuple[str, Any]
# The value of a repetition is a tuple of its bounds and its tokens. The value of a branch is a list
# of the tokens of each alternative. The value of a character is None, or a text that differs for
# different characters.
_CHARACTER, _START, _END, _REPEAT = "character", "start", "end", "repeat"
_GROUP, _BRANCH, _LOOK = "group", "branch", "look"
_BOUNDS = re.compile(r"\{(\d*)(?:(,)(\d*))?\}")
_OPENINGS = {"(?:": "", "(?=": _LOOK, "(?!": _LOOK, "(?<=": _LOOK, "(?<!": _LOOK}
_NAMED_GROUP = re.compile(r"\(\?P<\w+>")
_PLACES = {"A": _START, "Z": _END, "b": _END, "B": _END}
_CLASSES = "dDsSwW"  # after a backslash


class _Unknown(Exception):
    """Raised if a pattern is invalid, or contains a construct that the parser does not support.

    A back-reference is such a construct.
    """


def _is_set(branches: list[list[_Token]]) -> bool:
    r"""Return whether Python compiles alternatives such as `a|b|\d` to a set of characters.

    Python does so if each alternative is a character, a class or a set, and the alternatives are
    not all equal. For other alternatives, as in `.|a` or `a|a`, a text may match in several ways.
    """
    names = [branch[0][1] for branch in branches if [kind for kind, _ in branch] == [_CHARACTER]]
    return len(names) == len(branches) and None not in names and len(set(names)) > 1


class _Parser:
    """A parser of regular expressions. It rejects expressions whose time cannot be estimated.

    >>> _Parser("^a{2,}").read()
    [('start', None), ('repeat', (2, inf, [('character', 'a')]))]
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0

    def read(self) -> list[_Token]:
        """Parse the whole pattern and return its tokens; raise _Unknown if it cannot be parsed."""
        if self.pattern.startswith("(?i)"):  # ignores case, which does not change the time
            self.at = len("(?i)")
        tokens = self._alternatives()
        if self.at < len(self.pattern):  # a closing parenthesis too many
            raise _Unknown
        return tokens

    def _alternatives(self) -> list[_Token]:
        branches = [self._sequence()]
        while self.pattern.startswith("|", self.at):
            self.at += 1
            branches.append(self._sequence())
        if len(branches) == 1:
            return branches[0]
        if _is_set(branches):
            return [(_CHARACTER, None)]  # (a|b) matches in one way, like [ab]
        return [(_BRANCH, branches)]

    def _sequence(self) -> list[_Token]:
        tokens: list[_Token] = []
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            is_plain_group = self.pattern.startswith("(?:", self.at)
            atom = self._atom()
            bounds = self._bounds()
            if bounds is not None:
                tokens.append((_REPEAT, (*bounds, [atom])))
            elif is_plain_group:
                tokens += atom[1]
            else:
                tokens.append(atom)
        return tokens

    def _atom(self) -> _Token:
        char = self.pattern[self.at]
        if char == "(":
            return self._group()
        if char in "*+?":  # nothing to repeat, or a possessive repetition such as `a++`
            raise _Unknown
        self.at += 1
        if char == "[":
            return _CHARACTER, self._set()
        if char == "\\":
            return self._escape()
        if char in "^$":
            return (_START if char == "^" else _END), None
        return _CHARACTER, None if char == "." else char

    def _escape(self) -> _Token:
        """Return the token for a backslash and the character after it."""
        char = self.pattern[self.at : self.at + 1]
        if not char or char.isdigit():  # a back-reference
            raise _Unknown
        lengths = {"x": 3, "u": 5, "U": 9}
        self.at += lengths.get(char, 1)
        if char in _PLACES:
            return _PLACES[char], None
        if char in _CLASSES:
            return _CHARACTER, f"\\{char}"
        return _CHARACTER, None if char.isalnum() else char

    def _set(self) -> str | None:
        """Skip a set such as `[a-z]`. Return "[]" if it contains several characters, else None.

        A negated set and a set with a backslash also return None. The closing bracket is skipped,
        too. The result is the value of the token.
        """
        is_negated = self.pattern.startswith("^", self.at)
        if is_negated:
            self.at += 1
        first = self.at
        while self.pattern[self.at : self.at + 1] != "]" or self.at == first:
            if self.at >= len(self.pattern):
                raise _Unknown
            self.at += 2 if self.pattern[self.at] == "\\" else 1
        body = self.pattern[first : self.at]
        self.at += 1
        return "[]" if not is_negated and "\\" not in body and len(set(body)) > 1 else None

    def _group(self) -> _Token:
        opening = "("
        if self.pattern.startswith("(?", self.at):
            named = _NAMED_GROUP.match(self.pattern, self.at)
            found = [each for each in _OPENINGS if self.pattern.startswith(each, self.at)]
            if not named and not found:  # flags, conditions, atomic groups, comments
                raise _Unknown
            opening = named[0] if named else found[0]
        self.at += len(opening)
        inner = self._alternatives()
        if not self.pattern.startswith(")", self.at):
            raise _Unknown
        self.at += 1
        return _OPENINGS.get(opening) or _GROUP, inner

    def _bounds(self) -> tuple[int, float] | None:
        """Read a quantifier such as `{2,3}`; return its bounds, or None if no quantifier follows.

        `+` is read as `*`, which takes the same time.
        """
        char = self.pattern[self.at : self.at + 1]
        if char and char in "*+?":
            self.at += 1
            low, high = 0, (1 if char == "?" else inf)
        else:
            match = _BOUNDS.match(self.pattern, self.at)
            if match is None or match[0] == "{}":  # an opening brace may be a character
                return None
            self.at = match.end()
            low = int(match[1] or 0)
            high = low if not match[2] else int(match[3]) if match[3] else inf
        if self.pattern.startswith("?", self.at):  # lazy
            self.at += 1
        return low, high
