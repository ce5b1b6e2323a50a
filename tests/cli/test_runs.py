"""The log of runs, and `glue runs`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glue.cli.runs import find_run
from glue.errors import ConfigError

Cli = Callable[..., Any]


def test_runs_are_logged_only_if_the_log_is_on(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("run", "-m", "offline", "not logged")
    assert "no runs are logged" in cli("runs").err

    monkeypatch.setenv("GLUE_LOG", "1")
    cli("run", "-m", "offline", "what is logged")
    cli("run", "-m", "offline", "and this")

    rows = json.loads(cli("runs", "--json").out)
    assert [row["prompt"] for row in rows] == ["and this", "what is logged"]
    assert rows[1]["model"] == "offline:offline"
    assert rows[1]["outcome"] == "done"
    assert "what is logged" in cli("runs").out
    page = Path(cli("view", "last").out.strip()).read_text()
    assert "and this" in page
    assert cli("view", rows[1]["id"]).code == 0
    log = Path(os.environ["HOME"]) / ".local/state/glue/runs" / f"{rows[0]['id']}.jsonl"
    log.write_text(log.read_text().replace('"provider": "offline"', '"provider": 7'))
    assert [row["outcome"] for row in json.loads(cli("runs", "--json").out)] == ["damaged", "done"]


def test_a_refused_run_is_logged_with_its_model_and_prompt(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLUE_LOG", "1")

    assert cli("run", "-m", "groq", "no key is set").code == 2
    monkeypatch.setenv("GROQ_API_KEY", "not" + "-a-key")
    assert cli("run", "-m", "groq:my-own", "--usd-budget", "1", "no price is known").code == 2

    unpriced, keyless = json.loads(cli("runs", "--json").out)
    assert (keyless["model"], keyless["outcome"]) == ("groq", "failed")
    assert keyless["prompt"] == "no key is set"
    assert (unpriced["model"], unpriced["prompt"]) == ("groq:my-own", "no price is known")


def test_runs_are_added_up_by_day_model_and_agent(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLUE_LOG", "1")
    Path("dear.py").write_text(
        "from glue import Agent, Usage\nfrom glue.testing import Script, repeat, say\n"
        "usage = Usage(input=1000, output=50, cost=0.25)\n"
        "agent = Agent(Script(repeat(say('hi', usage=usage)), name='acme', model='big'))\n"
    )
    for prompt in ("one", "two"):
        cli("run", "dear.py", prompt)
    cli("chat", "dear.py", input="three\n")
    cli("run", "-m", "groq", "refused")

    days, models, agents = (
        json.loads(cli("runs", "--by", by, "--json").out) for by in ("day", "model", "agent")
    )

    assert [(row["runs"], row["outcomes"]) for row in days] == [(4, {"done": 3, "failed": 1})]
    assert models == [
        {
            "model": "acme:big",
            "runs": 3,
            "outcomes": {"done": 3},
            "input": 3000,
            "output": 150,
            "cost": 0.75,
            "unpriced": 0,
        },
        {
            "model": "groq",
            "runs": 1,
            "outcomes": {"failed": 1},
            "input": 0,
            "output": 0,
            "cost": None,
            "unpriced": 0,
        },
    ]
    assert [row["agent"] for row in agents] == ["dear", ""]
    table = cli("runs", "--by", "model").out.splitlines()
    assert table[0].split() == [
        "model",
        "runs",
        "outcomes",
        "tokens",
        "in",
        "out",
        "cost",
        "unpriced",
    ]
    assert table[1].split() == ["acme:big", "3", "3", "done", "3,000", "150", "0.75", "0"]


def test_the_replies_of_a_killed_run_are_counted(cli: Cli) -> None:
    folder = Path(os.environ["HOME"]) / ".local/state/glue/runs"
    folder.mkdir(parents=True)
    usage = {"input": 7, "output": 2, "cost": None}
    line = {"type": "message_end", "message": {"provider": "acme", "model": "m", "usage": usage}}
    (folder / "20260101-000000-000000000-abcd.jsonl").write_text(f"{json.dumps(line)}\n" * 2)

    (row,) = json.loads(cli("runs", "--by", "model", "--json").out)

    assert (row["model"], row["outcomes"]) == ("acme:m", {"cut off": 1})
    assert (row["input"], row["output"], row["unpriced"]) == (14, 4, 1)


def test_a_damaged_log_is_listed_without_figures(cli: Cli) -> None:
    folder = Path(os.environ["HOME"]) / ".local/state/glue/runs"
    folder.mkdir(parents=True)
    name = "20260102-030405-000000000-abcd"
    (folder / f"{name}.jsonl").write_text('{"type": "result", "usage": 7}\n')

    (row,) = json.loads(cli("runs", "--json").out)

    assert row == {
        "id": name,
        "at": "2026-01-02 03:04",
        "agent": "",
        "model": "",
        "outcome": "damaged",
        "tokens": 0,
        "input": 0,
        "output": 0,
        "cost": None,
        "prompt": "",
    }


def test_an_unknown_run_is_refused_with_the_way_to_a_known_one(cli: Cli) -> None:
    folder = Path(os.environ["HOME"]) / ".local/state/glue/runs"

    without = cli("view", "last")
    folder.mkdir(parents=True)
    (folder / "20260102-030405-000000000-abcd.jsonl").write_text("")
    (folder / "20260103-030405-000000000-abcd.jsonl").write_text("")

    assert without.err == (
        f"glue: there is no logged run 'last' in {folder}; `glue config set log true` logs runs\n"
    )
    assert find_run("last").stem.startswith("20260103")
    assert find_run("20260102-030405-000000000-abcd").stem.startswith("20260102")
    with pytest.raises(
        ConfigError, match=r"no logged run 'x' .*; `glue runs --json` lists the ids"
    ):
        find_run("x")
