"""Tests with paths that try to leave the root; each is first shown to defeat naive code."""

from __future__ import annotations

import glob as globbing
import inspect
import os
import re
import shutil
import signal
import socket
import stat
import sys
import threading
import traceback
import urllib.parse
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest

from glue.errors import GlueError
from glue.tools import fs
from glue.tools.fs import edit, functions, grep_process  # noqa: F401  (loaded before privileges are dropped)

SECRET = "tOpSeCrEt-4711"
NAME = "outside-only-name"
ROWS: list[Attack] = []


@dataclass(frozen=True)
class Box:
    """A root, and a folder next to it that tools must not reach."""

    root: Path
    out: Path

    def outside(self) -> dict[str, tuple[int, bytes]]:
        """Return the modes and contents of all files outside the root, by path."""
        found: dict[str, tuple[int, bytes]] = {}
        for path in sorted(self.out.parent.rglob("*")):
            if self.root in path.parents or path == self.root:
                continue
            mode = path.lstat().st_mode
            found[str(path)] = (
                mode,
                path.read_bytes() if stat.S_ISREG(mode) and os.access(path, os.R_OK) else b"",
            )
        return found


@dataclass(frozen=True)
class Attack:
    name: str
    tool: str
    setup: Callable[[Box], dict[str, Any]]
    naive: Callable[[Box, dict[str, Any]], object]
    git: bool = False  # the attack tries to change .git

    def __str__(self) -> str:
        return self.name


Setup = TypeVar("Setup", bound=Callable[[Box], Any])


def attack(
    tool: str, naive: Callable[[Box, dict[str, Any]], object], git: bool = False
) -> Callable[[Setup], Setup]:
    def add(setup: Setup) -> Setup:
        name = setup.__name__.strip("_").replace("_", "-")
        assert all(row.name != name for row in ROWS), name
        ROWS.append(Attack(name, tool, _arguments(tool, setup), naive, git))
        return setup

    return add


def _arguments(tool: str, setup: Callable[[Box], Any]) -> Callable[[Box], dict[str, Any]]:
    defaults: dict[str, dict[str, Any]] = {
        "grep": {"pattern": f"{SECRET}|root:", "ignored": True},
        "find_files": {"pattern": "**", "ignored": True},
        "write_file": {"content": "pwned\n"},
        "edit_file": {"old": SECRET, "new": "pwned"},
    }
    extra = defaults.get(tool, {})

    def arguments(box: Box) -> dict[str, Any]:
        given = setup(box)
        return {**extra, **(given if isinstance(given, dict) else {"path": given})}

    return arguments


def joined(box: Box, args: dict[str, Any]) -> str:
    """Join the paths and open the file without a check."""
    return Path(box.root, args["path"]).read_text("utf-8", "replace")


def prefixed(box: Box, args: dict[str, Any]) -> str:
    """Resolve the path, and check only that it starts with the root as a text."""
    path = os.path.realpath(os.path.join(box.root, args["path"]))
    assert path.startswith(str(box.root))
    return Path(path).read_text()


def lexical(box: Box, args: dict[str, Any]) -> str:
    """Normalise the text of the path and ignore links."""
    path = os.path.normpath(os.path.join(box.root, args["path"]))
    assert path.startswith(f"{box.root}/")
    return Path(path).read_text("utf-8", "replace")


def stripped(box: Box, args: dict[str, Any]) -> str:
    """Remove `../` once; "..././" becomes "../"."""
    return Path(box.root, args["path"].replace("../", "")).read_text()


def decoded(box: Box, args: dict[str, Any]) -> str:
    return Path(box.root, urllib.parse.unquote(args["path"])).read_text()


def expanded(box: Box, args: dict[str, Any]) -> str:
    os.environ["HOME"], home = str(box.out), os.environ.get("HOME", "/")
    try:
        return Path(
            os.path.join(box.root, os.path.expandvars(os.path.expanduser(args["path"])))
        ).read_text()
    finally:
        os.environ["HOME"] = home


def normalised(box: Box, args: dict[str, Any]) -> str:
    import unicodedata

    return Path(box.root, unicodedata.normalize("NFKC", args["path"])).read_text()


def backslashed(box: Box, args: dict[str, Any]) -> str:
    return Path(box.root, args["path"].replace("\\", "/")).read_text()


def trimmed(box: Box, args: dict[str, Any]) -> str:
    path = args["path"]
    assert not path.startswith(("/", ".."))
    return Path(box.root, path.strip()).read_text()


