"""The forges a review can be posted to: what each offers, and one row each. Another forge is one file and one row."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from typing import Any, NamedTuple

from glue.agents.review.delivery.forges.client import Client, ForgeError, Method
from glue.agents.review.delivery.outputs import FINDING, fields
from glue.agents.review.delivery.report import Report, ReviewVerdict
from glue.agents.review.findings.dedupe import PostedFinding
from glue.agents.review.records import ReviewedChange
from glue.errors import ConfigError

TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequestRef:
    """A pull request's place; empty fields are not known."""

    forge: str = ""
    api: str = ""
    repo: str = ""
    number: int | None = None
    head: str = ""  # the commit the event speaks of, where it speaks of one
    event: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment:
    """Somebody's comment on a pull request; `answers` is the comment it replies to."""

    body: str
    by: str = ""
    id: int = 0
    url: str = ""
    answers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """An inline comment to be posted: on a line, on a range, or on a whole file where `line` is None."""

    path: str
    body: str
    fingerprint: str
    line: int | None = None
    start_line: int | None = None
    old_line: int | None = None  # of an unchanged line, for forges that ask for both numbers
    old_path: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.fingerprint, self.path


class Forge(ABC):
    """A pull request on a forge, as the account behind the token sees it."""

    api = ""  # where the API is, unless the environment says otherwise
    headers: Mapping[str, str] = {}  # of every request; {key} is the token
    suggestion = ""  # what stands behind the fence of a suggestion; {above} counts the lines above its last
    file_level = False  # whether a comment may stand on a whole file
    batch = False  # whether a review takes many comments at once, all or none
    author = "user", "login"  # where a comment says who wrote it
    edit: Method = "PATCH"
    talk: str  # the path of the conversation's comments, and of one of them before its id
    note: str

    def __init__(self, client: Client, repo: str, number: int, head: str, base: str = "") -> None:
        self.client, self.repo, self.number, self.pinned = client, repo, number, (head, base)

    @classmethod
    @abstractmethod
    def find(cls, environ: Mapping[str, str]) -> PullRequestRef | None:
        """Read from the environment of a CI job which pull request it is about; None on another forge's runner."""

    @staticmethod
    @abstractmethod
    def change(place: PullRequestRef, environ: Mapping[str, str]) -> ReviewedChange | None:
        """Read what a CI job tells of its change, beside the place."""

    @abstractmethod
    def tips(self) -> tuple[str, str]:
        """Give head and base as they are now."""

    @abstractmethod
    def permission(self, user: str) -> str: ...

    @abstractmethod
    def remarks(self) -> list[Comment]:
        """Read everybody's comments, those on lines too."""

    @abstractmethod
    def posted(self) -> Iterable[PostedFinding | None]:
        """Read the inline comments of ours; None is one that bears no marker."""

    @abstractmethod
    def add_single(self, post: Post) -> None: ...

    def add_review(self, posts: Sequence[Post], body: str) -> None:
        """Post many comments at once, all or none: where `batch` says that it can be done."""
        raise NotImplementedError

    def delete_inline(self, known: PostedFinding) -> bool:
        """Delete an inline comment; False where the forge has no way to."""
        return False

    def resolve(self, known: PostedFinding) -> bool:
        """Resolve a discussion; False where the forge has no way to: the sticky comment says it all the same."""
        return False

    def post_check(self, report: Report, verdict: ReviewVerdict) -> bool:
        """Show the outcome of a review beside the CI jobs; False where the forge has no place for it."""
        return False

    @cached_property
    def me(self) -> int:
        """The id of the account behind the token."""
        return 0 if self.client.blind else self.ask_id()

    def ask_id(self) -> int:
        return int(self.client.get("/user")["id"])

    def known(self) -> list[PostedFinding]:
        return [known for known in self.posted() if known]

    def mine(self, rows: Iterable[Any]) -> list[dict[str, Any]]:
        """Keep the rows this account wrote: a marker alone proves nothing."""
        field = self.author[0]
        return [row for row in rows if isinstance(row, dict) and (row.get(field) or {}).get("id") == self.me]

    def comment(self, row: Mapping[str, Any], answers: Any = 0) -> Comment:
        field, name = self.author
        return Comment(
            body=str(row.get("body") or ""),
            by=str((row.get(field) or {}).get(name, "")),
            id=int(row["id"]),
            url=str(row.get("html_url") or ""),
            answers=int(answers or 0),
        )

    def conversation(self) -> Iterable[Any]:
        return self.client.pages(self.talk)

    def comments(self) -> list[Comment]:
        """Read the comments of ours on the conversation, the oldest first."""
        return sorted(map(self.comment, self.mine(self.conversation())), key=lambda comment: comment.id)

    def add_comment(self, body: str) -> None:
        self.client.change("POST", self.talk, {"body": body})

    def edit_comment(self, comment: Comment, body: str) -> None:
        self.client.change(self.edit, f"{self.note}/{comment.id}", {"body": body})

    def delete_comment(self, comment: Comment) -> None:
        self.client.change("DELETE", f"{self.note}/{comment.id}")

    def post_once(self, send: Callable[[], Any], arrived: Callable[[], bool]) -> int:
        """Post; where it is unclear whether it arrived, look before trying again. Returns how often it was sent."""
        sent = 0
        while True:
            sent += 1
            try:
                send()
                return sent
            except ForgeError as error:
                if not error.ambiguous and error.status != 0:
                    raise
                self.client.sleep(2.0**sent)  # a forge may still be busy with the request that seemed lost
                if error.ambiguous and arrived():
                    return sent
                if sent == TRIES:
                    raise


