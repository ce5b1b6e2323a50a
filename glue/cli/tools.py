"""`glue tools`: what a model will be told."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

import click

from glue.context import AnyTool
from glue.errors import ConfigError
from glue.text import clean_text


@click.group(invoke_without_command=True)
@click.pass_context
def tools(ctx: click.Context) -> None:
    """Check tools before a model sees them, and list the ready-made ones."""
    if ctx.invoked_subcommand is None:
        show_bundles()


@tools.command(name="list")
@click.option("--sizes", is_flag=True, help="Print how many tokens each tool's schema takes in every request.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(sizes: bool, as_json: bool) -> None:
    """List the ready-made tools that --tools takes."""
    if sizes:
        show_sizes()
    else:
        show_bundles(as_json=as_json)


def show_bundles(*, as_json: bool = False) -> None:
    if as_json:
        click.echo(json.dumps([{"name": name, "description": text} for name, text in BUNDLES.items()], indent=2))
        return
    from glue.cli.output import print_table

    print_table(BUNDLES.items(), ("tools", "what they do"))


def show_sizes() -> None:
    """Print the estimated tokens of every ready-made tool's name, description and parameters."""
    import tempfile

    from glue.limits import estimate_tokens
    from glue.tools import fs, git, shell

    with tempfile.TemporaryDirectory() as root:
        made = [*fs.tools(root, write=True), *git.tools(root, trust=True), *shell.tools(root)]
    rows = {each.name: estimate_tokens(json.dumps(schema_of(each), ensure_ascii=False)) for each in made}
    for name, size in rows.items():
        click.echo(f"{name:<20}{size:>6}")
    click.echo(f"{len(rows)} tools{'':<12}{sum(rows.values()):>6} tokens, about")


def schema_of(tool: AnyTool) -> dict[str, Any]:
    """Give what a provider is told of a tool."""
    spec = tool.spec
    return {"name": spec.name, "description": spec.description, "parameters": spec.parameters}


@tools.command()
@click.argument("modules", nargs=-1, required=True, metavar="MODULE|FILE.py...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(modules: tuple[str, ...], as_json: bool) -> None:
    """Say what is undescribed in tools, and what some provider would refuse. The files are run.

    Leaves with 1 where there is something to mend.
    """
    from glue.cli.agentfile import run_file
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
