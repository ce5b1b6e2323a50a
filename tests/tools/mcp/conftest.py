"""Fixtures of the tests of MCP servers."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from fakes.mcp_servers import SCRIPTED, HttpServer

from glue.tools import mcp

# Without the extra [mcp], none of these tests can be imported.
collect_ignore_glob = [] if find_spec("mcp") else ["test_*.py"]


@pytest.fixture
def server(tmp_path: Path) -> Callable[..., Any]:
    """Return a function that starts a server from its source and connects to it."""

    def start(source: str, **options: Any) -> Any:
        (tmp_path / "server.py").write_text(source)
        return mcp.connect_stdio("demo", sys.executable, [str(tmp_path / "server.py")], **options)

    return start


@pytest.fixture
def scripted(tmp_path: Path) -> Callable[..., Any]:
    """Return a function that connects to SCRIPTED with the given behaviour."""

    def start(given: dict[str, Any], **options: Any) -> Any:
        (tmp_path / "scripted.py").write_text(SCRIPTED)
        # The behaviour is no part of the command, by which a server is recognised.
        (tmp_path / "given.json").write_text(json.dumps(given))
        run = f"import sys; sys.argv = ['', open({str(tmp_path / 'given.json')!r}).read()]; "
        run += f"exec(open({str(tmp_path / 'scripted.py')!r}).read())"
        return mcp.connect_stdio("demo", sys.executable, ["-c", run], **options)

    return start


@pytest.fixture
def web() -> Iterator[str]:
    """Serve an HttpServer and return its URL."""
    HttpServer.sessions, HttpServer.made, HttpServer.status = set(), [], 0
    with ThreadingHTTPServer(("127.0.0.1", 0), HttpServer) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/mcp"
        server.shutdown()
