"""JSON of dataclasses: `to_json` encodes them, `from_json` decodes them.

    @dataclass(frozen=True, kw_only=True)
    class Point:
        x: int
        y: int = 0

    to_json(Point(x=1))           # {"x": 1}: a field that has its default value is left out
    from_json(Point, {"x": 1})    # Point(x=1, y=0)
    from_json(Point, {"x": "1"})  # ValueError: .x must be a whole number, not a text

A class with a field `extra: Mapping[str, Json] | None` is open. Unknown fields, which a newer
version wrote, are kept in `extra` and written again, and the types of numbers and texts are not
checked. Any other class is read strictly: an unknown, missing or ill-typed field is a ValueError.

The metadata of a field may contain `derived` (it is neither written nor read), `always` (it is
written even if it has its default value) or `plain` (it is written by `to_plain`).
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import os
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Literal, TypeAlias, TypeVar, overload

Json: TypeAlias = Any  # a value that json.loads may return
ValueT = TypeVar("ValueT")
Reader: TypeAlias = Callable[[Any], Any]

_PLAIN = frozenset((str, int, float, bool, type(None)))
_writers: dict[type, Callable[[Any], Json]] = {}
_unions: dict[type, TaggedUnion] = {}
_registered: dict[type, tuple[Callable[[Any], Json], Reader]] = {}  # with their subclasses
_tags: dict[type, dict[str, Json]] = {}


class Mismatch(ValueError):
    """The error for JSON that does not fit a class. Its message begins with the path of the field.

    An example of a message: `.hunks[2].lines must be a list, not null`.
    """

    def __init__(self, text: str, path: str = "") -> None:
        super().__init__(path + text)
        self.text, self.path = text, path

    def below(self, path: str) -> Mismatch:
        """Return a copy of this error with `path` added in front of its own path."""
        return Mismatch(self.text, path + self.path)


class TaggedUnion:
    """A group of classes. The JSON of their objects has a key that names the class.

    shapes = TaggedUnion("type", {"circle": Circle, "square": Square})
    to_json(Circle(radius=2))                      # {"type": "circle", "radius": 2}
    shapes.read({"type": "circle", "radius": 2})   # Circle(radius=2)
    """

    def __init__(
        self,
        key: str,
        classes: Mapping[str, type],
        *,
        unknown: type | None = None,
        always: Mapping[str, Json] = {},
    ) -> None:
        """Register the classes, so that `to_json` writes the name of the class too.

        Args:
            key: the JSON key whose value names the class.
            classes: the classes by their names.
            unknown: a class that is created as `unknown(data=...)` for other names. Without it,
                other names are an error.
            always: further fields that are written for every class.
        """
        self.key, self.classes, self.unknown, self.always = key, classes, unknown, always
        for name, cls in classes.items():
            _unions[cls] = self
            _tags[cls] = {**always, key: name}
        self.tags = frozenset((key, *always))
        if unknown is not None:
            _unions[unknown] = self
            _writers[unknown] = lambda value: dict(value.data)

    def read(self, data: Json) -> Any:
        """Return the object that `to_json` encoded as `data`, or raise Mismatch."""
        if type(data) is not dict and not isinstance(data, Mapping):  # the second check is slow
            raise Mismatch(f" must be an object, not {kind_of(data)}")
        tag = data.get(self.key)
        cls = self.classes.get(tag) if isinstance(tag, str) else None
        if cls is not None:
            return _read_record(cls, data)
        if self.unknown is None:
            raise Mismatch(
                f" has an unknown {self.key} {tag!r}; there are: {', '.join(sorted(self.classes))}"
            )
        return self.unknown(data=dict(data))


def register(cls: type, write: Callable[[Any], Json], read: Reader) -> None:
    """Store the functions that encode and decode objects of `cls` and of its subclasses.

    `to_json` calls `write`, and `from_json` calls `read`.

    This is for classes that are not dataclasses.
    """
    _registered[cls] = write, read


def to_json(value: Any) -> Json:
    """Return `value` as a JSON value, such as a dict or a list, that `from_json` can decode.

    The value may be a dataclass, an enum, bytes (written as base64), or a container of these.
    Raise TypeError for any other object.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    return (_writers.get(kind) or _writer(kind))(value)


