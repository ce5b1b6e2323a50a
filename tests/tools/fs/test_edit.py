"""Tests of edit_file: which quotes match, and which text stays unchanged."""

from __future__ import annotations

import codecs
import os
from collections import Counter

import pytest
from fakes.edits import KINDS, agrees, cases
from hypothesis import given
from hypothesis import strategies as st

from glue.errors import ToolError
from glue.tools.fs.edit import LADDER, Edited, Replacement, compare, edit_all

PLAIN = str.maketrans("“”", '""')
CODE = "def f(x):\n    if x:\n        return 1\n    return 2\n"


def edit(content: bytes, old: str, new: str, *, replace_all: bool = False) -> Edited:
    return edit_all(content, [Replacement(old=old, new=new, replace_all=replace_all)])


def text_of(content: str, old: str, new: str, *, replace_all: bool = False) -> str:
    return edit(content.encode(), old, new, replace_all=replace_all).content.decode()


def rung_of(content: str, old: str, new: str = "NEW") -> str:
    return edit(content.encode(), old, new).rung


def test_the_rungs_are_tried_in_a_fixed_order() -> None:
    assert [name for name, _ in LADDER] == [
        "exact",
        "trailing whitespace",
        "indentation",
        "typographic quotes and dashes",
        "indentation and typographic quotes and dashes",
    ]


def test_an_exact_match_is_preferred_and_reported() -> None:
    done = edit(CODE.encode(), "return 1", "return 3")

    assert done.content.decode() == CODE.replace("return 1", "return 3")
    assert done.rung == "exact"
    assert done.diff.split("\n") == [
        "     1  def f(x):",
        "     2      if x:",
        "       -        return 1",
        "     3 +        return 3",
        "     4      return 2",
    ]


def test_several_changes_of_one_line_are_shown_as_one_line() -> None:
    every = edit(b"f(a, a)\nb\nc(a)\n", "a", "x\ny", replace_all=True)

    shown = [
        "       -f(a, a)",
        "     1 +f(x",
        "     2 +y, x",
        "     3 +y)",
        "     4  b",
        "       -c(a)",
        "     5 +c(x",
        "     6 +y)",
    ]
    assert every.diff.split("\n") == shown
    across = [Replacement(old="one\ntwo", new="1"), Replacement(old="three", new="3")]
    assert edit_all(b"one\ntwo three\n", across).diff.split("\n") == [
        "       -one",
        "       -two three",
        "     1 +1 3",
    ]


def test_trailing_blanks_may_differ() -> None:
    assert rung_of("a  \nb\nc\n", "a\nb   ") == "trailing whitespace"
    assert text_of("a  \nb\nc\n", "a\nb   \n", "x\ny\n") == "x\ny\nc\n"


def test_indentation_may_differ_and_is_adapted() -> None:
    old = "if x:\n    return 1\n"
    new = "if x:\n    y()\n    return 1\n"

    assert rung_of(CODE, old, new) == "indentation"
    assert (
        text_of(CODE, old, new)
        == "def f(x):\n    if x:\n        y()\n        return 1\n    return 2\n"
    )


def test_new_lines_get_the_tabs_of_the_file() -> None:
    content = "class A:\n\tdef f(self):\n\t\treturn 1\n"

    done = text_of(content, "def f(self):\n    return 1", "def f(self):\n    x = 1\n    return x")

    assert done == "class A:\n\tdef f(self):\n\t\tx = 1\n\t\treturn x\n"


def test_new_lines_stay_if_only_the_first_quoted_line_lacks_indentation() -> None:
    content = CODE.replace("return 1\n", "return 1 \n")  # so that the quote is not exact

    new = "if x:\n        if y:\n            return 3\n        return 1\n"
    done = text_of(content, "if x:\n        return 1\n", new)

    assert done == content.replace(
        "        return 1", "        if y:\n            return 3\n        return 1"
    )


