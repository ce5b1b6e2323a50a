"""Tests of the shell tools and of the runners that confine commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from glue.errors import ConfigError, ToolError
from glue.tasks import StopFlag, in_stoppable_thread
from glue.tools import fs, shell


def lines(text: str) -> list[str]:
    return text.split("\n")


async def test_command_lines_and_argument_lists_are_run(tmp_path: Path) -> None:
    tool = shell.tool(tmp_path, sandbox="off")

    assert await tool("echo a; echo b >&2; exit 3") == "a\nb\n[exit code 3]"
    assert await tool(["echo", "a; b"]) == "a; b\n[exit code 0]"
    assert await tool("pwd") == f"{os.path.realpath(tmp_path)}\n[exit code 0]"


async def test_a_command_inherits_only_a_few_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "OPENAI_API_KEY",
        "GITHUB_TOKEN",
        "GIT_DIR",
        "LD_PRELOAD_X",
        "PYTHONPATH_X",
        "MY_OWN",
    ):
        monkeypatch.setenv(name, "leaked")
    monkeypatch.setenv("PATH", f".::{os.environ['PATH']}")

    said = await shell.tool(tmp_path, sandbox="off", env={"GIVEN": "yes"})("env")

    assert "leaked" not in said
    assert "GIVEN=yes" in said
    path = next(line for line in lines(said) if line.startswith("PATH="))
    assert all(os.path.isabs(folder) for folder in path[5:].split(":"))


async def test_a_command_that_takes_too_long_is_killed_and_its_output_kept(tmp_path: Path) -> None:
    said = await shell.tool(tmp_path, sandbox="off", timeout=0.5)(
        "echo begun; sleep 60 & echo $! > pid; wait"
    )

    assert said == (
        "begun\n[stopped after 0.5 s; its output until then is above; "
        "killed processes that it left running: sleep 60]"
    )
    assert not alive(tmp_path)


async def test_processes_that_a_command_leaves_running_are_killed(tmp_path: Path) -> None:
    said = await shell.tool(tmp_path, sandbox="off")("sleep 60 & echo $! > pid; echo done")

    assert said == "done\n[exit code 0; killed processes that it left running: sleep 60]"
    assert not alive(tmp_path)


async def test_a_cancelled_command_leaves_no_process(tmp_path: Path) -> None:
    command = "echo $$ > new; mv new pid; sleep 20; touch ended"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(shell.tool(tmp_path, sandbox="off"), command)
        while not (tmp_path / "pid").exists():
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()

    assert not alive(tmp_path)
    assert not (tmp_path / "ended").exists()  # the cancellation did not wait for the command


class EndedRunner:
    """A runner that records the commands that it was asked to end."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    def __call__(self, argv: Sequence[str], root: str) -> list[str]:
        return list(argv)

    def end(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self.ended.append(argv[-1])


async def test_a_runner_ends_a_command_that_is_cancelled_but_not_one_that_has_ended(
    tmp_path: Path,
) -> None:
    runner = EndedRunner()
    run = shell.tool(tmp_path, runner=runner)

    await run("true")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, "touch begun; sleep 20")
        while not (tmp_path / "begun").exists():
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()

    assert runner.ended == ["touch begun; sleep 20"]


def alive(folder: Path) -> bool:
    pid = (folder / "pid").read_text().strip()
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


async def test_long_output_is_shortened_to_head_and_tail_and_stored(tmp_path: Path) -> None:
    said = await shell.tool(tmp_path, sandbox="off")("seq 1 100000")

    assert said.startswith("1\n2\n")
    assert said.endswith("100000\n[exit code 0]")
    assert len(said) < 32_000
    address = said[said.index("spool:") :].split(":")[1].split(";")[0]
    read = next(tool for tool in fs.tools(tmp_path) if tool.name == "read_file")
    assert read(f"spool:{address}", offset=50_000).startswith("50000\n")


async def test_a_note_stands_on_a_line_of_its_own(tmp_path: Path) -> None:
    run = shell.tool(tmp_path, sandbox="off")

    assert await run("printf x") == "x\n[exit code 0]"
    assert await run("true") == "[exit code 0]"


@pytest.mark.parametrize(("number", "more"), [(5, ""), (6, " and 1 more")])
async def test_at_most_five_processes_that_a_command_left_are_named(
    tmp_path: Path, number: int, more: str
) -> None:
    name = "sleep 60." + "0" * 100

    said = await shell.tool(tmp_path, sandbox="off")(
        f"for i in $(seq {number}); do {name} & done; sleep 0.1"
    )

    shown = name[:59] + "…"
    assert said == (
        f"[exit code 0; killed processes that it left running: {', '.join([shown] * 5)}{more}]"
    )


