"""File tools that are safe against a hostile model: no path leads outside the root.

from glue.tools import fs

agent = glue.Agent("openai", tools=fs.tools("."))  # read, list, find, search
agent = glue.Agent("openai", tools=[fs.read_file("."), fs.grep(".")])  # single tools
agent = glue.Agent("openai", tools=fs.tools(".", write=True), permission=glue.Ask(ask))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from glue.lazy import lazy_names
from glue.tools.fs.patterns import Blocklist
from glue.tools.fs.root import Root, truncate

if TYPE_CHECKING:
    from glue.tools.fs.functions import tools
    from glue.tools.fs.paths import path_target, relative_path, safe_join, safe_open
    from glue.tools.fs.single import edit_file, find_files, grep, list_dir, read_file, write_file

__all__ = [
    "Blocklist",
    "Root",
    "edit_file",
    "find_files",
    "grep",
    "list_dir",
    "path_target",
    "read_file",
    "relative_path",
    "safe_join",
    "safe_open",
    "tools",
    "truncate",
    "write_file",
]

# Loaded at first use: the grep worker is a process that imports this package and must start fast.
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "functions": "tools",
        "paths": "path_target relative_path safe_join safe_open",
        "single": "edit_file find_files grep list_dir read_file write_file",
    },
)
