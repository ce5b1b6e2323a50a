"""The second look: findings are refuted, corrected, regraded and merged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.checkouts import call as git
from fakes.review import FOUND, NEW, OLD, SUMMARY
from syrupy.assertion import SnapshotAssertion

from glue.agents.review import runfile
from glue.agents.review.change.collect import collect, from_texts
from glue.agents.review.change.config import Config
from glue.agents.review.delivery import outputs
from glue.agents.review.delivery.publish import publish
from glue.agents.review.findings.model import review
from glue.agents.review.findings.secondlook import (
    INTENDED,
    Judgement,
    is_checked,
    judge_tool,
    named_code,
)
from glue.agents.review.records import Bundle, Finding, ReviewedChange, ReviewRun
from glue.testing import Reply, Script, call, calls, fail, say
from glue.tools.git import Repo

DONE = calls(call("finish_review", {"summary": SUMMARY}))
REPORT = calls(call("report_finding", FOUND))
OTHER = FOUND | {
    "quote": "count = len(prices)",
    "title": "Generators are refused",
    "body": "A generator has no length, so `len` raises TypeError for a lazy list of prices.",
}


def judged(verdict: str = "stands", **more: Any) -> Reply:
    reason = "`total([])` shows it."
    return calls(call("judge_finding", {"verdict": verdict, "reason": reason, **more}))


def shop() -> Bundle:
    change = ReviewedChange(title="Average", body="Return the mean of the prices.")
    return from_texts({"shop.py": OLD}, {"shop.py": NEW}, change)


async def looked(*replies: Any, **options: Any) -> tuple[ReviewRun, Script]:
    script = Script(*replies)
    settings: dict[str, Any] = {"second_look": "auto"} | options
    return await review(shop(), providers=[script], **settings), script


async def test_refuted_finding_is_in_the_record_and_is_not_posted() -> None:
    run, _ = await looked(REPORT, DONE, judged("refuted"))

    assert run.findings == ()
    assert [(one.title, one.dropped) for one in run.dropped] == [
        (FOUND["title"], "second-look.refuted")
    ]
    done = publish(shop(), run, {}, post=False)
    assert (done.verdict.exit_code, done.report.clean, done.report.codes) == (0, True, ())
    assert f"refuted: shop.py:3: {FOUND['title']}" in outputs.terminal(done.report)
    assert "refuted by the second look" in outputs.summary(done.report)
    assert "Nothing was found." in done.report.summary


async def test_details_and_severity_are_corrected() -> None:
    body = "With an empty list `count` is 0, so `total` raises ZeroDivisionError instead of 0."
    run, _ = await looked(REPORT, DONE, judged(correction=body, severity="medium"))

    (finding,) = run.findings
    assert (finding.body, finding.severity) == (body, "medium")
    look = run.second_look
    assert (look.checked, look.corrected, look.regraded, look.refuted) == (1, 1, 1, 0)


async def test_correction_that_the_gate_refuses_is_ignored() -> None:
    run, _ = await looked(REPORT, DONE, judged(correction="word " * 400))

    assert run.findings[0].body == FOUND["body"]
    assert run.second_look.corrected == 0


async def test_finding_that_the_description_announces_is_posted_with_a_remark() -> None:
    run, _ = await looked(REPORT, DONE, judged("intended"))

    assert [finding.note for finding in run.findings] == [INTENDED]


async def test_findings_of_one_cause_are_merged() -> None:
    report = calls(call("report_finding", FOUND), call("report_finding", OTHER))
    run, _ = await looked(report, DONE, judged(), judged(same_cause_as=1))

    (finding,) = run.findings
    assert "The same cause at shop.py:" in finding.body
    assert run.second_look.merged == 1
    assert publish(shop(), run, {}, post=False).report.codes == ()


async def test_two_findings_that_name_each_other_are_not_both_lost() -> None:
    report = calls(call("report_finding", FOUND), call("report_finding", OTHER))
    run, _ = await looked(report, DONE, judged(same_cause_as=2), judged(same_cause_as=1))

    assert len(run.findings) == 1


@pytest.mark.parametrize("answer", [say("It is fine."), fail("overloaded")])
async def test_finding_stands_if_its_check_fails(answer: Any) -> None:
    run, _ = await looked(REPORT, DONE, answer, answer)

    assert [finding.title for finding in run.findings] == [FOUND["title"]]
    assert (run.codes, run.second_look.failed) == ((), 1)
    notices = publish(shop(), run, {}, post=False).report.notices
    assert "The second look could not check 1 finding." in notices


@pytest.mark.parametrize(
    ("mode", "severity", "requests"),
    [
        ("never", "high", 2),
        ("auto", "high", 3),
        ("auto", "medium", 3),
        ("auto", "low", 2),
        ("always", "low", 3),
    ],
)
async def test_mode_decides_which_findings_are_checked(
    mode: str, severity: str, requests: int
) -> None:
    report = calls(call("report_finding", FOUND | {"severity": severity}))
    _, script = await looked(report, DONE, judged(), second_look=mode)

    assert len(script.requests) == requests


async def test_attacks_are_not_checked() -> None:
    report = calls(call("report_finding", FOUND | {"category": "attack"}))
    run, script = await looked(report, DONE, judged("refuted"), second_look="always")

    assert len(script.requests) == 2
    assert len(run.findings) == 1


async def test_finding_is_refuted_only_if_all_samples_agree() -> None:
    config = Config(samples=2)
    kept, _ = await looked(REPORT, DONE, judged("refuted"), judged("stands"), config=config)
    gone, _ = await looked(REPORT, DONE, judged("refuted"), judged("refuted"), config=config)

    assert (len(kept.findings), len(gone.findings)) == (1, 0)


async def test_check_cannot_report_and_does_not_see_the_discussion() -> None:
    _, script = await looked(REPORT, DONE, judged())

    names = {tool.name for tool in script.requests[-1].tools}
    assert names == {"read_file", "grep", "judge_finding"}


def test_code_that_a_finding_names_is_fetched(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main", "--template=")
    (tmp_path / "shop.py").write_text(OLD)
    (tmp_path / "tests").mkdir()
    test = "def test_empty():\n    assert total([]) == 0\n\n\ndef test_other():\n    pass\n"
    (tmp_path / "tests" / "test_shop.py").write_text(test)
    (tmp_path / "CHANGELOG.md").write_text("- `total` accepts an empty list\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    git(tmp_path, "checkout", "-qb", "work")
    (tmp_path / "shop.py").write_text(NEW)
    git(tmp_path, "commit", "-qam", "second")
    body = "`total([])` raises; `test_empty` in tests/test_shop.py expects 0."
    finding = Finding(path="shop.py", quote="count = len(prices)", title="x", body=body)

    with Repo(tmp_path) as repo:
        parts = named_code(finding, collect(tmp_path, base="main"), repo)

    assert parts == [
        "tests/test_shop.py, lines 1-2:\ndef test_empty():\n    assert total([]) == 0",
        "CHANGELOG.md:1: - `total` accepts an empty list",
    ]


async def test_recorded_second_look_is_replayed(tmp_path: Path) -> None:
    record = runfile.RunFile("seed", shop())
    await looked(REPORT, DONE, judged("refuted"), record=record)
    record.save(tmp_path / "run.jsonl")
    old = runfile.load(tmp_path / "run.jsonl")

    again = await review(
        old.bundle,
        providers=old.replays(),
        record=old,
        replay=True,
        second_look=old.second_look,
    )

    assert old.result is not None
    assert runfile.differences(old.result, again) == []
    assert [one.dropped for one in again.dropped] == ["second-look.refuted"]


async def test_texts_of_a_check(snapshot: SnapshotAssertion) -> None:
    report = calls(call("report_finding", FOUND), call("report_finding", OTHER))
    _, script = await looked(report, DONE, judged(), judged())
    request = script.requests[2]
    marks = {part[:24] for part in request.messages[0].text.split("from <")[1:]}
    text = request.messages[0].text
    for mark in marks:
        text = text.replace(mark, "RANDOM-MARK")
    spec = judge_tool(Judgement()).spec

    assert (text, request.system.partition("Internal marker")[0]) == snapshot
    assert (spec.description, spec.parameters) == snapshot


def test_carried_findings_are_not_checked_again() -> None:
    finding = Finding(path="shop.py", quote="x", title="x", body="x", severity="high")

    assert is_checked(finding, "auto")
    assert not is_checked(replace(finding, since="abc"), "always")


async def test_summary_that_is_sent_back_costs_no_check() -> None:
    refused = calls(call("finish_review", {"summary": "test body"}))

    run, _ = await looked(REPORT, refused, DONE, judged(severity="low"))

    assert [finding.severity for finding in run.findings] == ["low"]
    assert run.second_look.checked == 1


async def test_reason_of_a_refutation_is_kept_up_to_500_characters() -> None:
    long = calls(call("judge_finding", {"verdict": "refuted", "reason": "x" * 600}))

    run, script = await looked(REPORT, DONE, long)

    assert [one.note for one in run.dropped] == ["x" * 500]
    assert "Other findings of this review:" not in script.requests[-1].messages[0].text
