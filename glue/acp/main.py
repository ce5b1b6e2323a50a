"""Starting the server: which agent, which store, and a standard output that nobody else writes to."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import anyio

from glue.acp.server import DEFAULTS, Server
from glue.stores.file import FileStore

if TYPE_CHECKING:
    from glue.agent import Agent


def serve(make: Callable[[str, Server], Agent[Any, Any]], folder: str | None = None) -> None:
    """Serve one editor on standard input and output."""
    source, sink = take_stdout()
    server = Server(make, FileStore(folder or state_folder()), source, sink)
    anyio.run(server.serve)


def take_stdout() -> tuple[BinaryIO, BinaryIO]:
    """Keep the real standard output for the protocol; whatever else prints goes to standard error."""
    sink = os.fdopen(os.dup(1), "wb")
    source = os.fdopen(os.dup(0), "rb")
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


def coding_agent(model: str, bundle: str) -> Callable[[str, Server], Agent[Any, Any]]:
    """Make an agent with ready-made tools for whatever directory the editor works in."""

    def make(cwd: str, server: Server) -> Agent[Any, Any]:
        from glue.acp.client import editor_tools, plan_tool
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
