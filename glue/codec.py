"""Dataclasses as JSON and back, from a plan of their fields that is made once for each class.

Fields that hold their default are left out. A class with a field `extra: Mapping[str, Json] | None` is open: what a
newer version wrote besides is kept there and written again, and plain values are taken as they are. Any other class
is read strictly: an unknown, missing or ill-typed field is a ValueError that names it. Of a field's metadata,
`derived` leaves it out and `always` writes it although it holds its default.
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

Json: TypeAlias = Any  # whatever json.loads may return
ValueT = TypeVar("ValueT")
Reader: TypeAlias = Callable[[Any], Any]

_PLAIN = frozenset((str, int, float, bool, type(None)))
_writers: dict[type, Callable[[Any], Json]] = {}
_families: dict[type, Family] = {}
_tags: dict[type, dict[str, Json]] = {}


class Mismatch(ValueError):
    """JSON that does not fit, and where: `.hunks[2].lines must be a list, not null`."""

    def __init__(self, text: str, path: str = "") -> None:
        super().__init__(path + text)
        self.text, self.path = text, path

    def below(self, path: str) -> Mismatch:
        return Mismatch(self.text, path + self.path)


class Family:
    """Classes that stand for each other and are told apart by one key of their JSON."""

    def __init__(
        self, key: str, classes: Mapping[str, type], *, unknown: type | None = None, always: Mapping[str, Json] = {}
    ) -> None:
        """Register the classes; JSON of no known class becomes `unknown(data=...)`, else it is refused."""
        self.key, self.classes, self.unknown, self.always = key, classes, unknown, always
        for name, cls in classes.items():
            _families[cls] = self
            _tags[cls] = {**always, key: name}
        self.tags = frozenset((key, *always))
        if unknown is not None:
            _families[unknown] = self
            _writers[unknown] = lambda value: dict(value.data)

    def read(self, data: Json) -> Any:
        if not isinstance(data, Mapping):
            raise Mismatch(f" must be an object, not {kind_of(data)}")
        tag = data.get(self.key)
        cls = self.classes.get(tag) if isinstance(tag, str) else None
        if cls is not None:
            return _read_record(cls, data)
        if self.unknown is None:
            raise Mismatch(f" has an unknown {self.key} {tag!r}; there are: {', '.join(sorted(self.classes))}")
        return self.unknown(data=dict(data))


def to_json(value: Any) -> Json:
    """Encode dataclasses, enums, bytes (base64) and containers of these; a TypeError for what is none of them."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    return (_writers.get(kind) or _writer(kind))(value)