@pytest.mark.parametrize(
    ("content", "old", "new"),
    [
        # The width of a tab is unknown.
        ("class A:\n\tdef f(self): \n\t\tpass\n", "def f(self):  ", "def f(self):\n    x()"),
        ("def f():\n    pass\nx = 1 \n", "\tx = 1", "\tif y:\n\t\tx = 1"),
        # The file is indented by tabs and blanks.
        ("\ta:\n\t\t b\n", "  a:\n    b", "  a:\n    b:\n      c"),
        # The quote is indented by tabs and blanks.
        ("  a:\n    b\n", "\ta:\n\t b", "\ta:\n\t b:\n\t  c"),
        # Steps of equal width by tabs and by blanks.
        ("\ta:\n\t\tb\n", " a:\n  b", " a:\n  b:\n   c"),
        # The file is indented less where the quote is indented more.
        ("    a:\n  b\n", "  a:\n   b", "  a:\n   b:\n    c"),
        # Half a step.
        ("\ta:\n\t\tb\n", "    a:\n        b", "    a:\n        b\n      c"),
        # Three lines that are not on a straight line.
        ("\ta:\n\t\tb:\n\t\t\t\tc\n", "  a:\n    b:\n      c", "  a:\n    b:\n      c:\n        d"),
    ],
)
def test_indentation_that_cannot_be_adapted_is_refused(content: str, old: str, new: str) -> None:
    with pytest.raises(ToolError, match="not found"):
        edit(content.encode(), old, new)


def test_a_quote_that_is_indented_too_much_is_adapted() -> None:
    assert (
        text_of("a:\n  b\n", "        a:\n          b", "        a:\n          b\n          c")
        == "a:\n  b\n  c\n"
    )


def test_typographic_quotes_may_differ_and_unchanged_ones_are_kept() -> None:
    content = "say “hello” – or ‘bye’\n"

    assert rung_of(content, 'say "hello" - or') == "typographic quotes and dashes"
    assert (
        text_of(content, "say \"hello\" - or 'bye'", "say \"hello\" - or 'go'")
        == "say “hello” – or ‘go’\n"
    )
    assert text_of('x = "a"\n', "x = “a”", 'x = "b"') == 'x = "b"\n'


def test_the_first_rung_with_a_match_decides() -> None:
    content = "x = 1 \n    y\nx = 1\n"

    assert edit(content.encode(), "x = 1\n", "z\n").rung == "exact"
    assert text_of(content, "x = 1\n", "z\n") == "x = 1 \n    y\nz\n"


def test_an_ambiguous_quote_is_an_error_that_shows_the_places() -> None:
    with pytest.raises(ToolError) as caught:
        edit(b"a = 1\nb\na = 1\n", "a = 1", "c")

    assert "`old` matches 2 places (exact)" in str(caught.value)
    assert "line 1: a = 1\n  line 3: a = 1" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "old"),
    [
        ("  go()\n  go()\n  go()\n", "  go()\n  go()"),
        ("# left left left\n", " left le"),
        ("a \na \na \n", "a\na"),
    ],
)
def test_overlapping_matches_make_a_quote_ambiguous(content: str, old: str) -> None:
    with pytest.raises(ToolError, match="`old` matches 2 places"):
        edit(content.encode(), old, "x")

    assert edit(b"aaaaa", "aa", "b", replace_all=True).content == b"bba"


def test_replace_all_replaces_every_place() -> None:
    done = edit(b"a = 1\nb\na = 1\n", "a = 1", "c", replace_all=True)

    assert done.content == b"c\nb\nc\n"
    assert done.count == 2


@pytest.mark.parametrize(("old", "new"), [("", "x"), ("a", "a"), ("a\r\n", "a\n")])
def test_edits_without_effect_are_refused(old: str, new: str) -> None:
    with pytest.raises(ToolError):
        edit(b"a\nb\n", old, new)


def test_the_error_shows_the_most_similar_text_with_line_numbers() -> None:
    with pytest.raises(ToolError, match=r"most similar text:\n     2    return compute\(a, b\)$"):
        edit(b"x\n  return compute(a, b)\n", "return compute(a, c)", "y")


