"""Tests on all wires: illegal names, bad arguments, ends of streams, reasoning, attachments."""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import Any

import pytest
from fakes.eventstream import encode_frame

from glue import providers
from glue.errors import ProviderError
from glue.limits import StopReason
from glue.loop.run import run
from glue.messages import (
    AssistantMessage,
    File,
    Image,
    Message,
    Request,
    Text,
    ToolCall,
    ToolMessage,
    ToolSpec,
    user,
)
from glue.provider import Done, Notice, TextDelta
from glue.providers.catalog import ENTRIES, Entry, Quirks
from glue.providers.encoding import call_name, lower
from glue.providers.wire import capabilities_of, tool_rules, wire_class

WIRES = ("openai_chat", "openai_responses", "anthropic", "gemini", "bedrock")
MODELS = {
    "anthropic": "claude-haiku-5-5",
    "gemini": "gemini-3.1-flash-lite",
    "bedrock": "amazon.nova-micro-v1:0",
}
PIXEL = Image(data=b"\x89PNG", media_type="image/png")


def entry(wire: str, **quirks: Any) -> Entry:
    return Entry("acme", wire=wire, base_url="http://localhost", model="m", quirks=Quirks(**quirks))


def encode(wire: str, messages: list[Message], **fields: Any) -> Any:
    body = wire_class(wire).encode(
        Request(messages=messages, **fields), entry(wire), MODELS.get(wire, "gpt-5.4-nano")
    )

    def refuse(name: str) -> Any:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(body, parse_constant=refuse)


def decoder(wire: str) -> Any:
    return wire_class(wire).decoder(Quirks(), "acme", "m")


def called(name: str, arguments: str = "{}") -> list[Message]:
    call = ToolCall(id="c1", name=name, arguments=arguments)
    return [
        user("go"),
        AssistantMessage(content=(call,)),
        ToolMessage(call_id="c1", name=name, content=(Text(text="x"),)),
    ]


def strings(value: Any, key: str) -> list[str]:
    if isinstance(value, dict):
        own = [value[key]] if isinstance(value.get(key), str) else []
        return own + [found for each in value.values() for found in strings(each, key)]
    return (
        [found for each in value for found in strings(each, key)] if isinstance(value, list) else []
    )


# Calls in the history


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    "name", ["multi_tool_use.parallel", "functions.look", "", "a b", "x" * 90, "écrire"]
)
@pytest.mark.parametrize("tools", [(), (ToolSpec(name="look"),)])
def test_an_illegal_tool_name_in_the_history_is_sent_as_a_legal_one(
    wire: str, name: str, tools: Any
) -> None:
    body = encode(wire, called(name), tools=tools)

    found = strings(body, "name")
    assert call_name(name) in found
    assert all(
        0 < len(each) <= 64 and each.replace("_", "a").replace("-", "a").isalnum() for each in found
    )
    ids = (
        strings(body, "id")
        + strings(body, "call_id")
        + strings(body, "toolUseId")
        + strings(body, "tool_call_id")
    )
    assert ids.count("c1") + strings(body, "tool_use_id").count("c1") == 2


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    "arguments", ['{"a": NaN}', '{"a": 1e999}', '{"a": -Infinity}', "[1e400]", '{"a": [NaN, 1]}']
)
def test_arguments_that_are_not_strict_json_are_wrapped(wire: str, arguments: str) -> None:
    body = encode(wire, called("look", arguments))

    for text in strings(body, "arguments"):
        assert text == arguments or json.loads(text) in (
            {"arguments": arguments},
            {"arguments": json.dumps(arguments)},
        )


def test_an_empty_function_call_is_ignored() -> None:
    chunk = {
        "choices": [{"delta": {"content": "hi", "function_call": {"name": "", "arguments": ""}}}]
    }
    end = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
    found = decoder("openai_chat")
    found.feed(f"data: {json.dumps(chunk)}\n\ndata: {json.dumps(end)}\n\ndata: [DONE]\n\n".encode())

    message = found.finish().message

    assert (message.calls, message.text, message.stop_reason) == ((), "hi", StopReason.END_TURN)


# Ends of replies


CHAT = b'data: {"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
MESSAGES = b"".join(
    b"data: " + json.dumps(event).encode() + b"\n\n"
    for event in (
        {"type": "message_start", "message": {"id": "m", "usage": {}}},
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "text", "text": "hi"},
        },
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    )
)
ITEM = {"type": "message", "id": "i", "content": [{"type": "output_text", "text": "hi"}]}
RESPONSES = b"data: " + json.dumps(
    {"type": "response.completed", "response": {"status": "completed", "output": [ITEM]}}
).encode() + b"\n\n"  # fmt: skip


