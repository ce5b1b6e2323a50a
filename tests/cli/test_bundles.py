"""Bundles of built-in tools, by name."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from glue import Agent, ToolMessage
from glue.cli.bundles import BUNDLES, check_bundles, make_tools
from glue.errors import ConfigError
from glue.testing import Script, call, calls


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_names_of_bundles_are_case_insensitive() -> None:
    assert check_bundles(["FS", " git "]) == ["fs", "git"]


def test_an_unknown_bundle_is_refused_with_the_names_of_the_agent_and_the_bundles() -> None:
    with pytest.raises(ConfigError) as raised:
        check_bundles(["fs", "nope"], own=["look"])

    assert str(raised.value) == f"unknown tools 'nope'; choose from: look, {', '.join(BUNDLES)}"


def test_a_tool_of_two_bundles_is_made_once() -> None:
    names = [tool.spec.name for tool in make_tools(["fs", "edit", "shell"])]

    assert len(names) == len(set(names))
    assert {"read_file", "write_file", "shell"} <= set(names)


def test_the_coding_tools_include_git_only_in_a_checkout() -> None:
    before = {tool.spec.name for tool in make_tools(["coding"])}
    Path(".git").mkdir()
    after = {tool.spec.name for tool in make_tools(["coding"])}

    assert after - before == {tool.spec.name for tool in make_tools(["git"])}


def test_the_git_tools_work_below_the_top_of_a_checkout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for line in ("init -qb main", "commit -qm start --allow-empty"):
        subprocess.run(
            ["git", "-c", "user.name=me", "-c", "user.email=me@x", *line.split()], check=True
        )
    (tmp_path / "below" / "it").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "below" / "it")
    agent = Agent(
        Script(calls(call("git_show", {"revision": "HEAD"})), "done"), tools=make_tools(["git"])
    )

    result = agent.run_sync("What happened?")

    (message,) = [each for each in result.messages if isinstance(each, ToolMessage)]
    assert not message.is_error, message.text
    assert "start" in message.text


def test_the_file_tools_stay_below_the_current_folder_of_a_checkout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    Path(".git").mkdir()
    Path("top.txt").write_text("secret")
    Path("below").mkdir()
    Path("below/here.txt").write_text("here")
    monkeypatch.chdir(tmp_path / "below")
    paths = ("here.txt", "top.txt", "below/here.txt")
    requests = [calls(call("read_file", {"path": path})) for path in paths]
    agent = Agent(Script(*requests, "done"), tools=make_tools(["fs"]))

    result = agent.run_sync("Read.")

    failed = [each.is_error for each in result.messages if isinstance(each, ToolMessage)]
    assert failed == [False, True, True]
