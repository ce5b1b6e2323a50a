"""Recorded traffic: replies are decoded, and the next recorded request is encoded."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from glue.errors import ProviderError
from glue.messages import (
    AssistantMessage,
    Image,
    Message,
    Opaque,
    Request,
    Text,
    Thinking,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
)
from glue.providers.catalog import ENTRIES, Entry
from glue.providers.errors import classify
from glue.providers.wire import wire_class

FOLDER = os.environ.get("GLUE_RECORDINGS", "")
FILES = sorted(Path(FOLDER).glob("*.json")) if FOLDER else []
MODULES = {
    "openai-chat": "openai_chat",
    "openai-responses": "openai_responses",
    "anthropic-messages": "anthropic",
    "gemini-generate": "gemini",
    "bedrock-converse": "bedrock",
}
SIGNATURES = ("signature", "encrypted_content", "thoughtSignature", "redactedContent", "data")

pytestmark = pytest.mark.skipif(not FOLDER, reason="GLUE_RECORDINGS is not set")


@pytest.mark.parametrize("path", FILES or [Path("none")], ids=lambda path: path.stem)
def test_recording(path: Path) -> None:
    """Replies decode the same however they are cut, and requests equal the recorded ones."""
    recording = json.loads(path.read_text())

    if recording["expect"]["error"] is not None:
        check_failure(recording)
    else:
        check_reply(recording)
    if recording["response"]["status"] == 200:
        check_cuts(recording)
    if recording["request"]:
        check_history(recording)
    turn = turn_of(recording, later=1)
    if turn in TURNS:
        check_next_request(recording, json.loads(TURNS[turn].read_text()))


# Checks


def check_failure(recording: dict[str, Any]) -> None:
    error, expect = failure(recording), recording["expect"]

    assert error.kind in expect.get("error_kind_accept", [expect["error_kind"]])
    assert error.retryable == expect["retryable"]
    check_usage(error.usage, expect["usage"])
    assert expect.get("request_id") in (None, error.request_id)


def check_reply(recording: dict[str, Any]) -> None:
    message, expect = reply(recording), recording["expect"]

    assert message.text == expect["text"] + (expect["refusal"] or "")
    assert thinking(message) == (expect["thinking"] or "")
    check_calls(message, expect)
    assert sorted(signatures(message)) == sorted(expect["signatures"])
    assert expect["stop_reason_raw"] in (None, message.raw_stop_reason)
    assert message.stop_reason in expect.get("stop_normalized_accept", [expect["stop_normalized"]])
    check_usage(message.usage, expect["usage"])


def check_cuts(recording: dict[str, Any]) -> None:
    whole = outcome(recording, 1 << 30)

    for size in (1, 7, 1000):
        assert outcome(recording, size) == whole


def check_history(recording: dict[str, Any]) -> None:
    """Decode every reply in a recorded request, encode the conversation, and compare both."""
    body = recording["request"]["json"]

    assert_alike(
        facts(recording, sent(recording, transcript(recording, body))), facts(recording, body)
    )


def check_next_request(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Encode the next recorded request with our decoded reply as its last reply, and compare."""
    if before["expect"]["error"] or not after["request"]:
        return
    body = after["request"]["json"]
    messages = transcript(after, body)
    place = max(
        index for index, message in enumerate(messages) if isinstance(message, AssistantMessage)
    )
    recorded = messages[place]
    assert isinstance(recorded, AssistantMessage)

    said = reply(before)
    renamed = dict(
        zip((call.id for call in recorded.calls), (call.id for call in said.calls), strict=True)
    )
    messages[place] = said
    for index, message in enumerate(messages):
        if isinstance(message, ToolMessage) and message.call_id in renamed and index > place:
            messages[index] = ToolMessage(
                call_id=renamed[message.call_id], name=message.name, content=message.content
            )

    assert_alike(facts(after, sent(after, messages)), facts(after, body))


