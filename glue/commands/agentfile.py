"""Opening a file that somebody else wrote: what goes wrong in it is said in one line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

from glue.errors import ConfigError, GlueError

if TYPE_CHECKING:
    from glue.agent import Agent


def open_agent(path: str) -> Agent[Any, Any]:
    """Run a file, not as a program, and give its agent; ConfigError where it cannot be had."""
    from glue.commands.loading import load_agent

    if not os.path.isfile(path):
        raise ConfigError(f"there is no file {path}; `glue new {os.path.basename(path)}` writes one")
    with _told(path):
        return load_agent(path)


def run_file(name: str) -> ModuleType:
    """Import a module by its dotted name, or run a file."""
    from glue.tools.check import load

    with _told(name):
        return load(name)


@contextmanager
def _told(path: str) -> Iterator[None]:
    try:
        yield
    except GlueError:
        raise
    except ModuleNotFoundError as error:
        if os.environ.get("GLUE_DEBUG"):
            raise
        hint = f"`uv run {path}` installs what its header names"
        raise ConfigError(f"{path} needs {error.name!r}, which is not installed; {hint}") from error
    except Exception as error:
        if os.environ.get("GLUE_DEBUG"):
            raise
        told = f"{path}{_line(error, path)}: {type(error).__name__}: {error}"
        raise ConfigError(f"{told}; GLUE_DEBUG=1 shows where") from error


def _line(error: Exception, path: str) -> str:
    """Say which line of the file it was, the last one that the error came through."""
    where = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            where = f", line {trace.tb_lineno}"
        trace = trace.tb_next
    return where
