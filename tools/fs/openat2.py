"""The kernel's own confined open (Linux 5.6 and newer), where it can be had."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import Any

NUMBER = 437  # the same on every architecture that Linux still gives numbers to
NO_MAGICLINKS = 0x02
BENEATH = 0x08


@cache
def available() -> bool:
    """Try it once: containers may forbid the call, and old kernels do not know it."""
    if not sys.platform.startswith("linux") or os.uname().machine not in ("x86_64", "aarch64"):
        return False
    fd = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        probe = beneath(fd, ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(fd)
    if probe is None:
        return False
    os.close(probe)
    return True


def beneath(root: int, path: str, flags: int) -> int | None:
    """Open a path that may not leave `root`; None where the kernel refused, for whatever reason."""
    call, struct = _libc()
    how = struct(flags, 0, BENEATH | NO_MAGICLINKS)
    fd = call(NUMBER, root, os.fsencode(path), how)
    return fd if fd >= 0 else None


@cache
def _libc() -> tuple[Any, Any]:
    import ctypes

    class OpenHow(ctypes.Structure):
        _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))

    libc = ctypes.CDLL(None, use_errno=True)
    size = ctypes.sizeof(OpenHow)

    def call(number: int, root: int, path: bytes, how: OpenHow) -> int:
        found: int = libc.syscall(
            ctypes.c_long(number), ctypes.c_int(root), ctypes.c_char_p(path), ctypes.byref(how), ctypes.c_size_t(size)
        )
        return found

    return call, OpenHow
