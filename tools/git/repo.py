"""Read the objects of a repository through a temporary git directory, with the class `Repo`.

git does not see the configuration, hooks, attributes, index, refs and work tree of the repository.
It gets an empty git directory with a safe configuration, and the object directory of the
repository. Names of commits are resolved here, in Python.
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
from typing import TypeVar

from glue.errors import GitError
from glue.tasks import StopFlag
from glue.tools.fs.root import is_same_file, shorten, stat_or_none
from glue.tools.git.command import (
    CAP,
    DIFF,
    MEMORY,
    SECONDS,
    check_output,
    environment,
    find_git,
)
from glue.tools.git.layout import MAX_CONFIG, Layout, read_small
from glue.tools.git.objects import (
    HASH,
    FileChange,
    GitCommit,
    GrepHit,
    ObjectReader,
    TreeEntry,
    decode_path,
    parse_changes,
)
from glue.tools.git.pathspec import literal_pathspec
from glue.tools.landlock import make_ruleset
from glue.tools.process import Sink, run
from glue.tools.process_group import start

ResultT = TypeVar("ResultT")

LARGE = 8 * 1024 * 1024  # core.bigFileThreshold of gitconfig
LISTING = 16 * 1024 * 1024  # bytes of a list of changes
MAX_COMMIT = 1024 * 1024
SMALLER = "512k"  # core.bigFileThreshold after git ran out of memory
LOG = "%H%x00%P%x00%an%x00%ae%x00%aI%x00%B"
HIT = re.compile(rb"[0-9a-f]{40,64}:([^\0]*)\0(\d+)[\0:](.*)", re.DOTALL)
MAX_SHALLOW = 4 * 1024 * 1024
MAX_ARGUMENT = 64 * 1024  # characters
SHORT = re.compile(r"[0-9a-f]{7,64}")
SHA256 = re.compile(rb"(?im)^\s*objectformat\s*=\s*\"?sha256\"?\s*$")
PARTIAL = re.compile(rb"(?im)^\s*(?:promisor\s*=\s*true|partialclone(?:filter)?\s*=)")
EMPTY_TREE = {
    40: "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    64: "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}
CONFIG = Path(__file__).with_name("gitconfig")  # of the temporary git directories


class Repo:
    """A reader of the objects of one repository, safe even if the repository is hostile.

    >>> with Repo(".") as repo:  # doctest: +SKIP
    ...     base = repo.merge_base("main", "HEAD")
    ...     patch = repo.diff_tree(base, "HEAD")
    ...     readme = repo.cat_file("HEAD", "README.md")

    Every method takes a commit as a hash, branch, tag or HEAD, also with `~2` or `^`. Every failure
    is a `GitError`, whose `kind` names the cause.

    Args of the constructor:
        root: the top folder of a checkout or of a linked worktree.
        alternates: allow a repository that uses the objects of another repository; only for a
            trusted repository.
        seconds: the time limit of each call.
        stop: a flag that stops a call when another thread sets it.
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
        self.until: float | None = None  # a time.monotonic() at which all calls end
        self.threshold = ""  # core.bigFileThreshold, after git ran out of memory
        self.directory = ""
        self.rules = -1
        self._stack = ExitStack()
        self.resolved: dict[str, str] = {}
        self.objects = ObjectReader(self._start_reader, stop)
        self.program = find_git(self.root)
        try:
            self.layout = Layout(self.root, alternates=alternates)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise GitError(
                f"the repository {shorten(self.root)} cannot be read: {why}", kind="unsafe"
            ) from error
        with ExitStack() as stack:
            stack.callback(self.layout.close)
            self._make_directory(stack)
            if not alternates:
                # git can read only its own directory and these objects, even after a swap.
                self.rules = make_ruleset(self.program, (self.directory, self.layout.objects))
            if self.rules >= 0:
                stack.callback(os.close, self.rules)
            stack.callback(self.objects.close)
            self._stack = stack.pop_all()

    def close(self) -> None:
        """Remove the temporary git directory and close the repository."""
        self.directory = ""
        self._stack.close()

    def __del__(self) -> None:
        if getattr(self, "directory", ""):  # close() was not called
            self.close()

    def __enter__(self) -> Repo:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def resolve(self, name: str) -> str:
        """Return the full hash of the commit that a name refers to; raise GitError if none exists.

        The result is stored: the same name has the same hash as long as the Repo is open.
        """
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
            hashes = [
                line for line in out.decode("ascii", "replace").split() if HASH.fullmatch(line)
            ]
            if len(hashes) > 1:
                raise GitError(
                    f"{start} matches {len(hashes)} objects; give more digits", kind="usage"
                )
            value = hashes[0] if hashes else None
        if value is None:
            raise GitError(f"no branch, tag or commit is called {shorten(name)}", kind="missing")
        try:
            full = self.objects.read(
                f"{value}{steps}^{{commit}}", until=self._until(), cap=MAX_COMMIT, cut=True
            ).sha
        except GitError as error:
            if error.kind != "missing":
                raise
            raise GitError(
                f"{shorten(name)} is not a commit of this repository", kind="missing"
            ) from None
        self.resolved[name] = self.resolved[full] = full
        return full

    def base_branch(self) -> str:
        """Return the name of the main branch; raise GitError if no branch with a usual name exists.

        The usual names are origin/HEAD, main, master, trunk and develop. The first that exists is
        returned.
        """
        for name in ("refs/remotes/origin/HEAD", "main", "master", "trunk", "develop"):
            if self.layout.find(name) is not None:
                return name
        raise GitError(
            "no base branch was found; name it (--base, or `base` of git.tools)", kind="missing"
        )

    def merge_base(self, one: str, other: str) -> str:
        """Return the hash of the newest commit that two branches have in common.

        Raise GitError if they share no commit.
        """
        out = self.git(["merge-base", self.resolve(one), self.resolve(other)], codes=(0, 1))
        full = out.strip().decode("ascii", "replace")
        if not HASH.fullmatch(full):
            more = "; the clone is shallow: fetch more history" if self.shallow else ""
            raise GitError(
                f"{shorten(one)} and {shorten(other)} share no commit{more}", kind="missing"
            )
        return full

    def diff_tree(
        self,
        base: str,
        head: str,
        paths: Sequence[str] = (),
        *,
        pathspec: Sequence[str] = (),
        cap: int = 8 * 1024 * 1024,
        sink: Sink | None = None,
    ) -> bytes:
        """Return the patch between the trees of two commits (not from their merge base).

        Args:
            base: the older commit; see `merge_base`.
            head: the newer commit.
            paths: only these files; name both paths of a rename.
            pathspec: only files that match, from `build_pathspec`; instead of `paths`.
            cap: bytes of the patch; more is a GitError.
            sink: receives the patch block by block instead, and returns whether to continue.
        """
        options = ["diff-tree", "-r", "-p", "--full-index", "-U3", *DIFF]
        between = [self._tree(base), self._tree(head), "--"]
        try:
            return self.git(
                [*options, *between, *(paths or pathspec)], literal=not pathspec, cap=cap, sink=sink
            )
        except GitError as error:
            if error.kind != "memory" or sink is not None:
                raise
        # git loads a new file completely before it calls the file binary. One huge file must not
        # hide the other changes, so huge files are left out here and added as a line each.
        given = list(pathspec) or [literal_pathspec(path) for path in paths]
        large = self.oversized(self.changes(base, head, pathspec=given))
        given += [
            literal_pathspec(name, exclude=True)
            for each in large
            for name in (each.old_path, each.path)
        ]
        self.threshold = SMALLER
        patch = self.git([*options, *between, *given], literal=False, cap=cap)
        return patch + b"".join(map(_binary_lines, large))

    def changes(self, base: str, head: str, *, pathspec: Sequence[str] = ()) -> list[FileChange]:
        """Return the files that differ between two commits, with modes, renames and line counts."""
        options = ["diff-tree", "-r", "-z", "--raw", "--numstat", "--no-abbrev", *DIFF]
        between = [self._tree(base), self._tree(head), "--"]
        self.objects.compare(between[0], between[1], self._until())
        given = [*options, *between, *pathspec]
        out = self.spare_memory(lambda: self.git(given, literal=not pathspec, cap=LISTING))
        return parse_changes(out)

    def spare_memory(self, job: Callable[[], ResultT]) -> ResultT:
        """Return the result of `job`; if git runs out of memory, repeat with large files as binary.

        `job` is repeated once. All later commands also treat large files as binary. If git treats
        large files as binary already, raise the error.
        """
        try:
            return job()
        except GitError as error:
            if error.kind != "memory" or self.threshold:
                raise
        self.threshold = SMALLER
        return job()

    def oversized(self, changes: Sequence[FileChange]) -> list[FileChange]:
        """Return the changes whose old or new file is too large to be compared."""
        binary = [change for change in changes if change.binary]
        hashes = {change.old_sha for change in binary} | {change.new_sha for change in binary}
        wanted = sorted(sha for sha in hashes if sha.strip("0"))
        if not wanted:
            return []
        feed = "".join(f"{sha}\n" for sha in wanted).encode()
        sizes = ["cat-file", "--batch-check=%(objectname) %(objectsize)"]
        out = self.git(sizes, feed=feed, cap=LISTING)
        large: set[str] = set()
        for line in out.decode("ascii", "replace").splitlines():
            sha, size = line.split()[:2]
            if size.isdigit() and int(size) > LARGE:
                large.add(sha)
        return [change for change in binary if change.old_sha in large or change.new_sha in large]

    def list_tree(self, rev: str, path: str = "", *, recursive: bool = True) -> list[TreeEntry]:
        """Return a TreeEntry for each file of a commit, or only for the files below `path`.

        If `recursive` is false, return only the direct entries of the folder, subfolders included.
        """
        options = ["ls-tree", "-z", "--full-tree", *(["-r"] if recursive else [])]
        options += [self._tree(rev), "--"]
        if path:
            options.append(_tree_path(path) if recursive else f"{_tree_path(path)}/")
        out = self.git(options, cap=32 * 1024 * 1024)
        entries = []
        for record in out.split(b"\0")[:-1]:
            head, _, name = record.partition(b"\t")
            mode, kind, sha = head.decode("ascii").split()
            entries.append(TreeEntry(mode=mode, kind=kind, sha=sha, path=decode_path(name)))
        return entries

    def entry(self, rev: str, path: str) -> TreeEntry | None:
        """Return the entry of a path in a commit, or None if the path does not exist."""
        *folders, last = _tree_path(path).split("/")
        folder, until = self._tree(rev), self._until()
        for name in folders:
            found = self.objects.tree(folder, until).get(name)
            if found is None or found.kind != "tree":
                return None
            folder = found.sha
        found = self.objects.tree(folder, until).get(last)
        return None if found is None else replace(found, path=_tree_path(path))

    def cat_file(
        self, rev: str, path: str = "", *, cap: int = 8 * 1024 * 1024, cut: bool = False
    ) -> bytes:
        """Return the content of a file in a commit; `cat_file("HEAD:src/a.py")` works too.

        The content of a symbolic link is its target; `entry` returns the mode. If the file has more
        than `cap` bytes, raise a GitError, or return the first `cap` bytes if `cut` is set.
        """
        if not path:
            rev, _, path = rev.partition(":")
        entry = self.entry(rev, path)
        if entry is None or entry.kind != "blob":
            raise GitError(
                f"{shorten(rev)} does not contain a file {shorten(path)}", kind="missing"
            )
        return self.blob(entry.sha, cap=cap, cut=cut)

    def blob(self, sha: str, *, cap: int = 8 * 1024 * 1024, cut: bool = False) -> bytes:
        """Return the content of a blob by its full hash; above `cap` bytes, raise GitError.

        If `cut` is set, return the first `cap` bytes instead of raising.
        """
        if not HASH.fullmatch(sha):
            raise GitError(
                f"{shorten(sha)} is not a full hash; give all 40 or 64 hexadecimal digits",
                kind="usage",
            )
        with self._advice_for_partial_clone():
            found = self.objects.read(sha, until=self._until(), cap=cap, cut=cut)
        if found.kind != "blob":
            raise GitError(f"{sha[:12]} is a {found.kind}, not a file", kind="missing")
        return found.content

    def log(
        self, base: str, head: str, *, limit: int = 50, skip: int = 0, paths: Sequence[str] = ()
    ) -> list[GitCommit]:
        """Return up to `limit` commits of `head` that are not in `base`, newest first.

        If `base` is empty, return all commits of `head`. `skip` leaves out that many of the newest
        commits. `paths` leaves out commits that change none of these files.
        """
        until = [f"^{self.resolve(base)}"] if base else []
        # --no-mailmap: a file of the repository could change the names of authors.
        options = "log -z --no-show-signature --no-mailmap --no-decorate --no-color --no-notes"
        shape = [
            f"--max-count={max(1, limit)}",
            f"--skip={max(0, skip)}",
            "--encoding=UTF-8",
            f"--pretty=tformat:{LOG}",
        ]
        given = [*options.split(), *shape, self.resolve(head), *until, "--", *paths]
        out = self.git(given, cap=LISTING, cut=True)
        fields = [field.decode("utf-8", "replace") for field in out.split(b"\0")[:-1]]
        commits = []
        for at in range(0, len(fields) - 5, 6):
            sha, parents, author, email, date, message = fields[at : at + 6]
            commits.append(
                GitCommit(
                    sha=sha,
                    parents=tuple(parents.split()),
                    author=author,
                    email=email,
                    date=date,
                    message=message.strip(),
                )
            )
        return commits

    def grep(
        self,
        pattern: str,
        rev: str,
        paths: Sequence[str] = (),
        *,
        ignore_case: bool = False,
        limit: int = 200,
    ) -> list[GrepHit]:
        """Return up to `limit` lines that match a regular expression, from text files of a commit.

        The expression is an extended one, as of `grep -E`. The search ends after 5 seconds with an
        error.
        """
        options = "grep -z -n -I -E --no-color --full-name --no-recurse-submodules --no-textconv"
        case = ["-i"] if ignore_case else []
        given = ["-m", str(max(1, limit)), "-e", pattern, self._tree(rev), "--", *paths]
        # Exit code 1: no line matches.
        out = self.git([*options.split(), *case, *given], codes=(0, 1), cut=True, seconds=5.0)
        found = []
        for match in filter(None, map(HIT.match, out.split(b"\n")[:-1])):
            text = match[3].decode("utf-8", "replace").removesuffix("\r")
            found.append(GrepHit(path=decode_path(match[1]), line=int(match[2]), text=text))
        return found[:limit]

    def blame(self, rev: str, path: str, first: int = 1, last: int = 0) -> str:
        """Return `git blame` of a file: commit, author, date, text of each line; at most CAP bytes.

        Lines before `first`, and after `last` unless `last` is below `first`, are left out.
        """
        lines = f"-L{max(1, first)},{last if last >= first else ''}"
        options = ["blame", "--date=short", "--no-progress", "--abbrev=11", lines]
        out = self.git([*options, self.resolve(rev), "--", _tree_path(path)], cut=True)
        return out.decode("utf-8", "replace")

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
        """Run a git command on the repository's objects; return its output, or raise GitError.

        Args:
            args: the command and its arguments; commits must be full hashes.
            codes: exit codes that are not failures.
            literal: treat paths as plain names, not as pathspecs.
            cap: bytes of output; more is a GitError.
            cut: return the first `cap` bytes instead of raising.
            sink: receives the output block by block instead, and returns whether to continue.
            seconds: a time limit below that of the Repo.
            feed: bytes for standard input.
        """
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
        with self._advice_for_partial_clone():
            return check_output(args[0], finished, cap=cap, cut=cut, codes=codes)

    @contextmanager
    def _advice_for_partial_clone(self) -> Iterator[None]:
        """If the clone is partial, add advice on missing objects to a GitError in the `with` block.

        Only errors of the kinds "failed" and "missing" are changed.
        """
        try:
            yield
        except GitError as error:
            if not self.partial or error.kind not in ("failed", "missing"):
                raise
            raise GitError(
                f"{error}; the clone is partial and lacks objects: run the same diff with git "
                "once, which fetches them, or clone without --filter",
                kind="missing",
            ) from None

    def _start_reader(self) -> subprocess.Popen[bytes]:
        argv, env = self._argv(["cat-file", "--batch"]), self._environment()
        return start(
            argv,
            env=env,
            cwd=self.directory,
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=(self.layout.objects,),
            memory=MEMORY,
            rules=self.rules,
        )

    def _argv(self, args: Sequence[str]) -> list[str]:
        self._check_open()
        threshold = ["-c", f"core.bigFileThreshold={self.threshold}"] if self.threshold else []
        return [self.program, "--no-pager", *threshold, *(_argument(arg) for arg in args)]

    def _environment(self, literal: bool = True) -> dict[str, str]:
        # By descriptor if possible, so that no swap of folders leads git to other objects.
        objects = f"/proc/self/fd/{self.layout.objects}"
        if not os.path.isdir(objects):
            objects = os.path.join(os.path.realpath(self.root), ".git", "objects")
            if not is_same_file(stat_or_none(objects, follow=True), os.fstat(self.layout.objects)):
                raise GitError(
                    "the object directory is not at .git/objects: it was moved, or this is a linked"
                    " worktree, which can be read only on a system with /proc",
                    kind="unsafe",
                )
        env = environment(self.root, GIT_DIR=self.directory, GIT_OBJECT_DIRECTORY=objects)
        if not literal:
            del env["GIT_LITERAL_PATHSPECS"]
        return env

    def _until(self, seconds: float | None = None) -> float:
        """Return the deadline of a call that starts now, as a value of time.monotonic()."""
        until = time.monotonic() + (self.seconds if seconds is None else min(seconds, self.seconds))
        return until if self.until is None else min(until, self.until)

    def _check_open(self) -> None:
        if not self.directory:
            raise GitError("this Repo is closed; open another one", kind="usage")

    def _tree(self, name: str) -> str:
        return name if name in EMPTY_TREE.values() else self.resolve(name)

    def _make_directory(self, stack: ExitStack) -> None:
        """Create the temporary git directory; set `directory`, `shallow` and `partial`.

        The temporary git directory is removed when `stack` is closed.
        """
        common = self.layout.common
        self.shallow = tuple(
            (read_small(common, "shallow", MAX_SHALLOW) or b"").decode("ascii", "replace").split()
        )
        if not all(map(HASH.fullmatch, self.shallow)):
            raise GitError(".git/shallow does not consist of hashes", kind="unsafe")
        config = read_small(common, "config", MAX_CONFIG) or b""
        self.partial = PARTIAL.search(config) is not None
        wide = SHA256.search(config) is not None
        extra = "[extensions]\n\tobjectFormat = sha256\n" if wide else ""
        files = {
            "HEAD": "ref: refs/heads/nothing\n",
            "config": CONFIG.read_text() + extra,
        }
        if self.shallow:
            files["shallow"] = "".join(f"{line}\n" for line in self.shallow)
        self.directory = tempfile.mkdtemp(prefix="glue-git-")
        stack.callback(shutil.rmtree, self.directory, ignore_errors=True)
        for name in ("objects", "refs"):
            os.mkdir(os.path.join(self.directory, name))
        for name, text in files.items():
            Path(self.directory, name).write_text(text, encoding="ascii")


