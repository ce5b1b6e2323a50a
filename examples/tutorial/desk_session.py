# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
# ///
"""Step 4, sessions: `python desk_session.py ada "I liked Emma."`, then ask again as `ada`."""

import sys

from glue import Agent, GlueError, Limits, SQLiteStore
from glue.providers import default


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("usage: python desk_session.py CUSTOMER QUESTION")
    customer, question = sys.argv[1:]
    agent = Agent(
        default(),
        instructions="You work in a bookshop. Answer in one line.",
        limits=Limits(max_turns=8, seconds=60),
    )
    session = agent.session(customer, store=SQLiteStore("desk.db"))

    result = session.run_sync(question)

    print(result.text)
    print(f"({len(session.messages)} messages with {customer})")


if __name__ == "__main__":
    try:
        main()
    except GlueError as error:
        sys.exit(f"error: {error}")
