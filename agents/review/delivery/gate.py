"""The garbage gate: eight checks, in order, that stand between what a model said and what is posted.

1 channel, 2 transport, 3 evidence, 4 grounding, 5 degeneration, 6 echo, 7 caps, 8 the run. All are deterministic; every
refusal has a code of the form `check.reason`. A run-level code means: post nothing, and ask another provider.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from glue import StopReason
from glue.agents.review.delivery.clean import hidden
from glue.agents.review.delivery.secrets import guard
from glue.agents.review.findings.anchor import locate
from glue.agents.review.findings.dedupe import rank, unique
from glue.agents.review.findings.prose import context, grounded, on_topic, text_codes
from glue.agents.review.records import SEVERITIES, Bundle, Finding, ReviewRun

FINDINGS = 25  # posted
CONSIDERED = 250  # the worst of a run; nobody reads more
BODY = 1_500  # characters of one finding
SUMMARY = 20_000
TOTAL = 60_000  # bytes of everything posted
SOFT = frozenset(
    ("transport.cut", "transport.fence", "transport.short", "echo.narration", "caps.summary")
)  # style: says nothing of worth
_BAD_STOPS = (StopReason.MAX_TOKENS, StopReason.CONTEXT_WINDOW, StopReason.REFUSAL)


def judge(run: ReviewRun, bundle: Bundle, *, language: str = "en", examples: Sequence[str] = ()) -> ReviewRun:
    """Put a whole run through the gate: only what may be posted is left. Any run-level code means that nothing may."""
    shown = f"{context(bundle)}\n{' '.join(run.seen)}"
    kept: list[Finding] = []
    dropped = list(run.dropped)
    refused = said = 0
    for finding in sorted(run.findings, key=rank)[:CONSIDERED]:
        code = finding.dropped or finding_code(finding, bundle, shown=shown, language=language, examples=examples)
        said += not finding.rule
        if code:
            refused += not finding.rule
            dropped.append(replace(finding, dropped=code))
        else:
            kept.append(finding)
    findings, doubles = unique(kept)
    ordered = sorted(findings, key=rank)
    over = [replace(finding, dropped="caps.findings") for finding in ordered[FINDINGS:]]
    codes = [*run.codes, *_run_codes(run)]
    if (said and refused * 2 > said) or (run.dropped and not said and run.provider and not run.finished):
        codes.append("run.dropped")
    summary = run.summary
    unsound = _summary_faults(run, shown, language, examples)
    if unsound:
        # A sound finding is not lost for how the summary was written; the host writes it then.
        summary = host_summary(bundle, ordered)
        if said == refused and not set(unsound) <= SOFT:
            codes += unsound
    return replace(
        run,
        findings=tuple(ordered[:FINDINGS]),
        dropped=(*dropped, *doubles, *over),
        summary=summary[: 2 * SUMMARY],
        codes=tuple(dict.fromkeys(codes)),
    )


def host_summary(bundle: Bundle, findings: Sequence[Finding]) -> str:
    """Write the summary from the findings: the size of the change, and how many there are of each severity."""
    files = len(bundle.files)
    added = sum(len(file.added) for file in bundle.files)
    deleted = sum(len(file.deleted) for file in bundle.files)
    size = f"The change touches {files} {'file' if files == 1 else 'files'} (+{added}, -{deleted} lines)."
    counts = [(name, sum(one.severity == name for one in findings)) for name in SEVERITIES]
    found = ", ".join(f"{count} {name}" for name, count in counts if count)
    return f"{size} Found: {found}." if found else f"{size} Nothing was found."


def finding_code(
    finding: Finding, bundle: Bundle, *, shown: str = "", language: str = "en", examples: Sequence[str] = ()
) -> str:
    """Say why a finding must not be posted; the empty text where it may."""
    file = bundle.file(finding.path)
    if file is None:
        return "grounding.path"
    if not finding.rule:
        # In a hunk, deleted lines included, or in the rest of the file.
        place = locate(finding.quote, file.path, [file], bundle.head)
        if place is None or place.path != file.path:
            return "grounding.quote"
        if not grounded(f"{finding.title}\n{finding.body}", shown or context(bundle)):
            return "grounding.names"
    if len(finding.body) > 20 * BODY or len(finding.title) > 2_000:
        return "caps.body"
    if not finding.title.strip() or not finding.body.strip():
        return "transport.empty"
    if finding.rule:
        return ""
    text = f"{finding.title}\n\n{finding.body}"
    if hidden(text) > max(2, len(text) // 100):
        return "degenerate.characters"
    for part, whole in ((finding.body, True), (finding.title, False)):
        codes = text_codes(part, language=language, examples=examples, whole=whole)
        if grave := [code for code in codes if code not in SOFT]:
            return grave[0]
    return ""


def parse_reply(text: str) -> dict[str, Any] | None:
    """Read the one JSON object of a model without tools, with one attempt at repair; None where there is none."""
    for candidate in (text.strip(), re.sub(r",(\s*[}\]])", r"\1", text[max(0, text.find("{")) :])):
        try:
            data, _ = json.JSONDecoder().raw_decode(candidate)  # prose and fences may stand behind it
        except (ValueError, RecursionError):
            continue
        if isinstance(data, dict) and isinstance(data.get("findings"), list) and isinstance(data.get("summary"), str):
            return data
    return None


def summary_codes(text: str, shown: str = "", *, language: str = "en", examples: Sequence[str] = ()) -> tuple[str, ...]:
    """Say why a summary must not be posted."""
    codes = text_codes(text, language=language, examples=examples)
    if len(text.split()) < 3 and not codes:
        codes = ("transport.short",)
    if hidden(text) > max(2, len(text) // 100):
        codes = (*codes, "degenerate.characters")
    if shown and not codes and not on_topic(text, shown):
        codes = ("grounding.topic",)
    return tuple(dict.fromkeys(codes))


def _run_codes(run: ReviewRun) -> list[str]:
    codes: list[str] = []
    if run.canary:  # the token of the system prompt, in any encoding
        watch = guard({}, run.canary)
        codes += ["canary"] if any(watch.exact(text) for text in _texts(run)) else []
    if not run.provider:
        return codes
    spoke = any(not finding.rule for finding in run.findings)
    if run.stop_reason == StopReason.REFUSAL or (run.stop_reason in _BAD_STOPS and not spoke):
        codes.append(f"transport.{run.stop_reason}")
    if not run.finished and not spoke:
        codes.append("channel.nothing")
    return codes


def _summary_faults(run: ReviewRun, shown: str, language: str, examples: Sequence[str]) -> tuple[str, ...]:
    if not run.provider:
        return ()
    if len(run.summary) > 3 * SUMMARY:
        return ("caps.summary",)
    if run.summary.strip():
        return summary_codes(run.summary, shown, language=language, examples=examples)
    return ("transport.cut",)


def _texts(run: ReviewRun) -> Iterable[str]:
    most = 3 * SUMMARY  # what is longer is cut before it is shown
    yield run.summary[:most]
    for finding in run.findings[:CONSIDERED]:
        parts = (finding.path, finding.title, finding.body, finding.suggestion or "", finding.acceptance)
        yield "\n".join(part[:most] for part in parts)
    yield " ".join(finding.title for finding in run.findings)[:most]
