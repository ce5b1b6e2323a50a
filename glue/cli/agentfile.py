"""Agent files: run a Python file and return the agent that it defines."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import Any

from glue.agent import Agent
from glue.errors import ConfigError, GlueError


def open_agent(path: str) -> Agent[Any, Any]:
    """Run an agent file and return the agent that it assigns to `agent`, or its only agent."""
    return find_agent(run_agent_file(path), path)


def run_agent_file(path: str) -> ModuleType:
    """Run an agent file and return its module; raise ConfigError if it is missing or fails."""
    if os.path.isdir(path):
        raise ConfigError(f"{path} is a folder; give an agent file, such as {path}/agent.py")
    if not os.path.isfile(path):
        raise ConfigError(f"the file {path} does not exist; `glue new {path}` writes an agent file")
    return run_file(path)


def find_agent(module: ModuleType, path: str) -> Agent[Any, Any]:
    """Return the agent of a module: the variable `agent`, or the only agent in the module.

    Raise ConfigError if the module defines no agent, or several of which none is named `agent`.
    """
    found = {name: value for name, value in vars(module).items() if isinstance(value, Agent)}
    if "agent" in found:
        return found["agent"]
    if len(found) == 1:
        return next(iter(found.values()))
    if not found:
        raise ConfigError(f"{path} defines no agent; assign one to the variable `agent`")
    names = ", ".join(sorted(found))
    raise ConfigError(f"{path} defines several agents ({names}); rename one of them to `agent`")


def import_file(name: str) -> ModuleType:
    """Import a module by its dotted name, or run a .py file, and return the module.

    Raise ConfigError if the module or the file does not exist, or if its code fails.
    """
    if name.endswith(".py") or "/" in name:
        if not os.path.isfile(name):
            raise ConfigError(f"the file {name} does not exist; give a .py file or a dotted name")
        return run_file(name)
    if not all(map(str.isidentifier, name.split("."))):
        raise ConfigError(f"{name!r} is not the name of a module; give a dotted name or a .py file")
    with user_errors(name):
        try:
            return import_module(name)
        except ModuleNotFoundError as error:
            if not f"{name}.".startswith(f"{error.name}."):  # the module itself was found
                raise
            raise ConfigError(
                f"cannot import {name}: {error}; give a dotted name or a .py file"
            ) from None


def run_file(path: str) -> ModuleType:
    """Run a Python file as a module whose name is not `__main__`, and return the module.

    The file can import modules from its own folder.
    """
    folder = str(Path(path).resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module = ModuleType("glue_agent")  # a name that shadows no other module
    with user_errors(path):
        vars(module).update(runpy.run_path(path, run_name=module.__name__))
    return module


@contextmanager
def user_errors(path: str) -> Iterator[None]:
    """Raise ConfigError if the code of a user's file fails during a `with` block.

    The message is one line that names the file, the line if it is known, and the exception. A
    GlueError is raised unchanged. If GLUE_DEBUG is set, every exception is raised unchanged.
    """
    try:
        yield
    except GlueError:
        raise
    except Exception as error:
        if os.environ.get("GLUE_DEBUG"):
            raise
        if isinstance(error, ModuleNotFoundError):
            hint = "install the package that contains it"
            if path.endswith(".py"):
                hint = f"`uv run {path}` installs the dependencies of its header"
            raise ConfigError(
                f"{path} needs {error.name!r}, which is not installed; {hint}"
            ) from error
        if isinstance(error, SyntaxError):
            number = f", line {error.lineno}" if error.lineno else ""
            raise ConfigError(
                f"{os.path.relpath(error.filename or path)}{number}: {error.msg}"
            ) from error
        where = ""
        for frame, line in walk_tb(error.__traceback__):
            if frame.f_code.co_filename == path:
                where = f" in line {line}"  # the last line of this file in the traceback
        raise ConfigError(
            f"{path} fails{where}: {type(error).__name__}: {error}; "
            "GLUE_DEBUG=1 shows the traceback"
        ) from error
