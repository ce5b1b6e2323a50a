"""Resolve names of commits by reading refs ourselves: git's own rules let a tag or a stray file stand for a branch."""

from __future__ import annotations

import re

from glue.errors import GitError
from glue.tools.fs.root import Root, shorten
from glue.tools.git.layout import small

HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
SHORT = re.compile(r"[0-9a-f]{7,64}")
# What git itself allows in a ref name, and a little less.
BAD = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(/|$)|^[-./]|[./]$|\.$")
PLACES = ("refs/heads/", "refs/remotes/origin/", "refs/remotes/", "refs/tags/")
MAX_REF = 4096
MAX_PACKED = 64 * 1024 * 1024
MAX_JUMPS = 5
OF_WORKTREE = ("HEAD", "refs/bisect/", "refs/worktree/", "refs/rewritten/")


class Refs:
    """The refs of one repository, loose ones first."""

    def __init__(self, own: Root, common: Root) -> None:
        self.own, self.common = own, common
        self._packed: bytes | None = None

    def find(self, name: str) -> str | None:
        """Give the hash a name stands for: HEAD, a full ref, or a branch, remote branch or tag, in this order."""
        if name in ("HEAD", "@"):
            return self.read("HEAD")
        if BAD.search(name) or len(name) > 1024:
            raise GitError(f"{shorten(name)} is not a name of a commit; give a branch, a tag, HEAD or a hash")
        for place in ("",) if name.startswith("refs/") else PLACES:
            if (found := self.read(place + name)) is not None:
                return found
        return None

    def read(self, ref: str) -> str | None:
        """Read one ref by its full name, through symbolic ones."""
        for _ in range(MAX_JUMPS):
            home = self.own if ref.startswith(OF_WORKTREE) else self.common
            content = small(home, ref, MAX_REF)
            if content is None:
                return self.packed(ref)
            text = content.decode("utf-8", "surrogateescape").strip()
            if not text.startswith("ref:"):
                if not HASH.fullmatch(text):
                    raise GitError(f"{shorten(ref)} does not hold a hash")
                return text
            ref = text[4:].strip()
            if ref == "refs/heads/.invalid":
                raise GitError("the repository keeps its refs in a reftable, which is not read; give full hashes")
            if not ref.startswith("refs/") or BAD.search(ref):
                raise GitError(f"a symbolic ref leads to {shorten(ref)}, which is no ref")
        raise GitError("symbolic refs lead round in a circle")

    def head_branch(self) -> str:
        """Name the branch that is checked out; empty where the head is detached."""
        text = (small(self.own, "HEAD", MAX_REF) or b"").decode("utf-8", "replace").strip()
        ref = text.removeprefix("ref:").strip()
        return ref.removeprefix("refs/heads/") if ref.startswith("refs/heads/") else ""

    def packed(self, ref: str) -> str | None:
        """Look a ref up among the packed ones; there may be a million, so no table is made."""
        if self._packed is None:
            self._packed = b"\n" + (small(self.common, "packed-refs", MAX_PACKED) or b"") + b"\n"
        at = self._packed.find(b" " + ref.encode("utf-8", "surrogateescape") + b"\n")
        start = self._packed.rfind(b"\n", 0, max(at, 0)) + 1
        value = self._packed[start : max(at, start)].decode("ascii", "replace")
        return value if HASH.fullmatch(value) else None
