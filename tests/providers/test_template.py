"""Whether the chat template of a local model knows tools."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from glue import providers
from glue.providers.template import knows_tools


def response(body: str, status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n\r\n"
    return (head + body).encode()


@pytest.mark.parametrize(
    ("answers", "known"),
    [
        ([response('{"capabilities": ["completion", "tools"]}')], True),
        ([response('{"capabilities": ["completion"]}')], False),
        ([response("{}", "404 Not Found"), response('{"chat_template": "{{ tools }}"}')], True),
        ([response("{}", "404 Not Found"), response('{"chat_template": "{{ text }}"}')], False),
        (
            [
                response("{}", "404 Not Found"),
                response(
                    '{"chat_template": "tools", "chat_template_caps": {"supports_tools": false}}'
                ),
            ],
            False,
        ),
        (
            [
                response("{}", "404 Not Found"),
                response('{"chat_template_caps": {"supports_tools": true}}'),
            ],
            True,
        ),
        ([response("{}", "404 Not Found")], None),
        ([response("not json")], None),
    ],
)
async def test_the_server_of_a_local_model_reports_its_template(
    loopback: Any, answers: list[bytes], known: bool | None
) -> None:
    server = loopback(*answers)
    provider = providers.new("ollama:tiny", base_url=f"{server.url}/v1")

    assert await knows_tools(provider) is known

    assert b'"model": "tiny"' in server.seen[0].body


async def test_a_server_that_does_not_answer_reports_nothing() -> None:
    assert await knows_tools(providers.new("ollama", base_url="http://127.0.0.1:9/v1")) is None


async def test_a_server_of_a_vendor_is_not_asked(loopback: Any) -> None:
    server = loopback(response("{}"))

    assert await knows_tools(providers.new("groq", base_url=server.url, key="x")) is None
    assert await knows_tools(providers.new("offline")) is None
    assert server.seen == []


@pytest.mark.parametrize(("template", "known"), [("{{ tools }}", True), ("{{ text }}", False)])
async def test_the_template_of_a_model_file_is_read_from_its_metadata(
    tmp_path: Path, template: str, known: bool
) -> None:
    path = tmp_path / "model.gguf"
    value = struct.pack("<IQ", 8, len(template)) + template.encode()
    path.write_bytes(b"GGUF" + b"\0" * 100 + b"tokenizer.chat_template" + value + b"\0" * 100)

    assert await knows_tools(providers.new(f"local:{path}")) is known


@pytest.mark.parametrize(
    "content",
    [
        b"\0" * 100,
        b"",
        # The bytes at which a key at the start would end, if it were there.
        b"\0" * 18 + struct.pack("<IQ", 8, 5) + b"tools",
        b"tokenizer.chat_template" + struct.pack("<IQ", 9, 5) + b"tools",  # a list, not a text
        b"tokenizer.chat_template",
    ],
)
async def test_a_model_file_without_a_template_reports_nothing(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF" + content)

    assert await knows_tools(providers.new(f"local:{path}")) is None
