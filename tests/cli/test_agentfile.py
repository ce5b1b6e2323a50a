"""Agent files: errors for files that do not define one agent."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glue.cli.agentfile import open_agent

Cli = Callable[..., Any]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("x = 1", "defines no agent"),
        (
            "from glue import Agent\na = Agent('offline')\nb = Agent('offline')",
            "several agents (a, b)",
        ),
        ("def (", "line 1"),
        (
            "import nonsense_package",
            "needs 'nonsense_package', which is not installed; `uv run bad.py`",
        ),
        ("\n\n1 / 0", "bad.py fails in line 3: ZeroDivisionError"),
        (
            "# /// script\n# x =\n# ///\nfrom glue import Agent\nagent = Agent('offline')",
            "not valid TOML",
        ),
        (
            "from glue import Agent\nagent = Agent('offline', deps_type=int)",
            "needs deps of the type int",
        ),
    ],
)
def test_a_file_without_one_agent_is_refused_in_one_line(cli: Cli, text: str, error: str) -> None:
    Path("bad.py").write_text(text)

    ran = cli("run", "bad.py", "hi")

    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert error in ran.err


def test_a_folder_is_not_an_agent_file(cli: Cli) -> None:
    Path("bad.py").mkdir()

    ran = cli("run", "bad.py", "hi")

    assert (ran.code, ran.err) == (
        2,
        "glue: bad.py is a folder; give an agent file, such as bad.py/agent.py\n",
    )


def test_a_file_with_a_null_byte_is_refused_without_a_line_number(cli: Cli) -> None:
    Path("bad.py").write_bytes(b"x\0 = 1")

    ran, inspected = cli("run", "bad.py", "hi"), cli("inspect", "bad.py")

    assert ran.err == "glue: bad.py: source code string cannot contain null bytes\n"
    assert inspected.err == ran.err


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("absent.py", "the file absent.py does not exist; give a .py file or a dotted name"),
        ("absent_module", "cannot import absent_module: No module named 'absent_module'; give a"),
        ("json.absent", "cannot import json.absent: No module named 'json.absent'; give a"),
        ("", "'' is not the name of a module; give a dotted name or a .py file"),
        (".relative", "'.relative' is not the name of a module; give a dotted name or a .py file"),
        ("needs_absent", "needs_absent needs 'absent_one', which is not installed; install the"),
        ("adds_wrongly", "adds_wrongly fails: TypeError: unsupported operand"),
    ],
)
def test_a_module_that_cannot_be_imported_is_refused_in_one_line(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str, error: str
) -> None:
    Path("needs_absent.py").write_text("import absent_one\n")
    Path("adds_wrongly.py").write_text("1 + ''\n")
    monkeypatch.syspath_prepend(str(Path.cwd()))

    ran = cli("tools", "check", name)

    assert ran.code == 2
    assert ran.err.startswith(f"glue: {error}")
    assert ran.err.count("\n") == 1


def test_a_module_beside_an_agent_file_wins_over_others_with_its_name(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "beside.py").write_text("name = 'other'\n")
    Path("beside.py").write_text("name = 'own'\n")
    Path("agent.py").write_text(
        "from beside import name\nfrom glue import Agent\nagent = Agent('offline', name=name)\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path / "other"), *sys.path])
    monkeypatch.setattr(sys, "modules", dict(sys.modules))

    names = [open_agent("agent.py").name for _ in range(2)]

    assert names == ["own", "own"]
    assert sys.path.count(str(Path.cwd())) == 1


def test_the_line_of_the_file_that_failed_last_is_named(cli: Callable[..., Any]) -> None:
    Path("bad.py").write_text("def divide():\n    return 1 / 0\n\ndivide()\n")

    ran = cli("run", "bad.py", "hi")

    assert ran.err == (
        "glue: bad.py fails in line 2: ZeroDivisionError: division by zero;"
        " GLUE_DEBUG=1 shows the traceback\n"
    )
