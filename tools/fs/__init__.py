"""File tools that hold against a hostile model: no path leads out of the root."""

from __future__ import annotations

import io
import os
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from glue.lazy import lazy_names
from glue.tools.fs.patterns import Blocklist
from glue.tools.fs.root import Root, truncate

if TYPE_CHECKING:
    from glue import PermissionTarget
    from glue.tools.fs.functions import tools

__all__ = ["Blocklist", "Root", "path_target", "safe_join", "safe_open", "tools", "truncate"]

# Not needed by those who only open files.
__getattr__, __dir__ = lazy_names(__name__, {"functions": "tools"})


def safe_open(
    root: Root | str | os.PathLike[str], path: str, *, blocklist: Blocklist | None = None
) -> io.BufferedReader:
    """Open a regular file below a root for reading; `UnsafePath` is raised for whatever leads elsewhere."""
    with _opened(root) as opened:
        return opened.open(path, guard=None if blocklist is None else blocklist.guard)


def safe_join(root: Root | str | os.PathLike[str], path: str) -> str:
    """Give the plain relative name that a path leads to, for messages; open files with `safe_open`, not by it."""
    with _opened(root) as opened, opened.place(path) as place:
        return place.path


def path_target(root: Root | str | os.PathLike[str], path: str) -> PermissionTarget:
    """Resolve a path for a permission policy: the name of a link, and that of the file behind it."""
    from glue import PermissionTarget
    from glue.tools.fs.files import show

    with _opened(root) as opened:
        with opened.place(path, final=False) as place:
            own = place.path
        with opened.place(path) as place:
            return PermissionTarget(text=show(own), paths=tuple(dict.fromkeys((own, place.path))))


def _opened(root: Root | str | os.PathLike[str]) -> AbstractContextManager[Root]:
    return nullcontext(root) if isinstance(root, Root) else Root(root)
