"""Seed bugs into the user's own code and see what a reviewer makes of them, before anyone trusts it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from glue.agents.review.collect import from_texts
from glue.agents.review.config import Config
from glue.agents.review.model import Bundle, Change
from glue.agents.review.mutate import Mutant, choose, mutants
from glue.agents.review.run import review
from glue.types import Provider

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