def assert_alike(ours: list[Any], recorded: list[Any]) -> None:
    # An empty tool result may have a text in the request: some servers refuse empty results.
    silent = [fact[:-1] for fact in recorded if fact[0] == "result" and not fact[-1]]
    assert [
        (*fact[:-1], "") if fact[0] == "result" and fact[:-1] in silent else fact for fact in ours
    ] == recorded


def check_usage(usage: Usage | None, expect: dict[str, int | None] | None) -> None:
    if expect is None:
        assert usage is None
        return
    assert usage is not None
    assert (usage.input, usage.output) == (expect["input_total"], expect["output_total"])
    assert (usage.cache_read or 0, usage.cache_write or 0) == (
        expect["cache_read"],
        expect["cache_write"],
    )
    assert (usage.reasoning or 0) == (expect["reasoning"] or 0)


def check_calls(message: AssistantMessage, expect: dict[str, Any]) -> None:
    assert len(message.calls) == len(expect["tool_calls"])
    for call, wanted in zip(message.calls, expect["tool_calls"], strict=True):
        assert call.complete or expect["stop_normalized"] in ("max_tokens", "malformed_call")
        assert call.name == wanted["name"]
        assert call.id == wanted["id"] or (call.id and not wanted["id"])
        if call.complete:
            assert json.loads(call.arguments or "{}") == (wanted["arguments"] or {})
        if wanted.get("arguments_raw"):
            assert call.arguments == wanted["arguments_raw"]
    kept = json.dumps([part.data for part in message.content if isinstance(part, Opaque)])
    for server in expect["server_tool_calls"]:
        assert f'"{server.get("name")}"' in kept or f'"{server.get("type")}"' in kept
        assert not server.get("id") or server["id"] in kept


def turn_of(recording: dict[str, Any], later: int = 0) -> tuple[str, str, int]:
    talk = recording.get("conversation") or {"id": recording["case"], "turn": 0}
    return recording["wire"], talk["id"], talk["turn"] + later


TURNS = {turn_of(json.loads(path.read_text())): path for path in FILES}


# One recording


def entry(recording: dict[str, Any]) -> Entry:
    """Return the provider's catalog entry, or a plain one if the catalog has none on this wire."""
    name, wire = recording["provider"], MODULES[recording["wire"]]
    known = [
        entry
        for entry in ENTRIES
        if entry.name == name and wire in (entry.wire, entry.compatible_wire)
    ]
    return known[0] if known else Entry(name, wire=wire, base_url="https://model.example")


def blocks(recording: dict[str, Any], size: int = 1 << 30) -> Iterator[bytes]:
    response = recording["response"]
    body = (
        base64.b64decode(response["body_base64"])
        if "body_base64" in response
        else response["body_text"].encode()
    )
    for start in range(0, len(body), size):
        yield body[start : start + size]


def decode(recording: dict[str, Any], size: int = 1 << 30) -> tuple[list[Any], AssistantMessage]:
    if not recording["response"]["stream"] and size == 1 << 30:
        body = b"".join(blocks(recording))
        return [], wire_class(MODULES[recording["wire"]]).decoder(
            entry(recording).quirks, recording["provider"], "m"
        ).decode(body).message
    decoder = wire_class(MODULES[recording["wire"]]).decoder(
        entry(recording).quirks, recording["provider"], "m"
    )
    events: list[Any] = []
    for block in blocks(recording, size):
        events += decoder.feed(block)
    return events, decoder.finish().message


def outcome(recording: dict[str, Any], size: int) -> Any:
    try:
        events, message = decode(recording, size)
    except ProviderError as error:
        return str(error), error.kind
    shown = "".join(event.text for event in events if type(event).__name__ == "TextDelta")
    assert not events or shown == message.text
    calls = [(call.name, call.arguments, call.complete) for call in message.calls]
    texts = [part for part in message.content if isinstance(part, (Text, Thinking, Opaque))]
    return texts, calls, message.stop_reason, message.usage


def reply(recording: dict[str, Any]) -> AssistantMessage:
    return decode(recording)[1]


def failure(recording: dict[str, Any]) -> ProviderError:
    response = recording["response"]
    if response["status"] != 200:
        return classify(response["status"], response["headers"], b"".join(blocks(recording)))
    with pytest.raises(ProviderError) as caught:
        decode(recording)
    return caught.value


