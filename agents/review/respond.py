"""Answer a command in a comment: check who asks, pin the head, reply once, and tell the next steps what to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from glue.agents.review import commands, render
from glue.agents.review.forges.base import mine, post_once
from glue.agents.review.forges.client import Client
from glue.agents.review.forges.detect import open_forge, where
from glue.agents.review.forges.gitea import Gitea
from glue.agents.review.forges.github import GitHub
from glue.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What is to be done. `review` asks for collect, run and publish of exactly this head."""

    command: str = ""
    by: str = ""
    number: int | None = None
    head: str = ""
    base: str = ""
    refused: str = ""

    @property
    def review(self) -> bool:
        return self.command in ("review", "ask") and not self.refused


def respond(environ: Mapping[str, str], *, sleep: Callable[[float], None] | None = None) -> Response:
    """Read the event of this job and answer the command in it, if there is one."""
    place = where(environ)
    command = commands.read(place.event)
    if command is None:
        return Response()
    forge = open_forge(place, environ, head="", sleep=sleep)
    if not commands.allowed(command.by, forge.permission):
        return Response(command=command.name, by=command.by, refused="only people with write access are heard")
    if not isinstance(forge, (GitHub, Gitea)):
        raise ConfigError("commands are read on GitHub and Gitea; GitLab starts no job for a comment")
    pull = forge.client.get(f"{forge.root}/pulls/{command.number}")
    text = commands.reply(command)
    if text:
        _reply(forge, f"{forge.root}/issues/{command.number}/comments", text)
    return Response(
        command=command.name,
        by=command.by,
        number=command.number,
        head=str(pull["head"]["sha"]),
        base=str(pull["base"]["sha"]),
    )


def _reply(forge: GitHub | Gitea, path: str, text: str) -> None:
    """Reply once: a job that runs again finds its reply."""
    client: Client = forge.client
    wanted = render.fields(text, commands.REPLY)

    def there() -> bool:
        rows = mine(list(client.pages(path)), forge.me())
        return any(render.fields(str(row.get("body", "")), commands.REPLY) == wanted for row in rows)

    if not there():
        post_once(lambda: client.change("POST", path, {"body": text}), there, client.sleep)
