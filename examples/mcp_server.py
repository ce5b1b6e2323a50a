# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents[mcp]"]
# ///
"""Your own MCP server: `glue mcp mcp_server.py --only-tools`.

A typed function is a tool of the server. Editors and other agents start the command themselves.
"""

from dataclasses import dataclass

from glue import Agent, ToolError, tool
from glue.providers import default

BOOKS = {"emma": 3, "persuasion": 0}


@dataclass
class Stock:
    title: str
    copies: int


@tool(read_only=True)
def stock(title: str) -> Stock:
    """Return how many copies of a book are in the shop."""
    if title.lower() not in BOOKS:
        raise ToolError(f"{title!r} is not in the shop, which has: {', '.join(BOOKS)}")
    return Stock(title=title, copies=BOOKS[title.lower()])


@tool(needs_permission=True, target="title")
def sell(title: str) -> Stock:
    """Sell one copy of a book."""
    if stock(title).copies == 0:
        raise ToolError(f"{title} is sold out")
    BOOKS[title.lower()] -= 1
    return stock(title)


agent = Agent(default(otherwise="offline:stand-in"), name="bookshop", tools=[stock, sell])

if __name__ == "__main__":
    agent.cli()
