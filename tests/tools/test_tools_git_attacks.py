"""Hostile repositories. Each is first shown to get the better of plain git."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import sys
import traceback
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import pytest

from glue.errors import GlueError
from glue.tools import git
from glue.tools.git import functions  # noqa: F401  (loaded before privileges are dropped)

SECRET = "tOpSeCrEt-4711"
CHANGE = "REAL_CHANGE"
ROWS: list[Hostile] = []


@dataclass
class Lab:
    """A hostile checkout, someone else's repository next to it, and a file that only an attack makes."""

    base: Path
    env: dict[str, str] = field(default_factory=dict)  # hostile variables, for naive and for ours
    path: str = ""  # in front of PATH

    @property
    def root(self) -> Path:
        return self.base / "checkout"

    @property
    def dot(self) -> Path:
        return self.root / ".git"

    @property
    def victim(self) -> Path:
        return self.base / "victim"

    @property
    def marker(self) -> Path:
        return self.base / "pwned"

    @property
    def evil(self) -> str:
        return str(self.base / "evil.sh")

    def git(self, *args: str, where: Path | None = None, check: bool = True, feed: str = "") -> str:
        env = {"PATH": os.environ["PATH"], "HOME": str(self.base / "home"), **IDENTITY}
        done = subprocess.run(
            ["git", *args], cwd=where or self.root, env=env, input=feed, capture_output=True, text=True, timeout=20
        )
        if check and done.returncode:
            raise AssertionError(f"git {args} failed: {done.stderr}")
        return done.stdout.strip()

    def config(self, text: str) -> None:
        with (self.dot / "config").open("a") as file:
            file.write(text.replace("EVIL", self.evil))

    def sha(self, name: str) -> str:
        return self.git("rev-parse", name)


IDENTITY = {
    "GIT_AUTHOR_NAME": "True Author",
    "GIT_AUTHOR_EMAIL": "true@example.com",
    "GIT_COMMITTER_NAME": "C",
    "GIT_COMMITTER_EMAIL": "c@example.com",
    "GIT_CONFIG_NOSYSTEM": "1",
}


@dataclass(frozen=True)
class Hostile:
    name: str
    setup: Callable[[Lab], Any]
    naive: tuple[str, ...]
    opens: bool  # whether a repository is to be seen at all, with its true change

    def __str__(self) -> str:
        return self.name


Setup = TypeVar("Setup", bound=Callable[[Lab], Any])


def hostile(*naive: str, opens: bool = True) -> Callable[[Setup], Setup]:
    """Register a repository with the plain git command that it gets the better of."""

    def add(setup: Setup) -> Setup:
        ROWS.append(Hostile(setup.__name__.strip("_").replace("_", "-"), setup, naive, opens))
        return setup

    return add


DIFF = ("diff", "main...work")
LOG = ("log", "main..work")
STATUS = ("status",)


# Programs named by configuration -----------------------------------------------------------------


@hostile("diff")
def _fsmonitor(lab: Lab) -> None:
    lab.config("[core]\n\tfsmonitor = EVIL\n")


@hostile("status")
def _fsmonitor_on_status(lab: Lab) -> None:
    lab.config("[core]\n\tfsmonitor = EVIL\n")


@hostile(*DIFF)
def _external_diff(lab: Lab) -> None:
    lab.config("[diff]\n\texternal = EVIL\n")


@hostile(*DIFF)
def _diff_driver(lab: Lab) -> None:
    (lab.root / ".gitattributes").write_text("*.py diff=x\n")
    lab.config('[diff "x"]\n\tcommand = EVIL\n')


@hostile(*DIFF)
def _textconv(lab: Lab) -> None:
    (lab.dot / "info/attributes").write_text("*.py diff=x\n")
    lab.config('[diff "x"]\n\ttextconv = EVIL\n')


@hostile("show", "HEAD")
def _textconv_on_show(lab: Lab) -> None:
    (lab.dot / "info/attributes").write_text("*.py diff=x\n")
    lab.config('[diff "x"]\n\ttextconv = EVIL\n')


@hostile("blame", "a.py")
def _textconv_on_blame(lab: Lab) -> None:
    (lab.dot / "info/attributes").write_text("*.py diff=x\n")
    lab.config('[diff "x"]\n\ttextconv = EVIL\n')


@hostile("diff")
def _clean_filter(lab: Lab) -> None:
    (lab.dot / "info/attributes").write_text("*.py filter=x\n")
    lab.config('[filter "x"]\n\tclean = EVIL\n')
    (lab.root / "a.py").write_text("touched\n")


@hostile("diff")
def _filter_process(lab: Lab) -> None:
    (lab.dot / "info/attributes").write_text("*.py filter=x\n")
    lab.config('[filter "x"]\n\tprocess = EVIL\n\trequired = false\n')
    (lab.root / "a.py").write_text("touched\n")


