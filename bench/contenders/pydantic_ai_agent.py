"""pydantic-ai, with a handler of streamed events."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable
from typing import Any

import work

REQUIREMENTS = ("pydantic-ai-slim[openai]",)
IMPORT = """
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
"""


async def setup(url: str) -> Any:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    async def find(key: str, n: int) -> str:
        """Find."""
        return work.find(key, n)

    model = OpenAIChatModel(work.MODEL, provider=OpenAIProvider(base_url=url, api_key="none"))
    return Agent(model, instructions=work.SYSTEM, tools=[find])


async def run(agent: Any, prompt: str, on_delta: Callable[[str], None]) -> str:
    from pydantic_ai import PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta
    from pydantic_ai.usage import UsageLimits

    async def listen(context: Any, events: AsyncIterable[Any]) -> None:
        async for event in events:
            if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                on_delta(event.part.content)
            elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                on_delta(event.delta.content_delta)

    limits = UsageLimits(request_limit=None)
    result = await agent.run(prompt, event_stream_handler=listen, usage_limits=limits)
    text: str = result.output
    return text
