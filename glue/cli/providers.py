"""`glue providers`: list the providers of the catalog, or send test requests to some of them."""

from __future__ import annotations

import sys

import click

from glue.cli.tables import json_option, print_rows
from glue.providers import listing
from glue.text import one_line


@click.command()
@click.option(
    "--check",
    "names",
    multiple=True,
    metavar="NAME",
    help="Send one small request to this provider and print the result. Repeatable.",
)
@json_option
def providers(names: tuple[str, ...], as_json: bool) -> None:
    """List providers: name, wire, key variable, whether the key is set, default model, window.

    --check exits with 0 if the model answered, 2 if the name, key or address is wrong, and 1 if
    the request failed for another reason, such as a server that does not respond.
    """
    if names:
        import anyio  # slow to load; a list needs no event loop

        worst = 0
        for name in names:
            code, text = anyio.run(listing.check, name)
            click.echo(one_line(text) if code == 0 else f"glue: {one_line(text)}", err=code != 0)
            worst = max(worst, code)
        sys.exit(worst)
    words = {True: "set", False: "not set", None: "not needed"}
    print_rows(
        listing.list_providers(),
        ("name", "wire?", "key", "", "default model?", ">window?"),
        lambda row: (
            row["name"],
            row["wire"],
            row["key"],
            words[row["key_set"]],
            row["model"],
            row["window"],
        ),
        as_json,
    )
