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
    stored = cli("keys", "set", "openai", input="sk-a-secret-key-1\n")
    path = Path(cli("keys", "path").out.strip())

    assert (stored.code, stored.out, stored.err) == (0, "", f"stored OPENAI_API_KEY in {path}\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
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


def test_a_key_of_the_environment_is_listed_and_no_key_is_an_advice(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    none = cli("keys")
    monkeypatch.setenv("GROQ_API_KEY", "not" + "-a-key")

    assert none.out == ""
    assert none.err == "no keys are set; store a key with `glue keys set PROVIDER`\n"
    assert cli("keys").out.split() == ["GROQ_API_KEY", "environment"]


@pytest.mark.parametrize("typed", ["\n", "two words\n", "schlüssel\n", "a\tb\n"])
def test_a_key_is_one_word_of_ascii(cli: Cli, typed: str) -> None:
    ran = cli("keys", "set", "openai", input=typed)

    assert ran.code == 2
    assert ran.err.startswith("glue: a key is one word of printable ASCII characters; nothing was")
    assert cli("keys").out == ""


def test_only_a_stored_key_of_a_provider_with_a_key_can_be_removed(cli: Cli) -> None:
    cli("keys", "set", "groq", input="one\n")

    assert cli("keys", "remove", "openai").err == (
        "glue: OPENAI_API_KEY is not stored; stored keys: GROQ_API_KEY\n"
    )
    assert cli("keys", "remove", "groq").code == 0
    assert "stored keys: none" in cli("keys", "remove", "groq").err
    assert cli("keys", "set", "offline", input="x\n").err.startswith("glue: offline needs no key")
