"""The page about error messages quotes messages that glue really prints."""

from __future__ import annotations

import json
import re
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from fakes.zygote import Zygote

import glue
from glue import providers
from glue.stores import MemoryStore
from glue.testing import Recorder, Replay, Script, call, calls, fail, repeat
from glue.tools import fs

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
QUOTED = re.findall(r"^### `(.+)`$", PAGE, re.MULTILINE)
# Messages that only another environment causes: a missing package, a port that is in use.
IN_SOURCE = ("glue.web needs the extra", "cannot listen on")
COMMANDS = (
    ("run", "hi"),
    ("run", "missing.py", "hi"),
    ("run", "empty.py", "hi"),
    ("run", "-m", "offline", "-c", "hi"),
    ("run", "-m", "offline", "@missing.txt"),
    ("map", "agent.py", "in.jsonl", "-o", "out.jsonl"),
    ("run", "agent.py", "Save a file."),
)
AGENT = """
import glue

@glue.tool(needs_permission=True)
def save(name: str = "a") -> str:
    '''Save a file.'''
    return "saved"

agent = glue.Agent("offline", tools=[save])
"""


class Answering:
    """A transport that answers every request with the same status and body."""

    headers: Mapping[str, str] = {"content-type": "application/json"}

    def __init__(self, status: int, body: bytes) -> None:
        self.status, self.body = status, body

    @asynccontextmanager
    async def send(self, *_: object) -> AsyncIterator[Answering]:
        yield self

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self.body


def server(status: int, text: str, code: str = "") -> object:
    """Run an agent whose server sends this error."""
    body = json.dumps({"error": {"message": text, "code": code}}).encode()
    return over(Answering(status, body))


def over(transport: Answering) -> object:
    model = providers.new(
        "openai:gpt-5.4-nano",
        base_url="http://localhost/v1",
        key="sk-x",
        retries=False,
        transport=transport,
    )
    return glue.Agent(model).run_sync("hi")


def nobody_listens() -> object:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    model = providers.new("ollama:qwen3:0.6b", base_url=url, retries=False)
    return glue.Agent(model).run_sync("hi")


@glue.tool
def look() -> str:
    """Look."""
    return "nothing"


class Connection:
    """A class that no schema describes."""


def save(connection: Connection) -> None:
    """Save."""


def plain(word: str) -> str:
    """Return the word."""
    return word


class Waiting:
    """A provider that never answers."""

    name = "waiting"

    def __init__(self) -> None:
        self.asked = anyio.Event()

    async def stream(self, request: glue.Request) -> AsyncIterator[Any]:
        self.asked.set()
        await anyio.sleep_forever()
        yield


async def busy_sessions() -> list[str]:
    """Prompt a busy session through its own object, and through another one."""
    store, model = MemoryStore(), Waiting()
    session = glue.Agent(model).session("demo", store=store)
    said = []
    async with anyio.create_task_group() as group:
        group.start_soon(session.run, "a")
        await model.asked.wait()
        for each in (session, glue.Agent(Script("x")).session("demo", store=store)):
            with pytest.raises(glue.errors.SessionBusy) as caught:
                await each.run("b")
            said.append(str(caught.value))
        group.cancel_scope.cancel()
    return said


def finished_run() -> object:
    agent = glue.Agent(Script("x", "y"))
    return agent.resume_sync(agent.run_sync("a"))


def another_request() -> object:
    glue.Agent(Recorder(Script("x"), "run.jsonl")).run_sync("a")
    return glue.Agent(Replay("run.jsonl")).run_sync("b")


# Without logging, a bug in a tool is one line on stderr; under pytest, logging is configured.
BUG = """
import glue
from glue.testing import Script, call, calls

@glue.tool
def divide() -> float:
    return 1 / 0

glue.Agent(Script(calls(call("divide", {})), "sorry"), tools=[divide]).run_sync("x")
"""


