"""The decorator `@tool`, which makes a tool from a typed function."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import json
import re
import sys
import typing
from collections.abc import Awaitable, Callable, Mapping
from typing import (
    Any,
    Concatenate,
    Generic,
    NamedTuple,
    NoReturn,
    ParamSpec,
    TypeAlias,
    TypeVar,
    cast,
    overload,
)

from glue.checks import check_flag, check_text, show
from glue.context import Context, ToolResult
from glue.function.schema import REQUIRED, CannotDescribe, Describer, Shape
from glue.function.validation import ValidationError
from glue.messages import Json, ToolCall, ToolSpec
from glue.signature import hinted

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R", covariant=True)
T = TypeVar("T")

MAX_OUTPUT = 50_000  # characters
KINDS = ("read", "edit", "delete", "move", "search", "execute", "think", "fetch", "other")

# The name of a parameter, or a function of the arguments that returns a text or a PermissionTarget.
Target: TypeAlias = str | Callable[[Mapping[str, Any]], Any]


class Tool(Generic[P, R]):
    """A function that a model can call, with the name, description and schema that the model sees.

    `@tool` creates a Tool. Calling the Tool calls the function:

    >>> weather("Toronto")
    'Toronto: 21 degrees, dry'
    >>> weather.spec.description
    'Return the weather in a city.'
    """

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
        external: bool = False,
        read_only: bool | None = None,
        title: str = "",
        kind: str = "",
        max_output: int | None = MAX_OUTPUT,
        signature: Signature | None = None,
        frame: Any = None,
    ) -> None:
        if isinstance(function, staticmethod):
            function = function.__func__
        elif isinstance(function, Tool):
            function = function.function
        if not callable(function):
            raise TypeError(f"a tool is made from a function, not from {show(function)}")
        if not name and name_of(function) == "<lambda>":
            raise TypeError(
                "a tool made from a lambda needs a name: glue.tool(name='...')(lambda ...)"
            )
        check_text("name", name)
        check_text("description", description)
        check_text("title", title)
        if kind and kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")
        if read_only is not None:
            check_flag("read_only", read_only)
        flags = {"alone": alone, "terminates": terminates, "advisory": advisory}
        for flag, value in (*flags.items(), ("idempotent", idempotent), ("external", external)):
            check_flag(flag, value)
        if not isinstance(needs_permission, (bool, str)):
            raise TypeError(
                "needs_permission must be True, False or the name of an action, "
                f"not {show(needs_permission)}"
            )
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
            description=description or _described(function)[0],
            parameters=self.signature.shape.schema,
        )
        self.timeout = timeout
        self.alone = alone
        self.needs_permission = bool(needs_permission)
        self.action = needs_permission if isinstance(needs_permission, str) else self.spec.name
        self.target = target
        self.terminates = terminates
        self.advisory = advisory
        self.idempotent = idempotent
        self.external = external  # the caller of `resume` supplies the result
        self.max_output = max_output
        self.read_only = read_only  # None if it is not declared
        self.title = title
        self.kind = kind
        # Set by tools that work in a folder, for programs that show the paths of calls.
        self.root = ""
        self.in_editor = False  # whether the tool reads and writes the buffers of an editor
        # Runs a call without permission, confined; returns None if the call needs permission.
        self.trial: Callable[[Mapping[str, Any]], Awaitable[Any]] | None = None
        # These are set by a tool that runs commands, for programs that show the confinement or run
        # the commands themselves.
        self.confinement = ""  # how commands are confined, in a few words
        self.confine: Callable[[str], list[str]] | None = None  # returns a confined command
        if timeout is not None and not (_is_number(timeout, int, float) and timeout > 0):
            raise ValueError(f"tool {self.name}: timeout must be above 0 seconds, not {timeout!r}")
        if max_output is not None and not (_is_number(max_output, int) and max_output >= 100):
            raise ValueError(
                f"tool {self.name}: max_output must be at least 100 characters, not {max_output!r}"
            )
        if not isinstance(target, str) and not callable(target):
            raise TypeError(
                f"tool {self.name}: target must be a function or the name of a parameter, "
                f"not {show(target)}"
            )
        known = self.spec.parameters.get("properties", {})
        if isinstance(target, str) and target and target not in known:
            raise ValueError(
                f"tool {self.name}: target {target!r} is not a parameter; "
                f"its parameters are: {', '.join(known) or 'none'}"
            )
        functools.update_wrapper(self, function, updated=())

    @classmethod
    def from_schema(
        cls,
        name: str,
        description: str,
        parameters: Mapping[str, Json],
        function: Callable[..., T],
        *,
        takes_context: bool | None = None,
        **options: Any,
    ) -> Tool[..., T]:
        """Return a tool with a given JSON schema, whose function gets all arguments as one dict.

            def forward(arguments: dict[str, Any]) -> str:
                return client.call("search", arguments)

            search = Tool.from_schema("search", "Search the archive.", schema, forward)

        If the first parameter of the function is a Context, the function gets the context, as with
        `@tool`. `takes_context` states whether it is, to save time if there are thousands of tools.
        The model sees the schema unchanged, but patterns that may be slow are not checked.
        """
        if takes_context is None:
            frame = inspect.currentframe()
            takes_context = _takes_context(function, frame and frame.f_back)
        from glue.function.patterns import without_slow_patterns  # start-up: few tools need it

        shape = Shape(without_slow_patterns(parameters))
        signature = Signature(shape=shape, takes_context=takes_context, whole=True)
        made = Tool(function, name=name, description=description, signature=signature, **options)
        made.spec = dataclasses.replace(made.spec, parameters=parameters)
        return made

    @property
    def name(self) -> str:
        return self.spec.name

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle a tool by its name, like a function, if its module contains it by this name.

        Otherwise, pickle its attributes.
        """
        module, name = getattr(self, "__module__", ""), getattr(self, "__qualname__", "")
        found: Any = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        return name if found is self else super().__reduce_ex__(protocol)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    async def invoke(self, call: ToolCall, context: Context[Any]) -> ToolResult:
        """Run the tool call of a model. Return its result, or an error result if it fails.

        The model sees the error. Only a cancellation, and CallDeferred for a call that has to wait,
        are raised.
        """
        # Loads anyio, which is not needed to make a tool.
        from glue.function.call import invoke, run_function

        run = run_function
        if context.host.hooks or self.needs_permission:
            from glue.function.guard import run_guarded  # start-up: most tools need no permission

            run = run_guarded
        return await invoke(self, call, context, run)

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
        bound.signature = self.signature._replace(takes_self=False)
        return bound

    def __repr__(self) -> str:
        return f"Tool({self.spec.name!r})"


