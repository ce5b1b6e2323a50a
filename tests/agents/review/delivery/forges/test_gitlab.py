"""Merge requests on GitLab."""

from __future__ import annotations

from glue.agents.review.delivery.forges import read_change
from glue.agents.review.delivery.forges.forge import PullRequestRef


def test_change_is_read_from_the_variables_of_the_job() -> None:
    environ = {
        "CI_MERGE_REQUEST_TITLE": "T",
        "CI_COMMIT_SHA": "c" * 40,
        "CI_MERGE_REQUEST_LABELS": "a,b",
    }

    change = read_change(PullRequestRef(forge="gitlab", repo="7", number=2), environ)

    assert change is not None
    assert (change.title, change.head_sha, change.labels) == ("T", "c" * 40, ("a", "b"))
