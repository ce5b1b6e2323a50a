"""Tests with hostile repositories; each is first shown to defeat plain git."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import pytest
from fakes.checkouts import CHANGE, IDENTITY, SECRET, Lab, copy_lab, make_lab

from glue.errors import GlueError
from glue.tools import git
from glue.tools.git import functions  # noqa: F401  (loaded before privileges are dropped)

ROWS: list[Hostile] = []


@dataclass(frozen=True)
class Hostile:
    name: str
    setup: Callable[[Lab], Any]
    command: tuple[str, ...]  # a plain git command that the repository defeats
    opens: bool  # the tools must open the repository and show its change

    def __str__(self) -> str:
        return self.name


Setup = TypeVar("Setup", bound=Callable[[Lab], Any])


def hostile(*command: str, opens: bool = True) -> Callable[[Setup], Setup]:
    """Register a hostile repository, with the git command that it defeats."""

    def add(setup: Setup) -> Setup:
        ROWS.append(Hostile(setup.__name__.strip("_").replace("_", "-"), setup, command, opens))
        return setup

    return add


DIFF = ("diff", "main...work")


LOG = ("log", "main..work")


STATUS = ("status",)


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
    sha = lab.git(
        "hash-object",
        "-t",
        "commit",
        "-w",
        "--stdin",
        feed=f"{head}\ngpgsig {signature}\n\n{message}\n",
    )
    lab.git("update-ref", "refs/heads/work", sha)


def _missing(lab: Lab, url: str, more: str) -> None:
    sha = lab.sha("work:a.py")
    (lab.dot / "objects" / sha[:2] / sha[2:]).unlink()
    lab.config("[core]\n\trepositoryformatversion = 1\n[extensions]\n\tpartialClone = origin\n")
    lab.config(
        f'[remote "origin"]\n\turl = {url}\n\tpromisor = true\n'
        f"\tpartialclonefilter = blob:none\n{more}"
    )


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


@hostile(*DIFF)
def _variable_external_diff(lab: Lab) -> None:
    lab.env["GIT_EXTERNAL_DIFF"] = lab.evil


@hostile("diff")
def _variable_config(lab: Lab) -> None:
    lab.env |= {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.fsmonitor",
        "GIT_CONFIG_VALUE_0": lab.evil,
    }


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
    lab.git(
        "update-index",
        "--add",
        "--cacheinfo",
        f"160000,{lab.git('rev-parse', 'HEAD', where=lab.victim)},sub",
    )
    lab.git("commit", "-qm", "sub")
    with (lab.root / "sub/.git/config").open("a") as file:
        file.write(f"[core]\n\tfsmonitor = {lab.evil}\n")


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
    """Write a commit graph in which the base contains the commits of the branch."""
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


def run_plain_git(lab: Lab, row: Hostile) -> str:
    """Run plain git in the checkout and return its output, or "hang" if it blocks."""
    places = {
        "{marker}": str(lab.marker),
        "{private}": str(lab.base / "private"),
    }
    if "{victim}" in row.command:
        places["{victim}"] = lab.git("rev-parse", "HEAD", where=lab.victim)
    args = list(row.command)
    for name, value in places.items():
        args = [arg.replace(name, value) for arg in args]
    path = f"{lab.path}:{os.environ['PATH']}" if "path" in row.name else os.environ["PATH"]
    env = {"PATH": path, "HOME": str(lab.base / "home"), **IDENTITY, **lab.env}
    # A shell finds git in PATH, which may have a folder of the checkout.
    command = ["/bin/sh", "-c", 'exec git "$@"', "sh", *args]
    found = [os.path.join(top, name) for top, _, names in os.walk(lab.dot) for name in names]
    fifos = [path for path in found if stat.S_ISFIFO(os.lstat(path).st_mode)]
    with subprocess.Popen(
        command,
        cwd=lab.root,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as child:
        while fifos and child.poll() is None:
            if any(map(is_waited_for, fifos)):
                child.kill()
                return "hang"
        return child.communicate(timeout=20)[0].decode("utf-8", "replace")


def is_waited_for(fifo: str) -> bool:
    """Return whether a process has opened a FIFO for reading."""
    try:
        os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


def call_tools(lab: Lab, special: dict[str, Any]) -> dict[str, str]:
    """Call every git tool and return the results by name."""
    calls: dict[str, dict[str, Any]] = {
        "git_diff_branch": {},
        "git_log_branch": {},
        "git_show": {"revision": "HEAD"},
        "git_blame": {"path": "a.py"},
    }
    calls |= special
    made = {tool.name: tool for tool in git.tools(lab.root, base="main")}

    async def ask() -> dict[str, str]:
        output = {}
        for name, args in [*calls.items(), ("git_show", {"revision": "HEAD", "path": "a.py"})]:
            try:
                output[name + ("" if "path" not in args else " file")] = str(
                    await made[name](**args)
                )
            except GlueError as error:
                output[name] = f"{type(error).__name__}: {error}"
        return output

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
    """Return the mode, time and content of everything below a folder, by path."""
    found: dict[str, object] = {}
    folders = [str(base)]
    for folder in folders:
        for entry in os.scandir(folder):
            info = entry.stat(follow_symlinks=False)
            content: object = None
            if entry.is_symlink():
                content = os.readlink(entry.path)
            elif entry.is_dir():
                folders.append(entry.path)
            elif entry.is_file():
                with open(entry.path, "rb") as file:
                    content = (info.st_mtime_ns, file.read())
            found[entry.path] = (info.st_mode, content)
    return found


def defeats_plain_git(lab: Lab, row: Hostile, wanted: object, usual: str) -> bool:
    """Return whether plain git is defeated by a repository that `row.setup` has prepared.

    `wanted` is what the setup returned, `usual` the output of the command before the setup.
    """
    output = run_plain_git(lab, row)
    if lab.marker.exists() or SECRET in output or output == "hang":
        return True
    if wanted == "forged":
        return "orged" in output
    return CHANGE in usual and CHANGE not in output


def faults_of(lab: Lab, row: Hostile, wanted: object) -> list[str]:
    """Return a list of the harm that a prepared repository did through the tools."""
    before = snapshot(lab.base)
    output = call_tools(lab, wanted if isinstance(wanted, dict) else {})
    text = "\n".join(output.values())
    faults = []
    if lab.marker.exists():
        faults.append("a program ran, or a file was written")
    if snapshot(lab.base) != before:
        faults.append("something was written")
    if SECRET in text:
        faults.append("someone else's content was shown")
    if wanted == "forged" and "orged" in output["git_log_branch"]:
        faults.append("a forged text was shown")
    if row.opens and f"+{CHANGE}" not in output["git_diff_branch"]:
        faults.append(f"the change was hidden: {output['git_diff_branch'][:200]}")
    if row.opens and CHANGE not in output["git_log_branch"]:
        faults.append(f"the commit was hidden: {output['git_log_branch'][:200]}")
    if (
        not row.opens
        and CHANGE not in output["git_diff_branch"]
        and "Error" not in output["git_diff_branch"]
    ):
        faults.append(f"no word that something is wrong: {output['git_diff_branch'][:200]}")
    return faults


@pytest.fixture(scope="module")
def usual(lab_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Hostile], str]:
    """Return a function that runs the command of a row in a checkout without an attack."""
    lab = copy_lab(lab_template, tmp_path_factory.mktemp("usual") / "lab")
    outputs: dict[tuple[str, ...], str] = {}

    def run(row: Hostile) -> str:
        if "{" in "".join(row.command):
            return ""
        if row.command not in outputs:
            outputs[row.command] = run_plain_git(lab, row)
        return outputs[row.command]

    return run


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_tools_withstand_a_hostile_repository(
    row: Hostile,
    usual: Callable[[Hostile], str],
    lab_template: Path,
    tmp_path: Path,
    tally: Callable[[str, int], None],
) -> None:
    lab = copy_lab(lab_template, Path(os.path.realpath(tmp_path)) / "lab")
    wanted = row.setup(lab)

    # The tools are first, because they change nothing in the repository.
    assert faults_of(lab, row, wanted) == []
    assert defeats_plain_git(lab, row, wanted, usual(row)), (
        "this is not an attack: plain git withstands it"
    )
    tally("hostile repositories", 1)


@pytest.mark.parametrize(
    "rows", [ROWS[::5], pytest.param(ROWS, marks=pytest.mark.soak)], ids=["some", "all"]
)
def test_the_tools_withstand_hostile_repositories_without_privileges(
    rows: list[Hostile], tally: Callable[[str, int], None]
) -> None:
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
        _child(rows, home, writer)
    os.close(writer)

    with os.fdopen(reader) as file:
        report = file.read().splitlines()
    os.waitpid(pid, 0)
    shutil.rmtree(home, ignore_errors=True)

    assert [line for line in report if line != "ok"] == []
    assert len(report) == len(rows)
    tally("hostile repositories, unprivileged", len(report))


def _child(rows: list[Hostile], home: Path, writer: int) -> None:
    try:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        os.environ["TMPDIR"] = str(home)
        (home / "template").mkdir()
        lab_template = make_lab(home / "template")
        for number, row in enumerate(rows):
            try:
                lab = copy_lab(lab_template, home / str(number))
                faults = faults_of(lab, row, row.setup(lab))
            except BaseException:
                faults = [traceback.format_exc().replace("\n", " | ")]
            os.write(
                writer, "".join(f"{row.name}: {fault}\n" for fault in faults).encode() or b"ok\n"
            )
    except BaseException:
        os.write(writer, traceback.format_exc().replace("\n", " | ").encode() + b"\n")
    finally:
        os._exit(0)


def test_there_are_at_least_forty_hostile_repositories() -> None:
    assert len(ROWS) >= 40
    assert sys.platform != "win32"
