"""`glue acp` and `glue mcp`: options. tests/acp and tests/tools/mcp test the protocols."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes.editor import Open

from glue import SQLiteStore
from glue.cli.servers import _missing_keys, _model
from glue.errors import ConfigError, MissingKey
from glue.testing import Script

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
        ("65536", "t" * 16, "--http takes a port, or host:port, not '65536'"),
        ("8000", "t" * 15, "needs a token of at least 16 characters in GLUE_MCP_TOKEN"),
    ],
)
def test_http_needs_a_port_and_a_token(
    http: str,
    token: str,
    error: str,
    cli: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("agent.py").write_text("raise SystemExit('the agent was loaded')\n")
    monkeypatch.setenv("GLUE_MCP_TOKEN", token)

    ran = cli("mcp", "agent.py", "--http", http)

    assert (ran.code, error in ran.err) == (2, True)


def ended(zygote: Any, *args: str) -> tuple[int, str]:
    """Run a command of `glue` in another process; return its exit code and its last error."""
    program = [sys.executable, "-c", "from glue.cli.app import main; main()", *args]
    process = zygote.start(program, Path.cwd())
    try:
        process.stdin.close()
        errors = process.stderr.read().decode()
        return process.wait(), errors
    finally:
        process.stdout.close()
        process.stderr.close()


def test_http_accepts_the_highest_port_and_a_token_of_16_characters(
    cli: Callable[..., Any], zygote: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("agent.py").write_text("raise SystemExit('the agent was loaded')\n")
    monkeypatch.setenv("GLUE_MCP_TOKEN", "t" * 16)

    code, errors = ended(zygote, "mcp", "agent.py", "--http", "65535")

    assert "the agent was loaded" in errors
    assert code != 0


@pytest.mark.parametrize("args", [("agent.py",), ("-m", "offline", "--tools", "fs")])
def test_flags_of_the_shell_tool_need_the_built_in_shell_tool(
    args: tuple[str, ...], cli: Callable[..., Any], zygote: Any
) -> None:
    Path("agent.py").write_text("from glue import Agent\nagent = Agent('offline')\n")

    code, errors = ended(zygote, "acp", *args, "--network")

    assert (code, "--network has no effect without the built-in shell tool" in errors) == (2, True)


async def test_sessions_of_an_editor_are_kept_in_the_named_store(
    editor: Open, tmp_path: Path
) -> None:
    client = editor("agent = made(Script('hello'))", store="kept.db")

    session = client.start(tmp_path)

    found = await SQLiteStore(tmp_path / "kept.db").list()
    assert [info.id for info in found] == [session]


@pytest.mark.parametrize(
    ("args", "typed"), [(("-m", "groq:big"), "a-key\n"), ((), "groq\na-key\n")]
)
def test_the_setup_of_an_editor_stores_the_key_of_a_provider(
    cli: Callable[..., Any], args: tuple[str, ...], typed: str
) -> None:
    ran = cli("acp", "--setup", *args, input=typed)

    assert (ran.code, ran.out) == (0, "")
    assert cli("keys").out.split() == ["GROQ_API_KEY", "stored"]


def test_the_setup_offers_only_providers_with_a_key(cli: Callable[..., Any]) -> None:
    ran = cli("acp", "--setup", input="offline\n")

    assert "'offline' is not one of " in ran.err
    assert "'groq'" in ran.err
    assert "'ollama'" not in ran.err


def test_the_variables_of_missing_keys_are_named(
    cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "not" + "-a-key")

    assert _missing_keys("groq:big,openai,nobody,offline") == ["GROQ_API_KEY"]
    assert _missing_keys("openai") == []
    assert _missing_keys(Script("hi")) == []


async def test_without_a_key_a_request_names_the_variables_to_set(
    cli: Callable[..., Any],
) -> None:
    model = _model("")

    with pytest.raises(MissingKey, match="GLUE_MODEL"):
        await anext(aiter(model.stream(None)))
    first, *others = _missing_keys(model)
    assert first == "GLUE_MODEL"
    assert {"GROQ_API_KEY", "OPENAI_API_KEY"} <= set(others)
    assert "OLLAMA_API_KEY" not in others
    with pytest.raises(ConfigError, match="unknown provider 'nobody'"):
        _model("nobody:x")
