# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
# ///
"""The answer as it comes, in two ways: `python streaming.py`."""

import argparse
import sys

import anyio

from glue import Agent, tool
from glue.events import ToolStart
from glue.provider import TextDelta
from glue.providers import default


@tool
def population(city: str) -> int:
    """Give the number of people who live in a city."""
    return {"Oslo": 717_710, "Toronto": 2_794_356}.get(city, 0)


async def main(model: str) -> None:
    agent = Agent(model, tools=[population])

    # The simple way: the text goes to one file, a line for each tool to another.
    await agent.run("How many people live in Oslo?", stream=sys.stdout, tool_log=sys.stderr)
    print()

    # The whole way: every event, at the reader's pace.
    async with agent.stream("And in Toronto?") as events:
        async for event in events:
            match event:
                case TextDelta(text=text):
                    print(text, end="", flush=True)
                case ToolStart(call=call):
                    print(f"({call.name} {call.arguments})")
    print(f"\n{events.result.usage.output} tokens, {events.result.turns} tool turn(s)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-m", "--model", default=default(otherwise="offline"))
    anyio.run(main, parser.parse_args().model)
