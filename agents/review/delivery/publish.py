"""Publish a saved review: gate, redact, dedupe, anchor, render, post. No model; the write token only.

What another job wrote is read strictly and believed in nothing: lines are computed again, texts are cleaned again, and
the pull request must be the one the event speaks of.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate

from glue.agents.review.change.config import Config
from glue.agents.review.delivery import clean, commands, outputs
from glue.agents.review.delivery.forges import Comment, Forge, Post, PullRequestRef, find_pull_request, open_forge
from glue.agents.review.delivery.forges.client import Client, ForgeError, ForgeRequest, Transport
from glue.agents.review.delivery.report import Item, Report, ReviewVerdict, build, decide
from glue.agents.review.findings import gate
from glue.agents.review.findings.dedupe import Dismissal, PostedFinding, match
from glue.agents.review.records import Bundle, FailOn, ReviewRun
from glue.agents.review.secrets import mask, redactor
from glue.errors import ConfigError

FILE_LEVEL = 5  # comments on whole files
_log = logging.getLogger("glue.review")


@dataclass(slots=True, kw_only=True)
class PostResult:
    """What came of posting. `problem` is empty where everything arrived."""

    posted: int = 0  # inline comments that are new
    skipped: int = 0  # that stood there already
    listed: int = 0  # that could only be listed in the sticky comment
    resolved: int = 0  # discussions of findings that are gone
    sticky: str = ""  # added, edited, same, none
    url: str = ""  # of the sticky comment
    problem: str = ""
    report: Report = field(repr=False)  # with what earlier runs posted taken into account
    resent: bool = field(default=False, repr=False)


def deliver(forge: Forge, bundle: Bundle, done: PostResult) -> None:
    """Post new inline comments in one review, resolve those of what is gone, bring the sticky comment up to date.

    Of an inconclusive run only what analysers and rules found is posted, and an older sticky comment stays as it is.
    A clean report opens no comment; it only brings an old one up to date.
    """
    report = done.report
    if report.codes and not report.items:
        done.sticky = "none"
        return
    head, _ = forge.tips()
    if head != report.change.head_sha:
        done.problem = f"the head moved to {head[:12]} since the change was collected; collect again"
        return
    known = forge.known()
    report = _inline(forge, report, bundle, known, done)
    done.report = report = _fixed(forge, report, bundle, known, done)
    _sticky(forge, report, done)


def _inline(forge: Forge, report: Report, bundle: Bundle, known: Sequence[PostedFinding], done: PostResult) -> Report:
    """Post what is new; return the report with what could not stand inline, and what stood there, marked so."""
    before = match(report.findings, known, bundle)
    new = [item for at, item in enumerate(report.items) if item.inline and at not in before]
    done.skipped = sum(item.inline for item in report.items) - len(new)
    posts = [_post(item, report, bundle, forge.suggestion) for item in new[: gate.FINDINGS]]
    sizes = accumulate(len(post.body.encode()) + len(post.path.encode("utf-8", "replace")) for post in posts)
    # What may be posted at once; the sticky comment has its own share.
    posts = [post for post, size in zip(posts, sizes, strict=True) if size <= gate.TOTAL - gate.SUMMARY]
    lost = {item.key for item in new[len(posts) :]}
    if posts:
        lost |= _send(forge, posts, report, done)
    if forge.file_level:
        whole = [item for at, item in enumerate(report.items) if at not in before]
        _whole_files(forge, whole, report, bundle, done)
    if done.resent:
        seen: set[tuple[str, str]] = set()
        for one in sorted(forge.known(), key=lambda known: known.comment):
            if one.key in seen:
                forge.delete_inline(one)
            seen.add(one.key)
    done.listed = len(lost)
    items = [replace(item, inline=False) if item.key in lost else item for item in report.items]
    for at, old in before.items():  # people know it by the id of its comment
        items[at] = replace(items[at], finding=replace(items[at].finding, fingerprint=old.fingerprint))
    older = (old.fingerprint for old in before.values() if old.head != report.change.head_sha[:12])
    return replace(report, items=tuple(items), open=frozenset(older))


def _fixed(forge: Forge, report: Report, bundle: Bundle, known: Sequence[PostedFinding], done: PostResult) -> Report:
    """Resolve the discussions of findings that are gone, and list them.

    Only where this run would have found them again: the same kind of reviewer, and the whole file.
    """
    if report.codes or not report.finished:
        return report
    shown = [*report.findings, *(item.finding for item, _ in report.dismissed)]
    still = {id(old) for old in match(shown, known, bundle).values()}
    unread = {hunk.path for hunk in report.coverage.required if hunk.state != "full"}
    looked = [old for old in known if old.path not in unread and (report.model or not old.by_model)]
    gone = [old for old in looked if id(old) not in still]
    done.resolved = sum(forge.resolve(old) for old in gone if not old.resolved)
    return replace(report, fixed=tuple(gone))


def _send(forge: Forge, posts: Sequence[Post], report: Report, done: PostResult) -> set[tuple[str, str]]:
    """Send a review; where the forge takes none, send its comments one by one. Returns what was refused."""
    there: set[tuple[str, str]] = set()
    if forge.batch:
        marks = " ".join(sorted(post.fingerprint for post in posts))
        digest, head = hashlib.sha256(marks.encode()).hexdigest()[:16], report.change.head_sha or "none"
        count = f"{len(posts)} comment{'s' if len(posts) > 1 else ''}"
        body = f"{outputs.REVIEW}v=1 head={head} digest={digest} -->\nglue review: {count} on lines of the change."
        try:
            sent = forge.post_once(
                lambda: forge.add_review(posts, body), lambda: {post.key for post in posts} <= _there(forge)
            )
            done.resent |= sent > 1
            done.posted += len(posts)
            return set()
        except ForgeError as error:
            if error.status not in (400, 422):
                raise
            _log.info("the review was refused as a whole (%s); posting one by one", error.status)
        there = _there(forge)
    return {post.key for post in posts if post.key not in there and not _single(forge, post, done)}


def _there(forge: Forge) -> set[tuple[str, str]]:
    return {one.key for one in forge.known()}


def _single(forge: Forge, post: Post, done: PostResult) -> bool:
    try:
        sent = forge.post_once(lambda: forge.add_single(post), lambda: post.key in _there(forge))
        done.resent |= sent > 1
    except ForgeError as error:
        if error.status not in (400, 404, 422):
            raise
        return False
    done.posted += 1
    return True


def _whole_files(forge: Forge, items: Sequence[Item], report: Report, bundle: Bundle, done: PostResult) -> None:
    """Comment on files whose finding stands on no line of the diff."""
    room = max(0, min(FILE_LEVEL, gate.FINDINGS - done.posted - done.skipped))
    for item in items:
        nameable = bundle.file(item.finding.path) is not None and item.path == item.finding.path
        if room <= 0 or item.inline or item.folded or item.finding.anchor != "file" or not nameable:
            continue
        _single(forge, _post(item, report, bundle, forge.suggestion), done)
        room -= 1


def _sticky(forge: Forge, report: Report, done: PostResult) -> None:
    """Keep exactly one sticky comment of ours, and change it only where its words change."""
    body = outputs.sticky(report)
    found = stickies(forge)
    if not found:
        if report.clean and not report.dismissed and not report.fixed:
            done.sticky = "none"
            return
        sent = forge.post_once(lambda: forge.add_comment(body), lambda: bool(stickies(forge)))
        done.sticky = "added"
        found = stickies(forge) if sent > 1 else []
    for extra in found[1:]:  # a request that seemed lost may have arrived late
        forge.delete_comment(extra)
    if done.sticky == "added":
        return
    done.url = found[0].url
    if report.codes or outputs.fields(found[0].body, outputs.STICKY) == outputs.fields(body, outputs.STICKY):
        done.sticky = "same"  # after garbage the last good one stays
        return
    forge.edit_comment(found[0], body)
    done.sticky = "edited"


def stickies(forge: Forge) -> list[Comment]:
    """The sticky comments of ours, the oldest first; there should be one at most."""
    return [comment for comment in forge.comments() if comment.body.startswith(outputs.STICKY)]


def _post(item: Item, report: Report, bundle: Bundle, suggestion: str) -> Post:
    finding = item.finding
    file = bundle.file(finding.path)
    lines = [line for hunk in file.hunks for line in hunk.lines if line.new == finding.line] if file else []
    return Post(
        path=finding.path,
        body=outputs.inline(item, report, suggestion),
        fingerprint=finding.fingerprint,
        line=finding.line,
        start_line=finding.start_line,
        old_line=lines[0].old if lines else None,
        old_path=file.old_path if file else "",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What publish came to: the report, what was posted or would have been, and the verdict."""

    report: Report
    verdict: ReviewVerdict
    delivery: PostResult | None = None
    requests: tuple[ForgeRequest, ...] = ()


