"""`dataclass` for the many small classes of the core, made in a tenth of the time.

The library's own compiles six functions for each class, 0.6 ms; with fifty classes that is more than
all else that `import glue` does. Here `==`, hash, repr and the refusal to be changed are shared, and
`__init__` is compiled when the first instance is made, which for most events is never.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    from dataclasses import MISSING, Field, FrozenInstanceError, fields
    from dataclasses import dataclass as _library
    from dataclasses import field as _field
    from operator import attrgetter
    from reprlib import recursive_repr

    @_library(frozen=True, slots=True, kw_only=True)
    class _Model:
        """What the library itself makes: the parts that all classes share are taken from here."""

        value: int

    _SHARED = ("__dataclass_params__", "__getstate__", "__setstate__", "__replace__")
    _KIND = _Model.__dataclass_fields__["value"]._field_type

    def dataclass(*, frozen, slots, kw_only):
        """Make a frozen, slotted, keyword-only dataclass; the library's functions work on it."""
        if not (frozen and slots and kw_only):
            raise TypeError("only frozen, slotted, keyword-only classes are made here")
        return _make

    def _make(cls):
        space = dict(cls.__dict__)
        names = tuple(space.get("__annotations__", {}))
        space.pop("__dict__", None)
        space.pop("__weakref__", None)
        space["__dataclass_fields__"] = {name: _as_field(name, cls, space.pop(name, MISSING)) for name in names}
        space["__slots__"] = names
        space["__match_args__"] = ()  # all fields are keywords
        for name, value in _METHODS.items():
            space.setdefault(name, value)
        return type(cls)(cls.__name__, cls.__bases__, space)

    def _as_field(name, cls, value):
        made = value if isinstance(value, Field) else _field(default=value)
        made.name, made.type, made._field_type = name, cls.__annotations__[name], _KIND
        made.kw_only = True
        return made

    def _first_init(self, *given, **values):
        """Compile the class's own `__init__`, put it in place, and call it."""
        cls = type(self)
        cls.__init__ = _compile_init(cls)
        cls.__init__(self, *given, **values)

    def _refuse_positional(cls, given):
        names = ", ".join(f"{field.name}=" for field in fields(cls) if field.init)
        raise TypeError(f"{cls.__name__} takes keywords ({names}), not {given[0]!r} alone")

    def _compile_init(cls):
        names, lines, arguments = {"MISSING": MISSING}, [], []
        for field in fields(cls):
            name = field.name
            names[f"set_{name}"] = cls.__dict__[name].__set__
            if field.default_factory is not MISSING:
                names[f"make_{name}"] = field.default_factory
                value = f"make_{name}()"
                if field.init:
                    arguments.append(f"{name}=MISSING")
                    value = f"{value} if {name} is MISSING else {name}"
            else:
                value = name
                names[f"default_{name}"] = field.default
                arguments.append(name if field.default is MISSING else f"{name}=default_{name}")
            lines.append(f"  set_{name}(self, {value})")
        if hasattr(cls, "__post_init__"):
            lines.append("  self.__post_init__()")
        names["refuse"] = _refuse_positional
        lines.insert(0, "  if given: refuse(type(self), given)")
        source = f"def __init__({', '.join(('self', '*given', *arguments))}):\n" + "\n".join(lines)
        exec(source, names)
        init = names["__init__"]
        init.__qualname__ = f"{cls.__qualname__}.__init__"
        return init

    def _values(record):
        """Return what counts when records are compared."""
        cls = type(record)
        getter = _getters.get(cls)
        if getter is None:
            names = [field.name for field in fields(cls) if field.compare]
            getter = _getters[cls] = attrgetter(*names) if names else lambda record: None
        return getter(record)

    _getters = {}

    def _equal(self, other):
        if type(other) is not type(self):
            return NotImplemented
        return _values(self) == _values(other)

    def _hash(self):
        return hash(_values(self))

    @recursive_repr()
    def _show(self):
        shown = (f"{field.name}={getattr(self, field.name)!r}" for field in fields(self) if field.repr)
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def _refuse(self, name, value=None):
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    _METHODS = {
        "__init__": _first_init,
        "__eq__": _equal,
        "__hash__": _hash,
        "__repr__": _show,
        "__setattr__": _refuse,
        "__delattr__": _refuse,
    }
    _METHODS.update((name, getattr(_Model, name)) for name in _SHARED if hasattr(_Model, name))
