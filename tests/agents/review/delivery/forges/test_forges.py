"""The forge and the pull request of a CI job."""

from __future__ import annotations

import json
from pathlib import Path

from fakes.review import HEAD

from glue.agents.review.delivery.forges import find_pull_request


def test_pull_request_is_found_in_the_environment(tmp_path: Path) -> None:
    event = {"issue": {"number": 7, "pull_request": {}}, "comment": {"body": "/review"}}
    (tmp_path / "event.json").write_text(
        json.dumps({**event, "pull_request": {"number": 5, "head": {"sha": HEAD}}})
    )
    environ = {
        "GITHUB_ACTIONS": "true",
        "GITHUB_REPOSITORY": "o/r",
        "GITHUB_EVENT_PATH": str(tmp_path / "event.json"),
    }

    place = find_pull_request(environ)

    assert (place.forge, place.repo, place.number, place.head) == ("github", "o/r", 5, HEAD)
    assert (
        find_pull_request(
            {"GITLAB_CI": "true", "CI_MERGE_REQUEST_IID": "3", "CI_PROJECT_ID": "9"}
        ).number
        == 3
    )
    assert find_pull_request({**environ, "GITEA_ACTIONS": "true"}).forge == "gitea"
    assert find_pull_request({}).forge == ""
