"""One git command by hand, for callers who know what they want to ask."""

from __future__ import annotations

import os
from collections.abc import Sequence

from glue.errors import GitError
from glue.tools.git.repo import CAP, SECONDS, Repo

READERS = frozenset(
    [
        "blame",
        "cat-file",
        "diff-tree",
        "grep",
        "log",
        "ls-tree",
        "merge-base",
        "name-rev",
        "rev-list",
        "rev-parse",
        "shortlog",
        "show",
    ]
)
# Each of these reads or writes a file of the caller's choice, or starts a program. git takes any unambiguous
# beginning of an option for the whole, so beginnings are refused too.
REFUSED = (
    "--output",
    "--output-directory",
    "--open-files-in-pager",
    "--ext-diff",
    "--ext-grep",
    "--textconv",
    "--no-index",
    "--untracked",
    "--cached",
    "--contents",
    "--ignore-revs-file",
    "--git-dir",
    "--work-tree",
    "--mailmap-file",
    "--use-mailmap",
    "--show-signature",
    "--filters",
    "--pathspec-from-file",
    "--from-file",
    "--alternate-refs",
    "--remerge-diff",  # merges anew, and writes what comes of it among the objects
)
REFUSED_SHORT = {"grep": ("-O", "-f"), "blame": ("-S",), "log": ("-O",), "show": ("-O",), "diff-tree": ("-O",)}


def run_git(
    root: str | os.PathLike[str],
    args: Sequence[str],
    *,
    cap: int = CAP,
    seconds: float = SECONDS,
    repo: Repo | None = None,
) -> bytes:
    """Run one reading command over a repository's objects, and give what it prints.

    It runs in a throw-away git directory without refs, index or work tree: name commits by full hashes
    (`Repo.resolve`), and paths behind `--`, where they are taken literally.
    """
    _check(args)
    if repo is not None:
        return repo.git(args, cap=cap, seconds=seconds)
    with Repo(root, seconds=seconds) as opened:
        return opened.git(args, cap=cap)


def _check(args: Sequence[str]) -> None:
    if not args or args[0] not in READERS:
        given = args[0] if args else "nothing"
        raise GitError(f"run_git does not run {given!r}; it runs: {', '.join(sorted(READERS))}")
    for arg in args[1:]:
        if arg == "--":
            return
        option, _, value = arg.partition("=")
        if option.startswith("--diff-m") and value[:1] in ("", "r"):  # the value may also stand by itself
            option = "--remerge-diff"
        if len(option) > 3 and option.startswith("--") and any(each.startswith(option) for each in REFUSED):
            raise GitError(f"run_git does not pass {option!r} on: it reaches beyond the objects")
        if arg.startswith(REFUSED_SHORT.get(args[0], "\0")):
            raise GitError(f"run_git does not pass {arg[:2]!r} on: it reaches beyond the objects")
