"""The user's own providers, from `[providers.NAME]` tables in config.toml."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from glue.errors import ConfigError
from glue.paths import config_dir, parse_toml, read_text
from glue.providers.catalog import PLAIN, Entry, entry_of
from glue.providers.wire import wire_class

_FIELDS: dict[str, Any] = {
    "wire": str,
    "base_url": str,
    "key": (str, list),
    "model": str,
    "window": int,
    "auth": str,
    "models_from": str,
    "quirks": dict,
}
_TYPE_NAMES: dict[Any, str] = {
    str: "a string",
    int: "a whole number",
    bool: "true or false",
    list: "a list of strings",
    dict: "a table",
    (str, list): "a string or a list of strings",
}


def locate() -> tuple[Path, int]:
    """Return the path of config.toml and its time of change, or 0 if the file is missing.

    The time is in nanoseconds, and -1 if the file cannot be read. A config.toml in a checkout is
    never read: a repository must not choose where keys are sent.
    """
    path = config_dir() / "config.toml"
    try:
        return path, path.stat().st_mtime_ns
    except (FileNotFoundError, NotADirectoryError):
        return path, 0
    except OSError:
        return path, -1


def read(path: Path) -> dict[str, Any]:
    """Return all of config.toml as a dict; raise ConfigError if it cannot be read or parsed."""
    return parse_toml(read_text(path), str(path))


def own_entries(path: Path, tables: Any) -> list[Entry]:
    """Return a list with a catalog entry for each `[providers.NAME]` table of config.toml.

    Raise ConfigError if a table is invalid. `path` is the file that the error names.
    """
    if not isinstance(tables, dict):
        raise ConfigError(f"{path}: 'providers' must contain tables such as [providers.acme]")
    return [
        _own_entry(name.strip().lower(), table, f"{path}: [providers.{name}]")
        for name, table in tables.items()
    ]


def _own_entry(name: str, table: Any, where: str) -> Entry:
    if not isinstance(table, dict):
        raise ConfigError(f"{where} must be a table with a base_url")
    if "base_url" not in table:
        raise ConfigError(
            f'{where}: base_url is missing; add a line such as base_url = "https://host/v1"'
        )
    _check_types(table, _FIELDS, where)
    quirk_types = {
        name: list if isinstance(value, tuple) else type(value)
        for name, value in PLAIN._asdict().items()
    }
    _check_types(table.get("quirks", {}), quirk_types, f"{where}: quirks")
    key = table.get("key", [])
    fields = {**table, "key": [key] if isinstance(key, str) else key}
    fields["quirks"] = {"local": not key, **table.get("quirks", {})}
    wire_class(table.get("wire", "openai_chat"))  # raises ConfigError for an unknown wire
    return entry_of(name, fields)


def _check_types(fields: Mapping[str, Any], types: Mapping[str, Any], where: str) -> None:
    for field, value in fields.items():
        if field not in types:
            known = ", ".join(types)
            raise ConfigError(f"{where}: the field {field!r} is unknown; the fields are: {known}")
        if not _fits(value, types[field]):
            raise ConfigError(f"{where}: {field} must be {_TYPE_NAMES[types[field]]}")


def _fits(value: Any, kind: Any) -> bool:
    """Return whether a value has the type `kind`.

    A bool does not count as a number. A list fits only if all its items are strings.
    """
    if isinstance(value, bool):
        return kind is bool
    if isinstance(value, list) and not all(isinstance(each, str) for each in value):
        return False
    return isinstance(value, kind)
