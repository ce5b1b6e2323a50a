"""Tools that run shell commands, each with permission and, if a sandbox works, in a sandbox.

    from glue.tools import shell

    agent = glue.Agent("openai", tools=shell.tools("."), permission=policy)

A permission is not a sandbox: without a sandbox, an allowed command can do everything that the user
can do.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

from glue import Tool
from glue import tool as make_tool
from glue.errors import ConfigError, ToolError, UnsafePath
from glue.function.spool import cap
from glue.permission import PermissionTarget
from glue.tasks import StopFlag, in_stoppable_thread
from glue.text import one_line
from glue.tools.fs.root import Root
from glue.tools.process import run
from glue.tools.sandbox import PROGRAMS, Sandbox, SandboxRunner, open_sandbox

__all__ = ["docker", "tool", "tools"]

SECONDS = 120.0
LONGEST = 600.0  # seconds that a model may ask for, unless the tool's own limit is higher
BACKGROUND_SECONDS = 3600.0
KEPT = 8 * 1024 * 1024  # bytes of output that are kept from its start
KILLED = 64 * 1024 * 1024  # bytes of output after which a command is stopped
SHOWN = 16_000  # characters of head and tail
MAX_COMMAND = 64 * 1024
MAX_JOBS = 8
# The variables that a command inherits: no keys, and none that changes which code programs load.
PASSED = (
    "HOME",
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_CTYPE",
    "LOGNAME",
    "SHELL",
    "TMPDIR",
    "TZ",
    "USER",
)
MARK = "GLUE_SHELL"  # a variable that marks all processes of a command
# Messages of programs that a sandbox keeps from writing, or from the network.
NOT_WRITTEN = re.compile(
    r"read-only file system|permission denied|operation not permitted|\b(?:eacces|erofs|eperm)\b"
    r"|unable to create|cannot create|can't create|could not create"
    r"|cannot open .{0,200} for writing"
    r"|not writable|unwritable",
    re.IGNORECASE,
)
NOT_REACHED = re.compile(
    r"network is unreachable|could not resolve|name resolution|name or service not known"
    r"|getaddrinfo|no route to host|failed to connect|could not connect|couldn't connect"
    r"|connection refused|\b(?:enetunreach|eai_again|enotfound|econnrefused)\b",
    re.IGNORECASE,
)

Runner = Callable[[Sequence[str], str], list[str]]  # (argv, root) -> argv that confines it
Questions = Literal["all", "writes"]


def tool(
    root: str | os.PathLike[str] = ".",
    *,
    timeout: float = SECONDS,
    env: Mapping[str, str] | None = None,
    sandbox: Sandbox | str = "auto",
    runner: Runner | None = None,
    questions: Questions = "all",
) -> Tool[..., Any]:
    """Return the tool that runs commands in `root`, without the tool for background commands.

    The parameters are those of `tools`.
    """
    return tools(
        root, timeout=timeout, env=env, sandbox=sandbox, runner=runner, questions=questions
    )[0]


def tools(
    root: str | os.PathLike[str] = ".",
    *,
    timeout: float = SECONDS,
    env: Mapping[str, str] | None = None,
    sandbox: Sandbox | str = "auto",
    runner: Runner | None = None,
    questions: Questions = "all",
) -> list[Tool[..., Any]]:
    """Return the tool that runs commands, and the tool that reads and stops background commands.

    Each command is shown to the permission policy exactly as it will run.

    >>> [tool.name for tool in tools(".")]
    ['shell', 'shell_job']

    Args:
        root: the folder in which commands run.
        timeout: seconds after which a command is stopped, unless the model asks for another limit.
        env: variables to add to the few that a command inherits.
        sandbox: "auto" confines commands with bubblewrap or Landlock if one works, "require" raises
            ConfigError if none works, "off" confines nothing. A `Sandbox` names more folders, the
            network or variables, and must work. The permission question names the sandbox.
        runner: a function that wraps the argument list to confine the command, instead of a
            sandbox: the result of `docker("python:3.12")`, or your own.
        questions: "all" asks for permission before each command. "writes" first runs the command
            without a question, in a sandbox that can neither write to the project nor use a
            network, and asks only if the command fails because of that. This applies to commands
            that only a person can allow. If no sandbox works, every command asks.
    """
    if questions not in get_args(Questions):
        raise ValueError(f"questions must be 'all' or 'writes', not {questions!r}")
    if questions == "writes" and (runner is not None or sandbox == "off"):
        raise ValueError("questions='writes' needs a sandbox; leave out runner= and sandbox='off'")
    if not 0 < timeout < float("inf"):
        raise ValueError(f"timeout must be a finite number of seconds above 0, not {timeout!r}")
    home = os.path.realpath(root)
    if not os.path.isdir(home):
        raise ValueError(f"root {os.fspath(root)!r} is not a directory")
    confined: SandboxRunner | None = None
    if runner is None:
        confined = open_sandbox(sandbox, home)
        runner = confined
    elif sandbox != "auto":
        raise ValueError("give a sandbox or a runner, not both")
    known = {**environment(), **(confined.env if confined is not None else {}), **(env or {})}
    note = describe_runner(runner)
    jobs = _Jobs()
    longest, usual = max(timeout, LONGEST), timeout

    async def shell(
        command: str | list[str], timeout: float = 0, cwd: str = ".", background: bool = False
    ) -> str:
        """Run a command without terminal or input; returns output and exit code.
        Prefer the file tools for files.

        Args:
            command: a shell command line, or a program and its arguments
            timeout: seconds after which it is stopped; 0 for the usual limit
            cwd: folder, relative to the root
            background: return at once; shell_job reads its output
        """
        started = prepare(runner, command, timeout, cwd, background)
        if background:
            return jobs.start(started)
        return started.report(await in_stoppable_thread(started.run))

    def prepare(
        runner: Runner | None,
        command: str | list[str],
        timeout: float = 0,
        cwd: str = ".",
        background: bool = False,
    ) -> ShellCommand:
        argv, folder = _argv(command), _resolve_folder(home, cwd)
        if folder != home:
            argv = ["/bin/sh", "-c", 'cd -- "$0" && exec "$@"', folder, *argv]
        argv = runner(argv, home) if runner is not None else argv
        if background:
            default = most = BACKGROUND_SECONDS
        else:
            default, most = usual, longest
        seconds = min(timeout, most) if timeout > 0 else default
        return ShellCommand(argv, known, home, runner, seconds)

    async def trial(given: Mapping[str, Any]) -> str | None:
        """Run a command in the read-only sandbox; return its output, or None to ask for permission.

        The output may be that of a command that failed for another reason. None means that the
        command must run outside of that sandbox, which needs permission: it failed because of the
        sandbox, or is meant for the background.
        """
        if given.get("background"):
            return None
        started = prepare(strict, **given)
        note = await in_stoppable_thread(started.run)
        may_reach = confined is not None and confined.sandbox.network
        if note != "exit code 0" and started.wanted_more(may_reach):
            return None
        return started.report(note)

    async def shell_job(job: int, stop: bool = False, wait: float = 0) -> str:
        """Return the new output of a background command and whether the command still runs.

        Args:
            job: number of the command
            stop: end the command
            wait: seconds to wait for its end, at most 60
        """
        return await in_stoppable_thread(jobs.report, job, stop, min(max(wait, 0), 60))

    def permission_target(given: Mapping[str, Any]) -> PermissionTarget:
        command, folder = given["command"], _resolve_folder(home, given.get("cwd", "."))
        where = f" (in {one_line(os.path.relpath(folder, home))})" if folder != home else ""
        later = " (in the background)" if given.get("background") else ""
        exact = command if isinstance(command, str) else tuple(command)
        return PermissionTarget(
            text=f"{verbatim(command)}{where}{later} [{note}]",
            command=exact,
            folder=folder,
            conditions=f"{note}{later}",
        )

    with_permission = make_tool(
        needs_permission=True,
        target=permission_target,
        alone=True,
        max_output=None,
        read_only=False,
        kind="execute",
    )
    run_tool = with_permission(shell)
    run_tool.root, run_tool.confinement = home, note
    if confined is not None:
        run_tool.confine = lambda command: _with_environment(confined(_argv(command), home), known)
    strict = confined.read_only() if confined is not None and questions == "writes" else None
    if strict is not None:
        run_tool.trial = trial
    return [run_tool, make_tool(max_output=None)(shell_job)]


def describe_runner(runner: Runner | None) -> str:
    """Return a few words about the sandbox of commands, such as "no sandbox"."""
    if runner is None:
        return "no sandbox"
    return str(getattr(runner, "text", "sandbox: a custom runner"))


def environment() -> dict[str, str]:
    """Return the environment variables that every command gets, by name.

    They are TERM, NO_COLOR, PATH and the variables of this process that PASSED names. Relative
    folders are removed from PATH.
    """
    kept = {key: os.environ[key] for key in PASSED if key in os.environ}
    folders = [
        folder for folder in os.environ.get("PATH", "").split(os.pathsep) if os.path.isabs(folder)
    ]
    return {
        **kept,
        "PATH": os.pathsep.join(folders) or "/usr/bin:/bin",
        "TERM": "dumb",
        "NO_COLOR": "1",
    }


def verbatim(command: str | Sequence[str]) -> str:
    """Return the exact text of a command, or "escaped: " and its JSON if it is unprintable.

    A command that begins with "escaped: " is also returned as JSON.
    """
    text = command if isinstance(command, str) else shlex.join(command)
    if text.isprintable() and not text.startswith("escaped: "):
        return text
    return "escaped: " + json.dumps(text)


def docker(image: str, *, program: str = "", options: Sequence[str] = ()) -> Runner:
    """Return a runner that starts each command in a new container without a network.

    The container can read and write the project.

    Args:
        image: the container image.
        program: "docker" or "podman"; if left out, the one that is installed.
        options: arguments to add to `docker run`.
    """
    names = (program,) if program else ("docker", "podman")
    paths = (shutil.which(name, path=PROGRAMS) for name in names)
    found = next(filter(None, paths), None)
    if found is None:
        raise ConfigError(
            f"{program or 'docker or podman'} is not installed; install it, or use a Sandbox"
        )
    return _Container(found, image, tuple(options))


class _Container:
    """A runner that starts commands in containers, and kills the container of a stopped command."""

    def __init__(self, program: str, image: str, options: tuple[str, ...]) -> None:
        self.program, self.image, self.options = program, image, options
        self.text = f"sandbox: {os.path.basename(program)} {image}"

    def __call__(self, argv: Sequence[str], root: str) -> list[str]:
        podman = os.path.basename(self.program) == "podman"
        user = ["--userns=keep-id"] if podman else ["--user", f"{os.getuid()}:{os.getgid()}"]
        name = f"glue-{os.urandom(8).hex()}"
        made = [self.program, "run", "--rm", "--init", "--name", name, "--network", "none", *user]
        made += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
        made += ["--pids-limit", "512"]
        made += ["--mount", f"type=bind,source={root},target={root}", "--workdir", root]
        git = os.path.join(root, ".git")
        if os.path.lexists(git):
            made += ["--mount", f"type=bind,source={git},target={git},readonly"]
        return [*made, *self.options, self.image, *argv]

    def end(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        """Kill the container of a stopped command; killing the docker client is not enough."""
        name = argv[argv.index("--name") + 1]
        run([self.program, "kill", name], env=env, cwd="/", deadline=10.0, cap=4096)


def _resolve_folder(home: str, cwd: str) -> str:
    """Return the absolute path of the folder `cwd`; raise ToolError if it is not in `home`."""
    try:
        with Root(home) as root, root.directory(cwd) as place:
            return os.path.join(home, *place.names)
    except OSError as error:
        raise ToolError(
            f"cwd {one_line(cwd, 200)!a}: {(error.strerror or 'cannot be used').lower()}"
        ) from None
    except UnsafePath as error:
        raise ToolError(f"cwd: {error}") from None


def _argv(command: str | list[str]) -> list[str]:
    """Return the argument list of a command. A command that is one text is run by bash or sh.

    A list of arguments is returned unchanged. /bin/sh is used if there is no /bin/bash. Raise
    ToolError if the command is empty, too long, or contains a NUL character.
    """
    words = [command] if isinstance(command, str) else command
    if not words or not words[0]:
        raise ToolError("the command is empty")
    if len("\n".join(words)) > MAX_COMMAND or any("\0" in word for word in words):
        size = len("\n".join(words))
        raise ToolError(
            f"the command has {size} characters; at most {MAX_COMMAND} are allowed"
            if size > MAX_COMMAND
            else "the command contains a NUL character, which cannot be passed to a program"
        )
    if words is command:
        return words
    return ["/bin/bash" if os.access("/bin/bash", os.X_OK) else "/bin/sh", "-c", *words]


def _with_environment(argv: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """Return an argument list that runs a command with the variables in `env` and no others."""
    return ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in env.items()), *argv]


class ShellCommand:
    """A shell command, with the start and the end of its output so far."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        home: str,
        runner: Runner | None,
        seconds: float,
    ) -> None:
        self.argv, self.home, self.runner, self.seconds = argv, home, runner, seconds
        self.mark = f"{MARK}={os.urandom(8).hex()}"
        self.env = {**env, MARK: self.mark.partition("=")[2]}
        self.head, self.tail = bytearray(), bytearray()
        self.seen = self.read = 0  # bytes of output: received, and reported
        self.lock = threading.Lock()
        # Used only if the command runs in the background:
        self.began, self.stop, self.ending = time.monotonic(), StopFlag(), ""
        self.thread = threading.Thread(target=self._run, name="glue-shell-job", daemon=True)

    def _run(self) -> None:
        try:
            self.ending = self.run(self.stop)
        except ToolError as error:
            self.ending = str(error)

    def run(self, stop: StopFlag) -> str:
        """Run the command until it ends or is stopped, and return a note such as "exit code 0".

        Raise ToolError if it cannot be started.
        """
        try:
            done = run(
                self.argv,
                env=self.env,
                cwd=self.home,
                deadline=self.seconds,
                sink=self.store_output,
                merged=True,
                stop=stop,
                mark=self.mark,
            )
        except (OSError, UnicodeEncodeError) as error:
            raise ToolError(
                f"the command could not be started: {getattr(error, 'strerror', '') or error}"
            ) from None
        end = getattr(self.runner, "end", None)
        if end is not None and done.reason:
            end(self.argv, self.env)
        exit_note = f"ended by signal {-done.code}" if done.code < 0 else f"exit code {done.code}"
        note = {
            "": exit_note,
            "deadline": f"stopped after {self.seconds:g} s; its output until then is above",
            "enough": f"stopped, because the command printed more than {KILLED} bytes",
        }.get(done.reason, "stopped")
        if not done.left:
            return note
        names = ", ".join(one_line(name, 60) for name in done.left[:5])
        more = f" and {len(done.left) - 5} more" if len(done.left) > 5 else ""
        return f"{note}; killed processes that it left running: {names}{more}"

    def store_output(self, block: bytes) -> bool:
        """Store a block of output; return False if the command printed so much that it must end.

        Only the start and the end of a long output are kept.
        """
        with self.lock:
            self.seen += len(block)
            room = max(KEPT - len(self.head), 0)
            self.head.extend(block[:room])
            self.tail.extend(block[room:])
            del self.tail[: max(len(self.tail) - SHOWN, 0)]
        return self.seen < KILLED

    def wanted_more(self, network: bool) -> bool:
        """Return whether the output has a message that a sandbox may have caused.

        Args:
            network: whether messages about the network count too, not only those about writing.
        """
        with self.lock:
            text = (self.head + self.tail).decode("utf-8", "replace")
        found = NOT_WRITTEN.search(text) or (network and NOT_REACHED.search(text))
        return found is not None and found is not False

    def report(self, note: str) -> str:
        """Mark the command's output as reported, and return the new output followed by `note`."""
        with self.lock:
            tail = self.seen - len(self.tail)  # the position at which the tail starts
            lost = max(tail - max(self.read, len(self.head)), 0)
            gap = f"\n[{lost} bytes were not kept]\n".encode() if lost else b""
            new = self.head[self.read :] + gap + self.tail[max(self.read - tail, 0) :]
            self.read = self.seen
        text = cap(new.decode("utf-8", "replace"), SHOWN)
        if isinstance(self.runner, SandboxRunner) and note.startswith("exit code"):
            is_strict = not self.runner.sandbox.writable_root
            is_confined = NOT_WRITTEN.search(text) or NOT_REACHED.search(text)
            if is_strict or (note != "exit code 0" and is_confined):
                note += f"; it ran in a sandbox ({self.runner.limits})"
        separator = "" if not text or text.endswith("\n") else "\n"
        return f"{text}{separator}[{note}]"


