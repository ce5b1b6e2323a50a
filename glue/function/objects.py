"""Records as JSON objects: dataclasses, TypedDicts, NamedTuples, and pydantic and msgspec classes where installed."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from glue.function.schema import Build, CannotDescribe, Described, Describer, gather
from glue.function.validation import ValidationError
from glue.messages import Json


def record(describer: Describer, hint: Any, kind: type, args: tuple[Any, ...]) -> Described | None:
    """Describe a class with named fields; None if it is none."""
    if _is_a(kind, "pydantic", "BaseModel"):
        return describer.named(hint, kind.__name__, lambda: _pydantic(describer, hint))
    if _is_a(kind, "msgspec", "Struct"):
        return describer.named(hint, kind.__name__, lambda: _msgspec(describer, hint))
    if dataclasses.is_dataclass(kind):
        read = _dataclass
    elif issubclass(kind, dict) and hasattr(kind, "__required_keys__"):
        read = _typeddict
    elif issubclass(kind, tuple) and hasattr(kind, "_fields"):
        read = _namedtuple
    else:
        return None
    return describer.named(hint, kind.__name__, lambda: read(describer, kind, args))


def object_schema(properties: dict[str, Json], required: list[str]) -> dict[str, Json]:
    schema: dict[str, Json] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    return {**schema, "additionalProperties": False}


def default_of(value: Any) -> dict[str, Json]:
    """The `default` keyword, for defaults that JSON can show."""
    if isinstance(value, Enum):
        value = value.value
    return {"default": value} if value is not None and _plain(value) else {}


def _plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(_plain(item) for item in value)
    if isinstance(value, float):
        return value - value == 0  # neither infinite nor NaN
    return value is None or isinstance(value, (str, int))


def _dataclass(describer: Describer, kind: Any, args: tuple[Any, ...]) -> Described:
    hints = _hints(describer, kind, args)
    properties: dict[str, Json] = {}
    builds: dict[str, Build] = {}
    required: list[str] = []
    for name, field in kind.__dataclass_fields__.items():
        if not field.init or field._field_type.name == "_FIELD_CLASSVAR":
            continue
        hint = hints[name].type if isinstance(hints[name], dataclasses.InitVar) else hints[name]
        _add(describer, kind, name, hint, properties, builds)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            required.append(name)
        elif field.default is not dataclasses.MISSING:
            properties[name] |= default_of(field.default)
    return object_schema(properties, required), _builder(builds, lambda value: kind(**value))


def _typeddict(describer: Describer, kind: Any, args: tuple[Any, ...]) -> Described:
    hints = _hints(describer, kind, args)
    properties: dict[str, Json] = {}
    builds: dict[str, Build] = {}
    required: list[str] = []
    for name, hint in hints.items():
        needed = name in kind.__required_keys__
        while (origin := typing.get_origin(hint)) is not None and getattr(origin, "_name", "") in _QUALIFIERS:
            # Under postponed annotations __required_keys__ does not know of these.
            needed = {"Required": True, "NotRequired": False}.get(origin._name, needed)
            hint = typing.get_args(hint)[0]
        _add(describer, kind, name, hint, properties, builds)
        if needed:
            required.append(name)
    return object_schema(properties, required), _builder(builds, None)


_QUALIFIERS = ("Required", "NotRequired", "ReadOnly")


def _namedtuple(describer: Describer, kind: Any, args: tuple[Any, ...]) -> Described:
    hints = _hints(describer, kind, args)
    properties: dict[str, Json] = {}
    builds: dict[str, Build] = {}
    for name in kind._fields:
        _add(describer, kind, name, hints.get(name, Any), properties, builds)
        if name in kind._field_defaults:
            properties[name] |= default_of(kind._field_defaults[name])
    required = [name for name in kind._fields if name not in kind._field_defaults]
    return object_schema(properties, required), _builder(builds, lambda value: kind(**value))


def _add(
    describer: Describer, kind: type, name: str, hint: Any, properties: dict[str, Json], builds: dict[str, Build]
) -> None:
    try:
        properties[name], build = describer.describe(hint)
    except CannotDescribe as error:
        raise CannotDescribe(f"{kind.__name__}.{name}: {error}") from None
    if build is not None:
        builds[name] = build


def _builder(builds: Mapping[str, Build], make: Callable[[dict[str, Any]], Any] | None) -> Build | None:
    if make is None and not builds:
        return None

    def build(value: dict[str, Json]) -> Any:
        value = build_members(value, builds)
        return value if make is None else make(value)

    return build


def build_members(value: dict[str, Json], builds: Mapping[str, Build]) -> dict[str, Any]:
    """Build those members of an object that need it."""
    names = [name for name in builds if name in value]
    built = gather(((name, value[name]) for name in names), *[builds[name] for name in names])
    return {**value, **dict(zip(names, built, strict=True))}


def _hints(describer: Describer, kind: Any, args: tuple[Any, ...]) -> dict[str, Any]:
    hints: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        own = inspect.get_annotations(base)
        if own:
            known = vars(sys.modules[base.__module__]) if base.__module__ in sys.modules else {}
            local = "<locals>" in base.__qualname__  # then the names around the function go first
            near, far = (describer.namespace, known) if local else (known, describer.namespace)
            hints |= describer.resolve(own, {**far, **near})
    parameters = getattr(kind, "__parameters__", ())
    if not args or not parameters:
        return hints
    table = dict(zip(parameters, args, strict=False))
    return {name: _substitute(hint, table) for name, hint in hints.items()}


def _substitute(hint: Any, table: Mapping[Any, Any]) -> Any:
    if isinstance(hint, typing.TypeVar):
        return table.get(hint, hint)
    parameters = getattr(hint, "__parameters__", ())
    return hint[tuple(table.get(parameter, parameter) for parameter in parameters)] if parameters else hint


def _is_a(kind: type, module: str, name: str) -> bool:
    """Whether a class comes from a library; if the library is not loaded, nothing does."""
    base = getattr(sys.modules.get(module), name, None)
    return isinstance(base, type) and issubclass(kind, base)


def adapted(describer: Describer, hint: Any, notes: tuple[Any, ...]) -> Described | None:
    """Describe an annotation that carries pydantic's own notes; None if it has none."""
    if "pydantic" not in sys.modules:
        return None
    if any(type(note).__module__.partition(".")[0] in ("pydantic", "annotated_types") for note in notes):
        return _pydantic(describer, hint)
    return None


