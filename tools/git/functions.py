"""The git tools of a checkout: one function for each tool, and `tools` for all of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import Any

from glue import Tool, tool
from glue.errors import ToolError
from glue.globs import matches_text
from glue.tasks import StopFlag, in_stoppable_thread
from glue.text import clean_text
from glue.tools.fs.files import Pager, lines_that_fit, show_name
from glue.tools.fs.patterns import Blocklist
from glue.tools.fs.root import truncate
from glue.tools.git.command import DIFF, SECONDS
from glue.tools.git.pages import (
    PAGE,
    blame_page,
    commit_page,
    describe,
    diff_page,
    file_page,
)
from glue.tools.git.pathspec import Scope, literal_pathspec
from glue.tools.git.readers import run_git
from glue.tools.git.repo import Repo


def tools(
    root: str | os.PathLike[str],
    base: str | None = None,
    trust: bool = False,
    *,
    bases: Iterable[str] = (),
    includes: Iterable[str] = (),
    excludes: Iterable[str] = (),
    blocklist: Blocklist | None = None,
) -> list[Tool[..., Any]]:
    """Return the tools that read the commits of a checkout, and with `trust` also its work tree.

    >>> [tool.name for tool in tools(".")]
    ['git_diff_branch', 'git_log_branch', 'git_show', 'git_blame']

    Without `trust`, the tools read only objects and are safe in a hostile repository.

    Args:
        root: the top folder of the checkout.
        base: the branch that the current branch started from; guessed if left out.
        trust: add git_status and git_diff_worktree. For them git reads the configuration of the
            repository, which can start programs: only for the user's own checkout.
        bases: other bases that the model may name in a call, such as `["develop", "release/*"]`.
            Without them the tools have no parameter for a base.
        includes: only files that match one of these patterns are shown; `["src", "*.md"]`.
        excludes: files that match one of these patterns are not shown, even if `includes` match.
        blocklist: files that the tools count but do not show.
    """
    checkout = _Checkout(root, base, bases, includes, excludes, blocklist, trust)
    made = [
        _diff_branch(checkout),
        _log_branch(checkout),
        _show(checkout),
        _blame(checkout),
    ]
    if trust:
        made += [_status(checkout), _diff_worktree(checkout)]
    return made


def diff_branch(
    root: str | os.PathLike[str],
    base: str | None = None,
    *,
    bases: Iterable[str] = (),
    includes: Iterable[str] = (),
    excludes: Iterable[str] = (),
    blocklist: Blocklist | None = None,
) -> Tool[..., Any]:
    """Return the tool git_diff_branch, which shows a branch's changes. Arguments: see `tools`.

    >>> diff_branch(".", "main", excludes=["*.lock"]).name
    'git_diff_branch'
    """
    return _diff_branch(_Checkout(root, base, bases, includes, excludes, blocklist))


def log_branch(
    root: str | os.PathLike[str], base: str | None = None, *, bases: Iterable[str] = ()
) -> Tool[..., Any]:
    """Return the tool git_log_branch, which lists a branch's commits. Arguments: see `tools`.

    >>> log_branch(".", "main").name
    'git_log_branch'
    """
    return _log_branch(_Checkout(root, base, bases))


def show(
    root: str | os.PathLike[str],
    *,
    includes: Iterable[str] = (),
    excludes: Iterable[str] = (),
    blocklist: Blocklist | None = None,
) -> Tool[..., Any]:
    """Return the tool git_show, which shows a file or commit. Arguments: see `tools`."""
    return _show(_Checkout(root, None, (), includes, excludes, blocklist))


def blame(
    root: str | os.PathLike[str],
    *,
    includes: Iterable[str] = (),
    excludes: Iterable[str] = (),
    blocklist: Blocklist | None = None,
) -> Tool[..., Any]:
    """Return the tool git_blame, which shows who changed each line. Arguments: see `tools`."""
    return _blame(_Checkout(root, None, (), includes, excludes, blocklist))


def status(
    root: str | os.PathLike[str],
    *,
    trust: bool,
    includes: Iterable[str] = (),
    excludes: Iterable[str] = (),
) -> Tool[..., Any]:
    """Return the tool git_status; raise ValueError unless `trust` is True.

    The tool lists changed, staged and untracked files. `tools` explains why the caller must trust
    the repository.
    """
    return _status(_Checkout(root, None, (), includes, excludes, None, _trusted(trust)))


def diff_worktree(
    root: str | os.PathLike[str],
    *,
    trust: bool,
    includes: Iterable[str] = (),
    excludes: Iterable[str] = (),
    blocklist: Blocklist | None = None,
) -> Tool[..., Any]:
    """Return the tool git_diff_worktree; raise ValueError unless `trust` is True.

    The tool shows the changes that are not committed yet. `tools` explains why the caller must
    trust the repository.
    """
    return _diff_worktree(_Checkout(root, None, (), includes, excludes, blocklist, _trusted(trust)))


def _trusted(trust: bool) -> bool:
    if trust is not True:
        raise ValueError(
            "git_status and git_diff_worktree read the work tree, and git may then start programs"
            " from the repository's configuration; pass trust=True for your own checkout only"
        )
    return trust


class _Checkout:
    """The settings of the git tools of one checkout, and the methods that the tools share."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        base: str | None = None,
        bases: Iterable[str] = (),
        includes: Iterable[str] = (),
        excludes: Iterable[str] = (),
        blocklist: Blocklist | None = None,
        trust: bool = False,
    ) -> None:
        if isinstance(bases, str):
            raise TypeError(f"bases must be a list of names, such as [{bases!r}], not a string")
        self.root = os.fspath(root)
        self.base, self.bases = base, tuple(bases)
        self.scope = Scope(includes, excludes)
        self.blocklist, self.trust = blocklist, trust
        names = dict.fromkeys((os.path.abspath(self.root), os.path.realpath(self.root)))
        self.tops = tuple(f"{name.rstrip('/')}/" for name in names)

    def finish(self, made: Tool[..., Any]) -> Tool[..., Any]:
        made.root = os.path.abspath(self.root)
        return made

    def below(self, path: str) -> str:
        """Convert an absolute path in the checkout to a relative path; the top folder becomes "".

        Any other path stays as it is, except that "./" at the start and "/" at the end are removed.
        """
        top = next((each for each in self.tops if f"{path}/".startswith(each)), "")
        return f"{path}/".removeprefix(top).removeprefix("./").rstrip("/")

    def allowed(self, path: str) -> str:
        """Return a path relative to the checkout; raise ToolError if the block list blocks it."""
        below = self.below(path)
        if self.blocklist is not None and (pattern := self.blocklist.match(below)):
            raise ToolError(f"{show_name(below)} is on the block list ({pattern})")
        return below

    def covered(self, path: str) -> str:
        """Return the relative path of a file; raise ToolError if the file may not be shown.

        A file may be shown if it is not on the block list and the patterns of the tools include it.
        """
        below = self.allowed(path)
        if not self.scope.covers(below):
            raise ToolError(f"{show_name(below)} is not among the files that this tool shows")
        return below

    def origin(self, repo: Repo, named: str) -> str:
        """Return the base that the model named, or the default base if `named` is empty.

        Raise ToolError if the named base is not allowed.
        """
        if not named:
            return self.base or repo.base_branch()
        # A pattern such as `release/*` must not allow an ancestor such as `release/1~40`.
        steps = "~" in named or "^" in named
        patterns = self.bases if not steps else ()
        if named in (self.base, *self.bases) or any(
            matches_text(named, pattern) for pattern in patterns
        ):
            return named
        known = [each for each in (self.base, *self.bases) if each]
        raise ToolError(f"{show_name(named)} is not an allowed base; allowed: {', '.join(known)}")

    async def within(self, job: Callable[[Repo], str]) -> str:
        """Open the repository and call `job` in a thread; return its text, made safe to print.

        Control characters in the text are replaced with visible characters.
        """

        def work(stop: StopFlag) -> str:
            until = time.monotonic() + SECONDS
            with Repo(self.root, alternates=self.trust, stop=stop) as repo:
                repo.until = until
                text = job(repo).encode("utf-8", "replace").decode()
            # Control characters are made visible, since a terminal would obey them. They are not
            # removed, since they may be part of the change. "\r\n" may even be the whole change.
            return "\r\n".join(map(clean_text, text.split("\r\n")))

        return await in_stoppable_thread(work)

    async def diff(self, path: str, offset: int, named: str) -> str:
        """Return one page of the diff to HEAD from the commit where its branch left the base.

        `named` is the base branch, or "" for the default base.
        """

        def job(repo: Repo) -> str:
            head, origin = repo.resolve("HEAD"), self.origin(repo, named)
            start = repo.merge_base(origin, head)
            branch = repo.layout.head_branch() or "HEAD"
            origin = show_name(origin.removeprefix("refs/remotes/"))
            title = f"[{origin} {start[:12]} .. {show_name(branch)} {head[:12]}]"
            page = diff_page(
                repo, start, head, self.below(path), offset, self.blocklist, scope=self.scope
            )
            return f"{title}\n{page}"

        return await self.within(job)

    async def log(self, path: str, limit: int, offset: int, whole: bool, named: str) -> str:
        """Return one page of the commits that HEAD has and its base branch lacks, newest first.

        `named` is the base branch, or "" for the default base. If `whole` is set, the commits of
        the base branch are listed too.
        """

        def job(repo: Repo) -> str:
            count, skip = max(1, min(limit, 500)), max(offset, 1) - 1
            below = self.allowed(path)
            base = "" if whole else self.origin(repo, named)
            found = repo.log(
                base, "HEAD", limit=count + 1, skip=skip, paths=[below] if below else []
            )
            texts = [describe(commit) for commit in found[:count]]
            lines = lines_that_fit(texts, PAGE) or [truncate(text, PAGE) for text in texts[:1]]
            shown = len(lines)
            if not found:
                lines = [_no_commits(skip, below, whole)]
            if shown < len(found):
                last = skip + shown
                lines.append(f"[commits {skip + 1}-{last}; continue with offset {last + 1}]")
            elif repo.shallow:
                lines.append("[the clone is shallow: older history is not here]")
            return "\n".join(lines)

        return await self.within(job)


