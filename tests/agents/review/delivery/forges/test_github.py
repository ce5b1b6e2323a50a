"""Pull requests on GitHub and Gitea."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from glue.agents.review.delivery.forges import find_pull_request, read_change
from glue.agents.review.delivery.forges.client import Client, ForgeError
from glue.agents.review.delivery.forges.forge import Post, PullRequestRef
from glue.agents.review.delivery.forges.github import (
    ACTIONS_BOT,
    Gitea,
    GitHub,
    check_run,
)
from glue.agents.review.delivery.outputs import FINDING
from glue.agents.review.delivery.report import Item, Report, decide
from glue.agents.review.findings.dedupe import PostedFinding
from glue.agents.review.records import Coverage, Finding, HunkCoverage, ReviewedChange
from glue.errors import ConfigError
from glue.providers import HTTPResponse


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


def forge(kind: type[GitHub] | type[Gitea] = GitHub, **answers: Any) -> Any:
    """Return a pull request whose paths end with these names.

    An answer is a body, a status, or a list of bodies of which each is sent once.
    """
    sent: list[tuple[str, str, Any]] = []

    def send(method: str, path: str, *, body: bytes | None, **more: Any) -> HTTPResponse:
        sent.append((method, path, json.loads(body) if body else None))
        answer = answers.get(path.rpartition("/")[2].replace("-", "_"), 404)
        if isinstance(answer, tuple):
            answer, *rest = answer
            answers[path.rpartition("/")[2].replace("-", "_")] = tuple(rest) if rest else answer
        status = answer if isinstance(answer, int) else 200
        content = {"message": "no"} if isinstance(answer, int) else answer
        return HTTPResponse(status=status, headers={}, body=json.dumps(content).encode())

    environ = {"GITHUB_ACTIONS": "true"}
    client = Client(
        base="https://api.github.com", transport=send, sleep=lambda delay: None, environ=environ
    )
    made = kind(client, "octo/demo", 1, "a" * 40, "b" * 40)
    return made, sent


def thread(name: str, resolved: bool, *comments: int, more: bool = False) -> dict[str, Any]:
    node = {
        "id": name,
        "isResolved": resolved,
        "comments": {"nodes": [{"databaseId": one} for one in comments]},
    }
    threads = {"pageInfo": {"hasNextPage": more, "endCursor": f"after {name}"}, "nodes": [node]}
    return {"data": {"repository": {"pullRequest": {"reviewThreads": threads}}}}


def posted_row(number: int, **changes: Any) -> dict[str, Any]:
    body = f"{FINDING}v=1 fp=f{number} -->\n🔴 **high bug: Wrong**"
    return {"id": number, "body": body, "user": {"id": 9}, "path": "a.py", **changes}


def test_findings_are_read_with_their_line_and_discussion() -> None:
    comments = [
        posted_row(1, line=3, original_line=2),
        posted_row(2, line=None, original_line=4),
        posted_row(3),
        posted_row(4, user={"id": 8}),
    ]
    pages = (thread("T1", True, 1, more=True), thread("T2", False, 2))
    made, sent = forge(user={"id": 9}, comments=comments, graphql=pages)

    found = made.known()

    assert [(one.fingerprint, one.line, one.thread, one.resolved) for one in found] == [
        ("f1", 3, "T1", True),
        ("f2", 4, "T2", False),
        ("f3", None, "", False),
    ]
    cursors = [body["variables"]["after"] for _, path, body in sent if path == "/graphql"]
    assert cursors == [None, "after T1"]


def test_discussions_are_optional_and_read_up_to_a_limit() -> None:
    refused, _ = forge(user={"id": 9}, comments=[posted_row(1)], graphql=403)
    endless, sent = forge(
        user={"id": 9}, comments=[posted_row(1)], graphql=thread("T", True, 1, more=True)
    )
    none, quiet = forge(user={"id": 9}, comments=[posted_row(1, user={"id": 8})])

    assert [one.thread for one in refused.known()] == [""]
    assert [one.thread for one in endless.known()] == ["T"]
    assert sum(path == "/graphql" for _, path, _ in sent) == 20
    assert none.known() == []
    assert all(path != "/graphql" for _, path, _ in quiet)


@pytest.mark.parametrize(
    ("answer", "resolved"),
    [({"data": {}}, True), ({"errors": ["no"]}, False), (403, False)],
)
def test_discussion_is_resolved_if_the_token_may(answer: Any, resolved: bool) -> None:
    made, sent = forge(graphql=answer)

    assert made.resolve(PostedFinding(fingerprint="f", thread="T1")) is resolved
    assert sent[0][2]["variables"] == {"thread": "T1"}
    assert not made.resolve(PostedFinding(fingerprint="f"))
    assert len(sent) == 1


@pytest.mark.parametrize("status", [401, 403, 404])
def test_account_of_a_token_of_an_app_is_read_in_another_way(status: int) -> None:
    viewer = {"data": {"viewer": {"databaseId": 77}}}

    assert forge(user=status, graphql=viewer)[0].account_id == 77
    assert forge(user=status, graphql=403)[0].account_id == ACTIONS_BOT
    elsewhere, _ = forge(user=status, graphql={"data": None})
    elsewhere.client.base = "https://hub.test"
    with pytest.raises(ForgeError, match="cannot read the account of the token"):
        elsewhere.read_account_id()
    with pytest.raises(ForgeError, match="HTTP 500"):
        forge(user=500, graphql=viewer)[0].read_account_id()


def test_comment_covers_several_lines_only_if_the_first_is_above_the_last() -> None:
    post = Post(path="a.py", body="b", fingerprint="f", line=5, start_line=3)

    whole = {"path": "a.py", "body": "b", "line": 5, "side": "RIGHT"}
    assert GitHub.inline(post) == {**whole, "start_line": 3, "start_side": "RIGHT"}
    same = Post(path="a.py", body="b", fingerprint="f", line=5, start_line=5)
    assert GitHub.inline(same) == whole
    assert Gitea.inline(post) == {
        "path": "a.py",
        "body": "b",
        "new_position": 5,
        "old_position": 0,
    }


def test_comment_on_a_file_has_no_line() -> None:
    made, sent = forge(comments={"id": 1})

    made.add_single(Post(path="a.py", body="b", fingerprint="f"))
    made.add_single(Post(path="a.py", body="b", fingerprint="f", line=5))

    place = {"commit_id": "a" * 40, "path": "a.py", "body": "b"}
    assert [body for _, _, body in sent] == [
        {**place, "subject_type": "file"},
        {**place, "line": 5, "side": "RIGHT"},
    ]


@pytest.mark.parametrize(
    ("event", "ref", "number"),
    [
        ({"pull_request": {"number": 5}}, "", 5),
        ({"issue": {"number": 6, "pull_request": {"url": "x"}}}, "", 6),
        ({"issue": {"number": 6}}, "", None),
        ({"workflow_run": {"pull_requests": [{"number": 7}]}}, "", 7),
        ({"workflow_run": {"pull_requests": [{"number": 7}, {"number": 8}]}}, "", None),
        ({"pull_request": {"number": True}}, "", None),
        ({}, "refs/pull/9/merge", 9),
        ({}, "refs/pull/9/head", 9),
        ({}, "refs/pull/9/other", None),
        ([], "refs/heads/main", None),
    ],
)
def test_number_is_read_from_the_event_or_the_ref(
    tmp_path: Path, event: Any, ref: str, number: int | None
) -> None:
    (tmp_path / "event.json").write_text(json.dumps(event))
    environ = {"GITHUB_ACTIONS": "true", "GITHUB_REF": ref}

    place = find_pull_request({**environ, "GITHUB_EVENT_PATH": str(tmp_path / "event.json")})

    assert place.number == number


@pytest.mark.parametrize(("text", "reason"), [("{", "it is not JSON"), (None, "No such file")])
def test_event_that_cannot_be_read_is_refused(
    tmp_path: Path, text: str | None, reason: str
) -> None:
    path = tmp_path / "event.json"
    if text is not None:
        path.write_text(text)

    with pytest.raises(ConfigError, match=f"which GITHUB_EVENT_PATH names: {reason}"):
        find_pull_request({"GITHUB_ACTIONS": "true", "GITHUB_EVENT_PATH": str(path)})


def test_conclusion_of_a_check_run_follows_the_verdict_and_the_report() -> None:
    finding = Finding(
        path="a.py", quote="x", title="T" * 300, body="B.", severity="high", line=3, start_line=2
    )
    item = Item(finding=finding, path="a.py", where="a.py:3", inline=True)
    read = Coverage(hunks=(HunkCoverage(path="a.py", hunk=1, state="full", lines=1),))
    part = Coverage(hunks=(HunkCoverage(path="a.py", hunk=1, state="partial", lines=1),))
    change = ReviewedChange(head_sha="a" * 40)
    clean = Report(change=change, coverage=read)
    rows = {
        "success": clean,
        "failure": Report(change=change, items=(item,), coverage=read),
        "neutral": Report(change=change, coverage=part),
    }

    made = {name: check_run(report, decide(report)) for name, report in rows.items()}
    many = Report(change=change, items=(item,) * 60, coverage=read)

    assert {name: one["conclusion"] for name, one in made.items()} == {name: name for name in made}
    titles = [one["output"]["title"] for one in made.values()]
    assert titles == ["No findings", "1 finding", "No findings"]
    (note,) = made["failure"]["output"]["annotations"]
    assert (note["start_line"], note["end_line"], note["annotation_level"]) == (2, 3, "failure")
    assert note["title"] == ("T" * 199 + "…")
    assert len(check_run(many, decide(many))["output"]["annotations"]) == 50
    assert check_run(clean, decide(clean, problem="lost"))["conclusion"] == "neutral"


@pytest.mark.parametrize(
    ("answer", "role"),
    [
        ({"role_name": "maintain", "permission": "write"}, "maintain"),
        ({"permission": "read"}, "read"),
        ({}, "none"),
    ],
)
def test_role_of_a_user_is_the_finer_one(answer: dict[str, str], role: str) -> None:
    made, sent = forge(permission=answer)

    assert made.permission("ann/x") == role
    assert sent[0][1] == "/repos/octo/demo/collaborators/ann%2Fx/permission"
    made.client.blind = True
    assert made.permission("ann") == "none"
    assert made.tips() == ("a" * 40, "b" * 40)


@pytest.mark.parametrize(
    ("environ", "api"),
    [
        ({"GITHUB_ACTIONS": "true"}, "https://api.github.com"),
        ({"GITHUB_ACTIONS": "true", "GITHUB_API_URL": "https://hub.test/v3"},
         "https://hub.test/v3"),
        ({"FORGEJO_ACTIONS": "true", "GITHUB_SERVER_URL": "https://tea.test/"},
         "https://tea.test/api/v1"),
    ],
)  # fmt: skip
def test_address_of_the_api_is_found_in_the_environment(environ: dict[str, str], api: str) -> None:
    assert find_pull_request(environ).api == api


def test_labels_and_events_in_an_odd_form_are_empty(tmp_path: Path) -> None:
    for labels in (None, "x", {"name": "x"}):
        change = read_change(pull(labels=labels), {})
        assert change is not None
        assert change.labels == ()
    (tmp_path / "event.json").write_text('{"workflow_run": {"head_sha": "abc"}}')
    environ = {"GITHUB_ACTIONS": "true", "GITHUB_EVENT_PATH": str(tmp_path / "event.json")}
    place = find_pull_request(environ)
    assert (place.head, place.event) == ("abc", {"workflow_run": {"head_sha": "abc"}})
    (tmp_path / "event.json").write_text("[1]")
    assert find_pull_request(environ).event == {}
