"""`glue chat`: a conversation in the terminal."""

from __future__ import annotations

import sys
from typing import Any

import click

from glue.agentcli import chat_options


@click.command()
@click.argument("file", required=False, metavar="[FILE.py]")
@chat_options
@click.option("-v", "--verbose", count=True, help="Thinking and the results of tools too.")
def chat(file: str | None, **given: Any) -> None:
    """Talk to the agent of FILE.py, or to a model.

    Ctrl-C cancels the answer, a second one leaves. A line that ends in \\ goes on in the next; three quotes (\"\"\")
    begin and end a longer text. /help lists what else can be typed.
    """
    from glue.commands.talk import talk

    agent = None
    if file is not None:
        from glue.commands.agentfile import open_agent

        agent = open_agent(file)
    sys.exit(talk(agent, given, path=file))
