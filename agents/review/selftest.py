"""Seed bugs into the user's own code and see what a reviewer makes of them, before anyone trusts it."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from glue import Provider
from glue.agents.review.change.collect import from_texts
from glue.agents.review.change.config import Config
from glue.agents.review.findings.model import review
from glue.agents.review.findings.syntax import is_test, language
from glue.agents.review.records import Bundle, Change


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


NEAR = 3  # lines that still count as the right place


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What came of it. Each seeded bug has a clean change beside it."""

    seeded: int = 0
    found: int = 0  # a finding within NEAR lines
    exact: int = 0  # on the very line
    clean: int = 0
    alarms: int = 0  # findings where nothing was seeded
    inconclusive: int = 0
    kinds: Mapping[str, tuple[int, int]]  # kind -> found, seeded

    @property
    def recall(self) -> float:
        return self.found / self.seeded if self.seeded else 0.0

    @property
    def precision(self) -> float:
        said = self.found + self.alarms
        return self.found / said if said else 1.0

    def __str__(self) -> str:
        rows = [
            f"seeded bugs   {self.seeded}",
            f"found         {self.found} ({self.recall:.0%}), on the very line {self.exact}",
            f"clean changes {self.clean}, false alarms {self.alarms}, precision {self.precision:.0%}",
        ]
        if self.inconclusive:
            rows.append(f"inconclusive  {self.inconclusive}")
        rows += [f"  {kind:<20}{found} of {seeded}" for kind, (found, seeded) in sorted(self.kinds.items())]
        return "\n".join(rows)


async def selftest(
    texts: Mapping[str, str],
    *,
    providers: Callable[[], Sequence[Provider]] = tuple,
    config: Config | None = None,
    count: int = 10,
    seed: int = 0,
) -> Score:
    """Review `count` seeded bugs and as many clean changes in files given as path -> text."""
    found = [one for path, text in sorted(texts.items()) for one in mutants(path, text)]
    chosen = choose(found, count, seed)
    kinds: dict[str, tuple[int, int]] = {}
    hits = exact = alarms = clean = unsure = 0
    for mutant in chosen:
        run = await review(_bundle(mutant, texts), providers=providers(), config=config)
        unsure += bool(run.codes)
        lines = [(one.start_line or one.line, one.line) for one in run.findings if one.path == mutant.path and one.line]
        near = any((low or 0) - NEAR <= mutant.line <= high + NEAR for low, high in lines)
        hits += near
        exact += any((low or 0) <= mutant.line <= high for low, high in lines)
        alarms += sum(not (low or 0) - NEAR <= mutant.line <= high + NEAR for low, high in lines)
        was = kinds.get(mutant.kind, (0, 0))
        kinds[mutant.kind] = (was[0] + near, was[1] + 1)
        harmless = await review(_harmless(mutant, texts), providers=providers(), config=config)
        clean += 1
        alarms += len(harmless.findings)
    return Score(
        seeded=len(chosen), found=hits, exact=exact, clean=clean, alarms=alarms, inconclusive=unsure, kinds=kinds
    )


def _bundle(mutant: Mutant, texts: Mapping[str, str]) -> Bundle:
    return _change(mutant.path, texts[mutant.path], mutant.text)


def _harmless(mutant: Mutant, texts: Mapping[str, str]) -> Bundle:
    """The same file with a comment more on the same line: nothing to report."""
    lines = texts[mutant.path].split("\n")
    sign = "#" if mutant.path.endswith((".py", ".pyi")) else "//"
    line = lines[mutant.line - 1]
    note = f"{line[: len(line) - len(line.lstrip())]}{sign} The next line is as it was."
    return _change(
        mutant.path, texts[mutant.path], "\n".join([*lines[: mutant.line - 1], note, *lines[mutant.line - 1 :]])
    )


def _change(path: str, old: str, new: str) -> Bundle:
    return from_texts({path: old}, {path: new}, Change(title="Tidy up"))