def test_similar_text_is_searched_in_the_whole_file() -> None:
    content = (
        "".join(f"value_{n} = {n}\n" for n in range(50_000)) + "def far():\n    one()\n    two()\n"
    )

    with pytest.raises(
        ToolError,
        match=r"most similar text:\n"
        r" 50001  def far\(\):\n 50002      one\(\)\n 50003      two\(\)$",
    ):
        edit(content.encode(), "def far():\n    one()\n    three()", "x")


def test_a_quote_with_one_changed_line_is_refused() -> None:
    content = b"start()\none = compute(1)\ntwo = compute(2)\nfinish()\nrest\n"

    with pytest.raises(ToolError, match="one = compute"):
        edit(
            content,
            "start()\none = compute(1)  # first\ntwo = compute(2)\nfinish()",
            "start()\nfinish()",
        )


def test_the_error_explains_a_quote_with_escaped_newlines() -> None:
    with pytest.raises(ToolError, match="send real newlines"):
        edit(b"alpha beta\ngamma\n", "alpha beta\\ngamma", "x")


def test_deleting_all_text_of_a_line_removes_the_line() -> None:
    assert text_of("a\nb\nc\n", "b", "") == "a\nc\n"
    assert text_of("a\n  b  \nc\n", "b", "") == "a\nc\n"
    # The quote is a part of the line, so only the quote is deleted.
    assert text_of("a\n  b d\nc\n", "b", "") == "a\n   d\nc\n"
    assert text_of("a\n  b  \nc\n", "  b\n", "") == "a\nc\n"
    assert text_of("a\nb", "b", "") == "a"
    assert text_of("word", "word", "") == ""
    assert text_of("\nb\nc\n", "b", "") == "\nc\n"
    assert text_of("a\nb\n\nc\n", "b\n", "") == "a\n\nc\n"
    assert text_of("a\r\nb\r\nc\r\n", "b", "") == "a\r\nc\r\n"


def test_several_edits_are_all_made_or_none() -> None:
    one, two = Replacement(old="a", new="b"), Replacement(old="b", new="c")

    # Each quote is searched in the file as it is before the edit.
    assert edit_all(b"a\nb\n", [one, two]).content == b"b\nc\n"
    with pytest.raises(ToolError, match=r"edit 2: old was not found.*no edit was made"):
        edit_all(b"a\nx\n", [one, Replacement(old="nothing there", new="")])
    with pytest.raises(ToolError, match="overlap"):
        edit_all(b"a b\n", [Replacement(old="a b", new="x"), one])


@pytest.mark.parametrize(
    "line",
    [
        "... rest unchanged",
        "# ... rest of the code remains the same",
        "    // ... existing code ...",
        "/* ... unchanged ... */",
        "# … the rest stays",
        "<!-- rest of the file unchanged -->",
        "# remaining methods stay the same",
    ],
)
def test_a_placeholder_is_refused(line: str) -> None:
    with pytest.raises(ToolError, match="placeholder"):
        edit(b"a\nb\nc\n", "b", f"x\n{line}\ny")
    # A line that is already in the file is allowed.
    assert edit(f"{line}\nb\n".encode(), "b", f"c\n{line}").count == 1


@pytest.mark.parametrize(
    "line",
    ["print(...)", "def f(*args, **kwargs): ...", "x = a[..., 1]", "# the rest", "...", "wait..."],
)
def test_text_that_resembles_a_placeholder_is_accepted(line: str) -> None:
    assert edit(b"a\nb\n", "b", line).count == 1


def test_an_edit_that_changes_nothing_is_refused() -> None:
    with pytest.raises(ToolError, match="nothing would change"):
        edit(b"a  \nb\n", "a \nb", "a\nb")


def test_a_latin_1_file_stays_latin_1() -> None:
    content = "# café\nx = 1\n".encode("latin-1")

    assert edit(content, "café", "thé").content == "# thé\nx = 1\n".encode("latin-1")
    with pytest.raises(ToolError, match="not in UTF-8"):
        edit(content, "café", "caffè ☕")
    # Probably cp1252, but the encoding is not certain.
    with pytest.raises(ToolError, match="not in UTF-8"):
        edit(b"\x93q\x94\nx\n", "x", "é")
    assert edit(b"\x93q\x94\nx\n", "x", "y").content == b"\x93q\x94\ny\n"