def _no_commits(skip: int, path: str, whole: bool) -> str:
    if skip:
        return f"no commits: the list ends before offset {skip + 1}"
    if path:
        if whole:
            return f"no commit changes {show_name(path)}"
        return (
            f"no commit of the branch changes {show_name(path)};"
            " whole=true includes the commits of the base"
        )
    return "no commits: the base contains all commits of the branch"


def _diff_branch(checkout: _Checkout) -> Tool[..., Any]:
    if checkout.bases:
        return checkout.finish(_diff_branch_with_base(checkout))

    @tool(max_output=None, read_only=True, kind="read")
    async def git_diff_branch(path: str = "", offset: int = 1) -> str:
        """Show the changes of the branch since it left its base: a summary, then the patch.
        Only commits count.

        Args:
            path: only this file or folder, relative to the root
            offset: first line of the patch; a page ends with the next offset
        """
        return await checkout.diff(path, offset, "")

    return checkout.finish(git_diff_branch)


def _diff_branch_with_base(checkout: _Checkout) -> Tool[..., Any]:
    @tool(max_output=None, read_only=True, kind="read")
    async def git_diff_branch(path: str = "", offset: int = 1, base: str = "") -> str:
        """Show the changes of the branch since it left its base: a summary, then the patch.
        Only commits count.

        Args:
            path: only this file or folder, relative to the root
            offset: first line of the patch; a page ends with the next offset
            base: compare with this branch instead of the default one
        """
        return await checkout.diff(path, offset, base)

    return git_diff_branch


