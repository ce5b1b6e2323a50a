"""Post a report so that posting again, or after any fault, adds nothing twice."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from glue.agents.review import gate, render
from glue.agents.review.dedupe import Known, fresh
from glue.agents.review.forges.base import Comment, Forge, Post, post_once
from glue.agents.review.forges.client import ForgeError
from glue.agents.review.model import Bundle
from glue.agents.review.report import Item, Report

FILE_LEVEL = 5  # comments on whole files
_log = logging.getLogger("glue.review")


@dataclass(slots=True, kw_only=True)
class Delivery:
    """What came of posting. `problem` is empty where everything arrived."""

    posted: int = 0  # inline comments that are new
    skipped: int = 0  # that stood there already
    listed: int = 0  # that could only be listed in the sticky comment
    sticky: str = ""  # added, edited, same, none
    problem: str = ""
    resent: bool = field(default=False, repr=False)

    @property
    def delivered(self) -> bool:
        return not self.problem


def deliver(forge: Forge, report: Report, bundle: Bundle, *, quiet: bool = True) -> Delivery:
    """Post inline comments in one review, then bring the sticky comment up to date. Garbage posts nothing.

    With `quiet`, a clean report opens no comment; it only brings an old one up to date.
    """
    done = Delivery()
    if report.codes:
        done.sticky = "none"
        return done
    try:
        head = forge.head()
        if head != report.change.head_sha:
            done.problem = f"the head moved to {head[:12]} since the change was collected; collect again"
            return done
        report = _inline(forge, report, bundle, done)
        _sticky(forge, report, done, quiet)
    except ForgeError as error:
        done.problem = str(error)
    return done


def _inline(forge: Forge, report: Report, bundle: Bundle, done: Delivery) -> Report:
    """Post what is new; return the report with what could not stand inline marked as listed."""
    known = forge.known()
    wanted = [item for item in report.items if item.inline]
    new = [item for item in wanted if fresh(item.finding, known, bundle)]
    done.skipped = len(wanted) - len(new)
    posts = _within([_post(item, report, bundle, forge.style) for item in new])
    refused: set[str] = set()
    if posts:
        refused = _send(forge, posts, report, done)
    if forge.file_level:
        _whole_files(forge, report, bundle, known, done)
    if done.resent:
        _heal_inline(forge)
    lost = refused | {item.finding.fingerprint for item in new[len(posts) :]}
    done.listed = len(lost)
    items = tuple(
        replace(item, inline=False, reason="the forge takes no comment there") if _key(item) in lost else item
        for item in report.items
    )
    return replace(report, items=items)


def _send(forge: Forge, posts: Sequence[Post], report: Report, done: Delivery) -> set[str]:
    """Send a review; where the forge takes none, send its comments one by one. Returns what was refused."""
    wanted = {post.fingerprint for post in posts}

    def arrived() -> bool:
        return wanted <= {one.fingerprint for one in forge.known()}

    try:
        sent = post_once(lambda: forge.add_review(posts, _review_body(report, posts)), arrived, forge.client.sleep)
        done.resent |= sent > 1
        done.posted += len(posts)
        return set()
    except ForgeError as error:
        if error.status not in (400, 422):
            raise
        _log.info("the review was refused as a whole (%s); posting one by one", error.status)
    refused: set[str] = set()
    there = {one.fingerprint for one in forge.known()} if forge.name != "gitlab" else set()
    for post in posts:
        if post.fingerprint not in there and not _single(forge, post, done):
            refused.add(post.fingerprint)
    return refused


def _single(forge: Forge, post: Post, done: Delivery) -> bool:
    def arrived() -> bool:
        return post.fingerprint in {one.fingerprint for one in forge.known()}

    try:
        done.resent |= post_once(lambda: forge.add_single(post), arrived, forge.client.sleep) > 1
    except ForgeError as error:
        if error.status not in (400, 404, 422):
            raise
        return False
    done.posted += 1
    return True


def _whole_files(forge: Forge, report: Report, bundle: Bundle, known: Sequence[Known], done: Delivery) -> None:
    """Comment on files whose finding stands on no line of the diff."""
    room = max(0, min(FILE_LEVEL, gate.FINDINGS - done.posted - done.skipped))
    for item in report.items:
        if room <= 0:
            return
        if item.inline or item.finding.anchor != "file" or not _nameable(item, bundle):
            continue
        if fresh(item.finding, known, bundle):
            body = render.inline(item, report, forge.style)
            post = Post(path=item.finding.path, body=body, fingerprint=item.finding.fingerprint)
            _single(forge, post, done)
            room -= 1


def _sticky(forge: Forge, report: Report, done: Delivery, quiet: bool) -> None:
    """Keep exactly one sticky comment of ours, and change it only where its words change."""
    body = render.sticky(report)
    found = forge.stickies()
    if not found:
        if quiet and report.clean and not report.dismissed:
            done.sticky = "none"
            return
        sent = post_once(lambda: forge.add_sticky(body), lambda: bool(forge.stickies()), forge.client.sleep)
        done.sticky = "added"
        if sent > 1:
            _heal_sticky(forge, forge.stickies())
        return
    _heal_sticky(forge, found)
    if render.fields(found[0].body, render.STICKY) == render.fields(body, render.STICKY):
        done.sticky = "same"
        return
    forge.edit_sticky(found[0], body)
    done.sticky = "edited"


def _heal_sticky(forge: Forge, found: Sequence[Comment]) -> None:
    """Delete all but the first: a request that seemed lost may have arrived late."""
    for extra in found[1:]:
        forge.delete_sticky(extra)


def _heal_inline(forge: Forge) -> None:
    seen: Counter[tuple[str, str]] = Counter()
    for known in sorted(forge.known(), key=lambda one: one.comment):
        seen[known.fingerprint, known.path] += 1
        if seen[known.fingerprint, known.path] > 1:
            forge.delete_inline(known)


def _post(item: Item, report: Report, bundle: Bundle, style: str) -> Post:
    finding = item.finding
    file = bundle.file(finding.path)
    lines = [line for hunk in file.hunks for line in hunk.lines if line.new == finding.line] if file else []
    return Post(
        path=finding.path,
        body=render.inline(item, report, style),
        fingerprint=finding.fingerprint,
        line=finding.line,
        start_line=finding.start_line,
        old_line=lines[0].old if lines else None,
        old_path=file.old_path if file else "",
    )


def _within(posts: list[Post]) -> list[Post]:
    """Keep to the number and the bytes that may be posted at once; the sticky comment has its own share."""
    room = gate.TOTAL - gate.SUMMARY
    kept: list[Post] = []
    for post in posts[: gate.FINDINGS]:
        room -= len(post.body.encode()) + len(post.path.encode("utf-8", "replace"))
        if room < 0:
            break
        kept.append(post)
    return kept


def _review_body(report: Report, posts: Sequence[Post]) -> str:
    mark = hashlib.sha256(" ".join(sorted(post.fingerprint for post in posts)).encode()).hexdigest()[:16]
    count = f"{len(posts)} comment{'s' if len(posts) > 1 else ''}"
    head = report.change.head_sha or "none"
    return f"{render.REVIEW}v=1 head={head} digest={mark} -->\nglue review: {count} on lines of the change."


def _nameable(item: Item, bundle: Bundle) -> bool:
    return bundle.file(item.finding.path) is not None and item.path == item.finding.path


def _key(item: Item) -> str:
    return item.finding.fingerprint
