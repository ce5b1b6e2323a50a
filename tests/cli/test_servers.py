"""`glue acp` and `glue mcp`: options. tests/acp and tests/tools/mcp test the protocols."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PRINTING = """
import os
from glue.cli.servers import take_stdout

source, sink = take_stdout()
print("a line that the user's code prints")
os.system("echo a line of a program")
sink.write(source.read().upper())
sink.flush()
"""


def test_only_the_protocol_uses_stdin_and_stdout() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PRINTING],
        input="request",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ran.stdout == "REQUEST"
    assert "a line that the user's code prints" in ran.stderr
    assert "a line of a program" in ran.stderr


def test_a_file_and_a_model_exclude_each_other(cli: Callable[..., Any]) -> None:
    Path("agent.py").write_text("from glue import Agent\nagent = Agent('offline')\n")

    ran = cli("acp", "agent.py", "-m", "offline")

    assert (ran.code, "give a file or a model, not both" in ran.err) == (2, True)


@pytest.mark.parametrize(
    ("http", "token", "error"),
    [
        ("nonsense", "t" * 16, "--http takes a port, or host:port, not 'nonsense'"),
        ("70000", "t" * 16, "--http takes a port, or host:port, not '70000'"),
        ("8000", "short", "needs a token of at least 16 characters in GLUE_MCP_TOKEN"),
    ],
)
def test_http_needs_a_port_and_a_token(http: str, token: str, error: str, tmp_path: Path) -> None:
    pytest.importorskip("mcp", reason="mcp is not installed")
    (tmp_path / "agent.py").write_text("from glue import Agent\nagent = Agent('offline')\n")

    # In its own process, because the command replaces stdin and stdout.
    ran = subprocess.run(
        [sys.executable, "-m", "glue", "mcp", "agent.py", "--http", http],
        env={"HOME": str(tmp_path), "GLUE_MCP_TOKEN": token},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ran.returncode == 2
    assert error in ran.stderr
