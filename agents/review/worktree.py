"""Bundle what is not committed yet. This reads the user's own checkout with the user's own git configuration."""

from __future__ import annotations

import os

from glue.agents.review import dedupe, patch
from glue.agents.review.collect import MAX_BLOB, MAX_DIFF
from glue.agents.review.config import CONFIG_FILES as CONFIG_FILES
from glue.agents.review.config import Config, blocklist, make, read_config, why_skip
from glue.agents.review.diff import parse
from glue.agents.review.model import Bundle, Change, FileDiff, Skip
from glue.errors import GitError, UnsafePath
from glue.tools.fs import safe_open
from glue.tools.git import Repo
from glue.tools.git.environment import environment, find_git
from glue.tools.git.pathspec import literal_pathspec
from glue.tools.git.repo import DIFF
from glue.tools.git.worktree import FLAGS
from glue.tools.process import run

SECONDS = 30.0
MAX_UNTRACKED = 200


def collect_staged(root: str | os.PathLike[str], *, config: Config | None = None) -> Bundle:
    """Bundle what would be committed now."""
    return _collect(os.fspath(root), staged=True, config=config)


def collect_dirty(root: str | os.PathLike[str], *, config: Config | None = None) -> Bundle:
    """Bundle everything that differs from the last commit, new files included."""
    return _collect(os.fspath(root), staged=False, config=config)


def _collect(root: str, *, staged: bool, config: Config | None) -> Bundle:
    with Repo(root) as repo:
        last = repo.resolve("HEAD")
        data = {} if config is not None else _config(repo, last)
        rules = config if config is not None else make(data)
        paths = tuple(entry.path for entry in repo.list_tree(last)[:20_000])
        guidelines = {path: text for path in (*rules.guidelines, dedupe.FILE) if (text := _committed(repo, last, path))}
    options = ["diff", *DIFF, "--full-index", *(["--cached"] if staged else []), last]
    names = _names(_git(root, [*options, "--name-only", "--no-renames", "-z", "--"]))
    skipped = [Skip(path=name, reason=reason) for name in names if (reason := why_skip(name, rules))]
    spec = [":(top)", *(literal_pathspec(skip.path, exclude=True) for skip in skipped)]
    diff = _git(root, [*options, "-p", "--", *spec]).decode("utf-8", "surrogateescape")
    head: dict[str, str] = {}
    if not staged:
        for name in _untracked(root):
            reason = why_skip(name, rules)
            content = None if reason else _work_text(root, name, rules)
            if content is None:
                skipped.append(Skip(path=name, reason=reason or "not a text file"))
            else:
                diff += patch.added_file(name, content)
    files = parse(diff)
    for file in files:
        now = _new_text(root, file, staged, rules)
        if now is not None:
            head[file.path] = now
    base = {
        file.old_path or file.path: patch.before(head[file.path], file)
        for file in files
        if file.path in head and file.status != "added"
    }
    change = Change(mode="staged" if staged else "dirty", head_sha=last, base_sha=last, merge_base=last)
    return Bundle(
        change=change,
        diff=diff,
        files=files,
        head=head,
        base=base,
        skipped=tuple(skipped),
        config=data,
        guidelines=guidelines,
        paths=paths,
    )


def _new_text(root: str, file: FileDiff, staged: bool, config: Config) -> str | None:
    if file.binary or file.submodule or file.symlink or file.odd or file.status == "deleted" or not file.hunks:
        return None
    if file.status == "added":
        return patch.after_of_new(file)
    if staged:
        out = _git(root, ["cat-file", "blob", f":0:{file.path}"])
        return out.decode("utf-8", "replace") if len(out) < MAX_BLOB else None
    return _work_text(root, file.path, config)


def _work_text(root: str, path: str, config: Config) -> str | None:
    if blocklist(config).blocks(path):
        return None
    try:
        with safe_open(root, path) as file:
            raw = file.read(MAX_BLOB)
    except (OSError, UnsafePath):
        return None
    if len(raw) == MAX_BLOB or b"\0" in raw:
        return None
    return raw.decode("utf-8", "replace")


def _untracked(root: str) -> list[str]:
    return _names(_git(root, ["ls-files", "--others", "--exclude-standard", "-z", "--full-name"]))[:MAX_UNTRACKED]


def _config(repo: Repo, rev: str) -> dict[str, object]:
    for path in CONFIG_FILES:
        text = _committed(repo, rev, path)
        if text:
            return read_config(text, f"{path} of {rev[:12]}")
    return {}


def _committed(repo: Repo, rev: str, path: str) -> str:
    entry = repo.entry(rev, path)
    if entry is None or entry.kind != "blob" or entry.mode == "120000":
        return ""
    return repo.blob(entry.sha, cap=32 * 1024, cut=True).decode("utf-8", "replace")


def _names(out: bytes) -> list[str]:
    return [os.fsdecode(name) for name in out.split(b"\0") if name]


def _git(root: str, args: list[str]) -> bytes:
    home = os.path.abspath(root)
    env = environment(home)
    del env["GIT_LITERAL_PATHSPECS"]
    argv = [find_git(home), "--no-pager", *FLAGS, *args]
    finished = run(argv, env=env, cwd=home, deadline=SECONDS, cap=MAX_DIFF)
    if finished.reason or finished.code:
        said = finished.err.decode("utf-8", "replace").strip()[:300]
        raise GitError(f"git {args[0]} failed: {finished.reason or said or finished.code}")
    return finished.out
