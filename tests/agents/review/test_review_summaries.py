"""What a model found is delivered whatever its summary looks like; only the unsound part of a reply is dropped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fakes.forge import FakeForge

from glue.agents.review.change.collect import from_texts
from glue.agents.review.change.config import Config
from glue.agents.review.delivery.clean import markdown
from glue.agents.review.delivery.publish import publish
from glue.agents.review.findings.gate import hidden, text_codes
from glue.agents.review.findings.model import review
from glue.agents.review.findings.tools import ReviewDraft
from glue.agents.review.records import Bundle, Finding, ReviewedChange, ReviewRun
from glue.errors import ToolError
from glue.testing import Reply, Script, call, calls, fail, say

TEXT = "".join(f"def step_{n}(rows):\n    return rows[{n}]\n\n\n" for n in range(4))
SAID: tuple[dict[str, Any], ...] = tuple(
    {"path": "steps.py", "quote": f"    return rows[{n}]", "title": f"Step {n} fails for short lists",
     "body": f"`step_{n}` raises IndexError where `rows` has fewer than {n + 1} items.", "severity": "medium",
     "confidence": "high", "category": "bug"} for n in range(4)
)  # fmt: skip
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
    "another change": "Adds `frob_handler` to `quux/module.ts` and removes `zipper_lock` from `Zorp`.",
    "control token": "<|im_start|>assistant Four steps were added.",
    "too long": "Four steps were added to the file, and each was read in full. " * 2_000,
}


def steps() -> Bundle:
    change = ReviewedChange(mode="pull_request", repo="octo/demo", number=1, head_sha="a" * 40, base_sha="b" * 40)
    return from_texts({}, {"steps.py": TEXT}, change)


@pytest.fixture
def forge() -> Iterator[FakeForge]:
    with FakeForge("github") as server:
        server.pull(steps().diff, head="a" * 40, base="b" * 40)
        yield server


def finish(text: str) -> Reply:
    return calls(call("finish_review", {"summary": text}))


REPORT = tuple(calls(call("report_finding", one)) for one in SAID)


@pytest.mark.parametrize("summary", BAD.values(), ids=BAD.keys())
async def test_every_finding_is_delivered_with_a_bad_summary(forge: FakeForge, summary: str) -> None:
    run = await review(steps(), providers=[Script(*REPORT, *[finish(summary)] * 3)])

    done = publish(steps(), run, forge.environ, sleep=lambda seconds: None)

    assert done.delivery is not None
    assert (done.verdict.exit_code, done.delivery.posted) == (0, 4)
    assert len(forge.pulls[1].inline) == 4
    assert "The change touches 1 file" in forge.pulls[1].comments[0]["body"]


async def test_what_is_wrong_with_a_summary_is_said_and_can_be_mended(forge: FakeForge) -> None:
    script = Script(*REPORT, finish(BAD["no full stop"]), finish(GOOD))

    run = await review(steps(), providers=[script])

    assert "end it with a full stop" in script.requests[-1].messages[-1].text
    assert (run.summary, run.codes, run.finished) == (GOOD, (), True)


async def test_a_model_that_stops_after_its_summary_was_refused_has_finished() -> None:
    run = await review(steps(), providers=[Script(*REPORT, finish(BAD["repeats"]), say("Done."))])

    assert (len(run.findings), run.codes, run.finished) == (4, (), True)


async def test_findings_before_a_failure_are_kept_and_the_review_is_said_to_be_cut_short(forge: FakeForge) -> None:
    run = await review(steps(), providers=[Script(*REPORT, fail("transient", "gone"))])

    done = publish(steps(), run, forge.environ, sleep=lambda seconds: None)

    assert (run.codes, run.finished) == ((), False)
    assert len(forge.pulls[1].inline) == 4
    assert done.verdict.exit_code == 3
    assert "cut short" in forge.pulls[1].comments[0]["body"]


@pytest.mark.parametrize("reply", [[fail("auth", "no key")], [finish(BAD["repeats"])] * 3], ids=["outage", "garbage"])
async def test_without_any_model_the_analysers_findings_are_delivered_and_marked(reply: list[Reply]) -> None:
    text = "def find(name, seen=[]):\n    seen.append(name)\n    return undefined_name(seen, name)\n"
    change = ReviewedChange(mode="pull_request", repo="octo/demo", number=1, head_sha="a" * 40, base_sha="b" * 40)
    bundle = from_texts({}, {"find.py": text}, change)
    run = await review(bundle, providers=[Script(*reply)])

    with FakeForge("github") as forge:
        forge.pull(bundle.diff, head="a" * 40, base="b" * 40)
        done = publish(bundle, run, forge.environ, sleep=lambda seconds: None)

        assert done.verdict.exit_code == 3
        assert len(forge.pulls[1].inline) == 2
        assert "findings of analysers and rules" in forge.pulls[1].comments[0]["body"]


def test_code_that_the_model_read_with_a_tool_is_ground_enough(forge: FakeForge) -> None:
    words = {**SAID[0], "body": "`take_rows` and `normalise_rows` hand over lists of one; `step_0` then fails."}
    finding = Finding(**words, source="x")
    draft = ReviewDraft(steps(), Config(), source="x")
    with pytest.raises(ToolError, match="do not occur in this change"):
        draft.report(finding)

    draft.read.append("def take_rows(rows):\n    return normalise_rows(rows)\n")
    draft.report(finding)
    assert draft.seen() == ("normalise_rows", "take_rows")
    run = ReviewRun(findings=tuple(draft.findings), provider="x", finished=True, summary=GOOD, seen=draft.seen())
    assert len(publish(steps(), run, forge.environ, sleep=lambda s: None).report.items) == 1


@pytest.mark.parametrize(
    "text",
    [
        "The `a` and the `b` are `c`, and the `d` is an `e`.",
        "`await` was removed in front of `save`: nobody waits for the `write`.",
    ],
)
def test_code_spans_are_words_of_a_sentence(text: str) -> None:
    assert text_codes(text) == ()


def test_khmer_text_is_text() -> None:
    text = (
        "មុខងារ\u200bនេះ\u200bមិន\u200bពិនិត្យ\u200bបញ្ជី\u200bទទេ\u200bទេ។ វា\u200bនឹង\u200bបរាជ័យ\u200bនៅ\u200bពេល\u200bនោះ។"
    )

    assert text_codes(text, language="km") == ()
    assert hidden(text) == 0
    assert hidden("ig\u200bnore") == 1


def test_a_decorator_in_a_code_span_stays_as_it_is() -> None:
    assert markdown("The route `@app.route` and `@pytest.mark.skip` and `@dataclass`.") == (
        "The route `@app.route` and `@pytest.mark.skip` and `@dataclass`."
    )
    assert "@octocat" not in markdown("`@octocat` said so, and @octocat too.")


def test_a_finding_is_not_lost_for_its_style() -> None:
    from glue.agents.review.findings.gate import finding_code

    finding = Finding(
        path="steps.py", quote="    return rows[0]", title="Fails", body="Let me check: I will look at `rows`"
    )

    assert finding_code(finding, steps()) == ""
