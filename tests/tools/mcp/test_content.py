"""Tests of converting content of MCP servers."""

from __future__ import annotations

import base64

from glue.messages import File, Image, Text
from glue.tools.mcp.content import tool_result


def test_structured_content_does_not_repeat_the_data_of_a_picture() -> None:
    data = base64.b64encode(b"bytes" * 20).decode()
    content = [{"type": "image", "data": data, "mimeType": "image/png"}]
    other = data[::-1]

    result = tool_result(
        {"content": content, "structuredContent": {"rows": [{"image": data, "other": other}]}}
    )

    row = {"image": "[the same data is in another part]", "other": other}
    assert result.meta == {"structured": {"rows": [row]}}
    assert data not in result.text


def test_results_of_every_kind_are_converted() -> None:
    data = base64.b64encode(b"bytes").decode()
    content = [
        {"type": "text", "text": "plain"},
        {"type": "image", "data": data, "mimeType": "image/jpeg"},
        {"type": "image", "data": "no base64!", "mimeType": "image/jpeg"},
        {"type": "audio", "data": data, "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}},
        {
            "type": "resource",
            "resource": {"uri": "file:///b", "blob": data, "mimeType": "application/pdf"},
        },
        {"type": "resource", "resource": {"uri": "file:///c", "blob": data}},
        {"type": "resource_link", "uri": "file:///d", "name": "d"},
    ]

    result = tool_result({"content": content, "structuredContent": {"a": 1}})

    assert result.content[1] == Image(media_type="image/jpeg", data=b"bytes")
    assert result.content[5] == File(media_type="application/pdf", data=b"bytes", name="file:///b")
    assert [part.text for part in result.content if isinstance(part, Text)] == [
        "plain",
        "[an image is not valid base64]",
        "[audio audio/wav cannot be shown]",
        '<resource uri="file:///a">\ninside\n</resource>',
        "[file:///c: 5 bytes of binary data without a MIME type]",
        "[d](file:///d)",
        '{"a": 1}',
    ]
    assert tool_result({}).text == "(the result is empty)"
    assert (
        tool_result(
            {"content": [{"type": "text", "text": '{"a": 1}'}], "structuredContent": {"a": 1}}
        ).text
        == '{"a": 1}'
    )
    assert tool_result({"content": [], "isError": True}).is_error
