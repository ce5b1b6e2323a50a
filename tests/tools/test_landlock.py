"""Tests of confining a child process with Landlock."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from glue.tools.landlock import has_landlock, make_ruleset, start_confined

pytestmark = pytest.mark.skipif(not has_landlock(), reason="needs Landlock")


def cat(rules: int, path: Path) -> bytes:
    child = start_confined(
        rules,
        lambda: subprocess.Popen(
            ["/bin/cat", str(path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ),
    )
    return child.communicate(timeout=20)[0]


def test_a_confined_process_reads_only_the_listed_folders(tmp_path: Path) -> None:
    for name in ("inside", "outside"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    (tmp_path / "inside/link").symlink_to(tmp_path / "outside/file")
    rules = make_ruleset("/bin/cat", [str(tmp_path / "inside")])

    try:
        inside = cat(rules, tmp_path / "inside/file")
        outside = cat(rules, tmp_path / "outside/file")
        linked = cat(rules, tmp_path / "inside/link")
    finally:
        os.close(rules)

    assert (inside, outside, linked) == (b"inside", b"", b"")
    assert (tmp_path / "outside/file").read_text() == "outside"
