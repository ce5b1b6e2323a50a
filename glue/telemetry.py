"""Telemetry: metrics of runs, as an event listener: `on_event=metrics`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from glue.events import ContinuationAttempt, ContinuationTerminated, Event, RunEnd, RunStart
from glue.limits import Outcome

__all__ = ["Histogram", "Metrics"]

ATTEMPT_BUCKETS = (0, 1, 2, 3, 5, 10)
SECOND_BUCKETS = (0.5, 1, 2, 5, 10, 30, 60, 120, 300)


class Histogram:
    """Counts of values at or below each bound; the last bucket takes the rest."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        index = next((i for i, bound in enumerate(self.bounds) if value <= bound), len(self.bounds))
        self.counts[index] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self.counts)


class Metrics:
    """Give each run a `listener()`; the object itself serves runs that go one after another."""

    def __init__(self) -> None:
        self.continuations: Counter[tuple[str, str]] = Counter()  # by provider and model
        self.truncation_exits: Counter[str] = Counter()  # by reason, completed ones left out
        self.outcomes: Counter[Outcome] = Counter()
        self.attempts_per_run = Histogram(ATTEMPT_BUCKETS)
        self.seconds_per_continued_run = Histogram(SECOND_BUCKETS)
        self._listener = self.listener()

    def __call__(self, event: Event) -> None:
        self._listener(event)

    def listener(self) -> Callable[[Event], None]:
        """Make a listener for one run, which may go beside others."""
        attempts, ended = 0, False

        def listen(event: Event) -> None:
            nonlocal attempts, ended
            if isinstance(event, RunStart):
                attempts, ended = 0, False
            elif isinstance(event, ContinuationAttempt):
                attempts += 1
                self.continuations[event.provider, event.model] += 1
            elif isinstance(event, ContinuationTerminated) and event.reason != "completed":
                ended = True
                self.truncation_exits[event.reason] += 1
            elif isinstance(event, RunEnd):
                if event.outcome is Outcome.TRUNCATED and not ended:  # nothing of it could be continued
                    self.truncation_exits["not_continued"] += 1
                self._ended(event, attempts)

        return listen

    def _ended(self, event: RunEnd, attempts: int) -> None:
        self.outcomes[event.outcome] += 1
        self.attempts_per_run.observe(attempts)
        if attempts:
            self.seconds_per_continued_run.observe(event.seconds)
