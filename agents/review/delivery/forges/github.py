"""GitHub: one batched review that only ever comments, one sticky comment on the conversation, a check run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from glue.agents.review.delivery import outputs, render
from glue.agents.review.delivery.forges.client import Client, ForgeError, escaped
from glue.agents.review.delivery.forges.forge import (
    Comment,
    Post,
    Remark,
    Where,
    comment_rows,
    known_row,
    mine,
    post_once,
    valid_sha,
)
from glue.agents.review.delivery.report import GATE, PASS, Item, Report, ReviewVerdict
from glue.agents.review.findings.dedupe import Known
from glue.agents.review.records import Change
from glue.errors import ConfigError

ACTIONS_BOT = 41_898_282  # github-actions[bot] on github.com; its token may not ask who it is
CHECK = "glue review"
ANNOTATIONS = 50  # a request
THREADS = """query($owner: String!, $name: String!, $number: Int!, $after: String) {
  repository(owner: $owner, name: $name) { pullRequest(number: $number) { reviewThreads(first: 100, after: $after) {
    pageInfo { hasNextPage endCursor }
    nodes { id isResolved comments(first: 20) { nodes { databaseId } } }
  } } }
}"""
RESOLVE = "mutation($thread: ID!) { resolveReviewThread(input: {threadId: $thread}) { thread { isResolved } } }"
_LEVELS = {"error": "failure", "warning": "warning", "note": "notice"}


class PullRequest:
    """What GitHub and the forges that copy its API have in common."""

    def __init__(self, client: Client, repo: str, number: int, head: str, base: str = "") -> None:
        owner, _, name = repo.partition("/")
        self.client = client
        self.root = f"/repos/{escaped(owner)}/{escaped(name)}"
        self.number = number
        self.pinned = head, base
        self._me: int | None = None

    @staticmethod
    def change(place: Where, environ: Mapping[str, str]) -> Change | None:
        """Read the change from the event of the job."""
        return change_in(place)

    def me(self) -> int:
        """The id of the account behind the token."""
        if self._me is None:
            self._me = 0 if self.client.blind else self._ask()
        return self._me

    def _ask(self) -> int:
        return int(self.client.get("/user")["id"])

    def tips(self) -> tuple[str, str]:
        pull = self.client.get(f"{self.root}/pulls/{self.number}")
        return self.pinned if pull is None else (str(pull["head"]["sha"]), str(pull["base"]["sha"]))

    def permission(self, user: str) -> str:
        found = self.client.get(f"{self.root}/collaborators/{escaped(user)}/permission") or {}
        return str(found.get("role_name") or found.get("permission", "none"))

    def talk(self) -> list[dict[str, Any]]:
        """Every comment on the conversation."""
        return list(self.client.pages(f"{self.root}/issues/{self.number}/comments"))

    def comments(self) -> list[Comment]:
        return comment_rows(mine(self.talk(), self.me()))

    def remarks(self) -> list[Remark]:
        return [remark(row) for row in self.talk()]

    def add_comment(self, body: str) -> None:
        self.client.change("POST", f"{self.root}/issues/{self.number}/comments", {"body": body})

    def edit_comment(self, comment: Comment, body: str) -> None:
        self.client.change("PATCH", f"{self.root}/issues/comments/{comment.id}", {"body": body})

    def delete_comment(self, comment: Comment) -> None:
        self.client.change("DELETE", f"{self.root}/issues/comments/{comment.id}")

    def send_review(self, comments: list[dict[str, Any]], body: str) -> None:
        review = {"commit_id": self.pinned[0], "event": "COMMENT", "body": body, "comments": comments}
        self.client.change("POST", f"{self.root}/pulls/{self.number}/reviews", review)


class GitHub(PullRequest):
    """A pull request on GitHub."""

    api = "https://api.github.com"
    suggestion = "suggestion"
    file_level = batch = True

    @staticmethod
    def find(environ: Mapping[str, str]) -> Where | None:
        if environ.get("GITHUB_ACTIONS") != "true":
            return None
        return place_in("github", environ.get("GITHUB_API_URL", "") or GitHub.api, environ)

    @staticmethod
    def headers(key: str) -> dict[str, str]:
        version = {"accept": "application/vnd.github+json", "x-github-api-version": "2022-11-28"}
        return {"authorization": f"Bearer {key}", **version}

    def remarks(self) -> list[Remark]:
        inline = self.client.pages(f"{self.root}/pulls/{self.number}/comments")
        return [*super().remarks(), *(remark(row) for row in inline)]

    def known(self) -> list[Known]:
        rows = mine(list(self.client.pages(f"{self.root}/pulls/{self.number}/comments")), self.me())
        threads = self._threads() if rows else {}
        found = []
        for row in rows:
            thread, resolved = threads.get(int(row["id"]), ("", False))
            line = row.get("line") or row.get("original_line")
            found.append(known_row(row, str(row.get("path", "")), line, thread=thread, resolved=resolved))
        return [known for known in found if known]

    def _threads(self) -> dict[int, tuple[str, bool]]:
        """The discussion of each inline comment, and whether it is resolved; empty where GraphQL is not to be had."""
        owner, name = (unquote(part) for part in self.root.removeprefix("/repos/").split("/"))
        found: dict[int, tuple[str, bool]] = {}
        after = None
        for _ in range(20):
            values = {"owner": owner, "name": name, "number": self.number, "after": after}
            try:
                answer = self.client.ask("/graphql", {"query": THREADS, "variables": values})
                page = answer["data"]["repository"]["pullRequest"]["reviewThreads"]
            except (ForgeError, KeyError, TypeError):
                return found
            for thread in page["nodes"]:
                for comment in thread["comments"]["nodes"]:
                    found[int(comment["databaseId"])] = (str(thread["id"]), bool(thread["isResolved"]))
            after = page["pageInfo"]["endCursor"]
            if not page["pageInfo"]["hasNextPage"]:
                break
        return found

    def resolve(self, known: Known) -> bool:
        if not known.thread:
            return False
        body = {"query": RESOLVE, "variables": {"thread": known.thread}}
        try:
            answer = self.client.change("POST", "/graphql", body)
        except ForgeError:
            return False  # the token may comment and not resolve: the sticky comment says it all the same
        return not (answer or {}).get("errors")

    def add_review(self, posts: Sequence[Post], body: str) -> None:
        self.send_review([_comment(post) for post in posts], body)

    def add_single(self, post: Post) -> None:
        body: dict[str, Any] = {"commit_id": self.pinned[0], **_comment(post)}
        if post.line is None:
            body = {"commit_id": self.pinned[0], "path": post.path, "body": post.body, "subject_type": "file"}
        self.client.change("POST", f"{self.root}/pulls/{self.number}/comments", body)

    def delete_inline(self, known: Known) -> None:
        self.client.change("DELETE", f"{self.root}/pulls/comments/{known.comment}")

    def post_check(self, report: Report, verdict: ReviewVerdict) -> None:
        """Add or renew the check run of this head."""
        body = check_run(report, verdict)
        found = self._checks(report)
        if found:
            # Its annotations stay, as new ones would be added to them.
            output = {name: value for name, value in body["output"].items() if name != "annotations"}
            renewed = {**{name: value for name, value in body.items() if name != "head_sha"}, "output": output}
            self.client.change("PATCH", f"{self.root}/check-runs/{found[0]}", renewed)
            return
        post_once(
            lambda: self.client.change("POST", f"{self.root}/check-runs", body),
            lambda: bool(self._checks(report)),
            self.client.sleep,
        )

    def _checks(self, report: Report) -> list[int]:
        found = self.client.get(f"{self.root}/commits/{report.change.head_sha}/check-runs", check_name=CHECK)
        rows = (found or {}).get("check_runs", [])
        return [int(row["id"]) for row in rows if row.get("name") == CHECK]

    def _ask(self) -> int:
        try:
            return super()._ask()
        except ForgeError as error:
            if error.status not in (401, 403, 404):
                raise
        try:  # a token of an app may not GET /user
            found = self.client.ask("/graphql", {"query": "query { viewer { login databaseId } }"})
            return int(found["data"]["viewer"]["databaseId"])
        except (ForgeError, KeyError, TypeError, ValueError):
            if self.client.base == self.api and self.client.environ.get("GITHUB_ACTIONS") == "true":
                return ACTIONS_BOT
            raise ForgeError("cannot find out whose token this is: neither GET /user nor GraphQL says it") from None


def check_run(report: Report, verdict: ReviewVerdict) -> dict[str, Any]:
    """Write a check run. It never says success where something was not read."""
    conclusion = {PASS: "success", GATE: "failure"}.get(verdict.exit_code, "neutral")
    if conclusion == "success" and not report.clean:
        conclusion = "neutral"
    notes = [note for item in report.items if (note := _note(item))]
    return {
        "name": CHECK,
        "head_sha": report.change.head_sha,
        "status": "completed",
        "conclusion": conclusion,
        "output": {
            "title": f"{len(report.items) or 'No'} finding{'s' * (len(report.items) != 1)}",
            "summary": render.summary(report),
            "annotations": notes[:ANNOTATIONS],
        },
    }


def _note(item: Item) -> dict[str, Any] | None:
    lines = outputs.lines(item)
    if lines is None or not item.inline:
        return None
    return {
        "path": item.finding.path,
        "start_line": lines[0],
        "end_line": lines[1],
        "annotation_level": _LEVELS[outputs.LEVELS[item.finding.severity]],
        "title": outputs.title(item)[:255],
        "message": outputs.message(item),
    }


def _comment(post: Post) -> dict[str, Any]:
    comment: dict[str, Any] = {"path": post.path, "body": post.body, "line": post.line, "side": "RIGHT"}
    if post.start_line is not None and post.line is not None and post.start_line < post.line:
        comment |= {"start_line": post.start_line, "start_side": "RIGHT"}
    return comment


def remark(row: dict[str, Any]) -> Remark:
    by = str((row.get("user") or {}).get("login", ""))
    return Remark(by=by, body=str(row.get("body") or ""), answers=int(row.get("in_reply_to_id") or 0))


# The event file of a job -----------------------------------------------------------------------------


def place_in(forge: str, api: str, environ: Mapping[str, str]) -> Where:
    """Read the place of a pull request from a job's event file and variables."""
    event = _event(environ.get("GITHUB_EVENT_PATH", ""))
    return Where(
        forge=forge,
        api=api,
        repo=environ.get("GITHUB_REPOSITORY", ""),
        number=_number(event, environ),
        head=_text(_dict(_dict(event, "pull_request"), "head"), "sha")
        or _text(_dict(event, "workflow_run"), "head_sha"),
        event=event,
    )


