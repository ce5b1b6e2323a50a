"""Duplicates, and the second review of a change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fakes.review import FOUND, NEW, OLD, SUMMARY

from glue.agents.review import storage
from glue.agents.review.change.collect import from_texts
from glue.agents.review.findings.dedupe import EarlierReview, load, narrow
from glue.agents.review.findings.model import review
from glue.agents.review.records import Bundle, ReviewedChange, ReviewRun
from glue.errors import ConfigError
from glue.testing import Script, call, calls

MORE = "def tax(price):\n    return price * 0.2\n"
AGAIN = (
    "The change adds `tax`, a plain multiplication of the price. I"
    " looked at both lines of it and found nothing."
)


def bundle(sha: str, **after: str) -> Bundle:
    texts = {name.replace("_", "."): text for name, text in after.items()}
    return from_texts({"shop.py": OLD}, texts, ReviewedChange(title="Average", head_sha=sha * 40))


async def first() -> EarlierReview:
    script = Script(
        calls(call("report_finding", FOUND)), calls(call("finish_review", {"summary": SUMMARY}))
    )
    change = bundle("a", shop_py=NEW)
    return EarlierReview(change, await review(change, providers=[script]))


async def test_model_reads_only_new_hunks_and_earlier_findings_stay() -> None:
    earlier = await first()
    change = bundle("b", shop_py=NEW, tax_py=MORE)
    script = Script(calls(call("finish_review", {"summary": AGAIN})))

    run = await review(change, providers=[script], earlier=earlier)

    asked = script.requests[0].messages[0].text
    assert "return price * 0.2" in asked
    assert "sum(prices) / count" not in asked
    assert run.codes == ()
    assert [finding.title for finding in run.findings if finding.source != "rules"] == [
        FOUND["title"]
    ]
    assert run.coverage.complete
    states = {(entry.path, entry.reason) for entry in run.coverage.hunks}
    assert states == {("shop.py", "read at aaaaaaaaaaaa"), ("tax.py", "")}


async def test_earlier_finding_disappears_with_its_code() -> None:
    earlier = await first()
    mended = NEW.replace("/ count", "/ count if count else 0")
    script = Script(calls(call("finish_review", {"summary": SUMMARY})))

    run = await review(bundle("b", shop_py=mended), providers=[script], earlier=earlier)

    assert "if count else 0" in script.requests[0].messages[0].text
    assert [finding.title for finding in run.findings if finding.source != "rules"] == []


async def test_model_is_not_asked_without_new_hunks() -> None:
    earlier = await first()
    script = Script()

    run = await review(bundle("b", shop_py=NEW), providers=[script], earlier=earlier)

    assert script.requests == []
    assert [finding.title for finding in run.findings if finding.source != "rules"] == [
        FOUND["title"]
    ]
    assert run.coverage.complete


async def test_hunk_with_new_context_is_read_again() -> None:
    earlier = await first()
    above = "import os\n\n\n"
    moved = from_texts({"shop.py": above + OLD}, {"shop.py": above + NEW})

    assert narrow(bundle("b", shop_py=NEW), earlier).files == ()
    assert narrow(moved, earlier).files != ()  # the context differs, so the hunk is read again


@pytest.mark.parametrize(
    ("changes", "says"),
    [({"provider": ""}, "without a model"), ({"codes": ("x",)}, "inconclusive")],
)
async def test_earlier_review_without_a_result_of_a_model_is_refused(
    tmp_path: Path, changes: dict[str, object], says: str
) -> None:
    earlier = await first()
    storage.save(earlier.bundle, tmp_path / "bundle.json")
    storage.save(earlier.run, tmp_path / "findings.json")
    stored = load(tmp_path)
    assert stored is not None
    assert stored.run.provider == "script"

    storage.save(replace(earlier.run, **changes), tmp_path / "findings.json")  # type: ignore[arg-type]

    with pytest.raises(ConfigError, match=says):
        load(tmp_path)


def test_folder_without_a_review_has_no_earlier_review(tmp_path: Path) -> None:
    assert load(tmp_path / "previous") is None


def test_empty_earlier_review_has_read_no_hunks() -> None:
    change = bundle("a", shop_py=NEW)

    assert narrow(change, EarlierReview(change, ReviewRun())).files == change.files
