"""Publish a saved review: check and redact its findings, and post those that are not posted yet.

This step has the write token and asks no model. Its input was written by another job and is not
trusted: lines are computed again, texts are cleaned again, and the pull request must be that of
the event that started the job.
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
from glue.agents.review.delivery.forges import find_pull_request, open_forge
from glue.agents.review.delivery.forges.client import Client, ForgeError, ForgeRequest, Transport
from glue.agents.review.delivery.forges.forge import Comment, Forge, Post, PullRequestRef
from glue.agents.review.delivery.report import Item, Report, ReviewVerdict, build, decide
from glue.agents.review.findings import gate
from glue.agents.review.findings.dedupe import Dismissal, PostedFinding, match
from glue.agents.review.records import Bundle, FailOn, ReviewRun
from glue.errors import ConfigError
from glue.secrets import Redactor

FILE_LEVEL = 5  # comments on whole files that one review posts at most
_log = logging.getLogger("glue.review")


@dataclass(slots=True, kw_only=True)
class PostResult:
    """The result of posting: numbers of comments, and the `problem` if posting failed, else ""."""

    posted: int = 0  # new inline comments
    skipped: int = 0  # findings whose inline comment was posted by an earlier review
    listed: int = 0  # findings that could only be listed in the sticky comment
    resolved: int = 0  # discussions of findings that are fixed
    sticky: str = ""  # added, edited, same, none
    url: str = ""  # of the sticky comment
    problem: str = ""
    report: Report = field(repr=False)  # the report as posted
    # Whether a request was sent twice, so that a comment may have been posted twice.
    resent: bool = field(default=False, repr=False)


def deliver(forge: Forge, bundle: Bundle, done: PostResult) -> None:
    """Post new comments, resolve fixed findings, update the sticky comment; record this in `done`.

    The new comments are inline comments. Nothing is posted if the pull request has a newer head.
    Then `done.problem` states that.

    If the model's review was inconclusive, only findings of analysers and rules are posted, and an
    existing sticky comment is not changed. A clean report adds no sticky comment, but updates an
    existing one.
    """
    report = done.report
    if report.codes and not report.items:
        done.sticky = "none"
        return
    head, _ = forge.tips()
    if head != report.change.head_sha:
        done.problem = (
            f"the head moved to {head[:12]} after the change was collected, so nothing was posted; "
            "review the change again"
        )
        return
    known = forge.known()
    report = _inline(forge, report, bundle, known, done)
    done.report = report = _resolve_fixed(forge, report, bundle, known, done)
    _sticky(forge, report, done)


def _inline(
    forge: Forge, report: Report, bundle: Bundle, known: Sequence[PostedFinding], done: PostResult
) -> Report:
    """Post new findings as inline comments, and return the report, updated with the outcome.

    In the returned report, findings whose comments were refused are not inline, and findings that
    were posted before have the fingerprint of their comment.
    """
    before = match(report.findings, known, bundle)
    new = [item for at, item in enumerate(report.items) if item.inline and at not in before]
    done.skipped = sum(item.inline for item in report.items) - len(new)
    posts = [_post(item, report, bundle, forge.suggestion) for item in new[: gate.FINDINGS]]
    sizes = accumulate(
        len(post.body.encode()) + len(post.path.encode("utf-8", "replace")) for post in posts
    )
    most = gate.TOTAL - gate.SUMMARY  # the summary is in the sticky comment
    posts = [post for post, size in zip(posts, sizes, strict=True) if size <= most]
    lost = {item.key for item in new[len(posts) :]}
    if posts:
        lost |= _send(forge, posts, report, done)
    if forge.file_level:
        unposted = [item for at, item in enumerate(report.items) if at not in before]
        _comment_on_files(forge, unposted, report, bundle, done)
    if done.resent:
        _delete_duplicates(forge)
    done.listed = len(lost)
    items = [replace(item, inline=False) if item.key in lost else item for item in report.items]
    for at, old in before.items():  # people refer to the finding by the id in its comment
        items[at] = replace(
            items[at], finding=replace(items[at].finding, fingerprint=old.fingerprint)
        )
    older = (old.fingerprint for old in before.values() if old.head != report.change.head_sha[:12])
    return replace(report, items=tuple(items), open=frozenset(older))


def _delete_duplicates(forge: Forge) -> None:
    """Delete each inline comment of this account that repeats the finding of an older comment."""
    seen: set[tuple[str, str]] = set()
    for posted in sorted(forge.known(), key=lambda posted: posted.comment):
        if posted.key in seen:
            forge.delete_inline(posted)
        seen.add(posted.key)


def _resolve_fixed(
    forge: Forge, report: Report, bundle: Bundle, known: Sequence[PostedFinding], done: PostResult
) -> Report:
    """Resolve the discussions of fixed findings, and return the report that lists them as fixed.

    A finding counts as fixed only if this review could have found it: its whole file was read, and
    a model was asked if a model had reported it. An inconclusive report is returned unchanged.
    """
    if report.codes or not report.finished:
        return report
    shown = [*report.findings, *(item.finding for item, _ in report.dismissed)]
    still = {id(old) for old in match(shown, known, bundle).values()}
    unread = {hunk.path for hunk in report.coverage.required if hunk.state != "full"}
    skipped = {skip.path for skip in report.skipped}  # the rules read all other files
    reviewed = [
        old
        for old in known
        if (report.model and old.path not in unread if old.by_model else old.path not in skipped)
    ]
    fixed = [old for old in reviewed if id(old) not in still]
    done.resolved = sum(forge.resolve(old) for old in fixed if not old.resolved)
    return replace(report, fixed=tuple(fixed))


def _send(
    forge: Forge, posts: Sequence[Post], report: Report, done: PostResult
) -> set[tuple[str, str]]:
    """Post comments in one review, and return the keys of comments that the forge refused.

    If the forge refuses the review or has no reviews, the comments are posted one by one.
    """
    arrived: set[tuple[str, str]] = set()
    if forge.batch:
        fingerprints = " ".join(sorted(post.fingerprint for post in posts))
        digest = hashlib.sha256(fingerprints.encode()).hexdigest()[:16]
        head = report.change.head_sha or "none"
        count = f"{len(posts)} comment{'s' if len(posts) > 1 else ''}"
        marker = f"{outputs.REVIEW}v=1 head={head} digest={digest} -->"
        body = f"{marker}\nglue review: {count} on lines of the change."
        try:
            sent = forge.post_once(
                lambda: forge.add_review(posts, body),
                lambda: {post.key for post in posts} <= _posted_keys(forge),
            )
            done.resent |= sent > 1
            done.posted += len(posts)
            return set()
        except ForgeError as error:
            if error.status not in (400, 422):
                raise
            _log.info(
                "the forge refused the whole review (HTTP %s); posting its comments one by one",
                error.status,
            )
        arrived = _posted_keys(forge)
    missing = [post for post in posts if post.key not in arrived]
    return {post.key for post in missing if not _post_single(forge, post, done)}


def _posted_keys(forge: Forge) -> set[tuple[str, str]]:
    """Return fingerprint and path of each finding that this account has posted."""
    return {posted.key for posted in forge.known()}


def _post_single(forge: Forge, post: Post, done: PostResult) -> bool:
    """Post one inline comment; return False if the forge refuses it. Other errors are raised."""
    try:
        sent = forge.post_once(
            lambda: forge.add_single(post), lambda: post.key in _posted_keys(forge)
        )
        done.resent |= sent > 1
    except ForgeError as error:
        if error.status not in (400, 404, 422):
            raise
        return False
    done.posted += 1
    return True


def _comment_on_files(
    forge: Forge, items: Sequence[Item], report: Report, bundle: Bundle, done: PostResult
) -> None:
    """Post comments on whole files for findings whose quote is outside of the hunks.

    There are at most FILE_LEVEL such comments.
    """
    room = max(0, min(FILE_LEVEL, gate.FINDINGS - done.posted - done.skipped))
    for item in items:
        if item.inline or item.folded or item.finding.anchor != "file":
            continue
        # A path that needs cleaning is not sent to the forge.
        if room <= 0 or item.path != item.finding.path:
            continue
        _post_single(forge, _post(item, report, bundle, forge.suggestion), done)
        room -= 1


def _sticky(forge: Forge, report: Report, done: PostResult) -> None:
    """Add or update the sticky comment of this account, and delete duplicates of the comment.

    An existing comment is edited only if its marker changes and the review is conclusive. A clean
    report does not add a comment.
    """
    body = outputs.sticky(report)
    found = sticky_comments(forge)
    if not found:
        if report.quiet and report.finished and not report.dismissed and not report.fixed:
            done.sticky = "none"
            return
        sent = forge.post_once(
            lambda: forge.add_comment(body), lambda: bool(sticky_comments(forge))
        )
        done.sticky = "added"
        found = sticky_comments(forge) if sent > 1 else []
    for extra in found[1:]:  # a request that seemed lost may have arrived late
        forge.delete_comment(extra)
    if done.sticky == "added":
        return
    done.url = found[0].url
    old, new = (outputs.fields(text, outputs.STICKY) for text in (found[0].body, body))
    if report.codes or old == new:  # an inconclusive review does not replace the comment
        done.sticky = "same"
        return
    forge.edit_comment(found[0], body)
    done.sticky = "edited"


def sticky_comments(forge: Forge) -> list[Comment]:
    """Return the sticky comments of this account, usually one or none, the oldest first."""
    return [comment for comment in forge.comments() if comment.body.startswith(outputs.STICKY)]


def _post(item: Item, report: Report, bundle: Bundle, suggestion: str) -> Post:
    """Return the Post, a comment on a line or file, for a finding.

    `suggestion` is the forge's name for a block with a suggestion.
    """
    finding = item.finding
    # The gate refuses findings in files that are not in the change.
    file = next(file for file in bundle.files if file.path == finding.path)
    lines = [line for hunk in file.hunks for line in hunk.lines if line.new == finding.line]
    return Post(
        path=finding.path,
        body=outputs.inline(item, report, suggestion),
        fingerprint=finding.fingerprint,
        line=finding.line,
        start_line=finding.start_line,
        old_line=lines[0].old if lines else None,
        old_path=file.old_path,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The result of `publish`: the report, the verdict, and the outcome of posting.

    `requests` are those that change something on the forge. In a dry run they were not sent.
    """

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
    """Post the findings that pass the gate, and return the report, the verdict and the delivery.

    Args:
        environ: the variables of the CI job, with the token.
        place: the pull request. Default: that of the CI job.
        post: whether to post; otherwise only the report and the verdict are computed.
        dry: change nothing on the forge; the exact requests are returned.
        blind: like `dry`, and read nothing from the forge either.
        fail_on: the lowest severity that fails; with None or "never" findings do not fail.
        require_coverage: percent of the change that must have been read in full.
        config: the settings. Default: the built-in ones.
        check: also add a check run with annotations on GitHub; needs the permission
            `checks: write`.
        sleep: called with the seconds to wait between requests.
        transport: called for each request instead of opening a connection.

    Raise ConfigError if the bundle belongs to another pull request than the CI job, or if the
    repository, the pull request or the token is not known. An error of the forge is not raised: it
    is the problem in `delivery`.
    """
    secrets = Redactor.from_environment(environ, run.canary, mask="[redacted]")
    report = build(bundle, run, secrets, config=config)
    verdict = partial(decide, fail_on=fail_on, require_coverage=require_coverage)
    if not post:
        return Published(report=report, verdict=verdict(report))
    # The client redacts secret values once more in each request, in case one was missed above.
    client = Client(
        dry=dry,
        blind=blind,
        redact=secrets.redact_values,
        sleep=sleep,
        transport=transport,
        environ=environ,
    )
    place = _check_same_pull_request(place or find_pull_request(environ), bundle)
    change = bundle.change
    forge = open_forge(place, client, head=change.head_sha, base=change.base_sha)
    delivery = PostResult(report=report)
    try:
        if report.items and not report.codes:
            # Without this list nothing is posted, or dismissed findings would appear again.
            dismissals = _dismissals(forge, report, bundle)
            if dismissals:
                delivery.report = build(bundle, run, secrets, given=dismissals, config=config)
        deliver(forge, bundle, delivery)
        if check and not delivery.problem and not report.codes:
            forge.post_check(delivery.report, verdict(delivery.report, problem=""))
    except ForgeError as error:
        delivery.problem = str(error)
    delivery.problem = clean.line(secrets.redact(delivery.problem))
    if delivery.sticky == "added" and not (dry or blind):
        with suppress(ForgeError):
            delivery.url = next((comment.url for comment in sticky_comments(forge)), "")
    judged = verdict(delivery.report, problem=delivery.problem)
    return Published(
        report=delivery.report, verdict=judged, delivery=delivery, requests=tuple(forge.client.log)
    )


