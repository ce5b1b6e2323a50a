"""Encoding and decoding on the Responses wire."""

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
from glue.providers.catalog import Entry, Quirks
from glue.providers.http import HTTP
from glue.providers.openai_responses import (
    OpenAIResponses,
    ResponsesDecoder,
    ResponsesEncoder,
)

ENTRY = Entry(
    "acme",
    wire="openai_responses",
    base_url="https://acme.example/v1",
    model="acme-1",
    quirks=Quirks(encrypted=True),
)
LOOK = ToolSpec(name="look", description="Look at a thing.")
PICTURE = Image(media_type="image/png", data=b"\x89PNG")


def entry(**quirks: Any) -> Entry:
    return ENTRY._replace(quirks=Quirks(**quirks))


def assistant(*content: Any, provider: str = "acme", model: str = "acme-1") -> AssistantMessage:
    parts = tuple(Text(text=part) if isinstance(part, str) else part for part in content)
    return AssistantMessage(content=parts, provider=provider, model=model)


def call(id: str = "call_1", arguments: str = '{"at":"x"}') -> ToolCall:
    return ToolCall(id=id, name="look", arguments=arguments)


def result(*content: Any, id: str = "call_1") -> ToolMessage:
    parts = tuple(Text(text=part) if isinstance(part, str) else part for part in content)
    return ToolMessage(call_id=id, name="look", content=parts)


def body(*messages: Message, at: Entry = ENTRY, model: str = "acme-1", **request: Any) -> Any:
    return json.loads(OpenAIResponses.encode(Request(messages=messages, **request), at, model))


def sent(*messages: Message, at: Entry = ENTRY, model: str = "acme-1") -> list[Any]:
    found: list[Any] = body(*messages, at=at, model=model)["input"]
    return found


def events(*items: Any) -> bytes:
    return b"".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in items)


def response(*output: Any, status: str = "completed", **more: Any) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "model": "acme-1-0",
        "status": status,
        "output": list(output),
        **more,
    }


def ended(*output: Any, status: str = "completed", **more: Any) -> dict[str, Any]:
    return {"type": f"response.{status}", "response": response(*output, status=status, **more)}


def added(index: int, item: Any) -> dict[str, Any]:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def done(index: int, item: Any) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def delta(index: int, kind: str, text: str, **more: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}.delta", "output_index": index, "delta": text, **more}


def message(text: str = "x", **more: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": content,
        **more,
    }


def reasoning(id: str = "rs_1", sealed: str | None = "sealed", summary: str = "") -> dict[str, Any]:
    parts = [{"type": "summary_text", "text": summary}] if summary else []
    return {
        "type": "reasoning",
        "id": id,
        "summary": parts,
        "encrypted_content": sealed,
        "status": None,
    }


def function(
    id: str = "fc_1", call_id: str = "call_1", arguments: str = '{"at":"x"}', **more: Any
) -> dict[str, Any]:
    item = {
        "type": "function_call",
        "id": id,
        "call_id": call_id,
        "name": "look",
        "arguments": arguments,
    }
    return {**item, "status": "completed", **more}


def decode(stream: bytes, size: int = 1 << 30) -> tuple[list[ProviderEvent], AssistantMessage]:
    decoder = ResponsesDecoder(Quirks(), "acme", "acme-1")
    seen: list[ProviderEvent] = []
    for start in range(0, len(stream), size):
        seen += decoder.feed(stream[start : start + size])
    return seen, decoder.finish().message


def read(*items: Any) -> AssistantMessage:
    return decode(events(*items))[1]


def whole(*output: Any, status: str = "completed", **more: Any) -> AssistantMessage:
    answer = json.dumps(response(*output, status=status, **more)).encode()
    return ResponsesDecoder(Quirks(), "acme", "acme-1").decode(answer).message


