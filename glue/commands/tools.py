"""`glue tools`: what a model will be told."""

from __future__ import annotations

import json
import sys

import click


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
    from glue.commands.bundles import BUNDLES

    for name, text in BUNDLES.items():
        click.echo(f"{name:<10} {text}")


@tools.command()
@click.argument("modules", nargs=-1, required=True, metavar="MODULE|FILE.py...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(modules: tuple[str, ...], as_json: bool) -> None:
    """Say what is undescribed in tools, and what some provider would refuse. The files are run.

    Leaves with 1 where there is something to mend.
    """
    from glue.commands.agentfile import run_file
    from glue.terminal import clean
    from glue.tools.check import Finding, check_tools, tools_of

    found: list[Finding] = []
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
            click.echo(clean(str(finding)))
    click.echo(f"{count} tool{'s' if count != 1 else ''}, {len(found) or 'nothing'} to mend", err=True)
    sys.exit(1 if found else 0)
