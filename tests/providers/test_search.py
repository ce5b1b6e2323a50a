from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

import glue
from glue import failures
from glue.messages import Request, ToolSpec
from glue.providers import new
from glue.providers.catalog import ENTRIES, Entry
from glue.providers.search import FORMS, search_fields, sources_of, unsent_settings
from glue.providers.wire import wire_class
from glue.tools import fetch

BY_NAME = {entry.name: entry for entry in ENTRIES}
SEARCHING = [entry.name for entry in ENTRIES if entry.quirks.search]
LOOK = ToolSpec(name="look", description="Look.")
DOMAINS = ["python.org", "example.com"]


@pytest.fixture(autouse=True)
def nothing_said_before() -> Iterator[None]:
    """Forget which lines were printed in this process."""
    before = set(failures._printed)
    failures._printed.clear()
    yield
    failures._printed.update(before)


def body(entry: Entry, *tools: ToolSpec, wire: str = "", model: str = "") -> dict[str, Any]:
    """Return the body of a request with tools."""
    request = Request(messages=(glue.user("Hi."),), tools=tools)
    encoded = wire_class(wire or entry.wire).encode(request, entry, model or entry.model)
    found: dict[str, Any] = json.loads(encoded)
    return found


def wire_of(entry: Entry) -> str:
    return "openai_responses" if entry.quirks.search == "xai" else entry.wire


@pytest.mark.parametrize("name", SEARCHING)
def test_the_search_is_sent_in_the_form_of_the_provider(
    name: str, snapshot: SnapshotAssertion
) -> None:
    entry = BY_NAME[name]
    sent = {
        "plain": fetch.web_search().spec,
        "allow": fetch.web_search(allow=DOMAINS).spec,
        "block": fetch.web_search(block=DOMAINS, max_uses=3).spec,
    }

    bodies = {key: body(entry, LOOK, spec, wire=wire_of(entry)) for key, spec in sent.items()}

    assert json.dumps(bodies, indent=1) == snapshot


def test_every_form_belongs_to_a_provider() -> None:
    assert sorted(FORMS) == sorted({entry.quirks.search for entry in ENTRIES} - {""})


@pytest.mark.parametrize("name", sorted(set(BY_NAME) - set(SEARCHING) - {"local"}))
def test_a_provider_without_a_search_gets_the_other_tools_only(name: str) -> None:
    entry = BY_NAME[name]

    assert body(entry, LOOK, fetch.web_search().spec) == body(entry, LOOK)
    assert wire_class(entry.wire).encoder(
        Request(tools=(LOOK, fetch.web_search().spec)), entry, "m"
    ).search_notes() == [f"web_search is left out of the request: {name} has no search of its own"]


def test_a_setting_that_the_provider_does_not_know_is_named() -> None:
    spec = fetch.web_search(block=DOMAINS, max_uses=3).spec

    assert unsent_settings("openai", spec) == ["block", "max_uses"]
    assert unsent_settings("anthropic", spec) == []
    assert unsent_settings("gemini", spec) == ["block", "max_uses"]


def test_settings_are_not_shared_between_requests() -> None:
    first = search_fields("openai", fetch.web_search(allow=["a.org"]).spec)
    second = search_fields("openai", fetch.web_search().spec)

    assert first == {"type": "web_search", "filters": {"allowed_domains": ["a.org"]}}
    assert second == {"type": "web_search"}
    first = search_fields("vertex", fetch.web_search(block=["a.org"]).spec)
    second = search_fields("vertex", fetch.web_search().spec)
    assert first == {"googleSearch": {"excludeDomains": ["a.org"]}}
    assert second == {"googleSearch": {}}


def test_a_source_has_its_url_once_and_a_title_only_if_that_is_a_text() -> None:
    found = ["https://a", {"url": "https://a", "title": "A"}, {"uri": "https://b", "title": "B"}]
    odd = [{"url": 1, "title": "C"}, {"url": "https://c", "title": 3}, {"title": "D"}, None, 7]

    assert sources_of([*found, *odd]) == [
        {"url": "https://a"},
        {"url": "https://b", "title": "B"},
        {"url": "https://c"},
    ]


@pytest.mark.parametrize(
    "model", ["gemini-2.5-flash", "gemini-3-pro", "gemini-3.1-flash-lite", "gemini-flash-latest"]
)
def test_gemini_searches_beside_functions_only_from_version_3(model: str) -> None:
    sent = body(BY_NAME["gemini"], LOOK, fetch.web_search().spec, model=model)

    has_search = any("googleSearch" in tool for tool in sent["tools"])

    assert has_search == (model != "gemini-2.5-flash")
    assert "googleSearch" in body(BY_NAME["gemini"], fetch.web_search().spec)["tools"][0]


def test_a_compatible_server_of_openai_gets_no_search() -> None:
    sent = body(BY_NAME["openai"], LOOK, fetch.web_search().spec, wire="openai_chat")

    assert [tool["type"] for tool in sent["tools"]] == ["function"]


async def run(server: Any, name: str, *tools: Any, **options: Any) -> glue.RunResult[Any]:
    provider: Any = new(name, base_url=server.url, key="k-test-123", **options)
    async with provider:
        return await glue.run(provider, [glue.user("Hi.")], tools=list(tools))


def sources(result: glue.RunResult[Any]) -> Any:
    return (result.messages[-1].meta or {}).get("sources")


def stream(*events: Any) -> bytes:
    """Return a response that streams events."""
    lines = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
    return f"{head}content-length: {len(lines.encode())}\r\n\r\n{lines}".encode()


