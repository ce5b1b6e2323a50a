"""Tests of confining a child process with Landlock."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from glue.tools import landlock
from glue.tools.landlock import has_landlock, make_ruleset, start_confined, version


def ask_kernel() -> int:
    """Return the version of Landlock, or -1, from a system call of its own."""
    if not sys.platform.startswith("linux"):
        return -1
    create_ruleset, of_version = 444, 1
    return int(ctypes.CDLL(None).syscall(create_ruleset, None, 0, of_version))


pytestmark = pytest.mark.skipif(ask_kernel() < 1, reason="needs Landlock")


def test_the_version_is_that_of_the_kernel() -> None:
    assert version() == ask_kernel()
    assert has_landlock()


def test_the_version_is_0_if_the_kernel_refuses_to_name_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Refusing:
        def __init__(self, name: None) -> None:
            self.syscall = lambda *args: -1

    monkeypatch.setattr(ctypes, "CDLL", Refusing)

    assert version.__wrapped__() == 0


def test_the_numbers_are_those_of_the_headers_of_linux() -> None:
    calls = (landlock.CREATE_RULESET, landlock.ADD_RULE, landlock.RESTRICT_SELF)
    rights = (landlock.EXECUTE, landlock.WRITE_FILE, landlock.READ_FILE, landlock.READ_DIR)

    assert calls == (444, 445, 446)
    assert rights == (1 << 0, 1 << 1, 1 << 2, 1 << 3)
    assert landlock.HANDLED == 0b1_1111_1111_1111  # from execute to make_sym
    assert landlock.PRCTL == {"x86_64": 157, "aarch64": 167}
    assert (landlock.PATH_BENEATH, landlock.NO_NEW_PRIVS) == (1, 38)


def cat(rules: int, path: Path) -> bytes:
    child = start_confined(
        rules,
        lambda: subprocess.Popen(
            ["/bin/cat", str(path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ),
    )
    return child.communicate(timeout=20)[0]


def test_a_confined_process_reads_only_the_listed_folders(tmp_path: Path) -> None:
    for name in ("inside", "outside"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    (tmp_path / "inside/link").symlink_to(tmp_path / "outside/file")
    rules = make_ruleset("/bin/cat", [str(tmp_path / "inside")])

    try:
        inside = cat(rules, tmp_path / "inside/file")
        outside = cat(rules, tmp_path / "outside/file")
        linked = cat(rules, tmp_path / "inside/link")
    finally:
        os.close(rules)

    assert (inside, outside, linked) == (b"inside", b"", b"")
    assert (tmp_path / "outside/file").read_text() == "outside"


def test_a_confined_process_lists_the_folders_that_it_may_read(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside/file").write_text("text")
    rules = make_ruleset("/bin/ls", [str(tmp_path / "inside")])

    child = start_confined(
        rules,
        lambda: subprocess.Popen(
            ["/bin/ls", str(tmp_path / "inside"), str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ),
    )
    out = child.communicate(timeout=20)[0]
    os.close(rules)

    assert out.splitlines()[1:] == [b"file"]
    assert b"\ninside\n" not in out


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    tool = program(tmp_path / "one/bin/tool", "/bin/sh")
    before = len(os.listdir("/proc/self/fd"))

    os.close(make_ruleset("/bin/cat", [str(tmp_path)]))
    os.close(make_ruleset(tool, []))

    assert len(os.listdir("/proc/self/fd")) == before


def test_without_a_free_descriptor_there_are_no_rules() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)

    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        rules = make_ruleset("/bin/cat", [])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert rules == -1


def test_a_confined_process_writes_nothing_but_to_dev_null(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("before")
    rules = make_ruleset("/bin/sh", [str(tmp_path)])
    command = f"echo x > {file}; echo x > {tmp_path}/new; mkdir {tmp_path}/folder; rm {file}; "

    try:
        child = start_confined(
            rules,
            lambda: subprocess.Popen(
                ["/bin/sh", "-c", f"{command} cat {file}; echo x > /dev/null && echo ok"],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            ),
        )
        out = child.communicate(timeout=20)[0]
    finally:
        os.close(rules)

    assert out == b"beforeok\n"
    assert os.listdir(tmp_path) == ["file"]
    assert file.read_text() == "before"


def test_folders_may_be_given_by_descriptors(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    rules = make_ruleset("/bin/cat", [fd])

    try:
        assert cat(rules, tmp_path / "file") == b"text"
        assert not os.get_inheritable(rules)
    finally:
        os.close(rules)
        os.close(fd)


def test_a_folder_that_does_not_exist_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    rules = make_ruleset("/bin/cat", [str(tmp_path / "none"), str(tmp_path / "file")])

    try:
        assert cat(rules, tmp_path / "file") == b"text"
    finally:
        os.close(rules)


def program(path: Path, interpreter: str, code: int = 0) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{interpreter}\nexit {code}\n")
    path.chmod(0o755)
    return str(path)


def test_a_program_outside_the_system_gets_rules_only_if_it_starts_with_them(
    tmp_path: Path,
) -> None:
    hidden = str(tmp_path / "hidden/sh")
    (tmp_path / "hidden").mkdir()
    shutil.copy(os.path.realpath("/bin/sh"), hidden)

    starts = make_ruleset(program(tmp_path / "one/bin/tool", "/bin/sh"), [])
    hides = make_ruleset(program(tmp_path / "two/bin/tool", hidden), [])
    fails = make_ruleset(program(tmp_path / "three/bin/tool", "/bin/sh", 1), [])
    missing = make_ruleset(str(tmp_path / "four/bin/tool"), [])

    assert starts >= 0
    os.close(starts)
    assert (hides, fails, missing) == (-1, -1, -1)


def test_the_folder_of_a_program_does_not_open_the_top_of_the_file_system() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        top = Path(os.path.realpath(name)).parent
        if len(top.parts) != 2:
            pytest.skip("/tmp is a link to another folder")
        # The folder above the folder of the first is `/`, that of the second is `/tmp`.
        first = top / f"{Path(name).name}-tool"
        try:
            assert make_ruleset(program(first, "/bin/sh"), []) == -1
        finally:
            first.unlink()
        assert make_ruleset(program(Path(name) / "tool", "/bin/sh"), []) == -1
        starts = make_ruleset(program(Path(name) / "bin/tool", "/bin/sh"), [])
        assert starts >= 0
        os.close(starts)
