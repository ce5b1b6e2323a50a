"""The words of plain commands, and names of programs in command lines."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest

from glue.shellwords import code_variable, join, may_hide, names, read


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("git log", ["git", "log"]),
        ("  git\tlog  --oneline \n", ["git", "log", "--oneline"]),
        ("git log 'a; b' \"c d\"", ["git", "log", "a; b", "c d"]),
        ("git log --format='%h %s'", ["git", "log", "--format=%h %s"]),
        ("git show HEAD~2^:a.py", ["git", "show", "HEAD~2^:a.py"]),
        ("echo '' x", ["echo", "", "x"]),
        ("ls é", ["ls", "é"]),
    ],
)
def test_a_plain_command_is_split_into_its_words(line: str, words: list[str]) -> None:
    assert read(line) == tuple(words)


@pytest.mark.parametrize(
    "line",
    [
        "",
        " ",
        "a; b",
        "a & b",
        "a | b",
        "a\nb",
        "a > b",
        "a < b",
        "a $b",
        'a "$b"',
        "a `b`",
        'a "`b`"',
        "a *",
        "a b?",
        "a [b]",
        "a {b,c}",
        "a ~/b",
        "a b=~/c",
        "a \\b",
        'a "\\b"',
        "a (b)",
        "a #b",
        "! a",
        "a 'b",
        'a "b',
        "a\x01b",
        "a\u00a0b",
        "a\rb",
        "A=1 b",
        "'a' b",
        "a''b c",
        "a" + " b" * 600,
    ],
)
def test_any_other_line_has_no_words(line: str) -> None:
    assert read(line) is None


def test_a_command_of_more_than_500_words_has_no_words() -> None:
    for number, words in ((500, 500), (501, None)):
        assert len(read(" ".join(["a"] * number)) or ()) == (words or 0)
        assert len(read(["a"] * number) or ()) == (words or 0)


@pytest.mark.parametrize("line", ["a 'b\x01'", 'a "\u202e"', "a 'b\nc'", "a\r"])
def test_a_line_with_unprintable_characters_has_no_words(line: str) -> None:
    assert read(line) is None
    assert read(["a", line]) is None


@pytest.mark.parametrize(
    ("line", "hides"),
    [("git log", False), ("/bin/rm -rf x=1 | cat", False)]
    + [(f"a {character} b", True) for character in "$`'\"\\*?[]{}~!"],
)
def test_a_line_hides_a_program_if_a_shell_may_build_its_name(line: str, hides: bool) -> None:
    assert may_hide(line, "rm") is hides


def test_a_program_is_found_after_the_letters_of_an_option() -> None:
    assert names("tar -Irm x", "rm")
    assert names("tar -xIrm x", "rm")
    assert names("tar -xrm x", "m")
    assert not names("tar -rm x", "rm")  # here both letters are options
    assert not names("tar --Irm x", "rm")
    assert not names("tar Irm x", "rm")


def test_words_with_blanks_or_quotes_are_quoted_in_a_line() -> None:
    assert join(["git", "log", "-n1", "$x", "a*", "(b)"]) == "git log -n1 $x a* (b)"
    assert join(["echo", "a b", "", "it's", 'a"b', "a\\b", "x\ty"]) == (
        "echo 'a b' '' 'it'\"'\"'s' 'a\"b' 'a\\b' 'x\ty'"
    )


def test_a_list_is_taken_as_it_is() -> None:
    assert read(["git", "log; rm x"]) == ("git", "log; rm x")
    assert read([]) is None
    assert read(["a\nb"]) is None


@pytest.mark.parametrize(
    ("text", "program", "found"),
    [
        ("rm x", "rm", True),
        ("/bin/rm x", "rm", True),
        ("/bin/rm x", "/usr/bin/rm", True),
        ("/bin/RM x", "rm", True),
        ("a;rm;b", "rm", True),
        ("--exec=rm", "rm", True),
        ("-iSrm", "rm", True),
        ("exec+rm", "rm", True),
        ("rm.txt", "rm", False),
        ("form", "rm", False),
        ("--rm", "rm", False),
        ("rm_x", "rm", False),
        ("g++ x", "g++", True),
        ("rmdir x", "rm*", True),
    ],
)
def test_a_program_is_named_as_a_word_or_as_the_end_of_a_path(
    text: str, program: str, found: bool
) -> None:
    assert names(text, program) is found


@pytest.mark.parametrize(
    ("words", "hides"),
    [
        (["grep", "def main(", "src"], False),
        (["find", ".", "-name", "*.py"], False),
        (["sh", "-c", "bin/r? x"], True),
        (["sh", "-c", "bin/[r]m x"], True),
        (["sh", "-c", "$x"], True),
        (["sh", "-c", "r''m x"], True),
    ],
)
def test_words_hide_a_program_if_code_in_them_may_name_it(words: list[str], hides: bool) -> None:
    assert may_hide(words, "rm") is hides


def test_variables_that_make_programs_run_code_are_found() -> None:
    assert code_variable("env BASH_ENV=x bash") == "BASH_ENV"
    assert code_variable("git -c x GIT_PAGER=less log") == "GIT_PAGER"
    assert code_variable("make NAME=x --path=y") == ""


@pytest.mark.parametrize("line", ["a " * 30_000, "'" * 60_000, 'a"b"' * 15_000, "*" * 60_000])
def test_long_lines_are_read_quickly(line: str) -> None:
    # The test passes only if the time is linear.
    assert read(line) is None
    assert not names(line, "rm")


# fmt: off
ATOMS = [
    "pa", "pb", "'pa'", "p''a", "$'p\\x61'", "p\\a", "sh -c ", "env ", "eval ",
    " ", "  ", "\t", "'", '"', "\\", "$'", "$", "`", ";", "&&", "||", "|", "&", "\n", "#",
    "(", ")", "{", "}", "<", ">",
    "x", "y z", "-f", "~", "*", "?", "[", "a=1", "if", "then", "fi", "!", "\\\n", "$x", "$(",
    "<<", "2>", "''", "\r", '"x y"', "'a;b'",
]
# fmt: on


def test_a_real_shell_runs_a_plain_command_with_exactly_its_words(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for name in ("pa", "pb"):
        program_file = tmp_path / name
        program_file.write_text(
            '#!/bin/sh\nprintf "%s\\0" "${0##*/}" "$@" >> "$LOG"; printf "\\1" >> "$LOG"\n'
        )
        program_file.chmod(0o755)
    work = tmp_path / "work"
    work.mkdir()
    maker = random.Random(13)
    plain = 0
    for _ in range(int(os.environ.get("GLUE_LINES", "600"))):
        line = maker.choice(["pa ", "pb "]) + "".join(maker.choices(ATOMS, k=maker.randrange(1, 5)))
        words = read(line)
        if words is None:
            continue
        log.write_bytes(b"")
        subprocess.run(
            ["/bin/sh", "-c", line],
            env={"PATH": f"{tmp_path}:/usr/bin:/bin", "LOG": str(log), "HOME": "/nonexistent"},
            cwd=work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=20,
        )
        seen = [
            tuple(word.decode() for word in each.split(b"\0")[:-1])
            for each in log.read_bytes().split(b"\1")[:-1]
        ]
        plain += 1
        assert seen == [words], line

    assert plain > 60
