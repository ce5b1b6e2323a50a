# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
#
# [tool.glue]
# max_turns = 16
# usd_budget = 0.50
# ///
"""A companion that remembers: `glue chat NAME.py`, or `python NAME.py -s notes "My name is Ada."`."""

from datetime import date

from glue import Agent, keep_recent, tool
from glue.providers import default


@tool
def today() -> str:
    """Say what day it is."""
    return f"{date.today():%A, %d %B %Y}"


agent = Agent(
    default(otherwise="offline"),  # GLUE_MODEL, or the first provider whose key is set; -m names another
    tools=[today],
    instructions="You are a friendly companion. Be brief, and say so when you do not know.",
    compaction=keep_recent(n_messages=60),  # a long conversation goes on when the model's window is full
)

if __name__ == "__main__":
    agent.cli()
