"""The parser of unified diffs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from fakes.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from glue.agents.review.change import diff as patch
from glue.agents.review.change.chunk import numbered
from glue.agents.review.change.diff import parse
from glue.agents.review.records import FileDiff

CORPUS = os.environ.get("GLUE_REVIEW_CORPUS", "")
needs_corpus = pytest.mark.skipif(not CORPUS, reason="GLUE_REVIEW_CORPUS is not set")


def one(diff: str | bytes) -> FileDiff:
    (file,) = parse(diff)
    return file


def test_lines_have_their_old_and_new_numbers() -> None:
    file = one("--- a/x.py\n+++ b/x.py\n@@ -3,4 +3,4 @@ def f\n a\n-b\n+c\n d\n e\n")

    assert [(line.kind, line.old, line.new, line.text) for line in file.hunks[0].lines] == [
        (" ", 3, 3, "a"),
        ("-", 4, None, "b"),
        ("+", None, 4, "c"),
        (" ", 5, 5, "d"),
        (" ", 6, 6, "e"),
    ]
    assert file.hunks[0].section == "def f"
    assert file.commentable == {3, 4, 5, 6}


def test_content_that_looks_like_headers_stays_content() -> None:
    diff = (
        "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,3 +1,4 @@\n"
        "-@@ -1 +1 @@\n---- a/y\n+++ b/y\n+diff --git a/z b/z\n"
        "+@@ -9,9 +9,9 @@\n end\n"
    )
    file = one(diff)

    assert [line.text for line in file.deleted] == ["@@ -1 +1 @@", "--- a/y"]
    assert [line.text for line in file.added] == ["++ b/y", "diff --git a/z b/z", "@@ -9,9 +9,9 @@"]
    assert file.odd == ""


def test_signature_after_the_last_hunk_is_not_a_deletion() -> None:
    file = one("From 1 Mon\nSubject: x\n\n--- a/f.c\n+++ b/f.c\n@@ -1 +1 @@\n-a\n+b\n-- \n2.39.5\n")

    assert len(file.deleted) == 1


def test_rename_without_changes_has_both_names_and_no_hunks() -> None:
    head = "diff --git a/old name.py b/new name.py\nsimilarity index 100%\n"
    file = one(f"{head}rename from old name.py\nrename to new name.py\n")

    assert (file.status, file.old_path, file.path, file.hunks) == (
        "renamed",
        "old name.py",
        "new name.py",
        (),
    )


def test_copies_and_renames_are_distinguished() -> None:
    assert (
        one("diff --git a/a b/b\nsimilarity index 90%\ncopy from a\ncopy to b\n").status == "copied"
    )


def test_invalid_similarity_is_ignored() -> None:
    head = f"diff --git a/a b/b\nsimilarity index {'9' * 5_000}%\n"
    file = one(f"{head}rename from a\nrename to b\n")

    assert (file.status, file.old_path, file.path) == ("renamed", "a", "b")


def test_added_and_deleted_empty_files_need_no_name_lines() -> None:
    added, deleted = parse(
        "diff --git a/pkg/a b.py b/pkg/a b.py\nnew file mode 100644\nindex 0..e69de29\n"
        "diff --git a/gone b/gone\ndeleted file mode 100755\nindex e69de29..0\n"
    )

    assert (added.path, added.status, added.new_mode) == ("pkg/a b.py", "added", "100644")
    assert (deleted.path, deleted.status, deleted.old_mode) == ("gone", "deleted", "100755")


def test_change_of_only_the_mode_has_its_own_status() -> None:
    assert one("diff --git a/x b/x\nold mode 100644\nnew mode 100755\n").status == "mode"


@pytest.mark.parametrize(
    ("modes", "status"),
    [("120000 100644", "type"), ("100644 160000", "type"), ("100644 100644", "modified")],
)
def test_change_between_file_and_link_is_a_change_of_the_type(modes: str, status: str) -> None:
    old, new = modes.split()

    assert one(f"diff --git a/x b/x\nold mode {old}\nnew mode {new}\n").status == status


def test_file_that_became_a_symlink_is_one_file() -> None:
    file = one(
        "diff --git a/x b/x\ndeleted file mode 100644\n--- a/x\n+++ /dev/null\n"
        "@@ -1 +0,0 @@\n-text\n"
        "diff --git a/x b/x\nnew file mode 120000\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+target\n"
        "\\ No newline at end of file\n"
    )

    assert (file.status, file.symlink) == ("type", True)
    assert file.commentable == {1}
    assert [hunk.index for hunk in file.hunks] == [1, 2]


def test_binary_files_are_marked_and_their_patch_is_skipped() -> None:
    first, second = parse(
        "diff --git a/i.png b/i.png\nindex 1..2 100644\nGIT binary patch\n"
        "literal 3\nKcmZ\n\nliteral 2\nKcm\n\n"
        "diff --git a/j.png b/j.png\nBinary files a/j.png and b/j.png differ\n"
    )

    assert first.binary
    assert second.binary
    assert second.path == "j.png"


def test_submodule_is_recognised_by_its_mode() -> None:
    head = "diff --git a/s b/s\nindex 1..2 160000\n--- a/s\n+++ b/s\n"
    file = one(f"{head}@@ -1 +1 @@\n-Subproject commit 1\n+Subproject commit 2\n")

    assert file.submodule


def test_line_endings_are_separate_from_the_text() -> None:
    file = one(b"--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n a\r\n-b\r\n+c\n\\ No newline at end of file\n")

    assert [(line.text, line.end) for line in file.hunks[0].lines] == [
        ("a", "\r\n"),
        ("b", "\r\n"),
        ("c", ""),
    ]


def test_combined_diff_is_marked_as_odd_and_has_no_hunks() -> None:
    merged, plain = parse(
        "diff --cc m.py\nindex 1,2..3\n--- a/m.py\n+++ b/m.py\n"
        "@@@ -1,1 -1,1 +1,1 @@@\n- a\n -b\n++c\n"
        "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"
    )

    assert (merged.path, merged.odd, merged.hunks) == ("m.py", "combined diff", ())
    assert plain.path == "x"


def test_quoted_names_are_decoded() -> None:
    file = one(
        'diff --git "a/caf\\303\\251\\t\\"x\\".py" "b/caf\\303\\251\\t\\"x\\".py"\n'
        "new file mode 100644\n"
    )

    assert file.path == 'caf\u00e9\t"x".py'


def test_names_that_are_not_utf8_are_preserved() -> None:
    file = one('diff --git "a/\\377.py" "b/\\377.py"\nnew file mode 100644\n')

    assert file.path.encode("utf-8", "surrogateescape") == b"\xff.py"


@pytest.mark.parametrize(
    ("left", "right"),
    [("a/a/b.txt", "b/a/b.txt"), ("a/b.txt", "a/b.txt"), ("i/a/b.txt", "w/a/b.txt")],
)
def test_prefixes_are_removed_only_if_present(left: str, right: str) -> None:
    file = one(
        f"diff --git {left} {right}\nindex 1..2 100644\n--- {left}\n+++ {right}\n"
        "@@ -1 +1 @@\n-a\n+b\n"
    )

    assert file.path == "a/b.txt"


def test_hunk_that_ends_early_is_marked_as_cut_short() -> None:
    file = one("--- a/x\n+++ b/x\n@@ -1,5 +1,5 @@\n a\n+b\n")

    assert file.odd == "hunk 1 is cut short"
    assert file.commentable == {1, 2}


def test_lines_beyond_the_count_of_the_header_are_not_part_of_the_hunk() -> None:
    file = one("--- a/x\n+++ b/x\n@@ -1,3 +1,1 @@\n a\n+smuggled\n-b\n-c\n")

    assert file.commentable == {1}
    assert file.odd == "hunk 1 is cut short"


def test_empty_line_without_its_leading_space_is_context() -> None:
    assert [
        line.kind
        for line in one("--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n a\n\n-b\n+c\n").hunks[0].lines
    ] == [
        " ",
        " ",
        "-",
        "+",
    ]


def test_only_newlines_separate_lines() -> None:
    file = one("--- a/x\n+++ b/x\n@@ -1 +1,2 @@\n a\u2028b\x0c\n+c\x0bd\n")

    assert [line.text for line in file.hunks[0].lines] == ["a\u2028b\x0c", "c\x0bd"]


def test_hunk_is_formatted_with_line_numbers() -> None:
    file = one("--- a/x\n+++ b/x\n@@ -9,2 +9,2 @@\n a\n-b\n+c\n")

    assert (
        numbered(file, file.hunks[0])
        == "@@ hunk 1 of x: old 9-10, new 9-10 @@\n 9  9  a\n10    -b\n   10 +c"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "nonsense",
        "@@ -1 +1 @@\n",
        "diff --git\n",
        "diff --git a\n--- \n+++ \n@@ -1 +1 @@",
    ],
)
def test_nonsense_is_parsed_without_an_error(text: str) -> None:
    parse(text)


_texts = st.lists(
    st.sampled_from(["a", "b", "", "@@ -1 +1 @@", "--- x", "+++ y", "\\ No", "é\u2028", "c\r"]),
    max_size=12,
)


@settings(max_examples=examples(300), deadline=None)
@given(_texts, _texts, st.booleans(), st.booleans(), st.integers(0, 4))
def test_diffs_of_difflib_are_parsed_and_undone(
    old: list[str], new: list[str], old_end: bool, new_end: bool, context: int
) -> None:
    before, after = (
        "\n".join(lines) + "\n" * (end and bool(lines))
        for lines, end in ((old, old_end), (new, new_end))
    )

    diff = patch.between("x.py", before, after, context)
    files = parse(diff)

    if before == after:
        assert not files[0].hunks
        return
    file = files[0]
    assert file.odd == ""
    assert patch.before(after, file) == before
    lines = after.split("\n")
    for line in (line for hunk in file.hunks for line in hunk.lines):
        assert line.new is None or line.text + line.end.rstrip("\n") == lines[line.new - 1]


@settings(max_examples=examples(200), deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_parsed_without_an_error(raw: bytes) -> None:
    parse(b"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n" + raw)
    parse(raw)


@needs_corpus
def test_odd_diffs_of_the_corpus_are_parsed_as_git_reports_them() -> None:
    names = {
        "R": "renamed",
        "C": "copied",
        "M": "modified",
        "A": "added",
        "D": "deleted",
        "T": "type",
    }
    home = Path(CORPUS) / "diffs"
    checked = 0
    for entry in json.loads((home / "odd/MANIFEST.json").read_text()):
        if not entry.get("expected_files"):
            continue
        files = {file.path: file for file in parse((home / entry["file"]).read_bytes())}
        for wanted in entry["expected_files"]:
            file = files[wanted["new_path"] or wanted["old_path"]]
            status = "modified" if file.status == "mode" else file.status
            assert status == names[wanted["status"]], (entry["name"], file.path)
            if wanted.get("added") is not None and "\t" not in file.path:
                assert (len(file.added), len(file.deleted)) == (
                    wanted["added"],
                    wanted["deleted"],
                ), entry["name"]
            assert file.binary == wanted.get("binary", False)
            checked += 1
    assert checked > 30


@needs_corpus
def test_diffs_are_parsed_as_by_reviewdog() -> None:
    kinds = {0: " ", 1: "+", 2: "-"}
    home = Path(CORPUS) / "diffs/reviewdog"
    goldens = sorted(home.glob("*.diff.json"))
    assert goldens
    for golden in goldens:
        files = parse(golden.with_suffix("").read_bytes())
        for wanted, file in zip(json.loads(golden.read_text()), files, strict=True):
            for hunk, mine in zip(wanted["Hunks"] or [], file.hunks, strict=True):
                rows = [
                    (kinds[r["Type"]], r["LnumOld"] or None, r["LnumNew"] or None, r["Content"])
                    for r in hunk["Lines"]
                ]
                assert rows == [
                    (line.kind, line.old, line.new, line.text) for line in mine.lines
                ], golden.name


def test_names_with_signs_are_quoted_as_git_does() -> None:
    text = patch.between('a"#\\\x7f\u00e9.py', None, "x = 1\n")

    name = '"b/a\\042#\\134\\177\\303\\251.py"'
    assert f"+++ {name}\n" in text
    assert [file.path for file in parse(text)] == ['a"#\\\x7f\u00e9.py']


def test_escapes_of_git_are_undone() -> None:
    escaped = r'"b/\a\b\t\n\v\f\r\"\\\303\251\q.py"'
    diff = f"--- /dev/null\n+++ {escaped}\n@@ -0,0 +1 @@\n+x\n"

    (file,) = parse(diff)

    assert file.path == '\a\b\t\n\v\f\r"\\\u00e9\\.py'
