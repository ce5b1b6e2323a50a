"""How a type annotation becomes a JSON schema, and how JSON becomes the Python value it describes."""

from __future__ import annotations

import os
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin

from glue.function.validation import Path, ValidationError, Validator, show
from glue.messages import Json


class CannotDescribe(TypeError):
    """A type that no JSON schema describes."""


class Field:
    """Say more of a parameter than its type does: `Annotated[int, Field("pages", ge=1, le=50)]`."""

    __slots__ = ("description", "examples", "words")

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
        self.description = description
        self.examples = list(examples)
        self.words: dict[str, Json] = {
            name: value
            for name, value in (
                ("minimum", ge),
                ("exclusiveMinimum", gt),
                ("maximum", le),
                ("exclusiveMaximum", lt),
                ("multipleOf", multiple_of),
                ("min", min_length),
                ("max", max_length),
                ("pattern", pattern),
            )
            if value is not None
        }
        if pattern is not None:
            re.compile(pattern)

    def __repr__(self) -> str:
        return f"Field({self.description!r}, {self.words!r})"


def constrain(schema: dict[str, Json], field: Field) -> dict[str, Json]:
    """Add a Field's description, bounds and examples to a schema."""
    schema = dict(schema)
    if "anyOf" in schema:
        schema["anyOf"] = [dict(option) for option in schema["anyOf"]]
    for word, bound in field.words.items():
        parts = [part for part in schema.get("anyOf", [schema]) if _word(part, word)]
        if not parts:
            raise CannotDescribe(f"{word} says nothing of {show(schema)}")
        for part in parts:
            part[_word(part, word)] = bound
    if field.description:
        schema["description"] = field.description
    if field.examples:
        schema["examples"] = field.examples
    return schema


_NUMBERS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf")
_SIZES = {"string": "Length", "array": "Items", "object": "Properties"}


def _word(schema: Mapping[str, Json], word: str) -> str | None:
    kind = schema.get("type")
    if word in _NUMBERS:
        return word if kind in ("integer", "number") else None
    if word == "pattern":
        return word if kind == "string" else None
    return word + _SIZES[kind] if kind in _SIZES else None


Build: TypeAlias = Callable[[Any], Any]
Described: TypeAlias = tuple[dict[str, Json], Build | None]  # no build: the JSON value is the Python value

_ISO = {
    "datetime": ("date-time", "a date and time such as 2026-01-31T09:30:00Z"),
    "date": ("date", "a date such as 2026-01-31"),
    "time": ("time", "a time such as 09:30:00"),
}


_DECIMAL = r"^[+-]?[0-9]+([.][0-9]+)?([eE][+-]?[0-9]+)?$"
_DURATION = re.compile(
    r"P(?:(?P<weeks>[\d.,]+)W)?(?:(?P<days>[\d.,]+)D)?"
    r"(?:T(?:(?P<hours>[\d.,]+)H)?(?:(?P<minutes>[\d.,]+)M)?(?:(?P<seconds>[\d.,]+)S)?)?"
)


def scalar(kind: type) -> Described | None:
    """Describe a class whose values JSON writes as text; None if it is none of these."""
    if issubclass(kind, Enum):
        return _enum(kind)
    if kind.__module__ == "datetime" and kind.__name__ in _ISO:
        word, expected = _ISO[kind.__name__]
        return {"type": "string", "format": word}, _parser(kind.fromisoformat, expected)  # type: ignore[attr-defined]
    if kind.__module__ == "datetime" and kind.__name__ == "timedelta":
        return {"type": "string", "format": "duration"}, _parser(_duration, "a duration such as P1DT2H30M or PT90S")
    if kind.__module__ == "decimal" and kind.__name__ == "Decimal":
        return {"type": "string", "pattern": _DECIMAL}, _parser(kind, "a decimal number such as 12.30")
    if kind is bytes:
        return {"type": "string", "contentEncoding": "base64"}, _parser(_base64, "base64 text")
    if issubclass(kind, os.PathLike):
        return {"type": "string"}, _parser(kind, "a path")
    if kind.__module__ == "uuid" and kind.__name__ == "UUID":
        return {"type": "string", "format": "uuid"}, _parser(kind, "a UUID")
    return None


def literal(args: tuple[Any, ...]) -> Described:
    table = {(arg.value if isinstance(arg, Enum) else arg): arg for arg in args}
    if not all(value is None or isinstance(value, (str, int, bool)) for value in table):
        raise CannotDescribe(f"cannot describe Literal{list(args)} to a model")
    build = table.__getitem__ if any(isinstance(arg, Enum) for arg in args) else None
    return _values([arg.value if isinstance(arg, Enum) else arg for arg in args]), build


def _enum(kind: type[Enum]) -> Described:
    plain = all(type(member.value) in (str, int, float, bool) for member in kind)
    table = {(member.value if plain else member.name): member for member in kind}
    return _values(list(table)), table.__getitem__


def _values(values: list[Any]) -> dict[str, Json]:
    kinds = {type(value) for value in values}
    names = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
    schema: dict[str, Json] = {"type": names[kinds.pop()]} if len(kinds) == 1 and kinds <= names.keys() else {}
    return {**schema, "enum": values}


