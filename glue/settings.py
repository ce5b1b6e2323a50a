"""The record of the settings of a run, checks of arguments, and conversion of prompts."""

from __future__ import annotations

import inspect
import os
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TextIO, TypeAlias, runtime_checkable

from glue.checks import check_flag, check_list, check_text, show
from glue.limits import Limits, LimitsSource
from glue.messages import (
    EFFORTS,
    Effort,
    File,
    Image,
    Json,
    Message,
    Messages,
    Opaque,
    Part,
    Request,
    Text,
    UserMessage,
    user,
)

if TYPE_CHECKING:
    from glue.context import AnyTool, Cancel
    from glue.events import Listener
    from glue.function.hooks import ToolHook
    from glue.permission import Permission
    from glue.policies import Policy
    from glue.provider import Provider
    from glue.telemetry import OpenTelemetry


@runtime_checkable
class Versioned(Protocol):
    """One version of a prompt in a catalog. A run records `identity`: its name and version."""

    @property
    def text(self) -> str: ...

    @property
    def identity(self) -> Mapping[str, str]: ...


class Versions(Protocol):
    """A catalog of the versions of one prompt. `get()` returns the default version."""

    def get(self, version: str = ...) -> Versioned: ...


Instructions: TypeAlias = str | Versioned | Versions
Model: TypeAlias = "str | Provider"
Schema: TypeAlias = Mapping[str, Json]  # a JSON schema for the answer
# One kind of sequence: with two, mypy infers list[object] for a prompt such as ["text", image].
Prompt: TypeAlias = str | Part | Message | Sequence[str | Part | Message]


class Settings(NamedTuple):
    """Settings of a run. None means "not set here".

    A call takes precedence over its session, and a session over its agent. `Agent.merge` builds
    the one record that a prompt uses.
    """

    model: Model | None = None
    instructions: Instructions | None = None
    role: str | None = None
    tools: Iterable[AnyTool] | None = None
    limits: LimitsSource | None = None  # a function is called before each request
    permission: Permission | None = None
    hooks: Iterable[ToolHook] | None = None
    policies: Iterable[Policy] | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    reasoning: Effort | None = None
    cache: bool | None = None
    options: Mapping[str, Json] | None = None  # provider-specific fields of the request's body
    prices: Mapping[str, tuple[float, float]] | None = None
    telemetry: bool | OpenTelemetry | None = None
    # An agent or a call may set `output`; only a call sets the fields below it.
    output: Any = None
    deps: Any = None
    stream: TextIO | None = None
    tool_log: TextIO | None = None
    on_event: Listener | None = None
    cancel: Cancel | None = None
    unwrap: bool | None = None

    def given(self) -> dict[str, Any]:
        """Return the settings that are not None, by name."""
        return {name: value for name, value in self._asdict().items() if value is not None}


