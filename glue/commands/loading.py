"""Finding the agent that a file defines."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

from glue.agent import Agent
from glue.errors import ConfigError


def load_agent(path: str) -> Agent[Any, Any]:
    """Run a file, not as a program, and give its agent: the one named `agent`, or the only one."""
    folder = str(Path(path).resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        names = runpy.run_path(path, run_name="glue_agent")
    except SyntaxError as error:
        raise ConfigError(f"{path}: line {error.lineno}: {error.msg}") from error
    found = {name: value for name, value in names.items() if isinstance(value, Agent)}
    if isinstance(found.get("agent"), Agent):
        return found["agent"]
    if len(found) == 1:
        return next(iter(found.values()))
    what = "no agent" if not found else f"several agents ({', '.join(sorted(found))})"
    raise ConfigError(f"{path} defines {what}; name the one to run `agent`")
