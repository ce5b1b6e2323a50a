"""The log of runs, and `glue runs`."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from glue.cli.runs import RunLog, find_run, log_files, runs_dir
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


def test_a_log_is_named_after_its_time_and_only_its_user_can_read_it(cli: Cli) -> None:
    start = time.time_ns()
    RunLog().end({"type": "result"})
    end = time.time_ns()

    (path,) = log_files()
    found = re.fullmatch(r"(\d{8}-\d{6})-(\d{9})-[0-9a-f]{4}", path.stem)
    assert found is not None
    seconds = int(datetime.strptime(found[1], "%Y%m%d-%H%M%S").timestamp())
    assert start <= seconds * 10**9 + int(found[2]) <= end
    assert path.stat().st_mode & 0o777 == 0o600
    assert runs_dir().stat().st_mode & 0o777 == 0o700


def write_log(stem: str, **result: Any) -> None:
    prompt = {"message": {"content": [{"type": "text", "text": "x" * 300}]}}
    runs_dir().mkdir(parents=True, exist_ok=True)
    lines = ({"type": "prompt", **prompt}, {"type": "result", **result})
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (runs_dir() / f"{stem}-000000000-abcd.jsonl").write_text(text)


def test_days_are_listed_from_the_newest(cli: Cli) -> None:
    for stem in ("20260102-030405", "20260103-030405", "20260103-060708"):
        write_log(stem, outcome="done")

    days = json.loads(cli("runs", "--by", "day", "--json").out)

    assert [(row["day"], row["runs"]) for row in days] == [("2026-01-03", 2), ("2026-01-02", 1)]


def test_the_tokens_of_a_run_are_those_of_the_prompt_and_the_reply(cli: Cli) -> None:
    write_log("20260102-030405", usage={"input": 70, "output": 8})
    write_log("20260102-030406", usage={"output": 8})

    second, first = json.loads(cli("runs", "--json").out)

    assert (first["input"], first["output"], first["tokens"]) == (70, 8, 78)
    assert (second["input"], second["output"], second["tokens"]) == (0, 8, 8)
    assert len(first["prompt"]) == 200
