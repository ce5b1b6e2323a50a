"""`glue worker` and `glue queue`; tests/durable runs them as processes."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import glue
from glue.durable import Row
from glue.durable.ledger import Balance, Hold
from glue.durable.tables import Tables, engine_store

ENGINE = "sqlite:///q.db"


def filled(*outcomes: str) -> Tables:
    """Return the tables of a queue with one row of each outcome; "" is a waiting row."""
    tables = Tables(engine_store(ENGINE))
    rows = [
        Row(id=f"m-{number}", prompt="go", map="m", number=number)
        for number in range(1, len(outcomes) + 1)
    ]
    tables.enqueue("rows", rows)
    claimed = tables.exchange("w", "rows", free=len(rows))
    ended, waiting = [], []
    for row, outcome in zip(claimed, outcomes, strict=True):
        if outcome:
            ended.append(replace(row, result=row.ended(outcome, usage=glue.Usage(cost=0.5))))
        else:
            waiting.append(row.id)
    tables.exchange("w", "rows", ended=ended, back=waiting)
    return tables


def test_a_queue_shows_its_rows_money_and_cooldowns(cli: Callable[..., Any]) -> None:
    tables = filled("done", "done", "failed", "paused", "")
    tables.cool_down("acme", 90.0)
    tables.close()

    shown = cli("queue", "--engine", ENGINE).out
    found = json.loads(cli("queue", "rows", "--engine", ENGINE, "--json").out)["rows"]

    assert "rows: 1 waiting, 0 running, 2 done, 1 paused, 1 failed; 4/min; $2.00" in shown
    assert "rows wait 1 m" in shown
    assert "because acme refuses requests" in shown
    assert "no worker is running" in shown
    assert "no queues" not in shown
    assert (found["usd"], found["last_minute"], found["slots"]) == (2.0, 4, 0)
    assert found["cooldowns"]["acme"] == pytest.approx(90, abs=5)


def test_a_queue_shows_its_workers_and_the_rows_that_they_hold(cli: Callable[..., Any]) -> None:
    tables = Tables(engine_store(ENGINE))
    tables.begin_map("m", "rows", 9.0, None)
    rows = [Row(id=f"m-{n}", prompt="go", map="m", number=n) for n in range(1, 6)]
    tables.enqueue("rows", rows)
    tables.heartbeat("alive", "rows", 4, 1000.0)
    tables.heartbeat("dead", "rows", 2, -1.0)
    for worker, free in (("alive", 2), ("dead", 1), ("gone", 1)):
        tables.exchange(worker, "rows", free=free)

    def reserve(balance: Balance, hold: Hold) -> None:
        balance.held_usd = hold.usd = 0.25

    tables.change_balance("m", "m-1", reserve)
    tables.close()

    first, alive, *others = cli("queue", "rows", "--engine", ENGINE).out.splitlines()

    assert first == (
        "rows: 1 waiting, 4 running, 0 done, 0 failed; 0/min; $0.0000 and $0.2500 reserved"
    )
    assert re.fullmatch(r"  alive  runs 2 rows, at most 4, last heartbeat [0-9.]+ m?s ago", alive)
    assert others == [
        "  dead  stopped with 1 unfinished row",
        "  gone  stopped with 1 unfinished row",
    ]


def test_a_database_without_queues_is_reported(cli: Callable[..., Any]) -> None:
    tables = Tables(engine_store(ENGINE))
    assert tables.queues() == []  # creates the database
    tables.close()

    assert cli("queue", "--engine", ENGINE).out == "no queues\n"
    assert cli("queue", "--engine", ENGINE, "--json").out == "{}\n"


def test_watch_prints_json_lines_until_it_is_interrupted(cli: Callable[..., Any]) -> None:
    filled("done", "").close()
    program = "from glue.cli.app import main; main()"
    args = ("queue", "rows", "--engine", ENGINE, "--watch", "--json", "--every", "0.1")
    command = [sys.executable, "-c", program, *args]

    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first, second = (json.loads(process.stdout.readline()) for _ in range(2))
        process.send_signal(signal.SIGINT)
        process.stdout.read()

    assert process.returncode == 0
    assert first["queues"]["rows"]["states"] == {"ended": 1, "waiting": 1}
    assert second["at"] > first["at"]


def test_prune_deletes_old_rows_with_their_transcripts(cli: Callable[..., Any]) -> None:
    tables = filled("done", "failed", "paused", "")
    store: Any = tables.store
    for name in ("m-1", "m-2", "m-3"):
        glue.Agent(glue.testing.Script("x")).session(name, store=store).run_sync("hello")
    tables.close()
    prune = ("queue", "prune", "rows", "--engine", ENGINE, "--older", "0s")

    assert cli("queue", "prune", "--engine", ENGINE, "--older", "1h").out == "deleted 0 rows\n"
    assert cli(*prune, "--dry-run").out == "would delete 2 rows\n"
    assert cli(*prune, "--outcome", "done").out == "deleted 1 row\n"
    assert cli(*prune).out == "deleted 1 row\n"

    shown = cli("sessions", "list", "--store", "q.db", "--json").out
    assert [each["id"] for each in json.loads(shown)] == ["m-3"]
    assert (
        "1 waiting, 0 running, 0 done, 1 paused, 0 failed" in cli("queue", "--engine", ENGINE).out
    )


def test_an_unknown_queue_is_reported_with_the_names_of_the_others(cli: Callable[..., Any]) -> None:
    Tables(engine_store("sqlite:///q.db")).heartbeat("w", "triage", 8, 10.0)

    ran = cli("queue", "triaje", "--engine", "sqlite:///q.db")

    assert (ran.code, ran.err.strip()) == (2, "glue: unknown queue 'triaje'; there are: triage")


def test_only_the_named_queue_is_shown(cli: Callable[..., Any]) -> None:
    with contextlib.closing(Tables(engine_store(ENGINE))) as tables:
        for name in ("triage", "review"):
            tables.heartbeat(f"w-{name}", name, 8, 10.0)

    one = cli("queue", "triage", "--engine", ENGINE, "--json")
    both = cli("queue", "--engine", ENGINE, "--json")

    assert list(json.loads(one.out)) == ["triage"]
    assert sorted(json.loads(both.out)) == ["review", "triage"]


def test_a_missing_file_is_reported_and_not_created(cli: Callable[..., Any]) -> None:
    ran = cli("queue", "--engine", "sqlite:///missing.db")

    assert (ran.code, ran.err) == (2, "glue: missing.db does not exist, so it has no queues\n")
    assert not Path("missing.db").exists()


@pytest.mark.parametrize("age", ["30", "d", "-1d", "1y"])
def test_an_age_needs_a_unit(cli: Callable[..., Any], age: str) -> None:
    ran = cli("queue", "prune", "--engine", ENGINE, "--older", age)

    assert ran.code == 2
    assert "write 30d, 12h, 90m or 2w" in ran.err


@pytest.mark.parametrize("name", ["Big", "a b"])
def test_a_queue_name_is_checked(cli: Callable[..., Any], name: str) -> None:
    Path("agent.py").write_text("from glue import Agent\nagent = Agent('offline')\n")

    ran = cli("worker", "agent.py", "--queue", name, "--engine", ENGINE)

    assert ran.code == 2
    assert "the name of a queue must be 1 to 100 of the characters a-z" in ran.err


@pytest.mark.parametrize("engine", ["redis://host", "mysql://host/db", "folder", ""])
def test_an_unknown_engine_is_rejected(cli: Callable[..., Any], engine: str) -> None:
    ran = cli("queue", "--engine", engine)

    assert ran.code == 2
    assert "an engine must be postgresql://USER@HOST/DATABASE or sqlite:///FILE" in ran.err


def test_an_unreachable_database_is_reported_in_one_line(cli: Callable[..., Any]) -> None:
    pytest.importorskip("psycopg")
    Path("agent.py").write_text("import glue\nagent = glue.Agent('offline')\n")
    Path("in.jsonl").write_text('"a"\n')
    there = ["--engine", "postgresql://me:secret@127.0.0.1:1/db"]

    for command in (
        ["map", "agent.py", "in.jsonl", "-o", "out.jsonl", "--queue", "q", *there],
        ["worker", "agent.py", "--queue", "q", *there],
        ["queue", *there],
    ):
        ran = cli(*command)
        assert ran.code == 1
        assert len(ran.err.splitlines()) == 1
        assert ran.err.startswith("glue: postgresql://127.0.0.1:1/db: ")
        assert "secret" not in ran.err
    assert not Path("out.jsonl").exists()


def test_prune_deletes_rows_of_the_named_queue_only(cli: Callable[..., Any]) -> None:
    tables = filled("done")
    tables.enqueue("others", [Row(id="o-1", prompt="go", map="o", number=1)])
    (row,) = tables.exchange("w", "others", free=1)
    tables.exchange("w", "others", ended=[replace(row, result=row.ended("done"))])
    tables.close()

    one = cli("queue", "prune", "rows", "--engine", ENGINE, "--older", "0s")
    left = json.loads(cli("queue", "--engine", ENGINE, "--json").out)
    every = cli("queue", "prune", "--engine", ENGINE, "--older", "0s")

    assert (one.out, every.out) == ("deleted 1 row\n", "deleted 1 row\n")
    assert list(left) == ["others"]


def test_prune_frees_the_space_of_transcripts(cli: Callable[..., Any]) -> None:
    tables = filled("done")
    store: Any = tables.store
    glue.Agent(glue.testing.Script("x")).session("m-1", store=store).run_sync("x" * 100_000)
    tables.close()

    cli("queue", "prune", "--engine", ENGINE, "--older", "0s")

    with contextlib.closing(sqlite3.connect("q.db")) as database:
        assert database.execute("PRAGMA freelist_count").fetchone() == (0,)
