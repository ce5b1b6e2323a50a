"""Status and diff of the user's own work tree. Its configuration is read and its filters run: only where trusted."""

from __future__ import annotations

import os
from typing import Any

from glue.errors import GitError
from glue.tool import Tool, tool
from glue.tools.fs.blocklist import Blocklist
from glue.tools.git.environment import environment, find_git
from glue.tools.git.pages import Pager
from glue.tools.git.pathspec import literal_pathspec
from glue.tools.git.repo import DIFF, SECONDS
from glue.tools.process import Finished, Sink, Stop, in_thread, run

CAP = 200 * 1024
# What is still switched off even here: nothing in these is needed to see what changed.
FLAGS = (
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "protocol.allow=never",
    "-c",
    "safe.bareRepository=explicit",
    "-c",
    "core.attributesFile=/dev/null",
    "-c",
    "core.quotePath=false",
)


def tools(root: str, blocklist: Blocklist | None) -> list[Tool[..., Any]]:
    """Make the tools that look at the work tree."""

    @tool(max_output=None)
    async def git_status() -> str:
        """Show which files are changed, staged or untracked, and the branch that is checked out."""

        def job(stop: Stop) -> str:
            options = ["status", "--porcelain=v1", "--branch", "--untracked-files=normal", "--ignore-submodules=dirty"]
            finished = _git(root, options, stop)
            text = finished.out.decode("utf-8", "replace")
            return text + ("[there is more]" if finished.reason else "")

        return await in_thread(job)

    @tool(max_output=None)
    async def git_diff_worktree(path: str = "", staged: bool = False, offset: int = 1) -> str:
        """Show changes that are not committed yet, as a patch.

        Args:
            path: only this file or folder, from the top of the repository
            staged: what is staged, against the last commit; else everything that is not committed
            offset: first line, counted from 1; a page says where to continue
        """

        def job(stop: Stop) -> str:
            pager = Pager(offset, CAP)
            options = ["diff", *DIFF, *(["--cached"] if staged else []), "HEAD", "--"]
            specs = [literal_pathspec(path)] if path else []
            specs += _unwanted(root, options, blocklist, stop)
            _git(root, [*options, *specs], stop, pager.feed)
            return pager.text() if pager.kept else "no changes"

        return await in_thread(job)

    return [git_status, git_diff_worktree]


def _unwanted(root: str, options: list[str], blocklist: Blocklist | None, stop: Stop) -> list[str]:
    if blocklist is None:
        return []
    out = _git(root, [*options[:-1], "--name-only", "--no-renames", "-z", "--"], stop).out
    names = [os.fsdecode(name) for name in out.split(b"\0") if name]
    return [literal_pathspec(name, exclude=True) for name in names if blocklist.blocks(name)]


def _git(root: str, args: list[str], stop: Stop, sink: Sink | None = None) -> Finished:
    home = os.path.abspath(root)
    if not os.path.lexists(os.path.join(home, ".git")):
        raise GitError(f"{root} is not the top of a git checkout: it has no .git")
    env = environment(home, PATH=_absolute_path(home))
    del env["GIT_LITERAL_PATHSPECS"]
    finished = run(
        [find_git(home), "--no-pager", *FLAGS, *args],
        env=env,
        cwd=home,
        deadline=SECONDS,
        cap=CAP,
        sink=sink,
        stop=stop,
    )
    if finished.reason in ("deadline", "cancelled") or (not finished.reason and finished.code):
        said = finished.err.decode("utf-8", "replace").strip()[:300]
        raise GitError(f"git {args[0]} failed: {finished.reason or said or finished.code}")
    return finished


def _absolute_path(root: str) -> str:
    """Give the directories of PATH in which filters (large files, say) may be found, without relative ones."""
    folders = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if os.path.isabs(folder)]
    outside = [folder for folder in folders if not os.path.realpath(folder).startswith(os.path.realpath(root) + "/")]
    return os.pathsep.join(outside) or "/usr/bin:/bin"
