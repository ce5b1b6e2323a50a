"""The git tools, as functions over one checkout."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

from glue import Tool, clean_text, tool
from glue.errors import GitError, ToolError
from glue.tools.fs.files import Pager, count_lines, fitting, page, show, suggest
from glue.tools.fs.patterns import Blocklist
from glue.tools.fs.root import truncate
from glue.tools.git.command import DIFF, SECONDS, literal_pathspec, run_git
from glue.tools.git.objects import FileChange, GitCommit
from glue.tools.git.repo import EMPTY_TREE, Repo
from glue.tools.process import StopFlag, in_thread

PAGE = 24 * 1024  # bytes of a page: at most 8,000 tokens
WHOLE = 16 * 1024 * 1024
LARGE_PAGE = 80 * 1024
BLAMED = 1000  # lines
LISTED = 300  # files in the summary of a diff
MAX_NAMES = 512 * 1024  # characters of the paths that git is given


def tools(
    root: str | os.PathLike[str], base: str | None = None, trust: bool = False, *, blocklist: Blocklist | None = None
) -> list[Tool[..., Any]]:
    """Make the git tools of a checkout; `base` is the branch that others start from, guessed if left out.

    They read objects only, and hold against a hostile repository. `trust` adds status and diff of the work
    tree, for which git reads the repository's own configuration: for the user's own checkout alone.
    """
    where = os.fspath(root)
    tops = tuple(f"{name.rstrip('/')}/" for name in dict.fromkeys((os.path.abspath(where), os.path.realpath(where))))

    def below(path: str) -> str:
        """Write a path from the top, however it was given; the top itself is empty."""
        top = next((each for each in tops if f"{path}/".startswith(each)), "")
        return f"{path}/".removeprefix(top).removeprefix("./").rstrip("/")

    def allowed(path: str) -> str:
        if blocklist is not None and (pattern := blocklist.match(below(path))):
            raise ToolError(f"{show(below(path))} is on the block list ({pattern})")
        return below(path)

    async def within(job: Callable[[Repo], str]) -> str:
        """One private git directory and one deadline for each call."""

        def work(stop: StopFlag) -> str:
            until = time.monotonic() + SECONDS
            with Repo(where, alternates=trust, stop=stop) as repo:
                repo.until = until
                text = job(repo).encode("utf-8", "replace").decode()
            # What could play with a terminal is made visible, and nothing is taken out, for it may be part of the
            # change. Line ends stay as they are: they may be all that was changed.
            return "\r\n".join(map(clean_text, text.split("\r\n")))

        return await in_thread(work)

    @tool(max_output=None)
    async def git_diff_branch(path: str = "", offset: int = 1) -> str:
        """Show what the branch changed since it left its base: a summary, then the patch. Only commits count.

        Args:
            path: only this file or folder, from the top
            offset: first line of the patch; a page says how to go on
        """

        def job(repo: Repo) -> str:
            head, origin = repo.resolve("HEAD"), base or repo.base_branch()
            start = repo.merge_base(origin, head)
            branch = repo.layout.head_branch() or "HEAD"
            names = f"{show(origin.removeprefix('refs/remotes/'))} {start[:12]} .. {show(branch)} {head[:12]}"
            return f"[{names}]\n{diff(repo, start, head, below(path), offset, blocklist)}"

        return await within(job)

    @tool(max_output=None)
    async def git_log_branch(limit: int = 50) -> str:
        """List the commits of the branch that its base does not have, newest first.

        Args:
            limit: most commits, up to 500
        """

        def job(repo: Repo) -> str:
            count = max(1, min(limit, 500))
            found = repo.log(base or repo.base_branch(), "HEAD", limit=count + 1)
            lines = [describe(commit) for commit in found[:count]] or ["no commits: the branch is at its base"]
            if len(found) > count:
                lines.append(f"[the newest {count}; raise the limit for more]")
            if repo.shallow:
                lines.append("[the clone is shallow: older history is not here]")
            return truncate("\n".join(lines), PAGE)

        return await within(job)

    @tool(max_output=None)
    async def git_show(revision: str, path: str = "", offset: int = 1) -> str:
        """Show a file as it was at a revision, or, without a path, a commit with its message and its changes.

        Args:
            revision: a commit, branch, tag or HEAD, also with ~N or ^
            path: a file, from the top
            offset: first line; a page says how to go on
        """

        if not path:
            return await within(lambda repo: commit_page(repo, revision, offset, blocklist))
        return await within(lambda repo: file_page(repo, revision, allowed(path), offset))

    @tool(max_output=None)
    async def git_blame(path: str, first: int = 1, last: int = 0, revision: str = "HEAD") -> str:
        """Show for each line of a file which commit wrote it, who and when; says where it stops.

        Args:
            path: a file, from the top
            first: first line, from 1
            last: last line
            revision: at which commit
        """

        return await within(lambda repo: blame_page(repo, revision, allowed(path), max(first, 1), last))

    made: list[Tool[..., Any]] = [git_diff_branch, git_log_branch, git_show, git_blame]
    if trust:
        made.extend(worktree_tools(where, blocklist, below))
    for each in made:
        each.root = os.path.abspath(where)
    return made


def diff(
    repo: Repo, start: str, end: str, path: str, offset: int, blocklist: Blocklist | None, head: Sequence[str] = ()
) -> str:
    """Write a page of the patch between two commits; the first page begins with a summary."""
    changes = repo.changes(start, end)
    if path:
        changes = [each for each in changes if any(f"{name}/".startswith(f"{path}/") for name in _names(each))]
    blocked = [each for each in changes if blocklist is not None and any(map(blocklist.blocks, _names(each)))]
    shown = [change for change in changes if change not in blocked]
    lines = [*head, *_summary(shown, len(blocked))] if offset <= 1 else []
    large = repo.oversized(shown)
    if offset <= 1 and large:
        lines[-1:] = [f"[{len(large)} files are too large to compare and are listed only]", ""]
    shown, blocked = [change for change in shown if change not in large], [*blocked, *large]
    if not shown:
        return "\n".join(lines or ["no changes"])
    room = PAGE - sum(len(line.encode("utf-8", "replace")) + 1 for line in lines)
    only = dict.fromkeys(name for change in shown for name in _names(change)) if path else {}
    refused = dict.fromkeys(name for change in blocked for name in _names(change))
    if sum(len(name) for name in (*only, *refused)) > MAX_NAMES:
        raise GitError("too many files for one diff; give a path", kind="too_large")
    specs = [*map(literal_pathspec, only), *(literal_pathspec(name, exclude=True) for name in refused)]

    def patch() -> str:
        pager = Pager(offset, max(room, 4096))
        repo.diff_tree(start, end, pathspec=specs, sink=pager.feed)
        return pager.text()

    return "\n".join([*lines, repo.spare_memory(patch)])


def _names(change: FileChange) -> tuple[str, str]:
    return change.old_path, change.path


def commit_page(repo: Repo, revision: str, offset: int = 1, blocklist: Blocklist | None = None) -> str:
    """Write a page of one commit: its message, and what it changed against its first parent."""
    commit = repo.log("", revision, limit=1)[0]
    head = [f"commit {commit.sha}", f"author {commit.author} <{commit.email}>", f"date {commit.date}", ""]
    head += [*(f"    {line}" for line in truncate(commit.message, PAGE).split("\n")), ""]
    if commit.sha in repo.shallow:
        return "\n".join([*head, "[its parents are not here (shallow clone), so neither is what it changed]"])
    start = commit.parents[0] if commit.parents else EMPTY_TREE[len(commit.sha)]
    if len(commit.parents) > 1:
        head.append(f"[a merge of {len(commit.parents)} parents; against the first of them]")
    return diff(repo, start, commit.sha, "", offset, blocklist, head)


def file_page(repo: Repo, revision: str, path: str, offset: int) -> str:
    entry = repo.entry(revision, path) if path else None
    if path and entry is None:
        name = path.rpartition("/")[2]
        near = [each.path for each in repo.list_tree(revision) if each.path.rpartition("/")[2] == name][:3]
        raise ToolError(f"there is no {path!a} in {revision!a}{suggest(near)}")
    if entry is None or entry.kind == "tree":
        names = [each.path for each in repo.list_tree(revision, path, recursive=False)]
        return "\n".join(["[a folder]", *names[:1000]])
    if entry.kind == "commit":
        return f"[another repository (submodule), at commit {entry.sha}]"
    content = repo.blob(entry.sha, cap=WHOLE, cut=True)
    if entry.mode == "120000":
        return f"[a link to {content[:4096].decode('utf-8', 'replace')!a}]"
    if len(content) == WHOLE and b"\0" not in content[:8192]:  # too large to be held: paged as it comes
        pager = Pager(offset, LARGE_PAGE)
        repo.git(["cat-file", "blob", entry.sha], sink=pager.feed)
        return pager.text()
    return page(io.BufferedReader(cast(io.RawIOBase, io.BytesIO(content))), offset)


def blame_page(repo: Repo, revision: str, path: str, first: int, last: int) -> str:
    """Write a page of who wrote each line, and where to go on."""
    content = repo.cat_file(revision, path, cap=WHOLE, cut=True)
    total = count_lines(content)
    if first > total:
        raise ToolError(f"line {first} is past the end: the file has {total} lines")
    wanted = min(last if last >= first else total, total)
    end = min(wanted, first + BLAMED - 1)
    lines = repo.blame(revision, path, first, end).split("\n")[: end - first + 1]
    shown = fitting(lines, PAGE) or lines[:1]
    done = first + len(shown) - 1
    text = truncate("\n".join(shown), PAGE)
    return text if done >= wanted else f"{text}\n[lines {first}-{done} of {total}; continue with first {done + 1}]"


def describe(commit: GitCommit) -> str:
    """Write a commit in one line, and the rest of its message below."""
    first, _, rest = commit.message.partition("\n")
    text = f"{commit.sha[:12]} {commit.date[:10]} {commit.author}: {first}"
    return text + "".join(f"\n    {line}" for line in rest.strip().split("\n") if rest.strip())


def _summary(changes: list[FileChange], blocked: int) -> list[str]:
    added = sum(change.added or 0 for change in changes)
    deleted = sum(change.deleted or 0 for change in changes)
    lines = [f"{len(changes)} files changed, {added} lines added, {deleted} deleted"]
    lines += [_line(change) for change in changes[:LISTED]]
    if len(changes) > LISTED:
        lines.append(f"[and {len(changes) - LISTED} more files]")
    if blocked:
        lines.append(f"[{blocked} files are on the block list and are not shown]")
    return [*lines, ""]


def _line(change: FileChange) -> str:
    name = show(change.path)
    if change.old_path != change.path:
        name = f"{show(change.old_path)} => {name}"
    count = "binary" if change.added is None else f"+{change.added} -{change.deleted}"
    moved = change.old_mode != change.new_mode and change.status not in "AD"
    mode = f" (mode {change.old_mode} => {change.new_mode})" if moved else ""
    return f"{change.status} {name} {count}{mode}"


def worktree_tools(root: str, blocklist: Blocklist | None, below: Callable[[str], str]) -> list[Tool[..., Any]]:

    @tool(max_output=None)
    async def git_status() -> str:
        """Show which files are changed, staged or untracked, and the branch that is checked out."""

        def job(stop: StopFlag) -> str:
            options = ["status", "--porcelain=v1", "--branch", "--untracked-files=normal", "--ignore-submodules=dirty"]
            out = run_git(root, options, trust=True, cap=PAGE, cut=True, stop=stop)
            return out.decode("utf-8", "replace") + ("[there is more]" if len(out) >= PAGE else "")

        return await in_thread(job)

    @tool(max_output=None)
    async def git_diff_worktree(path: str = "", staged: bool = False, offset: int = 1) -> str:
        """Show changes that are not committed yet, as a patch; new files only once they are staged.

        Args:
            path: only this file or folder, from the top
            staged: only what is staged
            offset: first line; a page says how to go on
        """

        def job(stop: StopFlag) -> str:
            pager = Pager(offset, PAGE)
            options = ["diff", *DIFF, *(["--cached"] if staged else []), "HEAD", "--"]
            specs = [literal_pathspec(below(path))] if below(path) else []
            if blocklist is not None:
                names_only = [*options[:-1], "--name-only", "--no-renames", "-z", "--"]
                out = run_git(root, names_only, trust=True, stop=stop)
                names = [os.fsdecode(name) for name in out.split(b"\0") if name]
                specs += [literal_pathspec(name, exclude=True) for name in names if blocklist.blocks(name)]
            run_git(root, [*options, *specs], trust=True, sink=pager.feed, stop=stop)
            return pager.text() or "no changes"

        return await in_thread(job)

    return [git_status, git_diff_worktree]
