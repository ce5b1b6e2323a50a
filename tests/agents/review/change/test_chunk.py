"""Chunks of a diff and the coverage of its hunks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from glue.agents.review.change.chunk import chunks, coverage, numbered
from glue.agents.review.change.collect import from_diff, from_texts
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
    shown = [chunk.text.count(f"step({n})") for n in range(30) if n not in (2, 25)]
    assert shown == [1] * 28  # each line once, also those between the hunks
    assert coverage(bundle, (chunk,)).complete


def test_every_hunk_is_shown_if_a_group_nearly_fits_the_budget() -> None:
    rows = "".join(f"    step({n})\n" for n in range(30))
    old = f"def run():\n{rows}"
    new = old.replace("step(2)", "walk(2)").replace("step(25)", "walk(25)")
    bundle = from_texts({"a.py": old}, {"a.py": new})
    (whole,) = chunks(bundle)

    for budget in range(whole.tokens - 9, whole.tokens):
        assert coverage(bundle, chunks(bundle, budget)).complete


def test_lines_of_another_hunk_are_not_repeated_if_a_group_does_not_fit_the_budget() -> None:
    old = "def run():\n" + "".join(f"    step({n})\n" for n in range(210))
    new = old
    for n in (2, 100, 140):
        new = new.replace(f"step({n})", f"walk({n})")
    bundle = from_texts({"a.py": old}, {"a.py": new})
    ((whole,),) = (chunk.pieces for chunk in chunks(bundle, 100_000))

    kept = [piece.hunks for chunk in chunks(bundle, whole.tokens) for piece in chunk.pieces]
    split = [piece for chunk in chunks(bundle, whole.tokens - 1) for piece in chunk.pieces]

    assert kept == [whole.hunks] == [(1, 2, 3)]
    first, second = split
    assert [first.hunks, second.hunks] == [(1, 2), (3,)]
    # Both show the lines between the hunks, and neither shows the lines of a hunk of the other.
    assert ["step(103)" in first.text, "step(103)" in second.text] == [True, False]
    assert ["step(104)" in first.text, "step(104)" in second.text] == [True, True]
    assert ["step(136)" in first.text, "step(136)" in second.text] == [True, True]
    assert ["step(137)" in first.text, "step(137)" in second.text] == [False, True]


def test_pieces_share_a_chunk_if_they_fit_the_budget() -> None:
    bundle = from_texts({}, {"a.py": "x = 1\n" * 9, "b.py": "y = 2\n" * 9})
    (whole,) = chunks(bundle)

    assert len(chunks(bundle, whole.tokens)) == 1
    assert len(chunks(bundle, whole.tokens - 1)) == 2


def test_hunk_larger_than_the_budget_is_split_into_parts() -> None:
    bundle = from_texts({}, {"a.py": "".join(f"value_{n:02} = {n:02}\n" for n in range(24))})
    ((whole,),) = (chunk.pieces for chunk in chunks(bundle))

    (kept,) = chunks(bundle, whole.tokens)
    split = [piece for chunk in chunks(bundle, whole.tokens // 3) for piece in chunk.pieces]

    assert kept.pieces == (whole,)
    assert [piece.last for piece in split] == [False, False, False, False, True]
    assert "### a.py (part 1 of 5 of this hunk)" in split[0].text
    assert "value_23 = 23" in split[-1].text


def test_hunk_of_two_lines_can_be_split_and_a_line_cannot() -> None:
    two = from_texts({}, {"a.py": "x = 1\ny = 2\n"})
    one = from_texts({}, {"a.py": "x = 1\n"})

    assert [chunk.pieces[0].last for chunk in chunks(two, 1)] == [False, True]
    assert "part" not in chunks(one, 1)[0].text


def test_changed_first_and_last_line_of_a_function_are_shown_together() -> None:
    rows = "".join(f"    step({n})\n" for n in range(30))
    old = f"def run():\n{rows}    return 1\n"
    new = old.replace("run()", "run(x)").replace("return 1", "return x")

    (chunk,) = chunks(from_texts({"a.py": old}, {"a.py": new}))

    assert [piece.hunks for piece in chunk.pieces] == [(1, 2)]


def test_at_most_60_lines_of_the_innermost_function_are_shown_on_each_side() -> None:
    rows = [f"    row_{n} = {n}" for n in range(2, 201)]
    old = "\n".join(["def run():", *rows]) + "\n"
    large = from_texts({"a.py": old}, {"a.py": old.replace("row_100 = 100", "row = 100")})
    inner = ["    def add():", *["        pass"] * 12, "        return 1"]
    old = "\n".join(["def run():", *rows[:30], *inner, *rows[:4]]) + "\n"
    nested = from_texts({"a.py": old}, {"a.py": old.replace("return 1", "return 2")})

    text = chunks(large)[0].text
    shown = [int(line.split()[0]) for line in text.split("\n") if line[:6].strip().isdecimal()]

    assert (min(shown), max(shown)) == (97 - 60, 103 + 60)
    assert "row_31 = 31" not in chunks(nested)[0].text
    assert "    32       def add():" in chunks(nested)[0].text


@pytest.mark.parametrize(
    ("diff", "below"),
    [("@@ -2 +2 @@\n-    one()\n+    two()\n", "     3       three()"),
     ("@@ -3 +2,0 @@\n-    one()\n", "     3       three()")],
)  # fmt: skip
def test_lines_below_a_hunk_without_context_are_shown(diff: str, below: str) -> None:
    head = "def run():\n    two()\n    three()\n"
    bundle = from_diff(f"--- a/a.py\n+++ b/a.py\n{diff}", head={"a.py": head})

    assert chunks(bundle)[0].text.split("\n")[-1] == below


@pytest.mark.parametrize(
    ("header", "rows"),
    [
        (
            "@@ -98,3 +8,2 @@ def f():",
            ["old 98-100, new 8-9 @@ def f():", " 98   8  x", " 99     -y", "100   9  z"],
        ),
        (
            "@@ -8,3 +98,2 @@",
            ["old 8-10, new 98-99 @@", "  8  98  x", "  9     -y", " 10  99  z"],
        ),
    ],
)
def test_numbers_of_lines_are_aligned_to_the_longest(header: str, rows: list[str]) -> None:
    diff = f"--- a/a.py\n+++ b/a.py\n{header}\n x\n-y\n z\n"
    (file,) = from_diff(diff).files

    text = numbered(file, file.hunks[0])

    assert text == "@@ hunk 1 of a.py: " + "\n".join(rows)


def test_missing_side_and_missing_line_end_are_named() -> None:
    (file,) = from_texts({}, {"a.py": "x = 1"}).files

    assert numbered(file, file.hunks[0]) == (
        "@@ hunk 1 of a.py: old 0 (none), new 1-1 @@\n  1 +x = 1\n    \\ no newline at the end"
    )


@pytest.mark.parametrize(
    ("length", "shown", "state"),
    [
        (1_000, "x" * 1_000, "full"),
        (1_001, "x" * 1_000 + " [1 more characters]", "partial"),
    ],
)
def test_line_is_shortened_after_1000_characters(length: int, shown: str, state: str) -> None:
    bundle = from_texts({}, {"a.js": "x" * length + "\n"})

    (chunk,) = chunks(bundle)
    (entry,) = coverage(bundle, [chunk]).hunks

    assert chunk.text.endswith(f"+{shown}")
    assert (entry.state, entry.reason) == (
        state,
        "" if state == "full" else "a long line was shortened",
    )


def test_old_name_of_a_renamed_file_is_shown() -> None:
    diff = (
        "diff --git a/old.py b/new.py\nrename from old.py\nrename to new.py\n"
        "--- a/old.py\n+++ b/new.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n"
    )

    assert chunks(from_diff(diff))[0].text.startswith("### new.py (was old.py)\n")


def test_files_of_analysers_are_covered_without_a_model() -> None:
    bundle = from_texts({}, {"a.py": "x\n", "b.rs": "x\n", "Makefile": "x\n"})

    entries = coverage(bundle, (), analysed={"a.py": "ruff"}).hunks

    assert {entry.path: (entry.state, entry.reason) for entry in entries} == {
        "a.py": ("full", "analysed by ruff"),
        "b.rs": ("skipped", "no model was asked, and no analyser reads *.rs files"),
        "Makefile": ("skipped", "no model was asked, and no analyser reads Makefile"),
    }


HEADERS = "diff --git a/{0} b/{0}\n"


@pytest.mark.parametrize(
    ("diff", "state", "reason", "required"),
    [
        (HEADERS.format("a.png") + "Binary files a/a.png and b/a.png differ\n",
         "skipped", "binary", False),
        (HEADERS.format("a.py") + "Binary files a/a.py and b/a.py differ\n",
         "skipped", "binary", True),
        (HEADERS.format("a.py") + "old mode 100644\nnew mode 100755\n", "full", "mode", True),
        ("diff --cc a.py\n@@@ -1 -1 +1 @@@\n++x\n", "skipped", "combined diff", True),
    ],
)  # fmt: skip
def test_file_without_hunks_is_covered_as_a_whole(
    diff: str, state: str, reason: str, required: bool
) -> None:
    bundle = from_diff(diff)

    (entry,) = coverage(bundle, ()).hunks

    assert (entry.hunk, entry.state, entry.reason) == (0, state, reason)
    assert entry.required is required


def test_hunk_that_is_cut_short_is_partly_covered() -> None:
    bundle = from_diff("--- a/a.py\n+++ b/a.py\n@@ -1,3 +1,3 @@\n x\n")

    (entry,) = coverage(bundle, chunks(bundle)).hunks

    assert (entry.state, entry.reason) == ("partial", "hunk 1 is cut short")


def test_skipped_file_has_no_piece_and_is_listed_once() -> None:
    bundle = from_texts({}, {"a.py": "x = 1\n", "b.py": "y = 1\n"})
    skipped = SkippedFile(path="b.py", kind="excluded", reason="excluded", lines=1)
    bundle = replace(bundle, skipped=(skipped,))

    (chunk,) = chunks(bundle)

    assert "b.py" not in chunk.text
    assert [(one.path, one.hunk, one.required) for one in coverage(bundle, [chunk]).hunks] == [
        ("a.py", 1, True),
        ("b.py", 0, False),
    ]
