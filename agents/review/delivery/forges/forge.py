"""What every forge offers, and how a comment is posted at most once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from glue.agents.review.delivery.forges.client import Client, ForgeError
from glue.agents.review.delivery.render import FINDING, STICKY, fields
from glue.agents.review.findings.dedupe import Known
from glue.errors import ConfigError

ResultT = TypeVar("ResultT")
TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment:
    """A comment on the conversation that carries our marker and was written by us."""

    id: int
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """Somebody's comment on a pull request; `answers` is the comment it replies to."""

    by: str
    body: str
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


class Forge(Protocol):
    """A pull request on a forge, as the account behind the token sees it."""

    name: str
    style: str
    client: Client
    file_level: bool

    def head(self) -> str: ...
    def permission(self, user: str) -> str: ...
    def remarks(self) -> list[Remark]: ...
    def stickies(self) -> list[Comment]: ...
    def add_sticky(self, body: str) -> None: ...
    def edit_sticky(self, comment: Comment, body: str) -> None: ...
    def delete_sticky(self, comment: Comment) -> None: ...
    def known(self) -> list[Known]: ...
    def add_review(self, posts: Sequence[Post], body: str) -> None: ...
    def add_single(self, post: Post) -> None: ...
    def delete_inline(self, known: Known) -> None: ...


def post_once(send: Callable[[], None], arrived: Callable[[], bool], pause: Callable[[float], None]) -> int:
    """Post; where it is unclear whether it arrived, look before trying again. Returns how often it was sent."""
    for sent in range(1, TRIES + 1):
        try:
            send()
            return sent
        except ForgeError as error:
            if not error.ambiguous and error.status != 0:
                raise
            pause(2.0**sent)  # a forge may still be busy with the request that seemed lost
            if error.ambiguous and arrived():
                return sent
            if sent == TRIES:
                raise
    raise AssertionError("unreachable")


def mine(rows: Sequence[Any], me: int, author: str = "user") -> list[dict[str, Any]]:
    """Keep the rows this account wrote: a marker alone proves nothing."""
    return [row for row in rows if isinstance(row, dict) and (row.get(author) or {}).get("id") == me]


def sticky_rows(rows: Sequence[dict[str, Any]]) -> list[Comment]:
    found = [row for row in rows if fields(str(row.get("body", "")), STICKY) is not None]
    return [Comment(id=int(row["id"]), body=str(row["body"])) for row in sorted(found, key=lambda row: int(row["id"]))]


def known_rows(rows: Sequence[dict[str, Any]], path: Callable[[dict[str, Any]], str]) -> list[Known]:
    out: list[Known] = []
    for row in rows:
        found = fields(str(row.get("body", "")), FINDING)
        if found and found.get("fp"):
            mark, quote = found["fp"], found.get("q", "")
            out.append(Known(fingerprint=mark, quote=quote, path=path(row), comment=int(row["id"])))
    return out


