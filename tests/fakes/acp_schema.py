"""The published schema of the Agent Client Protocol, version 1 (of SDK 2.4.0, without prose)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema

SCHEMA: dict[str, Any] = json.loads((Path(__file__).parents[1] / "acp" / "schema.json").read_text())
DEFS: dict[str, Any] = SCHEMA["$defs"]
# Parts of the unstable schema that glue supports, although the protocol may still change them.
DEFS["SessionCapabilities"]["properties"]["fork"] = {"type": "object", "properties": {}}
DEFS["ForkSessionRequest"] = {
    **DEFS["LoadSessionRequest"],
    "x-method": "session/fork",
    "x-side": "agent",
}
DEFS["ForkSessionResponse"] = {
    **DEFS["NewSessionResponse"],
    "x-method": "session/fork",
    "x-side": "agent",
}


def check(name: str, data: Any) -> None:
    """Raise an error if data does not match a definition of the schema, or has unknown keys."""
    jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name}", **SCHEMA}).validate(data)
    _check_keys([DEFS[name]], data, name)


def methods() -> dict[str, set[str]]:
    """Return every method of the protocol, by the side that answers it: agent or client."""
    found: dict[str, set[str]] = {}
    for definition in DEFS.values():
        if "x-method" in definition:
            found.setdefault(definition["x-side"], set()).add(definition["x-method"])
    return found


def updates() -> set[str]:
    """Return every kind of session update."""
    return {each["properties"]["sessionUpdate"]["const"] for each in DEFS["SessionUpdate"]["oneOf"]}


def capabilities(name: str) -> set[str]:
    """Return the paths of all capabilities in a definition, such as `fs.readTextFile`."""
    found: set[str] = set()

    def walk(schemas: list[Any], path: tuple[str, ...]) -> None:
        inner: dict[str, list[Any]] = {}
        for part in (part for schema in schemas for part in _flat(schema)):
            for key, value in part.get("properties", {}).items():
                if key != "_meta":
                    inner.setdefault(key, []).append(value)
        for key, values in inner.items():
            walk(values, (*path, key))
        if not inner:
            found.add(".".join(path))

    walk([DEFS[name]], ())
    return found


def sign_ins() -> set[str]:
    """Return the kinds of authentication methods."""
    names = {part["$ref"] for part in _flat(DEFS["AuthMethod"]) if "$ref" in part}
    return {name.rpartition("AuthMethod")[2].lower() for name in names} - {"id"}


def definition(method: str, ending: str) -> str:
    """Return the name of a method's definition that ends with Request, Response or Notification."""
    return next(
        name
        for name, each in DEFS.items()
        if each.get("x-method") == method and name.endswith(ending)
    )


def _check_keys(schemas: list[Any], data: Any, where: str) -> None:
    parts = [part for schema in schemas for part in _flat(schema)]
    if isinstance(data, list):
        for item in data:
            _check_keys([part["items"] for part in parts if "items" in part], item, f"{where}[]")
    if not isinstance(data, dict) or not any("properties" in part for part in parts):
        return
    for key, value in data.items():
        known = [part["properties"][key] for part in parts if key in part.get("properties", {})]
        assert known, f"{where} has no {key!r}"
        if key not in ("_meta", "rawInput", "rawOutput"):
            _check_keys(known, value, f"{where}.{key}")


def _flat(schema: Any) -> list[Any]:
    """Return a schema, its alternatives, and all definitions to which they refer."""
    if not isinstance(schema, dict):
        return []
    found = [schema]
    if "$ref" in schema:
        found += _flat(DEFS[schema["$ref"].rpartition("/")[2]])
    for word in ("allOf", "anyOf", "oneOf"):
        for part in schema.get(word, ()):
            found += _flat(part)
    return found
