"""Gather what a review may see, from git objects alone: the diff, both sides, and the merge-base's own rules."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from glue.agents.review.change import diff as patch
from glue.agents.review.change.config import CONFIG_FILES, DISMISSED_FILE, Config, blocklist, make, read_config, skip
from glue.agents.review.change.diff import parse
from glue.agents.review.records import Bundle, ChangeCommit, FileDiff, ReviewedChange, SkippedFile
from glue.errors import GitError, UnsafePath
from glue.tools.fs import safe_open
from glue.tools.git import DIFF, FileChange, Repo, literal_pathspec, run_git

MAX_DIFF = 24 * 1024 * 1024
MAX_BLOB = 512 * 1024
MAX_TEXT = 32 * 1024 * 1024  # of all blobs together
MAX_PATHS = 20_000
MAX_COMMITS = 50
MAX_GUIDE = 32 * 1024
TOO_MUCH = ("too_large", "memory", "timeout")  # kinds of errors of git that a smaller piece may not meet


@dataclass(frozen=True, slots=True)
class PathFilter:
    """Globs by which whoever starts a review narrows it."""

    paths: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    def narrow(self, rules: Config) -> Config:
        return replace(rules, include=self.paths or rules.include, exclude=(*rules.exclude, *self.ignored))


def top(path: str | os.PathLike[str]) -> str:
    """The repository that a folder belongs to: the first one at or above it; the folder itself where there is none."""
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
    """Bundle the change from where `head` left `base`. Nothing is checked out and no program of the repository runs."""
    with Repo(root, seconds=60.0) as repo:
        start, end = repo.resolve(base or repo.base_branch()), repo.resolve(head)
        told = change or ReviewedChange(mode="branch", base_ref=base or repo.base_branch(), head_ref=head)
        bundle = _bundle(repo, repo.merge_base(start, end), end, replace(told, base_sha=start), only)
    commits = bundle.change.commits
    if told.title or len(commits) != 1:
        return bundle
    return replace(bundle, change=replace(bundle.change, title=commits[0].message.split("\n")[0]))


def collect_range(root: str | os.PathLike[str], range_: str, *, only: PathFilter | None = None) -> Bundle:
    """Bundle `a..b` (from a to b) or `a...b` (from where they part); `a` alone means `a..HEAD`."""
    match = re.fullmatch(r"(.+?)(\.{2,3})(.*)", range_, re.DOTALL)
    one, dots, other = match.groups() if match else (range_, "..", "HEAD")
    with Repo(root, seconds=60.0) as repo:
        start, end = repo.resolve(one), repo.resolve(other or "HEAD")
        if dots == "...":
            start = repo.merge_base(start, end)
        change = ReviewedChange(mode="range", base_sha=start, base_ref=one, head_ref=other or "HEAD")
        return _bundle(repo, start, end, change, only)


def from_diff(
    diff: bytes | str,
    *,
    head: dict[str, str] | None = None,
    change: ReviewedChange | None = None,
    rules: Config | None = None,
) -> Bundle:
    """Make a bundle of a diff alone; what the hunks show is all there is to see. `rules` leave files out."""
    text = diff.decode("utf-8", "surrogateescape") if isinstance(diff, bytes) else diff
    skipped: tuple[SkippedFile, ...] = ()
    if rules is not None:
        parts = [
            (part, skip(file.path, rules, old_path=file.old_path, lines=len(file.added) + len(file.deleted)))
            for file, part in patch.sections(text)
        ]
        text = "".join(part for part, out in parts if out is None)
        skipped = tuple(out for _, out in parts if out)
    files = parse(text)
    known = {file.path: patch.side(file, "+") for file in files if file.status == "added" and file.hunks}
    known |= head or {}
    base = {
        file.old_path or file.path: patch.before(known[file.path], file)
        for file in files
        if file.path in known and file.status != "added"
    }
    return Bundle(change=change or ReviewedChange(), diff=text, files=files, head=known, base=base, skipped=skipped)


def from_texts(before: Mapping[str, str], after: Mapping[str, str], change: ReviewedChange | None = None) -> Bundle:
    """Make the bundle of a change that is given as texts, path -> text: for tests, and for trying a rule out."""
    changed = [path for path in sorted({*before, *after}) if before.get(path) != after.get(path)]
    diff = "".join(patch.between(path, before.get(path), after.get(path)) for path in changed)
    bundle = from_diff(diff, head=dict(after), change=change)
    return replace(bundle, base={path: text for path, text in before.items() if bundle.file(path)})


def _bundle(repo: Repo, start: str, end: str, change: ReviewedChange, only: PathFilter | None) -> Bundle:
    rules, given = _settings(repo, start, end)
    rules = only.narrow(rules) if only else rules
    log = repo.log(start, end, limit=MAX_COMMITS)
    commits = tuple(ChangeCommit(sha=one.sha, message=one.message[:4_000], author=one.author) for one in log)
    change = replace(change, head_sha=end, merge_base=start, commits=commits)
    changed = repo.changes(start, end)
    left_out = (skip(one.path, rules, old_path=one.old_path, lines=_size(one)) for one in changed)
    skipped = [out for out in left_out if out]
    diff = _diff(repo, start, end, changed, skipped)
    return _with_texts(diff, _blobs(repo), change=change, skipped=tuple(skipped), **given)


def _blobs(repo: Repo) -> Callable[[FileDiff], bytes]:
    """Give the function that reads a file of a diff as it is after the change, from the objects."""
    return lambda file: repo.blob(file.new_sha, cap=MAX_BLOB, cut=True)


def _size(changed: FileChange) -> int:
    return (changed.added or 0) + (changed.deleted or 0)


def _settings(repo: Repo, base: str, head: str) -> tuple[Config, dict[str, Any]]:
    """The rules of the base, and what a bundle tells of them: its config, its guidelines, and the files at the head."""
    texts = ((path, file_text(repo, base, path, MAX_GUIDE)) for path in CONFIG_FILES)
    data = next((read_config(text, f"{path} of {base[:12]}") for path, text in texts if text is not None), {})
    config = make(data)
    named = ((path, file_text(repo, base, path, MAX_GUIDE)) for path in (*config.guidelines, DISMISSED_FILE))
    guidelines = {path: text for path, text in named if text}
    paths = tuple(entry.path for entry in repo.list_tree(head)[:MAX_PATHS])
    return config, {"config": data, "guidelines": guidelines, "paths": paths}


def file_text(repo: Repo, rev: str, path: str, cap: int = MAX_BLOB, *, links: bool = False) -> str | None:
    """Read a file of a commit; None where there is none. A symlink is none either, or with `links` said to be one."""
    entry = repo.entry(rev, path)
    is_link = entry is not None and entry.mode == "120000"
    if entry is None or entry.kind != "blob" or (is_link and not links):
        return None
    text = repo.blob(entry.sha, cap=cap, cut=True).decode("utf-8", "replace")
    return f"symlink to {text}" if is_link else text


def _diff(repo: Repo, start: str, end: str, changed: Sequence[FileChange], skipped: list[SkippedFile]) -> bytes:
    """The patch without what is skipped; where even that is too much, file by file until it is full."""
    left_out = {out.path for out in skipped}
    kept = [one for one in changed if one.path not in left_out]
    if not kept:
        return b""
    names = dict.fromkeys(name for one in changed if one.path in left_out for name in (one.old_path, one.path))
    if sum(map(len, names)) < 256 * 1024:
        try:
            # Both ends of a rename are left out, so that the old side of a secret file is not shown as a deletion.
            spec = [":(top)", *(literal_pathspec(name, exclude=True) for name in names)] if names else []
            return repo.diff_tree(start, end, pathspec=spec, cap=MAX_DIFF)
        except GitError as error:
            if error.kind not in TOO_MUCH:
                raise
    diff = b""
    for one in kept:
        try:
            part = repo.diff_tree(start, end, tuple(dict.fromkeys((one.old_path, one.path))), cap=MAX_DIFF // 8)
        except GitError as error:
            if error.kind not in TOO_MUCH:
                raise
            part = b""
        if part and len(diff) + len(part) <= MAX_DIFF:
            diff += part
        else:
            skipped.append(SkippedFile(path=one.path, kind="too_large", reason="too large", lines=_size(one)))
    return diff


def _with_texts(diff: bytes, read: Callable[[FileDiff], bytes | None], **fields: Any) -> Bundle:
    """Bundle a diff with both sides of every file that can be read: one is read, the other has its hunks undone."""
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
    return Bundle(diff=diff.decode("utf-8", "surrogateescape"), files=files, head=head, base=base, **fields)


SECONDS = 30.0
MAX_UNTRACKED = 200
NO_FILES = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # the tree before the first commit; git knows it by itself


def collect_dirty(root: str | os.PathLike[str], *, staged: bool = False, only: PathFilter | None = None) -> Bundle:
    """Bundle everything that differs from the last commit, new files included; or only what is `staged`."""
    root = os.fspath(root)
    with Repo(root) as repo:
        last = "" if repo.layout.find("HEAD") is None else repo.resolve("HEAD")
        rules, given = _settings(repo, last, last) if last else (Config(), {})
        rules = only.narrow(rules) if only else rules
        options = ["diff", *DIFF, "--full-index", *(["--cached"] if staged else []), last or NO_FILES]
        names = _names(_git(root, [*options, "--name-only", "--no-renames", "-z", "--"]))
        skipped = [out for name in names if (out := skip(name, rules))]
        spec = [":(top)", *(literal_pathspec(out.path, exclude=True) for out in skipped)]
        diff = _git(root, [*options, "-p", "--", *spec])
        diff += b"" if staged else _untracked(root, rules, skipped)
        read = _blobs(repo) if staged else lambda file: _work_file(root, file.path, rules)
        change = ReviewedChange(mode="staged" if staged else "dirty", head_sha=last, base_sha=last, merge_base=last)
        return _with_texts(diff, read, change=change, skipped=tuple(skipped), **given)


def _untracked(root: str, rules: Config, skipped: list[SkippedFile]) -> bytes:
    """Write the diff of the files that git does not know yet; those that are left out join the skipped ones."""
    diff = ""
    names = _names(_git(root, ["ls-files", "--others", "--exclude-standard", "-z", "--full-name"]))
    for at, name in enumerate(names):
        if out := skip(name, rules):
            skipped.append(out)
        elif at >= MAX_UNTRACKED:
            skipped.append(SkippedFile(path=name, kind="too_large", reason="too large: one new file too many"))
        elif (content := _work_file(root, name, rules)) is None:
            skipped.append(SkippedFile(path=name, reason="not a text file"))
        else:
            diff += patch.between(name, None, content.decode("utf-8", "replace"))
    return diff.encode("utf-8", "surrogateescape")


def _work_file(root: str, path: str, config: Config) -> bytes | None:
    if blocklist(config).blocks(path):
        return None
    try:
        with safe_open(root, path) as file:
            raw = file.read(MAX_BLOB)
    except (OSError, UnsafePath):
        return None
    return None if len(raw) == MAX_BLOB or b"\0" in raw else raw


def _names(out: bytes) -> list[str]:
    return [os.fsdecode(name) for name in out.split(b"\0") if name]


def _git(root: str, args: list[str]) -> bytes:
    return run_git(root, args, trust=True, seconds=SECONDS, cap=MAX_DIFF)
