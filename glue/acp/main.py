"""Starting the server: which agent, which store, and a standard output that nobody else writes to."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from glue.acp.server import Server
    from glue.agent import Agent


def serve(
    make: Callable[[str, Server], Agent[Any, Any]], streams: tuple[BinaryIO, BinaryIO], folder: str | None = None
) -> None:
    """Serve one editor on the streams that `take_stdout` gave."""
    import logging

    from glue.acp.server import Server
    from glue.stores.file import FileStore

    logging.basicConfig(stream=sys.stderr, format="%(name)s: %(message)s")  # warnings; what it logs shows in the editor
    server = Server(make, FileStore(folder or state_folder()), *streams)
    run(server.serve)


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


def state_folder() -> str:
    """Say where sessions of editors are kept."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return str(Path(base) / "glue" / "acp")


def ready_agent(model: str, bundle: str) -> Callable[[str, Server], Agent[Any, Any]]:
    """Make an agent with ready-made tools for whatever directory the editor works in."""

    def make(cwd: str, server: Server) -> Agent[Any, Any]:
        from glue.acp.client import editor_tools, plan_tool
        from glue.acp.options import DEFAULTS
        from glue.agent import Agent
        from glue.tools import coding, fs, git

        if bundle == "coding":
            tools = coding.tools(cwd, trust=True, shell=True)
        else:
            tools = fs.tools(cwd)
            tools += git.tools(cwd, trust=True) if bundle == "git" else []
        tools = [*editor_tools(tools, cwd, server), plan_tool()]
        return Agent(model, tools=tools, instructions=coding.prompt(tools), limits=DEFAULTS, name="glue")

    return make


def fixed_agent(agent: Agent[Any, Any]) -> Callable[[str, Server], Agent[Any, Any]]:
    """Serve one agent, whatever the directory."""
    return lambda cwd, server: agent
