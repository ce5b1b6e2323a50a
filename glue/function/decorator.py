"""`@tool`: a typed function that a model can call."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import json
import re
import sys
import typing
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, Generic, NoReturn, ParamSpec, TypeAlias, TypeVar, cast, overload

from glue.context import Context, ToolResult
from glue.dataclass import dataclass
from glue.function.schema import REQUIRED, CannotDescribe, Describer, Shape
from glue.function.validation import ValidationError, without_slow_patterns
from glue.messages import Json, ToolCall, ToolSpec

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
        if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
            raise TypeError(f"tool {name_of(function)}: a tool returns its result, it cannot yield")
        self.is_async = any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))
        try:
            self.signature = read_signature(function, frame) if signature is None else signature
        except (CannotDescribe, ValueError) as error:
            raise TypeError(f"tool {name_of(function)}: {error}") from None
        self.spec = ToolSpec(
            name=name or name_of(function),
            description=description or " ".join(doc_of(function).split("\n\n", 1)[0].split()),
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
        if timeout is not None and not (isinstance(timeout, (int, float)) and timeout > 0):
            raise ValueError(f"tool {self.name}: timeout must be above 0 seconds, not {timeout!r}")
        if max_output is not None and max_output < 100:
            raise ValueError(f"tool {self.name}: max_output must be at least 100 characters, not {max_output!r}")
        known = self.spec.parameters.get("properties", {})
        if isinstance(target, str) and target and target not in known:
            raise ValueError(f"tool {self.name}: target {target!r} is no parameter; there are: {', '.join(known)}")
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
        try:
            first = next(iter(inspect.signature(function).parameters.values()), None)
        except ValueError:  # a builtin that does not say
            first = None
        describer = Describer(_namespace(function, sys._getframe(1)))
        takes_context = first is not None and _is_context(describer, first.annotation)
        shape = Shape(without_slow_patterns(parameters))
        signature = Signature(shape=shape, takes_context=takes_context, whole=True)
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
        bound: Tool[..., R] = object.__new__(type(self))
        bound.__dict__.update(self.__dict__)
        bound.function = functools.partial(self.function, instance)
        bound.signature = dataclasses.replace(self.signature, takes_self=False)
        return bound

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """All that is known of a tool's parameters; read once, at decoration."""

    shape: Shape
    takes_context: bool = False
    takes_self: bool = False
    positional: tuple[tuple[str, Any], ...] = ()  # names and defaults of positional-only parameters
    whole: bool = False  # the function takes all arguments as one dict

    def parse(self, text: str) -> dict[str, Any]:
        """Turn a call's raw text into arguments; raises ValidationError."""
        try:
            arguments: dict[str, Any] = self.shape.read(decode(text))
        except RecursionError:
            raise ValidationError([((), "the arguments are nested too deeply")]) from None
        return arguments

    def split(self, arguments: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Part the arguments into positional and named ones."""
        if self.whole:
            return [arguments], {}
        if not self.positional:
            return [], arguments
        last = max((n for n, (name, _) in enumerate(self.positional, 1) if name in arguments), default=0)
        named = dict(arguments)
        return [named.pop(name, default) for name, default in self.positional[:last]], named


def decode(text: str) -> dict[str, Json]:
    """Read one object; nothing at all means `{}`. Raises ValidationError."""
    try:
        value, end = _scan(text, 0)
    except (ValueError, StopIteration, RecursionError):
        end = -1
    if end != len(text):
        value = _decode_slowly(text)
    if isinstance(value, dict):
        return value
    if isinstance(value, str) and value.lstrip()[:1] == "{":  # some models encode their arguments twice
        with contextlib.suppress(ValueError, RecursionError):
            return cast(dict[str, Json], _decoder.decode(value))  # such a text is an object or no JSON
    given = _GIVEN.get(type(value), "null")
    raise ValidationError([((), f"the arguments must be one JSON object, got {given}")])


def _decode_slowly(text: str) -> Json:
    if not text or text.isspace():
        return {}
    try:
        return _decoder.decode(text)
    except RecursionError:
        why = "the arguments are nested too deeply"
    except json.JSONDecodeError as error:
        near = text[max(0, error.pos - 20) : error.pos + 20]
        why = f"the arguments are not valid JSON: {error.msg} at line {error.lineno} column {error.colno} near {near!r}"
    except ValueError as error:
        why = f"the arguments are not valid JSON: {error}"
    raise ValidationError([((), f"{why}; expected one JSON object with the arguments")])


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


_decoder = json.JSONDecoder(parse_constant=_no_constant)
_scan: Callable[[str, int], tuple[Json, int]] = _decoder.scan_once  # type: ignore[attr-defined]  # decode() looks for blanks around the value first, which takes twice as long
_GIVEN = {list: "a list", str: "a string", bool: "true or false", int: "a number", float: "a number"}


def read_signature(function: Callable[..., Any], frame: Any = None) -> Signature:
    """Describe a function's parameters; raises CannotDescribe that names the parameter."""
    parameters = list(inspect.signature(function).parameters.values())
    outer = function.__qualname__.rpartition(".")[0] if inspect.isfunction(function) and parameters else ""
    # In a class body, where `self` is not bound yet.
    takes_self = bool(outer) and not outer.endswith("<locals>") and parameters[0].name in ("self", "cls")
    parameters = parameters[takes_self:]
    describer = Describer(_namespace(function, frame))
    hints = {parameter.name: _hint(describer, parameter) for parameter in parameters}
    takes_context = bool(parameters) and _is_context(describer, hints[parameters[0].name])
    label, other = "parameter {!r}", False
    members: list[tuple[str, Any, Any]] = []
    for parameter in parameters[takes_context:]:
        name, hint = parameter.name, hints[parameter.name]
        if _is_context(describer, hint):
            raise CannotDescribe(f"{label.format(name)}: a Context must be the first parameter")
        if parameter.kind is parameter.VAR_POSITIONAL:
            why = "a model names its arguments; give the parameter a name and a list type"
            raise CannotDescribe(f"{label.format(name)}: {why}")
        if parameter.kind is parameter.VAR_KEYWORD:
            extra, build = describer.members(label, [(name, hint, REQUIRED)])
            if build is not None:
                raise CannotDescribe(f"{label.format(name)}: extra arguments must be of plain JSON types")
            other = extra["properties"][name] or True
        else:
            members.append((name, hint, parameter.default))
    schema, build = describer.members(label, members, arguments_section(doc_of(function)))
    return Signature(
        shape=describer.close({**schema, "additionalProperties": other}, build),
        takes_context=takes_context,
        takes_self=takes_self,
        positional=tuple((each.name, each.default) for each in parameters if each.kind is each.POSITIONAL_ONLY),
    )


def _hint(describer: Describer, parameter: inspect.Parameter) -> Any:
    raw = parameter.annotation
    if isinstance(raw, str) and _is_context(describer, raw):
        return Context  # its Deps may be a name for type checkers only
    try:  # one by one: an annotation that cannot be resolved is named, and the return type never matters
        return describer.resolve({"hint": Any if raw is parameter.empty else raw})["hint"]
    except CannotDescribe as error:
        raise CannotDescribe(f"parameter {parameter.name!r}: {error}") from None


def _is_context(describer: Describer, hint: Any) -> bool:
    if isinstance(hint, str):
        head = hint.partition("[")[0].strip()
        if head.rpartition(".")[2] != "Context":
            return False
        try:
            hint = describer.resolve({"hint": head})["hint"]
        except CannotDescribe:
            return False
    return hint is Context or typing.get_origin(hint) is Context


def _namespace(function: Any, frame: Any) -> dict[str, Any]:
    """The names that a function's annotations may use: its module's, then those around it."""
    inner = inspect.unwrap(_inner(function))
    if not inspect.isroutine(inner) and not isinstance(inner, type):
        inner = type(inner).__call__
    inner = getattr(inner, "__func__", inner)
    known = getattr(inner, "__globals__", None)
    if known is None:
        known = vars(sys.modules.get(getattr(inner, "__module__", ""), typing))
    around: list[Mapping[str, Any]] = []
    while frame is not None:
        if frame.f_globals is known and frame.f_locals is not known:
            around.append(frame.f_locals)
        frame = frame.f_back
    names: dict[str, Any] = dict(known)
    for found in reversed(around):  # nearest last, so that it wins
        names |= found
    code = getattr(inner, "__code__", None)
    for name, cell in zip(getattr(code, "co_freevars", ()), getattr(inner, "__closure__", None) or (), strict=False):
        with contextlib.suppress(ValueError):  # not assigned yet: a function that mentions itself
            names[name] = cell.cell_contents
    return names


def name_of(function: Any) -> str:
    """The name a model sees: the function's, or that of a callable object's class."""
    inner = _inner(function)
    name = getattr(inner, "__name__", None)
    if name is None:
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(inner).__name__).lower()
    return str(name)


