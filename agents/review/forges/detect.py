"""Find out where this runs, from the variables of CI, and open the pull request there."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glue.agents.review.forges.base import Forge
from glue.agents.review.forges.client import Client
from glue.agents.review.forges.gitea import Gitea
from glue.agents.review.forges.github import GitHub
from glue.agents.review.forges.gitlab import GitLab
from glue.errors import ConfigError

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
