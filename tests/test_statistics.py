"""Intervals that resample whole cases, the paired test, and the number of cases that it takes."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from math import comb
from operator import mul

import pytest

from glue.statistics import (
    cases_needed,
    compare,
    holm,
    interval,
    mean,
    percentile,
    sign_flip_p,
)


def by_case(scores: Iterable[float]) -> dict[str, float]:
    """Return scores by the names of their cases: "0", "1" and so on."""
    return {str(number): score for number, score in enumerate(scores)}


def draw(source: random.Random, rate: float, cases: int, repeats: int) -> list[float]:
    """Draw the scores of cases of very different difficulty, with this mean pass rate."""
    chances = [source.betavariate(rate, 1 - rate) for _ in range(cases)]
    return [sum(source.random() < chance for _ in range(repeats)) / repeats for chance in chances]


@pytest.mark.parametrize("rate", [0.57, 0.85, 0.97])
def test_intervals_contain_the_true_rate_in_about_95_percent(rate: float) -> None:
    source = random.Random(1)
    hits = 0

    for number in range(200):
        low, high = interval(draw(source, rate, 40, 3), resamples=300, seed=number)
        hits += low <= rate <= high

    assert 0.92 <= hits / 200 <= 0.995


def test_repeats_of_one_case_do_not_narrow_an_interval() -> None:
    once = interval([1.0] * 6 + [0.0] * 4)
    wide = once[1] - once[0]
    if_independent = interval(([1.0] * 6 + [0.0] * 4) * 3)

    assert wide > 1.5 * (if_independent[1] - if_independent[0])


def test_an_interval_of_perfect_cases_has_a_width() -> None:
    low, high = interval([1.0] * 20)

    assert 0.7 < low < 0.95
    assert high == 1.0


def test_an_interval_is_the_same_each_time_and_contains_everything_without_cases() -> None:
    assert interval([1.0, 0.0, 0.5]) == interval([1.0, 0.0, 0.5])
    assert interval([]) == (0.0, 1.0)


@pytest.mark.parametrize(("better", "worse"), [(8, 1), (5, 5), (12, 2), (1, 0)])
def test_with_one_repeat_the_paired_test_is_that_of_mcnemar(better: int, worse: int) -> None:
    total = better + worse
    tail = sum(comb(total, n) for n in range(min(better, worse) + 1)) / 2**total

    p = sign_flip_p([1.0] * better + [-1.0] * worse + [0.0] * 7)

    assert p == pytest.approx(min(2 * tail, 1.0))


def test_the_paired_test_weighs_a_difference_by_its_size() -> None:
    assert sign_flip_p([1.0, 1.0, 1.0, -1 / 3]) < sign_flip_p([1 / 3, 1 / 3, 1 / 3, -1.0])


def test_equal_models_are_rarely_called_different() -> None:
    source = random.Random(2)
    alarms = 0

    for _ in range(300):
        chances = [source.random() for _ in range(30)]
        first, second = (
            by_case(sum(source.random() < chance for _ in range(3)) / 3 for chance in chances)
            for _ in range(2)
        )
        alarms += compare(first, second).significant

    assert alarms / 300 < 0.07


def test_a_real_difference_is_found_with_the_number_of_cases_that_was_asked_for() -> None:
    source = random.Random(3)
    first, second = (by_case(draw(source, rate, 4_000, 3)) for rate in (0.9, 0.7))
    pilot = compare(first, second)
    assert pilot.needed is not None
    found = 0

    for _ in range(100):
        first, second = (by_case(draw(source, rate, pilot.needed, 3)) for rate in (0.9, 0.7))
        found += compare(first, second).significant

    assert 0.65 <= found / 100 <= 0.95


def test_only_cases_that_both_models_have_run_are_compared() -> None:
    pair = compare({"a": 1, "b": 0, "c": 0.5, "x": 0}, {"c": 0.5, "b": 1, "a": 0, "y": 1}, "m", "n")

    assert (pair.first, pair.second, pair.cases) == ("m", "n", 3)
    assert (pair.better, pair.worse, pair.unpaired) == (("a",), ("b",), ("x", "y"))
    assert (pair.difference, pair.p, pair.needed) == (0.0, 1.0, None)


def test_scores_of_any_size_can_be_compared() -> None:
    source = random.Random(4)
    first = by_case(source.random() for _ in range(300))
    second = {case: score * 0.9 for case, score in first.items()}

    assert compare(first, second).p < 0.001
    assert compare(first, first).p == 1.0


def test_no_number_of_cases_shows_a_difference_of_zero() -> None:
    assert cases_needed([1.0, -1.0]) is None
    assert cases_needed([0.0, 0.0]) is None
    assert compare(by_case([1, 0, 1]), by_case([1, 0, 1])).needed is None


def test_holm_corrects_for_the_number_of_comparisons_and_keeps_the_order() -> None:
    assert holm([0.039]) == [0.039]
    assert holm([0.01, 0.039]) == [0.02, 0.039]
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_percentiles_are_values_of_the_sample() -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0], 0.5) == 2.0
    assert percentile([1.0, 2.0, 3.0, 4.0], 0.95) == 4.0
    assert percentile([3.0, 1.0, 2.0], 0.0) == 1.0
    assert percentile([7.0], 0.5) == 7.0
    assert mean([]) == 0.0


def test_an_interval_leaves_out_two_and_a_half_percent_at_each_end() -> None:
    resampled = interval([number / 97 for number in range(40)])

    assert resampled == pytest.approx((0.1696121748, 0.2734413353), abs=1e-9)
    few = interval([0.87, 0.29, 0.96, 0.54, 0.68])
    assert few == pytest.approx((0.3585714286, 0.8742857143), abs=1e-9)


@pytest.mark.parametrize(
    "thirds",
    [(3, 3, -1, -1, -1), (1, 1, 1, -3, 3), (3, 2, 2, -1), (1, 2, 3, -3, -3, 1), (-2, -2, -3)],
)
def test_the_paired_test_counts_all_choices_of_signs(thirds: tuple[int, ...]) -> None:
    choices = [sum(map(mul, thirds, signs)) for signs in product((1, -1), repeat=len(thirds))]
    share = sum(abs(choice) >= abs(sum(thirds)) for choice in choices) / len(choices)

    assert sign_flip_p([third / 3 for third in thirds]) == pytest.approx(share)


def test_a_difference_is_significant_below_five_percent() -> None:
    pair = compare({"a": 1}, {"a": 0})

    assert [replace(pair, p=p).significant for p in (0.049, 0.05)] == [True, False]


def test_the_smallest_difference_that_can_be_found_needs_cases_too() -> None:
    assert cases_needed([1e-9]) == 8
    assert cases_needed([1.0, 0.0]) == 16
    assert cases_needed([0.9e-9]) is None
