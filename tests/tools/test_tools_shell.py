"""The shell tool, the runner below it, and the coding bundle."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

import glue
from glue.codec import to_plain
from glue.errors import ConfigError, ToolError
from glue.tools import coding, fs, git, shell
from glue.tools.process import StopFlag, in_thread, run


def lines(text: str) -> list[str]:
    return text.split("\n")


async def test_command_line_and_argument_list_are_run(tmp_path: Path) -> None:
    tool = shell.tool(tmp_path)

    assert await tool("echo a; echo b >&2; exit 3") == "a\nb\n[exit code 3]"
    assert await tool(["echo", "a; b"]) == "a; b\n[exit code 0]"
    assert await tool("pwd") == f"{os.path.realpath(tmp_path)}\n[exit code 0]"


async def test_environment_is_an_allow_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "GITHUB_TOKEN", "GIT_DIR", "LD_PRELOAD_X", "PYTHONPATH_X", "MY_OWN"):
        monkeypatch.setenv(name, "leaked")
    monkeypatch.setenv("PATH", f".::{os.environ['PATH']}")

    said = await shell.tool(tmp_path, env={"GIVEN": "yes"})("env")

    assert "leaked" not in said
    assert "GIVEN=yes" in said
    path = next(line for line in lines(said) if line.startswith("PATH="))
    assert all(os.path.isabs(folder) for folder in path[5:].split(":"))


async def test_deadline_keeps_what_was_printed_and_kills_the_group(tmp_path: Path) -> None:
    said = await shell.tool(tmp_path, timeout=0.5)("echo begun; sleep 60 & echo $! > pid; wait")

    assert said == (
        "begun\n[stopped after 0.5 s; what it printed until then is above; ended what it left running: sleep 60]"
    )
    assert not alive(tmp_path)


async def test_background_processes_end_with_the_command(tmp_path: Path) -> None:
    said = await shell.tool(tmp_path)("sleep 60 & echo $! > pid; echo done")

    assert said == "done\n[exit code 0; ended what it left running: sleep 60]"
    assert not alive(tmp_path)


async def test_cancelled_command_leaves_nothing(tmp_path: Path) -> None:
    with anyio.move_on_after(0.3):
        await shell.tool(tmp_path)("echo $$ > pid; exec sleep 60")

    assert not alive(tmp_path)


def alive(folder: Path) -> bool:
    pid = (folder / "pid").read_text().strip()
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


async def test_long_output_keeps_head_and_tail_and_is_spooled(tmp_path: Path) -> None:
    said = await shell.tool(tmp_path)("seq 1 100000")

    assert said.startswith("1\n2\n")
    assert said.endswith("100000\n[exit code 0]")
    assert len(said) < 32_000
    address = said[said.index("spool:") :].split(":")[1].split()[0]
    read = next(tool for tool in fs.tools(tmp_path) if tool.name == "read_file")
    assert read(f"spool:{address}", offset=50_000).startswith("50000\n")


async def test_a_command_that_prints_for_ever_is_stopped_and_little_of_it_kept(tmp_path: Path) -> None:
    command = shell.ShellCommand(["yes", "x" * 4000], {"PATH": os.environ["PATH"]}, str(tmp_path), None, 60.0)

    note = await in_thread(command.run)

    assert note == f"stopped: it printed more than {shell.KILLED} bytes"
    assert shell.KILLED <= command.seen < shell.KILLED + 1024 * 1024
    assert len(command.head) + len(command.tail) <= shell.KEPT + shell.SHOWN


def test_each_look_gives_what_came_since_the_last_also_after_a_flood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "KEPT", 10)
    monkeypatch.setattr(shell, "SHOWN", 40)
    command = shell.ShellCommand([], {}, "/", None, 1.0)
    said = []
    for block in (b"one\n", b"two\n" * 3, b"x" * 60 + b"\n", b"four\n", b""):
        command.listen(block)
        said.append(command.report("running"))

    assert said[:2] == ["one\n[running]", "two\ntwo\ntwo\n[running]"]
    assert said[2].startswith("\n[21 bytes were not kept]\n")
    assert said[3:] == ["four\n[running]", "[running]"]


async def test_command_has_no_input_and_no_terminal(tmp_path: Path) -> None:
    assert await shell.tool(tmp_path)("cat; test -t 0 || echo none") == "none\n[exit code 0]"


@pytest.mark.parametrize("command", ["", [], [""], "a\0b", "x" * 100_000])
async def test_what_is_no_command_is_refused(tmp_path: Path, command: Any) -> None:
    with pytest.raises(ToolError):
        await shell.tool(tmp_path)(command)


async def test_missing_program_is_said(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="could not be started"):
        await shell.tool(tmp_path)(["no-such-program"])


def test_command_is_shown_as_it_runs() -> None:
    assert shell.verbatim("git log; rm -rf x") == "git log; rm -rf x"
    assert shell.verbatim(["echo", "a b"]) == "echo 'a b'"
    assert shell.verbatim("ls\x1b[2K\nrm") == 'escaped: "ls\\u001b[2K\\nrm"'
    assert shell.verbatim("ls \u202e") == 'escaped: "ls \\u202e"'
    assert shell.verbatim(r'escaped: "x\n"') != shell.verbatim("x\n")


def test_permission_is_needed(tmp_path: Path) -> None:
    tool = shell.tool(tmp_path)

    assert tool.needs_permission
    assert tool.alone
    assert callable(tool.target)
    assert tool.target({"command": "ls"}).text == "ls"


def test_bubblewrap_confines_or_says_that_it_cannot(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    if shutil.which("bwrap", path="/usr/local/bin:/usr/bin:/bin") is None:
        with pytest.raises(ConfigError, match="bwrap is not installed"):
            shell.bubblewrap(["ls"], str(tmp_path))
        return

    argv = shell.bubblewrap(["ls"], str(tmp_path))

    assert argv[-2:] == ["--", "ls"]
    assert ["--ro-bind", str(tmp_path / ".git"), str(tmp_path / ".git")] == argv[argv.index("--chdir") - 3 :][:3]


BWRAP = shutil.which("bwrap", path=shell.PROGRAMS)
PYTHON = shutil.which("python3", path="/usr/bin:/bin")
needs_sandbox = pytest.mark.skipif(BWRAP is None or PYTHON is None, reason="needs bubblewrap and a system Python")
CONNECT = """
import socket, sys
for name in sys.argv[1:]:
    try:
        socket.socket(socket.AF_UNIX).connect(name.replace("@", chr(0)))
        print("reached", name)
    except OSError:
        pass
