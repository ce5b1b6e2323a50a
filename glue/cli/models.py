"""`glue models`: list the models of the catalog or of a server, and define short names."""

from __future__ import annotations

import re
from typing import Any

import click

from glue.cli.settings import write_setting
from glue.cli.tables import json_option, print_json, print_rows
from glue.errors import ConfigError
from glue.messages import EFFORTS, Effort
from glue.providers import aliases, default, known, listing, lookup, split
from glue.providers.models import date
from glue.text import one_line


class ModelsGroup(click.Group):
    """A group that runs `list` if the first word is not one of its commands.

    Such a word is a provider, or a word to search for.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or args[0] not in (*self.commands, "--help", "-h"):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(cls=ModelsGroup)
def models() -> None:
    """List or search known models (`glue models [PROVIDER] [WORD]`), or define aliases."""


@models.command(name="list")
@click.argument("words", nargs=-1, metavar="[PROVIDER] [WORD]...")
@click.option("--server", is_flag=True, help="Ask the provider's server for its models.")
@click.option(
    "--reasoning",
    type=click.Choice(EFFORTS),
    help="Show the level that each model gets if this reasoning level is requested.",
)
@json_option
def list_models(
    words: tuple[str, ...], server: bool, reasoning: Effort | None, as_json: bool
) -> None:
    """List known models with their windows, prices and reasoning levels.

    \b
    glue models anthropic            the models of a provider
    glue models haiku                the models whose name contains a word
    glue models openai mini          both
    glue models --reasoning xhigh    the level that each model gets instead
    """
    if server:
        if reasoning is not None:
            raise click.UsageError("--reasoning cannot be used with --server; use one of them")
        import anyio  # slow to load; a list needs no event loop

        names = anyio.run(listing.server_models, words[0] if words else default())
        wanted = [word.lower() for word in words[1:]]
        names = [name for name in names if all(word in name.lower() for word in wanted)]
        if as_json:
            print_json(names)
        else:
            click.echo("\n".join(map(one_line, names)))
        return
    name, words = _split_words(words)
    rows = listing.list_models(name, words, reasoning)
    if words and not rows:
        where = f" among the models of {name}" if name else ""
        raise ConfigError(f"no model name contains {' and '.join(map(repr, words))}{where}")
    heads = ("model", ">window?", ">input", ">output", ">cached?", "reasoning?", "note?")
    empty = f"no models of {name} are in the list; you can use any model by its name"
    print_rows(rows, heads, lambda row: _model_cells(row, reasoning), as_json, empty)
    if as_json or not rows:
        return
    if not name and not words:
        for alias, model in sorted(aliases().items()):
            click.echo(f"{alias} = {model}")
    click.echo(
        f"Prices in USD per million tokens: list prices as of {date()}. "
        "You can use any other model by its name; its cost is then unknown."
    )


def _split_words(words: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Split words into the name of a provider, or "", and the words to search for.

    The first word may name a provider. If it does not, all words are words to search for.
    """
    if words and words[0].lower() in (*known(), *aliases()):
        return lookup(words[0]).name, words[1:]
    return "", words


def _model_cells(row: dict[str, Any], level: Effort | None) -> tuple[object, ...]:
    notes = ["default"] if row["default"] else []
    if row["retired"]:
        notes.append("retired")
    elif row["ends"]:
        notes.append(f"ends {row['ends']}")
    notes += [f"costs more above {tier[0]:,}" for tier in row["tiers"]]
    levels = " ".join(row["reasoning"])
    if level is not None:
        levels = f"{level} -> {row['becomes'] or 'left out'}" if level != row["becomes"] else level
    return (
        row["model"],
        row["window"],
        row["input"],
        row["output"],
        row["cached"],
        levels,
        ", ".join(notes),
    )


@models.command()
@click.argument("name")
@click.argument("model")
def alias(name: str, model: str) -> None:
    """Write a short name for a model to config.toml.

    After `glue models alias fast groq:llama-3.1-8b-instant`, `-m fast` selects that model.
    """
    if not re.fullmatch(r"[A-Za-z][\w-]*", name) or name.lower() in known():
        raise ConfigError(
            f"{name!r} cannot be an alias; begin with a letter, use only letters, digits, - and _, "
            "and do not use the name of a provider"
        )
    for each in split(model):
        lookup(each)  # raises ConfigError for a wrong name
    write_setting(name, model, "aliases")


@models.command()
@click.argument("name")
def unalias(name: str) -> None:
    """Remove a short name for a model from config.toml."""
    write_setting(name, None, "aliases")
