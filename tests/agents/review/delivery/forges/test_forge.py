"""A pull request on a forge: findings in comments, and posts that are sent once."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from glue.agents.review.delivery.forges.client import Client, ForgeError
from glue.agents.review.delivery.forges.forge import MAX_SENT, parse_posted
from glue.agents.review.delivery.forges.github import GitHub
from glue.agents.review.delivery.forges.gitlab import GitLab
from glue.agents.review.delivery.outputs import FINDING
from glue.providers import HTTPResponse


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
    # The wait doubles from 2 to 8 seconds; a random share of it is left out.
    assert all(0 < wait <= most for wait, most in zip(waits, (2, 4, 8), strict=True))


def answering(kind: type[GitHub] | type[GitLab], **answers: Any) -> Any:
    """Return a pull request on a forge whose paths end with these names; others are missing."""

    def send(method: str, path: str, **more: Any) -> HTTPResponse:
        name = path.rpartition("/")[2]
        status, body = answers.get(name, (404, {}))
        return HTTPResponse(status=status, headers={}, body=json.dumps(body).encode())

    client = Client(base="https://forge.test", transport=send, sleep=lambda delay: None, environ={})
    return kind(client, "octo/demo", 1, "a" * 40)


def test_only_comments_of_the_own_account_are_own() -> None:
    forge = answering(GitHub, user=(200, {"id": 5}))
    own = {"id": 1, "user": {"id": 5, "login": "bot"}}
    others = [{"id": 2, "user": {"id": 6, "login": "bot"}}, {"id": 3, "user": None}, {"id": 4}]

    assert forge.own_rows([own, *others, "text", None]) == [own]


@pytest.mark.parametrize("status", [403, 404, 410])
def test_issue_that_is_missing_or_forbidden_is_empty(status: int) -> None:
    for kind in (GitHub, GitLab):
        assert answering(kind, **{"7": (status, {"title": "T"})}).issue(7) == ""
        with pytest.raises(ForgeError, match="HTTP 401"):
            answering(kind, **{"7": (401, {})}).issue(7)


def test_issue_has_a_title_and_a_text() -> None:
    for kind, text in ((GitHub, "body"), (GitLab, "description")):
        assert answering(kind, **{"7": (200, {"title": "T", text: "D"})}).issue(7) == "T\n\nD"
        assert answering(kind, **{"7": (200, {"title": "T", text: None})}).issue(7) == "T"
        assert answering(kind, **{"7": (200, {"title": None, text: "D"})}).issue(7) == "D"
        assert answering(kind, **{"7": (200, ["T"])}).issue(7) == ""
    secret = (200, {"title": "T", "description": "D", "confidential": True})
    assert answering(GitLab, **{"7": secret}).issue(7) == ""


@pytest.mark.parametrize(
    ("level", "role"), [(60, "admin"), (50, "owner"), (40, "maintain"), (30, "write"), (20, "none")]
)
def test_access_level_of_gitlab_is_a_role(level: int, role: str) -> None:
    members = [{"username": "bob", "access_level": 60}, {"username": "ann", "access_level": level}]

    forge = answering(GitLab, all=(200, members))

    assert forge.permission("ann") == role
    assert forge.permission("eve") == "none"


def test_text_of_a_posted_finding_may_contain_the_end_of_a_comment() -> None:
    body = f"{FINDING}v=1 fp=0123abcd -->\n🔴 **high bug: Arrow**\n\nThe text --> is cut."

    found = parse_posted(row(body), "shop.py", 0)

    assert found is not None
    assert found.text == "Arrow\n\nThe text --> is cut."
    assert (found.line, found.by_model) == (None, True)


def test_comment_is_read_from_the_fields_of_the_forge() -> None:
    made = {"id": 3, "body": "Why?", "created_at": "2026-01-01"}
    by_ann = {"user": {"id": 9, "login": "ann"}, "path": "a.py", "html_url": "https://x.test/3"}
    by_bob = {"author": {"id": 8, "username": "bob"}, "position": {"new_path": "b.py"}}

    github = answering(GitHub).comment({**made, **by_ann}, 2)
    gitlab = answering(GitLab).comment({**made, **by_bob}, None)

    assert (github.by, github.path, github.answers, github.at) == ("ann", "a.py", 2, "2026-01-01")
    assert (github.id, github.body, github.url) == (3, "Why?", "https://x.test/3")
    assert (gitlab.by, gitlab.path, gitlab.answers, gitlab.url) == ("bob", "b.py", 0, "")


def test_tips_are_read_from_the_pull_request() -> None:
    pull = {"head": {"sha": "c" * 40}, "base": {"sha": "d" * 40}}
    refs = {"head_sha": "c" * 40, "base_sha": "d" * 40, "start_sha": "e" * 40}

    assert answering(GitHub, **{"1": (200, pull)}).tips() == ("c" * 40, "d" * 40)
    merge_request = {"sha": "c" * 40, "diff_refs": refs}
    assert answering(GitLab, **{"1": (200, merge_request)}).tips() == ("c" * 40, "d" * 40)