CHAT_END = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def chat(text: str, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text, **delta}}]}


async def test_one_line_says_that_the_search_is_left_out(
    loopback: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    server = loopback(stream(chat("Hello."), CHAT_END))

    for _ in range(2):
        result = await run(server, "groq:m", fetch.web_search())

    assert result.text == "Hello."
    assert "tools" not in json.loads(server.seen[0].body)
    assert [record.getMessage() for record in caplog.records if record.name == "glue.notes"] == [
        "groq: web_search is left out of the request: groq has no search of its own"
    ]


async def test_xai_searches_on_the_responses_wire(loopback: Callable[..., Any]) -> None:
    note = {"type": "url_citation", "url": "https://a.org/", "title": "A"}
    items = [
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {
            "type": "message",
            "id": "m_1",
            "content": [{"type": "output_text", "text": "Dry.", "annotations": [note, note]}],
        },
    ]
    done = {"type": "response.completed", "response": {"status": "completed", "output": items}}
    server = loopback(stream(done))

    result = await run(server, "xai:grok-4", fetch.web_search(block=["x.org"]))

    assert server.seen[0].line == "POST /responses HTTP/1.1"
    assert json.loads(server.seen[0].body)["tools"] == [
        {"type": "web_search", "excluded_domains": ["x.org"]}
    ]
    assert result.text == "Dry."
    assert sources(result) == [{"url": "https://a.org/", "title": "A"}]


async def test_xai_without_a_search_stays_on_its_wire(loopback: Callable[..., Any]) -> None:
    server = loopback(stream(chat("Hello."), CHAT_END))

    await run(server, "xai:grok-4")

    assert server.seen[0].line == "POST /chat/completions HTTP/1.1"


@pytest.mark.parametrize(
    ("name", "events"),
    [
        ("perplexity:sonar", [
            {**chat("Dry."), "citations": ["https://a.org/"],
             "search_results": [{"url": "https://a.org/", "title": "A"}]}, CHAT_END,
        ]),
        ("openrouter:m", [
            chat("Dry.", annotations=[
                {"type": "url_citation", "url_citation": {"url": "https://a.org/", "title": "A"}}
            ]), CHAT_END,
        ]),
        ("anthropic:claude-haiku-5-5", [
            {"type": "message_start", "message": {"id": "m", "usage": {}}},
            {"type": "content_block_start", "index": 0, "content_block": {
                "type": "server_tool_use", "id": "s1", "name": "web_search",
                "input": {"query": "x"}}},
            {"type": "content_block_stop", "index": 0},
            {"type": "content_block_start", "index": 1, "content_block": {
                "type": "web_search_tool_result", "tool_use_id": "s1", "content": [
                    {"type": "web_search_result", "url": "https://a.org/", "title": "A",
                     "encrypted_content": "zz"}]}},
            {"type": "content_block_stop", "index": 1},
            {"type": "content_block_start", "index": 2,
             "content_block": {"type": "text", "text": "Dry."}},
            {"type": "content_block_stop", "index": 2},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
            {"type": "message_stop"},
        ]),
        ("gemini:gemini-3.1-flash-lite", [
            {"candidates": [{"content": {"parts": [{"text": "Dry."}]}, "finishReason": "STOP",
             "groundingMetadata": {"groundingChunks": [
                 {"web": {"uri": "https://a.org/", "title": "A"}}]}}]},
        ]),
    ],
)  # fmt: skip
async def test_the_sources_of_a_reply_are_in_its_meta(
    loopback: Callable[..., Any], name: str, events: list[Any]
) -> None:
    server = loopback(stream(*events))

    result = await run(server, name, fetch.web_search())

    assert result.text == "Dry."
    assert sources(result) == [{"url": "https://a.org/", "title": "A"}]


def test_a_failed_search_of_anthropic_has_no_sources() -> None:
    decoder = wire_class("anthropic").decoder(BY_NAME["anthropic"].quirks, "anthropic", "m")
    failed = {"type": "web_search_tool_result", "content": {"error_code": "unavailable"}}

    done = decoder.decode(
        json.dumps({"content": [failed], "stop_reason": "end_turn", "type": "message"}).encode()
    )

    assert "sources" not in (done.message.meta or {})


def test_sources_are_listed_once_whatever_their_shape() -> None:
    found = ["https://a.org", {"uri": "https://b.org"}, {"url": "https://a.org", "title": "A"}]

    assert sources_of([*found, None, 3, {"url": 4}]) == [
        {"url": "https://a.org"},
        {"url": "https://b.org"},
    ]


def test_the_offline_provider_does_not_call_the_search() -> None:
    agent = glue.Agent("offline", tools=[fetch.web_search()])

    result = agent.run_sync("Use web_search to search the web for bread.")

    assert not [message for message in result.messages if getattr(message, "calls", ())]


def test_the_entry_of_a_user_may_name_a_form() -> None:
    entry = BY_NAME["groq"]
    entry = entry._replace(quirks=entry.quirks._replace(search="openrouter"))

    assert body(entry, fetch.web_search().spec)["tools"] == [{"type": "openrouter:web_search"}]


def test_gemini_before_version_3_gets_no_schema_beside_its_search() -> None:
    request = Request(
        messages=(glue.user("Hi."),),
        tools=(fetch.web_search().spec,),
        output_schema={"type": "object", "properties": {}},
    )

    for model, has_schema in (("gemini-2.5-flash", False), ("gemini-3.1-flash-lite", True)):
        sent = json.loads(wire_class("gemini").encode(request, BY_NAME["gemini"], model))
        assert ("generationConfig" in sent) == has_schema
