"""`glue keys`: store, list and remove API keys."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]


def test_a_key_is_stored_for_its_owner_only_and_never_printed(cli: Cli) -> None:
    assert cli("keys", "set", "openai", input="sk-a-secret-key-1\n").code == 0
    path = Path(cli("keys", "path").out.strip())

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    listed = cli("keys", "list")
    assert listed.out.split() == ["OPENAI_API_KEY", "stored"]
    assert json.loads(cli("keys", "list", "--json").out) == [
        {"name": "OPENAI_API_KEY", "source": "stored"}
    ]
    assert "sk-a-secret" not in listed.out + listed.err + cli("doctor").out + cli("config").out
    assert "set" in next(
        line for line in cli("providers").out.splitlines() if line.startswith("openai ")
    )
    assert cli("keys", "remove", "OPENAI_API_KEY").code == 0
    assert path.read_text() == ""


def test_a_variable_wins_over_a_stored_key(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("keys", "set", "OPENAI_API_KEY", input="sk-stored\n")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-environment")

    assert cli("keys").out.split() == ["OPENAI_API_KEY", "environment"]
    assert os.environ["OPENAI_API_KEY"] == "sk-environment"
