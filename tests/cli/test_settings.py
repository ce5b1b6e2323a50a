"""Settings from flags, variables and files: precedence, validation, and files of a project."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glue.cli.settings import check_settings, settings
from glue.errors import ConfigError

Cli = Callable[..., Any]


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A project below a home, with nothing configured."""
    (tmp_path / "project").mkdir()
    (tmp_path / "config" / "glue").mkdir(parents=True)
    return tmp_path, {"XDG_CONFIG_HOME": str(tmp_path / "config"), "HOME": str(tmp_path)}


def found(tmp_path: Path, environ: dict[str, str], **flags: Any) -> dict[str, Any]:
    return {
        name: made.value
        for name, made in settings(flags, environ, str(tmp_path / "project")).items()
    }


def test_providers_are_accepted_from_the_user_but_not_from_a_project(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, loopback: Callable[..., Any]
) -> None:
    server = loopback(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
    monkeypatch.setattr("glue.providers.registry._registry", {})
    monkeypatch.setattr("glue.providers.registry._config_read", {})
    config = Path(os.environ["HOME"]) / ".config" / "glue" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'[providers.nearby]\nbase_url = "{server.url}/v1"\nmodel = "m"\n')

    ran = cli("run", "-m", "nearby", "hi")
    Path("pyproject.toml").write_text(
        '[tool.glue.providers.nearby]\nbase_url = "http://evil.example/v1"\n'
    )
    refused = cli("run", "-m", "nearby", "hi")

    assert "nearby: HTTP 401" in ran.err
    assert [request.line for request in server.seen] == ["POST /v1/chat/completions HTTP/1.1"]
    assert (refused.code, "'providers' is not accepted from a project" in refused.err) == (2, True)


def test_a_flag_wins_over_a_variable_over_the_project_over_the_user(
    places: tuple[Path, dict[str, str]],
) -> None:
    tmp_path, environ = places
    (tmp_path / "config/glue/config.toml").write_text(
        'model = "d"\nmax_turns = 4\nseconds = 4\nusd_budget = 4'
    )
    (tmp_path / "project/pyproject.toml").write_text(
        '[tool.glue]\nmodel = "c"\nmax-turns = 3\nseconds = 3'
    )
    environ |= {"GLUE_MODEL": "b", "GLUE_MAX_TURNS": "2"}

    values = found(tmp_path, environ, model="a")

    assert values == {"model": "a", "max_turns": 2, "seconds": 3.0, "usd_budget": 4.0}


def test_each_setting_has_its_source(places: tuple[Path, dict[str, str]]) -> None:
    tmp_path, environ = places
    project = tmp_path / "project/pyproject.toml"
    project.write_text('[tool.glue]\ntools = ["fs"]')

    made = settings({"seconds": 3}, {**environ, "GLUE_MODEL": "b"}, str(tmp_path / "project"))

    assert {name: each.source for name, each in made.items()} == {
        "seconds": "flag",
        "model": "GLUE_MODEL",
        "tools": str(project),
    }


def test_a_project_is_searched_upwards_to_the_top_of_the_checkout(
    places: tuple[Path, dict[str, str]],
) -> None:
    tmp_path, environ = places
    (tmp_path / "project/pyproject.toml").write_text('[tool.glue]\nmodel = "c"')
    (tmp_path / "project/deep/deeper").mkdir(parents=True)

    assert settings({}, environ, str(tmp_path / "project/deep/deeper"))["model"].value == "c"
    (tmp_path / "project/deep/.git").mkdir()
    assert settings({}, environ, str(tmp_path / "project/deep/deeper")) == {}


@pytest.mark.parametrize(
    "line",
    ['allow = ["shell"]', 'sandbox = "auto"', "network = true", 'questions = "writes"'],
)
def test_a_project_can_neither_allow_tools_nor_change_the_sandbox(
    places: tuple[Path, dict[str, str]], line: str
) -> None:
    tmp_path, environ = places
    (tmp_path / "project/pyproject.toml").write_text(f"[tool.glue]\n{line}")

    with pytest.raises(ConfigError, match="' is not accepted from a project"):
        found(tmp_path, environ)


@pytest.mark.parametrize(
    "store", ["/etc", "../elsewhere", "~/elsewhere", "postgresql://attacker.example/db"]
)
def test_a_project_cannot_store_sessions_outside_its_folder(
    places: tuple[Path, dict[str, str]], store: str
) -> None:
    tmp_path, environ = places
    (tmp_path / "project/pyproject.toml").write_text(f'[tool.glue]\nstore = "{store}"')

    with pytest.raises(ConfigError, match="must be a path inside the project"):
        found(tmp_path, environ)


def test_the_user_can_allow_tools(places: tuple[Path, dict[str, str]]) -> None:
    tmp_path, environ = places
    (tmp_path / "config/glue/config.toml").write_text('allow = ["write_file"]')

    assert found(tmp_path, environ) == {"allow": ("write_file",)}


@pytest.mark.parametrize(
    ("table", "fault"),
    [
        ({"modle": "x"}, "unknown setting 'modle'; settings: model"),
        ({"max_turns": "three"}, "max_turns must be a whole number, not 'three'"),
        ({"max_turns": -1}, "max_turns must be a whole number"),
        ({"max_turns": True}, "max_turns must be a whole number"),
        ({"usd_budget": float("inf")}, "usd_budget must be"),
        ({"tools": "fs"}, "tools must be a list"),
        ({"model": ""}, "model must be"),
        ({"sandbox": "on"}, "sandbox must be auto, require or off"),
        ({"questions": "none"}, "questions must be all or writes"),
        ("text", "must be a table"),
    ],
)
def test_an_invalid_setting_is_refused_with_the_right_form(table: Any, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        check_settings(table, "somewhere")


def test_a_limit_may_be_zero_and_seconds_and_dollars_are_floats() -> None:
    made = check_settings({"max_turns": 0, "seconds": 0, "usd_budget": 3}, "somewhere")

    assert {name: repr(value) for name, value in made.items()} == {
        "max_turns": "0",
        "seconds": "0.0",
        "usd_budget": "3.0",
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", True), ("true", True), ("YES", True), ("0", False), ("False", False), ("no", False)],
)
def test_a_variable_switches_a_setting_on_or_off(text: str, value: bool) -> None:
    environ = {"GLUE_LOG": text, "HOME": "/nonexistent"}

    assert settings({}, environ, "/")["log"].value is value


def test_a_project_without_a_table_of_tools_has_no_settings(
    places: tuple[Path, dict[str, str]],
) -> None:
    tmp_path, environ = places
    (tmp_path / "project/pyproject.toml").write_text('[project]\nname = "with-glue"')

    assert found(tmp_path, environ) == {}


def test_the_file_of_the_user_may_have_the_table_of_a_project(
    places: tuple[Path, dict[str, str]],
) -> None:
    tmp_path, environ = places
    (tmp_path / "config/glue/config.toml").write_text('[tool.glue]\nmodel = "d"')

    assert found(tmp_path, environ) == {"model": "d"}


def test_an_invalid_variable_is_named() -> None:
    with pytest.raises(
        ConfigError,
        match="GLUE_SECONDS: the setting seconds must be a number of seconds, not 'soon'",
    ):
        settings({}, {"GLUE_SECONDS": "soon", "HOME": "/nonexistent"}, "/")


def test_invalid_toml_names_the_file(places: tuple[Path, dict[str, str]]) -> None:
    tmp_path, environ = places
    (tmp_path / "config/glue/config.toml").write_text("model = ")

    with pytest.raises(ConfigError, match=r"config\.toml is not valid TOML"):
        found(tmp_path, environ)
