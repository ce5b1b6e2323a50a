"""Run commands: off unless it is asked for, and only with permission.

A permission gate is not a sandbox. A command that was allowed can do all that the user can do; a runner confines it:
`bubblewrap` where `bwrap` is installed, or `docker("python:3.12")`.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from glue import PermissionTarget, Tool, one_line
from glue import tool as make
from glue.errors import ConfigError, ToolError, UnsafePath
from glue.function.call import cap
from glue.tools.fs.root import Root
from glue.tools.process import StopFlag, in_thread, run

SECONDS = 120.0
LONGEST = 600.0  # seconds that a model may ask for, where the tool's own limit is not above it
BACKGROUND_SECONDS = 3600.0
KEPT = 8 * 1024 * 1024  # of output, for the spool
KILLED = 64 * 1024 * 1024  # of output, after which a command is stopped
SHOWN = 30_000  # characters of head and tail
MAX_COMMAND = 64 * 1024
MAX_JOBS = 8
# All that a command sees of our environment: nothing that is a key, and nothing that changes what programs load.
PASSED = ("HOME", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LOGNAME", "SHELL", "TMPDIR", "TZ", "USER")
MARK = "GLUE_SHELL"  # tells a command's own processes from others
PROGRAMS = "/usr/local/bin:/usr/bin:/bin:/opt/homebrew/bin"
HIDDEN = ("/tmp", "/home", "/root", "/run", "/var", "/mnt", "/media", "/srv")

Runner = Callable[[Sequence[str], str], list[str]]


def tool(
    root: str | os.PathLike[str] = ".",
    *,
    timeout: float = SECONDS,
    env: Mapping[str, str] | None = None,
    runner: Runner | None = None,
    name: str = "shell",
) -> Tool[..., Any]:
    """Make the tool that runs commands in `root`; each one is put to the permission policy, word for word.

    `env` adds variables to the few that are passed on. `runner` wraps the argument list, as `bubblewrap` does.
    """
    return tools(root, timeout=timeout, env=env, runner=runner, name=name)[0]


def tools(
    root: str | os.PathLike[str] = ".",
    *,
    timeout: float = SECONDS,
    env: Mapping[str, str] | None = None,
    runner: Runner | None = None,
    name: str = "shell",
) -> list[Tool[..., Any]]:
    """Make the tool that runs commands, and the one that looks after those in the background."""
    if not 0 < timeout < float("inf"):
        raise ValueError(f"timeout must be a number of seconds above 0, not {timeout!r}")
    home = os.path.realpath(root)
    if not os.path.isdir(home):
        raise ValueError(f"root {os.fspath(root)!r} is not a directory")
    known = {**environment(), **(env or {})}
    jobs = _Jobs()
    longest, usual = max(timeout, LONGEST), timeout

    async def shell(command: str | list[str], timeout: float = 0, cwd: str = ".", background: bool = False) -> str:
        """Run a command, without terminal or input; gives output and exit code. Prefer the file tools for files.

        Args:
            command: a shell command line, or a program and its arguments
            timeout: seconds until it is stopped, if not the usual
            cwd: folder, relative to the root
            background: return at once; shell_job reads its output
        """
        argv, folder = _argv(command), _folder(home, cwd)
        if folder != home:
            argv = ["/bin/sh", "-c", 'cd -- "$0" && exec "$@"', folder, *argv]
        argv = runner(argv, home) if runner is not None else argv
        most, unless_said = (BACKGROUND_SECONDS, BACKGROUND_SECONDS) if background else (longest, usual)
        made = ShellCommand(argv, known, home, runner, min(timeout, most) if timeout > 0 else unless_said)
        if background:
            return jobs.start(made)
        return made.report(await in_thread(made.run))

    async def shell_job(job: int, stop: bool = False, wait: float = 0) -> str:
        """Read what a background command printed since the last look, and whether it runs.

        Args:
            job: its number
            stop: end it
            wait: seconds to wait for its end, at most 60
        """
        return await in_thread(lambda flag: jobs.look(job, stop, min(max(wait, 0), 60), flag))

    def touched(given: Mapping[str, Any]) -> PermissionTarget:
        command, folder = given["command"], _folder(home, given.get("cwd", "."))
        where = f" (in {one_line(os.path.relpath(folder, home))})" if folder != home else ""
        later = " (in the background)" if given.get("background") else ""
        exact = command if isinstance(command, str) else tuple(command)
        return PermissionTarget(text=verbatim(command) + where + later, command=exact, folder=folder)

    run_tool = make(name=name, needs_permission=name, target=touched, alone=True, max_output=None)(shell)
    run_tool.root = home
    job_tool = make(name=f"{name}_job", max_output=None)(shell_job)
    return [run_tool, job_tool]


def environment() -> dict[str, str]:
    """Pick the variables that a command may see."""
    kept = {key: os.environ[key] for key in PASSED if key in os.environ}
    folders = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if os.path.isabs(folder)]
    return {**kept, "PATH": os.pathsep.join(folders) or "/usr/bin:/bin", "TERM": "dumb", "NO_COLOR": "1"}


def verbatim(command: str | Sequence[str]) -> str:
    """Write a command as it will run; escaped, and marked so, where characters would hide something."""
    text = command if isinstance(command, str) else shlex.join(command)
    if text.isprintable() and not text.startswith("escaped: "):
        return text
    return "escaped: " + json.dumps(text)


# Runners -------------------------------------------------------------------------------------------------


def bubblewrap(argv: Sequence[str], root: str) -> list[str]:
    """Wrap a command so that it sees the system read-only, writes to the project alone, and reaches no network.

    Nor does it reach a socket of the host: folders that hold them are empty, and those elsewhere are covered.
    """
    program = shutil.which("bwrap", path=PROGRAMS)
    if program is None:
        raise ConfigError("bwrap is not installed; install bubblewrap, or run without this runner")
    options = [program, "--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/", "/"]
    options += ["--dev", "/dev", "--proc", "/proc"]
    for folder in HIDDEN:
        if os.path.isdir(folder) and not os.path.islink(folder):
            options += ["--tmpfs", folder]
    options += ["--bind", root, root]
    git = os.path.join(root, ".git")
    if os.path.lexists(git):
        options += ["--ro-bind", git, git]
    for socket in _sockets(root):
        options += ["--ro-bind", "/dev/null", socket]
    return [*options, "--chdir", root, "--", *argv]


def _sockets(root: str) -> list[str]:
    """List the sockets of the host that a sandbox would still see."""
    try:
        with open("/proc/net/unix", encoding="utf-8", errors="surrogateescape") as file:
            names = {line.split(maxsplit=7)[7].rstrip("\n") for line in file if line.count(" ") >= 7 and "/" in line}
    except (OSError, IndexError):
        return []
    hidden = tuple(f"{folder}/" for folder in HIDDEN)
    inside = os.path.join(root, "")
    found = {os.path.realpath(name) for name in names if name.startswith("/") and os.path.exists(name)}
    return sorted(
        name for name in found if name.startswith(inside) or not name.startswith((*hidden, "/dev/", "/proc/"))
    )


def docker(image: str, *, program: str = "", options: Sequence[str] = ()) -> Runner:
    """Make a runner that starts each command in a new container of `image`, which sees the project and no network.

    `program` is docker or podman, whichever is installed if left out; `options` are added to its `run`.
    """
    names = (program,) if program else ("docker", "podman")
    found = next((path for name in names if (path := shutil.which(name, path=PROGRAMS))), None)
    if found is None:
        raise ConfigError(f"{program or 'neither docker nor podman'} is not installed; install one, or use bubblewrap")
    return _Container(found, image, tuple(options))


class _Container:
    """Commands in containers; one that does not end in time is ended by its name."""

    def __init__(self, program: str, image: str, options: tuple[str, ...]) -> None:
        self.program, self.image, self.options = program, image, options

    def __call__(self, argv: Sequence[str], root: str) -> list[str]:
        podman = os.path.basename(self.program) == "podman"
        user = ["--userns=keep-id"] if podman else ["--user", f"{os.getuid()}:{os.getgid()}"]
        made = [self.program, "run", "--rm", "--init", "--name", f"glue-{os.urandom(8).hex()}", "--network", "none"]
        made += [*user, "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--pids-limit", "512"]
        made += ["--mount", f"type=bind,source={root},target={root}", "--workdir", root]
        git = os.path.join(root, ".git")
        if os.path.lexists(git):
            made += ["--mount", f"type=bind,source={git},target={git},readonly"]
        return [*made, *self.options, self.image, *argv]

    def end(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        """Kill the container of a command that was stopped: its client's end is not its own."""
        name = argv[argv.index("--name") + 1]
        run([self.program, "kill", name], env=env, cwd="/", deadline=10.0, cap=4096)