def publish(
    bundle: Bundle,
    run: ReviewRun,
    environ: Mapping[str, str],
    *,
    place: PullRequestRef | None = None,
    post: bool = True,
    dry: bool = False,
    blind: bool = False,
    fail_on: FailOn | None = "high",
    require_coverage: float | None = None,
    config: Config | None = None,
    check: bool = False,
    sleep: Callable[[float], None] = time.sleep,
    transport: Transport | None = None,
) -> Published:
    """Gate a review and post it. `dry` sends no change and keeps the exact requests; `blind` does not even look.

    With `check`, GitHub also gets a check run with annotations; its token then needs `checks: write`. A `transport` is
    called instead of opening connections.
    """
    secrets = redactor(environ, run.canary)  # everything that must not leave
    report = build(bundle, run, secrets, config=config)
    verdict = partial(decide, fail_on=fail_on, require_coverage=require_coverage)
    if not post:
        return Published(report=report, verdict=verdict(report))
    # A last look for exact values; they were redacted before, so this changes nothing.
    client = Client(
        dry=dry,
        blind=blind,
        check=lambda text: mask(text, secrets.exact(text)),
        sleep=sleep,
        transport=transport,
        environ=environ,
    )
    place, change = _same(place or find_pull_request(environ), bundle), bundle.change
    forge = open_forge(place, client, head=change.head_sha, base=change.base_sha)
    delivery = PostResult(report=report)
    try:
        if report.items and not report.codes and (said := _ledger(forge, report, bundle)):
            delivery.report = build(bundle, run, secrets, given=said, config=config)
        deliver(forge, bundle, delivery)
        if check and not delivery.problem and not report.codes:
            forge.post_check(delivery.report, verdict(delivery.report, problem=""))
    except ForgeError as error:
        delivery.problem = str(error)
    delivery.problem = clean.line(secrets.redact(delivery.problem))
    if delivery.sticky == "added" and not (dry or blind):
        with suppress(ForgeError):
            delivery.url = next((comment.url for comment in stickies(forge)), "")
    judged = verdict(delivery.report, problem=delivery.problem)
    return Published(report=delivery.report, verdict=judged, delivery=delivery, requests=tuple(forge.client.log))


