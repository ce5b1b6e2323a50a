"""Variables from files: `--env`, and the stored API keys."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glue.cli.env import read_env

Cli = Callable[..., Any]


def test_variables_of_a_file_do_not_replace_those_that_are_set(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("my.env").write_text("# mine\nexport GLUE_MODEL=offline\nOTHER='a b'\n")
    monkeypatch.setenv("OTHER", "mine")

    ran = cli("run", "--env", "my.env", "hi")

    assert ran.code == 0, ran.err
    assert os.environ["OTHER"] == "mine"
    Path("bad.env").write_text("no equals sign\n")
    assert "bad.env, line 1: expected NAME=value" in cli("run", "--env", "bad.env", "hi").err
    Path("bad.env").write_text("A=\0\n")
    assert "bad.env, line 1: expected NAME=value" in cli("run", "--env", "bad.env", "hi").err


def test_a_key_file_that_other_users_can_read_is_refused(cli: Cli) -> None:
    cli("keys", "set", "openai", input="sk-1\n")
    path = Path(cli("keys", "path").out.strip())
    path.chmod(0o644)

    ran = cli("providers")

    assert (ran.code, "other users can read or write" in ran.err) == (2, True)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("A=b", {"A": "b"}),
        ("  export A = b c  ", {"A": "b c"}),
        ("A='b c'", {"A": "b c"}),
        ('A="b"', {"A": "b"}),
        ("A='b", {"A": "'b"}),
        ("A='b\"", {"A": "'b\""}),
        ("A='", {"A": "'"}),
        ("A=''", {"A": ""}),
        ("A=bob", {"A": "bob"}),
        ("A=", {"A": ""}),
        ("A=b=c", {"A": "b=c"}),
        ("# A=b", {}),
        ("   ", {}),
    ],
)
def test_a_line_is_a_name_and_a_value_that_may_be_quoted(
    tmp_path: Path, line: str, found: dict[str, str]
) -> None:
    (tmp_path / "my.env").write_text(f"{line}\n")

    assert read_env(tmp_path / "my.env") == found
