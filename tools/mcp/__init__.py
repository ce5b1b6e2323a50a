"""Tools of MCP servers in an agent: over stdio or streamable HTTP, each call asked for like any other.

    async with mcp.connect("mcp.json") as servers:
        agent = glue.Agent("openai", tools=[*fs.tools("."), *servers.tools])

Needs the extra `glue-agents[mcp]`; the SDK is imported when a server is connected. Works under asyncio and trio.
"""

from __future__ import annotations

from glue.tools.mcp.connection import ServerConnection, ServerPrompt, Servers, connect, connect_http, connect_stdio
from glue.tools.mcp.transport import ServerConfig, read_config

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