# Commands ------------------------------------------------------------------------------------------------


def _folder(home: str, cwd: str) -> str:
    try:
        with Root(home) as root, root.directory(cwd) as place:
            return os.path.join(home, *place.names)
    except OSError as error:
        raise ToolError(f"cwd {one_line(cwd, 200)!a}: {(error.strerror or 'cannot be used').lower()}") from None
    except UnsafePath as error:
        raise ToolError(f"cwd: {error}") from None


def _argv(command: str | list[str]) -> list[str]:
    words = [command] if isinstance(command, str) else command
    if not words or not words[0]:
        raise ToolError("the command is empty")
    if len("\n".join(words)) > MAX_COMMAND or any("\0" in word for word in words):
        raise ToolError(f"a command is at most {MAX_COMMAND} characters long and holds no NUL")
    if words is command:
        return words
    return ["/bin/bash" if os.access("/bin/bash", os.X_OK) else "/bin/sh", "-c", *words]


class ShellCommand:
    """One command that runs, with what it has printed so far."""

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str], home: str, runner: Runner | None, seconds: float
    ) -> None:
        self.argv, self.home, self.runner, self.seconds = argv, home, runner, seconds
        self.mark = f"{MARK}={os.urandom(8).hex()}"
        self.env = {**env, MARK: self.mark.partition("=")[2]}
        self.head, self.tail = bytearray(), bytearray()
        self.seen = self.read = 0
        self.lock = threading.Lock()
        # In the background:
        self.began, self.stop, self.ending = time.monotonic(), StopFlag(), ""
        self.thread = threading.Thread(target=self._run, name="glue-shell-job", daemon=True)

    def _run(self) -> None:
        try:
            self.ending = self.run(self.stop)
        except ToolError as error:
            self.ending = str(error)

    def run(self, stop: StopFlag) -> str:
        """Run it to its end, or to that of its time, and say how it ended."""
        bounds: dict[str, Any] = {"deadline": self.seconds, "stop": stop, "mark": self.mark}
        try:
            done = run(self.argv, env=self.env, cwd=self.home, sink=self.listen, merged=True, **bounds)
        except (OSError, UnicodeEncodeError) as error:
            raise ToolError(f"the command could not be started: {getattr(error, 'strerror', '') or error}") from None
        finish = getattr(self.runner, "end", None)
        if finish is not None and done.reason:
            finish(self.argv, self.env)
        exit_note = f"ended by signal {-done.code}" if done.code < 0 else f"exit code {done.code}"
        note = {
            "": exit_note,
            "deadline": f"stopped after {self.seconds:g} s; what it printed until then is above",
            "enough": f"stopped: it printed more than {KILLED} bytes",
        }.get(done.reason, "stopped")
        if not done.left:
            return note
        names = ", ".join(one_line(name, 60) for name in done.left[:5])
        more = f" and {len(done.left) - 5} more" if len(done.left) > 5 else ""
        return f"{note}; ended what it left running: {names}{more}"

    def listen(self, block: bytes) -> bool:
        with self.lock:
            self.seen += len(block)
            room = max(KEPT - len(self.head), 0)
            self.head.extend(block[:room])
            self.tail.extend(block[room:])
            del self.tail[: max(len(self.tail) - SHOWN, 0)]
        return self.seen < KILLED

    def report(self, note: str) -> str:
        """Give what was printed since this was last asked, and a note below it."""
        with self.lock:
            tail = self.seen - len(self.tail)  # where it begins
            lost = max(tail - max(self.read, len(self.head)), 0)
            gap = f"\n[{lost} bytes were not kept]\n".encode() if lost else b""
            new = self.head[self.read :] + gap + self.tail[max(self.read - tail, 0) :]
            self.read = self.seen
        text = cap(new.decode("utf-8", "replace"), SHOWN)
        separator = "" if not text or text.endswith("\n") else "\n"
        return f"{text}{separator}[{note}]"


