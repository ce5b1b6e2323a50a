"""Metrics: counts of outcomes and continuations from the events of runs."""

from __future__ import annotations

from glue import Limits, Outcome, run
from glue.events import RunEnd
from glue.messages import Usage
from glue.telemetry import Histogram, Metrics
from glue.testing import Script, calls, partial, repeat, say


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


async def test_a_truncated_reply_that_cannot_be_continued_is_counted() -> None:
    metrics = Metrics()

    for script in (
        Script(say("", stop="max_tokens")),
        Script(calls(partial("x"), stop="max_tokens")),
    ):
        await run(
            script, "go", on_event=metrics, limits=Limits(continuation_tool_repair_attempts=0)
        )

    assert metrics.truncation_exits == {"not_continued": 2}


def test_a_value_at_a_bound_counts_in_the_lower_bucket() -> None:
    histogram = Histogram((1, 2))

    for value in (0, 1, 1.5, 2, 3):
        histogram.observe(value)

    assert histogram.counts == [2, 2, 1]


def test_the_buckets_of_attempts_and_seconds() -> None:
    metrics = Metrics()

    assert metrics.attempts_per_run.bounds == (0, 1, 2, 3, 5, 10)
    assert metrics.seconds_per_continued_run.bounds == (0.5, 1, 2, 5, 10, 30, 60, 120, 300)


def test_the_end_of_a_run_is_counted_by_a_listener_that_missed_its_start() -> None:
    metrics = Metrics()
    cut = RunEnd(
        run_id="1", outcome=Outcome.TRUNCATED, usage=Usage(), turns=1, requests=1, seconds=1.0
    )

    metrics(cut)

    assert metrics.truncation_exits == {"not_continued": 1}
    assert metrics.attempts_per_run.counts[0] == 1
    assert metrics.seconds_per_continued_run.count == 0
