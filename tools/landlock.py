"""Confine a child process to reading some folders, with Linux's Landlock: links that are swapped in lead nowhere."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
PATH_BENEATH = 1
NO_NEW_PRIVS = 38
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
HANDLED = (1 << 13) - 1  # what the first version knows: reading, running, writing, making and removing of all kinds
# Where programs and their libraries are.
SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/etc/ld.so.cache", "/nix/store")


class _Ruleset(ctypes.Structure):
    _fields_ = (("handled_access_fs", ctypes.c_uint64),)


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


@cache
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


@cache
def available() -> bool:
    """Say whether the kernel has it switched on."""
    if not sys.platform.startswith("linux") or os.uname().machine not in ("x86_64", "aarch64"):
        return False
    return int(_libc().syscall(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))) >= 1


def ruleset(program: str, readable: Iterable[int]) -> int:
    """Make rules by which `program` runs and reads what lies in some opened folders; -1 where there is no Landlock."""
    return _ruleset(program, readable) if available() and _starts(program) else -1


@cache
def _starts(program: str) -> bool:
    """Try a program that is not the system's own: its libraries may lie where it could not read them."""
    if os.path.realpath(program).startswith(tuple(f"{folder}/" for folder in SYSTEM)):
        return True
    rules = _ruleset(program, ())
    if rules < 0:
        return False
    quiet = subprocess.DEVNULL
    try:
        child = popen(rules, lambda: subprocess.Popen([program, "--version"], stdin=quiet, stdout=quiet, stderr=quiet))
        return child.wait(10) == 0
    except (OSError, subprocess.SubprocessError):
        return False
    finally:
        os.close(rules)


def _ruleset(program: str, readable: Iterable[int]) -> int:
    attribute = _Ruleset(HANDLED)
    size = ctypes.c_size_t(ctypes.sizeof(attribute))
    rules = int(_libc().syscall(CREATE_RULESET, ctypes.byref(attribute), size, ctypes.c_uint32(0)))
    if rules < 0:
        return -1
    os.set_inheritable(rules, False)
    prefix = os.path.dirname(os.path.dirname(os.path.realpath(program)))
    for name in (*SYSTEM, *([prefix] if prefix.count("/") > 1 else [])):
        _allow_path(rules, name, EXECUTE | READ_FILE | READ_DIR)
    _allow_path(rules, os.devnull, READ_FILE | WRITE_FILE)
    for fd in readable:
        _allow(rules, fd, READ_FILE | READ_DIR)
    return rules


def _allow_path(rules: int, path: str, access: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        _allow(rules, fd, access if os.path.isdir(path) else access & ~READ_DIR)
    finally:
        os.close(fd)


def _allow(rules: int, fd: int, access: int) -> None:
    beneath = _Beneath(access, fd)
    _libc().syscall(ADD_RULE, rules, PATH_BENEATH, ctypes.byref(beneath), ctypes.c_uint32(0))


def popen(rules: int, start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    """Start a process under rules: they bind a thread of its own, and what that thread starts."""
    made: list[subprocess.Popen[bytes] | BaseException] = []

    def work() -> None:
        try:
            zero = ctypes.c_ulong(0)
            if _libc().prctl(NO_NEW_PRIVS, ctypes.c_ulong(1), zero, zero, zero):
                raise OSError(ctypes.get_errno(), "no_new_privs was refused")
            if _libc().syscall(RESTRICT_SELF, rules, ctypes.c_uint32(0)):
                raise OSError(ctypes.get_errno(), "Landlock was refused")
            made.append(start())
        except BaseException as error:
            made.append(error)

    thread = threading.Thread(target=work, name="glue-landlock")
    thread.start()
    thread.join()
    if isinstance(made[0], BaseException):
        raise made[0]
    return made[0]
