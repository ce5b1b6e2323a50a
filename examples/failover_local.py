# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
# ///
"""Cloud models, and a local model if they all fail: `python failover_local.py "Hello"`.

The models are asked in order. Before a flight: `ollama pull qwen3:0.6b`.
"""

import os
from datetime import datetime

from glue import Agent, tool

CLOUD = "anthropic:claude-haiku-5-5,openai:gpt-5.4-nano"  # those without a key are skipped
LOCAL = os.environ.get("LOCAL_MODEL", "ollama:qwen3:0.6b")


@tool
def read_time() -> str:
    """Return the time on this machine."""
    return f"{datetime.now():%H:%M}"


agent = Agent(
    os.environ.get("GLUE_MODEL") or f"{CLOUD},{LOCAL}",
    tools=[read_time],
    instructions="Answer in one line.",
)

if __name__ == "__main__":
    agent.cli("What time is it?")
