"""Findings are delivered even if the summary of the model is unsound."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.checkouts import call as git
from fakes.forge import FakeForge

from glue.agents.review.change.collect import collect, from_texts
from glue.agents.review.change.config import Config
from glue.agents.review.delivery.publish import publish
from glue.agents.review.findings.model import review
from glue.agents.review.findings.tools import ReviewDraft
from glue.agents.review.records import Bundle, Finding, ReviewedChange, ReviewRun
from glue.testing import Reply, Script, call, calls, fail, say
from glue.tools.git import Repo

TEXT = "".join(f"def step_{n}(rows):\n    return rows[{n}]\n\n\n" for n in range(4))
REPORTED: tuple[dict[str, Any], ...] = tuple(
    {
        "path": "steps.py",
        "quote": f"    return rows[{n}]",
        "title": f"Step {n} fails for short lists",
        "body": f"`step_{n}` raises IndexError if `rows` has fewer than {n + 1} items.",
        "severity": "medium",
        "confidence": "high",
        "category": "bug",
    }
    for n in range(4)
)
GOOD = "Four steps were added. I read each of them."
BAD = {
    "no full stop": "Four steps were added. I read all of them and what they do with",
    "consider": "Consider the steps. I will look at the bounds of each of them.",
    "narration": "Let me check the files first.",
    "empty": "",
    "one word": "fine",
    "repeats": "rows rows rows rows rows rows rows rows rows",
    "open fence": "Four steps were added:\n```python\nreturn rows[0]",
    "json": '{"summary": "four steps", "ok": true}',
    "another change": (
        "Adds `frob_handler` to `quux/module.ts` and removes `zipper_lock` from `Zorp`."
    ),
    "control token": "<|im_start|>assistant Four steps were added.",
    "too long": "Four steps were added to the file, and each was read in full. " * 2_000,
}


def steps() -> Bundle:
    change = ReviewedChange(
        mode="pull_request", repo="octo/demo", number=1, head_sha="a" * 40, base_sha="b" * 40
    )
    return from_texts({}, {"steps.py": TEXT}, change)


@pytest.fixture
def forge() -> Iterator[FakeForge]:
    with FakeForge("github") as server:
        server.pull(steps().diff, head="a" * 40, base="b" * 40)
        yield server


def finish(text: str) -> Reply:
    return calls(call("finish_review", {"summary": text}))


REPORT = tuple(calls(call("report_finding", one)) for one in REPORTED)


@pytest.mark.parametrize("summary", BAD.values(), ids=BAD.keys())
async def test_findings_are_delivered_even_if_the_summary_is_unsound(
    forge: FakeForge, summary: str
) -> None:
    run = await review(steps(), providers=[Script(*REPORT, *[finish(summary)] * 3)])

    done = publish(steps(), run, forge.environ, sleep=lambda seconds: None)

    assert done.delivery is not None
    assert (done.verdict.exit_code, done.delivery.posted) == (0, 4)
    assert len(forge.pulls[1].inline) == 4
    assert "The change touches 1 file" in forge.pulls[1].comments[0]["body"]


async def test_model_is_told_why_its_summary_was_refused_and_can_correct_it(
    forge: FakeForge,
) -> None:
    script = Script(*REPORT, finish(BAD["no full stop"]), finish(GOOD))

    run = await review(steps(), providers=[script])

    assert "end it with a full stop" in script.requests[-1].messages[-1].text
    assert (run.summary, run.codes, run.finished) == (GOOD, (), True)


async def test_review_is_finished_if_the_model_stops_after_a_refused_summary() -> None:
    run = await review(steps(), providers=[Script(*REPORT, finish(BAD["repeats"]), say("Done."))])

    assert (len(run.findings), run.codes, run.finished) == (4, (), True)


async def test_findings_before_a_failure_are_posted_and_the_review_is_marked_as_cut_short(
    forge: FakeForge,
) -> None:
    run = await review(steps(), providers=[Script(*REPORT, fail("transient", "gone"))])

    done = publish(steps(), run, forge.environ, sleep=lambda seconds: None)

    assert (run.codes, run.finished) == ((), False)
    assert len(forge.pulls[1].inline) == 4
    assert done.verdict.exit_code == 3
    assert "cut short" in forge.pulls[1].comments[0]["body"]


@pytest.mark.parametrize(
    "reply", [[fail("auth", "no key")], [finish(BAD["repeats"])] * 3], ids=["outage", "garbage"]
)
async def test_findings_of_analysers_are_posted_if_every_model_fails(
    reply: list[Reply],
) -> None:
    text = (
        "def find(name, seen=[]):\n    seen.append(name)\n    return undefined_name(seen, name)\n"
    )
    change = ReviewedChange(
        mode="pull_request", repo="octo/demo", number=1, head_sha="a" * 40, base_sha="b" * 40
    )
    bundle = from_texts({}, {"find.py": text}, change)
    run = await review(bundle, providers=[Script(*reply)])

    with FakeForge("github") as forge:
        forge.pull(bundle.diff, head="a" * 40, base="b" * 40)
        done = publish(bundle, run, forge.environ, sleep=lambda seconds: None)

        assert done.verdict.exit_code == 3
        assert len(forge.pulls[1].inline) == 2
        assert "findings of analysers and rules" in forge.pulls[1].comments[0]["body"]


def test_findings_may_name_code_that_is_not_in_the_change(forge: FakeForge) -> None:
    words = {
        **REPORTED[0],
        "body": "`take_rows` and `normalise_rows` hand over lists of one; `step_0` then fails.",
    }
    draft = ReviewDraft(steps(), Config(), source="x")

    draft.report(Finding(**words, source="x"))

    run = ReviewRun(findings=tuple(draft.findings), provider="x", finished=True, summary=GOOD)
    assert len(publish(steps(), run, forge.environ, sleep=lambda s: None).report.items) == 1


async def test_summary_may_name_the_tests_and_callers_that_the_prompt_lists(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main", "--template=")
    (tmp_path / "steps.py").write_text("def walk(rows):\n    return rows\n")
    test = "def test_walking_far_away():\n    assert walk([]) == []\n"
    (tmp_path / "test_steps.py").write_text(test)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    git(tmp_path, "checkout", "-qb", "work")
    (tmp_path / "steps.py").write_text("def walk(rows):\n    return rows[:]\n")
    git(tmp_path, "commit", "-qam", "second")
    summary = "I read `test_walking_far_away`, and the change still passes it. Nothing was found."

    with Repo(tmp_path) as repo:
        script = Script(calls(call("finish_review", {"summary": summary})))
        run = await review(collect(tmp_path, base="main"), providers=[script], repo=repo)

    assert (run.summary, run.codes) == (summary, ())
