"""The parser of command lines finds the commands that a shell runs."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest

from glue.shellwords import parse, program


@pytest.mark.parametrize(
    "line",
    [
        "rm x",
        " rm\tx",
        "r''m x",
        'r""m x',
        "r\\m x",
        "r\\\nm x",
        "'rm' x",
        "rm x # comment",
        "rm x\n",
    ],
)
def test_quotes_and_escapes_do_not_change_the_command(line: str) -> None:
    found = parse(line)

    assert found.plain
    assert found.commands[0].text == "rm x"
    assert not found.unclear


def test_bash_quotes_are_decoded_and_marked_as_opaque() -> None:
    found = parse("$'\\x72m' x").commands[0]

    assert found.text == "rm x"
    assert found.opaque


@pytest.mark.parametrize(
    ("line", "commands"),
    [
        ("git log; rm -rf .", ["git log", "rm -rf ."]),
        ("git log && rm x || ls", ["git log", "rm x", "ls"]),
        ("git log | tee x & rm y", ["git log", "tee x", "rm y"]),
        ("git log\nrm x", ["git log", "rm x"]),
        ("(cd a; rm x)", ["cd a", "rm x"]),
        ("if true; then rm x; fi", ["true", "rm x"]),
        (">log rm x", ["rm x"]),
        ("rm x 2>/dev/null", ["rm x"]),
        ("rm x '2'>/dev/null", ["rm x 2"]),
        ("sh -c 'ls; rm x'", ["sh -c 'ls; rm x'", "ls", "rm x"]),
        ("env A=1 rm x", ["env A=1 rm x", "A=1 rm x", "rm x", "x"]),
        ("env -S'rm x'", ["env '-Srm x'", "rm x"]),
        ("find . -exec rm {} +", ["find . -exec rm {} +", "rm {} +", "{} +", "+"]),
    ],
)
def test_every_command_of_a_line_is_found(line: str, commands: list[str]) -> None:
    found = parse(line)

    assert [command.text for command in found.commands] == commands
    assert found.plain is (line[:2] in ("sh", "en", "fi"))


@pytest.mark.parametrize(
    "line",
    [
        "git log $(rm x)",
        "git log `rm x`",
        'git log "$(rm x)"',
        "git log <(rm x)",
        "cat <<E\nrm\nE",
        "f() { rm x; }; f",
        "x=rm; $x y",
        "${x} y",
        "{rm,x}",
        "/bin/r? x",
        "eval rm x",
        ". ./script",
        "bash script",
        'sh -c $"rm x"',
        "for f in *; do rm $f; done",
        "case x in x) rm y;; esac",
        "git log 'open",
        "git log $'open\\",
        "coproc X { rm y; }",
        "echo ${x:-`rm`}",
    ],
)
def test_a_line_that_may_run_other_commands_is_unclear(line: str) -> None:
    assert parse(line).unclear


def test_a_list_is_one_command() -> None:
    found = parse(["git", "log; rm x"])

    assert found.plain
    assert found.commands[0].text == "git 'log; rm x'"
    assert [command.text for command in parse(["sh", "-c", "rm x"]).commands][1:] == ["rm x"]


@pytest.mark.parametrize(
    "line",
    [
        "env " * 16_000,
        "${" * 30_000,
        "{a" * 30_000,
        "\n" * 60_000,
        "find " + "a " * 30_000,
        "sh -c " * 9_000,
    ],
)
def test_long_lines_are_parsed_quickly(line: str) -> None:
    # The test passes only if parsing takes linear time.
    assert parse(line).unclear or not parse(line).plain


# fmt: off
ATOMS = [
    "pa", "pb", "'pa'", "p''a", "$'p\\x61'", "p\\a", "sh -c ", "env ", "eval ",
    " ", "  ", "\t", "'", '"', "\\", "$'", "$", "`", ";", "&&", "||", "|", "&", "\n", "#",
    "(", ")", "{", "}", "<", ">",
    "x", "y z", "-f", "~", "*", "?", "[", "a=1", "if", "then", "fi", "!", "\\\n", "$x", "$(",
    "<<", "2>", "''", "\r",
]
# fmt: on


def test_a_real_shell_runs_only_the_commands_that_were_found(tmp_path: Path) -> None:
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
    ran = plain = 0
    for _ in range(int(os.environ.get("GLUE_LINES", "250"))):
        line = maker.choice(["pa ", "pb ", "env pa ", ""]) + "".join(
            maker.choices(ATOMS, k=maker.randrange(1, 8))
        )
        if "&" in line.replace("&&", ""):
            continue  # a background command may end after the test
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
            [word.decode() for word in each.split(b"\0")[:-1]]
            for each in log.read_bytes().split(b"\1")[:-1]
        ]
        found = parse(line)
        ran += bool(seen)
        names = {words[0].text for command in found.commands if (words := program(command.words))}
        assert found.unclear or all(words[0] in names for words in seen), line
        if found.plain and not found.unclear and not found.commands[0].opaque:
            plain += 1
            words = program(found.commands[0].words)
            assert len(seen) <= 1, line
            if (
                seen
                and words[0].text != "env"
                and not any(word.glob for word in words)
                and "$'" not in line
            ):
                assert seen[0] == [word.text for word in words], line

    assert ran > 50
    assert plain > 20
