"""A tool that uses something bound to another thread is explained in the log."""

from __future__ import annotations

import sqlite3

import pytest

from glue import Agent, tool
from glue.testing import Script, calls


async def test_a_connection_of_another_thread_is_explained_with_the_cure(caplog: pytest.LogCaptureFixture) -> None:
    db = sqlite3.connect(":memory:")

    @tool
    def ask() -> str:
        """Ask the database."""
        return str(db.execute("SELECT 1").fetchall())

    result = await Agent(Script(calls("ask"), "done"), tools=[ask]).run("go")

    db.close()
    assert result.text == "done"
    assert "check_same_thread=False" in caplog.text
