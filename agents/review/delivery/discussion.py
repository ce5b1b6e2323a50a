"""Read the discussion of a pull request: its comments, and the issues that it closes.

The model gets these texts only if it asks for them. They are untrusted: a comment that addresses an
automated reviewer is replaced by a remark, and nothing in a discussion can dismiss a finding.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from glue.agents.review.delivery.forges import open_forge
from glue.agents.review.delivery.forges.client import Client, ForgeError
from glue.agents.review.delivery.forges.forge import Comment, Forge, PullRequestRef
from glue.agents.review.delivery.outputs import MARKER
from glue.agents.review.findings.rules import addresses_reviewer, strip_hidden
from glue.agents.review.records import ChangeComment, ReviewedChange
from glue.errors import ConfigError
from glue.text import count as counted

MAX_COMMENTS = 40  # the newest ones
MAX_COMMENT = 2_000  # characters of one comment
MAX_ISSUES = 3
MAX_ISSUE = 4_000  # characters of one issue
LEFT_OUT = "[left out: this text addresses an automated reviewer]"
# The keywords with which all forges close an issue.
_CLOSES = re.compile(
    r"\b(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?)(?:: ?| )#(\d{1,9})\b", re.IGNORECASE
)
_HTML_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)


def with_discussion(
    change: ReviewedChange,
    place: PullRequestRef,
    environ: Mapping[str, str],
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[ReviewedChange, str]:
    """Request a change's comments and issues from the forge. Return `change` with them, and a note.

    Only the newest comments, and the issues that the change closes, are added. The note, for the
    user, states that comments or issues are left out because they address a reviewer, or why the
    discussion was not read. Otherwise it is "". A failure is not an error, because a review does
    not need the discussion.
    """
    if not place.forge or change.number is None:
        return change, ""
    try:
        place = replace(place, repo=place.repo or change.repo, number=change.number)
        forge = open_forge(place, Client(environ=environ, sleep=sleep), head=change.head_sha)
        remarks = [one for one in forge.remarks() if not one.body.startswith(MARKER)]
        issues = tuple(_issues(forge, f"{change.title}\n{change.body}"))
    except (ConfigError, ForgeError) as error:
        return change, f"the discussion of the pull request was not read: {error}"
    remarks.sort(key=lambda remark: remark.at)
    comments = tuple(map(_clean, remarks[-MAX_COMMENTS:]))
    texts = (*issues, *(comment.body for comment in comments))
    hidden = sum(LEFT_OUT in text for text in texts)
    note = ""
    if hidden:
        number = counted(hidden, "comment or issue", "comments or issues")
        note = f"left out of the review: {number} with text for an automated reviewer"
    more = max(0, len(remarks) - MAX_COMMENTS)
    change = replace(
        change, comments=comments, older_comments=more, issues=(*change.issues, *issues)
    )
    return change, note


def _clean(remark: Comment) -> ChangeComment:
    """Return the visible text of a comment, cut to MAX_COMMENT characters, as a ChangeComment.

    If the comment addresses an automated reviewer, LEFT_OUT replaces its text.
    """
    return ChangeComment(
        author=remark.by, body=_visible(remark.body)[:MAX_COMMENT], path=remark.path
    )


def _visible(text: str) -> str:
    """Return a text without hidden parts, or LEFT_OUT if it addresses an automated reviewer.

    Hidden parts are invisible characters and HTML comments.
    """
    if addresses_reviewer(text):
        return LEFT_OUT
    return strip_hidden(_HTML_COMMENT.sub("", text)).strip()


def _issues(forge: Forge, text: str) -> Iterator[str]:
    """Yield one text for each issue that a pull request closes: its number, title and description.

    `text` is the title and description of the pull request. There are at most MAX_ISSUES issues.
    """
    numbers = dict.fromkeys(int(match[1]) for match in _CLOSES.finditer(text))
    for number in list(numbers)[:MAX_ISSUES]:
        if issue := forge.issue(number):
            yield f"#{number} {_visible(issue)[:MAX_ISSUE]}"
