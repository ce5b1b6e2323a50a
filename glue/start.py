"""Checks what a run was given, before any request, and sets up its state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypedDict, TypeVar

from glue.context import AnyTool, Cancel, Host, Purse
from glue.errors import InvalidContinuation
from glue.events import Listener
from glue.limits import Limits
from glue.policies.base import Policy
from glue.policies.budgets import Budgets
from glue.policies.guards import Guards
from glue.policies.wrap_up import WrapUp
from glue.state import Journal, State
from glue.transcript import has_content, needs_answer, prompt_start
from glue.types import AssistantMessage, Message, Provider, Request, ToolMessage, UserMessage, user

T = TypeVar("T")


class Options(TypedDict, total=False):
    """The settings of a run, all optional."""

    tools: Iterable[AnyTool]
    limits: Limits | Callable[[], Limits] | None
    request: Request | None
    policies: Iterable[Policy]
    host: Host | None
    on_event: Listener | None
    cancel: Cancel | None
    journal: Journal | None


def start(provider: Provider, messages: str | Sequence[Message], options: Options, resume: bool = False) -> State:
    """Make the state of a run, or raise ValueError or TypeError that names the argument."""
    if not callable(getattr(provider, "stream", None)):
        raise TypeError(f"provider must have a name and a stream(request) method, not {provider!r}")
    template = options.get("request") or Request()
    if not isinstance(template, Request):
        raise TypeError(f"request must be a glue.Request, not {template!r}")
    if (cap := template.max_tokens) is not None and (isinstance(cap, bool) or not isinstance(cap, int) or cap < 1):
        raise ValueError(f"max_tokens must be a whole number of 1 or more, or None for no cap, not {cap!r}")
    on_event = options.get("on_event")
    if on_event is not None and not callable(on_event):
        raise TypeError(f"on_event must be a function of one event, not {on_event!r}")
    for name, kind in (("host", Host), ("cancel", Cancel)):
        if not isinstance(given := options.get(name), kind | None):
            raise TypeError(f"{name} must be a glue.{kind.__name__}, not {given!r}")
    journal = options.get("journal")
    if journal is not None and not hasattr(journal, "amend"):
        raise TypeError(f"journal must have the methods of glue.state.Journal, not {journal!r}")
    transcript = _transcript(messages, resume)
    tools = _tools(_several("tools", options.get("tools", ())))
    limits, source = _limits(options.get("limits"), tools)
    host = options.get("host") or Host()
    above = host.parent
    state = State(
        provider=provider,
        messages=transcript,
        new=[] if resume else transcript[prompt_start(transcript) :],
        tools=tools,
        specs=tuple(tool.spec for tool in tools.values()),
        limits=limits,
        limits_source=source,
        template=template,
        policies=_policies(_several("policies", options.get("policies", ()))),
        host=host,
        cancel=options.get("cancel") or (above.cancel if above else Cancel()),
        purse=Purse(parent=above.purse if above else None),
        on_event=on_event,
        drain=getattr(on_event, "drain", None),
        journal=journal,
    )
    state.charge_prompt()
    return state


def _limits(
    given: Limits | Callable[[], Limits] | None, tools: Mapping[str, AnyTool]
) -> tuple[Limits, Callable[[], Limits] | None]:
    source = given if callable(given) else None
    limits = source() if source is not None else given or Limits()
    if not isinstance(limits, Limits):
        raise TypeError(f"limits must be a glue.Limits, or a function that returns one, not {limits!r}")
    if limits.tool_choice not in ("auto", "required", "none", *tools):
        names = ", ".join(repr(name) for name in tools) or "none was given"
        choice = limits.tool_choice
        raise ValueError(f"tool_choice must be 'auto', 'required', 'none' or a tool ({names}), not {choice!r}")
    return limits, source


def _policies(given: Iterable[Policy]) -> list[Policy]:
    chosen = [Budgets(), WrapUp(), *given, Guards()]
    for policy in chosen:
        if not isinstance(policy, Policy):
            raise TypeError(f"policies must be glue.Policy objects, not {policy!r}")
    return [policy.start() for policy in sorted(chosen, key=lambda policy: policy.order)]


def _transcript(messages: str | Sequence[Message], resume: bool) -> list[Message]:
    if isinstance(messages, str):
        messages = [user(messages)]
    transcript = list(_several("messages", messages))
    for message in transcript:
        if not isinstance(message, (UserMessage, AssistantMessage, ToolMessage)):
            raise TypeError(f"messages must be a text or glue messages, not {message!r}")
    if not transcript and not resume:
        raise ValueError("messages must hold at least one message")
    if not needs_answer(transcript):
        what = "the transcript is empty" if not transcript else "the model has answered; say something new"
        raise InvalidContinuation(f"there is nothing to go on from: {what}")
    prompt = transcript[prompt_start(transcript) :]
    if prompt and not any(has_content(message.content) for message in prompt):
        raise ValueError("messages must end in a prompt that says something; it is empty")
    return transcript


def _several(name: str, given: Iterable[T]) -> Iterable[T]:
    if not isinstance(given, Iterable):
        raise TypeError(f"{name} must be a list, not {given!r}")
    return given


def _tools(tools: Iterable[AnyTool]) -> dict[str, AnyTool]:
    table: dict[str, AnyTool] = {}
    for tool in tools:
        spec = getattr(tool, "spec", None)
        if spec is None or not callable(getattr(tool, "invoke", None)):
            raise TypeError(f"tools must be made by glue.tool, not {tool!r}")
        if spec.name in table:
            raise ValueError(f"tools must have different names; {spec.name!r} is there twice")
        table[spec.name] = tool
    return table
