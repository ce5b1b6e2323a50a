"""Texts for people: control characters are shown or dropped, and numbers are readable."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glue.messages import Usage
from glue.text import (
    clean_text,
    columns,
    cost_text,
    count,
    cut,
    file_name,
    format_dollars,
    format_seconds,
    one_line,
    suggest,
    usage_text,
)


@given(st.text())
def test_cleaned_text_contains_no_control_characters(text: str) -> None:
    for letter in clean_text(text):
        assert letter in "\n\t" or unicodedata.category(letter) not in ("Cc", "Cs", "Zl", "Zp")
        assert letter not in "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


@given(st.text("aB9 .,/\\\n\t\u00e4\u200d\u200f\u6f22\U0001f44d"))
def test_ordinary_text_is_not_changed(text: str) -> None:
    assert clean_text(text) == text


@given(st.text(), st.integers(1, 40))
def test_one_line_returns_one_line_of_at_most_the_width(text: str, width: int) -> None:
    line = one_line(text, width)

    assert len(line) <= width
    assert "\n" not in line


def test_control_and_invisible_characters_are_shown() -> None:
    assert clean_text("a\x1b[2Jb\x07\r\nc\x9b\u202ed\x7f") == "a␛[2Jb␇\nc⟨U+009B⟩⟨U+202E⟩d␡"
    assert clean_text("\u2028\u2061\u2066\u2069") == "⟨U+2028⟩⟨U+2061⟩⟨U+2066⟩⟨U+2069⟩"
    assert clean_text("\u2065\u206a\u206f") == "⟨U+2065⟩⟨U+206A⟩⟨U+206F⟩"
    assert clean_text("\u200b\ud800\ufeff\U000e0041\x00") == "⟨U+200B⟩⟨U+D800⟩⟨U+FEFF⟩⟨U+E0041⟩␀"


def test_line_ends_tabs_and_marks_of_scripts_are_kept() -> None:
    text = "tab\tand\nline, שלום\u200f, می\u200cخواهم, 👩\u200d🚀, naïve 日本語"

    assert clean_text(text) is text


def test_drop_removes_invisible_characters() -> None:
    assert clean_text("a\u200bb\u202ec\x1b[0m\ufeff\U000e0041", drop=True) == "abc[0m"
    assert clean_text("a\u3164\u2800\u115fb\ufe0f\U000e0100\U000e01efc", drop=True) == "abc"
    assert clean_text("tab\tand\r\nline\u2028end", drop=True) == "tab\tand\nline\nend"
    assert clean_text("naïve 日本語 emoji 🔴", drop=True) == "naïve 日本語 emoji 🔴"
    assert clean_text("a" + "\u0301" * 40, drop=True) == "a" + "\u0301" * 3


def test_one_line_cleans_and_shortens_a_text() -> None:
    assert one_line(" a\n b\x1b ") == "a b␛"
    assert one_line("a\u200b b", drop=True) == "a b"
    assert one_line("x" * 400, 10) == "xxxxxxxxx…"
    assert one_line("exactly", 7) == "exactly"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 ms"),
        (0.42, "420 ms"),
        (0.9999, "1.0 s"),
        (59.9, "59.9 s"),
        (59.99, "1 m 0 s"),
        (3599.6, "1 h 0 m"),
        (2e5, "2 d 7 h"),
    ],
)
def test_durations_have_readable_units(value: float, text: str) -> None:
    assert format_seconds(value) == text


def test_small_costs_are_not_rounded_to_nothing() -> None:
    assert [format_dollars(value) for value in (0.0, 0.00001, 0.0012, 1234.5)] == [
        "$0.0000",
        "under $0.0001",
        "$0.0012",
        "$1,234.50",
    ]


def test_a_count_has_the_right_form_of_the_noun() -> None:
    counts = [count(1, "file"), count(2000, "file"), count(2, "reply", "replies")]

    assert counts == ["1 file", "2,000 files", "2 replies"]


def test_swapped_letters_of_a_short_name_are_recognized() -> None:
    assert suggest("mpa", ("map", "mcp", "acp")) == "did you mean map?"


@pytest.mark.parametrize(
    ("text", "width", "shortened"),
    [
        ("\u65e5\u672c", 4, "\u65e5\u672c"),
        ("\u65e5\u672c", 3, "\u65e5\u2026"),
        ("\u65e5\u672c\u8a9e", 5, "\u65e5\u672c\u2026"),
        ("\u65e5\u672c\u8a9e", 4, "\u65e5\u2026"),
        ("\u00e4bcd", 4, "\u00e4bcd"),
        ("\u00e4bcd", 3, "\u00e4b\u2026"),
        ("abcd", 4, "abcd"),
        ("abc d", 5, "abc d"),
        ("abc de", 5, "abc\u2026"),
        ("abcd", 0, "\u2026"),
    ],
)
def test_a_text_is_cut_to_columns_of_a_terminal(text: str, width: int, shortened: str) -> None:
    assert cut(text, width) == shortened


def test_wide_letters_have_two_columns_and_marks_have_none() -> None:
    texts = ["abc", "\u65e5\u672ca", "e\u0301a", "\uff21b", "\u00e4"]

    assert [columns(text) for text in texts] == [3, 5, 2, 3, 1]


def test_three_marks_of_a_letter_are_kept_whatever_the_letter_is() -> None:
    for letter in ("a", "\u65e5", "\u00e4", ""):
        assert clean_text(letter + "\u0301" * 9, drop=True) == letter + "\u0301" * 3
    assert clean_text("\u65e5\u672c\u8a9e" * 3, drop=True) == "\u65e5\u672c\u8a9e" * 3
    assert clean_text("\u65e5\u0301" * 9, drop=True) == "\u65e5\u0301" * 9
    assert clean_text("a\x7fb\x00c", drop=True) == "abc"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.9994, "999 ms"),
        (0.9995, "1.0 s"),
        (59.94, "59.9 s"),
        (59.95, "1 m 0 s"),
        (3599, "59 m 59 s"),
        (3600, "1 h 0 m"),
        (48 * 3600 - 1, "47 h 59 m"),
        (48 * 3600, "2 d 0 h"),
        (55 * 3600, "2 d 7 h"),
        (72 * 3600 - 1, "2 d 23 h"),
        (72 * 3600, "3 d 0 h"),
    ],
)
def test_the_unit_of_a_duration_changes_where_the_number_would_be_too_long(
    value: float, text: str
) -> None:
    assert format_seconds(value) == text


def test_cached_and_reasoning_tokens_are_shown_if_there_are_any() -> None:
    full = Usage(input=1200, output=80, cache_read=1000, reasoning=50)

    assert usage_text(full) == "1,200 tokens in (1,000 cached), 80 out (50 thinking)"
    assert usage_text(Usage(input=1, cache_read=0, reasoning=0)) == "1 tokens in, 0 out"


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "cost unknown"), (0.0001, "$0.0001"), (0.9999, "$0.9999"), (1.0, "$1.00")],
)
def test_amounts_below_a_dollar_have_four_decimals(value: float | None, text: str) -> None:
    assert cost_text(value) == text


def test_a_hint_names_the_most_similar_name_or_all_names() -> None:
    assert suggest("timeout", ("seconds", "model")) == "did you mean seconds?"
    assert suggest("timeout", ("model", "a")) == "there are: a, model"
    assert suggest("budget_usd", ("usd_budget", "model")) == "did you mean usd_budget?"
    assert suggest("modle", ("model", "mode_l")) == "did you mean model?"


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("openai:gpt-5.4 nano", "openai-gpt-5.4-nano"),
        ("..", "x"),
        ("-a_B9.", "a_B9"),
        ("\u00e9", "x"),
    ],
)
def test_a_file_name_has_only_harmless_characters(name: str, found: str) -> None:
    assert file_name(name) == found