def failure(*items: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        read(*items)
    return caught.value


# Requests


def test_request_wire(snapshot: SnapshotAssertion) -> None:
    first = whole(
        reasoning(),
        message("I look.", phase="commentary"),
        function(),
        {"type": "web_search_call", "id": "ws_1"},
        function("fc_2", "call_2"),
    )
    request = Request(
        system="Be brief.",
        messages=(
            user(
                "What is in these?",
                PICTURE,
                File(media_type="application/pdf", data=b"%PDF", name="a.pdf"),
            ),
            first,
            result("a cat"),
            result("a dog", PICTURE, id="call_2"),
            assistant(Thinking(text="foreign"), "Both.", provider="other"),
            user("Sûr?"),
        ),
        tools=(LOOK, ToolSpec(name="stop")),
        tool_choice="look",
        max_tokens=100,
        temperature=0.5,
        reasoning="low",
        stop=("END",),
        output_schema={"type": "object", "properties": {}, "additionalProperties": False},
        options={"reasoning": {"summary": "auto"}, "tools": [{"type": "web_search"}]},
    )

    assert json.loads(OpenAIResponses.encode(request, ENTRY, "acme-1")) == snapshot


def test_stream_wire(snapshot: SnapshotAssertion) -> None:
    thought = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "Hm."}],
        "encrypted_content": "sealed",
    }
    stream = b": waking up\n\n" + events(
        {"type": "response.created", "response": response(status="in_progress")},
        added(0, {"type": "reasoning", "id": "rs_1", "summary": []}),
        delta(0, "reasoning_summary_text", "Hm"),
        delta(0, "reasoning_summary_text", "."),
        done(0, thought),
        added(1, message("")),
        delta(1, "output_text", "I "),
        {"type": "response.something_new", "output_index": 1},
        delta(1, "output_text", "look."),
        done(1, message("I look.", phase="commentary")),
        added(2, function(arguments="", status="in_progress")),
        delta(2, "function_call_arguments", '{"at":'),
        delta(2, "function_call_arguments", '"x"}'),
        done(2, function()),
        ended(
            thought, message("I look."), function(), usage={"input_tokens": 10, "output_tokens": 5}
        ),
    )

    seen, reply = decode(stream)

    assert [*seen, replace(reply, id="message")] == snapshot


def test_reasoning_is_sent_back_directly_before_the_item_that_followed_it() -> None:
    reply = whole(
        reasoning("rs_1"), function("fc_1", "call_1"), reasoning("rs_2"), function("fc_2", "call_2")
    )

    items = sent(reply, result("a"), result("b", id="call_2"))

    kinds = [item["type"] for item in items]
    assert kinds == [
        "reasoning",
        "function_call",
        "reasoning",
        "function_call",
        "function_call_output",
        "function_call_output",
    ]
    assert items[0] == {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "encrypted_content": "sealed",
    }


def test_a_reasoning_item_is_sent_back_without_its_status_and_empty_fields() -> None:
    item = {**reasoning(), "status": "completed", "content": None}

    first, *_ = sent(whole(item, message()))

    assert first == {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "encrypted_content": "sealed",
    }


def test_items_are_put_in_the_order_of_their_indexes() -> None:
    one, two = (message(content=[{"type": "output_text", "text": text}]) for text in "ab")

    found = read(done(1, two), done(0, one), ended())

    assert [part.text for part in found.content if isinstance(part, Text)] == ["a", "b"]


def test_reasoning_in_several_items_is_sent_back_complete_or_not_at_all() -> None:
    reply = whole(reasoning("rs_1"), reasoning("rs_2"), message())
    first, second, text = reply.content

    assert [item.get("id") for item in sent(reply)] == ["rs_1", "rs_2", "msg_1"]
    assert [item.get("id") for item in sent(replace(reply, content=(first, text)))] == ["msg_1"]
    assert [item.get("id") for item in sent(replace(reply, content=(second, text)))] == [
        "rs_2",
        "msg_1",
    ]


