"""A transcript made on one wire continues on every other wire, and returns."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.documents import pdf, png
from syrupy.assertion import SnapshotAssertion

from glue import Context
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
    UserMessage,
    user,
)
from glue.providers.catalog import Entry, Quirks
from glue.providers.wire import wire_class
from glue.testing import call as make_call
from glue.tools.fs import read_file

WIRES = ("openai_chat", "openai_responses", "anthropic", "gemini", "bedrock")
MODEL = {
    "openai_chat": "gpt-5-nano",
    "openai_responses": "gpt-5-nano",
    "anthropic": "claude-haiku-4-5",
    "gemini": "gemini-3-flash-preview",
    "bedrock": "us.anthropic.claude-haiku-4-5-20251001-v1:0",
}
SEAL = "c2VhbGVkLWJ5LXRoZS12ZW5kb3I="
TOOLS = (ToolSpec(name="look", description="Look."), ToolSpec(name="wait"))
PICTURE = Image(media_type="image/png", data=b"\x89PNG\r\n")

Say = Callable[..., AssistantMessage]


def entry(wire: str, name: str = "") -> Entry:
    encrypted = wire == "openai_responses"
    return Entry(
        name or f"{wire}-server",
        wire=wire,
        base_url="https://model.example",
        quirks=Quirks(encrypted=encrypted),
    )


def encode(wire: str, messages: list[Message], name: str = "") -> Any:
    request = Request(system="Be brief.", messages=messages, tools=TOOLS, max_tokens=1000)
    return json.loads(wire_class(wire).encode(request, entry(wire, name), MODEL[wire]))


# Replies as each vendor writes them


def say(
    wire: str, text: str = "", *calls: tuple[str, str, Any], thought: str = ""
) -> AssistantMessage:
    """Decode a reply in the form of a wire: thinking with its signature, text, calls."""
    body = json.dumps(NATIVE[wire](text, calls, thought)).encode()
    return (
        wire_class(wire)
        .decoder(entry(wire).quirks, entry(wire).name, MODEL[wire])
        .decode(body)
        .message
    )


def native_chat(text: str, calls: Any, thought: str) -> Any:
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if thought:
        message["reasoning_details"] = [
            {"type": "reasoning.text", "text": thought, "signature": SEAL}
        ]
    message["tool_calls"] = [
        {
            "id": call_id,
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(given)},
        }
        for call_id, name, given in calls
    ]
    return {"id": "c1", "choices": [{"message": message, "finish_reason": "stop"}]}


def native_responses(text: str, calls: Any, thought: str) -> Any:
    output: list[Any] = []
    if thought:
        summary = [{"type": "summary_text", "text": thought}]
        output.append(
            {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": SEAL}
        )
    if text:
        content = [{"type": "output_text", "text": text}]
        output.append({"type": "message", "id": "msg_1", "role": "assistant", "content": content})
    for position, (call_id, name, given) in enumerate(calls):
        call = {"type": "function_call", "id": f"fc_{position}", "call_id": call_id, "name": name}
        output.append({**call, "arguments": json.dumps(given)})
    return {"id": "r1", "status": "completed", "output": output}


def native_anthropic(text: str, calls: Any, thought: str) -> Any:
    content: list[Any] = []
    if thought:
        content.append({"type": "thinking", "thinking": thought, "signature": SEAL})
        content.append({"type": "redacted_thinking", "data": SEAL + "2"})
    if text:
        content.append({"type": "text", "text": text})
    content += [
        {"type": "tool_use", "id": call_id, "name": name, "input": given}
        for call_id, name, given in calls
    ]
    stop = "tool_use" if calls else "end_turn"
    return {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "content": content,
        "stop_reason": stop,
    }


def native_gemini(text: str, calls: Any, thought: str) -> Any:
    parts: list[Any] = []
    if thought:
        parts.append({"text": thought, "thought": True})
    if text:
        parts.append(
            {"text": text, **({"thoughtSignature": SEAL} if thought and not calls else {})}
        )
    for position, (_, name, given) in enumerate(calls):
        sealed = {"thoughtSignature": SEAL} if thought and position == 0 else {}
        parts.append({"functionCall": {"name": name, "args": given}, **sealed})
    return {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]}


def native_bedrock(text: str, calls: Any, thought: str) -> Any:
    content: list[Any] = []
    if thought:
        content.append(
            {"reasoningContent": {"reasoningText": {"text": thought, "signature": SEAL}}}
        )
    if text:
        content.append({"text": text})
    content += [
        {"toolUse": {"toolUseId": call_id, "name": name, "input": given}}
        for call_id, name, given in calls
    ]
    message = {"role": "assistant", "content": content}
    return {"output": {"message": message}, "stopReason": "tool_use" if calls else "end_turn"}


NATIVE: dict[str, Callable[[str, Any, str], Any]] = {
    "openai_chat": native_chat,
    "openai_responses": native_responses,
    "anthropic": native_anthropic,
    "gemini": native_gemini,
    "bedrock": native_bedrock,
}


# Awkward transcripts


def results(reply: AssistantMessage, *contents: Any) -> list[Message]:
    return [
        ToolMessage(
            call_id=call.id,
            name=call.name,
            content=content if isinstance(content, tuple) else (Text(text=content),),
        )
        for call, content in zip(reply.calls, contents, strict=True)
    ]


def plain(wire: str) -> list[Message]:
    return [user("Hi."), say(wire, "Hello."), user("Sûr? \U0001f408")]


def thinking_and_parallel_calls(wire: str) -> list[Message]:
    reply = say(
        wire, "I look.", ("call_1", "look", {"at": "x"}), ("call_2", "wait", {}), thought="Hm."
    )
    return [user("Look twice."), reply, *results(reply, "a cat", "a dog")]


def thinking_before_text_only(wire: str) -> list[Message]:
    return [user("Hi."), say(wire, "Hello.", thought="Hm."), user("And?")]


def several_turns(wire: str) -> list[Message]:
    first = say(wire, "", ("call_a", "look", {"at": 1}), thought="One.")
    second = say(wire, "Again.", ("call_b", "look", {"at": 2}), thought="Two.")
    return [
        user("Go."),
        first,
        *results(first, "1"),
        second,
        *results(second, "2"),
        say(wire, "Done."),
        user("Thanks."),
    ]


def odd_ids(wire: str) -> list[Message]:
    first = say(
        wire,
        "",
        ("x" * 300, "look", {}),
        ("functions.look:0", "look", {"n": 1}),
        ("ünï/cödé", "wait", {}),
    )
    second = say(wire, "", ("x" * 300, "look", {}))
    return [user("Go."), first, *results(first, "a", "b", "c"), second, *results(second, "d")]


def ids_counted_anew(wire: str) -> list[Message]:
    messages: list[Message] = [user("Go.")]
    for number in range(3):
        reply = say(wire, "", ("0", "look", {"n": number}), ("1", "look", {}))
        messages += [reply, *results(reply, f"a{number}", f"b{number}")]
    return messages


def images(wire: str) -> list[Message]:
    reply = say(wire, "", ("call_1", "look", {}), ("call_2", "look", {}))
    pdf = File(media_type="application/pdf", data=b"%PDF-1", name="a b.pdf")
    pictures = (Text(text="here"), PICTURE), (PICTURE,)
    return [
        user("What?", PICTURE, pdf),
        reply,
        *results(reply, *pictures),
        say(wire, "Cats."),
        user(PICTURE, "And this?"),
    ]


def empty_things(wire: str) -> list[Message]:
    thought = AssistantMessage(
        content=(Thinking(text="only thought"),), provider=entry(wire).name, model=MODEL[wire]
    )
    blank = AssistantMessage(content=(Text(text=""),), provider=entry(wire).name, model=MODEL[wire])
    return [
        user(""),
        user("One."),
        thought,
        user("Two.", ""),
        blank,
        say(wire, "Yes."),
        user("  \n"),
        user("Three."),
    ]


def steering_after_results(wire: str) -> list[Message]:
    reply = say(wire, "", ("call_1", "look", {}))
    return [
        user("Go."),
        reply,
        *results(reply, "a cat"),
        user("Be quick."),
        user("Please."),
        say(wire, "Ok."),
        user("So?"),
    ]


def continued_replies(wire: str) -> list[Message]:
    return [user("Go."), say(wire, "Part one "), say(wire, "part two."), user("And?")]


def broken_arguments(wire: str) -> list[Message]:
    calls = [
        ToolCall(id=f"call_{n}", name="look", arguments=text)
        for n, text in enumerate(("", '{"at": ', "[1]", '"x"'))
    ]
    reply = AssistantMessage(content=tuple(calls), provider=entry(wire).name, model=MODEL[wire])
    failed = [
        ToolMessage(call_id=call.id, name="look", content=(Text(text="no"),), is_error=True)
        for call in calls
    ]
    return [user("Go."), reply, *failed]


def silent_results(wire: str) -> list[Message]:
    reply = say(wire, "", ("call_1", "look", {}), ("call_2", "wait", {}))
    return [user("Go."), reply, *results(reply, "", ())]


def foreign_blocks(wire: str) -> list[Message]:
    block = Opaque(
        wire=wire,
        data={
            "item": {"type": "web_search_call", "id": "ws"},
            "type": "server_tool_use",
            "id": "srv",
        },
    )
    reply = AssistantMessage(content=(block, Text(text="Found.")), provider="gone", model="gone")
    hidden = UserMessage(content=(Text(text="secret"),), excluded=True)
    return [user("Search."), reply, hidden, user("a\ud800b")]


TRANSCRIPTS = (
    plain,
    thinking_and_parallel_calls,
    thinking_before_text_only,
    several_turns,
    odd_ids,
    ids_counted_anew,
    images,
    empty_things,
    steering_after_results,
    continued_replies,
    broken_arguments,
    silent_results,
    foreign_blocks,
)


# Checks of a request, as a strict server would make them


def arguments(text: str) -> Any:
    value = json.loads(text)
    assert isinstance(value, dict)
    return value


class Batch:
    """A check that each call of a reply has exactly one result, before anything else."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.used: set[str] = set()

    def call(self, id: str, pattern: str = r".{1,64}") -> None:
        assert re.fullmatch(pattern, id), id
        assert id not in self.used
        self.used.add(id)
        self.open.append(id)

    def result(self, id: str) -> None:
        assert id in self.open
        self.open.remove(id)

    def close(self) -> None:
        assert not self.open


