"""Checks of arguments. An error message names the argument and the right form in one line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from types import BuiltinFunctionType, CoroutineType, FunctionType, MethodType, ModuleType
from typing import Any, TypeVar

from glue.text import one_line, suggest

T = TypeVar("T")

_WIDTH = 80  # columns of a value in a message


def show(value: object) -> str:
    """Return a description of `value` for a message: one short line without memory addresses.

    A coroutine is closed, so that Python does not warn of it.

    >>> show(["a"]), show(print), show(dict)
    ("['a']", 'the function print', 'the class dict')
    """
    if isinstance(value, (FunctionType, BuiltinFunctionType)):
        return "a lambda" if value.__name__ == "<lambda>" else f"the function {value.__name__}"
    if isinstance(value, MethodType):
        return f"the method {value.__name__}"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, ModuleType):
        return f"the module {value.__name__}"
    if isinstance(value, CoroutineType):
        value.close()
        return f"the coroutine of {value.__name__}(), which was not awaited"
    if type(value).__repr__ is object.__repr__:
        return f"a {type(value).__name__}"
    return one_line(repr(value), _WIDTH)


def check_flag(name: str, value: object) -> None:
    """Raise TypeError unless `value` is True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {show(value)}")


def check_text(name: str, value: object) -> None:
    """Raise TypeError unless `value` is a string."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a text, not {show(value)}")


def check_list(name: str, value: object, example: str = "[...]") -> None:
    """Raise TypeError unless `value` is an iterable other than a string, a mapping or a class."""
    if isinstance(value, (str, Mapping, type)) or not isinstance(value, Iterable):
        raise TypeError(f"{name} must be a list, such as {name}={example}, not {show(value)}")


def check_path(name: str, value: object, example: str) -> None:
    """Raise TypeError unless `value` is a string or an `os.PathLike`."""
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{name} must be a path, such as {example!r}, not {show(value)}")


def check_number(name: str, value: object, *, least: float = 0, whole: bool = False) -> None:
    """Raise TypeError if `value` is not a number, ValueError if it is smaller than `least`.

    If `whole`, the number must be an integer.
    """
    kind = "a whole number" if whole else "a number"
    is_number = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    if not is_number:
        raise TypeError(f"{name} must be {kind} of {least} or more, not {show(value)}")
    if not value >= least:  # type: ignore[operator]
        raise ValueError(f"{name} must be {kind} of {least} or more, not {show(value)}")


def with_form(form: str) -> Callable[[type[T]], type[T]]:
    """Return a class decorator: wrong arguments of the class raise a TypeError that shows `form`.

    The class must be a keyword-only dataclass, and `form` an example of a correct call. A
    positional or unknown argument raises a TypeError that shows `form` or a similar field name.
    `help()` and `inspect.signature()` still show the fields.
    """

    def decorate(cls: type[T]) -> type[T]:
        fields: Mapping[str, object] = cls.__dataclass_fields__  # type: ignore[attr-defined]
        init: Callable[..., None] = cls.__init__

        @wraps(init)
        def explained(self: Any, *args: Any, **given: Any) -> None:
            if args:
                raise TypeError(f"{cls.__name__}() takes only keyword arguments; write {form}")
            for name in given:
                if name not in fields:
                    hint = suggest(name, fields)
                    hint += "" if hint.endswith("?") else f", as in {form}"
                    raise TypeError(f"{cls.__name__}() does not take {name!r}; {hint}")
            init(self, **given)

        cls.__init__ = explained  # type: ignore[method-assign]
        return cls

    return decorate
