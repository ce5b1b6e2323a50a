"""`glue worker` and `glue queue` without the extra dbos. tests/durable tests them with it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glue.installing import install_command


@pytest.mark.parametrize(
    "args",
    [
        ("worker", "agent.py", "--queue", "q", "--engine", "dbos+sqlite:///q.db"),
        ("queue", "--engine", "dbos+sqlite:///q.db"),
    ],
)
def test_commands_that_need_dbos_name_the_extra(
    cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...]
) -> None:
    monkeypatch.setitem(sys.modules, "dbos", None)
    Path("agent.py").write_text("from glue import Agent\nagent = Agent('offline')\n")

    ran = cli(*args)

    assert ran.code == 2
    assert ran.err.strip() == f"glue: durable runs need DBOS: {install_command('dbos')}"
    assert os.listdir() == ["agent.py"]
