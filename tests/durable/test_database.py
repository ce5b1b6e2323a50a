"""The database of durable runs: addresses, tables, and shared rate limits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glue.durable.database import (
    EngineDatabase,
    application,
    database_url,
)
from glue.errors import ConfigError


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # DBOS supports only asyncio


@pytest.mark.parametrize(
    ("engine", "url"),
    [
        ("dbos://me@host/db", "postgresql://me@host/db"),
        ("dbos+postgresql://me@host/db", "postgresql://me@host/db"),
        ("dbos+postgres://me@host/db", "postgresql://me@host/db"),
        ("dbos+sqlite:///jobs.db", "sqlite:///jobs.db"),
        ("postgresql://host/db", "postgresql://host/db"),
    ],
)
def test_an_engine_is_translated_to_a_database_url(engine: str, url: str) -> None:
    assert database_url(engine) == url


@pytest.mark.parametrize("engine", ["redis://host", "dbos+mysql://host/db", "jobs.db", ""])
def test_an_unknown_engine_is_rejected(engine: str) -> None:
    with pytest.raises(ConfigError, match=r"an engine must be dbos\+postgresql://"):
        database_url(engine)


@pytest.mark.parametrize("name", ["", "Big", "a b", "x" * 201])
def test_an_invalid_queue_name_is_rejected(name: str) -> None:
    with pytest.raises(ConfigError, match="the name of a queue"):
        application(name)


@pytest.mark.scale
async def test_all_workers_share_a_rate_limit(engine: str) -> None:
    first, second = EngineDatabase(engine), EngineDatabase(engine)
    first.migrate()
    second.migrate()

    waits = [await database.reserve("acme requests", 10.0) for database in (first, second, first)]

    assert waits[0] == pytest.approx(0, abs=1)
    assert waits[1] == pytest.approx(10, abs=1)
    assert waits[2] == pytest.approx(20, abs=1)
    assert await first.reserve("acme tokens", -5.0) == 0.0
    first.close()
    second.close()


@pytest.mark.scale
def test_an_unreachable_database_is_reported_in_one_line(cli: Callable[..., Any]) -> None:
    Path("agent.py").write_text("import glue\nagent = glue.Agent('offline')\n")
    Path("in.jsonl").write_text('"a"\n')
    there = ["--engine", "dbos+postgresql://me:secret@127.0.0.1:1/db"]

    for command in (
        ["map", "agent.py", "in.jsonl", "-o", "out.jsonl", "--queue", "q", *there],
        ["worker", "agent.py", "--queue", "q", *there],
        ["queue", *there],
    ):
        ran = cli(*command)
        assert ran.code == 1
        assert len(ran.err.splitlines()) == 1
        assert ran.err.startswith("glue: postgresql://me:***@127.0.0.1:1/db: ")
        assert "secret" not in ran.err
    assert not Path("out.jsonl").exists()


@pytest.mark.scale
def test_tables_of_a_newer_version_are_not_changed(cli: Callable[..., Any], engine: str) -> None:
    database = EngineDatabase(engine)
    database.migrate()
    with database.begin() as connection:
        database._execute(connection, "UPDATE glue_engine SET version = 9")
    database.close()

    ran = cli("queue", "--engine", engine)

    assert ran.code == 1
    assert "has version 9 of glue's schema, but this glue supports only 1: upgrade" in ran.err
    assert len(ran.err.splitlines()) == 1
