"""The header of a single-file agent (PEP 723), read without running the file."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from glue.errors import ConfigError

# As the specification gives it: a block of comments between `# /// script` and `# ///`.
_BLOCK = re.compile(r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$")
MOST = 8 * 1024 * 1024


def read_header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Give the metadata of a file: `requires-python`, `dependencies`, `tool`; empty where it has none."""
    try:
        with open(path, "rb") as file:
            data = file.read(MOST)
    except IsADirectoryError:
        raise ConfigError(f"{os.fspath(path)} is a folder, not an agent file") from None
    except OSError as error:
        raise ConfigError(f"{os.fspath(path)} cannot be read: {error.strerror}") from error
    return parse_header(data.decode("utf-8", "replace").replace("\r\n", "\n"), os.fspath(path))


def parse_header(text: str, name: str = "the file") -> dict[str, Any]:
    """Do as `read_header`, with the text of a file."""
    if "# /// script" not in text:
        return {}
    found = [match for match in _BLOCK.finditer(text) if match["type"] == "script"]
    if not found:
        return {}
    if len(found) > 1:
        raise ConfigError(f"{name} has several `# /// script` blocks; one is allowed")
    lines = found[0]["content"].splitlines(keepends=True)
    content = "".join(line[2:] if line.startswith("# ") else line[1:] for line in lines)
    import tomllib

    try:
        return tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name}: the `# /// script` block is no valid TOML: {error}") from None


def glue_table(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Give the checked `[tool.glue]` table of a file's header."""
    from glue.config import checked

    tool = read_header(path).get("tool", {})
    table = tool.get("glue", {}) if isinstance(tool, dict) else {}
    return checked(table, f"{Path(path).name}, [tool.glue]")
