"""Ready-made tools by name, as `--tools` takes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from glue.context import AnyTool
from glue.errors import ConfigError

BUNDLES = {
    "fs": "read and search files below this folder",
    "edit": "fs, and write files, each with permission",
    "git": "read the history of this checkout",
    "shell": "run commands, each with permission",
    "coding": "edit, and git where there is a checkout",
}


def make_tools(names: Iterable[str], root: str = ".") -> list[AnyTool]:
    """Make the tools of several bundles; one that two of them hold comes once."""
    found: dict[str, Any] = {}
    for name in names:
        for tool in _bundle(name.strip().lower(), root):
            found.setdefault(tool.spec.name, tool)
    return list(found.values())


def split(names: str | Iterable[str]) -> tuple[str, ...]:
    """Part a comma list; a tuple stays one."""
    parts = names.split(",") if isinstance(names, str) else names
    return tuple(part.strip() for part in parts if part.strip())


def _bundle(name: str, root: str) -> list[Any]:
    if name not in BUNDLES:
        raise ConfigError(f"there are no tools {name!r}; there are: {', '.join(BUNDLES)}")
    if name in ("fs", "edit"):
        from glue.tools import fs

        return fs.tools(root, write=name == "edit")
    if name == "git":
        from glue.tools import git

        try:
            return git.tools(root)
        except ValueError as error:
            raise ConfigError(f"the tools of git: {error}") from None
    if name == "shell":
        from glue.tools.shell import tool

        return [tool(root)]
    from glue.tools import coding

    return coding.tools(root)
