"""Clean and check everything that an MCP server sends: names, descriptions, schemas and results.

The model reads only text that passed `clean`. A tool is used only if `checked_schema` accepts its
parameters. `Pins` stores the hash of each definition when the tool is called, so that earlier
decisions of the user do not cover a tool that changes later.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from glue.errors import ConfigError
from glue.function.validation import check_schema
from glue.hidden import HIDDEN_CHARACTERS
from glue.paths import state_dir, write_private
from glue.tools.mcp.config import ServerConfig

MAX_DESCRIPTION = 2_000  # characters of a description, which is part of every request
MAX_SCHEMA = 100_000  # characters of the JSON of a schema

# Commands to a terminal, as whole sequences: colours, cursor movements, titles, links.
_TERMINAL = "\x1b\\[[0-?]*[ -/]*[@-~]|\x1b[\\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\\\)?|\x1b[ -/]*[0-~]"
_CONTROLS = "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufff9-\uffff\ud800-\udfff]"
# Variation selectors can spell a hidden text. One of them after a symbol selects an emoji.
_SELECTORS = (
    "[\ufe00-\ufe0f\U000e0100-\U000e01ef]{2,}|[\U000e0100-\U000e01ef]"
    "|(?<=[\x00-\x7f])[\ufe00-\ufe0f]"
)
# Zero-width characters are needed within words of other scripts, but not next to ASCII.
_JOINERS = "(?<=[\x00-\x7f])[\u200b-\u200d\u00ad]+|[\u200b-\u200d\u00ad]+(?=[\x00-\x7f]|$)"
_HIDDEN = re.compile(
    "|".join(
        [_TERMINAL, _CONTROLS, _SELECTORS, _JOINERS]
        + [each.pattern for each in HIDDEN_CHARACTERS.values()]
    )
)
# Keywords of a schema whose value is only read by the model, so that it may be changed.
_TEXTS = frozenset(("description", "title", "$comment"))
_PLAIN = frozenset(("type", "properties", "required", "additionalProperties", "items", *_TEXTS))
_TYPES = frozenset(("string", "integer", "number", "boolean", "null", "array", "object"))


def clean(text: str) -> str:
    """Return a text without hidden characters, direction marks and terminal escape sequences.

    >>> clean("Add\\u202e two\\x1b[31m numbers.")
    'Add two numbers.'
    """
    if text.isascii() and text.isprintable():
        return text
    return _HIDDEN.sub("", text.replace("\r\n", "\n"))


def clean_all(value: Any) -> Any:
    """Return a JSON value with `clean` applied to every text in it, names included."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {clean(str(name)): clean_all(item) for name, item in value.items()}
    if isinstance(value, list):
        return [clean_all(item) for item in value]
    return value


def description(given: Mapping[str, Any], otherwise: str) -> str:
    """Return the cleaned description of a tool or prompt, or else its title, or else `otherwise`.

    A text of more than MAX_DESCRIPTION characters is shortened.
    """
    text = clean(str(given.get("description") or given.get("title") or otherwise)).strip()
    text = text or otherwise
    return text if len(text) <= MAX_DESCRIPTION else text[: MAX_DESCRIPTION - 1] + "…"


def checked_schema(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a parameter schema with cleaned descriptions; raise ValueError if it must not be used.

    A schema must not be used if it is invalid, too large, or has hidden characters in a name or a
    value.
    """
    size = len(json.dumps(given))
    if size > MAX_SCHEMA:
        raise ValueError(f"its schema has {size:,} characters, more than {MAX_SCHEMA:,}")
    schema: dict[str, Any] = _clean_schema(given)
    if not _is_plain(schema):
        # Unresolved references are allowed: many calls do not need them.
        check_schema(schema, references=False)
    return schema


def _clean_schema(value: Any) -> Any:
    if isinstance(value, str):
        if clean(value) != value:
            raise ValueError(f"its schema has hidden characters in {ascii(value)[:80]}")
        return value
    if isinstance(value, Mapping):
        return {
            _clean_schema(name): clean(item)
            if name in _TEXTS and isinstance(item, str)
            else _clean_schema(item)
            for name, item in value.items()
        }
    return [_clean_schema(item) for item in value] if isinstance(value, list) else value


def _is_plain(schema: Any) -> bool:
    """Return True if a schema uses only basic keywords, all with valid values.

    Then jsonschema need not check the schema, which saves time for servers with thousands of tools.
    False does not mean that the schema is invalid.
    """
    if isinstance(schema, bool):
        return True
    if not isinstance(schema, dict) or not schema.keys() <= _PLAIN:
        return False
    kind = schema.get("type", "object")
    properties, required = schema.get("properties", {}), schema.get("required", [])
    return (
        isinstance(kind, str)  # and not a list of types
        and kind in _TYPES
        and all(isinstance(schema.get(name, ""), str) for name in _TEXTS)
        and isinstance(required, list)
        and all(isinstance(name, str) for name in required)
        and len({*required}) == len(required)
        and isinstance(properties, dict)
        and all(map(_is_plain, properties.values()))
        and _is_plain(schema.get("items", True))
        and _is_plain(schema.get("additionalProperties", True))
    )


def definition_hash(given: Mapping[str, Any]) -> str:
    """Return a hash of a tool definition: name, title, description, parameters, annotations."""
    parts = [given.get(name) for name in ("name", "title", "description", "inputSchema")]
    text = json.dumps([*parts, given.get("annotations")], sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


class Pins:
    """The hash of each tool's definition at its last call, in one file for each MCP server.

    If the current definition has another hash, the server has changed the tool since then.
    """

    def __init__(self, config: ServerConfig, folder: Path | None = None) -> None:
        identity = json.dumps([config.url, config.command, config.args, config.cwd])
        name = hashlib.sha256(identity.encode("utf-8", "replace")).hexdigest()[:24]
        self.path = (folder or state_dir() / "mcp" / "pins") / f"{name}.json"
        self._known: dict[str, str] = {}
        with suppress(OSError, ValueError):
            found = json.loads(self.path.read_text(encoding="utf-8"))
            self._known = {str(tool): str(mark) for tool, mark in dict(found).items()}

    def has_changed(self, tool: str, mark: str) -> bool:
        """Return whether the definition of a tool has changed since its last call.

        `mark` is the hash of the current definition. If the tool was never called, return False.
        """
        return self._known.get(tool, mark) != mark

    def pin(self, tool: str, mark: str) -> None:
        """Store the hash of a tool definition in memory, and in `path` if it can be written."""
        if self._known.get(tool) == mark:
            return
        self._known[tool] = mark
        with suppress(OSError, ConfigError):
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private(self.path, json.dumps(self._known, sort_keys=True))


def shown_names(names: Sequence[str], most: int = 5) -> str:
    """Return a text for a message: the first `most` names, and the number of the other names."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(clean(name)[:80] for name in names[:most]) + more