def _log_branch(checkout: _Checkout) -> Tool[..., Any]:
    if checkout.bases:
        return checkout.finish(_log_branch_with_base(checkout))

    @tool(max_output=None, read_only=True, kind="read")
    async def git_log_branch(
        path: str = "", limit: int = 50, offset: int = 1, whole: bool = False
    ) -> str:
        """List the commits of the branch that its base does not have, newest first.

        Args:
            path: only commits that change this path
            limit: at most 500 commits
            offset: first commit, from 1
            whole: include the commits of the base
        """
        return await checkout.log(path, limit, offset, whole, "")

    return checkout.finish(git_log_branch)


def _log_branch_with_base(checkout: _Checkout) -> Tool[..., Any]:
    @tool(max_output=None, read_only=True, kind="read")
    async def git_log_branch(
        path: str = "", limit: int = 50, offset: int = 1, whole: bool = False, base: str = ""
    ) -> str:
        """List the commits of the branch that its base does not have, newest first.

        Args:
            path: only commits that change this path
            limit: at most 500 commits
            offset: first commit, from 1
            whole: include the commits of the base
            base: compare with this branch instead of the default one
        """
        return await checkout.log(path, limit, offset, whole, base)

    return git_log_branch


def _show(checkout: _Checkout) -> Tool[..., Any]:
    scope = checkout.scope

    @tool(max_output=None, read_only=True, kind="read")
    async def git_show(revision: str, path: str = "", offset: int = 1) -> str:
        """Show a file as it was at a revision.
        Without a path, show a commit with its message and changes.

        Args:
            revision: a commit, branch, tag or HEAD, also with ~N or ^
            path: a file, relative to the root
            offset: first line; a page ends with the next offset
        """
        if not path:
            return await checkout.within(
                lambda repo: commit_page(repo, revision, offset, checkout.blocklist, scope)
            )

        def job(repo: Repo) -> str:
            below = checkout.allowed(path)
            found = repo.entry(revision, below) if below else None
            if found is not None and found.kind != "tree":
                checkout.covered(path)
            return file_page(repo, revision, below, offset, scope)

        return await checkout.within(job)

    return checkout.finish(git_show)


