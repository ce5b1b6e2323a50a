"""Chunks of a diff and the coverage of its hunks."""

from __future__ import annotations

from glue.agents.review.change.chunk import chunks, coverage
from glue.agents.review.change.collect import from_texts
from glue.agents.review.records import Bundle, SkippedFile


def test_unchanged_lines_of_the_function_are_shown_above_and_below_a_hunk() -> None:
    body = [f"    step_{n}()" for n in range(40)]
    old = "def work():\n" + "\n".join(body) + "\n"
    bundle = from_texts({"a.py": old}, {"a.py": old.replace("step_20()", "other()")})

    text = chunks(bundle)[0].text

    assert "     1   def work():" in text
    assert "    41       step_39()" in text


def test_skipped_file_counts_with_all_its_lines() -> None:
    bundle = from_texts({}, {"a.py": "x = 1\n"})
    huge = Bundle(
        files=bundle.files,
        diff=bundle.diff,
        head=bundle.head,
        skipped=(SkippedFile(path="b.py", kind="too_large", reason="too large", lines=200_000),),
    )

    assert coverage(huge, chunks(huge)).percent < 0.1


def test_chunks_fit_the_budget_and_coverage_lists_every_hunk() -> None:
    old = "\n".join(f"row {n}" for n in range(4_000)) + "\n"
    new = old.replace("row 5\n", "row five\n").replace("row 2000\n", "x = 1\n" * 900)
    bundle = from_texts({"big.py": old}, {"big.py": new})

    made = chunks(bundle, budget=1_500)

    assert len(made) > 3
    assert all(chunk.tokens <= 1_500 for chunk in made)
    assert coverage(bundle, made).complete
    part = coverage(bundle, made[:2])
    assert [hunk.state for hunk in part.hunks] == ["full", "partial"]
    assert part.percent < 100
    assert coverage(bundle, ()).percent == 0
    assert all(hunk.reason == "budget spent" for hunk in coverage(bundle, ()).hunks)


def test_hunk_with_a_shortened_line_is_partly_covered() -> None:
    bundle = from_texts({"x.js": "a\n"}, {"x.js": "a\n" + "y" * 5_000 + "\n"})

    assert [hunk.state for hunk in coverage(bundle, chunks(bundle)).hunks] == ["partial"]
    assert max(map(len, chunks(bundle)[0].text.split("\n"))) < 1_200


def test_enclosing_function_is_shown_above_a_hunk() -> None:
    body = "".join(f"    step_{n} = {n}\n" for n in range(20))
    old = f"def work():\n{body}"
    bundle = from_texts({"x.py": old}, {"x.py": f"{old}    return step_3\n"})

    assert "def work():" in chunks(bundle)[0].text


def test_hunks_of_one_function_are_shown_together_with_the_lines_between() -> None:
    rows = "".join(f"    step({n})\n" for n in range(30))
    old = f"def run():\n{rows}\n\ndef other():\n    return 1\n"
    new = old.replace("step(2)", "walk(2)").replace("step(25)", "walk(25)")
    new = new.replace("return 1", "return 2")
    bundle = from_texts({"a.py": old}, {"a.py": new})

    (chunk,) = chunks(bundle)

    assert [piece.hunks for piece in chunk.pieces] == [(1, 2), (3,)]
    assert chunk.text.count("step(14)") == 1  # shown once, between the hunks
    assert coverage(bundle, (chunk,)).complete
    split = chunks(bundle, 200)  # too small for both hunks together
    assert [piece.hunks for one in split for piece in one.pieces][:2] == [(1,), (2,)]
