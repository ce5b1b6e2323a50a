"""Posting a review: once, on valid lines, by the author's id, whatever fails on the way."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.forge import FakeForge
from fakes.forge.server import Action, Kind
from fakes.review import BASE, HEAD, pull_request

from glue.agents.review.change.config import Config
from glue.agents.review.delivery.forges import find_pull_request
from glue.agents.review.delivery.outputs import FINDING, STICKY
from glue.agents.review.delivery.publish import Published, format_requests, publish
from glue.agents.review.records import Bundle, ChangeCommit, Coverage, Finding, HunkCoverage, ReviewRun
from glue.errors import ConfigError

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
    details: dict[str, Any] = {"summary": "The change caches file contents and computes a mean.", "finished": True}
    details |= {"provider": "script", "model": "script-1", "coverage": Coverage(hunks=hunks), "stop_reason": "tool_use"}
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
    return publish(options.pop("bundle", bundle()), run, environ, sleep=lambda seconds: None, **options)


def stickies(forge: FakeForge) -> list[dict[str, Any]]:
    return [row for row in forge.pulls[1].comments if row["body"].startswith(STICKY)]


def marks(forge: FakeForge) -> list[str]:
    return [row["body"].split("\n")[0] for row in forge.pulls[1].inline if row["body"].startswith(FINDING)]


def test_a_review_is_posted_as_comments_on_lines_and_one_sticky_comment(forge: FakeForge) -> None:
    done = send(forge, review(*FINDINGS))

    assert done.delivery is not None
    assert done.delivery.problem == ""
    assert (done.delivery.posted, done.delivery.sticky) == (3, "added")
    assert len(stickies(forge)) == 1
    assert len(marks(forge)) == 3
    assert all(call.status < 300 for call in forge.calls)


def test_posting_twice_adds_nothing_and_changes_nothing(forge: FakeForge) -> None:
    send(forge, review(*FINDINGS))
    before = json.dumps([forge.pulls[1].comments, forge.pulls[1].inline])
    forge.calls.clear()

    done = send(forge, review(*FINDINGS))

    assert done.delivery is not None
    assert (done.delivery.posted, done.delivery.skipped, done.delivery.sticky) == (0, 3, "same")
    assert json.dumps([forge.pulls[1].comments, forge.pulls[1].inline]) == before
    assert {call.method for call in forge.calls if call.path != "/graphql"} == {"GET"}
    assert all(call.body["query"].startswith("query") for call in forge.calls if call.path == "/graphql")


def test_other_words_for_the_same_code_are_not_posted_again(forge: FakeForge) -> None:
    send(forge, review(MUTABLE))
    reworded = replace(MUTABLE, title="Shared state", body="Calls of `load` share one `cache`.", category="style")

    send(forge, review(reworded))

    assert len(marks(forge)) == 1
    assert len(stickies(forge)) == 1


def test_a_later_head_posts_only_what_is_new(github: FakeForge) -> None:
    send(github, review(MUTABLE))
    github.pulls[1].head = "c" * 40

    send(github, review(MUTABLE, BOUND), bundle=bundle(head_sha="c" * 40))

    assert len(marks(github)) == 2
    assert len(stickies(github)) == 1


def test_the_review_only_comments_and_only_on_the_right_side(github: FakeForge) -> None:
    send(github, review(*FINDINGS))

    (posted,) = [call.body for call in github.calls if call.path.endswith("/reviews") and call.method == "POST"]
    assert posted["event"] == "COMMENT"
    assert posted["commit_id"] == HEAD
    assert {comment["side"] for comment in posted["comments"]} == {"RIGHT"}
    places = {(comment["path"], comment.get("start_line"), comment["line"]) for comment in posted["comments"]}
    assert places == {("app.py", None, 2), ("app.py", 43, 44), ("new.py", None, 2)}


def test_a_line_that_a_file_claims_is_not_believed(github: FakeForge) -> None:
    lying = replace(MUTABLE, line=9999, start_line=1, anchor="exact")

    send(github, review(lying))

    assert [row["line"] for row in github.pulls[1].inline] == [2]


def test_a_spoofed_marker_of_another_author_is_left_alone(forge: FakeForge) -> None:
    send(forge, review(MUTABLE))
    body = stickies(forge)[0]["body"]
    mallory = forge.user(forge.login("mallory"))
    author = {"id": mallory.id, "login": "mallory", "username": "mallory"}
    forge.pulls[1].comments[:] = [{"id": 1, "body": body, "user": author, "author": author, "system": False}]
    for row in forge.pulls[1].inline:
        row["user"] = row["author"] = author

    done = send(forge, review(MUTABLE))

    assert done.delivery is not None
    assert done.delivery.sticky == "added"
    assert forge.pulls[1].comments[0]["body"] == body
    assert len(stickies(forge)) == 2
    assert len(marks(forge)) == 2


def test_an_apps_token_that_may_not_ask_who_it_is_still_finds_its_comments(github: FakeForge) -> None:
    environ = {**github.environ, "GITHUB_TOKEN": github.login("an-app[bot]", bot=True)}

    send(github, review(MUTABLE), environ=environ)
    send(github, review(MUTABLE), environ=environ)

    assert len(stickies(github)) == 1
    assert len(marks(github)) == 1


def test_comments_are_found_on_later_pages(forge: FakeForge) -> None:
    other = {"id": 9, "login": "bob", "username": "bob"}
    noise = [{"id": at, "body": f"note {at}", "user": other, "author": other, "system": False} for at in range(1, 251)]
    forge.pulls[1].comments += noise

    send(forge, review(*FINDINGS))
    send(forge, review(*FINDINGS))

    assert len(stickies(forge)) == 1
    assert len(marks(forge)) == 3


def test_a_finding_the_forge_refuses_is_listed_instead(github: FakeForge) -> None:
    github.pulls[1].diff = DIFF.split("diff --git a/old.py")[0]  # the forge sees less than was collected

    done = send(github, review(*FINDINGS))

    assert done.delivery is not None
    assert (done.delivery.posted, done.delivery.listed, done.delivery.problem) == (2, 1, "")
    assert "Computed twice" in stickies(github)[0]["body"]
    assert "thrown away" in stickies(github)[0]["body"]


def test_a_moved_head_posts_nothing_and_is_not_delivered(forge: FakeForge) -> None:
    forge.pulls[1].head = "d" * 40

    done = send(forge, review(*FINDINGS), fail_on=None)

    assert done.verdict.exit_code == 4
    assert forge.pulls[1].comments == []
    assert forge.pulls[1].inline == []


def test_garbage_posts_nothing_and_keeps_the_last_good_comment(forge: FakeForge) -> None:
    send(forge, review(*FINDINGS))
    before = json.dumps([forge.pulls[1].comments, forge.pulls[1].inline])
    forge.calls.clear()

    done = send(forge, review(summary="check check check check check check check check"))

    assert done.verdict.exit_code == 3
    assert forge.calls == []
    assert json.dumps([forge.pulls[1].comments, forge.pulls[1].inline]) == before


def test_a_clean_review_opens_no_comment_but_brings_an_old_one_up_to_date(forge: FakeForge) -> None:
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


def test_a_dry_run_sends_no_change_and_shows_what_it_would_send(forge: FakeForge) -> None:
    dry = send(forge, review(*FINDINGS), dry=True)
    assert {call.method for call in forge.calls} <= {"GET"}
    forge.calls.clear()

    send(forge, review(*FINDINGS))

    sent = [(call.method, call.body) for call in forge.calls if call.method != "GET"]
    assert [(request.method, request.body) for request in dry.requests] == sent or forge.kind == "gitlab"
    assert len(format_requests(dry.requests).splitlines()) == len(dry.requests)


def test_without_a_token_a_dry_run_asks_nobody() -> None:
    environ = {"GITHUB_ACTIONS": "true", "GITHUB_REPOSITORY": "octo/demo", "GITHUB_REF": "refs/pull/1/merge"}

    done = publish(bundle(), review(*FINDINGS), environ, dry=True)

    assert [request.method for request in done.requests] == ["POST", "POST"]


def test_rate_limits_are_waited_for_and_a_long_one_is_not_delivered(github: FakeForge) -> None:
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


def test_a_wrong_token_is_not_delivered(forge: FakeForge) -> None:
    environ = {name: "wrong-token-value" if "TOKEN" in name else value for name, value in forge.environ.items()}

    done = send(forge, review(MUTABLE), environ=environ, fail_on=None)

    assert done.verdict.exit_code == 4
    assert "wrong-token-value" not in (done.delivery.problem if done.delivery else "")


def test_a_bundle_of_another_pull_request_is_refused(github: FakeForge, tmp_path: Path) -> None:
    event = {"workflow_run": {"head_sha": "e" * 40, "pull_requests": []}}
    (tmp_path / "event.json").write_text(json.dumps(event))
    environ = {**github.environ, "GITHUB_EVENT_PATH": str(tmp_path / "event.json"), "GITHUB_REF": "refs/heads/main"}

    with pytest.raises(ConfigError, match="the bundle is of head aaaaaaaaaaaa, the job of eeeeeeeeeeee"):
        send(github, review(MUTABLE), environ=environ)
    with pytest.raises(ConfigError, match="the bundle is of pull request 2, the job of 1"):
        send(github, review(MUTABLE), bundle=bundle(number=2))

    assert github.calls == []


def test_a_forks_run_is_posted_where_its_head_belongs(github: FakeForge, tmp_path: Path) -> None:
    event = {"workflow_run": {"head_sha": HEAD, "pull_requests": []}}
    (tmp_path / "event.json").write_text(json.dumps(event))
    environ = {**github.environ, "GITHUB_EVENT_PATH": str(tmp_path / "event.json"), "GITHUB_REF": "refs/heads/main"}
    github.pull(DIFF, 2, head="f" * 40, base=BASE)

    wrong = send(github, review(MUTABLE), environ=environ, bundle=bundle(number=2))
    right = send(github, review(MUTABLE), environ=environ)

    assert wrong.delivery is not None
    assert "the head moved" in wrong.delivery.problem
    assert right.delivery is not None
    assert right.delivery.posted == 1
    assert github.pulls[2].inline == []


def test_no_forge_and_no_number_are_said_in_one_line() -> None:
    with pytest.raises(ConfigError, match="no forge found"):
        publish(bundle(), review(MUTABLE), {})
    with pytest.raises(ConfigError, match="no token; set GLUE_REVIEW_TOKEN or GITHUB_TOKEN"):
        publish(bundle(), review(MUTABLE), {"GITHUB_ACTIONS": "true", "GITHUB_REPOSITORY": "octo/demo"})


def test_the_place_is_read_from_the_environment(tmp_path: Path) -> None:
    event = {"issue": {"number": 7, "pull_request": {}}, "comment": {"body": "/review"}}
    (tmp_path / "event.json").write_text(json.dumps({**event, "pull_request": {"number": 5, "head": {"sha": HEAD}}}))
    environ = {"GITHUB_ACTIONS": "true", "GITHUB_REPOSITORY": "o/r", "GITHUB_EVENT_PATH": str(tmp_path / "event.json")}

    place = find_pull_request(environ)

    assert (place.forge, place.repo, place.number, place.head) == ("github", "o/r", 5, HEAD)
    assert find_pull_request({"GITLAB_CI": "true", "CI_MERGE_REQUEST_IID": "3", "CI_PROJECT_ID": "9"}).number == 3
    assert find_pull_request({**environ, "GITEA_ACTIONS": "true"}).forge == "gitea"
    assert find_pull_request({}).forge == ""


def test_an_authors_trailer_lists_a_finding_and_does_not_pass_the_gate(github: FakeForge) -> None:
    mark = send(github, review(MUTABLE), dry=True).report.findings[0].fingerprint
    dismissed = bundle(
        commits=(ChangeCommit(sha="1" * 40, message=f"fix\n\nReview-Dismiss: {mark} wanted", author="ann"),)
    )

    done = send(github, review(MUTABLE), bundle=dismissed)

    assert marks(github) == []
    assert "### Dismissed" in stickies(github)[0]["body"]
    assert done.verdict.exit_code == 1


def test_a_dismissal_in_the_base_passes_the_gate_until_the_code_changes(github: FakeForge) -> None:
    mark = send(github, review(MUTABLE), dry=True).report.findings[0].fingerprint
    ruled = replace(bundle(), guidelines={".glue/dismissed": f"{mark} a cache is wanted here\n"})

    assert send(github, review(MUTABLE), bundle=ruled, dry=True).verdict.exit_code == 0
    changed = replace(MUTABLE, quote="cache[name] = data", suggestion=None)
    assert send(github, review(changed), bundle=ruled, dry=True).verdict.exit_code == 1


def test_an_author_cannot_dismiss_a_secret_or_an_attack(github: FakeForge) -> None:
    grave = (replace(MUTABLE, source="rules", rule="secret"), replace(BOUND, source="rules", category="attack"))
    found = send(github, review(*grave), dry=True).report.findings
    trailers = "\n".join(f"Review-Dismiss: {one.fingerprint} mine" for one in found)
    change = bundle(commits=(ChangeCommit(sha="1" * 40, message=f"x\n\n{trailers}", author="ann"),))

    assert len(send(github, review(*grave), bundle=change, dry=True).report.items) == 2


def test_a_marker_counts_only_at_the_very_start(github: FakeForge) -> None:
    me = github.user()
    quoted = f"> {STICKY}v=1 head=x digest=y -->\nwhat is this?"
    github.pulls[1].comments.append({"id": 1, "body": quoted, "user": {"id": me.id, "login": me.login}})

    send(github, review(MUTABLE))

    assert github.pulls[1].comments[0]["body"] == quoted
    assert len(github.pulls[1].comments) == 2


def test_a_check_run_carries_annotations_and_is_renewed_not_repeated(github: FakeForge) -> None:
    github.fail("lose", match="POST .*/check-runs")

    first = send(github, review(*FINDINGS), check=True)
    send(github, review(*FINDINGS), check=True)

    (check,) = github.pulls[1].checks
    assert first.delivery is not None
    assert first.delivery.problem == ""
    assert (check["conclusion"], len(check["annotations"])) == ("failure", 3)
    assert {note["annotation_level"] for note in check["annotations"]} == {"failure", "warning", "notice"}


def test_a_check_run_that_is_refused_is_not_delivered_and_says_why(github: FakeForge) -> None:
    github.fail("denied", match="POST .*/check-runs")

    done = send(github, review(*FINDINGS), check=True)

    assert done.verdict.exit_code == 4
    assert any(reason.startswith("not delivered: POST ") for reason in done.verdict.reasons)


def test_two_stickies_of_ours_become_one_even_if_the_answer_is_lost(forge: FakeForge) -> None:
    send(forge, review(MUTABLE))
    forge.pulls[1].comments.append({**stickies(forge)[0], "id": 9000})
    forge.fail("lose", match="DELETE")

    done = send(forge, review(MUTABLE))

    assert done.delivery is not None
    assert done.delivery.problem == ""
    assert len(stickies(forge)) == 1


def test_ignore_counts_from_people_who_may_write_alone(github: FakeForge) -> None:
    send(github, review(MUTABLE, BOUND))
    marks_of = {row["line"]: row for row in github.pulls[1].inline}
    for name, permission, line in (("wendy", "write", 2), ("mallory", "read", 44)):
        user = github.user(github.login(name, permission=permission))
        row = {"id": 7000 + line, "user": {"id": user.id, "login": name}, "in_reply_to_id": marks_of[line]["id"]}
        github.pulls[1].inline.append({**row, "body": "/ignore it is meant so", "path": "app.py", "line": line})

    done = send(github, review(MUTABLE, replace(BOUND, severity="high")))

    assert [mark.by for _, mark in done.report.dismissed] == ["wendy"]
    assert [item.finding.title for item in done.report.items] == ["Off by one in the mean"]
    assert done.verdict.exit_code == 1
    assert "it is meant so" in stickies(github)[0]["body"]


def test_ignore_with_an_id_in_the_conversation_is_heard_everywhere(forge: FakeForge) -> None:
    mark = send(forge, review(MUTABLE)).report.findings[0].fingerprint
    user = forge.user(forge.login("wendy", permission="write"))
    who = {"id": user.id, "login": "wendy", "username": "wendy"}
    note = {"id": 8000, "body": f"/ignore {mark} wanted", "user": who, "author": who, "system": False}
    forge.pulls[1].comments.append(note)

    done = send(forge, review(MUTABLE))

    assert done.report.items == ()
    assert done.verdict.exit_code == 0


FAULTS: tuple[Action, ...] = ("refuse", "lose", "cut", "garbage", "error", "error-after", "busy", "denied", "invalid")


def _open(kind: Kind) -> FakeForge:
    forge = FakeForge(kind)
    forge.pull(DIFF, head=HEAD, base=BASE)
    return forge


def _steps(kind: Kind) -> int:
    forge = _open(kind)
    send(forge, review(*FINDINGS), transport=forge.request)
    return len(forge.calls)


def _survives(forge: FakeForge, faults: list[tuple[Action, int]], **options: Any) -> None:
    """Publish under faults, then again without: at no time is anything there twice, and in the end all is there."""
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
    [*(("github", action) for action in FAULTS), ("gitlab", "lose"), ("gitlab", "cut"), ("gitea", "error-after")],
)
def test_one_fault_at_every_step_never_posts_anything_twice(kind: Kind, action: Action) -> None:
    for at in range(_steps(kind)):
        forge = _open(kind)
        _survives(forge, [(action, at)], transport=forge.request)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(200))
def test_many_faults_never_post_anything_twice(seed: int) -> None:
    dice = random.Random(seed)
    kind: Kind = dice.choice(["github", "gitlab", "gitea"])
    for _ in range(5):
        with _open(kind) as forge:
            _survives(forge, [(dice.choice(FAULTS), dice.randrange(14)) for _ in range(dice.randrange(1, 5))])