def thinking(message: AssistantMessage) -> str:
    return "".join(part.text for part in message.content if isinstance(part, Thinking))


def signatures(message: AssistantMessage) -> list[str]:
    found: list[str] = []
    for part in message.content:
        opaque = part if isinstance(part, Opaque) else getattr(part, "opaque", None)
        # Results of a server's own tool are also encrypted, and are sent back inside their block.
        if opaque and not str(opaque.data.get("type", "")).endswith("_tool_result"):
            found += sealed(opaque.data)
    return found


def sealed(value: Any) -> list[str]:
    """Return the encrypted values in a JSON value that must be sent back to the vendor."""
    if isinstance(value, dict):
        own = [
            value[name] for name in SIGNATURES if isinstance(value.get(name), str) and value[name]
        ]
        return own + [item for inner in value.values() for item in sealed(inner)]
    return [item for inner in value for item in sealed(inner)] if isinstance(value, list) else []


# Requests


def sent(recording: dict[str, Any], messages: list[Message]) -> Any:
    """Encode a conversation on the wire of a recording."""
    tools = (ToolSpec(name="some_tool"),)
    request = Request(messages=messages, tools=tools, max_tokens=100)
    return json.loads(wire_class(MODULES[recording["wire"]]).encode(request, entry(recording), "m"))


def transcript(recording: dict[str, Any], body: Any) -> list[Message]:
    """Return the messages of a recorded request; the wire's decoder decodes its replies."""
    names: dict[str, str] = {}
    pending: list[tuple[str, str]] = []
    messages: list[Message] = []
    for kind, value in READERS[recording["wire"]](body):
        if kind == "user":
            messages.append(UserMessage(content=tuple(value)))
        elif kind == "assistant":
            whole = json.dumps(value).encode()
            said: AssistantMessage = (
                wire_class(MODULES[recording["wire"]])
                .decoder(entry(recording).quirks, recording["provider"], "m")
                .decode(whole)
                .message
            )
            pending = [(call.name, call.id) for call in said.calls]
            names.update((call.id, call.name) for call in said.calls)
            messages.append(said)
        else:
            call_id, name, content = value
            if call_id is None:  # Gemini: results are matched by name and order
                call_id = next((known for other, known in pending if other == name), name)
                pending = [known for known in pending if known != (name, call_id)]
            messages.append(
                ToolMessage(call_id=call_id, name=names.get(call_id, name), content=tuple(content))
            )
    return messages


def facts(recording: dict[str, Any], body: Any) -> list[Any]:
    """Return the facts of a request: roles, texts, calls, results, signatures."""
    result: list[Any] = []
    for fact in FACTS[recording["wire"]](body):
        if fact[0] == "role" and fact in result[-1:]:
            continue
        if fact[0] == "text" and not fact[1].strip():
            continue
        if fact[0] == "role" and result and result[-1][0] == "role":
            result.pop()  # the last message is empty
            if fact in [earlier for earlier in result if earlier[0] == "role"][-1:]:
                continue
        result.append(fact)
    return result


def image(url: str) -> Image:
    if not url.startswith("data:"):
        return Image(url=url)
    head, _, data = url.partition(";base64,")
    return Image(media_type=head.removeprefix("data:"), data=base64.b64decode(data))


def user_parts(block: Any) -> Iterator[Text | Image]:
    """Return the parts of a block of OpenAI; only texts and images are compared."""
    url = block.get("image_url")
    if url:
        yield image(url if isinstance(url, str) else url["url"])
    elif isinstance(block.get("text"), str):
        yield Text(text=block["text"])


def listed(content: Any, kind: str = "text") -> Any:
    return [{"type": kind, "text": content}] if isinstance(content, str) else content


def texts_of(content: Any, key: str = "text") -> str:
    if isinstance(content, str):
        return content
    return "".join(block.get(key) or "" for block in content or () if isinstance(block, dict))


def result_of(content: Any) -> str:
    """Return the text of a tool result, or its JSON if it has no text."""
    return texts_of(content) or (json.dumps(content, sort_keys=True) if content else "")


