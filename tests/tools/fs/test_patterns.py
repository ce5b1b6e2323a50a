"""Tests of .gitignore rules and block lists."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest
from fakes.trees import Tools, write_tree

from glue.globs import MAX_PATTERN
from glue.tools.fs import Blocklist, Root, walk
from glue.tools.fs.patterns import Gitignore


def test_malformed_gitignore_rules_are_ignored(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_bytes(b"\n/\n!\n\\\n[\n[!\n**\\\n\xff\n   \n#\n\\#x\n")
    (tmp_path / "a").touch()

    assert tools["find_files"]("a") == "a"


@pytest.mark.parametrize(
    ("path", "blocked"),
    [
        (".env", True),
        ("deep/down/.ENV", True),
        (".env.production", True),
        (".env.example", False),
        ("server.pem", True),
        ("certs/Server.PEM", True),
        (".ssh/config", True),
        ("home/.ssh/id_rsa", True),
        ("id_ed25519.pub", False),
        ("id_ed25519", True),
        (".git/config", True),
        ("sub/.git/config", True),
        (".gitignore", False),
        ("environment.py", False),
        ("src/keys.py", False),
        ("monkey", False),
        ("docs/credentials", True),
        ("credentials.py", False),
        (".envrc", True),
        ("client-secret-web.json", True),
        ("prod.kubeconfig", True),
        ("secrets/db.txt", True),
        ("deploy/secrets/key", True),
        ("app.secret", True),
        ("app.secrets", True),
        (".gcloud/access.db", True),
        ("db_secret.yaml", True),
        ("db_secrets_prod.json", True),
        ("api_secret.txt", True),
        ("aws_secretsmanager.py", False),
        ("src/secrets.py", False),
        ("test_secret_rotation.go", False),
        ("no_secrets.md", False),
    ],
)
def test_the_default_block_list_covers_common_secrets(path: str, blocked: bool) -> None:
    assert Blocklist().blocks(path) is blocked


def test_a_pattern_matches_the_path_a_name_or_a_folder() -> None:
    assert Blocklist(("private/*.txt",)).blocks("private/a.txt")
    assert not Blocklist(("private/*.txt",)).blocks("private/deep/a.txt")
    assert Blocklist(("*.txt",)).blocks("private/deep/a.TXT")
    assert Blocklist(("private",)).blocks("some/private/a")
    assert Blocklist(("a", "b")).merge(["c"]).merge(Blocklist(("d",))).patterns == (
        "a",
        "b",
        "c",
        "d",
    )
    assert not Blocklist(("*",)).merge(allow=["ok"]).blocks("ok")


@pytest.mark.parametrize("pattern", ["*", "**", "***", "**/**"])
def test_a_pattern_of_stars_blocks_every_path(pattern: str) -> None:
    assert Blocklist((pattern,)).blocks("a")
    assert Blocklist((pattern,)).blocks("a/b.txt")


def test_the_first_pattern_that_blocks_a_path_is_named() -> None:
    assert Blocklist(("*.txt", "a*")).match("a.txt") == "*.txt"
    assert Blocklist(("*.txt", "!a*", "a.*", "*")).match("a.txt") == "a.*"


@pytest.mark.parametrize("exception", ["!.env", "!*", "!**", "!.ENV"])
def test_merge_cannot_unblock_a_default_by_a_pattern(exception: str) -> None:
    with pytest.raises(ValueError, match=r"pass allow=\["):
        Blocklist.default().merge([exception])
    with pytest.raises(ValueError, match=r"pass allow=\["):
        Blocklist.default().merge(Blocklist(("*.sql", exception)))


def test_the_error_for_an_exception_names_the_pattern_to_allow() -> None:
    with pytest.raises(
        ValueError, match=r"'!a\.sql' would unblock files; .* pass allow=\['a\.sql'\]$"
    ):
        Blocklist.default().merge(["!a.sql"])


@pytest.mark.parametrize("rule", ["[a", "/[a", "src/[a"])
def test_a_rule_with_an_open_bracket_ignores_no_file_as_in_git(tmp_path: Path, rule: str) -> None:
    write_tree(tmp_path, "[a", "src/[a")
    (tmp_path / ".gitignore").write_text(f"{rule}\n")

    assert seen_by_us(tmp_path) == seen_by_git(tmp_path) == {".gitignore", "[a", "src/[a"}


def test_a_rule_that_is_longer_than_a_pattern_can_be_is_ignored() -> None:
    for pattern, path in (("{}", ["{}"]), ("x/{}", ["x", "{}"])):
        for size, ignored in ((MAX_PATTERN, True), (MAX_PATTERN + 1, None)):
            name = "a" * (size - len(pattern) + 2)
            rules = Gitignore(pattern.format(name).encode(), 0)

            assert rules.judge([each.format(name) for each in path], False) is ignored


def test_only_the_first_1000_lines_of_a_gitignore_count(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("#\n" * 999 + "last\nbeyond\n")
    for name in ("last", "beyond"):
        (tmp_path / name).touch()

    assert tools["find_files"]("*") == ".gitignore\nbeyond"


def test_merge_unblocks_only_files_that_are_named_in_allow() -> None:
    merged = Blocklist.default().merge(["*.sql"], allow=[".env.test", "!fixtures/*.pem"])

    assert merged.blocks("a.sql")
    assert merged.blocks(".env")
    assert merged.blocks("server.pem")
    assert not merged.blocks(".env.test")
    assert not merged.blocks("fixtures/test.pem")


def test_merge_adds_no_pattern_twice() -> None:
    assert Blocklist.default().merge(Blocklist.default()) == Blocklist.default()
    assert Blocklist(("a",)).merge(["a", "b", "b"]).patterns == ("a", "b")


def test_merge_refuses_a_string() -> None:
    with pytest.raises(TypeError, match="list of patterns"):
        Blocklist().merge("*.sql")
    with pytest.raises(TypeError, match="list of patterns"):
        Blocklist().merge(allow=".env")


NAMES = [
    *["a", "b", "ab", "abc", "A", "a.py", "b.txt", ".x", "x y", "foo", "bar", "build", "-", "a "],
    *[
        "[a]",
        "a*",
        "!a",
        "#a",
        "a\\b",
        "z]",
        "tab\tx",
        "é",
        "日本",
        "ü.py",
        "é\xad",
        "\u2028x",
        "a\x85b",
    ],
]


PIECES = [
    *[
        "a",
        "b",
        "c",
        "x",
        "-",
        "foo",
        "bar",
        ".py",
        "é",
        "日",
        "\u2028",
        " ",
        "\t",
        "/",
        "\\",
        "!",
        "#",
    ],
    *[
        "?",
        "??",
        "*",
        "**",
        "*.",
        "\\*",
        "\\ ",
        "[ab]",
        "[!a]",
        "[^b]",
        "[a-c]",
        "[é]",
        "[!-~]",
        "[",
        "]",
        "[]a]",
    ],
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
        before, after = (
            maker.choice(["", "", "!", "/", "**/", "\\"]),
            maker.choice(["", "/", "//", "/*", "/**"]),
        )
        return before + maker.choice(NAMES) + after
    return "".join(maker.choices(PIECES, k=maker.randrange(1, 6)))


def seen_by_git(root: Path, repository: Path | None = None) -> set[str]:
    """Return the files that git lists; `repository` replaces a new repository in the folder."""
    if repository is None:
        subprocess.run(["git", "init", "-q", "."], cwd=root, check=True, timeout=20)
    command = [
        "git",
        *([] if repository is None else [f"--git-dir={repository}", "--work-tree=."]),
        "-c",
        "core.excludesFile=/dev/null",
        "ls-files",
        "--others",
        "--exclude-standard",
        "-z",
    ]
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(command, cwd=root, env=env, check=True, capture_output=True, timeout=20)
    return {os.fsdecode(name) for name in done.stdout.split(b"\0") if name}


def seen_by_us(root: Path) -> set[str]:
    with Root(root) as opened, opened.directory(".") as place:
        return {
            entry.path
            for entry in walk.walk(opened, place, walk.Budget())
            if entry.kind != "folder"
        }


def test_random_trees_are_filtered_as_git_does(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", "--bare", "repository"], cwd=tmp_path, check=True)
    maker = random.Random(250)
    for number in range(int(os.environ.get("GLUE_TREES", "25"))):
        root = tmp_path / str(number)
        root.mkdir()
        grow(root, maker)

        assert seen_by_us(root) == seen_by_git(root, tmp_path / "repository"), number


@pytest.mark.parametrize(
    ("rules", "ignored"),
    [
        ("?", False),
        ("??", True),
        ("[é]", False),
        ("é", True),
        ("*", True),
        ("\\é", True),
        ("é/", False),
        ("/é", True),
    ],
)
def test_a_character_is_a_byte_as_in_git(tmp_path: Path, rules: str, ignored: bool) -> None:
    (tmp_path / "é").touch()
    (tmp_path / ".gitignore").write_text(rules + "\n")

    assert ("é" not in seen_by_us(tmp_path)) is ignored
    assert seen_by_us(tmp_path) == seen_by_git(tmp_path)