def _is_number(value: object, *types: type) -> bool:
    """Return whether `value` has one of the `types`; True and False are not numbers."""
    return isinstance(value, types) and not isinstance(value, bool)


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
    external: bool = False,
    read_only: bool | None = None,
    title: str = "",
    kind: str = "",
    max_output: int | None = MAX_OUTPUT,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
@hinted
def tool(
    function: Any = None,
    /,
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
    external: bool = False,
    read_only: bool | None = None,
    title: str = "",
    kind: str = "",
    max_output: int | None = MAX_OUTPUT,
) -> Any:
    """Return a tool made from a typed function: `@tool`, or `@tool(timeout=5)` with options.

        @glue.tool
        def weather(city: Annotated[str, "A city, such as Toronto"]) -> str:
            \"\"\"Return the weather in a city.\"\"\"
            return f"{city}: 21 degrees, dry"

    The model sees the name, the first paragraph of the docstring and the annotations. Calling the
    tool calls the function.

    Args:
        name: The name that the model sees; by default the name of the function.
        description: The text that the model sees; by default the docstring's first paragraph.
        timeout: Seconds after which a call is an error.
        alone: If True, the tool never runs at the same time as other calls of the same reply.
        needs_permission: True asks for permission before each call. A text does so too, and is the
            name of the action for which decisions are remembered.
        target: The parameter that names the object of the call, for permission rules; or a
            function of the arguments that returns the object, or None if the call needs no
            permission.
        terminates: If True, a successful call asks to end the run. The run ends if every call of
            the reply asks to end it.
        advisory: If True, calls of this tool are ignored when the loop checks whether every call
            asks to end the run.
        idempotent: If True, a resumed run repeats a call that was interrupted.
        external: If True, glue never runs the function. A call pauses the run until the caller of
            `resume` supplies the result.
        read_only: True if the tool changes nothing, False if it changes something. Programs that
            use the tool over MCP get this value; None is not sent.
        title: A short name for people, which editors show.
        kind: The kind of the tool, for its icon in editors: read, edit, delete, move, search,
            execute, think, fetch or other.
        max_output: The most characters of a result that the model gets; None for no limit.
    """
    options = {name: value for name, value in locals().items() if name != "function"}
    if function is not None:
        return Tool(function, frame=inspect.currentframe(), **options)

    def decorate(function: Callable[..., Any]) -> Tool[..., Any]:
        return Tool(function, frame=inspect.currentframe(), **options)

    return decorate