def read_chat(body: Any) -> Iterator[tuple[Any, ...]]:
    batch = Batch()
    for message in body["messages"]:
        content = message.get("content")
        if message["role"] == "tool":
            batch.result(message["tool_call_id"])
            yield "result", content
            continue
        batch.close()
        assert content or message.get("tool_calls")
        for block in (
            [{"type": "text", "text": content}] if isinstance(content, str) else content or ()
        ):
            assert block["type"] in ("text", "image_url", "file")
            if message["role"] != "system" and block["type"] == "text":
                yield "text", block["text"]
            elif block["type"] == "image_url":
                yield ("image",)
        for call in message.get("tool_calls") or ():
            batch.call(call["id"])
            yield "call", call["function"]["name"], arguments(call["function"]["arguments"])
    batch.close()


def read_responses(body: Any) -> Iterator[tuple[Any, ...]]:
    batch = Batch()
    items = body["input"]
    for position, item in enumerate(items):
        kind = item.get("type", "message")
        if kind == "function_call_output":
            batch.result(item["call_id"])
            output = item["output"]
            yield from _blocks(
                [{"type": "input_text", "text": output}] if isinstance(output, str) else output,
                "result",
            )
        elif kind == "function_call":
            batch.call(item["call_id"])
            yield "call", item["name"], arguments(item["arguments"])
        elif kind == "reasoning":
            assert items[position + 1].get("type") in ("function_call", "message", "reasoning")
        else:
            assert kind == "message"
            batch.close()
            content = item["content"]
            assert content
            yield from _blocks(
                [{"type": "input_text", "text": content}] if isinstance(content, str) else content,
                "text",
            )
    batch.close()


