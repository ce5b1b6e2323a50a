# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
# ///
"""Step 1, a first agent: `python first_agent.py "Which book should I read first?"`."""

from glue import Agent
from glue.providers import default

agent = Agent(
    default(otherwise="offline:stand-in"),
    instructions="You work in a bookshop. Answer in one line.",
)

if __name__ == "__main__":
    agent.cli("Which book should I read first?")
