"""The command that installs an extra."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import glue
from glue.installing import command_for, install_command


def test_a_package_from_an_index_is_installed_from_the_index() -> None:
    assert command_for("", "chat") == "pip install 'glue-agents[chat]'"
    assert command_for("not json", "chat") == "pip install 'glue-agents[chat]'"


def test_a_checkout_is_named_by_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "my checkout"
    folder.mkdir()
    source = json.dumps({"url": folder.as_uri(), "dir_info": {"editable": True}})

    assert command_for(source, "mcp") == f"pip install -e '{folder}[mcp]'"
    monkeypatch.chdir(folder)
    assert command_for(source, "mcp") == "pip install -e '.[mcp]'"


@pytest.mark.parametrize(
    ("source", "command"),
    [
        ({"url": "file:///x/glue.whl", "archive_info": {}}, "pip install '/x/glue.whl[otel]'"),
        (
            {"url": "https://host/glue.git", "vcs_info": {"vcs": "git"}},
            "pip install 'glue-agents[otel] @ git+https://host/glue.git'",
        ),
        (
            {"url": "https://host/glue.whl", "archive_info": {}},
            "pip install 'glue-agents[otel] @ https://host/glue.whl'",
        ),
    ],
)
def test_an_archive_and_a_repository_are_named_by_their_address(
    source: dict[str, object], command: str
) -> None:
    assert command_for(json.dumps(source), "otel") == command


def test_the_command_names_this_installation() -> None:
    assert install_command("chat").endswith("[chat]'")


def test_a_source_without_an_address_is_installed_from_the_index() -> None:
    for text in ("{}", "[]", '{"url": ""}', '{"dir_info": {"editable": true}}', '"text"'):
        assert command_for(text, "chat") == "pip install 'glue-agents[chat]'"


def test_a_folder_that_is_not_editable_is_named_by_its_path() -> None:
    source = json.dumps({"url": "file:///my%20checkout", "dir_info": {}})

    assert command_for(source, "mcp") == "pip install '/my checkout[mcp]'"


def test_the_source_is_the_one_that_pip_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "glue_agents-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: glue-agents\nVersion: 1.0\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])

    assert install_command("chat") == "pip install 'glue-agents[chat]'"
    (info / "direct_url.json").write_text('{"url": "file:///x/glue.whl", "archive_info": {}}')
    assert install_command("chat") == "pip install '/x/glue.whl[chat]'"


def test_a_checkout_that_was_never_installed_is_installed_by_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.chdir(tmp_path)
    checkout = Path(glue.__file__).resolve().parents[1]

    assert install_command("chat") == f"pip install -e '{checkout}[chat]'"
