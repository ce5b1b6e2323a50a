"""`glue replay`: print a recorded run, or run an agent against it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

Cli = Callable[..., Any]


def test_a_recorded_run_is_replayed_without_the_model(cli: Cli, agent: str) -> None:
    first = cli("run", agent, "--yes", "--record", "cassette.jsonl", "save it")
    text = Path(agent).read_text()
    Path(agent).write_text(text.replace("def answer(request):", "def answer(request):\n    1 / 0"))

    again = cli("run", agent, "--yes", "--replay", "cassette.jsonl", "save it")

    assert again.out == first.out
    assert cli("replay", "cassette.jsonl", agent, "--yes").out == first.out
    assert "· save" in cli("replay", "cassette.jsonl").err
    other = cli("run", agent, "--yes", "--replay", "cassette.jsonl", "something else")
    assert other.code == 1
    assert "differs from the cassette" in other.err


def test_a_damaged_cassette_prints_one_line(cli: Cli, agent: str) -> None:
    cli("run", agent, "--yes", "--record", "cassette.jsonl", "save it")
    text = Path("cassette.jsonl").read_text()

    for old, new, args in (
        ('"done", "message"', '"done", "m"', ()),
        ('"content": [', '"content": 5, "x": [', (agent,)),
    ):
        Path("damaged.jsonl").write_text(text.replace(old, new))
        ran = cli("replay", "damaged.jsonl", *args)
        assert (ran.code, ran.err.startswith("glue: damaged.jsonl is damaged: ")) == (2, True), (
            ran.err
        )