def checked(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Check the keyword arguments that are settings, and return those that are not None.

    Public functions call this with `locals()`. Arguments that are not settings are left out. Raise
    TypeError or ValueError if a setting is wrong.
    """
    found = {}
    for name, value in keywords.items():
        if value is not None and (check := _CHECKS.get(name)) is not None:
            check(value)
            found[name] = value
    return found


def check_model(model: object) -> None:
    """Raise TypeError if `model` is neither a non-empty name nor a provider."""
    if isinstance(model, str) and model.strip():
        return
    if not is_provider(model):
        hint = ""
        if isinstance(model, (list, tuple)) and all(isinstance(name, str) for name in model):
            hint = f"; write several names as one text: {','.join(model)!r}"
        raise TypeError(
            "model must be a name such as 'openai:gpt-5.4-nano', or a provider, "
            f"not {show(model)}{hint}"
        )


def is_provider(value: object) -> bool:
    """Return whether `value` has a method `stream` and is neither a class nor an agent."""
    has_stream = not isinstance(value, type) and callable(getattr(value, "stream", None))
    return has_stream and not hasattr(value, "run_sync")


def check_provider(provider: object) -> None:
    """Raise TypeError if `provider` does not have a name and a method `stream`."""
    if is_provider(provider) and isinstance(getattr(provider, "name", None), str):
        return
    hint = ""
    if isinstance(provider, str):
        hint = f"; write glue.providers.new({provider!r})"
    elif hasattr(provider, "run_sync"):
        hint = "; to run an agent, call agent.run(prompt)"
    raise TypeError(
        f"provider must have a name and a stream(request) method, not {show(provider)}{hint}"
    )


def _check_instructions(instructions: object) -> None:
    if not isinstance(instructions, str) and not _has(instructions, "text", "get"):
        raise TypeError(
            f"instructions must be a text or a prompt of a catalog, not {show(instructions)}"
        )


def _check_tools(tools: object) -> None:
    check_list("tools", tools, "[my_tool]")
    if isinstance(tools, (list, tuple)):  # another iterable may be readable only once
        tool_table(tools)


def _check_limits(limits: object) -> None:
    if isinstance(limits, type) or (not isinstance(limits, Limits) and not callable(limits)):
        form = "max_turns=5"
        if isinstance(limits, Mapping):
            form = ", ".join(f"{name}={value!r}" for name, value in limits.items())
        raise TypeError(
            f"limits must be a glue.Limits, such as glue.Limits({form}), "
            f"or a function that returns a Limits, not {show(limits)}"
        )


def _check_permission(permission: object) -> None:
    if not _has(permission, "decide"):
        hint = ""
        if permission is True:
            hint = "; glue.AllowAll() allows every call"
        elif isinstance(permission, type):
            hint = f"; write {permission.__name__}(...) instead of {permission.__name__}"
        raise TypeError(
            "permission must be an object such as glue.Rules(...) or glue.Ask(function), "
            f"not {show(permission)}{hint}"
        )


def _check_hooks(hooks: object) -> None:
    check_list("hooks", hooks, "[glue.ToolHook(before=function)]")
    if isinstance(hooks, (list, tuple)):
        for hook in hooks:
            if not _has(hook, "before", "after"):
                raise TypeError(
                    f"hooks must be like glue.ToolHook(before=function), not {show(hook)}"
                )


def _check_policies(policies: object) -> None:
    check_list("policies", policies, "[MyPolicy()]")
    if isinstance(policies, (list, tuple)):
        for policy in policies:
            if isinstance(policy, type):
                raise TypeError(
                    f"policies must be objects, not classes; write {policy.__name__}() "
                    f"instead of {policy.__name__}"
                )
            if not hasattr(policy, "before_request"):
                raise TypeError(
                    f"policies must be glue.policies.Policy objects, not {show(policy)}"
                )


def _check_max_tokens(number: object) -> None:
    wanted = "max_tokens must be a whole number of 1 or more, or None for the model's limit"
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"{wanted}, not {show(number)}")
    if number < 1:
        raise ValueError(f"{wanted}, not {number!r}")


def _check_temperature(number: object) -> None:
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise TypeError(
            f"temperature must be a number, or None for the model's default, not {show(number)}"
        )
    if not 0 <= number < float("inf"):
        raise ValueError(
            "temperature must be a number of 0 or more, or None for the model's default, "
            f"not {number!r}"
        )


def _check_reasoning(effort: object) -> None:
    if effort not in EFFORTS:
        raise ValueError(f"reasoning must be one of {', '.join(EFFORTS)}, not {effort!r}")


def _check_options(options: object) -> None:
    if not isinstance(options, Mapping):
        raise TypeError(
            "options must be a mapping of fields for the request's body, "
            f"such as {{'top_p': 0.9}}, not {show(options)}"
        )


def _check_prices(prices: object) -> None:
    if not isinstance(prices, Mapping):
        raise TypeError(
            "prices must map a model to its USD per million tokens in and out, "
            f"such as {{'my-model': (0.5, 1.5)}}, not {show(prices)}"
        )


def _check_telemetry(telemetry: object) -> None:
    if not isinstance(telemetry, bool) and not _has(telemetry, "tracer"):
        raise TypeError(
            "telemetry must be True, False or a glue.telemetry.OpenTelemetry, "
            f"not {show(telemetry)}"
        )


def _check_output(output: object) -> None:
    if not isinstance(output, Mapping) and not _is_type(output):
        raise TypeError(
            "output must be a type or a JSON schema, such as a dataclass or {'type': 'object'}, "
            f"not {show(output)}"
        )


def _check_stream(writer: object) -> None:
    if isinstance(writer, bool):
        raise TypeError(
            f"stream must be an open text file, such as stream=sys.stdout, not {writer}; "
            "agent.stream(prompt) returns the events of a run"
        )
    _check_writer("stream", "sys.stdout", writer)


def _check_writer(name: str, example: str, writer: object) -> None:
    if not callable(getattr(writer, "write", None)):
        raise TypeError(
            f"{name} must be an open text file, such as {name}={example}, not {show(writer)}"
        )


def _check_cancel(cancel: object) -> None:
    if not _has(cancel, "attach"):
        raise TypeError(f"cancel must be a glue.Cancel(), not {show(cancel)}")


def check_listener(name: str, listener: object) -> None:
    """Raise TypeError if `listener` is not a function or is async.

    The loop does not await listeners. `name` is the name of the parameter, for the message.
    """
    if not callable(listener):
        raise TypeError(f"{name} must be a function of one event, not {show(listener)}")
    called = type(listener).__call__
    if inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(called):
        raise TypeError(
            f"{name} must be a plain function, because the loop does not await it; "
            "in async code, use `async with agent.stream(prompt) as events`"
        )


def _has(value: object, *names: str) -> bool:
    """Return whether `value` has one of the attributes `names`. For a class, return False."""
    return not isinstance(value, type) and any(hasattr(value, name) for name in names)


_CHECKS: Mapping[str, Callable[[Any], None]] = {
    "model": check_model,
    "instructions": _check_instructions,
    "role": lambda role: check_text("role", role),
    "tools": _check_tools,
    "limits": _check_limits,
    "permission": _check_permission,
    "hooks": _check_hooks,
    "policies": _check_policies,
    "max_tokens": _check_max_tokens,
    "temperature": _check_temperature,
    "reasoning": _check_reasoning,
    "cache": lambda cache: check_flag("cache", cache),
    "options": _check_options,
    "prices": _check_prices,
    "telemetry": _check_telemetry,
    "output": _check_output,
    "deps": lambda deps: None,  # checked against the agent's deps_type when a run starts
    "stream": _check_stream,
    "tool_log": lambda writer: _check_writer("tool_log", "sys.stderr", writer),
    "on_event": lambda listener: check_listener("on_event", listener),
    "cancel": _check_cancel,
    "unwrap": lambda unwrap: check_flag("unwrap", unwrap),
}


def check_loop(keywords: Mapping[str, Any]) -> None:
    """Raise TypeError or ValueError if a keyword argument of `glue.run` or `resume` is wrong."""
    checked(keywords)
    if (request := keywords["request"]) is not None:
        if not isinstance(request, Request):
            raise TypeError(
                "request must be a glue.Request, such as glue.Request(system='...'), "
                f"not {show(request)}"
            )
        checked({name: getattr(request, name) for name in _REQUEST_SETTINGS})
    if (host := keywords["host"]) is not None and not _has(host, "run_id"):
        raise TypeError(
            "host must be a glue.context.Host, such as glue.context.Host(deps=...), "
            f"not {show(host)}"
        )
    if (journal := keywords["journal"]) is not None and not _has(journal, "amend"):
        raise TypeError(
            f"journal must be a session log, such as store.log(id) returns, not {show(journal)}"
        )


_REQUEST_SETTINGS = ("max_tokens", "temperature", "reasoning", "options")


def check_agent(keywords: Mapping[str, Any]) -> None:
    """Raise TypeError if name, deps_type, roles, project or compaction has a wrong type.

    These arguments of `Agent` are not settings. `keywords` contains them by name.
    """
    check_text("name", keywords["name"])
    deps_type = keywords["deps_type"]
    if deps_type is not None and not _is_type(deps_type):
        raise TypeError(
            f"deps_type must be a class, such as {type(deps_type).__name__}, "
            f"not {show(deps_type)}; pass the object to the call: agent.run(prompt, deps=...)"
        )
    roles, project = keywords["roles"], keywords["project"]
    named = roles.values() if isinstance(roles, Mapping) else ()
    if roles is not None and not isinstance(roles, (Mapping, str, os.PathLike)):
        raise TypeError(f"roles must be a folder or a mapping of names to roles, not {show(roles)}")
    if not all(_has(role, "instructions") for role in named):
        raise TypeError(
            "roles must map names to roles such as "
            f"glue.project.Role(name='...', instructions='...'), not {show(roles)}"
        )
    if project is not None and not isinstance(project, (str, os.PathLike)):
        raise TypeError(f"project must be a folder, such as '.', not {show(project)}")
    if (compaction := keywords["compaction"]) is not None and not _has(compaction, "compact"):
        raise TypeError(
            "compaction must be an object such as glue.summarize() or glue.keep_recent(20), "
            f"not {show(compaction)}"
        )


def _is_type(value: object) -> bool:
    is_alias = isinstance(value, (type, types.GenericAlias, types.UnionType))
    return is_alias or typing.get_origin(value) is not None or value is Any


def tool_table(tools: Iterable[AnyTool]) -> dict[str, AnyTool]:
    """Check tools, and return a dict of the tools by name.

    Raise TypeError if a value is not a tool, and ValueError if two tools have the same name.
    """
    check_list("tools", tools, "[my_tool]")
    table: dict[str, AnyTool] = {}
    for tool in tools:
        spec = getattr(tool, "spec", None)
        if spec is None or not callable(getattr(tool, "invoke", None)):
            raise TypeError(f"tools must be made by glue.tool, not {show(tool)}{_tool_hint(tool)}")
        if getattr(getattr(tool, "signature", None), "takes_self", False):
            raise TypeError(
                f"tools: {spec.name} is a method; pass it with its object: object.{spec.name}"
            )
        if spec.name in table:
            raise ValueError(f"tools must have different names; {spec.name!r} is there twice")
        table[spec.name] = tool
    return table


def _tool_hint(value: Any) -> str:
    """Return advice for the error about a value that is not a tool, or "" if no advice fits."""
    if isinstance(value, str):
        return "; pass the tool itself, not its name"
    if isinstance(value, (list, tuple)):
        return "; put the tools of several lists in one list: tools=[*some, *others]"
    if hasattr(value, "as_tool"):
        return "; write agent.as_tool()"
    name = getattr(value, "__name__", "")
    if not callable(value) or not name.isidentifier():
        return ""
    return f"; write glue.tool({'object.' if isinstance(value, types.MethodType) else ''}{name})"


def instructions_text(given: Instructions | None) -> tuple[str, Mapping[str, str]]:
    """Return the text of instructions, and the identity of a catalog prompt or {} for plain text.

    The identity is a dict with the name and version of the prompt. If `given` is None, return ""
    and {}.
    """
    if given is None or type(given) is str:
        return given or "", {}
    if not isinstance(given, (str, Versioned)):
        given = given.get()
    return (given.text, given.identity) if isinstance(given, Versioned) else (given, {})


def prompt_messages(prompt: Prompt) -> tuple[Message, ...]:
    """Convert a prompt to messages. A prompt is a text, parts such as images, or messages.

    Raise TypeError if `prompt` is none of them, or is empty.
    """
    if isinstance(prompt, (str, Text, Image, File, Opaque)):
        return (user(prompt),)
    items = tuple(prompt) if isinstance(prompt, Sequence) else (prompt,)
    if items and all(hasattr(item, "content") for item in items):
        return items  # type: ignore[return-value]
    if not items or not all(isinstance(item, (str, Text, Image, File, Opaque)) for item in items):
        raise TypeError(
            "prompt must be a text, parts such as glue.Image, or messages, "
            f"not {show(prompt)}{_message_hint(items)}"
        )
    return (user(*items),)  # type: ignore[arg-type]


def _message_hint(items: Sequence[object]) -> str:
    """Return a hint for an error about `items` that are not messages, or "" if no hint fits."""
    if any(isinstance(item, Mapping) for item in items):
        return "; a message is made by glue.user('...')"
    if any(isinstance(item, os.PathLike) for item in items):
        return "; read the file first, for example glue.Image(data=path.read_bytes())"
    return ""


def check_history(messages: Sequence[Message]) -> Sequence[Message]:
    """Return `messages` unchanged. Raise TypeError if it is not a list of messages."""
    if isinstance(messages, Messages):
        return messages
    is_list = isinstance(messages, Sequence) and not isinstance(messages, str)
    wrong: Any = messages
    if is_list:
        wrong = next((each for each in messages if not isinstance(each, Message)), None)
        if wrong is None:
            return messages
    hint = "; pass result.messages" if hasattr(wrong, "new_messages") else _message_hint([wrong])
    shown = "a RunResult" if hasattr(wrong, "new_messages") else show(wrong)
    raise TypeError(
        f"message_history must be a list of messages, such as result.messages, not {shown}{hint}"
    )


def with_meta(messages: Sequence[Message], identity: Mapping[str, str]) -> tuple[Message, ...]:
    """Return the messages. If the last message is a user message, add `identity` to its meta.

    The last message is copied for this. `identity` is the name and version of the instructions, or
    {}.
    """
    if not identity or not messages or not isinstance(messages[-1], UserMessage):
        return tuple(messages)
    last = messages[-1]
    return (*messages[:-1], replace(last, meta={**(last.meta or {}), **identity}))