@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
def test_windows_line_ends_and_byte_order_marks_are_kept(mark: bytes) -> None:
    content = mark + b"one\r\ntwo\r\nthree\r\n"

    assert edit(content, "two\nthree", "2\n2.5\n3").content == mark + b"one\r\n2\r\n2.5\r\n3\r\n"
    assert edit(content, "two", "2\n2.5").content == mark + b"one\r\n2\r\n2.5\r\nthree\r\n"


def test_mixed_line_ends_are_kept_outside_the_change() -> None:
    content = b"a\r\nb\nc\r\nd\n"

    assert edit(content, "b", "B").content == b"a\r\nB\nc\r\nd\n"
    assert edit(content, "c\nd", "C\nD").content == b"a\r\nb\nC\r\nD\n"


def test_other_encodings_are_kept() -> None:
    assert edit(b"caf\xe9\nx = 1\n", "x = 1", "x = 2").content == b"caf\xe9\nx = 2\n"
    content = codecs.BOM_UTF16_LE + "é\r\nx\r\n".encode("utf-16-le")
    assert edit(content, "x", "ü").content == codecs.BOM_UTF16_LE + "é\r\nü\r\n".encode("utf-16-le")


@pytest.mark.parametrize(
    ("content", "old", "new", "expected"),
    [
        (b"a\nb\n", "b\n", "c", b"a\nc\n"),
        (b"a\nb", "b", "c\n", b"a\nc"),
        (b"a\r\nb\r\n", "b\n", "c", b"a\r\nc\r\n"),
        (b"a\n", "a\n", "", b""),
        (b"a", "a", "b", b"b"),
        (b"a\nb\nc\n", "b\n", "", b"a\nc\n"),
    ],
)
def test_the_last_newline_is_kept(content: bytes, old: str, new: str, expected: bytes) -> None:
    assert edit(content, old, new).content == expected


def test_binary_files_are_not_edited() -> None:
    with pytest.raises(ToolError, match="binary"):
        edit(b"a\0b", "a", "c")


@given(
    lines=st.lists(
        st.sampled_from(["a", "b", "  a", "b ", "“q”", "c\td", "é"]), min_size=1, max_size=8
    ),
    ends=st.lists(st.sampled_from(["\n", "\r\n"]), min_size=8, max_size=8),
    old=st.lists(st.sampled_from(["a", "b", "a ", '"q"', "c\td"]), min_size=1, max_size=3),
)
def test_text_outside_the_quote_keeps_its_bytes(
    lines: list[str], ends: list[str], old: list[str]
) -> None:
    content = "".join(line + end for line, end in zip(lines, ends, strict=False)).encode()

    try:
        done = edit(content, "\n".join(old), "NEW")
    except ToolError:
        return

    before, mark, after = done.content.partition(b"NEW")
    assert mark
    assert content.startswith(before.rstrip(b" \t"))
    assert content.endswith(after)


def test_a_file_of_repeated_lines_is_edited_quickly() -> None:
    content = b"same\n" * 200_000 + b"last\n"

    done = edit(content, "same \n" * 1000 + "last", "x")

    assert done.rung == "trailing whitespace"
    with pytest.raises(ToolError):
        edit(content, "same\n" * 1000 + "other\nsame\nlost", "x")


def test_the_worked_example_of_the_module_holds() -> None:
    content = b"class A:\n\tdef run(self):\n\t\treturn 1\n"
    old = "    def run(self):\n        return 1\n"
    new = "    def run(self):\n        if self.x:\n            return 2\n"

    edited = edit_all(content, [Replacement(old=old, new=new)])

    assert edited.content == b"class A:\n\tdef run(self):\n\t\tif self.x:\n\t\t\treturn 2\n"
    assert edited.rung == "indentation"


COUNT = int(os.environ.get("GLUE_EDITS", "700"))