def known_row(row: Mapping[str, Any], path: Any, line: Any, **more: Any) -> PostedFinding | None:
    """Read which finding an inline comment of ours is about, from its marker and its words; None where it has none."""
    body = str(row.get("body", ""))
    found = fields(body, FINDING)
    if not found or not found.get("fp"):
        return None
    text = body.split("-->", 1)[-1].strip()
    first = text.split("\n", 1)[0]
    title = re.sub(r"^\W*\*\*\w+ \w+: |\*\*.*$", "", first)
    return PostedFinding(
        fingerprint=found["fp"],
        quote=found.get("q", ""),
        path=str(path or ""),
        comment=int(row["id"]),
        line=line if isinstance(line, int) and line > 0 else None,
        title=title,
        text=text[len(first) - len(title) :],
        by_model=found.get("by", "model") == "model",
        head=found.get("h", ""),
        **more,
    )


class ForgeRow(NamedTuple):
    home: str  # module and class
    tokens: tuple[str, ...]  # variables that may hold its write token


# Asked in this order whose job this is: Gitea's runner sets GitHub's variables too.
FORGES = {
    "gitlab": ForgeRow("gitlab:GitLab", ("GLUE_REVIEW_TOKEN", "GITLAB_TOKEN")),
    "gitea": ForgeRow("github:Gitea", ("GLUE_REVIEW_TOKEN", "GITEA_TOKEN", "FORGEJO_TOKEN", "GITHUB_TOKEN")),
    "github": ForgeRow("github:GitHub", ("GLUE_REVIEW_TOKEN", "GITHUB_TOKEN", "GH_TOKEN")),
}
NAMES = tuple(sorted(FORGES))
TOKENS = tuple(dict.fromkeys(name for row in FORGES.values() for name in row.tokens))


def find_pull_request(environ: Mapping[str, str]) -> PullRequestRef:
    """Read from the environment of a CI job which pull request it is about."""
    return next((place for name in FORGES if (place := _kind(name).find(environ))), PullRequestRef())


def change_of(place: PullRequestRef, environ: Mapping[str, str]) -> ReviewedChange | None:
    """Read the change from the environment of a CI job; None outside of one, or where it is about no change."""
    change = _kind(place.forge).change(place, environ) if place.forge else None
    if change is None:
        return None
    return replace(change, mode="pull_request", forge=place.forge, repo=place.repo, number=place.number)


def _kind(name: str) -> type[Forge]:
    if name not in FORGES:
        names = "|".join(NAMES)
        raise ConfigError(f"no forge found in the environment; `glue review publish --forge {names} --repo` names one")
    module, _, found = FORGES[name].home.partition(":")
    kind: type[Forge] = getattr(import_module(f"{__name__}.{module}"), found)
    return kind


def open_forge(place: PullRequestRef, client: Client, *, head: str, base: str = "") -> Forge:
    """Open a pull request for posting through a client, which gets address and token; what is missing is said."""
    kind = _kind(place.forge)
    if not re.fullmatch(r"[\w.~-]+(?:/[\w.~-]+)*", place.repo) or ".." in place.repo:
        raise ConfigError(f"not a repository's name: {place.repo!r}; give --repo owner/name")
    if place.number is None:
        raise ConfigError("no pull request found in the environment; give --pr NUMBER")
    tokens = FORGES[place.forge].tokens
    key = next((client.environ[name] for name in tokens if client.environ.get(name)), "")
    if not key and not (client.dry or client.blind):
        raise ConfigError(f"{place.forge}: no token; set {' or '.join(tokens)}")
    client.base = place.api or kind.api
    client.headers = {name: value.format(key=key) for name, value in kind.headers.items()} if key else {}
    client.blind = client.blind or not key
    return kind(client, place.repo, place.number, head, base)
