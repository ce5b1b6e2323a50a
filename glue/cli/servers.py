"""`glue acp` and `glue mcp`: an agent as a server on standard input and output."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from typing import BinaryIO

import click


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False))
@click.option("-m", "--model", default="", help="A model by name, instead of a file.")
@click.option(
    "--tools",
    type=click.Choice(["coding", "fs", "git"]),
    default="coding",
    show_default=True,
    help="Ready-made tools for the model, in the editor's directory.",
)
@click.option("--store", type=click.Path(file_okay=False), help="Where sessions are kept.")
def acp(file: str | None, model: str, tools: str, store: str | None) -> None:
    """Serve the agent of FILE, or a model with ready-made tools, to an editor on standard input and output.

    Editors start this command themselves; docs/editors.md has the lines for Zed and Neovim.
    """
    if file and model:
        raise click.UsageError("give a file or a model, not both: the file names its own model")
    from glue.acp.server import serve

    streams = take_stdout()  # before any code of the user's runs: it may print
    if file:
        from glue.cli.agentfile import open_agent

        agent = open_agent(file)
        run(serve, lambda cwd, server: agent, *streams, store)
    else:
        from glue.acp.editor import ready_agent
        from glue.providers import default, lookup

        model = model or default()
        for each in model.split(","):
            lookup(each.strip())  # a wrong name is said now, and not in the middle of the first prompt
        run(serve, ready_agent(model, tools), *streams, store)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--allow",
    multiple=True,
    metavar="NAME",
    help="Allow a tool that needs permission; NAME or NAME:PATTERN, as often as needed.",
)
@click.option("--only-tools", is_flag=True, help="Offer the tools, and not the agent itself.")
def mcp(file: str, allow: tuple[str, ...], only_tools: bool) -> None:
    """Offer the tools of the agent of FILE, and the agent itself as one tool, as an MCP server.

    It speaks on standard input and output; programs that use MCP servers start this command themselves.
    """
    from pathlib import Path

    from glue.cli.agentfile import open_agent

    streams = take_stdout()  # before any code of the user's runs: it may print
    agent = open_agent(file)

    from glue.tools.mcp.server import make_server, offered, policy, serve

    tools = offered(agent, Path(file).stem)
    if only_tools:
        tools.popitem()
    server = make_server(agent, tools, policy(agent, allow))
    run(serve, server, *streams)


def run(function: Callable[..., Awaitable[None]], *args: object) -> None:
    """Run a server until the other end hangs up, or until Ctrl-C."""
    import anyio

    try:
        anyio.run(function, *args)
    except KeyboardInterrupt:
        os._exit(130)  # a thread still waits for a line, and nothing but the other end can wake it


def take_stdout() -> tuple[BinaryIO, BinaryIO]:
    """Keep the real standard output for the protocol; whatever else prints goes to standard error."""
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    sys.stdout = sys.stderr
    return source, sink