def change_in(place: Where) -> Change | None:
    """Read the change that the event of a job is about."""
    pull = place.event.get("pull_request")
    if not isinstance(pull, dict):
        return None
    head, base = _dict(pull, "head"), _dict(pull, "base")
    labels = pull.get("labels")
    names = [_text(label, "name") for label in labels if isinstance(label, dict)] if isinstance(labels, list) else []
    origin = _dict(head, "repo")
    return Change(
        mode="pull_request",
        forge=place.forge,
        repo=place.repo,
        number=place.number,
        title=_text(pull, "title"),
        body=_text(pull, "body"),
        author=_text(_dict(pull, "user"), "login"),
        labels=tuple(names),
        draft=pull.get("draft") is True,
        # A deleted fork has no repository any more: it is a fork all the same.
        fork=not origin or origin.get("fork") is True or _text(origin, "full_name") != place.repo,
        head_ref=_text(head, "ref"),
        base_ref=_text(base, "ref"),
        head_sha=valid_sha(_text(head, "sha")),
        base_sha=valid_sha(_text(base, "sha")),
    )


def _event(path: str) -> dict[str, Any]:
    if not path:
        return {}
    try:
        event = json.loads(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read GITHUB_EVENT_PATH: {type(error).__name__}") from error
    return event if isinstance(event, dict) else {}


def _number(event: Mapping[str, Any], environ: Mapping[str, str]) -> int | None:
    pulls = _dict(event, "workflow_run").get("pull_requests") or []
    issue = _dict(event, "issue")
    for found in (
        _dict(event, "pull_request").get("number"),
        issue.get("number") if issue.get("pull_request") else None,
        pulls[0].get("number") if len(pulls) == 1 else None,
    ):
        if isinstance(found, int) and not isinstance(found, bool):
            return found
    match = re.fullmatch(r"refs/pull/(\d{1,9})/(?:merge|head)", environ.get("GITHUB_REF", ""))
    return int(match.group(1)) if match else None


def _dict(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = data.get(name)
    return value if isinstance(value, dict) else {}


def _text(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name)
    return value if isinstance(value, str) else ""
