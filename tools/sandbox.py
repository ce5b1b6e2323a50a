"""Sandboxes for commands: bubblewrap if it works, else Landlock, else none.

    from glue.tools import shell
    from glue.tools.sandbox import Sandbox

    tools = shell.tools(".", sandbox=Sandbox(read=["~/data"], network=True))

A command sees the system and the user's toolchains read-only, and can write only to the project, to
a home folder and a temporary folder of its own. It has no network, no host sockets, no key, and
cannot read the environment of other processes.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Protocol

import glue
from glue.errors import ConfigError, GlueError
from glue.tools import confine
from glue.tools.git.layout import Layout
from glue.tools.landlock import is_known_linux, version

__all__ = ["Sandbox"]

PROGRAMS = "/usr/local/bin:/usr/bin:/bin:/opt/homebrew/bin"
# Folders of the system that every command may read.
SYSTEM = tuple(
    """
    /usr /lib /lib32 /lib64 /libx32 /bin /sbin /opt /nix /gnu /snap /home/linuxbrew/.linuxbrew
    /sys/devices/system/cpu /sys/fs/cgroup
    """.split()
)
# Folders of compilers, interpreters and package caches below a home folder. Folders that may hold
# credentials are not among them.
TOOLCHAINS = tuple(
    """
    .pyenv .rustup .cargo/bin .cargo/registry .cargo/git .nvm .volta .fnm .bun/bin .deno/bin go sdk
    .rbenv .rvm .asdf .sdkman .jenv .ghcup .juliaup .julia/juliaup .opam .elan .nimble/bin
    .local/bin .local/lib .local/pipx .local/share/uv/python .local/share/uv/tools
    .local/share/mise/installs .local/share/pnpm .local/share/fnm .cache/uv .cache/pip
    .cache/pre-commit .npm/_cacache .m2/repository .gradle/caches .nuget/packages
    miniconda3 anaconda3 miniforge3 mambaforge .conda/pkgs .nix-profile
    """.split()
)
# No terminals: a command could write to the terminal of the user, and imitate a question there.
DEVICES = tuple(f"/dev/{name}" for name in "null zero full random urandom".split())
PRIVATE: set[str] = set()  # the private folders of this process that exist
PACKAGE = str(Path(glue.__file__).absolute().parents[1])  # the folder that contains the package
LAUNCHER = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from glue.tools.confine import main; main()"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """The files, variables and network that a command may use in addition to the project.

    >>> Sandbox(read=["/srv/models"], network=True).network
    True

    Attributes:
        read: more folders and files that a command may read.
        write: more folders and files that a command may write.
        network: whether a command may use the network.
        env: names of environment variables that a command inherits, in addition to a usual few.
        writable_root: whether a command may write to the project.
        backend: "bubblewrap" or "landlock"; by default the first of them that works.
        required: raise ConfigError if no backend works; otherwise commands run without a sandbox.
    """

    read: Sequence[str | os.PathLike[str]] = ()
    write: Sequence[str | os.PathLike[str]] = ()
    network: bool = False
    env: Sequence[str] = ()
    writable_root: bool = True
    backend: str = ""
    required: bool = True

    def __post_init__(self) -> None:
        for name, value in (("read", self.read), ("write", self.write), ("env", self.env)):
            if isinstance(value, (str, os.PathLike)):
                raise TypeError(f"{name} must be a list, such as [{value!r}]")
        if self.backend not in ("", *BACKENDS):
            raise ValueError(f"backend must be bubblewrap or landlock, not {self.backend!r}")


class Backend(Protocol):
    """The interface of the sandbox backends, which confine commands: Bubblewrap and Landlock."""

    name: str
    note: str  # the gaps of the backend in a few words, or ""

    def works(self) -> bool:
        """Return whether the backend works on this machine."""

    def wrap(self, argv: Sequence[str], root: str, view: View) -> list[str]:
        """Return the argument list that starts the command `argv` in the sandbox.

        The command starts in the folder `root`; `view` has the paths that it can use.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The paths that a confined command can read and write, and whether it can use the network."""

    read: tuple[str, ...]  # absolute paths
    write: tuple[str, ...]  # absolute paths
    private: str  # the folder with the `home` and `tmp` folders of the commands
    network: bool  # whether the command can use the network


class Bubblewrap:
    """The sandbox backend that uses namespaces of the kernel, through the program bwrap."""

    name, note = "bubblewrap", ""

    def works(self) -> bool:
        return _bubblewrap_works()

    def wrap(self, argv: Sequence[str], root: str, view: View) -> list[str]:
        program = shutil.which("bwrap", path=PROGRAMS)
        if program is None:
            raise ConfigError("bwrap is not installed; install bubblewrap, or use another sandbox")
        options = ["--unshare-all", "--die-with-parent", "--new-session"]
        options += ["--share-net"] if view.network else []
        options += ["--dev", "/dev", "--proc", "/proc", "--bind", f"{view.private}/tmp", "/tmp"]
        for path in (*SYSTEM, "/etc"):
            if os.path.islink(path):
                options += ["--symlink", os.readlink(path), path]
            elif os.path.exists(path):
                options += ["--ro-bind", path, path]
        for path in _etc()[1]:
            cover = ["--tmpfs"] if os.path.isdir(path) else ["--ro-bind", "/dev/null"]
            options += [*cover, path]
        # Outer folders first, so that a mount does not cover an inner one.
        mounts = dict.fromkeys(view.read, "--ro-bind") | dict.fromkeys(view.write, "--bind")
        for path in sorted(mounts):
            options += [mounts[path], path, path]
        git = os.path.join(root, ".git")
        if os.path.exists(git) and root in view.write and git not in view.write:
            options += ["--ro-bind", git, git]
        for socket in _sockets(mounts):
            options += ["--ro-bind", "/dev/null", socket]
        command = [program, *options, "--chdir", root, "--", *argv]
        if not is_known_linux():
            return command
        # With the host's network, its abstract sockets are in reach: refuse local sockets.
        sockets = "internet" if view.network else "all"
        rules = os.path.join(view.private, f"filter-{sockets}")
        Path(rules).write_bytes(confine.make_filter(os.uname().machine, sockets=sockets))
        command[1:1] = ["--seccomp", "9"]
        return ["/bin/sh", "-c", 'exec "$@" 9< "$0"', rules, *command]


class Landlock:
    """The sandbox backend that uses Landlock rules for files, and a filter that refuses sockets.

    It needs no other program.
    """

    name = "landlock"
    note = "commands can write to .git and see names of processes, but have no loopback network"

    def works(self) -> bool:
        return _landlock_works()

    def wrap(self, argv: Sequence[str], root: str, view: View) -> list[str]:
        public, _, folders = _etc()
        plan = {
            "read": [*SYSTEM, *public, *view.read, "/proc"],
            "write": [*view.write, *DEVICES],
            "list": [*folders, "/dev"],
            "network": view.network,
            # Only a command that may write may change modes and times.
            "metadata": root in view.write,
        }
        start = [sys.executable, "-I", "-S", "-c", LAUNCHER, PACKAGE]
        return [*start, json.dumps(plan), *argv]


BACKENDS: dict[str, Backend] = {"bubblewrap": Bubblewrap(), "landlock": Landlock()}


class SandboxRunner:
    """A runner for `glue.tools.shell.tools` that confines the commands of one project."""

    def __init__(self, sandbox: Sandbox, backend: Backend, root: str) -> None:
        self.sandbox, self.backend, self.root = sandbox, backend, root
        self.private = os.path.realpath(tempfile.mkdtemp(prefix="glue-sandbox-"))
        PRIVATE.add(self.private)
        weakref.finalize(self, _remove, self.private)
        home = os.path.expanduser("~")
        self.toolchains = [
            path for path in (os.path.join(home, name) for name in TOOLCHAINS) if _exists(path)
        ]
        self._make_home(home)
        self.view = self._view()
        self.origin: SandboxRunner | None = None  # the runner whose private folders these are

    @property
    def text(self) -> str:
        """A description of the sandbox in a few words, for a permission question."""
        writable = "" if self.sandbox.writable_root else "read-only, "
        network = "with network" if self.sandbox.network else "no network"
        return f"sandbox: {self.backend.name}, {writable}{network}"

    @property
    def limits(self) -> str:
        """The limits of a command as text, such as "no network; only this folder can be written".

        The shell tool adds the text to results, so that the model knows why a command failed.
        """
        network = "network" if self.sandbox.network else "no network"
        folder = "this folder" if self.sandbox.writable_root else "$TMPDIR"
        return f"{network}; only {folder} can be written"

    @property
    def env(self) -> dict[str, str]:
        """The environment variables that the sandbox sets for a command, by name.

        They are HOME and TMPDIR, with private folders, and those variables of this process that
        `Sandbox.env` names.
        """
        kept = {name: os.environ[name] for name in self.sandbox.env if name in os.environ}
        folders = {"HOME": f"{self.private}/home", "TMPDIR": f"{self.private}/tmp"}
        return {**folders, **kept}

    def __call__(self, argv: Sequence[str], root: str) -> list[str]:
        return self.backend.wrap(argv, root, self.view)

    def read_only(self) -> SandboxRunner:
        """Return a copy of this runner without network, which can write only to private folders.

        The private folders are the `home` and `tmp` of the sandbox, which both runners share.
        """
        strict = copy(self)
        strict.sandbox = replace(self.sandbox, write=(), network=False, writable_root=False)
        strict.origin = self  # its end removes the private folders
        given = [_absolute(path) for path in self.sandbox.write]
        strict.view = strict._view(given)
        return strict

    def _make_home(self, home: str) -> None:
        """Create the private folders `home` and `tmp`, and link the user's toolchains in `home`."""
        for name in ("home", "tmp"):
            os.mkdir(os.path.join(self.private, name))
        for path in self.toolchains:
            link = os.path.join(self.private, "home", os.path.relpath(path, home))
            os.makedirs(os.path.dirname(link), exist_ok=True)
            os.symlink(path, link)

    def _view(self, more: Sequence[str] = ()) -> View:
        """Return the paths that commands can read and write as a View; `more` paths can be read."""
        read = [_absolute(path) for path in self.sandbox.read]
        read += [*more, *_git_folders(self.root)]
        write = [_absolute(path) for path in self.sandbox.write]
        (write if self.sandbox.writable_root else read).append(self.root)
        write.append(self.private)
        found = [*self.toolchains, *_program_folders()]
        if self.sandbox.network:
            found.append(os.path.realpath("/etc/resolv.conf"))
        # A folder of PATH may be the home folder itself, which is not shown unless it is named.
        read += [path for path in found if path not in ("/", os.path.expanduser("~"))]
        real = [os.path.realpath(path) for path in read]  # a link needs its target as well
        return View(
            read=_outermost([*read, *real], write),
            write=tuple(dict.fromkeys(map(os.path.realpath, write))),
            private=self.private,
            network=self.sandbox.network,
        )


