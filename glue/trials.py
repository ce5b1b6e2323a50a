"""Trials of cases, their statistics, and the file in which they are saved.

`glue eval` runs the trials on models, and `glue review selftest` by reviews of changes.

    for summary in evaluation.summaries():
        print(summary.model, summary.score, summary.cost)
    for pair in differences(evaluation, load(Path("baseline.jsonl"))):
        print(pair.better, pair.worse, pair.p)
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import ClassVar, TypeVar

from glue.codec import from_json, to_json
from glue.errors import ConfigError, StoreError
from glue.messages import Json, Message
from glue.paths import read_text, write_private
from glue.statistics import Comparison, compare, holm, interval, mean, percentile
from glue.text import count

SCHEMA = 1
EvaluationT = TypeVar("EvaluationT", bound="Evaluation")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseTrial:
    """The record of one run of a case on a model: its score, reasons, text, cost and messages."""

    model: str
    case: str
    repeat: int
    score: float  # from 0 to 1; the lowest of all checks
    outcome: str
    reasons: tuple[str, ...] = ()  # if the score is below 1
    text: str = ""
    cost: float | None = None
    tokens: int = 0
    seconds: float = 0.0
    turns: int = 0
    replied: str = ""  # the provider and model of the last reply
    notice: str = ""  # such as: the answer is cut, or a stand-in answered instead of a model
    plain: float | None = None  # the score without the judge, if the case has other checks too
    judged: float | None = None  # the score of the judge alone
    judge_cost: float | None = None
    messages: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The scores, mean costs, mean tokens, times and outcomes of one model in an evaluation."""

    model: str
    score: float  # the mean over cases, from 0 to 1
    low: float  # the interval of the score
    high: float
    passed: float  # the sum of the scores of all trials
    trials: int
    cases: int
    cost: float | None
    judge_cost: float | None
    p50: float  # seconds
    p95: float  # seconds
    tokens: int
    outcomes: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The trials of all models, and the statistics over them."""

    made_by: ClassVar[str] = "glue eval"
    models: tuple[str, ...]
    trials: tuple[CaseTrial, ...] = ()
    judge: str = ""
    replayed: bool = False  # from a cassette, so that the seconds mean nothing
    unfinished: str = ""  # the reason, if some trials were not run

    def trials_of(self, model: str) -> list[CaseTrial]:
        """Return the trials of a model."""
        return [trial for trial in self.trials if trial.model == model]

    def scores(self, model: str) -> dict[str, float]:
        """Return the mean score of a model in each case, by the id of the case."""
        found: dict[str, list[float]] = {}
        for trial in self.trials_of(model):
            found.setdefault(trial.case, []).append(trial.score)
        return {case: mean(scores) for case, scores in found.items()}

    def summaries(self) -> list[Summary]:
        """Return a Summary for each model: its score, costs, times, tokens and outcomes."""
        return [self._summary(model) for model in self.models]

    def _summary(self, model: str) -> Summary:
        trials, scores = self.trials_of(model), [*self.scores(model).values()]
        low, high = interval(scores)
        seconds = [trial.seconds for trial in trials] or [0.0]
        costs = [trial.cost for trial in trials if trial.cost is not None]
        judged = [trial.judge_cost for trial in trials if trial.judge_cost is not None]
        [(replied, _)] = Counter(trial.replied for trial in trials).most_common(1) or [("", 0)]
        return Summary(
            model=replied if replied.startswith(f"{model}:") else model,
            score=mean(scores),
            low=low,
            high=high,
            passed=sum(trial.score for trial in trials),
            trials=len(trials),
            cases=len(scores),
            cost=mean(costs) if trials and len(costs) == len(trials) else None,
            judge_cost=mean(judged) if judged else None,
            p50=percentile(seconds, 0.5),
            p95=percentile(seconds, 0.95),
            tokens=round(mean([trial.tokens for trial in trials])),
            outcomes=dict(Counter(trial.outcome for trial in trials).most_common()),
        )

    def pairs(self) -> list[Comparison]:
        """Return a Comparison of the first model with each other model, on their common cases.

        The p values are corrected for the number of comparisons.
        """
        first, *others = self.models
        found = [compare(self.scores(first), self.scores(name), first, name) for name in others]
        corrected = holm([pair.p for pair in found])
        return [replace(pair, p=p) for pair, p in zip(found, corrected, strict=True)]

    def agreement(self) -> tuple[int, int]:
        """Return in how many trials the judge agrees with the plain checks, and how many have both.

        They agree if both give the full score, or if neither does.
        """
        both = [
            (trial.plain >= 1) == (trial.judged >= 1)
            for trial in self.trials
            if trial.plain is not None and trial.judged is not None
        ]
        return sum(both), len(both)

    def assert_passed(self, at_least: float = 1.0) -> None:
        """Raise AssertionError if a model scored below `at_least`, or some trials were not run."""
        for summary, model in zip(self.summaries(), self.models, strict=True):
            if summary.score < at_least or self.unfinished:
                trials = count(summary.trials, "trial")
                failed = [trial for trial in self.trials_of(model) if trial.score < 1]
                lines = [f"{trial.case}: {'; '.join(trial.reasons)}" for trial in failed]
                lines.insert(0, f"{model}: {summary.passed:g} of {trials} passed")
                raise AssertionError("\n".join([*lines, self.unfinished]).rstrip())


def differences(new: Evaluation, old: Evaluation) -> list[Comparison]:
    """Return a Comparison of new and old scores for each model that both evaluations have.

    If each evaluation has only one model, these models are compared, even if their names differ.
    Raise ConfigError if the evaluations have no model in common.
    """
    models = [(model, model) for model in new.models if model in old.models]
    if not models and len(new.models) == len(old.models) == 1:
        models = [(new.models[0], old.models[0])]
    if not models:
        names = f"{', '.join(new.models)} and {', '.join(old.models)}"
        raise ConfigError(f"the evaluations have no model in common: {names}")
    return [compare(new.scores(one), old.scores(other), one, other) for one, other in models]


def save(evaluation: Evaluation, path: Path) -> None:
    """Write an evaluation to a file as JSON lines: a header, and a line for each trial.

    An existing file is replaced. Only the owner can read the new file.
    """
    head = {"type": "eval", "schema": SCHEMA, **to_json(replace(evaluation, trials=()))}
    lines = [head, *map(to_json, evaluation.trials)]
    write_private(path, "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines))


def load(path: Path) -> Evaluation:
    """Read and return an evaluation that `save` wrote. Raise ConfigError for any other file."""
    return load_as(Evaluation, CaseTrial, path)


def load_as(kind: type[EvaluationT], trial: type[CaseTrial], path: Path) -> EvaluationT:
    """Read an evaluation that `save` wrote, and return it as an instance of the class `kind`.

    Its trials are instances of the class `trial`. Fields that the classes do not have, such as
    those of another subclass, are ignored. Raise ConfigError if the file is not such an evaluation.
    """
    text = read_text(path)
    try:
        head, *lines = map(json.loads, text.rstrip("\n").split("\n"))
        if head["type"] != "eval" or head["schema"] > SCHEMA:
            raise ValueError(
                f"the first line must have the type 'eval' and a schema of at most {SCHEMA}"
            )
        trials = tuple(_read(trial, line) for line in lines)
        return replace(_read(kind, head), trials=trials)
    except (ValueError, TypeError, LookupError, AttributeError, StoreError) as error:
        reason = str(error).lstrip(": ")
        raise ConfigError(f"{path} was not written by {kind.made_by}: {reason}") from None


def _read(kind: type[T], line: Mapping[str, Json]) -> T:
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return from_json(kind, {name: value for name, value in line.items() if name in names})
