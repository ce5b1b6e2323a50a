"""Run git: the program, its environment, its bounds, pathspecs, and the commands that a caller may ask for by hand."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Sequence

from glue import one_line
from glue.errors import GitError
from glue.tools.process import Finished, Sink, StopFlag, run

CAP = 512 * 1024  # kept of what git prints
SECONDS = 15.0
MEMORY = 320 * 1024 * 1024
USUAL = ("/usr/local/bin", "/usr/bin", "/bin", "/opt/homebrew/bin")
# The only place where git's own words decide: it has one exit code for every failure.
OUT_OF_MEMORY = re.compile(rb"out of memory|malloc failed|cannot allocate memory", re.IGNORECASE)

READERS = frozenset(
    "blame cat-file diff-tree grep log ls-tree merge-base name-rev rev-list rev-parse shortlog show".split()
)
TRUSTED_READERS = READERS | {"diff", "ls-files", "status"}
# Each of these reads or writes a file of the caller's choice, or starts a program. git takes any unambiguous
# beginning of an option for the whole, so beginnings are refused too.
REFUSED = tuple(
    f"--{name}"
    for name in """
    output output-directory open-files-in-pager ext-diff ext-grep textconv no-index untracked cached contents
    ignore-revs-file git-dir work-tree mailmap-file use-mailmap show-signature filters pathspec-from-file from-file
    alternate-refs remerge-diff
    """.split()
)  # remerge-diff merges anew, and writes what comes of it among the objects
TRUSTED = ("--cached", "--untracked")  # what a work tree's own index and files are asked for
REFUSED_SHORT = {"grep": ("-O", "-f"), "blame": ("-S",), "log": ("-O",), "show": ("-O",), "diff-tree": ("-O",)}
# What is switched off even in a checkout that is trusted: nothing in these is needed to see what changed.
SWITCHED_OFF = tuple(
    """
    core.fsmonitor=false core.hooksPath=/dev/null protocol.allow=never safe.bareRepository=explicit
    core.attributesFile=/dev/null core.quotePath=false
    """.split()
)
# All that git sees of an environment.
ENVIRONMENT = dict(
    entry.split("=")
    for entry in """
    PATH=/usr/bin:/bin HOME=/nonexistent LC_ALL=C GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
    GIT_CONFIG_SYSTEM=/dev/null GIT_ATTR_NOSYSTEM=1 GIT_TERMINAL_PROMPT=0 GIT_OPTIONAL_LOCKS=0
    GIT_NO_REPLACE_OBJECTS=1 GIT_NO_LAZY_FETCH=1 GIT_ALLOW_PROTOCOL= GIT_PROTOCOL_FROM_USER=0
    GIT_ASKPASS=/bin/false GIT_SSH_COMMAND=/bin/false GIT_EDITOR=/bin/false GIT_PAGER=cat GIT_LITERAL_PATHSPECS=1
    """.split()
)
DIFF = tuple(
    """
    --no-ext-diff --no-textconv --no-color --src-prefix=a/ --dst-prefix=b/ --find-renames --submodule=short
    --ignore-submodules=dirty -O/dev/null
    """.split()
)


def run_git(
    root: str | os.PathLike[str],
    args: Sequence[str],
    *,
    cap: int = CAP,
    seconds: float = SECONDS,
    cut: bool = False,
    sink: Sink | None = None,
    stop: StopFlag | None = None,
    trust: bool = False,
) -> bytes:
    """Run one reading command over a repository's objects, and give what it prints.

    It runs in a throw-away git directory without refs, index or work tree: name commits by full hashes
    (`Repo.resolve`), and paths behind `--`, where they are taken literally. With `trust` it runs in the checkout
    itself, with the repository's own configuration, also for `diff`, `status` and `ls-files`; paths are pathspecs.
    More than `cap` bytes is a `GitError`, or is cut off with `cut`; a `sink` is handed block after block instead.
    """
    _check(args, trust)
    if not trust:
        from glue.tools.git.repo import Repo

        with Repo(root, seconds=seconds, stop=stop) as opened:
            return opened.git(args, cap=cap, cut=cut, sink=sink)
    home = os.path.abspath(root)
    if not os.path.lexists(os.path.join(home, ".git")):
        raise GitError(f"{os.fspath(root)} is not the top of a git checkout: it has no .git", kind="unsafe")
    options = [word for setting in SWITCHED_OFF for word in ("-c", setting)]
    argv = [find_git(home), "--no-pager", *options, *args]
    # Filters (large files, say) may be found in absolute directories outside the checkout.
    folders = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if os.path.isabs(folder)]
    inside = os.path.realpath(home) + "/"
    outside = [folder for folder in folders if not os.path.realpath(folder).startswith(inside)]
    env = environment(home, PATH=os.pathsep.join(outside) or "/usr/bin:/bin")
    del env["GIT_LITERAL_PATHSPECS"]
    finished = run(argv, env=env, cwd=home, deadline=seconds, cap=cap, sink=sink, stop=stop)
    return answer(args[0], finished, cap=cap, cut=cut)


def answer(command: str, finished: Finished, *, cap: int, cut: bool = False, codes: Sequence[int] = (0,)) -> bytes:
    """Give what git printed, or say in a `GitError` why there is nothing worth giving."""
    if finished.reason == "enough" or (finished.reason == "cap" and cut):
        return finished.out
    if finished.reason == "deadline":
        raise GitError(f"git {command} took too long and was stopped after {finished.seconds:.1f} s", kind="timeout")
    if finished.reason == "cap":
        raise GitError(f"git {command} said more than {cap} bytes and was stopped", kind="too_large")
    if finished.reason or finished.code not in codes:
        memory = OUT_OF_MEMORY.search(finished.err) is not None
        said = one_line(finished.err.decode("utf-8", "replace"), 300)
        reason = finished.reason or said or f"exit code {finished.code}"
        raise GitError(f"git {command} failed: {reason}", kind="memory" if memory else "failed")
    return finished.out


def _check(args: Sequence[str], trust: bool) -> None:
    readers = TRUSTED_READERS if trust else READERS
    if not args or args[0] not in readers:
        given = args[0] if args else "nothing"
        raise GitError(f"run_git does not run {given!r}; it runs: {', '.join(sorted(readers))}", kind="usage")
    refused = [option for option in REFUSED if not trust or option not in TRUSTED]
    for arg in args[1:]:
        if arg == "--":
            return
        option, _, value = arg.partition("=")
        if option.startswith("--diff-m") and value[:1] in ("", "r"):  # the value may also stand by itself
            option = "--remerge-diff"
        if len(option) > 3 and option.startswith("--") and any(each.startswith(option) for each in refused):
            raise GitError(f"run_git does not pass {option!r} on: it reaches beyond the objects", kind="usage")
        if arg.startswith(REFUSED_SHORT.get(args[0], "\0")):
            raise GitError(f"run_git does not pass {arg[:2]!r} on: it reaches beyond the objects", kind="usage")


def find_git(root: str = "") -> str:
    """Find git in absolute directories of PATH that do not lie below `root`, where anyone could have put one."""
    below = os.path.realpath(root).rstrip("/") + "/" if root else "\0"
    for folder in filter(os.path.isabs, (*os.environ.get("PATH", "").split(os.pathsep), *USUAL)):
        program = shutil.which("git", path=os.path.realpath(folder))
        if program and not any(name.startswith(below) for name in (program, os.path.realpath(program))):
            return program
    raise GitError("git was not found; install it, or add its directory to PATH as an absolute path", kind="usage")


def environment(root: str, **more: str) -> dict[str, str]:
    """Build a child's environment from nothing; no variable of ours reaches git."""
    above = os.path.dirname(os.path.abspath(root)) if root else "/"
    return {**ENVIRONMENT, "GIT_CEILING_DIRECTORIES": above, **more}


