"""Responses and rules of GitLab."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from fakes.forge.server import page
from fakes.forge.state import Asked, Pull, Refused, Reply

if TYPE_CHECKING:
    from fakes.forge.server import FakeForge

BODY = 1_000_000  # characters of a note
_ROUTES = (
    ("GET", r"/user", "who"),
    ("GET", r"/projects/([^/]+)/merge_requests/(\d+)", "show"),
    ("GET", r"/projects/([^/]+)/merge_requests/(\d+)/versions", "versions"),
    ("GET", r"/projects/([^/]+)/merge_requests/(\d+)/notes", "list_notes"),
    ("POST", r"/projects/([^/]+)/merge_requests/(\d+)/notes", "add_note"),
    ("PUT", r"/projects/([^/]+)/merge_requests/(\d+)/notes/(\d+)", "edit_note"),
    ("DELETE", r"/projects/([^/]+)/merge_requests/(\d+)/notes/(\d+)", "delete_note"),
    ("GET", r"/projects/([^/]+)/merge_requests/(\d+)/discussions", "list_discussions"),
    ("POST", r"/projects/([^/]+)/merge_requests/(\d+)/discussions", "add_discussion"),
    ("PUT", r"/projects/([^/]+)/merge_requests/(\d+)/discussions/([0-9a-f]{40})", "resolve"),
    ("GET", r"/projects/([^/]+)/issues/(\d+)", "show_issue"),
    ("GET", r"/projects/([^/]+)/members/all", "members"),
)


def raw(asked: Asked, path: str) -> Asked:
    """Return the request with `path`, which is not decoded: a project's name is one segment."""
    return replace(asked, path=path)


def answer(forge: FakeForge, asked: Asked) -> Reply:
    """Return the response of the route for a request."""
    for method, pattern, name in _ROUTES:
        match = re.fullmatch(pattern, asked.path)
        if match and method == asked.method:
            project, *rest = match.groups() or ("",)
            if project and unquote(project) != forge.repo:
                raise Refused(404, "404 Project Not Found")
            reply: Reply = getattr(_GitLab(forge, asked), name)(*rest)
            return reply
    raise Refused(404, "404 Not Found")


class _GitLab:
    def __init__(self, forge: FakeForge, asked: Asked) -> None:
        self.forge, self.asked = forge, asked

    def who(self) -> Reply:
        return Reply(body={"id": self.asked.user.id, "username": self.asked.user.login})

    def show(self, number: str) -> Reply:
        pull = self._pull(number)
        refs = {"base_sha": pull.base, "start_sha": pull.base, "head_sha": pull.head}
        return Reply(
            body={
                "iid": pull.number,
                "sha": pull.head,
                "state": "opened",
                "title": pull.title,
                "diff_refs": refs,
            }
        )

    def versions(self, number: str) -> Reply:
        pull = self._pull(number)
        version = {
            "head_commit_sha": pull.head,
            "base_commit_sha": pull.base,
            "start_commit_sha": pull.base,
        }
        return Reply(body=[version])

    def members(self) -> Reply:
        levels = {"admin": 60, "owner": 50, "maintain": 40, "write": 30, "read": 20}
        wanted = self.asked.query.get("query", "")
        names = [name for name in self.forge.permissions if wanted in name]
        return Reply(
            body=[
                {"username": name, "access_level": levels[self.forge.permissions[name]]}
                for name in names
            ]
        )

    def show_issue(self, number: str) -> Reply:
        if int(number) not in self.forge.issues:
            raise Refused(404, "404 Issue Not Found")
        return Reply(body=self.forge.issues[int(number)])

    def list_notes(self, number: str) -> Reply:
        pull = self._pull(number)
        return page(self.forge, self.asked, [*pull.comments, *pull.inline])

    def add_note(self, number: str) -> Reply:
        row = self._row(type=None)
        self._pull(number).comments.append(row)
        return Reply(status=201, body=row)

    def edit_note(self, number: str, id: str) -> Reply:
        row, _ = self._note(number, int(id))
        row["body"] = self._text()
        return Reply(body=row)

    def delete_note(self, number: str, id: str) -> Reply:
        row, rows = self._note(number, int(id))
        rows.remove(row)
        return Reply(status=204)

    def list_discussions(self, number: str) -> Reply:
        pull = self._pull(number)
        rows = [
            {
                "id": f"{row['id']:040x}",
                "notes": [{**row, "resolved": row["id"] in self.forge.resolved}],
            }
            for row in [*pull.comments, *pull.inline]
        ]
        return page(self.forge, self.asked, rows)

    def add_discussion(self, number: str) -> Reply:
        pull = self._pull(number)
        position = self.asked.body.get("position")
        if position is not None:
            _position(pull, position)
        row = self._row(type="DiffNote" if position else "DiscussionNote", position=position)
        (pull.inline if position else pull.comments).append(row)
        return Reply(status=201, body={"id": f"{row['id']:040x}", "notes": [row]})

    def resolve(self, number: str, id: str) -> Reply:
        row = next((row for row in self._pull(number).inline if row["id"] == int(id, 16)), None)
        if row is None or not isinstance(self.asked.body.get("resolved"), bool):
            raise Refused(404 if row is None else 400, "404 Discussion Not Found")
        (self.forge.resolved.add if self.asked.body["resolved"] else self.forge.resolved.discard)(
            row["id"]
        )
        return Reply(body={"id": id, "notes": [row]})

    def _note(self, number: str, id: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        pull = self._pull(number)
        for rows in (pull.comments, pull.inline):
            for row in rows:
                if row["id"] == id:
                    if row["author"]["id"] != self.asked.user.id:
                        raise Refused(403, "403 Forbidden")
                    return row, rows
        raise Refused(404, "404 Not found")

    def _pull(self, number: str) -> Pull:
        pull = self.forge.pulls.get(int(number))
        if pull is None:
            raise Refused(404, "404 Not found")
        return pull

    def _row(self, **more: Any) -> dict[str, Any]:
        author = {"id": self.asked.user.id, "username": self.asked.user.login}
        return {
            "id": next(self.forge.ids),
            "body": self._text(),
            "author": author,
            "system": False,
            **more,
        }

    def _text(self) -> str:
        text = self.asked.body.get("body") if isinstance(self.asked.body, dict) else None
        if not isinstance(text, str) or not text.strip() or len(text) > BODY:
            raise Refused(400, '400 Bad request - Note {:note=>["can\'t be blank"]}')
        return text


def _position(pull: Pull, position: dict[str, Any]) -> None:
    """Raise Refused if the position of a comment is incomplete or not a line of the diff."""
    shas = tuple(position.get(name) for name in ("base_sha", "start_sha", "head_sha"))
    if position.get("position_type") != "text" or shas != (pull.base, pull.base, pull.head):
        raise Refused(400, "400 Bad request - position is incomplete")
    if not position.get("old_path") or position.get("new_path") not in pull.files:
        raise _no_line()
    old, new = position.get("old_line"), position.get("new_line")
    spans = pull.files[position["new_path"]]
    added = old is None and any(new in span.added for span in spans)
    deleted = new is None and any(old in span.old for span in spans)
    unchanged = any((old, new) in span.pairs for span in spans)
    if not (added or deleted or unchanged):
        raise _no_line()


def _no_line() -> Refused:
    return Refused(
        400, '400 Bad request - Note {:line_code=>["can\'t be blank", "must be a valid line code"]}'
    )
