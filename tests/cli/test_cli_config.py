"""Settings: flags before variables before files, and a header that is read without running the file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glue.cli.config import checked, glue_table, parse_header, read_source, settings
from glue.errors import ConfigError

Cli = Callable[..., Any]


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A project below a home, with nothing configured."""
    (tmp_path / "project").mkdir()
    (tmp_path / "config" / "glue").mkdir(parents=True)
    return tmp_path, {"XDG_CONFIG_HOME": str(tmp_path / "config"), "HOME": str(tmp_path)}


def found(tmp_path: Path, environ: dict[str, str], **flags: Any) -> dict[str, Any]:
    return {name: made.value for name, made in settings(flags, environ, str(tmp_path / "project")).items()}


def test_each_place_goes_before_the_next(places: tuple[Path, dict[str, str]]) -> None:
    tmp_path, environ = places
    (tmp_path / "config/glue/config.toml").write_text('model = "d"\nmax_turns = 4\nseconds = 4\nusd_budget = 4')
    (tmp_path / "project/pyproject.toml").write_text('[tool.glue]\nmodel = "c"\nmax-turns = 3\nseconds = 3')
    environ |= {"GLUE_MODEL": "b", "GLUE_MAX_TURNS": "2"}

    values = found(tmp_path, environ, model="a")

    assert values == {"model": "a", "max_turns": 2, "seconds": 3.0, "usd_budget": 4.0}


def test_every_setting_says_where_it_came_from(places: tuple[Path, dict[str, str]]) -> None:
    tmp_path, environ = places
    project = tmp_path / "project/pyproject.toml"
    project.write_text('[tool.glue]\ntools = ["fs"]')

    made = settings({"seconds": 3}, {**environ, "GLUE_MODEL": "b"}, str(tmp_path / "project"))

    assert {name: each.source for name, each in made.items()} == {
        "seconds": "flag",
        "model": "GLUE_MODEL",
        "tools": str(project),
    }


def test_a_project_is_found_from_below_but_not_above_its_checkout(places: tuple[Path, dict[str, str]]) -> None:
    tmp_path, environ = places
    (tmp_path / "project/pyproject.toml").write_text('[tool.glue]\nmodel = "c"')
    (tmp_path / "project/deep/deeper").mkdir(parents=True)

    assert settings({}, environ, str(tmp_path / "project/deep/deeper"))["model"].value == "c"
    (tmp_path / "project/deep/.git").mkdir()
    assert settings({}, environ, str(tmp_path / "project/deep/deeper")) == {}


def test_a_project_cannot_grant_itself_permissions(places: tuple[Path, dict[str, str]]) -> None:
    tmp_path, environ = places
    (tmp_path / "project/pyproject.toml").write_text('[tool.glue]\nallow = ["shell"]')

    with pytest.raises(ConfigError, match="'allow' is not taken from a project"):
        found(tmp_path, environ)


@pytest.mark.parametrize("store", ["/etc", "../elsewhere"])
def test_a_project_cannot_send_transcripts_elsewhere(places: tuple[Path, dict[str, str]], store: str) -> None:
    tmp_path, environ = places
    (tmp_path / "project/pyproject.toml").write_text(f'[tool.glue]\nstore = "{store}"')

    with pytest.raises(ConfigError, match="must stay inside the project"):
        found(tmp_path, environ)


def test_the_user_may_allow(places: tuple[Path, dict[str, str]]) -> None:
    tmp_path, environ = places
    (tmp_path / "config/glue/config.toml").write_text('allow = ["write_file"]')

    assert found(tmp_path, environ) == {"allow": ("write_file",)}


@pytest.mark.parametrize(
    ("table", "fault"),
    [
        ({"modle": "x"}, "there is no setting 'modle'; there are: model"),
        ({"max_turns": "three"}, "max_turns must be a whole number, not 'three'"),
        ({"max_turns": -1}, "max_turns must be a whole number"),
        ({"max_turns": True}, "max_turns must be a whole number"),
        ({"usd_budget": float("inf")}, "usd_budget must be"),
        ({"tools": "fs"}, "tools must be a list"),
        ({"model": ""}, "model must be"),
        ("text", "must be a table"),
    ],
)
def test_a_wrong_setting_says_what_would_be_right(table: Any, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        checked(table, "somewhere")


def test_a_variable_that_is_no_number_names_itself() -> None:
    with pytest.raises(ConfigError, match="GLUE_SECONDS: seconds must be a number of seconds, not 'soon'"):
        settings({}, {"GLUE_SECONDS": "soon", "HOME": "/nonexistent"}, "/")


def test_broken_toml_names_the_file(places: tuple[Path, dict[str, str]]) -> None:
    tmp_path, environ = places
    (tmp_path / "config/glue/config.toml").write_text("model = ")

    with pytest.raises(ConfigError, match=r"config\.toml is no valid TOML"):
        found(tmp_path, environ)


def test_the_command_prints_what_holds(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLUE_MODEL", "groq")

    text, data = cli("config"), json.loads(cli("config", "--json").out)

    assert text.code == 0
    assert data["model"] == {"value": "groq", "source": "GLUE_MODEL"}
    assert data["store"]["source"] == "default"
    assert "groq" in text.out
    assert "GLUE_MODEL" in text.out


def test_the_command_says_a_mistake_in_one_line(cli: Cli) -> None:
    Path("pyproject.toml").write_text("[tool.glue]\nnonsense = 1")

    ran = cli("config")

    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert "there is no setting 'nonsense'" in ran.err


# The header of a single-file agent ----------------------------------------------------------------

HEADER = """\
#!/usr/bin/env python
# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
#
# [tool.glue]
# model = "groq"
# allow = ["save"]
# ///
raise SystemExit("this must never run")
"""


def test_a_header_is_read_without_running_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(HEADER)

    assert parse_header(read_source(tmp_path / "a.py"))["dependencies"] == ["glue-agents"]
    assert glue_table(tmp_path / "a.py") == {"model": "groq", "allow": ("save",)}


def test_windows_line_ends_do_not_hide_a_header(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(HEADER.replace("\n", "\r\n").encode())

    assert glue_table(tmp_path / "a.py")["model"] == "groq"


@pytest.mark.parametrize(
    "text", ["", "print(1)", "# /// other\n# x = 1\n# ///\n", "# /// script\nx = 1\n", "# /// script\n# x = 1\n"]
)
def test_a_file_without_a_header_has_none(text: str) -> None:
    assert parse_header(text) == {}


def test_two_headers_and_broken_ones_are_mistakes() -> None:
    block = "# /// script\n# x = 1\n# ///\n"

    with pytest.raises(ConfigError, match="several"):
        parse_header(block + "\n" + block)
    with pytest.raises(ConfigError, match="no valid TOML"):
        parse_header("# /// script\n# x = \n# ///\n")
