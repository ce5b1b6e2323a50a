"""pyright accepts the types that users see; mypy checks the same files with all others."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "typing"
PYRIGHT = shutil.which("pyright", path=str(Path(sys.executable).parent)) or shutil.which("pyright")


@pytest.mark.skipif(PYRIGHT is None, reason="pyright is not installed")
def test_pyright_accepts_the_typing_examples() -> None:
    command = [str(PYRIGHT), "-p", str(FOLDER), "--pythonpath", sys.executable]

    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)

    assert done.returncode == 0, done.stdout
