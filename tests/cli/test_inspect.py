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