def arguments_of(value: Any) -> Any:
    return json.loads(value or "{}") if isinstance(value, str) else value


def read_chat(body: Any) -> Iterator[tuple[str, Any]]:
    for message in body["messages"]:
        content = message.get("content")
        if message["role"] == "user":
            blocks = listed(content)
            yield "user", [part for block in blocks for part in user_parts(block)]
        elif message["role"] == "assistant":
            yield (
                "assistant",
                {"id": "x", "choices": [{"message": message, "finish_reason": "stop"}]},
            )
        elif message["role"] == "tool":
            yield "tool", (message["tool_call_id"], "", [Text(text=result_of(content))])


def chat_facts(body: Any) -> Iterator[tuple[Any, ...]]:
    for message in body["messages"]:
        if message["role"] in ("system", "developer"):
            continue
        yield "role", message["role"]
        for detail in message.get("reasoning_details") or ():
            yield from (("signature", value) for value in sealed(detail))
        if message["role"] == "tool":
            yield "result", message["tool_call_id"], result_of(message.get("content"))
        else:
            yield "text", texts_of(message.get("content"))
        for block in message["content"] if isinstance(message.get("content"), list) else ():
            if "image_url" in block:
                yield "image", block["image_url"]["url"]
        for call in message.get("tool_calls") or ():
            yield (
                "call",
                call["id"],
                call["function"]["name"],
                arguments_of(call["function"]["arguments"]),
            )


def read_responses(body: Any) -> Iterator[tuple[str, Any]]:
    items: list[Any] = []
    given = body["input"]
    for item in [{"role": "user", "content": given}] if isinstance(given, str) else given:
        role = item.get("role")
        if role == "assistant":
            content = item["content"]
            blocks = listed(content, "output_text")
            items.append({**item, "type": "message", "content": blocks})
            continue
        if role is None and item["type"] != "function_call_output":
            items.append(item)
            continue
        if items:
            yield "assistant", {"id": "x", "status": "completed", "output": items}
            items = []
        if role == "user":
            content = item["content"]
            blocks = listed(content, "input_text")
            yield "user", [part for block in blocks for part in user_parts(block)]
        elif role is None:
            yield "tool", (item["call_id"], "", [Text(text=result_of(item["output"]))])
    if items:
        yield "assistant", {"id": "x", "status": "completed", "output": items}


def responses_facts(body: Any) -> Iterator[tuple[Any, ...]]:
    given = body["input"]
    for item in [{"role": "user", "content": given}] if isinstance(given, str) else given:
        role, kind = item.get("role"), item.get("type")
        if role in ("system", "developer"):
            continue
        yield "role", role or ("tool" if kind == "function_call_output" else "assistant")
        if kind == "function_call_output":
            yield "result", item["call_id"], result_of(item["output"])
        elif kind == "function_call":
            yield "call", item["call_id"], item["name"], arguments_of(item["arguments"])
        elif kind == "reasoning":
            yield from (("signature", value) for value in sealed(item))
        else:
            yield "text", texts_of(item.get("content"))


def read_anthropic(body: Any) -> Iterator[tuple[str, Any]]:
    for message in body["messages"]:
        content = message["content"]
        blocks = listed(content)
        if message["role"] == "assistant":
            reply = {
                "type": "message",
                "role": "assistant",
                "content": blocks,
                "stop_reason": "end_turn",
            }
            yield (
                "assistant",
                {"id": "x", "usage": {"input_tokens": 1, "output_tokens": 1}, **reply},
            )
            continue
        parts: list[Any] = []
        for block in blocks:
            if block["type"] == "tool_result":
                yield (
                    "tool",
                    (block["tool_use_id"], "", [Text(text=result_of(block.get("content")))]),
                )
            elif block["type"] == "image":
                source = block["source"]
                data = base64.b64decode(source["data"]) if "data" in source else None
                parts.append(
                    Image(media_type=source.get("media_type", ""), data=data, url=source.get("url"))
                )
            elif block["type"] == "text":
                parts.append(Text(text=block["text"]))
        if parts:
            yield "user", parts


