"""Publish a saved review: gate, redact, dedupe, anchor, render, post. No model; the write token only.

What another job wrote is read strictly and believed in nothing: lines are computed again, texts are cleaned again, and
the pull request must be the one the event speaks of.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from glue.agents.review import clean, commands, verdict
from glue.agents.review.checks import post_check
from glue.agents.review.dedupe import Dismissal
from glue.agents.review.deliver import Delivery, deliver
from glue.agents.review.forges.base import Forge
from glue.agents.review.forges.client import ForgeError, Sent
from glue.agents.review.forges.detect import Where, open_forge, where
from glue.agents.review.forges.github import GitHub
from glue.agents.review.model import Bundle, ReviewRun, Severity
from glue.agents.review.report import Report, build
from glue.agents.review.secrets import Guard, guard, mask
from glue.agents.review.verdict import Verdict
from glue.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What publish came to: the report, what was posted or would have been, and the verdict."""

    report: Report
    verdict: Verdict
    delivery: Delivery | None = None
    requests: tuple[Sent, ...] = ()


def publish(
    bundle: Bundle,
    run: ReviewRun,
    environ: Mapping[str, str],
    *,
    place: Where | None = None,
    post: bool = True,
    dry: bool = False,
    blind: bool = False,
    fail_on: Severity | None = "high",
    require_coverage: float | None = None,
    language: str = "en",
    bot: int | None = None,
    given: Iterable[Dismissal] = (),
    quiet: bool = True,
    check: bool = False,
    sleep: Callable[[float], None] | None = None,
) -> Published:
    """Gate a review and post it. `dry` sends no change and keeps the exact requests; `blind` does not even look.

    With `check`, GitHub also gets a check run with annotations; its token then needs `checks: write`.
    """
    secrets = known_secrets(environ, run)
    delivery: Delivery | None = None
    requests: tuple[Sent, ...] = ()
    forge: Forge | None = None
    report = build(bundle, run, secrets, given=given, language=language)
    if post:
        forge = open_forge(
            _same(place or where(environ), bundle),
            environ,
            head=bundle.change.head_sha,
            base=bundle.change.base_sha,
            dry=dry,
            blind=blind,
            bot=bot,
            check=secrets_out(secrets),
            sleep=sleep,
        )
        said, problem = _ledger(forge) if report.items and not report.codes else ((), "")
        if said:
            report = build(bundle, run, secrets, given=(*given, *said), language=language)
        delivery = Delivery(problem=problem) if problem else deliver(forge, report, bundle, quiet=quiet)
        delivery.problem = clean.line(secrets.redact(delivery.problem))
    outcome = verdict.decide(
        (*report.findings, *(item.finding for item, mark in report.dismissed if not mark.binding)),
        report.coverage,
        codes=report.codes,
        finished=report.finished,
        fail_on=fail_on,
        require_coverage=require_coverage,
        delivered=None if delivery is None else delivery.delivered,
        undelivered=delivery.problem if delivery else "",
    )
    if forge is not None and delivery is not None:
        if check and delivery.delivered and not report.codes and isinstance(forge, GitHub):
            delivery.problem = clean.line(secrets.redact(post_check(forge, report, outcome)))
            outcome = replace(outcome, delivered=delivery.delivered)
        requests = tuple(forge.client.log)
    return Published(report=report, verdict=outcome, delivery=delivery, requests=requests)


def _ledger(forge: Forge) -> tuple[tuple[Dismissal, ...], str]:
    """Read what was dismissed in comments; without it nothing is posted, or a dismissed finding would come back."""
    try:
        remarks = [remark for remark in forge.remarks() if "/ignore" in remark.body or "/glue" in remark.body]
        return commands.dismissals(remarks, forge.known(), forge.permission) if remarks else (), ""
    except ForgeError as error:
        return (), str(error)


def known_secrets(environ: Mapping[str, str], run: ReviewRun | None = None) -> Guard:
    """Everything that must not leave: this process's secrets, and the canary of the prompt."""
    return guard(environ, {"canary": run.canary} if run and run.canary else None)


def secrets_out(secrets: Guard) -> Callable[[str], str]:
    """Look at every outbound text once more, for exact values; they were redacted before, so this changes nothing."""

    def check(text: str) -> str:
        return mask(text, secrets.exact(text))

    return check


def shown(requests: Iterable[Sent], base: str = "") -> str:
    """Write requests as they would leave, one JSON object a line."""
    rows = [{"method": sent.method, "url": f"{base}{sent.path}", "body": sent.body} for sent in requests]
    return "".join(json.dumps(row, sort_keys=True) + "\n" for row in rows)


def _same(place: Where, bundle: Bundle) -> Where:
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