def test_random_edits_are_made_as_quoted_or_refused() -> None:
    counts: Counter[str] = Counter()
    for case in cases(20_261_116, COUNT):
        try:
            done = edit_all(
                case.content, [Replacement(old=old, new=new) for old, new in case.edits]
            )
        except ToolError:
            counts["refused without need"] += case.unique and case.expected is not None
            continue
        assert agrees(case, done.content), case
        counts[case.kind] += 1

    assert not [kind for kind in ("stale line", "line left out", "line too many") if counts[kind]]
    made = sum(counts[kind] for kind in KINDS)
    assert made > 0.65 * COUNT
    # Some edits are refused because one indentation does not show how wide the steps are.
    assert counts["refused without need"] < 0.01 * COUNT


@pytest.mark.parametrize(
    ("content", "old", "new", "expected"),
    [
        ("a\nb\nc\n", "b\n", "B", "a\nB\nc\n"),
        ("a\nb\nc\n", "a\nb\n", "x\ny", "x\ny\nc\n"),
        ("a\nb\n\nc\n", "b\n\n", "B", "a\nB\nc\n"),
        ("a\n\tb\n\tc\n", "b\n", "B", "a\n\tB\n\tc\n"),
        ("a\r\nb\r\nc\r\n", "b\r\n", "B", "a\r\nB\r\nc\r\n"),
        ("x = “a”\ny\n", 'x = "a"\n', 'x = "b"', "x = “b”\ny\n"),
        ("a\nb\nc\n", "b\n", "", "a\nc\n"),
        ("a\nb", "b\n", "B", "a\nB"),
    ],
)
def test_two_lines_are_never_joined_because_the_new_text_has_no_line_end(
    content: str, old: str, new: str, expected: str
) -> None:
    assert text_of(content, old, new) == expected


def test_a_new_text_that_differs_only_in_its_line_end_changes_nothing() -> None:
    with pytest.raises(ToolError, match="old and new are the same"):
        edit(b"a\nb\n", "a\n", "a")


@pytest.mark.parametrize(
    ("content", "old", "new", "expected"),
    [
        ('x = "a"\n', "x = “a”", "x = “b”\ny = ‘c’", "x = \"b\"\ny = 'c'\n"),
        ('  x = "a"\n  z\n', "x = “a”\nz", "x = “a”\ny = “b”\nz", '  x = "a"\n  y = "b"\n  z\n'),
        ("a - b\n", "a – b", "a – b – c", "a - b - c\n"),
        # The quoted lines have the character themselves, or another kind of it differs.
        ('"“a”"\n', "““a””", "““b””", '"“b”"\n'),
        ('x = "a"\n', "x = “a”", "x = “b” # 1–2", 'x = "b" # 1–2\n'),
        # An exact quote: the model asks for these characters.
        ('x = "a"\n', 'x = "a"', "x = “a”", "x = “a”\n"),
    ],
)
def test_typographic_characters_of_the_model_do_not_get_into_added_lines(
    content: str, old: str, new: str, expected: str
) -> None:
    assert text_of(content, old, new) == expected


LONG = "def f():\n    a = 1\n    b = 2\n    c = 3\n    return a\n\n\nprint(f())\n"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "def f():\n    a = 1\n    ...\n    return a\n",
            "def f():\n    # first\n    a = 1\n    ...\n    return a\n",
            LONG.replace("    a = 1", "    # first\n    a = 1"),
        ),
        (
            "def f():\n    # ...\n    return a\n\n\nprint(f())",
            "def f():\n    # ...\n    return a\n\n\nprint(f(), 1)",
            LONG.replace("print(f())", "print(f(), 1)"),
        ),
    ],
)
def test_lines_left_out_by_dots_stay_if_the_extent_is_certain(
    old: str, new: str, expected: str
) -> None:
    done = edit(LONG.encode(), old, new)

    assert done.content.decode() == expected
    assert done.rung == "lines left out by ..."


