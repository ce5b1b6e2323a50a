"""`glue.hidden`: characters that can make a line of code look harmless."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glue.hidden import HIDDEN_CHARACTERS
from glue.text import clean_text


@given(st.characters())
def test_clean_text_shows_the_hidden_characters(letter: str) -> None:
    kinds = [kind for kind, pattern in HIDDEN_CHARACTERS.items() if pattern.search(letter)]

    assert len(kinds) <= 1
    assert not kinds or clean_text(letter, drop=True) == ""
    is_needed_by_prose = letter in "\u061c\u200e\u200f"
    assert not kinds or clean_text(letter) != letter or is_needed_by_prose


@pytest.mark.parametrize(
    "letter", "\u061c\u200e\u200f\u202e\u2067\u180e\u2060\u206a\ufeff\U000e0041"
)
def test_hidden_characters_in_code_are_found(letter: str) -> None:
    assert any(pattern.search(f"a{letter}b") for pattern in HIDDEN_CHARACTERS.values())
