"""One git command by hand, for callers who know what they want to ask."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import TYPE_CHECKING

from glue.errors import GitError

if TYPE_CHECKING:
    from glue.tools.git.repo import Repo

CAP = 512 * 1024  # kept of what git prints
SECONDS = 15.0

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
    from glue.tools.git.repo import Repo

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


USUAL = ("/usr/local/bin", "/usr/bin", "/bin", "/opt/homebrew/bin")


def find_git(root: str = "") -> str:
    """Find git in absolute directories of PATH that do not lie below `root`, where anyone could have put one."""
    below = os.path.realpath(root).rstrip("/") + "/" if root else ""
    for folder in (*os.environ.get("PATH", "").split(os.pathsep), *USUAL):
        real = os.path.realpath(folder) if os.path.isabs(folder) else ""
        if not real or (below and (real + "/").startswith(below)):
            continue
        program = os.path.join(real, "git")
        try:
            found = os.stat(program)
        except OSError:
            continue
        inside = below and os.path.realpath(program).startswith(below)
        if stat.S_ISREG(found.st_mode) and os.access(program, os.X_OK) and not inside:
            return program
    raise GitError("git was not found; install it, or add its directory to PATH as an absolute path")


def environment(root: str, **more: str) -> dict[str, str]:
    """Build a child's environment from nothing; no variable of ours reaches git."""
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": "/nonexistent",
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "",
        "GIT_PROTOCOL_FROM_USER": "0",
        "GIT_ASKPASS": "/bin/false",
        "GIT_SSH_COMMAND": "/bin/false",
        "GIT_EDITOR": "/bin/false",
        "GIT_PAGER": "cat",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_CEILING_DIRECTORIES": os.path.dirname(os.path.abspath(root)) if root else "/",
        **more,
    }