def to_plain(value: Any, other: Callable[[Any], Json] = str) -> Json:
    """Return any object as a JSON value for logs and displays. `from_json` cannot decode the value.

    Fields that have their default values are included, except in messages. Caches and the field
    `extra` are left out. `other` converts an object of an unknown class.
    """
    if isinstance(value, Enum):  # before str, because a StrEnum is both
        return value.value
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    union = _unions.get(type(value))
    if union is not None and union.always:
        return to_json(value)  # a message, in the form that stores write
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        # A field that is neither a parameter nor compared is a cache, and is left out.
        names = [each.name for each in dataclasses.fields(value) if each.init or each.compare]
        left_out = "extra" if _is_open(value) else ""
        return {name: to_plain(getattr(value, name), other) for name in names if name != left_out}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item, other) for key, item in value.items()}
    if isinstance(value, (bytes, bytearray)):
        return _write_bytes(value)
    if isinstance(value, Sequence):
        return [to_plain(item, other) for item in value]
    if isinstance(value, (set, frozenset)):
        return [to_plain(item, other) for item in sorted(value, key=repr)]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "isoformat"):  # datetime, date, time
        return value.isoformat()
    known = f"{type(value).__module__}.{type(value).__name__}"
    if known == "decimal.Decimal":
        return str(value)
    if known == "datetime.timedelta":
        return f"{'-' * (value.days < 0)}PT{abs(value).total_seconds():.15g}S"
    if hasattr(value, "model_dump"):  # pydantic
        return to_plain(value.model_dump(mode="json"), other)
    if hasattr(value, "__struct_fields__"):  # msgspec
        return {name: to_plain(getattr(value, name), other) for name in value.__struct_fields__}
    return other(value)


def _is_open(cls: Any) -> bool:
    extra = cls.__dataclass_fields__.get("extra")
    return extra is not None and extra.type == "Mapping[str, Json] | None"


def _write_bytes(value: Any) -> Json:
    return base64.b64encode(value).decode()


# The first type that fits decides, because an enum may also be a str, and a str is a Sequence.
_FORMS: tuple[tuple[type | tuple[type, ...], Callable[[Any], Json]], ...] = (
    (Enum, lambda value: value.value),
    (bytes, _write_bytes),
    ((str, int, float), lambda value: value),
    (
        Mapping,
        lambda value: {
            key: item if type(item) in _PLAIN else to_json(item) for key, item in value.items()
        },
    ),
    ((Sequence, set, frozenset), lambda value: [to_json(item) for item in value]),
)


def _writer(kind: type) -> Callable[[Any], Json]:
    if dataclasses.is_dataclass(kind):
        write = _record_writer(kind, _tags.get(kind, {}))
    else:
        forms = [form for cls, (form, _) in _registered.items() if issubclass(kind, cls)]
        forms += [form for types, form in _FORMS if issubclass(kind, types)]
        if not forms:
            raise TypeError(f"{kind.__name__} cannot be written as JSON")
        write = forms[0]
    _writers[kind] = write
    return write


def _record_writer(cls: Any, tags: Mapping[str, Json]) -> Callable[[Any], Json]:
    is_open = _is_open(cls)
    # A field with the metadata `always` gets a new object as its default, which no value equals.
    plan = [
        (
            each.name,
            object() if each.metadata.get("always") else each.default,
            type(each.default),
            to_plain if each.metadata.get("plain") else to_json,
        )
        for each in dataclasses.fields(cls)
        if each.init and not each.metadata.get("derived") and not (is_open and each.name == "extra")
    ]

    def write(value: Any) -> Json:
        out = {**tags, **value.extra} if is_open and value.extra else {**tags}
        for name, default, kind, encode in plan:
            item = getattr(value, name)
            if item is default or (type(item) is kind and item == default):
                continue
            out[name] = item if type(item) in _PLAIN else encode(item)
        return out

    return write


@overload
def from_json(cls: type[ValueT], data: Json) -> ValueT: ...
@overload
def from_json(cls: Any, data: Json) -> Any: ...
def from_json(cls: Any, data: Json) -> Any:
    """Return the object of the type `cls` that `to_json` encoded as `data`.

    `cls` may be a class, a union or a container such as `tuple[Point, ...]`. If `data` does not
    fit it, raise a ValueError that names the wrong field.
    """
    read = _reader(cls)
    return data if read is None else read(data)


def kind_of(value: Json) -> str:
    """Return the type of a JSON value for an error message, such as "a list"."""
    if value is None:
        return "null"
    return _KINDS.get(type(value)) or ("a list" if isinstance(value, list) else "an object")


_KINDS: dict[type, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}


def _read_record(cls: Any, data: Json) -> Any:
    if type(data) is not dict and not isinstance(data, Mapping):
        raise Mismatch(f" must be an object, not {kind_of(data)}")
    readers, is_open, tags = _plan(cls)
    values: dict[str, Any] = {}
    extra: dict[str, Json] = {}
    for name, value in data.items():
        if name in readers:
            read = readers[name]
            values[name] = value if read is None else _read_at(".{}", name, read, value)
        elif name not in tags:
            extra[name] = value
    if is_open:
        values["extra"] = extra or None
    elif extra:
        raise Mismatch(
            f" has an unknown field {min(extra)!r}; there are: {', '.join(sorted(readers))}"
        )
    try:
        return cls(**values)
    except (TypeError, ValueError) as error:
        raise Mismatch(f": {error}") from error


