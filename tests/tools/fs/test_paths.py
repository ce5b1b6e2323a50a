"""Tests of safe_open, safe_join, relative_path and path_target."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from glue.errors import UnsafePath
from glue.tools.fs import Blocklist, Root, relative_path, safe_join, safe_open


def test_safe_open_opens_only_regular_files_that_are_not_blocked(tmp_path: Path) -> None:
    for name in ("a.txt", ".env"):
        (tmp_path / name).write_text(name)

    with safe_open(tmp_path, "a.txt", blocklist=Blocklist()) as file:
        assert file.read() == b"a.txt"
    with safe_open(tmp_path, ".env") as file:
        assert file.read() == b".env"
    with pytest.raises(UnsafePath, match="block list"):
        safe_open(tmp_path, ".env", blocklist=Blocklist())
    with pytest.raises(UnsafePath, match="outside the root"):
        safe_open(tmp_path, "../x")


def test_a_root_without_a_known_path_has_no_absolute_paths(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)

    with Root.adopt(fd) as root, pytest.raises(UnsafePath, match="absolute path of the root"):
        safe_join(root, "file")


def test_relative_path_returns_the_resolved_path_below_the_root(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "link").symlink_to("a/b")

    assert relative_path(tmp_path, "link/../b/new.txt") == "a/b/new.txt"
    assert relative_path(tmp_path, "new/folder/x") == "new/folder/x"
    assert relative_path(tmp_path, ".") == "."
    with pytest.raises(UnsafePath):
        relative_path(tmp_path, "link/../../../x")


def test_safe_join_returns_an_absolute_path_that_other_code_can_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "project"
    (root / "a").mkdir(parents=True)
    (root / "a/text").write_text("inside")
    (root / "link").symlink_to("a")
    monkeypatch.chdir(tmp_path)

    joined = safe_join("project", "link/../a/text")

    assert joined == os.path.realpath(root / "a/text")
    assert Path(joined).read_text() == "inside"
    assert safe_join(root, "new/folder/x") == os.path.realpath(root) + "/new/folder/x"
    assert safe_join(root, ".") == os.path.realpath(root)
    assert safe_join(root, joined) == joined
    with Root(root) as opened:
        assert safe_join(opened, "a") == os.path.realpath(root / "a")


@pytest.mark.parametrize("path", ["../x", "link/../../x", "/etc/passwd", "out/passwd", "", "a\0b"])
def test_safe_join_refuses_a_path_that_leads_outside(tmp_path: Path, path: str) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (root / "link").symlink_to(".")
    (root / "out").symlink_to("/etc")

    with pytest.raises(UnsafePath):
        safe_join(root, path)


def test_a_link_to_a_root_is_resolved_by_safe_join(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "alias").symlink_to("real")

    assert safe_join(tmp_path / "alias", "x") == os.path.realpath(tmp_path / "real") + "/x"