def test_eight_mib_of_the_start_of_the_output_are_kept_and_16000_bytes_of_its_end() -> None:
    command = shell.ShellCommand([], {}, "/", None, 1.0)

    command.store_output(b"x" * (8 * 1024 * 1024 + 50_000))

    assert (len(command.head), len(command.tail)) == (8 * 1024 * 1024, 16_000)


def test_a_command_may_print_less_than_64_mib() -> None:
    command = shell.ShellCommand([], {}, "/", None, 1.0)
    command.seen = 64 * 1024 * 1024 - 2

    assert command.store_output(b"x")
    assert not command.store_output(b"x")


async def test_a_command_that_prints_endlessly_is_stopped(
    tmp_path: Path,
) -> None:
    command = shell.ShellCommand(
        ["yes", "x" * 4000], {"PATH": os.environ["PATH"]}, str(tmp_path), None, 60.0
    )

    note = await in_stoppable_thread(command.run)

    assert note == f"stopped, because the command printed more than {shell.KILLED} bytes"
    assert shell.KILLED <= command.seen < shell.KILLED + 1024 * 1024
    assert len(command.head) + len(command.tail) <= shell.KEPT + shell.SHOWN


def test_each_report_contains_only_new_output(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shell, "KEPT", 10)
    monkeypatch.setattr(shell, "SHOWN", 40)
    command = shell.ShellCommand([], {}, "/", None, 1.0)
    said = []
    for block in (b"one\n", b"two\n" * 3, b"x" * 60 + b"\n", b"four\n", b""):
        command.store_output(block)
        said.append(command.report("running"))

    assert said[:2] == ["one\n[running]", "two\ntwo\ntwo\n[running]"]
    assert said[2].startswith("\n[21 bytes were not kept]\n")
    assert said[3:] == ["four\n[running]", "[running]"]


async def test_a_command_has_no_input_and_no_terminal(tmp_path: Path) -> None:
    assert (
        await shell.tool(tmp_path, sandbox="off")("cat; test -t 0 || echo none")
        == "none\n[exit code 0]"
    )


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("", "the command is empty"),
        ([], "the command is empty"),
        ([""], "the command is empty"),
        ("a\0b", "the command contains a NUL character"),
        (["a", "b\0"], "the command contains a NUL character"),
        ("x" * 65_535 + "\0", "the command contains a NUL character"),
        ("x" * 65_537, "the command has 65537 characters; at most 65536 are allowed"),
        (["x" * 65_535, "y"], "the command has 65537 characters; at most 65536 are allowed"),
    ],
)
async def test_an_invalid_command_is_refused_with_the_reason(
    tmp_path: Path, command: str | list[str], why: str
) -> None:
    with pytest.raises(ToolError, match=why):
        await shell.tool(tmp_path, sandbox="off")(command)


async def test_a_command_may_have_as_many_characters_as_allowed(tmp_path: Path) -> None:
    longest = "true #" + "x" * (65_536 - 6)

    assert await shell.tool(tmp_path, sandbox="off")(longest) == "[exit code 0]"


async def test_a_program_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    run = shell.tool(tmp_path, sandbox="off")

    with pytest.raises(ToolError, match=r"could not be started: No such file or directory$"):
        await run(["no-such-program"])
    with pytest.raises(ToolError, match=r"could not be started: .*surrogates not allowed$"):
        await run(["echo", "\ud800"])


def test_the_permission_policy_sees_a_command_exactly_as_it_runs() -> None:
    assert shell.verbatim("git log; rm -rf x") == "git log; rm -rf x"
    assert shell.verbatim(["echo", "a b"]) == "echo 'a b'"
    assert shell.verbatim("ls\x1b[2K\nrm") == 'escaped: "ls\\u001b[2K\\nrm"'
    assert shell.verbatim("ls \u202e") == 'escaped: "ls \\u202e"'
    assert shell.verbatim(r'escaped: "x\n"') != shell.verbatim("x\n")


def test_the_shell_tool_needs_permission(tmp_path: Path) -> None:
    tool = shell.tool(tmp_path, sandbox="off")

    assert tool.needs_permission
    assert tool.alone
    assert callable(tool.target)
    assert tool.target({"command": "ls"}).text == "ls [no sandbox]"


def test_the_permission_question_names_the_folder_and_the_background(tmp_path: Path) -> None:
    (tmp_path / "sub/deep").mkdir(parents=True)
    target = shell.tool(tmp_path, sandbox="off").target
    assert callable(target)

    plain = target({"command": "ls"})
    inside = target({"command": ["ls", "a b"], "cwd": "sub/deep"})
    later = target({"command": "ls", "cwd": "sub/..", "background": True})

    home = os.path.realpath(tmp_path)
    assert (plain.text, plain.command, plain.folder) == ("ls [no sandbox]", "ls", home)
    assert inside.text == "ls 'a b' (in sub/deep) [no sandbox]"
    assert (inside.command, inside.folder) == (("ls", "a b"), f"{home}/sub/deep")
    assert later.text == "ls (in the background) [no sandbox]"
    assert [each.conditions for each in (plain, inside, later)] == [
        "no sandbox",
        "no sandbox",
        "no sandbox (in the background)",
    ]


