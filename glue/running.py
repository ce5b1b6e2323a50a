"""From an agent and a prompt to one call of the loop."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from glue.context import AnyTool, Context, Host
from glue.errors import InvalidContinuation
from glue.events import Listener
from glue.limits import Limits
from glue.listeners import join, writers
from glue.loop.run import run, run_continue
from glue.loop.state import Journal
from glue.messages import Json, Message, Request, ToolMessage
from glue.options import instructions_text, merge, with_meta
from glue.policies.policy import Policy
from glue.provider import Provider
from glue.result import RunResult
from glue.subagent import AgentTool, child_usage

if TYPE_CHECKING:
    from glue.agent import Agent
    from glue.output import Answer
    from glue.project import Project
    from glue.telemetry import OpenTelemetry


@dataclass(slots=True, kw_only=True)
class Job:
    """One run of an agent: what is said, and what holds for this run alone."""

    agent: Agent[Any, Any]
    prompt: Sequence[Message] | None = None  # None goes on from where the history stands
    history: Sequence[Message] = ()
    layers: Sequence[Mapping[str, Any]] = ()  # the call's settings, then the session's
    output: Any = None
    journal: Journal | None = None
    session_id: str = ""
    policies: Iterable[Policy] = ()
    limits: Callable[[], Limits | None] | None = None  # read anew before each request
    subscribers: Sequence[Listener] = ()
    parent: Context[Any] | None = None


async def perform(job: Job) -> RunResult[Any]:
    """Settle the settings, run the loop, and put the output on the result."""
    agent = job.agent
    settings = merge((*job.layers, agent.settings), agent.role)
    call = job.layers[0] if job.layers else {}
    provider = agent.open(settings["model"])
    project = agent.load_project()
    text, identity = instructions_text(settings.get("instructions"))
    system = "\n\n".join(part for part in (text.strip("\n"), project.prompt if project else "") if part)
    tools = _tools(settings, project)
    answer = _answer(job, provider, tools)
    messages = list(job.history)
    if job.prompt is not None:
        prompt = with_meta(job.prompt, identity)
        messages += prompt
        if job.journal is not None:
            for message in prompt:
                await job.journal.append(message)
    written = writers(call.get("stream"), call.get("tool_log"))
    do: Any = run if job.prompt is not None else run_continue
    if (telemetry := _telemetry(job, settings)) is not None:
        do = telemetry.traced(do)
    try:
        result: RunResult[Any] = await do(
            provider,
            messages,
            tools=[*tools, answer.tool] if answer is not None and answer.tool is not None else tools,
            limits=_limits(job, settings),
            request=_request(settings, system, answer),
            policies=_policies(job, settings, provider, answer),
            host=_host(job, settings, identity),
            on_event=join((*written, *job.subscribers, call.get("on_event"))),
            cancel=call.get("cancel"),
            journal=job.journal,
        )
    except (TypeError, ValueError, InvalidContinuation):
        await _take_back(job.journal, messages[len(job.history) :])
        raise
    return _finished(result, tools, answer, identity, unwrap=call.get("unwrap", True))


async def _take_back(journal: Any, prompt: Sequence[Message]) -> None:
    """Drop a prompt that was refused before anything came of it, so that the next one stands alone."""
    last = getattr(journal, "messages", ())[-1:]
    if prompt and last and last[0].id == prompt[-1].id:
        await journal.drop([message.id for message in prompt])


def _tools(settings: Mapping[str, Any], project: Project | None) -> list[AnyTool]:
    tools = list(settings.get("tools") or ())
    if project is not None and project.skills and not any(tool.spec.name == "skill" for tool in tools):
        from glue.project import SkillTool

        tools.append(SkillTool(project.skills))
    return tools


def _telemetry(job: Job, settings: Mapping[str, Any]) -> OpenTelemetry | None:
    wanted = settings.get("telemetry")
    if wanted is None:  # as the run above, or as the environment says
        wanted = job.parent.host.telemetry if job.parent is not None else None
        wanted = wanted or os.environ.get("GLUE_OTEL", "") not in ("", "0")
    if not wanted:
        return None
    from glue.telemetry import telemetry_of

    return telemetry_of(wanted)


def _answer(job: Job, provider: Provider, tools: Sequence[AnyTool]) -> Answer[Any] | None:
    wanted = job.output if job.output is not None else job.agent.output
    if wanted is None:
        return None
    from glue.output import Answer, Output

    output: Output[Any] = Output(wanted)
    native = takes_output(provider, output.schema, tools=bool(tools))
    return Answer(output, native=native, taken=[tool.spec.name for tool in tools])


def window(provider: Provider) -> int | None:
    """Give the tokens of context of what a provider asks; the smallest of a chain, None if one is unknown."""
    sizes = [each.row.window if each.model == each.row.model else None for each in _asked(provider)]
    known = [size for size in sizes if size is not None]
    return min(known) if known and len(known) == len(sizes) else None


def takes_output(provider: Provider, schema: Mapping[str, Json], *, tools: bool) -> bool:
    """Say whether all that a provider asks can be held to a JSON schema by their wire."""
    asked = _asked(provider)
    return bool(asked) and all(_takes_output(each, schema, tools) for each in asked)


def _takes_output(provider: Any, schema: Mapping[str, Json], tools: bool) -> bool:
    # A wire whose models differ in this has a function to say so, beside its class.
    judge = getattr(sys.modules.get(f"glue.providers.{provider.row.wire}"), "takes_output", None)
    if judge is not None:
        return bool(judge(schema, provider.model, tools=tools))
    return bool(provider.row.wire.startswith("openai") and provider.row.quirks.output == "json_schema")


def _asked(provider: Any) -> list[Any]:
    """Find the providers that are rows of data, through wrappers and chains; an object of one's own is none."""
    inner = getattr(provider, "providers", None) or filter(None, [getattr(provider, "provider", None)])
    found = [each for wrapped in inner for each in _asked(wrapped)]
    return [*found, provider] if getattr(provider, "row", None) is not None else found


