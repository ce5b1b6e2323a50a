"""Snapshots of every text of the ready-made tools that a model sees.

To accept a deliberate change: pytest tests/tools/test_model_texts.py --snapshot-update
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

import glue
from glue.context import Spending
from glue.testing import call
from glue.tools import coding, fs, git, shell

Case = tuple[str, Mapping[str, Any]]

ENV = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Anna",
    "GIT_AUTHOR_EMAIL": "anna@example.com",
    "GIT_COMMITTER_NAME": "Anna",
    "GIT_COMMITTER_EMAIL": "anna@example.com",
    "GIT_AUTHOR_DATE": "2024-05-06T07:08:09Z",
    "GIT_COMMITTER_DATE": "2024-05-06T07:08:09Z",
}


def run_git(folder: Path, *args: str) -> None:
    subprocess.run(["git", *args], cwd=folder, env=ENV, capture_output=True, timeout=20, check=True)


def specs(tools: Iterable[glue.context.AnyTool]) -> str:
    """Return the name, description and schema of each tool as the model receives them."""
    texts = []
    for tool in tools:
        schema = json.dumps(tool.spec.parameters, indent=1, ensure_ascii=False)
        texts.append(f"{tool.spec.name}\n{tool.spec.description}\n{schema}")
    return "\n\n".join(texts)


async def said(tools: Iterable[glue.Tool[..., Any]], cases: Iterable[Case], root: Path) -> str:
    """Call tools one after the other and return the calls with the texts of their results."""
    known = {tool.name: tool for tool in tools}
    texts = []
    for name, arguments in cases:
        asked = call(name, arguments, id="c1")
        context: glue.Context[Any] = glue.Context(
            call=asked,
            host=glue.context.Host(permission=glue.AllowAll(), session_id="s"),
            cancel=glue.Cancel(),
            spending=Spending(),
            report=lambda *reported: None,
        )
        result = await known[name].invoke(asked, context)
        shown = json.dumps(arguments, ensure_ascii=False).replace(str(root), "ROOT")
        shown = shown if len(shown) < 200 else f"{shown[:80]} ..."
        text = result.text.replace(str(root), "ROOT")
        texts.append(f">>> {name} {shown}{'  (error)' if result.is_error else ''}\n{text}")
    # A lone surrogate cannot be stored in a snapshot.
    return "\n\n".join(texts).encode("utf-8", "backslashreplace").decode()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a folder with ordinary files, and with some that the tools refuse."""
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "src/app.py").write_text(
        "def first():\n    return 1\n\n\ndef second():\n    return 1\n    # “quoted”\n"
    )
    (root / "empty.txt").touch()
    (root / "empty").mkdir()
    (root / "long.txt").write_text("".join(f"line {number}\n" for number in range(5000)))
    (root / "wide.txt").write_text("x" * 200_000)
    (root / "data.bin").write_bytes(b"\0\1\2")
    (root / "utf16.txt").write_bytes("text".encode("utf-16"))
    (root / "latin.txt").write_bytes("café\n".encode("latin-1"))
    (root / "locked.txt").write_text("x\n")
    (root / "locked.txt").chmod(0o444)
    (root / ".env").write_text("TOKEN=x\n")
    (root / "outside").symlink_to("/etc")
    (root / "loop").symlink_to("loop")
    (root / "inside").symlink_to("src/app.py")
    os.mkfifo(root / "pipe")
    with (root / "huge.txt").open("wb") as file:
        file.truncate(9 * 1024 * 1024)
    return root


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout with a base branch and a branch that changes a few files."""
    root = tmp_path / "project"
    root.mkdir()
    run_git(root, "init", "-q", "-b", "main", "--template=")
    (root / "app.py").write_text("one\ntwo\n")
    (root / "old.txt").write_text("".join(f"text {number}\n" for number in range(20)))
    (root / "lib").mkdir()
    (root / "lib/util.py").write_text("x\n")
    run_git(root, "add", ".")
    run_git(root, "commit", "-qm", "first")
    run_git(root, "checkout", "-qb", "work")
    (root / "app.py").write_text("one\n2\n")
    (root / "old.txt").rename(root / "new.txt")
    (root / "image.bin").write_bytes(bytes(range(256)))
    (root / ".env").write_text("TOKEN=x\n")
    (root / "link").symlink_to("app.py")
    run_git(root, "add", ".")
    run_git(root, "commit", "-qm", "second\n\nwith a body")
    (root / "app.py").write_text("one\n2\nthree\n")
    (root / "untracked.txt").write_text("x\n")
    return root


def test_descriptions_and_schemas(checkout: Path, snapshot: SnapshotAssertion) -> None:
    assert specs(fs.tools(checkout, write=True)) == snapshot(name="fs")
    assert specs(git.tools(checkout, trust=True)) == snapshot(name="git")
    assert specs(shell.tools(checkout)) == snapshot(name="shell")


def test_prompt_of_the_coding_tools(checkout: Path, snapshot: SnapshotAssertion) -> None:
    tools = coding.tools(checkout, shell=True)

    assert [tool.name for tool in tools] == snapshot(name="names")
    assert coding.prompt(tools) == snapshot(name="prompt")


async def test_results_of_the_reading_file_tools(
    project: Path, snapshot: SnapshotAssertion
) -> None:
    cases: list[Case] = [
        ("read_file", {"path": "src/app.py"}),
        ("read_file", {"path": "src/app.py", "offset": 2, "limit": 2, "numbers": True}),
        ("read_file", {"path": "long.txt", "offset": 4999}),
        ("read_file", {"path": "long.txt", "limit": 1}),
        ("read_file", {"path": "long.txt", "offset": 6000}),
        ("read_file", {"path": "src/app.py", "offset": 0}),
        ("read_file", {"path": "src/app.py", "start": 99}),
        ("read_file", {"path": "empty.txt"}),
        ("read_file", {"path": "data.bin"}),
        ("read_file", {"path": "utf16.txt"}),
        ("read_file", {"path": "latin.txt"}),
        ("read_file", {"path": "app.py"}),
        ("read_file", {"path": "nothing-like-it"}),
        ("read_file", {"path": "src"}),
        ("read_file", {"path": "src/app.py/below"}),
        ("read_file", {"path": ""}),
        ("read_file", {"path": "a\0b"}),
        ("read_file", {"path": "../project/src/app.py"}),
        ("read_file", {"path": "/etc/passwd"}),
        ("read_file", {"path": "outside/passwd"}),
        ("read_file", {"path": "loop"}),
        ("read_file", {"path": "pipe"}),
        ("read_file", {"path": "x/" * 9000}),
        ("read_file", {"path": ".env"}),
        ("list_dir", {}),
        ("list_dir", {"path": "empty"}),
        ("list_dir", {"path": "nowhere"}),
        ("list_dir", {"path": "src/app.py"}),
        ("find_files", {"pattern": "*.{py,ts}"}),
        ("find_files", {"pattern": "*.rs"}),
        ("find_files", {"pattern": "*.txt", "limit": 2}),
        ("grep", {"pattern": "return"}),
        ("grep", {"pattern": "second", "context": 1}),
        ("grep", {"pattern": "return", "limit": 1}),
        ("grep", {"pattern": "absent"}),
        ("grep", {"pattern": ""}),
        ("grep", {"pattern": "("}),
        ("grep", {"pattern": "x" * 5000}),
        ("grep", {"pattern": "x", "path": "nowhere"}),
        ("grep", {"pattern": "TOKEN"}),
        ("grep", {"pattern": "TOKEN", "path": ".env"}),
    ]

    text = await said(fs.tools(project, blocklist=fs.Blocklist.default()), cases, project)

    assert text == snapshot


async def test_a_line_longer_than_a_page_says_how_to_continue(
    project: Path, snapshot: SnapshotAssertion
) -> None:
    text = await said(fs.tools(project), [("read_file", {"path": "wide.txt"})], project)

    assert text.lstrip("x").rpartition("\n")[2] == snapshot


async def test_results_of_the_writing_file_tools(
    project: Path, snapshot: SnapshotAssertion
) -> None:
    edit, app = "edit_file", "src/app.py"
    cases: list[Case] = [
        ("write_file", {"path": "new/file.txt", "content": "one\ntwo\n"}),
        ("write_file", {"path": "new/file.txt", "content": "three"}),
        ("write_file", {"path": app, "content": "# ... rest of the code unchanged\n"}),
        ("write_file", {"path": "src", "content": "x"}),
        ("write_file", {"path": "new/", "content": "x"}),
        ("write_file", {"path": "pipe", "content": "x"}),
        ("write_file", {"path": "locked.txt", "content": "x"}),
        ("write_file", {"path": ".git/config", "content": "x"}),
        ("write_file", {"path": "latin.txt", "content": "☕"}),
        ("write_file", {"path": "half.txt", "content": "\ud800"}),
        ("write_file", {"path": "big.txt", "content": "x" * (9 * 1024 * 1024)}),
        ("write_file", {"path": "../a", "content": "x"}),
        ("write_file", {"path": ".env", "content": "x"}),
        (edit, {"path": app, "old": "def first", "new": "def zeroth"}),
        (edit, {"path": app, "old": "return 1", "new": "return 2"}),
        (edit, {"path": app, "old": "return 1", "new": "return 2", "replace_all": True}),
        (edit, {"path": app, "old": '# "quoted"', "new": "# 'single'"}),
        (edit, {"path": app, "old": "def second():\nreturn 2", "new": "def two():\nreturn 2"}),
        (edit, {"path": app, "old": "return 2", "new": "if x:\n    return 2"}),
        (edit, {"path": app, "old": "def third():\n    return 2", "new": "x"}),
        (edit, {"path": app, "old": "zyxwv", "new": "x"}),
        (edit, {"path": app, "old": "def zeroth():\\n    return", "new": "x"}),
        (edit, {"path": app, "old": "", "new": "x"}),
        (edit, {"path": app, "old": "def", "new": "def"}),
        (edit, {"path": app, "old": "zeroth", "new": "\ud800"}),
        (edit, {"path": app, "old": "zeroth", "new": "x\n# ... existing code ...\n"}),
        (edit, {"path": app, "old": "x" * 1_100_000, "new": "x"}),
        (
            edit,
            {"path": app, "edits": [{"old": "zeroth", "new": "a"}, {"old": "gone", "new": "b"}]},
        ),
        (
            edit,
            {"path": app, "edits": [{"old": "zeroth()", "new": "a"}, {"old": "th():", "new": "b"}]},
        ),
        (edit, {"path": "data.bin", "old": "x", "new": "y"}),
        (edit, {"path": "huge.txt", "old": "x", "new": "y"}),
        (edit, {"path": "nowhere.txt", "old": "x", "new": "y"}),
        ("write_file", {"path": "inside", "content": "x"}),
        ("write_file", {"path": "src/app.py/below", "content": "x"}),
    ]
    blocked = fs.Blocklist.default()

    text = await said(fs.tools(project, write=True, blocklist=blocked), cases, project)

    assert text == snapshot


async def test_a_file_that_changed_after_it_was_read(
    project: Path, snapshot: SnapshotAssertion
) -> None:
    tools = fs.tools(project, write=True)
    await said(tools, [("read_file", {"path": "src/app.py"})], project)
    (project / "src/app.py").write_text("another text\n")

    text = await said(
        tools,
        [
            ("write_file", {"path": "src/app.py", "content": "mine\n"}),
            ("edit_file", {"path": "src/app.py", "old": "another", "new": "my"}),
        ],
        project,
    )

    assert text == snapshot


async def test_results_of_the_git_tools(checkout: Path, snapshot: SnapshotAssertion) -> None:
    cases: list[Case] = [
        ("git_diff_branch", {}),
        ("git_diff_branch", {"path": "app.py", "offset": 5}),
        ("git_diff_branch", {"path": "lib"}),
        ("git_diff_branch", {"offset": 500}),
        ("git_log_branch", {}),
        ("git_log_branch", {"limit": 1}),
        ("git_show", {"revision": "HEAD"}),
        ("git_show", {"revision": "main", "path": "app.py"}),
        ("git_show", {"revision": "HEAD", "path": "lib"}),
        ("git_show", {"revision": "HEAD", "path": "link"}),
        ("git_show", {"revision": "HEAD", "path": "image.bin"}),
        ("git_show", {"revision": "HEAD", "path": "util.py"}),
        ("git_show", {"revision": "HEAD", "path": "../app.py"}),
        ("git_show", {"revision": "HEAD", "path": ".env"}),
        ("git_show", {"revision": "nowhere"}),
        ("git_show", {"revision": "--all"}),
        ("git_show", {"revision": "deadbeef"}),
        ("git_show", {"revision": ""}),
        ("git_blame", {"path": "app.py"}),
        ("git_blame", {"path": "app.py", "first": 9}),
        ("git_blame", {"path": "nowhere.py"}),
        ("git_status", {}),
        ("git_diff_worktree", {}),
        ("git_diff_worktree", {"staged": True}),
    ]
    tools = git.tools(checkout, base="main", trust=True, blocklist=fs.Blocklist.default())

    assert await said(tools, cases, checkout) == snapshot


async def test_a_folder_that_is_not_a_checkout(
    tmp_path: Path, checkout: Path, snapshot: SnapshotAssertion
) -> None:
    plain, broken = tmp_path / "plain", tmp_path / "broken"
    plain.mkdir()
    shutil.copytree(checkout, broken, symlinks=True)
    (broken / ".git/objects/info").mkdir(exist_ok=True)
    (broken / ".git/objects/info/alternates").write_text("/elsewhere\n")

    assert await said(
        git.tools(plain, trust=True), [("git_diff_branch", {}), ("git_status", {})], plain
    ) == snapshot(name="plain")
    assert await said(git.tools(broken), [("git_log_branch", {})], broken) == snapshot(
        name="alternates"
    )


async def test_results_of_the_shell_tools(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    cases: list[Case] = [
        ("shell", {"command": "echo out; echo err >&2; exit 3"}),
        ("shell", {"command": ["echo", "a; b"]}),
        ("shell", {"command": "printf 'no newline'"}),
        ("shell", {"command": "kill -9 $$"}),
        ("shell", {"command": "echo begun; sleep 60", "timeout": 0.3}),
        ("shell", {"command": ""}),
        ("shell", {"command": "a\0b"}),
        ("shell", {"command": ["no-such-program"]}),
        ("shell", {"command": "true", "cwd": "nowhere"}),
        ("shell", {"command": "true", "cwd": ".."}),
        ("shell", {"command": "sleep 60", "background": True}),
        ("shell_job", {"job": 1, "stop": True}),
        ("shell_job", {"job": 9}),
    ]

    assert await said(shell.tools(tmp_path, sandbox="off"), cases, tmp_path) == snapshot


async def test_arguments_that_do_not_fit_a_tool(project: Path, snapshot: SnapshotAssertion) -> None:
    cases: list[Case] = [
        ("read_file", {}),
        ("read_file", {"path": "a", "offset": "many"}),
        ("read_file", {"file": "a"}),
        ("edit_file", {"path": "a", "edits": [{"old": "x"}]}),
    ]

    assert await said(fs.tools(project, write=True), cases, project) == snapshot
