# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
# ///
"""An approval in another process: one process asks, another answers.

    python approve_later.py ask "Publish the post 'Hello'"
    python approve_later.py show
    python approve_later.py yes        (or: no)

The first command ends with exit code 6 while the call waits in the folder `approvals`.
"""

import argparse
import sys

import glue
from glue.permission import DeferAll
from glue.providers import default

STORE = glue.FileStore("approvals")


@glue.tool(needs_permission=True, target="title")
def publish(title: str) -> str:
    """Publish a post."""
    return f"published {title!r}"


def main() -> int:
    """Send a prompt, or show or answer the tool calls that wait; return the exit code."""
    parser = argparse.ArgumentParser(description="Answer waiting tool calls in a later process.")
    parser.add_argument("command", nargs="?", choices=["ask", "show", "yes", "no"], default="ask")
    parser.add_argument("prompt", nargs="?", default="Publish the post 'Hello'.")
    parser.add_argument("-m", "--model", help="the model that answers, such as anthropic")
    given = parser.parse_args()
    model = given.model or default(otherwise="offline:stand-in")
    agent = glue.Agent(model, tools=[publish], permission=DeferAll("an editor decides"))
    session = agent.session("posts", store=STORE)

    if given.command == "show":
        for call in session.pending_sync():
            print(f"{call.id}: {call.summary} ({call.reason})")
        return 0
    if given.command == "ask":
        result = session.run_sync(given.prompt, unwrap=False)
    else:
        answer = glue.allow() if given.command == "yes" else glue.deny("the editor said no")
        decisions = {call.id: answer for call in session.pending_sync()}
        result = session.resume_sync(decisions=decisions, unwrap=False)
    waiting = ", ".join(call.summary for call in result.pending)
    print(f"waits: {waiting}" if waiting else result.text)
    return result.outcome.exit_code


if __name__ == "__main__":
    try:
        sys.exit(main())
    except glue.GlueError as error:
        sys.exit(f"error: {error}")
