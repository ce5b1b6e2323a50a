"""Encoding and decoding on the wire of Gemini's generateContent, and access through Vertex."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
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
from glue.provider import Opaque, TextDelta, Thinking, ToolCallDelta
from glue.providers.catalog import Entry, Quirks
from glue.providers.gemini import Gemini, GeminiDecoder
from glue.providers.google import Tokens
from glue.providers.http import HTTP
from glue.providers.sse import Objects

ENTRY = Entry(
    "gemini", wire="gemini", base_url="https://model.example/v1beta", auth="x-goog-api-key"
)
OLD, NEW = "gemini-2.5-flash", "gemini-3-flash-preview"
FOREIGN = "skip_thought_signature_validator"
WEATHER = ToolSpec(
    name="weather",
    description="Say what the weather is.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
PIXEL = Image(data=b"\x89PNG-pixel")


def kept(signature: str) -> Opaque:
    return Opaque(wire="gemini", data={"thoughtSignature": signature})


def reply(*parts: Any, provider: str = "gemini", model: str = OLD) -> AssistantMessage:
    return AssistantMessage(content=parts, provider=provider, model=model)


def call(arguments: str = '{"city":"Oslo"}', id: str = "call_1", **more: Any) -> ToolCall:
    return ToolCall(id=id, name="weather", arguments=arguments, **more)


def result(*parts: Any, id: str = "call_1", **more: Any) -> ToolMessage:
    content = tuple(Text(text=part) if isinstance(part, str) else part for part in parts)
    return ToolMessage(call_id=id, name="weather", content=content, **more)


def body(*messages: Message, model: str = OLD, **more: Any) -> Any:
    return json.loads(Gemini.encode(Request(messages=messages, **more), ENTRY, model))


def sent(*messages: Message, **more: Any) -> Any:
    return body(*messages, **more)["contents"]


# Requests


def test_request_wire(snapshot: SnapshotAssertion) -> None:
    conversation = (
        user(
            "What is this, and is it raining?",
            PIXEL,
            File(media_type="application/pdf", data=b"%PDF"),
        ),
        reply(
            Thinking(text="Let me look."),
            Text(text="I will ask.", opaque=kept("sig-0")),
            call(opaque=kept("sig-1")),
            call(id="call_2", arguments=""),
        ),
        result("21 degrees"),
        result("no city", PIXEL, id="call_2", is_error=True),
        user("And tomorrow?"),
    )

    assert (
        body(
            *conversation,
            system="Be brief.",
            tools=(WEATHER,),
            tool_choice="weather",
            reasoning="low",
            temperature=0.5,
            max_tokens=800,
            stop=("END",),
            options={
                "tools": [{"googleSearch": {}}],
                "generationConfig": {"topK": 3},
                "cachedContent": "cachedContents/x",
            },
        )
        == snapshot
    )


def test_a_message_is_encoded_once() -> None:
    messages: list[Message] = [user("hi"), reply(Text(text="ho")), user("more")]
    first = Gemini.encode(Request(messages=messages), ENTRY, OLD)
    memos = [dict(message.memo) for message in messages]

    assert Gemini.encode(Request(messages=messages), ENTRY, OLD) == first
    for message, memo in zip(messages, memos, strict=True):
        assert all(message.memo[key] is memo[key] for key in memo)


def test_the_path_names_the_method() -> None:
    assert (
        Gemini(ENTRY, None).target("gemini-2.5-pro", True)
        == "/models/gemini-2.5-pro:streamGenerateContent?alt=sse"
    )
    assert Gemini(ENTRY, None).target("tunedModels/x", False) == "/tunedModels/x:generateContent"


def test_neighbouring_turns_of_one_role_are_merged_and_empty_parts_left_out() -> None:
    contents = sent(
        user("a", ""),
        user("b"),
        reply(Text(text=""), call(complete=False)),
        replace(user("x"), excluded=True),
    )

    assert contents == [{"role": "user", "parts": [{"text": "a"}, {"text": "b"}]}]


def test_a_conversation_begins_with_a_user_turn_even_if_it_is_empty() -> None:
    assert [content["role"] for content in sent(reply(call()), result("a"))] == [
        "user",
        "model",
        "user",
    ]
    assert sent() == [{"role": "user", "parts": [{"text": " "}]}]


def test_every_part_is_sent_back_with_its_own_signature() -> None:
    code = {"executableCode": {"code": "1+1"}, "thoughtSignature": "s0"}
    message = reply(
        Opaque(wire="gemini", data=code),
        Text(text="two"),
        Text(text="", opaque=kept("s1")),
        call(opaque=kept("s2")),
        call(id="b"),
    )

    parts = sent(user("go"), message, model=NEW)[1]["parts"]

    assert parts[:3] == [code, {"text": "two"}, {"text": "", "thoughtSignature": "s1"}]
    assert [part.get("thoughtSignature") for part in parts[3:]] == ["s2", None]


def test_signatures_of_other_vendors_are_dropped_and_gemini_3_gets_a_placeholder() -> None:
    foreign = reply(
        Thinking(text="hm", opaque=kept("s")),
        Opaque(wire="gemini", data={"x": 1}),
        call(),
        call(id="b"),
        provider="vertex",
    )

    old = sent(user("go"), foreign)[1]["parts"]
    new = sent(user("go"), foreign, model=NEW)[1]["parts"]

    assert [part.get("thoughtSignature") for part in old] == [None, None]
    assert [part.get("thoughtSignature") for part in new] == [FOREIGN, None]


def test_text_results_are_wrapped_and_images_follow_the_tool_results() -> None:
    messages = (
        user("go"),
        reply(call(), call(id="b")),
        result("a", PIXEL),
        result(PIXEL, id="b"),
        user("so?"),
    )

    old = sent(*messages)[2]["parts"]
    new = sent(*messages, model=NEW)[2]["parts"]

    assert [next(iter(part)) for part in old] == [
        "functionResponse",
        "functionResponse",
        "inlineData",
        "inlineData",
        "text",
    ]
    assert old[0]["functionResponse"] == {
        "name": "weather",
        "id": "call_1",
        "response": {"output": "a"},
    }
    assert [len(part["functionResponse"]["parts"]) for part in new[:2]] == [1, 1]
    assert len(new) == 3


def test_a_tool_error_is_sent_as_an_error() -> None:
    answer = sent(user("go"), reply(call()), result("no", is_error=True))[2]["parts"][0]

    assert answer["functionResponse"]["response"] == {"error": "no"}


def test_image_urls_and_data_urls() -> None:
    parts = sent(
        user(Image(url="https://pictures.example/a"), Image(url="data:image/gif;base64,R0lG"))
    )[0]["parts"]

    assert parts[0] == {
        "fileData": {"fileUri": "https://pictures.example/a", "mimeType": "image/png"}
    }
    assert parts[1] == {"inlineData": {"mimeType": "image/gif", "data": "R0lG"}}


def test_keywords_that_gemini_refuses_are_left_out_of_schemas() -> None:
    schema = {
        "$schema": "x",
        "type": "object",
        "properties": {
            "const": {"const": "only", "type": "string"},
            "number": {"type": "integer", "exclusiveMinimum": 0, "minimum": 1, "examples": [1]},
            "link": {"$ref": "#/$defs/A", "description": "gone"},
        },
        "$defs": {"A": {"type": "string", "enum": ["const"]}},
        "additionalProperties": False,
    }

    tool = body(user("go"), tools=(ToolSpec(name="t", parameters=schema),))["tools"][0][
        "functionDeclarations"
    ][0]

    assert tool["parametersJsonSchema"] == {
        "type": "object",
        "properties": {
            "const": {"type": "string", "enum": ["only"]},
            "number": {"type": "integer", "minimum": 1},
            "link": {"$ref": "#/$defs/A"},
        },
        "$defs": {"A": {"type": "string", "enum": ["const"]}},
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        ("auto", None),
        ("none", {"mode": "NONE"}),
        ("required", {"mode": "ANY"}),
        ("weather", {"mode": "ANY", "allowedFunctionNames": ["weather"]}),
    ],
)
def test_tool_choice(choice: str, wanted: Any) -> None:
    config = body(user("go"), tools=(WEATHER,), tool_choice=choice).get("toolConfig")

    assert config == (None if wanted is None else {"functionCallingConfig": wanted})


@pytest.mark.parametrize(
    ("model", "effort", "wanted"),
    [
        (OLD, "none", {"thinkingBudget": 0}),
        (OLD, "medium", {"thinkingBudget": 8192, "includeThoughts": True}),
        ("gemini-2.5-pro", "none", {"thinkingBudget": 128}),
        (NEW, "none", {"thinkingLevel": "minimal"}),
        (NEW, "high", {"thinkingLevel": "high", "includeThoughts": True}),
        ("gemini-3.1-pro-preview", "minimal", {"thinkingLevel": "low"}),
        ("gemini-flash-latest", "low", {"thinkingLevel": "low", "includeThoughts": True}),
        ("gemini-2.0-flash", "high", None),
        ("gemma-3-27b-it", "high", None),
    ],
)
def test_reasoning_is_requested_in_the_form_that_the_model_knows(
    model: str, effort: Any, wanted: Any
) -> None:
    assert (
        body(user("hi"), model=model, reasoning=effort)
        .get("generationConfig", {})
        .get("thinkingConfig")
        == wanted
    )


def test_a_schema_is_sent_if_tools_allow_it() -> None:
    schema = {"type": "object", "properties": {"a": {"const": 1}}}

    alone = body(user("hi"), output_schema=schema)["generationConfig"]
    beside = body(user("hi"), output_schema=schema, tools=(WEATHER,))
    newer = body(user("hi"), output_schema=schema, tools=(WEATHER,), model=NEW)["generationConfig"]

    wanted = {"type": "object", "properties": {"a": {"enum": [1]}}}
    assert alone == newer == {"responseMimeType": "application/json", "responseJsonSchema": wanted}
    assert "generationConfig" not in beside
    encoder = Gemini.encoder(Request(), ENTRY, OLD)
    assert [encoder.takes_output(schema, tools=tools) for tools in (True, False)] == [False, True]


# Replies


def chunk(*parts: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "responseId": "r1", "modelVersion": "gemini-x", **more}


def stream(*chunks: Any) -> bytes:
    return b"".join(b"data: %s\r\n\r\n" % json.dumps(each).encode() for each in chunks)


def decode(data: bytes, size: int = 1 << 20) -> tuple[list[Any], AssistantMessage]:
    decoder = GeminiDecoder(Quirks(), "gemini", OLD)
    events = [
        event for at in range(0, len(data), size) for event in decoder.feed(data[at : at + size])
    ]
    return events, decoder.finish().message


def fails(data: bytes) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        decode(data)
    return caught.value


def used(prompt: int, candidates: int, **more: int) -> dict[str, int]:
    return {"promptTokenCount": prompt, "candidatesTokenCount": candidates, **more}


CHUNKS = [
    chunk({"text": "Rain?", "thought": True}, usageMetadata=used(9, 0)),
    chunk({"text": "I will "}),
    chunk({"text": 'aßk "{]\\\\.'}),
    chunk(
        {"functionCall": {"name": "weather", "args": {"city": "Oslo"}}, "thoughtSignature": "sig"}
    ),
    chunk({"functionCall": {"name": "weather", "args": {}, "id": "own"}}),
    chunk(
        {"text": "", "thoughtSignature": "end"},
        finish="STOP",
        usageMetadata=used(9, 7, thoughtsTokenCount=5),
    ),
]
SMALL = stream(*CHUNKS)


def test_stream_wire(snapshot: SnapshotAssertion) -> None:
    events, message = decode(SMALL)

    assert [*events, replace(message, id="message")] == snapshot


ARRAY = json.dumps(CHUNKS, indent=1).encode()


@pytest.mark.parametrize(
    "data",
    [SMALL, SMALL.replace(b"\r\n", b"\n"), ARRAY, b"\n " + ARRAY],
    ids=["crlf", "lf", "array", "late"],
)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
def test_a_stream_may_be_an_array_and_cut_anywhere(data: bytes, size: int) -> None:
    events, message = decode(data, size)

    assert (events, message.content) == (decode(SMALL)[0], decode(SMALL)[1].content)


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        ("STOP", "end_turn"),
        ("MAX_TOKENS", "max_tokens"),
        ("SAFETY", "refusal"),
        ("RECITATION", "refusal"),
        ("MALFORMED_FUNCTION_CALL", "malformed_call"),
        *(
            (raw, "refusal")
            for raw in ("BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR", "IMAGE_SAFETY")
        ),
        *((raw, "refusal") for raw in ("IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION")),
        *(
            (raw, "unknown") for raw in ("stop", "length", "error", "refusal", "pause_turn")
        ),  # words of other wires
        *(
            (raw, "unknown")
            for raw in ("LANGUAGE", "OTHER", "NO_IMAGE", "FINISH_REASON_UNSPECIFIED", "ZZZ")
        ),
    ],
)
def test_s003_stop_reasons(raw: str, wanted: str) -> None:
    _, message = decode(stream(chunk({"text": "x"}), chunk(finish=raw)))

    assert message.stop_reason == wanted
    assert message.raw_stop_reason == raw


@pytest.mark.parametrize("raw", ["STOP", "UNEXPECTED_TOOL_CALL"])
def test_s003_stop_with_calls_is_tool_use(raw: str) -> None:
    _, message = decode(stream(chunk({"functionCall": {"name": "weather"}}, finish=raw)))

    assert message.stop_reason == "tool_use"
    assert message.calls[0].arguments == "{}"


@pytest.mark.parametrize("raw", ["UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"])
def test_a_malformed_call_may_be_retried(raw: str) -> None:
    error = fails(stream(chunk({"text": "x"}, finish=raw)))

    assert raw in str(error)
    assert error.retryable


def test_calls_without_an_id_get_a_unique_id() -> None:
    _, message = decode(SMALL)
    again = decode(SMALL)[1]
    other = decode(SMALL.replace(b'"r1"', b'"r2"'))[1]

    assert message.calls[1].id == "own"
    assert message.calls[0].id.startswith("call_")
    assert message.calls[0].id == again.calls[0].id != other.calls[0].id


def test_thinking_and_tool_prompts_are_added_to_the_counts() -> None:
    usage = used(10, 3, thoughtsTokenCount=5, toolUsePromptTokenCount=4, cachedContentTokenCount=8)
    _, message = decode(
        stream(
            chunk({"text": "x"}, usageMetadata=used(1, 1)),
            chunk(finish="STOP", usageMetadata=usage),
        )
    )

    assert message.usage == Usage(input=14, output=8, cache_read=8, cache_write=0, reasoning=5)


def test_field_names_in_snake_case_are_decoded() -> None:
    call = {
        "function_call": {"name": "weather", "args": {"the_city": "Oslo"}},
        "thought_signature": "sig",
    }
    candidate = {"content": {"parts": [call, {"text": "x"}]}, "finish_reason": "STOP"}
    usage = {"prompt_token_count": 3, "candidates_token_count": 2}

    _, message = decode(
        stream({"candidates": [candidate], "usage_metadata": usage, "model_version": "g"})
    )
    _, blocked = decode(stream({"prompt_feedback": {"block_reason": "SAFETY"}}))

    assert [(one.arguments, one.opaque) for one in message.calls] == [
        ('{"the_city":"Oslo"}', kept("sig"))
    ]
    assert (message.text, message.raw_stop_reason, message.meta) == ("x", "STOP", {"model": "g"})
    assert message.usage is not None
    assert (message.usage.input, message.usage.output) == (3, 2)
    assert (blocked.stop_reason, blocked.meta) == ("refusal", {"block_reason": "SAFETY"})


def test_a_reply_without_parts_because_thinking_used_max_tokens() -> None:
    data = {"candidates": [{"content": {"role": "model"}, "finishReason": "MAX_TOKENS"}]}

    assert (
        GeminiDecoder(Quirks(), "gemini", OLD).decode(json.dumps(data).encode()).message.content
        == ()
    )


def test_a_blocked_prompt_is_a_refusal() -> None:
    data = {
        "promptFeedback": {"blockReason": "JAILBREAK", "blockReasonMessage": "no"},
        "usageMetadata": {"trafficType": "X"},
    }
    message = GeminiDecoder(Quirks(), "vertex", OLD).decode(json.dumps(data).encode()).message

    assert message.stop_reason == "refusal"
    assert message.meta == {"block_reason": "JAILBREAK", "block_message": "no"}
    assert message.usage == Usage(cache_read=0, cache_write=0)


def test_arguments_that_arrive_in_pieces_are_joined() -> None:
    def pieces(*values: dict[str, Any], more: bool = True) -> dict[str, Any]:
        return chunk(
            {
                "functionCall": {
                    "partialArgs": list(values),
                    **({"willContinue": True} if more else {}),
                }
            }
        )

    chunks = [
        chunk({"functionCall": {"name": "weather", "willContinue": True}, "thoughtSignature": "s"}),
        pieces({"jsonPath": "$.city", "stringValue": "Os", "willContinue": True}),
        chunk({"text": "meanwhile", "thought": True}),
        pieces(
            {"jsonPath": "$.city", "stringValue": "lo", "willContinue": True},
            {"jsonPath": "$.city", "stringValue": ""},
        ),
        pieces(
            {"jsonPath": "$.days[0].n", "numberValue": 3},
            {"jsonPath": "$.days[1]['is dry']", "boolValue": False},
        ),
        pieces(
            {"jsonPath": "$.none", "nullValue": None}, {"jsonPath": "$.city2", "stringValue": "B"}
        ),
    ]
    ending = [chunk({"functionCall": {}}), chunk({"functionCall": {}}, finish="STOP")]

    events, message = decode(stream(*chunks, *ending))
    _, cut = decode(stream(*chunks, chunk(finish="MAX_TOKENS")))

    wanted = {"city": "Oslo", "days": [{"n": 3}, {"is dry": False}], "none": None, "city2": "B"}
    assert len(message.calls) == 1
    assert json.loads(message.calls[0].arguments) == wanted
    assert message.calls[0].complete
    assert message.calls[0].opaque == kept("s")
    assert [event.arguments for event in events if isinstance(event, ToolCallDelta)] == [
        "",
        message.calls[0].arguments,
    ]
    assert [part.complete for part in cut.calls] == [False]


@pytest.mark.parametrize("where", ["city", "$", "$.a[999999999]", "$..", "$.a[b]"])
def test_an_invalid_json_path_is_a_protocol_error(where: str) -> None:
    piece = {"name": "weather", "partialArgs": [{"jsonPath": where, "stringValue": "x"}]}

    assert fails(stream(chunk({"functionCall": piece}, finish="STOP"))).kind == "protocol"


def test_a_json_path_may_skip_at_most_a_thousand_elements() -> None:
    def piece(index: int) -> bytes:
        values = [{"jsonPath": f"$.a[{index}]", "stringValue": "x"}]
        return stream(
            chunk({"functionCall": {"name": "weather", "partialArgs": values}}, finish="STOP")
        )

    _, message = decode(piece(1000))

    assert json.loads(message.calls[0].arguments) == {"a": [None] * 1000 + ["x"]}
    assert fails(piece(1001)).kind == "protocol"


def test_code_that_the_server_ran_is_kept() -> None:
    code = {"executableCode": {"code": "1"}, "thoughtSignature": "s"}
    _, message = decode(
        stream(
            chunk(code, {"text": ""}),
            chunk({"codeExecutionResult": {"output": "1"}}),
            chunk({"text": "1"}, finish="STOP"),
        )
    )

    assert message.text == "1"
    assert sent(user("go"), message)[1]["parts"] == [
        code,
        {"codeExecutionResult": {"output": "1"}},
        {"text": "1"},
    ]


def test_only_the_first_candidate_is_read() -> None:
    first, second = chunk({"text": "a"}, finish="STOP"), chunk({"text": "b"}, finish="SAFETY")

    _, message = decode(stream({**first, "candidates": first["candidates"] + second["candidates"]}))

    assert (message.text, message.raw_stop_reason) == ("a", "STOP")


def test_no_text_is_joined_to_a_signed_part() -> None:
    chunks = [
        chunk({"text": "a"}),
        chunk({"text": "b", "thoughtSignature": "s"}),
        chunk({"text": "c"}),
        chunk({"text": "d"}),
    ]
    _, message = decode(stream(*chunks, chunk(finish="STOP")))

    assert message.content == (Text(text="a"), Text(text="b", opaque=kept("s")), Text(text="cd"))


def test_an_error_in_the_stream_is_raised_after_the_events_before_it() -> None:
    problem = {
        "error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}
    }
    for data in (
        stream(chunk({"text": "half"}), problem),
        json.dumps([chunk({"text": "half"}), problem]).encode(),
    ):
        decoder = GeminiDecoder(Quirks(), "gemini", OLD)

        assert decoder.feed(data) == [TextDelta(text="half")]
        with pytest.raises(ProviderError, match="overloaded") as caught:
            decoder.finish()
        assert caught.value.kind == "overloaded"


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", "empty"),
        (b"<html>no</html>\n\n", "protocol"),
        (b"{}", "protocol"),
        (b'{"hello": 1}', "protocol"),
        (b"[", "protocol"),
        (ARRAY[:-400], "protocol"),
        (SMALL[:-400], "protocol"),
        (b"data: {oops\n\n", "protocol"),
        (b"data: 3\n\n", "protocol"),
        (b'[{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"m"}}]', "rate_limited"),
    ],
)
def test_a_body_that_is_not_a_reply_is_a_provider_error(data: bytes, kind: str) -> None:
    assert fails(data).kind == kind


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


@pytest.mark.parametrize("at", range(len(CHUNKS)))
def test_chunks_of_any_shape_decode_or_raise_a_provider_error(at: int) -> None:
    for odd in variants(CHUNKS[at]):
        with contextlib.suppress(ProviderError):
            _, message = decode(stream(*CHUNKS[:at], odd, *CHUNKS[at + 1 :]))
            assert all(
                isinstance(part.arguments + part.id + part.name, str) for part in message.calls
            )
            Gemini.encode(Request(messages=(user("go"), message)), ENTRY, OLD)


@given(
    st.booleans(),
    st.binary(max_size=30),
    st.integers(0, len(ARRAY)),
    st.integers(0, 40),
    st.integers(1, 60),
)
def test_damaged_bytes_decode_or_raise_a_provider_error(
    array: bool, junk: bytes, at: int, gone: int, size: int
) -> None:
    whole = ARRAY if array else SMALL
    damaged = whole[:at] + junk + whole[at + gone :]

    def outcome(step: int) -> Any:
        decoder = GeminiDecoder(Quirks(), "gemini", OLD)
        events = [
            event
            for i in range(0, len(damaged), step)
            for event in decoder.feed(damaged[i : i + step])
        ]
        try:
            return events, [
                replace(part, id="") if isinstance(part, ToolCall) else part
                for part in decoder.finish().message.content
            ]
        except ProviderError as error:
            return events, str(error), error.kind

    first, second = outcome(size), outcome(1 << 20)
    assert first[1:] == second[1:]
    assert len(first[0]) == len(second[0])


@given(
    st.lists(st.dictionaries(st.text(), st.text() | st.lists(st.text())), max_size=5),
    st.integers(1, 20),
)
def test_objects_of_an_array_are_split_however_the_bytes_are_cut(
    objects: list[Any], size: int
) -> None:
    data = json.dumps(objects).encode()
    splitter = Objects()
    found = [
        piece for at in range(0, len(data), size) for piece in splitter.feed(data[at : at + size])
    ]

    assert [json.loads(piece) for piece in found] == objects


# Both

ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(SMALL)
    + SMALL
)


async def collect(provider: Any, http: HTTP, request: Request) -> list[Any]:
    async with aclosing(provider.stream(request)) as events:
        seen = [event async for event in events]
    await http.aclose()
    return seen


async def test_the_provider_sends_a_request_and_streams_the_reply(
    loopback: Callable[..., Any],
) -> None:
    server = loopback(ANSWER)
    http = HTTP(server.url + "/v1beta", provider="gemini", headers={"x-goog-api-key": "k" * 8})

    seen = await collect(Gemini(ENTRY, http, OLD), http, Request(messages=(user("hi"),)))

    assert seen[:-1] == decode(SMALL)[0]
    assert (
        server.seen[0].line == f"POST /v1beta/models/{OLD}:streamGenerateContent?alt=sse HTTP/1.1"
    )
    assert server.seen[0].headers["x-goog-api-key"] == "k" * 8


def login(folder: Path, **fields: str) -> dict[str, str]:
    file = folder / "login.json"
    file.write_text(json.dumps(fields))
    return {"GOOGLE_APPLICATION_CREDENTIALS": str(file)}


USER = {"type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "r"}


async def test_vertex_sends_a_token_and_renews_it(
    loopback: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="glue")
    forms: list[tuple[str, bytes]] = []
    now = 0.0

    async def post(address: str, form: bytes) -> bytes:
        forms.append((address, form))
        return json.dumps({"access_token": f"token-{len(forms)}", "expires_in": 3600}).encode()

    tokens = Tokens(environ=login(tmp_path, **USER), post=post, clock=lambda: now)
    server = loopback(ANSWER)
    where = "/v1beta1/projects/p/locations/global/publishers/google"
    http = HTTP(server.url + where, provider="vertex")
    provider = Gemini(ENTRY._replace(name="vertex", auth="google"), http, OLD, tokens)

    for now in (0.0, 3500.0, 3541.0):  # noqa: B007
        await collect(provider, http, Request(messages=(user("hi"),), stream=False))

    assert [each.headers["authorization"] for each in server.seen] == [
        "Bearer token-1",
        "Bearer token-1",
        "Bearer token-2",
    ]
    assert server.seen[0].line == f"POST {where}/models/{OLD}:generateContent HTTP/1.1"
    assert "authorization: Bearer ***" in caplog.text
    assert "token-1" not in caplog.text
    assert forms[0] == (
        "https://oauth2.googleapis.com/token",
        b"grant_type=refresh_token&client_id=c&client_secret=s&refresh_token=r",
    )


async def test_vertex_masks_its_token_in_an_error_inside_the_stream(
    loopback: Callable[..., Any],
) -> None:
    async def post(address: str, form: bytes) -> bytes:
        return json.dumps({"access_token": "token-of-an-hour"}).encode()

    fault = (
        b'data: {"error": {"code": 500, "message": "failed for Bearer token-of-an-hour"}}\r\n\r\n'
    )
    server = loopback(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(fault), fault))
    provider = Gemini(
        ENTRY._replace(name="vertex", auth="google"),
        HTTP(server.url, provider="vertex"),
        OLD,
        Tokens(environ={"VERTEX_ACCESS_TOKEN": "token-of-an-hour"}, post=post),
    )

    with pytest.raises(ProviderError, match=r"failed for Bearer \*\*\*") as caught:
        await collect(provider, provider.http, Request(messages=(user("hi"),)))

    assert "token-of-an-hour" not in caught.value.body
