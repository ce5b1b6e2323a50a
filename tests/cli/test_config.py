"""`glue config`: show, set and unset settings."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glue.cli.settings import user_file
from glue.providers import aliases

Cli = Callable[..., Any]


def test_a_config_file_that_is_not_text_prints_one_line(cli: Cli) -> None:
    user_file().parent.mkdir(parents=True)
    user_file().write_bytes(b"\xff\xfe")

    for args in (
        ("config",),
        ("config", "set", "log", "true"),
        ("models", "alias", "fast", "offline"),
    ):
        assert cli(*args).err == f"glue: {user_file()} cannot be read: it is not UTF-8 text\n"


def test_a_setting_is_written_and_other_lines_are_kept(cli: Cli) -> None:
    user_file().parent.mkdir(parents=True)
    user_file().write_text("# mine\nmodel = 'offline'\n\n[aliases]\nfast = 'groq'\n")

    for name, value in (
        ("log", "true"),
        ("max-turns", "7"),
        ("model", "offline:x"),
        ("allow", "a,b"),
    ):
        assert cli("config", "set", name, value).code == 0

    text = user_file().read_text()
    assert "# mine\n" in text
    assert aliases() == {"fast": "groq"}
    found = json.loads(cli("config", "--json").out)
    assert (found["log"]["value"], found["max_turns"]["value"], found["model"]["value"]) == (
        True,
        7,
        "offline:x",
    )
    assert found["allow"]["value"] == ["a", "b"]
    assert cli("config", "unset", "log").code == 0
    assert "log" not in user_file().read_text()
    assert "did you mean max_turns?" in cli("config", "set", "max_turn", "7").err
    assert "max_turns must be a whole number" in cli("config", "set", "max_turns", "many").err


def test_a_setting_of_several_lines_is_replaced_and_removed(cli: Cli) -> None:
    user_file().parent.mkdir(parents=True)
    user_file().write_text(
        'allow = [\n  "a", # mine\n  "b",\n]\nlog = true\n\n[aliases]\nallow = "groq"\n'
    )

    assert cli("config", "set", "allow", "c").code == 0
    assert user_file().read_text() == 'allow = ["c"]\nlog = true\n\n[aliases]\nallow = "groq"\n'
    user_file().write_text('deny = [\n  "a",\n]\nlog = true\n')
    assert cli("config", "unset", "deny").code == 0
    assert user_file().read_text() == "log = true\n"


def test_a_setting_of_one_line_is_replaced_and_removed_without_its_neighbours(cli: Cli) -> None:
    user_file().parent.mkdir(parents=True)
    user_file().write_text("log = true\nmax_turns = 3\nseconds = 4\n# mine\n")

    assert cli("config", "set", "max_turns", "0").code == 0
    assert user_file().read_text() == "log = true\nmax_turns = 0\nseconds = 4\n# mine\n"
    assert cli("config", "unset", "max_turns").code == 0
    assert user_file().read_text() == "log = true\nseconds = 4\n# mine\n"


def test_only_the_user_can_enter_the_folder_of_the_first_setting(cli: Cli) -> None:
    assert cli("config", "set", "log", "true").code == 0

    assert user_file().parent.stat().st_mode & 0o777 == 0o700


def test_a_setting_is_not_written_if_it_could_not_be_read_back(cli: Cli) -> None:
    user_file().parent.mkdir(parents=True)
    user_file().write_text('aliases = {fast = "groq"}\n')

    ran = cli("models", "alias", "quick", "offline")

    assert (ran.code, "is written there; edit the file" in ran.err) == (2, True)
    assert user_file().read_text() == 'aliases = {fast = "groq"}\n'
    user_file().write_text("model = \n")
    assert "is not valid TOML" in cli("config", "set", "log", "true").err


def test_settings_are_printed_with_their_sources(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLUE_MODEL", "groq")

    text, data = cli("config"), json.loads(cli("config", "--json").out)

    assert text.code == 0
    assert data["model"] == {"value": "groq", "source": "GLUE_MODEL"}
    assert data["store"]["source"] == "default"
    assert "groq" in text.out
    assert "GLUE_MODEL" in text.out
    assert "None" not in text.out


def test_an_unknown_setting_prints_one_line(cli: Cli) -> None:
    Path("pyproject.toml").write_text("[tool.glue]\nnonsense = 1")

    ran = cli("config")

    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert "unknown setting 'nonsense'" in ran.err


def test_the_files_of_the_settings_are_named(cli: Cli) -> None:
    without = cli("config")
    Path("pyproject.toml").write_text('[tool.glue]\ntools = ["fs", "git"]\n')
    user_file().parent.mkdir(parents=True)
    user_file().write_text("log = true\n")
    both = cli("config")

    project = Path("pyproject.toml").resolve()
    assert without.err.splitlines() == [
        "",
        "project file: none",
        f"user file:    {user_file()} (does not exist)",
    ]
    assert both.err.splitlines() == [
        "",
        f"project file: {project}",
        f"user file:    {user_file()}",
    ]
    assert "tools fs, git " in re.sub(" +", " ", both.out)
    assert "log True " in re.sub(" +", " ", both.out)
