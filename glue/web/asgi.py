"""Import the names of Starlette that glue.web uses; raise ConfigError if one is missing."""

from __future__ import annotations

from glue.errors import ConfigError

try:
    from starlette.applications import Starlette
    from starlette.datastructures import Headers
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
    from starlette.routing import Route
    from starlette.types import ASGIApp, Receive, Scope, Send
except ImportError as error:
    raise ConfigError(
        f"glue.web needs the extra with starlette and uvicorn ({error.name} is missing): "
        "pip install 'glue-agents[web]'"
    ) from None

__all__ = [
    "ASGIApp",
    "HTMLResponse",
    "Headers",
    "JSONResponse",
    "PlainTextResponse",
    "Receive",
    "Request",
    "Response",
    "Route",
    "Scope",
    "Send",
    "Starlette",
]
