"""`glue providers` and `glue models`: what can be named."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import click

from glue.errors import ConfigError
from glue.text import one_line


@click.command()
@click.option("--check", "names", multiple=True, metavar="NAME", help="Send one tiny request and say what happened.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def providers(names: tuple[str, ...], as_json: bool) -> None:
    """List the providers: name, wire, key variable and whether it is set, default model, context window.

    --check leaves with 0 where the model answered, 2 for a wrong name, key or address, 1 for a host that does
    not answer.
    """
    from glue.providers import models as listing

    if names:
        sys.exit(max([_check(name) for name in names]))
    rows = listing.provider_rows()
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    words = {True: "set", False: "not set", None: "not needed"}
    cells = [(row["name"], row["wire"], row["key"], words[row["key_set"]], row["model"], row["window"]) for row in rows]
    from glue.cli.output import print_table

    print_table(cells, ("name", "wire?", "key", "", "default model?", ">window?"))


def _check(name: str) -> int:
    import anyio

    from glue.providers.models import check

    code, text = anyio.run(check, name)
    click.echo(one_line(text) if code == 0 else f"glue: {one_line(text)}", err=code != 0)
    return code


class ModelsGroup(click.Group):
    """A group whose first word may be a provider."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.commands:
            args = ["list", *args]
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or args[0] not in (*self.commands, "--help", "-h"):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(cls=ModelsGroup)
def models() -> None:
    """List known models with windows and prices (`glue models PROVIDER`), or name one of your own."""


@models.command(name="list")
@click.argument("provider", required=False)
@click.option("--server", is_flag=True, help="Ask the provider's server which models it has.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(provider: str | None, server: bool, as_json: bool) -> None:
    """List known models with windows and prices; PROVIDER narrows it down, --server asks its server."""
    from glue.cli.config import aliases
    from glue.cli.output import print_table
    from glue.providers import default, lookup
    from glue.providers import models as listing

    if server:
        import anyio

        names = anyio.run(listing.server_models, provider or default())
        click.echo(json.dumps(names, indent=2) if as_json else "\n".join(names))
        return
    name = lookup(provider).name if provider else ""
    rows = listing.model_rows(name)
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    if not rows:
        click.echo(f"no models of {name} are known; any may be named")
        return
    print_table([_model_cells(row) for row in rows], ("model", ">window?", ">input", ">output", ">cached?", "?"))
    for alias, spec in sorted(aliases().items()) if not name else ():
        click.echo(f"{alias} = {spec}")
    click.echo(
        f"USD per million tokens, list prices of {listing.date()}; any other model may be named, without a cost."
    )


def _model_cells(row: dict[str, Any]) -> tuple[object, ...]:
    notes = ["default"] if row["default"] else []
    notes += [f"ends {row['ends']}"] if row["ends"] else ["deprecated"] if row["deprecated"] else []
    notes += [f"more above {tier[0]:,}" for tier in row["tiers"]]
    prices = ["-" if row[name] is None else f"{row[name]:g}" for name in ("input", "output", "cached")]
    return (row["model"], f"{row['window']:,}" if row["window"] else "-", *prices, ", ".join(notes))


@models.command()
@click.argument("name")
@click.argument("model")
def alias(name: str, model: str) -> None:
    """Give a model a name of your own: `glue models alias fast groq:llama-3.1-8b-instant`, then `-m fast`."""
    from glue.cli.config import write_setting
    from glue.providers import known, lookup

    if not re.fullmatch(r"[A-Za-z][\w-]*", name) or name in known():
        raise ConfigError(f"{name!r} cannot be an alias: a word of letters that is no provider is")
    for each in model.split(","):
        lookup(each.strip())  # a wrong name is said now
    write_setting(name, model, "aliases")


@models.command()
@click.argument("name")
def unalias(name: str) -> None:
    """Remove a name of your own."""
    from glue.cli.config import write_setting

    write_setting(name, None, "aliases")