def _binary_lines(change: FileChange) -> bytes:
    """Return the lines with which a patch of git reports that a binary file has changed."""
    old, new = (each.encode("utf-8", "surrogateescape") for each in (change.old_path, change.path))
    before = b"/dev/null" if change.status == "A" else b"a/" + old
    after = b"/dev/null" if change.status == "D" else b"b/" + new
    return b"diff --git a/%s b/%s\nBinary files %s and %s differ\n" % (old, new, before, after)


def _tree_path(path: str) -> str:
    """Return a path in a tree without a trailing slash; raise GitError if it is not valid."""
    parts = path.rstrip("/").split("/")
    if not path or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise GitError(
            f"{shorten(path)} is not a path in a tree; give a path from the top folder of the "
            "repository, without '..'",
            kind="usage",
        )
    return path.rstrip("/")


def _argument(arg: str) -> str:
    """Return an argument for git unchanged; raise GitError if it is too long or not valid text."""
    try:
        os.fsencode(arg)
    except UnicodeEncodeError:
        raise GitError(
            "an argument of git contains a lone surrogate (half a character)", kind="usage"
        ) from None
    if "\0" in arg:
        raise GitError("an argument of git contains a NUL character", kind="usage")
    if len(arg) > MAX_ARGUMENT:
        raise GitError(
            f"an argument of git has {len(arg)} characters; at most {MAX_ARGUMENT} are allowed",
            kind="usage",
        )
    return arg
