"""`glue tools`: what a model will be told."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

import click

from glue.context import AnyTool
from glue.errors import ConfigError


@click.group(invoke_without_command=True)
@click.pass_context
def tools(ctx: click.Context) -> None:
    """Check tools before a model sees them, and list the ready-made ones."""
    if ctx.invoked_subcommand is None:
        show_bundles()


@tools.command(name="list")
def list_() -> None:
    """List the ready-made tools that --tools takes."""
    show_bundles()


def show_bundles() -> None:

    for name, text in BUNDLES.items():
        click.echo(f"{name:<10} {text}")


@tools.command()
@click.argument("modules", nargs=-1, required=True, metavar="MODULE|FILE.py...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(modules: tuple[str, ...], as_json: bool) -> None:
    """Say what is undescribed in tools, and what some provider would refuse. The files are run.

    Leaves with 1 where there is something to mend.
    """
    from glue.cli.agentfile import run_file
    from glue.text import clean_text
    from glue.tools.check import ToolProblem, check_tools, tools_of

    found: list[ToolProblem] = []
    count = 0
    for name in modules:
        made = tools_of(run_file(name))
        count += len(made)
        found += check_tools(made)
        if not made:
            click.echo(f"glue: {name} holds no tools", err=True)
    if as_json:
        rows = [{"tool": each.tool, "text": each.text, "wires": list(each.wires)} for each in found]
        click.echo(json.dumps(rows, indent=2))
    else:
        for finding in found:
            click.echo(clean_text(str(finding)))
    click.echo(f"{count} tool{'s' if count != 1 else ''}, {len(found) or 'nothing'} to mend", err=True)
    sys.exit(1 if found else 0)


BUNDLES = {
    "fs": "read and search files below this folder",
    "edit": "fs, and write files, each with permission",
    "git": "read the history of this checkout",
    "shell": "run commands, each with permission",
    "coding": "edit, and git where there is a checkout",
}


def make_tools(names: Iterable[str], root: str = ".") -> list[AnyTool]:
    """Make the tools of several bundles; one that two of them hold comes once."""
    found: dict[str, Any] = {}
    for name in names:
        for tool in _bundle(name.strip().lower(), root):
            found.setdefault(tool.spec.name, tool)
    return list(found.values())


def split(names: str | Iterable[str]) -> tuple[str, ...]:
    """Part a comma list; a tuple stays one."""
    parts = names.split(",") if isinstance(names, str) else names
    return tuple(part.strip() for part in parts if part.strip())


def _bundle(name: str, root: str) -> list[Any]:
    if name not in BUNDLES:
        raise ConfigError(f"there are no tools {name!r}; there are: {', '.join(BUNDLES)}")
    if name in ("fs", "edit"):
        from glue.tools import fs

        return fs.tools(root, write=name == "edit")
    if name == "git":
        from glue.tools import git

        try:
            return git.tools(root)
        except ValueError as error:
            raise ConfigError(f"the tools of git: {error}") from None
    if name == "shell":
        from glue.tools.shell import tools

        return tools(root)
    from glue.tools import coding

    return coding.tools(root)
