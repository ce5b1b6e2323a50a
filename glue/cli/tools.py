"""`glue tools`: list the built-in tools, and check your own before a model sees them."""

from __future__ import annotations

import json
import sys
import tempfile
from typing import Any

import click

from glue.cli.agentfile import import_file
from glue.cli.bundles import BUNDLES
from glue.cli.groups import ListGroup
from glue.cli.tables import json_option, print_json, print_rows
from glue.codec import to_plain
from glue.limits import estimate_tokens
from glue.text import clean_text, count
from glue.tools import fetch, fs, git, shell
from glue.tools.check import ToolProblem, check_tools, tools_of


@click.group(cls=ListGroup)
def tools() -> None:
    """List the built-in tools, or check your own before a model sees them."""


@tools.command(name="list")
@click.option(
    "--sizes", is_flag=True, help="Show the estimated tokens that each tool adds to a request."
)
@json_option
def list_tools(sizes: bool, as_json: bool) -> None:
    """List the bundles of built-in tools for --tools, or with --sizes each built-in tool."""
    found: list[dict[str, Any]]
    if sizes:
        found = _sizes()
        heads = ("tool", ">tokens (estimate)")
    else:
        found = [{"name": name, "description": text} for name, text in BUNDLES.items()]
        heads = ("tools", "purpose")
    print_rows(found, heads, lambda row: tuple(row.values()), as_json)


def _sizes() -> list[dict[str, Any]]:
    """Return the estimated tokens that each built-in tool adds to a request, and their sum.

    Each row has the name of a tool. The last row has the number of tools and the sum.
    """
    with tempfile.TemporaryDirectory() as root:
        built_in = [*fs.tools(root, write=True), *git.tools(root, trust=True), *shell.tools(root)]
        built_in.append(fetch.fetch_url())
    rows = {}
    for each in built_in:
        sent = {
            "name": each.name,
            "description": each.spec.description,
            "parameters": to_plain(each.spec.parameters),
        }
        rows[each.name] = estimate_tokens(json.dumps(sent, ensure_ascii=False))
    rows |= {f"{len(rows)} tools": sum(rows.values())}
    return [{"name": name, "tokens": size} for name, size in rows.items()]


@tools.command()
@click.argument("modules", nargs=-1, required=True, metavar="MODULE|FILE.py...")
@json_option
def check(modules: tuple[str, ...], as_json: bool) -> None:
    """Check the tools of modules: missing descriptions, and schemas that a provider would refuse.

    The modules are imported, so their top-level code runs. Exits with 1 if there are problems.
    """
    found: list[ToolProblem] = []
    checked = 0
    for name in modules:
        own = tools_of(import_file(name))
        checked += len(own)
        found += check_tools(own)
        if not own:
            click.echo(f"glue: {name} defines no tools", err=True)
    if as_json:
        print_json(
            [{"tool": each.tool, "text": each.text, "wires": list(each.wires)} for each in found]
        )
    else:
        for problem in found:
            click.echo(clean_text(str(problem)))
    problems = count(len(found), "problem") if found else "no problems"
    click.echo(f"{count(checked, 'tool')}, {problems}", err=True)
    sys.exit(1 if found else 0)
