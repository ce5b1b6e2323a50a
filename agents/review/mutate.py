"""Seed bugs: small changes to clean code that make it wrong, each on one known line."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from glue.agents.review.rules.view import is_test, language


@dataclass(frozen=True, slots=True)
class Mutant:
    """One seeded bug: the text with it, and where it is."""

    kind: str
    path: str
    line: int
    text: str


_Operator = Callable[[str], str | None]


def _comparator(line: str) -> str | None:
    match = re.search(r"(?<=\s)(<=|>=|<|>)(?=\s)", line)
    if not match or re.search(r"=>|->|<\w+>", line):
        return None
    flipped = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}[match[1]]
    return line[: match.start()] + flipped + line[match.end() :]


def _negate(line: str) -> str | None:
    match = re.match(r"(\s*(?:if|while)\s+)(not\s+)?(.*:)\s*$", line)
    if not match or re.search(r"\b(?:and|or)\b", match[3]):
        return None
    return f"{match[1]}{match[3]}" if match[2] else f"{match[1]}not {match[3]}"


def _drop_await(line: str) -> str | None:
    return line.replace("await ", "", 1) if re.match(r"\s*(?:\w+\s*=\s*)?await\s", line) else None


def _shift(line: str) -> str | None:
    if re.search(r"\brange\(len\((\w+)\)\)", line):
        return re.sub(r"range\(len\((\w+)\)\)", r"range(len(\1) + 1)", line, count=1)
    return re.sub(r"\s*-\s*1\b", "", line, count=1) if re.search(r"\[[^\]]*-\s*1\b|range\([^)]*-\s*1\b", line) else None


def _mutable(line: str) -> str | None:
    match = re.match(r"(\s*def\s+\w+\(.*\b\w+)(\s*:[^,=)]+)?\s*=\s*None(.*)", line)
    return f"{match[1]}{match[2] or ''} = []{match[3]}" if match and "list" in (match[2] or "list") else None


def _swallow(line: str) -> str | None:
    match = re.match(r"(\s*)except\s+\w[\w.]*(?:\s+as\s+\w+)?\s*:\s*$", line)
    return f"{match[1]}except Exception:" if match and "Exception" not in line else None


_OPERATORS: dict[str, _Operator] = {
    "flipped comparison": _comparator,
    "negated condition": _negate,
    "dropped await": _drop_await,
    "shifted bound": _shift,
    "mutable default": _mutable,
}


def mutants(path: str, text: str) -> Iterator[Mutant]:
    """Every bug that can be seeded into a file; each result still parses where that can be checked."""
    if not language(path) or is_test(path):
        return
    lines = text.split("\n")
    for index, line in enumerate(lines):
        for kind, operator in _OPERATORS.items():
            changed = operator(line)
            if changed is None or changed == line:
                continue
            new = "\n".join([*lines[:index], changed, *lines[index + 1 :]])
            if language(path) != "python" or _is_python(new):
                yield Mutant(kind, path, index + 1, new)


def choose(found: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """Take some, evenly over the kinds, the same ones for the same seed."""
    order = random.Random(seed)
    kinds = sorted({one.kind for one in found})
    groups = {
        kind: order.sample(group, len(group)) for kind in kinds if (group := [o for o in found if o.kind == kind])
    }
    chosen: list[Mutant] = []
    while groups and len(chosen) < count:
        for kind in [kind for kind in kinds if kind in groups]:
            chosen.append(groups[kind].pop())
            if not groups[kind]:
                del groups[kind]
    return chosen[:count]


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True
