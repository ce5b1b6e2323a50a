# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
# ///
"""An object instead of text: `python structured.py`."""

from dataclasses import dataclass
from typing import Annotated, Literal

from glue import Agent


@dataclass
class Ticket:
    title: Annotated[str, "at most ten words"]
    severity: Literal["low", "medium", "high"]
    steps: list[str]


MAIL = """\
Hi, since this morning the export button does nothing. I log in, open any report, press Export,
and the page just stays there. We need the numbers for the board at five!
"""

agent = Agent("anthropic:claude-haiku-4-5", output=Ticket, instructions="Turn the mail into a ticket.")

if __name__ == "__main__":
    ticket = agent.run_sync(MAIL).output
    print(f"[{ticket.severity}] {ticket.title}")
    for number, step in enumerate(ticket.steps, 1):
        print(f"  {number}. {step}")