def cut_at_nul(box: Box, args: dict[str, Any]) -> str:
    return Path(box.root, args["path"].split("\0")[0]).read_text()


def blocking(box: Box, args: dict[str, Any]) -> str:
    """Open a FIFO as if it were a file, and block."""
    done = threading.Event()

    def read() -> None:
        joined(box, args)
        done.set()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    stuck = not done.wait(0.1)
    os.close(os.open(box.root / args["path"], os.O_RDWR | os.O_NONBLOCK))  # end the blocked thread
    thread.join(5)
    return SECRET if stuck else ""


def connecting(box: Box, args: dict[str, Any]) -> str:
    try:
        joined(box, args)
    except OSError as error:
        return SECRET if error.errno == 6 else ""  # ENXIO: it opened a socket as a file
    return ""


class TooLong(Exception):
    pass


def backtracking(box: Box, pattern: str) -> str:
    """Turn a glob into a regular expression that backtracks for a long time."""

    def ring(*_: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        for name in os.listdir(box.root):
            re.match(pattern.replace("*", "[^/]*") + "$", name)
    except TooLong:
        return SECRET
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return ""


def listed(box: Box, args: dict[str, Any]) -> str:
    return "\n".join(os.listdir(box.root / args["path"]))


def globbed(box: Box, args: dict[str, Any]) -> str:
    return "\n".join(
        globbing.glob(
            f"{box.root}/{args['path']}/{args['pattern']}", recursive=True, include_hidden=True
        )
    )


def pattern_globbed(box: Box, args: dict[str, Any]) -> str:
    return "\n".join(globbing.glob(os.path.join(box.root, args["pattern"]), recursive=True))


def walked(box: Box, args: dict[str, Any]) -> str:
    """Walk and follow links, and search every file."""
    start, text = box.root / args["path"], ""
    names = (
        [start]
        if start.is_file()
        else [Path(d) / f for d, _, fs_ in os.walk(start, followlinks=True) for f in fs_]
    )
    for name in names:
        text += "".join(
            line
            for line in name.read_text("utf-8", "replace").splitlines()
            if re.search(SECRET, line)
        )
    return text


def overwritten(box: Box, args: dict[str, Any]) -> None:
    """Follow the path and open the file for writing."""
    path = box.root / args["path"]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(args.get("content", "pwned"))


def edited(box: Box, args: dict[str, Any]) -> None:
    path = box.root / args["path"]
    path.write_text(path.read_text().replace(args["old"], args["new"]))


def folded(box: Box, args: dict[str, Any]) -> None:
    """Write as a file system that treats several names as the same one."""
    name = re.sub("[\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]", "", args["path"]).lower()
    name = re.sub(r"^git~1", ".git", re.sub(r"[. ]+(?=/|$)|:[^/]*", "", name).replace("\\", "/"))
    overwritten(box, {**args, "path": name})


# Reading: the text of the path -------------------------------------------------------------------

UP = f"../out/{NAME}"
for _name, _path in {
    "dotdot": UP,
    "dotdot-deep": "a/b/../../../out/" + NAME,
    "dotdot-with-dots": "./a/./../../out/" + NAME,
    "dotdot-doubled-slash": "a//..//..//out/" + NAME,
    "dotdot-many": "../" * 200 + "{out}/" + NAME,
    "absolute": "{out}/" + NAME,
    "absolute-doubled-slash": "/{out}/" + NAME,
    "absolute-through-root": "{root}/../out/" + NAME,
    "absolute-proc-root": "/proc/self/root{out}/" + NAME,
}.items():
    ROWS.append(
        Attack(
            _name,
            "read_file",
            lambda box, path=_path: {  # type: ignore[misc]
                "path": path.replace(
                    "{out}", str(box.out).lstrip("/") if ".." in path else str(box.out)
                ).replace("{root}", str(box.root))
            },
            joined,
        )
    )


@attack("read_file", lambda box, args: Path("/etc/passwd").read_text() and SECRET)
def _absolute_system_file(box: Box) -> str:
    return "/etc/passwd"


@attack("read_file", prefixed)
def _sibling_with_the_same_beginning(box: Box) -> str:
    twin = box.root.parent / (box.root.name + "-twin")
    twin.mkdir()
    (twin / NAME).write_text(SECRET)
    return f"../{twin.name}/{NAME}"


@attack("read_file", stripped)
def _dotdot_that_survives_stripping(box: Box) -> str:
    return f"....//out/{NAME}"


@attack("read_file", stripped)
def _dotdot_mixed_with_stripping(box: Box) -> str:
    return f"..././out/{NAME}"


@attack("read_file", decoded)
def _percent_encoded(box: Box) -> str:
    return f"%2e%2e/out/{NAME}"


@attack("read_file", decoded)
def _percent_encoded_slash(box: Box) -> str:
    return f"..%2fout%2f{NAME}"


@attack("read_file", lambda box, args: decoded(box, {"path": urllib.parse.unquote(args["path"])}))
def _percent_encoded_twice(box: Box) -> str:
    return f"%252e%252e/out/{NAME}"


@attack("read_file", expanded)
def _tilde(box: Box) -> str:
    return f"~/{NAME}"


@attack("read_file", expanded)
def _variable(box: Box) -> str:
    return f"$HOME/{NAME}"


@attack("read_file", expanded)
def _variable_in_braces(box: Box) -> str:
    return f"${{HOME}}/{NAME}"


@attack("read_file", normalised)
def _wide_dots(box: Box) -> str:
    return f"\uff0e\uff0e/out/{NAME}"


@attack("read_file", normalised)
def _two_dot_leader(box: Box) -> str:
    return f"\u2025/out/{NAME}"


@attack("read_file", backslashed)
def _backslashes(box: Box) -> str:
    return f"..\\out\\{NAME}"


@attack("read_file", trimmed)
def _leading_space(box: Box) -> str:
    return f" ../out/{NAME}"


@attack("read_file", trimmed)
def _leading_newline(box: Box) -> str:
    return f"\n../out/{NAME}"


@attack("read_file", cut_at_nul)
def _nul(box: Box) -> str:
    return f"../out/{NAME}\0.txt"


def crashing(box: Box, args: dict[str, Any]) -> str:
    """Raise an error that is not a GlueError."""
    try:
        return joined(box, args)
    except UnicodeEncodeError:
        return SECRET


@attack("read_file", crashing)
def _half_a_character(box: Box) -> str:
    return "\ud800"


def link(box: Box, target: str, name: str = "link") -> str:
    (box.root / name).parent.mkdir(parents=True, exist_ok=True)
    os.symlink(target, box.root / name)
    return name


@attack("read_file", lexical)
def _link_to_file_absolute(box: Box) -> str:
    return link(box, str(box.out / NAME))


@attack("read_file", lexical)
def _link_to_file_relative(box: Box) -> str:
    return link(box, UP)


@attack("read_file", lexical)
def _link_to_folder(box: Box) -> str:
    return link(box, str(box.out)) + "/" + NAME


@attack("read_file", lexical)
def _link_to_parent(box: Box) -> str:
    return link(box, "..") + "/out/" + NAME


@attack("read_file", lexical)
def _link_to_the_top(box: Box) -> str:
    return link(box, "/") + str(box.out / NAME)


@attack("read_file", lexical)
def _link_through_link(box: Box) -> str:
    link(box, str(box.out), "a/first")
    return link(box, "a/first", "second") + "/" + NAME


@attack("read_file", lexical)
def _link_in_the_middle(box: Box) -> str:
    link(box, "../../out", "a/b/up")
    os.symlink("../../../out", box.root / "a/b/further")
    return "a/b/further/" + NAME


@attack("read_file", joined)
def _dotdot_behind_a_link(box: Box) -> str:
    link(box, str(box.out / "deep"), "deep")
    return f"deep/../{NAME}"


@attack("read_file", joined)
def _dotdot_behind_a_link_inside(box: Box) -> str:
    link(box, "a/b", "inner")
    return f"inner/../../../out/{NAME}"


@attack("read_file", lexical)
def _link_that_starts_like_the_root(box: Box) -> str:
    twin = box.root.parent / (box.root.name + "-twin")
    twin.mkdir()
    (twin / NAME).write_text(SECRET)
    return link(box, str(twin / NAME))


@attack("read_file", lexical)
def _absolute_link_out_by_way_of_the_root(box: Box) -> str:
    return link(box, f"{box.root}/../out/{NAME}")


@attack("read_file", lexical)
def _link_to_proc_cwd(box: Box) -> str:
    return link(box, f"/proc/self/root{box.out}/{NAME}")


@attack("read_file", lexical)
def _link_to_own_descriptor(box: Box) -> str:
    opened = os.open(box.out / NAME, os.O_RDONLY)  # stays open for the test
    return link(box, f"/proc/self/fd/{opened}")


@attack("read_file", lambda box, args: SECRET if "PATH=" in lexical(box, args) else "")
def _link_to_own_environment(box: Box) -> str:
    return link(box, "/proc/self/environ")


@attack("read_file", lambda box, args: SECRET if _loops(box, args) else "")
def _links_in_a_circle(box: Box) -> str:
    link(box, "two", "one")
    return link(box, "one", "two")


@attack("read_file", lambda box, args: SECRET if _loops(box, args) else "")
def _links_without_end(box: Box) -> str:
    for at in range(60):
        link(box, f"chain{at + 1}", f"chain{at}")
    (box.root / "chain60").write_text("end")
    return "chain0"


def _loops(box: Box, args: dict[str, Any]) -> bool:
    try:
        joined(box, args)
    except OSError as error:
        return error.errno == 40
    return False


@attack("read_file", blocking)
def _fifo(box: Box) -> str:
    os.mkfifo(box.root / "fifo")
    return "fifo"


@attack("read_file", blocking)
def _fifo_behind_a_link(box: Box) -> str:
    os.mkfifo(box.root / "fifo")
    return link(box, "fifo")


@attack("read_file", connecting)
def _socket(box: Box) -> str:
    here = os.getcwd()
    os.chdir(box.root)  # the path of a socket must be short
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("sock")
    finally:
        os.chdir(here)
    return "sock"


@attack(
    "read_file",
    lambda box, args: SECRET if (box.root / args["path"]).read_bytes()[:1] == b"" else "",
)
def _device_behind_a_link(box: Box) -> str:
    return link(box, "/dev/null")


@attack("list_dir", listed)
def _list_dotdot(box: Box) -> str:
    return "../out"


@attack("list_dir", listed)
def _list_absolute(box: Box) -> str:
    return str(box.out)


@attack("list_dir", listed)
def _list_link(box: Box) -> str:
    return link(box, str(box.out))


@attack(
    "list_dir",
    lambda box, args: "\n".join(os.readlink(e) for e in (box.root / args["path"]).iterdir()),
)
def _list_shows_where_links_lead(box: Box) -> str:
    link(box, str(box.out / NAME), "links/one")
    return "links"


@attack(
    "list_dir",
    lambda box, args: "\n".join(os.listdir(box.root / args["path"])).split("\n")[1] and SECRET,
)
def _name_with_a_line_break(box: Box) -> str:
    (box.root / "names").mkdir()
    (box.root / "names" / f"a\n{NAME}/").parent.mkdir(exist_ok=True)
    (box.root / "names" / "a\nforged  1 bytes").write_text("x")
    return "names"


@attack("find_files", globbed)
def _find_dotdot(box: Box) -> str:
    return "../out"


@attack("find_files", globbed)
def _find_link(box: Box) -> str:
    return link(box, str(box.out))


@attack("find_files", pattern_globbed)
def _find_pattern_with_dotdot(box: Box) -> dict[str, str]:
    return {"pattern": "../out/*"}


@attack("find_files", pattern_globbed)
def _find_pattern_absolute(box: Box) -> dict[str, str]:
    return {"pattern": f"{box.out}/*"}


@attack("find_files", pattern_globbed)
def _find_pattern_through_link(box: Box) -> dict[str, str]:
    link(box, str(box.out))
    return {"pattern": "link/*"}


@attack("find_files", lambda box, args: backtracking(box, args["pattern"]))
def _find_pattern_that_never_ends(box: Box) -> dict[str, str]:
    (box.root / ("a" * 200)).write_text("x")
    return {"pattern": "*a" * 60 + "b"}


@attack("find_files", lambda box, args: backtracking(box, "*a" * 60 + "b"))
def _ignore_file_that_never_ends(box: Box) -> dict[str, Any]:
    (box.root / ("a" * 200)).write_text("x")
    (box.root / ".gitignore").write_text(("*a" * 60 + "b\n") * 500)
    return {"pattern": "*", "ignored": False}


@attack("find_files", lambda box, args: (box.root / ".gitignore").read_text())
def _ignore_file_is_a_link(box: Box) -> dict[str, Any]:
    link(box, str(box.out / NAME), ".gitignore")
    return {"pattern": "*", "ignored": False}


@attack("grep", walked)
def _grep_dotdot(box: Box) -> str:
    return "../out"


@attack("grep", walked)
def _grep_link_to_file(box: Box) -> str:
    return link(box, str(box.out / NAME))


@attack("grep", walked)
def _grep_link_to_folder(box: Box) -> str:
    return link(box, str(box.out))


@attack("grep", walked)
def _grep_meets_link(box: Box) -> str:
    link(box, str(box.out), "sub/link")
    link(box, str(box.out / NAME), "sub/file")
    return "sub"


@attack("write_file", overwritten)
def _write_dotdot(box: Box) -> str:
    return "../out/new"


@attack("write_file", overwritten)
def _write_absolute(box: Box) -> str:
    return str(box.out / "new")


@attack("write_file", overwritten)
def _write_link_to_file(box: Box) -> str:
    return link(box, str(box.out / NAME))


@attack("write_file", overwritten)
def _write_link_to_nothing(box: Box) -> str:
    return link(box, str(box.out / "new"))


@attack("write_file", overwritten)
def _write_below_link(box: Box) -> str:
    return link(box, str(box.out)) + "/new"


@attack("write_file", overwritten)
def _write_new_folders_below_link(box: Box) -> str:
    return link(box, "../out") + "/x/y/new"


@attack("write_file", overwritten)
def _write_hard_link(box: Box) -> str:
    os.link(box.out / NAME, box.root / "hard")
    return "hard"


@attack("write_file", overwritten)
def _write_dotdot_behind_new_folder(box: Box) -> str:
    return "new/../../out/new"


@attack("edit_file", edited)
def _edit_dotdot(box: Box) -> str:
    return f"../out/{NAME}"


@attack("edit_file", edited)
def _edit_link(box: Box) -> str:
    return link(box, str(box.out / NAME))


@attack("edit_file", edited)
def _edit_hard_link(box: Box) -> str:
    os.link(box.out / NAME, box.root / "hard")
    return "hard"


for _name, _path in {
    "git-hook": ".git/hooks/post-checkout",
    "git-config": ".git/config",
    "git-itself": ".git",
    "git-in-capitals": ".GIT/config",
    "git-mixed-case": ".Git/config",
    "git-trailing-dot": ".git./config",
    "git-trailing-space": ".git /config",
    "git-short-name": "git~1/config",
    "git-short-name-capitals": "GIT~1/config",
    "git-joiner": ".g\u200cit/config",
    "git-byte-order-mark": "\ufeff.git/config",
    "git-right-to-left": ".git\u202e/config",
    "git-stream": ".git::$INDEX_ALLOCATION/config",
    "git-backslash": ".git\\config",
    "git-nested": "sub/.git/config",
}.items():
    ROWS.append(
        Attack(
            _name,
            "write_file",
            lambda box, path=_path: _with_git(box, path),  # type: ignore[misc]
            folded,
            git=True,
        )
    )


def _with_git(box: Box, path: str) -> dict[str, Any]:
    for top in (box.root, box.root / "sub"):
        (top / ".git").mkdir(parents=True, exist_ok=True)
        (top / ".git/config").write_text("[core]\n")
    if path == ".git":
        shutil.rmtree(box.root / ".git")
        (box.root / ".git").write_text("gitdir: elsewhere\n")
    return {"path": path, "content": "[core]\nfsmonitor=evil\n"}


@attack("write_file", overwritten, git=True)
def _git_dotted(box: Box) -> dict[str, Any]:
    return _with_git(box, "./a/../.git/config")


@attack("write_file", overwritten, git=True)
def _git_behind_a_link(box: Box) -> dict[str, Any]:
    given = _with_git(box, ".git/config")
    link(box, ".git", "innocent")
    return {**given, "path": "innocent/config"}


def box_at(base: Path) -> Box:
    base = Path(os.path.realpath(base))
    box = Box(base / "root", base / "out")
    (box.root / "a/b").mkdir(parents=True)
    (box.root / "a/b/file.txt").write_text("inside\n")
    (box.out / "deep").mkdir(parents=True)
    (box.out / NAME).write_text(SECRET)
    (box.out / "deep" / NAME).write_text(SECRET)
    return box


def _harm(box: Box, row: Attack, before: object, text: str) -> list[str]:
    """Return a list of the harm that an attack did."""
    found = []
    if SECRET in text:
        found.append("content from outside")
    if NAME in text:
        found.append("a name from outside")
    if _state(box, row) != before:
        found.append("something outside, or git's own, was changed")
    return found


def _state(box: Box, row: Attack) -> object:
    inside = {}
    if row.git:
        paths = sorted(box.root.rglob("*"))
        inside = {
            str(path): path.read_bytes() for path in paths if path.is_file() and ".git" in str(path)
        }
    return box.outside(), inside


def run_row(row: Attack, base: Path, naive: bool = True) -> list[str]:
    """Run an attack on naive code, which it must harm, and on the tools; return the faults."""
    faults = []
    if naive:
        box = box_at(base / "naive")
        args = row.setup(box)
        before = _state(box, row)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                said = str(row.naive(box, args) or "")
            except (OSError, AssertionError) as error:
                said = f"(the naive one failed: {error!r})"
        if not _harm(box, row, before, said):
            faults.append(f"does not harm the naive code: {said[:200]}")
    box = box_at(base / "ours")
    args = row.setup(box)
    before = _state(box, row)
    text = call(box, row.tool, args)
    # A message may repeat the arguments of the call, but nothing from outside.
    echo = (
        str(args.get("path", "")),
        str(args.get("pattern", "")),
        ascii(args.get("path", ""))[1:-1],
    )
    for part in sorted((each for each in echo if len(each) > 3), key=len, reverse=True):
        text = text.replace(part, "")
    faults += _harm(box, row, before, text)
    if (box.root / ".git" if row.git else box.root).exists() and "Traceback" in text:
        faults.append("a traceback")
    return faults


def call(box: Box, name: str, args: dict[str, Any]) -> str:
    """Call a tool and return its result or its error as text."""
    with fs.Root(box.root) as root:
        function = functions.functions(root)[name]
        try:
            value = function(**args)
            if inspect.isawaitable(value):
                value = anyio.run(_wait, value)
            return str(value)
        except GlueError as error:
            return f"{type(error).__name__}: {error}"


async def _wait(value: Any) -> Any:
    return await value


def _ids(row: Attack) -> str:
    return row.name


@pytest.mark.parametrize("row", ROWS, ids=_ids)
def test_attack_is_refused(row: Attack, tmp_path: Path, tally: Callable[[str, int], None]) -> None:
    faults = run_row(row, tmp_path)

    assert faults == []
    tally("path attacks", 1)


def test_attacks_are_refused_without_privileges(
    tmp_path: Path, tally: Callable[[str, int], None]
) -> None:
    if os.getuid() != 0:
        pytest.skip("the tests already run without privileges")

    faults, count = _as_nobody(tmp_path)

    assert faults == []
    tally("path attacks, unprivileged", count)


def _as_nobody(base: Path) -> tuple[list[str], int]:
    """Run all attacks in a child process without privileges."""
    place = Path("/tmp") if os.access("/tmp", os.W_OK) else base
    home = place / f"glue-nobody-{os.getpid()}"
    home.mkdir(mode=0o700)
    os.chown(home, 65534, 65534)
    python = _public_python()
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        _child(home, writer, python)
    os.close(writer)
    with os.fdopen(reader) as file:
        report = file.read().splitlines()
    os.waitpid(pid, 0)
    shutil.rmtree(home, ignore_errors=True)
    count = sum(line == "ok" for line in report)
    return [line for line in report if line != "ok"] or (
        [] if count else ["the child said nothing"]
    ), count


def _child(home: Path, writer: int, python: str) -> None:
    try:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        sys.executable = python
        for number, row in enumerate(ROWS):
            if row.tool == "grep" and not python:
                continue
            try:
                faults = run_row(row, home / str(number), naive=False)
            except BaseException:
                faults = [traceback.format_exc().replace("\n", " | ")]
            os.write(
                writer, "".join(f"{row.name}: {fault}\n" for fault in faults).encode() or b"ok\n"
            )
    finally:
        os._exit(0)


def _public_python() -> str:
    """Return a Python that any user may run; the present one may be in a private folder."""
    for path in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        folders = [Path(os.path.realpath(path)), *Path(os.path.realpath(path)).parents]
        if all(folder.exists() and folder.stat().st_mode & 0o001 for folder in folders):
            return path
    return ""


@pytest.fixture(autouse=True)
def _close_what_attacks_left_open() -> Iterator[None]:
    before = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()
    yield
    for name in set(os.listdir("/proc/self/fd")) - before if before else ():
        try:
            if os.readlink(f"/proc/self/fd/{name}").endswith(NAME):
                os.close(int(name))
        except OSError:
            pass
