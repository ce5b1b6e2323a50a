"""`glue models`: lists, models of a server, and aliases."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from glue import Agent
from glue.providers import aliases, capabilities, lookup, split
from glue.providers.models import date

Cli = Callable[..., Any]


def test_models_are_listed_with_prices(cli: Cli) -> None:
    ran, one = cli("models"), cli("models", "anthropic")

    assert "anthropic:claude-haiku-4-5" in ran.out
    assert "USD per million tokens" in ran.out
    assert all(
        line.startswith(("model", "anthropic:", "Prices in USD")) for line in one.out.splitlines()
    )
    assert json.loads(cli("models", "--json", "groq").out)[0]["model"].startswith("groq:")
    assert cli("models", "nope").code == 2


def test_the_list_of_models_shows_the_date_of_its_prices(cli: Cli) -> None:
    text = cli("models").out

    assert "anthropic:claude-haiku-4-5" in text
    assert date() in text
    assert {row.split(":")[0] for row in cli("models", "groq").out.splitlines()[1:-1]} <= {"groq"}


def test_models_are_listed_with_end_dates_and_from_a_server(
    cli: Cli, loopback: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = rb'{"data":[{"id":"one"},{"id":"two\u001b[2J"}]}'
    server = loopback(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
    monkeypatch.setenv("VLLM_BASE_URL", server.url)

    listed = cli("models", "openai").out
    rows = json.loads(cli("models", "openai", "--json").out)

    nano = next(line for line in listed.splitlines() if line.startswith("openai:gpt-5-nano "))
    assert " ".join(nano.split()) == (
        "openai:gpt-5-nano 400,000 0.05 0.4 0.005 minimal low medium high ends 2026-12-11"
    )
    assert next(row for row in rows if row["default"])["model"] == "openai:gpt-5.4-nano"
    assert cli("models", "vllm", "--server").out == "one\ntwo␛[2J\n"
    assert json.loads(cli("models", "vllm", "--server", "--json").out) == ["one", "two\x1b[2J"]
    assert cli("models", "vllm", "ON", "--server").out == "one\n"
    assert "--reasoning cannot be used with --server" in (
        cli("models", "vllm", "--server", "--reasoning", "high").err
    )
    assert "prices" in cli("doctor").out


def test_an_alias_is_a_short_name_of_a_model(cli: Cli) -> None:
    assert cli("models", "alias", "fast", "offline").code == 0

    assert aliases() == {"fast": "offline"}
    assert split("fast, openai:fast") == ["offline", "openai:fast"]
    assert (lookup("fast").name, capabilities("fast").window) == (
        "offline",
        capabilities("offline").window,
    )
    assert Agent("fast").run_sync("hi").text.startswith("This is the offline stand-in")
    assert "offline: offline answered" in cli("providers", "--check", "fast").out
    assert cli("run", "-m", "fast", "hi").code == 0
    assert "fast = offline" in cli("models").out
    assert cli("models", "unalias", "fast").code == 0
    assert aliases() == {}
    assert "cannot be an alias" in cli("models", "alias", "openai", "offline").err
    assert "cannot be an alias" in cli("models", "alias", "OpenAI", "offline").err
    assert "unknown provider" in cli("models", "alias", "quick", "nobody:x").err


def test_models_are_searched_by_words(cli: Cli) -> None:
    found, both = cli("models", "haiku").out, cli("models", "openai", "mini").out

    assert "anthropic:claude-haiku-5-5" in found
    assert all("haiku" in line for line in found.splitlines()[1:-1])
    assert all(line.startswith("openai:") and "mini" in line for line in both.splitlines()[1:-1])
    missing = cli("models", "openai", "haiku")
    assert (
        missing.code,
        "no model name contains 'haiku' among the models of openai" in missing.err,
    ) == (2, True)


def test_the_list_shows_levels_what_becomes_of_one_and_retired_models(cli: Cli) -> None:
    rows = json.loads(cli("models", "--json").out)
    nano = next(
        line
        for line in cli("models", "gpt-5-nano", "--reasoning", "xhigh").out.splitlines()
        if line.startswith("openai:gpt-5-nano")
    )

    assert "xhigh -> high" in nano
    assert "high -> high" not in cli("models", "gpt-5-nano", "--reasoning", "high").out
    retired = [row["model"] for row in rows if row["retired"]]
    assert retired
    name = retired[0].partition(":")[2]
    assert "retired" in cli("models", name).out


def test_buffer_needs_several_models(cli: Cli) -> None:
    ran = cli("run", "-m", "offline", "--buffer", "hi")

    assert (ran.code, "buffer needs several providers" in ran.err) == (2, True)
    assert cli("run", "-m", "offline,offline", "--buffer", "hi").code == 0
