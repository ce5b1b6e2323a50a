"""JSON schemas of type annotations, and the conversion of JSON to the annotated Python types.

>>> shape = shape_of(list[datetime.date])
>>> shape.schema
{'type': 'array', 'items': {'type': 'string', 'format': 'date'}}
>>> shape.read(["2026-01-31"])
[datetime.date(2026, 1, 31)]

The docstrings call the function that makes a Python value from valid JSON a builder.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import inspect
import json
import os
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin

from glue.checks import check_text
from glue.function.coercion import coerce
from glue.function.faults import FORMATS, Path, show_json
from glue.function.validation import ValidationError, Validator
from glue.messages import Json

Build: TypeAlias = Callable[[Any], Any]
# A schema and its builder. The builder is None if the JSON value is the Python value.
Described: TypeAlias = tuple[dict[str, Json], Build | None]

REQUIRED: Any = inspect.Parameter.empty  # the default of a parameter that has none


class CannotDescribe(TypeError):
    """An error: a JSON schema cannot describe a type, a parameter or a bound."""


class Field:
    """A parameter's description, bounds and examples for the model. Calls must obey the bounds.

        @tool
        def search(query: str, pages: Annotated[int, Field("Pages to read.", ge=1, le=50)] = 1):
            "Search the archive."

    Args:
        description: a text for the model.
        ge: the least number that is allowed.
        gt: a bound that a number must exceed.
        le: the greatest number that is allowed.
        lt: a bound that a number must stay below.
        multiple_of: a number that must divide the value without a remainder.
        min_length: least number of characters, items or names.
        max_length: greatest number of characters, items or names.
        pattern: a regular expression that a text must match somewhere.
        examples: values that help the model.
    """

    __slots__ = ("bounds", "description", "examples")

    def __init__(
        self,
        description: str = "",
        *,
        ge: float | None = None,
        gt: float | None = None,
        le: float | None = None,
        lt: float | None = None,
        multiple_of: float | None = None,
        min_length: int | None = None,
        max_length: int | None = None,
        pattern: str | None = None,
        examples: Sequence[Json] = (),
    ) -> None:
        check_text("description", description)
        given = {"ge": ge, "gt": gt, "le": le, "lt": lt, "multiple_of": multiple_of}
        given |= {"min_length": min_length, "max_length": max_length}
        self.description = description
        self.examples = list(examples)
        self.bounds: dict[str, Json] = {}  # by the names of the parameters
        for name, bound in given.items():
            if bound is None:
                continue
            if isinstance(bound, bool) or not isinstance(bound, (int, float)):
                raise TypeError(f"{name} must be a number, not {bound!r}")
            self.bounds[name] = bound
        if pattern is not None:
            re.compile(pattern)
            self.bounds["pattern"] = pattern

    def __repr__(self) -> str:
        return f"Field({self.description!r}, {self.bounds!r})"

    def constrain(self, schema: dict[str, Json]) -> dict[str, Json]:
        """Return a copy of a schema with this field's description, bounds and examples added.

        In a union, a bound is added to each option to which the bound applies. Raise CannotDescribe
        if a bound does not apply to the schema or to any option.
        """
        schema = dict(schema)
        if "anyOf" in schema:
            schema["anyOf"] = [dict(option) for option in schema["anyOf"]]
        options = schema.get("anyOf", [schema])
        for name, bound in self.bounds.items():
            keywords = [_keyword_for(option.get("type"), name) for option in options]
            if not any(keywords):
                raise CannotDescribe(f"{name} does not apply to the schema {show_json(schema)}")
            for option, keyword in zip(options, keywords, strict=True):
                if keyword:
                    option[keyword] = bound
        if self.description:
            schema["description"] = self.description
        if self.examples:
            schema["examples"] = self.examples
        return schema


_SIZES = {"string": "Length", "array": "Items", "object": "Properties"}
_NUMBERS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}


def _keyword_for(kind: Any, name: str) -> str:
    """Return the JSON schema keyword for a limit such as `min_length`, or "" if `kind` has none.

    `name` is the name of the limit, and `kind` is the JSON type of the value, such as "string".

    >>> _keyword_for("string", "min_length"), _keyword_for("array", "min_length")
    ('minLength', 'minItems')
    """
    if name in ("min_length", "max_length"):
        return name[:3] + _SIZES[kind] if kind in _SIZES else ""
    if name == "pattern":
        return name if kind == "string" else ""
    return _NUMBERS[name] if kind in ("integer", "number") else ""


class Shape:
    """A JSON schema with a validator, and a builder that makes Python values of one type."""

    def __init__(self, schema: Mapping[str, Json], build: Build | None = None) -> None:
        self.schema = schema
        self.build = build
        self.validator = Validator(schema)
        self.fits = self.validator.check(schema)

    def read(self, value: Json) -> Any:
        """Return a JSON value as the Python type, coerced if necessary, or raise ValidationError.

        Raise ValidationError if the value is invalid after the coercion.
        """
        self.validator.start(value)
        if not self.fits(value):
            value = coerce(self.validator, self.schema, value)
            errors = self.validator.errors(value)
            if errors is not None:
                raise errors
        if self.build is None:
            return value
        self.validator.start(value)
        try:
            return self.build(value)
        except ValidationError:
            raise
        except Exception as error:  # a class may reject a value with any exception
            raise ValidationError(
                [((), f"got {show_json(value)}: {type(error).__name__}: {error}")]
            ) from error


def shape_of(annotation: Any, namespace: Mapping[str, Any] | None = None) -> Shape:
    """Return the Shape of an annotation: its schema, a validator and a builder.

    `namespace` contains the names that an annotation may use if it is a text. Raise CannotDescribe
    if a JSON schema cannot describe the annotation.
    """
    describer = Describer(namespace)
    return describer.close(*describer.describe(annotation))


_SCALARS: dict[Any, Described] = {
    str: ({"type": "string"}, None),
    int: ({"type": "integer"}, None),
    float: ({"type": "number"}, float),
    bool: ({"type": "boolean"}, None),
    None: ({"type": "null"}, None),
    type(None): ({"type": "null"}, None),
    Any: ({}, None),
    object: ({}, None),
}
_SETS = ("set", "frozenset", "Set", "MutableSet")
_ARRAYS = (
    *_SETS,
    "list",
    "tuple",
    "Sequence",
    "MutableSequence",
    "Collection",
    "Iterable",
    "deque",
)
_OBJECTS = ("dict", "Mapping", "MutableMapping", "OrderedDict")


class Describer:
    """An object that makes the JSON schemas and builders for the annotations of one signature.

    Types that contain themselves become definitions in `$defs`.
    """

    def __init__(self, namespace: Mapping[str, Any] | None = None) -> None:
        self.namespace = dict(namespace or {})
        self.defs: dict[str, Json] = {}
        # The types that are being described, with their names in `$defs`. The name is None as long
        # as the type has not been found inside itself.
        self._open: dict[Any, str | None] = {}
        self._builds: dict[str, Build | None] = {}  # the builders of `$defs`
        self._validator: Validator  # set by `close`; unions use it to choose an option

    def close(self, schema: dict[str, Json], build: Build | None) -> Shape:
        """Add the collected `$defs` to a schema, and return its Shape. Call this only once.

        `$defs` are the definitions of recursive types, and those that other libraries made. `build`
        is the builder of the schema's values. The describer must not be used again afterwards.
        """
        if self.defs:
            schema = {**schema, "$defs": self.defs}
        shape = Shape(schema, build)
        self._validator = shape.validator
        self.namespace = {}  # no longer needed, and it may keep the variables of a frame alive
        return shape

    def describe(self, hint: Any) -> Described:
        """Return an annotation's schema, and a function, if needed, that converts JSON to its type.

        The function is None if JSON needs no conversion. Raise CannotDescribe if the annotation has
        no schema.
        """
        try:
            if hint in _SCALARS:
                schema, build = _SCALARS[hint]
                return dict(schema), build
        except TypeError:  # unhashable, such as Annotated with a list in it
            pass
        if isinstance(hint, str):
            return self.describe(self.resolve({"hint": hint})["hint"])
        origin, args = get_origin(hint), get_args(hint)
        if origin is Annotated:
            return self._annotated(hint, args[0], hint.__metadata__)
        if origin is Literal:
            return _literal(args)
        if origin in (typing.Union, types.UnionType):
            return self._union(args)
        if origin in (typing.Required, typing.NotRequired, typing.Final):
            return self.describe(args[0])
        if isinstance(hint, typing.NewType):
            return self.describe(hint.__supertype__)
        if isinstance(hint, typing.TypeVar):
            return self.describe(hint.__bound__ if hint.__bound__ is not None else Any)
        if type(hint).__name__ == "TypeAliasType":
            return self._named(hint, hint.__name__, lambda: self.describe(hint.__value__))
        kind = origin or hint
        if not isinstance(kind, type):
            raise CannotDescribe(
                f"cannot describe {_name(hint)} to a model; the annotation must be a type"
            )
        return _scalar(kind) or self._record(hint, kind, args) or self._container(hint, kind, args)

    def members(
        self,
        label: str,
        members: Iterable[tuple[str, Any, Any]],
        texts: Mapping[str, str] | None = None,
    ) -> Described:
        """Return the schema of an object with `members`, and a function, if needed, to convert one.

        The function converts the members of such an object and returns a dict. It is None if no
        member needs conversion.

        Args:
            label: the form of a member's name in errors, such as "parameter {!r}".
            members: for each member its name, its annotation, and its default or REQUIRED.
            texts: descriptions of members by name.
        """
        properties: dict[str, Json] = {}
        builds: dict[str, Build] = {}
        required: list[str] = []
        for name, hint, default in members:
            try:
                schema, build = self.describe(hint)
            except CannotDescribe as error:
                raise CannotDescribe(f"{label.format(name)}: {error}") from None
            if texts and texts.get(name):
                schema.setdefault("description", texts[name])
            if default is REQUIRED:
                required.append(name)
            else:
                shown = default.value if isinstance(default, Enum) else default
                if shown is not None and _is_json(shown):
                    schema["default"] = shown
            properties[name] = schema
            if build is not None:
                builds[name] = build

        def build_members(value: dict[str, Json]) -> dict[str, Any]:
            return {
                **value,
                **gather((name, value[name], builds[name]) for name in builds if name in value),
            }

        needed = {"required": required} if required else {}
        schema = {
            "type": "object",
            "properties": properties,
            **needed,
            "additionalProperties": False,
        }
        return schema, build_members if builds else None

    def _annotated(self, hint: Any, inner: Any, notes: tuple[Any, ...]) -> Described:
        foreign = any(
            type(note).__module__.partition(".")[0] in ("pydantic", "annotated_types")
            for note in notes
        )
        schema, build = (
            _pydantic(self, hint) if foreign and "pydantic" in sys.modules else self.describe(inner)
        )
        for note in notes:
            if isinstance(note, str):
                schema["description"] = note
            elif isinstance(note, Field):
                schema = note.constrain(schema)
        return schema, build

    def _union(self, args: tuple[Any, ...]) -> Described:
        options = [self.describe(arg) for arg in args]
        schema = _any_of([schema for schema, _ in options])
        if all(build is None for _, build in options):
            return schema, None

        def build(value: Json) -> Any:
            failed: ValidationError | None = None
            for part, make in options:
                if not self._validator.accepts(part, value):
                    continue
                try:
                    return value if make is None else make(value)
                except ValidationError as errors:
                    failed = failed or errors
            raise failed or ValidationError(
                [((), f"got {show_json(value)}, which fits no allowed type")]
            )

        return schema, build

    def _container(self, hint: Any, kind: type, args: tuple[Any, ...]) -> Described:
        if kind.__module__ in ("builtins", "collections", "collections.abc"):
            if kind is tuple and hint is not tuple and args[-1:] != (...,):
                return self._tuple(args)
            if kind.__name__ in _ARRAYS:
                return self._array(kind, args)
            if kind.__name__ in _OBJECTS:
                return self._mapping(args)
        raise CannotDescribe(
            f"cannot describe {_name(hint)} to a model; "
            "use a dataclass, a TypedDict, an Enum or a plain type"
        )

    def _array(self, kind: type, args: tuple[Any, ...]) -> Described:
        items, build = self.describe(args[0]) if args else ({}, None)
        schema: dict[str, Json] = {"type": "array", "items": items}
        target: Build = kind if kind is tuple or kind.__name__ == "deque" else list
        if kind.__name__ in _SETS:
            schema["uniqueItems"] = True
            target = frozenset if kind is frozenset else set
            if build is None and items.get("type") in ("array", "object"):
                raise CannotDescribe("a set cannot contain lists or dicts; use list[...] instead")
        if build is None:
            return schema, None if target is list else target
        return schema, lambda value: target(
            gather((at, item, build) for at, item in enumerate(value)).values()
        )

    def _tuple(self, args: tuple[Any, ...]) -> Described:
        parts = [self.describe(arg) for arg in args]
        schemas = [schema for schema, _ in parts]
        # `maxItems` makes `items` superfluous, but some providers reject a list without `items`.
        items = _any_of(schemas)
        first = {"prefixItems": schemas} if schemas and items not in schemas else {}
        schema = {
            "type": "array",
            **first,
            "items": items,
            "minItems": len(args),
            "maxItems": len(args),
        }

        def build(value: Json) -> tuple[Any, ...]:
            items = enumerate(zip(value, parts, strict=True))
            return tuple(gather((at, item, build) for at, (item, (_, build)) in items).values())

        return schema, build

    def _mapping(self, args: tuple[Any, ...]) -> Described:
        if not args:
            return {"type": "object"}, None
        number = {"type": "string", "pattern": r"^-?[0-9]{1,100}$"}
        keys, make_key = (number, int) if args[0] is int else self.describe(args[0])
        if keys and keys.get("type") != "string":
            raise CannotDescribe(
                f"cannot describe a dict with {_name(args[0])} keys to a model; JSON keys are text"
            )
        keys = {word: keys[word] for word in keys if word in ("enum", "pattern")}
        values, build = self.describe(args[1])
        schema = {
            "type": "object",
            **({"propertyNames": keys} if keys else {}),
            "additionalProperties": values or True,
        }
        if build is None and make_key is None:
            return schema, None

        def make(value: dict[str, Json]) -> dict[Any, Any]:
            names = gather((name, name, make_key) for name in value)
            built = gather((name, item, build) for name, item in value.items())
            return dict(zip(names.values(), built.values(), strict=True))

        return schema, make

    def _record(self, hint: Any, kind: Any, args: tuple[Any, ...]) -> Described | None:
        """Return the schema and the builder of a class with named fields, or None for another type.

        Such a class is, for example, a dataclass or a TypedDict.
        """
        if _is_a(kind, "pydantic", "BaseModel"):
            return self._named(hint, kind.__name__, lambda: _pydantic(self, hint))
        if _is_a(kind, "msgspec", "Struct"):
            return self._named(hint, kind.__name__, lambda: _msgspec(self, hint))
        if dataclasses.is_dataclass(kind):
            fields = _dataclass_fields
        elif issubclass(kind, dict) and hasattr(kind, "__required_keys__"):
            fields = _typeddict_fields
        elif issubclass(kind, tuple) and hasattr(kind, "_fields"):
            fields = _namedtuple_fields
        else:
            return None

        def make() -> Described:
            schema, build = self.members(
                f"{kind.__name__}.{{}}", fields(kind, self._hints(kind, args))
            )
            if issubclass(kind, dict):
                return schema, build
            return schema, lambda value: kind(**(value if build is None else build(value)))

        return self._named(hint, kind.__name__, make)

    def _hints(self, kind: Any, args: tuple[Any, ...]) -> dict[str, Any]:
        """Return the annotations of a class and its bases as a dict, with strings evaluated.

        Type variables are replaced by `args`, the type arguments of the class.
        """
        hints: dict[str, Any] = {}
        for base in reversed(kind.__mro__):
            own = inspect.get_annotations(base)
            if own:
                known = vars(sys.modules[base.__module__]) if base.__module__ in sys.modules else {}
                # For a class inside a function, the names of that function come first.
                local = "<locals>" in base.__qualname__
                near, far = (self.namespace, known) if local else (known, self.namespace)
                hints |= self.resolve(own, {**far, **near})
        table = dict(zip(getattr(kind, "__parameters__", ()), args, strict=False))
        for name, hint in hints.items() if table else ():
            inner = getattr(hint, "__parameters__", ())
            if isinstance(hint, typing.TypeVar):
                hints[name] = table.get(hint, hint)
            elif inner:
                hints[name] = hint[tuple(table.get(parameter, parameter) for parameter in inner)]
        return hints

    def _named(self, key: Any, name: str, make: Callable[[], Described]) -> Described:
        """Return the schema and the builder of a type that may contain itself.

        If the type contains itself, its schema is stored in `$defs`, and a `$ref` is returned.
        `key` identifies the type, and `make` returns its schema and builder.
        """
        if key in self._open:
            own = self._open[key] = self._open[key] or self._free_name(name)

            def build_later(value: Json) -> Any:
                build = self._builds[own]
                return value if build is None else build(value)

            return {"$ref": f"#/$defs/{own}"}, build_later
        self._open[key] = None
        try:
            schema, build = make()
        finally:
            definition = self._open.pop(key, None)
        if definition is None:
            return schema, build
        self.defs[definition], self._builds[definition] = schema, build
        return {"$ref": f"#/$defs/{definition}"}, build

    def _free_name(self, name: str) -> str:
        """Return a name for `$defs` that is not used yet: Node, Node_2, Node_3 and so on."""
        name = re.sub(r"\W", "_", name)
        taken = {*self.defs, *self._open.values()}
        candidates = (name, *(f"{name}_{number}" for number in range(2, 1000)))
        return next(candidate for candidate in candidates if candidate not in taken)

    def adopt(self, defs: Mapping[str, Json], schema: Json) -> Json:
        """Add `defs` to the shared `$defs`, and return `schema` with its references adapted.

        `defs` are the definitions of `schema`, which another library, such as pydantic, made. If
        the name of a definition is used already, the definition gets another name, and the
        references to it are changed too.
        """
        names = {
            name: name if self.defs.get(name, part) == part else self._free_name(name)
            for name, part in defs.items()
        }
        for name, part in defs.items():
            self.defs[names[name]] = _rename(part, names)
        return _rename(schema, names)

    def resolve(
        self, annotations: Mapping[str, Any], known: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Evaluate the annotations that are strings, and return all annotations as a dict.

        `known` contains the names that a string may use; by default, the names of the signature.
        Raise CannotDescribe if a string cannot be evaluated.
        """
        # Only in the annotations of a class may a string name ClassVar, as in a dataclass.
        holder = type("Annotated", (), {"__annotations__": dict(annotations)})
        names = dict(self.namespace if known is None else known)
        try:
            return typing.get_type_hints(holder, names, include_extras=True)
        except NameError as error:
            raise CannotDescribe(
                f"cannot resolve the annotation: {error}; the name must exist at run time"
            ) from None
        except (TypeError, SyntaxError) as error:
            raise CannotDescribe(str(error)) from None


