# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
# ///
"""An answer as an object instead of text: `python structured.py`."""

from dataclasses import dataclass
from typing import Annotated, Literal

from glue import Agent, tool
from glue.providers import default


@dataclass
class Ticket:
    title: Annotated[str, "at most ten words"]
    severity: Literal["low", "medium", "high"]
    steps: list[str]


MAIL = """\
Hi, since this morning the export button does nothing. I log in, open any report, press Export,
and the page just stays there. We need the numbers for the board at five!
"""


@tool
def export_log(page: str = "report") -> str:
    """Read the log of the exports from a page."""
    return f"log of the page {page}: 3 exports failed since 08:12, the queue is full"


agent = Agent(
    default(otherwise="offline:stand-in"),
    output=Ticket,
    tools=[export_log],
    instructions="Turn the mail into a ticket.",
)

if __name__ == "__main__":
    agent.cli(MAIL)  # prints the object as JSON; in code: agent.run_sync(MAIL).output.title
