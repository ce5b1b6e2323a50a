# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
# ///
"""An agent as a tool of another agent: each call starts a new transcript; the budget is shared."""

from glue import Agent, Limits, tool
from glue.providers import default

MODEL = default(otherwise="offline:stand-in")

NOTES = {
    "oslo": "Founded around 1040. Capital since 1814.",
    "bergen": "Founded in 1070. Rains 240 days a year.",
}


@tool
def read_notes(city: str) -> str:
    """Read our notes about a city."""
    return NOTES.get(city.lower(), "no notes")


researcher = Agent(
    MODEL, name="researcher", tools=[read_notes], instructions="Report facts, nothing else."
)
writer = Agent(
    MODEL,
    tools=[researcher.as_tool(description="Looks up facts about one city.")],
    instructions="Ask the researcher about each city, then compare them in two sentences.",
    limits=Limits(max_requests=20),  # the researcher's requests also count
)

if __name__ == "__main__":
    writer.cli("Compare Oslo and Bergen.")  # --usage also counts the researcher's tokens