def anthropic_facts(body: Any) -> Iterator[tuple[Any, ...]]:
    for message in body["messages"]:
        yield "role", message["role"]
        content = message["content"]
        for block in listed(content):
            if block["type"] == "tool_result":
                yield "result", block["tool_use_id"], result_of(block.get("content"))
            elif block["type"] == "tool_use":
                yield "call", block["id"], block["name"], block["input"]
            elif block["type"] in ("thinking", "redacted_thinking"):
                yield from (("signature", value) for value in sealed(block))
            elif block["type"] == "image":
                yield "image", block["source"].get("data") or block["source"]["url"]
            else:
                yield "text", block.get("text", "")


def read_gemini(body: Any) -> Iterator[tuple[str, Any]]:
    for content in body["contents"]:
        if content.get("role") == "model":
            yield "assistant", {"candidates": [{"content": content, "finishReason": "STOP"}]}
            continue
        parts: list[Any] = []
        for part in content["parts"]:
            if "functionResponse" in part:
                result = part["functionResponse"]
                yield "tool", (None, result["name"], [Text(text=gemini_result(result["response"]))])
            elif "inlineData" in part:
                data = part["inlineData"]
                parts.append(
                    Image(media_type=data["mimeType"], data=base64.b64decode(data["data"]))
                )
            elif "text" in part:
                parts.append(Text(text=part["text"]))
        if parts:
            yield "user", parts


def gemini_result(response: Any) -> str:
    value = next(iter(response.values())) if len(response) == 1 else response
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def gemini_facts(body: Any) -> Iterator[tuple[Any, ...]]:
    for content in body["contents"]:
        yield "role", "model" if content.get("role") == "model" else "user"
        for part in content["parts"]:
            if part.get("thoughtSignature"):
                # Google's own client replaces the standard base64 alphabet by the one for URLs.
                yield "signature", part["thoughtSignature"].replace("-", "+").replace("_", "/")
            if "functionCall" in part:
                yield "call", part["functionCall"]["name"], part["functionCall"].get("args", {})
            elif "functionResponse" in part:
                yield (
                    "result",
                    part["functionResponse"]["name"],
                    gemini_result(part["functionResponse"]["response"]),
                )
            elif "inlineData" in part:
                yield "image", part["inlineData"]["data"]
            elif "text" in part:
                yield "text", part["text"]


def read_bedrock(body: Any) -> Iterator[tuple[str, Any]]:
    for message in body["messages"]:
        if message["role"] == "assistant":
            yield "assistant", {"output": {"message": message}, "stopReason": "end_turn"}
            continue
        parts: list[Any] = []
        for block in message["content"]:
            if "toolResult" in block:
                result = block["toolResult"]
                yield "tool", (result["toolUseId"], "", [Text(text=result_of(result["content"]))])
            elif "text" in block:
                parts.append(Text(text=block["text"]))
        if parts:
            yield "user", parts


def bedrock_facts(body: Any) -> Iterator[tuple[Any, ...]]:
    for message in body["messages"]:
        yield "role", message["role"]
        for block in message["content"]:
            if "toolResult" in block:
                yield (
                    "result",
                    block["toolResult"]["toolUseId"],
                    result_of(block["toolResult"]["content"]),
                )
            elif "toolUse" in block:
                yield (
                    "call",
                    block["toolUse"]["toolUseId"],
                    block["toolUse"]["name"],
                    block["toolUse"]["input"],
                )
            elif "reasoningContent" in block:
                yield from (("signature", value) for value in sealed(block))
            elif "text" in block:
                yield "text", block["text"]


READERS = {
    "openai-chat": read_chat,
    "openai-responses": read_responses,
    "anthropic-messages": read_anthropic,
    "gemini-generate": read_gemini,
    "bedrock-converse": read_bedrock,
}
FACTS = {
    "openai-chat": chat_facts,
    "openai-responses": responses_facts,
    "anthropic-messages": anthropic_facts,
    "gemini-generate": gemini_facts,
    "bedrock-converse": bedrock_facts,
}
