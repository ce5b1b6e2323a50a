"""Where settings and state are kept."""

from __future__ import annotations

from pathlib import Path

from glue.paths import config_dir, state_dir


def test_folders_are_where_the_specification_puts_them() -> None:
    environ = {"HOME": "/home/ada", "XDG_CONFIG_HOME": "/settings", "XDG_STATE_HOME": "/var/state"}

    assert (config_dir(environ), state_dir(environ)) == (Path("/settings/glue"), Path("/var/state/glue"))


def test_without_variables_they_are_below_home() -> None:
    environ = {"HOME": "/home/ada"}

    assert config_dir(environ) == Path("/home/ada/.config/glue")
    assert state_dir(environ) == Path("/home/ada/.local/state/glue")


def test_a_relative_folder_is_ignored() -> None:
    environ = {"HOME": "/home/ada", "XDG_STATE_HOME": "here", "XDG_CONFIG_HOME": "./there"}

    assert state_dir(environ) == Path("/home/ada/.local/state/glue")
    assert config_dir(environ) == Path("/home/ada/.config/glue")
