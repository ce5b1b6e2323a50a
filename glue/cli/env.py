"""Variables from files: the stored API keys (keys.env) and the file of `--env`."""

from __future__ import annotations

import os
import re
from pathlib import Path

from glue.errors import ConfigError
from glue.paths import config_dir, read_text

_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_]\w*)\s*=\s*([^\0]*?)\s*")


def keys_file() -> Path:
    """Return the path of the file in which `glue keys` stores API keys."""
    return config_dir() / "keys.env"


def load_keys() -> None:
    """Load the stored API keys into the environment; skip variables that are already set.

    Raise ConfigError if other users can read or write the file.
    """
    path = keys_file()
    if path.is_file():
        if path.stat().st_mode & 0o077:
            raise ConfigError(f"other users can read or write {path}; run `chmod 600 {path}`")
        load_env(path)


def load_env(path: Path) -> None:
    """Load the variables of a file into the environment; skip variables that are already set."""
    for name, value in read_env(path).items():
        os.environ.setdefault(name, value)


def read_env(path: Path) -> dict[str, str]:
    """Parse a file of NAME=value lines; raise ConfigError with the number of an invalid line."""
    found = {}
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise ConfigError(f"{path}, line {number}: expected NAME=value")
        value = match[2]
        is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
        found[match[1]] = value[1:-1] if is_quoted else value
    return found
