"""A prompt is chosen by version, checked early, and never replaced by another."""

from __future__ import annotations

import hashlib
import sys
import zipfile
from pathlib import Path

import pytest

from glue.errors import PromptError
from glue.prompts import Catalog, catalogs


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "greeting"
    folder.mkdir()
    for version, text in {
        "v1": "Be kind.",
        "v2": "Be brief.  \n\n\n",
        "v10": "\n  Be both.\r\n",
    }.items():
        (folder / f"{version}.md").write_bytes(text.encode())
    (folder / "notes.txt").write_text("not a prompt")
    (folder / ".hidden.md").write_text("not one either")
    return folder


def test_versions_are_in_natural_order_and_the_newest_is_the_default(folder: Path) -> None:
    catalog = Catalog(folder)

    assert catalog.versions() == ("v1", "v2", "v10")
    assert catalog.default == "v10"
    assert catalog.name == "greeting"


def test_versions_are_compared_piece_by_piece(tmp_path: Path) -> None:
    ordered = ("1", "a", "v", "v0", "v1", "v1-draft", "v1.1", "v1.10", "v1a", "v02", "v2", "v10")
    for version in reversed(ordered):
        (tmp_path / f"{version}.md").write_text("x")

    assert Catalog(tmp_path).versions() == ordered


def test_an_empty_version_means_the_default(folder: Path) -> None:
    catalog = Catalog(folder, "v2")

    assert catalog.default == "v2"
    assert catalog.get() == catalog.get("") == catalog.get("v2")
    assert catalog.get("v1").text == "Be kind.\n"


def test_a_body_ends_in_one_newline_and_keeps_the_rest(folder: Path) -> None:
    catalog = Catalog(folder)

    assert catalog.get("v2").text == "Be brief.  \n"
    assert catalog.get("v2") == "Be brief.  \n"  # a prompt is its text
    assert catalog.get("v10").text == "\n  Be both.\n"


def test_the_default_is_checked_when_the_catalog_is_created(folder: Path) -> None:
    with pytest.raises(
        PromptError, match="prompt 'greeting' has no version 'v3'; there are: v1, v2, v10"
    ):
        Catalog(folder, "v3")


@pytest.mark.parametrize("version", ["v3", "V1", "v1.md", "../greeting/v1", " "])
def test_an_unknown_version_is_an_error_that_lists_the_versions(folder: Path, version: str) -> None:
    with pytest.raises(PromptError, match="there are: v1, v2, v10"):
        Catalog(folder).get(version)


