"""Commands in comments of a pull request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from fakes.forge import FakeForge

from glue.agents.review.delivery.commands import (
    NO_ID,
    NOT_POSTED,
    NOTED,
    Command,
    allowed,
    dismissals,
    memory_line,
    parse,
    read,
    reply,
    respond,
)
from glue.agents.review.delivery.forges.forge import Comment
from glue.agents.review.findings import dedupe
from glue.agents.review.findings.dedupe import PostedFinding
from glue.agents.review.records import Bundle, ChangeCommit, ReviewedChange


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("/review", ("review", "")),
        ("/Review please", ("review", "please")),
        ("/ask is the cache shared?", ("ask", "is the cache shared?")),
        ("/ignore deadbeef00 it is meant so\nmore", ("ignore", "deadbeef00 it is meant so")),
        ("/glue review", ("review", "")),
        ("please /review", None),
        ("> /review", None),
        ("text\n/review", None),
        ("/reviews", None),
        ("/close", None),
        ("", None),
        ("/review ::error::x\x1b[31m", ("review", ": :error::x[31m")),
    ],
)
def test_only_the_first_line_of_a_comment_is_a_command(
    body: str, expected: tuple[str, str] | None
) -> None:
    assert parse(body) == expected


def event(**changes: Any) -> dict[str, Any]:
    comment = {"id": 5, "body": "/review", "user": {"login": "wendy", "type": "User"}}
    return {
        "action": "created",
        "issue": {"number": 7, "pull_request": {}},
        "comment": comment,
        **changes,
    }


def test_only_new_comments_of_people_on_pull_requests_are_commands() -> None:
    found = read({**event(), "issue": {"number": 7, "pull_request": {"url": "x"}}})

    assert found is not None
    assert (found.name, found.by, found.number, found.comment) == ("review", "wendy", 7, 5)
    assert read(event(issue={"number": 7})) is None
    assert (
        read({**event(action="edited"), "issue": {"number": 7, "pull_request": {"url": "x"}}})
        is None
    )
    bot = {"id": 5, "body": "/review", "user": {"login": "x[bot]", "type": "Bot"}}
    assert (
        read({**event(comment=bot), "issue": {"number": 7, "pull_request": {"url": "x"}}}) is None
    )


def test_only_users_with_write_access_are_allowed() -> None:
    rights = {"wendy": "write", "max": "maintain", "reader": "read"}

    assert allowed("wendy", lambda name: rights.get(name, "none"))
    assert allowed("max", lambda name: rights.get(name, "none"))
    assert not allowed("reader", lambda name: rights.get(name, "none"))
    assert not allowed("../wendy", lambda name: "admin")
    assert not allowed("", lambda name: "admin")


def test_ignore_without_an_id_dismisses_the_finding_of_the_comment_it_replies_to() -> None:
    known = [PostedFinding(fingerprint="f" * 16, comment=3)]
    remarks = [
        Comment(by="wendy", body="/ignore meant so", answers=3),
        Comment(by="wendy", body="/ignore meant so", answers=4),
        Comment(by="wendy", body="I would /ignore this", answers=3),
    ]

    (found,) = dismissals(remarks, known, lambda name: "write")

    assert (found.id, found.reason, found.by, found.binding) == (
        "f" * 16,
        "meant so",
        "wendy",
        True,
    )


def test_help_has_a_reply_and_review_has_none() -> None:
    assert "`/ignore " in reply(Command(name="help", comment=5))
    assert reply(Command(name="help", comment=5)).startswith("<!-- glue-review:reply v=1 to=5 -->")
    assert reply(Command(name="review", comment=5)) == ""


@pytest.fixture(params=["github", "gitea"])
def forge(request: pytest.FixtureRequest) -> Iterator[FakeForge]:
    kind: Literal["github", "gitea"] = request.param
    with FakeForge(kind) as server:
        server.pull("", 7, head="c" * 40, base="d" * 40)
        yield server


def job(forge: FakeForge, tmp_path: Path, body: str, by: str) -> dict[str, str]:
    comment = {"id": 5, "body": body, "user": {"login": by, "type": "User"}}
    issue = {"number": 7, "pull_request": {"url": "x"}}
    (tmp_path / "event.json").write_text(
        json.dumps({"action": "created", "issue": issue, "comment": comment})
    )
    return {
        **forge.environ,
        "GITHUB_REF": "refs/heads/main",
        "GITHUB_EVENT_PATH": str(tmp_path / "event.json"),
    }


def test_command_of_a_writer_fixes_the_head_and_others_are_refused(
    forge: FakeForge, tmp_path: Path
) -> None:
    forge.login("wendy", permission="write")
    forge.login("mallory", permission="read")

    heard = respond(job(forge, tmp_path, "/ask is it safe?", "wendy"))
    refused = respond(job(forge, tmp_path, "/review", "mallory"))

    assert (heard.review, heard.head, heard.number) == (True, "c" * 40, 7)
    assert (refused.review, refused.head) == (False, "")
    assert forge.pulls[7].comments == []


def test_help_is_answered_once_if_the_job_runs_twice(forge: FakeForge, tmp_path: Path) -> None:
    forge.login("wendy", permission="write")
    environ = job(forge, tmp_path, "/help", "wendy")
    forge.fail("lose", match="POST .*/comments")

    for _ in range(2):
        respond(environ, sleep=lambda seconds: None)

    assert len(forge.pulls[7].comments) == 1


def test_comments_without_a_command_are_ignored(forge: FakeForge, tmp_path: Path) -> None:
    assert respond(job(forge, tmp_path, "looks good", "wendy")).name == ""
    assert forge.calls == []


def test_dismissals_have_the_same_syntax_in_comments_commits_and_files() -> None:
    commit = ChangeCommit(
        sha="c" * 40, message="Cache it\n\nReview-Dismiss: 0123ABCD: wanted", author="ann"
    )
    bundle = Bundle(
        change=ReviewedChange(commits=(commit,)),
        guidelines={".glue/dismissed": "0123ABCD: wanted\n"},
    )
    remark = Comment(body="/ignore 0123ABCD: wanted", by="ann")

    written = (*dedupe.dismissals(bundle), *dismissals([remark], [], lambda user: "write"))

    assert [(one.id, one.reason) for one in written] == [("0123abcd", "wanted")] * 3


@pytest.mark.parametrize(
    ("argument", "answer"),
    [
        ("deadbeef00 meant so", NOTED),
        ("", NO_ID),
        ("because", NO_ID),
        ("always", NO_ID),
        ("always deadbeef00 meant so", f"{NOTED} {NOT_POSTED}"),
    ],
)
def test_the_reply_to_ignore_states_whether_a_finding_was_dismissed(
    argument: str, answer: str
) -> None:
    text = reply(Command(name="ignore", argument=argument, comment=5))

    assert text == f"<!-- glue-review:reply v=1 to=5 -->\n{answer}"


def test_lasting_dismissal_of_a_maintainer_becomes_a_line_of_the_memory() -> None:
    known = [PostedFinding(fingerprint="deadbeef00112233", path="shop.py", title="Wrong sum")]
    command = Command(name="ignore", argument="always deadbeef00 callers check it", comment=5)

    line = memory_line(command, known)

    assert line == "deadbeef00112233 wrong shop.py: Wrong sum: callers check it"
    assert f"```text\n{line}\n```" in reply(command, line)
    assert memory_line(command, []) == ""
    assert memory_line(replace(command, argument="always because"), known) == ""
    shouted = replace(command, argument="always DEADBEEF00 callers check it")
    assert memory_line(shouted, known) == line
    remark = Comment(body="/ignore always deadbeef00 callers check it", by="ann")
    (dismissal,) = dismissals([remark], [], lambda user: "write")
    assert (dismissal.id, dismissal.reason) == ("deadbeef00", "callers check it")


def test_only_maintainers_dismiss_for_later_pull_requests(forge: FakeForge, tmp_path: Path) -> None:
    forge.login("wendy", permission="write")
    forge.login("ada", permission="admin")
    text = "/ignore always deadbeef00 it is meant"

    refused = respond(job(forge, tmp_path, text, "wendy"))
    heard = respond(job(forge, tmp_path, text, "ada"))

    assert "only maintainers" in refused.refused
    assert (heard.name, heard.refused) == ("ignore", "")
