"""Git tools that run nothing the repository names, write nothing, and show the true change."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from glue.tools.git.command import DIFF, build_pathspec, find_git, literal_pathspec, run_git
from glue.tools.git.objects import FileChange, GitCommit, GrepHit, TreeEntry
from glue.tools.git.repo import Repo

if TYPE_CHECKING:
    from glue.function.decorator import Tool
    from glue.tools.fs.patterns import Blocklist


def tools(
    root: str | os.PathLike[str], base: str | None = None, trust: bool = False, *, blocklist: Blocklist | None = None
) -> list[Tool[..., Any]]:
    """Make the git tools of a checkout; `base` is the branch that others start from, guessed if left out.

    They read objects only, and hold against a hostile repository. `trust` adds status and diff of the work
    tree, for which git reads the repository's own configuration: for the user's own checkout alone.
    """
    from glue.tools.git.functions import tools as make

    return make(root, base, trust, blocklist=blocklist)


def commit_page(repo: Repo, revision: str, offset: int = 1, blocklist: Blocklist | None = None) -> str:
    """Write a page of one commit: its message, and what it changed against its first parent."""
    from glue.tools.git.functions import commit_page as write

    return write(repo, revision, offset, blocklist)


__all__ = [
    "DIFF",
    "FileChange",
    "GitCommit",
    "GrepHit",
    "Repo",
    "TreeEntry",
    "build_pathspec",
    "commit_page",
    "find_git",
    "literal_pathspec",
    "run_git",
    "tools",
]
