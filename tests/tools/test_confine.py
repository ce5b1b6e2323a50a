"""Tests of the program that confines its process; test_sandbox.py tests it with attacks."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys

import pytest

from glue.tools import confine
from glue.tools.confine import ALLOW, OLDEST, REFUSE, make_filter
from glue.tools.landlock import version
from glue.tools.sandbox import LAUNCHER, PACKAGE

START = [sys.executable, "-I", "-S", "-c", LAUNCHER, PACKAGE]
needs_landlock = pytest.mark.skipif(version() < OLDEST, reason="needs Landlock of Linux 6.2")


def test_the_numbers_are_those_of_the_headers_of_linux() -> None:
    rights = (confine.EXECUTE, confine.WRITE_FILE, confine.READ_FILE, confine.READ_DIR)
    later = (confine.REFER, confine.TRUNCATE, confine.IOCTL_DEV)

    assert rights == (1 << 0, 1 << 1, 1 << 2, 1 << 3)
    assert later == (1 << 13, 1 << 14, 1 << 15)
    assert confine.READ == 0b1101
    assert confine.FILE_RIGHTS == 0b1100_0000_0000_0111
    assert confine.OLDEST == 3  # the first version that knows truncation
    assert confine.SCOPES == 0b11  # abstract sockets and signals
    assert (confine.CAPBSET_DROP, confine.SECCOMP, confine.FILTER) == (24, 22, 2)
    assert confine.CAPSET == {"x86_64": 126, "aarch64": 91}
    assert confine.CAPABILITIES_VERSION == 0x20080522


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


# The numbers of system calls in the tables of Linux.
METADATA = {
    "x86_64": {
        "chmod": 90,
        "fchmod": 91,
        "fchmodat": 268,
        "fchmodat2": 452,
        "utime": 132,
        "utimes": 235,
        "futimesat": 261,
        "utimensat": 280,
        "setxattr": 188,
        "lsetxattr": 189,
        "fsetxattr": 190,
        "removexattr": 197,
        "lremovexattr": 198,
        "fremovexattr": 199,
        "setxattrat": 463,
        "removexattrat": 466,
    },
    "aarch64": {
        "fchmod": 52,
        "fchmodat": 53,
        "fchmodat2": 452,
        "utimensat": 88,
        "setxattr": 5,
        "lsetxattr": 6,
        "fsetxattr": 7,
        "removexattr": 14,
        "lremovexattr": 15,
        "fremovexattr": 16,
        "setxattrat": 463,
        "removexattrat": 466,
    },
}
ALWAYS_REFUSED = {
    "x86_64": {
        "io_uring_setup": 425,
        "add_key": 248,
        "request_key": 249,
        "keyctl": 250,
        "shmget": 29,
        "semget": 64,
        "msgget": 68,
        "mq_open": 240,
    },
    "aarch64": {
        "io_uring_setup": 425,
        "add_key": 217,
        "request_key": 218,
        "keyctl": 219,
        "shmget": 194,
        "semget": 190,
        "msgget": 186,
        "mq_open": 180,
    },
}
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
SOCKET = {"x86_64": 41, "aarch64": 198}
SOCKETPAIR = {"x86_64": 53, "aarch64": 199}


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("sockets", ["none", "internet", "all"])
def test_the_filter_refuses_exactly_the_system_calls_that_lead_out(
    machine: str, sockets: str
) -> None:
    for metadata in (True, False):
        program = make_filter(machine, sockets=sockets, metadata=metadata)
        refused = {number for number in range(500) if not judge(program, AUDIT[machine], number)}

        expected = set(ALWAYS_REFUSED[machine].values())
        expected |= set() if metadata else set(METADATA[machine].values())
        expected |= set() if sockets == "all" else {SOCKET[machine]}  # of the family 0
        assert refused == expected


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_allows_sockets_by_their_family_and_kind(machine: str) -> None:
    arch, socket, pair = AUDIT[machine], SOCKET[machine], SOCKETPAIR[machine]
    internet = make_filter(machine, sockets="internet")
    everything = make_filter(machine, sockets="all")

    assert [family for family in range(50) if judge(internet, arch, socket, family, 1)] == [
        2,  # IPv4
        10,  # IPv6
        16,  # netlink
    ]
    assert all(judge(everything, arch, socket, family, 1) for family in range(50))
    # A pair of datagram sockets (kind 2) is refused, also with flags in the upper bits.
    kinds = [kind | flags for kind in range(16) for flags in (0, 0o4000, 0o2000000)]
    assert [kind for kind in kinds if not judge(internet, arch, pair, 1, kind)] == [
        2,
        2 | 0o4000,
        2 | 0o2000000,
    ]
    assert all(judge(everything, arch, pair, 1, kind) for kind in kinds)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_refuses_numbers_of_the_x32_interface(machine: str) -> None:
    program = make_filter(machine, sockets="all")

    assert judge(program, AUDIT[machine], 0x3FFFFFFF)
    assert not judge(program, AUDIT[machine], 0x40000000)
    assert not judge(program, AUDIT[machine], 0xFFFFFFFF)


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
    if os.geteuid() == 0:  # other users cannot drop these, and cannot use them
        assert lines["CapBnd"] == "0" * 16
    assert lines["NoNewPrivs"] == "1"
    assert lines["Seccomp"] == "2"


@needs_landlock
def test_a_program_does_not_run_if_it_cannot_be_confined() -> None:
    plan = json.dumps({"read": ["/"], "write": [], "list": [], "network": False, "metadata": True})
    layers = [*START, plan] * 17  # Linux stacks at most 16 sets of Landlock rules

    done = subprocess.run(
        [*layers, "echo", "it ran"], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("the sandbox could not be set up: ")
