"""A small repository with planted bugs on a branch, reviewed by `make demo` and by tests."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from glue.testing import Script, call, calls
from glue.tools.git import find_git


def build(repo: Path) -> None:
    """Create the repository: a main branch, and a branch with the planted bugs."""
    repo.mkdir(parents=True, exist_ok=True)
    git(repo, "init", "-q", "-b", "main")
    git(
        repo,
        "fast-import",
        "--quiet",
        input=Path(__file__).with_name("larder.fast-import").read_bytes(),
    )
    git(repo, "checkout", "-q", "find-items")


def recorded_model() -> Script:
    """Return a provider that plays back the replies that were written for the change."""
    path = Path(__file__).with_name("larder.replies.json")
    replies = json.loads(path.read_text(encoding="utf-8"))
    return Script(*(calls(call(one["name"], one["arguments"])) for one in replies), name="recorded")


def git(repo: Path, *args: str, input: bytes = b"") -> None:
    """Run git without the user's settings: no signing, no hooks, no templates."""
    names = dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "demo")
    mails = dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "demo@example.com")
    dates = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), "2024-01-01T00:00:00Z")
    quiet = {
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "HOME": os.fspath(repo),
        "LC_ALL": "C",
    }
    env = {"PATH": os.environ.get("PATH", os.defpath), **quiet, **names, **mails, **dates}
    argv = [find_git(), "-c", "init.templateDir=", "-c", "core.hooksPath=/dev/null", *args]
    subprocess.run(argv, cwd=repo, env=env, check=True, timeout=30, input=input)