def remove_private_folders() -> None:
    """Remove the private folders of all sandboxes; call this before `os._exit`."""
    for folder in tuple(PRIVATE):
        _remove(folder)


def _remove(folder: str) -> None:
    PRIVATE.discard(folder)
    shutil.rmtree(folder, ignore_errors=True)


def open_sandbox(sandbox: Sandbox | str, root: str | os.PathLike[str]) -> SandboxRunner | None:
    """Return a sandbox runner; if none works, return None, or raise ConfigError if one is required.

    None is also returned for "off". A runner confines commands, and makes its private folders.

    Args:
        sandbox: a Sandbox, or "auto" for the usual sandbox if one works, "require" for the usual
            sandbox, "off" for none.
        root: the folder of the project.
    """
    if isinstance(sandbox, str) and sandbox not in ("auto", "require", "off"):
        raise ValueError(f"sandbox must be auto, require, off or a Sandbox, not {sandbox!r}")
    if sandbox == "off":
        return None
    wanted = sandbox if isinstance(sandbox, Sandbox) else Sandbox(required=sandbox == "require")
    backend = find_backend(wanted.backend)
    if backend is not None:
        return SandboxRunner(wanted, backend, os.path.realpath(root))
    if not wanted.required:
        return None
    fault = f"{wanted.backend} does not work" if wanted.backend else "no sandbox works"
    advice = "" if wanted.backend == "landlock" else "install bubblewrap, or "
    raise ConfigError(f"{fault} on this machine; {advice}run without a sandbox ('off')")


