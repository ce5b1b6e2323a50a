# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
#
# [tool.glue]
# max_turns = 16
# ///
"""A model with one tool: run `python NAME.py "What is the weather in Toronto?"`."""

from glue import Agent, tool
from glue.providers import default


@tool
def weather(city: str) -> str:
    """Return the weather in a city.

    Args:
        city: the name of the city, in English
    """
    return f"{city}: 21 degrees, dry"  # call a real service here


agent = Agent(
    # GLUE_MODEL, or the first provider whose key is set. -m selects another one.
    default(otherwise="offline:stand-in"),
    tools=[weather],
    instructions="Answer in one line.",
)

if __name__ == "__main__":
    agent.cli()
