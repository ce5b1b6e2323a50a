"""Merge requests on GitLab."""

from __future__ import annotations

import pytest

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


@pytest.mark.parametrize(("source", "is_fork"), [("7", False), ("8", True), ("", True)])
def test_merge_request_from_another_project_is_from_a_fork(source: str, is_fork: bool) -> None:
    environ = {"CI_MERGE_REQUEST_PROJECT_ID": "7", "CI_MERGE_REQUEST_SOURCE_PROJECT_ID": source}

    change = read_change(PullRequestRef(forge="gitlab", repo="7", number=2), environ)

    assert change is not None
    assert change.fork is is_fork


def test_merge_request_without_project_variables_counts_as_from_a_fork() -> None:
    change = read_change(PullRequestRef(forge="gitlab", repo="7", number=2), {})

    assert change is not None
    assert change.fork