def _blocks(blocks: Any, kind: str) -> Iterator[tuple[Any, ...]]:
    texts = [block["text"] for block in blocks if block["type"] in ("input_text", "output_text")]
    if kind == "result":
        yield "result", "".join(texts)
    else:
        yield from (("text", text) for text in texts)
    yield from (("image",) for block in blocks if block["type"] == "input_image")


def read_anthropic(body: Any) -> Iterator[tuple[Any, ...]]:
    batch = Batch()
    assert body["max_tokens"]
    _alternate([message["role"] for message in body["messages"]], "assistant")
    for message in body["messages"]:
        content = message["content"]
        assert content
        seen_other = False
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            kind = block["type"]
            if kind == "tool_result":
                assert not seen_other
                batch.result(block["tool_use_id"])
                inner = block.get("content") or ""
                yield from _result(
                    [{"type": "text", "text": inner}] if isinstance(inner, str) else inner,
                    inner != "",
                )
                continue
            seen_other = True
            if message["role"] == "user":
                batch.close()
            if kind == "text":
                assert block["text"].strip()
                yield "text", block["text"]
            elif kind == "tool_use":
                batch.call(block["id"], r"[a-zA-Z0-9_-]{1,64}")
                assert isinstance(block["input"], dict)
                yield "call", block["name"], block["input"]
            elif kind == "image":
                yield ("image",)
            else:
                assert kind == "document" or (
                    kind in ("thinking", "redacted_thinking") and SEAL in json.dumps(block)
                )
    batch.close()


