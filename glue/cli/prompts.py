"""`glue prompts`: list, print and compare versions of prompts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from glue.errors import ConfigError

if TYPE_CHECKING:
    from glue.prompts import Catalog, Prompt

_source = click.option("--from", "source", metavar="FOLDER", help="A folder of prompts, instead of those of glue.")


@click.group(invoke_without_command=True)
@_source
@click.pass_context
def prompts(ctx: click.Context, source: str | None) -> None:
    """List, show and compare versions of prompts."""
    ctx.obj = source
    if ctx.invoked_subcommand is None:
        show_list(source, as_json=False)


@prompts.command(name="list")
@_source
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def list_(given: str | None, source: str | None, as_json: bool) -> None:
    """List prompts with their versions; the default is marked."""
    show_list(source or given, as_json=as_json)


def show_list(source: str | None, *, as_json: bool) -> None:
    found = _catalogs(source)
    if as_json:
        rows = [
            {"name": each.name, "versions": list(each.versions()), "default": each.default, "hash": each.get().hash}
            for each in found
        ]
        click.echo(json.dumps(rows, indent=2))
        return
    from glue.cli.output import print_table

    marked = [[f"{name}*" if name == each.default else name for name in each.versions()] for each in found]
    cells = [(each.name, ", ".join(names), each.get().hash) for each, names in zip(found, marked, strict=True)]
    print_table(cells, ("prompt", "versions", "hash"))


@prompts.command()
@click.argument("name")
@click.argument("version", required=False, default="")
@_source
@click.pass_obj
def show(given: str | None, name: str, version: str, source: str | None) -> None:
    """Print one version of a prompt; the default where none is named."""
    click.echo(_find(source or given, name).get(version).text, nl=False)


@prompts.command()
@click.argument("name")
@click.argument("old")
@click.argument("new")
@_source
@click.pass_obj
def diff(given: str | None, name: str, old: str, new: str, source: str | None) -> None:
    """Compare two versions of a prompt."""
    click.echo(_find(source or given, name).diff(old, new), nl=False)


def _catalogs(source: str | None) -> tuple[Catalog, ...]:
    from glue.prompts import catalogs

    return catalogs(source) if source else catalogs()


def _find(source: str | None, name: str) -> Catalog:
    found = {catalog.name: catalog for catalog in _catalogs(source)}
    if name not in found:
        raise ConfigError(f"there is no prompt {name!r}; there are: {', '.join(found) or 'none'}")
    return found[name]


def find_version(named: str) -> Prompt:
    """Find a prompt by NAME or NAME@VERSION in the catalog; a name with a slash is a folder of versions."""
    name, _, version = named.partition("@")
    if "/" in name:
        from glue.prompts import Catalog

        return Catalog(name).get(version)
    return _find(None, name).get(version)