def _pydantic(describer: Describer, hint: Any) -> Described:
    import json

    pydantic: Any = sys.modules["pydantic"]
    adapter: Any = pydantic.TypeAdapter(hint)
    schema = dict(adapter.json_schema())
    defs = schema.pop("$defs", {})

    def build(value: Json) -> Any:
        try:
            return adapter.validate_json(json.dumps(value))  # as JSON: what strict models take differs
        except pydantic.ValidationError as error:
            raise ValidationError((tuple(each["loc"]), each["msg"]) for each in error.errors()) from None

    return describer.adopt(defs, schema), build


def _msgspec(describer: Describer, hint: Any) -> Described:
    msgspec: Any = sys.modules["msgspec"]
    (schema,), defs = msgspec.json.schema_components([hint], ref_template="#/$defs/{name}")
    if schema.keys() == {"$ref"} and not _mentions(defs, schema["$ref"]):
        schema = defs.pop(schema["$ref"][8:])

    def build(value: Json) -> Any:
        try:
            return msgspec.convert(value, hint)
        except msgspec.ValidationError as error:
            raise ValidationError([((), str(error))]) from None

    return describer.adopt(defs, schema), build


def _mentions(schema: Json, ref: str) -> bool:
    if isinstance(schema, dict):
        return schema.get("$ref") == ref or any(_mentions(part, ref) for part in schema.values())
    return isinstance(schema, (list, tuple)) and any(_mentions(part, ref) for part in schema)
