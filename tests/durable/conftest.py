"""Fixtures: a map on each engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.maps import Maps


@pytest.fixture(params=["embedded", "sqlite", pytest.param("postgres", marks=pytest.mark.scale)])
def maps(request: pytest.FixtureRequest, tmp_path: Path) -> Maps:
    """Run maps in this process, on a queue in SQLite, and on a queue in Postgres."""
    engine = f"sqlite:///{tmp_path}/queue.db"
    if request.param == "postgres":
        engine = request.getfixturevalue("database")
    return Maps(request.param, engine, tmp_path)
