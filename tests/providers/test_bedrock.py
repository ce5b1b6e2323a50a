"""Encoding and decoding on the wire of Bedrock's Converse."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from fakes.eventstream import encode_frame
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
from glue.errors import MissingKey, ProviderError
from glue.messages import ToolSpec
from glue.provider import Opaque, TextDelta, Thinking, ThinkingDelta, ToolCallDelta
from glue.providers.aws import Credentials
from glue.providers.bedrock import Bedrock, BedrockDecoder
from glue.providers.catalog import Entry, Quirks
from glue.providers.http import HTTP
from glue.providers.sigv4 import sign

ENTRY = Entry("bedrock", wire="bedrock", base_url="https://model.example")
NOVA, CLAUDE, LLAMA = (
    "us.amazon.nova-micro-v1:0",
    "us.anthropic.claude-haiku-4-5-20251001-v1:0",
    "meta.llama3",
)
WEATHER = ToolSpec(
    name="weather",
    description="Say what the weather is.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
PIXEL = Image(data=b"\x89PNG-pixel")


def signed(text: str, signature: str) -> Thinking:
    return Thinking(text=text, opaque=Opaque(wire="bedrock", data={"signature": signature}))


def reply(*parts: Any, provider: str = "bedrock", model: str = CLAUDE) -> AssistantMessage:
    return AssistantMessage(content=parts, provider=provider, model=model)


def call(arguments: str = '{"city":"Oslo"}', id: str = "tooluse_1", **more: Any) -> ToolCall:
    return ToolCall(id=id, name="weather", arguments=arguments, **more)


def result(*parts: Any, id: str = "tooluse_1", **more: Any) -> ToolMessage:
    content = tuple(Text(text=part) if isinstance(part, str) else part for part in parts)
    return ToolMessage(call_id=id, name="weather", content=content, **more)


def body(*messages: Message, model: str = CLAUDE, **more: Any) -> Any:
    return json.loads(Bedrock.encode(Request(messages=messages, **more), ENTRY, model))


def sent(*messages: Message, **more: Any) -> Any:
    return body(*messages, **more)["messages"]


# Requests


def test_request_wire(snapshot: SnapshotAssertion) -> None:
    sealed = Opaque(wire="bedrock", data={"reasoningContent": {"redactedContent": "c2VhbGVk"}})
    conversation = (
        replace(
            user(
                "What is this, and is it raining?",
                PIXEL,
                File(media_type="text/csv", data=b"a,b", name="tab_1.csv"),
            ),
            id="m1",
        ),
        reply(
            signed("Let me look.", "sig-1"),
            sealed,
            Text(text="I will ask."),
            call(),
            call(id="tooluse_2", arguments=""),
        ),
        result("21 degrees"),
        result("no city", PIXEL, id="tooluse_2", is_error=True),
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
                "guardrailConfig": {"guardrailIdentifier": "g"},
                "inferenceConfig": {"topP": 0.5},
            },
        )
        == snapshot
    )


def test_a_message_is_encoded_once() -> None:
    messages: list[Message] = [user("hi"), reply(Text(text="ho")), user("more")]
    first = Bedrock.encode(Request(messages=messages), ENTRY, NOVA)
    memos = [dict(message.memo) for message in messages]

    assert Bedrock.encode(Request(messages=messages), ENTRY, NOVA) == first
    for message, memo in zip(messages, memos, strict=True):
        assert all(message.memo[key] is memo[key] for key in memo)


def test_model_names_are_escaped_in_the_path() -> None:
    assert (
        Bedrock(ENTRY, None).target(NOVA, True)
        == "/model/us.amazon.nova-micro-v1%3A0/converse-stream"
    )
    assert (
        Bedrock(ENTRY, None).target("arn:aws:bedrock:us-east-1:1:p/x", False)
        == "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Ap%2Fx/converse"
    )


def test_roles_alternate_and_blank_texts_half_calls_and_excluded_messages_are_left_out() -> None:
    messages = sent(
        user("a", " \n"),
        user("b"),
        reply(Text(text=" "), call(complete=False)),
        replace(user("x"), excluded=True),
    )

    assert messages == [{"role": "user", "content": [{"text": "a"}, {"text": "b"}]}]
    assert [message["role"] for message in sent(reply(call()), result("a"), user("b"))] == [
        "user",
        "assistant",
        "user",
    ]


def test_tool_config_is_sent_if_the_history_has_tool_blocks() -> None:
    history = (user("go"), reply(call()), result("a"))

    assert [tool["toolSpec"]["name"] for tool in body(*history)["toolConfig"]["tools"]] == [
        "weather"
    ]
    assert "toolConfig" in body(*history, tools=(WEATHER,), tool_choice="none")
    assert "toolConfig" not in body(user("go"), tools=(WEATHER,), tool_choice="none")
    assert "toolConfig" not in body(user("go"))


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [("auto", None), ("required", {"any": {}}), ("weather", {"tool": {"name": "weather"}})],
)
def test_tool_choice(choice: str, wanted: Any) -> None:
    assert (
        body(user("go"), tools=(WEATHER,), tool_choice=choice)["toolConfig"].get("toolChoice")
        == wanted
    )


def test_a_result_status_is_sent_only_to_models_that_accept_it() -> None:
    messages = (user("go"), reply(call()), result("no", is_error=True))

    assert sent(*messages, model=NOVA)[2]["content"][0]["toolResult"]["status"] == "error"
    assert sent(*messages, model=LLAMA)[2]["content"][0]["toolResult"] == {
        "toolUseId": "tooluse_1",
        "content": [{"text": "error:"}, {"text": "no"}],
    }


def test_an_empty_result_still_has_content() -> None:
    answer = sent(user("go"), reply(call()), result())[2]["content"][0]["toolResult"]

    assert answer == {
        "toolUseId": "tooluse_1",
        "content": [{"text": "(no output)"}],
        "status": "success",
    }


def test_thinking_is_sent_back_to_the_same_model_only() -> None:
    sealed = Opaque(wire="bedrock", data={"reasoningContent": {"redactedContent": "eA=="}})
    parts = (signed("hm", "s"), sealed, Thinking(text="unsigned"), Text(text="ok"))

    own = sent(user("go"), reply(*parts))[1]["content"]
    region = sent(user("go"), reply(*parts), model=CLAUDE.replace("us.", "eu."))[1]["content"]
    switched = sent(user("go"), reply(*parts), model="us.anthropic.claude-opus-4-1-20250805-v1:0")[
        1
    ]["content"]
    foreign = sent(user("go"), reply(*parts, provider="anthropic"))[1]["content"]

    thought = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}}
    assert own == region == [thought, sealed.data, {"text": "ok"}]
    assert switched == foreign == [{"text": "ok"}]
    assert sent(user("go"), reply(signed("hm", "s"))) == [
        {"role": "user", "content": [{"text": "go"}]}
    ]


def test_documents_have_unique_plain_names_and_never_come_without_text() -> None:
    file = File(media_type="application/pdf", data=b"%PDF", name="folder/a_b.pdf")
    blocks = sent(
        user(file, replace(file, data=b"other"), File(media_type="application/json", data=b"{}"))
    )[0]["content"]
    names = [block["document"]["name"] for block in blocks[:3]]

    assert [block["document"]["format"] for block in blocks[:3]] == ["pdf", "pdf", "txt"]
    assert names[0].startswith("a b pdf ")
    assert names[2].startswith("document ")
    assert len(set(names)) == 3
    assert blocks[3] == {"text": names[0]}


def test_a_file_that_cannot_be_sent_is_a_one_line_error() -> None:
    with pytest.raises(
        ProviderError, match="cannot send a file of type audio/wav; only these can be sent: csv"
    ) as caught:
        sent(user(File(media_type="audio/wav", data=b"\xff")))

    assert caught.value.kind == "invalid_request"


def test_an_image_url_is_sent_as_text() -> None:
    pictures = sent(
        user(Image(url="https://pictures.example/a"), Image(data=b"x", media_type="image/jpg"))
    )[0]["content"]

    assert pictures[0] == {"text": "(an image: https://pictures.example/a)"}
    assert pictures[1]["image"] == {"format": "jpeg", "source": {"bytes": "eA=="}}


@pytest.mark.parametrize(
    ("model", "effort", "wanted"),
    [
        (CLAUDE, "medium", {"thinking": {"type": "enabled", "budget_tokens": 8192}}),
        (CLAUDE, "none", None),
        (
            "anthropic.claude-opus-4-6-v1:0",
            "high",
            {
                "thinking": {"type": "adaptive", "display": "summarized"},
                "output_config": {"effort": "high"},
            },
        ),
        ("openai.gpt-oss-20b-1:0", "minimal", {"reasoning_effort": "low"}),
        ("qwen.qwen3-32b-v1:0", "high", {"reasoning_config": "high"}),
        (
            "us.amazon.nova-2-lite-v1:0",
            "low",
            {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "low"}},
        ),
        (NOVA, "high", None),
        (LLAMA, "high", None),
    ],
)
def test_reasoning_is_requested_in_the_form_that_the_model_knows(
    model: str, effort: Any, wanted: Any
) -> None:
    assert (
        body(user("hi"), model=model, reasoning=effort).get("additionalModelRequestFields")
        == wanted
    )


def test_thinking_is_off_with_a_forced_tool_and_in_a_round_that_began_without_it() -> None:
    foreign = (user("go"), reply(call(), provider="openai"), result("a"))
    own = (user("go"), reply(signed("hm", "s"), call()), result("a"))

    def asks(*messages: Message, **more: Any) -> bool:
        return "additionalModelRequestFields" in body(
            *messages, tools=(WEATHER,), reasoning="low", **more
        )

    assert not asks(user("go"), tool_choice="required")
    assert not asks(*foreign)
    assert asks(*own)
    assert asks(*foreign, user("next"))


def test_a_thinking_budget_needs_max_tokens_and_excludes_a_temperature() -> None:
    asked = body(user("hi"), reasoning="low", temperature=0.1)
    plain = body(user("hi"), temperature=0.1)

    assert asked["inferenceConfig"] == {"maxTokens": 32_000}
    assert plain["inferenceConfig"] == {"temperature": 0.1}
    assert "inferenceConfig" not in body(
        user("hi"), temperature=0.1, model="anthropic.claude-opus-4-7-v1:0"
    )


def test_cache_marks_are_sent_to_models_that_cache_and_are_at_most_four() -> None:
    messages: list[Message] = [user("go")]
    for number in range(4):
        messages += [reply(call(id=f"tooluse_{number}")), result("a", id=f"tooluse_{number}")]
    request = Request(messages=messages, tools=(WEATHER,), system="S", cache=True)

    def marks(model: str) -> int:
        return Bedrock.encode(request, ENTRY, model).decode().count("cachePoint")

    assert [marks(model) for model in (CLAUDE, NOVA, LLAMA)] == [4, 3, 0]
    written = json.loads(Bedrock.encode(request, ENTRY, CLAUDE))
    assert (
        written["toolConfig"]["tools"][-1]
        == written["system"][-1]
        == {"cachePoint": {"type": "default"}}
    )
    assert [
        index for index, each in enumerate(written["messages"]) if "cachePoint" in str(each)
    ] == [6, 8]


def test_a_schema_is_sent_if_the_model_supports_it() -> None:
    schema = {"title": "Day", "type": "object", "properties": {"a": {"type": "string"}}}

    config = body(user("hi"), output_schema=schema)["outputConfig"]["textFormat"]

    assert config["type"] == "json_schema"
    assert config["structure"]["jsonSchema"]["name"] == "Day"
    assert json.loads(config["structure"]["jsonSchema"]["schema"])["additionalProperties"] is False
    assert not Bedrock.encoder(Request(), ENTRY, NOVA).takes_output(schema)
    assert "outputConfig" not in body(user("hi"), output_schema=schema, model=NOVA)


# Replies

Event = tuple[str, dict[str, Any]]


def stream(*events: Event) -> bytes:
    def frame(kind: str, payload: dict[str, Any]) -> bytes:
        sort = "exception" if kind.endswith("Exception") else "event"
        return encode_frame(
            {f":{sort}-type": kind, ":message-type": sort},
            json.dumps({**payload, "p": "abc"}).encode(),
        )

    return b"".join(frame(*event) for event in events)


def delta(at: int, **fields: Any) -> Event:
    return "contentBlockDelta", {"contentBlockIndex": at, "delta": fields}


def begin(at: int, **fields: Any) -> Event:
    return "contentBlockStart", {"contentBlockIndex": at, "start": fields}


def close(at: int) -> Event:
    return "contentBlockStop", {"contentBlockIndex": at}


def tool(at: int, *pieces: str, id: str = "tooluse_1", closed: bool = True) -> list[Event]:
    first = begin(at, toolUse={"toolUseId": id, "name": "weather"})
    return [
        first,
        *(delta(at, toolUse={"input": piece}) for piece in pieces),
        *([close(at)] if closed else []),
    ]


def stop(reason: str, **usage: int) -> list[Event]:
    return [
        ("messageStop", {"stopReason": reason}),
        *([("metadata", {"usage": usage})] if usage else []),
    ]


def decode(data: bytes, size: int = 1 << 20) -> tuple[list[Any], AssistantMessage]:
    decoder = BedrockDecoder(Quirks(), "bedrock", CLAUDE)
    events = [
        event for at in range(0, len(data), size) for event in decoder.feed(data[at : at + size])
    ]
    return events, decoder.finish().message


def fails(data: bytes) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        decode(data)
    return caught.value


EVENTS: list[Event] = [
    ("messageStart", {"role": "assistant"}),
    delta(0, reasoningContent={"text": "Rain?"}),
    delta(0, reasoningContent={"signature": "sig"}),
    close(0),
    delta(1, text="I will "),
    delta(1, text="aßk."),
    close(1),
    *tool(2, '{"city":', '"Oslo"}'),
    *stop("tool_use", inputTokens=9, outputTokens=7, totalTokens=16),
]
SMALL = stream(*EVENTS)


def test_stream_wire(snapshot: SnapshotAssertion) -> None:
    events, message = decode(SMALL)

    assert [*events, replace(message, id="message")] == snapshot


def test_the_trace_and_other_fields_of_the_model_are_in_the_meta_of_the_reply() -> None:
    trace, more = {"guardrail": {"x": 1}}, {"stop_sequence": "END"}
    last = ("messageStop", {"stopReason": "end_turn", "additionalModelResponseFields": more})
    _, message = decode(stream(delta(0, text="x"), last, ("metadata", {"trace": trace})))

    assert message.meta == {"trace": trace, "additionalModelResponseFields": more}


def test_a_frame_without_a_payload_is_ignored() -> None:
    ping = encode_frame({":event-type": "ping", ":message-type": "event"}, b"")

    assert decode(ping + SMALL)[1].content == decode(SMALL)[1].content


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
        ("guardrail_intervened", "refusal"),
        ("content_filtered", "refusal"),
        ("malformed_tool_use", "malformed_call"),
        ("zzz", "unknown"),
        *(
            (word, "unknown") for word in ("stop", "length", "error", "refusal", "pause_turn")
        ),  # words of other wires
    ],
)
def test_s004_stop_reasons(raw: str, wanted: str) -> None:
    _, message = decode(stream(delta(0, text="x"), *stop(raw)))

    assert message.stop_reason == wanted
    assert message.raw_stop_reason == raw


def test_a_reply_with_a_call_stops_for_tool_use_and_a_malformed_call_may_be_retried() -> None:
    assert decode(stream(*tool(0, "{}"), *stop("end_turn")))[1].stop_reason == "tool_use"
    assert fails(stream(*stop("malformed_model_output"))).retryable


def test_calls_are_complete_if_they_were_closed_and_not_cut() -> None:
    _, message = decode(stream(*tool(0), *tool(1, '{"ci', id="b"), *stop("max_tokens")))
    _, unclosed = decode(stream(*tool(0, "{}", closed=False), *stop("tool_use")))
    _, empty = decode(stream(*tool(0), *stop("tool_use")))

    assert [part.complete for part in message.calls] == [True, False]
    assert not unclosed.calls[0].complete
    assert (empty.calls[0].arguments, empty.calls[0].complete) == ("", True)


def test_usage_arrives_after_the_stop_and_input_includes_the_cache() -> None:
    _, message = decode(
        stream(
            delta(0, text="x"),
            *stop(
                "end_turn",
                inputTokens=2,
                outputTokens=5,
                cacheReadInputTokens=30,
                cacheWriteInputTokens=4,
            ),
        )
    )
    twins = {
        "inputTokens": 2,
        "outputTokens": 5,
        "cacheReadInputTokenCount": 30,
        "cacheWriteInputTokenCount": 4,
    }
    reply_body = {
        "output": {"message": {"content": [{"text": "x"}]}},
        "stopReason": "end_turn",
        "usage": twins,
    }

    assert message.usage == Usage(input=36, output=5, cache_read=30, cache_write=4)
    assert (
        BedrockDecoder(Quirks(), "bedrock", NOVA)
        .decode(json.dumps(reply_body).encode())
        .message.usage
        == message.usage
    )


def test_a_reply_is_complete_even_if_its_usage_is_cut_off() -> None:
    _, message = decode(SMALL[:-3])

    assert message.text == "I will aßk."
    assert message.usage is None


def test_redacted_thinking_is_kept_even_if_it_arrives_in_pieces() -> None:
    pieces = [delta(0, reasoningContent={"redactedContent": text}) for text in ("YQ==", "YmM=")]
    _, message = decode(stream(*pieces, close(0), delta(1, text="x"), *stop("end_turn")))

    assert message.content[0] == Opaque(
        wire="bedrock", data={"reasoningContent": {"redactedContent": "YWJj"}}
    )


def test_redacted_thinking_is_sent_back_even_if_its_block_was_never_closed() -> None:
    _, message = decode(
        stream(delta(0, reasoningContent={"redactedContent": "YQ=="}), *stop("end_turn"))
    )

    assert message.content == (
        Opaque(wire="bedrock", data={"reasoningContent": {"redactedContent": "YQ=="}}),
    )


def test_server_tools_and_citations_are_kept() -> None:
    use = {"toolUseId": "srv", "name": "grounding", "type": "server_tool_use"}
    events = [
        begin(0, toolUse=use),
        delta(0, toolUse={"input": '{"q":1}'}),
        close(0),
        begin(1, toolResult={"toolUseId": "srv", "status": "success"}),
        delta(1, toolResult=[{"text": "found"}]),
        close(1),
        delta(2, text="x"),
        delta(2, citation={"title": "t"}),
        close(2),
    ]

    _, message = decode(stream(*events, *stop("end_turn")))

    assert message.calls == ()
    assert message.stop_reason == "end_turn"
    assert sent(user("go"), message)[1]["content"] == [
        {"toolUse": {**use, "input": {"q": 1}}},
        {"toolResult": {"toolUseId": "srv", "status": "success", "content": [{"text": "found"}]}},
        {"text": "x"},
    ]
    assert isinstance(message.content[2], Text)
    assert message.content[2].opaque == Opaque(wire="bedrock", data={"citations": [{"title": "t"}]})


def test_a_complete_reply_is_decoded() -> None:
    content = [
        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}},
        {"reasoningContent": {"redactedContent": "eA=="}},
        {"text": "yes"},
        {"citationsContent": {"content": [{"text": " cited"}], "citations": [{"title": "t"}]}},
        {"toolUse": {"toolUseId": "a", "name": "weather", "input": {"x": 1}}},
        {"image": {"format": "png", "source": {"bytes": "eA=="}}},
    ]
    data = {
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": "tool_use",
        "usage": {},
    }
    decoder = BedrockDecoder(Quirks(), "bedrock", CLAUDE)

    decoder.feed(json.dumps(data).encode())
    message = decoder.finish().message

    assert message.text == "yes cited"
    assert (message.stop_reason, message.raw_stop_reason) == ("tool_use", "tool_use")
    assert message.calls[0].arguments == '{"x":1}'
    assert sent(user("go"), message)[1]["content"] == content
    assert decoder.late == [
        ThinkingDelta(text="hm"),
        TextDelta(text="yes"),
        TextDelta(text=" cited"),
        ToolCallDelta(index=0, id="a", name="weather", arguments='{"x":1}'),
    ]


@pytest.mark.parametrize(
    ("name", "kind", "retryable"),
    [
        ("throttlingException", "rate_limited", True),
        ("serviceUnavailableException", "overloaded", True),
        ("internalServerException", "transient", True),
        ("modelStreamErrorException", "transient", True),
        ("validationException", "invalid_request", False),
    ],
)
def test_an_exception_in_the_stream_is_raised_after_the_events_before_it(
    name: str, kind: str, retryable: bool
) -> None:
    decoder = BedrockDecoder(Quirks(), "bedrock", CLAUDE)

    events = decoder.feed(
        stream(
            delta(0, text="half"),
            (name, {"message": "Too many tokens, please wait"}),
            *stop("end_turn"),
        )
    )

    assert events == [TextDelta(text="half")]
    with pytest.raises(ProviderError, match="please wait") as caught:
        decoder.finish()
    assert (caught.value.kind, caught.value.retryable) == (kind, retryable)


def test_a_null_field_is_treated_as_missing() -> None:
    nothing = {"toolUse": None, "reasoningContent": None, "citation": None}

    events, message = decode(stream(delta(0, text="x", **nothing), *stop("end_turn")))

    assert (events, message.text) == ([TextDelta(text="x")], "x")


def test_an_error_frame_is_an_error() -> None:
    frame = encode_frame(
        {":message-type": "error", ":error-code": "InternalFailure", ":error-message": "oops"}, b""
    )

    assert "oops" in str(fails(frame))


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", "empty"),
        (b"<html>not a frame, not at all</html>", "protocol"),
        (stream(*EVENTS[:9])[:-3], "protocol"),
        (stream(("messageStart", {}), delta(0, text="x")), "protocol"),
        (encode_frame({":event-type": "messageStop"}, b"{oops"), "protocol"),
        (b'{"hello": 1}', "protocol"),
        (b'{"message": "broken"}', "transient"),
        (b'{"error": {"message": "slow down", "code": 429}}', "rate_limited"),
        (b'{"output": {"message": {"content": [1]}}, "stopReason": "end_turn"}', "protocol"),
    ],
)
def test_a_body_that_is_not_a_reply_is_a_provider_error(data: bytes, kind: str) -> None:
    error = fails(data)

    assert error.provider == "bedrock"
    assert error.kind == kind


ODD: tuple[Any, ...] = (None, True, -1, 1.5, float("inf"), "", "x", [], {}, [1], {"text": 1}, ...)


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


@pytest.mark.parametrize("at", range(len(EVENTS)))
def test_events_of_any_shape_decode_or_raise_a_provider_error(at: int) -> None:
    kind, payload = EVENTS[at]
    for odd in variants(payload):
        frame = encode_frame(
            {":event-type": kind, ":message-type": "event"}, json.dumps(odd).encode()
        )
        with contextlib.suppress(ProviderError):
            _, message = decode(stream(*EVENTS[:at]) + frame + stream(*EVENTS[at + 1 :]))
            assert all(
                isinstance(part.arguments + part.id + part.name, str) for part in message.calls
            )
            Bedrock.encode(Request(messages=(user("go"), message)), ENTRY, CLAUDE)


@given(st.binary(max_size=30), st.integers(0, len(SMALL)), st.integers(0, 40), st.integers(1, 60))
def test_damaged_bytes_decode_or_raise_a_provider_error(
    junk: bytes, at: int, gone: int, size: int
) -> None:
    damaged = SMALL[:at] + junk + SMALL[at + gone :]

    def outcome(step: int) -> Any:
        decoder = BedrockDecoder(Quirks(), "bedrock", CLAUDE)
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

ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/vnd.amazon.eventstream\r\n"
    b"Content-Length: %d\r\n\r\n" % len(SMALL)
)
WHO = Credentials("EXAMPLEACCESSKEYID", "EXAMPLE-secret-not-real", "of-a-session")


async def collect(provider: Bedrock, http: HTTP) -> list[Any]:
    async with aclosing(provider.stream(Request(messages=(user("hi"),)))) as events:  # type: ignore[type-var]
        seen = [event async for event in events]
    await http.aclose()
    return seen


async def test_provider_signs_the_path_that_is_sent(
    loopback: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="glue")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    server = loopback(ANSWER + SMALL)
    http = HTTP(server.url, provider="bedrock")

    seen = await collect(Bedrock(ENTRY, http, NOVA, WHO), http)

    request = server.seen[0]
    assert seen[:-1] == decode(SMALL)[0]
    assert request.line == f"POST {Bedrock(ENTRY, None).target(NOVA, True)} HTTP/1.1"
    assert request.headers["x-amz-security-token"] == "of-a-session"
    again = sign(
        request.body,
        host=request.headers["host"],
        path=request.line.split()[1],
        region="eu-west-1",
        credentials=WHO,
        now=request.headers["x-amz-date"],
    )
    assert request.headers["authorization"] == again["authorization"]
    assert "x-amz-security-token: ***" in caplog.text
    assert "of-a-session" not in caplog.text


class Kept:
    """A transport that keeps the headers of each request and answers with a small stream."""

    status = 200

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}

    @asynccontextmanager
    async def send(self, method: str, url: str, headers: Any, body: bytes | None) -> Any:
        self.headers = dict(headers)
        yield self

    async def __aiter__(self) -> Any:
        yield SMALL


@pytest.mark.glue_live  # in name only: the transport sends nothing
@pytest.mark.parametrize(
    ("host", "region"),
    [
        ("bedrock-runtime.eu-central-1.amazonaws.com", "eu-central-1"),
        ("bedrock-runtime.us-gov-west-1.amazonaws.com", "us-gov-west-1"),
        ("proxy.example", "ap-south-2"),
    ],
)
async def test_a_request_is_signed_for_the_region_in_its_host_or_else_the_default(
    monkeypatch: pytest.MonkeyPatch, host: str, region: str
) -> None:
    monkeypatch.setenv("AWS_REGION", "ap-south-2")
    transport = Kept()
    http = HTTP(f"https://{host}", provider="bedrock", transport=transport)

    await collect(Bedrock(ENTRY, http, NOVA, WHO), http)

    assert f"/{region}/bedrock/aws4_request" in transport.headers["authorization"]


async def test_a_bearer_token_needs_no_signature(loopback: Callable[..., Any]) -> None:
    server = loopback(ANSWER + SMALL)
    http = HTTP(server.url, provider="bedrock", headers={"authorization": "Bearer token-1"})

    await collect(Bedrock(ENTRY, http, NOVA, WHO), http)

    assert server.seen[0].headers["authorization"] == "Bearer token-1"
    assert "x-amz-date" not in server.seen[0].headers


async def test_missing_credentials_name_the_variables_to_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SHARED_CREDENTIALS_FILE", "HOME"):
        monkeypatch.delenv(name, raising=False)
    http = HTTP("http://127.0.0.1:9", provider="bedrock")

    with pytest.raises(MissingKey, match="AWS_BEARER_TOKEN_BEDROCK or AWS_ACCESS_KEY_ID"):
        await collect(Bedrock(ENTRY, http, NOVA), http)
