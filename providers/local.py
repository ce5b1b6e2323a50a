"""A GGUF model that llama.cpp serves in this process: `local:/path/model.gguf`."""

from __future__ import annotations

import os
import re
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from glue import Provider, Request
from glue.errors import ConfigError
from glue.installing import install_command
from glue.messages import Json
from glue.provider import ProviderEvent, opened
from glue.providers import encoding
from glue.providers.http import HTTP
from glue.providers.openai_chat import OpenAIChat
from glue.providers.prompt_tools import with_prompt_tools
from glue.tasks import finish_in_thread


class _Served(NamedTuple):
    server: Any  # referenced until the process ends, because the server stops without a reference
    address: str
    key: str


_servers: dict[str, _Served] = {}
_lock = threading.Lock()


class LocalModel(OpenAIChat):
    """A provider that starts its own server at the first request, on loopback with a random key.

    llama.cpp silently drops tools if the chat template of the model does not support them. They are
    then described in the prompt (see `glue.providers.prompt_tools`).
    """

    _has_tools: bool | None = None  # whether the chat template has tools, once it is known

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        provider: Provider = _Native(self, super().stream)
        if request.tools and not await self._knows_tools():
            text = (
                "the chat template of this model does not support tools, "
                "so the prompt describes them"
            )
            for notice in self._notices([text], self.model):
                yield notice
            provider = with_prompt_tools(provider)
        async with opened(provider, request) as events:
            async for event in events:
                yield event

    async def _knows_tools(self) -> bool:
        if self._has_tools is None:
            headers = await self.headers({}, "", b"")
            root = HTTP(self.http.address.origin, provider=self.name)
            response = await root.request("GET", "/props", headers=headers)
            template = encoding.object_of(response.json()).get("chat_template")
            # A server that does not show its template is trusted.
            self._has_tools = re.search(r"\btools\b", str(template or "tools")) is not None
        return self._has_tools

    async def headers(
        self, options: Mapping[str, Json], target: str, body: bytes
    ) -> dict[str, str]:
        served = await finish_in_thread(serve, self.model, self.entry.window)
        if self.http.base_url != f"{served.address}/v1":
            self.http = HTTP(f"{served.address}/v1", provider=self.name, secrets=[served.key])
        return {"authorization": f"Bearer {served.key}"}


class _Native:
    """A provider that sends the requests of a LocalModel to its server, with the tools as tools.

    If the chat template does not support tools, `with_prompt_tools` wraps this provider.
    """

    def __init__(self, outer: LocalModel, stream: Callable[..., Any]) -> None:
        self.name, self.model, self.capabilities = outer.name, outer.model, outer.capabilities
        self.stream = stream


def serve(path: str, window: int) -> _Served:
    """Return the server of a model file. The first call loads the model and starts the server."""
    path = os.path.abspath(os.path.expanduser(path))
    with _lock:
        if path not in _servers:
            _servers[path] = _start(path, window)
        return _servers[path]


def _start(path: str, window: int) -> _Served:
    if not os.path.isfile(path):
        raise ConfigError(
            f"local: the file {path!r} does not exist; name a model as local:/path/model.gguf"
        )
    with open(path, "rb") as file:
        if file.read(4) != b"GGUF":  # llama.cpp would end the process
            raise ConfigError(f"local: {path!r} is not a GGUF file")
    try:
        engine = import_module("xllamacpp")
    except ImportError:
        raise ConfigError(
            f"local: llama.cpp is missing; install it: {install_command('local')}"
        ) from None
    key = secrets.token_urlsafe(24)
    params = engine.CommonParams()
    params.model.path = path
    params.n_ctx = window
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [key]
    params.use_jinja = True
    params.verbosity = -1
    # Leave one core free: the threads of llama.cpp spin, and without a spare core they slow each
    # other down a hundredfold.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = max(
        1, (os.cpu_count() or 2) - 1
    )
    try:
        server = engine.Server(params)
    except Exception as error:
        raise ConfigError(f"local: {path!r} cannot be loaded: {error}") from error
    return _Served(server, server.listening_address, key)
