"""A pull request on a forge: findings in comments, and posts that are sent once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from glue.agents.review.delivery.forges.client import Client, ForgeError
from glue.agents.review.delivery.forges.forge import MAX_SENT, parse_posted
from glue.agents.review.delivery.forges.github import GitHub
from glue.agents.review.delivery.outputs import FINDING


def row(body: str) -> dict[str, Any]:
    return {"id": 7, "body": body}


def failing(*errors: ForgeError) -> Callable[[], None]:
    """Return a function that raises these errors in turn, and then succeeds."""
    left = list(errors)

    def send() -> None:
        if left:
            raise left.pop(0)

    return send


def pull_request() -> tuple[GitHub, list[float]]:
    waits: list[float] = []
    return GitHub(Client(sleep=waits.append), "octo/demo", 1, "a" * 40), waits


def test_posted_finding_is_parsed_from_the_marker_and_the_title() -> None:
    marker = f"{FINDING}v=1 fp=0123abcd q=beef by=rule h=aaaaaaaaaaaa -->"
    body = f"{marker}\n🔴 **high bug: Division by zero**\n\nIt raises."

    found = parse_posted(row(body), "shop.py", 3, thread="t", resolved=True)

    assert found is not None
    assert (found.fingerprint, found.quote, found.by_model) == ("0123abcd", "beef", False)
    assert (found.path, found.line, found.comment, found.title) == (
        "shop.py",
        3,
        7,
        "Division by zero",
    )
    assert (found.thread, found.resolved) == ("t", True)


@pytest.mark.parametrize(
    "body", ["", "text", f"> {FINDING}v=1 fp=0123abcd -->", f"{FINDING}v=1 -->"]
)
def test_comment_without_a_marker_at_its_start_is_not_a_finding(body: str) -> None:
    assert parse_posted(row(body), "shop.py", 3) is None


def test_post_that_arrived_despite_an_unclear_response_is_not_sent_again() -> None:
    forge, waits = pull_request()

    sent = forge.post_once(failing(ForgeError("lost", ambiguous=True)), lambda: True)

    assert (sent, len(waits)) == (1, 1)


def test_post_that_did_not_arrive_is_sent_again() -> None:
    forge, waits = pull_request()

    sent = forge.post_once(failing(ForgeError("lost", ambiguous=True)), lambda: False)

    assert (sent, len(waits)) == (2, 1)


def test_post_is_sent_again_if_no_connection_was_made() -> None:
    forge, waits = pull_request()

    sent = forge.post_once(failing(ForgeError("connection refused", status=0)), lambda: True)

    assert (sent, len(waits)) == (2, 1)


def test_post_that_arrived_despite_a_server_error_is_not_sent_again() -> None:
    forge, _ = pull_request()

    assert forge.post_once(failing(ForgeError("x", status=502, ambiguous=True)), lambda: True) == 1


def test_refused_post_is_not_sent_again() -> None:
    forge, waits = pull_request()

    with pytest.raises(ForgeError, match="refused"):
        forge.post_once(failing(ForgeError("refused", status=422)), lambda: False)

    assert waits == []


def test_post_is_sent_three_times_at_most() -> None:
    forge, waits = pull_request()
    errors = [ForgeError("lost", ambiguous=True) for _ in range(MAX_SENT)]

    with pytest.raises(ForgeError, match="lost"):
        forge.post_once(failing(*errors), lambda: False)

    assert len(waits) == MAX_SENT == 3
