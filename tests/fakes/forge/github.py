"""Responses and rules of GitHub."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from fakes.forge.server import page
from fakes.forge.state import Asked, Pull, Refused, Reply, Span

if TYPE_CHECKING:
    from fakes.forge.server import FakeForge

BODY = 65_536  # characters of a comment
ANNOTATIONS = 50  # annotations of a check run, per request
FILES, LINES = 300, 20_000  # GitHub refuses to show larger diffs
_ROUTES = (
    ("GET", r"/user", "who"),
    ("POST", r"/graphql", "graphql"),
    ("GET", r"/repos/{repo}/pulls/(\d+)", "show"),
    ("GET", r"/repos/{repo}/pulls/(\d+)/files", "files"),
    ("GET", r"/repos/{repo}/collaborators/([^/]+)/permission", "permission"),
    ("GET", r"/repos/{repo}/issues/(\d+)", "show_issue"),
    ("GET", r"/repos/{repo}/issues/(\d+)/comments", "list_comments"),
    ("POST", r"/repos/{repo}/issues/(\d+)/comments", "add_comment"),
    ("PATCH", r"/repos/{repo}/issues/comments/(\d+)", "edit_comment"),
    ("DELETE", r"/repos/{repo}/issues/comments/(\d+)", "delete_comment"),
    ("GET", r"/repos/{repo}/pulls/(\d+)/comments", "list_inline"),
    ("POST", r"/repos/{repo}/pulls/(\d+)/comments", "add_inline"),
    ("POST", r"/repos/{repo}/pulls/(\d+)/comments/(\d+)/replies", "add_reply"),
    ("PATCH", r"/repos/{repo}/pulls/comments/(\d+)", "edit_comment"),
    ("DELETE", r"/repos/{repo}/pulls/comments/(\d+)", "delete_comment"),
    ("GET", r"/repos/{repo}/pulls/(\d+)/reviews", "list_reviews"),
    ("POST", r"/repos/{repo}/pulls/(\d+)/reviews", "add_review"),
    ("GET", r"/repos/{repo}/commits/([0-9a-f]+)/check-runs", "list_checks"),
    ("POST", r"/repos/{repo}/check-runs", "add_check"),
    ("PATCH", r"/repos/{repo}/check-runs/(\d+)", "edit_check"),
    ("POST", r"/repos/{repo}/code-scanning/sarifs", "add_sarif"),
)


def answer(forge: FakeForge, asked: Asked) -> Reply:
    """Return the response of the route for a request."""
    for method, pattern, name in _ROUTES:
        match = re.fullmatch(pattern.replace("{repo}", re.escape(forge.repo)), asked.path)
        if match and method == asked.method:
            reply: Reply = getattr(_GitHub(forge, asked), name)(*match.groups())
            return reply
    raise Refused(404, "Not Found")


class _GitHub:
    def __init__(self, forge: FakeForge, asked: Asked) -> None:
        self.forge, self.asked = forge, asked

    def who(self) -> Reply:
        if self.asked.user.bot:
            raise Refused(403, "Resource not accessible by integration")
        return Reply(body=self._user())

    def graphql(self) -> Reply:
        query = str(_field(self.asked.body, "query"))
        if "viewer" in query:
            name = self.asked.user.login
            return Reply(
                body={"data": {"viewer": {"login": name, "databaseId": self.asked.user.id}}}
            )
        if "reviewThreads" in query:
            return self._threads(_field(self.asked.body, "variables"))
        if "resolveReviewThread" in query:
            return self._resolve(_field(self.asked.body, "variables"))
        return Reply(body={"data": {}})

    def _threads(self, values: dict[str, Any]) -> Reply:
        """Return a page of review threads; each inline comment that is not a reply starts one."""
        rows = self._pull(str(values["number"])).inline
        first = int(values.get("after") or 0)
        opened = [row for row in rows if not row.get("in_reply_to_id")]
        nodes = [
            {
                "id": f"PRRT_{row['id']}",
                "isResolved": row["id"] in self.forge.resolved,
                "comments": {"nodes": [{"databaseId": row["id"]}]},
            }
            for row in opened[first : first + 100]
        ]
        more = {"hasNextPage": first + 100 < len(opened), "endCursor": str(first + 100)}
        threads = {"pageInfo": more, "nodes": nodes}
        return Reply(body={"data": {"repository": {"pullRequest": {"reviewThreads": threads}}}})

    def _resolve(self, values: dict[str, Any]) -> Reply:
        opened = int(str(values["thread"]).removeprefix("PRRT_"))
        if not any(
            row["id"] == opened for pull in self.forge.pulls.values() for row in pull.inline
        ):
            return Reply(
                body={"errors": [{"type": "NOT_FOUND", "message": "Could not resolve to a node"}]}
            )
        self.forge.resolved.add(opened)
        return Reply(body={"data": {"resolveReviewThread": {"thread": {"isResolved": True}}}})

    def show(self, number: str) -> Reply:
        pull = self._pull(number)
        if "diff" in self.asked.accept:
            if len(pull.files) > FILES or pull.diff.count("\n") > LINES:
                raise Refused(
                    406,
                    "Sorry, the diff exceeded the maximum number of lines "
                    f"({LINES}) or files ({FILES})",
                )
            return Reply(text=pull.diff)
        head = {
            "sha": pull.head,
            "ref": "topic",
            "repo": {"full_name": self.forge.repo, "fork": False},
        }
        return Reply(
            body={
                "number": pull.number,
                "state": pull.state,
                "draft": False,
                "title": pull.title,
                "body": pull.body,
                "user": {"login": pull.author},
                "labels": [],
                "head": head,
                "base": {"sha": pull.base, "ref": "main"},
            }
        )

    def files(self, number: str) -> Reply:
        rows = [{"filename": path, "status": "modified"} for path in self._pull(number).files][
            :3000
        ]
        return page(self.forge, self.asked, rows)

    def permission(self, name: str) -> Reply:
        return Reply(
            body={"permission": self.forge.permissions.get(name, "none"), "user": {"login": name}}
        )

    def show_issue(self, number: str) -> Reply:
        if int(number) not in self.forge.issues:
            raise Refused(404, "Not Found")
        return Reply(body=self.forge.issues[int(number)])

    def list_comments(self, number: str) -> Reply:
        return page(self.forge, self.asked, self._pull(number).comments)

    def add_comment(self, number: str) -> Reply:
        row = self._row(_text(self.asked.body, "body"))
        row["html_url"] = (
            f"https://github.com/{self.forge.repo}/pull/{number}#issuecomment-{row['id']}"
        )
        self._pull(number).comments.append(row)
        return Reply(status=201, body=row)

    def edit_comment(self, id: str) -> Reply:
        row, _ = self._comment(int(id))
        row["body"] = _text(self.asked.body, "body")
        return Reply(body=row)

    def delete_comment(self, id: str) -> Reply:
        row, rows = self._comment(int(id))
        rows.remove(row)
        return Reply(status=204)

    def list_inline(self, number: str) -> Reply:
        return page(self.forge, self.asked, self._pull(number).inline)

    def add_inline(self, number: str) -> Reply:
        pull, body = self._pull(number), self.asked.body
        if _field(body, "subject_type", "line") == "file":
            if _field(body, "path") not in pull.files:
                raise _invalid("Path could not be resolved")
            row = self._row(_text(body, "body"), path=body["path"], subject_type="file", line=None)
        else:
            row = self._checked(pull, body)
        pull.inline.append(row)
        return Reply(status=201, body=row)

    def add_reply(self, number: str, id: str) -> Reply:
        row = self._row(_text(self.asked.body, "body"), in_reply_to_id=int(id))
        self._pull(number).inline.append(row)
        return Reply(status=201, body=row)

    def list_reviews(self, number: str) -> Reply:
        return page(self.forge, self.asked, self._pull(number).reviews)

    def add_review(self, number: str) -> Reply:
        pull, body = self._pull(number), self.asked.body
        event = _field(body, "event", "PENDING")
        if event not in ("APPROVE", "REQUEST_CHANGES", "COMMENT", "PENDING"):
            raise _invalid(f"Variable $event was provided invalid value {event}")
        if event in ("REQUEST_CHANGES", "COMMENT") and not _field(body, "body"):
            raise _invalid("Body can't be blank")
        text = _text(body, "body") if body.get("body") else ""
        rows = [self._checked(pull, comment) for comment in _field(body, "comments", [])]
        review = self._row(text, state=event, commit_id=_field(body, "commit_id", pull.head))
        for row in rows:
            row["pull_request_review_id"] = review["id"]
        pull.reviews.append(review)
        pull.inline += rows
        return Reply(body=review)

    def list_checks(self, sha: str) -> Reply:
        rows = [
            check
            for pull in self.forge.pulls.values()
            for check in pull.checks
            if check["head_sha"] == sha
        ]
        wanted = self.asked.query.get("check_name")
        rows = [row for row in rows if wanted in (None, row["name"])]
        return Reply(body={"total_count": len(rows), "check_runs": rows})

    def add_check(self) -> Reply:
        body = self.asked.body
        sha = _field(body, "head_sha")
        pull = next((one for one in self.forge.pulls.values() if one.head == sha), None)
        if pull is None:
            raise _invalid(f"No commit found for SHA: {sha}")
        row = {
            "id": next(self.forge.ids),
            "head_sha": sha,
            "name": _field(body, "name"),
            "annotations": [],
        }
        row["app"] = {"id": self.asked.user.id}
        self._annotate(row)
        pull.checks.append(row)
        return Reply(status=201, body=row)

    def edit_check(self, id: str) -> Reply:
        for pull in self.forge.pulls.values():
            for row in pull.checks:
                if row["id"] == int(id):
                    self._annotate(row)
                    return Reply(body=row)
        raise Refused(404, "Not Found")

    def add_sarif(self) -> Reply:
        for name in ("commit_sha", "ref", "sarif"):
            _field(self.asked.body, name)
        if not re.fullmatch(r"refs/(heads/.+|pull/\d+/(?:head|merge))", self.asked.body["ref"]):
            raise _invalid("ref is not well-formed")
        if len(self.asked.body["sarif"]) > 14_000_000:
            raise Refused(413, "The sarif payload is too large")
        self.forge.uploads.append(self.asked.body)
        return Reply(status=202, body={"id": str(next(self.forge.ids))})

    def _annotate(self, row: dict[str, Any]) -> None:
        output = _field(self.asked.body, "output", {})
        notes = output.get("annotations", [])
        if len(notes) > ANNOTATIONS:
            raise _invalid(f"annotations: no more than {ANNOTATIONS} a request")
        for note in notes:
            level = note.get("annotation_level")
            if (
                level not in ("notice", "warning", "failure")
                or not note.get("path")
                or not note.get("message")
            ):
                raise _invalid("annotations: path, annotation_level and message are required")
            if not isinstance(note.get("start_line"), int) or note["end_line"] < note["start_line"]:
                raise _invalid("annotations: start_line must not be after end_line")
            if len(note.get("title", "")) > 255 or len(note["message"].encode()) > 65_536:
                raise _invalid("annotations: title or message too long")
        if len(output.get("summary", "")) > 65_535 or (output and not output.get("title")):
            raise _invalid("output: summary too long, or no title")
        conclusion = self.asked.body.get("conclusion")
        if conclusion not in (
            None,
            "success",
            "failure",
            "neutral",
            "cancelled",
            "skipped",
            "timed_out",
            "action_required",
        ):
            raise _invalid("conclusion is not a valid value")
        row["annotations"] += notes
        row["conclusion"] = conclusion
        row["output"] = {"title": output.get("title"), "summary": output.get("summary")}

    def _checked(self, pull: Pull, comment: Any) -> dict[str, Any]:
        """Return an inline comment as the forge stores it, or refuse it with 422 as GitHub does."""
        body = _text(comment, "body")
        path, line = _field(comment, "path"), _field(comment, "line", None)
        side, start = comment.get("side", "RIGHT"), comment.get("start_line")
        spans = pull.files.get(path)
        if spans is None:
            raise _invalid("Path could not be resolved")
        if not isinstance(line, int) or isinstance(line, bool):
            raise _invalid("Line could not be resolved")
        span = _span(spans, line, side)
        if span is None:
            raise _invalid("Pull request review thread line must be part of the diff")
        if start is not None:
            if start >= line:
                raise _invalid("Pull request review thread start line must precede the end line")
            if _span(spans, start, comment.get("start_side", side)) is not span:
                raise _invalid(
                    "Pull request review thread start line must be part of the same hunk"
                )
        return self._row(
            body, path=path, line=line, side=side, start_line=start, original_line=line
        )

    def _pull(self, number: str) -> Pull:
        pull = self.forge.pulls.get(int(number))
        if pull is None:
            raise Refused(404, "Not Found")
        return pull

    def _comment(self, id: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        for pull in self.forge.pulls.values():
            for rows in (pull.comments, pull.inline):
                for row in rows:
                    if row["id"] == id:
                        # On GitHub itself, users with write access may also edit comments.
                        if row["user"]["id"] != self.asked.user.id:
                            raise Refused(403, "Must be the author of the comment")
                        return row, rows
        raise Refused(404, "Not Found")

    def _row(self, body: str, **more: Any) -> dict[str, Any]:
        return {"id": next(self.forge.ids), "body": body, "user": self._user(), **more}

    def _user(self) -> dict[str, Any]:
        user = self.asked.user
        return {"id": user.id, "login": user.login, "type": "Bot" if user.bot else "User"}


def _span(spans: list[Span], line: int, side: str) -> Span | None:
    return next(
        (span for span in spans if line in (span.new if side == "RIGHT" else span.old)), None
    )


def _field(body: Any, name: str, default: Any = ...) -> Any:
    if not isinstance(body, dict):
        raise Refused(400, "Body should be a JSON object")
    if name not in body and default is ...:
        raise _invalid(f'"{name}" wasn\'t supplied')
    return body.get(name, default)


def _text(body: Any, name: str) -> str:
    text = _field(body, name)
    if not isinstance(text, str) or not text.strip():
        raise _invalid("Body can't be blank")
    if len(text) > BODY:
        raise _invalid(f"Body is too long (maximum is {BODY} characters)")
    return text


def _invalid(message: str) -> Refused:
    return Refused(422, "Validation Failed", errors=[message])
