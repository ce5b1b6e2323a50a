"""`glue prompts`: list, show and compare the versions of prompts."""

from __future__ import annotations

from typing import Any

import click

from glue.cli.groups import ListGroup
from glue.cli.tables import json_option, print_rows
from glue.errors import ConfigError
from glue.prompts import Catalog, Prompt, catalogs

_source = click.option(
    "--from",
    "source",
    metavar="FOLDER",
    # The option may also be given to the group, before the name of the command.
    callback=lambda ctx, _, path: path or ctx.obj,
    help="Use the prompts in this folder instead of glue's own.",
)


@click.group(cls=ListGroup)
@_source
@click.pass_context
def prompts(ctx: click.Context, source: str | None) -> None:
    """List, show and compare versions of prompts."""
    ctx.obj = source


@prompts.command(name="list")
@_source
@json_option
def list_prompts(source: str | None, as_json: bool) -> None:
    """List prompts and their versions. A * marks the default version."""
    rows: list[dict[str, Any]] = [
        {
            "name": each.name,
            "versions": list(each.versions()),
            "default": each.default,
            "hash": each.get().hash,
        }
        for each in _catalogs(source).values()
    ]

    def cells(row: dict[str, Any]) -> tuple[object, ...]:
        versions = (f"{name}*" if name == row["default"] else name for name in row["versions"])
        return row["name"], ", ".join(versions), row["hash"]

    empty = f"no prompts in {source}; a prompt is a folder of versions, such as NAME/v1.md"
    print_rows(rows, ("prompt", "versions", "hash"), cells, as_json, empty)


@prompts.command(name="show")
@click.argument("name")
@click.argument("version", default="")
@_source
def show_prompt(name: str, version: str, source: str | None) -> None:
    """Print one version of a prompt. Without VERSION, print the default one."""
    click.echo(_find(source, name).get(version).text, nl=False)


@prompts.command()
@click.argument("name")
@click.argument("old")
@click.argument("new")
@_source
def diff(name: str, old: str, new: str, source: str | None) -> None:
    """Print the differences between two versions of a prompt."""
    click.echo(_find(source, name).diff(old, new), nl=False)


def _catalogs(source: str | None) -> dict[str, Catalog]:
    return {each.name: each for each in (catalogs(source) if source else catalogs())}


def _find(source: str | None, name: str) -> Catalog:
    found = _catalogs(source)
    if name not in found:
        names = ", ".join(found) or "none"
        raise ConfigError(f"unknown prompt {name!r}; prompts: {names}")
    return found[name]


def find_version(named: str) -> Prompt:
    """Return the prompt that a text such as `NAME` or `NAME@VERSION` names.

    A name with a slash is the path of a folder of versions.
    """
    name, at, version = named.rpartition("@")
    if not at or "/" in version:  # a folder in the path may contain an @
        name, version = named, ""
    if "/" in name:
        return Catalog(name).get(version)
    return _find(None, name).get(version)
