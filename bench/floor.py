"""The floor of the comparison: a minimal loop, written by hand with httpx, json and dicts."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import work

TOOLS = [
    {
        "type": "function",
        "function": {"name": "find", "description": "Find.", "parameters": work.PARAMETERS},
    }
]


async def setup(url: str) -> Any:
    import httpx

    limits = httpx.Limits(max_connections=1000, max_keepalive_connections=1000)
    return httpx.AsyncClient(
        base_url=url, timeout=120, headers={"authorization": "Bearer none"}, limits=limits
    )


async def run(client: Any, prompt: str, on_delta: Callable[[str], None]) -> str:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": work.SYSTEM},
        {"role": "user", "content": prompt},
    ]
    while True:
        text: list[str] = []
        calls: dict[int, dict[str, Any]] = {}
        body = {"model": work.MODEL, "messages": messages, "tools": TOOLS, "stream": True}
        async with client.stream("POST", "/chat/completions", json=body) as response:
            response.raise_for_status()
            async for line in response.aiter_lines():
                if line.startswith("data: ") and line != "data: [DONE]":
                    take(json.loads(line[6:]), text, calls, on_delta)
        if not calls:
            return "".join(text)
        messages.append({"role": "assistant", "content": None, "tool_calls": list(calls.values())})
        for call in calls.values():
            arguments = json.loads(call["function"]["arguments"])
            if set(arguments) != {"key", "n"}:
                raise ValueError("bad arguments")
            messages.append(
                {"role": "tool", "tool_call_id": call["id"], "content": work.find(**arguments)}
            )


def take(
    chunk: Any, text: list[str], calls: dict[int, dict[str, Any]], on_delta: Callable[[str], None]
) -> None:
    for choice in chunk["choices"]:
        piece = choice["delta"]
        if content := piece.get("content"):
            text.append(content)
            on_delta(content)
        for part in piece.get("tool_calls") or ():
            if part.get("id"):
                calls[part["index"]] = part
            else:
                calls[part["index"]]["function"]["arguments"] += part["function"]["arguments"]
