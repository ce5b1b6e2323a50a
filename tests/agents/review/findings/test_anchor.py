"""Places of quotes, and checks of suggestions."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes.examples import examples
from fakes.review import NEW, OLD
from hypothesis import given, settings
from hypothesis import strategies as st

from glue.agents.review.change.collect import from_texts
from glue.agents.review.findings.anchor import anchor, fault, locate, resolve_path, weakens_test
from glue.agents.review.records import Bundle, Finding, ReviewedChange

BEFORE = "\n".join(f"line number {n}" for n in range(1, 41)) + "\n"
AFTER = (
    BEFORE.replace("line number 20\n", "total = compute(first, second)\nresult = 1\n")
    .replace("line number 30\n", "result = 1\nreturn total\n")
    .replace("line number 25\n", "")
)


def bundle() -> Bundle:
    return from_texts(
        {"a.py": BEFORE, "b.py": "x = 1\n"}, {"a.py": AFTER, "b.py": "x = 1\nother_function(x)\n"}
    )


def put(quote: str, *, path: str = "a.py", claimed: int | None = None) -> Finding | None:
    change = bundle()
    finding = Finding(path=path, quote=quote, title="t", body="b", claimed=claimed)
    return anchor(finding, change.files, change.head)


def test_unique_quote_determines_the_line_despite_a_wrong_claim() -> None:
    found = put("total = compute(first, second)", claimed=3)

    assert found is not None
    assert (found.line, found.anchor) == (20, "exact")


def test_white_space_in_a_quote_is_ignored() -> None:
    found = put("  total=compute( first,\tsecond )")

    assert found is not None
    assert found.line == 20


def test_signs_line_numbers_and_fences_in_a_quote_are_ignored() -> None:
    line = "total = compute(first, second)"
    for quote in (f"+{line}", f"   20 +{line}", f"```py\n{line}\n```"):
        found = put(quote)
        assert found is not None, quote
        assert found.line == 20


def test_claimed_line_chooses_between_two_places() -> None:
    near, far = put("result = 1\n", claimed=19), put("result = 1", claimed=33)

    assert near is not None
    assert far is not None
    assert (near.line, near.anchor) == (21, "nearest")
    assert far.line == 30


def test_claimed_line_chooses_between_two_equal_neighbours() -> None:
    change = from_texts({"c.py": "a\n"}, {"c.py": "a\nvalue = 12345\nvalue = 12345\n"})

    places = [
        locate("value = 12345", "c.py", change.files, change.head, claimed) for claimed in (2, 3)
    ]

    assert [place.end for place in places if place is not None] == [2, 3]


def test_quote_of_several_lines_has_a_range() -> None:
    found = put("total = compute(first, second)\nresult = 1")

    assert found is not None
    assert (found.start_line, found.line) == (20, 21)


def test_finding_moves_to_the_file_that_contains_its_quote() -> None:
    found = put("other_function(x)")

    assert found is not None
    assert (found.path, found.line, found.anchor) == ("b.py", 2, "relocated")


def test_quote_of_a_deleted_line_is_placed_on_the_line_below_the_gap() -> None:
    found = put("line number 25")

    assert found is not None
    assert (found.line, found.anchor, found.start_line) == (26, "deleted", None)
    assert AFTER.split("\n")[25] == "line number 26"


def test_quote_of_a_deleted_last_line_is_placed_on_the_line_above_the_gap() -> None:
    change = from_texts({"a.py": BEFORE}, {"a.py": BEFORE.replace("line number 40\n", "")})
    finding = Finding(path="a.py", quote="line number 40", title="t", body="b")

    found = anchor(finding, change.files, change.head)

    assert found is not None
    assert (found.line, found.anchor) == (39, "deleted")


def test_quote_of_a_deleted_file_has_no_line() -> None:
    change = from_texts({"a.py": BEFORE}, {})
    finding = Finding(path="a.py", quote="line number 25", title="t", body="b")

    found = anchor(finding, change.files, change.head)

    assert found is not None
    assert (found.line, found.anchor) == (None, "deleted")


def test_quote_of_deleted_and_added_lines_is_placed_on_the_added_ones() -> None:
    found = put("-line number 20\n+total = compute(first, second)")

    assert found is not None
    assert (found.line, found.start_line) == (20, None)


def test_quote_outside_of_every_hunk_has_no_line() -> None:
    found = put("line number 10")

    assert found is not None
    assert (found.line, found.claimed, found.anchor) == (None, 10, "file")


def test_quote_that_does_not_occur_is_not_placed() -> None:
    assert put("this was never written") is None


def test_short_quote_needs_to_be_unique_or_to_have_a_line() -> None:
    assert put("result") is None
    assert put("res") is None
    with_line, unique = put("result", claimed=22), put("x = 1    ", path="b.py")

    assert with_line is not None
    assert unique is not None
    assert (with_line.line, unique.line) == (21, 1)


def test_short_quote_is_found_up_to_three_lines_from_the_claimed_line() -> None:
    found = [put("result", claimed=claimed) for claimed in (17, 18, 24, 25)]

    assert [place and place.line for place in found] == [None, 21, 21, None]


def test_similar_line_is_found_up_to_three_lines_from_the_claimed_line() -> None:
    found = [put("total += cmpute(frst)", claimed=claimed) for claimed in (16, 17, 23, 24)]

    assert [place and place.line for place in found] == [None, 20, 20, None]


@pytest.mark.parametrize(
    "quote",
    [
        "`total = compute(first, second)`",
        "```\ntotal = compute(first, second)\n```",
        '"total = compute(first, second)"',
        "total = compute(first, second)  # <- the arguments are swapped",
        "total = compute(first, second) // BUG",
        "total = compute(first, second)   <-- here",
        "20: total = compute(first, second)",
        "L20 | total = compute(first, second)",
        "a.py:20: total = compute(first, second)",
        "line 20: total = compute(first, second)",
        "total = compute(first, ...",
        "... compute(first, second)",
        "total = comp ... second)",
        "total = compute(frist, second)",
        "Total = Compute(first, second)",
        "total = compute(first, second);",
        "total = compute(first, second)\nresult = 12345",
        "total = compute(first, second)\n...",
        "  20 +total = compute(first, second)\n  21 +result = 1",
    ],
)
def test_marks_remarks_and_typos_of_a_model_do_not_hide_the_line(quote: str) -> None:
    found = put(quote)

    assert found is not None
    assert 20 in range(found.start_line or found.line or 0, (found.line or 0) + 1)
    assert "total = compute(first, second)" in found.quote


def test_similar_lines_need_the_line_number_to_choose() -> None:
    far, near = put("line number 2!"), put("line numbr 2!", claimed=23)

    assert far is None
    assert near is not None
    assert near.line in (22, 23, 24)


HEADED = "def load(name):\n    data = read(name)\n    check(data)\n    return data\n"


@pytest.mark.parametrize(("claimed", "line"), [(None, 2), (1, 2), (3, 3), (4, 4), (90, 2)])
def test_quoted_function_header_stands_for_a_changed_line_of_the_function(
    claimed: int | None, line: int
) -> None:
    new = HEADED.replace("read(name)", "fetch(name, retries=3)")
    change = from_texts({"a.py": HEADED}, {"a.py": new})
    finding = Finding(path="a.py", quote="def load(name):", title="t", body="b", claimed=claimed)

    found = anchor(finding, change.files, change.head)

    assert found is not None
    assert (found.line, found.anchor) == (line, "inside")
    assert found.quote == new.split("\n")[line - 1]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (f"@cached\n{HEADED}", HEADED.replace("check(data)", "verify(data)"), 3),
        (HEADED, HEADED.replace("return data", "return data.text"), 4),
        ("def load(name):\n    pass\n\nlimit = 1\n", "def load(name):\n    pass\n\nlimit = 2\n", 1),
    ],
)
def test_changes_around_a_function_are_not_changes_of_the_function(
    old: str, new: str, line: int
) -> None:
    change = from_texts({"a.py": old}, {"a.py": new})
    finding = Finding(path="a.py", quote="def load(name):", title="t", body="b")

    found = anchor(finding, change.files, change.head)

    assert found is not None
    assert found.line == line
    assert new.split("\n")[line - 1] == found.quote


def test_quoted_function_header_that_is_new_keeps_its_line() -> None:
    change = from_texts({}, {"a.py": HEADED})
    finding = Finding(path="a.py", quote="def load(name):", title="t", body="b")

    found = anchor(finding, change.files, change.head)

    assert found is not None
    assert (found.line, found.anchor) == (1, "exact")


@pytest.mark.parametrize(
    "path", ["src/x/one.py", "one.py", "x/one.py", "a/src/x/one.py", "./src/x/one.py", "`one.py`"]
)
def test_path_of_a_changed_file_is_recognised(path: str) -> None:
    files = from_texts({}, {"src/x/one.py": "1\n", "src/two.py": "2\n"}).files

    assert resolve_path(path, files) == "src/x/one.py"


def test_path_that_could_be_two_files_is_not_resolved() -> None:
    files = from_texts({}, {"a/one.py": "1\n", "b/one.py": "2\n"}).files

    assert resolve_path("one.py", files) == "one.py"


def test_added_line_is_preferred_to_an_equal_context_line() -> None:
    change = from_texts(
        {"c.py": "value = 12345\na\nb\n"}, {"c.py": "value = 12345\na\nvalue = 12345\nb\n"}
    )

    place = locate("value = 12345", "c.py", change.files, change.head)

    assert place is not None
    assert (place.start, place.how) == (3, "exact")


def test_quote_with_a_gap_is_found_by_its_longest_line() -> None:
    found = put("total = compute(first, second)\n...\nreturn nothing_like_this")

    assert found is not None
    assert found.line == 20


_rows = st.lists(
    st.sampled_from(["alpha = beta(1)", "gamma = delta(2)", "return epsilon", "", "    if zeta:"]),
    max_size=20,
)


@settings(max_examples=examples(200), deadline=None)
@given(_rows, _rows, st.integers(0, 30), st.integers(1, 3))
def test_every_quote_from_a_hunk_is_placed_on_its_lines(
    old: list[str], new: list[str], at: int, size: int
) -> None:
    change = from_texts({"x.py": "\n".join([*old, ""])}, {"x.py": "\n".join([*new, ""])})
    if not change.files or not change.files[0].hunks:
        return
    file = change.files[0]
    hunk = file.hunks[at % len(file.hunks)]
    rows = [line for line in hunk.lines if line.new is not None]
    picked = rows[at % max(len(rows), 1) :][:size]
    quote = "\n".join(line.text for line in picked)
    if sum(not char.isspace() for char in quote) < 8:
        return

    place = locate(quote, "x.py", change.files, change.head, picked[0].new)

    assert place is not None
    assert place.start is not None
    assert place.end is not None
    assert {place.start, place.end} <= file.commentable
    lines = change.head["x.py"].split("\n")[place.start - 1 : place.end]
    assert "".join("".join(lines).split()) == "".join(quote.split())
    assert any(
        place.start in one.commentable and place.end in one.commentable for one in file.hunks
    )


def shop() -> Bundle:
    return from_texts({"shop.py": OLD}, {"shop.py": NEW}, ReviewedChange(title="Average"))


def suggested(
    text: str | None, path: str = "shop.py", line: int | None = 3, bundle: Bundle | None = None
) -> str:
    finding = Finding(path=path, quote="q", title="t", body="b", suggestion=text, line=line)
    return fault(finding, bundle or shop())


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("    return sum(prices) / max(count, 1)", ""),
        ("    return sum(prices) / count", "changes nothing"),
        ("    return sum(prices) / (count", "no longer parses"),
        ("return sum(prices)", "indented differently"),
        (
            "    count = len(prices)\n    return sum(prices) / max(count, 1)",
            "repeats the line above",
        ),
        ("```\n    return 1\n```", "contains a code fence"),
        ("    x = 1\n" * 60, "longer than"),
        (None, ""),
    ],
)
def test_problems_of_suggestions_are_reported(text: str | None, wrong: str) -> None:
    assert wrong in suggested(text)
    if not wrong:
        assert suggested(text) == ""


@pytest.mark.parametrize(
    ("path", "old", "new", "suggestion", "ok"),
    [
        ("a.json", '{\n  "a": 1\n}\n', '{\n  "a": 2\n}\n', '  "a": 3', True),
        ("a.json", '{\n  "a": 1\n}\n', '{\n  "a": 2\n}\n', '  "a": 3,', False),
        ("a.toml", "x = 1\ny = 1\n", "x = 1\ny = 2\n", "y = ", False),
        ("a.yaml", "x:\n  y: 1\n", "x:\n  y: 2\n", "\ty: 3", False),
        ("a.yaml", "x:\n  y: 1\n", "x:\n  y: 2\n", "  y: 3", True),
        ("a.yaml", "x:\n  y: 1\n", "x:\n  y: 2\n", "  y:3", False),
        ("a.yaml", "x:\n  y: 1\n", "x:\n  y: 2\n", "  y://3", True),
        ("a.yaml", "x:\n  y: 1\n", "x:\n  y: 2\n", "  y:{3}", True),
        ("a.yaml", "x:\n  y: 1\n", "x:\n  y: 2\n", "  y:'3'", True),
        ("a.ts", "f({\n  a: 1,\n});\n", "f({\n  a: 2,\n});\n", "  a: 3 },", False),
        ("a.go", "f(\n\t1,\n)\n", "f(\n\t2,\n)\n", "\t3,", True),
    ],
)
def test_suggestions_in_other_languages_are_checked(
    path: str, old: str, new: str, suggestion: str, ok: bool
) -> None:
    bundle = from_texts({path: old}, {path: new})

    assert (suggested(suggestion, path, 2, bundle) == "") is ok


def test_a_suggestion_on_a_last_line_without_a_newline_is_checked() -> None:
    bundle = from_texts({"a.py": "x = 1\ny = 1"}, {"a.py": "x = 1\ny = 2"})

    assert suggested("y = 3", "a.py", 2, bundle) == ""
    assert "changes nothing" in suggested("y = 2", "a.py", 2, bundle)
    assert "repeats the line above" in suggested("x = 1\ny = 3", "a.py", 2, bundle)


def test_suggestions_that_relax_a_test_are_recognised() -> None:
    bundle = from_texts({}, {"test_a.py": "def test_a():\n    assert total([]) == 0\n"})
    finding = Finding(
        path="test_a.py",
        quote="    assert total([]) == 0",
        title="Wrong",
        body="Remove this assertion.",
        line=2,
    )

    assert weakens_test(finding, bundle)
    assert weakens_test(replace(finding, body="It fails.", suggestion="    total([])"), bundle)
    assert not weakens_test(replace(finding, body="It also has to cover None."), bundle)


def test_short_quote_is_placed_exactly_or_nearest_to_the_claimed_line() -> None:
    once = from_texts({}, {"a.py": "x = 1\ny = 2\n"})
    twice = from_texts({}, {"a.py": "x = 1\ny = 2\nz = 3\nw = 4\nx = 1\n"})
    gone = from_texts({"a.py": "x = 1\ny = 2\n"}, {"a.py": "y = 2\n"})

    def place(change: Bundle, claimed: int | None = None) -> tuple[int | None, str] | None:
        found = locate("x = 1", "a.py", change.files, change.head, claimed)
        return None if found is None else (found.end, found.how)

    assert place(once) == (1, "exact")
    assert place(twice) is None
    assert place(twice, 4) == (5, "nearest")
    assert place(twice, 2) == (1, "nearest")
    assert place(twice, 9) is None
    assert place(gone) == (1, "deleted")