"""


@needs_sandbox
async def test_sandbox_reaches_no_socket_of_the_host(tmp_path: Path) -> None:
    abstract = f"@glue-{os.urandom(6).hex()}"
    inside = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as two:
        for each, name in ((one, abstract), (two, inside)):
            each.bind(name.replace("@", "\0"))
            each.listen()
        argv = [str(PYTHON), "-c", CONNECT, abstract, inside]

        bare = await shell.tool(tmp_path)(argv)
        confined = await shell.tool(tmp_path, runner=shell.bubblewrap)(argv)

    assert bare.count("reached") == 2
    assert confined == "[exit code 0]"
    assert await shell.tool(tmp_path, runner=shell.bubblewrap)("ls -A /run /var | grep -v :") == "\n[exit code 0]"


@needs_sandbox
async def test_sandbox_sees_no_environment_of_other_processes(tmp_path: Path) -> None:
    secret = f"SECRET-{os.urandom(6).hex()}"
    with subprocess.Popen(["sleep", "60"], env={"KEY": secret}) as other:
        try:
            bare = await shell.tool(tmp_path)(f"cat /proc/{other.pid}/environ")
            confined = await shell.tool(tmp_path, runner=shell.bubblewrap)("cat /proc/[0-9]*/environ")
        finally:
            other.kill()

    assert secret in bare
    assert secret not in confined
    assert "HOME=" in confined


@needs_sandbox
async def test_sandbox_writes_to_the_project_alone(tmp_path: Path) -> None:
    said = await shell.tool(tmp_path, runner=shell.bubblewrap)("touch here; touch /usr/there; echo $?")

    assert (tmp_path / "here").exists()
    assert "Read-only" in said


FAKE_DOCKER = """#!/bin/sh
echo "$@" >> "$HOME/calls"
[ "$1" = run ] || exit 0
while [ "$1" != image:1 ]; do shift; done
shift
exec "$@"
"""


async def test_container_runner_stands_on_the_same_seam(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs, root = tmp_path / "bin", tmp_path / "root"
    programs.mkdir()
    (root / ".git").mkdir(parents=True)
    (programs / "docker").write_text(FAKE_DOCKER)
    (programs / "docker").chmod(0o755)
    monkeypatch.setattr(shell, "PROGRAMS", str(programs))
    monkeypatch.setenv("HOME", str(tmp_path))
    tool = shell.tool(root, runner=shell.docker("image:1", options=["--memory", "1g"]), timeout=0.5)

    assert await tool(["echo", "a b"]) == "a b\n[exit code 0]"
    await tool("sleep 60")

    ran, _, killed = (tmp_path / "calls").read_text().splitlines()
    assert "--network none" in ran
    assert f"source={root},target={root} " in ran
    assert f"source={root}/.git,target={root}/.git,readonly" in ran
    assert "--memory 1g image:1 echo a b" in ran
    assert killed.startswith("kill glue-")
    with pytest.raises(ConfigError, match="podman is not installed"):
        shell.docker("image:1", program="podman")


async def test_model_may_set_timeout_and_folder(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    tool = shell.tool(tmp_path)

    assert await tool("pwd", cwd="sub") == f"{os.path.realpath(tmp_path)}/sub\n[exit code 0]"
    assert await tool(["pwd"], cwd="./sub/..") == f"{os.path.realpath(tmp_path)}\n[exit code 0]"
    assert "stopped after 0.2 s" in await tool("sleep 60", timeout=0.2)
    for folder in ("..", "/etc", "missing", "sub/../.."):
        with pytest.raises(ToolError, match="cwd"):
            await tool("pwd", cwd=folder)


async def test_background_command_is_read_later_and_ended(tmp_path: Path) -> None:
    start, job = shell.tools(tmp_path)
    os.mkfifo(tmp_path / "gate")

    assert "job 1" in await start("echo one; read x < gate; echo two; exec sleep 60", background=True)
    first = await job(1, wait=0.2)
    while "one" not in first:
        first += await job(1)
    assert "running" in first
    (tmp_path / "gate").write_text("go\n")
    second = ""
    while "two" not in second:
        second += await job(1)
    assert "one" not in second
    assert "[stopped" in await job(1, stop=True)
    with pytest.raises(ToolError, match="no job 7; there are: 1"):
        await job(7)


async def test_only_so_many_commands_run_in_the_background(tmp_path: Path) -> None:
    start, job = shell.tools(tmp_path)
    for _ in range(shell.MAX_JOBS):
        await start("sleep 60", background=True)

    with pytest.raises(ToolError, match="8 commands run in the background already"):
        await start("sleep 60", background=True)
    for number in range(1, shell.MAX_JOBS + 1):
        await job(number, stop=True)
    assert "job 9" in await start("true", background=True)


async def test_background_command_says_how_it_ended(tmp_path: Path) -> None:
    start, job = shell.tools(tmp_path)

    await start("echo out; exit 3", background=True)

    assert await job(1, wait=30) == "out\n[exit code 3]"
    assert not job.needs_permission


async def test_children_that_left_the_group_are_ended_and_named(tmp_path: Path) -> None:
    said = await shell.tool(tmp_path)("setsid sleep 61 & sleep 0.2; echo done")

    assert said == "done\n[exit code 0; ended what it left running: sleep 61]"


def test_background_commands_end_with_the_program(tmp_path: Path) -> None:
    code = (
        "import anyio\nfrom glue.tools import shell\n"
        "start, job = shell.tools('.')\n"
        "anyio.run(lambda: start('echo $$ > pid; exec sleep 60', background=True))\n"
        "while not __import__('os').path.exists('pid') or not open('pid').read(): pass\n"
    )

    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=30)

    assert not alive(tmp_path)


# The runner --------------------------------------------------------------------------------------


def python(code: str, **options: Any) -> Any:
    given: dict[str, Any] = {"env": {}, "cwd": "/", "deadline": 20.0, "cap": 1000, **options}
    return run([sys.executable, "-S", "-c", code], **given)


def test_output_is_cut_at_the_cap_and_the_child_killed() -> None:
    done = python("while True: print('x' * 100)", cap=1000)

    assert (done.reason, len(done.out), done.code) == ("cap", 1000, -9)


def test_pipe_that_a_grandchild_holds_does_not_keep_us_waiting(tmp_path: Path) -> None:
    code = "import subprocess, sys; subprocess.Popen(['sleep', '60'], start_new_session=True); print('x')"

    done = python(code)

    assert (done.reason, done.out) == ("", b"x\n")
    subprocess.run(["true"], check=True)


def test_child_that_closes_its_pipes_and_goes_on_is_stopped() -> None:
    done = python("import os, time; os.close(1); os.close(2); time.sleep(60)", deadline=0.5)

    assert done.reason == "deadline"


def test_large_input_and_output_do_not_block_each_other() -> None:
    done = python("import sys; sys.stdout.write(sys.stdin.read())", feed=b"y" * 500_000, cap=1_000_000)

    assert done.out == b"y" * 500_000


def test_no_descriptor_is_inherited() -> None:
    done = python("import os; print(len(os.listdir('/proc/self/fd')) if os.path.isdir('/proc') else 4)")

    assert int(done.out) <= 4


def test_memory_is_bounded() -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("only Linux can limit another process")
    done = python("import time; time.sleep(0.2); x = bytearray(500_000_000)", memory=200_000_000)

    assert b"MemoryError" in done.err


async def test_errors_come_out_of_the_thread_as_they_are() -> None:
    def fail(stop: StopFlag) -> str:
        raise ToolError("as it is")

    with pytest.raises(ToolError, match="as it is"):
        await in_thread(fail)


# The bundle --------------------------------------------------------------------------------------


def test_bundle_and_prompt_speak_of_the_same_tools(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    for options in ({}, {"write": False}, {"shell": True}, {"trust": True}):
        made = coding.tools(tmp_path, **options)  # type: ignore[arg-type]
        prompt = coding.prompt(made)

        for tool in made:
            assert f"- {tool.name}: {tool.spec.description}\n" in prompt
        for name in {"write_file", "shell", "git_status"} - {tool.name for tool in made}:
            assert f"- {name}:" not in prompt


def test_schemas_are_small_and_say_what_helps(tmp_path: Path) -> None:
    made = [*fs.tools(tmp_path, write=True), *git.tools(tmp_path, trust=True), *shell.tools(tmp_path)]
    texts = {each.name: json.dumps(to_plain(each.spec), ensure_ascii=False) for each in made}

    assert len(made) == 14
    assert sum(map(glue.estimate_tokens, texts.values())) < 2000
    for name, words in {
        "git_diff_branch": "Only commits count",
        "git_diff_worktree": "not committed",
        "edit_file": "exactly what is quoted",
        "read_file": "Read before you change",
        "shell": "Prefer the file tools",
    }.items():
        assert words in texts[name]


def test_bundle_without_a_repository_has_no_git_tools(tmp_path: Path) -> None:
    names = [tool.name for tool in coding.tools(tmp_path)]

    assert names == ["read_file", "list_dir", "find_files", "grep", "write_file", "edit_file"]
    assert "edit_file: Replace text in a file, exactly what is quoted" in coding.prompt(coding.tools(tmp_path))


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf")])
def test_tools_of_the_shell_need_a_deadline(tmp_path: Path, timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout must be"):
        shell.tool(tmp_path, timeout=timeout)
