"""Start a child process that can read only certain folders and write to none, with Landlock.

Landlock is a part of the Linux kernel. Even if an attacker swaps a folder for a link while the
child runs, the child cannot follow the link elsewhere. On other systems, and on kernels without
Landlock, the child starts without it.
"""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
PATH_BENEATH = 1
PRCTL = {"x86_64": 157, "aarch64": 167}
NO_NEW_PRIVS = 38
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
# All rights of Landlock's first version: reading, executing, writing, creating and removing.
HANDLED = (1 << 13) - 1
# Folders of programs and their libraries.
SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/etc/ld.so.cache", "/nix/store")


@cache
def version() -> int:
    """Return the version of Landlock that the kernel has switched on, or 0 if it has none."""
    return max(syscall(CREATE_RULESET, None, 0, 1), 0) if is_known_linux() else 0


def has_landlock() -> bool:
    """Return whether the kernel supports Landlock and has it switched on."""
    return bool(version())


def make_ruleset(program: str, readable: Iterable[str | int]) -> int:
    """Return a descriptor of Landlock rules for `program`, or -1 if Landlock cannot be used.

    With these rules the program can read only its own folder, system folders and `readable`.

    Args:
        program: the program's absolute path.
        readable: paths or descriptors of the folders.

    Returns:
        A descriptor for `start_confined`, which the caller closes; -1 also if the program cannot
        start under such rules.
    """
    try:
        return _ruleset(program, readable) if has_landlock() and _can_start(program) else -1
    except OSError:
        return -1


def start_confined(
    rules: int, popen: Callable[[], subprocess.Popen[bytes]]
) -> subprocess.Popen[bytes]:
    """Call `popen` to start a process, and return the process; the Landlock rules confine it.

    `popen` is called in a new thread to which the rules apply, and the child inherits them. The
    other threads of this process are not confined.
    """

    def work() -> subprocess.Popen[bytes]:
        if syscall(PRCTL[os.uname().machine], NO_NEW_PRIVS, 1, 0, 0, 0) < 0:
            raise OSError("the kernel refused the setting no_new_privs")
        if syscall(RESTRICT_SELF, rules, 0) < 0:
            raise OSError("the kernel refused the Landlock rules")
        return popen()

    with ThreadPoolExecutor(1, "glue-landlock") as pool:
        return pool.submit(work).result()


@cache
def _can_start(program: str) -> bool:
    """Run a program with `--version` under Landlock rules, and return whether it succeeds.

    It may fail because the rules hide its libraries. For a program in a folder of the system,
    return True without running it.
    """
    if os.path.realpath(program).startswith(tuple(f"{folder}/" for folder in SYSTEM)):
        return True
    rules = _ruleset(program, ())
    quiet = subprocess.DEVNULL
    argv = [program, "--version"]
    try:
        child = start_confined(
            rules, lambda: subprocess.Popen(argv, stdin=quiet, stdout=quiet, stderr=quiet)
        )
        return child.wait(10) == 0
    except (OSError, subprocess.SubprocessError):
        return False
    finally:
        os.close(rules)


def _ruleset(program: str, readable: Iterable[str | int]) -> int:
    rules = syscall(CREATE_RULESET, struct.pack("=Q", HANDLED), 8, 0)
    if rules < 0:
        raise OSError("the kernel refused to make Landlock rules")
    prefix = os.path.dirname(os.path.dirname(os.path.realpath(program)))
    for name in (*SYSTEM, *([prefix] if prefix.count("/") > 1 else [])):
        _allow(rules, name, EXECUTE | READ_FILE | READ_DIR)
    _allow(rules, os.devnull, READ_FILE | WRITE_FILE)
    for each in readable:
        _allow(rules, each, READ_FILE | READ_DIR)
    return rules


def _allow(rules: int, path: str | int, access: int) -> None:
    if isinstance(path, int):
        syscall(ADD_RULE, rules, PATH_BENEATH, struct.pack("=Qi", access, path), 0)
        return
    with suppress(OSError):
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            _allow(rules, fd, access if os.path.isdir(path) else access & ~READ_DIR)
        finally:
            os.close(fd)


def is_known_linux() -> bool:
    """Return whether this is Linux on a processor whose system call numbers are known here."""
    return sys.platform.startswith("linux") and os.uname().machine in PRCTL


def syscall(number: int, *args: int | bytes | None) -> int:
    """Make a system call and return its result, which is below 0 if the kernel refuses."""
    words = [ctypes.c_long(each) if isinstance(each, int) else each for each in (number, *args)]
    found: int = ctypes.CDLL(None).syscall(*words)
    return found
