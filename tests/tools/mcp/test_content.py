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

    row = {"image": "[the same data is in another part of the result]", "other": other}
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
        {"type": "resource", "mimeType": "text/plain"},
        {"type": "poem", "resource": {"uri": "file:///e", "text": "inside"}},
    ]

    result = tool_result({"content": content, "structuredContent": {"a": "é"}})

    assert result.content[1] == Image(media_type="image/jpeg", data=b"bytes")
    assert result.content[5] == File(media_type="application/pdf", data=b"bytes", name="file:///b")
    assert [part.text for part in result.content if isinstance(part, Text)] == [
        "plain",
        "[an image is not valid base64]",
        "[audio audio/wav cannot be shown]",
        '<resource uri="file:///a">\ninside\n</resource>',
        "[file:///c: 5 bytes of binary data without a MIME type]",
        "[d](file:///d)",
        "[resource text/plain cannot be shown]",
        "[poem  cannot be shown]",
        '{"a": "é"}',
    ]
    assert tool_result({}).text == "(the result is empty)"
    assert (
        tool_result(
            {"content": [{"type": "text", "text": '{"a": 1}'}], "structuredContent": {"a": 1}}
        ).text
        == '{"a": 1}'
    )
    assert tool_result({"content": [], "isError": True}).is_error


def text_of(text: str, structured: object) -> list[str]:
    """Return the texts of a result with a text and structured content."""
    content = [{"type": "text", "text": text}]
    result = tool_result({"content": content, "structuredContent": structured})
    return [part.text for part in result.content if isinstance(part, Text)]


def test_structured_content_that_is_in_the_text_already_is_not_repeated() -> None:
    assert text_of("3", {"result": 3}) == ["3"]
    assert text_of("three", {"result": "three"}) == ["three"]
    assert text_of('{"result": 3}', {"result": 3}) == ['{"result": 3}']
    assert text_of("[1, 2]", [1, 2]) == ["[1, 2]"]
    assert text_of("3", {"result": 3, "unit": "m"}) == ["3", '{"result": 3, "unit": "m"}']
    assert text_of("4", {"result": 3}) == ["4", '{"result": 3}']
    assert text_of("no json", {"result": 3}) == ["no json", '{"result": 3}']


def test_a_text_of_up_to_40_characters_is_repeated_in_structured_content() -> None:
    def structured(data: str) -> object:
        content = [{"type": "image", "data": data}]
        result = tool_result({"content": content, "structuredContent": {"data": data, "n": 1}})
        assert result.meta is not None
        return result.meta["structured"]

    assert structured("QUJD" * 10) == {"data": "QUJD" * 10, "n": 1}
    assert structured("QUJD" * 11) == {
        "data": "[the same data is in another part of the result]",
        "n": 1,
    }
