"""Read a repository's objects through a throw-away git directory of our own.

Nothing of the repository's configuration, hooks, attributes, index, refs or work tree is shown to git: it gets
an empty directory with our config, and the repository's object directory. Names of commits are resolved here.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Sequence

from glue import one_line
from glue.errors import GitError
from glue.tools.fs.root import shorten
from glue.tools.git import layout, output
from glue.tools.git.command import CAP, SECONDS, environment, find_git
from glue.tools.git.layout import HASH, SHORT, Refs
from glue.tools.git.output import Change, Commit, Hit, TreeEntry, literal_pathspec
from glue.tools.process import Finished, Sink, Stop, run

GROUP = 500
TREE_CAP = 64 * 1024 * 1024


def check_trees(repo: Repo, base: str, head: str) -> None:
    """Refuse to compare two commits where a tree that has to be looked at does not hold what its name says."""
    _check(repo, [f"{base}^{{tree}}", f"{head}^{{tree}}"])  # first: what they name is only then worth listing
    options = ["diff-tree", "-r", "-t", "-z", "--raw", "--no-abbrev", "--no-renames", "--ignore-submodules=dirty"]
    out = repo.git([*options, base, head, "--"], cap=TREE_CAP)
    names: dict[str, None] = {}
    for field in out.split(b"\0")[::2]:
        if not field.startswith(b":"):
            continue
        old_mode, new_mode, old, new, _ = field[1:].decode("ascii").split()
        names |= {sha: None for mode, sha in ((old_mode, old), (new_mode, new)) if mode == "040000"}
    listed = list(names)
    for start in range(0, len(listed), GROUP):
        _check(repo, listed[start : start + GROUP])


def _check(repo: Repo, names: list[str]) -> None:
    out = repo.git(["cat-file", "--batch"], feed="".join(f"{name}\n" for name in names).encode(), cap=TREE_CAP)
    at = 0
    while at < len(out):
        end = out.index(b"\n", at)
        words = out[at:end].split()
        if len(words) != 3 or not words[2].isdigit():  # so git also says where it found a forgery by itself
            raise GitError(f"a tree of {names[0][:12]} is missing: the repository is incomplete, damaged or forged")
        size = int(words[2])
        sha, content = words[0].decode("ascii"), out[end + 1 : end + 1 + size]
        maker = hashlib.sha1 if len(sha) == 40 else hashlib.sha256
        if maker(b"%b %d\0" % (words[1], size) + content, usedforsecurity=False).hexdigest() != sha:
            raise GitError(f"tree {sha[:12]} does not hold what its name says: the repository is damaged or forged")
        at = end + 1 + size + 1


MEMORY = 320 * 1024 * 1024
LARGE = 8 * 1024 * 1024  # bigFileThreshold below
SMALLER = "512k"
MAX_SHALLOW = 4 * 1024 * 1024
EMPTY_TREE = {
    40: "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    64: "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}
DIFF = (
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    "--find-renames",
    "--submodule=short",
    "--ignore-submodules=dirty",
    "-O/dev/null",
)
# A commit-graph or multi-pack-index could lie about what the objects say, so neither is read.
CONFIG = """\
[core]
\trepositoryformatversion = {version}
\tbare = true
\tbigFileThreshold = 8m
\tcommitGraph = false
\tmultiPackIndex = false
\tquotePath = false
\tfsmonitor = false
\thooksPath = /dev/null
\tattributesFile = /dev/null
\tpackedGitLimit = 256m
\tpackedGitWindowSize = 32m
[protocol]
\tallow = never
[gc]
\tauto = 0
[maintenance]
\tauto = false
[diff]
\trenameLimit = 400
[grep]
\tthreads = 1
[log]
\tshowSignature = false
\tmailmap = false
"""


class Repo:
    """The objects of one repository, for as long as the `with` block lasts.

    `root` is the top of a checkout (or of a linked worktree). Commits may be given to every method as a hash,
    a branch, a tag, HEAD, or one of these with `~2` or `^`. Failures are `GitError`.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        alternates: bool = False,
        seconds: float = SECONDS,
        stop: Stop | None = None,
    ) -> None:
        self.root = os.fspath(root)
        self.seconds, self.stop = seconds, stop
        self.until: float | None = None  # of time.monotonic(): a deadline shared by all calls, where one is set
        self.threshold = ""  # a smaller size from which files count as binary, once memory did not suffice
        self.directory = ""
        self.program = find_git(self.root)
        try:
            self.layout = layout.find(self.root, alternates=alternates)
        except (OSError, ValueError) as error:
            raise GitError(f"the repository cannot be read: {getattr(error, 'strerror', None) or error}") from error
        try:
            self.refs = Refs(self.layout.own, self.layout.common)
            self.shallow = self._shallow()
            self._make()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Remove the throw-away directory."""
        self.layout.close()
        if self.directory:
            shutil.rmtree(self.directory, ignore_errors=True)
            self.directory = ""

    def __del__(self) -> None:
        if getattr(self, "directory", ""):  # nobody closed it
            self.close()

    def __enter__(self) -> Repo:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Names ------------------------------------------------------------------------------------------

    def resolve(self, name: str) -> str:
        """Give the full hash of the commit that a name stands for."""
        self._check_open()
        found = re.fullmatch(r"(.+?)((?:[~^][0-9]{0,6}){0,20})", name, re.DOTALL)
        if found is None:
            raise GitError("the name of a commit is empty")
        start, steps = found[1], found[2]
        value = start if HASH.fullmatch(start) else self.refs.find(start)
        if value is None and SHORT.fullmatch(start):
            value = self._lengthen(start)
        if value is None:
            raise GitError(f"there is no branch, tag or commit {shorten(name)}")
        out = self.git(["rev-parse", "--verify", "--quiet", f"{value}{steps}^{{commit}}"], codes=(0, 1, 128))
        full = out.strip().decode("ascii", "replace")
        if not HASH.fullmatch(full):
            raise GitError(f"{shorten(name)} is not a commit that is here")
        return full

    def base_branch(self) -> str:
        """Guess the branch that others start from: what origin calls its head, main, or master."""
        for name in ("refs/remotes/origin/HEAD", "main", "master", "trunk", "develop"):
            if self.refs.find(name) is not None:
                return name
        raise GitError("no base branch was found; name it: git.tools(root, base='...')")

    def merge_base(self, one: str, other: str) -> str:
        """Give the hash of the commit where two branches part."""
        out = self.git(["merge-base", self.resolve(one), self.resolve(other)], codes=(0, 1))
        full = out.strip().decode("ascii", "replace")
        if not HASH.fullmatch(full):
            more = "; the clone is shallow: fetch more history" if self.shallow else ""
            raise GitError(f"{shorten(one)} and {shorten(other)} have no common history{more}")
        return full

    # Reading ----------------------------------------------------------------------------------------

    def diff_tree(
        self,
        base: str,
        head: str,
        paths: Sequence[str] = (),
        *,
        pathspec: Sequence[str] = (),
        context: int = 3,
        cap: int = 8 * 1024 * 1024,
        sink: Sink | None = None,
    ) -> bytes:
        """Give the patch between two commits' trees (not from their merge base: see `merge_base`).

        `paths` are plain paths; name both ends of a rename. `pathspec` comes from `build_pathspec`. More than `cap`
        bytes is a `GitError`; a `sink` is handed block after block instead, and may say that it has enough.
        """
        options = ["diff-tree", "-r", "-p", "--full-index", f"-U{max(0, min(context, 1000))}", *DIFF]
        between = [self._tree(base), self._tree(head), "--"]
        if sink is not None:
            return self.git([*options, *between, *(paths or pathspec)], literal=not pathspec, cap=cap, sink=sink)
        try:
            return self.git([*options, *between, *(paths or pathspec)], literal=not pathspec, cap=cap)
        except GitError as error:
            if "memory" not in str(error):
                raise
        # git holds a new file whole to say that it is binary, however large; one such file must not hide the rest.
        given = list(pathspec) or [literal_pathspec(path) for path in paths]
        large = self.oversized(self.changes(base, head, pathspec=given))
        given += [literal_pathspec(name, exclude=True) for each in large for name in (each.old_path, each.path)]
        self.threshold = SMALLER
        return self.git([*options, *between, *given], literal=False, cap=cap) + b"".join(map(output.stanza, large))

    def changes(self, base: str, head: str, paths: Sequence[str] = (), *, pathspec: Sequence[str] = ()) -> list[Change]:
        """List the files that differ between two commits' trees, with modes, renames and counts of lines."""
        options = ["diff-tree", "-r", "-z", "--raw", "--numstat", "--no-abbrev", *DIFF]
        between = [self._tree(base), self._tree(head), "--"]
        check_trees(self, between[0], between[1])
        given = [*options, *between, *(paths or pathspec)]
        try:
            return output.changes(self.git(given, literal=not pathspec, cap=16 * 1024 * 1024))
        except GitError as error:
            if "memory" not in str(error) or self.threshold:
                raise
        self.threshold = SMALLER
        return output.changes(self.git(given, literal=not pathspec, cap=16 * 1024 * 1024))

    def oversized(self, changes: Sequence[Change]) -> list[Change]:
        """Pick the changes of files that are too large to be compared."""
        binary = [change for change in changes if change.binary]
        wanted = sorted({sha for change in binary for sha in (change.old_sha, change.new_sha) if sha.strip("0")})
        if not wanted:
            return []
        feed = "".join(f"{sha}\n" for sha in wanted).encode()
        out = self.git(["cat-file", "--batch-check=%(objectname) %(objectsize)"], feed=feed, cap=8 * 1024 * 1024)
        sizes = {line.split()[0]: line.split()[1] for line in out.decode("ascii", "replace").splitlines()}
        large = {sha for sha, size in sizes.items() if size.isdigit() and int(size) > LARGE}
        return [change for change in binary if change.old_sha in large or change.new_sha in large]

    def list_tree(self, rev: str, path: str = "", *, recursive: bool = True) -> list[TreeEntry]:
        """List the files of a commit, or those below a path."""
        options = ["ls-tree", "-z", "--full-tree", *(["-r"] if recursive else []), self._tree(rev), "--"]
        below = [_inner(path) + ("" if recursive else "/")] if path else []
        return output.tree(self.git([*options, *below], cap=32 * 1024 * 1024))

    def entry(self, rev: str, path: str) -> TreeEntry | None:
        """Look up one path in a commit; None where there is no such path."""
        wanted = _inner(path)
        found = output.tree(self.git(["ls-tree", "-z", "--full-tree", self._tree(rev), "--", wanted]))
        return next((entry for entry in found if entry.path == wanted), None)

    def cat_file(self, rev: str, path: str = "", *, cap: int = 8 * 1024 * 1024, cut: bool = False) -> bytes:
        """Give the content of a file in a commit: `cat_file("HEAD", "src/a.py")` or `cat_file("HEAD:src/a.py")`.

        The content of a link is its target; ask `entry` for the mode. More than `cap` bytes is a `GitError`,
        or is cut off there with `cut`.
        """
        if not path:
            rev, _, path = rev.partition(":")
        entry = self.entry(rev, path)
        if entry is None or entry.kind != "blob":
            raise GitError(f"there is no file {shorten(path)} in {shorten(rev)}")
        return self.blob(entry.sha, cap=cap, cut=cut)

    def blob(self, sha: str, *, cap: int = 8 * 1024 * 1024, cut: bool = False) -> bytes:
        """Give the content of a blob by its full hash."""
        if not HASH.fullmatch(sha):
            raise GitError(f"{shorten(sha)} is not a full hash")
        out = self.git(["cat-file", "blob", sha], cap=cap + 1, cut=True)
        if len(out) <= cap:
            _verify(sha, out)
        elif not cut:
            raise GitError(f"blob {sha[:12]} is larger than {cap} bytes")
        return out[:cap]

    def log(self, base: str, head: str, *, limit: int = 50, paths: Sequence[str] = ()) -> list[Commit]:
        """List the commits of `head` that are not in `base`, newest first; an empty base gives all."""
        until = [f"^{self.resolve(base)}"] if base else []
        # --no-mailmap: names as the commits have them, not as a tracked file would have them.
        options = ["log", "-z", "--no-show-signature", "--no-mailmap", "--no-decorate", "--no-color", "--no-notes"]
        shape = [f"--max-count={max(1, limit)}", "--encoding=UTF-8", f"--pretty=tformat:{output.LOG}"]
        out = self.git([*options, *shape, self.resolve(head), *until, "--", *paths], cap=4 * 1024 * 1024, cut=True)
        return output.log(out)

    def grep(
        self,
        pattern: str,
        rev: str,
        paths: Sequence[str] = (),
        *,
        pathspec: Sequence[str] = (),
        ignore_case: bool = False,
        fixed: bool = False,
        limit: int = 200,
    ) -> list[Hit]:
        """Search the text files of a commit for an extended regular expression, line by line."""
        options = ["grep", "-z", "-n", "-I", "--no-color", "--full-name", "--no-recurse-submodules", "--no-textconv"]
        options += ["-F" if fixed else "-E", *(["-i"] if ignore_case else []), "-m", str(max(1, limit))]
        given = ["-e", pattern, self._tree(rev), "--", *(paths or pathspec)]
        # 1: nothing found. What is cut off was too much to show anyway.
        out = self.git([*options, *given], literal=not pathspec, codes=(0, 1), cut=True, seconds=5.0)
        return output.hits(out)[:limit]

    def blame(self, rev: str, path: str, first: int = 1, last: int = 0) -> str:
        """Say who wrote each line of a file, as `git blame` writes it."""
        lines = f"-L{max(1, first)},{last if last >= first else ''}"
        options = ["blame", "--date=short", "--no-progress", "--abbrev=11", lines, self.resolve(rev), "--"]
        return self.git([*options, _inner(path)], cut=True).decode("utf-8", "replace")

    # Underneath -------------------------------------------------------------------------------------

    def git(
        self,
        args: Sequence[str],
        *,
        codes: Sequence[int] = (0,),
        literal: bool = True,
        cap: int = CAP,
        cut: bool = False,
        sink: Sink | None = None,
        seconds: float | None = None,
        feed: bytes = b"",
    ) -> bytes:
        """Run one git command over the objects and give what it prints; only full hashes name commits here."""
        finished = self._run(args, literal, cap, sink, seconds, feed)
        if finished.reason == "enough" or (finished.reason == "cap" and cut):
            return finished.out
        if finished.reason == "deadline":
            raise GitError(f"git {args[0]} took too long and was stopped after {finished.seconds:.1f} s")
        if finished.reason == "cap":
            raise GitError(f"git {args[0]} said more than {cap} bytes and was stopped")
        if finished.reason or finished.code not in codes:
            raise GitError(f"git {args[0]} failed: {_say(finished)}")
        return finished.out

    def _run(
        self, args: Sequence[str], literal: bool, cap: int, sink: Sink | None, seconds: float | None, feed: bytes
    ) -> Finished:
        self._check_open()
        left = self.seconds if seconds is None else min(seconds, self.seconds)
        if self.until is not None:
            left = min(left, self.until - time.monotonic())
        threshold = ["-c", f"core.bigFileThreshold={self.threshold}"] if self.threshold else []
        more = {"GIT_DIR": self.directory, "GIT_OBJECT_DIRECTORY": self._objects()}
        env = environment(self.root, **more)
        if not literal:
            del env["GIT_LITERAL_PATHSPECS"]
        return run(
            [self.program, "--no-pager", *threshold, *(_argument(arg) for arg in args)],
            env=env,
            cwd=self.directory,
            deadline=max(left, 0.0),
            cap=cap,
            sink=sink,
            feed=feed,
            stop=self.stop,
            pass_fds=(self.layout.objects,),
            memory=MEMORY,
        )

    def _check_open(self) -> None:
        if not self.directory:
            raise GitError("the repository is closed")

    def _objects(self) -> str:
        # By descriptor where that can be said: then no swap of directories leads git elsewhere.
        held = f"/proc/self/fd/{self.layout.objects}"
        if os.path.isdir(held):
            return held
        return _path_of(self.layout.objects, os.path.join(os.path.realpath(self.root), ".git", "objects"))

    def _tree(self, name: str) -> str:
        return name if name in EMPTY_TREE.values() else self.resolve(name)

    def _lengthen(self, short: str) -> str | None:
        out = self.git(["rev-parse", f"--disambiguate={short}"], codes=(0, 1, 128), cut=True)
        found = [line for line in out.decode("ascii", "replace").split() if HASH.fullmatch(line)]
        if len(found) > 1:
            raise GitError(f"{short} stands for {len(found)} objects; give more digits")
        return found[0] if found else None

    def _shallow(self) -> tuple[str, ...]:
        lines = (layout.small(self.layout.common, "shallow", MAX_SHALLOW) or b"").decode("ascii", "replace").split()
        if not all(HASH.fullmatch(line) for line in lines):
            raise GitError(".git/shallow does not hold hashes")
        return tuple(lines)

    def _make(self) -> None:
        wide = _is_sha256(layout.small(self.layout.common, "config", 1024 * 1024) or b"")
        directory = self.directory = tempfile.mkdtemp(prefix="glue-git-")  # noted at once: what fails below removes it
        extra = "[extensions]\n\tobjectFormat = sha256\n" if wide else ""
        for name in ("objects", "refs"):
            os.mkdir(os.path.join(directory, name))
        _put(directory, "config", CONFIG.format(version=1 if wide else 0) + extra)
        _put(directory, "HEAD", "ref: refs/heads/nothing\n")
        if self.shallow:
            _put(directory, "shallow", "".join(f"{line}\n" for line in self.shallow))


