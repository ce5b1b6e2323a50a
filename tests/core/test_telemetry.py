"""Metrics count how runs go, from events alone."""

from __future__ import annotations

from glue import run
from glue.telemetry import Histogram, Metrics
from glue.testing import Script, repeat, say


async def test_continuations_and_their_ends_are_counted() -> None:
    metrics = Metrics()

    await run(Script(say("a", stop="max_tokens"), "b"), "go", on_event=metrics)
    await run(Script(repeat(say("a", stop="max_tokens"))), "go", on_event=metrics.listener())
    await run(Script("x"), "go", on_event=metrics)

    assert metrics.continuations == {("script", "script-1"): 4}
    assert metrics.truncation_exits == {"retry_limit": 1}
    assert metrics.outcomes == {"done": 2, "truncated": 1}
    assert metrics.attempts_per_run.counts == [1, 1, 0, 1, 0, 0, 0]
    assert (metrics.attempts_per_run.count, metrics.attempts_per_run.total) == (3, 4)
    assert metrics.seconds_per_continued_run.count == 2


def test_a_histogram_counts_at_or_below_a_bound() -> None:
    histogram = Histogram((1, 2))

    for value in (0, 1, 1.5, 2, 3):
        histogram.observe(value)

    assert histogram.counts == [2, 2, 1]