@pytest.mark.parametrize(
    ("wire", "stream"),
    [("openai_chat", CHAT), ("anthropic", MESSAGES), ("openai_responses", RESPONSES)],
)
@pytest.mark.parametrize(
    "rest", [b"data: {oops\n\n", b'data: {"error":{"message":"late"},"type":"error"}\n\n', CHAT]
)
def test_bytes_after_the_terminal_event_in_the_same_block_are_ignored(
    wire: str, stream: bytes, rest: bytes
) -> None:
    found = decoder(wire)

    found.feed(stream + rest)
    found.feed(rest)

    assert found.ended
    assert found.finish().message.text == "hi"


# Replies with a stop reason, on wires that may send more events after it.
STOPPED = {
    "openai_chat": b'data: {"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\n',
    "gemini": b'data: {"candidates":[{"content":{"parts":[{"text":"hi"}]},'
    b'"finishReason":"STOP"}]}\n\n',
    "bedrock": encode_frame(
        {":event-type": "contentBlockDelta"}, b'{"contentBlockIndex":0,"delta":{"text":"hi"}}'
    )
    + encode_frame({":event-type": "messageStop"}, b'{"stopReason":"end_turn"}'),
}


@pytest.mark.parametrize("wire", STOPPED)
@pytest.mark.parametrize(
    "garbage", [b"data: oops\n\n", b"data: 12\n\n", b"<html>502 Bad Gateway</html>\n\n"]
)
def test_garbage_after_a_complete_reply_is_ignored(wire: str, garbage: bytes) -> None:
    found = decoder(wire)

    found.feed(STOPPED[wire] + garbage)

    assert (found.finish().message.text, found.failure) == ("hi", None)


def test_an_error_after_the_stop_reason_is_raised() -> None:
    found = decoder("openai_chat")

    found.feed(STOPPED["openai_chat"] + b'data: {"error":{"message":"boom"}}\n\n')

    with pytest.raises(ProviderError, match="boom"):
        found.finish()


def test_items_without_an_index_are_matched_by_id_and_emitted_once() -> None:
    def item(kind: str, **fields: Any) -> dict[str, Any]:
        return {"type": kind, **fields}

    call = item("function_call", id="fc", call_id="c", name="look", arguments='{"a":1}')
    events: list[dict[str, Any]] = [
        {"type": "response.output_item.added", "item": item("message", id="m", content=[])},
        {"type": "response.output_text.delta", "item_id": "m", "delta": "hel"},
        {"type": "response.output_text.delta", "item_id": "m", "delta": "lo"},
        {
            "type": "response.output_item.done",
            "item": item("message", id="m", content=[{"text": "hello"}]),
        },
        {"type": "response.output_item.added", "item": {**call, "arguments": ""}},
        {"type": "response.function_call_arguments.delta", "item_id": "fc", "delta": '{"a":1}'},
        {"type": "response.output_item.done", "item": call},
        {"type": "response.completed", "response": {"status": "completed", "output": []}},
    ]
    found = decoder("openai_responses")

    shown = found.feed(
        b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    )

    assert [event.text for event in shown if isinstance(event, TextDelta)] == ["hel", "lo"]
    assert [(event.index, event.name, event.arguments) for event in shown[2:]] == [
        (1, "look", '{"a":1}')
    ]
    message = found.finish().message
    assert (message.text, [call.arguments for call in message.calls]) == ("hello", ['{"a":1}'])


@pytest.mark.parametrize(
    "text", [r"a\ud800b", r"\uDC00", r"\ud83d\ud83d\ude00", r"\\ud800 \ud83d\ude00"]
)
def test_half_a_surrogate_pair_is_replaced(text: str) -> None:
    body = '{"choices":[{"message":{"content":"TEXT"},"finish_reason":"stop"}]}'.replace(
        "TEXT", text
    )

    said = decoder("openai_chat").decode(body.encode()).message.text

    said.encode()
    assert said == json.loads(f'"{text}"').encode("utf-16", "surrogatepass").decode(
        "utf-16", "replace"
    )


