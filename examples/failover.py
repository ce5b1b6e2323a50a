# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
# ///
"""Several providers by name: the next is asked when one fails before it has said anything.

Providers without a key are skipped. Set OPENAI_API_KEY and GROQ_API_KEY to see both at work; a try that failed is told.
"""

import os

from glue import Agent, tool


@tool
def ask_status(service: str = "all") -> str:
    """Ask for the status of a service."""
    return f"{service}: in order"


agent = Agent(
    os.environ.get("GLUE_MODEL") or "openai:gpt-5.4-nano,groq,offline",
    tools=[ask_status],
    instructions="Answer in one line.",
)

if __name__ == "__main__":
    agent.cli("What is the status of all?")