@pytest.mark.parametrize(
    ("content", "old", "new"),
    [
        # The line next to the dots changes: the dots may stand for a new body.
        (LONG, "def f():\n    ...\n    return a", "def f():\n    ...\n    return b"),
        (LONG, "def f():\n    ...\n", "def f():\n    ...\n"),
        (LONG, "def f():\n    ...\n    return a", "def f():\n    return a"),
        (LONG, "def f():\n    ...\n    return a", "def f():\n    x = 1\n    ...\n    return a"),
        # Another place, another order, another indentation, or dots in the file itself.
        (LONG + LONG, "def f():\n    ...\nprint(f())", "#\ndef f():\n    ...\nprint(f())"),
        (LONG, "print(f())\n...\ndef f():", "print(f())\n...\ndef f():\n    x = 1"),
        (LONG, "def f():\n...\nreturn a", "def f():\n...\nreturn a\nx"),
        (LONG + "...\n", "a\ndef f():\n...\nx", "b\ndef f():\n...\nx"),
        (LONG, "...\n    return a", "...\n    return a\n    x"),
    ],
)
def test_an_uncertain_extent_of_dots_is_refused(content: str, old: str, new: str) -> None:
    with pytest.raises(ToolError):
        edit(content.encode(), old, new)


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ("", "a\nb\n", ["@@ -0,0 +1,2 @@", "+a", "+b"]),
        ("", "a", ["@@ -0,0 +1 @@", "+a"]),
        ("a\n", "", ["@@ -1 +0,0 @@", "-a"]),
        ("a", "", ["@@ -1 +0,0 @@", "-a"]),
        ("", "", []),
        ("a", "a\n", ["@@ -1 +1,2 @@", " a", "+"]),
    ],
)
def test_the_diff_of_an_empty_or_new_file_has_no_empty_line(
    old: str, new: str, lines: list[str]
) -> None:
    assert compare(old, new).splitlines() == lines


def test_the_diff_shows_changed_lines_that_start_with_dashes_or_plus_signs() -> None:
    diff = compare("-- drop nothing\nselect 1\n", "select 1\n++counter\n---\n")

    assert diff.splitlines()[1:] == ["--- drop nothing", " select 1", "+++counter", "+---", " "]


def test_the_diff_has_two_lines_of_context_and_dots_for_a_gap() -> None:
    content = "".join(f"{letter}\n" for letter in "abcdefghijkl").encode()
    far = [Replacement(old="c", new="C\nnew"), Replacement(old="i", new="I")]
    near = [Replacement(old="c", new="C"), Replacement(old="f", new="F")]

    assert [line.split() for line in edit_all(content, far).diff.split("\n")] == [
        *[["1", "a"], ["2", "b"], ["-c"], ["3", "+C"], ["4", "+new"]],
        *[["..."], ["8", "g"], ["9", "h"], ["-i"], ["10", "+I"], ["11", "j"], ["12", "k"]],
    ]
    assert [line.split() for line in edit_all(content, near).diff.split("\n")] == [
        *[["1", "a"], ["2", "b"], ["-c"], ["3", "+C"]],
        *[["4", "d"], ["5", "e"], ["-f"], ["6", "+F"], ["7", "g"], ["8", "h"]],
    ]


def test_edits_of_lines_below_each_other_are_shown_one_after_the_other() -> None:
    edits = [Replacement(old="b\n", new="B\n"), Replacement(old="c", new="C")]

    assert [line.split() for line in edit_all(b"a\nb\nc\nd\n", edits).diff.split("\n")] == [
        *[["1", "a"], ["-b"], ["2", "+B"], ["-c"], ["3", "+C"], ["4", "d"]]
    ]


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("b\n", "B\n", ["       -b", "     2 +B"]),
        ("b\nc\n", "B\n", ["       -b", "       -c", "     2 +B"]),
        ("b\n", "B\n\n", ["       -b", "     2 +B", "     3 +"]),
        ("b\n", "", ["       -b"]),
    ],
)
def test_the_diff_of_whole_lines_has_no_empty_line_after_them(
    old: str, new: str, changed: list[str]
) -> None:
    lines = edit(b"a\nb\nc\nd\n", old, new).diff.split("\n")

    assert [line for line in lines if line[7] != " "] == changed


