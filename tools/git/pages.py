"""Pages of what git prints, without holding more than a page."""

from __future__ import annotations

import io
from typing import cast

from glue.errors import ToolError
from glue.tools.fs.page import page
from glue.tools.git.repo import Repo

WHOLE = 16 * 1024 * 1024
LARGE_PAGE = 80 * 1024


class Pager:
    """Takes blocks of output, keeps the lines from `offset` on that fit, and says when it has enough."""

    def __init__(self, offset: int, cap: int) -> None:
        self.skip = max(offset, 1) - 1
        self.first = self.skip + 1
        self.cap = max(cap, 4096)
        self.kept = bytearray()
        self.more = False

    def feed(self, block: bytes) -> bool:
        if self.skip:
            count = block.count(b"\n")
            if count < self.skip:
                self.skip -= count
                return True
            cut = -1
            for _ in range(self.skip):
                cut = block.index(b"\n", cut + 1)
            block, self.skip = block[cut + 1 :], 0
        self.kept += block
        self.more = len(self.kept) > self.cap
        return not self.more

    def text(self) -> str:
        """Give the page, with whole lines only where there are any, and how to go on."""
        if self.skip or not self.kept:
            raise ToolError(f"offset {self.first} is past the end")
        if not self.more:
            return self.kept.decode("utf-8", "replace")
        cut = self.kept.rfind(b"\n", 0, self.cap) + 1
        if not cut:
            # One line that fills more than a page: it is cut, and the next page goes on after it.
            text = self.kept[: self.cap].decode("utf-8", "ignore")
            return f"{text}\n[line {self.first} is cut; continue with offset {self.first + 1}]"
        text = self.kept[:cut].decode("utf-8", "replace")
        return f"{text}[continue with offset {self.first + text.count(chr(10))}]"


def file_page(repo: Repo, revision: str, path: str, offset: int) -> str:
    """Write a page of a file at a revision."""
    entry = repo.entry(revision, path)
    if entry is None:
        raise ToolError(f"there is no {path!a} in {revision!a}")
    if entry.kind == "tree":
        names = [each.path for each in repo.list_tree(revision, path, recursive=False)]
        return "\n".join(["[a folder]", *names[:1000]])
    if entry.kind == "commit":
        return f"[another repository (submodule), at commit {entry.sha}]"
    content = repo.blob(entry.sha, cap=WHOLE, cut=True)
    if entry.mode == "120000":
        return f"[a link to {content[:4096].decode('utf-8', 'replace')!a}]"
    if len(content) == WHOLE and b"\0" not in content[:8192]:  # too large to be held: paged as it comes
        pager = Pager(offset, LARGE_PAGE)
        repo.git(["cat-file", "blob", entry.sha], sink=pager.feed)
        return pager.text()
    return page(io.BufferedReader(cast(io.RawIOBase, io.BytesIO(content))), offset)
