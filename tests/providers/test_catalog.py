"""The entries of the catalog have the right types."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from glue.providers import catalog

pytestmark = pytest.mark.usefixtures("bare_environment")


@pytest.mark.parametrize("entry", catalog.ENTRIES, ids=lambda entry: entry.name)
def test_the_fields_of_an_entry_are_of_their_types(entry: catalog.Entry) -> None:
    for place in (entry, entry.quirks):
        for name, kind in get_type_hints(type(place)).items():
            if name != "_":
                check(kind, getattr(place, name))


def check(kind: Any, value: Any) -> None:
    """Check a value of the data file against an annotation, as a type checker does in code."""
    if get_origin(kind) is Literal:
        assert value in get_args(kind)
    elif get_origin(kind) is tuple:
        assert isinstance(value, tuple)
        for each in value:
            check(get_args(kind)[0], each)
    else:
        assert type(value) is kind


def test_the_defaults_suit_an_unknown_server() -> None:
    assert catalog.Quirks()._asdict() == {
        "max_tokens": "max_tokens",
        "stream_usage": True,
        "reasoning": "effort",
        "system_role": "system",
        "cache": "",
        "output": "json_schema",
        "strict": True,
        "encrypted": False,
        "images": ("image/*",),
        "files": ("*/*",),
        "efforts": ("low", "medium", "high"),
        "tools": True,
        "search": "",
        "merge": False,
        "tool_ids": "any",
        "tool_id_limit": 64,
        "echo": "",
        "reasoning_apart": False,
        "think_tags": False,
        "local": False,
    }
    entry = catalog.Entry("acme", "https://acme.example")
    assert (entry.wire, entry.auth, entry.window) == ("openai_chat", "bearer", 128_000)
    assert (entry.is_vendor, entry.key, entry.model) == (False, (), "")
