"""Run git commands that only read; refuse other commands, and options that do more than read."""

from __future__ import annotations

import os
from collections.abc import Sequence

from glue.errors import GitError
from glue.tasks import StopFlag
from glue.tools.git.command import CAP, SECONDS, check_output, environment, find_git
from glue.tools.git.pathspec import KNOWN
from glue.tools.git.repo import Repo
from glue.tools.process import Sink, run

READERS = frozenset(
    """
    blame cat-file diff-tree grep log ls-tree merge-base name-rev rev-list rev-parse shortlog show
    """.split()
)
TRUSTED_READERS = READERS | {"diff", "ls-files", "status"}
# Each of these options reads or writes a file that the caller names, or starts a program;
# remerge-diff writes objects. git accepts an unambiguous start of an option, so the start of a
# refused option is refused too.
REFUSED = tuple(
    f"--{name}"
    for name in """
    output output-directory open-files-in-pager ext-diff ext-grep textconv no-index untracked cached
    contents ignore-revs-file git-dir work-tree mailmap-file use-mailmap show-signature filters
    pathspec-from-file from-file alternate-refs remerge-diff
    """.split()
)
TRUSTED = ("--cached", "--untracked")  # refused options that a trusted checkout may use
REFUSED_SHORT = {
    "grep": ("-O", "-f"),
    "blame": ("-S",),
    "log": ("-O",),
    "show": ("-O",),
    "diff-tree": ("-O",),
}
# Settings for a trusted checkout; the commands above do not need these features.
SWITCHED_OFF = tuple(
    """
    core.fsmonitor=false core.hooksPath=/dev/null protocol.allow=never
    safe.bareRepository=explicit core.attributesFile=/dev/null core.quotePath=false
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
    pathspec: Sequence[str] = (),
) -> bytes:
    """Run a read-only git command and return its output; raise GitError if it fails or is refused.

    >>> run_git(".", ["log", "--oneline", sha])  # doctest: +SKIP
    b'1f0c2ab fix the parser\\n'

    The command sees the objects of the repository, but no refs, index, work tree or configuration.
    Name commits by their full hashes (`Repo.resolve`), and paths after `--`, without wildcards, or
    select files by `pathspec`.

    Args:
        root: the top folder of a checkout.
        args: the command and its arguments.
        cap: bytes of output; more is a GitError.
        seconds: the command is stopped after this time.
        cut: return the first `cap` bytes instead of raising.
        sink: receives the output block by block instead, and returns whether to continue.
        stop: a flag that stops the command when another thread sets it.
        trust: run in the checkout itself, with its configuration, and allow `diff`, `status` and
            `ls-files`; paths are pathspecs. Only for the user's own checkout.
        pathspec: only files that match, from `build_pathspec`; instead of paths after `--`.
    """
    _check(args, trust)
    if pathspec:
        args = _with_pathspec(args, pathspec)
    if not trust:
        with Repo(root, seconds=seconds, stop=stop) as opened:
            return opened.git(args, literal=not pathspec, cap=cap, cut=cut, sink=sink)
    home = os.path.abspath(root)
    if not os.path.lexists(os.path.join(home, ".git")):
        raise GitError(
            f"{os.fspath(root)} is not the top of a git checkout: .git is missing", kind="unsafe"
        )
    options = [word for setting in SWITCHED_OFF for word in ("-c", setting)]
    argv = [find_git(home), "--no-pager", *options, *args]
    env = environment(home, PATH=os.pathsep.join(_folders_outside(home)) or "/usr/bin:/bin")
    del env["GIT_LITERAL_PATHSPECS"]
    finished = run(argv, env=env, cwd=home, deadline=seconds, cap=cap, sink=sink, stop=stop)
    return check_output(args[0], finished, cap=cap, cut=cut)


def _with_pathspec(args: Sequence[str], pathspec: Sequence[str]) -> list[str]:
    """Return the arguments of a git command, followed by `--` and the pathspecs.

    Raise GitError for a form of pathspec that `build_pathspec` and `literal_pathspec` do not make.
    """
    if "--" in args:
        raise GitError("give paths after `--` or a pathspec, not both", kind="usage")
    for spec in pathspec:
        if not KNOWN.match(spec):
            raise GitError(
                f"{spec!r} was not made by build_pathspec or literal_pathspec", kind="usage"
            )
    return [*args, "--", *pathspec]


def _folders_outside(home: str) -> list[str]:
    """Return the folders of PATH that are absolute and outside the checkout.

    Git searches these folders for the programs of filters, such as git-lfs.
    """
    inside = os.path.realpath(home) + "/"
    folders = filter(os.path.isabs, os.environ.get("PATH", "").split(os.pathsep))
    return [folder for folder in folders if not os.path.realpath(folder).startswith(inside)]


def _check(args: Sequence[str], trust: bool) -> None:
    """Raise GitError if a command or an option does more than read objects."""
    readers = TRUSTED_READERS if trust else READERS
    if not args or args[0] not in readers:
        given = args[0] if args else "nothing"
        raise GitError(
            f"run_git does not run {given!r}; it runs: {', '.join(sorted(readers))}", kind="usage"
        )
    refused = [option for option in REFUSED if not trust or option not in TRUSTED]
    for arg in args[1:]:
        if arg == "--":
            return
        option, _, value = arg.partition("=")
        # --diff-merges=remerge; without a value here, the next argument may be the value.
        if option.startswith("--diff-m") and value[:1] in ("", "r"):
            option = "--remerge-diff"
        if option.startswith("--") and any(each.startswith(option) for each in refused):
            raise _refused_option(option)
        if arg.startswith(REFUSED_SHORT.get(args[0], "\0")):
            raise _refused_option(arg[:2])


def _refused_option(option: str) -> GitError:
    return GitError(
        f"run_git does not accept {option!r}: the option does more than read objects", kind="usage"
    )
