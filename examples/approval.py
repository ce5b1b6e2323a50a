# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
# ///
"""A tool that needs the user's permission: run `python approval.py`, then answer y, n or a."""

from pathlib import Path

from glue import Agent, Ask, allow, deny, tool
from glue.permission import Decision, PermissionRequest
from glue.providers import default


@tool(needs_permission=True, target="name")
def save(name: str, text: str) -> str:
    """Save a text to a file in the current folder."""
    path = Path(Path(name).name)  # without folders, so that no other folder is written
    path.write_text(text)
    return f"saved {len(text)} characters"


def ask(request: PermissionRequest) -> Decision:
    answer = (
        input(f"May I {request.action} {request.target}? [y]es, [n]o, [a]lways: ").strip().lower()
    )
    if answer == "a":
        return allow("always")
    return allow() if answer == "y" else deny("the user said no")


agent = Agent(default(otherwise="offline:stand-in"), tools=[save], permission=Ask(ask))

if __name__ == "__main__":
    agent.cli('Save the text "paper and patience" to haiku.txt.')
