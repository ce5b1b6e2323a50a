"""A model file served in this process: starting the server, requests, and errors."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from glue import Agent, providers, tool
from glue.errors import ConfigError
from glue.provider import Notice
from glue.providers import local
from glue.providers.listing import server_models

CHUNK = {
    "choices": [{"index": 0, "delta": {"content": "hello"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1},
}
BODY = f"data: {json.dumps(CHUNK)}\n\ndata: [DONE]\n\n".encode()


@pytest.fixture
def engine(loopback: Any, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Any:
    """Replace xllamacpp by a fake whose server is a loopback server."""
    started: list[Any] = []
    body = getattr(request, "param", BODY)
    server = loopback(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))

    def params() -> Any:
        return SimpleNamespace(
            model=SimpleNamespace(), cpuparams=SimpleNamespace(), cpuparams_batch=SimpleNamespace()
        )

    def start(given: Any) -> Any:
        started.append(given)
        return SimpleNamespace(listening_address=server.url)

    monkeypatch.setitem(
        sys.modules, "xllamacpp", SimpleNamespace(CommonParams=params, Server=start)
    )
    monkeypatch.setattr(local, "_servers", {})
    return SimpleNamespace(started=started, seen=server.seen)


async def test_the_server_starts_at_first_use_and_once(engine: Any, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF....")
    agent = Agent(f"local:{tmp_path}/m.gguf")
    other = providers.new(f"local:{tmp_path}/m.gguf")
    assert engine.started == []

    first, second = await agent.run("hi"), await Agent(other).run("hi")

    assert (first.text, second.text, first.cost) == ("hello", "hello", 0.0)
    (params,) = engine.started
    assert (params.model.path, params.n_ctx, params.hostnames) == (
        f"{tmp_path}/m.gguf",
        8192,
        ["127.0.0.1"],
    )
    assert params.verbosity == -1  # no log
    assert len(params.api_keys[0]) == 32  # 24 random bytes
    assert (params.port, params.use_jinja) == (0, True)  # a free port, and templates with tools
    threads = max(1, (os.cpu_count() or 2) - 1)
    assert (params.cpuparams.n_threads, params.cpuparams_batch.n_threads) == (threads, threads)
    assert engine.seen[0].headers["authorization"] == f"Bearer {params.api_keys[0]}"
    assert engine.seen[0].line.startswith("POST /v1/chat/completions")


@pytest.mark.parametrize(("cores", "threads"), [(1, 1), (2, 1), (8, 7), (None, 1)])
async def test_one_core_is_left_free(
    engine: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cores: int | None,
    threads: int,
) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF....")
    monkeypatch.setattr(os, "cpu_count", lambda: cores)

    await Agent(f"local:{tmp_path}/m.gguf").run("hi")

    assert engine.started[0].cpuparams.n_threads == threads


@pytest.mark.parametrize("engine", [b'{"data": [{"id": "m.gguf"}]}'], indirect=True)
async def test_models_are_listed_by_the_local_server(engine: Any, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF....")

    assert await server_models(f"local:{tmp_path}/m.gguf") == ["m.gguf"]

    assert engine.seen[0].line.startswith("GET /v1/models")
    assert engine.seen[0].headers["authorization"] == f"Bearer {engine.started[0].api_keys[0]}"


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("none.gguf", None, "does not exist"),
        ("x.txt", b"hello", "is not a GGUF file"),
        ("m.gguf", b"GGUF", r"\[local\]"),
    ],
)
async def test_a_file_that_cannot_be_served_is_a_config_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: Any, what: str
) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    if content is not None:
        (tmp_path / name).write_bytes(content)

    with pytest.raises(ConfigError, match=what):
        await Agent(f"local:{tmp_path}/{name}").run("hi")


def test_without_a_file_the_error_shows_how_to_name_a_model() -> None:
    with pytest.raises(ConfigError, match="local: no model"):
        providers.new("local")


PROPS = json.dumps({"chat_template": "{% for message in messages %}...{% endfor %}"}).encode()


async def test_a_template_without_tools_is_said_and_tools_go_into_the_prompt(
    loopback: Any, engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answered(body: bytes) -> bytes:
        return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)

    text = '<tool_call>{"name": "look", "arguments": {}}</tool_call>'
    called = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": "stop"}]}
    server = loopback(
        answered(PROPS), answered(f"data: {json.dumps(called)}\n\n".encode()), answered(BODY)
    )
    monkeypatch.setattr(local, "serve", lambda path, window: local._Served(None, server.url, "key"))
    seen: list[Any] = []

    @tool
    def look() -> str:
        """Look around."""
        return "a garden"

    agent = Agent(f"local:{tmp_path}/m.gguf", tools=[look])
    result = await agent.run("go", on_event=seen.append)
    await agent.aclose()

    notices = [event.text for event in seen if isinstance(event, Notice)]
    text = "the chat template of this model does not support tools, so the prompt describes them"
    assert notices == [text]
    assert result.text == "hello"
    bodies = [json.loads(request.body) for request in server.seen[1:]]
    assert all("tools" not in body for body in bodies)
    assert "a garden" in bodies[1]["messages"][-1]["content"]


@pytest.mark.parametrize(
    ("props", "is_native"),
    [
        ({"chat_template": "{% if tools %}...{% endif %}"}, True),
        ({"chat_template": "{{ my_tools }}"}, False),
        ({}, True),  # a server that does not show its template
        ([], True),
    ],
)
async def test_tools_are_sent_to_the_server_if_its_template_has_tools(
    loopback: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    props: Any,
    is_native: bool,
) -> None:
    shown = json.dumps(props).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n"
    server = loopback(head % len(shown) + shown, head % len(BODY) + BODY)
    monkeypatch.setattr(local, "serve", lambda path, window: local._Served(None, server.url, "key"))

    @tool
    def look() -> str:
        """Look around."""
        return "a garden"

    agent = Agent(f"local:{tmp_path}/m.gguf", tools=[look])
    for _ in range(2):
        assert (await agent.run("go")).text == "hello"
    await agent.aclose()

    lines = [request.line.split()[1] for request in server.seen]
    assert lines == ["/props", "/v1/chat/completions", "/v1/chat/completions"]
    assert {request.headers["authorization"] for request in server.seen} == {"Bearer key"}
    assert ("tools" in json.loads(server.seen[1].body)) == is_native


async def test_a_file_that_llama_cpp_refuses_is_named_with_its_reason(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(params: Any) -> None:
        raise RuntimeError("unknown architecture")

    (tmp_path / "m.gguf").write_bytes(b"GGUF....")
    monkeypatch.setattr(sys.modules["xllamacpp"], "Server", refuse)

    with pytest.raises(ConfigError, match=r"m\.gguf' cannot be loaded: unknown architecture"):
        await Agent(f"local:{tmp_path}/m.gguf").run("hi")
