"""A server that misbehaves, one fault at a time: the client stays fast and reports the fault."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.hostile_mcp import KINDS

TESTS = Path(__file__).parents[2]
MEGABYTES = 300
SECONDS = 60


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_of_a_server_costs_one_clear_line_and_little_time_and_memory(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fault, expected = KINDS[kind]
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "PYTHONPATH": str(TESTS)}

    done = subprocess.run(
        [sys.executable, "-m", "fakes.hostile_mcp", "use", kind],
        cwd=TESTS,
        env=environ,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    with capsys.disabled():
        print(f"\n{fault}: {found['seconds']} s, {found['megabytes']} MB", end="")
    assert expected in " ".join((found["text"], *found["warnings"]))
    assert len(found["warnings"]) <= 2
    assert found["megabytes"] < MEGABYTES
    assert "Traceback" not in done.stderr
