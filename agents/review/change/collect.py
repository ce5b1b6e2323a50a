"""Collect the input of a review: the diff, the files before and after it, and the settings.

Commits are read from git objects: nothing is checked out, and no program of the repository runs.
Only `collect_dirty` reads the work tree, with the git settings of the user.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from glue.agents.review.change import diff as patch
from glue.agents.review.change.config import (
    CONFIG_FILES,
    DISMISSED_FILE,
    Config,
    blocklist,
    make,
    read_config,
    skip,
)
from glue.agents.review.change.diff import parse
from glue.agents.review.records import Bundle, ChangeCommit, FileDiff, ReviewedChange, SkippedFile
from glue.errors import GitError, UnsafePath
from glue.tools.fs import safe_open
from glue.tools.git import DIFF, FileChange, Repo, literal_pathspec, run_git

MAX_DIFF = 24 * 1024 * 1024  # bytes of the diff
MAX_BLOB = 512 * 1024  # bytes of one file; of a larger file only the diff is known
MAX_TEXT = 32 * 1024 * 1024  # bytes of all files after the change
MAX_COMMITS = 50
MAX_GUIDE = 32 * 1024  # bytes of a config or guideline file
TOO_MUCH = ("too_large", "memory", "timeout")  # git errors that a smaller request may avoid


@dataclass(frozen=True, slots=True)
class PathFilter:
    """Globs that limit a review to the files that match `paths` and do not match `ignored`.

    If `paths` is empty, the settings of the repository decide which files are included.
    """

    paths: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    def narrow(self, rules: Config) -> Config:
        """Return `rules` with `paths` as their `include`, and with `ignored` added to `exclude`.

        If `paths` is empty, `include` stays as it is.
        """
        return replace(
            rules, include=self.paths or rules.include, exclude=(*rules.exclude, *self.ignored)
        )


def top(path: str | os.PathLike[str]) -> str:
    """Return the top folder of the repository that contains `path`, or `path` if none does."""
    place = Path(os.path.abspath(path))
    for here in (place, *place.parents):
        bare = all(os.path.lexists(here / name) for name in ("HEAD", "objects", "refs"))
        if bare or os.path.lexists(here / ".git"):
            return str(here)
    return os.fspath(path)


def collect(
    root: str | os.PathLike[str],
    *,
    base: str = "",
    head: str = "HEAD",
    change: ReviewedChange | None = None,
    only: PathFilter | None = None,
) -> Bundle:
    """Return the bundle of a change: from the merge base of `base` and `head` to `head`.

    If `base` is empty, the base branch of the repository is used. `change` has the metadata of a
    pull request, if there is one. `only` limits the bundle to some files.
    """
    with Repo(root, seconds=60.0) as repo:
        base = base or _base_branch(repo)
        start, end = repo.resolve(base), repo.resolve(head)
        known = change or ReviewedChange(mode="branch", base_ref=base, head_ref=head)
        bundle = _bundle(
            repo, repo.merge_base(start, end), end, replace(known, base_sha=start), only
        )
    commits = bundle.change.commits
    if known.title or len(commits) != 1:
        return bundle
    return replace(bundle, change=replace(bundle.change, title=commits[0].message.split("\n")[0]))


def _base_branch(repo: Repo) -> str:
    """Return the name of the base branch; raise GitError with a remedy if none is found."""
    try:
        return repo.base_branch()
    except GitError as error:
        if error.kind != "missing":
            raise
        raise GitError("no base branch was found; name it with --base", kind="missing") from error


def collect_range(
    root: str | os.PathLike[str],
    range_: str,
    *,
    only: PathFilter | None = None,
    alternates: bool = False,
) -> Bundle:
    """Return the bundle of the change between the commits of `range_`, such as "v1..HEAD".

    `a..b` is the change from a to b. `a...b` is the change from the merge base of a and b to b.
    `a` means `a..HEAD`. `alternates` allows a repository that uses the objects of another
    repository.
    """
    match = re.fullmatch(r"(.+?)(\.{2,3})(.*)", range_, re.DOTALL)
    old, dots, new = match.groups() if match else (range_, "..", "HEAD")
    with Repo(root, seconds=60.0, alternates=alternates) as repo:
        start, end = repo.resolve(old), repo.resolve(new or "HEAD")
        if dots == "...":
            start = repo.merge_base(start, end)
        change = ReviewedChange(mode="range", base_sha=start, base_ref=old, head_ref=new or "HEAD")
        return _bundle(repo, start, end, change, only)


def from_diff(
    diff: bytes | str,
    *,
    head: dict[str, str] | None = None,
    change: ReviewedChange | None = None,
    rules: Config | None = None,
) -> Bundle:
    """Return the Bundle of a diff. Files that `rules` excludes are listed in `skipped` instead.

    `rules` contains the settings of `.glue/review.toml`.
    `head` maps paths to texts after the change. Of a modified file that is not in `head`, only the
    hunks are known.
    """
    text = diff.decode("utf-8", "surrogateescape") if isinstance(diff, bytes) else diff
    skipped: tuple[SkippedFile, ...] = ()
    if rules is not None:
        kept: list[str] = []
        for file, part in patch.sections(text):
            lines = len(file.added) + len(file.deleted)
            out = skip(file.path, rules, old_path=file.old_path, lines=lines)
            if out is None:
                kept.append(part)
            else:
                skipped = (*skipped, out)
        text = "".join(kept)
    files = parse(text)
    known = {
        file.path: patch.side(file, "+") for file in files if file.status == "added" and file.hunks
    }
    known |= head or {}
    base = {
        file.old_path or file.path: patch.before(known[file.path], file)
        for file in files
        if file.path in known and file.status != "added"
    }
    return Bundle(
        change=change or ReviewedChange(),
        diff=text,
        files=files,
        head=known,
        base=base,
        skipped=skipped,
    )


def from_texts(
    before: Mapping[str, str], after: Mapping[str, str], change: ReviewedChange | None = None
) -> Bundle:
    """Return the bundle of a change that is given by the texts of the files before and after it.

    Both arguments map paths to texts. A path that is only in `after` is an added file, a path that
    is only in `before` a deleted one.
    """
    changed = [path for path in sorted({*before, *after}) if before.get(path) != after.get(path)]
    diff = "".join(patch.between(path, before.get(path), after.get(path)) for path in changed)
    bundle = from_diff(diff, head=dict(after), change=change)
    return replace(bundle, base={path: text for path, text in before.items() if bundle.file(path)})


def _bundle(
    repo: Repo, start: str, end: str, change: ReviewedChange, only: PathFilter | None
) -> Bundle:
    """Return the bundle of the change from commit `start` to commit `end`.

    The settings are those of `start`. The commits are added to the metadata, `change`.
    """
    rules, given = _settings(repo, start)
    rules = only.narrow(rules) if only else rules
    log = repo.log(start, end, limit=MAX_COMMITS)
    commits = tuple(
        ChangeCommit(sha=commit.sha, message=commit.message[:4_000], author=commit.author)
        for commit in log
    )
    change = replace(change, head_sha=end, merge_base=start, commits=commits)
    changed = repo.changes(start, end)
    left_out = (
        skip(file.path, rules, old_path=file.old_path, lines=_size(file)) for file in changed
    )
    skipped = [out for out in left_out if out]
    diff = _diff(repo, start, end, changed, skipped)
    return _with_texts(diff, _blobs(repo), change=change, skipped=tuple(skipped), **given)


def _blobs(repo: Repo) -> Callable[[FileDiff], bytes]:
    """Return a function that reads up to MAX_BLOB bytes of a changed file from git objects."""
    return lambda file: repo.blob(file.new_sha, cap=MAX_BLOB, cut=True)


def _size(changed: FileChange) -> int:
    return (changed.added or 0) + (changed.deleted or 0)


def _settings(repo: Repo, base: str) -> tuple[Config, dict[str, Any]]:
    """Return the Config at the commit `base`, and a dict of the Bundle's config and guidelines.

    `config` is the content of the config file. `guidelines` are the texts of the guideline files
    and of `.glue/dismissed`.
    """
    texts = ((path, file_text(repo, base, path, MAX_GUIDE)) for path in CONFIG_FILES)
    data = next(
        (read_config(text, f"{path} of {base[:12]}") for path, text in texts if text is not None),
        {},
    )
    config = make(data)
    names = (*config.guidelines, DISMISSED_FILE)
    found = ((path, file_text(repo, base, path, MAX_GUIDE)) for path in names)
    guidelines = {path: text for path, text in found if text}
    return config, {"config": data, "guidelines": guidelines}


def file_text(
    repo: Repo, rev: str, path: str, cap: int = MAX_BLOB, *, links: bool = False
) -> str | None:
    """Return the text of a file in a commit, or None if `path` is not a file there.

    The text is cut after `cap` bytes. For a symlink, return None or, if `links`, the text
    "symlink to ...".
    """
    entry = repo.entry(rev, path)
    is_link = entry is not None and entry.mode == "120000"
    if entry is None or entry.kind != "blob" or (is_link and not links):
        return None
    text = repo.blob(entry.sha, cap=cap, cut=True).decode("utf-8", "replace")
    return f"symlink to {text}" if is_link else text


def _diff(
    repo: Repo, start: str, end: str, changed: Sequence[FileChange], skipped: list[SkippedFile]
) -> bytes:
    """Return the diff without the files in `skipped`; add files that are too large to `skipped`.

    If git refuses because the diff is too large, or if the paths to exclude are longer than 256 KiB
    in all, the diff is read file by file. Then a file is too large if its part is larger than an
    eighth of MAX_DIFF, or no longer fits into MAX_DIFF bytes.
    """
    left_out = {out.path for out in skipped}
    kept = [file for file in changed if file.path not in left_out]
    if not kept:
        return b""
    names = dict.fromkeys(
        name for file in changed if file.path in left_out for name in (file.old_path, file.path)
    )
    if sum(map(len, names)) < 256 * 1024:
        try:
            # Both names of a rename are excluded: otherwise the old text of a secret file would be
            # shown as a deletion.
            excluded = [literal_pathspec(name, exclude=True) for name in names]
            spec = [":(top)", *excluded] if excluded else []
            return repo.diff_tree(start, end, pathspec=spec, cap=MAX_DIFF)
        except GitError as error:
            if error.kind not in TOO_MUCH:
                raise
    diff = b""
    for file in kept:
        try:
            part = repo.diff_tree(
                start, end, tuple(dict.fromkeys((file.old_path, file.path))), cap=MAX_DIFF // 8
            )
        except GitError as error:
            if error.kind not in TOO_MUCH:
                raise
            part = b""
        if part and len(diff) + len(part) <= MAX_DIFF:
            diff += part
        else:
            skipped.append(
                SkippedFile(path=file.path, kind="too_large", reason="too large", lines=_size(file))
            )
    return diff


def _with_texts(diff: bytes, read: Callable[[FileDiff], bytes | None], **fields: Any) -> Bundle:
    """Parse a diff and return a Bundle with the texts of its files before and after the change.

    `read` returns the content of a modified file after the change, or None if it cannot be read.
    The text before the change is computed by undoing the hunks. The bundle has no texts of binary
    files, submodules, files that cannot be read, files of MAX_BLOB bytes or more, and files after
    the first MAX_TEXT bytes. `fields` are other fields of the bundle.
    """
    files = parse(diff)
    head: dict[str, str] = {}
    base: dict[str, str] = {}
    left = MAX_TEXT
    for file in files:
        if file.binary or file.submodule or file.odd:
            continue
        if file.symlink:
            head[file.path] = f"symlink to {patch.side(file, '+')}"
        elif file.status == "deleted":
            base[file.path] = patch.side(file, "-")
        elif file.status == "added":
            head[file.path] = patch.side(file, "+")
        elif file.hunks and left > 0 and (raw := read(file)) is not None and len(raw) < MAX_BLOB:
            left -= len(raw)
            head[file.path] = raw.decode("utf-8", "replace")
            base[file.old_path or file.path] = patch.before(head[file.path], file)
    return Bundle(
        diff=diff.decode("utf-8", "surrogateescape"), files=files, head=head, base=base, **fields
    )


SECONDS = 30.0  # for one git command
MAX_UNTRACKED = 200
NO_FILES = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # the empty tree, which git always knows


def collect_dirty(
    root: str | os.PathLike[str], *, staged: bool = False, only: PathFilter | None = None
) -> Bundle:
    """Return the bundle of all uncommitted changes or, if `staged`, only of the staged changes.

    Uncommitted changes include untracked files.
    """
    root = os.fspath(root)
    with Repo(root) as repo:
        last = "" if repo.layout.find("HEAD") is None else repo.resolve("HEAD")
        rules, given = _settings(repo, last) if last else (Config(), {})
        rules = only.narrow(rules) if only else rules
        options = [
            "diff",
            *DIFF,
            "--full-index",
            *(["--cached"] if staged else []),
            last or NO_FILES,
        ]
        names = _names(_git(root, [*options, "--name-only", "--no-renames", "-z", "--"]))
        skipped = [out for name in names if (out := skip(name, rules))]
        spec = [":(top)", *(literal_pathspec(out.path, exclude=True) for out in skipped)]
        diff = _git(root, [*options, "-p", "--", *spec])
        diff += b"" if staged else _untracked(root, rules, skipped)
        read = _blobs(repo) if staged else lambda file: _work_file(root, file.path, rules)
        change = ReviewedChange(
            mode="staged" if staged else "dirty", head_sha=last, base_sha=last, merge_base=last
        )
        return _with_texts(diff, read, change=change, skipped=tuple(skipped), **given)


def _untracked(root: str, rules: Config, skipped: list[SkippedFile]) -> bytes:
    """Return a diff that adds the untracked files; list files that it leaves out in `skipped`.

    Files that are excluded, too large or not text are left out, and all after MAX_UNTRACKED files.
    """
    diff = ""
    names = _names(_git(root, ["ls-files", "--others", "--exclude-standard", "-z", "--full-name"]))
    for at, name in enumerate(names):
        if out := skip(name, rules):
            skipped.append(out)
        elif at >= MAX_UNTRACKED:
            skipped.append(
                SkippedFile(
                    path=name, kind="too_large", reason=f"more than {MAX_UNTRACKED} new files"
                )
            )
        elif os.path.islink(os.path.join(root, name)):
            diff += patch.between(name, None, os.readlink(os.path.join(root, name)), mode="120000")
        elif (content := _work_file(root, name, rules)) is None:
            skipped.append(SkippedFile(path=name, reason="not a readable text file"))
        elif len(content) == MAX_BLOB:
            skipped.append(
                SkippedFile(
                    path=name, kind="too_large", reason=f"too large: {MAX_BLOB // 1024} KB or more"
                )
            )
        else:
            diff += patch.between(name, None, content.decode("utf-8", "replace"))
    return diff.encode("utf-8", "surrogateescape")


def _work_file(root: str, path: str, config: Config) -> bytes | None:
    """Return up to MAX_BLOB bytes of a file, or None if it is secret, a link, binary or unreadable.

    The file is in the work tree. A file is secret if it may contain secrets, and binary if the
    bytes contain a NUL byte.
    """
    try:
        # A link is not followed: it could lead to a file that may contain secrets.
        if blocklist(config).blocks(path) or os.path.islink(os.path.join(root, path)):
            return None
        with safe_open(root, path) as file:
            raw = file.read(MAX_BLOB)
    except (OSError, UnsafePath):
        return None
    return None if b"\0" in raw else raw


def _names(out: bytes) -> list[str]:
    return [os.fsdecode(name) for name in out.split(b"\0") if name]


def _git(root: str, args: list[str]) -> bytes:
    return run_git(root, args, trust=True, seconds=SECONDS, cap=MAX_DIFF)
