"""Tests of starting, finding and killing process groups."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys

import pytest

from glue.tools.process_group import end_group, end_marked, find_marked, has_exited, start


def start_python(code: str, **env: str) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-S", "-c", code]
    return start(argv, env=env, cwd="/", stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_a_group_is_killed_with_its_grandchildren() -> None:
    child = start_python(
        "import subprocess, time\n"
        "print(subprocess.Popen(['sleep', '60']).pid, flush=True)\n"
        "time.sleep(60)\n",
        PATH=os.environ["PATH"],
    )
    assert child.stdout is not None
    with child.stdout:
        grandchild = int(child.stdout.readline())

    end_group(child)

    assert child.returncode == -9
    assert has_ended(grandchild)


def has_ended(pid: int) -> bool:
    """Return whether a process has ended; it may be a zombie that is not reaped yet."""
    shown = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return shown.stdout.strip()[:1] in ("", "Z")


def test_a_polite_end_lets_the_child_handle_sigterm() -> None:
    child = start_python(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    assert child.stdout is not None
    with child.stdout:
        child.stdout.readline()

        end_group(child, polite=True)

    assert child.returncode == 7


def test_has_exited_does_not_reap_the_child() -> None:
    child = start_python("pass")
    assert child.stdout is not None
    with child.stdout:
        child.stdout.read()  # until the child closes its output

        while not has_exited(child):
            pass

    assert child.returncode is None
    end_group(child)
    assert child.returncode == 0


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
def test_processes_are_found_by_a_variable_of_their_environment() -> None:
    mark = f"GLUE_TEST={os.urandom(8).hex()}"
    name, _, value = mark.partition("=")
    child = start_python("import time; print('ready', flush=True); time.sleep(60)", **{name: value})
    assert child.stdout is not None
    with child.stdout:
        child.stdout.readline()

        found = find_marked(mark)
        end_group(child)

    assert list(found) == [child.pid]
    assert "time.sleep(60)" in found[child.pid]
    assert find_marked(mark) == {}


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
def test_a_mark_is_found_in_a_large_environment_and_the_command_line_is_cut() -> None:
    mark = f"GLUE_TEST={os.urandom(8).hex()}"
    name, _, value = mark.partition("=")
    code = "import time; print('ready', flush=True); time.sleep(60)" + "#" * 1000
    child = start_python(
        code, **{f"LARGE{number}": "x" * 100_000 for number in range(9)} | {name: value}
    )
    assert child.stdout is not None
    with child.stdout:
        child.stdout.readline()

        found = find_marked(mark)
        end_group(child)

    whole = " ".join([sys.executable, "-S", "-c", code])
    assert found == {child.pid: whole[:400]}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs prlimit and /proc")
@pytest.mark.parametrize("memory", [0, 300 * 1024 * 1024])
def test_a_child_with_a_limit_on_memory_writes_no_core_dump(memory: int) -> None:
    before = resource.getrlimit(resource.RLIMIT_CORE)
    if not before[1]:
        pytest.skip("this process may not write core dumps itself")
    resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))
    try:
        child = start(
            ["/bin/sh", "-c", "read line; cat /proc/self/limits"],
            env={"PATH": "/usr/bin:/bin"},
            cwd="/",
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            memory=memory,
        )
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, before)
    text = child.communicate(b"go\n", timeout=20)[0].decode()
    end_group(child)

    limits = {line[:26].strip(): line[26:].split()[:2] for line in text.split("\n")}
    if memory:
        assert limits["Max data size"] == [str(memory), str(memory)]
        assert limits["Max core file size"] == ["0", "0"]
    else:
        assert limits["Max core file size"][0] != "0"


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
def test_marked_processes_have_ended_when_end_marked_returns() -> None:
    mark = f"GLUE_TEST={os.urandom(8).hex()}"
    name, _, value = mark.partition("=")
    children = [start_python("import time; time.sleep(60)", **{name: value}) for _ in range(8)]

    end_marked(mark)

    assert find_marked(mark) == {}
    for child in children:
        end_group(child)
        assert child.stdout is not None
        child.stdout.close()
        assert child.returncode == -signal.SIGKILL
