"""All imports from the MCP SDK. Other modules import the names of the SDK from this module.

Importing this module loads the SDK, which is an optional dependency and takes about half a second.
So `glue.tools.mcp` imports this module, and the modules that use it, only to connect to a server.
"""

from __future__ import annotations

from glue.errors import ConfigError
from glue.installing import install_command

try:
    import httpx2 as httpx2  # the HTTP library of the SDK
    import mcp_types as types
    from mcp import Client, MCPError
    from mcp.client.auth import OAuthClientProvider
    from mcp.client.auth.extensions.client_credentials import (
        ClientCredentialsOAuthProvider,
        PrivateKeyJWTOAuthProvider,
        SignedJWTParameters,
    )
    from mcp.client.sse import sse_client
    from mcp.client.stdio import get_default_environment
    from mcp.client.streamable_http import streamable_http_client
    from mcp.client.subscriptions import SubscriptionLost
    from mcp.server import Server, ServerRequestContext
    from mcp.server.stdio import stdio_server
    from mcp.shared.auth import (
        AuthorizationCodeResult,
        OAuthClientInformationFull,
        OAuthClientMetadata,
        OAuthToken,
    )
    from mcp.shared.exceptions import MCPDeprecationWarning
    from mcp.shared.message import SessionMessage
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS
    from pydantic import AnyUrl
except ImportError as error:
    raise ConfigError(
        f"MCP servers need the package mcp, version 2 or later: {install_command('mcp')}"
    ) from error

__all__ = [
    "MODERN_PROTOCOL_VERSIONS",
    "AnyUrl",
    "AuthorizationCodeResult",
    "Client",
    "ClientCredentialsOAuthProvider",
    "MCPDeprecationWarning",
    "MCPError",
    "OAuthClientInformationFull",
    "OAuthClientMetadata",
    "OAuthClientProvider",
    "OAuthToken",
    "PrivateKeyJWTOAuthProvider",
    "Server",
    "ServerRequestContext",
    "SessionMessage",
    "SignedJWTParameters",
    "SubscriptionLost",
    "get_default_environment",
    "httpx2",
    "sse_client",
    "stdio_server",
    "streamable_http_client",
    "types",
]
