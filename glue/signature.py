"""Decorators that add hints on wrong keywords, or make `_sync` and `stream` versions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial, wraps
from math import inf
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

from glue.checks import show
from glue.closing import close
from glue.limits import Limits
from glue.messages import Request
from glue.settings import checked
from glue.text import suggest

if TYPE_CHECKING:
    from glue.result import RunResult
    from glue.streams import Events, SyncEvents

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

# By keyword of other libraries: glue's form of the argument, with {} for the passed value.
_FORMS: Mapping[str, str] = {
    "timeout": "limits=glue.Limits(seconds={})",
    "max_seconds": "limits=glue.Limits(seconds={})",
    "deadline": "limits=glue.Limits(seconds={})",
    "max_iterations": "limits=glue.Limits(max_turns={})",
    "max_steps": "limits=glue.Limits(max_turns={})",
    "turns": "limits=glue.Limits(max_turns={})",
    "budget": "limits=glue.Limits(usd_budget={})",
    "max_cost": "limits=glue.Limits(usd_budget={})",
    "history": "message_history=...",
    "messages": "message_history=...",
    "chat_history": "message_history=...",
    "system": "instructions={}",
    "system_prompt": "instructions={}",
    "system_message": "instructions={}",
    "functions": "tools=...",
    "output_type": "output=...",
    "result_type": "output=...",
    "response_model": "output=...",
    "response_format": "output=...",
    "schema": "output=...",
    "dependencies": "deps=...",
    "context": "deps=...",
    "callback": "on_event=...",
    "callbacks": "on_event=...",
    "listener": "on_event=...",
    "file": "stream=...",
    "verbose": "tool_log=sys.stderr",
    "debug": "tool_log=sys.stderr",
    "effort": "reasoning={}",
    "reasoning_effort": "reasoning={}",
    "thinking": 'reasoning="high"',
    "max_output_tokens": "max_tokens={}",
    "max_completion_tokens": "max_tokens={}",
    "extra_body": "options={}",
    "top_p": "options={{'top_p': {}}}",
    "seed": "options={{'seed': {}}}",
    "raise_on_error": "unwrap={}",
    "provider": "model=...",
    "llm": "model=...",
    "api_key": "model=glue.providers.new('openai', key=...)",
    "base_url": "model=glue.providers.new('openai', base_url={})",
    "parallel": "concurrency={}",
    "workers": "concurrency={}",
    "max_retries": "retries={}",
    "prompts": "inputs=...",
    "default": "otherwise=...",
    "path": "root={}",
    "folder": "root={}",
}
# Keywords that `glue.run` takes as fields of `request=` or of `host=`.
_SYSTEM_KEYWORDS = dict.fromkeys(("instructions", "system_prompt", "system_message"), "system")
_REQUEST_FIELDS = frozenset(Request.__dataclass_fields__) - {"messages", "tools", "stream"}
_HOST_FIELDS = frozenset(("deps", "permission", "hooks"))
_AGENT_KEYWORDS = frozenset(("name", "deps_type", "roles", "project", "compaction"))
_CALL_KEYWORDS = frozenset(
    ("deps", "message_history", "stream", "tool_log", "on_event", "cancel", "unwrap", "output")
)
_SESSION_KEYWORDS = frozenset(
    ("store", "session", "session_id", "conversation_id", "thread_id", "memory")
)


def hinted(function: F) -> F:
    """Decorate a function: a wrong keyword raises a TypeError that suggests the right keyword.

    `help()`, `inspect.signature()` and type checkers see the function as it is written.
    """
    return hinted_as(_name(function))(function)


def hinted_as(name: str) -> Callable[[F], F]:
    """Return a decorator like `hinted`, with `name` as the function's name in error messages."""

    def decorate(function: F) -> F:
        check = partial(_check, name, _parameters(function))

        if inspect.iscoroutinefunction(function):

            @wraps(function)
            async def call(*args: Any, **keywords: Any) -> Any:
                check(args, keywords)
                return await function(*args, **keywords)

        else:

            @wraps(function)
            def call(*args: Any, **keywords: Any) -> Any:
                check(args, keywords)
                return function(*args, **keywords)

        return call  # type: ignore[return-value]

    return decorate


