"""Tests of glob patterns for paths and texts."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from fakes.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from glue.globs import Glob, expand_braces, matches_text, parse_globs


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("*.py", "a.py", True),
        ("*.py", "a/b.py", False),
        ("**/*.py", "a.py", True),
        ("**/*.py", "a/b/c.py", True),
        ("a/**", "a/b/c", True),
        ("a/**", "a", False),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("**/a/**/b/*.c", "x/a/a/b/b/z.c", True),
        ("a?c", "abc", True),
        ("[!a]x", "bx", True),
        ("[^a]x", "ax", False),
        ("[a-c]x", "bx", True),
        ("[]]x", "]x", True),
        ("[", "[", True),
        ("a\\*", "a*", True),
        ("a\\*", "ab", False),
        ("*a*b*c", "xxaxxbxxc", True),
        ("*a*b*c", "xxaxxcxxb", False),
        ("**", "a/b", True),
    ],
)
def test_path_globs_match_component_by_component(pattern: str, path: str, fits: bool) -> None:
    assert Glob(pattern).matches(path.split("/")) is fits


def test_globs_take_linear_time() -> None:
    for pattern, path in (
        ("*a" * 40 + "*b", "a" * 200),
        ("*[a-b]?" * 40 + "c", "ab" * 100),
        ("**/a/" * 40 + "b", "a/" * 200),
    ):
        assert not Glob(pattern).matches(path.split("/"))


@settings(max_examples=examples(100))
@given(st.text("ab*?[]!^-\\/", max_size=12), st.text("ab/", max_size=12))
def test_any_text_is_a_valid_glob(pattern: str, path: str) -> None:
    assert Glob(pattern).matches(path.split("/")) in (True, False)


def test_braces_are_expand_braces() -> None:
    assert expand_braces("*.{a,b}{c,d}") == ["*.ac", "*.ad", "*.bc", "*.bd"]
    assert expand_braces("{a") == ["{a"]
    assert len(expand_braces("{a,b}" * 30)) <= 200


def test_a_pattern_without_a_slash_matches_at_any_depth() -> None:
    (glob,) = parse_globs("*.py")

    assert glob.matches(["a.py"])
    assert glob.matches(["src", "app", "a.py"])


def test_a_pattern_that_starts_with_the_root_is_relative_to_it() -> None:
    (glob,) = parse_globs("/project/src/*.py", ["/project"])

    assert glob.matches(["src", "a.py"])


@pytest.mark.parametrize(
    ("text", "pattern", "fits"),
    [
        ("docs/a/b.md", "docs/*", True),
        ("docs", "docs/*", False),
        ("git push origin", "git push*", True),
        ("a\\*b", "a\\*b", True),
        ("a*b", "a\\*b", False),
        ("grep foo\\.bar", "grep foo\\.bar", True),
        ("[", "[", True),
        ("line\nbreak", "line*", True),
    ],
)
def test_stars_of_a_text_pattern_match_slashes_and_backslashes_are_literal(
    text: str, pattern: str, fits: bool
) -> None:
    assert matches_text(text, pattern) is fits


@settings(max_examples=examples(100))
@given(st.text("ab/*?[]!.", max_size=8), st.text("ab/[]!.*", max_size=8))
def test_text_patterns_agree_with_the_standard_library(pattern: str, text: str) -> None:
    assert matches_text(text, pattern) is fnmatchcase(text, pattern)


def test_text_patterns_take_linear_time() -> None:
    assert not matches_text("a" * 5000, "*a" * 200 + "*b")


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("*", "a/b", False),
        ("src/*", "src/a/b", False),
        ("**/a/b", "a/x/a/b", True),
        ("**/a/b", "a/a/a/b", True),
        ("**/a/b", "a/x/a/x/b", False),
        ("a/**", "a", False),
        ("**/a", "a", True),
        ("[!a]x", "bx", True),
        ("[!a]x", "ax", False),
        ("[^a]x", "bx", True),
        ("[b-b]x", "bx", True),
        ("[z-ab]x", "bx", True),
        ("[z-ab]x", "mx", False),
        ("[z-a]x", "mx", False),  # no character is in this range
        ("[!z-a]x", "mx", True),
        ("[!z-a]x", "m", False),
        ("[[:digit:]]x", "7x", True),
        ("[[:digit:]a]x", "ax", True),
        ("[[:digit:]]x", "dx", False),
        ("[[:nothing:]]x", "nx", False),
    ],
)
def test_stars_and_brackets_match_as_in_a_shell(pattern: str, path: str, fits: bool) -> None:
    assert Glob(pattern).matches(path.split("/")) is fits


def test_only_two_stars_match_the_folder_itself() -> None:
    assert Glob("**").matches([])
    for pattern in ("*", "a", "a/**"):
        assert not Glob(pattern).matches([])


@pytest.mark.parametrize(
    ("pattern", "name", "strict"),
    [
        ("[a", "[a", False),
        ("x[", "x[", False),
        ("*[a", "b[a", False),
        ("*\\", "b\\", False),
        ("a*", "ab", True),
        ("[a]*", "ab", True),
        ("\\*\\[", "*[", True),
    ],
)
def test_a_malformed_pattern_matches_itself_but_nothing_if_strict(
    pattern: str, name: str, strict: bool
) -> None:
    assert Glob(pattern).matches([name])
    assert Glob(pattern, strict=True).matches([name]) is strict


def test_braces_mean_at_most_64_patterns() -> None:
    numbers = [str(number) for number in range(65)]

    assert expand_braces("{" + ",".join(numbers[:64]) + "}") == numbers[:64]
    assert expand_braces("{" + ",".join(numbers) + "}") == numbers[:64]
    assert expand_braces("{" + ",".join(numbers) + "}{x,y}")[0] == "0{x,y}"  # too many already
    assert len(expand_braces("{a,b}" * 7)) == 64


def test_a_pattern_has_at_most_1024_characters() -> None:
    for found in (Glob("a" * 1025), *map(Glob, expand_braces("a" * 1025))):
        assert found.matches(["a" * 1024])
