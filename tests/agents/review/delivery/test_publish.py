"""Posting a review to a forge."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.forge import FakeForge
from fakes.forge.server import Action, Kind
from fakes.review import BASE, HEAD, pull_request

from glue.agents.review.change.collect import from_texts
from glue.agents.review.change.config import Config
from glue.agents.review.delivery.forges import find_pull_request
from glue.agents.review.delivery.outputs import FINDING, STICKY
from glue.agents.review.delivery.publish import Published, format_requests, publish
from glue.agents.review.records import (
    Bundle,
    ChangeCommit,
    Coverage,
    Finding,
    HunkCoverage,
    ReviewedChange,
    ReviewRun,
)
from glue.errors import ConfigError
from glue.providers import HTTPResponse

DIFF = """diff --git a/app.py b/app.py
index 1111111..2222222 100644
--- a/app.py
+++ b/app.py
@@ -1,4 +1,6 @@
 import os
-def load(name):
-    return open(name).read()
+def load(name, cache={}):
+    data = open(name).read()
+    cache[name] = data
+    return data
 # end of the loader
@@ -40,3 +42,4 @@ def tail():
 def total(rows):
-    return sum(rows)
+    count = len(rows) + 1
+    return sum(rows) / count
 # end of the totals
diff --git a/old.py b/new.py
similarity index 80%
rename from old.py
rename to new.py
--- a/old.py
+++ b/new.py
@@ -1,2 +1,2 @@
 name = "one"
