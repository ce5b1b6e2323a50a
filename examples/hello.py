# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
# ///
"""A model with one tool: `python hello.py "Weather in Oslo?"`; without a key the offline stand-in answers."""

from glue import Agent, tool
from glue.providers import default


@tool
def weather(city: str) -> str:
    """Say what the weather is in a city."""
    return f"{city}: 21 degrees, dry"


# GLUE_MODEL, or the first provider whose key is set; -m names another.
agent = Agent(default(otherwise="offline"), tools=[weather], instructions="Answer in one line.")

if __name__ == "__main__":
    agent.cli("What is the weather in Toronto?")
