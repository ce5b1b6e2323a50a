"""`glue acp` driven by the official Python SDK of the protocol."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

acp = pytest.importorskip("acp", reason="agent-client-protocol is not installed")

AGENT = """
import anyio
import glue
from glue.testing import Script, call, calls, fail, repeat, say
from glue.provider import TextDelta
from glue.provider import Capabilities

@glue.tool
def noop() -> str:
    '''Do nothing.'''
    return "ok"

@glue.tool(needs_permission=True)
def danger(what: str) -> str:
    '''Do something dangerous.'''
    return f"did {what}"

class Stuck:
    name = "stuck"
    async def stream(self, request):
        yield TextDelta(text="first ")
        await anyio.sleep_forever()

def step(request):
    text = request.messages[-1].text
    if text == "long": return say("x", stop="max_tokens", thinking="hm")
    if text == "turns": return calls("noop")
    if text == "bad": return say("no", stop="refusal")
    if text == "fail": return fail("overloaded")
    if text == "danger": return calls(call("danger", {"what": "x"}))
    return say("hello")

class Both:
    name = "both"
    capabilities = Capabilities(window=128_000)
    script = Script(repeat(step))
    def stream(self, request):
        return (Stuck() if request.messages[-1].text == "wait" else self.script).stream(request)

limits = glue.Limits(max_turns=1, continuation_max_attempts=0)
agent = glue.Agent(Both(), tools=[noop, danger], limits=limits)
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # the SDK does not support trio


class Client:
    """The callbacks of the SDK: it records updates and answers questions."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.first_text = anyio.Event()
        self.choice = "allow_once"

    def on_connect(self, connection: Any) -> None: ...

    async def session_update(self, session_id: str, update: Any, **more: Any) -> None:
        self.updates.append(update)
        if update.session_update == "agent_message_chunk":
            self.first_text.set()

    async def request_permission(
        self, session_id: str, tool_call: Any, options: Any, **more: Any
    ) -> Any:
        outcome = acp.schema.AllowedOutcome(outcome="selected", option_id=self.choice)
        return acp.schema.RequestPermissionResponse(outcome=outcome)

    def kinds(self) -> list[str]:
        return [update.session_update for update in self.updates]


Driven = Callable[[], AbstractAsyncContextManager[tuple[Client, Any, str]]]


@pytest.fixture
def driven(tmp_path: Path) -> Driven:
    """Start the agent, connect the SDK to it and open a session."""
    (tmp_path / "agent.py").write_text(AGENT)
    command = [
        "-c",
        "from glue.cli.app import main; main()",
        "acp",
        str(tmp_path / "agent.py"),
        "--store",
        str(tmp_path),
    ]

    @asynccontextmanager
    async def connect() -> AsyncIterator[tuple[Client, Any, str]]:
        client = Client()
        with anyio.fail_after(120):
            async with acp.spawn_agent_process(client, sys.executable, *command) as (connection, _):
                await connection.initialize(protocol_version=acp.PROTOCOL_VERSION)
                made = await connection.new_session(cwd=str(tmp_path), mcp_servers=[])
                yield client, connection, made.session_id

    return connect


def words(text: str) -> list[Any]:
    return [acp.text_block(text)]


async def test_prompts_end_with_the_expected_stop_reasons(driven: Driven) -> None:
    async with driven() as (client, connection, session):
        stop_reasons = {}
        for text in ("hi", "long", "turns", "bad"):
            stop_reasons[text] = (
                await connection.prompt(session_id=session, prompt=words(text))
            ).stop_reason
        with pytest.raises(acp.RequestError) as failed:
            await connection.prompt(session_id=session, prompt=words("fail"))

    assert stop_reasons == {
        "hi": "end_turn",
        "long": "max_tokens",
        "turns": "max_turn_requests",
        "bad": "refusal",
    }
    assert failed.value.data["kind"] == "overloaded"
    assert {
        "agent_message_chunk",
        "agent_thought_chunk",
        "tool_call",
        "tool_call_update",
        "usage_update",
    } <= set(client.kinds())


async def test_a_running_prompt_and_a_waiting_one_can_be_cancelled(driven: Driven) -> None:
    answers = []

    async with driven() as (client, connection, session):

        async def first() -> None:
            answers.append(await connection.prompt(session_id=session, prompt=words("wait")))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first)
            await client.first_text.wait()
            tasks.start_soon(first)
            await anyio.lowlevel.checkpoint()  # the SDK has written the prompt
            await connection.cancel(session_id=session)

    assert [answer.stop_reason for answer in answers] == ["cancelled", "cancelled"]


async def test_a_cancel_right_after_its_prompt_is_not_lost(driven: Driven) -> None:
    answers = []

    async with driven() as (_, connection, session):

        async def first() -> None:
            answers.append(await connection.prompt(session_id=session, prompt=words("wait")))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first)
            await anyio.lowlevel.checkpoint()  # the SDK has written the prompt
            await connection.cancel(session_id=session)

    assert answers[0].stop_reason == "cancelled"


async def test_permissions_loading_listing_and_options(driven: Driven, tmp_path: Path) -> None:
    async with driven() as (client, connection, session):
        await connection.prompt(session_id=session, prompt=words("danger"))
        client.choice = "reject_once"
        await connection.prompt(session_id=session, prompt=words("danger"))
        statuses = [
            u.status for u in client.updates if u.session_update == "tool_call_update" and u.content
        ]
        client.updates.clear()
        loaded = await connection.load_session(
            session_id=session, cwd=str(tmp_path), mcp_servers=[]
        )
        listed = await connection.list_sessions(cwd=str(tmp_path))
        await connection.set_session_mode(session_id=session, mode_id="allow")
        options = await connection.set_config_option(
            session_id=session, config_id="max_turns", value="7"
        )
        await connection.close_session(session_id=session)

    assert statuses == ["completed", "failed"]
    assert client.kinds()[:3] == ["user_message_chunk", "tool_call", "tool_call_update"]
    assert loaded.modes.current_mode_id == "ask"
    assert [each.session_id for each in listed.sessions] == [session]
    assert {option.id: option.current_value for option in options.config_options}.items() >= {
        "mode": "allow",
        "max_turns": "7",
    }.items()
