"""Ten first tasks of a user, written with public names only and without a key."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from fakes.web import fetch

import glue
from glue.testing import Script, call, calls, repeat, say

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "web.md").read_text()


async def test_a_tool_queries_a_database(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as db, db:
        db.execute("CREATE TABLE items (name TEXT, price REAL)")
        db.execute("INSERT INTO items VALUES ('rice', 2.5)")

    @glue.tool
    def price(name: str) -> float:
        """Look up the price of an item."""
        # Connect in the tool: it runs in its own thread, and SQLite refuses other threads.
        with closing(sqlite3.connect(tmp_path / "shop.db")) as db:
            row = db.execute("SELECT price FROM items WHERE name = ?", (name,)).fetchone()
        if row is None:
            raise glue.ToolError(f"there is no item {name!r}")
        return float(row[0])

    model = Script(
        calls(call("price", {"name": "beans"})), calls(call("price", {"name": "rice"})), "2.50"
    )
    result = await glue.Agent(model, tools=[price]).run("What is rice?")

    said = [message.text for message in result.messages if isinstance(message, glue.ToolMessage)]
    assert said == ["there is no item 'beans'", "2.5"]


def web() -> dict[str, Any]:
    """Run the blocks of the page about web apps."""
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(block, names)
    return names


@pytest.mark.parametrize("app", ["api", "fast"])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_starlette_and_fastapi_stream_the_answer(
    app: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = web()
    names["agent"] = glue.Agent(Script(say("It is dry.", chunk=4)))

    answer = await fetch(names[app], "/ask?q=Toronto")

    texts = [each["text"] for each in answer.data if each["type"] == "text_delta"]
    assert "".join(texts) == "It is dry."
    assert answer.data[-1]["type"] == "result"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_generator_streams_plain_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = web()
    names["agent"] = glue.Agent(Script(say("It is dry.", chunk=4)))

    answer = await fetch(names["fast"], "/text?q=Toronto")

    assert answer.status == 200
    assert answer.body == b"It is dry."


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_webhook_is_answered_at_once_and_the_reply_is_posted_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = web()
    names["agent"] = glue.Agent(Script("It is dry."))
    posted = []

    async def post(channel: str, text: str) -> None:
        posted.append((channel, text))

    names["post"] = post
    answer = await fetch(names["hooks"], "/hook", {"channel": "C1", "text": "Weather?"})

    assert (answer.status, answer.body) == (200, b"")
    assert posted == [("C1", "It is dry.")]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_disconnect_of_the_browser_cancels_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended: list[str] = []

    class Endless:
        name = "endless"

        async def stream(self, request: glue.Request) -> Any:
            try:
                while True:
                    yield glue.provider.TextDelta(text="again ")
                    await anyio.sleep(0)
            finally:
                ended.append("closed")

    names = web()
    names["agent"] = glue.Agent(Endless())

    await fetch(names["api"], "/ask?q=x", hang_up_at="again")

    assert ended == ["closed"]


async def test_a_run_ends_after_its_budget_of_five_cents() -> None:
    @glue.tool
    def look() -> str:
        """Check again."""
        return "nothing yet"

    dear = calls("look", usage=glue.Usage(input=1, output=1, cost=0.02))
    agent = glue.Agent(Script(repeat(dear)), tools=[look], limits=glue.Limits(usd_budget=0.05))

    result = await agent.run("Continue until you find it.", unwrap=False)

    assert result.outcome is glue.Outcome.BUDGET
    assert result.cost == pytest.approx(0.06)
    assert str(result.error) == "the budget of $0.05 is spent: $0.06 used"


@pytest.mark.parametrize(("answer", "written"), [(True, True), (False, False)])
async def test_the_user_is_asked_before_a_file_is_written(
    tmp_path: Path, answer: bool, written: bool
) -> None:
    from glue.tools import fs

    asked: list[str] = []

    def ask(request: glue.permission.PermissionRequest) -> glue.permission.Decision:
        asked.append(f"{request.action} {request.target}")
        return glue.allow() if answer else glue.deny("not today")

    model = Script(calls(call("write_file", {"path": "a.txt", "content": "hi"})), "done")
    agent = glue.Agent(model, tools=fs.tools(tmp_path, write=True), permission=glue.Ask(ask))
    await agent.run("Write a.txt")

    assert asked == ["write_file a.txt"]
    assert (tmp_path / "a.txt").exists() is written


async def test_a_session_continues_in_another_process(tmp_path: Path) -> None:
    def remembers(request: glue.Request) -> str:
        return " / ".join(
            message.text for message in request.messages if isinstance(message, glue.UserMessage)
        )

    for prompt in ("My name is Ada.", "What is my name?"):
        agent = glue.Agent(Script(remembers))
        result = await agent.session("demo", store=glue.FileStore(tmp_path)).run(prompt)

    assert result.text == "My name is Ada. / What is my name?"


async def test_an_object_with_a_stream_method_is_a_provider() -> None:
    from glue import providers

    class Echo:
        name = "echo"

        async def stream(self, request: glue.Request) -> Any:
            text = request.messages[-1].text
            yield glue.provider.TextDelta(text=text)
            yield glue.provider.Done(
                message=glue.AssistantMessage(content=(glue.Text(text=text),), provider="echo")
            )

    result = await glue.Agent(Echo()).run("hello")
    assert result.text == "hello"
    assert providers.new("offline").name == "offline"


async def test_a_policy_sends_an_answer_back() -> None:
    class Polite(glue.policies.Policy):
        def on_settle(self, state: Any, reply: glue.AssistantMessage) -> Any:
            if "please" not in reply.text:
                return glue.policies.Say((glue.user("Say please.", origin="nudge"),))
            return None

    result = await glue.Agent(Script("Sit down.", "Sit down, please."), policies=[Polite()]).run(
        "Ask me to sit."
    )

    assert result.text == "Sit down, please."


def test_an_agent_is_tested_with_pytest(tmp_path: Path) -> None:
    (tmp_path / "test_agent.py").write_text(
        '''
import glue
from glue.testing import Script, call, calls

@glue.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b

def test_the_sum_is_returned():
    model = Script(calls(call("add", {"a": 2, "b": 3})), lambda request: request.messages[-1].text)
    assert glue.Agent(model, tools=[add]).run_sync("2 + 3?").text == "5"

def test_real_requests_are_refused():
    import pytest
    with pytest.raises(glue.GlueError):
        glue.Agent("openai:gpt-5-nano").run_sync("hi")
'''
    )
    line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]

    ran = subprocess.run(
        line, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
    )

    assert "2 passed" in ran.stdout, ran.stdout


@dataclass
class Ticket:
    title: str
    severity: Literal["low", "high"]


async def test_an_answer_becomes_an_object() -> None:
    wrong, right = (
        {"title": "Export fails", "severity": "urgent"},
        {"title": "Export fails", "severity": "high"},
    )
    agent = glue.Agent(Script(json.dumps(wrong), json.dumps(right)), output=Ticket)

    result = await agent.run("The export fails!")

    assert result.output == Ticket(title="Export fails", severity="high")
