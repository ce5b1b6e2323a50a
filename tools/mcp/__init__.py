"""Tools of MCP servers in an agent: over stdio or streamable HTTP, each call asked for like any other.

    async with mcp.connect("mcp.json") as servers:
        agent = glue.Agent("openai", tools=[*fs.tools("."), *servers.tools])

Needs the extra `glue-agents[mcp]`; the SDK is imported when a server is connected. Works under asyncio and trio.
"""

from __future__ import annotations

from glue.tools.mcp.config import ServerConfig as ServerConfig
from glue.tools.mcp.config import read_config as read_config
from glue.tools.mcp.connection import ServerConnection as ServerConnection
from glue.tools.mcp.connection import ServerPrompt as ServerPrompt
from glue.tools.mcp.connection import Servers as Servers
from glue.tools.mcp.connection import connect as connect
from glue.tools.mcp.connection import connect_http as connect_http
from glue.tools.mcp.connection import connect_stdio as connect_stdio

__all__ = [
    "ServerConfig",
    "ServerConnection",
    "ServerPrompt",
    "Servers",
    "connect",
    "connect_http",
    "connect_stdio",
    "read_config",
]