def _parser(make: Callable[[Any], Any], expected: str) -> Build:
    def build(value: Json) -> Any:
        try:
            return make(value)
        except (ValueError, TypeError, OverflowError):
            raise ValidationError([((), f"got {show(value)}, expected {expected}")]) from None

    return build


def _duration(text: str) -> Any:
    from datetime import timedelta

    found = _DURATION.fullmatch(text)
    if found is None or text.endswith(("P", "T")):
        raise ValueError(text)
    return timedelta(**{name: float(value.replace(",", ".")) for name, value in found.groupdict().items() if value})


def _base64(text: str) -> bytes:
    import base64

    return base64.b64decode("".join(text.split()), altchars=b"-_" if {"-", "_"} & set(text) else None, validate=True)


class Shape:
    """A schema together with the way from JSON to Python; made once, then used for every value."""

    def __init__(self, schema: Mapping[str, Json], build: Build | None = None) -> None:
        self.schema = schema
        self.build = build
        self.validator = Validator(schema)
        self.fits = self.validator.check(schema)

    def read(self, value: Json) -> Any:
        """Coerce, validate and build; raises ValidationError."""
        if self.fits is None or not self.fits(value):
            from glue.function.arguments import coerce

            value = coerce(self.validator, value)
            errors = self.validator.errors(value)
            if errors is not None:
                raise errors
        if self.build is None:
            return value
        try:
            return self.build(value)
        except ValidationError:
            raise
        except Exception as error:  # a class may refuse a value in its own way
            raise ValidationError([((), f"got {show(value)}: {type(error).__name__}: {error}")]) from error


def shape_of(annotation: Any, namespace: Mapping[str, Any] | None = None) -> Shape:
    """Describe one annotation; raises CannotDescribe."""
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
_ARRAYS = (*_SETS, "list", "tuple", "Sequence", "MutableSequence", "Collection", "Iterable", "deque")
_OBJECTS = ("dict", "Mapping", "MutableMapping", "OrderedDict")


