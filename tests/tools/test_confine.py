"""Tests of the program that confines its process; test_sandbox.py tests it with attacks."""

from __future__ import annotations

import json
import struct
import subprocess
import sys

import pytest

from glue.tools.confine import ALLOW, OLDEST, REFUSE, make_filter, version
from glue.tools.sandbox import LAUNCHER, PACKAGE

START = [sys.executable, "-I", "-S", "-c", LAUNCHER, PACKAGE]
needs_landlock = pytest.mark.skipif(version() < OLDEST, reason="needs Landlock of Linux 6.2")


def judge(program: bytes, arch: int, number: int, *args: int) -> bool:
    """Run a filter as the kernel does, and return whether it allows a system call."""
    call = struct.pack("=IIQ6Q", number, arch, 0, *args, *[0] * (6 - len(args)))
    steps = list(struct.iter_unpack("=HBBI", program))
    at = held = 0
    while True:
        code, yes, no, value = steps[at]
        at += 1
        if code == 0x20:
            held = struct.unpack_from("=I", call, value)[0]
        elif code == 0x54:
            held &= value
        elif code == 0x06:
            assert value in (ALLOW, REFUSE)
            return bool(value == ALLOW)
        else:
            at += yes if (held == value if code == 0x15 else held >= value) else no


@pytest.mark.parametrize(
    ("number", "args", "without", "with_network"),
    [
        (0, (), True, True),  # read
        (41, (1, 1), False, False),  # socket, local
        (41, (2, 1), False, True),  # socket, IPv4
        (41, (10, 2), False, True),  # socket, IPv6, datagrams
        (41, (16, 3), False, True),  # socket, netlink
        (41, (17, 3), False, False),  # socket, raw packets
        (41, (40, 1), False, False),  # socket to the hypervisor
        (53, (1, 1), True, True),  # socketpair
        (53, (1, 2), False, False),  # socketpair of datagrams
        (53, (1, 2 | 0o2000000), False, False),  # the same, closed on exec
        (425, (), False, False),  # io_uring_setup
        (0x40000000 + 41, (2, 1), False, False),  # socket by its x32 number
    ],
)
def test_the_filter_refuses_sockets(
    number: int, args: tuple[int, ...], without: bool, with_network: bool
) -> None:
    x86_64 = 0xC000003E

    none, internet = (make_filter("x86_64", sockets=each) for each in ("none", "internet"))
    assert judge(none, x86_64, number, *args) is without
    assert judge(internet, x86_64, number, *args) is with_network


@pytest.mark.parametrize(
    ("number", "usual", "strict"),
    [
        (41, True, True),  # socket
        (53, True, True),  # socketpair
        (90, True, False),  # chmod
        (280, True, False),  # utimensat
        (188, True, False),  # setxattr
        (250, False, False),  # keyctl
        (29, False, False),  # shmget
        (2, True, True),  # open
    ],
)
def test_the_filter_refuses_keys_shared_memory_and_if_wanted_metadata(
    number: int, usual: bool, strict: bool
) -> None:
    x86_64 = 0xC000003E

    assert judge(make_filter("x86_64", sockets="all"), x86_64, number, 1, 2) is usual
    changed = make_filter("x86_64", sockets="all", metadata=False)
    assert judge(changed, x86_64, number, 1, 2) is strict


def test_the_filter_refuses_system_calls_of_other_architectures() -> None:
    assert not judge(make_filter("x86_64", sockets="all"), 0x40000003, 0)
    assert not judge(make_filter("aarch64", sockets="internet"), 0xC000003E, 0)
    assert judge(make_filter("aarch64", sockets="none"), 0xC00000B7, 63)
    assert not judge(make_filter("aarch64", sockets="none"), 0xC00000B7, 198, 2)


@needs_landlock
def test_a_program_that_does_not_exist_is_named() -> None:
    plan = json.dumps({"read": ["/"], "write": [], "list": [], "network": False, "metadata": True})

    done = subprocess.run(
        [*START, plan, "no-such-program"], capture_output=True, text=True, timeout=30, check=False
    )

    assert (done.returncode, done.stderr) == (1, "no-such-program: No such file or directory\n")


@needs_landlock
def test_a_confined_process_has_no_capabilities() -> None:
    plan = json.dumps({"read": ["/"], "write": [], "list": [], "network": False, "metadata": True})

    done = subprocess.run(
        [*START, plan, "grep", "Cap\\|NoNewPrivs\\|Seccomp:", "/proc/self/status"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    lines = dict(line.split(":\t") for line in done.stdout.splitlines())
    for name in ("CapPrm", "CapEff", "CapInh", "CapAmb"):
        assert lines[name] == "0" * 16
    assert lines["NoNewPrivs"] == "1"
    assert lines["Seccomp"] == "2"
