"""Fixtures of the tests of providers."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from glue import providers
from glue.providers import catalog, registry


@pytest.fixture
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Remove all variables that a provider reads, and undo registrations after the test."""
    variables = {variable for entry in catalog.ENTRIES for variable in entry.key} | {
        "GLUE_MODEL",
        "GOOGLE_CLOUD_PROJECT",
    }
    for name in list(os.environ):
        if name in variables or name.endswith(("_BASE_URL", "_proxy", "_PROXY")):
            monkeypatch.delenv(name)
    before = set(providers.known())
    yield
    for name in set(registry._registry) - before:
        del registry._registry[name]
