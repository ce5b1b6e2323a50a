"""What a function's signature and docstring say to a model, and how a call's text becomes its arguments."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable
from typing import Any, NoReturn

from glue.context import Context
from glue.decode import decode
from glue.docstring import arguments_section, doc_of, inner_of, name_of
from glue.faults import Faults
from glue.field import CannotDescribe
from glue.records import build_members, default_of, object_schema
from glue.scalars import Build
from glue.schema import Describer
from glue.shape import Shape
from glue.types import Json


class Signature:
    """All that is known of a tool's parameters; read once, at decoration."""

    def __init__(self, shape: Shape, *, takes_context: bool = False, takes_self: bool = False) -> None:
        self.shape = shape
        self.takes_context = takes_context
        self.takes_self = takes_self
        self.positional: tuple[tuple[str, Any], ...] = ()  # names and defaults of positional-only parameters
        self.whole = False  # the function takes all arguments as one dict

    def bound(self) -> Signature:
        """The same signature once `self` is given."""
        copy = Signature(self.shape, takes_context=self.takes_context)
        copy.positional = self.positional
        return copy

    def parse(self, text: str) -> dict[str, Any]:
        """Turn a call's raw text into arguments; raises Faults."""
        value = decode(text)
        shape = self.shape
        try:
            if shape.build is not None or shape.fits is None or not shape.fits(value):
                value = shape.read(value)
        except RecursionError:
            raise Faults([((), "the arguments are nested too deeply")]) from None
        return value

    def split(self, arguments: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Part the arguments into positional and named ones."""
        if self.whole:
            return [arguments], {}
        if not self.positional:
            return [], arguments
        last = max((n for n, (name, _) in enumerate(self.positional, 1) if name in arguments), default=0)
        named = dict(arguments)
        return [named.pop(name, default) for name, default in self.positional[:last]], named


def read_signature(function: Callable[..., Any], frame: Any = None) -> Signature:
    """Describe a function's parameters; raises TypeError that names the parameter."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError as error:
        raise TypeError(f"tool {name_of(function)}: {error}") from None
    takes_self = _is_method(function, parameters)
    if takes_self:
        del parameters[0]
    describer = Describer(_namespace(function, frame))
    hints = _hints(function, describer, parameters)
    takes_context = bool(parameters) and is_context(hints[parameters[0].name])
    if takes_context:
        del parameters[0]
    texts = arguments_section(doc_of(function))
    properties: dict[str, Json] = {}
    builds: dict[str, Build] = {}
    required: list[str] = []
    other: Json = False
    for parameter in parameters:
        name, hint = parameter.name, hints[parameter.name]
        if is_context(hint):
            _refuse(function, name, "a Context must be the first parameter")
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            _refuse(function, name, "a model names its arguments; give the parameter a name and a list type")
        try:
            schema, build = describer.describe(hint)
        except CannotDescribe as error:
            _refuse(function, name, str(error))
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            if build is not None:
                _refuse(function, name, "extra arguments must be of plain JSON types")
            other = schema or True
            continue
        if texts.get(name) and "description" not in schema:
            schema["description"] = texts[name]
        if parameter.default is inspect.Parameter.empty:
            required.append(name)
        else:
            schema |= default_of(parameter.default)
        properties[name] = schema
        if build is not None:
            builds[name] = build
    schema = {**object_schema(properties, required), "additionalProperties": other}
    shape = describer.close(schema, (lambda value: build_members(value, builds)) if builds else None)
    signature = Signature(shape, takes_context=takes_context, takes_self=takes_self)
    signature.positional = tuple((p.name, p.default) for p in parameters if p.kind is p.POSITIONAL_ONLY)
    return signature


def is_context(hint: Any) -> bool:
    return hint is Context or typing.get_origin(hint) is Context


def _names_context(describer: Describer, raw: str) -> bool:
    head = raw.partition("[")[0].strip()
    if head.rpartition(".")[2] != "Context":
        return False
    try:
        return is_context(describer.resolve({"first": head})["first"])
    except CannotDescribe:
        return False


def context_first(function: Any, frame: Any = None) -> bool:
    """Whether a function's first parameter is a Context."""
    try:
        first = next(iter(inspect.signature(function).parameters.values()), None)
    except ValueError:  # a builtin that does not say
        return False
    if first is None or not isinstance(first.annotation, str):
        return first is not None and is_context(first.annotation)
    return _names_context(Describer(_namespace(function, frame)), first.annotation)


def _is_method(function: Any, parameters: list[inspect.Parameter]) -> bool:
    """Whether this is a function in a class body, whose `self` is not bound yet."""
    if not inspect.isfunction(function) or not parameters:
        return False
    outer = function.__qualname__.rpartition(".")[0]
    first = parameters[0]
    return bool(outer) and not outer.endswith("<locals>") and first.name in ("self", "cls")


def _hints(function: Any, describer: Describer, parameters: list[inspect.Parameter]) -> dict[str, Any]:
    hints: dict[str, Any] = {}
    for parameter in parameters:
        raw = parameter.annotation
        if isinstance(raw, str) and _names_context(describer, raw):
            hints[parameter.name] = Context  # its Deps may be a name for type checkers only
            continue
        try:  # one by one: an annotation that cannot be resolved is named, and the return type never matters
            hints |= describer.resolve({parameter.name: Any if raw is parameter.empty else raw})
        except (CannotDescribe, TypeError, SyntaxError) as error:
            _refuse(function, parameter.name, str(error))
    return hints


def _namespace(function: Any, frame: Any) -> dict[str, Any]:
    """The names that a function's annotations may use: its module's, then those around it."""
    inner = inspect.unwrap(inner_of(function))
    if not inspect.isroutine(inner) and not isinstance(inner, type):
        inner = type(inner).__call__
    inner = getattr(inner, "__func__", inner)
    known = getattr(inner, "__globals__", None)
    if known is None:
        known = vars(sys.modules.get(getattr(inner, "__module__", ""), typing))
    names: dict[str, Any] = dict(known)
    frames = []
    while frame is not None:
        if frame.f_globals is known and frame.f_locals is not known:
            frames.append(frame.f_locals)
        frame = frame.f_back
    for found in reversed(frames):  # nearest last, so that it wins
        names |= found
    code = getattr(inner, "__code__", None)
    for name, cell in zip(getattr(code, "co_freevars", ()), getattr(inner, "__closure__", None) or (), strict=False):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # not assigned yet: a function that mentions itself
            continue
    return names


def _refuse(function: Any, name: str, why: str) -> NoReturn:
    raise TypeError(f"tool {name_of(function)}: parameter {name!r}: {why}") from None
