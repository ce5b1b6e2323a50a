"""Pages of text that the git tools return: a diff, a commit, a file, or the authors of lines."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import cast

from glue.errors import GitError, ToolError
from glue.tools.fs.files import Pager, count_lines, lines_that_fit, read_page, show_name, suggest
from glue.tools.fs.patterns import Blocklist
from glue.tools.fs.root import truncate
from glue.tools.git.objects import FileChange, GitCommit
from glue.tools.git.pathspec import EVERYTHING, Scope, literal_pathspec
from glue.tools.git.repo import EMPTY_TREE, Repo

PAGE = 23 * 1024  # bytes of a page: below 24,000 characters and 8,000 tokens
WHOLE = 16 * 1024 * 1024  # bytes of a file that is read at once
LARGE_PAGE = 80 * 1024
BLAMED = 200  # lines of a page of git_blame
BLAME_PAGE = 16 * 1024
LISTED = 300  # files in the summary of a diff
MAX_NAMES = 512 * 1024  # characters of all paths in the arguments of git


def diff_page(
    repo: Repo,
    start: str,
    end: str,
    path: str,
    offset: int,
    blocklist: Blocklist | None,
    head: Sequence[str] = (),
    scope: Scope = EVERYTHING,
) -> str:
    """Return a page of the patch between two commits; the first page starts with a summary.

    Args:
        repo: the open repository.
        start: the older commit, or the empty tree.
        end: the newer commit.
        path: only this file or folder; "" for all.
        offset: the first line of the patch to show.
        blocklist: files that are counted but not shown.
        head: lines before the summary.
        scope: the files to show; files outside it are neither counted nor shown.
    """
    in_scope = repo.changes(start, end, pathspec=scope.pathspec)
    changes = [change for change in in_scope if _is_below(change, path)]
    blocked = [change for change in changes if _is_blocked(change, blocklist)]
    shown = [change for change in changes if change not in blocked]
    lines = [*head, *_summary(shown, len(blocked))] if offset <= 1 else []
    large = repo.oversized(shown)
    if offset <= 1 and large:
        lines[-1:] = [f"[{len(large)} files are too large to compare and are listed only]", ""]
    shown = [change for change in shown if change not in large]
    if not shown:
        return "\n".join(lines or ["no changes"])
    room = PAGE - sum(len(line.encode("utf-8", "replace")) + 1 for line in lines)
    included = _all_paths(shown) if path else []
    excluded = _all_paths([*blocked, *large])
    if sum(map(len, included)) + sum(map(len, excluded)) > MAX_NAMES:
        raise GitError("too many files for one diff; give a path", kind="too_large")
    # With a path the names of the changes say everything, and all of them are in the scope.
    specs = [literal_pathspec(name) for name in included] or list(scope.pathspec)
    specs += [literal_pathspec(name, exclude=True) for name in excluded]

    def patch() -> str:
        pager = Pager(offset, max(room, 4096))
        repo.diff_tree(start, end, pathspec=specs, sink=pager.feed)
        return pager.text()

    return "\n".join([*lines, repo.spare_memory(patch)])


def _is_below(change: FileChange, path: str) -> bool:
    """Return whether the old or new path of a changed file is `path` or below `path`.

    If `path` is "", the top folder, the result is True for every file.
    """
    paths = (change.old_path, change.path)
    return not path or any(f"{each}/".startswith(f"{path}/") for each in paths)


def _is_blocked(change: FileChange, blocklist: Blocklist | None) -> bool:
    if blocklist is None:
        return False
    return blocklist.blocks(change.old_path) or blocklist.blocks(change.path)


def _all_paths(changes: Iterable[FileChange]) -> list[str]:
    """Return the old and new paths of changes, each once."""
    paths: dict[str, None] = {}
    for change in changes:
        paths |= {change.old_path: None, change.path: None}
    return list(paths)


def commit_page(
    repo: Repo,
    revision: str,
    offset: int = 1,
    blocklist: Blocklist | None = None,
    scope: Scope = EVERYTHING,
) -> str:
    """Return a page about a commit: its message, and the patch from its first parent."""
    commit = repo.log("", revision, limit=1)[0]
    head = [
        f"commit {commit.sha}",
        f"author {commit.author} <{commit.email}>",
        f"date {commit.date}",
        "",
    ]
    head += [*(f"    {line}" for line in truncate(commit.message, PAGE).split("\n")), ""]
    if commit.sha in repo.shallow:
        return "\n".join(
            [*head, "[the clone is shallow and lacks the parents, so the changes cannot be shown]"]
        )
    start = commit.parents[0] if commit.parents else EMPTY_TREE[len(commit.sha)]
    if len(commit.parents) > 1:
        head.append(f"[a merge commit with {len(commit.parents)} parents, compared with the first]")
    return diff_page(repo, start, commit.sha, "", offset, blocklist, head, scope)


def file_page(repo: Repo, revision: str, path: str, offset: int, scope: Scope = EVERYTHING) -> str:
    """Return a page of a file at a revision, or the first 1000 names in a folder.

    For a link or a submodule, return one line about it.
    """
    entry = repo.entry(revision, path) if path else None
    if path and entry is None:
        name = path.rpartition("/")[2]
        paths = [each.path for each in repo.list_tree(revision) if scope.covers(each.path)]
        near = [each for each in paths if each.rpartition("/")[2] == name][:3]
        raise ToolError(f"{path!a} does not exist in {revision!a}{suggest(near)}")
    if entry is None or entry.kind == "tree":
        names = [each.path for each in repo.list_tree(revision, path, recursive=False)]
        if scope is not EVERYTHING:
            files = [each.path for each in repo.list_tree(revision, path)]
            depth = path.count("/") + 2 if path else 1  # components of the names in this folder
            inside = {"/".join(file.split("/")[:depth]) for file in files if scope.covers(file)}
            names = [name for name in names if name in inside]
        return "\n".join(["[a folder]", *names[:1000]])
    if entry.kind == "commit":
        return f"[another repository (submodule), at commit {entry.sha}]"
    content = repo.blob(entry.sha, cap=WHOLE, cut=True)
    if entry.mode == "120000":
        return f"[a link to {content[:4096].decode('utf-8', 'replace')!a}]"
    if len(content) == WHOLE and b"\0" not in content[:8192]:  # too large to keep in memory
        pager = Pager(offset, LARGE_PAGE)
        repo.git(["cat-file", "blob", entry.sha], sink=pager.feed)
        return pager.text()
    return read_page(io.BufferedReader(cast(io.RawIOBase, io.BytesIO(content))), offset)


def blame_page(repo: Repo, revision: str, path: str, first: int, last: int) -> str:
    """Return a page with the commit, author and date of each line from `first` to `last`.

    If `last` is below `first`, show lines up to the end. If more lines follow than fit on a page,
    the page ends with a note on how to continue.
    """
    content = repo.cat_file(revision, path, cap=WHOLE, cut=True)
    total = count_lines(content)
    if first > total:
        raise ToolError(f"line {first} is past the end: the file has {total} lines")
    wanted = min(last if last >= first else total, total)
    end = min(wanted, first + BLAMED - 1)
    lines = repo.blame(revision, path, first, end).split("\n")[: end - first + 1]
    shown = lines_that_fit(lines, BLAME_PAGE) or lines[:1]
    done = first + len(shown) - 1
    text = truncate("\n".join(shown), BLAME_PAGE)
    return (
        text
        if done >= wanted
        else f"{text}\n[lines {first}-{done} of {total}; continue with first={done + 1}]"
    )


def describe(commit: GitCommit) -> str:
    """Return a commit as text: hash, date, author, subject; below, the rest of the message."""
    first, _, rest = commit.message.partition("\n")
    text = f"{commit.sha[:12]} {commit.date[:10]} {commit.author}: {first}"
    return text + "".join(f"\n    {line}" for line in rest.strip().split("\n") if rest.strip())


def _summary(changes: list[FileChange], blocked: int) -> list[str]:
    added = sum(change.added or 0 for change in changes)
    deleted = sum(change.deleted or 0 for change in changes)
    lines = [f"{len(changes)} files changed, {added} lines added, {deleted} deleted"]
    lines += [_change_line(change) for change in changes[:LISTED]]
    if len(changes) > LISTED:
        lines.append(f"[and {len(changes) - LISTED} more files]")
    if blocked:
        lines.append(f"[{blocked} files are on the block list and are not shown]")
    return [*lines, ""]


def _change_line(change: FileChange) -> str:
    name = show_name(change.path)
    if change.old_path != change.path:
        name = f"{show_name(change.old_path)} => {name}"
    count = "binary" if change.added is None else f"+{change.added} -{change.deleted}"
    moved = change.old_mode != change.new_mode and change.status not in "AD"
    mode = f" (mode {change.old_mode} => {change.new_mode})" if moved else ""
    return f"{change.status} {name} {count}{mode}"
