"""Memory: decisions of the repository on earlier findings."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes.review import FOUND, NEW, OLD, SUMMARY
from syrupy.assertion import SnapshotAssertion

from glue.agents.review.change.collect import from_texts
from glue.agents.review.delivery.publish import publish
from glue.agents.review.findings import memory
from glue.agents.review.findings.model import review
from glue.agents.review.records import Bundle, Finding
from glue.testing import Script, call, calls

MEMORY = """\
# Decisions
1234567890abcdef wrong shop.py: Division by zero: callers check the list
fedcba0987654321 the old form, without a label
aaaabbbbccccdddd right net.py: Timeout is missing
- Missing log lines are never reported.
"""
FINDING = Finding(path="shop.py", quote="x", title="Wrong\nsum", body="b", fingerprint="abcd" * 4)


def shop(text: str = MEMORY) -> Bundle:
    bundle = from_texts({"shop.py": OLD}, {"shop.py": NEW})
    return replace(bundle, guidelines={".glue/dismissed": text})


def test_lines_are_read_with_and_without_label_and_id() -> None:
    found = [(one.id[:4], one.label, one.text) for one in memory.decisions(shop())]

    assert found == [
        ("1234", "wrong", "shop.py: Division by zero: callers check the list"),
        ("fedc", "wrong", "the old form, without a label"),
        ("aaaa", "right", "net.py: Timeout is missing"),
        ("", "wrong", "Missing log lines are never reported."),
    ]


def test_section_of_the_prompt(snapshot: SnapshotAssertion) -> None:
    assert memory.section(shop()) == snapshot
    assert memory.section(shop("")) == ""


def test_section_keeps_the_newest_decisions_if_there_are_too_many() -> None:
    rows = "".join(f"- decision number {n} of many\n" for n in range(2_000))
    text = memory.section(shop(rows))

    assert len(text) < memory.MAX_PROMPT + 1_000
    assert "number 1999 " in text
    assert "number 0 " not in text


async def test_model_and_second_look_see_the_decisions() -> None:
    reason = {"verdict": "dismissed", "reason": "The decision on Division by zero covers it."}
    script = Script(
        calls(call("report_finding", FOUND)),
        calls(call("finish_review", {"summary": SUMMARY})),
        calls(call("judge_finding", reason)),
    )

    run = await review(shop(), providers=[script], second_look="auto")

    for request in (script.requests[0], script.requests[-1]):
        assert "wrong: shop.py: Division by zero: callers check the list" in request.system
        assert "Guidelines from .glue/dismissed" not in request.system
    assert [one.dropped for one in run.dropped] == ["second-look.dismissed"]
    assert publish(shop(), run, {}, post=False).verdict.exit_code == 0


async def test_right_finding_is_not_dismissed() -> None:
    script = Script(
        calls(call("report_finding", FOUND)), calls(call("finish_review", {"summary": SUMMARY}))
    )
    run = await review(shop(), providers=[script])
    first = publish(shop(), run, {}, post=False).report.items[0].finding

    for label, shown in (("right", 1), ("wrong", 0), ("arguable", 0)):
        line = memory.line(first, label, "because")  # type: ignore[arg-type]
        report = publish(shop(line), run, {}, post=False).report
        assert (len(report.items), len(report.dismissed)) == (shown, 1 - shown)


@pytest.mark.parametrize("row", ["ABCDABCDABCDABCD: wrong", "  abcdabcdabcdabcd\twrong"])
def test_new_decision_replaces_old_ones_in_every_form_that_is_read(row: str) -> None:
    text = memory.added(f"# Decisions\n{row}", memory.line(FINDING, "right", "a bug"))

    assert text == "# Decisions\nabcdabcdabcdabcd right shop.py: Wrong sum: a bug\n"
    assert memory.added("no id", "x\n") == "no id\nx\n"


def test_new_decision_replaces_the_old_one_on_the_same_finding() -> None:
    one = memory.line(FINDING, "wrong", "it is meant")
    other = memory.line(replace(FINDING, fingerprint="0123" * 4), "right", "")
    text = memory.added(memory.added("", one), other)

    again = memory.added(text, memory.line(FINDING, "right", "it was a bug"))

    assert one == "abcdabcdabcdabcd wrong shop.py: Wrong sum: it is meant\n"
    assert again.startswith("# Decisions on findings")
    assert again.splitlines()[1:] == [
        "0123012301230123 right shop.py: Wrong sum",
        "abcdabcdabcdabcd right shop.py: Wrong sum: it was a bug",
    ]


@pytest.mark.parametrize(("size", "shown"), [(8_000, 2), (8_001, 1)])
def test_oldest_decisions_are_left_out_if_all_are_too_long(size: int, shown: int) -> None:
    first, second = "- first", "- second " + "x" * (size - len("- wrong: first- wrong: second "))

    text = memory.section(shop(f"{first}\n{second}\n"))

    assert ("first" in text) == (shown == 2)
    assert "second xxx" in text


def test_line_has_no_invisible_characters() -> None:
    finding = replace(FINDING, path="shop\u202e.py", title="Wrong")

    assert memory.line(finding, "wrong", "") == f"{'abcd' * 4} wrong shop.py: Wrong\n"
