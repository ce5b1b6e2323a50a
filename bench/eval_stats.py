"""The statistics of `glue eval`: coverage of intervals and false alarms of the paired test.

    python bench/eval_stats.py [simulations]          2,000 by default, with a fixed seed

Each simulation draws cases of different difficulty, and repeats of each case for three models with
known pass rates. A fourth model is as good as the first on every case, and a fifth has the same
pass rate as the first with its own strengths. The table has the share of simulations in which the
interval contains the known rate, for our interval and for plain Wilson over all trials, and how
often the paired test finds a difference between models that are equally good.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from math import sqrt

from glue.statistics import SIGNIFICANT, compare, interval, mean

RATES = (0.97, 0.85, 0.57)
SIZES = ((20, 3), (50, 3), (500, 1), (500, 3))  # cases, repeats
CORRELATION = 0.5  # of the repeats of one case
SEED = 35


def chances(source: random.Random, rate: float, cases: int) -> list[float]:
    """Draw the chance to pass of each case, with this mean."""
    total = 1 / CORRELATION - 1
    return [source.betavariate(rate * total, (1 - rate) * total) for _ in range(cases)]


def scores(source: random.Random, chances: Sequence[float], repeats: int) -> list[float]:
    """Draw the share of passed repeats of each case."""
    return [sum(source.random() < chance for _ in range(repeats)) / repeats for chance in chances]


def wilson(passed: float, trials: int) -> tuple[float, float]:
    """Return the interval that treats all trials as independent."""
    rate, z = passed / trials, 1.96
    middle = (rate + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z * sqrt(rate * (1 - rate) / trials + z * z / (4 * trials**2)) / (1 + z * z / trials)
    return middle - half, middle + half


def simulate(task: tuple[int, int, int]) -> tuple[list[bool], list[bool], list[bool]]:
    """Run one simulation. Return what the intervals contain, and the two alarms."""
    number, cases, repeats = task
    source = random.Random(f"{SEED}-{number}-{cases}-{repeats}")
    own, plain = [], []
    first: list[float] = []
    twin: list[float] = []
    for rate in RATES:
        chance = chances(source, rate, cases)
        drawn = scores(source, chance, repeats)
        low, high = interval(drawn, seed=number)
        own.append(low <= rate <= high)
        low, high = wilson(mean(drawn) * cases * repeats, cases * repeats)
        plain.append(low <= rate <= high)
        if rate == RATES[1]:
            first, twin = drawn, scores(source, chance, repeats)
    other = scores(source, chances(source, RATES[1], cases), repeats)
    alarms = [compare(first, model).p < SIGNIFICANT for model in (twin, other)]
    return own, plain, alarms


def main() -> None:
    simulations = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000
    print(f"{simulations:,} simulations, seed {SEED}; pass rates {RATES}\n")
    print("cases x repeats  intervals cover the truth   plain Wilson          false alarms")
    with ProcessPoolExecutor() as processes:
        for cases, repeats in SIZES:
            tasks = [(number, cases, repeats) for number in range(simulations)]
            found = list(processes.map(simulate, tasks, chunksize=20))
            columns = []
            for part in zip(*found, strict=True):
                shares = (mean(share) for share in zip(*part, strict=True))
                columns.append("  ".join(f"{share:6.1%}" for share in shares))
            print(f"{f'{cases} x {repeats}':<15}  {columns[0]}      {columns[1]}  {columns[2]}")


if __name__ == "__main__":
    main()
