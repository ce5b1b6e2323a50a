# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
# ///
"""A conversation that is stored in a file, so that the next process continues it.

python remember.py "My name is Ada."
python remember.py "What is my name?"
"""

import argparse
import sys

from glue import Agent, FileStore, tool
from glue.providers import default

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("-m", "--model", default=default(otherwise="offline:stand-in"))
parser.add_argument("prompt", nargs="*", default=["How many messages are there?"])


@tool
def count_messages() -> int:
    """Return the number of messages in this conversation."""
    return len(session.messages)


if __name__ == "__main__":
    given = parser.parse_args()
    agent = Agent(given.model, tools=[count_messages], instructions="Answer in one line.")
    session = agent.session("demo", store=FileStore(".glue"))
    print(session.run_sync(" ".join(given.prompt), tool_log=sys.stderr).text)
