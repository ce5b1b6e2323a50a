"""The forges a review can be posted to: one row each, and one file."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module

from glue.agents.review.delivery.forges.client import Client
from glue.agents.review.delivery.forges.forge import Forge, Where
from glue.agents.review.records import Change
from glue.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ForgeRow:
    """A forge: its name, the class that speaks to it, and the variables that may hold its write token."""

    name: str
    home: str
    tokens: tuple[str, ...]

    @property
    def kind(self) -> type[Forge]:
        module, _, name = self.home.partition(":")
        found: type[Forge] = getattr(import_module(f"{__name__}.{module}"), name)
        return found

    def token(self, environ: Mapping[str, str]) -> str:
        return next((environ[name] for name in self.tokens if environ.get(name)), "")


# Asked in this order whose job this is: Gitea's runner sets GitHub's variables too.
FORGES = (
    ForgeRow("gitlab", "gitlab:GitLab", ("GLUE_REVIEW_TOKEN", "GITLAB_TOKEN")),
    ForgeRow("gitea", "gitea:Gitea", ("GLUE_REVIEW_TOKEN", "GITEA_TOKEN", "FORGEJO_TOKEN", "GITHUB_TOKEN")),
    ForgeRow("github", "github:GitHub", ("GLUE_REVIEW_TOKEN", "GITHUB_TOKEN", "GH_TOKEN")),
)
NAMES = tuple(sorted(row.name for row in FORGES))
TOKENS = tuple(dict.fromkeys(name for row in FORGES for name in row.tokens))


def where(environ: Mapping[str, str]) -> Where:
    """Read from the environment of a CI job which pull request it is about."""
    return next((place for row in FORGES if (place := row.kind.find(environ))), Where())


def change_of(place: Where, environ: Mapping[str, str]) -> Change | None:
    """Read the change from the environment of a CI job; None outside of one, or where it is about no change."""
    return _row(place.forge).kind.change(place, environ) if place.forge else None


def open_forge(
    place: Where,
    environ: Mapping[str, str],
    *,
    head: str,
    base: str = "",
    dry: bool = False,
    blind: bool = False,
    check: Callable[[str], str] | None = None,
    sleep: Callable[[float], None] | None = None,
) -> Forge:
    """Open a pull request for posting; what is missing is said in one line."""
    row = _row(place.forge)
    if not re.fullmatch(r"[\w.~-]+(?:/[\w.~-]+)*", place.repo) or ".." in place.repo:
        raise ConfigError(f"not a repository's name: {place.repo!r}; give --repo owner/name")
    if place.number is None:
        raise ConfigError("no pull request found in the environment; give --pr NUMBER")
    key = row.token(environ)
    if not key and not (dry or blind):
        raise ConfigError(f"{row.name}: no token; set {' or '.join(row.tokens)}")
    kind = row.kind
    client = Client(
        base=place.api or kind.api,
        headers=kind.headers(key) if key else {},
        dry=dry,
        blind=blind or not key,
        environ=environ,
    )
    if check is not None:
        client.check = check
    if sleep is not None:
        client.sleep = sleep
    return kind(client, place.repo, place.number, head, base)


def _row(name: str) -> ForgeRow:
    found = next((row for row in FORGES if row.name == name), None)
    if found is None:
        raise ConfigError(f"no forge found in the environment; give --forge ({', '.join(NAMES)}) and --repo")
    return found