def find_backend(name: str = "") -> Backend | None:
    """Return the first backend that works, or None; if `name` is set, try only this backend."""
    wanted = [BACKENDS[name]] if name else BACKENDS.values()
    return next((backend for backend in wanted if backend.works()), None)


@cache
def _bubblewrap_works() -> bool:
    """Run a test command in bwrap, and return whether it succeeded. False if bwrap is missing."""
    program = shutil.which("bwrap", path=PROGRAMS)
    return program is not None and _succeeds(
        [program, "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "/bin/sh", "-c", ":"]
    )


@cache
def _landlock_works() -> bool:
    if version() < confine.OLDEST:
        return False
    plan = {"read": ["/"], "write": [], "list": [], "network": False, "metadata": True}
    start = [sys.executable, "-I", "-S", "-c", LAUNCHER, PACKAGE]
    return _succeeds([*start, json.dumps(plan), "/bin/sh", "-c", ":"])


def _succeeds(argv: Sequence[str]) -> bool:
    quiet = subprocess.DEVNULL
    try:
        done = subprocess.run(
            argv, stdin=quiet, stdout=quiet, stderr=quiet, timeout=10, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def _etc(top: str = "/etc") -> tuple[list[str], list[str], list[str]]:
    """Return three lists of paths in /etc: readable, hidden, and folders that contain hidden paths.

    A folder without hidden paths is one readable path. A file is hidden if not all users may read
    it; without a sandbox, a command of root could read the file. A link to such a file is in
    neither of the first two lists, because Landlock would open the file.
    """
    public, hidden, mixed = list[str](), list[str](), list[str]()
    links: list[str] = []  # to files that are not public

    def visit(folder: str) -> None:
        shown, covered = len(public), len(hidden) + len(links)
        for name in sorted(os.listdir(folder)):
            path = f"{folder}/{name}"
            try:
                mode = os.lstat(path).st_mode
                if stat.S_ISDIR(mode) and mode & 0o005 == 0o005:
                    visit(path)
                elif stat.S_ISLNK(mode):
                    (public if _is_public(path) else links).append(path)
                elif not stat.S_ISDIR(mode) and mode & 0o004:
                    public.append(path)
                else:
                    hidden.append(path)
            except FileNotFoundError:
                pass  # removed meanwhile
            except OSError:
                hidden.append(path)
        if len(hidden) + len(links) == covered:
            public[shown:] = [folder]  # everything in it may be read
        else:
            mixed.append(folder)

    visit(top)
    return public, hidden, mixed


def _is_public(link: str) -> bool:
    """Return True if all users may read the target of a link, or if the target does not exist."""
    try:
        return bool(os.stat(link).st_mode & 0o004)
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _exists(path: str) -> bool:
    try:
        os.stat(path)
    except (OSError, ValueError):
        return False
    return True


def _absolute(path: str | os.PathLike[str]) -> str:
    found = os.path.abspath(os.path.expanduser(os.fspath(path)))
    if not _exists(found):
        raise ConfigError(
            f"{found} cannot be made readable or writable in the sandbox: it does not exist"
        )
    return found


def _program_folders() -> Iterable[str]:
    """Yield the absolute folders in PATH, the folder of this Python and its base folder.

    If a folder contains the programs of a virtual environment, yield the whole environment.
    """
    folders = [each for each in os.environ.get("PATH", "").split(os.pathsep) if os.path.isabs(each)]
    for folder in (*folders, os.path.dirname(sys.executable)):
        above = os.path.dirname(folder)
        yield above if os.path.exists(os.path.join(above, "pyvenv.cfg")) else folder
    yield sys.base_prefix


def _git_folders(root: str) -> list[str]:
    """Return the git directories of `root` if it is a linked worktree or submodule, else [].

    The git directories of a linked worktree or submodule are outside `root`.
    """
    if not os.path.isfile(os.path.join(root, ".git")):
        return []
    try:
        layout = Layout(root, alternates=True)  # checks that they name this checkout in turn
    except (GlueError, OSError):
        return []
    try:
        return [os.readlink(f"/proc/self/fd/{each.fd}") for each in (layout.own, layout.common)]
    except OSError:
        return []
    finally:
        layout.close()


def _outermost(paths: Iterable[str], written: Sequence[str]) -> tuple[str, ...]:
    """Return the existing paths, sorted, except paths in another path, SYSTEM or `written`."""
    known = {path for path in paths if _exists(path)}
    covered = (*known, *SYSTEM, *written)
    kept = [
        path
        for path in known
        if not any(path != other and f"{path}/".startswith(f"{other}/") for other in covered)
        and path not in SYSTEM
    ]
    return tuple(sorted(kept))


def _sockets(folders: Iterable[str]) -> list[str]:
    """Return the paths of the host's sockets in the given folders, in /etc and in SYSTEM."""
    try:
        with open("/proc/net/unix", encoding="utf-8", errors="surrogateescape") as file:
            rows = [line.rstrip("\n").split(maxsplit=7) for line in file]
    except OSError:
        return []
    inside = tuple(f"{folder}/" for folder in (*folders, *SYSTEM, "/etc"))
    # A socket without a name has seven fields, one in no folder has a name that begins with "@".
    names = {row[7] for row in rows if len(row) == 8 and row[7].startswith("/")}
    there = filter(os.path.exists, names)
    return sorted({real for real in map(os.path.realpath, there) if real.startswith(inside)})
