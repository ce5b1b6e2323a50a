"""A program that confines its process with Landlock and seccomp, then executes a command.

`glue.tools.sandbox` starts it as `python -c PROGRAM PLAN ARGV...`. It runs in a process of its own,
because no step can be undone: dropping capabilities, Landlock rules, a filter of system calls.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import struct
import sys
from contextlib import suppress
from typing import Any

from glue.tools.landlock import (
    ADD_RULE,
    CREATE_RULESET,
    NO_NEW_PRIVS,
    PATH_BENEATH,
    PRCTL,
    RESTRICT_SELF,
    syscall,
    version,
)

OLDEST = 3  # the first version of Landlock that knows truncation (Linux 6.2)
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
READ = EXECUTE | READ_FILE | READ_DIR
FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV  # rights that fit a file
SCOPES = 3  # abstract sockets and signals stay inside (version 6)
CAPBSET_DROP, SECCOMP, FILTER = 24, 22, 2
CAPSET = {"x86_64": 126, "aarch64": 91}
CAPABILITIES_VERSION = 0x20080522
# The numbers of system calls, and the architecture as seccomp names it.
SOCKET = {"x86_64": 41, "aarch64": 198}
SOCKETPAIR = {"x86_64": 53, "aarch64": 199}
IO_URING_SETUP = 425  # io_uring can make sockets, unseen by the filter
# Keys of the kernel, and memory and queues that are shared with other programs of the user.
SHARED = {
    "x86_64": (248, 249, 250, 29, 64, 68, 240),
    "aarch64": (217, 218, 219, 194, 190, 186, 180),
}
# Modes, times and extended attributes of files, which Landlock does not restrict.
METADATA = {
    "x86_64": (90, 91, 268, 452, 132, 235, 261, 280, 188, 189, 190, 197, 198, 199, 463, 466),
    "aarch64": (52, 53, 452, 88, 5, 6, 7, 14, 15, 16, 463, 466),
}
ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
X32 = 0x40000000
INET, INET6, NETLINK, DGRAM = 2, 10, 16, 2
LOAD, EQUAL, AT_LEAST, AND, RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
NUMBER, ARCH, FIRST, SECOND = 0, 4, 16, 24  # offsets in the data of a system call


def main() -> None:
    """Confine this process by the JSON plan in its first argument; execute the other arguments."""
    plan, argv = json.loads(sys.argv[1]), sys.argv[2:]
    try:
        confine(plan)
    except OSError as error:
        sys.exit(f"the sandbox could not be set up: {error}")
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        sys.exit(f"{argv[0]}: {error.strerror}")


def confine(plan: dict[str, Any]) -> None:
    """Remove the rights of this process to files and network, except those that `plan` names.

    Drop all capabilities too. Raise OSError if the kernel refuses a step. The plan has the folders
    to `read` and to `write`, folders to `list`, whether to use the `network`, and whether to change
    the `metadata` of files.
    """
    machine = os.uname().machine
    _drop_capabilities(machine)
    _check(syscall(PRCTL[machine], NO_NEW_PRIVS, 1, 0, 0, 0), "the setting no_new_privs")
    _restrict_files(plan)
    sockets = "internet" if plan["network"] else "none"
    _install_filter(machine, make_filter(machine, sockets=sockets, metadata=plan["metadata"]))


def _drop_capabilities(machine: str) -> None:
    """Drop every capability of the process, even as root, so that Landlock's ptrace rules apply."""
    for capability in range(64):
        syscall(PRCTL[machine], CAPBSET_DROP, capability, 0, 0, 0)
    header = struct.pack("=Ii", CAPABILITIES_VERSION, 0)
    _check(syscall(CAPSET[machine], header, bytes(24)), "dropping capabilities")


def _restrict_files(plan: dict[str, Any]) -> None:
    found = version()
    if not found:
        raise OSError("the kernel does not support Landlock, or it is switched off")
    if found < OLDEST:
        raise OSError(
            f"the kernel has version {found} of Landlock; version {OLDEST} or later is needed "
            "(Linux 6.2)"
        )
    write = (1 << (16 if found >= 5 else 15)) - 1  # all rights that this version knows
    attributes = struct.pack("=QQQ", write, 0, SCOPES if found >= 6 else 0)
    size = 24 if found >= 6 else 16 if found >= 4 else 8
    rules = _check(syscall(CREATE_RULESET, attributes[:size], size, 0), "Landlock rules")
    for rights, key in ((READ, "read"), (write, "write"), (READ_DIR, "list")):
        for path in plan[key]:
            _allow(rules, path, rights)
    _check(syscall(RESTRICT_SELF, rules, 0), "Landlock")
    os.close(rules)


def _allow(rules: int, path: str, rights: int) -> None:
    with suppress(OSError):  # a path that does not exist, or that may not be opened, is left out
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            mask = rights if os.path.isdir(path) else rights & FILE_RIGHTS
            rule = struct.pack("=Qi", mask, fd)
            _check(syscall(ADD_RULE, rules, PATH_BENEATH, rule, 0), "a Landlock rule")
        finally:
            os.close(fd)


def make_filter(machine: str, *, sockets: str, metadata: bool = True) -> bytes:
    """Return the seccomp program that refuses system calls that can bypass the sandbox.

    It refuses io_uring, the kernel's keys, and memory and queues shared with other programs.

    Args:
        machine: the processor, as `os.uname` names it.
        sockets: "none", "internet", or "all". A pair of connected sockets is allowed, but not a
            pair of datagram sockets, which can send to other processes.
        metadata: whether modes, times and extended attributes of files may be changed.
    """
    refused = [IO_URING_SETUP, *SHARED[machine], *(() if metadata else METADATA[machine])]
    steps: list[tuple[int, int, str, str]] = [  # code, value, label if true, label if false
        (LOAD, ARCH, "", ""),
        (EQUAL, ARCHITECTURE[machine], "", "refuse"),
        (LOAD, NUMBER, "", ""),
        (AT_LEAST, X32, "refuse", ""),
        *((EQUAL, number, "refuse", "") for number in refused),
    ]
    if sockets != "all":
        steps.append((EQUAL, SOCKETPAIR[machine], "pair", ""))
        steps.append((EQUAL, SOCKET[machine], "socket" if sockets == "internet" else "refuse", ""))
    steps.append((RETURN, ALLOW, "", ""))
    labels = {"socket": len(steps)}
    steps.append((LOAD, FIRST, "", ""))
    steps += [(EQUAL, family, "allow", "") for family in (INET, INET6)]
    steps.append((EQUAL, NETLINK, "allow", "refuse"))
    labels["pair"] = len(steps)
    steps += [(LOAD, SECOND, "", ""), (AND, 0xF, "", ""), (EQUAL, DGRAM, "refuse", "allow")]
    labels |= {"allow": len(steps), "refuse": len(steps) + 1}
    steps += [(RETURN, ALLOW, "", ""), (RETURN, REFUSE, "", "")]
    program = b""
    for at, (code, value, yes, no) in enumerate(steps):
        jumps = [labels[label] - at - 1 if label else 0 for label in (yes, no)]
        program += struct.pack("=HBBI", code, *jumps, value)
    return program


def _install_filter(machine: str, program: bytes) -> None:
    held = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("@HP", len(program) // 8, ctypes.addressof(held))
    _check(syscall(PRCTL[machine], SECCOMP, FILTER, head), "seccomp")


def _check(result: int, step: str) -> int:
    if result < 0:
        raise OSError(f"the kernel refused {step}")
    return result
