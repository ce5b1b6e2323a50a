"""The contender glue: the same work through the public API, with a validated tool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import work


async def setup(url: str) -> Any:
    import glue
    from glue import providers

    @glue.tool
    async def find(key: str, n: int) -> str:
        """Find."""
        return work.find(key, n)

    # The same HTTP client as the floor.
    model = providers.new(
        f"openai-compatible:{work.MODEL}", base_url=url, key="none", engine="httpx"
    )
    limits = glue.Limits(max_turns=None, max_requests=None)
    return glue.Agent(model, tools=[find], instructions=work.SYSTEM, limits=limits)


async def run(agent: Any, prompt: str, on_delta: Callable[[str], None]) -> str:
    from glue.provider import TextDelta

    def listen(event: object) -> None:
        if type(event) is TextDelta:
            on_delta(event.text)

    result = await agent.run(prompt, on_event=listen)
    text: str = result.text
    return text
