"""Sub-agents: an agent as a tool of another agent.

A sub-agent has its own transcript, and spends the budget of its parent.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from glue.codec import Json, to_plain
from glue.context import Context, Host, ToolResult, error_result, text_result
from glue.errors import GlueError, MaxTurnsExceeded, ToolError
from glue.limits import Outcome
from glue.loop.ending import reply_notices
from glue.loop.truncation import NOTICE
from glue.messages import ToolCall, ToolSpec, messages_from_json, user
from glue.pending import CallDeferred
from glue.perform import perform

if TYPE_CHECKING:
    from glue.agent import Agent
    from glue.result import RunResult

_PARAMETERS = {
    "type": "object",
    "properties": {
        "prompt": {"type": "string", "description": "What to do, with everything needed to do it."}
    },
    "required": ["prompt"],
}


class AgentTool:
    """A tool that runs an agent with the prompt in its arguments, and returns the answer."""

    alone = False
    advisory = False

    def __init__(self, agent: Agent[Any, Any], name: str, description: str) -> None:
        self.agent = agent
        self.spec = ToolSpec(name=name, description=description, parameters=_PARAMETERS)

    def __repr__(self) -> str:
        return f"AgentTool({self.spec.name!r}, {self.agent!r})"

    async def invoke(self, call: ToolCall, context: Context[Any]) -> ToolResult:
        def nest(event: object) -> None:
            context.report("", None, event)

        host = Host(parent=context, session_id=context.session_id)
        settings = self.agent.merge({"on_event": nest, "unwrap": False})
        prompt = _prompt(call)
        if context.decided is None:
            result = await perform(self.agent, settings, (user(prompt),), (), host=host)
        else:
            history = messages_from_json(context.decided.record["messages"])
            decisions = context.decided.decisions
            result = await perform(
                self.agent, settings, None, history, host=host, decisions=decisions
            )
        if result.outcome is Outcome.PAUSED:
            raise CallDeferred({"prompt": prompt}, agent=self.spec.name, messages=result.messages)
        usage = {
            name: value
            for name, value in asdict(result.usage).items()
            if value is not None and name != "extra"
        }
        meta: dict[str, Json] = {
            "agent": self.spec.name,
            "outcome": str(result.outcome),
            "usage": usage,
        }
        if written := reply_notices(result.new_messages):
            meta["notice"] = "; ".join(written)  # for people: it is added to the parent's notice
        return replace(_tool_result(result, self.agent.output), meta=meta)


def _prompt(call: ToolCall) -> str:
    try:
        prompt = json.loads(call.arguments or "{}")["prompt"]
    except (ValueError, KeyError, TypeError, RecursionError):
        prompt = None
    if not isinstance(prompt, str) or not prompt.strip():
        raise ToolError(
            'prompt: expected a string with the task, as in {"prompt": "Find the cause."}'
        )
    return prompt


def _tool_result(result: RunResult[Any], output: object) -> ToolResult:
    if result.error is not None:
        why = _reason(result.error)
        said = f"\nSo far it said: {result.text}" if result.text else ""
        return error_result(f"the agent did not finish ({result.outcome}): {why}{said}")
    if output is not None:
        return text_result(json.dumps(to_plain(result.output), ensure_ascii=False))
    cut = NOTICE if result.outcome is Outcome.TRUNCATED else ""
    return text_result("\n".join(part for part in (result.text, cut) if part))


def _reason(error: GlueError) -> str:
    """Return a message about an error that a model can read, without advice for programmers."""
    if isinstance(error, MaxTurnsExceeded):
        return f"it used {error.used} of {error.limit} {error.kind}"
    return str(error) or type(error).__name__
