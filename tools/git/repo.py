"""Read a repository's objects through a throw-away git directory of our own.

Nothing of the repository's configuration, hooks, attributes, index, refs or work tree is shown to git: it gets
an empty directory with our config, and the repository's object directory. Names of commits are resolved here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from glue.errors import GitError
from glue.tools.fs.root import look, same, shorten
from glue.tools.git.command import CAP, DIFF, MEMORY, SECONDS, answer, environment, find_git, literal_pathspec
from glue.tools.git.layout import MAX_CONFIG, Layout, small
from glue.tools.git.objects import HASH, FileChange, GitCommit, GrepHit, ObjectReader, TreeEntry, parse_changes, path_of
from glue.tools.process import Sink, StopFlag, ruleset, run, start

ResultT = TypeVar("ResultT")

LARGE = 8 * 1024 * 1024  # bigFileThreshold below
LISTING = 16 * 1024 * 1024  # bytes of a list of changes
MAX_COMMIT = 1024 * 1024
SMALLER = "512k"
LOG = "%H%x00%P%x00%an%x00%ae%x00%aI%x00%B"
HIT = re.compile(rb"[0-9a-f]{40,64}:([^\0]*)\0(\d+)[\0:](.*)", re.DOTALL)
MAX_SHALLOW = 4 * 1024 * 1024
SHORT = re.compile(r"[0-9a-f]{7,64}")
SHA256 = re.compile(rb"(?im)^\s*objectformat\s*=\s*\"?sha256\"?\s*$")
PARTIAL = re.compile(rb"(?im)^\s*(?:promisor\s*=\s*true|partialclone(?:filter)?\s*=)")
EMPTY_TREE = {
    40: "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    64: "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}
CONFIG = Path(__file__).with_name("gitconfig")  # of our own git directories


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
        stop: StopFlag | None = None,
    ) -> None:
        self.root = os.fspath(root)
        self.seconds, self.stop = seconds, stop
        self.until: float | None = None  # of time.monotonic(): a deadline shared by all calls, where one is set
        self.threshold = ""  # a smaller size from which files count as binary, once memory did not suffice
        self.directory = ""
        self.rules = -1
        self._held = ExitStack()
        self.resolved: dict[str, str] = {}
        self.objects = ObjectReader(self._start_reader, stop)
        self.program = find_git(self.root)
        try:
            self.layout = Layout(self.root, alternates=alternates)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise GitError(f"the repository cannot be read: {why}", kind="unsafe") from error
        with ExitStack() as held:
            held.callback(self.layout.close)
            self._make_directory(held)
            if not alternates:
                # Nothing that is swapped in leads git elsewhere: it reads its own directory and these objects alone.
                self.rules = ruleset(self.program, (self.directory, self.layout.objects))
            if self.rules >= 0:
                held.callback(os.close, self.rules)
            held.callback(self.objects.close)
            self._held = held.pop_all()

    def close(self) -> None:
        """Remove the throw-away directory."""
        self.directory = ""
        self._held.close()

    def __del__(self) -> None:
        if getattr(self, "directory", ""):  # nobody closed it
            self.close()

    def __enter__(self) -> Repo:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Names ------------------------------------------------------------------------------------------

    def resolve(self, name: str) -> str:
        """Give the full hash of the commit that a name stands for; a name that was asked for keeps its meaning."""
        self._check_open()
        if (known := self.resolved.get(name)) is not None:
            return known
        found = re.fullmatch(r"(.+?)((?:[~^][0-9]{0,6}){0,20})", name, re.DOTALL)
        if found is None:
            raise GitError("the name of a commit is empty", kind="usage")
        start, steps = found[1], found[2]
        value = start if HASH.fullmatch(start) else self.layout.find(start)
        if value is None and SHORT.fullmatch(start):
            out = self.git(["rev-parse", f"--disambiguate={start}"], codes=(0, 1, 128), cut=True)
            hashes = [line for line in out.decode("ascii", "replace").split() if HASH.fullmatch(line)]
            if len(hashes) > 1:
                raise GitError(f"{start} stands for {len(hashes)} objects; give more digits", kind="usage")
            value = hashes[0] if hashes else None
        if value is None:
            raise GitError(f"there is no branch, tag or commit {shorten(name)}", kind="missing")
        try:
            full = self.objects.read(f"{value}{steps}^{{commit}}", until=self._until(), cap=MAX_COMMIT, cut=True).sha
        except GitError as error:
            if error.kind != "missing":
                raise
            raise GitError(f"{shorten(name)} is not a commit that is here", kind="missing") from None
        self.resolved[name] = self.resolved[full] = full
        return full

    def base_branch(self) -> str:
        """Guess the branch that others start from: what origin calls its head, main, or master."""
        for name in ("refs/remotes/origin/HEAD", "main", "master", "trunk", "develop"):
            if self.layout.find(name) is not None:
                return name
        raise GitError("no base branch was found; name it (--base, or `base` of git.tools)", kind="missing")

    def merge_base(self, one: str, other: str) -> str:
        """Give the hash of the commit where two branches part."""
        out = self.git(["merge-base", self.resolve(one), self.resolve(other)], codes=(0, 1))
        full = out.strip().decode("ascii", "replace")
        if not HASH.fullmatch(full):
            more = "; the clone is shallow: fetch more history" if self.shallow else ""
            raise GitError(f"{shorten(one)} and {shorten(other)} have no common history{more}", kind="missing")
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
        try:
            return self.git([*options, *between, *(paths or pathspec)], literal=not pathspec, cap=cap, sink=sink)
        except GitError as error:
            if error.kind != "memory" or sink is not None:
                raise
        # git holds a new file whole to say that it is binary, however large; one such file must not hide the rest.
        given = list(pathspec) or [literal_pathspec(path) for path in paths]
        large = self.oversized(self.changes(base, head, pathspec=given))
        given += [literal_pathspec(name, exclude=True) for each in large for name in (each.old_path, each.path)]
        self.threshold = SMALLER
        return self.git([*options, *between, *given], literal=False, cap=cap) + b"".join(map(_stanza, large))

    def changes(
        self, base: str, head: str, paths: Sequence[str] = (), *, pathspec: Sequence[str] = ()
    ) -> list[FileChange]:
        """List the files that differ between two commits' trees, with modes, renames and counts of lines."""
        options = ["diff-tree", "-r", "-z", "--raw", "--numstat", "--no-abbrev", *DIFF]
        between = [self._tree(base), self._tree(head), "--"]
        self.objects.compare(between[0], between[1], self._until())
        given = [*options, *between, *(paths or pathspec)]
        out = self.spare_memory(lambda: self.git(given, literal=not pathspec, cap=LISTING))
        return parse_changes(out)

    def spare_memory(self, job: Callable[[], ResultT]) -> ResultT:
        """Do a job of git's; where memory does not suffice, once more with large files taken for binary ones."""
        try:
            return job()
        except GitError as error:
            if error.kind != "memory" or self.threshold:
                raise
        self.threshold = SMALLER
        return job()

    def oversized(self, changes: Sequence[FileChange]) -> list[FileChange]:
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
        entries = []
        for record in self.git([*options, *below], cap=32 * 1024 * 1024).split(b"\0")[:-1]:
            head, _, name = record.partition(b"\t")
            mode, kind, sha = head.decode("ascii").split()
            entries.append(TreeEntry(mode=mode, kind=kind, sha=sha, path=path_of(name)))
        return entries

    def entry(self, rev: str, path: str) -> TreeEntry | None:
        """Look up one path in a commit; None where there is no such path."""
        *folders, last = _inner(path).split("/")
        folder, until = self._tree(rev), self._until()
        for name in folders:
            found = self.objects.tree(folder, until).get(name)
            if found is None or found.kind != "tree":
                return None
            folder = found.sha
        found = self.objects.tree(folder, until).get(last)
        return None if found is None else replace(found, path=_inner(path))

    def cat_file(self, rev: str, path: str = "", *, cap: int = 8 * 1024 * 1024, cut: bool = False) -> bytes:
        """Give the content of a file in a commit: `cat_file("HEAD", "src/a.py")` or `cat_file("HEAD:src/a.py")`.

        The content of a link is its target; ask `entry` for the mode. More than `cap` bytes is a `GitError`,
        or is cut off there with `cut`.
        """
        if not path:
            rev, _, path = rev.partition(":")
        entry = self.entry(rev, path)
        if entry is None or entry.kind != "blob":
            raise GitError(f"there is no file {shorten(path)} in {shorten(rev)}", kind="missing")
        return self.blob(entry.sha, cap=cap, cut=cut)

    def blob(self, sha: str, *, cap: int = 8 * 1024 * 1024, cut: bool = False) -> bytes:
        """Give the content of a blob by its full hash."""
        if not HASH.fullmatch(sha):
            raise GitError(f"{shorten(sha)} is not a full hash", kind="usage")
        self._check_open()
        with self._told_of_partial():
            found = self.objects.read(sha, until=self._until(), cap=cap, cut=cut)
        if found.kind != "blob":
            raise GitError(f"{sha[:12]} is a {found.kind}, not a file", kind="missing")
        return found.content

    def log(self, base: str, head: str, *, limit: int = 50, paths: Sequence[str] = ()) -> list[GitCommit]:
        """List the commits of `head` that are not in `base`, newest first; an empty base gives all."""
        until = [f"^{self.resolve(base)}"] if base else []
        # --no-mailmap: names as the commits have them, not as a tracked file would have them.
        options = ["log", "-z", "--no-show-signature", "--no-mailmap", "--no-decorate", "--no-color", "--no-notes"]
        shape = [f"--max-count={max(1, limit)}", "--encoding=UTF-8", f"--pretty=tformat:{LOG}"]
        out = self.git([*options, *shape, self.resolve(head), *until, "--", *paths], cap=4 * 1024 * 1024, cut=True)
        fields = [field.decode("utf-8", "replace") for field in out.split(b"\0")[:-1]]
        commits = []
        for at in range(0, len(fields) - 5, 6):
            sha, parents, author, email, date, message = fields[at : at + 6]
            told = {"author": author, "email": email, "date": date, "message": message.strip()}
            commits.append(GitCommit(sha=sha, parents=tuple(parents.split()), **told))
        return commits

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
    ) -> list[GrepHit]:
        """Search the text files of a commit for an extended regular expression, line by line."""
        options = ["grep", "-z", "-n", "-I", "--no-color", "--full-name", "--no-recurse-submodules", "--no-textconv"]
        options += ["-F" if fixed else "-E", *(["-i"] if ignore_case else []), "-m", str(max(1, limit))]
        given = ["-e", pattern, self._tree(rev), "--", *(paths or pathspec)]
        # 1: nothing found. What is cut off was too much to show anyway.
        out = self.git([*options, *given], literal=not pathspec, codes=(0, 1), cut=True, seconds=5.0)
        found = []
        for match in filter(None, map(HIT.match, out.split(b"\n")[:-1])):
            text = match[3].decode("utf-8", "replace").removesuffix("\r")
            found.append(GrepHit(path=path_of(match[1]), line=int(match[2]), text=text))
        return found[:limit]

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
        finished = run(
            self._argv(args),
            env=self._environment(literal),
            cwd=self.directory,
            deadline=max(self._until(seconds) - time.monotonic(), 0.0),
            cap=cap,
            sink=sink,
            feed=feed,
            stop=self.stop,
            pass_fds=(self.layout.objects,),
            memory=MEMORY,
            rules=self.rules,
        )
        with self._told_of_partial():
            return answer(args[0], finished, cap=cap, cut=cut, codes=codes)

    @contextmanager
    def _told_of_partial(self) -> Iterator[None]:
        """Say what to do where an object is missing because the clone was made without it."""
        try:
            yield
        except GitError as error:
            if not self.partial or error.kind not in ("failed", "missing"):
                raise
            advice = "run the same diff with git once, which fetches them, or clone without --filter"
            text = f"{error}; the clone is partial and objects are not here: {advice}"
            raise GitError(text, kind="missing") from None

    def _start_reader(self) -> subprocess.Popen[bytes]:
        argv, env = self._argv(["cat-file", "--batch"]), self._environment()
        bounds: dict[str, Any] = {"pass_fds": (self.layout.objects,), "memory": MEMORY, "rules": self.rules}
        return start(argv, env=env, cwd=self.directory, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, **bounds)

    def _argv(self, args: Sequence[str]) -> list[str]:
        self._check_open()
        threshold = ["-c", f"core.bigFileThreshold={self.threshold}"] if self.threshold else []
        return [self.program, "--no-pager", *threshold, *(_argument(arg) for arg in args)]

    def _environment(self, literal: bool = True) -> dict[str, str]:
        # By descriptor where that can be said: then no swap of directories leads git elsewhere.
        objects = f"/proc/self/fd/{self.layout.objects}"
        if not os.path.isdir(objects):
            objects = os.path.join(os.path.realpath(self.root), ".git", "objects")
            if not same(look(objects, follow=True), os.fstat(self.layout.objects)):
                raise GitError("the object directory was moved; linked worktrees need /proc", kind="unsafe")
        env = environment(self.root, GIT_DIR=self.directory, GIT_OBJECT_DIRECTORY=objects)
        if not literal:
            del env["GIT_LITERAL_PATHSPECS"]
        return env

    def _until(self, seconds: float | None = None) -> float:
        until = time.monotonic() + (self.seconds if seconds is None else min(seconds, self.seconds))
        return until if self.until is None else min(until, self.until)

    def _check_open(self) -> None:
        if not self.directory:
            raise GitError("the repository is closed", kind="usage")

    def _tree(self, name: str) -> str:
        return name if name in EMPTY_TREE.values() else self.resolve(name)

    def _make_directory(self, held: ExitStack) -> None:
        common = self.layout.common
        self.shallow = tuple((small(common, "shallow", MAX_SHALLOW) or b"").decode("ascii", "replace").split())
        if not all(map(HASH.fullmatch, self.shallow)):
            raise GitError(".git/shallow does not hold hashes", kind="unsafe")
        config = small(common, "config", MAX_CONFIG) or b""
        self.partial = PARTIAL.search(config) is not None
        wide = SHA256.search(config) is not None
        extra = "[extensions]\n\tobjectFormat = sha256\n" if wide else ""
        files = {
            "HEAD": "ref: refs/heads/nothing\n",
            "config": CONFIG.read_text().format(version=1 if wide else 0) + extra,
        }
        if self.shallow:
            files["shallow"] = "".join(f"{line}\n" for line in self.shallow)
        self.directory = tempfile.mkdtemp(prefix="glue-git-")
        held.callback(shutil.rmtree, self.directory, ignore_errors=True)
        for name in ("objects", "refs"):
            os.mkdir(os.path.join(self.directory, name))
        for name, text in files.items():
            Path(self.directory, name).write_text(text, encoding="ascii")


def _stanza(change: FileChange) -> bytes:
    """Write what git writes of a binary file, for one that git was not asked about."""
    old, new = (each.encode("utf-8", "surrogateescape") for each in (change.old_path, change.path))
    before = b"/dev/null" if change.status == "A" else b"a/" + old
    after = b"/dev/null" if change.status == "D" else b"b/" + new
    return b"diff --git a/%s b/%s\nBinary files %s and %s differ\n" % (old, new, before, after)


def _inner(path: str) -> str:
    """Check a path inside a tree; it goes to git as it is."""
    parts = path.rstrip("/").split("/")
    if not path or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise GitError(f"{shorten(path)} is not a path in a tree; give it from the top, without '..'", kind="usage")
    return path.rstrip("/")


def _argument(arg: str) -> str:
    try:
        os.fsencode(arg)
    except UnicodeEncodeError:
        raise GitError("an argument holds half a character", kind="usage") from None
    if "\0" in arg or len(arg) > 64 * 1024:
        raise GitError("an argument holds a NUL character or is too long", kind="usage")
    return arg