def build_pathspec(includes: Iterable[str] = (), excludes: Iterable[str] = ()) -> list[str]:
    """Turn patterns into pathspecs for git, to stand behind `--`.

    A pattern without `/` fits at any depth, `**` spans folders, and a folder stands for all that is in it.
    Excludes alone get a catch-all include before them; nothing gives nothing, and so do empty patterns.
    """
    wanted = [spec for pattern in includes if pattern.strip() for spec in _specs(pattern, "glob")]
    unwanted = [spec for pattern in excludes if pattern.strip() for spec in _specs(pattern, "exclude,glob")]
    if unwanted and not wanted:
        wanted = [":(glob)**"]
    return wanted + unwanted


def literal_pathspec(path: str, exclude: bool = False) -> str:
    """Name one path and nothing else, whatever characters it holds."""
    return f":({'exclude,' if exclude else ''}top,literal){path}"


def _specs(pattern: str, magic: str) -> list[str]:
    pattern = pattern.removeprefix("./").lstrip("/") if "/" in pattern.rstrip("/") else f"**/{pattern}"
    pattern = pattern.rstrip("/")
    if not pattern.strip("*/"):
        return [f":({magic})**"]
    if pattern.endswith("/**"):
        return [f":({magic}){pattern}"]
    return [f":({magic}){pattern}", f":({magic}){pattern}/**"]