class Describer:
    """Describes the annotations of one signature; recursive types end up in `$defs`."""

    def __init__(self, namespace: Mapping[str, Any] | None = None) -> None:
        self.namespace = dict(namespace or {})
        self.defs: dict[str, Json] = {}
        self._open: dict[Any, str | None] = {}  # types under way; a name once one has met itself
        self._builds: dict[str, Build | None] = {}
        self._validator: Validator

    def close(self, schema: dict[str, Json], build: Build | None) -> Shape:
        """Put the definitions into the finished schema; unions are judged by it from then on."""
        if self.defs:
            schema = {**schema, "$defs": self.defs}
        shape = Shape(schema, build)
        self._validator = shape.validator
        self.namespace = {}  # not needed any more, and it may hold on to a whole frame
        return shape

    def describe(self, hint: Any) -> Described:
        """Make the schema of an annotation and, where JSON is not enough, its builder."""
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
            return literal(args)
        if origin in (typing.Union, types.UnionType):
            return self._union(args)
        if origin in (typing.Required, typing.NotRequired, typing.Final):
            return self.describe(args[0])
        if isinstance(hint, typing.NewType):
            return self.describe(hint.__supertype__)
        if isinstance(hint, typing.TypeVar):
            return self.describe(hint.__bound__ if hint.__bound__ is not None else Any)
        if type(hint).__name__ == "TypeAliasType":
            return self.named(hint, hint.__name__, lambda: self.describe(hint.__value__))
        kind = origin or hint
        if not isinstance(kind, type):
            raise CannotDescribe(f"cannot describe {_name(hint)} to a model")
        return self._class(hint, kind, args)

    def _class(self, hint: Any, kind: type, args: tuple[Any, ...]) -> Described:
        from glue.function.objects import record

        found = scalar(kind) or record(self, hint, kind, args)
        if found is not None:
            return found
        if kind.__module__ in ("builtins", "collections", "collections.abc"):
            if kind is tuple and hint is not tuple and args[-1:] != (...,):
                return self._tuple(args)
            if kind.__name__ in _ARRAYS:
                return self._array(kind, args)
            if kind.__name__ in _OBJECTS:
                return self._mapping(args)
        raise CannotDescribe(
            f"cannot describe {_name(hint)} to a model; use a dataclass, a TypedDict, an Enum or a plain type"
        )

    def _annotated(self, hint: Any, inner: Any, notes: tuple[Any, ...]) -> Described:
        from glue.function.objects import adapted

        schema, build = adapted(self, hint, notes) or self.describe(inner)
        for note in notes:
            if isinstance(note, str):
                schema["description"] = note
            elif isinstance(note, Field):
                schema = constrain(schema, note)
        return schema, build

    def _union(self, args: tuple[Any, ...]) -> Described:
        options = [self.describe(arg) for arg in args]
        schemas = [schema for schema, _ in options]
        different = [schema for index, schema in enumerate(schemas) if schema not in schemas[:index]]
        schema = {"anyOf": different} if len(different) > 1 else different[0]
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
            raise failed or ValidationError([((), f"got {show(value)}, which fits no option")])

        return schema, build

    def _array(self, kind: type, args: tuple[Any, ...]) -> Described:
        items, build = self.describe(args[0]) if args else ({}, None)
        schema: dict[str, Json] = {"type": "array", "items": items}
        target: Build = list
        if kind is tuple:
            target = tuple
        elif kind.__name__ in _SETS:
            schema["uniqueItems"] = True
            target = frozenset if kind is frozenset else set
            if build is None and items.get("type") in ("array", "object"):
                raise CannotDescribe("the items of a set must be hashable")
        elif kind.__name__ == "deque":
            target = kind
        if build is None:
            return schema, None if target is list else target
        return schema, lambda value: target(gather(enumerate(value), build))

    def _tuple(self, args: tuple[Any, ...]) -> Described:
        parts = [self.describe(arg) for arg in args]
        schemas = [schema for schema, _ in parts]
        different = [schema for index, schema in enumerate(schemas) if schema not in schemas[:index]]
        schema: dict[str, Json] = {"type": "array"}
        if len(different) > 1:
            schema["prefixItems"] = schemas
        # With maxItems this says nothing new, but some providers refuse a list without `items`.
        schema["items"] = {"anyOf": different} if len(different) > 1 else (different or [{}])[0]
        schema |= {"minItems": len(args), "maxItems": len(args)}
        builds = [build for _, build in parts]

        def build(value: Json) -> tuple[Any, ...]:
            return tuple(gather(enumerate(value), *builds))

        return schema, build

    def _mapping(self, args: tuple[Any, ...]) -> Described:
        schema: dict[str, Json] = {"type": "object"}
        if not args:
            return schema, None
        keys, make_key = self._keys(args[0])
        if keys:
            schema["propertyNames"] = keys
        values, build = self.describe(args[1])
        schema["additionalProperties"] = values or True
        if build is None and make_key is None:
            return schema, None

        def make(value: dict[str, Json]) -> dict[Any, Any]:
            names = gather(((name, name) for name in value), make_key)
            return dict(zip(names, gather(value.items(), build), strict=True))

        return schema, make

    def _keys(self, hint: Any) -> tuple[dict[str, Json], Build | None]:
        if hint is int:
            return {"pattern": r"^-?[0-9]{1,100}$"}, int
        schema, build = self.describe(hint)
        texts = schema.get("type") == "string"
        if not texts and schema:
            raise CannotDescribe(f"cannot describe a dict with {_name(hint)} keys to a model; JSON keys are text")
        schema.pop("type", None)
        return {word: schema[word] for word in schema if word in ("enum", "pattern")}, build

    def named(self, key: Any, name: str, make: Callable[[], Described]) -> Described:
        """Describe a type that may contain itself: it goes into $defs only if it does."""
        if key in self._open:
            own = self._open[key] or self._free(name)
            self._open[key] = own
            return {"$ref": f"#/$defs/{own}"}, lambda value: self._late(own, value)
        self._open[key] = None
        try:
            schema, build = make()
        finally:
            met = self._open.pop(key, None)
        if met is None:
            return schema, build
        self.defs[met], self._builds[met] = schema, build
        return {"$ref": f"#/$defs/{met}"}, build

    def adopt(self, defs: Mapping[str, Json], schema: Json) -> Json:
        """Take over the definitions of a foreign schema; a name that is taken gets a number."""
        names = {name: name if self.defs.get(name, part) == part else self._free(name) for name, part in defs.items()}
        for name, part in defs.items():
            self.defs[names[name]] = _rename(part, names)
        return _rename(schema, names)

    def _late(self, name: str, value: Json) -> Any:
        build = self._builds[name]
        return value if build is None else build(value)

    def _free(self, name: str) -> str:
        name = re.sub(r"\W", "_", name)
        taken = {*self.defs, *self._open.values()}
        return next(own for n in range(1, 1000) if (own := name if n == 1 else f"{name}_{n}") not in taken)

    def resolve(self, annotations: Mapping[str, Any], known: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Evaluate postponed annotations with the names of a module, or else with those of the signature."""
        holder = types.SimpleNamespace(__annotations__=dict(annotations))
        names = dict(self.namespace if known is None else known)
        try:
            return typing.get_type_hints(holder, names, include_extras=True)
        except NameError as error:
            raise CannotDescribe(f"cannot resolve the annotation: {error}; the name must exist at run time") from None


def gather(items: Any, *builds: Build | None) -> list[Any]:
    """Build every item (with its own builder, or all with one) and report all errors together."""
    built: list[Any] = []
    errors: list[tuple[Path, str]] = []
    for number, (key, value) in enumerate(items):
        build = builds[number] if len(builds) > 1 else builds[0] if builds else None
        try:
            built.append(value if build is None else build(value))
        except ValidationError as failed:
            errors += failed.below(key).errors
        except Exception as error:  # a class may refuse a value in its own way
            errors.append(((key,), f"got {show(value)}: {type(error).__name__}: {error}"))
    if errors:
        raise ValidationError(errors)
    return built


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
    return hint.__qualname__ if isinstance(hint, type) else re.sub(r"\b(typing|collections\.abc)\.", "", str(hint))
