"""Hold trees against their names: git does not when it compares them, and a forged one hides a change."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from glue.errors import GitError

if TYPE_CHECKING:
    from glue.tools.git.repo import Repo

GROUP = 500
CAP = 64 * 1024 * 1024


def check_trees(repo: Repo, base: str, head: str) -> None:
    """Refuse to compare two commits where a tree that has to be looked at does not hold what its name says."""
    _check(repo, [f"{base}^{{tree}}", f"{head}^{{tree}}"])  # first: what they name is only then worth listing
    options = ["diff-tree", "-r", "-t", "-z", "--raw", "--no-abbrev", "--no-renames", "--ignore-submodules=dirty"]
    out = repo.git([*options, base, head, "--"], cap=CAP)
    names: dict[str, None] = {}
    for field in out.split(b"\0")[::2]:
        if not field.startswith(b":"):
            continue
        old_mode, new_mode, old, new, _ = field[1:].decode("ascii").split()
        names |= {sha: None for mode, sha in ((old_mode, old), (new_mode, new)) if mode == "040000"}
    listed = list(names)
    for start in range(0, len(listed), GROUP):
        _check(repo, listed[start : start + GROUP])


def _check(repo: Repo, names: list[str]) -> None:
    out = repo.git(["cat-file", "--batch"], feed="".join(f"{name}\n" for name in names).encode(), cap=CAP)
    at = 0
    while at < len(out):
        end = out.index(b"\n", at)
        words = out[at:end].split()
        if len(words) != 3 or not words[2].isdigit():  # so git also says where it found a forgery by itself
            raise GitError(f"a tree of {names[0][:12]} is missing: the repository is incomplete, damaged or forged")
        size = int(words[2])
        sha, content = words[0].decode("ascii"), out[end + 1 : end + 1 + size]
        maker = hashlib.sha1 if len(sha) == 40 else hashlib.sha256
        if maker(b"%b %d\0" % (words[1], size) + content, usedforsecurity=False).hexdigest() != sha:
            raise GitError(f"tree {sha[:12]} does not hold what its name says: the repository is damaged or forged")
        at = end + 1 + size + 1
