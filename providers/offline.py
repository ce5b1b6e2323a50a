"""An embedded provider: no key, no network. It plays rules, or says honestly that it is a stand-in."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeAlias

import anyio

from glue.limits import StopReason
from glue.messages import AssistantMessage, Part, Request, Text, Thinking, ToolCall, Usage
from glue.provider import Done, ProviderEvent, TextDelta, ThinkingDelta, ToolCallDelta

# What rules may answer: a text, the parts of a reply, or a whole reply.
Answer: TypeAlias = "str | tuple[Part, ...] | AssistantMessage"
Rules: TypeAlias = Callable[[Request], "Answer | Awaitable[Answer]"]

STAND_IN = (
    "This is the offline stand-in, not a model: it has read your prompt and understood nothing. "
    "To ask a real model, set a key such as ANTHROPIC_API_KEY or OPENAI_API_KEY, or name a local one "
    "with GLUE_MODEL=ollama:qwen3:0.6b; `glue providers` lists them all."
)


class Offline:
    """Answer by rules: a function of the request, which an agent hands over."""

    def __init__(self, rules: Rules | None = None, *, name: str = "offline", model: str = "offline") -> None:
        self.name = name
        self.model = model
        self.rules = rules

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        await anyio.lowlevel.checkpoint()
        answer = STAND_IN if self.rules is None else self.rules(request)
        if inspect.isawaitable(answer):
            answer = await answer
        message = self._message(answer)
        for index, part in enumerate(message.content):
            if isinstance(part, Text) and part.text:
                for piece in part.text.splitlines(keepends=True):
                    yield TextDelta(text=piece)
            elif isinstance(part, Thinking) and part.text:
                yield ThinkingDelta(text=part.text)
            elif isinstance(part, ToolCall):
                yield ToolCallDelta(index=index, id=part.id, name=part.name, arguments=part.arguments)
        yield Done(message=message)

    def _message(self, answer: Answer) -> AssistantMessage:
        if isinstance(answer, AssistantMessage):
            return answer
        content: tuple[Part, ...] = (Text(text=answer),) if isinstance(answer, str) else tuple(answer)
        calls = any(isinstance(part, ToolCall) for part in content)
        return AssistantMessage(
            content=content,
            stop_reason=StopReason.TOOL_USE if calls else StopReason.END_TURN,
            usage=Usage(cost=0.0),
            provider=self.name,
            model=self.model,
        )

    async def aclose(self) -> None:
        """There is nothing to close."""
