"""Duplicates, and the second review of a change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.review import FOUND, NEW, OLD, SUMMARY

from glue.agents.review import storage
from glue.agents.review.change.collect import from_texts
from glue.agents.review.findings.dedupe import (
    Dismissal,
    EarlierReview,
    PostedFinding,
    carried,
    covers,
    dismissals,
    dismissed,
    is_duplicate,
    joined,
    load,
    match,
    narrow,
    quote_key,
    says_the_same,
    unique,
)
from glue.agents.review.findings.model import review
from glue.agents.review.records import (
    Bundle,
    ChangeCommit,
    Coverage,
    Finding,
    ReviewedChange,
    ReviewRun,
)
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


FRUIT = "apple banana cherry damson elder grape hazel jujube kiwi lemon mango nutmeg".split()


def about(*words: str, title: str = "Aa", **more: Any) -> Finding:
    """Return a finding whose text consists of these words; a short title does not count."""
    details: dict[str, Any] = {"path": "a.py", "quote": "", "line": 5}
    return Finding(title=title, body=" ".join(words), **{**details, **more})


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (FRUIT[:6], [*FRUIT[:3], *FRUIT[6:9]], True),  # three of six words
        (FRUIT[:7], [*FRUIT[:3], *FRUIT[7:11]], False),  # three of seven
        (FRUIT[:4], [*FRUIT[:2], *FRUIT[6:8]], False),  # two of four are too few
        (FRUIT[:3], FRUIT, True),  # the share of the shorter text counts
        (FRUIT[:3], ["Apples", "BANANA", "cherried", *FRUIT[3:]], False),
        (FRUIT[:3], ["Apples", "BANANA", "theCherry"], True),
        ([], [], False),
    ],
)
def test_texts_with_common_words_say_the_same(
    first: list[str], second: list[str], same: bool
) -> None:
    one, other = about(*first), about(*second, title="Bb")

    assert says_the_same(one, other) is same
    assert says_the_same(other, one) is same


@pytest.mark.parametrize(
    ("title", "same"),
    [("Aa Bb", True), ("Aa Bb Dd", True), ("Aa Bb Dd Ee", False), ("AA bb!", True), ("", False)],
)
def test_titles_with_half_of_their_words_in_common_say_the_same(title: str, same: bool) -> None:
    assert says_the_same(about(title="Aa Bb Cc"), about(title=title)) is same


SAME = about(*FRUIT[:6])


@pytest.mark.parametrize(
    ("changes", "double"),
    [
        ({}, True),
        ({"path": "b.py"}, False),
        ({"line": 6}, False),
        ({"start_line": 5, "line": 7}, True),
        ({"start_line": 2, "line": 4}, False),
        ({"start_line": 3, "line": 5}, True),
        ({"line": None}, False),
        ({"claimed": 6}, True),  # only one of them names a line
    ],
)
def test_findings_of_one_place_in_similar_words_are_duplicates(
    changes: dict[str, Any], double: bool
) -> None:
    other = replace(SAME, title="Bb", **changes)

    assert is_duplicate(SAME, other) is double
    assert is_duplicate(other, SAME) is double


def test_findings_outside_the_hunks_are_duplicates_if_they_name_one_line() -> None:
    listed = replace(SAME, line=None, claimed=40)

    assert is_duplicate(listed, replace(listed, title="Bb"))
    assert not is_duplicate(listed, replace(listed, title="Bb", claimed=41))


@pytest.mark.parametrize(("common", "double"), [(8, False), (9, True)])
def test_findings_that_name_different_lines_need_more_common_words(
    common: int, double: bool
) -> None:
    one = about(*FRUIT, claimed=5)
    rest = ["onion", "pepper", "quince", "radish"][: 12 - common]

    other = about(*FRUIT[:common], *rest, title="Bb", claimed=6)

    assert is_duplicate(one, other) is double
    assert is_duplicate(one, replace(other, claimed=5))


@pytest.mark.parametrize(
    ("one", "other", "double"),
    [
        ({"source": "x", "rule": "x/1"}, {"source": "x", "rule": "x/1"}, True),
        ({"source": "x", "rule": "x/1"}, {"source": "x", "rule": "x/2"}, False),
        ({"source": "x", "rule": "x/1"}, {"source": "y", "rule": "y/1"}, True),
        ({"source": "rules", "rule": "r"}, {"source": "y", "rule": "y/1"}, False),
        ({"source": "x", "rule": "x/1"}, {"source": "x", "rule": "x/1", "start_line": 5, "line": 6},
         False),
        ({"source": "x", "rule": "x/1"}, {"source": "y", "rule": "y/1", "start_line": 5, "line": 6},
         False),
        ({"source": "x", "rule": "x/1"},
         {"source": "y", "rule": "y/1", "start_line": 5, "line": 6, "title": "Aa"}, True),
    ],
)  # fmt: skip
def test_findings_of_tools_are_compared_by_rule_and_line(
    one: dict[str, Any], other: dict[str, Any], double: bool
) -> None:
    first, second = about("apple", **one), about("banana", **{"title": "Bb", **other})

    assert is_duplicate(first, second) is double
    assert is_duplicate(second, first) is double


@pytest.mark.parametrize(
    ("changes", "double"),
    [({}, True), ({"category": "style"}, False), ({"start_line": 5, "line": 6}, False)],
)
def test_few_common_words_are_enough_beside_a_rule_of_the_same_category(
    changes: dict[str, Any], double: bool
) -> None:
    rule = about(*FRUIT, rule="x", source="x")
    words = [*FRUIT[:3], *(f"{letter * 4}" for letter in "bcdfghjkm")]

    model = about(*words, title="Bb", **changes)

    assert is_duplicate(rule, model) is double


def test_distinct_findings_get_fingerprints_in_the_order_of_lines() -> None:
    one = about("apple", quote="x = 1", line=9)
    again = about("banana", title="Bb", quote="x  =  1", line=3)
    rule = about("cherry", title="Cc", quote="y = 2", rule="x", source="x", severity="info", line=7)
    double = replace(rule, rule="", source="", severity="critical")

    kept, dropped = unique([one, double, again, rule])

    marks = {finding.line: finding.fingerprint for finding in kept}
    assert set(marks) == {3, 7, 9}
    assert marks[9] == f"{marks[3]}-2"
    assert [(finding.severity, finding.dropped) for finding in dropped] == [
        ("critical", "duplicate")
    ]
    (moved,) = unique([replace(again, path="b.py", line=30)])[0]
    assert moved.fingerprint == marks[3]
    (styled,) = unique([replace(again, category="style")])[0]
    assert styled.fingerprint != marks[3]


@pytest.mark.parametrize(
    ("changes", "covered"),
    [
        ({"line": None}, False),
        ({"line": None, "claimed": 3}, False),
        ({"line": None, "claimed": 4}, True),
        ({"line": None, "claimed": 8}, True),
        ({"line": None, "claimed": 9}, False),
        ({"line": 8, "claimed": 40}, True),
        ({"line": None, "claimed": 5, "path": "b.py"}, False),
        ({"line": None, "quote": "x = load( 1 )"}, True),
        ({"line": None, "quote": "load( 1 )"}, True),
        ({"line": None, "quote": "call(2)"}, False),
    ],
)
def test_finding_covers_a_refused_one_of_the_same_code_or_a_near_line(
    changes: dict[str, Any], covered: bool
) -> None:
    found = about("apple", start_line=5, line=7, quote="x = load( 1 )")
    refused = about("banana", **{"title": "Bb", "quote": "", **changes})

    assert covers(found, refused) is covered


@pytest.mark.parametrize("text", ["apple", "wrong"])
def test_finding_in_similar_words_covers_a_refused_one_in_any_file(text: str) -> None:
    refused = about(*FRUIT[:6], title="Bb", path="b.py", line=None)

    assert covers(about(*FRUIT[:6]), refused)


def test_binding_dismissals_come_first_and_apply_to_everything() -> None:
    finding = about("apple", fingerprint="0123456789abcdef")
    author = Dismissal(id="01234567", reason="mine", binding=False)
    team = Dismissal(id="0123456789abcdef", reason="ours")
    other = Dismissal(id="fedcba98")

    assert dismissed(finding, [author, team]) == team
    assert dismissed(finding, [other, author]) == author
    assert dismissed(finding, [other]) is None
    for grave in (replace(finding, category="attack"), replace(finding, rule="committed-secret")):
        assert dismissed(grave, [author]) is None
        assert dismissed(grave, [author, team]) == team


def test_dismissals_are_read_from_the_base_and_from_commits() -> None:
    rows = "0123456789abcdef right a.py: Good\nfedcba9876543210 wrong b.py: Bad\n- All of it\n"
    commit = ChangeCommit(
        sha="1" * 40, message="Fix\n\nReview-Dismiss: 89ABCDEF kept", author="ann"
    )
    change = ReviewedChange(commits=(commit,))

    found = dismissals(Bundle(change=change, guidelines={".glue/dismissed": rows}))

    assert found == (
        Dismissal(id="fedcba9876543210", reason="b.py: Bad", by="the repository"),
        Dismissal(id="89abcdef", reason="kept", by="ann", binding=False),
    )


def posted(**changes: Any) -> PostedFinding:
    details: dict[str, Any] = {"fingerprint": "f", "path": "a.py", "comment": 1, "line": 5}
    return PostedFinding(**{**details, "text": " ".join(FRUIT), **changes})


FOUND_HERE = about(*FRUIT, quote="x = 1", fingerprint="f")


@pytest.mark.parametrize(
    ("finding", "old", "is_same"),
    [
        ({}, {}, True),
        ({}, {"text": ""}, True),
        ({}, {"text": "onion pepper quince"}, False),  # the same code, but other words
        ({"rule": "r"}, {"text": "onion pepper quince"}, True),
        ({}, {"line": 400}, True),  # the same code at another place
        ({"fingerprint": "f-2"}, {}, True),
        ({"fingerprint": "f-2"}, {"line": 8}, True),
        ({"fingerprint": "f-2", "rule": "r"}, {"line": 9}, False),
        ({"fingerprint": "f-2"}, {"line": 2}, True),
        ({"fingerprint": "f-2", "rule": "r"}, {"line": 1}, False),
        ({"fingerprint": "g"}, {}, True),  # a near line in similar words
        ({"fingerprint": "g"}, {"line": 9}, False),
        ({"fingerprint": "g"}, {"by_model": False}, False),
        ({"fingerprint": "g"}, {"text": "apple banana cherry pepper onion quince radish salt turnip"
                                        " vanilla"}, True),  # three of ten words
        ({"fingerprint": "g"}, {"text": "apple banana pepper onion quince radish salt turnip"
                                        " vanilla walnut"}, False),  # two of ten
        ({"fingerprint": "g", "rule": "r"}, {}, False),
        ({"fingerprint": "g"}, {"line": None}, False),
        ({"fingerprint": "g"}, {"line": None, "quote": quote_key(FOUND_HERE)}, True),
        ({"fingerprint": "g"}, {"path": "b.py"}, False),
        ({}, {"path": "gone.py"}, True),  # a file that is not in the change any more
    ],
)  # fmt: skip
def test_finding_is_matched_with_the_comment_on_it(
    finding: dict[str, Any], old: dict[str, Any], is_same: bool
) -> None:
    change = from_texts({}, {"a.py": "x = 1\n", "b.py": "y = 1\n"})

    found = match([replace(FOUND_HERE, **finding)], [posted(**old)], change)

    assert bool(found) is is_same


def test_each_comment_is_used_for_the_finding_that_fits_best() -> None:
    change = from_texts({}, {"a.py": "x = 1\n"})
    near = replace(FOUND_HERE, fingerprint="g")
    exact, other = posted(comment=1), posted(comment=2, fingerprint="h")

    found = match([near, FOUND_HERE], [exact, other], change)

    assert {at: old.comment for at, old in found.items()} == {0: 2, 1: 1}
    assert list(match([near, FOUND_HERE], [exact], change)) == [1]


OTHER_WORDS = {"text": "apple banana cherry damson onion"}


@pytest.mark.parametrize(
    ("finding", "both", "worse"),
    [
        ({}, {}, OTHER_WORDS),
        ({}, {}, {"line": 400}),
        ({"fingerprint": "f-2"}, {}, OTHER_WORDS),
        ({"fingerprint": "g"}, {}, OTHER_WORDS),
        ({"fingerprint": "g"}, {"quote": quote_key(FOUND_HERE)}, OTHER_WORDS),
    ],
)
def test_of_two_comments_the_nearer_and_more_similar_one_is_used(
    finding: dict[str, Any], both: dict[str, Any], worse: dict[str, Any]
) -> None:
    change = from_texts({}, {"a.py": "x = 1\n"})
    old = [posted(**both, **worse), posted(**both, comment=2)]

    found = match([replace(FOUND_HERE, **finding)], old, change)

    assert found[0].comment == 2


async def test_earlier_findings_are_carried_with_the_head_that_they_were_found_at() -> None:
    earlier = await first()
    change = bundle("b", shop_py=NEW, tax_py=MORE)

    (kept,) = carried(change, earlier)
    older = replace(earlier, run=replace(earlier.run, findings=(replace(kept, since="000"),)))
    unnamed = replace(earlier, bundle=replace(earlier.bundle, change=ReviewedChange()))

    assert (kept.since, kept.line) == ("a" * 12, 3)
    assert [finding.since for finding in carried(change, older)] == ["000"]
    assert [finding.since for finding in carried(change, unnamed)] == ["an earlier head"]
    (entry,) = joined(bundle("b", shop_py=NEW), unnamed, Coverage()).hunks
    assert (entry.path, entry.hunk, entry.state) == ("shop.py", 1, "full")
    assert (entry.reason, entry.lines) == ("read at an earlier head", 4)
