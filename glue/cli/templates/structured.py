# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
#
# [tool.glue]
# max_turns = 16
# ///
"""Structured output: `python NAME.py @mail.txt` prints a ticket as JSON."""

from dataclasses import dataclass
from typing import Annotated, Literal

from glue import Agent
from glue.providers import default


@dataclass
class Ticket:
    title: Annotated[str, "at most ten words"]
    severity: Literal["low", "medium", "high"]
    steps: Annotated[list[str], "the steps to reproduce the fault, one per item"]


agent = Agent(
    # GLUE_MODEL, or the first provider whose key is set. -m selects another one.
    default(otherwise="offline:stand-in"),
    output=Ticket,  # the model is asked again if its answer does not match
    instructions="Turn the user's mail into a ticket.",
)

if __name__ == "__main__":
    agent.cli()  # in code: agent.run_sync(mail).output.severity
