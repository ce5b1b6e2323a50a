"""A function for each file tool, such as `read_file(root)`, which returns only this tool.

For an agent that reads and writes files, use `fs.tools(root, write=True)`: its tools share the
state of files, so that write_file refuses a file that changed after read_file read it.
"""

from __future__ import annotations

import os
from typing import Any

from glue import Tool
from glue.tools.fs.functions import tools
from glue.tools.fs.patterns import Blocklist
from glue.tools.fs.root import Root


def read_file(
    root: Root | str | os.PathLike[str],
    *,
    blocklist: Blocklist | None = None,
    pictures: bool = True,
) -> Tool[..., Any]:
    """Return the tool read_file, which reads files below `root`. Options: see `fs.tools`.

    >>> read_file(".").name
    'read_file'
    """
    return _single("read_file", root, blocklist=blocklist, pictures=pictures)


def list_dir(
    root: Root | str | os.PathLike[str], *, blocklist: Blocklist | None = None
) -> Tool[..., Any]:
    """Return the tool list_dir, which lists folders below `root`. Options: see `fs.tools`."""
    return _single("list_dir", root, blocklist=blocklist)


def find_files(
    root: Root | str | os.PathLike[str], *, blocklist: Blocklist | None = None
) -> Tool[..., Any]:
    """Return the tool find_files, which finds files below `root`. Options: see `fs.tools`."""
    return _single("find_files", root, blocklist=blocklist)


def grep(
    root: Root | str | os.PathLike[str], *, blocklist: Blocklist | None = None
) -> Tool[..., Any]:
    """Return the tool grep, which searches files below `root`. Options: see `fs.tools`."""
    return _single("grep", root, blocklist=blocklist)


def write_file(
    root: Root | str | os.PathLike[str], *, blocklist: Blocklist | None = None
) -> Tool[..., Any]:
    """Return the tool write_file, which writes below `root`; each call asks for permission."""
    return _single("write_file", root, blocklist=blocklist)


def edit_file(
    root: Root | str | os.PathLike[str], *, blocklist: Blocklist | None = None
) -> Tool[..., Any]:
    """Return the tool edit_file, which edits below `root`; each call asks for permission."""
    return _single("edit_file", root, blocklist=blocklist)


def _single(name: str, root: Root | str | os.PathLike[str], **options: Any) -> Tool[..., Any]:
    made = tools(root, write=True, **options)
    return next(tool for tool in made if tool.name == name)
