# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
# ///
"""Step 6, approval: `python order_approval.py 'Order the book "Emma".'`, then answer y or n."""

from glue import Agent, Limits, tool
from glue.providers import default


@tool(needs_permission=True, target="title")
def order(title: str) -> str:
    """Order one copy of a book from the publisher."""
    return f"ordered {title}"  # call the publisher here


agent = Agent(
    default(otherwise="offline:stand-in"),
    name="desk",
    tools=[order],
    instructions="You work in a bookshop. Answer in one line.",
    limits=Limits(max_turns=8, usd_budget=0.10, seconds=120),
)

if __name__ == "__main__":
    agent.cli()
