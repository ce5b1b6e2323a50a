"""`glue acp` and `glue mcp`: an agent as a server on standard input and output."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from glue.errors import ConfigError, MissingKey

if TYPE_CHECKING:
    from glue.agent import Agent


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
@click.option("--store", metavar="PATH", help="The folder, .db file or postgresql:// address that keeps sessions.")
def acp(file: str | None, model: str, tools: str, store: str | None) -> None:
    """Serve the agent of FILE, or a model with ready-made tools, to an editor on standard input and output.

    Editors start this command themselves; docs/editors.md has the lines for Zed and Neovim.
    """
    if file and model:
        raise click.UsageError("give a file or a model, not both: the file names its own model")
    from glue.acp.editor import ready_agent
    from glue.acp.server import MakeAgent, serve
    from glue.cli.options import Sources
    from glue.options import Options
    from glue.stores import open_store

    streams = take_stdout()  # before any code of the user's runs: it may print
    agent = _agent(file) if file else None
    sources = Sources({"model": model, "store": store}, path=file, agent=agent)
    chosen: Any = agent.settings.model if agent is not None else _model(sources.find("model"))
    make: MakeAgent = ready_agent(chosen, tools) if agent is None else lambda cwd, server, more: agent
    kept = sources.find("store")
    budgets = sources.budgets(agent.settings if agent is not None else Options())
    run(serve, make, *streams, open_store(kept) if kept else None, _keys(chosen), sources.rules(), budgets)


def _agent(file: str) -> Agent[Any, Any]:
    from glue.cli.agentfile import open_agent

    return open_agent(file)


def _model(named: str | None) -> Any:
    """Give the model that was named, or the usual one; a wrong name is said now, not in the middle of a prompt."""
    from glue.providers import default, lookup, split

    try:
        chosen = named or default()
    except ConfigError as error:
        return _NoModel(error)  # the editor is told what to set, and not only its log
    for each in split(chosen):
        lookup(each)
    return chosen


class _NoModel:
    """Stands for a model where no key is set: each prompt says what to set."""

    name = "no model"

    def __init__(self, error: ConfigError) -> None:
        self.error = error

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        raise MissingKey("glue", _keys(self)) from self.error
        yield


def _keys(model: Any) -> list[str]:
    """Name the variables that could hold the keys of a model, where none of them does."""
    from glue.providers import key_available, known, lookup, split

    if isinstance(model, _NoModel):
        rows = [lookup(name) for name in known()]
        return ["GLUE_MODEL", *(row.key[0] for row in rows if row.key and not row.quirks.local)]
    found: list[str] = []
    for each in split(model) if isinstance(model, str) else ():
        with contextlib.suppress(ConfigError):
            if not key_available(each):
                found += lookup(each).key
    return found


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--allow",
    multiple=True,
    metavar="NAME",
    help="Allow a tool that needs permission; NAME or NAME:PATTERN, as often as needed.",
)
@click.option("--only-tools", is_flag=True, help="Offer the tools, and not the agent itself.")
@click.option("--http", metavar="[HOST:]PORT", help="Serve over HTTP at /mcp; the token is that of GLUE_MCP_TOKEN.")
def mcp(file: str, allow: tuple[str, ...], only_tools: bool, http: str | None) -> None:
    """Offer the tools of the agent of FILE, and the agent itself as one tool, as an MCP server.

    It speaks on standard input and output; programs that use MCP servers start this command themselves.
    """
    from pathlib import Path

    from glue.cli.options import Sources

    streams = take_stdout()  # before any code of the user's runs: it may print
    agent = _agent(file)

    from glue.tools.mcp.server import make_server, offered, policy, serve, serve_http

    tools = offered(agent, Path(file).stem)
    if only_tools:
        tools.popitem()
    rules = Sources({"allow": allow}, path=file, agent=agent).rules()
    server = make_server(agent, tools, policy(agent, **rules))
    if http is None:
        run(serve, server, *streams)
        return
    host, _, port = http.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise click.UsageError(f"--http takes a port, or host:port, not {http!r}")
    token = os.environ.get("GLUE_MCP_TOKEN", "")
    if len(token) < 16:
        raise click.UsageError(
            "--http needs a token of at least 16 characters in GLUE_MCP_TOKEN: `openssl rand -hex 24`"
        )
    host = host.strip("[]") or "127.0.0.1"
    try:
        listener = socket.create_server((host, int(port)), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise ConfigError(f"--http {http}: {error.strerror}") from None
    run(serve_http, server, host, listener, token)


def run(function: Callable[..., Awaitable[None]], *args: object) -> None:
    """Run a server until the other end hangs up, or a signal ends it and the commands that it runs."""
    import anyio

    caught: list[int] = []

    async def main() -> None:
        async def listen() -> None:
            with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
                async for number in signals:
                    caught.append(number)
                    tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen)
            await function(*args)
            tasks.cancel_scope.cancel()

    anyio.run(main)
    if caught:
        atexit._run_exitfuncs()
        os._exit(128 + caught[0])  # a thread still waits for a line, and nothing but the other end can wake it


def take_stdout() -> tuple[BinaryIO, BinaryIO]:
    """Keep the real standard output for the protocol; whatever else prints goes to standard error."""
    if sys.stdin is not None and sys.stdin.isatty():
        click.echo("glue: a server on standard input: the program that uses it starts it; Ctrl-C ends", err=True)
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    sys.stdout = sys.stderr
    return source, sink
