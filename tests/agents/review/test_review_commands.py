"""Commands in comments: what is one, and who is heard."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from fakes.forge import FakeForge

from glue.agents.review.delivery.commands import Command, allowed, dismissals, parse, read, reply, respond
from glue.agents.review.delivery.forges import Comment
from glue.agents.review.findings.dedupe import PostedFinding


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
def test_a_command_is_the_first_line_and_nothing_else(body: str, expected: tuple[str, str] | None) -> None:
    assert parse(body) == expected


def event(**changes: Any) -> dict[str, Any]:
    comment = {"id": 5, "body": "/review", "user": {"login": "wendy", "type": "User"}}
    return {"action": "created", "issue": {"number": 7, "pull_request": {}}, "comment": comment, **changes}


def test_an_event_is_a_command_only_on_a_pull_request_by_a_person() -> None:
    found = read({**event(), "issue": {"number": 7, "pull_request": {"url": "x"}}})

    assert found is not None
    assert (found.name, found.by, found.number, found.comment) == ("review", "wendy", 7, 5)
    assert read(event(issue={"number": 7})) is None
    assert read({**event(action="edited"), "issue": {"number": 7, "pull_request": {"url": "x"}}}) is None
    bot = {"id": 5, "body": "/review", "user": {"login": "x[bot]", "type": "Bot"}}
    assert read({**event(comment=bot), "issue": {"number": 7, "pull_request": {"url": "x"}}}) is None


def test_only_writers_are_heard() -> None:
    rights = {"wendy": "write", "max": "maintain", "reader": "read"}

    assert allowed("wendy", lambda name: rights.get(name, "none"))
    assert allowed("max", lambda name: rights.get(name, "none"))
    assert not allowed("reader", lambda name: rights.get(name, "none"))
    assert not allowed("../wendy", lambda name: "admin")
    assert not allowed("", lambda name: "admin")


def test_an_ignore_without_id_needs_a_comment_of_ours_to_answer() -> None:
    known = [PostedFinding(fingerprint="f" * 16, comment=3)]
    remarks = [
        Comment(by="wendy", body="/ignore meant so", answers=3),
        Comment(by="wendy", body="/ignore meant so", answers=4),
        Comment(by="wendy", body="I would /ignore this", answers=3),
    ]

    (found,) = dismissals(remarks, known, lambda name: "write")

    assert (found.id, found.reason, found.by, found.binding) == ("f" * 16, "meant so", "wendy", True)


def test_help_is_answered_at_once_and_a_review_by_itself() -> None:
    assert "`/ignore`" in reply(Command(name="help", comment=5))
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
    (tmp_path / "event.json").write_text(json.dumps({"action": "created", "issue": issue, "comment": comment}))
    return {**forge.environ, "GITHUB_REF": "refs/heads/main", "GITHUB_EVENT_PATH": str(tmp_path / "event.json")}


def test_a_writers_command_pins_the_head_and_a_strangers_is_refused(forge: FakeForge, tmp_path: Path) -> None:
    forge.login("wendy", permission="write")
    forge.login("mallory", permission="read")

    heard = respond(job(forge, tmp_path, "/ask is it safe?", "wendy"))
    refused = respond(job(forge, tmp_path, "/review", "mallory"))

    assert (heard.review, heard.head, heard.number) == (True, "c" * 40, 7)
    assert (refused.review, refused.head) == (False, "")
    assert forge.pulls[7].comments == []


def test_help_is_answered_once_even_if_the_job_runs_again(forge: FakeForge, tmp_path: Path) -> None:
    forge.login("wendy", permission="write")
    environ = job(forge, tmp_path, "/help", "wendy")
    forge.fail("lose", match="POST .*/comments")

    for _ in range(2):
        respond(environ, sleep=lambda seconds: None)

    assert len(forge.pulls[7].comments) == 1


def test_talk_is_not_answered(forge: FakeForge, tmp_path: Path) -> None:
    assert respond(job(forge, tmp_path, "looks good", "wendy")).name == ""
    assert forge.calls == []