def test_gemini_replies_with_snake_case_names_and_nulls_are_decoded() -> None:
    part = {"text": "hi", "functionCall": None, "inlineData": None, "thought": None}
    first = {
        "candidates": [{"content": {"parts": [part]}}],
        "usage_metadata": {"prompt_token_count": 3},
    }
    last = {
        "candidates": [{"content": None, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": None, "candidatesTokenCount": 2},
    }
    found = decoder("gemini")

    found.feed(
        b"".join(b"data: " + json.dumps(event).encode() + b"\r\n\r\n" for event in (first, last))
    )

    message = found.finish().message
    assert (message.text, message.calls) == ("hi", ())
    assert (message.usage.input, message.usage.output) == (3, 2)


# Reasoning levels and attachments that a server does not accept


@pytest.mark.parametrize(
    ("effort", "levels", "sent"),
    [
        ("high", ("low", "high"), "high"),
        ("max", ("low", "medium", "high"), "high"),
        ("xhigh", ("low", "high", "max"), "high"),
        ("medium", ("low", "high"), "low"),
        ("minimal", ("low", "high"), "low"),
        ("none", ("low",), None),
        ("none", ("none", "low"), "none"),
        ("high", (), None),
        (None, ("low",), None),
    ],
)
def test_an_unknown_effort_is_lowered_to_a_level_of_the_server(
    effort: Any, levels: Any, sent: Any
) -> None:
    assert lower(effort, levels) == sent


@pytest.mark.parametrize("name", providers.known())
@pytest.mark.parametrize("effort", ["none", "minimal", "low", "medium", "high", "xhigh", "max"])
def test_no_server_is_sent_a_reasoning_level_that_it_does_not_have(name: str, effort: Any) -> None:
    known = providers.lookup(name)
    if not known.wire:
        return
    wire = wire_class(known.wire)
    model = known.model or "some-model"

    body = json.loads(
        wire.encode(
            Request(messages=(user("hi"),), reasoning=effort, max_tokens=9000), known, model
        )
    )

    levels = capabilities_of(known, model).efforts
    sent = (
        strings(body, "reasoning_effort") + strings(body, "effort") + strings(body, "thinkingLevel")
    )
    assert set(sent) <= set(levels)


async def ask(spec: str, *content: Any, server: Any = None) -> list[Any]:
    url = server.url if server else "http://127.0.0.1:9"
    provider = providers.new(spec, base_url=url, key="k" * 9, retries=False)
    async with aclosing(provider.stream(Request(messages=(user(*content),)))) as events:  # type: ignore[type-var]
        return [event async for event in events]


@pytest.mark.parametrize(
    ("spec", "part", "text"),
    [
        (
            "deepseek",
            PIXEL,
            (
                r"deepseek: deepseek-v4-flash does not accept images of type image/png; "
                r"these providers accept it: anthropic, openai"
            ),
        ),
        (
            "anthropic",
            Image(data=b"x", media_type="image/tiff"),
            r"does not accept images of type image/tiff$",
        ),
        (
            "groq",
            File(data=b"%PDF", media_type="application/pdf"),
            r"files of type application/pdf; .*anthropic",
        ),
        ("openai", Image(url="data:image/svg+xml;base64,eA=="), r"images of type image/svg\+xml"),
    ],
)
async def test_an_attachment_that_a_server_does_not_accept_is_refused_before_sending(
    spec: str, part: Any, text: str
) -> None:
    with pytest.raises(ProviderError, match=text) as caught:
        await ask(spec, "look", part)

    assert caught.value.kind == "invalid_request"


@pytest.mark.parametrize("wire", WIRES)
def test_attachments_of_earlier_turns_are_described_and_text_files_are_sent(wire: str) -> None:
    archive = File(data=b"PK\xff", media_type="application/zip", name="a.zip")
    looked = called("look")
    shown = ToolMessage(call_id="c1", name="look", content=(Text(text="x"), PIXEL))
    history: list[Message] = [user("look", PIXEL, archive), *looked[1:2], shown, user("and now?")]
    blind = entry(wire, images=(), files=())
    note = user("read", File(data="ä,b".encode("latin-1"), media_type="text/csv", name="t.csv"))

    body = json.loads(
        wire_class(wire).encode(Request(messages=(*history, note)), blind, MODELS.get(wire, "m"))
    )

    said = json.dumps(body, ensure_ascii=False)
    assert said.count("(an image)") == 2
    assert "(a file: a.zip)" in said
    assert r"t.csv:\n\ufffd,b" in json.dumps(body)


@pytest.mark.parametrize("spec", ["anthropic", "gemini", "bedrock"])
def test_an_image_that_only_another_vendor_accepts_is_described(spec: str) -> None:
    found = providers.lookup(spec)
    picture = Image(data=b"x", media_type="image/tiff")
    history = (user("look", picture), AssistantMessage(content=(Text(text="a cat"),)), user("and?"))

    body = wire_class(found.wire).encode(Request(messages=history), found, found.model)

    assert b"(an image)" in body
    assert b"tiff" not in body


def test_a_text_in_another_encoding_is_sent_as_text() -> None:
    found = providers.lookup("anthropic")
    note = user("read", File(data="ä".encode("latin-1"), media_type="text/plain", name="t.txt"))

    body = json.loads(wire_class(found.wire).encode(Request(messages=(note,)), found, found.model))

    assert body["messages"][0]["content"][1]["source"]["data"] == "\ufffd"


@pytest.mark.parametrize("wire", WIRES)
def test_nan_and_infinity_are_sent_as_null(wire: str) -> None:
    tool = ToolSpec(
        name="look", parameters={"type": "object", "properties": {"x": {"default": float("inf")}}}
    )

    body = encode(wire, [user("go")], tools=(tool,), options={"own": {"a": [float("nan"), 1]}})

    assert body["own"] == {"a": [None, 1]}
    assert '{"default": null}' in json.dumps(
        body["tools"] if "tools" in body else body["toolConfig"]
    )


# Documents on Bedrock


def test_one_file_attached_twice_has_two_stable_names() -> None:
    file = File(data=b"%PDF", media_type="application/pdf", name="a.pdf")
    messages: list[Message] = [
        user("one", file, file),
        AssistantMessage(content=(file, file)),
        user("two", file),
    ]

    first, again = encode("bedrock", messages), encode("bedrock", messages)

    names = [
        block["document"]["name"]
        for turn in first["messages"]
        for block in turn["content"]
        if "document" in block
    ]
    assert len(set(names)) == 5
    assert first == again


# Errors


async def test_an_error_after_deltas_is_marked_as_emitted_without_retries(loopback: Any) -> None:
    chunk = (
        b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\ndata: {"error":{"message":"boom"}}\n\n'
    )
    server = loopback(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(chunk), chunk))

    with pytest.raises(ProviderError, match="boom") as caught:
        await ask("deepseek", "hi", server=server)

    assert caught.value.emitted


async def test_an_image_that_a_server_refuses_with_500_is_not_retried(loopback: Any) -> None:
    body = (
        b'{"error":{"code":500,"message":"image input is not supported - hint: mmproj",'
        b'"type":"server_error"}}'
    )
    server = loopback(b"HTTP/1.1 500 X\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
    provider = providers.new("llamacpp", base_url=server.url)

    with pytest.raises(ProviderError) as caught:
        async with aclosing(provider.stream(Request(messages=(user("look", PIXEL),)))) as events:  # type: ignore[type-var]
            _ = [event async for event in events]

    assert (caught.value.kind, len(server.seen)) == ("invalid_request", 1)


async def test_a_failover_list_reports_once_which_providers_were_left_out_and_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    failover = providers.new("anthropic,offline")
    told = []
    for _ in range(2):
        async with aclosing(failover.stream(Request(messages=(user("hi"),)))) as events:  # type: ignore[type-var]
            told += [event async for event in events]

    details = [event.detail for event in told if hasattr(event, "detail")]
    assert details == ["anthropic: left out because no key is set; set ANTHROPIC_API_KEY"]
    assert sum(isinstance(event, Done) for event in told) == 2


# Notices


def noted(spec: str, **fields: Any) -> list[str]:
    """Return the notes of the request that a provider would send."""
    name, _, model = spec.partition(":")
    entry = next(entry for entry in ENTRIES if entry.name == name)
    encoder = wire_class(entry.wire).encoder(
        Request(**{"messages": (user("a"),), **fields}), entry, model
    )
    encoder.body()
    return encoder.notes


LOOK = ToolSpec(name="look", description="Look.")


@pytest.mark.parametrize(
    ("spec", "fields", "part"),
    [
        ("openai:gpt-5-nano", {"reasoning": "xhigh"}, "no reasoning level 'xhigh'; 'high' is used"),
        ("openai:gpt-4o", {"reasoning": "high"}, "has no reasoning levels; 'high' was left out"),
        ("openai:o3", {"reasoning": "none"}, "cannot stop reasoning"),
        ("openai:o3", {"temperature": 0.5}, "takes no temperature; the temperature was left out"),
        ("openai:gpt-5.4-nano", {"stop": ("x",)}, "takes no stop sequences"),
        ("anthropic:claude-opus-4-8", {"temperature": 0.5}, "takes no temperature"),
        (
            "anthropic:claude-haiku-4-5",
            {"temperature": 0.5, "reasoning": "high"},
            "takes no temperature while it thinks",
        ),
        ("anthropic:claude-3-5-haiku-latest", {"reasoning": "low"}, "has no reasoning levels"),
        (
            "anthropic:claude-haiku-4-5",
            {"reasoning": "high", "max_tokens": 100},
            "max_tokens=100 leaves no room for thinking",
        ),
        (
            "anthropic:claude-haiku-4-5",
            {"reasoning": "high", "max_tokens": 8000},
            "max_tokens=8000 limits thinking to 4000 tokens",
        ),
        (
            "anthropic:claude-haiku-4-5",
            {"reasoning": "high", "tools": (LOOK,), "tool_choice": "look"},
            "cannot think while a tool is forced",
        ),
        (
            "deepseek:deepseek-v4-flash",
            {"reasoning": "high", "tools": (LOOK,), "tool_choice": "required"},
            "cannot think while a tool is forced",
        ),
        ("perplexity:sonar", {"tools": (LOOK,)}, "takes no tools"),
        ("gemini:gemini-3-pro", {"reasoning": "max"}, "'high' is used"),
        ("bedrock:amazon.nova-micro-v1:0", {"reasoning": "low"}, "has no reasoning levels"),
    ],
)
def test_what_a_model_refuses_is_noted(spec: str, fields: dict[str, Any], part: str) -> None:
    (note,) = noted(spec, **fields)

    assert part in note


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ("openai:gpt-5-nano", {"reasoning": "minimal", "tools": (LOOK,)}),
        ("openai:gpt-4o", {"reasoning": "none", "temperature": 0.5}),
        ("mistral:mistral-small-latest", {"reasoning": "high"}),
        ("anthropic:claude-opus-4-8", {"reasoning": "max"}),
        ("deepseek:deepseek-v4-flash", {"tools": (LOOK,), "tool_choice": "required"}),
        ("gemini:gemini-2.5-flash", {"reasoning": "none"}),
    ],
)
def test_a_request_that_is_sent_as_it_is_has_no_notes(spec: str, fields: dict[str, Any]) -> None:
    assert noted(spec, **fields) == []