def test_the_diff_is_cut_after_60_lines_of_300_characters() -> None:
    lines = [f"{number} " + "x" * 400 for number in range(70)]
    content = "\n".join(lines)

    whole = edit(content.encode(), "\n".join(lines[:60]), "").diff.split("\n")
    cut = edit(content.encode(), "\n".join(lines[:61]), "").diff.split("\n")

    assert len(whole) == 62  # with two lines of context
    assert [len(line) for line in whole] == [8 + 300] * 62
    assert cut == [*whole[:60], "   ..."]


def test_at_most_five_places_of_an_ambiguous_quote_are_shown() -> None:
    def message(count: int) -> list[str]:
        with pytest.raises(ToolError) as caught:
            edit(f"go {'x' * 200}\n".encode() * count, "go", "come")
        return str(caught.value).split("\n")[1:]

    assert message(5) == [f"  line {number}: go {'x' * 117}" for number in range(1, 6)]
    assert message(7) == [*message(5), "  and 2 more"]


def test_at_most_five_lines_without_their_quoted_indentation_are_shown() -> None:
    with pytest.raises(ToolError, match="leaves out the indentation") as caught:
        edit(b"    go()\n" * 7, "go()", "one()\ntwo()")

    assert str(caught.value).split("\n")[1:] == [f"     {at}      go()" for at in range(1, 6)]


def test_only_a_quote_with_escaped_newlines_gets_advice_about_them() -> None:
    with pytest.raises(ToolError, match="old was not found; quote the file exactly"):
        edit(b"alpha beta\ngamma\n", "alpha beta gamma", "x")
    with pytest.raises(ToolError, match="old was not found; quote the file exactly"):
        edit(b"alpha beta\ngamma\n", "alpha beta\\n\ngamma", "x")


def test_a_quote_that_resembles_nothing_is_an_error_without_text() -> None:
    with pytest.raises(ToolError, match=r"not found, not even roughly; read the file again"):
        edit(b"alpha\n", "omega psi", "x")


def test_a_quote_may_have_one_mebibyte() -> None:
    with pytest.raises(ToolError, match="old was not found"):
        edit(b"a\n", "b" * 1024 * 1024, "c")
    with pytest.raises(ToolError, match="old is 1048577 characters long; quote at most 1048576"):
        edit(b"a\n", "b" * (1024 * 1024 + 1), "c")


def test_at_most_10000_places_are_replaced() -> None:
    assert edit(b"a\n" * 10_000, "a", "b", replace_all=True).content == b"b\n" * 10_000
    with pytest.raises(ToolError, match="old matches more than 10000 places"):
        edit(b"a\n" * 10_001, "a", "b", replace_all=True)


def test_a_line_of_200_characters_is_not_a_placeholder() -> None:
    placeholder = "... rest unchanged"

    with pytest.raises(ToolError, match=r"placeholder, '#{80}'; write out the text"):
        edit(b"a\n", "a", "#" * (199 - len(placeholder)) + placeholder)
    accepted = "#" * (200 - len(placeholder)) + placeholder
    assert edit(b"a\n", "a", accepted).content.decode() == f"{accepted}\n"


def test_the_error_for_overlapping_edits_names_the_line() -> None:
    edits = [Replacement(old="b c", new="x"), Replacement(old="c", new="y")]

    with pytest.raises(ToolError, match="two edits overlap in line 2; combine them; no edit was"):
        edit_all(b"a\nb c\n", edits)
    longer = [Replacement(old="b c", new="x"), Replacement(old="c\nd", new="y")]
    with pytest.raises(ToolError, match="two edits overlap in line 2;"):
        edit_all(b"a\nb c\nd\n", longer)
    touching = [Replacement(old="b ", new="x"), Replacement(old="c", new="y")]
    assert edit_all(b"a\nb c\n", touching).content == b"a\nxy\n"


def test_the_diff_of_very_long_texts_is_left_out() -> None:
    lines = [str(number) for number in range(5000)]
    changed = [*lines[:9], "new", *lines[10:]]

    assert compare("\n".join(lines), "\n".join(changed)).split("\n") == [
        *["@@ -8,5 +8,5 @@", " 7", " 8", "-9", "+new", " 10", " 11"]
    ]
    assert compare("\n".join(lines), "\n".join([*changed, "more"])) == ""