def doc_of(function: Any) -> str:
    """The docstring; a callable object's is that of its `__call__`, or else its class's."""
    inner = _inner(function)
    if not inspect.isroutine(inner) and not isinstance(inner, type):
        inner = type(inner).__call__ if type(inner).__call__.__doc__ else type(inner)
    return inspect.getdoc(inner) or ""


def _inner(function: Any) -> Any:
    while hasattr(function, "func") and hasattr(function, "keywords"):  # functools.partial
        function = function.func
    return function


_SECTION = re.compile(r"^([ \t]*)(?:Args|Arguments|Parameters):[ \t]*\n((?:[ \t]*\n|\1[ \t]+.*\n?)*)", re.MULTILINE)
_ENTRY = re.compile(r"\*{0,2}(\w+)(?:\s*\([^)]*\))?:\s*(.*)")


def arguments_section(doc: str) -> dict[str, str]:
    """The texts of a Google-style `Args:` section."""
    section = _SECTION.search(doc)
    texts: dict[str, str] = {}
    name = ""
    for line in inspect.cleandoc(f"\n{section[2]}").splitlines() if section else ():
        if entry := _ENTRY.match(line):
            name, texts[entry[1]] = entry[1], entry[2]
        elif name:
            texts[name] = f"{texts[name]} {line.strip()}".strip()
    return texts