def test_shell_tools_declare_that_commands_may_write(tmp_path: Path) -> None:
    run, job = shell.tools(tmp_path, sandbox="off")

    assert (run.read_only, run.kind, run.alone, run.needs_permission) == (
        False,
        "execute",
        True,
        True,
    )
    assert (job.alone, job.needs_permission) == (False, False)
    assert (run.root, run.confinement) == (os.path.realpath(tmp_path), "no sandbox")


def test_the_permission_question_names_the_runner(tmp_path: Path) -> None:
    def runner(argv: Sequence[str], root: str) -> list[str]:
        return list(argv)

    tool = shell.tool(tmp_path, runner=runner)

    assert callable(tool.target)
    assert tool.target({"command": "ls"}).text == "ls [sandbox: a custom runner]"
    with pytest.raises(ValueError, match="not both"):
        shell.tool(tmp_path, runner=runner, sandbox="require")


FAKE_DOCKER = """#!/bin/sh
echo "$@" >> "$HOME/calls"
[ "$1" = run ] || exit 0
while [ "$1" != image:1 ]; do shift; done
shift
exec "$@"
"""


async def test_the_docker_runner_wraps_a_command_and_kills_its_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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

    assert callable(tool.target)
    assert tool.target({"command": "ls"}).text == "ls [sandbox: docker image:1]"
    ran, _, killed = (tmp_path / "calls").read_text().splitlines()
    assert "--network none" in ran
    assert f"source={root},target={root} " in ran
    assert f"source={root}/.git,target={root}/.git,readonly" in ran
    assert "--memory 1g image:1 echo a b" in ran
    assert f"--user {os.getuid()}:{os.getgid()} " in ran
    assert "--userns" not in ran
    assert "--cap-drop ALL --security-opt no-new-privileges --pids-limit 512 " in ran
    assert killed.startswith("kill glue-")
    with pytest.raises(ConfigError, match=r"^podman is not installed"):
        shell.docker("image:1", program="podman")


def test_podman_keeps_the_user_of_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "PROGRAMS", str(tmp_path))
    with pytest.raises(ConfigError, match=r"^docker or podman is not installed"):
        shell.docker("image:1")
    (tmp_path / "podman").write_text("#!/bin/sh\n")
    (tmp_path / "podman").chmod(0o755)

    runner = shell.docker("image:1")

    argv = runner(["true"], str(tmp_path))
    assert argv[0] == f"{tmp_path}/podman"
    assert "--userns=keep-id" in argv
    assert "--user" not in argv
    assert shell.describe_runner(runner) == "sandbox: podman image:1"