def test_reasoning_is_dropped_without_the_item_that_followed_it() -> None:
    reply = whole(reasoning(), function("fc_1", "call_1"), function("fc_2", "call_2"))
    thought, _, second = reply.content

    alone = sent(replace(reply, content=(thought,)))
    other = sent(replace(reply, content=(thought, second)))
    placeholder = sent(replace(reply, content=(thought, Text(text="(truncated)"))))

    assert alone == []
    assert [item["type"] for item in other] == ["function_call"]
    assert placeholder == [{"type": "message", "role": "assistant", "content": "(truncated)"}]


def test_reasoning_without_encrypted_content_is_sent_back_only_if_the_server_stores_it() -> None:
    reply = whole(reasoning(sealed=None, summary="hm"), message())

    assert [item["type"] for item in sent(reply)] == ["message"]
    assert [item["type"] for item in sent(reply, at=entry(encrypted=False))] == [
        "reasoning",
        "message",
    ]


def test_items_of_another_model_or_server_are_sent_as_plain_text() -> None:
    reply = whole(
        reasoning(),
        message("hi", phase="final_answer"),
        {"type": "web_search_call", "id": "ws_1"},
        function(),
    )
    plain = [
        {"type": "message", "role": "assistant", "content": "hi"},
        {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": '{"at":"x"}'},
    ]

    assert sent(replace(reply, provider="other")) == plain
    assert sent(reply, model="acme-2") == plain


def test_phase_refusal_and_several_texts_of_one_message_are_sent_back() -> None:
    texts: list[Any] = [
        {"type": "output_text", "text": text, "annotations": []} for text in ("a", "b")
    ]
    item = message(content=[*texts, {"type": "refusal", "refusal": "no"}], phase="final_answer")

    assert sent(whole(item)) == [item]


def test_server_tools_are_sent_back_unchanged() -> None:
    item = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"query": "q"},
    }

    assert sent(whole(item, message()))[0] == item


def test_results_carry_images() -> None:
    output = sent(result("a", PICTURE))[0]["output"]

    assert [part["type"] for part in output] == ["input_text", "input_image"]
    assert sent(result(""))[0]["output"] == ""


def test_ids_that_a_server_numbers_from_zero_in_each_reply_become_unique() -> None:
    items = sent(
        whole(function("fc_1", "call_0")),
        result("a", id="call_0"),
        whole(function("fc_2", "call_0")),
        result("b", id="call_0"),
    )

    assert [item["call_id"] for item in items] == ["call_0", "call_0", "call_0_2", "call_0_2"]


def test_nothing_is_stored_and_reasoning_is_encrypted_if_the_server_can() -> None:
    assert body(user("a"))["store"] is False
    assert body(user("a"))["include"] == ["reasoning.encrypted_content"]
    assert "include" not in body(user("a"), model="gpt-4o-mini")
    assert not {"store", "include"} & set(body(user("a"), at=entry()))


def test_settings_of_a_request() -> None:
    full = body(user("a"), tools=(LOOK,), tool_choice="required", cache=True, at=entry(cache="key"))

    assert full["tool_choice"] == "required"
    assert full["tools"][0]["strict"] is False
    assert len(full["prompt_cache_key"]) == 24
    assert "stop" not in body(user("a"), stop=("x",))
    assert "stream" not in body(user("a"), stream=False)
    assert body(user("a"), output_schema={}, at=entry(output="json_object"))["text"] == {
        "format": {"type": "json_object"}
    }


def test_empty_and_excluded_messages_are_left_out() -> None:
    excluded = UserMessage(content=(Text(text="secret"),), excluded=True)

    assert sent(user(""), assistant(Thinking(text="x")), excluded, user("a")) == [
        {"role": "user", "content": "a"}
    ]


