"""What .gitignore leaves out, compared with git itself over random trees."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest

from glue.tools.fs import Root, walk

NAMES = [
    *["a", "b", "ab", "abc", "A", "a.py", "b.txt", ".x", "x y", "foo", "bar", "build", "-", "a "],
    *["[a]", "a*", "!a", "#a", "a\\b", "z]", "tab\tx", "é", "日本", "ü.py", "é\xad", "\u2028x", "a\x85b"],
]
PIECES = [
    *["a", "b", "c", "x", "-", "foo", "bar", ".py", "é", "日", "\u2028", " ", "\t", "/", "\\", "!", "#"],
    *["?", "??", "*", "**", "*.", "\\*", "\\ ", "[ab]", "[!a]", "[^b]", "[a-c]", "[é]", "[!-~]", "[", "]", "[]a]"],
    *["[[:alpha:]]", "[[:digit:]]", "[[:odd:]]", "[\\]]", "[a\\-z]", "[z-a]", "***"],
]


def grow(folder: Path, maker: random.Random, depth: int = 0) -> None:
    for name in maker.sample(NAMES, maker.randrange(2, 7)):
        if maker.random() < 0.4 and depth < 3:
            (folder / name).mkdir(exist_ok=True)
            grow(folder / name, maker, depth + 1)
        else:
            (folder / name).touch()
    if maker.random() < (0.9 if depth == 0 else 0.25):
        lines = [rule(maker) for _ in range(maker.randrange(1, 6))]
        end = maker.choice(["\n", "\n", "\r\n"])
        text = maker.choice(["", "", "\ufeff"]) + end.join(lines) + maker.choice(["", end])
        (folder / ".gitignore").write_bytes(text.encode())


def rule(maker: random.Random) -> str:
    if maker.random() < 0.4:
        before, after = maker.choice(["", "", "!", "/", "**/", "\\"]), maker.choice(["", "/", "//", "/*", "/**"])
        return before + maker.choice(NAMES) + after
    return "".join(maker.choices(PIECES, k=maker.randrange(1, 6)))


def seen_by_git(root: Path) -> set[str]:
    subprocess.run(["git", "init", "-q", "."], cwd=root, check=True, timeout=20)
    command = ["git", "-c", "core.excludesFile=/dev/null", "ls-files", "--others", "--exclude-standard", "-z"]
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(command, cwd=root, env=env, check=True, capture_output=True, timeout=20)
    return {os.fsdecode(name) for name in done.stdout.split(b"\0") if name}


def seen_by_us(root: Path) -> set[str]:
    with Root(root) as opened, opened.directory(".") as place:
        return {entry.path for entry in walk.walk(opened, place, walk.Budget()) if entry.kind != "folder"}


def test_random_trees_are_seen_as_git_sees_them(tmp_path: Path) -> None:
    maker = random.Random(250)
    for number in range(int(os.environ.get("GLUE_TREES", "60"))):
        root = tmp_path / str(number)
        root.mkdir()
        grow(root, maker)

        assert seen_by_us(root) == seen_by_git(root), number


@pytest.mark.parametrize(
    ("rules", "ignored"),
    [("?", False), ("??", True), ("[é]", False), ("é", True), ("*", True), ("\\é", True), ("é/", False), ("/é", True)],
)
def test_characters_are_bytes_as_in_git(tmp_path: Path, rules: str, ignored: bool) -> None:
    (tmp_path / "é").touch()
    (tmp_path / ".gitignore").write_text(rules + "\n")

    assert ("é" not in seen_by_us(tmp_path)) is ignored
    assert seen_by_us(tmp_path) == seen_by_git(tmp_path)
