"""Encoding and decoding on the wire of Anthropic's Messages API."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from glue import (
    AssistantMessage,
    File,
    Image,
    Message,
    Request,
    Text,
    ToolCall,
    ToolMessage,
    Usage,
    user,
)
from glue.errors import ProviderError
from glue.messages import ToolSpec
from glue.provider import Opaque, TextDelta, Thinking, ThinkingDelta, ToolCallDelta
from glue.providers.anthropic import Anthropic, AnthropicDecoder, AnthropicEncoder
from glue.providers.catalog import Entry, Quirks
from glue.providers.http import HTTP

ENTRY = Entry("anthropic", wire="anthropic", base_url="https://model.example/v1", auth="x-api-key")
MODEL = "claude-haiku-4-5"
WEATHER = ToolSpec(
    name="weather",
    description="Say what the weather is.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
PIXEL = b"\x89PNG-pixel"


def signed(text: str, signature: str) -> Thinking:
    return Thinking(text=text, opaque=Opaque(wire="anthropic", data={"signature": signature}))


def reply(*parts: Any, model: str = MODEL, provider: str = "anthropic") -> AssistantMessage:
    return AssistantMessage(content=parts, provider=provider, model=model)


def call(
    name: str = "weather", arguments: str = '{"city":"Oslo"}', id: str = "toolu_1", **more: Any
) -> ToolCall:
    return ToolCall(id=id, name=name, arguments=arguments, **more)


def result(text: str, id: str = "toolu_1", **more: Any) -> ToolMessage:
    return ToolMessage(
        call_id=id, name="weather", content=(Text(text=text),) if text else (), **more
    )


def body(*messages: Message, model: str = MODEL, **more: Any) -> Any:
    return json.loads(Anthropic.encode(Request(messages=messages, **more), ENTRY, model))


def sent(*messages: Message, **more: Any) -> Any:
    return body(*messages, **more)["messages"]


# Requests


def test_request_wire(snapshot: SnapshotAssertion) -> None:
    conversation = (
        user(
            "What is this, and is it raining?",
            Image(data=PIXEL),
            File(media_type="text/plain", data=b"notes", name="n"),
        ),
        reply(
            signed("Let me look.", "sig-1"),
            Opaque(wire="anthropic", data={"type": "redacted_thinking", "data": "sealed"}),
            Text(text="I will ask."),
            call(),
            call(id="toolu_2", arguments=""),
        ),
        result("21 degrees"),
        ToolMessage(
            call_id="toolu_2",
            name="weather",
            content=(Text(text="no city"), Image(data=PIXEL)),
            is_error=True,
        ),
        user("And tomorrow?"),
    )

    assert (
        body(
            *conversation,
            system="Be brief.",
            tools=(WEATHER,),
            reasoning="low",
            max_tokens=8000,
            stop=("END", " "),
            cache=True,
            options={
                "tools": [{"type": "web_search_20250305", "name": "web_search"}],
                "service_tier": "auto",
            },
        )
        == snapshot
    )


def test_a_message_is_encoded_once() -> None:
    messages: list[Message] = [user("hi"), reply(Text(text="ho")), user("more")]
    first = Anthropic.encode(Request(messages=messages), ENTRY, MODEL)
    kept = [dict(message.memo) for message in messages]

    assert Anthropic.encode(Request(messages=messages), ENTRY, MODEL) == first
    for message, memo in zip(messages, kept, strict=True):
        assert all(message.memo[key] is memo[key] for key in memo)


def test_results_of_a_turn_are_one_message_before_the_users_text() -> None:
    messages = sent(
        user("go"),
        reply(call(), call(id="toolu_2")),
        result("a"),
        result("b", "toolu_2"),
        user("and?"),
    )

    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert [block["type"] for block in messages[2]["content"]] == [
        "tool_result",
        "tool_result",
        "text",
    ]


def test_replies_in_a_row_are_merged() -> None:
    messages = sent(user("go"), reply(Text(text="a")), reply(Text(text="b")))

    assert [block["text"] for block in messages[1]["content"]] == ["a", "b"]


def test_thinking_of_another_model_or_vendor_is_dropped() -> None:
    thought = signed("hm", "sig")
    own = sent(user("go"), reply(thought, Text(text="ok")))
    dated = sent(user("go"), reply(thought, Text(text="ok"), model="claude-haiku-4-5-20251001"))
    switched = sent(user("go"), reply(thought, Text(text="ok"), model="claude-opus-4-1"))
    foreign = sent(user("go"), reply(thought, Text(text="ok"), provider="zai"))
    other = Thinking(text="hm", opaque=Opaque(wire="gemini", data={"thoughtSignature": "x"}))

    assert own[1]["content"][0] == {"type": "thinking", "thinking": "hm", "signature": "sig"}
    assert dated == own
    sealed = Opaque(wire="anthropic", data={"type": "redacted_thinking", "data": "x"})
    resealed = sent(user("go"), reply(sealed, Text(text="ok"), model="claude-opus-4-1"))
    for messages in (switched, foreign, resealed, sent(user("go"), reply(other, Text(text="ok")))):
        assert messages[1]["content"] == [{"type": "text", "text": "ok"}]


def test_a_message_never_ends_in_thinking() -> None:
    assert sent(user("go"), reply(signed("hm", "sig")), user("well?"))[0]["content"] == [
        {"type": "text", "text": "go"},
        {"type": "text", "text": "well?"},
    ]


def test_blank_texts_half_calls_and_excluded_messages_are_left_out() -> None:
    messages = sent(
        user("go", "", "  \n"),
        reply(Text(text=" "), call(complete=False)),
        replace(user("never"), excluded=True),
        user("on"),
    )

    assert messages == [
        {
            "role": "user",
            "content": [{"type": "text", "text": "go"}, {"type": "text", "text": "on"}],
        }
    ]


def test_ids_of_other_vendors_are_replaced_equally_in_call_and_result() -> None:
    messages = sent(
        user("go"), reply(call(id="call.1|ü" * 30), provider="x"), result("a", "call.1|ü" * 30)
    )
    use, answer = messages[1]["content"][0], messages[2]["content"][0]

    assert use["id"] == answer["tool_use_id"]
    assert use["id"].replace("_", "").isalnum()
    assert len(use["id"]) <= 64


def test_ids_that_a_server_used_twice_become_unique() -> None:
    turns: list[Message] = [reply(call(id="call_0")), result("a", "call_0")]
    messages = sent(user("go"), *turns, *turns)

    ids = [message["content"][0]["id"] for message in messages if message["role"] == "assistant"]
    assert len(set(ids)) == 2
    assert [message["content"][0].get("tool_use_id") for message in messages[2::2]] == ids


def test_arguments_that_are_not_an_object_are_sent_back_as_an_object() -> None:
    uses = sent(
        user("go"),
        reply(call(arguments="{bad"), call(arguments="[1]", id="b"), call(arguments="", id="c")),
    )

    assert [block["input"] for block in uses[1]["content"]] == [
        {"arguments": "{bad"},
        {"arguments": [1]},
        {},
    ]


def test_a_conversation_begins_with_a_user() -> None:
    assert sent(reply(Text(text="hello")))[0]["role"] == "user"


def test_an_empty_result_has_no_content_and_an_empty_error_has_a_text() -> None:
    answers = sent(
        user("go"), reply(call(), call(id="b")), result(""), result("", "b", is_error=True)
    )[2]["content"]

    assert answers == [
        {"type": "tool_result", "tool_use_id": "toolu_1"},
        {"type": "tool_result", "tool_use_id": "b", "is_error": True, "content": "error"},
    ]


def test_images_and_files_are_sent_in_the_form_of_their_media_type() -> None:
    content = sent(
        user(
            Image(url="https://pictures.example/a.png"),
            Image(url="data:image/gif;base64,R0lG"),
            Image(data=b"jpg", media_type="image/jpeg"),
            File(media_type="application/pdf", data=b"%PDF"),
            File(media_type="application/json", data=b"{}", name="a.json"),
        )
    )[0]["content"]

    assert [block["source"] for block in content] == [
        {"type": "url", "url": "https://pictures.example/a.png"},
        {"type": "base64", "media_type": "image/gif", "data": "R0lG"},
        {"type": "base64", "media_type": "image/jpeg", "data": "anBn"},
        {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="},
        {"type": "text", "media_type": "text/plain", "data": "{}"},
    ]
    assert content[4]["title"] == "a.json"


def test_a_file_that_cannot_be_sent_is_a_one_line_error() -> None:
    with pytest.raises(
        ProviderError, match="cannot send a file of type audio/wav; only PDF and text"
    ) as caught:
        sent(user(File(media_type="audio/wav", data=b"\xff\xfe")))

    assert caught.value.kind == "invalid_request"


def test_tools_of_the_history_are_named_when_the_request_has_none() -> None:
    request = body(user("go"), reply(call()), result("a"))

    assert [tool["name"] for tool in request["tools"]] == ["weather"]
    assert request["tool_choice"] == {"type": "none"}


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        ("auto", None),
        ("none", {"type": "none"}),
        ("required", {"type": "any"}),
        ("weather", {"type": "tool", "name": "weather"}),
    ],
)
def test_tool_choice(choice: str, wanted: Any) -> None:
    assert body(user("go"), tools=(WEATHER,), tool_choice=choice).get("tool_choice") == wanted


def test_max_tokens_is_always_sent() -> None:
    assert body(user("hi"))["max_tokens"] == 32_000
    assert body(user("hi"), model="claude-3-haiku-20240307")["max_tokens"] == 4096
    assert body(user("hi"), max_tokens=7)["max_tokens"] == 7


@pytest.mark.parametrize(
    ("model", "effort", "wanted"),
    [
        ("claude-haiku-4-5", "high", {"type": "enabled", "budget_tokens": 16_000}),
        ("claude-sonnet-4-20250514", "minimal", {"type": "enabled", "budget_tokens": 1024}),
        ("claude-haiku-4-5", "none", None),
        ("claude-3-5-haiku-latest", "high", None),
        ("claude-opus-4-6", "minimal", {"type": "adaptive", "display": "summarized"}),
        ("claude-sonnet-5", "none", {"type": "disabled"}),
    ],
)
def test_reasoning_is_requested_in_the_form_that_the_model_knows(
    model: str, effort: Any, wanted: Any
) -> None:
    assert body(user("hi"), model=model, reasoning=effort).get("thinking") == wanted


def test_effort_of_adaptive_models_is_sent_with_the_schema() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer", "minimum": 3}},
        "required": ["a"],
    }

    config = body(user("hi"), model="claude-opus-4-8", reasoning="medium", output_schema=schema)[
        "output_config"
    ]
    least = body(user("hi"), model="claude-opus-4-8", reasoning="minimal")["output_config"]

    closed = {**schema, "properties": {"a": {"type": "integer"}}, "additionalProperties": False}
    assert config == {"effort": "medium", "format": {"type": "json_schema", "schema": closed}}
    assert least == {"effort": "low"}


def test_thinking_is_not_requested_from_a_server_without_it() -> None:
    entry = ENTRY._replace(quirks=Quirks(reasoning=""))

    assert b"thinking" not in Anthropic.encode(
        Request(messages=(user("hi"),), reasoning="high"), entry, "acme-1"
    )
    assert b"thinking" in Anthropic.encode(
        Request(messages=(user("hi"),), reasoning="high"), ENTRY, "acme-1"
    )


def test_a_budget_leaves_room_below_the_cap() -> None:
    assert body(user("hi"), reasoning="high", max_tokens=6000)["thinking"]["budget_tokens"] == 3000
    assert "thinking" not in body(user("hi"), reasoning="high", max_tokens=1500)


def test_thinking_is_off_with_a_forced_tool_and_in_a_round_that_began_without_it() -> None:
    foreign = (user("go"), reply(call(), provider="openai"), result("a"))
    own = (user("go"), reply(signed("hm", "s"), call()), result("a"))

    assert "thinking" not in body(
        user("go"), tools=(WEATHER,), tool_choice="required", reasoning="low"
    )
    assert "thinking" not in body(*foreign, tools=(WEATHER,), reasoning="low")
    assert "thinking" in body(*own, tools=(WEATHER,), reasoning="low")
    assert "thinking" in body(*foreign, user("next"), tools=(WEATHER,), reasoning="low")


def test_thinking_is_on_without_any_earlier_reply() -> None:
    assert "thinking" in body(reasoning="low")
    assert "thinking" in body(result("a"), reasoning="low")


@pytest.mark.parametrize(
    ("messages", "options", "notes"),
    [
        ((user("go"),), {"max_tokens": 4096}, []),
        (
            (user("go"),),
            {"max_tokens": 4094},
            ["max_tokens=4094 limits thinking to 2047 tokens"],
        ),
        (
            (user("go"),),
            {"max_tokens": 2047},
            ["max_tokens=2047 leaves no room for thinking, which was left out"],
        ),
        (
            (user("go"), reply(call(), provider="openai"), result("a")),
            {"tools": (WEATHER,)},
            ["this round of tool calls began without thinking; thinking stays off"],
        ),
    ],
)
def test_thinking_that_is_reduced_or_left_out_is_noted(
    messages: Any, options: Any, notes: list[str]
) -> None:
    request = Request(messages=messages, reasoning="low", **options)
    encoder = AnthropicEncoder(request, ENTRY, "claude-haiku-4-5")

    encoder.body()

    assert encoder.notes == notes


def test_a_note_names_the_cap_that_is_sent_if_the_request_sets_none() -> None:
    request = Request(messages=(user("go"),), reasoning="max")
    encoder = AnthropicEncoder(request, ENTRY, "claude-haiku-4-5")

    sent = json.loads(encoder.body())

    assert sent["max_tokens"] == 32_000
    assert encoder.notes == ["max_tokens=32000 limits thinking to 16000 tokens"]


@pytest.mark.parametrize(
    ("model", "effort", "kept"),
    [
        ("claude-haiku-4-5", None, True),
        ("claude-haiku-4-5", "low", False),
        ("claude-opus-4-6", "none", True),
        ("claude-opus-4-7", None, False),
    ],
)
def test_a_temperature_is_sent_only_if_the_model_accepts_it(
    model: str, effort: Any, kept: bool
) -> None:
    assert (
        "temperature" in body(user("hi"), model=model, reasoning=effort, temperature=0.2)
    ) is kept


def test_at_most_four_cache_marks_are_set_on_stable_prefixes() -> None:
    messages: list[Message] = [user("go")]
    for number in range(4):
        messages += [
            reply(signed("hm", "s"), call(id=f"toolu_{number}")),
            result("a", f"toolu_{number}"),
        ]
    request = Request(
        messages=messages, tools=(WEATHER, replace(WEATHER, name="b")), system="S", cache=True
    )
    text = Anthropic.encode(request, ENTRY, MODEL).decode()
    marked = json.loads(text)

    assert text.count("cache_control") == 4
    assert "cache_control" in marked["tools"][1]
    assert "cache_control" in marked["system"][0]
    assert [
        index for index, message in enumerate(marked["messages"]) if "cache_control" in str(message)
    ] == [6, 8]
    assert (
        "cache_control"
        not in Anthropic.encode(replace(request, cache=False), ENTRY, MODEL).decode()
    )


def test_schemas_that_claude_refuses_are_not_sent() -> None:
    free = {"type": "object", "additionalProperties": {"type": "string"}}

    assert not Anthropic.encoder(Request(), ENTRY, MODEL).takes_output(free)
    assert not Anthropic.encoder(Request(), ENTRY, MODEL).takes_output(
        {"type": "object", "properties": {"a": free}}
    )
    assert not Anthropic.encoder(Request(), ENTRY, MODEL).takes_output({"type": "object"})
    plain = {"type": "object", "properties": {"a": {"type": "string"}}}
    assert not Anthropic.encoder(Request(), ENTRY, "claude-3-7-sonnet").takes_output(plain)
    assert "output_config" not in body(user("hi"), output_schema=free)


async def test_options_are_merged_and_betas_become_a_header() -> None:
    options = {"betas": ["a-1", "b-2"], "metadata": {"user_id": "u"}, "max_tokens": 9}
    request = Request(messages=(user("hi"),), options=options)

    assert await Anthropic(ENTRY, None).headers(request.options or {}, "", b"") == {
        "anthropic-version": "2023-06-01",
        "anthropic-beta": "a-1,b-2",
    }
    written = json.loads(Anthropic.encode(request, ENTRY, MODEL))
    assert written["metadata"] == {"user_id": "u"}
    assert written["max_tokens"] == 9
    assert "betas" not in written


# Replies


def stream(*events: dict[str, Any]) -> bytes:
    return b"".join(
        f"event: {event['type']}\ndata: {json.dumps(event)}  \n\n".encode() for event in events
    )


def start(**usage: int) -> dict[str, Any]:
    message: dict[str, Any] = {
        "id": "msg_1",
        "model": "claude-x-1",
        "content": [],
        "stop_reason": None,
        "usage": usage,
    }
    return {"type": "message_start", "message": message}


def block(
    index: int, first: dict[str, Any], *deltas: dict[str, Any], closed: bool = True
) -> list[dict[str, Any]]:
    events = [{"type": "content_block_start", "index": index, "content_block": first}]
    events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    return [*events, *([{"type": "content_block_stop", "index": index}] if closed else [])]


def text(index: int, *pieces: str) -> list[dict[str, Any]]:
    return block(
        index,
        {"type": "text", "text": ""},
        *({"type": "text_delta", "text": piece} for piece in pieces),
    )


def tool(
    index: int, *pieces: str, id: str = "toolu_1", closed: bool = True
) -> list[dict[str, Any]]:
    first = {"type": "tool_use", "id": id, "name": "weather", "input": {}}
    return block(
        index,
        first,
        *({"type": "input_json_delta", "partial_json": piece} for piece in pieces),
        closed=closed,
    )


def end(reason: str, *, details: Any = None, **usage: int) -> list[dict[str, Any]]:
    delta = {"stop_reason": reason, "stop_sequence": None, "stop_details": details}
    return [{"type": "message_delta", "delta": delta, "usage": usage}, {"type": "message_stop"}]


def decode(data: bytes, size: int = 1 << 20) -> tuple[list[Any], AssistantMessage]:
    decoder = AnthropicDecoder(Quirks(), "anthropic", MODEL)
    events = [
        event for at in range(0, len(data), size) for event in decoder.feed(data[at : at + size])
    ]
    return events, decoder.finish().message


def fails(data: bytes) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        decode(data)
    return caught.value


SMALL = stream(
    start(input_tokens=10, output_tokens=1),
    *block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "Rain?"},
        {"type": "signature_delta", "signature": "sig"},
    ),
    {"type": "ping"},
    *text(1, "I will ", "aßk."),
    *tool(2, '{"city":', '"Oslo"}'),
    *end("tool_use", output_tokens=20),
)


def test_stream_wire(snapshot: SnapshotAssertion) -> None:
    events, message = decode(SMALL)

    assert [*events, replace(message, id="message")] == snapshot


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
def test_a_stream_may_be_cut_anywhere(size: int) -> None:
    events, message = decode(SMALL, size)

    assert (events, message.content) == (decode(SMALL)[0], decode(SMALL)[1].content)


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        ("end_turn", "end_turn"),
        ("stop_sequence", "end_turn"),
        ("tool_use", "tool_use"),
        ("max_tokens", "max_tokens"),
        ("model_context_window_exceeded", "context_window"),
        ("refusal", "refusal"),
        ("pause_turn", "pause_turn"),
        ("compaction", "pause_turn"),
        ("zzz", "unknown"),
        *(
            (word, "unknown") for word in ("stop", "length", "error", "content_filter", "STOP")
        ),  # words of other wires
    ],
)
def test_s002_stop_reasons(raw: str, wanted: str) -> None:
    _, message = decode(stream(start(), *text(0, "x"), *end(raw)))

    assert message.stop_reason == wanted
    assert message.raw_stop_reason == raw


def test_a_reply_with_a_call_stops_for_tool_use() -> None:
    assert decode(stream(start(), *tool(0, "{}"), *end("end_turn")))[1].stop_reason == "tool_use"


def test_a_call_without_fragments_has_empty_arguments() -> None:
    _, message = decode(stream(start(), *tool(0), *tool(1, "", id="toolu_2"), *end("tool_use")))

    assert [(part.arguments, part.complete) for part in message.calls] == [("", True), ("", True)]


def test_a_call_cut_at_max_tokens_is_incomplete_although_its_block_is_closed() -> None:
    _, message = decode(stream(start(), *tool(0), *tool(1, '{"ci', id="b"), *end("max_tokens")))
    _, empty = decode(stream(start(), *tool(0, id="a"), *end("max_tokens")))
    _, whole = decode(stream(start(), *tool(0, "{}"), *end("max_tokens")))
    _, unclosed = decode(stream(start(), *tool(0, "{}", closed=False), *end("tool_use")))
    _, bad = decode(stream(start(), *tool(0, "{bad"), *end("tool_use")))

    assert [part.complete for part in message.calls] == [True, False]
    assert [one.calls[0].complete for one in (empty, whole, unclosed, bad)] == [
        False,
        True,
        False,
        True,
    ]


def test_usage_is_overwritten_key_by_key_and_input_includes_the_cache() -> None:
    first = start(
        input_tokens=1128,
        output_tokens=2,
        cache_read_input_tokens=50,
        cache_creation_input_tokens=7,
    )
    ending = end(
        "end_turn",
        input_tokens=2411,
        output_tokens=145,
        output_tokens_details={"thinking_tokens": 47},  # type: ignore[arg-type]
    )

    _, message = decode(stream(first, *text(0, "x"), *ending))

    assert message.usage == Usage(
        input=2468, output=145, cache_read=50, cache_write=7, reasoning=47
    )


def test_calls_are_numbered_in_their_order() -> None:
    calls = (*tool(0, "{}", id="toolu_1"), *text(1, "and"), *tool(2, "{}", id="toolu_2"))

    events, _ = decode(stream(start(), *calls, *end("tool_use")))

    found = [(event.index, event.id) for event in events if isinstance(event, ToolCallDelta)]
    assert [pair for pair in found if pair[1]] == [(0, "toolu_1"), (1, "toolu_2")]


def test_a_document_has_a_title_only_if_the_file_has_a_name() -> None:
    named, unnamed = (File(media_type="text/plain", data=b"x", name=name) for name in ("a.txt", ""))

    [message] = sent(user(named, unnamed))

    assert [block.get("title") for block in message["content"]] == ["a.txt", None]
    assert "title" not in message["content"][1]


def test_a_second_message_start_restarts_the_message() -> None:
    _, message = decode(
        stream(
            start(input_tokens=1, cache_read_input_tokens=5),
            *text(0, "old"),
            *text(1, "older"),
            start(input_tokens=2),
            *text(0, "new"),
            *end("end_turn"),
        )
    )

    assert message.text == "new"
    assert message.usage is not None
    assert message.usage.input == 2


def test_a_stream_without_its_last_event_is_a_protocol_error() -> None:
    error = fails(stream(start(), *text(0, "half"), end("end_turn")[0]))

    assert error.kind == "protocol"
    assert "message_stop" in str(error)


def test_an_event_without_a_type_is_ignored() -> None:
    ping = b"event: ping\ndata: {}\n\n"

    assert decode(stream(start()) + ping + stream(*text(0, "x"), *end("end_turn")))[1].text == "x"


def test_an_error_may_lack_its_outer_type() -> None:
    assert (
        fails(
            stream(start()) + b'event: error\ndata: {"error":{"type":"overloaded_error"}}\n\n'
        ).kind
        == "overloaded"
    )


def test_an_error_in_the_stream_is_raised_after_the_events_before_it() -> None:
    decoder = AnthropicDecoder(Quirks(), "anthropic", MODEL)
    problem = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}

    events = decoder.feed(
        stream(start(input_tokens=5), *text(0, "half"), problem, *end("end_turn"))
    )

    assert events == [TextDelta(text="half")]
    with pytest.raises(ProviderError, match="Overloaded") as caught:
        decoder.finish()
    assert (caught.value.kind, caught.value.retryable) == ("overloaded", True)
    assert caught.value.usage == Usage(input=5, cache_read=0, cache_write=0)


def test_thinking_without_text_and_redacted_thinking_are_kept() -> None:
    sealed = {"type": "redacted_thinking", "data": "opaque"}
    mute = block(
        1, {"type": "thinking", "thinking": ""}, {"type": "signature_delta", "signature": "only"}
    )
    _, message = decode(stream(start(), *block(0, sealed), *mute, *text(2, "ok"), *end("end_turn")))

    assert message.content[:2] == (Opaque(wire="anthropic", data=sealed), signed("", "only"))
    assert [part["type"] for part in sent(user("go"), message)[1]["content"]] == [
        "redacted_thinking",
        "thinking",
        "text",
    ]


def test_a_paused_turn_is_sent_back_unchanged() -> None:
    use = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}
    found = {
        "type": "web_search_tool_result",
        "tool_use_id": "srv_1",
        "content": [{"encrypted_content": "x"}],
    }
    cited = {"type": "web_search_result_location", "encrypted_index": "y"}
    events = [
        *block(0, use, {"type": "input_json_delta", "partial_json": '{"query":"rain"}'}),
        *block(1, found),
        *block(
            2,
            {"type": "text", "text": ""},
            {"type": "citations_delta", "citation": cited},
            {"type": "text_delta", "text": "Wet."},
        ),
        *block(
            3, {"type": "compaction", "content": "a"}, {"type": "compaction_delta", "content": "b"}
        ),
        *block(4, use, {"type": "input_json_delta", "partial_json": '{"que'}, closed=False),
        *block(5, found, closed=False),
    ]

    _, message = decode(stream(start(), *events, *end("pause_turn")))

    assert message.text == "Wet."
    assert sent(user("go"), message)[1]["content"] == [
        {**use, "input": {"query": "rain"}},
        found,
        {"type": "text", "text": "Wet.", "citations": [cited]},
        {"type": "compaction", "content": "ab"},
    ]
    assert sent(user("go"), replace(message, provider="other"))[1]["content"] == [
        {"type": "text", "text": "Wet."}
    ]


def test_the_reason_of_a_refusal_is_kept() -> None:
    why = {"type": "refusal", "category": "bio", "explanation": "no"}
    _, message = decode(stream(start(), *text(0, "Hi"), *end("refusal", details=why)))

    assert message.text == "Hi"
    assert message.meta == {"id": "msg_1", "model": "claude-x-1", "stop_details": why}


def test_the_caller_of_a_tool_is_kept_unless_it_is_the_model() -> None:
    caller = {"type": "code_execution_20260120", "tool_id": "srv_1"}
    data = {
        "content": [
            {"type": "tool_use", "id": "a", "name": "weather", "input": {"x": 1}, "caller": caller}
        ]
    }
    message = (
        AnthropicDecoder(Quirks(), "anthropic", MODEL)
        .decode(json.dumps({**data, "stop_reason": "tool_use"}).encode())
        .message
    )

    assert sent(user("go"), message)[1]["content"][0]["caller"] == caller
    assert message.calls[0].arguments == '{"x":1}'


def test_unknown_events_fields_and_a_done_mark_are_ignored() -> None:
    data = (
        stream({"type": "news", "x": 1}, start(), *text(0, "ok"), *end("end_turn"))
        + b"data: [DONE]\n\n"
    )

    assert decode(data)[1].text == "ok"


def test_a_complete_message_in_place_of_a_stream_is_decoded() -> None:
    content = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "yes"},
        {"type": "tool_use", "id": "a", "name": "weather", "input": {}},
    ]
    data = {
        "id": "m",
        "type": "message",
        "model": "claude-y",
        "content": content,
        "stop_reason": "tool_use",
        "usage": {"output_tokens": 3},
    }
    decoder = AnthropicDecoder(Quirks(), "anthropic", MODEL)

    assert decoder.feed(json.dumps(data).encode()) == []
    message = decoder.finish().message

    assert message.usage == Usage(output=3, cache_read=0, cache_write=0)
    assert (message.stop_reason, message.raw_stop_reason) == ("tool_use", "tool_use")
    assert message.meta == {"id": "m", "model": "claude-y"}
    assert message.content[:2] == (signed("hm", "s"), Text(text="yes"))
    assert decoder.late == [
        ThinkingDelta(text="hm"),
        TextDelta(text="yes"),
        ToolCallDelta(index=0, id="a", name="weather"),
    ]


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", "empty"),
        (b": ping\n\n", "empty"),
        (b"<html>no</html>\n\n", "protocol"),
        (b'{"hello": 1}', "protocol"),
        (b'{"type":"message","content":[1]}', "protocol"),
        (b'{"type":"error","error":{"type":"rate_limit_error","message":"slow"}}', "rate_limited"),
        (b"data: {oops\n\n", "protocol"),
        (b"data: 3\n\n", "protocol"),
        (
            stream(
                {
                    "type": "content_block_delta",
                    "index": [],
                    "delta": {"type": "text_delta", "text": "x"},
                }
            ),
            "protocol",
        ),
    ],
)
def test_a_body_that_is_not_a_reply_is_a_provider_error(data: bytes, kind: str) -> None:
    assert fails(data).kind == kind


ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    1.5,
    float("inf"),
    "",
    "x",
    [],
    {},
    [1],
    {"type": "x"},
    "tool_use",
    ...,
)


def variants(value: Any) -> Iterator[Any]:
    """Yield copies of a value, each with one place replaced by an odd value or left out (...)."""
    yield from (odd for odd in ODD if odd is not ...)
    for key in (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    ):
        for odd in (*variants(value[key]), ...):
            copy = value.copy()
            if odd is ...:
                del copy[key]
            else:
                copy[key] = odd
            yield copy


EVENTS = [json.loads(line[6:]) for line in SMALL.decode().splitlines() if line.startswith("data: ")]


@pytest.mark.parametrize("at", range(len(EVENTS)))
def test_events_of_any_shape_decode_or_raise_a_provider_error(at: int) -> None:
    for odd in variants(EVENTS[at]):
        data = b"".join(
            b"data: %s\n\n" % json.dumps(event).encode()
            for event in [*EVENTS[:at], odd, *EVENTS[at + 1 :]]
        )
        with contextlib.suppress(ProviderError):
            message = decode(data)[1]
            assert all(
                isinstance(part.arguments + part.id + part.name, str) for part in message.calls
            )
            Anthropic.encode(Request(messages=(user("go"), message)), ENTRY, MODEL)


@given(st.binary(max_size=30), st.integers(0, len(SMALL)), st.integers(0, 40), st.integers(1, 60))
def test_damaged_bytes_decode_or_raise_a_provider_error(
    junk: bytes, at: int, gone: int, size: int
) -> None:
    damaged = SMALL[:at] + junk + SMALL[at + gone :]

    def outcome(step: int) -> Any:
        decoder = AnthropicDecoder(Quirks(), "anthropic", MODEL)
        events = [
            event
            for i in range(0, len(damaged), step)
            for event in decoder.feed(damaged[i : i + step])
        ]
        try:
            return events, decoder.finish().message.content
        except ProviderError as error:
            return events, str(error), error.kind

    assert outcome(size) == outcome(1 << 20)


# Both


async def test_the_provider_sends_a_request_and_streams_the_reply(
    loopback: Callable[..., Any],
) -> None:
    answer = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n"
        % len(SMALL)
        + SMALL
    )
    server = loopback(answer)
    http = HTTP(server.url + "/v1", provider="anthropic", headers={"x-api-key": "k" * 8})
    provider = Anthropic(ENTRY, http, MODEL)
    request = Request(messages=(user("hi"),), options={"betas": ["a-1"]})

    async with aclosing(provider.stream(request)) as events:  # type: ignore[type-var]
        seen = [event async for event in events]
    await http.aclose()

    assert [type(event).__name__ for event in seen][-1] == "Done"
    assert seen[:-1] == decode(SMALL)[0]
    assert server.seen[0].line == "POST /v1/messages HTTP/1.1"
    assert server.seen[0].headers["anthropic-version"] == "2023-06-01"
    assert server.seen[0].headers["anthropic-beta"] == "a-1"
    assert server.seen[0].headers["x-api-key"] == "k" * 8
    assert json.loads(server.seen[0].body)["stream"] is True