def test_a_message_is_encoded_once() -> None:
    messages: list[Message] = [user("a"), assistant("b", call()), result("c")]
    first = OpenAIResponses.encode(Request(messages=messages), ENTRY, "acme-1")
    memos = [dict(one.memo) for one in messages]

    second = OpenAIResponses.encode(Request(messages=[*messages, user("d")]), ENTRY, "acme-1")

    assert second.startswith(first[: first.index(b'],"stream"')])
    assert [one.memo for one in messages] == memos


# Replies


@pytest.mark.parametrize(
    ("items", "status", "details", "normal"),
    [
        ([message()], "completed", None, "end_turn"),
        ([message(), function()], "completed", None, "tool_use"),
        ([message(content=[{"type": "refusal", "refusal": "no"}])], "completed", None, "refusal"),
        ([message()], "incomplete", {"reason": "max_output_tokens"}, "max_tokens"),
        ([message()], "incomplete", {"reason": "content_filter"}, "refusal"),
        ([message()], "incomplete", None, "unknown"),
        *(
            ([message()], "incomplete", {"reason": word}, "unknown")
            for word in ("stop", "error", "length")
        ),
        ([message()], "incomplete", {"reason": []}, "unknown"),
        ([message()], "cancelled", None, "cancelled"),
    ],
)
def test_s001_stop_reasons_of_responses_are_normalised_and_kept(
    items: Any, status: str, details: Any, normal: str
) -> None:
    final = ended(*items, status=status, incomplete_details=details)

    for reply in (read(final), whole(*items, status=status, incomplete_details=details)):
        assert reply.stop_reason == normal
        assert reply.raw_stop_reason == status


def test_a_part_without_fields_to_send_back_keeps_none() -> None:
    text = {"type": "message", "content": [{"type": "output_text", "text": "a"}]}
    call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}

    message = read(ended(text, call))

    assert message.content == (Text(text="a"), ToolCall(id="c", name="look", arguments="{}"))


def test_s006_only_refusal_parts_are_a_refusal() -> None:
    both = message(
        content=[{"type": "output_text", "text": "a"}, {"type": "refusal", "refusal": "b"}]
    )

    assert (
        read(ended(message(content=[{"type": "refusal", "refusal": "no"}]))).stop_reason
        is StopReason.REFUSAL
    )
    assert read(ended(both)).stop_reason is StopReason.END_TURN


@pytest.mark.parametrize("status", ["queued", "in_progress"])
def test_a_response_that_is_not_ready_is_unknown(status: str) -> None:
    assert whole(status=status).stop_reason is StopReason.UNKNOWN


def test_deltas_become_events_and_items_become_the_reply() -> None:
    seen, reply = decode(
        events(
            delta(0, "output_text", "He"),
            delta(0, "output_text", "llo"),
            done(0, message("Hello!")),
            ended(message("Hello!")),
        )
    )

    assert seen == [TextDelta(text="He"), TextDelta(text="llo")]
    assert reply.text == "Hello!"


def test_ids_that_change_between_events_do_not_matter() -> None:
    reply = read(
        added(0, message("", id="one")),
        delta(0, "output_text", "x", item_id="two"),
        done(0, message("x", id="three")),
        ended(message("x", id="four")),
    )

    assert [part.text for part in reply.content if isinstance(part, Text)] == ["x"]


def test_items_without_deltas_become_events() -> None:
    seen, reply = decode(
        events(
            added(0, function(arguments="")),
            done(0, function()),
            done(1, message("x")),
            ended(function(), message("x")),
        )
    )

    assert seen == [
        ToolCallDelta(index=0, id="call_1", name="look", arguments='{"at":"x"}'),
        TextDelta(text="x"),
    ]
    assert reply.calls[0].id == "call_1"


def test_reasoning_text_of_open_models_is_thinking() -> None:
    item = {
        "type": "reasoning",
        "id": "rs",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "hm"}],
    }

    seen, reply = decode(
        events(
            delta(0, "reasoning_text", "hm"),
            done(0, item),
            done(1, message()),
            ended(item, message()),
        )
    )

    assert seen == [ThinkingDelta(text="hm"), TextDelta(text="x")]
    assert isinstance(reply.content[0], Thinking)
    assert reply.content[0].text == "hm"