def _result(blocks: Any, is_checked: bool) -> Iterator[tuple[Any, ...]]:
    texts = [block["text"] for block in blocks if "text" in block]
    assert not is_checked or all(text.strip() for text in texts)
    yield "result", "".join(texts)
    yield from (("image",) for block in blocks if "text" not in block)


def read_gemini(body: Any) -> Iterator[tuple[Any, ...]]:
    _alternate([content["role"] for content in body["contents"]], "model")
    waiting: list[str] = []
    for content in body["contents"]:
        assert content["parts"]
        responses = [part for part in content["parts"] if "functionResponse" in part]
        assert [part["functionResponse"]["name"] for part in responses] == waiting
        waiting = []
        for part in content["parts"]:
            if "functionResponse" in part:
                response = part["functionResponse"]["response"]
                assert isinstance(response, dict)
                value = next(iter(response.values()), "")
                yield "result", value if isinstance(value, str) else json.dumps(value)
                yield from (
                    ("image",)
                    for inner in part["functionResponse"].get("parts", ())
                    if "inlineData" in inner
                )
            elif "functionCall" in part:
                assert isinstance(part["functionCall"]["args"], dict)
                waiting.append(part["functionCall"]["name"])
                yield "call", part["functionCall"]["name"], part["functionCall"]["args"]
            elif "inlineData" in part:
                if part["inlineData"]["mimeType"].startswith("image/"):
                    yield ("image",)
            elif not part.get("thought"):
                assert part["text"]
                yield "text", part["text"]
    assert not waiting


def read_bedrock(body: Any) -> Iterator[tuple[Any, ...]]:
    batch = Batch()
    assert body["toolConfig"]["tools"]
    _alternate([message["role"] for message in body["messages"]], "assistant")
    for message in body["messages"]:
        assert message["content"]
        texts = [block for block in message["content"] if "text" in block]
        for block in message["content"]:
            if "toolResult" in block:
                result = block["toolResult"]
                batch.result(result["toolUseId"])
                assert result["content"]
                yield from _result(result["content"], True)
                continue
            if message["role"] == "user":
                batch.close()
            if "text" in block:
                assert block["text"].strip()
                yield "text", block["text"]
            elif "toolUse" in block:
                batch.call(block["toolUse"]["toolUseId"], r"[a-zA-Z0-9_-]{1,64}")
                assert isinstance(block["toolUse"]["input"], dict)
                yield "call", block["toolUse"]["name"], block["toolUse"]["input"]
            elif "image" in block:
                yield ("image",)
            elif "document" in block:
                assert texts
                assert re.fullmatch(r"[a-zA-Z0-9\s\-()\[\]]+", block["document"]["name"])
            else:
                assert SEAL in json.dumps(block["reasoningContent"])
    batch.close()


def _alternate(roles: list[str], model: str) -> None:
    assert roles == ["user" if position % 2 == 0 else model for position in range(len(roles))]


READ: dict[str, Callable[[Any], Iterator[tuple[Any, ...]]]] = {
    "openai_chat": read_chat,
    "openai_responses": read_responses,
    "anthropic": read_anthropic,
    "gemini": read_gemini,
    "bedrock": read_bedrock,
}


def meant(messages: list[Message]) -> list[tuple[Any, ...]]:
    """Return the facts of a transcript that every server must be sent."""
    facts: list[tuple[Any, ...]] = []
    for message in messages:
        if message.excluded:
            continue
        if isinstance(message, ToolMessage):
            facts.append(("result", message.text))
        for part in message.content:
            if (
                isinstance(part, Text)
                and part.text.strip()
                and not isinstance(message, ToolMessage)
            ):
                facts.append(("text", part.text.replace("\ud800", "?")))
            elif isinstance(part, ToolCall):
                facts.append(("call", part.name, loose(part.arguments)))
            elif isinstance(part, Image):
                facts.append(("image",))
    return facts


def loose(text: str) -> Any:
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {"arguments": text}
    return value if isinstance(value, dict) else {"arguments": value}


