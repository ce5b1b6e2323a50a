"""A GGUF model that llama.cpp serves in this process: `local:/path/model.gguf`."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

from glue.errors import ConfigError
from glue.messages import Json
from glue.providers.http import HTTP
from glue.providers.openai_chat import OpenAIChat
from glue.tasks import finish_in_thread


class _Served(NamedTuple):
    server: Any  # referenced until the process ends, because the server stops without a reference
    address: str
    key: str


_servers: dict[str, _Served] = {}
_lock = threading.Lock()


class LocalModel(OpenAIChat):
    """A provider that starts its own server at the first request, on loopback with a random key."""

    async def headers(
        self, options: Mapping[str, Json], target: str, body: bytes
    ) -> dict[str, str]:
        served = await finish_in_thread(serve, self.model, self.entry.window)
        if self.http.base_url != f"{served.address}/v1":
            self.http = HTTP(f"{served.address}/v1", provider=self.name, secrets=[served.key])
        return {"authorization": f"Bearer {served.key}"}


def serve(path: str, window: int) -> _Served:
    """Load a model file and start a server for it, or return the server that runs already."""
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
            "local: llama.cpp is missing; install it: pip install 'glue-agents[local]'"
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
