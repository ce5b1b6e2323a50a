"""`@tool`: a typed function that a model can call."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, Generic, ParamSpec, TypeAlias, TypeVar, overload

from glue.context import Context, ToolResult
from glue.docstring import description_of, name_of
from glue.shape import Shape
from glue.signature import Signature, context_first, read_signature
from glue.types import Json, ToolCall, ToolSpec

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R", covariant=True)
T = TypeVar("T")

MAX_OUTPUT = 50_000  # characters

Target: TypeAlias = str | Callable[[Mapping[str, Any]], str]


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
        self.max_output = max_output
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

        A first parameter annotated as a Context is handed one, as with `@tool`.
        """
        signature = Signature(Shape(parameters), takes_context=context_first(function, sys._getframe(1)))
        signature.whole = True
        return Tool(function, name=name, description=description, signature=signature, **options)

    @property
    def name(self) -> str:
        return self.spec.name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    async def invoke(self, call: ToolCall, context: Context[Any]) -> ToolResult:
        """Run one call of a model; whatever goes wrong is an error result, only cancellation is raised."""
        from glue.invoke import invoke

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
