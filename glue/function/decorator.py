"""`@tool`: a typed function that a model can call."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Concatenate, Generic, NoReturn, ParamSpec, TypeAlias, TypeVar, overload

from glue.context import Context, ToolResult
from glue.function.arguments import decode
from glue.function.objects import build_members, default_of, object_schema
from glue.function.schema import Build, CannotDescribe, Describer, Shape
from glue.function.validation import ValidationError, without_slow_patterns
from glue.messages import Json, ToolCall, ToolSpec


def name_of(function: Any) -> str:
    """The name a model sees: the function's, or that of a callable object's class."""
    inner = inner_of(function)
    name = getattr(inner, "__name__", None)
    if name is None:
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(inner).__name__).lower()
    return str(name)


def description_of(function: Any) -> str:
    """The first paragraph of the docstring, on one line."""
    return " ".join(doc_of(function).split("\n\n", 1)[0].split())


def doc_of(function: Any) -> str:
    """The docstring; a callable object's is that of its `__call__`, or else its class's."""
    inner = inner_of(function)
    if not inspect.isroutine(inner) and not isinstance(inner, type):
        inner = type(inner).__call__ if type(inner).__call__.__doc__ else type(inner)
    return inspect.getdoc(inner) or ""


def arguments_section(doc: str) -> dict[str, str]:
    """The texts of a Google-style `Args:` section."""
    lines = iter(doc.splitlines())
    for line in lines:
        if line.strip() in ("Args:", "Arguments:", "Parameters:"):
            return dict(_entries(lines, len(line) - len(line.lstrip())))
    return {}


_ENTRY = re.compile(r"\*{0,2}(\w+)(?:\s*\([^)]*\))?:\s*(.*)")


def _entries(lines: Iterator[str], outer: int) -> Iterator[tuple[str, str]]:
    name, indent = "", None
    words: list[str] = []
    for line in lines:
        depth = len(line) - len(line.lstrip())
        if not line.strip():
            continue
        if depth <= outer:
            break
        indent = depth if indent is None else indent
        entry = _ENTRY.match(line.strip()) if depth <= indent else None
        if entry:
            if name:
                yield name, " ".join(words)
            name, words = entry[1], [entry[2]] if entry[2] else []
        else:
            words.append(line.strip())
    if name:
        yield name, " ".join(words)


def inner_of(function: Any) -> Any:
    while hasattr(function, "func") and hasattr(function, "keywords"):  # functools.partial
        function = function.func
    return function


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
        """Turn a call's raw text into arguments; raises ValidationError."""
        value = decode(text)
        shape = self.shape
        try:
            if shape.build is not None or shape.fits is None or not shape.fits(value):
                value = shape.read(value)
        except RecursionError:
            raise ValidationError([((), "the arguments are nested too deeply")]) from None
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


P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R", covariant=True)
T = TypeVar("T")

MAX_OUTPUT = 50_000  # characters

Target: TypeAlias = str | Callable[[Mapping[str, Any]], Any]  # a text, or a glue.PermissionTarget


