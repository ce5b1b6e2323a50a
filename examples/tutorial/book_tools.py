# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
# ///
"""Step 2, tools: `python book_tools.py 'How many copies of "Emma" are there?'`."""

from typing import Annotated

from glue import Agent, ToolError, tool
from glue.providers import default

SHELF = {"Emma": 3, "Persuasion": 0, "Middlemarch": 1}


@tool
def stock(title: Annotated[str, "the exact title"]) -> int:
    """Return how many copies of a book are in the shop."""
    if title not in SHELF:
        raise ToolError(f"{title!r} is not in the shop, which has: {', '.join(SHELF)}")
    return SHELF[title]


agent = Agent(
    default(otherwise="offline:stand-in"),
    tools=[stock],
    instructions="You work in a bookshop. Look up the stock; never guess it. Answer in one line.",
)

if __name__ == "__main__":
    agent.cli()
