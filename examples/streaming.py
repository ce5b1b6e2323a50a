# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
# ///
"""Two ways to stream an answer: `python streaming.py`."""

import argparse
import sys

import anyio

from glue import Agent, tool
from glue.events import ToolStart
from glue.provider import TextDelta
from glue.providers import default


@tool
def population(city: str) -> int:
    """Return the number of people who live in a city."""
    return {"Oslo": 717_710, "Toronto": 2_794_356}.get(city, 0)


async def main(model: str) -> None:
    agent = Agent(model, tools=[population])

    # The simple way: write the text to one file, and a line for each tool call to another.
    await agent.run("How many people live in Oslo?", stream=sys.stdout, tool_log=sys.stderr)
    print()

    # The complete way: iterate over all events. The run waits while an event is handled.
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
    parser.add_argument("-m", "--model", default=default(otherwise="offline:stand-in"))
    anyio.run(main, parser.parse_args().model)
