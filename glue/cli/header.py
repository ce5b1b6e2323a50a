"""The header of an agent file: the `# /// script` block of inline script metadata (PEP 723)."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from glue.errors import ConfigError
from glue.paths import parse_toml

# The pattern of the specification: a block of comments between `# /// script` and `# ///`.
_BLOCK = re.compile(r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$")
MAX_BYTES = 8 * 1024 * 1024


def read_source(path: str | os.PathLike[str]) -> str:
    """Return the first MAX_BYTES bytes of an agent file as text, without running the file.

    Raise ConfigError if the file cannot be read.
    """
    try:
        with open(path, "rb") as file:
            return file.read(MAX_BYTES).decode("utf-8", "replace").replace("\r\n", "\n")
    except OSError as error:
        raise ConfigError(f"{os.fspath(path)} cannot be read: {error.strerror}") from error


def parse_header(text: str, name: str = "the file") -> dict[str, Any]:
    """Parse the `# /// script` block of a source text as TOML; return {} if there is no block.

    Raise ConfigError if there are several blocks, or if the block is not TOML. `name` is the file
    that the error names.
    """
    if "# /// script" not in text:
        return {}
    found = [match for match in _BLOCK.finditer(text) if match["type"] == "script"]
    if not found:
        return {}
    if len(found) > 1:
        raise ConfigError(f"{name} has several `# /// script` blocks; keep one of them")
    lines = found[0]["content"].splitlines(keepends=True)
    block = "".join(line[2:] if line.startswith("# ") else line[1:] for line in lines)
    return parse_toml(block, f"the `# /// script` block of {name}")


def glue_section(data: Mapping[str, Any]) -> Any:
    """Return the `[tool.glue]` table of parsed TOML, or {} if there is none."""
    tool = data.get("tool", {})
    return tool.get("glue", {}) if isinstance(tool, dict) else {}


def read_glue_section(path: str | os.PathLike[str]) -> Any:
    """Return the `[tool.glue]` table of an agent file's header, unchecked; {} if it has none."""
    return glue_section(parse_header(read_source(path), os.fspath(path)))
