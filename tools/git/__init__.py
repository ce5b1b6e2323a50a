"""Git tools that run nothing the repository names, write nothing, and show the true change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glue.lazy import lazy_names
from glue.tools.git.command import DIFF, build_pathspec, find_git, literal_pathspec, run_git
from glue.tools.git.objects import FileChange, GitCommit, GrepHit, TreeEntry
from glue.tools.git.repo import Repo

if TYPE_CHECKING:
    from glue.tools.git.functions import commit_page, tools

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

# Not needed by those who only read a repository.
__getattr__, __dir__ = lazy_names(__name__, {"functions": "commit_page tools"})