def _ledger(forge: Forge, report: Report, bundle: Bundle) -> tuple[Dismissal, ...]:
    """Read what was dismissed in comments; without it nothing is posted, or a dismissed finding would come back."""
    remarks = [remark for remark in forge.remarks() if "/ignore" in remark.body or "/glue" in remark.body]
    if not remarks:
        return ()
    known = forge.known()
    said = commands.dismissals(remarks, known, forge.permission)
    findings = report.findings
    # A finding in other words has another id than the comment that people answered.
    renamed = [(findings[at].fingerprint, old.fingerprint) for at, old in match(findings, known, bundle).items()]
    return (*said, *(replace(one, id=mark) for mark, old in renamed for one in said if old.startswith(one.id)))


def format_requests(requests: Iterable[ForgeRequest], base: str = "") -> str:
    """Write requests as they would leave, one JSON object a line."""
    rows = [{"method": sent.method, "url": f"{base}{sent.path}", "body": sent.body} for sent in requests]
    return "".join(json.dumps(row, sort_keys=True) + "\n" for row in rows)


def _same(place: PullRequestRef, bundle: Bundle) -> PullRequestRef:
    """Refuse a bundle that speaks of another pull request than the event: it may come from an untrusted job."""
    change = bundle.change
    if not place.forge and change.forge:
        place = replace(place, forge=change.forge)
    if not place.repo:
        place = replace(place, repo=change.repo)
    # A fork's workflow_run names no pull request, only its head; deliver asks the forge whose that is.
    if place.number is None and (not place.event or place.head):
        place = replace(place, number=change.number)
    if change.number is not None and place.number is not None and place.number != change.number:
        raise ConfigError(f"the bundle is of pull request {change.number}, the job of {place.number}")
    if place.head and place.head != change.head_sha:
        raise ConfigError(f"the bundle is of head {change.head_sha[:12] or 'none'}, the job of {place.head[:12]}")
    return place
