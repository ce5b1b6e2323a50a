"""The command that installs an extra."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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