def spent(**limits: Any) -> object:
    endless = Script(repeat(calls(call("look", {}))))
    return glue.Agent(endless, tools=[look]).run_sync("x", limits=glue.Limits(**limits))


OF_ANOTHER_TOOLKIT: Any = {"system": "x"}
PROVOKED: dict[str, Callable[[], object]] = {
    "no key": lambda: glue.Agent("anthropic").run_sync("hi"),
    "unknown provider": lambda: glue.Agent("antropic"),
    "401": lambda: server(401, "Incorrect API key provided: sk-x."),
    "404": lambda: server(404, "The model `gpt-9` does not exist", "model_not_found"),
    "429": lambda: server(429, "Rate limit reached", "rate_limit_exceeded"),
    "500": lambda: server(500, "The server had an error"),
    "too long": lambda: server(400, "This model's maximum context length is 8192 tokens."),
    "not a completion": lambda: over(Answering(200, b"<html>")),
    "nothing listens": nobody_listens,
    "all failed": lambda: glue.Agent(
        glue.with_failover(Script(fail("transient")), Script(fail("auth")))
    ).run_sync("hi"),
    "turns": lambda: spent(max_turns=2),
    "guard": lambda: spent(),
    "budget": lambda: spent(usd_budget=0.0),
    "price": lambda: glue.Agent(Script("x"), limits=glue.Limits(usd_budget=1)).run_sync("x"),
    "rule": lambda: glue.Agent(
        Script("x"), tools=[look], permission=glue.Rules(allow=["nope"])
    ).run_sync("x"),
    "function": lambda: glue.Agent(Script("x"), tools=[plain]),  # type: ignore[list-item]
    "class": lambda: glue.tool(save),
    "path": lambda: fs.safe_join(".", "../etc"),
    "output": lambda: glue.Agent(Script(repeat("no"))).run_sync("x", output=int),
    "dicts": lambda: glue.Agent(Script("x")).run_sync("x", message_history=[{"role": "user"}]),  # type: ignore[list-item]
    "argument": lambda: glue.Agent(Script("x"), **OF_ANOTHER_TOOLKIT),
    "immutable": lambda: setattr(glue.Agent(Script("x")), "limits", 1),
    "resume": finished_run,
    "script": lambda: glue.Agent(Script()).run_sync("x"),
    "cassette": another_request,
}


def pattern(quoted: str) -> str:
    return "(?s:.*)".join(map(re.escape, quoted.split("...")))


def message(provoke: Callable[[], object]) -> str:
    with pytest.raises((Exception, AssertionError)) as caught:
        provoke()
    return str(caught.value)


@pytest.fixture
def printed(cli: Callable[..., Any], zygote: Zygote) -> list[str]:
    """Cause every error, and return the messages."""
    Path("agent.py").write_text(AGENT)
    Path("empty.py").write_text("x = 1\n")
    Path("out.jsonl").touch()
    Path("in.jsonl").write_text('"hi"\n')
    said = [message(provoke) for provoke in PROVOKED.values()]
    said += anyio.run(busy_sessions)
    said.append(zygote.run([sys.executable, "-c", BUG], Path.cwd())[2])
    said += [cli(*arguments).err for arguments in COMMANDS]
    return [re.sub(r"^(glue: |✗ \S+  failed \d+ ms: )", "", text).strip() for text in said]


def test_every_error_that_is_caused_here_is_on_the_page(printed: list[str]) -> None:
    patterns = [pattern(quoted) for quoted in QUOTED]

    assert [text for text in printed if not any(re.match(each, text) for each in patterns)] == []


def test_every_message_on_the_page_is_printed_by_glue(printed: list[str]) -> None:
    sources = "".join(path.read_text() for path in (ROOT / "glue").rglob("*.py"))
    rest = [quoted for quoted in QUOTED if not quoted.startswith(IN_SOURCE)]

    assert [
        each for each in rest if not any(re.match(pattern(each), text) for text in printed)
    ] == []
    for quoted in set(QUOTED) - set(rest):
        assert quoted.partition("...")[0] in sources, quoted