def test_one_known_indentation_is_enough_if_the_steps_are_those_of_the_file() -> None:
    content = "class A:\n    def f():\n        return 1\n"
    old, new = "      def f():", "      def f():\n          x = 1"

    assert text_of(content, old, new) == content.replace("f():", "f():\n        x = 1")
    with pytest.raises(ToolError, match="old was not found"):
        edit(content.encode(), old, "      def f():\n        x = 1")


def test_unchanged_lines_of_a_long_quote_of_equal_lines_keep_their_bytes() -> None:
    content, old = "same \n" * 300, "same\n" * 300

    assert text_of(content, old, f"new\n{old}") == f"new\n{content}"


@pytest.mark.parametrize(
    ("quoted", "count", "kept"), [(500, 500, True), (500, 501, False), (89, 2809, False)]
)
def test_a_very_long_new_text_is_not_compared_with_the_quote(
    quoted: int, count: int, kept: bool
) -> None:
    old = [f"“{number}”" for number in range(quoted)]
    new = ["new", *old[1:], *["more"] * (count - quoted)]
    blanks = "".join(f"{line} \n" for line in old)
    marks = "\n".join(old)

    same_blanks = text_of(blanks, "\n".join(old), "\n".join(new))
    same_marks = text_of(marks, marks.translate(PLAIN), "\n".join(new).translate(PLAIN))

    assert ("\n“1” \n" in same_blanks) is kept
    assert ("\n“1”\n" in same_marks) is kept


def test_a_file_of_up_to_500000_lines_is_matched_line_by_line() -> None:
    content, quote = b"\n" * 500_000 + b"a \tb", Replacement(old="a \tb  ", new="c")

    assert edit_all(content, [quote]).content == b"\n" * 500_000 + b"c"
    with pytest.raises(ToolError, match="old was not found"):
        edit_all(b"\n" + content, [quote])


@pytest.mark.parametrize(
    ("lines", "quote", "shown"),
    [
        # The place follows from a rare line rather than from frequent ones.
        ("{ } } } } } alpha_beta omega }", "{ } } alpha_beta none }", 4),
        # A quote that starts before the file is shown from its first line.
        ("third second_to_last rest", "first second third", 1),
        # Of two equal places, the first is shown.
        ("x same_line y z same_line w", "same_line none", 2),
        # Lines of other words are not similar.
        ("compute(a,b) compute(c,d,e,f,g)", "compute(c,d,e,f,h)", 2),
    ],
)
def test_the_most_similar_place_is_shown(lines: str, quote: str, shown: int) -> None:
    content = "\n".join(lines.split()).encode()

    with pytest.raises(ToolError, match="The most similar text:") as caught:
        edit(content, "\n".join(quote.split()), "new")

    assert int(str(caught.value).split("\n")[1].split()[0]) == shown


def test_the_end_of_a_changed_line_keeps_its_typographic_characters() -> None:
    assert text_of("f(“a”, x, “b”)\n", 'f("a", x, "b")', 'f("a", yz, "b")') == "f(“a”, yz, “b”)\n"


def test_an_empty_line_at_the_end_of_the_new_text_is_kept() -> None:
    assert text_of("a \nb\n", "a\t", "x\n") == "x\n\nb\n"


def test_a_windows_file_without_a_last_newline_gets_none() -> None:
    assert edit(b"a\r\nb", "b", "B\r\n").content == b"a\r\nB"


@pytest.mark.parametrize("text", ["'a'", "\u2018a\u2019"])
def test_a_place_with_other_indentation_and_quotes_makes_a_quote_ambiguous(text: str) -> None:
    content = f"if x:\n    say('a')\n    go()\nif y:\n      say({text})\n      go()\n"

    with pytest.raises(ToolError, match="`old` matches 2 places"):
        edit(content.encode(), "  say('a')\n  go()\n", "  b\n")
