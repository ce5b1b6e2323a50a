"""Run commands: off unless it is asked for, and only with permission.

A permission gate is not a sandbox. A command that was allowed can do all that the user can do; where `bwrap`
is installed, the runner `bubblewrap` confines it to the project, without network.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from glue.errors import ConfigError, ToolError
from glue.function.decorator import Tool
from glue.function.decorator import tool as make
from glue.function.spool import cap

SECONDS = 120.0
KEPT = 8 * 1024 * 1024  # of output, for the spool
KILLED = 64 * 1024 * 1024  # of output, after which a command is stopped
SHOWN = 30_000  # characters of head and tail
MAX_COMMAND = 64 * 1024
# All that a command sees of our environment: nothing that is a key, and nothing that changes what programs load.
PASSED = ("HOME", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LOGNAME", "SHELL", "TMPDIR", "TZ", "USER")

Runner = Callable[[Sequence[str], str], list[str]]


def tool(
    root: str | os.PathLike[str] = ".",
    *,
    timeout: float = SECONDS,
    env: Mapping[str, str] | None = None,
    runner: Runner | None = None,
    name: str = "shell",
) -> Tool[..., Any]:
    """Make the tool that runs commands in `root`; each one is put to the permission policy, word for word.

    `env` adds variables to the few that are passed on. `runner` wraps the argument list, as `bubblewrap` does.
    """
    if not 0 < timeout < float("inf"):
        raise ValueError(f"timeout must be a number of seconds above 0, not {timeout!r}")
    home = os.path.realpath(root)
    if not os.path.isdir(home):
        raise ValueError(f"root {os.fspath(root)!r} is not a directory")
    known = {**environment(), **(env or {})}

    async def shell(command: str | list[str]) -> str:
        """Run a command in the project's directory and give its exit code and what it printed.

        Prefer the file tools for reading and searching. Commands run without a terminal and without input,
        and are stopped when they take too long.

        Args:
            command: a shell command line, or a list of a program and its arguments
        """
        from glue.tools.process import in_thread

        argv = _argv(command)
        wrapped = runner(argv, home) if runner is not None else argv
        return await in_thread(lambda stop: _run(wrapped, known, home, timeout, stop))

    made = make(
        name=name, needs_permission=name, target=lambda given: verbatim(given["command"]), alone=True, max_output=None
    )(shell)
    made.root = home
    return made


def environment() -> dict[str, str]:
    """Pick the variables that a command may see."""
    kept = {key: os.environ[key] for key in PASSED if key in os.environ}
    folders = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if os.path.isabs(folder)]
    return {**kept, "PATH": os.pathsep.join(folders) or "/usr/bin:/bin", "TERM": "dumb", "NO_COLOR": "1"}


def verbatim(command: str | Sequence[str]) -> str:
    """Write a command as it will run; escaped, and marked so, where characters would hide something.

    No two command lines are written alike, so that a decision that is remembered holds for this one only.
    """
    text = command if isinstance(command, str) else shlex.join(command)
    if text.isprintable() and not text.startswith("escaped: "):
        return text
    return "escaped: " + json.dumps(text)


def bubblewrap(argv: Sequence[str], root: str) -> list[str]:
    """Wrap a command so that it sees the system read-only, writes to the project alone and has no network."""
    program = shutil.which("bwrap", path="/usr/local/bin:/usr/bin:/bin")
    if program is None:
        raise ConfigError("bwrap is not installed; install bubblewrap, or run without this runner")
    options = [program, "--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/", "/"]
    options += ["--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--tmpfs", "/home", "--tmpfs", "/root"]
    options += ["--bind", root, root]
    git = os.path.join(root, ".git")
    if os.path.lexists(git):
        options += ["--ro-bind", git, git]
    return [*options, "--chdir", root, "--", *argv]


def _argv(command: str | list[str]) -> list[str]:
    size = len(command) if isinstance(command, str) else sum(len(part) + 1 for part in command)
    if not command or (isinstance(command, list) and not command[0]):
        raise ToolError("the command is empty")
    if size > MAX_COMMAND or any("\0" in part for part in ([command] if isinstance(command, str) else command)):
        raise ToolError(f"a command is at most {MAX_COMMAND} characters long and holds no NUL")
    if isinstance(command, list):
        return command
    shell = "/bin/bash" if os.access("/bin/bash", os.X_OK) else "/bin/sh"
    return [shell, "-c", command]


def _run(argv: Sequence[str], env: Mapping[str, str], home: str, timeout: float, stop: Any) -> str:
    from glue.tools.process import run

    kept, tail = bytearray(), bytearray()
    seen = 0

    def listen(block: bytes) -> bool:
        nonlocal seen
        seen += len(block)
        room = max(KEPT - len(kept), 0)
        kept.extend(block[:room])
        tail.extend(block[room:])
        del tail[: max(len(tail) - SHOWN, 0)]
        return seen < KILLED

    try:
        done = run(argv, env=env, cwd=home, deadline=timeout, cap=0, both=listen, stop=stop, polite=True)
    except (OSError, UnicodeEncodeError) as error:
        raise ToolError(f"the command could not be started: {getattr(error, 'strerror', '') or error}") from None
    lost = seen - len(kept) - len(tail)
    kept += (f"\n[{lost} bytes were not kept]\n".encode() if lost else b"") + tail
    text = cap(kept.decode("utf-8", "replace"), SHOWN)
    notes = [f"exit code {done.code}"]
    if done.reason == "deadline":
        notes = [f"stopped after {timeout:g} s; what it printed until then is above"]
    elif done.reason == "enough":
        notes = [f"stopped: it printed more than {KILLED} bytes"]
    elif done.code < 0:
        notes = [f"ended by signal {-done.code}"]
    separator = "" if not text or text.endswith("\n") else "\n"
    return f"{text}{separator}[{'; '.join(notes)}]"