class Tool(Generic[P, R]):
    """A function with a name, a description and a schema. Calling it calls the function."""

    __name__: str

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str = "",
        description: str = "",
        timeout: float | None = None,
        alone: bool = False,
        needs_permission: bool | str = False,
        target: Target = "",
        terminates: bool = False,
        advisory: bool = False,
        idempotent: bool = False,
        max_output: int | None = MAX_OUTPUT,
        signature: Signature | None = None,
        frame: Any = None,
    ) -> None:
        if isinstance(function, staticmethod):
            function = function.__func__
        elif isinstance(function, Tool):
            function = function.function
        if not callable(function):
            raise TypeError(f"a tool is made from a function, not from {function!r}")
        self.function: Callable[P, R] = function
        self.is_async = _is_async(function)
        self.signature = read_signature(function, frame) if signature is None else signature
        self.spec = ToolSpec(
            name=name or name_of(function),
            description=description or description_of(function),
            parameters=self.signature.shape.schema,
        )
        self.timeout = timeout
        self.alone = alone
        self.needs_permission = bool(needs_permission)
        self.action = needs_permission if isinstance(needs_permission, str) else self.spec.name
        self.target = target
        self.terminates = terminates
        self.advisory = advisory
        self.idempotent = idempotent  # may be run again where a durable run lost its machine in the middle
        self.max_output = max_output
        self.root = ""  # the folder that its paths are below, for whoever shows them; set by tools over a folder
        self.in_editor = False  # whether its paths are those of an editor's buffers
        self._check()
        functools.update_wrapper(self, function, updated=())

    @classmethod
    def from_schema(
        cls,
        name: str,
        description: str,
        parameters: Mapping[str, Json],
        function: Callable[..., T],
        **options: Any,
    ) -> Tool[..., T]:
        """Make a tool with a ready JSON schema; the function gets all arguments as one dict.

        A first parameter annotated as a Context is handed one, as with `@tool`. The model is told of every pattern in
        the schema; those that may take for ever are not checked.
        """
        shape = Shape(without_slow_patterns(parameters))
        signature = Signature(shape, takes_context=context_first(function, sys._getframe(1)))
        signature.whole = True
        made = Tool(function, name=name, description=description, signature=signature, **options)
        made.spec = dataclasses.replace(made.spec, parameters=parameters)
        return made

    @property
    def name(self) -> str:
        return self.spec.name

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle by name where the tool stands under that name, as a function does."""
        module, name = getattr(self, "__module__", ""), getattr(self, "__qualname__", "")
        found: Any = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        return name if found is self else super().__reduce_ex__(protocol)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    async def invoke(self, call: ToolCall, context: Context[Any]) -> ToolResult:
        """Run one call of a model; whatever goes wrong is an error result, only cancellation is raised."""
        from glue.function.call import invoke

        return await invoke(self, call, context)

    @overload
    def __get__(self, instance: None, owner: type) -> Tool[P, R]: ...
    @overload
    def __get__(self: Tool[Concatenate[T, Q], R], instance: T, owner: type) -> Tool[Q, R]: ...
    def __get__(self, instance: Any, owner: type) -> Tool[..., R]:
        if instance is None or not self.signature.takes_self:
            return self
        return self._bound(instance)

    def _bound(self, instance: object) -> Tool[..., R]:
        copy: Tool[..., R] = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        function: Callable[..., R] = self.function
        copy.function = functools.partial(function, instance)
        copy.signature = self.signature.bound()
        return copy

    def _check(self) -> None:
        name = self.spec.name
        if self.timeout is not None and not self.timeout > 0:
            raise ValueError(f"tool {name}: timeout must be above 0 seconds, not {self.timeout!r}")
        if self.max_output is not None and self.max_output < 100:
            raise ValueError(f"tool {name}: max_output must be at least 100 characters, not {self.max_output!r}")
        known = self.spec.parameters.get("properties", {})
        if isinstance(self.target, str) and self.target and self.target not in known:
            raise ValueError(f"tool {name}: target {self.target!r} is no parameter; there are: {', '.join(known)}")

    def __repr__(self) -> str:
        return f"Tool({self.spec.name!r})"


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str = "",
    description: str = "",
    timeout: float | None = None,
    alone: bool = False,
    needs_permission: bool | str = False,
    target: Target = "",
    terminates: bool = False,
    advisory: bool = False,
    idempotent: bool = False,
    max_output: int | None = MAX_OUTPUT,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(function: Any = None, /, **options: Any) -> Any:
    """Make a tool of a typed function: `@tool`, or `@tool(timeout=5)` with options.

    The name, the first paragraph of the docstring and the annotations are what the model sees.
    """
    if function is not None:
        return Tool(function, frame=sys._getframe(1))

    def decorate(function: Callable[..., Any]) -> Tool[..., Any]:
        return Tool(function, frame=sys._getframe(1), **options)

    return decorate


def _is_async(function: Any) -> bool:
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise TypeError(f"tool {name_of(function)}: a tool returns its result, it cannot yield")
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
