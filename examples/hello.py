# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
# ///
"""An agent with one tool: `python hello.py "Weather in Oslo?"`.

Without a key, the offline stand-in answers.
"""

from glue import Agent, tool
from glue.providers import default


@tool
def weather(city: str) -> str:
    """Return the weather in a city."""
    return f"{city}: 21 degrees, dry"


# The model is GLUE_MODEL, or the first provider whose key is set. The option -m names another.
agent = Agent(
    default(otherwise="offline:stand-in"), tools=[weather], instructions="Answer in one line."
)

if __name__ == "__main__":
    agent.cli("What is the weather in Toronto?")
