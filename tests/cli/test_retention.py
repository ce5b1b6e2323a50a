"""`glue sessions prune`: which sessions are deleted."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import glue
from glue.testing import Script, call, calls, fail


@pytest.mark.parametrize("store", ["sessions", "sessions.db"])
def test_prune_deletes_old_sessions_by_outcome_and_keeps_those_that_wait(
    cli: Callable[..., Any], store: str
) -> None:
    @glue.tool(external=True)
    def ask_colleague() -> str:
        """Ask a colleague."""
        raise NotImplementedError

    opened = glue.stores.open_store(store)
    scripts = {
        "done": Script("x"),
        "failed": Script(calls("nothing"), fail("auth")),
        "paused": Script(calls(call("ask_colleague"))),
    }
    for name, script in scripts.items():
        agent = glue.Agent(script, tools=[ask_colleague])
        agent.session(name, store=opened).run_sync("hello", unwrap=False)
    prune = ("sessions", "prune", "--store", store, "--older")

    def names() -> list[str]:
        shown = cli("sessions", "list", "--store", store, "--json").out
        return sorted(each["id"] for each in json.loads(shown))

    assert cli(*prune, "1h").out == "deleted 0 sessions\n"
    assert cli(*prune, "0s", "--outcome", "done", "--dry-run").out == (
        "would delete 1 session\n  done\n"
    )
    assert names() == ["done", "failed", "paused"]
    assert cli(*prune, "0s", "--outcome", "done").out == "deleted 1 session\n"
    assert names() == ["failed", "paused"]
    assert cli(*prune, "0s").out == "deleted 1 session\n"
    assert names() == ["paused"]
    assert cli(*prune, "0s", "--outcome", "paused").code == 0
    assert names() == []
