"""Commands in comments: /review, /ask, /ignore, /config, /help. Only people who may write are heard."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from glue import clean_text
from glue.agents.review.delivery import clean
from glue.agents.review.delivery.forges import Comment, find_pull_request, open_forge
from glue.agents.review.delivery.forges.client import Client
from glue.agents.review.findings.dedupe import DISMISSED, Dismissal, PostedFinding

WRITERS = ("admin", "maintain", "write", "owner")
REPLY = "<!-- glue-review:reply "
NAMES = ("review", "ask", "ignore", "config", "help")
_COMMAND = re.compile(rf"^/(?:glue[ -])?({'|'.join(NAMES)})\b[ \t]*(.*)$", re.IGNORECASE)

HELP = """- `/review` reviews the change as it is now
- `/ask` and a question reviews it with that question in mind
- `/ignore` and an id, with a reason, dismisses a finding; as a reply to a comment it needs no id
- `/config` says where the settings are
- `/help` says this"""
CONFIG = "Settings are read from `.glue/review.toml` of the base branch; a change cannot choose its own."


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What somebody asked for in a comment, and which head and base it is about once it was heard."""

    name: str = ""
    argument: str = ""
    by: str = ""
    comment: int = 0
    number: int | None = None
    head: str = ""
    base: str = ""
    refused: str = ""

    @property
    def review(self) -> bool:
        """Whether it asks for collect, run and publish of exactly this head."""
        return self.name in ("review", "ask") and not self.refused


def parse(body: str) -> tuple[str, str] | None:
    """Read a command from the first line of a comment; quoted and later lines are talk."""
    first = clean_text(body, drop=True).lstrip("\n").split("\n", 1)[0].rstrip()
    match = _COMMAND.match(first)
    return (match.group(1).lower(), clean.line(match.group(2), 500)) if match else None


def read(event: Mapping[str, Any]) -> Command | None:
    """Read a command from an issue_comment event; None where there is none, or it stands on no pull request."""
    issue, comment = event.get("issue"), event.get("comment")
    if not isinstance(issue, dict) or not isinstance(comment, dict) or not issue.get("pull_request"):
        return None
    user = comment.get("user") or {}
    found = parse(str(comment.get("body") or ""))
    if found is None or event.get("action") != "created" or user.get("type") == "Bot":
        return None
    return Command(
        name=found[0],
        argument=found[1],
        by=str(user.get("login") or ""),
        comment=int(comment.get("id") or 0),
        number=int(issue["number"]),
    )


def allowed(by: str, permission: Callable[[str], str]) -> bool:
    """Ask the forge whether somebody may write; a comment's own claim is not asked."""
    return re.fullmatch(r"[\w.-]{1,100}(?:\[bot\])?", by) is not None and permission(by) in WRITERS


def dismissals(
    remarks: Iterable[Comment], known: Iterable[PostedFinding], permission: Callable[[str], str]
) -> tuple[Dismissal, ...]:
    """Read /ignore from remarks. Only the words of people who may write count."""
    posted = {one.comment: one.fingerprint for one in known}
    may_write = cache(lambda by: allowed(by, permission))
    found: list[Dismissal] = []
    for remark in remarks:
        name, words = parse(remark.body) or ("", "")
        named = DISMISSED.match(words)
        mark = named.group(1).lower() if named else posted.get(remark.answers, "")
        if name == "ignore" and mark and may_write(remark.by):
            found.append(Dismissal(id=mark, reason=named.group(2) if named else words, by=remark.by))
    return tuple(found)


def reply(command: Command) -> str:
    """What to answer at once, with a marker so that it is answered once; empty where a review is the answer."""
    words = {
        "help": HELP,
        "config": CONFIG,
        "ignore": "Noted: it is left out from the next review on, as long as that code stays as it is.",
    }.get(command.name, "")
    return f"{REPLY}v=1 to={command.comment} -->\n{words}" if words else ""


def respond(environ: Mapping[str, str], *, sleep: Callable[[float], None] = time.sleep) -> Command:
    """Read the event of this job and answer the command in it, if there is one."""
    place = find_pull_request(environ)
    command = read(place.event)
    if command is None:
        return Command()
    forge = open_forge(place, Client(environ=environ, sleep=sleep), head="")
    if not allowed(command.by, forge.permission):
        return replace(command, number=None, refused="only people with write access are heard")
    head, base = forge.tips()
    if text := reply(command):
        marker = text.split("\n", 1)[0]

        def there() -> bool:
            return any(comment.body.startswith(marker) for comment in forge.comments())

        if not there():  # a job that runs again finds its reply
            forge.post_once(lambda: forge.add_comment(text), there)
    return replace(command, head=head, base=base)