async def test_a_notice_is_sent_once_and_is_not_part_of_the_reply(loopback: Any) -> None:
    chunk = {"choices": [{"index": 0, "delta": {"content": "ok"}, "finish_reason": "stop"}]}
    body = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()
    server = loopback(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
    provider = providers.new("groq:m", base_url=server.url, key="none")
    seen: list[Any] = []

    for _ in range(2):
        result = await run(provider, "go", request=Request(reasoning="max"), on_event=seen.append)
        assert result.text == "ok"
    await provider.aclose()  # type: ignore[attr-defined]

    notices = [event for event in seen if isinstance(event, Notice)]
    assert [(notice.provider, notice.model) for notice in notices] == [("groq", "m")]
    assert notices[0].text == "m has no reasoning level 'max'; 'high' is used"
    assert json.loads(server.seen[1].body)["reasoning_effort"] == "high"


def test_the_rules_for_tools_are_those_of_the_wires() -> None:
    rules = tool_rules()

    assert sorted(rules) == ["anthropic", "bedrock", "gemini", "openai_chat", "openai_responses"]
    assert [name for name, rule in rules.items() if rule.needs_letter] == ["gemini"]
    assert [name for name, rule in rules.items() if rule.needs_items] == [
        "openai_chat",
        "openai_responses",
    ]
    assert [name for name, rule in rules.items() if rule.parameter_name] == ["anthropic"]


def test_an_attachment_that_is_only_described_is_noted_and_an_accepted_one_is_not() -> None:
    picture = Image(media_type="image/png", data=b"x")
    pdf = File(media_type="application/pdf", data=b"%PDF")
    csv = File(media_type="text/csv", data=b"a,b")

    def notes(**quirks: Any) -> list[str]:
        entry = Entry("acme", "https://acme.example", quirks=Quirks(**quirks))
        request = Request(messages=(user("see", picture, pdf, csv),))
        encoder = wire_class("openai_chat").encoder(request, entry, "acme-1")
        encoder.body()
        return encoder.notes

    assert notes() == []
    assert notes(images=(), files=("application/pdf",)) == [
        "acme-1 takes no image/png; a text placeholder was sent instead"
    ]
    assert notes(files=()) == [
        "acme-1 takes no application/pdf; a text placeholder was sent instead"
    ]