class _Jobs:
    """Commands in the background. They end with this object, and with the program."""

    def __init__(self) -> None:
        self.jobs: dict[int, ShellCommand] = {}
        self.lock = threading.Lock()
        self.count = 0
        weakref.finalize(self, _end_all, self.jobs)

    def start(self, command: ShellCommand) -> str:
        with self.lock:
            running = [number for number, job in self.jobs.items() if job.thread.is_alive()]
            if len(running) >= MAX_JOBS:
                raise ToolError(f"{MAX_JOBS} commands run in the background already; end one with shell_job")
            self.count += 1
            for old in [each for each in self.jobs if each not in running and each < self.count - 50]:
                del self.jobs[old]
            self.jobs[self.count] = command
            command.thread.start()
            return f"[started in the background as job {self.count}; it is stopped after {command.seconds:g} s]"

    def look(self, number: int, stop: bool, wait: float, flag: StopFlag) -> str:
        job = self.jobs.get(number)
        if job is None:
            raise ToolError(f"there is no job {number}; there are: {', '.join(map(str, self.jobs)) or 'none'}")
        if stop:
            job.stop.set()
            wait = 5.0
        until = time.monotonic() + wait
        while job.thread.is_alive() and time.monotonic() < until and not flag:
            job.thread.join(0.05)
        return job.report(f"running for {time.monotonic() - job.began:.0f} s" if job.thread.is_alive() else job.ending)


def _end_all(jobs: dict[int, ShellCommand]) -> None:
    for job in jobs.values():
        job.stop.set()
    for job in jobs.values():
        if job.thread.is_alive():
            job.thread.join(3.0)