@hostile("status")
def _hook(lab: Lab) -> None:
    hook = lab.dot / "hooks/post-index-change"
    hook.parent.mkdir(exist_ok=True)
    shutil.copy(lab.evil, hook)
    hook.chmod(0o755)
    os.utime(lab.root / "a.py", (1, 1))


@hostile("status")
def _hooks_path(lab: Lab) -> None:
    folder = lab.root / "hooks"
    folder.mkdir()
    shutil.copy(lab.evil, folder / "post-index-change")
    lab.config(f"[core]\n\thooksPath = {folder}\n")
    os.utime(lab.root / "a.py", (1, 1))


@hostile("diff")
def _included_config(lab: Lab) -> None:
    (lab.root / "more").write_text(f"[core]\n\tfsmonitor = {lab.evil}\n")
    lab.config(f"[include]\n\tpath = {lab.root / 'more'}\n")


@hostile("diff")
def _conditionally_included_config(lab: Lab) -> None:
    (lab.root / "more").write_text(f"[core]\n\tfsmonitor = {lab.evil}\n")
    lab.config(f'[includeIf "gitdir:**"]\n\tpath = {lab.root / "more"}\n')


@hostile("diff")
def _worktree_config(lab: Lab) -> None:
    lab.config("[core]\n\trepositoryformatversion = 1\n[extensions]\n\tworktreeConfig = true\n")
    (lab.dot / "config.worktree").write_text(f"[core]\n\tfsmonitor = {lab.evil}\n")


@hostile(*LOG)
def _signature_program(lab: Lab) -> None:
    _sign(lab, "-----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----")
    lab.config("[log]\n\tshowSignature = true\n[gpg]\n\tprogram = EVIL\n")


@hostile(*LOG)
def _signature_program_ssh(lab: Lab) -> None:
    _sign(lab, "-----BEGIN SSH SIGNATURE-----\n x\n -----END SSH SIGNATURE-----")
    (lab.root / "signers").write_text("* ssh-ed25519 AAAA\n")
    lab.config("[log]\n\tshowSignature = true\n[gpg]\n\tformat = ssh\n")
    lab.config(f'[gpg "ssh"]\n\tprogram = EVIL\n\tallowedSignersFile = {lab.root / "signers"}\n')


def _sign(lab: Lab, signature: str) -> None:
    raw = lab.git("cat-file", "commit", "work")
    head, _, message = raw.partition("\n\n")
    sha = lab.git("hash-object", "-t", "commit", "-w", "--stdin", feed=f"{head}\ngpgsig {signature}\n\n{message}\n")
    lab.git("update-ref", "refs/heads/work", sha)


# Programs run to fetch what is missing -----------------------------------------------------------


def _missing(lab: Lab, url: str, more: str) -> None:
    sha = lab.sha("work:a.py")
    (lab.dot / "objects" / sha[:2] / sha[2:]).unlink()
    lab.config("[core]\n\trepositoryformatversion = 1\n[extensions]\n\tpartialClone = origin\n")
    lab.config(f'[remote "origin"]\n\turl = {url}\n\tpromisor = true\n\tpartialclonefilter = blob:none\n{more}')


@hostile(*DIFF, opens=False)
def _missing_blob_ssh_command(lab: Lab) -> None:
    _missing(lab, "ssh://example.invalid/x", "[core]\n\tsshCommand = EVIL\n")


@hostile(*DIFF, opens=False)
def _missing_blob_upload_pack(lab: Lab) -> None:
    _missing(lab, str(lab.victim), "\tuploadpack = EVIL\n")


@hostile(*DIFF, opens=False)
def _missing_blob_proxy(lab: Lab) -> None:
    _missing(lab, "git://example.invalid/x", "[core]\n\tgitProxy = EVIL\n")


@hostile(*DIFF, opens=False)
def _missing_blob_ext_protocol(lab: Lab) -> None:
    _missing(lab, f"ext::{lab.evil}", '[protocol "ext"]\n\tallow = always\n')


@hostile("show", "HEAD:a.py", opens=False)
def _missing_blob_on_show(lab: Lab) -> None:
    _missing(lab, "ssh://example.invalid/x", "[core]\n\tsshCommand = EVIL\n")


# Variables and PATH ------------------------------------------------------------------------------


@hostile(*DIFF)
def _variable_external_diff(lab: Lab) -> None:
    lab.env["GIT_EXTERNAL_DIFF"] = lab.evil


