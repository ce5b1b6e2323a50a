# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
# ///
"""Step 3, structured output: `python order_form.py 'Send me 2 copies of "Emma", quickly!'`."""

import sys
from dataclasses import dataclass
from typing import Annotated, Literal

from glue import Agent, Field, GlueError
from glue.providers import default


@dataclass
class Order:
    title: str
    copies: Annotated[int, Field(ge=1, le=20)]
    speed: Literal["normal", "quickly"]


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python order_form.py LETTER")
    agent = Agent(default(), output=Order, instructions="Fill in the order from the letter.")

    order = agent.run_sync(sys.argv[1]).output

    print(f"{order.copies} x {order.title}, {order.speed}")


if __name__ == "__main__":
    try:
        main()
    except GlueError as error:
        sys.exit(f"error: {error}")
