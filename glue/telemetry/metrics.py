"""`Metrics`: counters of run outcomes and of continued replies, without OpenTelemetry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from glue import events
from glue.events import Event
from glue.limits import Outcome

ATTEMPT_BUCKETS = (0, 1, 2, 3, 5, 10)
SECOND_BUCKETS = (0.5, 1, 2, 5, 10, 30, 60, 120, 300)


class Histogram:
    """Counts of values by bucket. Every bucket but the last has an inclusive upper bound."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count `value` in its bucket, and add it to `total`."""
        index = next((i for i, bound in enumerate(self.bounds) if value <= bound), len(self.bounds))
        self.counts[index] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self.counts)


class Metrics:
    """A listener that counts the outcomes of runs, and measures how cut-off replies are continued.

        metrics = Metrics()
        agent.run_sync("Weather in Oslo?", on_event=metrics)
        print(metrics.outcomes)

    The object itself can listen to one run after another. If runs overlap in time, pass each run
    its own `metrics.listener()`.
    """

    def __init__(self) -> None:
        self.continuations: Counter[tuple[str, str]] = Counter()  # by provider and model
        # Runs that ended with a cut reply, by the reason why it was not continued to its end.
        self.truncation_exits: Counter[str] = Counter()
        self.outcomes: Counter[Outcome] = Counter()
        self.attempts_per_run = Histogram(ATTEMPT_BUCKETS)
        self.seconds_per_continued_run = Histogram(SECOND_BUCKETS)
        self._listener = self.listener()

    def __call__(self, event: Event) -> None:
        self._listener(event)

    def listener(self) -> Callable[[Event], None]:
        """Return a new listener for one run, which adds its counts to this object."""
        attempts, counted = 0, False

        def listen(event: Event) -> None:
            nonlocal attempts, counted
            if isinstance(event, events.RunStart):
                attempts, counted = 0, False
            elif isinstance(event, events.ContinuationAttempt):
                attempts += 1
                self.continuations[event.provider, event.model] += 1
            elif isinstance(event, events.ContinuationTerminated) and event.reason != "completed":
                counted = True
                self.truncation_exits[event.reason] += 1
            elif isinstance(event, events.RunEnd):
                if event.outcome is Outcome.TRUNCATED and not counted:
                    self.truncation_exits["not_continued"] += 1
                self.outcomes[event.outcome] += 1
                self.attempts_per_run.observe(attempts)
                if attempts:
                    self.seconds_per_continued_run.observe(event.seconds)

        return listen
