# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
#
# [tool.glue]
# max_turns = 16
# ///
"""A chat with memory: `glue chat NAME.py`, or `python NAME.py -s notes "My name is Ada."`."""

from datetime import date

from glue import Agent, keep_recent, tool
from glue.providers import default


@tool
def today() -> str:
    """Return the date of today."""
    return f"{date.today():%A, %d %B %Y}"


agent = Agent(
    # GLUE_MODEL, or the first provider whose key is set. -m selects another one.
    default(otherwise="offline:stand-in"),
    tools=[today],
    instructions="You are a friendly companion. Be brief. If you do not know, admit it.",
    # A long conversation continues when the context window of the model is full.
    compaction=keep_recent(n_messages=60),
)

if __name__ == "__main__":
    agent.cli()
