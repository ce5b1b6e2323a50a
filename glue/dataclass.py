"""`dataclass` for the many small classes of the core, made in a tenth of the time.

The library's own compiles six functions for each class, 0.6 ms; with fifty classes that is more than all else that
`import glue` does. Here it only reads the fields and makes the slots. `==`, hash, repr and the refusal to be changed
are shared, and `__init__` is compiled when the first instance is made, which for most events is never.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    from dataclasses import MISSING, FrozenInstanceError, fields
    from dataclasses import dataclass as _library
    from operator import attrgetter
    from reprlib import recursive_repr

    def dataclass(*, frozen, slots, kw_only):
        """Make a frozen, slotted, keyword-only dataclass; the library's functions work on it."""
        if not (frozen and slots and kw_only):
            raise TypeError("only frozen, slotted, keyword-only classes are made here")
        return _make

    def _make(cls):
        for name, method in _METHODS.items():
            if name not in cls.__dict__:
                setattr(cls, name, method)
        return _library(cls, init=False, repr=False, eq=False, match_args=False, slots=True, kw_only=True)

    def _first_init(self, *given, **values):
        """Compile the class's own `__init__`, put it in place, and call it."""
        cls = type(self)
        cls.__init__ = _compile_init(cls)
        cls.__init__(self, *given, **values)

    def _compile_init(cls):
        names, arguments = {"MISSING": MISSING, "refuse": _refuse_positional}, ["self", "*given"]
        lines = ["if given: refuse(type(self), given)"]
        for field in fields(cls):
            name = value = field.name
            names |= {f"set_{name}": cls.__dict__[name].__set__, f"make_{name}": field.default_factory}
            names[f"default_{name}"] = field.default
            if field.default_factory is not MISSING:
                value = f"make_{name}() if {name} is MISSING else {name}" if field.init else f"make_{name}()"
                default = "=MISSING"
            else:
                default = "" if field.default is MISSING else f"=default_{name}"
            if field.init:
                arguments.append(name + default)
            lines.append(f"set_{name}(self, {value})")
        if hasattr(cls, "__post_init__"):
            lines.append("self.__post_init__()")
        exec(f"def __init__({', '.join(arguments)}):\n  " + "\n  ".join(lines), names)
        init = names["__init__"]
        init.__qualname__ = f"{cls.__qualname__}.__init__"
        return init

    def _refuse_positional(cls, given):
        names = ", ".join(f"{field.name}=" for field in fields(cls) if field.init)
        raise TypeError(f"{cls.__name__} takes keywords ({names}), not {given[0]!r} alone")

    _getters = {}

    def _values(record):
        """Return what counts when records are compared."""
        cls = type(record)
        if cls not in _getters:
            names = [field.name for field in fields(cls) if field.compare]
            _getters[cls] = attrgetter(*names) if names else lambda record: None
        return _getters[cls](record)

    def _equal(self, other):
        return _values(self) == _values(other) if type(other) is type(self) else NotImplemented

    def _hash(self):
        return hash(_values(self))

    @recursive_repr()
    def _show(self):
        shown = (f"{field.name}={getattr(self, field.name)!r}" for field in fields(self) if field.repr)
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def _refuse(self, name, value=None):
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def _state(self):
        return [getattr(self, field.name) for field in fields(self)]

    def _restore(self, state):
        for field, value in zip(fields(self), state, strict=True):
            object.__setattr__(self, field.name, value)

    _METHODS = {
        "__init__": _first_init,
        "__eq__": _equal,
        "__hash__": _hash,
        "__repr__": _show,
        "__setattr__": _refuse,
        "__delattr__": _refuse,
        "__getstate__": _state,
        "__setstate__": _restore,
    }