def test_a_catalog_reads_a_package_and_a_zip(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = folder.parent
    (root / "my_agent_prompts").mkdir()
    (root / "my_agent_prompts" / "__init__.py").write_text("")
    folder.rename(root / "my_agent_prompts" / "greeting")
    archive = root / "all.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in (root / "my_agent_prompts").rglob("*"):
            file.write(path, path.relative_to(root))
    monkeypatch.syspath_prepend(root)

    package = Catalog("my_agent_prompts:greeting")
    zipped = Catalog(archive / "my_agent_prompts" / "greeting")

    assert package.versions() == zipped.versions() == ("v1", "v2", "v10")
    assert package.get("v2") == zipped.get("v2")
    sys.modules.pop("my_agent_prompts", None)


def test_a_catalog_reads_a_package_that_is_a_zip(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = folder.parent / "code.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("zipped_agent/__init__.py", "")
        file.writestr("zipped_agent/prompts/v1.md", "Hello")
    monkeypatch.syspath_prepend(archive)

    assert Catalog("zipped_agent:prompts").get().text == "Hello\n"
    sys.modules.pop("zipped_agent", None)


@pytest.mark.parametrize("source", ["no/such/folder", "no_such_package:x", "glue:no_such_folder"])
def test_a_source_that_does_not_exist_is_an_error(source: str) -> None:
    with pytest.raises(PromptError, match=r"cannot be read|package .* does not exist"):
        Catalog(source)


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match="does not contain prompts"):
        Catalog(tmp_path)


def test_the_hash_follows_the_text(folder: Path) -> None:
    before = Catalog(folder).get("v1")
    (folder / "v1.md").write_text("Be kind.\n\n")
    same = Catalog(folder).get("v1")
    (folder / "v1.md").write_text("Be kinder.\n")
    changed = Catalog(folder).get("v1")

    assert same.hash == before.hash != changed.hash
    assert before.identity == {
        "prompt": "greeting",
        "prompt_version": "v1",
        "prompt_hash": before.hash,
    }
    assert str(before) == before.text


def test_two_versions_can_be_compared(folder: Path) -> None:
    assert "-Be kind.\n+Be brief.  \n" in Catalog(folder).diff("v1", "v2")


def test_all_prompts_below_a_folder_are_listed(folder: Path) -> None:
    (folder.parent / "empty").mkdir()
    (folder.parent / "hidden").mkdir()
    (folder.parent / "hidden" / "._v1.md").write_text("not a prompt")

    assert [catalog.name for catalog in catalogs(folder.parent)] == ["greeting"]
    with pytest.raises(PromptError, match="cannot be read"):
        catalogs(folder / "nowhere")


def test_the_folders_of_prompts_are_listed_by_name(tmp_path: Path) -> None:
    for name in ("b", "d", "a", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "v1.md").write_text("x")

    assert [catalog.name for catalog in catalogs(tmp_path)] == ["a", "b", "c", "d"]


def test_a_catalog_may_have_a_name_of_its_own(folder: Path) -> None:
    assert Catalog(folder, name="hello").get("v1").name == "hello"
    assert Catalog(f"{folder}/").name == "greeting"
    assert Catalog("glue.prompts:review").name == "review"


def test_a_source_is_a_path_unless_it_begins_with_the_name_of_a_package(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    folder.rename(folder.parent / "a:b")
    (folder.parent / "a:b" / "inner").mkdir()
    (folder.parent / "a:b" / "v1.md").rename(folder.parent / "a:b" / "inner" / "v1.md")

    assert Catalog("./a:b").versions() == ("v2", "v10")
    assert Catalog("./a:b/inner").versions() == ("v1",)
    (folder.parent / "a:b").rename(folder.parent / "greeting")
    assert Catalog("greeting").versions() == ("v2", "v10")


def test_a_zip_may_contain_the_versions_at_its_top(folder: Path) -> None:
    archive = folder.parent / "prompts.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("v1.md", "Hello")

    assert Catalog(archive).get().text == "Hello\n"
    assert Catalog(zipfile.Path(archive)).get().text == "Hello\n"


def test_a_folder_may_be_named_like_a_zip(folder: Path) -> None:
    renamed = folder.rename(folder.parent / "greeting.zip")

    assert Catalog(renamed).versions() == ("v1", "v2", "v10")


def test_the_error_of_a_source_names_it_as_the_user_did_with_the_reason(folder: Path) -> None:
    with pytest.raises(PromptError) as missing:
        Catalog(folder / "none")
    with pytest.raises(PromptError) as single:
        Catalog(folder / "v1.md")
    (folder / "v3.md").write_bytes(b"\xff")
    with pytest.raises(PromptError) as garbled:
        Catalog(folder)

    start = f"prompts cannot be read from '{folder}"
    assert str(missing.value) == f"{start}/none': No such file or directory"
    assert str(single.value) == f"{start}/v1.md': Not a directory"
    assert str(garbled.value).startswith(f"{start}': 'utf-8' codec can't decode")


def test_a_prompt_has_sixteen_digits_of_the_hash_of_its_text(folder: Path) -> None:
    digest = hashlib.sha256(b"Be kind.\n").hexdigest()

    assert Catalog(folder).get("v1").hash == digest[:16]
