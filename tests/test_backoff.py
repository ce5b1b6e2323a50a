"""The delays of `glue.backoff`."""

import pytest

from glue.backoff import Backoff


def test_delays_double_up_to_the_cap() -> None:
    backoff = Backoff(first=1.0, cap=5.0, jitter=0)

    assert [backoff.delay(failures) for failures in range(1, 6)] == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_it_gives_up_after_the_last_attempt() -> None:
    backoff = Backoff(first=1.0, cap=5.0, attempts=3, jitter=0)

    assert [backoff.delay(failures) for failures in (1, 2, 3, 4)] == [1.0, 2.0, None, None]
    assert backoff.delay(3, advised=1.0) is None


@pytest.mark.parametrize(("advised", "delay"), [(0.0, 0.0), (4.0, 4.0), (5.0, 5.0), (5.1, None)])
def test_the_servers_advice_replaces_the_delay_unless_it_exceeds_the_cap(
    advised: float, delay: float | None
) -> None:
    assert Backoff(first=1.0, cap=5.0).delay(1, advised=advised) == delay


def test_jitter_shortens_a_delay_by_at_most_its_share() -> None:
    shortest = Backoff(first=8.0, cap=30.0, jitter=0.25, random=lambda: 1.0)
    longest = Backoff(first=8.0, cap=30.0, jitter=0.25, random=lambda: 0.0)

    assert (shortest.delay(1), longest.delay(1)) == (6.0, 8.0)


def test_very_many_failures_do_not_overflow() -> None:
    assert Backoff(first=1.0, cap=5.0, jitter=0).delay(100_000) == 5.0


def test_a_delay_is_at_most_a_quarter_shorter_by_default() -> None:
    backoff = Backoff(first=8.0, cap=30.0)
    random = Backoff(first=8.0, cap=30.0, random=lambda: 1.0)

    assert all(6.0 <= (backoff.delay(1) or 0.0) <= 8.0 for _ in range(20))
    assert [random.delay(failures) for failures in (1, 2, 9)] == [6.0, 12.0, 22.5]


def test_a_delay_grows_by_the_given_factor() -> None:
    backoff = Backoff(first=1.0, cap=1e30, factor=3.0, jitter=0)

    assert [backoff.delay(failures) for failures in (1, 2, 3)] == [1.0, 3.0, 9.0]
    assert Backoff(first=1.0, cap=1e300, jitter=0).delay(66) == 2.0**64  # it grows no further
