"""Tests of the sandboxes for commands, each with both backends."""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import glue
from glue.errors import ConfigError
from glue.testing import Script, call, calls
from glue.tools import coding, confine, sandbox, shell
from glue.tools.sandbox import (
    BACKENDS,
    Sandbox,
    SandboxRunner,
    View,
    find_backend,
    open_sandbox,
    remove_private_folders,
)

needs_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")
PYTHON = shutil.which("python3", path="/usr/bin:/bin") or sys.executable
Attempt = Callable[..., str]


@pytest.fixture(params=sorted(BACKENDS))
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if not BACKENDS[name].works():
        pytest.skip(f"{name} does not work here")
    return name


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def attempt(backend: str, project: Path) -> Attempt:
    """Run a command line in a sandbox and return its output."""

    def run(command: str, *, secret: str = "", **options: object) -> str:
        runner = open_sandbox(Sandbox(backend=backend, **options), project)  # type: ignore[arg-type]
        assert runner is not None
        env = {**shell.environment(), **runner.env}
        argv = runner(["/bin/bash", "-c", command], os.path.realpath(project))
        # The parent of the command holds a key, as the program that runs the agent does.
        parent = (
            "import subprocess, sys; sys.exit(subprocess.call(sys.argv[2:], env=eval(sys.argv[1])))"
        )
        done = subprocess.run(
            [sys.executable, "-c", parent, repr(env), *argv],
            env={**os.environ, "PROVIDER_KEY": secret},
            cwd=project,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.stdout + done.stderr

    return run


def test_a_command_runs_in_the_project_and_can_write_there(attempt: Attempt, project: Path) -> None:
    said = attempt("pwd; echo text > file; mkdir -p a/b; mv file a/b/; cat a/b/file; rm -r a; ls")

    assert said == f"{os.path.realpath(project)}\ntext\n"


def test_nothing_outside_the_project_can_be_written(attempt: Attempt, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("before")

    said = attempt(
        f"echo x > {outside}; : > {outside}; rm -f {outside};"
        f" touch {tmp_path}/new /usr/new /etc/new;"
        f"ln {outside} linked; mv {outside} moved; ln -s {outside} soft && echo x > soft; true"
    )

    assert outside.read_text() == "before"
    assert sorted(os.listdir(tmp_path)) == ["outside", "project"]
    assert not os.path.exists("/usr/new")
    assert not os.path.exists("/etc/new")
    assert said


def test_files_outside_the_project_cannot_be_read(attempt: Attempt, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("tOpSeCrEt")
    (tmp_path / "project/link").symlink_to(tmp_path / "outside")

    said = attempt(f"cat {tmp_path}/outside link ~/.ssh/* ~root/.bashrc /etc/shadow; ls {tmp_path}")

    assert "tOpSeCrEt" not in said
    assert "root:" not in said
    assert "outside\nproject" not in said


def test_the_environment_of_other_processes_cannot_be_read(attempt: Attempt) -> None:
    secret = f"sk-{os.urandom(6).hex()}"
    find = f"grep -al {secret} /proc/[0-9]*/environ /proc/self/environ /proc/$PPID/environ; env"

    said = attempt(f"tr '\\0' '\\n' < /proc/$PPID/environ; {find}", secret=secret)

    assert secret not in said
    assert "/environ\n" not in said.replace("/environ: ", "")
    assert "HOME=" in said


CONNECT = """
import socket, sys
for name in sys.argv[1:]:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        try:
            socket.socket(socket.AF_UNIX, kind).connect(name.replace("@", chr(0)))
            print("reached", name)
        except OSError:
            pass
try:
    one, two = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    for name in sys.argv[1:]:
        one.sendto(b"x", name.replace("@", chr(0)))
        print("sent to", name)
except OSError:
    pass
one, two = socket.socketpair()
one.send(b"pairs work")
print(two.recv(20).decode())
"""


@pytest.mark.parametrize("network", [False, True])
def test_sockets_of_the_host_cannot_be_reached(
    attempt: Attempt, project: Path, tmp_path: Path, network: bool
) -> None:
    names = [f"@glue-{os.urandom(6).hex()}", str(project / "s"), str(tmp_path / "s")]
    sockets = [socket.socket(socket.AF_UNIX) for _ in names]
    names.append(f"@glue-{os.urandom(6).hex()}")
    sockets.append(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    for each, name in zip(sockets, names, strict=True):
        each.bind(name.replace("@", "\0"))
        if each.type == socket.SOCK_STREAM:
            each.listen()
    command = f"{PYTHON} -c '{CONNECT}' {' '.join(names)}"

    confined = attempt(command, network=network)
    free = subprocess.run(
        ["/bin/bash", "-c", command], capture_output=True, text=True, timeout=60, check=False
    ).stdout
    for each in sockets:
        each.close()

    assert free.count("reached") == 4
    assert confined == "pairs work\n"


@pytest.fixture
def listener() -> Iterator[int]:
    """Listen on a port of the loopback interface and answer every connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                connection.sendall(b"hello")
                connection.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join(5)


def test_the_network_is_reached_only_if_it_is_allowed(attempt: Attempt, listener: int) -> None:
    command = f"exec 3<>/dev/tcp/127.0.0.1/{listener} && cat <&3"

    assert "hello" not in attempt(command)
    assert attempt(command, network=True) == "hello"


def test_udp_packets_do_not_leave(attempt: Attempt) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.setblocking(False)

        attempt(f"echo x > /dev/udp/127.0.0.1/{receiver.getsockname()[1]}")

        with pytest.raises(BlockingIOError):
            receiver.recv(10)


def test_a_read_only_project_cannot_be_changed(attempt: Attempt, project: Path) -> None:
    (project / "file").write_text("before")

    said = attempt(
        "cat file; echo x > file; touch new; echo x > $TMPDIR/t && cat $TMPDIR/t",
        writable_root=False,
    )

    assert said.startswith("beforex\n")
    assert (project / "file").read_text() == "before"
    assert os.listdir(project) == ["file"]


def test_named_folders_and_variables_are_passed(
    attempt: Attempt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/file").write_text("data\n")
    (tmp_path / "out").mkdir()
    monkeypatch.setenv("MY_SETTING", "passed")
    monkeypatch.setenv("MY_TOKEN", "kept")

    said = attempt(
        f"cat {tmp_path}/data/file; echo x > {tmp_path}/data/new; echo y > {tmp_path}/out/new; env",
        read=[tmp_path / "data"],
        write=[tmp_path / "out"],
        env=["MY_SETTING"],
    )

    assert said.startswith("data\n")
    assert "MY_SETTING=passed" in said
    assert "MY_TOKEN" not in said
    assert os.listdir(tmp_path / "data") == ["file"]
    assert (tmp_path / "out/new").read_text() == "y\n"


def test_the_home_folder_is_private_and_shows_toolchains(
    attempt: Attempt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / ".cargo/bin").mkdir(parents=True)
    (home / ".cargo/registry").mkdir()
    (home / ".cargo/bin/cargo").write_text("#!/bin/sh\necho cargo runs\n")
    (home / ".cargo/bin/cargo").chmod(0o755)
    (home / ".cargo/credentials.toml").write_text("tOpSeCrEt")
    (home / ".netrc").write_text("tOpSeCrEt")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{home}/.cargo/bin:{os.environ['PATH']}")

    said = attempt(
        f"cargo; ~/.cargo/bin/cargo; cat ~/.netrc ~/.cargo/credentials.toml {home}/.netrc;"
        f"cat {home}/.cargo/credentials.toml; echo x > ~/new && cat ~/new; touch ~/.cargo/bin/x"
    )

    assert said.count("cargo runs") == 2
    assert "tOpSeCrEt" not in said
    assert "x\n" in said
    assert not (home / "new").exists()
    assert os.listdir(home / ".cargo/bin") == ["cargo"]


def test_git_files_are_protected_by_bubblewrap(project: Path) -> None:
    if not BACKENDS["bubblewrap"].works():
        pytest.skip("bubblewrap does not work here")
    (project / ".git").mkdir()
    runner = open_sandbox(Sandbox(backend="bubblewrap"), project)
    assert runner is not None

    argv = runner(["touch", ".git/hook"], os.path.realpath(project))
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)

    assert "Read-only file system" in done.stderr
    assert os.listdir(project / ".git") == []


@pytest.fixture
def bwrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Install a program called bwrap, for tests of the arguments that bubblewrap would get."""
    if not sys.platform.startswith("linux"):
        pytest.skip("bubblewrap is a program for Linux")
    program = tmp_path / "bin/bwrap"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o755)
    monkeypatch.setattr("glue.tools.sandbox.PROGRAMS", str(program.parent))
    return str(program)


def wrapped(project: Path, **options: Any) -> list[str]:
    """Return the arguments with which bubblewrap would run `true` in a project."""
    root = os.path.realpath(project)
    runner = SandboxRunner(Sandbox(**options), BACKENDS["bubblewrap"], root)
    return runner(["true"], root)


def mounts(argv: Sequence[str]) -> dict[str, str]:
    """Return how each path is mounted last: `--bind`, `--ro-bind`, a source, or `--tmpfs`."""
    found: dict[str, str] = {}
    for at, word in enumerate(argv):
        if word in ("--bind", "--ro-bind", "--symlink"):
            source, path = argv[at + 1], argv[at + 2]
            found[path] = word if source == path else f"{word} {source}"
        elif word == "--tmpfs":
            found[argv[at + 1]] = word
    return found


def test_bubblewrap_shows_the_system_read_only_and_hides_its_private_files(
    bwrap: str, project: Path
) -> None:
    argv = wrapped(project)

    found = mounts(argv)
    assert bwrap in argv
    assert argv[-4:] == ["--chdir", os.path.realpath(project), "--", "true"]
    for path in ("/usr", "/etc"):
        assert found[path] == "--ro-bind"
    if os.path.islink("/bin"):
        assert found["/bin"] == f"--symlink {os.readlink('/bin')}"
    assert "/gnu" not in found or os.path.exists("/gnu")
    # Files that only root may read are covered with an empty file, folders with an empty folder.
    for entry in Path("/etc").iterdir():
        if entry.is_symlink():
            continue
        if entry.is_file() and not entry.stat().st_mode & 0o004:
            assert found[str(entry)] == "--ro-bind /dev/null"
        elif entry.is_dir() and entry.stat().st_mode & 0o005 != 0o005:
            assert found[str(entry)] == "--tmpfs"
        else:
            assert str(entry) not in found
    if os.path.exists("/etc/shadow"):
        assert found["/etc/shadow"] == "--ro-bind /dev/null"


@pytest.mark.parametrize(("network", "sockets"), [(True, "internet"), (False, "all")])
def test_bubblewrap_gets_the_filter_of_system_calls_on_a_descriptor(
    bwrap: str, project: Path, network: bool, sockets: str
) -> None:
    Path(bwrap).write_text('#!/bin/sh\nshift\ncat <&"$1"\n')
    root = os.path.realpath(project)
    runner = SandboxRunner(Sandbox(network=network), BACKENDS["bubblewrap"], root)

    argv = runner(["true"], root)
    done = subprocess.run(argv, capture_output=True, timeout=30, check=True)

    start = argv.index(bwrap)
    assert argv[start : start + 4] == [bwrap, "--seccomp", "9", "--unshare-all"]
    assert done.stdout == confine.make_filter(os.uname().machine, sockets=sockets)


@pytest.mark.parametrize("network", [True, False])
def test_bubblewrap_shares_the_network_only_if_it_is_allowed(
    bwrap: str, project: Path, network: bool
) -> None:
    argv = wrapped(project, network=network)

    assert "--unshare-all" in argv
    assert ("--share-net" in argv) is network


def test_bubblewrap_protects_the_git_folder_of_a_writable_project(
    bwrap: str, project: Path, tmp_path: Path
) -> None:
    root, git = os.path.realpath(project), f"{os.path.realpath(project)}/.git"

    without = mounts(wrapped(project))
    (project / ".git").mkdir()
    protected = mounts(wrapped(project))
    wanted = mounts(wrapped(project, write=[git]))
    read_only = mounts(wrapped(project, writable_root=False))

    assert (without[root], without.get(git)) == ("--bind", None)
    assert (protected[root], protected[git]) == ("--bind", "--ro-bind")
    assert (wanted[root], wanted[git]) == ("--bind", "--bind")
    assert (read_only[root], read_only.get(git)) == ("--ro-bind", None)


def test_bubblewrap_hides_sockets_in_visible_folders(
    bwrap: str, project: Path, tmp_path: Path
) -> None:
    names = [
        "\0glue-test/" + os.urandom(4).hex(),
        str(project / "inside"),
        str(project / "with a blank"),
        str(tmp_path / "outside"),
    ]
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(socket.socket(socket.AF_UNIX)).bind(name)

        found = mounts(wrapped(project))

    assert found[os.path.realpath(project / "inside")] == "--ro-bind /dev/null"
    assert found[os.path.realpath(project / "with a blank")] == "--ro-bind /dev/null"
    assert os.path.realpath(tmp_path / "outside") not in found


def test_bubblewrap_mounts_outer_folders_first(bwrap: str, project: Path, tmp_path: Path) -> None:
    inner = project / "inner"
    inner.mkdir()

    argv = wrapped(project, read=[inner], write=[tmp_path])

    root = os.path.realpath(tmp_path)
    places = [argv.index(f"{root}{name}") for name in ("", "/project")]
    assert places == sorted(places)
    assert mounts(argv)[root] == "--bind"


def test_a_sandbox_describes_itself_in_questions_and_to_models(project: Path) -> None:
    described = {}
    for writable in (True, False):
        for network in (True, False):
            sandbox = Sandbox(writable_root=writable, network=network)
            runner = SandboxRunner(sandbox, BACKENDS["landlock"], str(project))
            described[writable, network] = (runner.text, runner.limits)

    assert described == {
        (True, True): (
            "sandbox: landlock, with network",
            "network; only this folder can be written",
        ),
        (True, False): (
            "sandbox: landlock, no network",
            "no network; only this folder can be written",
        ),
        (False, True): (
            "sandbox: landlock, read-only, with network",
            "network; only $TMPDIR can be written",
        ),
        (False, False): (
            "sandbox: landlock, read-only, no network",
            "no network; only $TMPDIR can be written",
        ),
    }


def test_without_the_program_bubblewrap_is_an_error(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glue.tools.sandbox.PROGRAMS", str(project))

    with pytest.raises(ConfigError, match="bwrap is not installed; install bubblewrap"):
        wrapped(project)


def test_the_private_folder_is_removed_with_the_runner(backend: str, project: Path) -> None:
    runner = open_sandbox(Sandbox(backend=backend), project)
    assert runner is not None
    private = runner.private
    assert os.path.isdir(private)
    assert private in sandbox.PRIVATE

    del runner

    assert not os.path.exists(private)
    assert private not in sandbox.PRIVATE


def test_the_private_folder_stays_while_the_read_only_runner_is_used(project: Path) -> None:
    runner = SandboxRunner(Sandbox(), BACKENDS["landlock"], str(project))
    private, strict = runner.private, runner.read_only()

    del runner
    assert os.path.isdir(private)
    del strict

    assert not os.path.exists(private)


def test_a_private_folder_that_was_removed_already_is_not_an_error(project: Path) -> None:
    runner = SandboxRunner(Sandbox(), BACKENDS["landlock"], str(project))

    shutil.rmtree(runner.private)
    remove_private_folders()

    assert runner.private not in sandbox.PRIVATE


def test_private_folders_are_removed_before_a_process_ends_at_once(
    backend: str, project: Path
) -> None:
    runner = open_sandbox(Sandbox(backend=backend), project)
    assert runner is not None

    remove_private_folders()

    assert not os.path.exists(runner.private)


async def test_shell_tools_use_the_sandbox_and_say_so(backend: str, project: Path) -> None:
    tool = shell.tool(project, sandbox=Sandbox(backend=backend))

    assert callable(tool.target)
    text = tool.target({"command": "ls"}).text
    said = await tool("touch /usr/x")

    assert text == f"ls [sandbox: {backend}, no network]"
    assert said.endswith(
        "[exit code 1; it ran in a sandbox (no network; only this folder can be written)]"
    )
    assert await tool("exit 3") == "[exit code 3]"


async def test_processes_in_a_sandbox_end_with_the_command(backend: str, project: Path) -> None:
    length = str(10_000 + int.from_bytes(os.urandom(2), "big"))

    said = await shell.tool(project, sandbox=Sandbox(backend=backend))(
        f"setsid sleep {length} & sleep 0.2; echo done"
    )

    left = subprocess.run(["pgrep", "-fx", f"sleep {length}"], capture_output=True, check=False)
    assert said.startswith("done\n[exit code 0")
    assert left.stdout == b""


def test_private_files_of_the_system_cannot_be_read(attempt: Attempt) -> None:
    said = attempt(
        "cat /etc/shadow /etc/gshadow /etc/ssl/private/* /etc/security/opasswd /etc/sudoers;"
        "cat /etc/passwd > /dev/null && echo readable"
    )

    assert "root:" not in said
    assert "readable\n" in said


def test_a_command_cannot_write_to_the_terminal_of_the_user(attempt: Attempt) -> None:
    terminal, other = os.openpty()
    os.set_blocking(terminal, False)

    said = attempt(f"echo forged > {os.ttyname(other)}; echo forged > /dev/tty; true")

    assert "forged" not in said
    with pytest.raises(BlockingIOError):
        os.read(terminal, 100)
    os.close(terminal)
    os.close(other)


def test_git_works_in_a_linked_worktree(backend: str, tmp_path: Path) -> None:
    main, linked = tmp_path / "main", tmp_path / "linked"
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@x"]
    subprocess.run([*git, "init", "-q", main], check=True)
    subprocess.run([*git, "-C", main, "commit", "-qm", "x", "--allow-empty"], check=True)
    subprocess.run([*git, "-C", main, "worktree", "add", "-q", linked], check=True)
    (linked / "new").write_text("")
    runner = open_sandbox(Sandbox(backend=backend), linked)
    assert runner is not None

    argv = runner(["git", "status", "--short"], os.path.realpath(linked))
    env = {**shell.environment(), **runner.env}
    done = subprocess.run(
        argv, env=env, cwd=linked, capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.stdout, done.stderr) == ("?? new\n", "")


def test_a_git_file_that_names_another_folder_shows_nothing(
    attempt: Attempt, project: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/file").write_text("tOpSeCrEt")
    (project / ".git").write_text(f"gitdir: {tmp_path}/secret\n")

    assert "tOpSeCrEt" not in attempt(f"cat {tmp_path}/secret/file")


async def ask_once(tool: glue.Tool[..., Any], arguments: Any, answer: bool) -> tuple[str, int]:
    """Return the result of a call, and how often the user was asked."""
    asked: list[str] = []

    def ask(request: glue.permission.PermissionRequest) -> bool:
        asked.append(request.target)
        return answer

    script = Script(calls(call(tool.name, arguments)), "done")
    result = await glue.Agent(script, tools=[tool], permission=glue.Ask(ask)).run("x")
    said = next(each.text for each in result.messages if isinstance(each, glue.ToolMessage))
    return said, len(asked)


@pytest.mark.parametrize(
    ("command", "questions"),
    [
        ("cat file", 0),
        ("grep nothing file", 0),
        ("echo x > $TMPDIR/t && cat $TMPDIR/t", 0),
        ("touch file", 1),
        ("chmod 777 file", 1),
        ("echo x > new", 1),
        ("rm file", 1),
        ("mkdir -p a/b", 1),
    ],
)
async def test_only_a_command_that_writes_asks_if_wanted(
    backend: str, project: Path, command: str, questions: int
) -> None:
    (project / "file").write_text("before\n")
    tool = shell.tool(project, sandbox=Sandbox(backend=backend), questions="writes")

    refused, asked = await ask_once(tool, {"command": command}, False)
    assert os.listdir(project) == ["file"]
    allowed, again = await ask_once(tool, {"command": command}, True)

    assert (asked, again) == (questions, questions)
    assert refused.startswith("permission denied") is bool(questions)
    assert ("only $TMPDIR can be written" in allowed) is not bool(questions)
    assert "exit code 0" in allowed or command.startswith("grep")


async def test_a_command_that_runs_without_a_question_has_the_usual_time(
    backend: str, project: Path
) -> None:
    sandbox = Sandbox(backend=backend)
    tool = shell.tool(project, sandbox=sandbox, questions="writes", timeout=0.3)

    said, asked = await ask_once(tool, {"command": "exec sleep 20"}, False)

    assert asked == 0
    assert said.startswith("[stopped after 0.3 s;")


async def test_a_command_in_the_background_always_asks(backend: str, project: Path) -> None:
    tool = shell.tool(project, sandbox=Sandbox(backend=backend), questions="writes")

    assert (await ask_once(tool, {"command": "true", "background": True}, False))[1] == 1


async def test_a_command_that_wants_the_network_asks_if_the_sandbox_has_one(
    backend: str, project: Path, listener: int
) -> None:
    command = f"exec 3<>/dev/tcp/127.0.0.1/{listener} && cat <&3"

    def tool(network: bool) -> glue.Tool[..., Any]:
        sandbox = Sandbox(backend=backend, network=network)
        return shell.tool(project, sandbox=sandbox, questions="writes")

    said, asked = await ask_once(tool(True), {"command": command}, True)

    assert (said, asked) == ("hello\n[exit code 0]", 1)
    if backend == "bubblewrap":  # Landlock refuses the socket like a file: the question comes
        assert (await ask_once(tool(False), {"command": command}, True))[1] == 0


def test_questions_about_writes_need_a_sandbox(project: Path) -> None:
    with pytest.raises(ValueError, match="needs a sandbox"):
        shell.tools(project, sandbox="off", questions="writes")
    with pytest.raises(ValueError, match="questions must be 'all' or 'writes'"):
        shell.tools(project, questions="none")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="add shell=True"):
        coding.tools(project, questions="writes")


def test_without_a_backend_auto_uses_none_and_require_fails(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in BACKENDS:
        monkeypatch.setitem(BACKENDS, name, Missing())

    assert open_sandbox("auto", project) is None
    assert open_sandbox(Sandbox(required=False), project) is None
    assert shell.tool(project, questions="writes").confinement == "no sandbox"
    with pytest.raises(ConfigError, match="no sandbox works on this machine; install bubblewrap"):
        open_sandbox("require", project)
    with pytest.raises(ConfigError, match="this machine; run without a sandbox"):
        open_sandbox(Sandbox(backend="landlock"), project)


class Missing:
    """A backend that does not work on this machine."""

    name, note = "missing", ""

    def works(self) -> bool:
        return False

    def wrap(self, argv: Sequence[str], root: str, view: View) -> list[str]:
        raise AssertionError("it does not work")


class Working(Missing):
    """A backend that works on every machine."""

    def works(self) -> bool:
        return True


def test_a_backend_is_found_by_its_name_or_as_the_first_that_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = Working(), Working()
    monkeypatch.setitem(BACKENDS, "bubblewrap", first)
    monkeypatch.setitem(BACKENDS, "landlock", second)

    assert find_backend() is first
    assert find_backend("bubblewrap") is first
    assert find_backend("landlock") is second


@needs_linux
def test_landlock_works_if_the_kernel_has_a_version_that_is_new_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create_ruleset, of_version = 444, 1
    libc = ctypes.CDLL(None)
    version = libc.syscall(create_ruleset, None, 0, of_version)
    if version < 3:
        pytest.skip("needs Landlock of Linux 6.2")

    assert BACKENDS["landlock"].works()
    monkeypatch.setattr(confine, "OLDEST", version)
    assert sandbox._landlock_works.__wrapped__()
    monkeypatch.setattr(confine, "OLDEST", version + 1)
    assert not sandbox._landlock_works.__wrapped__()


def test_bubblewrap_works_if_the_program_can_start_another_one(
    bwrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    works = sandbox._bubblewrap_works.__wrapped__

    assert works()
    Path(bwrap).write_text("#!/bin/sh\nexit 1\n")
    assert not works()
    Path(bwrap).write_text("not a program")
    assert not works()
    Path(bwrap).unlink()
    assert not works()


def paths_of(folder: Path, found: Sequence[str]) -> list[str]:
    return [os.path.relpath(path, folder) for path in found]


@pytest.fixture
def etc() -> Iterator[Path]:
    """A folder with public and private files, in a folder that all users can read."""
    with tempfile.TemporaryDirectory() as name:
        top = Path(os.path.realpath(name))
        top.chmod(0o755)
        for folder in ("public/inner", "mixed/inner", "private"):
            (top / folder).mkdir(parents=True)
        for file, mode in {
            "hosts": 0o644,
            "program": 0o755,
            "secret-program": 0o711,
            "shadow": 0o640,
            "public/file": 0o644,
            "public/inner/file": 0o444,
            "mixed/key": 0o600,
            "mixed/list": 0o644,
            "mixed/inner/file": 0o644,
            "private/file": 0o644,
        }.items():
            (top / file).write_text(file)
            (top / file).chmod(mode)
        (top / "private").chmod(0o700)
        yield top


def test_files_of_the_system_are_readable_if_all_users_may_read_them(etc: Path) -> None:
    (etc / "link").symlink_to("hosts")

    public, hidden, mixed = (paths_of(etc, found) for found in sandbox._etc(str(etc)))

    assert public == ["hosts", "link", "mixed/inner", "mixed/list", "program", "public"]
    assert hidden == ["mixed/key", "private", "secret-program", "shadow"]
    assert mixed == ["mixed", "."]


def test_a_folder_that_all_may_search_but_not_list_is_hidden(etc: Path) -> None:
    (etc / "public").chmod(0o711)
    (etc / "mixed").chmod(0o744)

    hidden = paths_of(etc, sandbox._etc(str(etc))[1])

    assert hidden == ["mixed", "private", "public", "secret-program", "shadow"]


def test_a_link_does_not_make_a_private_file_readable(etc: Path) -> None:
    for link in ("shadow", "secret-program", "hosts", "nothing"):
        (etc / f"mixed/inner/to-{link}").symlink_to(f"../../{link}")
    (etc / "mixed/inner/to-itself").symlink_to("to-itself")

    public, hidden, mixed = (paths_of(etc, found) for found in sandbox._etc(str(etc)))

    assert public == [
        "hosts",
        "mixed/inner/file",
        "mixed/inner/to-hosts",
        "mixed/inner/to-nothing",
        "mixed/list",
        "program",
        "public",
    ]
    assert hidden == ["mixed/key", "private", "secret-program", "shadow"]
    assert mixed == ["mixed/inner", "mixed", "."]


def test_a_folder_that_cannot_be_listed_is_hidden(etc: Path) -> None:
    nobody = 65534
    if os.geteuid() == 0:
        os.chown(etc / "public", nobody, nobody)
    (etc / "public").chmod(0o005)  # for all users but its owner

    before = os.geteuid()
    if before == 0:
        os.seteuid(nobody)
    try:
        hidden = paths_of(etc, sandbox._etc(str(etc))[1])
    finally:
        os.seteuid(before)
        (etc / "public").chmod(0o755)

    assert hidden == ["mixed/key", "private", "public", "secret-program", "shadow"]


def test_only_outermost_paths_outside_the_system_and_written_folders_are_named(
    tmp_path: Path,
) -> None:
    for name in ("a/b", "ab", "written/inner"):
        (tmp_path / name).mkdir(parents=True)
    inside = [str(tmp_path / name) for name in ("ab", "a/b", "a", "missing", "written/inner")]

    found = sandbox._outermost([*inside, "/usr", "/usr/bin"], [str(tmp_path / "written")])

    assert found == (str(tmp_path / "a"), str(tmp_path / "ab"))


def test_the_folders_of_programs_are_those_of_path_and_of_this_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "venv/pyvenv.cfg").write_text("")
    monkeypatch.setenv("PATH", f"{tmp_path}/plain/bin:relative:{tmp_path}/venv/bin")
    monkeypatch.setattr(sys, "executable", f"{tmp_path}/python/bin/python")

    assert list(sandbox._program_folders()) == [
        f"{tmp_path}/plain/bin",
        f"{tmp_path}/venv",
        f"{tmp_path}/python/bin",
        sys.base_prefix,
    ]


def test_the_home_folder_is_not_shown_because_it_is_in_path(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home/bin").mkdir(parents=True)
    monkeypatch.setenv("HOME", f"{tmp_path}/home")
    monkeypatch.setenv("PATH", f"/:{tmp_path}/home:{tmp_path}/home/bin")

    read = SandboxRunner(Sandbox(), BACKENDS["landlock"], str(project)).view.read

    assert f"{tmp_path}/home/bin" in read
    assert not {"/", f"{tmp_path}/home"} & {*read}


def test_the_addresses_of_name_servers_are_shown_only_with_a_network(project: Path) -> None:
    file = os.path.realpath("/etc/resolv.conf")
    if not os.path.exists(file):
        pytest.skip("this machine has no name servers")

    def shown(network: bool) -> bool:
        options = Sandbox(network=network)
        return file in SandboxRunner(options, BACKENDS["landlock"], str(project)).view.read

    assert (shown(True), shown(False)) == (True, False)


@needs_linux
def test_the_git_folders_of_a_linked_worktree_may_borrow_objects(tmp_path: Path) -> None:
    first, main, linked = tmp_path / "first", tmp_path / "main", tmp_path / "linked"
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@x"]
    subprocess.run([*git, "init", "-q", first], check=True)
    subprocess.run([*git, "-C", first, "commit", "-qm", "x", "--allow-empty"], check=True)
    subprocess.run([*git, "clone", "-q", "--shared", first, main], check=True)
    subprocess.run([*git, "-C", main, "worktree", "add", "-q", linked], check=True)
    before = len(os.listdir("/proc/self/fd"))

    found = sandbox._git_folders(str(linked))

    assert found == [f"{main}/.git/worktrees/linked", f"{main}/.git"]
    assert sandbox._git_folders(str(main)) == []
    assert len(os.listdir("/proc/self/fd")) == before


def test_auto_uses_the_best_sandbox_and_off_none(project: Path) -> None:
    best = find_backend()
    runner = open_sandbox("auto", project)

    assert (runner.backend if runner is not None else None) is best
    assert open_sandbox("off", project) is None
    with pytest.raises(ValueError, match="auto, require, off or a Sandbox"):
        open_sandbox("on", project)


def test_a_missing_folder_and_a_string_are_refused(project: Path) -> None:
    if find_backend() is None:
        pytest.skip("no sandbox works here")
    with pytest.raises(ConfigError, match="does not exist"):
        open_sandbox(Sandbox(read=["/no/such/folder"]), project)
    with pytest.raises(TypeError, match="read must be a list"):
        Sandbox(read="/srv")
    with pytest.raises(ValueError, match="backend must be"):
        Sandbox(backend="chroot")


def test_coding_tools_run_commands_in_a_sandbox_unless_told_otherwise(project: Path) -> None:
    best = find_backend()

    def question(**options: object) -> str:
        made = coding.tools(project, **options)  # type: ignore[arg-type]
        target = next(tool.target for tool in made if tool.name == "shell")
        assert callable(target)
        return str(target({"command": "ls"}).text)

    assert question(shell="open") == "ls [no sandbox]"
    expected = f"sandbox: {best.name}, no network" if best is not None else "no sandbox"
    assert question(shell=True) == f"ls [{expected}]"
    if best is not None:
        assert question(shell=Sandbox(network=True)) == f"ls [sandbox: {best.name}, with network]"
    with pytest.raises(TypeError, match="shell must be"):
        coding.tools(project, shell="closed")  # type: ignore[arg-type]
