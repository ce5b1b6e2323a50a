# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
# ///
"""Write release notes from a changelog: `python release_notes.py CHANGELOG.md 0.1.0 > notes.md`.

Names in backticks must be in the changelog. Notes with an invented name are sent back to the model.
"""

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from glue import Agent, AssistantMessage, GlueError
from glue.policies import Hook, Policy, nudge
from glue.providers import default

INSTRUCTIONS = """\
Write release notes for users from this section of a changelog: two sentences on what matters most,
then a list of at most five points, then how to upgrade if something must be changed. Write names of
commands, functions and options in backticks, exactly as the changelog has them."""


class NoInventedNames(Policy):
    """Ask the model, at most twice, to correct names in backticks that the changelog lacks."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.left = 2

    def on_settle(self, state: Any, reply: AssistantMessage) -> Hook:
        names = set(re.findall(r"`([^`\n]+)`", reply.text))
        invented = sorted(name for name in names if name not in self.source)
        if not invented or not self.left:
            return None
        self.left -= 1
        return nudge(f"These names are not in the changelog: {', '.join(invented)}. Correct them.")


def section(text: str, version: str) -> str:
    """Return the section of a version without its heading, or exit if it is missing."""
    found = re.search(
        rf"^## \[?{re.escape(version)}\b.*?\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
    )
    if found is None:
        raise SystemExit(f"error: section {version} is not in the changelog")
    return found[1].strip()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write release notes from a changelog.")
    parser.add_argument("changelog", type=Path)
    parser.add_argument("version")
    given = parser.parse_args()
    try:
        changes = section(given.changelog.read_text(), given.version)
        agent = Agent(
            default(),
            instructions=INSTRUCTIONS,
            policies=[NoInventedNames(changes)],
        )
        print(agent.run_sync(changes).text)
    except (GlueError, OSError) as error:
        sys.exit(f"error: {error}")
