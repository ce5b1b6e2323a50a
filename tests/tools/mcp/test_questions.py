"""Tests of questions of MCP servers: forms, pages, and the sessions that they go to."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from fakes.mcp_servers import use

import glue
from glue.context import Host
from glue.permission import Decision, PermissionRequest
from glue.testing import Script, call, calls
from glue.tools import mcp
from glue.tools.mcp.connection import RunningCall
from glue.tools.mcp.questions import ask_policy, read_question

SURE = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}
DROP = {"message": "Delete the database?", "form": SURE}
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("form", "page", "need")]


async def ask(connection: Any, tool: str, permission: Any) -> str:
    """Let an agent call a tool, and return the text of its result."""
    script = Script(calls(call(f"demo__{tool}")), "end")
    result = await glue.Agent(script, tools=connection.tools, permission=permission).run("go")
    return result.messages[2].text


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # only the rules differ
@pytest.mark.parametrize(
    ("permission", "action"),
    [
        (glue.Rules(allow=["demo__*"]), "decline"),
        (glue.Rules(allow=["*"]), "decline"),
        (glue.Rules(allow=["demo__form", "mcp-question:other"]), "decline"),
        (glue.AllowAll(), "decline"),
        (glue.Rules(allow=["demo__*"], otherwise=glue.AllowAll()), "decline"),
        (glue.Rules(allow=["demo__*", "mcp-question:demo"]), "accept"),
        (glue.Rules(allow=["demo__*", "mcp-question:d*"]), "accept"),
        (glue.Rules(allow=["*", "mcp-question:demo"], deny=["mcp-question"]), "decline"),
    ],
)
async def test_only_a_rule_about_questions_answers_a_question(
    scripted: Callable[..., Any], permission: Any, action: str
) -> None:
    async with scripted({"tools": TOOLS, **DROP}) as connection:
        answer = json.loads(await ask(connection, "form", permission))

    assert answer["action"] == action


async def test_a_page_is_declined_without_a_person_to_open_it(
    scripted: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    policy = glue.Rules(allow=["*", "mcp-question:demo"])
    asking = glue.Ask(lambda request: True)

    async with scripted({"tools": TOOLS}) as connection:
        answers = [json.loads(await ask(connection, "page", each)) for each in (policy, asking)]

    assert [answer["action"] for answer in answers] == ["decline", "decline"]
    assert "asked to open a page at https://example.com" in caplog.text


async def test_a_page_is_shown_with_its_origin_and_the_server_reports_its_end(
    scripted: Callable[..., Any],
) -> None:
    asked: list[mcp.Question] = []

    async def elicit(question: mcp.Question) -> dict[str, Any]:
        asked.append(question)
        return {}

    async with scripted({"tools": TOOLS}, elicit=elicit) as connection:
        answer = json.loads((await use(connection, "page")).text)
        with anyio.fail_after(30):
            await asked[0].finished.wait()

    assert answer == {"action": "accept"}
    assert (asked[0].url, asked[0].origin) == (
        "https://example.com/sign-in",
        "https://example.com",
    )
    assert (asked[0].server, asked[0].message) == ("demo", "Sign in.")


@pytest.mark.parametrize("agrees", [True, False])
async def test_a_call_that_needs_a_page_first_is_sent_again_after_it(
    scripted: Callable[..., Any], agrees: bool
) -> None:
    async def elicit(question: mcp.Question) -> dict[str, Any] | None:
        return {} if agrees else None

    async with scripted({"tools": TOOLS}, elicit=elicit) as connection:
        with anyio.fail_after(30):
            result = await use(connection, "need")

    assert result.is_error is not agrees
    assert ("fine" if agrees else "the user did not open https://example.com") in result.text


@pytest.mark.parametrize("url", ["file:///etc/passwd", "javascript:alert(1)", "https:///x"])
async def test_an_address_that_is_not_on_the_web_is_never_shown(
    scripted: Callable[..., Any], url: str
) -> None:
    async def elicit(question: mcp.Question) -> dict[str, Any]:
        raise AssertionError("shown")

    async with scripted({"tools": TOOLS, "url": url}, elicit=elicit) as connection:
        answer = json.loads((await use(connection, "page")).text)

    assert answer["action"] == "decline"


@pytest.mark.parametrize(
    ("answer", "sent"),
    [
        ({}, {"action": "accept", "content": {"name": "x", "age": 3}}),
        ({"age": 7}, {"action": "accept", "content": {"name": "x", "age": 7}}),
        ({"age": "many"}, {"action": "decline"}),
        (None, {"action": "decline"}),
    ],
)
async def test_defaults_are_added_to_an_answer_and_a_wrong_answer_is_declined(
    scripted: Callable[..., Any], answer: Any, sent: dict[str, Any]
) -> None:
    fields = {
        "name": {"type": "string", "default": "x"},
        "age": {"type": "integer", "default": 3},
    }
    form = {"type": "object", "properties": fields}

    async def elicit(question: mcp.Question) -> Any:
        return answer

    given = {"tools": TOOLS, "message": "W\u202eho?", "form": form}
    async with scripted(given, elicit=elicit) as connection:
        result = json.loads((await use(connection, "form")).text)

    assert result == sent


async def test_the_time_of_the_user_does_not_count_in_the_time_limit_of_the_call(
    scripted: Callable[..., Any],
) -> None:
    async def elicit(question: mcp.Question) -> dict[str, Any]:
        with anyio.CancelScope() as waiting:  # longer than the limit of the call
            waiting.deadline = anyio.current_time() + 0.6
            await anyio.sleep_forever()
        return {"sure": True}

    async with scripted({"tools": TOOLS, **DROP}, elicit=elicit, timeout=0.4) as connection:
        result = await use(connection, "form")

    assert json.loads(result.text)["action"] == "accept"


async def test_the_time_limit_of_the_call_starts_again_after_the_answer(
    scripted: Callable[..., Any],
) -> None:
    limits: list[float] = []

    async with scripted({"tools": TOOLS}, timeout=50) as connection:
        with anyio.CancelScope(deadline=anyio.current_time() + 50) as scope:
            running = RunningCall(glue.Context(call=call("demo__form")), scope)
            async with connection._waiting_for_user(running):
                limits.append(scope.deadline)
            limits.append(scope.deadline - anyio.current_time())

    assert limits[0] == math.inf
    assert 0 < limits[1] <= 50


async def test_a_question_is_declined_if_calls_of_several_sessions_run(
    scripted: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    class Policy:
        async def decide(self, request: PermissionRequest) -> Decision:
            seen.append(request.action)
            return glue.allow()

    async with scripted({"tools": TOOLS, **DROP}) as connection:
        # A second call is running, of another session, when the server asks.
        other: glue.Context[Any] = glue.Context(call=call("demo__form"))
        connection._calls.append(RunningCall(other))
        answer = json.loads(await ask(connection, "form", Policy()))
        connection._calls.clear()

    assert answer["action"] == "decline"
    assert seen == ["demo__form"]
    assert "calls of several sessions are running" in caplog.text


def test_the_question_names_the_session_and_the_call_that_caused_it() -> None:
    asked = SimpleNamespace(message="Sure?", requested_schema=SURE)
    context: glue.Context[None] = glue.Context(
        call=call("demo__form", id="c7"), host=Host(session_id="s1")
    )

    known, unknown = (read_question("demo", asked, each) for each in (context, None))

    assert known is not None
    assert unknown is not None
    assert (known.session_id, known.call_id) == ("s1", "c7")
    assert (unknown.session_id, unknown.call_id) == ("", "")


def test_a_question_is_cleaned_and_has_at_most_2000_characters() -> None:
    asked = SimpleNamespace(message="\u202e" + "x" * 3000, requested_schema=None)

    question = read_question("demo", asked, None)

    assert question is not None
    assert (question.message, question.schema) == ("x" * 2000, {})


FLAG, NAME = {"type": "boolean"}, {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "answer"),
    [
        ({}, {}),
        ({"properties": {"a": FLAG, "b": NAME}, "required": ["a"]}, {"a": True}),
        ({"properties": {"a": FLAG, "b": FLAG}, "required": ["a", "b"]}, {"a": True, "b": True}),
        ({"properties": {"a": FLAG, "b": NAME}, "required": ["a", "b"]}, None),
        ({"required": ["a"]}, None),
    ],
)
async def test_a_policy_agrees_only_to_forms_of_yes_and_no(schema: Any, answer: Any) -> None:
    question = mcp.Question(server="demo", message="Sure?", schema=schema)
    allowing = glue.Rules(allow=["mcp-question:demo"])

    def context(permission: Any) -> glue.Context[Any]:
        return glue.Context(call=call("demo__form"), host=Host(permission=permission))

    assert await ask_policy(question, context(allowing)) == answer
    assert await ask_policy(question, context(glue.Rules(deny=["mcp-question"]))) is None
    assert await ask_policy(question, context(None)) is None
    assert await ask_policy(question, None) is None


async def test_a_policy_never_opens_a_page() -> None:
    question = mcp.Question(server="demo", message="Sure?", url="https://example.com")
    host = Host(permission=glue.Rules(allow=["mcp-question:demo"]))

    assert await ask_policy(question, glue.Context(call=call("demo__form"), host=host)) is None


def test_the_question_has_the_host_in_ascii() -> None:
    url = "https://user@gооgle.com:8443/path"  # the letters о are Cyrillic

    assert mcp.Question(server="a", message="b", url=url).origin.startswith("https://xn--")
    assert mcp.Question(server="a", message="b", url=url).origin.endswith(":8443")
    plain = mcp.Question(server="a", message="b", url="https://example.com/path?query")
    assert plain.origin == "https://example.com"
