"""langchain's `create_agent`, which runs on langgraph, with streamed messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import work

REQUIREMENTS = ("langchain", "langchain-openai", "langgraph")
IMPORT = """
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
"""
ENVIRON = {"LANGSMITH_TRACING": "false"}


async def setup(url: str) -> Any:
    from langchain.agents import create_agent
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI

    @tool
    async def find(key: str, n: int) -> str:
        """Find."""
        return work.find(key, n)

    model = ChatOpenAI(
        model=work.MODEL, base_url=url, api_key="none", max_retries=0, streaming=True
    )
    return create_agent(model, [find], system_prompt=work.SYSTEM)


async def run(agent: Any, prompt: str, on_delta: Callable[[str], None]) -> str:
    from langchain_core.messages import AIMessageChunk

    text = []
    state = {"messages": [("user", prompt)]}
    async for message, _ in agent.astream(
        state, {"recursion_limit": 10_000}, stream_mode="messages"
    ):
        if isinstance(message, AIMessageChunk) and message.content:
            on_delta(str(message.content))
            text.append(str(message.content))
    return "".join(text)
