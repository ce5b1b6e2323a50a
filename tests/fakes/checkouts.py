"""Git repositories for tests: an ordinary checkout, and a hostile one with a victim."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from glue.tools import git

ENV = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Änne",
    "GIT_AUTHOR_EMAIL": "a@example.com",
    "GIT_COMMITTER_NAME": "C",
    "GIT_COMMITTER_EMAIL": "c@example.com",
    "GIT_AUTHOR_DATE": "2024-05-06T07:08:09Z",
    "GIT_COMMITTER_DATE": "2024-05-06T07:08:09Z",
}
Run = Callable[..., str]


def call(folder: Path, *args: str) -> str:
    """Run git in a folder and return its output."""
    done = subprocess.run(
        ["git", *args], cwd=folder, env=ENV, capture_output=True, text=True, timeout=20, check=True
    )
    return done.stdout.strip()


def make_checkout(root: Path) -> Path:
    """Create a base branch, and a branch that changes, renames and adds files of several kinds."""
    run = partial(call, root)
    run("init", "-q", "-b", "main", "--template=")
    (root / "a.py").write_text("".join(f"line {n}\n" for n in range(30)))
    (root / "old name.txt").write_text("".join(f"text {n}\n" for n in range(30)))
    (root / "run.sh").write_text("x\n")
    run("add", ".")
    run("commit", "-qm", "first")
    run("checkout", "-qb", "work")
    (root / "a.py").write_text(
        "".join(f"line {n}\n" for n in range(30)).replace("line 7\n", "seven\n")
    )
    (root / "old name.txt").rename(root / "new ñame.txt")
    (root / "image.bin").write_bytes(bytes(range(256)))
    (root / "run.sh").chmod(0o755)
    (root / "line\nbreak").write_text("odd\n")
    (root / ".env").write_text("TOKEN=x\n")
    run("add", ".")
    run("commit", "-qm", "second\n\nwith a body")
    (root / "uncommitted").write_text("x")
    return root


def import_commits(root: Path, count: int) -> None:
    """Add empty commits with the message "x" to the branch `work`."""
    commits = ["commit refs/heads/work\ncommitter A <a> 1700000000 +0000\ndata 1\nx\n"] * count
    commits[0] += "from refs/heads/work^0\n"
    feed = "\n".join(commits).encode()
    argv = ["git", "fast-import", "--quiet"]
    subprocess.run(argv, cwd=root, env=ENV, input=feed, timeout=20, check=True)


def import_files(root: Path, count: int) -> None:
    """Commit empty files with names of 100 characters to the branch `work`."""
    commit = "commit refs/heads/work\ncommitter A <a> 1700000000 +0000\ndata 1\nx\n"
    files = (f"M 100644 :1 {number:0>100}\n" for number in range(count))
    feed = f"blob\nmark :1\ndata 0\n{commit}from refs/heads/work^0\n{''.join(files)}"
    argv = ["git", "fast-import", "--quiet"]
    subprocess.run(argv, cwd=root, env=ENV, input=feed.encode(), timeout=20, check=True)


def tools_of(root: Path, **options: Any) -> dict[str, Any]:
    """Return the git tools of a checkout by name."""
    return {tool.name: tool for tool in git.tools(root, **{"base": "main", **options})}


SECRET = "tOpSeCrEt-4711"
CHANGE = "REAL_CHANGE"


IDENTITY = {
    "GIT_AUTHOR_NAME": "True Author",
    "GIT_AUTHOR_EMAIL": "true@example.com",
    "GIT_COMMITTER_NAME": "C",
    "GIT_COMMITTER_EMAIL": "c@example.com",
    "GIT_CONFIG_NOSYSTEM": "1",
}


@dataclass
class Lab:
    """A hostile checkout, a victim's repository, and a marker file that only an attack creates."""

    base: Path
    env: dict[str, str] = field(default_factory=dict)  # hostile environment variables
    path: str = ""  # a folder to add in front of PATH

    @property
    def root(self) -> Path:
        return self.base / "checkout"

    @property
    def dot(self) -> Path:
        return self.root / ".git"

    @property
    def victim(self) -> Path:
        return self.base / "victim"

    @property
    def marker(self) -> Path:
        return self.base / "pwned"

    @property
    def evil(self) -> str:
        return str(self.base / "evil.sh")

    def git(self, *args: str, where: Path | None = None, check: bool = True, feed: str = "") -> str:
        env = {"PATH": os.environ["PATH"], "HOME": str(self.base / "home"), **IDENTITY}
        done = subprocess.run(
            ["git", *args],
            cwd=where or self.root,
            env=env,
            input=feed,
            capture_output=True,
            text=True,
            timeout=20,
        )
        if check and done.returncode:
            raise AssertionError(f"git {args} failed: {done.stderr}")
        return done.stdout.strip()

    def config(self, text: str) -> None:
        with (self.dot / "config").open("a") as file:
            file.write(text.replace("EVIL", self.evil))

    def sha(self, name: str) -> str:
        return self.git("rev-parse", name)


def make_lab(base: Path) -> Path:
    """Create the repositories of a Lab below a folder."""
    lab = Lab(base)
    for path in (lab.root, lab.victim, base / "home"):
        path.mkdir()
    for where in (lab.root, lab.victim):
        lab.git("init", "-q", "-b", "main", "--template=", where=where)
        for name in ("hooks", "info"):
            (where / ".git" / name).mkdir()
    (lab.victim / "private.txt").write_text(SECRET)
    lab.git("add", ".", where=lab.victim)
    lab.git("commit", "-qm", f"say {SECRET}", where=lab.victim)
    (lab.root / "a.py").write_text("".join(f"line {n}\n" for n in range(20)))
    lab.git("add", ".")
    lab.git("commit", "-qm", "first")
    lab.git("checkout", "-qb", "work")
    (lab.root / "a.py").write_text("".join(f"line {n}\n" for n in range(19)) + f"{CHANGE}\n")
    lab.git("commit", "-qam", f"change {CHANGE}")
    lab.git("checkout", "-q", "main")
    (lab.root / "b.py").write_text("later\n")
    lab.git("add", ".")
    lab.git("commit", "-qm", "later")
    lab.git("checkout", "-q", "work")
    return base


def copy_lab(template: Path, base: Path) -> Lab:
    """Copy the repositories of `make_lab`, and add the script that an attack tries to run."""
    shutil.copytree(template, base, symlinks=True)
    lab = Lab(base)
    Path(lab.evil).write_text(f"#!/bin/sh\necho ran >> {lab.marker}\nexit 1\n")
    Path(lab.evil).chmod(0o755)
    return lab