def test_the_final_response_is_used_if_no_items_were_sent() -> None:
    seen, reply = decode(events(ended(reasoning(), message("x"))))

    assert (seen, reply.text) == ([TextDelta(text="x")], "x")


def test_a_final_event_without_output_keeps_the_items_before_it() -> None:
    seen, reply = decode(
        events(delta(0, "output_text", "x"), done(0, message("x")), bare("completed"))
    )

    assert (seen, reply.text, reply.stop_reason) == (
        [TextDelta(text="x")],
        "x",
        StopReason.END_TURN,
    )
    nothing = delta(0, "output_text", "") | {"delta": None}
    seen, reply = decode(events(nothing, done(0, message("x")), ended(message("x"))))
    assert (seen, reply.text) == ([TextDelta(text="x")], "x")  # no event was emitted before it
    assert (
        read(done(0, message("x")), bare("incomplete", status=None, output=None)).raw_stop_reason
        == "incomplete"
    )


def bare(end: str, **more: Any) -> dict[str, Any]:
    return {"type": f"response.{end}", "response": {"id": "resp_1", **more}}


def test_an_item_that_ends_without_content_keeps_its_deltas() -> None:
    call, said = function() | {"arguments": ""}, message() | {"content": []}
    pieces = (delta(0, "output_text", "x"), done(0, said), added(1, call))

    reply = read(
        *pieces, delta(1, "function_call_arguments", '{"at":"x"}'), done(1, call), ended(said, call)
    )

    assert (reply.text, [(one.arguments, one.complete) for one in reply.calls]) == (
        "x",
        [('{"at":"x"}', True)],
    )


def test_arguments_may_be_an_object() -> None:
    item = function() | {"arguments": {"at": "x"}}

    assert [one.arguments for one in read(done(0, item), ended(item)).calls] == ['{"at":"x"}']


@pytest.mark.parametrize(
    "cut", [function(arguments='{"at":', status="incomplete"), function(arguments='{"at":')]
)
def test_a_call_that_was_cut_is_not_complete(cut: Any) -> None:
    final = ended(
        function(), cut, status="incomplete", incomplete_details={"reason": "max_output_tokens"}
    )

    assert [one.complete for one in read(done(0, function()), done(1, cut), final).calls] == [
        True,
        False,
    ]


def test_a_call_with_status_incomplete_is_incomplete_even_if_its_json_is_valid() -> None:
    final = ended(
        function(arguments="{}", status="incomplete"),
        function("fc_2", "call_2"),
        status="incomplete",
    )

    assert [one.complete for one in read(final).calls] == [False, True]