async def test_the_model_may_set_timeout_and_folder(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    tool = shell.tool(tmp_path, sandbox="off")

    assert await tool("pwd", cwd="sub") == f"{os.path.realpath(tmp_path)}/sub\n[exit code 0]"
    assert await tool(["pwd"], cwd="./sub/..") == f"{os.path.realpath(tmp_path)}\n[exit code 0]"
    assert "stopped after 0.2 s" in await tool("sleep 60", timeout=0.2)
    for folder in ("..", "/etc", "sub/../.."):
        with pytest.raises(ToolError, match="cwd"):
            await tool("pwd", cwd=folder)
    with pytest.raises(ToolError, match=r"^cwd 'missing': no such file or directory$"):
        await tool("pwd", cwd="missing")
    with pytest.raises(ToolError) as long:
        await tool("pwd", cwd="x" * 300)
    assert str(long.value).startswith(f"cwd {'x' * 199 + '…'!a}: ")


async def test_a_background_command_is_read_and_stopped_later(tmp_path: Path) -> None:
    start, job = shell.tools(tmp_path, sandbox="off")
    os.mkfifo(tmp_path / "gate")

    assert "job 1" in await start(
        "echo one; read x < gate; echo two; exec sleep 60", background=True
    )
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
    with pytest.raises(ToolError, match="job 7 does not exist; known jobs: 1"):
        await job(7)


async def test_the_number_of_background_commands_is_limited(tmp_path: Path) -> None:
    start, job = shell.tools(tmp_path, sandbox="off")
    for _ in range(shell.MAX_JOBS):
        await start("sleep 60", background=True)

    with pytest.raises(ToolError, match="8 commands already run in the background"):
        await start("sleep 60", background=True)
    for number in range(1, shell.MAX_JOBS + 1):
        await job(number, stop=True)
    assert "job 9" in await start("true", background=True)


async def test_a_report_does_not_wait_for_the_end_unless_it_is_asked_to(tmp_path: Path) -> None:
    start, job = shell.tools(tmp_path, sandbox="off")
    await start("sleep 0.8", background=True)

    assert "running" in await job(1)
    assert "running" in await job(1, wait=-5)
    assert await job(1, stop=True) == "[stopped]"


def started(code: str) -> tuple[shell._Jobs, shell.ShellCommand]:
    """Start a command in the background, and return its job list and the command."""
    jobs = shell._Jobs()
    env = {"PATH": os.environ["PATH"]}
    command = shell.ShellCommand(["/bin/sh", "-c", code], env, "/", None, 60.0)
    jobs.start(command)
    return jobs, command


def test_the_report_of_a_running_command_has_its_age_in_seconds() -> None:
    jobs, command = started("exec sleep 60")
    command.began = time.monotonic() - 100

    said = jobs.report(StopFlag(), 1, False, 0)

    assert re.fullmatch(r"\[running for 10\d s\]", said)
    jobs.report(StopFlag(), 1, True, 0)


class EndingThread:
    """A thread that ends while another thread waits for it for the third time."""

    def __init__(self) -> None:
        self.waits = 0

    def is_alive(self) -> bool:
        return self.waits < 3

    def join(self, timeout: float) -> None:
        self.waits += 1


def test_a_report_waits_for_the_thread_of_the_command_and_does_not_spin() -> None:
    jobs, command = shell._Jobs(), shell.ShellCommand([], {}, "/", None, 1.0)
    jobs.jobs[1], command.ending = command, "exit code 0"
    command.thread = EndingThread()  # type: ignore[assignment]

    assert jobs.report(StopFlag(), 1, False, 5.0) == "[exit code 0]"


def test_a_report_that_is_cancelled_does_not_wait() -> None:
    jobs, _ = started("exec sleep 60")
    cancelled = StopFlag()
    cancelled.set()

    assert "running" in jobs.report(cancelled, 1, False, 60.0)
    jobs.report(StopFlag(), 1, True, 0)


def test_the_last_fifty_background_commands_that_have_ended_can_be_read() -> None:
    jobs, _ = started("exec sleep 60")
    ended = shell.ShellCommand([], {}, "/", None, 1.0)
    jobs.jobs |= dict.fromkeys(range(2, 61), ended)
    jobs.count = 60

    new = shell.ShellCommand(["true"], {"PATH": os.environ["PATH"]}, "/", None, 1.0)
    jobs.start(new)

    assert sorted(jobs.jobs) == [1, *range(11, 62)]
    jobs.report(StopFlag(), 1, True, 0)
    new.thread.join()


async def test_a_background_command_that_cannot_be_started_is_reported(tmp_path: Path) -> None:
    start, job = shell.tools(tmp_path, sandbox="off")

    await start(["no-such-program"], background=True)

    assert await job(1, wait=30) == (
        "[the command could not be started: No such file or directory]"
    )


async def test_the_report_of_a_background_command_has_its_exit_code(tmp_path: Path) -> None:
    start, job = shell.tools(tmp_path, sandbox="off")

    await start("echo out; exit 3", background=True)

    assert await job(1, wait=30) == "out\n[exit code 3]"
    assert not job.needs_permission


async def test_processes_that_left_the_group_are_killed_and_named(tmp_path: Path) -> None:
    said = await shell.tool(tmp_path, sandbox="off")("setsid sleep 61 & sleep 0.2; echo done")

    assert said == "done\n[exit code 0; killed processes that it left running: sleep 61]"


def test_jobs_that_are_collected_in_the_thread_of_a_job_are_ended_without_waiting_for_it() -> None:
    stopped: list[bool] = []

    class Job:
        stop = threading.Event()
        thread: threading.Thread

    def collect() -> None:
        shell._end_all({1: job})  # type: ignore[dict-item]
        stopped.append(job.stop.is_set())

    job = Job()
    job.thread = threading.Thread(target=collect)
    job.thread.start()
    job.thread.join()

    assert stopped == [True]


def test_background_commands_end_with_the_program(tmp_path: Path) -> None:
    code = (
        "import anyio\nfrom glue.tools import shell\n"
        "start, job = shell.tools('.', sandbox='off')\n"
        "anyio.run(lambda: start('echo $$ > pid; exec sleep 60', background=True))\n"
        "while not __import__('os').path.exists('pid') or not open('pid').read(): pass\n"
    )

    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=30)

    assert not alive(tmp_path)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf")])
def test_a_timeout_that_is_not_a_positive_number_is_refused(tmp_path: Path, timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout must be"):
        shell.tool(tmp_path, sandbox="off", timeout=timeout)