@hostile("diff")
def _variable_config(lab: Lab) -> None:
    lab.env |= {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.fsmonitor", "GIT_CONFIG_VALUE_0": lab.evil}


@hostile(*DIFF)
def _variable_config_parameters(lab: Lab) -> None:
    lab.env["GIT_CONFIG_PARAMETERS"] = f"'diff.external={lab.evil}'"


@hostile(*DIFF)
def _variable_global_config(lab: Lab) -> None:
    (lab.root / "global").write_text(f"[diff]\n\texternal = {lab.evil}\n")
    lab.env["GIT_CONFIG_GLOBAL"] = str(lab.root / "global")


@hostile(*DIFF)
def _home_config(lab: Lab) -> None:
    (lab.root / ".gitconfig").write_text(f"[diff]\n\texternal = {lab.evil}\n")
    lab.env["HOME"] = str(lab.root)


@hostile(*DIFF)
def _variable_trace(lab: Lab) -> None:
    lab.env["GIT_TRACE"] = str(lab.marker)


@hostile("log", "-1")
def _variable_directory(lab: Lab) -> None:
    lab.env["GIT_DIR"] = str(lab.victim / ".git")


@hostile("log", "-1", "{victim}")
def _variable_alternates(lab: Lab) -> None:
    lab.env["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = str(lab.victim / ".git/objects")


@hostile(*DIFF)
def _variable_replace(lab: Lab) -> None:
    lab.git("update-ref", f"refs/evil/{lab.sha('work')}", lab.sha("main"))
    lab.env["GIT_REPLACE_REF_BASE"] = "refs/evil/"


def _fake_git(lab: Lab) -> None:
    shutil.copy(lab.evil, lab.root / "git")


@hostile(*DIFF)
def _path_with_a_dot(lab: Lab) -> None:
    _fake_git(lab)
    lab.path = "."


@hostile(*DIFF)
def _path_with_an_empty_entry(lab: Lab) -> None:
    _fake_git(lab)
    lab.path = ""


@hostile(*DIFF)
def _path_through_the_checkout(lab: Lab) -> None:
    _fake_git(lab)
    lab.path = str(lab.root)


# Other people's repositories ---------------------------------------------------------------------


@hostile("diff")
def _worktree_elsewhere(lab: Lab) -> None:
    (lab.base / "private").mkdir()
    (lab.base / "private/a.py").write_text(SECRET)
    lab.config(f"[core]\n\tworktree = {lab.base / 'private'}\n")


@hostile("log", opens=False)
def _dot_git_is_a_link(lab: Lab) -> None:
    shutil.rmtree(lab.dot)
    lab.dot.symlink_to(lab.victim / ".git")


@hostile("log", opens=False)
def _dot_git_names_another(lab: Lab) -> None:
    shutil.rmtree(lab.dot)
    lab.dot.write_text(f"gitdir: {lab.victim / '.git'}\n")


@hostile("log", opens=False)
def _forged_worktree(lab: Lab) -> None:
    shutil.rmtree(lab.dot)
    admin = lab.root / "admin/worktrees/x"
    admin.mkdir(parents=True)
    (admin / "HEAD").write_text("ref: refs/heads/main\n")
    (admin / "commondir").write_text(f"{lab.victim / '.git'}\n")
    (admin / "gitdir").write_text(f"{lab.dot}\n")
    lab.dot.write_text(f"gitdir: {admin}\n")


@hostile("log", opens=False)
def _stolen_worktree(lab: Lab) -> None:
    lab.git("worktree", "add", "-q", str(lab.base / "linked"), where=lab.victim)
    shutil.rmtree(lab.dot)
    lab.dot.write_text(f"gitdir: {lab.victim / '.git/worktrees/linked'}\n")


@hostile("log", "main", opens=False)
def _common_directory_elsewhere(lab: Lab) -> None:
    shutil.rmtree(lab.dot / "objects")
    shutil.rmtree(lab.dot / "refs")
    (lab.dot / "commondir").write_text(f"{lab.victim / '.git'}\n")


@hostile("log", "work", opens=False)
def _alternates(lab: Lab) -> None:
    (lab.dot / "objects/info").mkdir(exist_ok=True)
    (lab.dot / "objects/info/alternates").write_text(f"{lab.victim / '.git/objects'}\n")
    _point_at_victim(lab)


@hostile("log", "work", opens=False)
def _objects_are_a_link(lab: Lab) -> None:
    shutil.rmtree(lab.dot / "objects")
    (lab.dot / "objects").symlink_to(lab.victim / ".git/objects")
    _point_at_victim(lab)


@hostile("log", "work", opens=False)
def _object_folders_are_links(lab: Lab) -> None:
    for folder in (lab.victim / ".git/objects").iterdir():
        if len(folder.name) == 2:
            target = lab.dot / "objects" / folder.name
            shutil.rmtree(target, ignore_errors=True)
            target.symlink_to(folder)
    _point_at_victim(lab)


@hostile("log", "work", opens=False)
def _objects_are_links_one_by_one(lab: Lab) -> None:
    for path in (lab.victim / ".git/objects").glob("??/*"):
        target = lab.dot / "objects" / path.parent.name / path.name
        target.parent.mkdir(exist_ok=True)
        if not target.exists():
            target.symlink_to(path)
    _point_at_victim(lab)


@hostile("log", "work", opens=False)
def _packs_are_links(lab: Lab) -> None:
    lab.git("repack", "-adq", where=lab.victim)
    for path in (lab.victim / ".git/objects/pack").iterdir():
        (lab.dot / "objects/pack" / path.name).symlink_to(path)
    _point_at_victim(lab)


def _point_at_victim(lab: Lab) -> None:
    (lab.dot / "refs/heads/work").write_text(lab.git("rev-parse", "HEAD", where=lab.victim) + "\n")


@hostile("log", opens=False)
def _parent_repository(lab: Lab) -> None:
    shutil.rmtree(lab.dot)
    shutil.copytree(lab.victim / ".git", lab.base / ".git")


@hostile("diff", opens=False)
def _parent_repository_runs_programs(lab: Lab) -> None:
    shutil.move(lab.dot, lab.base / ".git")
    with (lab.base / ".git/config").open("a") as file:
        file.write(f"[core]\n\tfsmonitor = {lab.evil}\n")


@hostile("diff", opens=False)
def _bare_repository_in_the_checkout(lab: Lab) -> None:
    for path in lab.dot.iterdir():
        shutil.move(path, lab.root / path.name)
    lab.dot.rmdir()
    with (lab.root / "config").open("a") as file:
        file.write(f"[core]\n\tbare = false\n\tworktree = {lab.root}\n\tfsmonitor = {lab.evil}\n")


@hostile("diff")
def _submodule_runs_programs(lab: Lab) -> None:
    shutil.copytree(lab.victim, lab.root / "sub")
    lab.git("update-index", "--add", "--cacheinfo", f"160000,{lab.git('rev-parse', 'HEAD', where=lab.victim)},sub")
    lab.git("commit", "-qm", "sub")
    with (lab.root / "sub/.git/config").open("a") as file:
        file.write(f"[core]\n\tfsmonitor = {lab.evil}\n")


# Changes that are hidden -------------------------------------------------------------------------


@hostile(*DIFF)
def _tag_named_like_the_base(lab: Lab) -> None:
    lab.git("tag", "main", "work")


@hostile(*DIFF)
def _stray_file_named_like_the_base(lab: Lab) -> None:
    (lab.dot / "main").write_text(lab.sha("work") + "\n")


@hostile(*DIFF)
def _ref_named_like_the_base(lab: Lab) -> None:
    (lab.dot / "refs/main").write_text(lab.sha("work") + "\n")


@hostile(*DIFF)
def _replaced_commit(lab: Lab) -> None:
    lab.git("replace", lab.sha("work"), lab.sha("main"))


@hostile(*DIFF)
def _replaced_blob(lab: Lab) -> None:
    lab.git("replace", lab.sha("work:a.py"), lab.sha("main:a.py"))


@hostile(*DIFF)
def _graft(lab: Lab) -> None:
    (lab.dot / "info/grafts").write_text(f"{lab.sha('main')} {lab.sha('work')}\n")


@hostile(*LOG)
def _lying_commit_graph(lab: Lab) -> None:
    """Claim that the first commit comes after the last one: the base then has all that the branch has."""
    lab.git("-c", "commitGraph.generationVersion=1", "commit-graph", "write", "--reachable")
    graph = lab.dot / "objects/info/commit-graph"
    graph.chmod(0o644)
    content = bytearray(graph.read_bytes())
    table = [content[8 + at * 12 : 20 + at * 12] for at in range(content[6])]
    starts = {bytes(entry[:4]): int.from_bytes(entry[4:], "big") for entry in table}
    count = int.from_bytes(content[starts[b"OIDF"] + 1020 : starts[b"OIDF"] + 1024], "big")
    names = [content[starts[b"OIDL"] + at * 20 :][:20].hex() for at in range(count)]
    first, work, main = (names.index(lab.sha(name)) for name in ("work~1", "work", "main"))

    def change(commit: int, generation: int, parent: int | None = None) -> None:
        at = starts[b"CDAT"] + commit * 36
        if parent is not None:
            content[at + 20 : at + 24] = parent.to_bytes(4, "big")
        date = int.from_bytes(content[at + 28 : at + 36], "big") % 2**34
        content[at + 28 : at + 36] = ((generation << 34) + date).to_bytes(8, "big")

    change(work, 2)
    change(first, 9, parent=work)
    change(main, 10)
    graph.write_bytes(bytes(content[:-20]) + hashlib.sha1(content[:-20]).digest())


@hostile(*DIFF)
def _attributes_say_binary(lab: Lab) -> None:
    (lab.root / ".gitattributes").write_text("* binary\n")
    lab.git("add", ".gitattributes")
    lab.git("commit", "-qm", "attributes")


@hostile(*DIFF)
def _attributes_say_no_diff(lab: Lab) -> None:
    (lab.dot / "info/attributes").write_text("* -diff\n")


@hostile(*DIFF)
def _attributes_file_elsewhere(lab: Lab) -> None:
    (lab.root / "attributes").write_text("* -diff\n")
    lab.config(f"[core]\n\tattributesFile = {lab.root / 'attributes'}\n")


@hostile(*DIFF)
def _everything_is_a_big_file(lab: Lab) -> None:
    lab.config("[core]\n\tbigFileThreshold = 1\n")


@hostile(*DIFF)
def _binary_driver(lab: Lab) -> None:
    (lab.dot / "info/attributes").write_text("*.py diff=x\n")
    lab.config('[diff "x"]\n\tbinary = true\n')


@hostile("log", "-p", "main..work", "--format=")
def _diff_of_nothing(lab: Lab) -> None:
    (lab.dot / "info/grafts").write_text(lab.sha("work") + "\n")
    lab.config("[log]\n\tshowRoot = false\n")


@hostile("log", "main..work")
def _mailmap(lab: Lab) -> str:
    (lab.root / ".mailmap").write_text("Forged Name <forged@example.com> <true@example.com>\n")
    lab.git("add", ".mailmap")
    lab.git("commit", "-qm", f"mailmap {CHANGE}")
    return "forged"


@hostile("log", "main..work")
def _forged_notes(lab: Lab) -> str:
    lab.git("notes", "add", "-m", "Forged-by: a friend", "work")
    return "forged"


@hostile("log", "main..work")
def _empty_format(lab: Lab) -> str:
    lab.config('[format]\n\tpretty = "forged"\n[pretty]\n\tforged = "tformat:Forged message"\n')
    return "forged"


# Waiting for ever --------------------------------------------------------------------------------


@hostile("log", opens=False)
def _head_is_a_fifo(lab: Lab) -> str:
    (lab.dot / "HEAD").unlink()
    os.mkfifo(lab.dot / "HEAD")
    return "hang"


@hostile("log", "main", opens=False)
def _packed_refs_are_a_fifo(lab: Lab) -> str:
    lab.git("update-ref", "refs/heads/other", "HEAD")
    os.mkfifo(lab.dot / "packed-refs")
    (lab.dot / "refs/heads/main").unlink()
    return "hang"


@hostile("log", "work", opens=False)
def _object_is_a_fifo(lab: Lab) -> str:
    sha = lab.sha("work")
    path = lab.dot / "objects" / sha[:2] / sha[2:]
    path.unlink()
    os.mkfifo(path)
    return "hang"


# What a model may ask for ------------------------------------------------------------------------


@hostile("show", "--output={marker}", "HEAD")
def _option_for_a_revision(lab: Lab) -> dict[str, Any]:
    return {"git_show": {"revision": f"--output={lab.marker}"}}


@hostile("diff", "--no-index", "/dev/null", "{private}/a")
def _no_index(lab: Lab) -> dict[str, Any]:
    (lab.base / "private").mkdir()
    (lab.base / "private/a").write_text(SECRET)
    return {"git_show": {"revision": "--no-index"}, "git_blame": {"path": "../private/a"}}


@hostile("blame", "--contents={private}/a", "a.py")
def _option_for_a_path(lab: Lab) -> dict[str, Any]:
    (lab.base / "private").mkdir()
    (lab.base / "private/a").write_text(SECRET)
    return {"git_blame": {"path": f"--contents={lab.base}/private/a"}}


@hostile("diff", "main", "--output={marker}")
def _branch_named_like_an_option(lab: Lab) -> dict[str, Any]:
    name = f"--output={lab.marker}".replace("/", "_")
    (lab.dot / f"refs/heads/{name}").write_text(lab.sha("work") + "\n")
    return {"git_show": {"revision": name}}


# The judge ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_template(Path(os.path.realpath(tmp_path_factory.mktemp("template"))))


def make_template(base: Path) -> Path:
    lab = Lab(base)
    for path in (lab.root, lab.victim, base / "home"):
        path.mkdir()
    for where in (lab.root, lab.victim):
        lab.git("init", "-q", "-b", "main", "--template=", where=where)
        for name in ("hooks", "info"):
            (where / ".git" / name).mkdir()
    (lab.victim / "private.txt").write_text(SECRET)
    lab.git("add", ".", where=lab.victim)
    lab.git("commit", "-qm", f"say {SECRET}", where=lab.victim)
    (lab.root / "a.py").write_text("".join(f"line {n}\n" for n in range(20)))
    lab.git("add", ".")
    lab.git("commit", "-qm", "first")
    lab.git("checkout", "-qb", "work")
    (lab.root / "a.py").write_text("".join(f"line {n}\n" for n in range(19)) + f"{CHANGE}\n")
    lab.git("commit", "-qam", f"change {CHANGE}")
    lab.git("checkout", "-q", "main")
    (lab.root / "b.py").write_text("later\n")
    lab.git("add", ".")
    lab.git("commit", "-qm", "later")
    lab.git("checkout", "-q", "work")
    return base


def lab_from(template: Path, base: Path) -> Lab:
    shutil.copytree(template, base, symlinks=True)
    lab = Lab(base)
    Path(lab.evil).write_text(f"#!/bin/sh\necho ran >> {lab.marker}\nexit 1\n")
    Path(lab.evil).chmod(0o755)
    return lab


def naive(lab: Lab, row: Hostile) -> str:
    """Run plain git in the checkout, and give what it said; "hang" where it had to be stopped."""
    places = {"{marker}": str(lab.marker), "{private}": str(lab.base / "private"), "{victim}": _victim(lab)}
    args = list(row.naive)
    for name, value in places.items():
        args = [arg.replace(name, value) for arg in args]
    path = f"{lab.path}:{os.environ['PATH']}" if "path" in row.name else os.environ["PATH"]
    env = {"PATH": path, "HOME": str(lab.base / "home"), **IDENTITY, **lab.env}
    # As a shell would: found along PATH, from within the checkout.
    command = ["/bin/sh", "-c", 'exec git "$@"', "sh", *args]
    fifos = [path for path in lab.dot.rglob("*") if path.is_fifo()]
    with subprocess.Popen(
        command, cwd=lab.root, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        while fifos and child.poll() is None:
            if any(map(is_waited_for, fifos)):
                child.kill()
                return "hang"
        return child.communicate(timeout=20)[0].decode("utf-8", "replace")


def is_waited_for(fifo: Path) -> bool:
    """Say whether someone has opened a FIFO to read from it."""
    try:
        os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


def _victim(lab: Lab) -> str:
    return lab.git("rev-parse", "HEAD", where=lab.victim)


def ours(lab: Lab, special: dict[str, Any]) -> dict[str, str]:
    """Ask every tool, and give what each said."""
    calls: dict[str, dict[str, Any]] = {
        "git_diff_branch": {},
        "git_log_branch": {},
        "git_show": {"revision": "HEAD"},
        "git_blame": {"path": "a.py"},
    }
    calls |= special
    made = {tool.name: tool for tool in git.tools(lab.root, base="main")}

    async def ask() -> dict[str, str]:
        said = {}
        for name, args in [*calls.items(), ("git_show", {"revision": "HEAD", "path": "a.py"})]:
            try:
                said[name + ("" if "path" not in args else " file")] = str(await made[name](**args))
            except GlueError as error:
                said[name] = f"{type(error).__name__}: {error}"
        return said

    before = {name: os.environ.get(name) for name in [*lab.env, "PATH"]}
    here = os.getcwd()
    os.environ.update(lab.env)
    os.environ["PATH"] = f"{lab.path}:{before['PATH']}"
    os.chdir(lab.root)
    try:
        return anyio.run(ask)
    finally:
        os.chdir(here)
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def snapshot(base: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for folder, folders, files in os.walk(base):
        for name in [*folders, *files]:
            path = Path(folder, name)
            info = path.lstat()
            kind = stat.S_IFMT(info.st_mode)
            content: object = os.readlink(path) if kind == stat.S_IFLNK else None
            if kind == stat.S_IFREG:
                content = (info.st_mtime_ns, path.read_bytes())
            found[str(path)] = (info.st_mode, content)
    return found


def naive_falls(lab: Lab, row: Hostile) -> bool:
    usual = naive(lab, row) if "{" not in "".join(row.naive) else ""
    wanted = row.setup(lab)
    said = naive(lab, row)
    if lab.marker.exists() or SECRET in said or said == "hang":
        return True
    if wanted == "forged":
        return "orged" in said
    return CHANGE in usual and CHANGE not in said


def faults_of(lab: Lab, row: Hostile) -> list[str]:
    """List what a repository got out of our tools."""
    wanted = row.setup(lab)
    before = snapshot(lab.base)
    said = ours(lab, wanted if isinstance(wanted, dict) else {})
    text = "\n".join(said.values())
    faults = []
    if lab.marker.exists():
        faults.append("a program ran, or a file was written")
    if snapshot(lab.base) != before:
        faults.append("something was written")
    if SECRET in text:
        faults.append("someone else's content was shown")
    if wanted == "forged" and "orged" in said["git_log_branch"]:
        faults.append("a forged text was shown")
    if row.opens and f"+{CHANGE}" not in said["git_diff_branch"]:
        faults.append(f"the change was hidden: {said['git_diff_branch'][:200]}")
    if row.opens and CHANGE not in said["git_log_branch"]:
        faults.append(f"the commit was hidden: {said['git_log_branch'][:200]}")
    if not row.opens and CHANGE not in said["git_diff_branch"] and "Error" not in said["git_diff_branch"]:
        faults.append(f"no word that something is wrong: {said['git_diff_branch'][:200]}")
    return faults


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_attack_by_a_repository_is_withstood(
    row: Hostile, template: Path, tmp_path: Path, tally: Callable[[str, int], None]
) -> None:
    base = Path(os.path.realpath(tmp_path))

    assert naive_falls(lab_from(template, base / "naive"), row), "this is no attack: plain git withstands it"
    assert faults_of(lab_from(template, base / "ours"), row) == []
    tally("hostile repositories", 1)


def test_attacks_by_repositories_are_withstood_without_privileges(tally: Callable[[str, int], None]) -> None:
    if os.getuid() != 0:
        pytest.skip("the tests already run without privileges")
    home = Path(os.path.realpath("/tmp")) / f"glue-nobody-git-{os.getpid()}"
    home.mkdir(mode=0o700)
    os.chown(home, 65534, 65534)
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        _child(home, writer)
    os.close(writer)

    with os.fdopen(reader) as file:
        report = file.read().splitlines()
    os.waitpid(pid, 0)
    shutil.rmtree(home, ignore_errors=True)

    assert [line for line in report if line != "ok"] == []
    assert len(report) == len(ROWS)
    tally("hostile repositories, unprivileged", len(report))


def _child(home: Path, writer: int) -> None:
    try:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        os.environ["TMPDIR"] = str(home)
        (home / "template").mkdir()
        template = make_template(home / "template")
        for number, row in enumerate(ROWS):
            try:
                faults = faults_of(lab_from(template, home / str(number)), row)
            except BaseException:
                faults = [traceback.format_exc().replace("\n", " | ")]
            os.write(writer, "".join(f"{row.name}: {fault}\n" for fault in faults).encode() or b"ok\n")
    except BaseException:
        os.write(writer, traceback.format_exc().replace("\n", " | ").encode() + b"\n")
    finally:
        os._exit(0)


def test_forged_blob_is_not_taken_for_what_its_name_says(template: Path, tmp_path: Path) -> None:
    lab = lab_from(template, tmp_path / "lab")
    sha = lab.sha("work:a.py")
    path = lab.dot / "objects" / sha[:2] / sha[2:]
    path.chmod(0o644)
    path.write_bytes(zlib.compress(b"blob 7\0forged\n"))

    with git.Repo(lab.root) as repo, pytest.raises(GlueError, match="damaged or forged"):
        repo.cat_file("work", "a.py")


def test_forged_tree_hides_no_change(template: Path, tmp_path: Path) -> None:
    lab = lab_from(template, tmp_path / "lab")
    true, other = lab.sha("work^{tree}"), lab.sha("main^{tree}")
    path = lab.dot / "objects" / true[:2] / true[2:]
    path.chmod(0o644)
    path.write_bytes((lab.dot / "objects" / other[:2] / other[2:]).read_bytes())

    with git.Repo(lab.root) as repo, pytest.raises(GlueError, match="damaged or forged"):
        repo.changes("main", "work")


@pytest.mark.parametrize("name", ["a.py", "new.py"])
def test_forged_blob_hides_no_change(template: Path, tmp_path: Path, name: str) -> None:
    lab = lab_from(template, tmp_path / "lab")
    (lab.root / name).write_text("changed\n")
    (lab.root / "empty").touch()
    lab.git("add", "-f", name, "empty")
    lab.git("commit", "-qm", "change")
    sha, old = lab.sha(f"HEAD:{name}"), lab.git("show", "HEAD~1:a.py") + "\n" if name == "a.py" else ""

    with git.Repo(lab.root) as repo:
        assert {change.path for change in repo.changes("HEAD~1", "HEAD")} == {name, "empty"}
    path = lab.dot / "objects" / sha[:2] / sha[2:]
    path.chmod(0o644)
    path.write_bytes(zlib.compress(f"blob {len(old)}\0{old}".encode()))
    with git.Repo(lab.root) as repo, pytest.raises(GlueError, match="damaged or forged"):
        repo.changes("HEAD~1", "HEAD")


def test_forged_folder_hides_no_change(template: Path, tmp_path: Path) -> None:
    lab = lab_from(template, tmp_path / "lab")
    folder = lab.root / "folder"
    for text in ("one\n", "two\n"):
        folder.mkdir(exist_ok=True)
        (folder / "file").write_text(text)
        lab.git("add", "-f", "folder/file")
        lab.git("commit", "-qm", text)
    true, other = lab.sha("HEAD:folder"), lab.sha("HEAD~1:folder")
    path = lab.dot / "objects" / true[:2] / true[2:]
    path.chmod(0o644)
    path.write_bytes((lab.dot / "objects" / other[:2] / other[2:]).read_bytes())

    with git.Repo(lab.root) as repo, pytest.raises(GlueError, match="damaged or forged"):
        repo.changes("HEAD~1", "HEAD")


def test_a_link_in_the_place_of_a_ref_shows_no_other_commit(template: Path, tmp_path: Path) -> None:
    lab = lab_from(template, tmp_path / "lab")
    ref, decoy = lab.dot / "refs/heads/work", lab.dot / "refs/heads/refs/heads/main"
    decoy.parent.mkdir(parents=True)
    decoy.write_text(ref.read_text())
    ref.unlink()
    ref.symlink_to("refs/heads/main")  # to git a symbolic ref, to the system a path from the folder that it is in
    assert lab.sha("refs/heads/work") == lab.sha("refs/heads/main") != decoy.read_text().strip()

    with git.Repo(lab.root) as repo, pytest.raises(GlueError, match="is not a plain file"):
        repo.resolve("work")


@pytest.mark.parametrize(
    "target", ["ORIG_HEAD", "refs/heads/../../ORIG_HEAD", "refs/heads/./work", "refs/heads/work.lock"]
)
def test_a_symbolic_ref_leads_to_a_ref_alone(template: Path, tmp_path: Path, target: str) -> None:
    lab = lab_from(template, tmp_path / "lab")
    for name in ("ORIG_HEAD", "refs/heads/work.lock"):
        (lab.dot / name).write_text(lab.sha("main") + "\n")
    (lab.dot / "HEAD").write_text(f"ref: {target}\n")

    with git.Repo(lab.root) as repo, pytest.raises(GlueError, match="which is no ref"):
        repo.resolve("HEAD")


@pytest.mark.parametrize(
    "content", ["", "main", "--help", "HEAD~1", "a" * 39, "A" * 40, "ü", "{main}\n{main}", "{main}^"]
)
def test_a_ref_holds_a_hash_and_nothing_else(template: Path, tmp_path: Path, content: str) -> None:
    lab = lab_from(template, tmp_path / "lab")
    (lab.dot / "refs/heads/work").write_text(content.replace("{main}", lab.sha("main")))

    with git.Repo(lab.root) as repo, pytest.raises(GlueError, match="does not hold a hash"):
        repo.resolve("work")


@pytest.mark.parametrize(
    "name", ["../../ORIG_HEAD", "../heads/main", "./main", "main:a.py", "@{0}", "-main", "main\nHEAD"]
)
def test_a_name_of_a_commit_is_no_path_and_no_expression(template: Path, tmp_path: Path, name: str) -> None:
    lab = lab_from(template, tmp_path / "lab")
    (lab.dot / "ORIG_HEAD").write_text(lab.sha("main") + "\n")

    with git.Repo(lab.root) as repo, pytest.raises(GlueError, match="is not a name of a commit"):
        repo.resolve(name)


@pytest.mark.parametrize(
    ("file", "content", "why"),
    [
        ("refs/heads/work", "ref: refs/heads/work\n", "round in a circle"),
        ("refs/heads/work", "{main}" + "\n" * 5000, "refs/heads/work is larger than 4096 bytes"),
        ("shallow", "{main}\n../../x\n", "shallow does not hold hashes"),
        ("shallow", "{main}\n" * 110_000, "shallow is larger than"),
        ("config", "#" * (1024 * 1024 + 1), "config is larger than"),
    ],
)
def test_small_files_are_small_and_hold_what_they_should(
    template: Path, tmp_path: Path, file: str, content: str, why: str
) -> None:
    lab = lab_from(template, tmp_path / "lab")
    (lab.dot / file).write_text(content.replace("{main}", lab.sha("main")))

    with pytest.raises(GlueError, match=why), git.Repo(lab.root) as repo:
        repo.resolve("work")


async def test_what_a_commit_says_does_nothing_to_a_terminal(template: Path, tmp_path: Path) -> None:
    lab = lab_from(template, tmp_path / "lab")
    (lab.root / "a.py").write_bytes(b"x = 1  # \x1b[2J\xe2\x80\xae\r\n")
    lab.git("add", "a.py")
    lab.git("commit", "-qm", "clear \x1b[2J\x9b2J", "--author", "E\x1b[2Jve <eve@example.com>")
    tools = {tool.name: tool for tool in git.tools(lab.root, base="main")}

    said = [await tools["git_diff_branch"](), await tools["git_log_branch"](), await tools["git_blame"]("a.py")]
    said += [await tools["git_show"]("HEAD"), await tools["git_show"]("HEAD", "a.py")]

    for text in said:
        assert "␛[2J" in text
        assert not {"\x1b", "\x9b", "\u202e"} & set(text)
    assert said[-1] == "x = 1  # ␛[2J⟨U+202E⟩\r\n"


def test_objects_that_were_not_all_looked_at_are_not_read(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = lab_from(template, tmp_path / "lab")
    monkeypatch.setattr("glue.tools.git.layout.MAX_OBJECT_FILES", 5)

    with pytest.raises(GlueError, match="too many object files to look at"):
        git.Repo(lab.root)


@pytest.mark.parametrize(("folder", "target"), [("root/bin", "other/program"), ("other/bin", "root/program")])
def test_a_git_that_the_checkout_has_a_hand_in_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, target: str
) -> None:
    for path in (tmp_path / folder / "git", tmp_path / target):
        path.parent.mkdir(parents=True)
    (tmp_path / target).write_text("#!/bin/sh\n")
    (tmp_path / target).chmod(0o755)
    (tmp_path / folder / "git").symlink_to(tmp_path / target)
    monkeypatch.setenv("PATH", f"{tmp_path / folder}:{os.environ['PATH']}")

    assert git.find_git() == str(tmp_path / folder / "git")
    assert not git.find_git(str(tmp_path / "root")).startswith(str(tmp_path))


def test_corpus_is_large_enough() -> None:
    assert len(ROWS) >= 40
    assert sys.platform != "win32"
