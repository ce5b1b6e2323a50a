"""Git tools for hostile repositories: they only read, and run no program that a repository names.

from glue.tools import git

agent = glue.Agent("openai", tools=git.tools("."))  # diff and log of the branch, show, blame
agent = glue.Agent("openai", tools=[git.diff_branch(".", "main")])  # a single tool
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from glue.lazy import lazy_names
from glue.tools.git.command import DIFF, find_git
from glue.tools.git.objects import FileChange, GitCommit, GrepHit, TreeEntry
from glue.tools.git.pathspec import build_pathspec, literal_pathspec
from glue.tools.git.readers import run_git
from glue.tools.git.repo import Repo

if TYPE_CHECKING:
    from glue.tools.git.functions import (
        blame,
        diff_branch,
        diff_worktree,
        log_branch,
        show,
        status,
        tools,
    )
    from glue.tools.git.pages import commit_page

__all__ = [
    "DIFF",
    "FileChange",
    "GitCommit",
    "GrepHit",
    "Repo",
    "TreeEntry",
    "blame",
    "build_pathspec",
    "commit_page",
    "diff_branch",
    "diff_worktree",
    "find_git",
    "literal_pathspec",
    "log_branch",
    "run_git",
    "show",
    "status",
    "tools",
]

# Loaded at first use: a program that only reads a repository does not need the tools.
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "functions": "blame diff_branch diff_worktree log_branch show status tools",
        "pages": "commit_page",
    },
)
