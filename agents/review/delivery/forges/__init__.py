"""The forges to which a review can be posted; a new forge needs one file and one row of FORGES."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from glue.agents.review.delivery.forges.client import Client
from glue.agents.review.delivery.forges.forge import Forge, PullRequestRef
from glue.agents.review.delivery.forges.github import Gitea, GitHub
from glue.agents.review.delivery.forges.gitlab import GitLab
from glue.agents.review.records import ReviewedChange
from glue.errors import ConfigError


class ForgeRow(NamedTuple):
    """The class of a forge, and the environment variables that may contain its write token."""

    kind: type[Forge]
    tokens: tuple[str, ...]


# In the order in which the environment is checked: Gitea also sets the variables of GitHub.
FORGES = {
    "gitlab": ForgeRow(GitLab, ("GLUE_REVIEW_TOKEN", "GITLAB_TOKEN")),
    "gitea": ForgeRow(Gitea, ("GLUE_REVIEW_TOKEN", "GITEA_TOKEN", "FORGEJO_TOKEN", "GITHUB_TOKEN")),
    "github": ForgeRow(GitHub, ("GLUE_REVIEW_TOKEN", "GITHUB_TOKEN", "GH_TOKEN")),
}
NAMES = tuple(sorted(FORGES))
TOKENS = tuple(dict.fromkeys(name for row in FORGES.values() for name in row.tokens))


def find_pull_request(environ: Mapping[str, str]) -> PullRequestRef:
    """Return the address of the CI job's pull request, or an empty PullRequestRef outside of CI.

    If the job has no pull request, `number` is None.
    """
    for row in FORGES.values():
        place = row.kind.find(environ)
        if place is not None:
            return place
    return PullRequestRef()


def read_change(place: PullRequestRef, environ: Mapping[str, str]) -> ReviewedChange | None:
    """Return the metadata of the CI job's pull request, or None if the job has no pull request.

    The metadata are read from the environment and the event of the job. The forge, the repository
    and the number are those of `place`.
    """
    change = _row(place.forge).kind.change(place, environ) if place.forge else None
    if change is None:
        return None
    return replace(
        change, mode="pull_request", forge=place.forge, repo=place.repo, number=place.number
    )


def _row(name: str) -> ForgeRow:
    if name not in FORGES:
        problem = f"there is no forge {name!r}" if name else "no forge found in the environment"
        raise ConfigError(
            f"{problem}; name the forge with"
            f" `glue review publish --forge {'|'.join(NAMES)} --repo OWNER/NAME`"
        )
    return FORGES[name]


def open_forge(place: PullRequestRef, client: Client, *, head: str, base: str = "") -> Forge:
    """Set the address and the token of `client`, and return a Forge for the pull request `place`.

    Raise ConfigError if the forge, the repository, the number or the token is missing. If `client`
    is dry, the token may be missing; then the client becomes blind and reads nothing.
    """
    kind, tokens = _row(place.forge)
    if not re.fullmatch(r"[\w.~-]+(?:/[\w.~-]+)*", place.repo) or ".." in place.repo:
        problem = (
            f"{place.repo!r} is not the name of a repository"
            if place.repo
            else "no repository found in the environment"
        )
        raise ConfigError(f"{problem}; give --repo OWNER/NAME")
    if place.number is None:
        raise ConfigError("no pull request found in the environment; give --pr NUMBER")
    key = next((client.environ[name] for name in tokens if client.environ.get(name)), "")
    if not key and not (client.dry or client.blind):
        raise ConfigError(f"{place.forge}: no token; set {' or '.join(tokens)}")
    client.base = place.api or kind.api
    client.headers = (
        {name: value.format(key=key) for name, value in kind.headers.items()} if key else {}
    )
    client.blind = client.blind or not key
    return kind(client, place.repo, place.number, head, base)
