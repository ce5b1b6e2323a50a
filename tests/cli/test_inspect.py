"""`glue inspect`: describe an agent file without running it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Cli = Callable[..., Any]


def test_inspect_describes_a_file_without_running_it(cli: Cli) -> None:
    Path("mine.py").write_text(
        '# /// script\n# dependencies = ["glue-agents", "httpx"]\n# [tool.glue]\n# model = "groq"\n'
        '# tools = ["fs"]\n# ///\n"""Does things."""\nopen("ran", "w")\n'
        "from glue import Agent, tool\n@tool(needs_permission=True)\ndef save(x: str) -> str:\n"
        '    """Save it."""\n    return x\nagent = Agent("groq")\n'
    )

    text, data = cli("inspect", "mine.py"), json.loads(cli("inspect", "mine.py", "--json").out)

    assert not Path("ran").exists()
    assert data["settings"] == {"model": "groq", "tools": ["fs"]}
    assert data["dependencies"] == ["glue-agents", "httpx"]
    assert data["about"] == "Does things."
    assert data["agents"] == [{"name": "agent", "model": "'groq'", "line": 14}]
    assert data["tools"] == [{"name": "save", "description": "Save it.", "needs_permission": True}]
    assert "save: Save it., needs permission" in text.out
    assert ["tools", "fs"] in [line.split() for line in text.out.splitlines()]


def test_only_tools_that_ask_are_marked(cli: Cli) -> None:
    Path("mine.py").write_text(
        "from glue import tool\nimport glue\n"
        "@tool\ndef plain() -> None:\n    'Plain.'\n"
        "@tool(needs_permission=False)\ndef never() -> None:\n    'Never.'\n"
        "@glue.tool(needs_permission=check, name='other')\nasync def asks() -> None:\n    pass\n"
        "@cache\ndef no_tool() -> None:\n    pass\n"
    )

    ran = cli("inspect", "mine.py")

    assert ran.out.splitlines() == [
        "file           mine.py",
        "python         any",
        "dependencies   none",
        "tool           plain: Plain.",
        "tool           never: Never.",
        "tool           other: no description, needs permission",
    ]


def test_agents_are_found_in_every_form_of_an_assignment(cli: Cli) -> None:
    Path("mine.py").write_text(
        "a = Agent(tools=[1], model='groq', name='x')\n"
        "b: Agent = glue.Agent(MODEL)\n"
        "c = Agent()\n"
        "d = makers['Agent']()\n"
        "e = Agents('x')\n"
        "f = Agent\n"
        "@makers['tool']\ndef no_tool() -> None:\n    pass\n"
    )

    found = json.loads(cli("inspect", "mine.py", "--json").out)

    assert found["agents"] == [
        {"name": "a", "model": "'groq'", "line": 1},
        {"name": "b", "model": "MODEL", "line": 2},
        {"name": "c", "model": "?", "line": 3},
    ]
    assert found["tools"] == []
    assert "agent          c = Agent(?), line 3\n" in cli("inspect", "mine.py").out


def test_a_file_that_is_not_python_is_refused_with_its_line(cli: Cli) -> None:
    Path("mine.py").write_text("x = 1\ny = (\n")

    ran = cli("inspect", "mine.py")

    assert (ran.code, ran.err) == (2, "glue: mine.py, line 2: '(' was never closed\n")


def test_dependencies_that_are_not_a_list_are_refused(cli: Cli) -> None:
    Path("mine.py").write_text("# /// script\n# dependencies = 'httpx'\n# ///\n")

    ran = cli("inspect", "mine.py")

    assert ran.err == "glue: mine.py: dependencies must be a list, not 'httpx'\n"


def test_a_file_with_a_zero_byte_is_refused(cli: Cli) -> None:
    Path("mine.py").write_text("x = 1\n\0")

    ran = cli("inspect", "mine.py")

    assert ran.err == "glue: mine.py: source code string cannot contain null bytes\n"
