"""Clients for pull requests on GitHub, Gitea and Forgejo, whose APIs are alike.

Inline comments are posted in one review, which never approves or requests changes. GitHub also has
check runs and discussions that can be resolved.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from glue.agents.review.delivery import outputs
from glue.agents.review.delivery.forges.client import Client, ForgeError, escaped
from glue.agents.review.delivery.forges.forge import (
    Comment,
    Forge,
    Post,
    PullRequestRef,
    parse_posted,
)
from glue.agents.review.delivery.report import GATE, PASS, Report, ReviewVerdict, valid_sha
from glue.agents.review.findings.dedupe import PostedFinding
from glue.agents.review.records import ReviewedChange
from glue.errors import ConfigError

# The id of github-actions[bot] on github.com, whose token may not read its own account.
ACTIONS_BOT = 41_898_282
CHECK = "glue review"
ANNOTATIONS = 50  # in one request
THREADS = """query($owner: String!, $name: String!, $number: Int!, $after: String) {
  repository(owner: $owner, name: $name) {
    pullRequest(number: $number) {
      reviewThreads(first: 100, after: $after) {
        pageInfo { hasNextPage endCursor }
        nodes { id isResolved comments(first: 20) { nodes { databaseId } } }
      }
    }
  }
}"""
RESOLVE = """mutation($thread: ID!) {
  resolveReviewThread(input: {threadId: $thread}) { thread { isResolved } }
}"""
_LEVELS = {"error": "failure", "warning": "warning", "note": "notice"}


class PullRequest(Forge):
    """The common part of the clients for GitHub and for forges with nearly the same API."""

    name: str
    runners: tuple[str, ...] = ("GITHUB_ACTIONS",)  # variables that the CI runner sets to "true"
    batch = True

    def __init__(self, client: Client, repo: str, number: int, head: str, base: str = "") -> None:
        super().__init__(client, repo, number, head, base)
        owner, _, name = repo.partition("/")
        self.root = f"/repos/{escaped(owner)}/{escaped(name)}"
        self.pull = f"{self.root}/pulls/{number}"
        self.comments_path = f"{self.root}/issues/{number}/comments"
        self.comment_path = f"{self.root}/issues/comments"

    def tips(self) -> tuple[str, str]:
        pull = self.client.get(self.pull)
        return self.pinned if pull is None else (str(pull["head"]["sha"]), str(pull["base"]["sha"]))

    def permission(self, user: str) -> str:
        found = self.client.get(f"{self.root}/collaborators/{escaped(user)}/permission") or {}
        return str(found.get("role_name") or found.get("permission", "none"))

    def remarks(self) -> list[Comment]:
        reviews = (review for review in self.reviews() if review.get("body"))
        return [*map(self.comment, self.conversation()), *map(self.comment, reviews)]

    def reviews(self) -> Iterator[Any]:
        return self.client.pages(f"{self.pull}/reviews")

    def issue(self, number: int) -> str:
        row = self.read_optional(f"{self.root}/issues/{number}")
        return f"{row.get('title') or ''}\n\n{row.get('body') or ''}".strip()

    def add_review(self, posts: Sequence[Post], body: str) -> None:
        comments = [self.inline(post) for post in posts]
        review = {
            "commit_id": self.pinned[0],
            "event": "COMMENT",
            "body": body,
            "comments": comments,
        }
        self.client.change("POST", f"{self.pull}/reviews", review)

    @staticmethod
    def inline(post: Post) -> dict[str, Any]:
        """Return an inline comment as JSON for the API."""
        comment = {"path": post.path, "body": post.body, "line": post.line, "side": "RIGHT"}
        if post.start_line is not None and post.line is not None and post.start_line < post.line:
            comment |= {"start_line": post.start_line, "start_side": "RIGHT"}
        return comment

    @classmethod
    def find(cls, environ: Mapping[str, str]) -> PullRequestRef | None:
        if "true" not in map(environ.get, cls.runners):
            return None
        path, event = environ.get("GITHUB_EVENT_PATH", ""), {}
        if path:
            try:
                event = json.loads(Path(path).read_bytes())
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or "it is not JSON"
                raise ConfigError(
                    f"cannot read the event file {path}, which GITHUB_EVENT_PATH names: {reason}"
                ) from error
        server = environ.get("GITHUB_SERVER_URL", "").rstrip("/")
        return PullRequestRef(
            forge=cls.name,
            api=environ.get("GITHUB_API_URL", "") or cls.api or f"{server}/api/v1",
            repo=environ.get("GITHUB_REPOSITORY", ""),
            number=_number(event, environ),
            head=_text(event, "pull_request", "head", "sha")
            or _text(event, "workflow_run", "head_sha"),
            event=event if isinstance(event, dict) else {},
        )

    @staticmethod
    def change(place: PullRequestRef, environ: Mapping[str, str]) -> ReviewedChange | None:
        pull = place.event.get("pull_request")
        if not isinstance(pull, dict):
            return None
        labels = pull["labels"] if isinstance(pull.get("labels"), list) else []
        origin = _at(pull, "head", "repo")
        return ReviewedChange(
            title=_text(pull, "title"),
            body=_text(pull, "body"),
            author=_text(pull, "user", "login"),
            labels=tuple(_text(label, "name") for label in labels if isinstance(label, dict)),
            draft=pull.get("draft") is True,
            # The repository is missing if the fork was deleted.
            fork=not origin
            or _at(origin, "fork") is True
            or _text(origin, "full_name") != place.repo,
            head_ref=_text(pull, "head", "ref"),
            base_ref=_text(pull, "base", "ref"),
            head_sha=valid_sha(_text(pull, "head", "sha")),
            base_sha=valid_sha(_text(pull, "base", "sha")),
        )


class Gitea(PullRequest):
    """A client for one pull request on Gitea or Forgejo, through the API that they document.

    The API cannot resolve discussions or delete single inline comments.
    """

    name = "gitea"
    headers: Mapping[str, str] = {"authorization": "token {key}"}
    runners = "GITEA_ACTIONS", "FORGEJO_ACTIONS"

    def conversation(self) -> list[Any]:
        return self.client.get(self.comments_path) or []  # this list is not split into pages

    def remarks(self) -> list[Comment]:
        inline = (row for review in self.reviews() for row in self._inline_rows(review))
        return [*super().remarks(), *map(self.comment, inline)]

    def reviews(self) -> Iterator[Any]:
        return self.client.pages(f"{self.pull}/reviews", "limit", 50)

    def _inline_rows(self, review: Mapping[str, Any]) -> list[Any]:
        return self.client.get(f"{self.pull}/reviews/{int(review['id'])}/comments") or []

    def posted(self) -> Iterator[PostedFinding | None]:
        for review in self.own_rows(self.reviews()):
            for row in self.own_rows(self._inline_rows(review)):
                yield parse_posted(row, row.get("path"), row.get("position"))

    @staticmethod
    def inline(post: Post) -> dict[str, Any]:
        return {"path": post.path, "body": post.body, "new_position": post.line, "old_position": 0}

    def add_single(self, post: Post) -> None:
        self.add_review([post], "")


class GitHub(PullRequest):
    """A client for one pull request on GitHub."""

    name = "github"
    api = "https://api.github.com"
    headers: Mapping[str, str] = {
        "authorization": "Bearer {key}",
        "accept": "application/vnd.github+json",
        "x-github-api-version": "2022-11-28",
    }
    suggestion = "suggestion"
    file_level = True

    def read_account_id(self) -> int:
        try:
            return super().read_account_id()
        except ForgeError as error:
            if error.status not in (401, 403, 404):
                raise
        query = {"query": "query { viewer { login databaseId } }"}
        try:  # the token of an app may not GET /user
            return int(self.client.query("/graphql", query)["data"]["viewer"]["databaseId"])
        except (ForgeError, KeyError, TypeError, ValueError):
            if self.client.base == self.api and self.client.environ.get("GITHUB_ACTIONS") == "true":
                return ACTIONS_BOT
            raise ForgeError(
                "cannot read the account of the token: GET /user and GraphQL both failed;"
                " check the permissions of the token"
            ) from None

    def remarks(self) -> list[Comment]:
        inline = self.client.pages(f"{self.pull}/comments")
        return [
            *super().remarks(),
            *(self.comment(row, row.get("in_reply_to_id")) for row in inline),
        ]

    def posted(self) -> Iterator[PostedFinding | None]:
        rows = self.own_rows(self.client.pages(f"{self.pull}/comments"))
        threads = self._threads() if rows else {}
        for row in rows:
            thread, resolved = threads.get(int(row["id"]), ("", False))
            line = row.get("line") or row.get("original_line")
            yield parse_posted(row, row.get("path"), line, thread=thread, resolved=resolved)

    def _threads(self) -> dict[int, tuple[str, bool]]:
        """Return, for each inline comment, the id of its discussion and whether that is resolved.

        The keys are the ids of the comments. Discussions that GraphQL does not return are left out.
        """
        owner, _, name = self.repo.partition("/")
        found: dict[int, tuple[str, bool]] = {}
        after = None
        for _ in range(20):
            values = {"owner": owner, "name": name, "number": self.number, "after": after}
            try:
                answer = self.client.query("/graphql", {"query": THREADS, "variables": values})
                page = answer["data"]["repository"]["pullRequest"]["reviewThreads"]
            except (ForgeError, KeyError, TypeError):
                return found
            for thread in page["nodes"]:
                for comment in thread["comments"]["nodes"]:
                    found[int(comment["databaseId"])] = (
                        str(thread["id"]),
                        bool(thread["isResolved"]),
                    )
            after = page["pageInfo"]["endCursor"]
            if not page["pageInfo"]["hasNextPage"]:
                break
        return found

    def resolve(self, known: PostedFinding) -> bool:
        if not known.thread:
            return False
        body = {"query": RESOLVE, "variables": {"thread": known.thread}}
        try:
            answer = self.client.change("POST", "/graphql", body)
        except ForgeError:
            return False  # some tokens may comment but not resolve discussions
        return not (answer or {}).get("errors")

    def add_single(self, post: Post) -> None:
        body: dict[str, Any] = {"commit_id": self.pinned[0], **self.inline(post)}
        if post.line is None:
            body = {
                "commit_id": self.pinned[0],
                "path": post.path,
                "body": post.body,
                "subject_type": "file",
            }
        self.client.change("POST", f"{self.pull}/comments", body)

    def delete_inline(self, known: PostedFinding) -> None:
        self.client.change("DELETE", f"{self.root}/pulls/comments/{known.comment}")

    def post_check(self, report: Report, verdict: ReviewVerdict) -> None:
        """Add a check run with the verdict to the head commit, or update the one that exists."""

        def checks() -> list[int]:
            path = f"{self.root}/commits/{report.change.head_sha}/check-runs"
            rows = (self.client.get(path, check_name=CHECK) or {}).get("check_runs", [])
            return [int(row["id"]) for row in rows if row.get("name") == CHECK]

        path, body = f"{self.root}/check-runs", check_run(report, verdict)
        if found := checks():
            # The API would add these annotations to those of the existing check run.
            del body["head_sha"], body["output"]["annotations"]
            self.client.change("PATCH", f"{path}/{found[0]}", body)
        else:
            self.post_once(lambda: self.client.change("POST", path, body), lambda: bool(checks()))


def check_run(report: Report, verdict: ReviewVerdict) -> dict[str, Any]:
    """Return the check run for a verdict, in the form of the API.

    Its conclusion is "success" only if the verdict passes and the report is clean.
    """
    conclusion = {PASS: "success", GATE: "failure"}.get(verdict.exit_code, "neutral")
    if conclusion == "success" and not report.clean:
        conclusion = "neutral"
    notes = [
        {
            "path": item.finding.path,
            "start_line": span[0],
            "end_line": span[1],
            "annotation_level": _LEVELS[outputs.LEVELS[item.finding.severity]],
            "title": outputs.title(item)[:255],
            "message": outputs.message(item),
        }
        for item in report.items
        if item.inline and (span := outputs.lines(item))
    ]
    return {
        "name": CHECK,
        "head_sha": report.change.head_sha,
        "status": "completed",
        "conclusion": conclusion,
        "output": {
            "title": f"{len(report.items) or 'No'} finding{'s' * (len(report.items) != 1)}",
            "summary": outputs.summary(report),
            "annotations": notes[:ANNOTATIONS],
        },
    }


def _number(event: Any, environ: Mapping[str, str]) -> int | None:
    """Return the number of the pull request in an event or in GITHUB_REF; None if there is none."""
    pulls = _at(event, "workflow_run", "pull_requests") or []
    for found in (
        _at(event, "pull_request", "number"),
        _at(event, "issue", "number") if _at(event, "issue", "pull_request") else None,
        _at(pulls[0], "number") if len(pulls) == 1 else None,
    ):
        if isinstance(found, int) and not isinstance(found, bool):
            return found
    match = re.fullmatch(r"refs/pull/(\d{1,9})/(?:merge|head)", environ.get("GITHUB_REF", ""))
    return int(match.group(1)) if match else None


def _at(value: Any, *names: str) -> Any:
    """Return the value at a path of names in nested dictionaries, or None if it is missing."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _text(value: Any, *names: str) -> str:
    found = _at(value, *names)
    return found if isinstance(found, str) else ""
