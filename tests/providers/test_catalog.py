"""The entries of the catalog have the right types and reasoning levels."""

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


def test_models_of_openai_have_their_own_levels_wherever_they_are_served() -> None:
    plain = catalog.entry_of("acme", {"base_url": "https://a"})
    openai = catalog.entry_of("acme", {"base_url": "https://a", "quirks": {"openai_models": True}})

    assert catalog.efforts(openai, "gpt-5-nano") == ("minimal", "low", "medium", "high")
    assert catalog.efforts(openai, "gpt-4o") == ()
    assert catalog.efforts(plain, "gpt-5-nano") == catalog.LEVELS
    assert [entry.name for entry in catalog.ENTRIES if entry.quirks.openai_models] == [
        "openai",
        "azure",
    ]
