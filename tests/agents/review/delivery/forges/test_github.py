"""Pull requests on GitHub and Gitea."""

from __future__ import annotations

from typing import Any

import pytest

from glue.agents.review.delivery.forges import read_change
from glue.agents.review.delivery.forges.forge import PullRequestRef


def pull(**changes: Any) -> PullRequestRef:
    event = {
        "title": "T",
        "body": None,
        "draft": True,
        "user": {"login": "me"},
        "labels": [{"name": "x"}],
        "head": {"sha": "a" * 40, "ref": "f", "repo": {"full_name": "o/r", "fork": False}},
        "base": {"sha": "b" * 40, "ref": "main"},
    } | changes
    return PullRequestRef(forge="github", repo="o/r", number=3, event={"pull_request": event})


def test_change_is_read_from_the_event() -> None:
    change = read_change(pull(), {})

    assert change is not None
    assert (change.number, change.title, change.author, change.draft, change.fork) == (
        3,
        "T",
        "me",
        True,
        False,
    )
    assert (change.head_sha, change.base_sha, change.base_ref) == ("a" * 40, "b" * 40, "main")


@pytest.mark.parametrize(
    "head", [None, {"sha": "--help", "repo": None}, {"repo": {"full_name": "x/r"}}]
)
def test_forks_are_recognised_and_invalid_commits_are_dropped(head: Any) -> None:
    change = read_change(pull(head=head), {})

    assert change is not None
    assert change.fork
    assert change.head_sha == ""
