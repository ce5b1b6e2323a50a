"""`glue run`: an agent file, or a model with ready-made tools."""

from __future__ import annotations

import sys
from typing import Any

import click

from glue.agentcli import run_options


@click.command()
@click.argument("words", nargs=-1, metavar="[FILE.py] PROMPT...")
@run_options
def run(words: tuple[str, ...], **given: Any) -> None:
    """Run the agent of FILE.py, or without one a model, with PROMPT.

    PROMPT is words, @FILE for a file's content, - for stdin; without any, stdin is read.

    \b
    glue run hello.py "Weather in Toronto?"
    glue run -m groq --tools fs,git "What changed last week?"
    git diff | glue run "Explain this:" -
    """
    from glue.commands.execute import execute

    agent, path = None, None
    if words and words[0].endswith(".py") and not words[0].startswith("@"):
        from glue.commands.agentfile import open_agent

        path, words = words[0], words[1:]
        agent = open_agent(path)
    sys.exit(execute(agent, words, given, path=path))