def _limits(job: Job, settings: Mapping[str, Any]) -> Limits | Callable[[], Limits] | None:
    fixed: Limits | None = settings.get("limits")
    source = job.limits
    if source is None:
        return fixed
    return lambda: source() or fixed or Limits()


def _request(settings: Mapping[str, Any], system: str, answer: Answer[Any] | None) -> Request:
    names = ("max_tokens", "temperature", "reasoning", "cache", "options")
    given = {name: settings[name] for name in names if settings.get(name) is not None}
    native = answer is not None and answer.native
    return Request(system=system, output_schema=answer.output.schema if answer and native else None, **given)


def _policies(job: Job, settings: Mapping[str, Any], provider: Provider, answer: Answer[Any] | None) -> list[Policy]:
    policies = [*(settings.get("policies") or ()), *job.policies]
    agent = job.agent
    if agent.compaction is not None:
        from glue.compaction import Compaction, with_provider

        compactor = with_provider(agent.compaction, agent.open)
        policies.append(Compaction(compactor, window=window(provider)))
    if answer is not None:
        from glue.output import Reask

        policies.append(Reask(answer))
    return policies


def _host(job: Job, settings: Mapping[str, Any], identity: Mapping[str, str]) -> Host:
    agent, above = job.agent, job.parent
    named = {"agent": agent.name, "session": job.session_id, **identity}
    permission = settings.get("permission")
    hooks = settings.get("hooks")
    if above is not None:  # a sub-agent may not do what its parent may not
        permission = permission if permission is not None else above.host.permission
        hooks = hooks if hooks is not None else above.host.hooks
    return Host(
        session_id=job.session_id,
        deps=_deps(job),
        permission=permission,
        hooks=tuple(hooks or ()),
        identity={name: value for name, value in named.items() if value},
        parent=above,
    )


def _deps(job: Job) -> Any:
    call = job.layers[0] if job.layers else {}
    deps = call.get("deps")
    if deps is None and job.parent is not None:
        deps = job.parent.deps
    wanted = job.agent.deps_type
    if wanted is not None and isinstance(wanted, type) and not isinstance(deps, wanted):
        got = "none was given" if deps is None else f"got {type(deps).__name__}"
        raise TypeError(f"{job.agent!r} needs deps of the type {wanted.__name__}; {got}")
    return deps


def _finished(
    result: RunResult[Any],
    tools: Iterable[AnyTool],
    answer: Answer[Any] | None,
    identity: Mapping[str, str],
    *,
    unwrap: bool,
) -> RunResult[Any]:
    names = {tool.spec.name for tool in tools if isinstance(tool, AgentTool)}
    usage = result.usage
    for message in result.new_messages:
        if isinstance(message, ToolMessage) and message.name in names:
            usage += child_usage(message)
    result = replace(result, usage=usage, meta={**(result.meta or {}), **identity})
    if answer is not None:
        result = answer.finish(result)
    return result.unwrap() if unwrap else result
