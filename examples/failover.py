# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
# ///
"""A failover list: if a provider fails before it sends any output, the next one is asked.

Providers without a key are skipped. Set OPENAI_API_KEY and GROQ_API_KEY to use both; the run prints
each attempt that failed.
"""

import os

from glue import Agent, tool


@tool
def ask_status(service: str = "all") -> str:
    """Return the status of a service."""
    return f"{service}: in order"


agent = Agent(
    os.environ.get("GLUE_MODEL") or "openai:gpt-5.4-nano,groq,offline",
    tools=[ask_status],
    instructions="Answer in one line.",
)

if __name__ == "__main__":
    agent.cli("What is the status of all services?")
