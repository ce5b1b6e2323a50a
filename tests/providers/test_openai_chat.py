"""Encoding and decoding on the chat-completions wire."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from fakes.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from glue.errors import ProviderError
from glue.limits import StopReason
from glue.messages import (
    AssistantMessage,
    File,
    Image,
    Message,
    Opaque,
    Request,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
    user,
)
from glue.provider import Done, ProviderEvent, TextDelta, ThinkingDelta, ToolCallDelta
from glue.providers.catalog import ENTRIES, Entry, Quirks
from glue.providers.errors import is_refused_call
from glue.providers.openai_chat import ChatDecoder, OpenAIChat

ENTRY = Entry("acme", wire="openai_chat", base_url="https://acme.example/v1", model="acme-1")
LOOK = ToolSpec(
    name="look",
    description="Look at a thing.",
    parameters={"type": "object", "properties": {"at": {}}},
)


def entry(**quirks: Any) -> Entry:
    return ENTRY._replace(quirks=Quirks(**quirks))


def assistant(*content: Any, provider: str = "acme", model: str = "acme-1") -> AssistantMessage:
    parts = tuple(Text(text=part) if isinstance(part, str) else part for part in content)
    return AssistantMessage(content=parts, provider=provider, model=model)


def call(
    id: str = "call_1", name: str = "look", arguments: str = '{"at":"x"}', **more: Any
) -> ToolCall:
    return ToolCall(id=id, name=name, arguments=arguments, **more)


def result(*content: Any, id: str = "call_1", **more: Any) -> ToolMessage:
    parts = tuple(Text(text=part) if isinstance(part, str) else part for part in content)
    return ToolMessage(call_id=id, name="look", content=parts, **more)


def body(*messages: Message, at: Entry = ENTRY, **request: Any) -> Any:
    return json.loads(OpenAIChat.encode(Request(messages=messages, **request), at, "acme-1"))


def sent(*messages: Message, at: Entry = ENTRY, **request: Any) -> list[Any]:
    found: list[Any] = body(*messages, at=at, **request)["messages"]
    return found


def chunk(delta: Any = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return {"id": "c1", "model": "acme-1-0", "choices": [choice], **more}


def events(*chunks: Any, done: bool = True) -> bytes:
    lines = [b"data: " + json.dumps(one).encode() + b"\n\n" for one in chunks]
    return b"".join(lines) + (b"data: [DONE]\n\n" if done else b"")


def fragment(
    index: int | None = 0, id: str | None = None, name: str | None = None, arguments: Any = None
) -> Any:
    piece: dict[str, Any] = {"function": {"name": name, "arguments": arguments}}
    if index is not None:
        piece["index"] = index
    if id is not None:
        piece["id"] = id
    return {"tool_calls": [piece]}


def decode(
    stream: bytes, size: int = 1 << 30, **quirks: Any
) -> tuple[list[ProviderEvent], AssistantMessage]:
    decoder = ChatDecoder(Quirks(**quirks), "acme", "acme-1")
    seen: list[ProviderEvent] = []
    for start in range(0, len(stream), size):
        seen += decoder.feed(stream[start : start + size])
    return seen, decoder.finish().message


def read(*chunks: Any, done: bool = True, **quirks: Any) -> AssistantMessage:
    return decode(events(*chunks, done=done), **quirks)[1]


def failure(*chunks: Any, done: bool = True) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        read(*chunks, done=done)
    return caught.value


def whole(message: Any, finish: str | None = "stop", **more: Any) -> AssistantMessage:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    reply = json.dumps({"id": "c1", "model": "acme-1-0", "choices": [choice], **more}).encode()
    return ChatDecoder(Quirks(), "acme", "acme-1").decode(reply).message


def test_a_body_may_be_a_list_of_one_completion() -> None:
    choice = {"message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
    body = json.dumps([{"choices": [choice]}]).encode()

    assert ChatDecoder(Quirks(), "acme", "acme-1").decode(body).message.text == "hi"
    with pytest.raises(ProviderError, match="the server did not send a completion"):
        ChatDecoder(Quirks(), "acme", "acme-1").decode(b"[]")


# Requests

PICTURE = Image(media_type="image/png", data=b"\x89PNG")
RICH: tuple[Message, ...] = (
    user(
        "What is in these?",
        PICTURE,
        Image(url="https://acme.example/cat.png"),
        File(media_type="application/pdf", data=b"%PDF", name="a.pdf"),
    ),
    assistant(Thinking(text="Let me look."), "I look.", call(), call("call_2", arguments="")),
    result("a cat"),
    result("too dark", PICTURE, id="call_2", is_error=True),
    assistant("A cat.", provider="other", model="z"),
    user("Sûr? \U0001f408"),
)


def test_request_wire(snapshot: SnapshotAssertion) -> None:
    request = Request(
        system="Be brief.",
        messages=RICH,
        tools=(LOOK, ToolSpec(name="stop")),
        tool_choice="look",
        max_tokens=100,
        temperature=0.5,
        reasoning="low",
        stop=("END",),
        output_schema={
            "type": "object",
            "properties": {"a": {"type": "string"}},
            "required": ["a"],
            "additionalProperties": False,
        },
        options={"seed": 1, "stream_options": {"extra": True}, "tools": [{"type": "web_search"}]},
    )

    assert json.loads(OpenAIChat.encode(request, ENTRY, "acme-1")) == snapshot


def test_stream_wire(snapshot: SnapshotAssertion) -> None:
    stream = b": waking up\n\n" + events(
        {"id": "", "model": "", "choices": [], "prompt_filter_results": []},
        chunk({"role": "assistant", "content": ""}),
        chunk({"reasoning_content": "Hm"}),
        chunk({"reasoning_content": "."}),
        chunk({"content": "I "}),
        chunk({"content": "look."}),
        chunk(fragment(0, "call_1", "look", "")),
        chunk(fragment(0, None, None, '{"at":')),
        chunk(fragment(1, "call_2", "look", "{}")),
        chunk(fragment(0, "", None, '"x"}')),
        chunk({}, "tool_calls"),
        {
            "id": "c1",
            "choices": [],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
        },
    )

    seen, message = decode(stream)

    assert [*seen, replace(message, id="message")] == snapshot


def test_a_tool_result_names_its_images_and_files_and_a_user_message_contains_them() -> None:
    pdf = File(media_type="application/pdf", data=b"%PDF", name="a.pdf")
    unnamed = File(media_type="application/pdf", data=b"%PDF")

    answer, pictures = sent(user("go"), assistant(call()), result("seen", PICTURE, pdf, unnamed))[
        2:
    ]

    assert answer["content"] == "seen\n(an image)\n(a file: a.pdf)\n(a file: application/pdf)"
    assert [block["type"] for block in pictures["content"]] == ["text", "image_url", "file", "file"]
    assert pictures["content"][0]["text"] == "From the result of look:"
    assert [block["file"]["filename"] for block in pictures["content"][2:]] == ["a.pdf", "file"]


def test_a_message_is_encoded_once_and_its_bytes_are_reused() -> None:
    messages: list[Message] = [user("a"), assistant("b", call()), result("c")]
    first = OpenAIChat.encode(Request(messages=messages), ENTRY, "acme-1")
    keys = [set(message.memo) for message in messages]
    before = [dict(message.memo) for message in messages]

    second = OpenAIChat.encode(Request(messages=[*messages, user("d")]), ENTRY, "acme-1")

    assert second.startswith(first[: first.index(b'],"stream"')])
    assert [set(message.memo) for message in messages] == keys
    assert all(
        message.memo[key] is before[i][key] for i, message in enumerate(messages) for key in keys[i]
    )


@pytest.mark.parametrize("size", [31, 32, 33, 64, 100])
def test_a_long_history_encoded_from_stored_blocks_is_the_same(size: int) -> None:
    def make() -> list[Message]:
        history: list[Message] = [user("go")]
        for number in range(size):
            one, two = f"call_{number}", f"call_{number}b"
            history += [
                assistant(call(one), call(two)),
                result("a", PICTURE, id=one),
                result("b", id=two),
            ]
        return history

    def bare(body: bytes) -> list[Any]:
        found: list[Any] = json.loads(body)["messages"]
        return found

    history = make()
    for end in (len(history), len(history), len(history) - 4, len(history)):
        assert bare(OpenAIChat.encode(Request(messages=history[:end]), ENTRY, "acme-1")) == sent(
            *make()[:end]
        )
    shorter = [history[0], *history[7:]]
    assert bare(OpenAIChat.encode(Request(messages=shorter), ENTRY, "acme-1")) == sent(
        make()[0], *make()[7:]
    )


def test_the_last_message_has_a_cache_mark_also_at_the_end_of_a_block() -> None:
    marking = ENTRY._replace(quirks=ENTRY.quirks._replace(cache="control"))
    history: list[Message] = [user(str(number)) for number in range(33)]

    for end in (33, 32, 32):
        body = OpenAIChat.encode(Request(messages=history[:end], cache=True), marking, "acme-1")

        assert ["cache_control" in json.dumps(one) for one in json.loads(body)["messages"]] == [
            False
        ] * (end - 1) + [True]


def test_the_bytes_of_a_long_history_are_stored_in_blocks() -> None:
    history: list[Message] = [user(str(number)) for number in range(70)]
    OpenAIChat.encode(Request(messages=history), ENTRY, "acme-1")

    kept = [
        position
        for position, message in enumerate(history)
        if any(isinstance(key, tuple) for key in message.memo)
    ]

    assert kept == [31, 63]
    changed = [*history[:5], user("new"), *history[6:]]
    assert [message["content"] for message in sent(*changed)] == [
        message.text for message in changed
    ]


def test_bytes_are_stored_for_each_server_and_model() -> None:
    thought = Thinking(
        text="hm",
        opaque=Opaque(
            wire="openai_chat",
            data={"reasoning_details": [{"type": "reasoning.text", "signature": "s"}]},
        ),
    )
    message = assistant(thought, "x")

    mine = json.loads(OpenAIChat.encode(Request(messages=[message]), ENTRY, "acme-1"))
    other_model = json.loads(OpenAIChat.encode(Request(messages=[message]), ENTRY, "acme-2"))
    other_server = json.loads(
        OpenAIChat.encode(Request(messages=[message]), ENTRY._replace(name="else"), "acme-1")
    )

    assert mine["messages"][0]["reasoning_details"] == [
        {"type": "reasoning.text", "signature": "s"}
    ]
    assert "reasoning_details" not in other_model["messages"][0]
    assert "reasoning_details" not in other_server["messages"][0]


def test_images_of_tool_results_follow_all_results_of_the_reply() -> None:
    messages = sent(
        assistant(call("a"), call("b")),
        result("one", PICTURE, id="a"),
        result("two", id="b"),
        user("go on"),
    )

    assert [message["role"] for message in messages] == [
        "assistant",
        "tool",
        "tool",
        "user",
        "user",
    ]
    assert messages[1]["content"] == "one\n(an image)"
    assert messages[3]["content"][1]["image_url"]["url"].startswith("data:image/png;base64,")


def test_images_of_the_last_tool_result_come_last() -> None:
    assert [m["role"] for m in sent(assistant(call("a")), result(PICTURE, id="a"))] == [
        "assistant",
        "tool",
        "user",
    ]


def test_a_server_without_image_support_is_sent_no_images() -> None:
    texts = [{"type": "text", "text": "a"}, {"type": "text", "text": "(an image)"}]

    assert sent(user("a", PICTURE), at=entry(images=())) == [{"role": "user", "content": texts}]


def test_empty_and_excluded_messages_are_left_out() -> None:
    excluded = UserMessage(content=(Text(text="secret"),), excluded=True)
    dropped = replace(result("x"), excluded=True)

    assert sent(user(""), assistant(Thinking(text="x")), excluded, dropped, user("a")) == [
        {"role": "user", "content": "a"}
    ]


def test_thinking_and_blocks_of_other_vendors_are_dropped() -> None:
    foreign = assistant(
        Thinking(text="hm", opaque=Opaque(wire="anthropic", data="sig")),
        Opaque(wire="gemini", data={"x": 1}),
        "said",
        provider="anthropic",
    )

    assert sent(foreign) == [{"role": "assistant", "content": "said"}]


def test_mistral_is_sent_ids_of_nine_letters_equal_in_call_and_result() -> None:
    messages = sent(
        assistant(call("toolu_01ABC")), result("x", id="toolu_01ABC"), at=entry(tool_ids="nine")
    )
    kept = sent(assistant(call("abcdefgh9")), at=entry(tool_ids="nine"))

    made = messages[0]["tool_calls"][0]["id"]
    assert made == messages[1]["tool_call_id"]
    assert len(made) == 9
    assert made.isalnum()
    assert kept[0]["tool_calls"][0]["id"] == "abcdefgh9"


def test_long_ids_are_shortened_equally_in_call_and_result() -> None:
    messages = sent(assistant(call("x" * 200)), result("x", id="x" * 200))

    assert messages[0]["tool_calls"][0]["id"] == messages[1]["tool_call_id"]
    assert len(messages[1]["tool_call_id"]) <= 40


def test_an_id_that_a_later_reply_uses_again_is_renamed() -> None:
    messages = sent(
        assistant(call("0")), result("one", id="0"), assistant(call("0")), result("two", id="0")
    )

    ids = [messages[0]["tool_calls"][0]["id"], messages[2]["tool_calls"][0]["id"]]
    assert ids == [messages[1]["tool_call_id"], messages[3]["tool_call_id"]]
    assert ids[0] != ids[1]


def test_arguments_that_are_not_an_object_are_wrapped() -> None:
    def sent_arguments(text: str) -> Any:
        return json.loads(
            sent(assistant(call(arguments=text)))[0]["tool_calls"][0]["function"]["arguments"]
        )

    assert sent_arguments("") == {}
    assert sent_arguments('{"a": 1}') == {"a": 1}
    assert sent_arguments('{"a": ') == {"arguments": '{"a": '}
    assert sent_arguments("[1]") == {"arguments": [1]}


def test_a_lone_surrogate_does_not_stop_a_request() -> None:
    assert sent(user("a\ud800b")) == [{"role": "user", "content": "a?b"}]


@pytest.mark.parametrize(
    ("style", "effort", "fields"),
    [
        ("effort", "high", {"reasoning_effort": "high"}),
        ("effort", "none", {}),  # no level that all servers know
        ("effort", "minimal", {"reasoning_effort": "low"}),
        ("effort", "max", {"reasoning_effort": "high"}),
        ("object", "low", {"reasoning": {"effort": "low"}}),
        ("object", "none", {"reasoning": {"enabled": False}}),
        ("thinking", "low", {"thinking": {"type": "enabled"}}),
        ("kept_thinking", "low", {"thinking": {"type": "enabled", "clear_thinking": False}}),
        ("kept_thinking", "none", {"thinking": {"type": "disabled"}}),
        ("enable", "low", {"enable_thinking": True}),
        ("groq", "minimal", {"reasoning_effort": "low", "reasoning_format": "parsed"}),
        ("", "low", {}),
    ],
)
def test_reasoning_is_requested_in_the_form_of_each_server(
    style: Any, effort: Any, fields: Any
) -> None:
    plain = body(user("a"), at=entry(reasoning=style))

    assert body(user("a"), at=entry(reasoning=style), reasoning=effort) == {**plain, **fields}


def test_reasoning_is_sent_back_in_the_field_that_the_server_reads() -> None:
    thought = assistant(Thinking(text="hm"), call())

    assert sent(thought, at=entry(echo="reasoning_content"))[0]["reasoning_content"] == "hm"
    assert sent(thought, at=entry(echo="reasoning"))[0]["reasoning"] == "hm"
    for echo in ("", "reasoning_details", "content"):
        assert set(sent(thought, at=entry(echo=echo))[0]) == {"role", "content", "tool_calls"}
    foreign = assistant(Thinking(text="hm"), call(), provider="other")
    assert sent(foreign, at=entry(echo="reasoning_content"))[0]["reasoning_content"] == ""


def test_quirks_of_servers() -> None:
    assert (
        body(user("a"), at=entry(max_tokens="max_completion_tokens"), max_tokens=5)[
            "max_completion_tokens"
        ]
        == 5
    )
    assert "stream_options" not in body(user("a"), at=entry(stream_usage=False))
    assert sent(user("a"), at=entry(system_role="developer"), system="s")[0] == {
        "role": "developer",
        "content": "s",
    }
    assert "tools" not in body(user("a"), at=entry(tools=False), tools=(LOOK,))
    assert body(user("a"), at=entry(output="json_object"), output_schema={})["response_format"] == {
        "type": "json_object"
    }
    assert "response_format" not in body(user("a"), at=entry(output=""), output_schema={})
    assert sent(user("a"), user("b"), at=entry(merge=True)) == [
        {"role": "user", "content": "a\n\nb"}
    ]


def test_merged_messages_are_encoded_once_too() -> None:
    messages = [user("a"), user("b"), user("c", PICTURE)]
    merging = entry(merge=True)

    first = OpenAIChat.encode(Request(messages=messages), merging, "acme-1")
    assert OpenAIChat.encode(Request(messages=messages), merging, "acme-1") == first
    assert [part["type"] for part in json.loads(first)["messages"][0]["content"]] == [
        "text",
        "text",
        "image_url",
    ]


def test_a_schema_is_strict_only_if_it_qualifies() -> None:
    loose = body(
        user("a"), output_schema={"type": "object", "title": "Answer", "properties": {"a": {}}}
    )["response_format"]

    assert loose["json_schema"] == {
        "name": "Answer",
        "schema": {"type": "object", "title": "Answer", "properties": {"a": {}}},
    }


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (
            {
                "type": "object",
                "properties": {"a": {}},
                "required": ["a"],
                "additionalProperties": False,
            },
            True,
        ),
        ({"type": "object", "properties": {"a": {}}, "required": ["a"]}, False),
        (
            {
                "type": "object",
                "properties": {"a": {}},
                "required": [],
                "additionalProperties": False,
            },
            False,
        ),
        ({"type": "array", "items": {"type": "object"}}, False),
        ({"anyOf": [{"type": "string"}, {"type": "object", "properties": {}}]}, False),
        ({"type": "string", "enum": [{"type": "object"}]}, True),
    ],
)
def test_strict_schemas_are_closed_all_the_way_down(schema: Any, strict: bool) -> None:
    asked = body(user("a"), output_schema=schema)["response_format"]["json_schema"]

    assert asked.get("strict", False) is strict
    assert (
        "strict"
        not in body(user("a"), output_schema=schema, at=entry(strict=False))["response_format"][
            "json_schema"
        ]
    )


def test_tool_choice() -> None:
    assert "tool_choice" not in body(user("a"), tools=(LOOK,))
    assert "tool_choice" not in body(user("a"), tool_choice="required")
    assert body(user("a"), tools=(LOOK,), tool_choice="required")["tool_choice"] == "required"
    assert body(user("a"), tools=(LOOK,), tool_choice="none")["tool_choice"] == "none"


def test_streaming_can_be_switched_off() -> None:
    assert "stream" not in body(user("a"), stream=False)


def test_cache_marks_are_on_system_last_tool_and_last_message() -> None:
    marking = entry(cache="control")
    first: list[Message] = [user("a"), assistant("b")]

    sent_body = body(
        *first, user("c"), at=marking, cache=True, system="s", tools=(LOOK, ToolSpec(name="stop"))
    )

    mark = {"cache_control": {"type": "ephemeral"}}
    assert sent_body["messages"][0]["content"] == [{"type": "text", "text": "s", **mark}]
    assert sent_body["messages"][-1]["content"] == [{"type": "text", "text": "c", **mark}]
    assert ["cache_control" in tool for tool in sent_body["tools"]] == [False, True]
    assert len({tool["function"]["name"] for tool in sent_body["tools"]}) == 2
    assert json.dumps(sent_body).count("cache_control") == 3
    assert "cache_control" not in json.dumps(body(*first, at=marking))


def test_an_empty_last_message_has_no_cache_mark() -> None:
    long: list[Message] = [user("a"), assistant("b")] * 16

    sent_body = body(*long, user(""), at=entry(cache="control"), cache=True)

    assert len(sent_body["messages"]) == 32
    assert "cache_control" not in json.dumps(sent_body)


def test_cache_key_depends_on_the_stable_prefix() -> None:
    keyed = entry(cache="key")

    one = body(user("a"), at=keyed, cache=True, system="s")["prompt_cache_key"]
    assert one == body(user("b"), at=keyed, cache=True, system="s")["prompt_cache_key"]
    assert one != body(user("a"), at=keyed, cache=True, system="t")["prompt_cache_key"]


# Replies


@pytest.mark.parametrize(
    ("raw", "normal"),
    [
        ("stop", "end_turn"),
        ("tool_calls", "tool_use"),
        ("function_call", "tool_use"),
        ("length", "max_tokens"),
        ("content_filter", "refusal"),
        ("model_length", "context_window"),
        ("model_context_window_exceeded", "context_window"),
        ("sensitive", "refusal"),
        ("eos", "end_turn"),
        ("eos_token", "end_turn"),
        ("zzz", "unknown"),
        *(
            (word, "unknown") for word in ("STOP", "SAFETY", "refusal", "pause_turn", "compaction")
        ),  # of other wires
    ],
)
def test_s001_stop_reasons_of_openai_are_normalised_and_kept(raw: str, normal: str) -> None:
    for message in (read(chunk({"content": "x"}), chunk({}, raw)), whole({"content": "x"}, raw)):
        assert message.stop_reason == normal
        assert message.raw_stop_reason == raw


def test_s006_a_refusal_with_stop_is_a_refusal() -> None:
    streamed = read(chunk({"refusal": "I can"}), chunk({"refusal": "not."}), chunk({}, "stop"))

    for message in (streamed, whole({"content": None, "refusal": "I cannot."})):
        assert message.stop_reason is StopReason.REFUSAL
        assert message.raw_stop_reason == "stop"
        assert message.text == "I cannot."


def test_a_reply_with_a_call_stops_for_tool_use() -> None:
    assert (
        read(chunk(fragment(0, "a", "look", "{}")), chunk({}, "stop")).stop_reason
        is StopReason.TOOL_USE
    )


@pytest.mark.parametrize("raw", ["error", "network_error", "insufficient_system_resource"])
def test_a_stop_that_means_failure_is_raised(raw: str) -> None:
    error = failure(chunk({"content": "x"}), chunk({}, raw))

    assert error.retryable
    assert raw in str(error)


def test_a_native_reason_that_means_failure_is_raised() -> None:
    last = {
        "index": 0,
        "delta": {},
        "finish_reason": "stop",
        "native_finish_reason": "network_error",
    }

    assert failure(chunk({"content": "x"}), {"choices": [last]}).retryable


def test_the_last_reason_that_is_set_counts() -> None:
    message = read(
        chunk({"content": "x"}, "length"), chunk({}, "stop"), chunk({}, None), chunk({}, "")
    )

    assert message.raw_stop_reason == "stop"


def test_a_stream_without_a_stop_reason_is_complete_only_with_its_end_mark() -> None:
    assert read(chunk({"content": "x"})).stop_reason is StopReason.UNKNOWN
    assert read(chunk(fragment(0, "a", "look", "{}"))).stop_reason is StopReason.TOOL_USE

    error = failure(chunk({"content": "x"}), done=False)

    assert error.kind == "protocol"
    assert not error.retryable


def test_a_stream_with_a_stop_reason_is_complete_without_the_end_mark() -> None:
    assert read(chunk({"content": "x"}, "stop"), done=False).text == "x"
    assert (
        decode(events(chunk({"content": "x"}, "stop"), done=False) + b'data: {"cut')[1].text == "x"
    )


@pytest.mark.parametrize("stream", [b"", b": ping\n\n", b"data: [DONE]\n\n", b"\n\n"])
def test_an_empty_stream_is_an_error_of_kind_empty(stream: bytes) -> None:
    with pytest.raises(ProviderError) as caught:
        decode(stream)

    assert caught.value.kind == "empty"


@pytest.mark.parametrize(
    "stream",
    [
        b"<html><body>Login</body></html>",
        b"method=POST",
        b'{"ok": true}',
        b'{"choices": []}',
        b'{"choices"',
        b"[]",
    ],
)
def test_a_body_that_is_not_a_completion_is_a_protocol_error(stream: bytes) -> None:
    with pytest.raises(ProviderError) as caught:
        decode(stream)

    assert caught.value.kind == "protocol"


def test_an_error_in_a_response_with_status_200_is_raised() -> None:
    inner = {"error": {"code": 400, "message": "Token limit reached"}}
    usage = {"prompt_tokens": 4, "completion_tokens": 2}

    error = failure(chunk({"content": "x"}), {**chunk({}, "length"), **inner, "usage": usage})

    assert (error.kind, error.usage) == ("context_overflow", Usage(input=4, output=2))
    with pytest.raises(ProviderError, match="Token limit"):
        decode(json.dumps(inner).encode())


def test_an_error_in_a_choice_is_raised() -> None:
    choice = {
        "index": 0,
        "finish_reason": "error",
        "error": {"code": 402, "message": "Insufficient credits"},
    }

    for stream in (
        events({"choices": [choice | {"delta": {}}]}),
        json.dumps({"choices": [choice]}).encode(),
    ):
        with pytest.raises(ProviderError, match="Insufficient credits") as caught:
            decode(stream)
        assert (caught.value.kind, caught.value.status) == ("quota", 402)


def test_an_error_field_of_llama_cpp_is_raised() -> None:
    field = (
        b'error: {"code":400,"message":"the request exceeds the available context size",'
        b'"type":"x"}\n\n'
    )

    for before in (b"", events(chunk({"content": "x"}), done=False)):
        with pytest.raises(ProviderError, match="exceeds the available context") as caught:
            decode(before + field + b"data: [DONE]\n\n")
        assert caught.value.kind == "context_overflow"


def test_plain_text_in_place_of_an_event_is_quoted_in_the_error() -> None:
    with pytest.raises(
        ProviderError, match=r"sent an event of an unknown shape: Internal Server Error$"
    ) as caught:
        decode(b"event: error\ndata: Internal Server Error\n\n")

    assert caught.value.kind == "protocol"


def test_an_error_without_an_error_object_is_raised() -> None:
    error = failure(
        chunk({"content": "x"}), {"object": "error", "message": "boom", "type": "X", "code": 503}
    )

    assert (error.kind, error.status) == ("overloaded", 503)


def test_events_before_an_error_in_the_same_block_are_kept() -> None:
    decoder = ChatDecoder(Quirks(), "acme", "acme-1")

    seen = decoder.feed(events(chunk({"content": "x"}), {"error": {"message": "boom"}}))

    assert seen == [TextDelta(text="x")]
    assert decoder.failure is not None
    assert decoder.feed(events(chunk({"content": "y"}))) == []
    with pytest.raises(ProviderError, match="boom"):
        decoder.finish()


def test_an_error_event_of_groq_is_raised() -> None:
    stream = events(chunk({"reasoning": "hm"}), done=False)
    stream += (
        b'event: error\ndata: {"error":{"message":"bad call","code":"tool_use_failed",'
        b'"status_code":400}}\n\n'
    )

    with pytest.raises(ProviderError) as caught:
        decode(stream)

    assert (caught.value.kind, caught.value.retryable, caught.value.status) == (
        "invalid_request",
        False,
        400,
    )
    assert caught.value.code == "tool_use_failed"
    assert is_refused_call(caught.value)


def calls_of(*deltas: Any, finish: str = "tool_calls") -> list[tuple[str, str, str]]:
    message = read(*(chunk(delta) for delta in deltas), chunk({}, finish))
    return [(one.id, one.name, one.arguments) for one in message.calls]


def test_fragments_are_added_to_their_call() -> None:
    a, b = ("a", "look", '{"at":1}'), ("b", "see", "{}")

    assert calls_of(
        fragment(0, "a", "look", '{"at"'),
        fragment(1, "b", "see", "{"),
        fragment(0, None, None, ":1}"),
        fragment(1, None, None, "}"),
    ) == [a, b]
    assert calls_of(fragment(1, "a", "look", '{"at":1}'), fragment(5, "b", "see", "{}")) == [a, b]
    assert calls_of(fragment(None, "a", "look", '{"at":1}'), fragment(None, "b", "see", "{}")) == [
        a,
        b,
    ]
    assert calls_of(fragment(None, "a", "look", '{"at"'), fragment(None, None, "", ":1}")) == [a]
    assert calls_of(fragment(None, "a", "look", '{"at"'), fragment(None, "a", "", ":1}")) == [a]
    assert calls_of(fragment(0, "a", "look", '{"at"'), fragment(0, "", "", ":1}")) == [a]
    assert calls_of(fragment(0, "a", "look", '{"at":1}'), fragment(0, "b", "see", "{}")) == [a, b]
    assert calls_of(fragment(0, "a", "look", ""), fragment(0, "a", "look", '{"at":1}')) == [a]
    assert calls_of(fragment(0, "a", "look", {"at": 1})) == [a]
    assert calls_of(fragment(0, "a", "look", None)) == [("a", "look", "")]


@pytest.mark.parametrize("index", [0, None])
def test_complete_calls_without_ids_are_not_joined(index: int | None) -> None:
    one, two = (fragment(index, "", "look", f'{{"at":{at}}}')["tool_calls"][0] for at in (1, 2))

    for deltas in ([{"tool_calls": [one]}, {"tool_calls": [two]}], [{"tool_calls": [one, two]}]):
        assert [call[1:] for call in calls_of(*deltas)] == [
            ("look", '{"at":1}'),
            ("look", '{"at":2}'),
        ]
    again = fragment(index, "", "look", "")  # a fragment that only repeats the name
    assert len(calls_of({"tool_calls": [one]}, again)) == 1


def test_a_named_call_without_an_index_is_a_new_call_even_with_the_same_id() -> None:
    one, two = calls_of(fragment(None, "a", "look", "{}"), fragment(None, "a", "look", "[]"))

    assert (one, two[1:]) == (("a", "look", "{}"), ("look", "[]"))
    assert two[0] not in ("", "a")
    assert calls_of(fragment(None, "a", "look", "{"), fragment(None, "a", None, "}")) == [
        ("a", "look", "{}")
    ]


def test_a_call_without_an_id_gets_an_id() -> None:
    streamed = read(
        chunk(fragment(0, "", "look", "{}")),
        chunk(fragment(1, "", "look", "{}")),
        chunk({}, "tool_calls"),
    )
    json_calls = [{"id": "", "function": {"name": "look", "arguments": "{}"}} for _ in range(2)]

    for message in (streamed, whole({"tool_calls": json_calls})):
        assert len({one.id for one in message.calls}) == 2
        assert all(message.calls)


def test_two_calls_of_one_reply_never_share_an_id() -> None:
    json_calls = [{"id": "a", "function": {"name": "look", "arguments": "{}"}} for _ in range(2)]

    assert len({one.id for one in whole({"tool_calls": json_calls}).calls}) == 2


def test_a_call_that_was_cut_is_not_complete() -> None:
    first, half = (
        chunk(fragment(0, "a", "look", '{"at":1}')),
        chunk(fragment(1, "b", "look", '{"at":')),
    )

    cut = read(first, half, chunk({}, "length"))
    closed = read(first, half, chunk({}, "tool_calls"))
    unsaid = read(first, half)

    assert [one.complete for one in cut.calls] == [True, False]
    # The model closed the call, although its JSON is invalid.
    assert [one.complete for one in closed.calls] == [True, True]
    assert [one.complete for one in unsaid.calls] == [True, False]
    assert not read(chunk(fragment(0, "a", "look", "")), chunk({}, "length")).calls[0].complete
    assert read(first, chunk({}, "length")).calls[0].complete


def test_the_older_function_call_field_is_decoded() -> None:
    message = read(
        chunk({"function_call": {"name": "look", "arguments": ""}}),
        chunk({"function_call": {"arguments": "{}"}}),
        chunk({}, "function_call"),
    )

    assert [(one.name, one.arguments) for one in message.calls] == [("look", "{}")]


def test_an_empty_tool_call_is_ignored() -> None:
    empty = {"name": "", "arguments": ""}
    phantom = {
        "content": "x",
        "tool_calls": [{"index": 0, "id": "", "function": empty}],
        "function_call": empty,
    }

    seen, message = decode(events(chunk(phantom), chunk({}, "stop")))

    assert seen == [TextDelta(text="x")]
    assert (message.calls, message.stop_reason) == ((), StopReason.END_TURN)
    assert whole(phantom).calls == ()
    late = (fragment(0, "", "", ""), fragment(0, "a", "look", "{}"), {"function_call": empty})
    assert calls_of(*late) == [("a", "look", "{}")]


def test_deltas_name_the_call_they_belong_to() -> None:
    seen, _ = decode(
        events(
            chunk(fragment(3, "a", "look", "{")),
            chunk(fragment(3, None, None, "}")),
            chunk({}, "tool_calls"),
        )
    )

    assert seen == [
        ToolCallDelta(index=0, id="a", name="look", arguments="{"),
        ToolCallDelta(index=0, id="a", name="look", arguments="}"),
    ]


def test_reasoning_is_read_from_any_known_field() -> None:
    for field in ("reasoning_content", "reasoning", "reasoning_text", "thinking"):
        message = read(
            chunk({field: "h"}),
            chunk({field: "m"}),
            chunk({"content": "x", field: None}),
            chunk({}, "stop"),
        )
        assert message.content == (Thinking(text="hm"), Text(text="x"))


def test_reasoning_details_are_not_shown_twice_and_are_sent_back_complete() -> None:
    def detail(**more: Any) -> list[Any]:
        return [{"type": "reasoning.text", "index": 0, "format": "f", **more}]

    message = read(
        chunk({"reasoning": "h", "reasoning_details": detail(text="h", signature="", id=None)}),
        chunk({"reasoning": "m", "reasoning_details": detail(text="m")}),
        chunk({"reasoning": None, "reasoning_details": detail(signature="sig")}),
        chunk(
            {"reasoning": None, "reasoning_details": detail(text="", signature=None, format="g")}
        ),
        chunk(
            {"reasoning_details": [{"type": "reasoning.encrypted", "index": 1, "data": "sealed"}]}
        ),
        chunk({"content": "x"}),
        chunk({}, "stop"),
    )

    assert [part.text for part in message.content if isinstance(part, Thinking)] == ["hm"]
    assert sent(message)[0]["reasoning_details"] == [
        {
            "type": "reasoning.text",
            "index": 0,
            "format": "g",
            "text": "hm",
            "signature": "sig",
            "id": None,
        },
        {"type": "reasoning.encrypted", "index": 1, "data": "sealed"},
    ]


def test_reasoning_details_without_a_reasoning_field_are_thinking() -> None:
    message = read(
        chunk({"reasoning_details": [{"type": "reasoning.text", "text": "hm"}]}),
        chunk({"content": "x"}, "stop"),
    )

    assert message.content[0] == Thinking(
        text="hm",
        opaque=Opaque(
            wire="openai_chat",
            data={"reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
        ),
    )


def test_encrypted_reasoning_details_without_text_are_sent_back() -> None:
    message = read(
        chunk({"reasoning_details": [{"type": "reasoning.encrypted", "data": "s"}]}),
        chunk({"content": "x"}, "stop"),
    )

    assert sent(message)[0]["reasoning_details"] == [{"type": "reasoning.encrypted", "data": "s"}]


def test_content_lists_of_mistral_are_decoded_and_sent_back() -> None:
    thinking = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]

    message = read(
        chunk({"content": thinking}),
        chunk({"content": thinking}),
        chunk({"content": "x"}),
        chunk({}, "stop"),
    )

    assert [type(part).__name__ for part in message.content] == ["Thinking", "Text"]
    assert sent(message)[0]["content"] == [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hmhm"}]},
        {"type": "text", "text": "x"},
    ]
    only_call = read(
        chunk({"content": thinking}), chunk(fragment(0, "a", "look", "{}")), chunk({}, "tool_calls")
    )
    assert sent(only_call)[0]["content"] == [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    ]


def test_extra_content_of_a_call_is_sent_back_with_the_call() -> None:
    extra = {"google": {"thought_signature": "sig"}}
    piece = fragment(0, "a", "look", "{}")
    piece["tool_calls"][0]["extra_content"] = extra

    message = read(chunk(piece), chunk({}, "tool_calls"))

    assert sent(message)[0]["tool_calls"][0]["extra_content"] == extra
    assert "extra_content" not in json.dumps(sent(replace(message, provider="other")))


def test_think_tags_in_the_text_are_split_into_thinking() -> None:
    pieces = ["\n<th", "ink>h", "m</thi", "nk>\n\nx", " <think>y"]
    stream = events(*(chunk({"content": piece}) for piece in pieces), chunk({}, "stop"))

    seen, message = decode(stream, think_tags=True)

    assert message.content == (Thinking(text="hm"), Text(text="x <think>y"))
    assert "".join(event.text for event in seen if isinstance(event, ThinkingDelta)) == "hm"
    assert decode(stream)[1].text == "".join(pieces)
    for cut in range(len(text := "<think>a<b</think>c")):
        parted = events(chunk({"content": text[:cut]}), chunk({"content": text[cut:]}))
        assert decode(parted, think_tags=True)[1].content == (
            Thinking(text="a<b"),
            Text(text="c"),
        )
    assert read(chunk({"content": "<thi"}), chunk({}, "stop"), think_tags=True).text == "<thi"
    assert read(chunk({"content": "plain"}), chunk({}, "stop"), think_tags=True).text == "plain"


@pytest.mark.parametrize(
    ("raw", "usage"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 5}, Usage(input=10, output=5)),
        (
            {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": None},
            Usage(input=10, output=5),
        ),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "total_tokens": 15,
                "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
                "completion_tokens_details": {"reasoning_tokens": 3},
            },
            Usage(input=10, output=5, cache_read=4, cache_write=2, reasoning=3),
        ),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "total_tokens": 18,
                "completion_tokens_details": {"reasoning_tokens": 3},
            },
            Usage(input=10, output=8, reasoning=3),
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 5, "prompt_cache_hit_tokens": 4},
            Usage(input=10, output=5, cache_read=4),
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 5, "cached_tokens": 4},
            Usage(input=10, output=5, cache_read=4),
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 5, "num_cached_tokens": 4},
            Usage(input=10, output=5, cache_read=4),
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 5, "cost": 0.25},
            Usage(input=10, output=5, cost=0.25),
        ),
        ({"prompt_tokens": 10, "completion_tokens": 5, "cost": -1}, Usage(input=10, output=5)),
        (
            {"prompt_tokens": 10, "completion_tokens": 5, "cost": float("nan")},
            Usage(input=10, output=5),
        ),
        (
            {
                "input_tokens": 10,
                "output_tokens": 5,
                "cache_read_input_tokens": 4,
            },  # a proxy's, of other wires
            Usage(input=10, output=5, cache_read=4),
        ),
        ({"prompt_tokens": "many", "completion_tokens": -5}, Usage()),
        ({"prompt_tokens": float("inf"), "completion_tokens": float("nan")}, Usage()),
    ],
)
def test_usage_is_normalised(raw: Any, usage: Usage) -> None:
    assert read(chunk({"content": "x"}, "stop"), {"choices": [], "usage": raw}).usage == usage


def test_the_last_usage_counts_in_whichever_chunk_it_is() -> None:
    def tokens(count: int) -> Any:
        return {"prompt_tokens": 1, "completion_tokens": count}

    cumulative = read(chunk({"content": "x"}, usage=tokens(1)), chunk({}, "stop", usage=tokens(2)))
    groq = read(chunk({"content": "x"}), chunk({}, "stop", x_groq={"usage": tokens(2)}))
    moonshot = read(
        {"choices": [{"delta": {"content": "x"}, "finish_reason": "stop", "usage": tokens(2)}]}
    )

    assert [one.usage for one in (cumulative, groq, moonshot)] == [Usage(input=1, output=2)] * 3


def test_only_the_first_of_several_choices_counts() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": None}]}

    assert read(chunk({"content": "x"}), other, chunk({}, "stop")).text == "x"


def test_a_complete_reply_to_a_streaming_request_is_emitted_at_the_end() -> None:
    decoder = ChatDecoder(Quirks(), "acme", "acme-1")
    answer = {"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]}

    assert decoder.feed(json.dumps(answer).encode()) == []
    assert decoder.finish().message.text == "x"
    assert decoder.late == [TextDelta(text="x")]


def test_a_complete_completion_as_the_only_event_is_decoded() -> None:
    choice = {
        "message": {"content": "x", "tool_calls": [{"id": "a", "function": {"name": "look"}}]},
        "finish_reason": "stop",
    }

    message = read({"object": "chat.completion", "choices": [choice]})

    assert (message.text, len(message.calls)) == ("x", 1)
    repeated = {"choices": [{"message": {"content": "xy"}, "finish_reason": "stop"}]}
    assert read(chunk({"content": "x"}), chunk({"content": "y"}), repeated).text == "xy"


def test_the_message_has_the_model_and_id_of_the_server() -> None:
    message = read(chunk({"content": "x"}, "stop"))

    assert (message.provider, message.model) == ("acme", "acme-1")
    assert message.meta == {"id": "c1", "model": "acme-1-0"}


# Garbage

NAMES = st.sampled_from(
    """id model choices delta message content reasoning reasoning_details tool_calls function name
    arguments index finish_reason usage error text type thinking refusal prompt_tokens
    extra_content x_groq""".split()
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.floats()
    | st.integers(-2, 2)
    | st.sampled_from(["", "x", "stop", "thinking"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=15,
)


@settings(max_examples=examples(150))
@given(st.lists(VALUES, max_size=4))
def test_chunks_of_any_shape_raise_nothing_but_provider_errors(chunks: list[Any]) -> None:
    for stream in (
        events(*chunks),
        json.dumps(chunks).encode(),
        json.dumps({"choices": chunks}).encode(),
    ):
        try:
            decode(stream)
        except ProviderError:
            pass


@settings(max_examples=examples(150))
@given(
    st.lists(
        st.tuples(st.dictionaries(NAMES, VALUES, max_size=5), VALUES, VALUES),
        min_size=1,
        max_size=4,
    )
)
def test_deltas_of_any_shape_raise_nothing_but_provider_errors(parts: list[Any]) -> None:
    stream = events(
        *(chunk(delta, finish, usage=usage) for delta, finish, usage in parts), chunk({}, "stop")
    )
    answer = {
        "choices": [{"message": parts[0][0], "finish_reason": parts[0][1]}],
        "usage": parts[0][2],
    }
    for given_bytes in (stream, json.dumps(answer).encode()):
        try:
            seen, message = decode(given_bytes)
        except ProviderError:
            continue
        assert all(
            isinstance(event.text, str)
            for event in seen
            if isinstance(event, (TextDelta, ThinkingDelta))
        )
        assert isinstance(message.text, str)
        OpenAIChat.encode(Request(messages=[message]), ENTRY, "acme-1")


@settings(max_examples=100)
@given(st.binary(max_size=200))
def test_any_bytes_raise_nothing_but_provider_errors(stream: bytes) -> None:
    for given_bytes in (stream, b"data: " + stream + b"\n\n", b"{" + stream):
        try:
            decode(given_bytes)
        except ProviderError:
            pass


@pytest.mark.parametrize(
    "deep",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"9" * 5000,
        b'{"choices":[{"delta":{"content":' + b"[" * 99_999,
    ],
)
def test_deep_and_huge_values_are_protocol_errors(deep: bytes) -> None:
    for stream in (deep, b"data: " + deep + b"\n\n"):
        with pytest.raises(ProviderError):
            decode(stream)


def test_a_stream_cut_at_any_byte_decodes_the_same() -> None:
    stream = b"\xef\xbb\xbf" + events(
        chunk({"reasoning": "hm é"}),
        chunk({"content": "häppy \U0001f408"}),
        chunk(fragment(0, "a", "look", "{}")),
        chunk({}, "tool_calls"),
    ).replace(b"\n", b"\r\n")
    seen, message = decode(stream)

    for place in range(len(stream)):
        decoder = ChatDecoder(Quirks(), "acme", "acme-1")
        assert decoder.feed(stream[:place]) + decoder.feed(stream[place:]) == seen
        assert replace(decoder.finish().message, id="") == replace(message, id="")


# The provider


class Server:
    """A fake of the HTTP client that plays blocks and stores the requests."""

    def __init__(self, *blocks: bytes) -> None:
        self.blocks = blocks
        self.asked: list[tuple[str, Any]] = []
        self.closed = 0

    def mask(self, text: str) -> str:
        return text

    @asynccontextmanager
    async def post(
        self, path: str, body: bytes, headers: Any = None, *, model: str = ""
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        self.asked.append((path, json.loads(body)))
        try:
            async with aclosing(self._play()) as blocks:
                yield blocks
        finally:
            self.closed += 1

    async def _play(self) -> AsyncGenerator[bytes, None]:
        for block in self.blocks:
            yield block


async def test_the_provider_streams_and_ends_with_the_reply() -> None:
    server = Server(
        events(chunk({"content": "a"}), done=False), events(chunk({"content": "b"}, "stop"))
    )

    seen = [
        event async for event in OpenAIChat(ENTRY, server).stream(Request(messages=[user("hi")]))
    ]

    assert seen[:-1] == [TextDelta(text="a"), TextDelta(text="b")]
    assert isinstance(seen[-1], Done)
    assert server.asked[0][0] == "/chat/completions"
    assert server.asked[0][1]["model"] == "acme-1"
    assert server.closed == 1


async def test_the_provider_stops_reading_at_an_error() -> None:
    server = Server(events({"error": {"message": "boom"}}), events(chunk({"content": "never"})))

    with pytest.raises(ProviderError, match="acme: boom"):
        async for _ in OpenAIChat(ENTRY, server).stream(
            Request(model="other", messages=[user("hi")])
        ):
            pytest.fail("nothing was said")

    assert server.asked[0][1]["model"] == "other"
    assert server.closed == 1


async def test_the_provider_emits_events_for_a_complete_reply() -> None:
    answer = {"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]}
    server = Server(json.dumps(answer).encode())

    seen = [
        event async for event in OpenAIChat(ENTRY, server).stream(Request(messages=[user("hi")]))
    ]

    assert seen[0] == TextDelta(text="x")


# Other shapes of calls and contents


def test_a_custom_call_is_a_call_whose_arguments_are_text() -> None:
    custom = {"id": "c9", "type": "custom", "custom": {"name": "math", "input": "4 + 4"}}

    reply = whole({"content": None, "tool_calls": [custom]}, "tool_calls")

    assert (reply.calls[0].name, reply.calls[0].arguments) == ("math", "4 + 4")
    assert sent(user("go"), reply)[1]["tool_calls"] == [custom]


def test_a_call_of_a_function_may_have_the_empty_fields_of_a_custom_call() -> None:
    function = {"name": "look", "arguments": '{"at": 1}'}
    both = {"id": "c1", "function": function, "custom": {"name": "", "input": ""}}

    reply = whole({"content": None, "tool_calls": [both]}, "tool_calls")

    assert (reply.calls[0].name, reply.calls[0].arguments) == ("look", '{"at": 1}')
    assert sent(user("go"), reply)[1]["tool_calls"][0]["function"] == function


def test_content_that_is_an_object_is_json_text() -> None:
    assert whole({"content": {"name": "Ada"}}).text == '{"name":"Ada"}'


def test_an_empty_delta_beside_a_message_is_ignored() -> None:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "Paris"},
        "delta": {"role": "assistant", "content": ""},
        "finish_reason": "stop",
    }
    reply = json.dumps({"id": "c1", "choices": [choice]}).encode()

    assert ChatDecoder(Quirks(), "perplexity", "sonar").decode(reply).message.text == "Paris"


def test_a_forced_tool_switches_the_thinking_of_deepseek_off() -> None:
    deepseek = next(entry for entry in ENTRIES if entry.name == "deepseek")

    def asked(choice: str) -> Any:
        request = Request(messages=(user("a"),), tools=(LOOK,), tool_choice=choice)
        return json.loads(OpenAIChat.encode(request, deepseek, "deepseek-v4-flash"))

    assert "thinking" not in asked("auto")
    assert asked("required")["thinking"] == asked("look")["thinking"] == {"type": "disabled"}
