"""Fixtures of the tests of git tools."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from fakes.checkouts import Lab, Run, call, copy_lab, make_checkout, make_lab


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a function that runs git in `repo`, or in another folder below tmp_path."""
    return lambda *args, where="repo": call(tmp_path / where, *args)


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkout(tmp_path_factory.mktemp("template"))


@pytest.fixture
def repo(tmp_path: Path, template: Path) -> Path:
    """Return a checkout with a base branch and a branch of changes."""
    shutil.copytree(template, tmp_path / "repo", symlinks=True)
    return tmp_path / "repo"


@pytest.fixture(scope="session")
def lab_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_lab(tmp_path_factory.mktemp("template"))


@pytest.fixture
def lab(lab_template: Path, tmp_path: Path) -> Lab:
    """Return a checkout that an attacker controls, and the repository of a victim."""
    return copy_lab(lab_template, tmp_path / "lab")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of git commands that a test starts; it grows during the test."""
    commands: list[str] = []
    real = subprocess.Popen

    def popen(argv: list[str], *args: Any, **options: Any) -> Any:
        if os.path.basename(argv[0]) == "git":
            commands.append(next(word for word in argv[1:] if not word.startswith("-")))
        return real(argv, *args, **options)

    monkeypatch.setattr(subprocess, "Popen", popen)
    return commands