def _dismissals(forge: Forge, report: Report, bundle: Bundle) -> tuple[Dismissal, ...]:
    """Return the dismissals that users with write access wrote in comments on the pull request."""
    remarks = [remark for remark in forge.remarks() if commands.parse(remark.body)]
    if not remarks:
        return ()
    known = forge.known()
    dismissals = commands.dismissals(remarks, known, forge.permission)
    # If the model words a finding differently, its id differs from that of the posted comment.
    reworded: list[Dismissal] = []
    for at, old in match(report.findings, known, bundle).items():
        fingerprint = report.findings[at].fingerprint
        reworded += [
            replace(dismissal, id=fingerprint)
            for dismissal in dismissals
            if old.fingerprint.startswith(dismissal.id)
        ]
    return (*dismissals, *reworded)


def format_requests(requests: Iterable[ForgeRequest], base: str = "") -> str:
    """Return requests as text, one JSON object on each line; `base` is put before each path."""
    rows = [
        {"method": sent.method, "url": f"{base}{sent.path}", "body": sent.body} for sent in requests
    ]
    return "".join(json.dumps(row, sort_keys=True) + "\n" for row in rows)


def _check_same_pull_request(place: PullRequestRef, bundle: Bundle) -> PullRequestRef:
    """Return `place`, completed from the bundle; raise ConfigError if the pull requests differ.

    The pull requests differ if `place` and the bundle have different numbers or heads: an untrusted
    job may have written the bundle.
    """
    change = bundle.change
    if not place.forge and change.forge:
        place = replace(place, forge=change.forge)
    if not place.repo:
        place = replace(place, repo=change.repo)
    # The workflow_run event of a fork contains a head but no pull request number; `deliver` checks
    # that the pull request has this head.
    if place.number is None and (not place.event or place.head):
        place = replace(place, number=change.number)
    if change.number is not None and place.number is not None and place.number != change.number:
        raise ConfigError(
            f"the bundle belongs to pull request {change.number},"
            f" but the CI job runs for {place.number}; collect the change again"
        )
    if place.head and place.head != change.head_sha:
        raise ConfigError(
            f"the bundle belongs to head {change.head_sha[:12] or 'none'},"
            f" but the CI job runs for {place.head[:12]}; collect the change again"
        )
    return place
