"""Folders of the user, where the XDG specification puts them; settings files read, private files written."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from glue.errors import ConfigError


def config_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Give the folder of settings and keys: ~/.config/glue unless XDG_CONFIG_HOME says otherwise."""
    return _home(environ, "XDG_CONFIG_HOME", ".config")


def state_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Give the folder of sessions, histories and logs: ~/.local/state/glue unless XDG_STATE_HOME says otherwise."""
    return _home(environ, "XDG_STATE_HOME", ".local/state")


def _home(environ: Mapping[str, str], name: str, usual: str) -> Path:
    named = environ.get(name, "")
    if not os.path.isabs(named):  # the specification says to ignore a relative one
        named = os.path.join(environ.get("HOME") or os.path.expanduser("~"), usual)
    return Path(named) / "glue"


def read_text(path: Path) -> str:
    """Read a file of settings."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'not a text'}") from None


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """Read TOML; a fault names the file and the line."""
    import tomllib

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of 5000 digits is a plain ValueError
        raise ConfigError(f"{where} is no valid TOML: {error}") from None


def write_private(path: Path, text: str) -> None:
    """Write a whole file or nothing, readable by its owner alone; a device or a pipe stays what it is."""
    import tempfile

    name = ""
    try:
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")
            return
        fd, name = tempfile.mkstemp(prefix=".glue-", dir=path.parent)  # made with 0600
        with open(fd, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.replace(name, path)
    except BaseException as error:
        if name:
            os.unlink(name)
        if isinstance(error, OSError):
            raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
        raise