@functools.cache
def _plan(cls: Any) -> tuple[dict[str, Reader | None], bool, frozenset[str]]:
    """Return the decoder of each field, whether to keep unknown keys, and the keys to ignore.

    Unknown keys are kept in the field `extra` if the dataclass is open, that is, has such a field.
    The decoder of a field is None if its JSON value is used unchanged. The keys to ignore name the
    class, as in `TaggedUnion`.
    """
    fields = [
        each for each in dataclasses.fields(cls) if each.init and not each.metadata.get("derived")
    ]
    is_open, hints = _is_open(cls), typing.get_type_hints(cls)
    readers = {each.name: _reader(hints[each.name], is_open) for each in fields}
    if is_open:
        del readers["extra"]
    return readers, is_open, _unions[cls].tags if cls in _unions else frozenset()


@functools.cache
def _reader(hint: Any, is_open: bool = False) -> Reader | None:
    """Return the function that decodes JSON to the type `hint`, or None to use JSON unchanged.

    If `is_open`, the types of numbers and texts are not checked.
    """
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _union_reader(args, is_open)
    if dataclasses.is_dataclass(hint):
        return lambda data: _read_record(hint, data)
    kind = origin or hint
    if kind in (tuple, list, set, frozenset) or getattr(kind, "__name__", "") == "Sequence":
        item = _reader(args[0], is_open) if args else None
        make = kind if kind in (list, set, frozenset) else tuple
        return lambda value: _read_items(value, item, make)
    if hint is bytes:
        return _read_bytes
    if isinstance(hint, type) and issubclass(hint, Enum):
        values = [member.value for member in hint]
        return lambda value: value if isinstance(value, hint) else hint(_read_member(value, values))
    for cls, (_, read) in _registered.items():
        if isinstance(hint, type) and issubclass(hint, cls):
            return read
    if is_open or hint in (Any, object) or isinstance(hint, TypeVar):
        return None
    if origin is Literal:
        return lambda value: _read_member(value, args)
    if isinstance(kind, type) and issubclass(kind, Mapping):
        each = _reader(args[1]) if args else None
        return lambda value: _read_mapping(value, each)
    if hint in _KINDS:
        return lambda value: _read_scalar(value, hint)

    def refuse(value: Json) -> Any:
        raise TypeError(f"{hint} cannot be read from JSON")

    return refuse


def _union_reader(args: tuple[Any, ...], is_open: bool) -> Reader | None:
    options = [option for option in args if option is not type(None)]
    if len(options) > 1 and options[0] in _unions:
        return _unions[options[0]].read
    readers = [_reader(option, is_open) for option in options]
    if all(read is None for read in readers):
        return None

    def read(value: Json) -> Any:
        if value is None and len(options) < len(args):
            return None
        for reader in readers[:-1]:
            try:
                return value if reader is None else reader(value)
            except Mismatch:
                continue
        return value if readers[-1] is None else readers[-1](value)

    return read


def _read_items(value: Json, read: Reader | None, make: Any) -> Any:
    if not isinstance(value, (list, tuple)):
        raise Mismatch(f" must be a list, not {kind_of(value)}")
    if read is None:
        return make(value)
    return make(_read_at("[{}]", index, read, item) for index, item in enumerate(value))


def _read_mapping(value: Json, read: Reader | None) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise Mismatch(f" must be an object, not {kind_of(value)}")
    return {
        key: item if read is None else _read_at("[{!r}]", key, read, item)
        for key, item in value.items()
    }


def _read_at(place: str, key: object, read: Reader, value: Json) -> Any:
    try:
        return read(value)
    except Mismatch as error:
        raise error.below(place.format(key)) from None


def _read_bytes(value: Json) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError):
        raise Mismatch(" must be base64 text") from None


def _read_member(value: Json, allowed: Sequence[Any]) -> Any:
    if not any(value == each and type(value) is type(each) for each in allowed):
        raise Mismatch(f" must be one of {', '.join(map(repr, allowed))}, not {value!r}")
    return value


def _read_scalar(value: Json, hint: type) -> Any:
    if hint is float and type(value) is int and abs(value) < 1e15:
        return float(value)
    if hint is float and value != value:  # json.loads accepts NaN
        raise Mismatch(" must be a number, not NaN")
    if type(value) is not hint:
        raise Mismatch(f" must be {_KINDS[hint]}, not {kind_of(value)}")
    return value