-value = compute(name)
+value = compute_twice(name)
"""
MUTABLE = Finding(
    path="app.py",
    quote="def load(name, cache={}):",
    title="Mutable default argument",
    body="The dictionary `cache` is made once and shared by every call of `load`.",
    severity="high",
    confidence="high",
    suggestion="def load(name, cache=None):",
    source="script",
)
BOUND = Finding(
    path="app.py",
    quote="count = len(rows) + 1\n    return sum(rows) / count",
    title="Off by one in the mean",
    body="`total` divides by one row too many.",
    severity="medium",
    source="script",
)
RENAMED = Finding(
    path="new.py",
    quote="value = compute_twice(name)",
    title="Computed twice",
    body="The value of `compute_twice` is thrown away on the second call.",
    severity="low",
    source="script",
)
FINDINGS = (MUTABLE, BOUND, RENAMED)


def bundle(**change: Any) -> Bundle:
    return pull_request(DIFF, **change)


def review(*findings: Finding, **more: Any) -> ReviewRun:
    hunks = tuple(HunkCoverage(path="app.py", hunk=at, state="full", lines=5) for at in (1, 2))
    details: dict[str, Any] = {
        "summary": "The change caches file contents and computes a mean.",
        "finished": True,
    }
    details |= {
        "provider": "script",
        "model": "script-1",
        "coverage": Coverage(hunks=hunks),
        "stop_reason": "tool_use",
    }
    return ReviewRun(findings=findings, **{**details, **more})


@pytest.fixture(params=["github", "gitlab", "gitea"])
def forge(request: pytest.FixtureRequest) -> Iterator[FakeForge]:
    kind: Kind = request.param
    with FakeForge(kind) as server:
        server.pull(DIFF, head=HEAD, base=BASE)
        yield server


@pytest.fixture
def github() -> Iterator[FakeForge]:
    with FakeForge("github") as server:
        server.pull(DIFF, head=HEAD, base=BASE)
        yield server


def send(forge: FakeForge, run: ReviewRun, **options: Any) -> Published:
    environ: Mapping[str, str] = options.pop("environ", forge.environ)
    options.setdefault("config", Config(min_severity="info", max_findings=25))
    return publish(
        options.pop("bundle", bundle()), run, environ, sleep=lambda seconds: None, **options
    )


def stickies(forge: FakeForge) -> list[dict[str, Any]]:
    return [row for row in forge.pulls[1].comments if row["body"].startswith(STICKY)]


def marks(forge: FakeForge) -> list[str]:
    return [
        row["body"].split("\n")[0]
        for row in forge.pulls[1].inline
        if row["body"].startswith(FINDING)
    ]


def test_review_is_posted_as_inline_comments_and_one_sticky_comment(forge: FakeForge) -> None:
    done = send(forge, review(*FINDINGS))

    assert done.delivery is not None
    assert done.delivery.problem == ""
    assert (done.delivery.posted, done.delivery.sticky) == (3, "added")
    assert len(stickies(forge)) == 1
    assert len(marks(forge)) == 3
    assert all(call.status < 300 for call in forge.calls)


def test_posting_twice_changes_nothing(forge: FakeForge) -> None:
    send(forge, review(*FINDINGS))
    before = json.dumps([forge.pulls[1].comments, forge.pulls[1].inline])
    forge.calls.clear()

    done = send(forge, review(*FINDINGS))

    assert done.delivery is not None
    assert (done.delivery.posted, done.delivery.skipped, done.delivery.sticky) == (0, 3, "same")
    assert json.dumps([forge.pulls[1].comments, forge.pulls[1].inline]) == before
    assert {call.method for call in forge.calls if call.path != "/graphql"} == {"GET"}
    assert all(
        call.body["query"].startswith("query") for call in forge.calls if call.path == "/graphql"
    )


def test_reworded_finding_is_not_posted_again(forge: FakeForge) -> None:
    send(forge, review(MUTABLE))
    reworded = replace(
        MUTABLE, title="Shared state", body="Calls of `load` share one `cache`.", category="style"
    )

    send(forge, review(reworded))

    assert len(marks(forge)) == 1
    assert len(stickies(forge)) == 1


def test_review_of_a_later_head_posts_only_new_findings(github: FakeForge) -> None:
    send(github, review(MUTABLE))
    github.pulls[1].head = "c" * 40

    send(github, review(MUTABLE, BOUND), bundle=bundle(head_sha="c" * 40))

    assert len(marks(github)) == 2
    assert len(stickies(github)) == 1


def test_review_only_comments_and_only_on_the_right_side(github: FakeForge) -> None:
    send(github, review(*FINDINGS))

    (posted,) = [
        call.body
        for call in github.calls
        if call.path.endswith("/reviews") and call.method == "POST"
    ]
    assert posted["event"] == "COMMENT"
    assert posted["commit_id"] == HEAD
    assert {comment["side"] for comment in posted["comments"]} == {"RIGHT"}
    places = {
        (comment["path"], comment.get("start_line"), comment["line"])
        for comment in posted["comments"]
    }
    assert places == {("app.py", None, 2), ("app.py", 43, 44), ("new.py", None, 2)}


def test_line_in_the_findings_file_is_not_trusted(github: FakeForge) -> None:
    lying = replace(MUTABLE, line=9999, start_line=1, anchor="exact")

    send(github, review(lying))

    assert [row["line"] for row in github.pulls[1].inline] == [2]


def test_comments_of_other_authors_with_a_copied_marker_are_ignored(forge: FakeForge) -> None:
    send(forge, review(MUTABLE))
    body = stickies(forge)[0]["body"]
    mallory = forge.user(forge.login("mallory"))
    author = {"id": mallory.id, "login": "mallory", "username": "mallory"}
    forge.pulls[1].comments[:] = [
        {"id": 1, "body": body, "user": author, "author": author, "system": False}
    ]
    for row in forge.pulls[1].inline:
        row["user"] = row["author"] = author

    done = send(forge, review(MUTABLE))

    assert done.delivery is not None
    assert done.delivery.sticky == "added"
    assert forge.pulls[1].comments[0]["body"] == body
    assert len(stickies(forge)) == 2
    assert len(marks(forge)) == 2


def test_token_of_an_app_finds_its_own_comments(
    github: FakeForge,
) -> None:
    environ = {**github.environ, "GITHUB_TOKEN": github.login("an-app[bot]", bot=True)}

    send(github, review(MUTABLE), environ=environ)
    send(github, review(MUTABLE), environ=environ)

    assert len(stickies(github)) == 1
    assert len(marks(github)) == 1


def test_comments_are_found_on_later_pages(forge: FakeForge) -> None:
    other = {"id": 9, "login": "bob", "username": "bob"}
    noise = [
        {"id": at, "body": f"note {at}", "user": other, "author": other, "system": False}
        for at in range(1, 251)
    ]
    forge.pulls[1].comments += noise

    send(forge, review(*FINDINGS))
    send(forge, review(*FINDINGS))

    assert len(stickies(forge)) == 1
    assert len(marks(forge)) == 3


def test_refused_inline_comment_is_listed_in_the_sticky_comment(github: FakeForge) -> None:
    # The forge has fewer files than the bundle.
    github.pulls[1].diff = DIFF.split("diff --git a/old.py")[0]

    done = send(github, review(*FINDINGS))

    assert done.delivery is not None
    assert (done.delivery.posted, done.delivery.listed, done.delivery.problem) == (2, 1, "")
    assert "Computed twice" in stickies(github)[0]["body"]
    assert "thrown away" in stickies(github)[0]["body"]


def test_review_that_is_refused_with_422_is_posted_comment_by_comment(github: FakeForge) -> None:
    github.fail("invalid", match="POST .*/reviews")

    done = send(github, review(*FINDINGS))

    assert [call.status for call in github.calls if call.path.endswith("/reviews")][-1] == 422
    assert done.delivery is not None
    assert (done.delivery.posted, done.delivery.listed, done.delivery.problem) == (3, 0, "")
    assert len(github.pulls[1].inline) == 3


@pytest.mark.parametrize("action", ["denied", "error"])
def test_review_that_fails_with_403_or_500_is_not_posted_comment_by_comment(
    github: FakeForge, action: Action
) -> None:
    github.fail(action, match="POST .*/reviews", times=99)

    done = send(github, review(*FINDINGS))

    assert done.verdict.exit_code == 4
    assert any(reason.startswith("not delivered: POST ") for reason in done.verdict.reasons)
    assert github.pulls[1].inline == []
    posted = {call.path.rpartition("/")[2] for call in github.calls if call.method == "POST"}
    assert posted - {"graphql"} == {"reviews"}


def test_nothing_is_posted_if_the_head_has_moved(forge: FakeForge) -> None:
    forge.pulls[1].head = "d" * 40

    done = send(forge, review(*FINDINGS), fail_on=None)

    assert done.verdict.exit_code == 4
    assert forge.pulls[1].comments == []
    assert forge.pulls[1].inline == []


def test_unsound_review_posts_nothing_and_keeps_the_sticky_comment(forge: FakeForge) -> None:
    send(forge, review(*FINDINGS))
    before = json.dumps([forge.pulls[1].comments, forge.pulls[1].inline])
    forge.calls.clear()

    done = send(forge, review(summary="check check check check check check check check"))

    assert done.verdict.exit_code == 3
    assert done.delivery is not None
    assert done.delivery.sticky == "none"
    assert forge.calls == []
    assert json.dumps([forge.pulls[1].comments, forge.pulls[1].inline]) == before


def test_clean_review_adds_no_comment_but_updates_an_existing_one(forge: FakeForge) -> None:
    clean = review(summary="The change renames a helper and nothing else.")

    first = send(forge, clean)
    assert first.delivery is not None
    assert first.delivery.sticky == "none"
    assert forge.pulls[1].comments == []

    send(forge, review(MUTABLE))
    last = send(forge, clean)
    assert last.delivery is not None
    assert last.delivery.sticky == "edited"
    assert "No findings" in stickies(forge)[0]["body"]


def test_dry_run_returns_the_requests_that_would_be_sent(forge: FakeForge) -> None:
    dry = send(forge, review(*FINDINGS), dry=True)
    assert {call.method for call in forge.calls} <= {"GET"}
    forge.calls.clear()

    send(forge, review(*FINDINGS))

    sent = [(call.method, call.body) for call in forge.calls if call.method != "GET"]
    assert [
        (request.method, request.body) for request in dry.requests
    ] == sent or forge.kind == "gitlab"
    assert len(format_requests(dry.requests).splitlines()) == len(dry.requests)


def test_dry_run_without_a_token_sends_nothing() -> None:
    environ = {
        "GITHUB_ACTIONS": "true",
        "GITHUB_REPOSITORY": "octo/demo",
        "GITHUB_REF": "refs/pull/1/merge",
    }

    done = publish(bundle(), review(*FINDINGS), environ, dry=True)

    assert [request.method for request in done.requests] == ["POST", "POST"]


def test_short_rate_limits_are_waited_for_and_long_ones_fail(github: FakeForge) -> None:
    waits: list[float] = []
    github.fail("busy", match="POST .*/reviews", retry_after="7")

    done = publish(bundle(), review(MUTABLE), github.environ, sleep=waits.append)
    assert done.delivery is not None
    assert done.delivery.posted == 1
    assert waits == [7.0]

    github.fail("busy", match="GET", retry_after="9999")
    late = publish(bundle(), review(MUTABLE), github.environ, sleep=waits.append, fail_on=None)
    assert late.verdict.exit_code == 4
    assert 9999.0 not in waits


def test_wrong_token_is_reported_as_not_delivered(forge: FakeForge) -> None:
    environ = {
        name: "wrong-token-value" if "TOKEN" in name else value
        for name, value in forge.environ.items()
    }

    done = send(forge, review(MUTABLE), environ=environ, fail_on=None)

    assert done.verdict.exit_code == 4
    assert "wrong-token-value" not in (done.delivery.problem if done.delivery else "")


def test_bundle_of_another_pull_request_is_refused(github: FakeForge, tmp_path: Path) -> None:
    event = {"workflow_run": {"head_sha": "e" * 40, "pull_requests": []}}
    (tmp_path / "event.json").write_text(json.dumps(event))
    environ = {
        **github.environ,
        "GITHUB_EVENT_PATH": str(tmp_path / "event.json"),
        "GITHUB_REF": "refs/heads/main",
    }

    with pytest.raises(
        ConfigError,
        match="the bundle belongs to head aaaaaaaaaaaa, but the CI job runs for eeeeeeeeeeee",
    ):
        send(github, review(MUTABLE), environ=environ)
    with pytest.raises(
        ConfigError, match="the bundle belongs to pull request 2, but the CI job runs for 1"
    ):
        send(github, review(MUTABLE), bundle=bundle(number=2))

    assert github.calls == []


def test_review_of_a_fork_is_posted_to_the_pull_request_with_its_head(
    github: FakeForge, tmp_path: Path
) -> None:
    event = {"workflow_run": {"head_sha": HEAD, "pull_requests": []}}
    (tmp_path / "event.json").write_text(json.dumps(event))
    environ = {
        **github.environ,
        "GITHUB_EVENT_PATH": str(tmp_path / "event.json"),
        "GITHUB_REF": "refs/heads/main",
    }
    github.pull(DIFF, 2, head="f" * 40, base=BASE)

    wrong = send(github, review(MUTABLE), environ=environ, bundle=bundle(number=2))
    right = send(github, review(MUTABLE), environ=environ)

    assert wrong.delivery is not None
    assert "the head moved" in wrong.delivery.problem
    assert right.delivery is not None
    assert right.delivery.posted == 1
    assert github.pulls[2].inline == []


def test_missing_forge_or_token_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no forge found"):
        publish(bundle(), review(MUTABLE), {})
    with pytest.raises(ConfigError, match="no token; set GLUE_REVIEW_TOKEN or GITHUB_TOKEN"):
        publish(
            bundle(), review(MUTABLE), {"GITHUB_ACTIONS": "true", "GITHUB_REPOSITORY": "octo/demo"}
        )


def test_finding_dismissed_by_its_author_is_listed_and_still_fails(github: FakeForge) -> None:
    mark = send(github, review(MUTABLE), dry=True).report.findings[0].fingerprint
    dismissed = bundle(
        commits=(
            ChangeCommit(
                sha="1" * 40, message=f"fix\n\nReview-Dismiss: {mark} wanted", author="ann"
            ),
        )
    )

    done = send(github, review(MUTABLE), bundle=dismissed)

    assert marks(github) == []
    assert "### Dismissed" in stickies(github)[0]["body"]
    assert done.verdict.exit_code == 1


def test_finding_dismissed_in_the_base_passes_until_its_code_changes(github: FakeForge) -> None:
    mark = send(github, review(MUTABLE), dry=True).report.findings[0].fingerprint
    ruled = replace(bundle(), guidelines={".glue/dismissed": f"{mark} a cache is wanted here\n"})

    assert send(github, review(MUTABLE), bundle=ruled, dry=True).verdict.exit_code == 0
    changed = replace(MUTABLE, quote="cache[name] = data", suggestion=None)
    assert send(github, review(changed), bundle=ruled, dry=True).verdict.exit_code == 1


def test_author_cannot_dismiss_a_secret_or_an_attack(github: FakeForge) -> None:
    grave = (
        replace(MUTABLE, source="rules", rule="secret"),
        replace(BOUND, source="rules", category="attack"),
    )
    found = send(github, review(*grave), dry=True).report.findings
    trailers = "\n".join(f"Review-Dismiss: {one.fingerprint} mine" for one in found)
    change = bundle(commits=(ChangeCommit(sha="1" * 40, message=f"x\n\n{trailers}", author="ann"),))

    assert len(send(github, review(*grave), bundle=change, dry=True).report.items) == 2


def test_marker_counts_only_at_the_start_of_a_comment(github: FakeForge) -> None:
    me = github.user()
    quoted = f"> {STICKY}v=1 head=x digest=y -->\nwhat is this?"
    github.pulls[1].comments.append(
        {"id": 1, "body": quoted, "user": {"id": me.id, "login": me.login}}
    )

    send(github, review(MUTABLE))

    assert github.pulls[1].comments[0]["body"] == quoted
    assert len(github.pulls[1].comments) == 2


def test_check_run_has_annotations_and_is_updated_not_added_again(github: FakeForge) -> None:
    github.fail("lose", match="POST .*/check-runs")

    first = send(github, review(*FINDINGS), check=True)
    send(github, review(*FINDINGS), check=True)

    (check,) = github.pulls[1].checks
    assert first.delivery is not None
    assert first.delivery.problem == ""
    assert (check["conclusion"], len(check["annotations"])) == ("failure", 3)
    assert {note["annotation_level"] for note in check["annotations"]} == {
        "failure",
        "warning",
        "notice",
    }


def test_refused_check_run_is_reported_as_not_delivered(github: FakeForge) -> None:
    github.fail("denied", match="POST .*/check-runs")

    done = send(github, review(*FINDINGS), check=True)

    assert done.verdict.exit_code == 4
    assert any(reason.startswith("not delivered: POST ") for reason in done.verdict.reasons)


def test_duplicate_sticky_comment_is_deleted_even_if_the_response_is_lost(forge: FakeForge) -> None:
    send(forge, review(MUTABLE))
    forge.pulls[1].comments.append({**stickies(forge)[0], "id": 9000})
    forge.fail("lose", match="DELETE")

    done = send(forge, review(MUTABLE))

    assert done.delivery is not None
    assert done.delivery.problem == ""
    assert len(stickies(forge)) == 1


def test_ignore_counts_only_from_users_with_write_access(github: FakeForge) -> None:
    send(github, review(MUTABLE, BOUND))
    marks_of = {row["line"]: row for row in github.pulls[1].inline}
    for name, permission, line in (("wendy", "write", 2), ("mallory", "read", 44)):
        user = github.user(github.login(name, permission=permission))
        row = {
            "id": 7000 + line,
            "user": {"id": user.id, "login": name},
            "in_reply_to_id": marks_of[line]["id"],
        }
        github.pulls[1].inline.append(
            {**row, "body": "/ignore it is meant so", "path": "app.py", "line": line}
        )

    done = send(github, review(MUTABLE, replace(BOUND, severity="high")))

    assert [mark.by for _, mark in done.report.dismissed] == ["wendy"]
    assert [item.finding.title for item in done.report.items] == ["Off by one in the mean"]
    assert done.verdict.exit_code == 1
    assert "it is meant so" in stickies(github)[0]["body"]


def test_ignore_with_an_id_works_in_the_conversation(forge: FakeForge) -> None:
    mark = send(forge, review(MUTABLE)).report.findings[0].fingerprint
    user = forge.user(forge.login("wendy", permission="write"))
    who = {"id": user.id, "login": "wendy", "username": "wendy"}
    note = {
        "id": 8000,
        "body": f"/ignore {mark} wanted",
        "user": who,
        "author": who,
        "system": False,
    }
    forge.pulls[1].comments.append(note)

    done = send(forge, review(MUTABLE))

    assert done.report.items == ()
    assert done.verdict.exit_code == 0


FAULTS: tuple[Action, ...] = (
    "refuse",
    "lose",
    "cut",
    "garbage",
    "error",
    "error-after",
    "busy",
    "denied",
    "invalid",
)


def _open(kind: Kind) -> FakeForge:
    forge = FakeForge(kind)
    forge.pull(DIFF, head=HEAD, base=BASE)
    return forge


def _steps(kind: Kind) -> int:
    forge = _open(kind)
    send(forge, review(*FINDINGS), transport=forge.request)
    return len(forge.calls)


def _survives(forge: FakeForge, faults: list[tuple[Action, int]], **options: Any) -> None:
    """Publish with faults, then without, and check that every comment is posted exactly once."""
    for action, at in faults:
        if action == "busy":
            forge.fail(action, at=at, retry_after="1")
        else:
            forge.fail(action, at=at)
    for _ in range(3):
        send(forge, review(*FINDINGS), **options)
        assert len(stickies(forge)) <= 1
        assert len(marks(forge)) == len(set(marks(forge)))
        forge.faults.clear()
    assert len(stickies(forge)) == 1
    assert len(marks(forge)) == 3


@pytest.mark.parametrize(
    ("kind", "action"),
    [
        *(("github", action) for action in FAULTS),
        ("gitlab", "lose"),
        ("gitlab", "cut"),
        ("gitea", "error-after"),
    ],
)
def test_fault_at_any_request_never_causes_duplicates(kind: Kind, action: Action) -> None:
    for at in range(_steps(kind)):
        forge = _open(kind)
        _survives(forge, [(action, at)], transport=forge.request)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(200))
def test_several_faults_never_cause_duplicates(seed: int) -> None:
    dice = random.Random(seed)
    kind: Kind = dice.choice(["github", "gitlab", "gitea"])
    for _ in range(5):
        with _open(kind) as forge:
            _survives(
                forge,
                [(dice.choice(FAULTS), dice.randrange(14)) for _ in range(dice.randrange(1, 5))],
            )


VALUES = "".join(f"value_{n} = compute({n})\n" for n in range(12))


def twelve_values() -> Bundle:
    change = ReviewedChange(
        mode="pull_request", repo="octo/demo", number=1, head_sha=HEAD, base_sha=BASE
    )
    return from_texts({}, {"values.py": VALUES}, change)


def twelve_findings(**changes: Any) -> ReviewRun:
    findings = tuple(
        Finding(
            path="values.py",
            quote=f"value_{n} = compute({n})",
            title=f"Value {n} is wrong",
            body=f"`value_{n}` is never used.",
            source="x",
            **changes,
        )
        for n in range(12)
    )
    summary = "Twelve values were added to the file."
    return ReviewRun(findings=findings, provider="x", finished=True, summary=summary)


@pytest.mark.parametrize(
    ("config", "inline", "folded"),
    [
        (Config(), 6, 6),
        (Config(max_findings=2), 2, 10),
        (Config(max_findings=25), 12, 0),
        (Config(min_severity="high"), 0, 12),
        (Config(min_confidence="high"), 0, 12),
        (Config(min_severity="medium", min_confidence="medium", max_findings=25), 12, 0),
    ],
)
def test_settings_decide_which_findings_are_inline_and_which_are_folded(
    forge: FakeForge, config: Config, inline: int, folded: int
) -> None:
    values = twelve_values()
    forge.pull(values.diff, head=HEAD, base=BASE)

    done = send(forge, twelve_findings(), bundle=values, config=config)

    assert len(forge.pulls[1].inline) == inline
    assert sum(bool(item.folded) for item in done.report.items) == folded
    body = stickies(forge)[0]["body"]
    assert body.count("is wrong") >= 12
    assert (f"<details><summary>{folded} more findings" in body) == bool(folded)


def test_folded_findings_count_for_the_verdict() -> None:
    run = twelve_findings(severity="high")

    done = publish(twelve_values(), run, {}, post=False, config=Config(max_findings=0))

    assert all(item.folded for item in done.report.items)
    assert (done.verdict.exit_code, done.verdict.word) == (1, "findings")


def test_findings_beyond_the_limit_are_not_called_milder(forge: FakeForge) -> None:
    values = twelve_values()
    forge.pull(values.diff, head=HEAD, base=BASE)

    send(forge, twelve_findings(), bundle=values, config=Config(max_findings=2))

    body = stickies(forge)[0]["body"]
    assert "10 more findings beyond the limit of comments on lines" in body
    assert "milder" not in body


@pytest.mark.parametrize("words", ["/IGNORE", "/glue ignore", "/glue-ignore", "/Ignore"])
def test_every_spelling_of_ignore_that_gets_a_reply_also_dismisses(
    github: FakeForge, words: str
) -> None:
    mark = send(github, review(MUTABLE)).report.findings[0].fingerprint
    user = github.user(github.login("wendy", permission="write"))
    note = {"id": 8000, "body": f"{words} {mark} wanted", "user": {"id": user.id, "login": "wendy"}}
    github.pulls[1].comments.append(note)

    done = send(github, review(MUTABLE))

    assert [(mark.by, mark.reason) for _, mark in done.report.dismissed] == [("wendy", "wanted")]


def test_other_comments_dismiss_nothing(github: FakeForge) -> None:
    mark = send(github, review(MUTABLE)).report.findings[0].fingerprint
    user = github.user(github.login("wendy", permission="write"))
    bodies = (f"do not /ignore {mark}", f"/glue review {mark}", f"/help {mark}", mark)
    github.pulls[1].comments += [
        {"id": 8000 + at, "body": body, "user": {"id": user.id, "login": "wendy"}}
        for at, body in enumerate(bodies)
    ]

    done = send(github, review(MUTABLE))

    assert done.report.dismissed == ()


@pytest.mark.parametrize(
    ("number", "body"),
    [
        (1, "glue review: 1 comment on lines of the change."),
        (2, "glue review: 2 comments on lines of the change."),
        (3, "glue review: 3 comments on lines of the change."),
    ],
)
def test_review_on_github_states_the_number_of_its_comments(
    github: FakeForge, number: int, body: str
) -> None:
    send(github, review(*FINDINGS[:number]))

    (posted,) = [
        call.body
        for call in github.calls
        if call.path.endswith("/reviews") and call.method == "POST"
    ]
    marker, text = posted["body"].split("\n")
    assert marker.startswith(f"<!-- glue-review:review v=1 head={HEAD} digest=")
    assert text == body


@pytest.mark.parametrize(
    ("kind", "path", "refused"),
    [
        ("gitlab", r"/discussions$", ""),
        ("github", r"/pulls/1/reviews$", ""),
        ("github", r"/pulls/1/comments$", "POST .*/reviews"),
    ],
)
def test_comment_that_arrives_after_it_was_sent_again_is_deleted(
    kind: Kind, path: str, refused: str
) -> None:
    forge = _open(kind)
    if refused:
        forge.fail("invalid", match=refused)
    waiting: list[Any] = []
    oldest: list[int] = []

    def late(method: str, where: str, **given: Any) -> HTTPResponse:
        """Carry out the first matching request only after the client has sent it again."""
        if method == "POST" and re.search(path, where):
            waiting.append((where, given))
            if len(waiting) == 1:
                return HTTPResponse(status=502, headers={}, body=b"{}")
            if len(waiting) == 2:
                forge.request(method, waiting[0][0], **waiting[0][1])
                oldest.append(forge.pulls[1].inline[0]["id"])
        return forge.request(method, where, **given)

    done = send(forge, review(MUTABLE), transport=late)

    assert done.delivery is not None
    assert (done.delivery.posted, done.delivery.problem) == (1, "")
    assert len(waiting) == 2
    assert len(marks(forge)) == 1
    assert [row["id"] for row in forge.pulls[1].inline] == oldest


def test_comments_are_listed_again_only_if_one_was_sent_twice(github: FakeForge) -> None:
    def inline_lists() -> int:
        return sum(call.method == "GET" and call.path.endswith("/comments") for call in calls)

    calls = github.calls
    send(github, review(*FINDINGS))
    usual = inline_lists()
    github.pulls[1].inline.clear()
    github.pulls[1].comments.clear()
    calls.clear()
    github.fail("lose", match="POST .*/reviews")

    send(github, review(*FINDINGS))

    assert inline_lists() == usual + 1  # whether the lost review has arrived
    assert len(marks(github)) == 3


def far_from_the_change(path: str = "rows.py", number: int = 7, **changes: Any) -> Any:
    """Return a change of a first line, and findings that quote unchanged lines far below it."""
    rows = [f"row_{n} = compute_row({n})" for n in range(60)]
    before, after = "\n".join(rows), "\n".join(["first = compute_row(0)", *rows[1:]])
    details = {"mode": "pull_request", "repo": "octo/demo", "number": 1}
    change = ReviewedChange(**{**details, "head_sha": HEAD, "base_sha": BASE})  # type: ignore[arg-type]
    made = from_texts({path: before}, {path: after}, change)
    findings = [
        Finding(
            path=path,
            quote=rows[20 + 4 * n],
            title=f"Row {20 + 4 * n} is wrong",
            body=f"The caller of `row_{20 + 4 * n}` expects another row.",
            source="script",
            **changes,
        )
        for n in range(number)
    ]
    return made, findings


def test_findings_outside_the_hunks_get_at_most_five_comments_on_their_file(
    github: FakeForge,
) -> None:
    made, findings = far_from_the_change()
    github.pull(made.diff, head=HEAD, base=BASE)

    done = send(github, review(*findings), bundle=made)

    assert [(row["path"], row.get("line")) for row in github.pulls[1].inline] == [
        ("rows.py", None)
    ] * 5
    body = stickies(github)[0]["body"]
    assert all(finding.title in body for finding in findings)
    assert done.delivery is not None
    assert done.delivery.problem == ""


def test_comments_on_a_file_are_not_repeated_by_the_next_review(github: FakeForge) -> None:
    made, findings = far_from_the_change(number=3)
    github.pull(made.diff, head=HEAD, base=BASE)
    send(github, review(*findings), bundle=made)

    done = send(github, review(*findings), bundle=made)

    assert len(github.pulls[1].inline) == 3
    assert done.delivery is not None
    assert done.delivery.posted == 0


def test_folded_findings_outside_the_hunks_get_no_comment(github: FakeForge) -> None:
    made, findings = far_from_the_change(severity="low")
    github.pull(made.diff, head=HEAD, base=BASE)

    send(github, review(*findings), bundle=made, config=Config(min_severity="medium"))

    assert github.pulls[1].inline == []


def test_file_whose_name_has_hidden_characters_gets_no_comment_and_is_listed(
    github: FakeForge,
) -> None:
    made, findings = far_from_the_change(path="ro\u200bws.py", number=2)
    github.pull(made.diff, head=HEAD, base=BASE)

    send(github, review(*findings), bundle=made)

    assert github.pulls[1].inline == []
    body = stickies(github)[0]["body"]
    assert "\u200b" not in body
    assert all(finding.title in body for finding in findings)


def test_forges_without_comments_on_files_list_findings_outside_the_hunks() -> None:
    made, findings = far_from_the_change()
    with FakeForge("gitlab") as forge:
        forge.pull(made.diff, head=HEAD, base=BASE)

        send(forge, review(*findings), bundle=made)

        assert forge.pulls[1].inline == []
        assert all(finding.title in stickies(forge)[0]["body"] for finding in findings)


@pytest.mark.parametrize("change", ["none wanted", "head moved", "unsound"])
def test_check_run_is_added_only_on_request_and_only_for_a_delivered_review(
    github: FakeForge, change: str
) -> None:
    if change == "head moved":
        github.pulls[1].head = "d" * 40
    run = review(*FINDINGS, codes=("transport.token",) if change == "unsound" else ())

    send(github, run, check=change != "none wanted")

    assert not [call for call in github.calls if "check-runs" in call.path]


def test_gitlab_gets_the_old_name_and_both_numbers_of_an_unchanged_line() -> None:
    diff = DIFF.replace("-value = compute(name)\n+value = compute_twice(name)\n", "")
    diff = diff.replace("@@ -1,2 +1,2 @@\n name", '@@ -1,1 +1,2 @@\n+kind = "new"\n name')
    made = pull_request(diff)
    kept = replace(RENAMED, quote='name = "one"', title="Name of the module", severity="high")
    with FakeForge("gitlab") as forge:
        forge.pull(diff, head=HEAD, base=BASE)

        send(forge, review(kept), bundle=made)

        places = [
            call.body["position"]
            for call in forge.calls
            if call.method == "POST" and call.path.endswith("/discussions")
        ]
    assert [
        (place["old_path"], place["new_path"], place["old_line"], place["new_line"])
        for place in places
    ] == [("old.py", "new.py", 1, 2)]


def test_secret_in_the_answer_of_a_forge_is_not_repeated(github: FakeForge) -> None:
    token = github.environ["GITHUB_TOKEN"]

    def refuse(*given: Any, **more: Any) -> HTTPResponse:
        body = json.dumps({"message": f"the token {token} is wrong"}).encode()
        return HTTPResponse(status=400, headers={}, body=body)

    done = send(github, review(MUTABLE), transport=refuse)

    assert done.delivery is not None
    assert "the token [redacted] is wrong" in done.delivery.problem


def test_address_of_the_sticky_comment_is_returned(github: FakeForge) -> None:
    first, second = send(github, review(MUTABLE)), send(github, review(MUTABLE))
    third = send(github, review(MUTABLE, BOUND))

    assert [done.delivery and done.delivery.sticky for done in (first, second, third)] == [
        "added",
        "same",
        "edited",
    ]
    assert third.delivery is not None
    assert (third.delivery.posted, third.delivery.skipped) == (1, 1)
    address = stickies(github)[0]["html_url"]
    assert [done.delivery and done.delivery.url for done in (first, second, third)] == [address] * 3
    dry = send(github, review(MUTABLE), dry=True)
    assert dry.delivery is not None
    assert dry.delivery.url == address


def test_requests_are_formatted_as_sorted_json(github: FakeForge) -> None:
    done = send(github, review(MUTABLE), dry=True)

    rows = format_requests(done.requests, "https://x.test").splitlines()

    assert all(list(json.loads(row)) == ["body", "method", "url"] for row in rows)
    assert json.loads(rows[0])["url"].startswith("https://x.test/repos/octo/demo/pulls/1/")


def test_bundle_cannot_choose_another_forge_or_repository_than_the_job(github: FakeForge) -> None:
    stranger = bundle(forge="gitlab", repo="mallory/x")

    done = send(github, review(MUTABLE), bundle=stranger)

    assert done.delivery is not None
    assert (done.delivery.posted, done.delivery.problem) == (1, "")
    assert all("mallory" not in call.path for call in github.calls)


def test_address_that_the_job_does_not_name_is_taken_from_the_bundle(github: FakeForge) -> None:
    place = replace(find_pull_request(github.environ), forge="", repo="", number=None)

    done = send(github, review(MUTABLE), place=place, bundle=bundle(forge="github"))

    assert done.delivery is not None
    assert (done.delivery.posted, done.delivery.problem) == (1, "")


def test_comments_of_a_review_have_at_most_40000_bytes(github: FakeForge) -> None:
    values = twelve_values()
    github.pull(values.diff, head=HEAD, base=BASE)
    signs = [chr(0x4E00 + at * 61 % 20_000) for at in range(12 * 1_200)]
    texts = ["".join(signs[at : at + 6]) for at in range(0, len(signs), 6)]
    run = twelve_findings()
    findings = tuple(
        replace(finding, body=" ".join(texts[200 * at : 200 * at + 200]) + "。")
        for at, finding in enumerate(run.findings)
    )

    done = send(
        github,
        replace(run, findings=findings),
        bundle=values,
        config=Config(max_findings=25, language="ja"),
    )

    sizes = [len((row["body"] + row["path"]).encode()) for row in github.pulls[1].inline]
    assert done.delivery is not None
    assert (done.delivery.posted, done.delivery.listed) == (len(sizes), 12 - len(sizes))
    assert 40_000 - max(sizes) < sum(sizes) <= 40_000
    assert all(finding.title in stickies(github)[0]["body"] for finding in findings)
