"""openai-agents on the chat completions API, without tracing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import work

REQUIREMENTS = ("openai-agents",)
IMPORT = """
from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool
from openai import AsyncOpenAI
"""


async def setup(url: str) -> Any:
    from openai import AsyncOpenAI

    from agents import (  # noqa: TID251 - the package of openai-agents, not glue.agents
        Agent,
        OpenAIChatCompletionsModel,
        function_tool,
        set_tracing_disabled,
    )

    set_tracing_disabled(True)

    @function_tool
    async def find(key: str, n: int) -> str:
        """Find."""
        return work.find(key, n)

    client = AsyncOpenAI(base_url=url, api_key="none", max_retries=0)
    model = OpenAIChatCompletionsModel(work.MODEL, client)
    return Agent(name="bench", instructions=work.SYSTEM, tools=[find], model=model)


async def run(agent: Any, prompt: str, on_delta: Callable[[str], None]) -> str:
    from agents import Runner  # noqa: TID251 - the package of openai-agents

    result = Runner.run_streamed(agent, prompt, max_turns=1000)
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            on_delta(event.data.delta)
    text: str = result.final_output
    return text
