"""Click groups: commands that are imported when they are called, and lists by default."""

from __future__ import annotations

import sys

import click
import pytest
from click.testing import CliRunner

from glue.cli.groups import LazyCommand, LazyGroup, ListGroup, RunGroup

LAZY = (
    LazyCommand("words", "textwrap:missing", "Never loaded by a test."),
    LazyCommand("tools", "glue.cli.tools:tools", "List the built-in tools."),
)


@pytest.fixture
def lazy() -> click.Group:
    @click.command(cls=LazyGroup, lazy=LAZY)
    def group() -> None: ...

    assert isinstance(group, click.Group)
    return group


def test_the_help_lists_commands_without_importing_them(
    lazy: click.Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "glue.cli.tools", raising=False)

    result = CliRunner().invoke(lazy, ["--help"])

    assert "words  Never loaded by a test.\n  tools  List the built-in tools." in result.output
    assert "glue.cli.tools" not in sys.modules


def test_a_called_command_is_imported(lazy: click.Group) -> None:
    result = CliRunner().invoke(lazy, ["tools", "--json"])

    assert result.exit_code == 0
    assert '"name": "fs"' in result.output


def test_a_similar_command_is_suggested(lazy: click.Group) -> None:
    result = CliRunner().invoke(lazy, ["tolos"])

    assert result.exit_code == 2
    assert "unknown command 'tolos'; did you mean tools?" in result.output


@pytest.mark.parametrize(
    ("args", "output"),
    [
        ([], "listed False\n"),
        (["--full"], "listed True\n"),
        (["list", "--full"], "listed True\n"),
        (["add"], "added\n"),
    ],
)
def test_a_list_group_runs_list_without_a_command(args: list[str], output: str) -> None:
    @click.group(cls=ListGroup)
    def group() -> None: ...

    @group.command(name="list")
    @click.option("--full", is_flag=True)
    def list_all(full: bool) -> None:
        click.echo(f"listed {full}")

    @group.command()
    def add() -> None:
        click.echo("added")

    assert CliRunner().invoke(group, args).output == output


@pytest.mark.parametrize(
    ("args", "output"),
    [
        (["file.py"], "ran file.py False\n"),
        (["--full", "file.py"], "ran file.py True\n"),
        (["run", "file.py"], "ran file.py False\n"),
        (["add"], "added\n"),
    ],
)
def test_a_run_group_runs_unless_another_command_is_named(args: list[str], output: str) -> None:
    @click.group(cls=RunGroup)
    def group() -> None: ...

    @group.command()
    @click.argument("file")
    @click.option("--full", is_flag=True)
    def run(file: str, full: bool) -> None:
        click.echo(f"ran {file} {full}")

    @group.command()
    def add() -> None:
        click.echo("added")

    assert CliRunner().invoke(group, args).output == output
