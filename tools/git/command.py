"""The git program, and the environment and limits with which every git command runs."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence

from glue.errors import GitError
from glue.text import one_line
from glue.tools.process import Finished

CAP = 512 * 1024  # bytes of output
SECONDS = 15.0
MEMORY = 320 * 1024 * 1024
USUAL = ("/usr/local/bin", "/usr/bin", "/bin", "/opt/homebrew/bin")
# git has one exit code for every failure, so only its message shows that memory ran out.
OUT_OF_MEMORY = re.compile(rb"out of memory|malloc failed|cannot allocate memory", re.IGNORECASE)
# The whole environment of git.
ENVIRONMENT = dict(
    entry.split("=")
    for entry in """
    PATH=/usr/bin:/bin HOME=/nonexistent LC_ALL=C
    GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
    GIT_ATTR_NOSYSTEM=1 GIT_TERMINAL_PROMPT=0 GIT_OPTIONAL_LOCKS=0 GIT_NO_REPLACE_OBJECTS=1
    GIT_NO_LAZY_FETCH=1 GIT_ALLOW_PROTOCOL= GIT_PROTOCOL_FROM_USER=0 GIT_ASKPASS=/bin/false
    GIT_SSH_COMMAND=/bin/false GIT_EDITOR=/bin/false GIT_PAGER=cat GIT_LITERAL_PATHSPECS=1
    """.split()
)
# The options of every diff: no external program, and a format that no configuration changes.
DIFF = tuple(
    """
    --no-ext-diff --no-textconv --no-color --src-prefix=a/ --dst-prefix=b/ --find-renames
    --submodule=short --ignore-submodules=dirty -O/dev/null
    """.split()
)


def find_git(root: str = "") -> str:
    """Return the absolute path of git; raise GitError if it is not installed.

    Folders below `root` are skipped, since the checkout could contain a program called git.
    """
    below = os.path.realpath(root).rstrip("/") + "/" if root else "\0"
    for folder in filter(os.path.isabs, (*os.environ.get("PATH", "").split(os.pathsep), *USUAL)):
        program = shutil.which("git", path=os.path.realpath(folder))
        if program is None:
            continue
        if not program.startswith(below) and not os.path.realpath(program).startswith(below):
            return program
    raise GitError(
        "git was not found; install it, or add its directory to PATH as an absolute path",
        kind="usage",
    )


def environment(root: str, **more: str) -> dict[str, str]:
    """Return the environment of a git command; nothing is inherited from this process."""
    above = os.path.dirname(os.path.abspath(root))
    return {**ENVIRONMENT, "GIT_CEILING_DIRECTORIES": above, **more}


def check_output(
    command: str, finished: Finished, *, cap: int, cut: bool = False, codes: Sequence[int] = (0,)
) -> bytes:
    """Return the output of a finished git command, or raise GitError if the command failed.

    Args:
        command: the name of the command, for messages.
        finished: the process that ended.
        cap: the limit on bytes of output, for messages.
        cut: if the output was cut at the limit, return it instead of raising an error.
        codes: exit codes that are not failures.
    """
    if finished.reason == "enough" or (finished.reason == "cap" and cut):
        return finished.out
    if finished.reason == "deadline":
        raise GitError(
            f"git {command} took too long and was stopped after {finished.seconds:.1f} s",
            kind="timeout",
        )
    if finished.reason == "cap":
        raise GitError(
            f"git {command} printed more than {cap} bytes and was stopped", kind="too_large"
        )
    if finished.reason or finished.code not in codes:
        is_memory = OUT_OF_MEMORY.search(finished.err) is not None
        message = one_line(finished.err.decode("utf-8", "replace"), 300)
        reason = finished.reason or message or f"exit code {finished.code}"
        raise GitError(f"git {command} failed: {reason}", kind="memory" if is_memory else "failed")
    return finished.out
