"""Sub-agents: an agent serves another as a tool, with a transcript of its own and the parent's budget."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from glue.codec import to_plain
from glue.context import Context, Host, ToolResult, error_result, text_result
from glue.errors import ToolError
from glue.messages import ToolCall, ToolSpec, Usage, user
from glue.options import Options

if TYPE_CHECKING:
    from glue.agent import Agent
    from glue.events import RunResult

_PARAMETERS = {
    "type": "object",
    "properties": {"prompt": {"type": "string", "description": "What to do, with everything needed to do it."}},
    "required": ["prompt"],
}


class AgentTool:
    """Hands a task to another agent and gives back its answer."""

    alone = False
    advisory = False

    def __init__(self, agent: Agent[Any, Any], name: str, description: str) -> None:
        self.agent = agent
        self.spec = ToolSpec(name=name, description=description, parameters=_PARAMETERS)

    def __repr__(self) -> str:
        return f"AgentTool({self.spec.name!r}, {self.agent!r})"

    async def invoke(self, call: ToolCall, context: Context[Any]) -> ToolResult:
        from glue.agent import perform

        def nest(event: object) -> None:
            context.report("", None, event)

        host = Host(parent=context, session_id=context.session_id)
        options = self.agent.layer(Options(on_event=nest, unwrap=False, host=host))
        result = await perform(self.agent, options, (user(_prompt(call)),), ())
        usage = {name: value for name, value in asdict(result.usage).items() if value is not None and name != "extra"}
        meta = {"agent": self.spec.name, "outcome": str(result.outcome), "usage": usage}
        return replace(_tool_result(result, self.agent.output), meta=meta)


def _prompt(call: ToolCall) -> str:
    try:
        prompt = json.loads(call.arguments or "{}")["prompt"]
    except (ValueError, KeyError, TypeError, RecursionError):
        prompt = None
    if not isinstance(prompt, str) or not prompt.strip():
        raise ToolError('prompt: expected a text that says what to do, as in {"prompt": "..."}')
    return prompt


def _tool_result(result: RunResult[Any], output: object) -> ToolResult:
    if result.error is not None:
        why = str(result.error) or type(result.error).__name__
        said = f"\nSo far it said: {result.text}" if result.text else ""
        return error_result(f"the agent did not finish ({result.outcome}): {why}{said}")
    if output is not None:
        return text_result(json.dumps(to_plain(result.output), ensure_ascii=False))
    return text_result("\n".join(part for part in (result.text, result.notice) if part))


def child_usage(result: ToolResult) -> Usage | None:
    """Read what a sub-agent spent from its result."""
    said = (result.meta or {}).get("usage")
    return Usage(**said) if isinstance(said, dict) else None