def check(wire: str, messages: list[Message], body: Any) -> None:
    read = [fact for fact in READ[wire](body) if fact[0] != "text" or fact[1].strip()]
    wanted = meant(messages)
    # If a tool result cannot contain an image, the result names the image, which follows later.
    assert read.count(("image",)) == wanted.count(("image",))
    notes = {"From the result of look:", "From the result of wait:"}
    told = [fact for fact in read if fact[0] != "image" and fact[1] not in notes]
    for fact, want in zip(told, (fact for fact in wanted if fact[0] != "image"), strict=True):
        assert fact[0] == want[0]
        if want[0] == "result":
            assert fact[1].startswith(want[1])
        else:
            assert fact == want


# Tests


@pytest.mark.parametrize("make", TRANSCRIPTS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("target", WIRES)
@pytest.mark.parametrize("source", WIRES)
def test_a_transcript_continues_on_another_wire_and_returns(
    source: str, target: str, make: Callable[[str], list[Message]]
) -> None:
    messages = make(source)
    server = "another-server"

    there = encode(target, messages, server)
    check(target, messages, there)
    assert SEAL not in json.dumps(there)  # no other vendor sees encrypted reasoning

    reply = say(target, "Elsewhere.", ("call_9", "look", {"at": "there"}), thought="Their thought.")
    longer = [*messages, reply, *results(reply, "seen")]
    if isinstance(messages[-1], AssistantMessage):
        longer.insert(len(messages), user("Go on."))
    check(target, longer, encode(target, longer))
    check(source, longer, encode(source, longer))

    final = [*longer, say(source, "Back."), user("Good.")]
    check(source, final, encode(source, final))


@pytest.mark.parametrize("source", WIRES)
def test_encrypted_reasoning_is_sent_back_to_its_vendor(source: str) -> None:
    for make in (thinking_and_parallel_calls, several_turns):
        messages = make(source)

        assert SEAL in json.dumps(encode(source, messages))
        assert SEAL not in json.dumps(encode(source, messages, "another-server"))


@pytest.mark.parametrize("wire", WIRES)
def test_a_long_history_encodes_the_same_after_partial_encoding(wire: str) -> None:
    history: list[Message] = [user("go")]
    for number in range(24):
        call = ToolCall(id=f"call_{number}", name="look", arguments="{}")
        history.append(AssistantMessage(content=(Text(text=f"{number}"), call)))
        history.append(
            ToolMessage(call_id=call.id, name="look", content=(Text(text="seen"), PICTURE))
        )
        history.append(replace(user("left out"), excluded=True))

    for end in (73, 40, 64, 73):
        kept = encode(wire, history[:end])

        assert kept == encode(wire, [replace(message) for message in history[:end]])


@pytest.mark.parametrize("wire", WIRES)
def test_the_check_refuses_a_result_whose_call_is_missing(wire: str) -> None:
    """This tests the check above, not the encoders."""
    messages = odd_ids("openai_chat")
    body = encode(
        wire, [message for message in messages if not isinstance(message, AssistantMessage)]
    )

    with pytest.raises(AssertionError):
        check(wire, messages, body)


@pytest.mark.parametrize("wire", WIRES)
async def test_a_picture_and_a_pdf_that_read_file_returned(
    wire: str, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    (tmp_path / "dot.png").write_bytes(png(2, 2))
    (tmp_path / "a.pdf").write_bytes(pdf("Invoice 7"))
    messages: list[Message] = [user("Look at both files.")]
    for number, name in enumerate(("dot.png", "a.pdf")):
        asked = make_call("read_file", {"path": name}, id=f"call_{number}")
        result = await read_file(tmp_path).invoke(asked, Context(call=asked))
        messages += [
            AssistantMessage(content=(asked,)),
            ToolMessage(call_id=asked.id, name="read_file", content=result.content),
        ]

    assert json.dumps(encode(wire, messages), indent=1) == snapshot


@pytest.mark.parametrize("model", ["openai/gpt-oss-20b", "deepseek/deepseek-v4", "gpt-5-nano"])
def test_a_model_without_vision_gets_a_text_for_a_picture(model: str) -> None:
    result = ToolMessage(call_id="c1", name="look", content=(Text(text="[a.png]"), PICTURE))
    said = AssistantMessage(content=(ToolCall(id="c1", name="look", arguments="{}"),))
    request = Request(messages=[user("Look."), said, result], tools=TOOLS)

    body = wire_class("openai_chat").encode(request, entry("openai_chat"), model)

    assert (b"image_url" in body) == (model == "gpt-5-nano")
