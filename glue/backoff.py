"""Waiting times between attempts: exponential up to a cap, or as the server advises."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple


class Backoff(NamedTuple):
    """The rule for how long to wait after a failed attempt. It has no state and can be shared.

    >>> backoff = Backoff(first=1, cap=30, attempts=4, jitter=0)
    >>> [backoff.delay(failures) for failures in (1, 2, 3, 4)]
    [1.0, 2.0, 4.0, None]
    """

    first: float  # seconds to wait after the first failure
    cap: float  # the longest wait in seconds; if a server advises more, `delay` returns None
    factor: float = 2.0
    attempts: int | None = None  # all attempts, including the first attempt; None for no limit
    jitter: float = 0.25  # random share of the delay, so that clients do not all return at once
    random: Callable[[], float] | None = None  # None for `random.random`

    def delay(self, failures: int, advised: float | None = None) -> float | None:
        """Return the seconds to wait before the next attempt, or None to give up.

        Args:
            failures: the number of failed attempts so far, 1 or more.
            advised: the seconds that the server advises, as in a Retry-After header. This value is
                returned instead of the computed delay. If it exceeds `cap`, None is returned.
        """
        if self.attempts is not None and failures >= self.attempts:
            return None
        if advised is not None:
            return advised if advised <= self.cap else None
        grown = self.first * self.factor ** min(failures - 1, 64)  # larger exponents overflow
        share = self.jitter * (self.random or random.random)()
        return min(self.cap, grown) * (1 - share)
