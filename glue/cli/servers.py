"""`glue acp` and `glue mcp`: serve an agent to an editor, or its tools to MCP clients."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, BinaryIO

import anyio
import click

from glue.acp.editor import ready_agent
from glue.acp.server import MakeAgent, serve
from glue.cli.agentfile import open_agent
from glue.cli.keys import set_key
from glue.cli.options import Sources, sandbox_options
from glue.cli.process import exit_now
from glue.errors import ConfigError, MissingKey
from glue.prompts import catalogs
from glue.providers import default, key_available, known, lookup, split
from glue.stores import open_store


@click.command()
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False))
@click.option(
    "-m", "--model", default="", help="Serve this provider or provider:model instead of FILE."
)
@click.option(
    "--tools",
    type=click.Choice(["coding", "fs", "git"]),
    default="coding",
    show_default=True,
    help="Built-in tools for the model, in the editor's directory.",
)
@click.option(
    "--store",
    metavar="PATH",
    help="Folder, .db file or postgresql:// address that stores sessions.",
)
@click.option(
    "--setup", is_flag=True, help="Ask for the key of a provider in the terminal, store it, exit."
)
@sandbox_options
def acp(
    file: str | None, model: str, tools: str, store: str | None, setup: bool, **shell: Any
) -> None:
    """Serve the agent of FILE, or a model with built-in tools, to an editor.

    The server speaks the Agent Client Protocol on standard input and output. The editor starts this
    command; docs/editors.md has the configuration for Zed and Neovim.
    """
    if file and model:
        raise click.UsageError("give a file or a model, not both: the file names its own model")
    if setup:
        _set_up(model)
        return
    streams = take_stdout()  # before the user's code runs, because it may print
    agent = open_agent(file) if file else None
    sources = Sources({"model": model, "store": store, **shell}, path=file, agent=agent)
    sources.check_shell_flags(agent is None and tools == "coding")
    chosen: Any = agent.settings.model if agent is not None else _model(sources.find("model"))
    make: MakeAgent = (
        ready_agent(chosen, tools, sources.shell_options())
        if agent is None
        else lambda cwd, server, more: agent
    )
    place = sources.find("store")
    opened = open_store(place) if place else None
    budgets = sources.budgets(agent.settings.limits if agent is not None else None)
    run(serve, make, *streams, opened, _missing_keys(chosen), sources.rules(), budgets)


def _set_up(model: str) -> None:
    """Ask for an API key and store it; if no model is named, first ask which provider it is for."""
    names = [name for name in known() if lookup(name).key and not lookup(name).quirks.local]
    provider = split(model)[0].partition(":")[0] if model else ""
    if not provider:
        provider = click.prompt("Provider", type=click.Choice(names), err=True)
    if set_key.callback is not None:
        set_key.callback(provider)


def _model(named: str | None) -> Any:
    """Return the named or default model, or a `_NoModel` if no model is named and no key is set.

    Raise ConfigError if the name is unknown.
    """
    try:
        chosen = named or default()
    except ConfigError as error:
        return _NoModel(error)  # the editor shows its error; it would not show this command's
    for each in split(chosen):
        lookup(each)
    return chosen


class _NoModel:
    """A provider for use without a key: every request fails and names the variables to set."""

    name = "no model"

    def __init__(self, error: ConfigError) -> None:
        self.error = error

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        raise MissingKey("glue", _missing_keys(self)) from self.error
        yield


def _missing_keys(model: Any) -> list[str]:
    """Return the environment variables for the keys that `model` lacks, or [] if it lacks none.

    If no model is named, return GLUE_MODEL and the variables of all providers that need a key.
    """
    if isinstance(model, _NoModel):
        entries = [lookup(name) for name in known()]
        keys = [entry.key[0] for entry in entries if entry.key and not entry.quirks.local]
        return ["GLUE_MODEL", *keys]
    found: list[str] = []
    if not isinstance(model, str):
        return found
    for each in split(model):
        with contextlib.suppress(ConfigError):
            if not key_available(each):
                found += lookup(each).key
    return found


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--allow",
    multiple=True,
    metavar="RULE",
    help="Allow tool calls that match RULE: write_file, 'shell:git status'. Repeatable.",
)
@click.option(
    "--only-tools",
    is_flag=True,
    help="Serve only the tools of the agent, not the agent itself as a tool.",
)
@click.option(
    "--http",
    metavar="[HOST:]PORT",
    help="Serve over HTTP at /mcp; clients need the token in GLUE_MCP_TOKEN.",
)
@click.option(
    "--prompts",
    metavar="FOLDER",
    help="Serve the versioned prompts in the subfolders of FOLDER.",
)
@click.option(
    "--files",
    type=click.Path(exists=True, file_okay=False),
    metavar="FOLDER",
    help="Serve the files below FOLDER as resources.",
)
@click.option("--store", metavar="PATH", help="Serve the sessions of this store as resources.")
def mcp(
    file: str,
    allow: tuple[str, ...],
    only_tools: bool,
    http: str | None,
    prompts: str | None,
    files: str | None,
    store: str | None,
) -> None:
    """Serve the tools of FILE's agent, and the agent itself as a tool, as an MCP server.

    Without --http, the server speaks on standard input and output, and the MCP client starts this
    command.
    """
    address = _http_address(http) if http is not None else None
    streams = take_stdout()  # before the user's code runs, because it may print
    agent = open_agent(file)
    # Loads mcp, an optional dependency.
    from glue.tools.mcp.library import Library
    from glue.tools.mcp.server import make_server, offered, policy, serve, serve_http

    tools = offered(agent, Path(file).stem)
    if only_tools:
        tools.popitem()
    rules = Sources({"allow": allow}, path=file, agent=agent).rules()
    library = Library(
        catalogs=catalogs(prompts) if prompts else (),
        root=os.path.abspath(files) if files else "",
        store=open_store(store) if store else None,
    )
    server = make_server(agent, tools, policy(agent, **rules), library)
    if address is None:
        run(serve, server, *streams)
        return
    host, port, token = address
    try:
        listener = socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
    except OSError as error:
        raise ConfigError(
            f"--http {http}: cannot listen: {error.strerror}; choose another address or port"
        ) from None
    run(serve_http, server, host, listener, token)


def _http_address(http: str) -> tuple[str, int, str]:
    """Return the host and the port of --http, and the token in GLUE_MCP_TOKEN.

    Raise UsageError if the port is not a number from 0 to 65535, or if the token is too short.
    """
    host, _, port = http.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise click.UsageError(f"--http takes a port, or host:port, not {http!r}")
    token = os.environ.get("GLUE_MCP_TOKEN", "")
    if len(token) < 16:
        raise click.UsageError(
            "--http needs a token of at least 16 characters in GLUE_MCP_TOKEN; "
            "`openssl rand -hex 24` makes one"
        )
    return host.strip("[]") or "127.0.0.1", int(port), token


def run(function: Callable[..., Awaitable[None]], *args: object) -> None:
    """Run a server until the client disconnects; exit the process if a signal arrives.

    The exit code is then 128 plus the number of the signal.
    """
    caught: list[int] = []

    async def main() -> None:
        async def listen() -> None:
            with anyio.open_signal_receiver(
                signal.SIGINT, signal.SIGTERM, signal.SIGHUP
            ) as signals:
                async for number in signals:
                    caught.append(number)
                    tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen)
            await function(*args)
            tasks.cancel_scope.cancel()

    anyio.run(main)
    if caught:
        exit_now(128 + caught[0])  # a thread is still blocked in reading standard input


def take_stdout() -> tuple[BinaryIO, BinaryIO]:
    """Redirect stdin and stdout of this process, and return the real ones for use by a protocol.

    From then on, code that reads stdin reads nothing, and output to stdout goes to stderr.
    """
    if sys.stdin is not None and sys.stdin.isatty():
        click.echo(
            "glue: this server reads standard input; an editor or MCP client should start it. "
            "Ctrl-C stops it",
            err=True,
        )
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    sys.stdout = sys.stderr
    return source, sink
