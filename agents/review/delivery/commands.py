"""Parse and answer commands in pull request comments: /review, /ask, /ignore, /config, /help.

Only users with write access may give commands.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from glue.agents.review.delivery import clean
from glue.agents.review.delivery.forges import find_pull_request, open_forge
from glue.agents.review.delivery.forges.client import Client
from glue.agents.review.delivery.forges.forge import Comment
from glue.agents.review.findings import memory
from glue.agents.review.findings.dedupe import DISMISSED, Dismissal, PostedFinding
from glue.agents.review.records import Finding
from glue.text import clean_text

WRITERS = ("admin", "maintain", "write", "owner")
MAINTAINERS = ("admin", "maintain", "owner")
_ALWAYS = re.compile(r"^always\b[ \t:]*", re.IGNORECASE)
REPLY = "<!-- glue-review:reply "
NAMES = ("review", "ask", "ignore", "config", "help")
_COMMAND = re.compile(rf"^/(?:glue[ -])?({'|'.join(NAMES)})\b[ \t]*(.*)$", re.IGNORECASE)

HELP = """- `/review` reviews the current head of the change
- `/ask QUESTION` reviews the change with a question in mind
- `/ignore ID REASON` dismisses a finding in this pull request; in a reply to its comment, leave out
  the id
- `/ignore always ID REASON` by a maintainer also returns the line for `.glue/dismissed`, with which
  later pull requests know the decision
- `/config` names the file with the settings
- `/help` lists the commands"""
CONFIG = (
    "Settings are read from `.glue/review.toml` of the base branch;"
    " a pull request cannot change them for its own review."
)

NOTED = "Noted: the next reviews leave this finding out, unless its code changes."
NO_ID = (
    "Nothing was dismissed, because the command names no finding: write `/ignore ID REASON`"
    " with the id of a finding."
)
NOT_POSTED = "There is no line for `.glue/dismissed`, because no posted finding has this id."


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command that a user wrote in a comment, such as `/ask` with a question.

    `head` and `base` are empty until the forge was asked. `refused` is the reason why the command
    is not carried out, or "".
    """

    name: str = ""
    argument: str = ""
    by: str = ""
    comment: int = 0
    number: int | None = None
    head: str = ""
    base: str = ""
    refused: str = ""
    memory: str = ""  # the line for `.glue/dismissed`, after `/ignore always`

    @property
    def review(self) -> bool:
        """Return whether the command starts a review (/review or /ask) and was not refused."""
        return self.name in ("review", "ask") and not self.refused


def parse(body: str) -> tuple[str, str] | None:
    """Return name and argument of the command in a comment's first line, or None without a command.

    Blank lines above the first line do not count.
    """
    first = clean_text(body, drop=True).lstrip("\n").split("\n", 1)[0].rstrip()
    match = _COMMAND.match(first)
    return (match.group(1).lower(), clean.line(match.group(2), 500)) if match else None


def read(event: Mapping[str, Any]) -> Command | None:
    """Return the command in the new pull request comment of a CI event, or None without a command.

    The event is an issue_comment event. Return None also for comments on issues, edited comments
    and comments of bots.
    """
    issue, comment = event.get("issue"), event.get("comment")
    if (
        not isinstance(issue, dict)
        or not isinstance(comment, dict)
        or not issue.get("pull_request")
    ):
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
    """Return whether the user `by` has write access; `permission` returns the role of a user."""
    return re.fullmatch(r"[\w.-]{1,100}(?:\[bot\])?", by) is not None and permission(by) in WRITERS


def dismissals(
    remarks: Iterable[Comment], known: Iterable[PostedFinding], permission: Callable[[str], str]
) -> tuple[Dismissal, ...]:
    """Return a dismissal for each /ignore command that names a finding, if its user may write.

    A command names a finding by an id, or in a reply to the comment of a finding in `known`.
    `permission` returns the role of a user.
    """
    posted = {finding.comment: finding.fingerprint for finding in known}
    may_write = cache(lambda by: allowed(by, permission))
    found: list[Dismissal] = []
    for remark in remarks:
        name, words = parse(remark.body) or ("", "")
        words = _ALWAYS.sub("", words)
        named = DISMISSED.match(words)
        mark = named.group(1).lower() if named else posted.get(remark.answers, "")
        if name == "ignore" and mark and may_write(remark.by):
            found.append(
                Dismissal(id=mark, reason=named.group(2) if named else words, by=remark.by)
            )
    return tuple(found)


def memory_line(command: Command, known: Iterable[PostedFinding]) -> str:
    """Return the `.glue/dismissed` line for `/ignore always`, or "" if its finding is not posted.

    The posted findings are `known`. Return "" also if the command has no id of a finding.
    """
    named = DISMISSED.match(_ALWAYS.sub("", command.argument))
    if named is None:
        return ""
    posted = [finding for finding in known if finding.fingerprint.startswith(named[1].lower())]
    if not posted:
        return ""
    finding = Finding(path=posted[0].path, quote="", title=posted[0].title, body="")
    reason = clean.line(named[2], 300)
    return memory.line(replace(finding, fingerprint=posted[0].fingerprint), "wrong", reason).strip()


def reply(command: Command, line: str = "") -> str:
    """Return the text of the comment that answers a command, or "" if a review answers it.

    The text begins with a marker, so that the reply is not posted twice. `line` is the line for
    `.glue/dismissed`, if the command is `/ignore always`.
    """
    words = {"help": HELP, "config": CONFIG, "ignore": NOTED}.get(command.name, "")
    is_lasting = _ALWAYS.match(command.argument) is not None
    if command.name == "ignore" and not DISMISSED.match(_ALWAYS.sub("", command.argument)):
        words = NO_ID
    elif command.name == "ignore" and is_lasting and not line:
        words = f"{NOTED} {NOT_POSTED}"
    if line:
        words += "\n\nFor later pull requests, commit this line to `.glue/dismissed`:\n\n"
        words += clean.fence(line, "text")
    return f"{REPLY}v=1 to={command.comment} -->\n{words}" if words else ""


def respond(environ: Mapping[str, str], *, sleep: Callable[[float], None] = time.sleep) -> Command:
    """Reply to the command that started this CI job; return it, or an empty Command without one.

    Return an empty Command if the event contains no command. A command that a review answers gets
    no reply here. If the role of the user does not suffice for the command, nothing is posted, and
    `refused` of the returned command has the reason.
    """
    place = find_pull_request(environ)
    command = read(place.event)
    if command is None:
        return Command()
    forge = open_forge(place, Client(environ=environ, sleep=sleep), head="")
    if not allowed(command.by, forge.permission):
        return replace(
            command, number=None, refused="only users with write access may give commands"
        )
    head, base = forge.tips()
    line = ""
    if command.name == "ignore" and _ALWAYS.match(command.argument):
        if forge.permission(command.by) not in MAINTAINERS:
            reason = "only maintainers may dismiss a finding for later pull requests"
            return replace(command, number=None, refused=reason)
        line = memory_line(command, forge.known())
        command = replace(command, memory=line)
    if text := reply(command, line):
        marker = text.split("\n", 1)[0]

        def is_posted() -> bool:
            return any(comment.body.startswith(marker) for comment in forge.comments())

        if not is_posted():  # a job that runs again has replied already
            forge.post_once(lambda: forge.add_comment(text), is_posted)
    return replace(command, head=head, base=base)
