"""Snapshots of every text that a provider adds for a model.

To accept a deliberate change: pytest tests/providers/test_model_texts.py --snapshot-update
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from glue import AssistantMessage, File, Image, Request, ToolCall, ToolMessage, user
from glue.messages import ToolSpec
from glue.providers import catalog, retry
from glue.providers.wire import wire_class

WIRES = sorted({entry.wire for entry in catalog.ENTRIES if entry.wire})
MODELS = {"bedrock": "meta.llama3", "gemini": "gemini-2.5-flash"}
PICTURE = Image(data=b"x", media_type="image/png")
# Situations in which a provider adds a text: a reply at the start, an empty result, an error
# without text, an image in a result, an image at a URL, a file that is not accepted.
MESSAGES = (
    AssistantMessage(content=(ToolCall(id="a", name="look", arguments="{}"),)),
    ToolMessage(call_id="a", name="look", content=()),
    AssistantMessage(content=(ToolCall(id="b", name="look", arguments="[1]"),)),
    ToolMessage(call_id="b", name="look", content=(), is_error=True),
    AssistantMessage(content=(ToolCall(id="c", name="look", arguments="{}"),)),
    ToolMessage(call_id="c", name="look", content=(PICTURE,)),
    user("See", Image(url="https://example.com/a.png")),
    replace(user("Read", File(data=b"text", name="a.txt", media_type="text/plain")), id="m1"),
)


def test_the_messages_of_a_repeated_request(snapshot: SnapshotAssertion) -> None:
    found = [retry.HINT, retry.REFUSED]

    assert found == snapshot


@pytest.mark.parametrize("wire", WIRES)
def test_the_texts_that_a_wire_adds(wire: str, snapshot: SnapshotAssertion) -> None:
    entry = next(entry for entry in catalog.ENTRIES if entry.wire == wire)
    request = Request(messages=MESSAGES, tools=(ToolSpec(name="look", description="Look."),))

    body = json.loads(wire_class(wire).encode(request, entry, MODELS.get(wire, "m")))

    assert texts(body) == snapshot


def texts(value: Any) -> list[str]:
    """Return the strings in a JSON value that contain a space or a bracket."""
    if isinstance(value, str):
        return [value] if set(value) & set(" (") else []
    inner = value.values() if isinstance(value, dict) else value
    return [text for each in inner for text in texts(each)] if hasattr(inner, "__iter__") else []