KINDS = ("github", "gitlab", "gitea")
_TOKENS = {
    "github": ("GLUE_REVIEW_TOKEN", "GITHUB_TOKEN", "GH_TOKEN"),
    "gitlab": ("GLUE_REVIEW_TOKEN", "GITLAB_TOKEN"),
    "gitea": ("GLUE_REVIEW_TOKEN", "GITEA_TOKEN", "FORGEJO_TOKEN", "GITHUB_TOKEN"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """A pull request's place; empty fields are not known."""

    forge: str = ""
    api: str = ""
    repo: str = ""
    number: int | None = None
    head: str = ""  # the commit the event speaks of, where it speaks of one
    event: Mapping[str, Any] = field(default_factory=dict, repr=False)


def where(environ: Mapping[str, str]) -> Where:
    """Read the place from the environment of a CI job."""
    if environ.get("GITLAB_CI") == "true":
        number = environ.get("CI_MERGE_REQUEST_IID", "")
        return Where(
            forge="gitlab",
            api=environ.get("CI_API_V4_URL", ""),
            repo=environ.get("CI_PROJECT_ID") or environ.get("CI_PROJECT_PATH", ""),
            number=int(number) if number.isdigit() else None,
        )
    gitea = environ.get("GITEA_ACTIONS") == "true" or environ.get("FORGEJO_ACTIONS") == "true"
    if not gitea and environ.get("GITHUB_ACTIONS") != "true":
        return Where()
    event = _event(environ.get("GITHUB_EVENT_PATH", ""))
    server = environ.get("GITHUB_SERVER_URL", "").rstrip("/")
    api = environ.get("GITHUB_API_URL", "") or (f"{server}/api/v1" if gitea else "https://api.github.com")
    return Where(
        forge="gitea" if gitea else "github",
        api=api,
        repo=environ.get("GITHUB_REPOSITORY", ""),
        number=_number(event, environ),
        head=_head(event),
        event=event,
    )


def token(forge: str, environ: Mapping[str, str]) -> str:
    """The write token of a forge; empty where there is none."""
    return next((environ[name] for name in _TOKENS.get(forge, ()) if environ.get(name)), "")


def open_forge(
    place: Where,
    environ: Mapping[str, str],
    *,
    head: str,
    base: str = "",
    dry: bool = False,
    blind: bool = False,
    bot: int | None = None,
    check: Callable[[str], str] | None = None,
    sleep: Callable[[float], None] | None = None,
) -> Forge:
    """Open a pull request for posting; what is missing is said in one line."""
    from glue.agents.review.delivery.forges.gitea import Gitea
    from glue.agents.review.delivery.forges.github import GitHub
    from glue.agents.review.delivery.forges.gitlab import GitLab

    if place.forge not in KINDS:
        raise ConfigError(f"no forge found in the environment; give --forge ({', '.join(KINDS)}) and --repo")
    if not re.fullmatch(r"[\w.~-]+(?:/[\w.~-]+)*", place.repo) or ".." in place.repo:
        raise ConfigError(f"not a repository's name: {place.repo!r}; give --repo owner/name")
    if place.number is None:
        raise ConfigError("no pull request found in the environment; give --pr NUMBER")
    key = token(place.forge, environ)
    if not key and not (dry or blind):
        raise ConfigError(f"{place.forge}: no token; set {' or '.join(_TOKENS[place.forge])}")
    name = "private-token" if place.forge == "gitlab" else "authorization"
    prefix = {"github": "Bearer ", "gitea": "token ", "gitlab": ""}[place.forge]
    headers = {name: prefix + key} if key else {}
    if place.forge == "github":
        headers |= {"accept": "application/vnd.github+json", "x-github-api-version": "2022-11-28"}
    client = Client(base=place.api, headers=headers, dry=dry, blind=blind or not key, environ=environ)
    if check is not None:
        client.check = check
    if sleep is not None:
        client.sleep = sleep
    if place.forge == "gitlab":
        return GitLab(client, place.repo, place.number, head, base=base, me=bot)
    kind = GitHub if place.forge == "github" else Gitea
    return kind(client, place.repo, place.number, head, me=bot)


def _event(path: str) -> dict[str, Any]:
    if not path:
        return {}
    try:
        event = json.loads(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read GITHUB_EVENT_PATH: {type(error).__name__}") from error
    return event if isinstance(event, dict) else {}


def _number(event: Mapping[str, Any], environ: Mapping[str, str]) -> int | None:
    run = event.get("workflow_run") or {}
    pulls = run.get("pull_requests") or []
    for found in (
        (event.get("pull_request") or {}).get("number"),
        (event.get("issue") or {}).get("number") if (event.get("issue") or {}).get("pull_request") else None,
        pulls[0].get("number") if len(pulls) == 1 else None,
    ):
        if isinstance(found, int) and not isinstance(found, bool):
            return found
    match = re.fullmatch(r"refs/pull/(\d{1,9})/(?:merge|head)", environ.get("GITHUB_REF", ""))
    return int(match.group(1)) if match else None


def _head(event: Mapping[str, Any]) -> str:
    pull = ((event.get("pull_request") or {}).get("head") or {}).get("sha")
    found = pull or (event.get("workflow_run") or {}).get("head_sha") or ""
    return found if isinstance(found, str) else ""
