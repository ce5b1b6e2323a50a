"""Context variables that replace providers and check requests."""

from __future__ import annotations

import contextvars

from glue import Agent
from glue.overrides import check_origin, provider_names
from glue.testing import Script


def test_no_provider_is_replaced_by_default() -> None:
    assert provider_names.get() is None


def test_a_new_context_does_not_check_requests() -> None:
    assert contextvars.Context().run(check_origin.get) is None


async def test_the_names_of_models_can_be_resolved_by_another_function() -> None:
    asked: list[str] = []

    def resolve(name: str) -> Script:
        asked.append(name)
        return Script("from the script")

    token = provider_names.set(resolve)
    try:
        result = await Agent("acme:some-model").run("go")
    finally:
        provider_names.reset(token)

    assert (result.text, asked) == ("from the script", ["acme:some-model"])
