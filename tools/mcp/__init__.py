"""Tools of MCP servers, over stdio or HTTP; each call asks for permission like any other tool.

    from glue.tools import mcp

    async with mcp.connect("mcp.json") as servers:
        agent = glue.Agent("openai", tools=servers.tools, permission=policy)
        result = await agent.run("Which issues are open?")

Needs the extra `glue-agents[mcp]`. Works under asyncio and trio.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from glue.lazy import lazy_names
from glue.tools.mcp.client import Servers, connect, connect_http, connect_stdio
from glue.tools.mcp.config import OAuth, ServerConfig, read_config

if TYPE_CHECKING:
    from glue.tools.mcp.connection import ServerConnection, ServerPrompt
    from glue.tools.mcp.questions import Question

__all__ = [
    "OAuth",
    "Question",
    "ServerConfig",
    "ServerConnection",
    "ServerPrompt",
    "Servers",
    "connect",
    "connect_http",
    "connect_stdio",
    "read_config",
]

# Loaded at first use: the module imports the SDK, which is optional and slow to load.
__getattr__, __dir__ = lazy_names(
    __name__, {"connection": "ServerConnection ServerPrompt", "questions": "Question"}
)