def test_a_call_that_never_ended_keeps_its_deltas() -> None:
    reply = read(
        done(0, message("x")),
        added(1, function(arguments="", status="in_progress")),
        delta(1, "function_call_arguments", '{"at":'),
        ended(status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
    )

    assert [(one.arguments, one.complete) for one in reply.calls] == [('{"at":', False)]


def test_a_text_that_never_ended_keeps_its_deltas() -> None:
    reply = read(
        added(0, {"type": "message", "id": "m", "content": []}),
        delta(0, "output_text", "half"),
        ended(status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
    )

    assert reply.text == "half"


def test_the_end_mark_of_chat_is_ignored() -> None:
    assert decode(events(ended(message())) + b"data: [DONE]\n\n")[1].text == "x"


def test_a_stream_without_its_terminal_event_is_an_error() -> None:
    error = failure(done(0, message()))

    assert (error.kind, error.retryable) == ("protocol", False)


def test_an_error_event_is_raised() -> None:
    nested = failure({"type": "error", "error": {"code": "insufficient_quota", "message": "spent"}})
    flat = failure({"type": "error", "code": "server_error", "message": "boom"})

    assert (nested.kind, nested.retryable) == ("quota", False)
    assert (flat.kind, flat.retryable) == ("transient", True)


def test_a_failed_response_is_raised() -> None:
    assert (
        failure(
            ended(status="failed", error={"code": "rate_limit_exceeded", "message": "slow"})
        ).kind
        == "rate_limited"
    )
    assert failure(ended(status="failed", error=None)).kind == "transient"


@pytest.mark.parametrize(
    ("stream", "kind"),
    [(b"", "empty"), (b": x\n\n", "empty"), (b"<html>", "protocol"), (b"{}", "protocol")],
)
def test_bodies_that_are_not_a_response_are_errors(stream: bytes, kind: str) -> None:
    with pytest.raises(ProviderError) as caught:
        decode(stream)

    assert caught.value.kind == kind


def test_a_json_error_with_status_200_is_raised() -> None:
    with pytest.raises(ProviderError) as caught:
        decode(b'{"error": {"code": "model_not_found", "message": "no"}}')

    assert caught.value.kind == "not_found"


def test_usage_is_normalised() -> None:
    raw = {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 3},
    }

    assert read(ended(message(), usage=raw)).usage == Usage(
        input=10, output=5, cache_read=4, cache_write=2, reasoning=3
    )
    assert read(ended(message(), usage=None)).usage is None


def test_sealed_reasoning_without_text_is_an_opaque_part() -> None:
    first = whole(reasoning(), message()).content[0]

    assert isinstance(first, Opaque)
    assert first.data["item"]["encrypted_content"] == "sealed"


# Garbage

TYPES = st.sampled_from(
    """response.output_text.delta response.output_item.done response.output_item.added
    response.completed error message
    response.function_call_arguments.delta response.failed function_call reasoning""".split()
)
NAMES = st.sampled_from(
    """type output_index item delta response output status error content text summary
    arguments call_id id usage
    incomplete_details reason input_tokens message""".split()
)
VALUES = st.recursive(
    st.none()
    | st.floats()
    | st.integers(-2, 2)
    | st.sampled_from(["", "x", "completed", "incomplete"])
    | TYPES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=15,
)


@settings(max_examples=examples(150))
@given(st.lists(st.tuples(TYPES, VALUES, VALUES, VALUES), max_size=4), VALUES)
def test_events_of_any_shape_raise_nothing_but_provider_errors(
    parts: list[Any], other: Any
) -> None:
    items = [
        {"type": kind, "item": a, "response": b, "delta": c, "output_index": c}
        for kind, a, b, c in parts
    ]
    stream = b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in (*items, other))
    for given_bytes in (stream, json.dumps(response(*parts)).encode(), json.dumps(other).encode()):
        try:
            _, reply = decode(given_bytes)
        except ProviderError:
            continue
        OpenAIResponses.encode(Request(messages=[reply]), ENTRY, "acme-1")


@settings(max_examples=examples(150))
@given(st.lists(st.tuples(TYPES, st.dictionaries(NAMES, VALUES, max_size=5)), max_size=3), VALUES)
def test_items_of_any_shape_raise_nothing_but_provider_errors(items: list[Any], usage: Any) -> None:
    output = [{**item, "type": kind} for kind, item in items]
    for answer in (
        events(*(done(0, item) for item in output), ended(usage=usage)),
        events(ended(*output, usage=usage)),
    ):
        try:
            _, reply = decode(answer)
        except ProviderError:
            continue
        assert isinstance(reply.text, str)
        OpenAIResponses.encode(Request(messages=[reply]), ENTRY, "acme-1")


@given(st.binary(max_size=200))
def test_any_bytes_raise_nothing_but_provider_errors(stream: bytes) -> None:
    for given_bytes in (stream, b"data: " + stream + b"\n\n", b"{" + stream):
        try:
            decode(given_bytes)
        except ProviderError:
            pass


