"""Tests of starting, finding and killing process groups."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from glue.tools.landlock import has_landlock, make_ruleset
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


def state_of(pid: int) -> str:
    """Return the state of a process as one letter, such as "S", or "" if it does not exist."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[0]


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
def test_the_whole_group_has_ended_when_end_group_returns() -> None:
    # The kernel needs a while to end a process with much memory.
    large = "x = b'x' * 80_000_000; print('ready', flush=True); import time; time.sleep(60)"
    child = start(
        ["/bin/sh", "-c", '"$0" -S -c "$1" & echo $!; wait', sys.executable, large],
        env={},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert child.stdout is not None
    with child.stdout:
        grandchild = int(child.stdout.readline())
        child.stdout.readline()

    end_group(child)

    assert state_of(grandchild) in ("", "Z")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts switches of a thread")
@pytest.mark.parametrize("polite", [False, True])
def test_the_end_of_a_group_that_has_ended_is_not_waited_for(polite: bool) -> None:
    child = start_python("pass")
    assert child.stdout is not None
    with child.stdout:
        child.stdout.read()
    while not has_exited(child):
        pass
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw

    end_group(child, polite=polite)

    # Each wait for a few milliseconds would be a switch; waiting in vain takes a hundred of them.
    assert resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before < 50


def test_a_child_that_ignores_sigterm_is_killed_in_the_end() -> None:
    child = start_python(
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    assert child.stdout is not None
    with child.stdout:
        child.stdout.readline()

        end_group(child, polite=True)

    assert child.returncode == -signal.SIGKILL


def test_the_group_of_a_child_that_was_reaped_gets_no_signal(tmp_path: Path) -> None:
    child = start(
        ["/bin/sh", "-c", "(sleep 0.1; echo whole > file) & exit 0"],
        env={"PATH": os.environ["PATH"]},
        cwd=str(tmp_path),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert child.stdout is not None
    child.wait()

    # The number of the group may belong to other processes by now.
    end_group(child)

    with child.stdout:
        child.stdout.read()  # until the rest of the group has ended
    assert (tmp_path / "file").read_text() == "whole\n"


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
def test_a_marked_process_that_searches_finds_itself() -> None:
    code = "from glue.tools.process_group import find_marked; print(*find_marked('GLUE_TEST=1'))"
    env = {**os.environ, "GLUE_TEST": "1"}

    with subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE) as child:
        out, _ = child.communicate(timeout=20)

    assert str(child.pid) in out.decode().split()


@pytest.mark.skipif(not has_landlock(), reason="needs Landlock")
def test_a_child_is_confined_by_the_rules_that_are_given(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("secret")
    rules = make_ruleset("/bin/cat", [])

    child = start(
        ["/bin/cat", str(tmp_path / "file")],
        env={},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        rules=rules,
    )
    out, err = child.communicate(timeout=20)
    os.close(rules)

    assert out == b""
    assert b"Permission denied" in err


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


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts switches of a thread")
def test_end_marked_does_not_wait_if_no_process_is_left() -> None:
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw

    end_marked(f"GLUE_TEST={os.urandom(8).hex()}")

    # Each wait for a few milliseconds would be a switch.
    assert resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before < 10


def test_without_waitid_has_exited_reaps_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    monkeypatch.delattr(os, "waitid")

    running = has_exited(child)
    child.communicate(b"\n", timeout=30)

    assert (running, has_exited(child)) == (False, True)
    child.returncode = None  # as if nothing had waited for the child
    assert has_exited(child)
