"""The log of runs, and `glue runs`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
