"""`glue completion` and the completion of words in a shell."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed(cli: Cli, shell: str) -> None:
    ran = cli("completion", shell)

    assert ran.code == 0
    assert "_GLUE_COMPLETE" in ran.out


def test_commands_options_and_providers_are_completed() -> None:
    program = str(Path(sys.executable).parent / "glue")

    def complete(words: str, at: int) -> list[str]:
        env = {
            "PATH": os.environ["PATH"],
            "_GLUE_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(at),
        }
        out = subprocess.run(
            [program], env=env, capture_output=True, text=True, timeout=60, check=True
        ).stdout
        return [line.split(",")[1] for line in out.splitlines()]

    assert complete("glue re", 1) == ["review", "replay"]
    assert "--show-wire" in complete("glue run --sh", 2)
    assert complete("glue run -m gro", 3) == ["groq"]
