"""Folders of the user, and settings files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from glue.errors import ConfigError
from glue.paths import config_dir, parse_toml, read_text, state_dir, write_private


def test_folders_follow_the_xdg_variables() -> None:
    environ = {"HOME": "/home/ada", "XDG_CONFIG_HOME": "/settings", "XDG_STATE_HOME": "/var/state"}

    assert (config_dir(environ), state_dir(environ)) == (
        Path("/settings/glue"),
        Path("/var/state/glue"),
    )


def test_without_variables_folders_are_in_the_home_folder() -> None:
    environ = {"HOME": "/home/ada"}

    assert config_dir(environ) == Path("/home/ada/.config/glue")
    assert state_dir(environ) == Path("/home/ada/.local/state/glue")


def test_a_relative_path_in_a_variable_is_ignored() -> None:
    environ = {"HOME": "/home/ada", "XDG_STATE_HOME": "here", "XDG_CONFIG_HOME": "./there"}

    assert state_dir(environ) == Path("/home/ada/.local/state/glue")
    assert config_dir(environ) == Path("/home/ada/.config/glue")


def test_a_private_file_is_written_atomically_and_readable_by_its_owner_only(
    tmp_path: Path,
) -> None:
    path = tmp_path / "keys"
    path.write_text("old")
    path.chmod(0o644)

    write_private(path, "new")
    with pytest.raises(UnicodeEncodeError):
        write_private(path, "half a \ud800 character")
    with pytest.raises(ConfigError, match=r"nowhere/keys cannot be written: No such file"):
        write_private(tmp_path / "nowhere" / "keys", "x")

    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o600)
    assert [each.name for each in tmp_path.iterdir()] == ["keys"]


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)

    write_private(tmp_path / "pipe", "through")

    assert os.read(reader, 100) == b"through"
    assert (tmp_path / "pipe").is_fifo()
    os.close(reader)


def test_a_file_that_cannot_be_read_is_an_error_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "keys").write_bytes(b"\xff")

    with pytest.raises(ConfigError, match=r"keys cannot be read: it is not UTF-8 text$"):
        read_text(tmp_path / "keys")
    with pytest.raises(ConfigError, match=r"none cannot be read: No such file or directory$"):
        read_text(tmp_path / "none")


def test_invalid_toml_is_an_error_with_its_place() -> None:
    assert parse_toml("a = 1", "x.toml") == {"a": 1}
    for text in ("a =", f"a = {'9' * 5000}", "a = " + "[" * 5000):
        with pytest.raises(ConfigError, match=r"^x\.toml is not valid TOML: "):
            parse_toml(text, "x.toml")
