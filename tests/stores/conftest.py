"""Fixtures for tests of stores."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.sessions import POSTGRES, make_store

from glue.stores import Store


@pytest.fixture(params=["memory", "file", "sqlite", POSTGRES])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Return an empty store of each kind."""
    return make_store(request.param, tmp_path, request)


@pytest.fixture(params=["file", "sqlite", POSTGRES])
def durable_store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Return an empty store of each kind that outlives the process."""
    return make_store(request.param, tmp_path, request)
