"""`glue models`: list the models of the catalog or of a server, and define short names."""

from __future__ import annotations

import re
from typing import Any

import click

from glue.cli.settings import write_setting
from glue.cli.tables import json_option, print_json, print_rows
from glue.errors import ConfigError
from glue.providers import aliases, default, known, listing, lookup, split
from glue.providers.models import date
from glue.text import one_line


class ModelsGroup(click.Group):
    """A group whose first word may be the name of a provider; it then runs `list`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or args[0] not in (*self.commands, "--help", "-h"):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(cls=ModelsGroup)
def models() -> None:
    """List known models with their windows and prices (`glue models PROVIDER`), or alias one."""


@models.command(name="list")
@click.argument("provider", required=False)
@click.option("--server", is_flag=True, help="Ask the provider's server for its models.")
@json_option
def list_models(provider: str | None, server: bool, as_json: bool) -> None:
    """List known models with their windows and prices, of PROVIDER or of all providers."""
    if server:
        import anyio  # slow to load; a list needs no event loop

        names = anyio.run(listing.server_models, provider or default())
        if as_json:
            print_json(names)
        else:
            click.echo("\n".join(map(one_line, names)))
        return
    name = lookup(provider).name if provider else ""
    rows = listing.list_models(name)
    heads = ("model", ">window?", ">input", ">output", ">cached?", "note?")
    empty = f"no models of {name} are in the list; you can use any model by its name"
    print_rows(rows, heads, _model_cells, as_json, empty)
    if as_json or not rows:
        return
    if not name:
        for alias, model in sorted(aliases().items()):
            click.echo(f"{alias} = {model}")
    click.echo(
        f"Prices in USD per million tokens, list prices of {date()}. "
        "You can use any other model by its name; its cost is then unknown."
    )


def _model_cells(row: dict[str, Any]) -> tuple[object, ...]:
    notes = ["default"] if row["default"] else []
    if row["ends"]:
        notes.append(f"ends {row['ends']}")
    elif row["deprecated"]:
        notes.append("deprecated")
    notes += [f"costs more above {tier[0]:,}" for tier in row["tiers"]]
    return (
        row["model"],
        row["window"],
        row["input"],
        row["output"],
        row["cached"],
        ", ".join(notes),
    )


@models.command()
@click.argument("name")
@click.argument("model")
def alias(name: str, model: str) -> None:
    """Define a short name for a model.

    After `glue models alias fast groq:llama-3.1-8b-instant`, `-m fast` selects that model.
    """
    if not re.fullmatch(r"[A-Za-z][\w-]*", name) or name in known():
        raise ConfigError(
            f"{name!r} cannot be an alias; use a word of letters that is not a provider's name"
        )
    for each in split(model):
        lookup(each)  # raises ConfigError for a wrong name
    write_setting(name, model, "aliases")


@models.command()
@click.argument("name")
def unalias(name: str) -> None:
    """Remove a short name that `glue models alias` defined."""
    write_setting(name, None, "aliases")