class Signature(NamedTuple):
    """The parameters of a tool's function. They are read once, when the tool is created."""

    shape: Shape
    takes_context: bool = False
    takes_self: bool = False
    positional: tuple[tuple[str, Any], ...] = ()  # names and defaults of positional-only parameters
    whole: bool = False  # whether the function takes all arguments as one dict

    def parse(self, text: str) -> dict[str, Any]:
        """Return the arguments in the JSON `text` as Python objects, or raise ValidationError."""
        try:
            arguments: dict[str, Any] = self.shape.read(decode(text))
        except RecursionError:
            raise ValidationError([((), "the arguments are nested too deeply")]) from None
        return arguments

    def split(self, arguments: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Split the arguments into a list to pass by position and a dict to pass by name."""
        if self.whole:
            return [arguments], {}
        if not self.positional:
            return [], arguments
        given = [index for index, (name, _) in enumerate(self.positional) if name in arguments]
        last = max(given, default=-1)
        named = dict(arguments)
        return [named.pop(name, default) for name, default in self.positional[: last + 1]], named


def decode(text: str) -> dict[str, Json]:
    """Parse the JSON object that a model sent as arguments. An empty text means `{}`.

    Raise ValidationError if the text is not a JSON object.
    """
    try:
        value, end = _scan(text, 0)
    except (ValueError, StopIteration, RecursionError):
        end = -1
    if end != len(text):
        value = _decode_slowly(text)
    if isinstance(value, dict):
        return value
    # Some models encode their arguments twice.
    if isinstance(value, str) and value.lstrip()[:1] == "{":
        with contextlib.suppress(ValueError, RecursionError):
            return cast(dict[str, Json], _decoder.decode(value))
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
        place = f"line {error.lineno} column {error.colno} near {near!r}"
        why = f"the arguments are not valid JSON: {error.msg} at {place}"
    except ValueError as error:
        why = f"the arguments are not valid JSON: {error}"
    raise ValidationError([((), f"{why}; expected one JSON object with the arguments")])


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


_decoder = json.JSONDecoder(parse_constant=_no_constant)
# This takes half the time of `_decoder.decode`, which first looks for blanks around the value.
_scan: Callable[[str, int], tuple[Json, int]] = _decoder.scan_once  # type: ignore[attr-defined]
_GIVEN = {
    list: "a list",
    str: "a string",
    bool: "true or false",
    int: "a number",
    float: "a number",
}


def read_signature(function: Callable[..., Any], frame: Any = None) -> Signature:
    """Return the signature of a function, with the schema of its parameters.

    `frame` is the frame of the caller, whose local names annotations may use. Raise CannotDescribe
    with the name of the parameter if a schema cannot describe its annotation.
    """
    parameters = list(inspect.signature(function).parameters.values())
    takes_self = bool(parameters) and _is_method(function, parameters[0].name)
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
            why = f"a model cannot pass *{name}; use a parameter with a list type instead"
            raise CannotDescribe(f"{label.format(name)}: {why}")
        if parameter.kind is parameter.VAR_KEYWORD:
            extra, build = describer.members(label, [(name, hint, REQUIRED)])
            if build is not None:
                raise CannotDescribe(
                    f"{label.format(name)}: **{name} must have a plain JSON type, such as str"
                )
            other = extra["properties"][name] or True
        else:
            members.append((name, hint, parameter.default))
    schema, build = describer.members(label, members, _described(function)[1])
    return Signature(
        shape=describer.close({**schema, "additionalProperties": other}, build),
        takes_context=takes_context,
        takes_self=takes_self,
        positional=tuple(
            (each.name, each.default) for each in parameters if each.kind is each.POSITIONAL_ONLY
        ),
    )


def _takes_context(function: Callable[..., Any], frame: Any) -> bool:
    """Return whether the first parameter of a function is a Context."""
    try:
        first = next(iter(inspect.signature(function).parameters.values()), None)
    except ValueError:  # a builtin function without a signature
        return False
    describer = Describer(_namespace(function, frame))
    return first is not None and _is_context(describer, first.annotation)


def _is_method(function: Callable[..., Any], first: str) -> bool:
    """Return whether a function is from a class body and its first parameter is `self` or `cls`."""
    outer = function.__qualname__.rpartition(".")[0] if inspect.isfunction(function) else ""
    return bool(outer) and not outer.endswith("<locals>") and first in ("self", "cls")


def _hint(describer: Describer, parameter: inspect.Parameter) -> Any:
    """Return the annotation of a parameter as a type, or Any if it has no annotation."""
    raw = parameter.annotation
    if isinstance(raw, str) and _is_context(describer, raw):
        return Context  # in Context[T], T may be a name that only type checkers know
    try:
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
    """Return the names that a function's annotations can refer to, with their values.

    These are the names of its module, of the functions around it, and of its closure.
    """
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
    for found in reversed(around):  # the innermost function last, so that its names win
        names |= found
    code = getattr(inner, "__code__", None)
    for name, cell in zip(
        getattr(code, "co_freevars", ()), getattr(inner, "__closure__", None) or (), strict=False
    ):
        with contextlib.suppress(ValueError):  # the cell of a function that refers to itself
            names[name] = cell.cell_contents
    return names


def name_of(function: Any) -> str:
    """Return the name of a function, or the class name of a callable object in snake_case."""
    inner = _inner(function)
    name = getattr(inner, "__name__", None)
    if name is None:
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(inner).__name__).lower()
    return str(name)


def _described(function: Any) -> tuple[str, dict[str, str]]:
    """Return the first paragraph of a function's docstring, and the texts about parameters."""
    doc = doc_of(function)
    if "\n" not in doc and ":" not in doc:
        return " ".join(doc.split()), {}
    # Start-up: six regular expressions, which a docstring of one line does without.
    from glue.function.docstrings import arguments_section, summary

    return summary(doc), arguments_section(doc)


def doc_of(function: Any) -> str:
    """Return the docstring of a function, or "" if the function has none.

    For an object with a method `__call__`, return the docstring of the method or, if the method has
    none, of the object's class.
    """
    inner = _inner(function)
    if not inspect.isroutine(inner) and not isinstance(inner, type):
        inner = type(inner).__call__ if type(inner).__call__.__doc__ else type(inner)
    return inspect.getdoc(inner) or ""


def _inner(function: Any) -> Any:
    while hasattr(function, "func") and hasattr(function, "keywords"):  # functools.partial
        function = function.func
    return function