def test_a_stream_cut_at_any_byte_decodes_the_same() -> None:
    stream = events(
        delta(0, "output_text", "häppy"), done(0, message("häppy")), done(1, function()), ended()
    )
    seen, reply = decode(stream)

    for place in range(len(stream)):
        decoder = ResponsesDecoder(Quirks(), "acme", "acme-1")
        assert decoder.feed(stream[:place]) + decoder.feed(stream[place:]) == seen
        assert replace(decoder.finish().message, id="") == replace(reply, id="")


# The provider


class Server:
    """A fake of the HTTP client that plays blocks and stores the requests."""

    def __init__(self, *blocks: bytes) -> None:
        self.blocks = blocks
        self.asked: list[tuple[str, Any]] = []

    @asynccontextmanager
    async def post(
        self, path: str, body: bytes, headers: Any = None, *, model: str = ""
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        self.asked.append((path, json.loads(body)))
        async with aclosing(self._play()) as blocks:
            yield blocks

    async def _play(self) -> AsyncGenerator[bytes, None]:
        for block in self.blocks:
            yield block


async def test_the_provider_streams_and_ends_with_the_reply() -> None:
    server = Server(
        events(delta(0, "output_text", "x")), events(done(0, message()), ended(message()))
    )

    seen = [
        event
        async for event in OpenAIResponses(ENTRY, server).stream(Request(messages=[user("hi")]))
    ]

    assert seen[0] == TextDelta(text="x")
    assert isinstance(seen[-1], Done)
    assert server.asked[0][0] == "/responses"


async def test_the_provider_emits_events_for_a_complete_reply() -> None:
    server = Server(json.dumps(response(message("x"))).encode())

    seen = [
        event
        async for event in OpenAIResponses(ENTRY, server).stream(
            Request(messages=[user("hi")], stream=False)
        )
    ]

    assert seen[0] == TextDelta(text="x")


# Calls of other kinds


CUSTOM = {
    "type": "custom_tool_call",
    "id": "ctc_1",
    "call_id": "call_9",
    "name": "math",
    "input": "4 + 4",
    "status": "completed",
}


def test_a_custom_call_is_a_call_whose_arguments_are_text() -> None:
    added = {**CUSTOM, "input": "", "status": "in_progress"}
    seen, reply = decode(
        events(
            {"type": "response.output_item.added", "output_index": 0, "item": added},
            {
                "type": "response.custom_tool_call_input.delta",
                "output_index": 0,
                "item_id": "ctc_1",
                "delta": "4 + 4",
            },
            {"type": "response.output_item.done", "output_index": 0, "item": CUSTOM},
            {"type": "response.completed", "response": response(CUSTOM)},
        )
    )

    assert [event.arguments for event in seen if isinstance(event, ToolCallDelta)] == ["4 + 4"]
    assert (reply.stop_reason, reply.calls[0].arguments) == (StopReason.TOOL_USE, "4 + 4")
    answer = ToolMessage(call_id="call_9", name="math", content=(Text(text="8"),))
    back = sent(user("go"), reply, answer)
    assert back[1] == {key: value for key, value in CUSTOM.items() if key != "status"}
    assert back[2] == {"type": "custom_tool_call_output", "call_id": "call_9", "output": "8"}
    foreign = replace(reply, provider="other")
    answer = replace(answer, id="other")
    assert [item["type"] for item in sent(user("go"), foreign, answer)[1:]] == [
        "function_call",
        "function_call_output",
    ]


def test_the_namespace_of_a_found_tool_is_sent_back() -> None:
    item = {**function(), "namespace": "crm"}

    assert sent(user("go"), whole(item), result("ok"))[1]["namespace"] == "crm"


@pytest.mark.parametrize(
    "item",
    [
        {"type": "shell_call", "id": "s", "call_id": "c", "action": {"commands": ["ls"]}},
        {"type": "local_shell_call", "id": "s", "call_id": "c"},
        {"type": "apply_patch_call", "id": "s", "call_id": "c"},
        {"type": "computer_call", "id": "s", "call_id": "c"},
        {"type": "mcp_approval_request", "id": "m", "name": "x"},
        {"type": "tool_search_call", "call_id": "c", "execution": "client"},
    ],
)
def test_a_call_that_glue_cannot_answer_is_a_clear_error(item: dict[str, Any]) -> None:
    with pytest.raises(ProviderError, match=f"{item['type']}, which glue cannot answer") as caught:
        whole(item)

    assert (caught.value.kind, caught.value.retryable) == ("invalid_request", False)


def test_a_call_that_the_server_answered_is_not_an_error() -> None:
    called = {"type": "shell_call", "id": "s", "call_id": "c"}
    output = {"type": "shell_call_output", "call_id": "c", "output": []}

    assert whole(called, output, message("done")).text == "done"


# Options


def test_include_is_added_to_our_own() -> None:
    asked = body(user("a"), options={"include": ["message.output_text.logprobs"]})

    assert asked["include"] == ["reasoning.encrypted_content", "message.output_text.logprobs"]


def test_with_a_previous_response_only_the_new_messages_are_sent() -> None:
    old = replace(assistant("old"), meta={"id": "resp_1"})
    history = (user("a"), old, user("b"))

    asked = body(*history, options={"previous_response_id": "resp_1"})
    other = body(*history, options={"previous_response_id": "resp_2"})

    assert [item["content"] for item in asked["input"]] == ["b"]
    again = replace(assistant("new"), meta={"id": "resp_1"})
    ended = body(*history, again, options={"previous_response_id": "resp_1"})
    longer = body(*history, again, user("c"), options={"previous_response_id": "resp_1"})
    assert ended["input"] == []
    assert [item["content"] for item in longer["input"]] == ["c"]
    assert asked["previous_response_id"] == "resp_1"
    assert "store" not in asked
    assert len(other["input"]) == 3


async def test_a_response_in_the_background_is_awaited(
    loopback: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_sleep(seconds: float) -> None:
        waited.append(seconds)

    def answered(reply: Any) -> bytes:
        data = json.dumps(reply).encode()
        return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(data), data)

    waited: list[float] = []
    monkeypatch.setattr("anyio.sleep", no_sleep)
    pending = response(status="queued")
    server = loopback(
        answered(pending),
        answered({**pending, "status": "in_progress"}),
        answered(response(message("done"))),
    )
    provider = OpenAIResponses(ENTRY, HTTP(server.url))
    provider.login = FakeLogin()
    request = Request(messages=(user("go"),), stream=False, options={"background": True})

    found = [event async for event in provider.stream(request)]
    await provider.aclose()

    assert isinstance(done := found[-1], Done)
    assert (done.message.text, waited) == ("done", [1.0, 1.5])
    assert [seen.line.split()[:2] for seen in server.seen[1:]] == [
        ["GET", f"/responses/{pending['id']}"]
    ] * 2
    assert [seen.headers["authorization"] for seen in server.seen] == ["Bearer token"] * 3


class FakeLogin:
    async def headers(self) -> dict[str, str]:
        return {"authorization": "Bearer token"}


def test_a_stop_sequence_is_noted_because_the_api_takes_none() -> None:
    encoder = ResponsesEncoder(Request(stop=("END",)), ENTRY, "acme-1")

    assert b"END" not in encoder.body()
    assert encoder.notes == ["the Responses API takes no stop sequences; they were left out"]


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ({"detail": "no such model"}, "no such model"),
        ({"message": "bad key"}, "bad key"),
        ({"error": {"message": "busy"}}, "busy"),
        ({"object": "error", "message": "gone"}, "gone"),
    ],
)
def test_an_error_in_place_of_a_response_is_raised_with_its_message(reply: Any, words: str) -> None:
    with pytest.raises(ProviderError, match=f"{words}$"):
        ResponsesDecoder(Quirks(), "acme", "acme-1").decode(json.dumps(reply).encode())
