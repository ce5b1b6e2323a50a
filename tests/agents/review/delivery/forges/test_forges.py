"""The forge and the pull request of a CI job."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from fakes.review import BASE, HEAD

from glue.agents.review.delivery.forges import find_pull_request, open_forge, read_change
from glue.agents.review.delivery.forges.client import Client
from glue.agents.review.delivery.forges.forge import PullRequestRef
from glue.errors import ConfigError


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
    branch = find_pull_request({"GITLAB_CI": "true", "CI_PROJECT_ID": "9"})
    assert (branch.forge, branch.repo, branch.number) == ("gitlab", "9", None)
    assert find_pull_request({**environ, "GITEA_ACTIONS": "true"}).forge == "gitea"
    assert find_pull_request({}).forge == ""


PLACE = {"forge": "github", "repo": "octo/demo", "number": 1}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"forge": "hub"},
            "there is no forge 'hub'; name the forge with `glue review publish --forge",
        ),
        ({"forge": ""}, "no forge found in the environment; name the forge with"),
        ({"repo": ""}, "no repository found in the environment; give --repo OWNER/NAME"),
        ({"repo": "a b"}, "'a b' is not the name of a repository; give --repo OWNER/NAME"),
        ({"repo": "octo/../x"}, "'octo/../x' is not the name of a repository"),
        ({"repo": "octo/"}, "'octo/' is not the name of a repository"),
        ({"number": None}, "no pull request found in the environment; give --pr NUMBER"),
    ],
)
def test_incomplete_address_is_refused(changes: dict[str, object], problem: str) -> None:
    place = PullRequestRef(**{**PLACE, **changes})  # type: ignore[arg-type]
    client = Client(environ={"GITHUB_TOKEN": "secret"})

    with pytest.raises(ConfigError, match=f"^{re.escape(problem)}"):
        open_forge(place, client, head=HEAD)


def test_token_and_address_are_set_on_the_client() -> None:
    place = PullRequestRef(**PLACE)  # type: ignore[arg-type]
    client = Client(environ={"GITHUB_TOKEN": "second", "GLUE_REVIEW_TOKEN": "first"})

    forge = open_forge(place, client, head=HEAD, base=BASE)

    assert (forge.repo, forge.number, forge.pinned) == ("octo/demo", 1, (HEAD, BASE))
    assert client.base == "https://api.github.com"
    assert client.headers["authorization"] == "Bearer first"
    assert not client.blind


def test_address_of_the_place_comes_before_the_usual_one() -> None:
    place = PullRequestRef(**PLACE, api="https://hub.test/api")  # type: ignore[arg-type]
    client = Client(environ={"GH_TOKEN": "third"})

    open_forge(place, client, head=HEAD)

    assert client.base == "https://hub.test/api"
    assert client.headers["authorization"] == "Bearer third"


def test_only_a_dry_client_works_without_a_token_and_becomes_blind() -> None:
    place = PullRequestRef(**PLACE)  # type: ignore[arg-type]
    dry = Client(environ={"GITHUB_TOKEN": ""}, dry=True)

    forge = open_forge(place, dry, head=HEAD)

    assert (dry.blind, dry.headers, forge.account_id) == (True, {}, 0)
    with pytest.raises(ConfigError, match="github: no token; set GLUE_REVIEW_TOKEN or GITHUB_"):
        open_forge(place, Client(environ={}), head=HEAD)


def test_change_without_a_forge_or_an_event_is_unknown() -> None:
    assert read_change(PullRequestRef(), {}) is None
    assert read_change(PullRequestRef(**PLACE), {}) is None  # type: ignore[arg-type]
