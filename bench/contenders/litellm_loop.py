"""litellm, with a loop written by hand: it has no agents."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import work

REQUIREMENTS = ("litellm[mcp]",)  # the import fails without this extra
IMPORT = "from litellm import acompletion"
ENVIRON = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}  # else the import fetches a list of prices
TOOLS = [
    {
        "type": "function",
        "function": {"name": "find", "description": "Find.", "parameters": work.PARAMETERS},
    }
]


async def setup(url: str) -> Any:
    import litellm

    litellm.suppress_debug_info = True
    litellm.telemetry = False
    return url


async def run(url: Any, prompt: str, on_delta: Callable[[str], None]) -> str:
    from litellm import acompletion

    messages: list[dict[str, Any]] = [
        {"role": "system", "content": work.SYSTEM},
        {"role": "user", "content": prompt},
    ]
    while True:
        text: list[str] = []
        calls: dict[int, Any] = {}
        stream = await acompletion(
            model=f"openai/{work.MODEL}",
            api_base=url,
            api_key="none",
            messages=messages,
            tools=TOOLS,
            stream=True,
            num_retries=0,
        )
        async for chunk in stream:
            take(chunk, text, calls, on_delta)
        if not calls:
            return "".join(text)
        made = [
            {"id": each["id"], "type": "function", "function": each["function"]}
            for each in calls.values()
        ]
        messages.append({"role": "assistant", "content": None, "tool_calls": made})
        for each in calls.values():
            arguments = json.loads(each["function"]["arguments"])
            messages.append(
                {"role": "tool", "tool_call_id": each["id"], "content": work.find(**arguments)}
            )


def take(
    chunk: Any, text: list[str], calls: dict[int, Any], on_delta: Callable[[str], None]
) -> None:
    for choice in chunk.choices:
        if choice.delta.content:
            text.append(choice.delta.content)
            on_delta(choice.delta.content)
        for part in choice.delta.tool_calls or ():
            if part.id:
                function = {"name": part.function.name, "arguments": ""}
                calls[part.index] = {"id": part.id, "function": function}
            calls[part.index]["function"]["arguments"] += part.function.arguments or ""