def _blame(checkout: _Checkout) -> Tool[..., Any]:
    @tool(max_output=None, read_only=True, kind="read")
    async def git_blame(path: str, first: int = 1, last: int = 0, revision: str = "HEAD") -> str:
        """Show the commit, author and date of each line of a file.

        Args:
            path: a file, relative to the root
            first: first line, from 1; a page ends with the next one
            last: last line
            revision: a commit, branch or tag
        """
        return await checkout.within(
            lambda repo: blame_page(repo, revision, checkout.covered(path), max(first, 1), last)
        )

    return checkout.finish(git_blame)


def _status(checkout: _Checkout) -> Tool[..., Any]:
    @tool(max_output=None, read_only=True, kind="read")
    async def git_status() -> str:
        """List changed, staged and untracked files, and show the current branch."""

        def job(stop: StopFlag) -> str:
            options = [
                "status",
                "--porcelain=v1",
                "--branch",
                "--untracked-files=normal",
                "--ignore-submodules=dirty",
                "--",
                *checkout.scope.pathspec,
            ]
            out = run_git(checkout.root, options, trust=True, cap=PAGE, cut=True, stop=stop)
            return out.decode("utf-8", "replace") + (
                "[the list is longer; the rest is not shown]" if len(out) >= PAGE else ""
            )

        return await in_stoppable_thread(job)

    return checkout.finish(git_status)


def _diff_worktree(checkout: _Checkout) -> Tool[..., Any]:
    @tool(max_output=None, read_only=True, kind="read")
    async def git_diff_worktree(path: str = "", staged: bool = False, offset: int = 1) -> str:
        """Show changes that are not committed yet, as a patch; new files only if they are staged.

        Args:
            path: only this file or folder, relative to the root
            staged: only staged changes
            offset: first line; a page ends with the next offset
        """

        def job(stop: StopFlag) -> str:
            root, below = checkout.root, checkout.below(path)
            pager = Pager(offset, PAGE)
            options = ["diff", *DIFF, *(["--cached"] if staged else []), "HEAD", "--"]
            specs = [literal_pathspec(below)] if below else list(checkout.scope.pathspec)
            if checkout.blocklist is not None or checkout.scope.pathspec:
                names_only = [*options[:-1], "--name-only", "--no-renames", "-z", "--"]
                out = run_git(root, names_only, trust=True, stop=stop)
                names = [os.fsdecode(name) for name in out.split(b"\0") if name]
                hidden = [name for name in names if not _may_show(checkout, name)]
                specs += [literal_pathspec(name, exclude=True) for name in hidden]
            run_git(root, [*options, *specs], trust=True, sink=pager.feed, stop=stop)
            return pager.text() or "no changes"

        return await in_stoppable_thread(job)

    return checkout.finish(git_diff_worktree)


def _may_show(checkout: _Checkout, name: str) -> bool:
    blocked = checkout.blocklist is not None and checkout.blocklist.blocks(name)
    return not blocked and checkout.scope.covers(name)
