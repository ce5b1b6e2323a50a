"""Quotes become lines: exact, nearest, relocated, deleted, outside, or dropped."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from glue.agents.review.change.collect import from_texts
from glue.agents.review.findings.anchor import anchor, locate
from glue.agents.review.records import Bundle, Finding

BEFORE = "\n".join(f"line number {n}" for n in range(1, 41)) + "\n"
AFTER = (
    BEFORE.replace("line number 20\n", "total = compute(first, second)\nresult = 1\n")
    .replace("line number 30\n", "result = 1\nreturn total\n")
    .replace("line number 25\n", "")
)


def bundle() -> Bundle:
    return from_texts({"a.py": BEFORE, "b.py": "x = 1\n"}, {"a.py": AFTER, "b.py": "x = 1\nother_function(x)\n"})


def put(quote: str, *, path: str = "a.py", claimed: int | None = None) -> Finding | None:
    change = bundle()
    finding = Finding(path=path, quote=quote, title="t", body="b", claimed=claimed)
    return anchor(finding, change.files, change.head)


def test_a_quote_that_occurs_once_gives_the_line_whatever_was_claimed() -> None:
    found = put("total = compute(first, second)", claimed=3)

    assert found is not None
    assert (found.line, found.anchor, found.side) == (20, "exact", "RIGHT")


def test_blanks_do_not_matter() -> None:
    found = put("  total=compute( first,\tsecond )")

    assert found is not None
    assert found.line == 20


def test_the_sign_and_the_numbers_of_the_shown_hunk_are_forgiven() -> None:
    line = "total = compute(first, second)"
    for quote in (f"+{line}", f"   20 +{line}", f"```py\n{line}\n```"):
        found = put(quote)
        assert found is not None, quote
        assert found.line == 20


def test_of_two_places_the_claimed_line_chooses() -> None:
    near, far = put("result = 1\n", claimed=19), put("result = 1", claimed=33)

    assert near is not None
    assert far is not None
    assert (near.line, near.anchor) == (21, "nearest")
    assert far.line == 30


def test_several_lines_give_a_range() -> None:
    found = put("total = compute(first, second)\nresult = 1")

    assert found is not None
    assert (found.start_line, found.line) == (20, 21)


def test_a_quote_of_another_file_of_the_diff_is_moved_there() -> None:
    found = put("other_function(x)")

    assert found is not None
    assert (found.path, found.line, found.anchor) == ("b.py", 2, "relocated")


def test_a_deleted_line_stands_on_the_left_and_gets_no_inline_place() -> None:
    found = put("line number 25")

    assert found is not None
    assert (found.side, found.line, found.anchor, found.start_line) == ("LEFT", 25, "deleted", None)


def test_a_line_outside_of_every_hunk_is_known_but_takes_no_comment() -> None:
    found = put("line number 10")

    assert found is not None
    assert (found.line, found.anchor) == (None, "file")


def test_a_quote_that_is_nowhere_is_dropped() -> None:
    assert put("this was never written") is None


def test_a_short_quote_proves_nothing() -> None:
    assert put("result") is None
    assert put("x = 1    ", path="b.py") is None


def test_an_added_line_is_preferred_to_the_same_text_around_it() -> None:
    change = from_texts({"c.py": "value = 12345\na\nb\n"}, {"c.py": "value = 12345\na\nvalue = 12345\nb\n"})

    place = locate("value = 12345", "c.py", change.files, change.head)

    assert place is not None
    assert (place.start, place.how) == (3, "exact")


def test_a_quote_with_a_gap_is_found_by_its_longest_line() -> None:
    found = put("total = compute(first, second)\n...\nreturn nothing_like_this")

    assert found is not None
    assert found.line == 20


_rows = st.lists(
    st.sampled_from(["alpha = beta(1)", "gamma = delta(2)", "return epsilon", "", "    if zeta:"]), max_size=20
)


@settings(max_examples=200, deadline=None)
@given(_rows, _rows, st.integers(0, 30), st.integers(1, 3))
def test_every_quote_from_a_hunk_lands_on_a_commentable_line_that_holds_it(
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
    assert place.side == "RIGHT"
    assert {place.start, place.end} <= file.commentable
    lines = change.head["x.py"].split("\n")[place.start - 1 : place.end]
    assert "".join("".join(lines).split()) == "".join(quote.split())
    assert any(place.start in one.commentable and place.end in one.commentable for one in file.hunks)
