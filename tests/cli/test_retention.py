"""`glue sessions prune`: which sessions are deleted."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal

import glue
from glue.cli.retention import Age
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


def test_prune_names_the_first_skipped_sessions_and_counts_the_others(
    cli: Callable[..., Any],
) -> None:
    opened = glue.stores.open_store("sessions")
    names = [f"s{number}" for number in range(10)]
    for name in names:
        glue.Agent(Script("x")).session(name, store=opened).run_sync("hello")

    with start_blocking_portal() as portal, ExitStack() as stack:
        for name in names:  # sessions in use
            stack.enter_context(portal.wrap_async_context_manager(opened.log(name)))
        ran = cli("sessions", "prune", "--store", "sessions", "--older", "0s")

    assert ran.out == "deleted 0 sessions\n"
    named = ran.err.partition("not deleted: ")[2]
    assert ran.err.startswith(
        "glue: these sessions are in use or unreadable and were not deleted: "
    )
    assert named.count(", ") == 7
    assert named.endswith(" and 2 more\n")


def test_pruning_a_database_frees_its_space(cli: Callable[..., Any]) -> None:
    opened = glue.stores.open_store("sessions.db")
    glue.Agent(Script("x")).session("large", store=opened).run_sync("word " * 200_000)
    glue.Agent(Script("x")).session("small", store=opened).run_sync("hello")
    path = Path("sessions.db")

    def size() -> int:
        return sum(each.stat().st_size for each in path.parent.glob("sessions.db*"))

    before = size()
    prune = ("sessions", "prune", "--store", "sessions.db", "--older", "0s")
    cli(*prune, "--dry-run")
    unchanged = size()
    cli(*prune)

    assert before > 1_000_000
    assert unchanged >= 1_000_000
    assert path.stat().st_size < 200_000


@pytest.mark.parametrize("age", ["30", "d", "-1d", "1y", "1.5.2h", ""])
def test_a_text_that_is_not_an_age_is_refused(cli: Callable[..., Any], age: str) -> None:
    ran = cli("sessions", "prune", "--older", age)

    assert ran.code == 2
    assert "is not an age; write 30d, 12h, 90m or 2w" in ran.err


@pytest.mark.parametrize(
    ("age", "seconds"),
    [("90s", 90), ("90m", 5400), ("12h", 43_200), ("1.5d", 129_600), ("2w", 1_209_600)],
)
def test_an_age_is_a_number_and_a_unit(age: str, seconds: float) -> None:
    assert Age().convert(age, None, None) == seconds
