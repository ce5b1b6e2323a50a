# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
# ///
"""Research with sub-agents: `python research_subagents.py notes "Compare Oslo and Bergen."`.

Each researcher starts with an empty transcript, so its reading does not fill the context of the
lead. The budget is shared. Sources that do not exist are reported.
"""

import argparse
import re
import sys
from pathlib import Path

from glue import Agent, GlueError, Limits
from glue.providers import default
from glue.tools import fs


def main() -> int:
    parser = argparse.ArgumentParser(description="Answer a question from a folder of notes.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("question")
    given = parser.parse_args()

    researcher = Agent(
        default(),
        name="researcher",
        tools=fs.tools(given.folder),
        instructions="Find the facts in the files. Name the file of each fact: [oslo.md].",
    )
    lead = Agent(
        default(),
        tools=[researcher.as_tool(description="Looks up facts about one subject in the notes.")],
        instructions=(
            "Ask the researcher about each subject, all in one reply, so that the calls run in "
            "parallel. Then answer in at most five sentences, and keep the sources: [oslo.md]."
        ),
        limits=Limits(max_requests=40, token_budget=200_000),  # researchers count too
    )
    result = lead.run_sync(given.question, tool_log=sys.stderr)
    print(result.text)
    unknown = [
        name
        for name in re.findall(r"\[([\w./-]+\.\w+)\]", result.text)
        if not (given.folder / name).is_file()
    ]
    for name in unknown:
        print(f"unknown source: {name}", file=sys.stderr)
    return 1 if unknown else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (GlueError, ValueError) as error:
        sys.exit(f"error: {error}")
