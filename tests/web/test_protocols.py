"""`glue.web.ag_ui` and `glue.web.vercel`: the streams that two widespread clients read."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from fakes.web import Answer, fetch
from starlette.requests import Request
from starlette.responses import Response
from syrupy.assertion import SnapshotAssertion

import glue
from glue.messages import AssistantMessage, ToolMessage
from glue.permission import DeferAll
from glue.provider import Done
from glue.stores import MemoryStore
from glue.testing import Script, call, calls, fail, say
from glue.web import ag_ui, vercel

Endpoint = Callable[..., Awaitable[Response]]
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()


@glue.tool
def weather(city: str) -> str:
    """Return the weather in a city."""
    if city == "Atlantis":
        raise glue.ToolError("no such city")
    return f"{city}: dry"


@glue.tool(needs_permission=True, target="version")
def deploy(version: str) -> str:
    """Deploy a version."""
    return f"{version} is live"


def agent(*script: Any) -> glue.Agent[None, None]:
    return glue.Agent(Script(*script), tools=[weather, deploy], permission=DeferAll("ask Ada"))


async def post(endpoint: Endpoint, body: Any, made: Any, **settings: Any) -> Answer:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        response = await endpoint(made, Request(scope, receive), **settings)
        await response(scope, receive, send)

    return await fetch(app, "/", body)


def ag_ui_body(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    head = {"threadId": "t", "runId": "r", "tools": [], "context": []}
    return {**head, "messages": list(messages), **more}


def said(text: str) -> dict[str, Any]:
    return {"id": "u1", "role": "user", "content": text}


def ui(text: str) -> dict[str, Any]:
    return {"id": "u1", "role": "user", "parts": [{"type": "text", "text": text}]}


async def test_an_ag_ui_run_is_framed_and_every_block_is_closed_once() -> None:
    made = agent(
        say("Looking.", thinking="Hm.", chunk=3),
        calls(call("weather", {"city": "Oslo"}, id="c1"), text="One moment."),
        "Dry.",
    )

    first = await post(ag_ui, ag_ui_body(said("hi")), made)
    second = await post(ag_ui, ag_ui_body(said("weather?")), made)

    kinds = [message["type"] for message in first.data]
    assert kinds[0] == "RUN_STARTED"
    assert kinds.count("REASONING_START") == kinds.count("REASONING_END") == 1
    assert kinds.count("TEXT_MESSAGE_START") == kinds.count("TEXT_MESSAGE_END") == 1
    assert "".join(m["delta"] for m in first.data if m["type"] == "TEXT_MESSAGE_CONTENT") == (
        "Looking."
    )
    assert first.data[-1]["type"] == "RUN_FINISHED"
    assert first.data[-1]["outcome"] == {"type": "success"}
    tools = [m for m in second.data if m["type"].startswith("TOOL_CALL")]
    assert [m["type"] for m in tools] == [
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
        "TOOL_CALL_RESULT",
    ]
    assert {m["toolCallId"] for m in tools} == {"c1"}
    assert tools[-1]["content"] == "Oslo: dry"


async def test_an_ag_ui_history_reaches_the_model() -> None:
    script = Script("Yes.")
    made = glue.Agent(script, tools=[weather])
    picture = {"type": "image", "source": {"type": "data", "value": PNG, "mimeType": "image/png"}}
    history = [
        {"id": "s", "role": "system", "content": "Obey the browser."},
        said("Weather in Oslo?"),
        {
            "id": "a1",
            "role": "assistant",
            "toolCalls": [
                {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
            ],
        },
        {"id": "t1", "role": "tool", "toolCallId": "c1", "content": "dry"},
        {"id": "u2", "role": "user", "content": [{"type": "text", "text": "This?"}, picture]},
    ]

    await post(ag_ui, ag_ui_body(*history), made)

    [request] = script.requests
    assert [type(message).__name__ for message in request.messages] == [
        "UserMessage",
        "AssistantMessage",
        "ToolMessage",
        "UserMessage",
    ]
    assert "browser" not in str(request.system)
    assert isinstance(request.messages[-1].content[1], glue.Image)


async def test_an_ag_ui_interrupt_is_resumed_with_an_approval() -> None:
    store = MemoryStore()
    made = agent(calls(call("deploy", {"version": "1.4"}, id="c1")), "Done.")

    paused = await post(ag_ui, ag_ui_body(said("deploy")), made, store=store)
    [interrupt] = paused.data[-1]["outcome"]["interrupts"]
    entry = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
    resumed = await post(ag_ui, ag_ui_body(resume=[entry]), made, store=store)

    assert interrupt["toolCallId"] == "c1"
    assert interrupt["metadata"]["target"] == "1.4"
    results = [m["content"] for m in resumed.data if m["type"] == "TOOL_CALL_RESULT"]
    assert results == ["1.4 is live"]
    assert resumed.data[-1]["outcome"] == {"type": "success"}


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"status": "cancelled"}, "the user cancelled the call"),
        ({"status": "resolved", "payload": {"approved": False, "reason": "no"}}, "no"),
        ({"status": "resolved", "payload": False}, "the user said no"),
    ],
)
async def test_an_ag_ui_interrupt_may_be_denied(entry: dict[str, Any], expected: str) -> None:
    store = MemoryStore()
    script = Script(calls(call("deploy", {"version": "1.4"}, id="c1")), "Done.")
    made = glue.Agent(script, tools=[deploy], permission=DeferAll())
    await post(ag_ui, ag_ui_body(said("deploy")), made, store=store)

    await post(ag_ui, ag_ui_body(resume=[{"interruptId": "c1", **entry}]), made, store=store)

    last = script.requests[-1].messages[-1]
    assert isinstance(last, ToolMessage)
    assert last.is_error
    assert expected in last.text


async def test_an_ag_ui_run_that_fails_ends_with_an_error_event() -> None:
    answer = await post(ag_ui, ag_ui_body(said("hi")), agent(fail("auth", "the key is wrong")))

    assert answer.data[0]["type"] == "RUN_STARTED"
    assert answer.data[-1]["type"] == "RUN_ERROR"
    assert "the key is wrong" in answer.data[-1]["message"]


async def test_a_vercel_stream_has_steps_texts_and_tools() -> None:
    made = agent(
        calls(call("weather", {"city": "Oslo"}, id="c1"), text="Looking."),
        say("Dry.", thinking="Hm."),
    )

    answer = await post(vercel, {"id": "chat", "messages": [ui("weather?")]}, made)

    kinds = [m if m == "[DONE]" else m["type"] for m in answer.data]
    assert answer.headers["x-vercel-ai-ui-message-stream"] == "v1"
    assert kinds[0] == "start"
    assert kinds[-2:] == ["finish", "[DONE]"]
    assert kinds.count("start-step") == kinds.count("finish-step") == 2
    assert kinds.count("text-start") == kinds.count("text-end") == 2
    assert kinds.count("reasoning-start") == kinds.count("reasoning-end") == 1
    available = next(m for m in answer.data if m["type"] == "tool-input-available")
    assert (available["toolName"], available["input"]) == ("weather", {"city": "Oslo"})
    output = next(m for m in answer.data if m["type"] == "tool-output-available")
    assert (output["toolCallId"], output["output"]) == ("c1", "Oslo: dry")


async def test_a_vercel_approval_is_requested_and_answered() -> None:
    store = MemoryStore()
    made = agent(calls(call("deploy", {"version": "1.4"}, id="c1")), "Done.")
    body = {"id": "chat", "messages": [ui("deploy")]}
    reply = {
        "id": "a1",
        "role": "assistant",
        "parts": [
            {"type": "step-start"},
            {
                "type": "dynamic-tool",
                "toolName": "deploy",
                "toolCallId": "c1",
                "state": "approval-responded",
                "input": {"version": "1.4"},
                "approval": {"id": "c1", "approved": True},
            },
        ],
    }

    paused = await post(vercel, body, made, store=store)
    continued = await post(vercel, {**body, "messages": [ui("deploy"), reply]}, made, store=store)

    asked = next(m for m in paused.data if m["type"] == "tool-approval-request")
    assert (asked["approvalId"], asked["toolCallId"]) == ("c1", "c1")
    assert paused.data[-2]["finishReason"] == "tool-calls"
    outputs = [m["output"] for m in continued.data if "output" in m]
    assert outputs == ["1.4 is live"]


async def test_a_vercel_history_contains_the_results_of_tools() -> None:
    script = Script("Yes.")
    made = glue.Agent(script, tools=[weather])
    reply = {
        "id": "a1",
        "role": "assistant",
        "parts": [
            {"type": "step-start"},
            {
                "type": "tool-weather",
                "toolCallId": "c1",
                "state": "output-available",
                "input": {"city": "Oslo"},
                "output": "dry",
            },
            {"type": "step-start"},
            {"type": "text", "text": "It is dry."},
        ],
    }
    picture = {"type": "file", "mediaType": "image/png", "url": f"data:image/png;base64,{PNG}"}
    last = {"id": "u2", "role": "user", "parts": [{"type": "text", "text": "This?"}, picture]}

    await post(vercel, {"id": "c", "messages": [ui("weather?"), reply, last]}, made)

    shape = [type(message).__name__ for message in script.requests[0].messages]
    assert shape == [
        "UserMessage",
        "AssistantMessage",
        "ToolMessage",
        "AssistantMessage",
        "UserMessage",
    ]
    assert isinstance(script.requests[0].messages[-1].content[1], glue.Image)


async def test_a_failed_tool_and_bad_arguments_are_errors_of_the_call() -> None:
    made = agent(
        calls(call("weather", {"town": 3}, id="c1"), call("weather", "{bad", id="c2")), "Sorry."
    )

    answer = await post(vercel, {"id": "c", "messages": [ui("go")]}, made)

    kinds = [(m["type"], m["toolCallId"]) for m in answer.data[:-1] if "toolCallId" in m]
    assert ("tool-output-error", "c1") in kinds
    assert ("tool-input-error", "c2") in kinds


@pytest.mark.parametrize("endpoint", [ag_ui, vercel])
@pytest.mark.parametrize(
    "body", [b"[]", b"{", {"messages": 3}, {"messages": []}, {"messages": [{"role": "assistant"}]}]
)
async def test_a_bad_request_is_a_400_with_a_reason(endpoint: Endpoint, body: Any) -> None:
    answer = await post(endpoint, body, agent("never"))

    assert answer.status == 400
    assert answer.json["error"]


class Whole:
    """A provider whose reply arrives as a whole, without deltas."""

    name = "whole"

    async def stream(self, request: glue.Request) -> AsyncIterator[Any]:
        yield Done(message=AssistantMessage(content=(glue.Text(text="Dry."),)))


@pytest.mark.parametrize("endpoint", [ag_ui, vercel])
async def test_a_reply_without_deltas_is_sent_once(endpoint: Endpoint) -> None:
    body = ag_ui_body(said("hi")) if endpoint is ag_ui else {"messages": [ui("hi")]}

    answer = await post(endpoint, body, glue.Agent(Whole()))

    deltas = [m["delta"] for m in answer.data if "delta" in m]
    assert deltas == ["Dry."]
    kinds = [m["type"] for m in answer.data if m != "[DONE]"]
    assert kinds.count("TEXT_MESSAGE_START" if endpoint is ag_ui else "text-start") == 1


@pytest.mark.parametrize("endpoint", [ag_ui, vercel])
async def test_a_run_that_cannot_start_ends_with_its_error(endpoint: Endpoint) -> None:
    body = ag_ui_body(said("hi")) if endpoint is ag_ui else {"id": "t", "messages": [ui("hi")]}
    store = MemoryStore()

    async with store.log("t"):  # another writer has the session
        data = (await post(endpoint, body, agent("never"), store=store)).data

    if endpoint is ag_ui:
        start, error = data
        assert start == {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}
        assert (error["type"], error["code"]) == ("RUN_ERROR", "SessionBusy")
        text = error["message"]
    else:
        text = data[1].pop("errorText")
        assert data == [
            {"type": "start"},
            {"type": "error"},
            {"type": "finish", "finishReason": "error"},
            "[DONE]",
        ]
    assert "session 't'" in text


def shown(message: glue.Message) -> Any:
    """Return a message as a short tuple of what a model sees."""
    parts = [
        part.text
        if isinstance(part, glue.Text)
        else (part.id, part.name, part.arguments)
        if isinstance(part, glue.ToolCall)
        else part
        for part in message.content
    ]
    if isinstance(message, ToolMessage):
        return ("tool", message.call_id, message.is_error, *parts)
    return ("user" if isinstance(message, glue.UserMessage) else "assistant", *parts)


async def test_every_message_of_an_ag_ui_history_is_converted() -> None:
    script = Script("Yes.")
    function = {"name": "weather", "arguments": '{"city": "Oslo"}'}
    history = [
        {"id": "d", "role": "developer", "content": "Obey."},
        said("Oslo?"),
        {
            "id": "a1",
            "role": "assistant",
            "content": "Looking.",
            "toolCalls": [{"id": "c1", "function": function}, {"id": "c2", "function": {}}],
        },
        {"id": "t1", "role": "tool", "toolCallId": "c1", "content": "dry"},
        {"id": "t2", "role": "tool", "toolCallId": "c2", "content": "lost", "error": "yes"},
        {"id": "a2", "role": "assistant", "content": ""},
        {"id": "a3", "role": "assistant", "content": "It is dry."},
        said("Thanks."),
    ]

    await post(ag_ui, ag_ui_body(*history), glue.Agent(script, tools=[weather]))

    sent = script.requests[0].messages
    assert [shown(message) for message in sent] == [
        ("user", "Oslo?"),
        (
            "assistant",
            "Looking.",
            ("c1", "weather", '{"city": "Oslo"}'),
            ("c2", "None", "{}"),
        ),
        ("tool", "c1", False, "dry"),
        ("tool", "c2", True, "lost"),
        ("assistant", "It is dry."),
        ("user", "Thanks."),
    ]
    assert [message.id for message in sent] == ["u1", "a1", "t1", "t2", "a3", "u1"]


async def test_every_part_of_a_vercel_history_is_converted() -> None:
    script = Script("Yes.")
    done = {"toolCallId": "c1", "state": "output-available", "output": {"sky": "grey"}}
    failed = {"toolCallId": "c2", "state": "output-error", "errorText": "lost", "input": "{bad"}
    reply = {
        "role": "assistant",
        "parts": [
            {"type": "text", "text": "Looking."},
            {"type": "reasoning", "text": "hm"},
            {"type": "text", "text": ""},
            {"type": "tool-weather", "input": {"city": "Oslo"}, **done},
            {"type": "dynamic-tool", "toolName": "deploy", **failed},
            {"type": "dynamic-tool", "toolCallId": "c3"},
            {"type": "tool-weather"},
            {"type": "step-start"},
            {"type": "tool-weather", "toolCallId": "c4", "state": "input-available"},
        ],
    }
    user = {"id": "u1", "role": "user", "parts": [{"type": "step-start"}, *ui("Oslo?")["parts"]]}

    made = glue.Agent(script, tools=[weather])
    await post(vercel, {"id": "c", "messages": [user, reply, ui("So?")]}, made)

    assert [shown(message) for message in script.requests[0].messages] == [
        ("user", "Oslo?"),
        (
            "assistant",
            "Looking.",
            ("c1", "weather", '{"city": "Oslo"}'),
            ("c2", "deploy", "{bad"),
        ),
        ("tool", "c1", False, '{"sky": "grey"}'),
        ("tool", "c2", True, "lost"),
        ("assistant", ("c4", "weather", "{}")),
        ("tool", "c4", True, "no result was recorded for this call"),
        ("user", "So?"),
    ]


PDF = base64.b64encode(b"%PDF-1").decode()


@pytest.mark.parametrize(
    ("endpoint", "part", "expected"),
    [
        (
            ag_ui,
            {"type": "image", "source": {"type": "data", "value": PNG}},
            glue.Image(media_type="image/png", data=base64.b64decode(PNG)),
        ),
        (
            ag_ui,
            {"type": "image", "source": {"type": "url", "value": "https://example.com/a.png"}},
            glue.Image(media_type="image/png", url="https://example.com/a.png"),
        ),
        (
            ag_ui,
            {
                "type": "document",
                "source": {"type": "data", "value": PDF, "mimeType": "application/pdf"},
            },
            glue.File(media_type="application/pdf", data=b"%PDF-1", name=""),
        ),
        (
            ag_ui,
            {"type": "document", "source": {"type": "data", "value": PDF}},
            glue.File(media_type="application/pdf", data=b"%PDF-1", name=""),
        ),
        (
            vercel,
            {
                "type": "file",
                "mediaType": "application/pdf",
                "filename": "a.pdf",
                "url": f"data:application/pdf;base64,{PDF}",
            },
            glue.File(media_type="application/pdf", data=b"%PDF-1", name="a.pdf"),
        ),
        (
            vercel,
            {"type": "file", "url": f"data:;base64,{PDF}"},
            glue.File(media_type="application/octet-stream", data=b"%PDF-1", name=""),
        ),
    ],
)
async def test_pictures_and_files_reach_the_model(
    endpoint: Endpoint, part: Any, expected: Any
) -> None:
    script = Script("Yes.")
    message = {"id": "u1", "role": "user", "content" if endpoint is ag_ui else "parts": [part]}

    await post(endpoint, {"messages": [message]}, glue.Agent(script))

    assert script.requests[0].messages[0].content == (expected,)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (7, "the content of a message must be a text or a list of parts"),
        (["x"], "a part of the type None cannot be read; send text, images or files"),
        (
            [{"type": "image", "source": "x"}],
            "a part of the type 'image' cannot be read; send text, images or files",
        ),
        ([{"type": "file", "url": "https://example.com/a"}], "a file must be sent as a data URL"),
    ],
)
async def test_content_that_cannot_be_read_is_named(content: Any, error: str) -> None:
    message = {"id": "u1", "role": "user", "content": content}

    answer = await post(ag_ui, ag_ui_body(message), agent("never"))

    assert (answer.status, answer.json) == (400, {"error": error})


@pytest.mark.parametrize(
    ("payload", "result"),
    [
        (True, "1.4 is live"),
        ({"approved": "yes"}, "permission denied: deploy 1.4: the user said no"),
        ({"approved": False}, "permission denied: deploy 1.4: the user said no"),
    ],
)
async def test_only_true_approves_a_call(payload: Any, result: str) -> None:
    store = MemoryStore()
    made = agent(calls(call("deploy", {"version": "1.4"}, id="c1")), fail("auth", "the key is bad"))
    await post(ag_ui, ag_ui_body(said("deploy")), made, store=store)
    entry = {"interruptId": "c1", "status": "resolved", "payload": payload}

    resumed = await post(ag_ui, ag_ui_body(resume=[entry]), made, store=store)

    assert [m["content"] for m in resumed.data if m["type"] == "TOOL_CALL_RESULT"] == [result]
    assert resumed.data[-1] == {
        "type": "RUN_ERROR",
        "message": "script: the key is bad",
        "code": "failed",
    }


@glue.tool(external=True)
def look_up(query: str) -> str:
    """Look something up."""
    raise NotImplementedError


@pytest.mark.parametrize(("payload", "result"), [("8080", "8080"), ({"port": 8}, '{"port": 8}')])
async def test_an_ag_ui_interrupt_may_be_answered_with_a_result(payload: Any, result: str) -> None:
    store = MemoryStore()
    script = Script(calls(call("look_up", {"query": "port"}, id="c1")), "Done.")
    made = glue.Agent(script, tools=[look_up])
    paused = await post(ag_ui, ag_ui_body(said("go")), made, store=store)
    entry = {"interruptId": "c1", "status": "resolved", "payload": payload}

    resumed = await post(ag_ui, ag_ui_body(resume=[entry]), made, store=store)

    [interrupt] = paused.data[-1]["outcome"]["interrupts"]
    assert (interrupt["reason"], interrupt["metadata"]) == (
        "tool_result",
        {"tool": "look_up", "arguments": {"query": "port"}, "target": "", "preview": ""},
    )
    assert [m["content"] for m in resumed.data if m["type"] == "TOOL_CALL_RESULT"] == [result]


async def test_a_vercel_approval_of_other_values_is_a_denial() -> None:
    store = MemoryStore()
    made = agent(calls(call("deploy", {"version": "1.4"}, id="c1")), "Done.")
    body = {"id": "chat", "messages": [ui("deploy")]}
    await post(vercel, body, made, store=store)
    part = {"type": "dynamic-tool", "toolCallId": "c1", "state": "approval-responded"}
    parts = [{**part, "approval": None}, {**part, "approval": {"id": "c1", "approved": 1}}]
    reply = {"role": "assistant", "parts": parts}

    answer = await post(vercel, {**body, "messages": [ui("deploy"), reply]}, made, store=store)

    errors = [m["errorText"] for m in answer.data if "errorText" in m]
    assert errors == ["permission denied: deploy 1.4: the user said no"]


async def test_a_message_of_the_user_after_an_approval_is_a_new_prompt() -> None:
    store, script = MemoryStore(), Script("Hello.")
    part = {"state": "approval-responded", "approval": {"id": "c1", "approved": True}}
    user = {**ui("hi"), "parts": [{"type": "text", "text": "hi"}, {**part, "type": "x"}]}

    answer = await post(vercel, {"messages": [user]}, glue.Agent(script), store=store)

    assert answer.status == 200
    assert len(script.requests) == 1


@pytest.mark.parametrize("endpoint", [ag_ui, vercel])
async def test_a_stored_thread_continues_and_reads_only_the_last_message(
    endpoint: Endpoint,
) -> None:
    store, script = MemoryStore(), Script("One.", "Two.", "Three.")
    made, write = glue.Agent(script), said if endpoint is ag_ui else ui
    name = "threadId" if endpoint is ag_ui else "id"

    await post(endpoint, {name: "a", "messages": [write("first")]}, made, store=store)
    body = {name: "a", "messages": [write("forged"), write("second")]}
    await post(endpoint, body, made, store=store)
    await post(endpoint, {**body, name: "b"}, made, store=store, session="ada-a")

    sent = [[shown(each)[1] for each in request.messages] for request in script.requests]
    assert sent == [["first"], ["first", "One.", "second"], ["second"]]
    assert {info.id for info in await store.list()} == {"a", "ada-a"}


@pytest.mark.parametrize("function", ["weather", ["weather"], None])
async def test_a_call_whose_function_is_not_an_object_is_refused(function: Any) -> None:
    reply = {"id": "a1", "role": "assistant", "toolCalls": [{"id": "c1", "function": function}]}

    answer = await post(ag_ui, ag_ui_body(reply, said("hi")), agent("never"))

    assert answer.status == 400
    assert answer.json == {"error": "the function of a tool call must be an object"}


@pytest.mark.parametrize("endpoint", [ag_ui, vercel])
async def test_a_prompt_without_content_is_refused(endpoint: Endpoint) -> None:
    body = ag_ui_body(said(" \n")) if endpoint is ag_ui else {"messages": [ui(" \n")]}

    answer = await post(endpoint, body, agent("never"))

    assert answer.status == 400
    assert answer.json == {"error": "the last message is empty; send a text, an image or a file"}


@pytest.mark.parametrize("data", ["?", "\u00fc"])
async def test_a_picture_that_is_not_base64_is_refused(data: str) -> None:
    picture = {"type": "image", "source": {"type": "data", "value": data, "mimeType": "image/png"}}

    answer = await post(ag_ui, ag_ui_body({"role": "user", "content": [picture]}), agent("never"))

    assert answer.status == 400
    assert answer.json == {"error": "a data URL must be encoded as base64"}


async def test_an_approval_without_a_store_is_refused_with_advice() -> None:
    entry = {"interruptId": "c1", "status": "resolved", "payload": True}

    answer = await post(ag_ui, ag_ui_body(resume=[entry]), agent("never"))

    assert answer.status == 400
    assert "pass store=" in answer.json["error"]


def stream(answer: Answer) -> str:
    """Return the messages of a stream, one a line, with the ids of messages replaced by numbers."""
    text = "\n".join(json.dumps(message) for message in answer.data)
    text = re.sub(r'(the arguments are not valid JSON): [^"]*', r"\1: ...", text)
    seen: dict[str, str] = {}
    return re.sub(
        r"(msg_|run_)?[0-9a-f]{12,32}",
        lambda found: seen.setdefault(found[0], f"id-{len(seen) + 1}"),
        text,
    )


@pytest.mark.parametrize("endpoint", [ag_ui, vercel])
async def test_every_message_of_a_stream(endpoint: Endpoint, snapshot: SnapshotAssertion) -> None:
    script = Script(
        calls(
            call("weather", {"city": "Oslo"}, id="c1"),
            call("weather", {"city": "Atlantis"}, id="c2"),
            call("weather", "{bad", id="c3"),
            text="Looking.",
        ),
        say("Dry today.", thinking="Hm, so.", chunk=6),
    )
    made = glue.Agent(script, tools=[weather], limits=glue.Limits(parallel_tools=1))
    body = ag_ui_body(said("weather?")) if endpoint is ag_ui else {"messages": [ui("weather?")]}

    answer = await post(endpoint, body, made)

    assert stream(answer) == snapshot


@pytest.mark.parametrize("endpoint", [ag_ui, vercel])
@pytest.mark.parametrize("case", ["paused", "failed", "truncated", "limit"])
async def test_the_end_of_a_stream(
    endpoint: Endpoint, case: str, snapshot: SnapshotAssertion
) -> None:
    scripts: dict[str, list[Any]] = {
        "paused": [calls(call("deploy", {"version": "1.4"}, id="c1"), text="Soon.")],
        "failed": [fail("auth", "the key is wrong")],
        "truncated": [say("Cut", stop="max_tokens")],
        "limit": [calls(call("weather", {"city": "Oslo"}, id="c1"))],
    }
    limits = (
        glue.Limits(max_turns=0) if case == "limit" else glue.Limits(continuation_max_attempts=0)
    )
    made = glue.Agent(
        Script(*scripts[case]),
        tools=[weather, deploy],
        permission=DeferAll("ask Ada"),
        limits=limits,
    )
    body = ag_ui_body(said("go")) if endpoint is ag_ui else {"id": "t", "messages": [ui("go")]}

    answer = await post(endpoint, body, made, store=MemoryStore())

    assert stream(answer) == snapshot
