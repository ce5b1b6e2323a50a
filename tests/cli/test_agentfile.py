"""Agent files: errors for files that do not define one agent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
        ("\n\n1 / 0", "bad.py, line 3: ZeroDivisionError"),
        (
            "# /// script\n# x =\n# ///\nfrom glue import Agent\nagent = Agent('offline')",
            "not valid TOML",
        ),
        ("from glue import Agent\nagent = Agent('offline', deps_type=int)", "needs deps (int)"),
    ],
)
def test_a_file_without_one_agent_is_refused_in_one_line(cli: Cli, text: str, error: str) -> None:
    Path("bad.py").write_text(text)

    ran = cli("run", "bad.py", "hi")

    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert error in ran.err