class _Jobs:
    """The background commands by number; they are killed at exit and when the object is deleted."""

    def __init__(self) -> None:
        self.jobs: dict[int, ShellCommand] = {}
        self.lock = threading.Lock()
        self.count = 0
        weakref.finalize(self, _end_all, self.jobs)

    def start(self, command: ShellCommand) -> str:
        """Start a command in the background and return a note with its job number.

        Raise ToolError if too many commands run in the background.
        """
        with self.lock:
            running = [number for number, job in self.jobs.items() if job.thread.is_alive()]
            if len(running) >= MAX_JOBS:
                raise ToolError(
                    f"{MAX_JOBS} commands already run in the background; end one with shell_job"
                )
            self.count += 1
            ended = [number for number in self.jobs if number not in running]
            for number in ended:
                if number < self.count - 50:
                    del self.jobs[number]
            self.jobs[self.count] = command
            command.thread.start()
            limit = f"it is stopped after {command.seconds:g} s"
            return f"[started in the background as job {self.count}; {limit}]"

    def report(self, flag: StopFlag, number: int, stop: bool, wait: float) -> str:
        """Wait for a job, or stop it if `stop`; return its new output and its state.

        Wait up to `wait` seconds, or 5 if the job is stopped; wait no longer if `flag` is set.
        """
        job = self.jobs.get(number)
        if job is None:
            raise ToolError(
                f"job {number} does not exist; known jobs: "
                f"{', '.join(map(str, self.jobs)) or 'none'}"
            )
        if stop:
            job.stop.set()
            wait = 5.0
        until = time.monotonic() + wait
        while job.thread.is_alive() and time.monotonic() < until and not flag:
            job.thread.join(0.05)
        running = f"running for {time.monotonic() - job.began:.0f} s"
        return job.report(running if job.thread.is_alive() else job.ending)


def _end_all(jobs: dict[int, ShellCommand]) -> None:
    """Stop all commands, then wait for their threads, one by one, at most 3 seconds for each."""
    for job in jobs.values():
        job.stop.set()
    for job in jobs.values():
        # The garbage collector may run this function in the thread of a job.
        if job.thread.is_alive() and job.thread is not threading.current_thread():
            job.thread.join(3.0)
