# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
#
# [tool.glue]
# max_turns = 16
# usd_budget = 0.50
# ///
"""A model with one tool: `python NAME.py "What is the weather in Toronto?"`, or `--help` for more."""

from glue import Agent, tool
from glue.providers import default


@tool
def weather(city: str) -> str:
    """Say what the weather is in a city.

    Args:
        city: its name, in English
    """
    return f"{city}: 21 degrees, dry"  # ask a real service here


agent = Agent(
    default(otherwise="offline"),  # GLUE_MODEL, or the first provider whose key is set; -m names another
    tools=[weather],
    instructions="Answer in one line.",
)

if __name__ == "__main__":
    agent.cli()