def blocking(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Return a synchronous version of an async function.

    It runs the function in an event loop of its own, and closes the connections of that loop at the
    end.
    """

    @wraps(function)
    def call(*args: P.args, **keywords: P.kwargs) -> T:
        # Loads anyio, which `from glue import Agent` does without.
        from glue.tasks import run_blocking

        return run_blocking(lambda: function(*args, **keywords), _disconnect(args, keywords))

    _rename(
        call,
        f"{function.__name__}_sync",
        "RunResult",
        f"Like `{function.__name__}`, for code that is not async.",
    )
    return call


def streaming(run: Callable[P, Coroutine[Any, Any, RunResult[T]]]) -> Callable[P, Events[T]]:
    """Return a version of `run` that returns an async iterator of events."""
    check = partial(_check, _name(run, "stream"), _parameters(run))

    @wraps(run)
    def call(*args: P.args, **keywords: P.kwargs) -> Events[T]:
        # Loads anyio, which `from glue import Agent` does without.
        from glue.streams import Events

        check(args, keywords)
        checked(keywords)  # a wrong value is reported here, not when the events are read
        return Events(partial(run, *args), keywords)

    _rename(
        call,
        "stream",
        "Events",
        "Run one prompt as an async iterator of events: "
        f"`async with {_example(run)} as events`.\n\n"
        "`events.result` is the result when all events have been read. Leaving the block earlier "
        "cancels the run.",
    )
    return call


def streaming_sync(
    run: Callable[P, Coroutine[Any, Any, RunResult[T]]],
) -> Callable[P, SyncEvents[T]]:
    """Return a synchronous function that runs `run` and returns an iterator of its events."""
    stream = streaming(run)

    @wraps(run)
    def call(*args: P.args, **keywords: P.kwargs) -> SyncEvents[T]:
        # Loads anyio, which `from glue import Agent` does without.
        from glue.streams import SyncEvents

        return SyncEvents(stream(*args, **keywords), _disconnect(args, keywords))

    example = _example(run, "stream_sync")
    _rename(
        call,
        "stream_sync",
        "SyncEvents",
        f"Run one prompt as an iterator of events: `for event in {example}`.\n\n"
        f"`with {example} as events` gives access to `events.result` after the loop. Leaving the "
        "loop earlier cancels the run.",
    )
    return call


def _example(run: Callable[..., Any], name: str = "stream") -> str:
    """Return an example call for a docstring, such as `agent.stream(prompt)`."""
    owner = run.__qualname__.rpartition(".")[0].lower()
    return f"{owner}.{name}(prompt)" if owner else f"glue.{name}(provider, prompt)"


def _disconnect(
    args: Sequence[Any], keywords: Mapping[str, Any]
) -> Callable[[], Coroutine[Any, Any, None]]:
    """Return the function that closes the connections of an agent, a session or a provider.

    This object is the first argument of the call with the arguments `args` and `keywords`.
    """
    owner: Any = args[0] if args else keywords.get("provider")
    if hasattr(owner, "disconnect"):
        disconnect: Callable[[], Coroutine[Any, Any, None]] = owner.disconnect
        return disconnect
    return partial(close, owner)


def _rename(function: Any, name: str, returns: str, summary: str) -> None:
    """Set the name, return annotation and docstring of `function`, a wrapper such as `run_sync`.

    The parameters and their descriptions stay those of the wrapped function. `inspect.signature`
    reads `__wrapped__`, which is replaced by a copy that has the new return annotation.
    """
    original = inspect.unwrap(function)
    copy = FunctionType(original.__code__, original.__globals__, name, original.__defaults__)
    copy.__kwdefaults__ = original.__kwdefaults__
    copy.__annotations__ = dict(original.__annotations__)
    copy.__annotations__["return"] = str(copy.__annotations__.get("return", "")).replace(
        "RunResult", returns
    )
    parameters = inspect.cleandoc(function.__doc__ or "").partition("Args:")[2]
    function.__wrapped__ = copy
    function.__qualname__ = function.__qualname__.replace(function.__name__, name)
    function.__name__ = name
    function.__doc__ = f"{summary}\n\nArgs:{parameters}" if parameters else summary


def _name(function: Callable[..., Any], name: str = "") -> str:
    """Return a function's name with its class, such as "Agent.run"; `name` replaces "run".

    For a method `__init__`, return the name of the class.
    """
    full = function.__qualname__.removesuffix(".__init__")
    if not name:
        return full
    owner, dot, _ = full.rpartition(".")
    return f"{owner}{dot}{name}"


class _Parameters(NamedTuple):
    """The parameters of a function, without `self`."""

    positional: tuple[str, ...]  # parameters that may be given by position
    known: frozenset[str]  # parameters that may be given by name
    required: tuple[str, ...]
    skipped: int  # 1 if `self` comes first
    most: float  # the maximum of positional arguments, with `self`; infinite if there are `*args`


def _parameters(function: Callable[..., Any]) -> _Parameters:
    """Return the parameters of a function. This is faster than `inspect.signature`."""
    function = inspect.unwrap(function)
    code = function.__code__
    count = code.co_argcount
    names = code.co_varnames[: count + code.co_kwonlyargcount]
    skipped = int(names[:1] == ("self",))
    optional = {*names[count - len(function.__defaults__ or ()) : count]}
    optional |= (function.__kwdefaults__ or {}).keys()
    return _Parameters(
        positional=names[skipped:count],
        known=frozenset(names[max(skipped, code.co_posonlyargcount) :]),
        required=tuple(name for name in names[skipped:] if name not in optional),
        skipped=skipped,
        most=inf if code.co_flags & inspect.CO_VARARGS else count,
    )


def _check(
    function: str,
    parameters: _Parameters,
    args: Sequence[object],
    keywords: Mapping[str, object],
) -> None:
    positional, known = parameters.positional, parameters.known
    if len(args) > parameters.most:
        rest = sorted(known.difference(positional))
        example = next((name for name in ("tools", "limits", "store") if name in rest), "")
        example = example or next(iter(rest), "")
        if not positional:
            form = f", as in {example}=..." if example else ""
            raise TypeError(f"{function}() takes only keyword arguments{form}")
        by_name = f"; pass the others by name, as in {example}=..." if example else ""
        raise TypeError(f"{function}() takes only {', '.join(positional)} by position{by_name}")
    if not keywords.keys() <= known:
        name = next(name for name in keywords if name not in known)
        raise TypeError(
            f"{function}() does not take {name!r}; {_hint(name, keywords[name], known)}"
        )
    for name in parameters.required:
        if name not in keywords and name not in positional[: len(args) - parameters.skipped]:
            raise TypeError(f"{function}() needs a value for {name!r}")


def _hint(name: str, value: object, known: frozenset[str]) -> str:
    """Return advice on the unknown keyword `name`: the right argument, or a similar known keyword.

    If no known keyword is similar, the advice lists all known keywords.
    """
    if "limits" in known and name in Limits.__dataclass_fields__:
        return f"use limits=glue.Limits({name}={show(value)})"
    if "request" in known and (field := _SYSTEM_KEYWORDS.get(name, name)) in _REQUEST_FIELDS:
        return f"use request=glue.Request({field}={show(value)})"
    if "host" in known and name in _HOST_FIELDS:
        return f"use host=glue.context.Host({name}=...)"
    if name == "api_key" and "key" in known:
        return "use key=..."
    form = _FORMS.get(name, "").format(show(value))
    if form.partition("=")[0] in known:
        return f"use {form}"
    if form.startswith("message_history") or name == "message_history":
        return "a session has its own history; use agent.run(prompt, message_history=...)"
    if name in _SESSION_KEYWORDS and "store" not in known:
        return "open a session: agent.session(id, store=...).run(prompt)"
    if name == "decisions":
        return "pass it to resume: agent.resume(result, decisions=...)"
    if name == "prompt":
        return "use messages=..." if "messages" in known else "pass it to a call: agent.run(prompt)"
    if name in _CALL_KEYWORDS and "prompt" not in known:
        return f"pass it to a call: agent.run(prompt, {name}=...)"
    if name in _AGENT_KEYWORDS:
        return f"pass it to the agent: glue.Agent(model, {name}=...)"
    return suggest(name, known)
