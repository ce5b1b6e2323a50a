"""Folders of the user, where the XDG specification puts them, and files that nobody else may read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

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
