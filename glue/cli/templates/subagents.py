# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
#
# [tool.glue]
# max_turns = 16
# ///
"""An agent that calls another agent: `python NAME.py "Compare Oslo and Bergen."`."""

from glue import Agent, tool
from glue.providers import default

NOTES = {
    "oslo": "Founded around 1040. Capital since 1814.",
    "bergen": "Founded in 1070. Rains 240 days a year.",
}


@tool
def read_notes(city: str) -> str:
    """Read the notes about a city.

    Args:
        city: the name of the city
    """
    return NOTES.get(city.lower(), "no notes")


# GLUE_MODEL, or the first provider whose key is set. -m selects another one.
MODEL = default(otherwise="offline:stand-in")

researcher = Agent(
    MODEL, name="researcher", tools=[read_notes], instructions="Report facts, nothing else."
)

agent = Agent(
    MODEL,
    tools=[researcher.as_tool(description="Looks up facts about one city.")],
    instructions="Ask the researcher about each city, then compare them in two sentences.",
)

if __name__ == "__main__":
    agent.cli()