def to_plain(value: Any, other: Callable[[Any], Json] = str) -> Json:
    """Encode anything, every field of it, for a reader who may not know our classes; `other` gets what is no JSON."""
    if isinstance(value, Enum):  # before str: a StrEnum is both
        return value.value
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if (family := _families.get(type(value))) is not None and family.always:  # a message: as a store writes it
        return to_json(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        # A field that neither makes a record nor tells two apart is a cache.
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
    if hasattr(value, "isoformat"):  # datetime and its like
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


# The first that fits: an enum may be a text too, and a text is a sequence.
_FORMS: tuple[tuple[type | tuple[type, ...], Callable[[Any], Json]], ...] = (
    (Enum, lambda value: value.value),
    (bytes, _write_bytes),
    ((str, int, float), lambda value: value),
    (Mapping, lambda value: {key: item if type(item) in _PLAIN else to_json(item) for key, item in value.items()}),
    ((Sequence, set, frozenset), lambda value: [to_json(item) for item in value]),
)


def _writer(kind: type) -> Callable[[Any], Json]:
    if dataclasses.is_dataclass(kind):
        write = _record_writer(kind, _tags.get(kind, {}))
    else:
        forms = [form for types, form in _FORMS if issubclass(kind, types)]
        if not forms:
            raise TypeError(f"{kind.__name__} has no form in JSON")
        write = forms[0]
    _writers[kind] = write
    return write


def _record_writer(cls: Any, tags: Mapping[str, Json]) -> Callable[[Any], Json]:
    is_open = _is_open(cls)
    # An object that no value equals stands for "always": the default then never matches.
    plan = [
        (each.name, object() if each.metadata.get("always") else each.default, type(each.default))
        for each in dataclasses.fields(cls)
        if each.init and not each.metadata.get("derived") and not (is_open and each.name == "extra")
    ]

    def write(value: Any) -> Json:
        out = {**tags, **value.extra} if is_open and value.extra else {**tags}
        for name, default, kind in plan:
            item = getattr(value, name)
            if item is default or (type(item) is kind and item == default):
                continue
            out[name] = item if type(item) in _PLAIN else to_json(item)
        return out

    return write


@overload
def from_json(cls: type[ValueT], data: Json) -> ValueT: ...
@overload
def from_json(cls: Any, data: Json) -> Any: ...
def from_json(cls: Any, data: Json) -> Any:
    """Decode what `to_json` made of a class, a union or a container of classes; a ValueError says what does not fit."""
    read = _reader(cls)
    return data if read is None else read(data)


def kind_of(value: Json) -> str:
    """Name a JSON value's type in a message."""
    if value is None:
        return "null"
    return _KINDS.get(type(value)) or ("a list" if isinstance(value, list) else "an object")


_KINDS: dict[type, str] = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


def _read_record(cls: Any, data: Json) -> Any:
    if not isinstance(data, Mapping):
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
        raise Mismatch(f" has an unknown field {min(extra)!r}; there are: {', '.join(sorted(readers))}")
    try:
        return cls(**values)
    except TypeError as error:
        raise Mismatch(f": {error}") from error


@functools.cache
def _plan(cls: Any) -> tuple[dict[str, Reader | None], bool, frozenset[str]]:
    fields = [each for each in dataclasses.fields(cls) if each.init and not each.metadata.get("derived")]
    is_open, hints = _is_open(cls), typing.get_type_hints(cls)
    readers = {each.name: _reader(hints[each.name], is_open) for each in fields}
    if is_open:
        del readers["extra"]
    return readers, is_open, _families[cls].tags if cls in _families else frozenset()


@functools.cache
def _reader(hint: Any, is_open: bool = False) -> Reader | None:
    """Give the function that reads what an annotation describes; None where JSON is the value."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _union_reader(args, is_open)
    if dataclasses.is_dataclass(hint):
        return lambda data: _read_record(hint, data)
    kind = origin or hint
    if kind in (tuple, list, set, frozenset) or getattr(kind, "__name__", "") == "Sequence":
        item = _reader(args[0], is_open) if args else None
        return lambda value: _read_items(value, item, tuple if kind not in (list, set, frozenset) else kind)
    if hint is bytes:
        return _read_bytes
    if isinstance(hint, type) and issubclass(hint, Enum):
        values = [member.value for member in hint]
        return lambda value: value if isinstance(value, hint) else hint(_read_member(value, values))
    if is_open or hint in (Any, object):
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
    if len(options) > 1 and options[0] in _families:
        return _families[options[0]].read
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
    return make(value if read is None else (_read_at("[{}]", at, read, item) for at, item in enumerate(value)))


def _read_mapping(value: Json, read: Reader | None) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise Mismatch(f" must be an object, not {kind_of(value)}")
    return {key: item if read is None else _read_at("[{!r}]", key, read, item) for key, item in value.items()}


def _read_at(place: str, key: object, read: Reader, value: Json) -> Any:
    try:
        return read(value)
    except Mismatch as wrong:
        raise wrong.below(place.format(key)) from None


def _read_bytes(value: Json) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError):
        raise Mismatch(" must be base64 text") from None


def _read_member(value: Json, allowed: Sequence[Any]) -> Any:
    if not any(value == one and type(value) is type(one) for one in allowed):
        raise Mismatch(f" must be one of {', '.join(map(repr, allowed))}, not {value!r}")
    return value


def _read_scalar(value: Json, hint: type) -> Any:
    if hint is float and type(value) is int and abs(value) < 1e15:
        return float(value)
    if hint is float and value != value:  # json.loads takes NaN
        raise Mismatch(" must be a number, not NaN")
    if type(value) is not hint:
        raise Mismatch(f" must be {_KINDS[hint]}, not {kind_of(value)}")
    return value
