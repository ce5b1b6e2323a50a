"""`make demo` shows an agent at work and the review bot, on two screens, with no key."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_the_demo_shows_both_uses_on_two_screens(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "COLUMNS": "118"}
    line = [sys.executable, str(ROOT / "bench" / "demo.py"), str(tmp_path / "demo")]

    ran = subprocess.run(
        line, env=env, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path
    )

    assert ran.returncode == 0, ran.stderr
    for city in ("Toronto", "Oslo"):
        assert re.search(rf"· weather\(city={city}\)  ok \d+ ms\n", ran.stderr)
    assert "weather: Oslo: 21 degrees, dry" in ran.stdout
    assert "larder/store.py:26  high  Undefined name `limit`" in ran.stdout
    assert len((ran.stdout + ran.stderr).splitlines()) <= 60
    assert "weather" in (tmp_path / "demo" / "agent.html").read_text()


def test_make_replaces_an_environment_whose_python_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text())
    old = tmp_path / ".venv" / "bin" / "python"
    old.parent.mkdir(parents=True)
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)

    # `make test` hands its own variables (VENV, PYTHON) down to every make below it.
    clean = {name: text for name, text in os.environ.items() if "MAKE" not in name}
    clean.pop("VENV", None)
    ran = subprocess.run(
        ["make", "-n", "clean"],
        cwd=tmp_path,
        env=clean,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert "is missing or older than 3.11" in ran.stderr
    assert not (tmp_path / ".venv").exists()
