"""Bundles of built-in tools, such as fs, git and coding, which the option `--tools` names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

from glue.context import AnyTool
from glue.errors import ConfigError
from glue.project import find_checkout

BUNDLES = {
    "fs": "read and search files below this folder",
    "edit": "read, search and write files below this folder (asks for permission)",
    "git": "read the history of this checkout",
    "shell": "run commands, in a sandbox if one works (asks for permission)",
    "web": "read web pages (asks for permission); search the web if the provider can",
    "coding": "all tools of edit, and all tools of git if this folder is a git checkout",
}


_MODULES = {"edit": "fs", "web": "fetch"}  # bundles whose module has another name
_ARGUMENTS: dict[str, tuple[Any, ...]] = {"edit": (".", True), "web": ()}


def check_bundles(names: Iterable[str], own: Iterable[str] = ()) -> list[str]:
    """Return bundle names in lower case; raise ConfigError for a name that is not a bundle.

    The error lists the bundles and the names in `own`, the tools of the agent.
    """
    names = [name.strip().lower() for name in names]
    for name in names:
        if name not in BUNDLES:
            valid = ", ".join((*own, *BUNDLES))
            raise ConfigError(f"unknown tools {name!r}; choose from: {valid}")
    return names


def make_tools(
    names: Iterable[str], own: Iterable[str] = (), shell: Mapping[str, Any] | None = None
) -> list[AnyTool]:
    """Return the tools of several bundles for the current folder, each tool once.

    The git tools work on the checkout that contains the folder.

    Args:
        names: the names of the bundles.
        own: the names of the agent's own tools, for the error about an unknown name.
        shell: options of the shell tool.
    """
    found: dict[str, Any] = {}
    for name in check_bundles(names, own):
        module = import_module(f"glue.tools.{_MODULES.get(name, name)}")
        above = find_checkout() if name == "git" and not os.path.lexists(".git") else None
        arguments = _ARGUMENTS.get(name, (str(above or "."),))
        options = shell or {} if name == "shell" else {}
        try:
            tools = module.tools(*arguments, **options)
        except ValueError as error:  # the current folder cannot be read
            raise ConfigError(f"the {name} tools: {error}") from None
        for tool in tools:
            found.setdefault(tool.spec.name, tool)
    return list(found.values())
