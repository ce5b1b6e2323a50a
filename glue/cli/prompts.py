"""`glue prompts`: list, print and compare versions of prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

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
        show_list(source)


@prompts.command(name="list")
@_source
@click.pass_obj
def list_(given: str | None, source: str | None) -> None:
    """List prompts with their versions; the default is marked."""
    show_list(source or given)


def show_list(source: str | None) -> None:
    for catalog in _catalogs(source):
        versions = [f"{version}*" if version == catalog.default else version for version in catalog.versions()]
        click.echo(f"{catalog.name:<20} {', '.join(versions):<20} {catalog.get().hash}")


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
    from glue.errors import ConfigError

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
