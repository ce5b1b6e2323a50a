"""The fake forge refuses the same requests as the real ones."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from fakes.forge import FakeForge
from fakes.forge.state import spans
from glue.agents.review.change.diff import parse

HEAD, BASE = "a" * 40, "b" * 40
DIFF = """diff --git a/app.py b/app.py
--- a/app.py
+++ b/app.py
@@ -1,3 +1,4 @@
 one
-two
+two!
+three
 four
@@ -20,2 +21,2 @@
-old
+new
 end
"""
REPO = "/repos/octo/demo"


@pytest.fixture
def forge() -> Iterator[FakeForge]:
    with FakeForge("github") as server:
        server.pull(DIFF, head=HEAD, base=BASE)
        yield server


def call(
    forge: FakeForge, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, Any, dict[str, str]]:
    data = None if body is None else json.dumps(body).encode()
    sent = {"Authorization": f"Bearer {forge.token}", "User-Agent": "test", **headers}
    request = urllib.request.Request(forge.url + path, data=data, method=method, headers=sent)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            text = answer.read()
            found = {name.lower(): value for name, value in answer.headers.items()}
            return (
                answer.status,
                json.loads(text) if found["content-type"] == "application/json" else text,
                found,
            )
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read()), {}


def comment(line: int = 2, **more: Any) -> dict[str, Any]:
    return {"path": "app.py", "body": "words", "line": line, "side": "RIGHT", **more}


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (comment(5), "line must be part of the diff"),
        (comment(1, side="LEFT"), "line must be part of the diff"),
        (comment(2, path="other.py"), "Path could not be resolved"),
        (comment(3, start_line=3), "start line must precede the end line"),
        (comment(21, start_line=2), "start line must be part of the same hunk"),
        (comment(2, body=""), "Body can't be blank"),
        (comment(2, body="x" * 65_537), "Body is too long"),
    ],
)
def test_one_invalid_comment_rejects_the_whole_review(
    forge: FakeForge, bad: dict[str, Any], words: str
) -> None:
    review = {"event": "COMMENT", "body": "words", "comments": [comment(), bad]}

    status, body, _ = call(forge, "POST", f"{REPO}/pulls/1/reviews", review)

    assert status == 422
    assert words in body["errors"][0]
    assert forge.pulls[1].inline == []


def test_context_added_and_deleted_lines_accept_comments(forge: FakeForge) -> None:
    comments = [comment(1), comment(3, start_line=2), comment(2, side="LEFT"), comment(22)]

    status, _, _ = call(
        forge,
        "POST",
        f"{REPO}/pulls/1/reviews",
        {"event": "COMMENT", "body": "words", "comments": comments},
    )

    assert status == 200
    assert len(forge.pulls[1].inline) == 4


def test_a_review_that_comments_needs_a_body(forge: FakeForge) -> None:
    assert (
        call(forge, "POST", f"{REPO}/pulls/1/reviews", {"event": "COMMENT", "comments": []})[0]
        == 422
    )


def test_lists_are_split_into_pages(forge: FakeForge) -> None:
    forge.creations = 200
    for at in range(120):
        call(forge, "POST", f"{REPO}/issues/1/comments", {"body": f"note {at}"})

    _, first, headers = call(forge, "GET", f"{REPO}/issues/1/comments?per_page=500")
    _, second, last = call(forge, "GET", f"{REPO}/issues/1/comments?per_page=100&page=2")

    assert (len(first), len(second)) == (100, 20)
    assert 'rel="next"' in headers["link"]
    assert "link" not in last


def test_rate_limit_responses_have_their_headers(forge: FakeForge) -> None:
    forge.remaining = 1

    assert call(forge, "GET", "/user")[0] == 200
    assert call(forge, "GET", "/user")[0] == 403

    forge.remaining = None
    forge.creations = 0
    status, body, _ = call(forge, "POST", f"{REPO}/issues/1/comments", {"body": "words"})
    assert (status, body["message"]) == (403, "You have exceeded a secondary rate limit")


def test_a_diff_above_the_limits_is_refused(forge: FakeForge) -> None:
    many = "".join(f"--- a/f{at}\n+++ b/f{at}\n@@ -1 +1 @@\n-a\n+b\n" for at in range(301))
    forge.pull(many, 2, head=HEAD, base=BASE)
    forge.pull("--- a/f\n+++ b/f\n@@ -0,0 +1,20001 @@\n" + "+x\n" * 20_001, 3, head=HEAD, base=BASE)
    accept = {"Accept": "application/vnd.github.diff"}

    assert call(forge, "GET", f"{REPO}/pulls/1", **accept)[1] == DIFF.encode()
    assert call(forge, "GET", f"{REPO}/pulls/2", **accept)[0] == 406
    assert call(forge, "GET", f"{REPO}/pulls/3", **accept)[0] == 406


def test_a_check_run_accepts_fifty_annotations_per_request(forge: FakeForge) -> None:
    note = {
        "path": "app.py",
        "start_line": 2,
        "end_line": 2,
        "annotation_level": "warning",
        "message": "words",
    }

    def check(count: int) -> int:
        output = {"title": "t", "summary": "s", "annotations": [note] * count}
        return call(
            forge, "POST", f"{REPO}/check-runs", {"name": "n", "head_sha": HEAD, "output": output}
        )[0]

    assert (check(51), check(50)) == (422, 201)


def test_only_the_author_of_a_comment_may_edit_it(forge: FakeForge) -> None:
    _, row, _ = call(forge, "POST", f"{REPO}/issues/1/comments", {"body": "words"})
    other = {"Authorization": f"Bearer {forge.login('mallory')}"}

    assert (
        call(forge, "PATCH", f"{REPO}/issues/comments/{row['id']}", {"body": "mine"}, **other)[0]
        == 403
    )
    assert call(forge, "GET", "/user", Authorization="Bearer nobody")[0] == 401
    assert forge.pulls[1].comments[0]["body"] == "words"


def test_a_request_is_carried_out_although_its_response_is_lost(forge: FakeForge) -> None:
    forge.fail("lose", match="POST")
    forge.fail("refuse", match="POST", at=1)

    for _ in range(2):
        with pytest.raises((ConnectionError, urllib.error.URLError)):
            call(forge, "POST", f"{REPO}/issues/1/comments", {"body": "words"})

    assert len(forge.pulls[1].comments) == 1
    assert [seen.status for seen in forge.calls] == [0, 0]


def test_gitlab_requires_both_numbers_of_an_unchanged_line() -> None:
    with FakeForge("gitlab") as forge:
        forge.pull(DIFF, head=HEAD, base=BASE)
        path = "/projects/octo%2Fdemo/merge_requests/1/discussions"
        shas = {"position_type": "text", "base_sha": BASE, "start_sha": BASE, "head_sha": HEAD}
        place = {**shas, "old_path": "app.py", "new_path": "app.py"}

        def post(**lines: int) -> int:
            return call(forge, "POST", path, {"body": "words", "position": {**place, **lines}})[0]

        assert post(new_line=2) == 201
        assert post(new_line=4) == 400
        assert post(new_line=4, old_line=3) == 201
        assert post(old_line=2) == 201
        assert post(new_line=9) == 400


def test_gitea_refuses_lines_outside_the_diff() -> None:
    with FakeForge("gitea") as forge:
        forge.pull(DIFF, head=HEAD, base=BASE)

        def post(line: int) -> int:
            comments = [
                {"path": "app.py", "body": "words", "new_position": line, "old_position": 0}
            ]
            return call(
                forge, "POST", f"{REPO}/pulls/1/reviews", {"event": "COMMENT", "comments": comments}
            )[0]

        assert (post(2), post(9)) == (200, 422)


def test_both_diff_readers_agree_on_commentable_lines() -> None:
    odd = (
        DIFF
        + 'diff --git "a/t\\303\\274 b.py" "b/t\\303\\274 b.py"\n'
        + '--- "a/t\\303\\274 b.py"\n+++ "b/t\\303\\274 b.py"\n'
    )
    odd += "@@ -1,2 +1,3 @@\n a\n--- not a header\n+++ not one either\n+b\n"
    odd += "\\ No newline at end of file\n"

    ours = {file.path: set(file.commentable) for file in parse(odd)}
    theirs = {
        path: {line for span in found for line in span.new} for path, found in spans(odd).items()
    }

    assert ours == theirs
