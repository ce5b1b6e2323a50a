"""Fixtures of the command line: an agent file, stored sessions, an environment that is restored."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

AGENT = '''\
# /// script
# dependencies = ["glue-agents"]
# ///
from glue import Agent, tool
from glue.testing import Script, call, calls, repeat, say

@tool(needs_permission=True, target="name")
def save(name: str, text: str = "") -> str:
    """Save a text.

    Args:
        name: of the file
        text: what to write
    """
    return f"saved {name}"

def answer(request):
    last = request.messages[-1]
    if "save" in last.text and last.__class__.__name__ == "UserMessage":
        return calls(call("save", {"name": "a.txt"}), text="One moment.")
    if "loop" in request.messages[0].text:
        return calls(call("save", {"name": f"{len(request.messages)}.txt"}))
    if "refuse" in last.text:
        return say("No.", stop="refusal")
    if "wait" in last.text:
        return say("waiting for ever", delay=600)
    return f"{len(request.messages)}: {last.text} \\x1b[31m"

agent = Agent(Script(repeat(answer)), tools=[save])

if __name__ == "__main__":
    agent.cli()
'''


@pytest.fixture(autouse=True)
def environ() -> Iterator[None]:
    """Restore the environment after a test: commands load keys and --env files into it."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def agent(cli: Callable[..., Any]) -> str:
    """Write an agent file with a tool that needs permission, and return its path.

    The answer is the number of messages and the last text, with an escape sequence of terminals.
    """
    Path("agent.py").write_text(AGENT)
    return "agent.py"


@pytest.fixture
def stored(cli: Callable[..., Any]) -> Callable[..., Any]:
    """Store the sessions `first` and `second`, and return the function that runs commands."""
    cli("run", "-m", "offline", "-s", "first", "Where is Oslo?")
    cli("run", "-m", "offline", "-s", "second", "Where is \x1b[31mBergen?")
    return cli
