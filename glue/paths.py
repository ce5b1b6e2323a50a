"""Find the user's folders by the XDG specification; read text and TOML; write private files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from glue.errors import ConfigError


def config_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for settings and keys: $XDG_CONFIG_HOME/glue, or ~/.config/glue."""
    return _home(environ, "XDG_CONFIG_HOME", ".config")


def state_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for sessions and logs: $XDG_STATE_HOME/glue, or ~/.local/state/glue."""
    return _home(environ, "XDG_STATE_HOME", ".local/state")


def _home(environ: Mapping[str, str], name: str, usual: str) -> Path:
    named = environ.get(name, "")
    if not os.path.isabs(named):  # the specification requires ignoring a relative path
        named = os.path.join(environ.get("HOME") or os.path.expanduser("~"), usual)
    return Path(named) / "glue"


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file. Raise ConfigError if the file cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError(f"{path} cannot be read: {reason}") from None


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """Parse a TOML text and return its data. If it is invalid, raise a ConfigError with `where`.

    `where` names the source of the text, such as the path of the file.
    """
    import tomllib  # for start-up time: most runs read no TOML

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of 5000 digits is a plain ValueError
        raise ConfigError(f"{where} is not valid TOML: {error}") from None


def write_private(path: Path, text: str) -> None:
    """Write `text` to a file that only its owner can read, replacing an existing file atomically.

    If the path is a device or a pipe, the text is written to the device or pipe. Raise ConfigError
    if the file cannot be written.
    """
    name = ""
    try:
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")
            return
        fd, name = tempfile.mkstemp(prefix=".glue-", dir=path.parent)  # its mode is 0600
        with open(fd, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.replace(name, path)
    except BaseException as error:
        if name:
            os.unlink(name)
        if isinstance(error, OSError):
            raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
        raise