def _put(directory: str, name: str, text: str) -> None:
    with open(os.path.join(directory, name), "x", encoding="ascii") as file:
        file.write(text)


def _is_sha256(config: bytes) -> bool:
    return re.search(rb"(?im)^\s*objectformat\s*=\s*\"?sha256\"?\s*$", config) is not None


def _path_of(fd: int, guess: str) -> str:
    """Name a held directory where /proc cannot; refuse where the name leads elsewhere by now."""
    held, found = os.fstat(fd), os.stat(guess)
    if (held.st_dev, held.st_ino) != (found.st_dev, found.st_ino):
        raise GitError("the object directory was moved; linked worktrees need /proc")
    return guess


def _verify(sha: str, content: bytes) -> None:
    """Hold a blob against its name: git itself does not when it reads one."""
    import hashlib

    maker = hashlib.sha1 if len(sha) == 40 else hashlib.sha256
    if maker(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest() != sha:
        raise GitError(f"blob {sha[:12]} does not hold what its name says: the repository is damaged or forged")


def _inner(path: str) -> str:
    """Check a path inside a tree; it goes to git as it is."""
    parts = path.rstrip("/").split("/")
    if not path or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise GitError(f"{shorten(path)} is not a path in a tree; give it from the top, without '..'")
    return path.rstrip("/")


def _argument(arg: str) -> str:
    try:
        os.fsencode(arg)
    except UnicodeEncodeError:
        raise GitError("an argument holds half a character") from None
    if "\0" in arg or len(arg) > 64 * 1024:
        raise GitError("an argument holds a NUL character or is too long")
    return arg


def _say(finished: Finished) -> str:
    if finished.reason:
        return finished.reason
    text = finished.err.decode("utf-8", "replace")
    return one_line(text, 300) or f"exit code {finished.code}"
