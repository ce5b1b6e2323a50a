"""Which git is run, and what it is told of the world: next to nothing."""

from __future__ import annotations

import os
import stat

from glue.errors import GitError

USUAL = ("/usr/local/bin", "/usr/bin", "/bin", "/opt/homebrew/bin")


def find_git(root: str = "") -> str:
    """Find git in absolute directories of PATH that do not lie below `root`, where anyone could have put one."""
    below = os.path.realpath(root).rstrip("/") + "/" if root else ""
    for folder in (*os.environ.get("PATH", "").split(os.pathsep), *USUAL):
        real = os.path.realpath(folder) if os.path.isabs(folder) else ""
        if not real or (below and (real + "/").startswith(below)):
            continue
        program = os.path.join(real, "git")
        try:
            found = os.stat(program)
        except OSError:
            continue
        inside = below and os.path.realpath(program).startswith(below)
        if stat.S_ISREG(found.st_mode) and os.access(program, os.X_OK) and not inside:
            return program
    raise GitError("git was not found; install it, or add its directory to PATH as an absolute path")


def environment(root: str, **more: str) -> dict[str, str]:
    """Build a child's environment from nothing; no variable of ours reaches git."""
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": "/nonexistent",
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "",
        "GIT_PROTOCOL_FROM_USER": "0",
        "GIT_ASKPASS": "/bin/false",
        "GIT_SSH_COMMAND": "/bin/false",
        "GIT_EDITOR": "/bin/false",
        "GIT_PAGER": "cat",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_CEILING_DIRECTORIES": os.path.dirname(os.path.abspath(root)) if root else "/",
        **more,
    }
