"""`glue mcp`: an agent's tools, and the agent itself, for other programs."""

from __future__ import annotations

import click


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

    from glue.acp.main import run, take_stdout
    from glue.commands.agentfile import open_agent

    streams = take_stdout()  # before any code of the user's runs: it may print
    agent = open_agent(file)

    from glue.tools.mcp.serve import make_server, offered, policy, serve

    tools = offered(agent, Path(file).stem)
    if only_tools:
        tools.popitem()
    server = make_server(agent, tools, policy(agent, allow))
    run(serve, server, *streams)
