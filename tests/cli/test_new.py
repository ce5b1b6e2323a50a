"""`glue new`: every template runs unchanged, without a key and without a network."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glue.cli.header import parse_header, read_glue_section, read_source
from glue.cli.new import PROMPTS

Cli = Callable[..., Any]


@pytest.mark.parametrize("template", PROMPTS)
def test_a_template_runs_without_a_key_and_explains_how_to_set_one(cli: Cli, template: str) -> None:
    made = cli("new", "mine.py", "--template", template)
    for line in (
        "init -qb main",
        "add -A",
        "commit -qm one",
        "checkout -qb more",
        "commit -qm two --allow-empty",
    ):
        # The review template needs a checkout with a branch.
        subprocess.run(
            ["git", "-c", "user.name=me", "-c", "user.email=me@localhost", *line.split()],
            check=True,
        )
    bare = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}

    ran = subprocess.run(
        [sys.executable, "mine.py", PROMPTS[template]],
        env=bare,
        capture_output=True,
        text=True,
        timeout=60,
        input="",
    )

    assert (made.code, made.out) == (0, "mine.py\n")
    assert ran.returncode == 0, ran.stderr
    if template == "structured":
        assert set(json.loads(ran.stdout)) == {"title", "severity", "steps"}
    else:
        assert "offline stand-in" in ran.stdout
        assert "ANTHROPIC_API_KEY" in ran.stdout
        assert "·" in ran.stderr  # a tool was called
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("template", PROMPTS)
def test_a_template_has_a_valid_header(cli: Cli, template: str) -> None:
    cli("new", "mine.py", "-t", template)

    assert parse_header(read_source("mine.py"))["dependencies"] == ["glue-agents"]
    assert read_glue_section("mine.py")["usd_budget"] == 0.5
    text = Path("mine.py").read_text()
    assert "NAME.py" not in text
    assert re.search(r'"""[^"]*mine\.py', text)
    assert cli("tools", "check", "mine.py").code == 0
    assert "agent = Agent(" in cli("inspect", "mine.py").out.replace("agent          ", "")


def test_a_template_uses_the_model_whose_key_is_set(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("new", "mine.py")
    monkeypatch.setenv("GROQ_API_KEY", "not" + "-a-key")
    monkeypatch.setenv("GROQ_BASE_URL", "http://127.0.0.1:9/v1")

    ran = cli("run", "mine.py", "hi")

    assert ran.code == 1
    assert "groq: cannot connect to 127.0.0.1:9" in ran.err


def test_the_next_steps_are_printed_on_stderr(cli: Cli) -> None:
    ran = cli("new", "mine")

    assert ran.out == "mine.py\n"
    assert 'python mine.py "What is the weather in Toronto?"' in ran.err
    assert "set a key such as ANTHROPIC_API_KEY" in ran.err


def test_an_existing_file_is_overwritten_only_with_force(cli: Cli) -> None:
    Path("mine.py").write_text("precious")

    ran = cli("new", "mine.py")

    assert ran.code == 2
    assert "exists already; --force overwrites it" in ran.err
    assert Path("mine.py").read_text() == "precious"
    assert cli("new", "mine.py", "--force").code == 0
    assert stat.S_ISREG(Path("mine.py").stat().st_mode)


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (("new",), "Missing argument"),
        (("new", "no/folder/x.py"), "no/folder/x.py cannot be written"),
        (("new", "x.py", "-t", "nope"), "'nope' is not one of"),
        (("new", ".py"), "is not a file name"),
        (("new", "glue.py"), "glue.py would shadow the module glue"),
        (("new", "json"), "json.py would shadow the module json"),
    ],
)
def test_a_mistake_prints_one_line_and_exits_with_2(
    cli: Cli, args: tuple[str, ...], error: str
) -> None:
    ran = cli(*args)

    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert error in ran.err
