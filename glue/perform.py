"""Running one prompt of an agent: from the merged settings to the result of the loop."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from glue.context import AnyTool, Host
from glue.listeners import join, writers
from glue.loop.recorder import Journal
from glue.loop.run import drive, start_run
from glue.loop.transcript import History
from glue.messages import Message, Request
from glue.policies import Policy
from glue.provider import Provider, capabilities
from glue.result import RunResult
from glue.settings import Settings, instructions_text, with_meta

if TYPE_CHECKING:
    from glue.agent import Agent
    from glue.output import Answer
    from glue.pending import Decisions

_REQUEST_SETTINGS = ("max_tokens", "temperature", "reasoning", "cache", "options")


async def perform(
    agent: Agent[Any, Any],
    settings: Settings,
    prompt: Sequence[Message] | None,
    history: Sequence[Message],
    *,
    host: Host | None = None,
    journal: Journal | None = None,
    sent: History | None = None,
    policies: Sequence[Policy] = (),
    decisions: Decisions | None = None,
) -> RunResult[Any]:
    """Run the loop with the settings of an agent, and return the result with its output.

    Raise the error of a failed run, unless `settings.unwrap` is False.

    If `prompt` is None, the run continues from the end of `history`, and `decisions` answers its
    pending calls. A session also passes its host, its log as `journal`, the history that its
    earlier runs sent as `sent`, and policies of its own.
    """
    provider = agent.open(settings.model or "")
    text, identity = instructions_text(settings.instructions)
    tools = list(settings.tools or ())
    chosen = [*(settings.policies or ()), *policies]
    project = "" if agent.project is None else _load_project(agent.project, tools)
    system = "\n\n".join(part for part in (text.strip("\n"), project) if part)
    if (check_rules := getattr(settings.permission, "check", None)) is not None:
        import glue.tools  # noqa: F401  registers the names of the ready-made tools, for the check

        check_rules(tools)
    if agent.compaction is not None:
        from glue.compaction import compaction_for  # start-up: few agents have one

        chosen.append(compaction_for(provider, agent.compaction, agent.open))
    answer = None
    if settings.output is not None:
        answer = _add_output(settings.output, provider, tools, chosen)

    said = with_meta(prompt, identity) if prompt is not None else None
    state = start_run(
        provider,
        history,
        said,
        tools=tools,
        limits=settings.limits,
        request=_request(settings, system, answer),
        policies=chosen,
        host=_host(agent, settings, identity, host or Host()),
        on_event=join((*writers(settings.stream, settings.tool_log), settings.on_event)),
        cancel=settings.cancel,
        journal=journal,
        prices=settings.prices,
        sent=sent,
        decisions=decisions,
    )
    result: RunResult[Any] = await drive(state, said, telemetry=settings.telemetry)
    result = replace(result, meta={**(result.meta or {}), **identity})
    if answer is not None:
        result = answer.finish(result)
    return result if settings.unwrap is False else result.unwrap()


def _load_project(path: str | os.PathLike[str], tools: list[AnyTool]) -> str:
    """Load a project, add a tool for its skills to `tools`, and return its system prompt text.

    The tool is added only if the project has skills and `tools` has no tool with the name `skill`.
    """
    from glue.project import load_project, skill_tool  # start-up: few agents have one

    project = load_project(path)
    if project.skills and not any(tool.spec.name == "skill" for tool in tools):
        tools.append(skill_tool(project.skills))
    return project.prompt


def _add_output(
    wanted: Any, provider: Provider, tools: list[AnyTool], policies: list[Policy]
) -> Answer[Any]:
    """Add a policy for answers of the type `wanted`, perhaps a tool too; return an empty Answer.

    The policy asks again after an invalid answer; it is added to `policies`. If the provider cannot
    force JSON replies, the tool that the model calls with its answer is added to `tools`.
    """
    # Loads jsonschema, which a run without an output does without.
    from glue.output import Answer, Output, Reask

    output: Output[Any] = Output(wanted)
    native = capabilities(provider).takes_output(output.schema, tools=bool(tools))
    answer = Answer(output, native=native, taken=[tool.spec.name for tool in tools])
    policies.append(Reask(answer))
    if answer.tool is not None:
        tools.append(answer.tool)
    return answer


def _request(settings: Settings, system: str, answer: Answer[Any] | None) -> Request:
    """Return the template of the run's requests: system prompt, output schema and settings."""
    given: dict[str, Any] = {
        name: value for name in _REQUEST_SETTINGS if (value := getattr(settings, name)) is not None
    }
    schema = answer.output.schema if answer is not None and answer.native else None
    return Request(system=system, output_schema=schema, **given)


def _host(
    agent: Agent[Any, Any], settings: Settings, identity: Mapping[str, str], host: Host
) -> Host:
    """Return a copy of `host` with deps, permission and hooks of the settings, or else the parent.

    The values of the parent are used if the settings of a sub-agent lack them. The copy also has
    the identity of the run. Raise TypeError if `deps` does not have the type that the agent
    requires.
    """
    deps, permission, hooks = settings.deps, settings.permission, settings.hooks
    if (above := host.parent) is not None:  # the values that a sub-agent lacks
        deps = above.deps if deps is None else deps
        permission = above.host.permission if permission is None else permission
        hooks = above.host.hooks if hooks is None else hooks
    wanted = agent.deps_type
    if isinstance(wanted, type) and not isinstance(deps, wanted):
        got = "none was given" if deps is None else f"got {type(deps).__name__}"
        raise TypeError(
            f"{agent!r} needs deps of the type {wanted.__name__}; {got}: pass deps=... to the call"
        )
    named = {"agent": agent.name, "session": host.session_id, **identity}
    known = {name: value for name, value in named.items() if value}
    return replace(host, deps=deps, permission=permission, hooks=tuple(hooks or ()), identity=known)