def gather(items: Iterable[tuple[Any, Json, Build | None]]) -> dict[Any, Any]:
    """Call the builder of each tuple (key, value, builder), and return the built values by key.

    If values are invalid, raise one ValidationError with the faults of all of them.
    """
    built: dict[Any, Any] = {}
    errors: list[tuple[Path, str]] = []
    for key, value, build in items:
        try:
            built[key] = value if build is None else build(value)
        except ValidationError as failed:
            errors += failed.below(key).errors
        except Exception as error:  # a class may reject a value with any exception
            errors.append(((key,), f"got {show_json(value)}: {type(error).__name__}: {error}"))
    if errors:
        raise ValidationError(errors)
    return built


def _any_of(schemas: list[dict[str, Json]]) -> dict[str, Json]:
    different = [schema for index, schema in enumerate(schemas) if schema not in schemas[:index]]
    return {"anyOf": different} if len(different) > 1 else (different or [{}])[0]


def _is_json(value: Any) -> bool:
    """Return whether a default value is valid in JSON; a tuple or an infinite number is not."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(item) for key, item in value.items())
    if isinstance(value, list):
        return all(_is_json(item) for item in value)
    if isinstance(value, float):
        return value - value == 0  # neither infinite nor NaN
    return value is None or isinstance(value, (str, int))


def _rename(schema: Json, names: Mapping[str, str]) -> Json:
    if isinstance(schema, list):
        return [_rename(item, names) for item in schema]
    if not isinstance(schema, dict):
        return schema
    changed = {word: _rename(value, names) for word, value in schema.items()}
    ref = changed.get("$ref")
    if isinstance(ref, str) and ref.startswith("#/$defs/"):
        changed["$ref"] = "#/$defs/" + names.get(ref[8:], ref[8:])
    return changed


def _name(hint: Any) -> str:
    return (
        hint.__qualname__
        if isinstance(hint, type)
        else re.sub(r"\b(typing|collections\.abc)\.", "", str(hint))
    )


_DECIMAL = r"^[+-]?[0-9]+([.][0-9]+)?([eE][+-]?[0-9]+)?$"
_DURATION = (  # compiled at its first use
    r"P(?:(?P<weeks>[\d.,]+)W)?(?:(?P<days>[\d.,]+)D)?"
    r"(?:T(?:(?P<hours>[\d.,]+)H)?(?:(?P<minutes>[\d.,]+)M)?(?:(?P<seconds>[\d.,]+)S)?)?"
)


def _scalar(kind: Any) -> Described | None:
    """Return the schema and the builder of an Enum or a class that is text in JSON, or None.

    A class that is text in JSON is, for example, datetime or Path. Return None for another class.
    """
    if issubclass(kind, Enum):
        plain = all(type(member.value) in (str, int, float, bool) for member in kind)
        table = {(member.value if plain else member.name): member for member in kind}
        return _values(list(table)), table.__getitem__
    known = f"{kind.__module__}.{kind.__name__}"
    if known in ("datetime.datetime", "datetime.date", "datetime.time"):
        word = "date-time" if kind.__name__ == "datetime" else kind.__name__
        return _text({"format": word}, kind.fromisoformat, FORMATS[word])
    if known == "datetime.timedelta":
        expected = "a duration such as P1DT2H30M or PT90S"
        return _text({"format": "duration"}, functools.partial(_duration, kind), expected)
    if known == "decimal.Decimal":
        return _text({"pattern": _DECIMAL}, kind, "a decimal number such as 12.30")
    if known == "uuid.UUID":
        return _text({"format": "uuid"}, kind, FORMATS["uuid"])
    if kind is bytes:
        return _text({"contentEncoding": "base64"}, _base64, FORMATS["base64"])
    return _text({}, kind, "a path") if issubclass(kind, os.PathLike) else None


def _text(keywords: dict[str, Json], make: Callable[[Any], Any], expected: str) -> Described:
    """Return a schema for JSON strings, and a builder that calls `make` with a string.

    If `make` fails, the builder raises a ValidationError that names `expected`.
    """

    def build(value: Json) -> Any:
        try:
            return make(value)
        except (ValueError, TypeError, OverflowError):
            raise ValidationError([((), f"got {show_json(value)}, expected {expected}")]) from None

    return {"type": "string", **keywords}, build


def _literal(args: tuple[Any, ...]) -> Described:
    values = [arg.value if isinstance(arg, Enum) else arg for arg in args]
    if not all(value is None or isinstance(value, (str, int, bool)) for value in values):
        raise CannotDescribe(
            f"cannot describe Literal{list(args)} to a model; use text, int, bool or None as values"
        )
    if not any(isinstance(arg, Enum) for arg in args):
        return _values(values), None
    table = dict(zip(values, args, strict=True))
    return _values(values), table.__getitem__


def _values(values: list[Any]) -> dict[str, Json]:
    kinds = {type(value) for value in values}
    schema = _SCALARS[kinds.pop()][0] if len(kinds) == 1 and kinds <= _SCALARS.keys() else {}
    return {**schema, "enum": values}


def _duration(timedelta: Any, text: str) -> Any:
    """Convert an ISO 8601 duration such as P1DT2H30M to a timedelta, or raise ValueError."""
    found = re.fullmatch(_DURATION, text.removeprefix("-"))
    if found is None or text.endswith(("P", "T")):
        raise ValueError(text)
    parts = {
        name: float(value.replace(",", ".")) for name, value in found.groupdict().items() if value
    }
    return -timedelta(**parts) if text.startswith("-") else timedelta(**parts)


def _base64(text: str) -> bytes:
    return base64.b64decode("".join(text.split()), altchars=b"-_", validate=True)


def _dataclass_fields(kind: Any, hints: dict[str, Any]) -> Iterable[tuple[str, Any, Any]]:
    for name, field in kind.__dataclass_fields__.items():
        is_class_variable = typing.ClassVar in (hints[name], typing.get_origin(hints[name]))
        if not field.init or is_class_variable:
            continue
        hint = hints[name].type if isinstance(hints[name], dataclasses.InitVar) else hints[name]
        given = [
            each
            for each in (field.default, field.default_factory)
            if each is not dataclasses.MISSING
        ]
        yield name, hint, given[0] if given else REQUIRED


def _typeddict_fields(kind: Any, hints: dict[str, Any]) -> Iterable[tuple[str, Any, Any]]:
    for name, hint in hints.items():
        needed = name in kind.__required_keys__
        # If annotations are postponed, __required_keys__ ignores these forms. They are compared by
        # name, because typing and typing_extensions may each have their own form.
        while (form := _form_name(hint)) in ("Required", "NotRequired", "ReadOnly"):
            needed = {"Required": True, "NotRequired": False}.get(form, needed)
            hint = typing.get_args(hint)[0]
        yield name, hint, REQUIRED if needed else None


def _form_name(hint: Any) -> str:
    """Return the name of the special form around a hint, such as "Required", or ""."""
    return str(getattr(typing.get_origin(hint), "__name__", ""))


def _namedtuple_fields(kind: Any, hints: dict[str, Any]) -> Iterable[tuple[str, Any, Any]]:
    for name in kind._fields:
        yield name, hints.get(name, Any), kind._field_defaults.get(name, REQUIRED)


def _is_a(kind: type, module: str, name: str) -> bool:
    """Return whether `kind` is a subclass of the class `name` in another library's `module`.

    If the module is not loaded, return False.
    """
    base = getattr(sys.modules.get(module), name, None)
    return isinstance(base, type) and issubclass(kind, base)


def _pydantic(describer: Describer, hint: Any) -> Described:
    pydantic: Any = sys.modules["pydantic"]
    adapter: Any = pydantic.TypeAdapter(hint)
    schema = dict(adapter.json_schema())
    defs = schema.pop("$defs", {})

    def build(value: Json) -> Any:
        try:
            # The value is passed as JSON, because only then strict models accept dates as text.
            return adapter.validate_json(json.dumps(value))
        except pydantic.ValidationError as error:
            raise ValidationError(
                (tuple(each["loc"]), each["msg"]) for each in error.errors()
            ) from None

    return describer.adopt(defs, schema), build


def _msgspec(describer: Describer, hint: Any) -> Described:
    msgspec: Any = sys.modules["msgspec"]
    (schema,), defs = msgspec.json.schema_components([hint], ref_template="#/$defs/{name}")
    if schema.keys() == {"$ref"} and json.dumps(schema["$ref"]) not in json.dumps(
        defs, default=str
    ):
        schema = defs.pop(schema["$ref"][8:])

    def build(value: Json) -> Any:
        try:
            return msgspec.convert(value, hint)
        except msgspec.ValidationError as error:
            raise ValidationError([((), str(error))]) from None

    return describer.adopt(defs, schema), build
