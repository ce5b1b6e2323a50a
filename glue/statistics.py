"""Statistics of evaluations: intervals that resample whole cases, and a paired test.

Repeats of one case are not independent. Therefore every function takes one score for each case:
the mean of its repeats, from 0 to 1.

    low, high = interval([1.0, 1.0, 0.33, 0.0])
    pair = compare({"emma": 1.0, "oslo": 0.33}, {"emma": 0.0, "oslo": 0.33})
    pair.better, pair.p, pair.needed
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, gcd

RESAMPLES = 1_000
SIGNIFICANT = 0.05  # a difference with a smaller p is called one
_STEPS = 2_520  # a difference is counted in steps of 1/2520, which is exact for up to 10 repeats
_WIDEST = 10_000  # steps of all differences together; more are rounded
_Z_LEVEL, _Z_POWER = 1.96, 0.84  # normal quantiles: 5 % false alarms, 80 % power


def mean(values: Sequence[float]) -> float:
    """Return the mean of some numbers, or 0 if there are none."""
    return sum(values) / len(values) if values else 0.0


def percentile(values: Sequence[float], share: float) -> float:
    """Return the percentile of the values for a `share` from 0 to 1, by the nearest-rank method.

    At least this share of the values are equal to the returned value or lower. `values` must not be
    empty.

    >>> percentile([4, 1, 3, 2], 0.5)
    2
    """
    ordered = sorted(values)
    return ordered[max(ceil(share * len(ordered)) - 1, 0)]


def interval(
    scores: Sequence[float], *, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[float, float]:
    """Return a 95 % confidence interval of the mean score, by resampling the cases (bootstrap).

    `scores` contains one score for each case: the mean of its trials. A perfect case and a failed
    case are added first. Otherwise ten passed cases would have an interval without any width.
    If there are no scores, return (0.0, 1.0).

    >>> low, high = interval([1.0] * 10)
    >>> low < 0.8, high
    (True, 1.0)
    """
    if not scores:
        return 0.0, 1.0
    source = random.Random(seed)
    cases = (*scores, 0.0, 1.0)
    means = sorted(mean(source.choices(cases, k=len(cases))) for _ in range(resamples))
    tail = (1 - 0.95) / 2
    return percentile(means, tail), percentile(means, 1 - tail)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The difference of two models' scores on the same cases, and whether it is significant."""

    first: str  # the names of the models
    second: str
    better: tuple[str, ...]  # cases in which the first one has the higher score
    worse: tuple[str, ...]
    unpaired: tuple[str, ...]  # cases that only one of them has run
    cases: int  # that both have run
    difference: float  # of the mean scores
    p: float  # of the paired test; small if chance does not explain the difference
    needed: int | None  # cases that would show such a difference; None if there is none

    @property
    def significant(self) -> bool:
        """Whether the difference is statistically significant: `p` is below 0.05."""
        return self.p < SIGNIFICANT


def compare(
    scores: Mapping[str, float], others: Mapping[str, float], first: str = "", second: str = ""
) -> Comparison:
    """Return a Comparison of the scores of two models, in the cases that both models have run.

    `scores` and `others` map cases to scores. `first` and `second` name the models.

    >>> pair = compare({"a": 1, "b": 1, "c": 0}, {"a": 0, "b": 1, "c": 1})
    >>> pair.better, pair.worse, pair.p
    (('a',), ('c',), 1.0)
    """
    cases = [case for case in scores if case in others]
    differences = [scores[case] - others[case] for case in cases]
    return Comparison(
        first=first,
        second=second,
        better=tuple(case for case in cases if scores[case] > others[case]),
        worse=tuple(case for case in cases if scores[case] < others[case]),
        unpaired=tuple(sorted(scores.keys() ^ others.keys())),
        cases=len(cases),
        difference=mean(differences),
        p=sign_flip_p(differences),
        needed=cases_needed(differences),
    )


def sign_flip_p(differences: Sequence[float]) -> float:
    """Return the p value of the exact paired permutation test.

    If two models are equally good, each difference could have had the other sign. The p value is
    the share of all choices of signs whose sum is at least as far from 0 as the observed one. With
    one repeat this is the exact test of McNemar.

    >>> sign_flip_p([1.0] * 6)
    0.03125
    """
    exact = [round(difference * _STEPS) for difference in differences]
    total = sum(map(abs, exact))
    if not total:
        return 1.0
    size = max(gcd(*exact), ceil(total / _WIDEST))
    steps = [round(step / size) for step in exact]
    total, observed = sum(map(abs, steps)), abs(sum(steps))
    # chances[n] is the chance that the positive differences add up to n. Then the sum of all
    # differences is n - (total - n).
    chances = [1.0]
    for step in filter(None, map(abs, steps)):
        padding = [0.0] * step
        chances = [
            (without + with_it) / 2
            for without, with_it in zip(chances + padding, padding + chances, strict=True)
        ]
    far = (chance for n, chance in enumerate(chances) if abs(2 * n - total) >= observed)
    return min(sum(far), 1.0)


def cases_needed(differences: Sequence[float]) -> int | None:
    """Return the number of cases needed to detect the mean difference, or None if the mean is 0.

    The number counts all cases of an evaluation. With so many cases, four of five evaluations find
    the difference (80 % power, p below 0.05).
    """
    average = mean(differences)
    if abs(average) < 1e-9:
        return None
    spread = mean([difference**2 for difference in differences])
    return ceil((_Z_LEVEL + _Z_POWER) ** 2 * spread / average**2)


def holm(values: Sequence[float]) -> list[float]:
    """Return p values that are corrected for the number of comparisons, by Holm's method.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    corrected = [0.0] * len(values)
    highest = 0.0
    for rank, place in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        highest = max(highest, min(1.0, (len(values) - rank) * values[place]))
        corrected[place] = highest
    return corrected
