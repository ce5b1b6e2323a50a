"""Functions that open a file below a root or return its path, and refuse paths outside."""

from __future__ import annotations

import io
import os
from contextlib import AbstractContextManager, nullcontext

from glue.errors import UnsafePath
from glue.permission import PermissionTarget
from glue.tools.fs.files import show_name
from glue.tools.fs.patterns import Blocklist
from glue.tools.fs.root import Root


def safe_open(
    root: Root | str | os.PathLike[str], path: str, *, blocklist: Blocklist | None = None
) -> io.BufferedReader:
    """Open a regular file below a root for reading; raise `UnsafePath` if the path leads outside.

    >>> with safe_open("/srv/project", "src/main.py") as file:  # doctest: +SKIP
    ...     content = file.read()
    """
    with _opened(root) as opened:
        return opened.open(path, guard=None if blocklist is None else blocklist.guard)


def safe_join(root: Root | str | os.PathLike[str], path: str) -> str:
    """Return the absolute path of a file, or raise `UnsafePath` if it leads outside the root.

    Every link and `..` in the path is resolved.

    >>> safe_join("/srv/project", "docs/../src/main.py")  # doctest: +SKIP
    '/srv/project/src/main.py'

    The file need not exist. Use the result in messages and in other libraries. To open a file,
    call `safe_open`: another process may replace a folder by a link between the two calls.
    """
    with _opened(root) as opened, opened.place(path) as place:
        if not opened.spellings:
            raise UnsafePath(
                "the absolute path of the root is not known, because the root was moved or deleted"
                " while glue opened it, or because it was opened by a file descriptor"
            )
        return os.path.normpath(os.path.join(opened.spellings[0], place.path))


def relative_path(root: Root | str | os.PathLike[str], path: str) -> str:
    """Return the path of a file relative to a root, or raise `UnsafePath` if it leads outside.

    Every link and `..` in the path is resolved. The file need not exist.

    >>> relative_path("/srv/project", "docs/../src/main.py")  # doctest: +SKIP
    'src/main.py'
    """
    with _opened(root) as opened, opened.place(path) as place:
        return place.path


def path_target(root: Root | str | os.PathLike[str], path: str) -> PermissionTarget:
    """Return the permission target: the path with folder links resolved, and its final target.

    The two paths differ only if the file itself is a link.
    """
    with _opened(root) as opened:
        with opened.place(path, final=False) as place:
            own = place.path
        with opened.place(path) as place:
            names = tuple(dict.fromkeys((own, place.path)))
        text = " -> ".join(map(show_name, names))
        return PermissionTarget(text=text, paths=names, folds=opened.folds_names)


def _opened(root: Root | str | os.PathLike[str]) -> AbstractContextManager[Root]:
    return nullcontext(root) if isinstance(root, Root) else Root(root)
