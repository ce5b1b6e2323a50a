"""`glue keys`: store, list and remove the API keys of providers."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping

import click

from glue.cli.env import keys_file, read_env
from glue.cli.groups import ListGroup
from glue.cli.tables import json_option, print_json
from glue.errors import ConfigError
from glue.paths import write_private
from glue.providers import known, lookup
from glue.providers.catalog import Entry


@click.group(cls=ListGroup)
def keys() -> None:
    """Store, list and remove API keys. A key in the environment wins over a stored key."""


@keys.command(name="set")
@click.argument("name", metavar="PROVIDER|VARIABLE")
def set_key(name: str) -> None:
    """Store the API key of a provider, or of a variable such as OPENAI_API_KEY.

    On a terminal the command asks for the key. Otherwise it reads the key from stdin.
    """
    variable = _key_variable(name)
    is_terminal = sys.stdin is not None and sys.stdin.isatty()
    if is_terminal:
        value = click.prompt(variable, hide_input=True, err=True)
    else:
        value = sys.stdin.readline()
    value = str(value).strip()
    if not value or not value.isascii() or not value.isprintable() or " " in value:
        raise ConfigError("a key is one word of printable ASCII characters; nothing was stored")
    _write_keys({**_stored_keys(), variable: value})
    click.echo(f"stored {variable} in {keys_file()}", err=True)


@keys.command(name="list")
@json_option
def list_keys(as_json: bool) -> None:
    """List the variables that contain a key, and where each comes from. Never prints a key."""
    stored = _stored_keys()
    variables = {key for name in known() for key in lookup(name).key}
    rows = []
    for variable in sorted(variables | set(stored)):
        value = os.environ.get(variable, "")
        if value or variable in stored:
            source = "stored" if value == stored.get(variable) else "environment"
            rows.append({"name": variable, "source": source})
    if as_json:
        print_json(rows)
        return
    for row in rows:
        click.echo(f"{row['name']:<28} {row['source']}")
    if not rows:
        click.echo("no keys are set; store a key with `glue keys set PROVIDER`", err=True)


@keys.command(name="path")
def keys_path() -> None:
    """Print the path of the file that stores the keys."""
    click.echo(keys_file())


@keys.command()
@click.argument("name", metavar="PROVIDER|VARIABLE")
def remove(name: str) -> None:
    """Delete the stored API key of a provider, or of a variable such as OPENAI_API_KEY."""
    variable, stored = _key_variable(name), _stored_keys()
    if stored.pop(variable, None) is None:
        names = ", ".join(sorted(stored)) or "none"
        raise ConfigError(f"{variable} is not stored; stored keys: {names}")
    _write_keys(stored)


def used_variable(entry: Entry) -> str:
    """Return the name of the variable that contains a provider's key, or "" if no key is set."""
    return next((variable for variable in entry.key if os.environ.get(variable)), "")


def _stored_keys() -> dict[str, str]:
    return read_env(keys_file()) if keys_file().is_file() else {}


def _write_keys(found: Mapping[str, str]) -> None:
    path = keys_file()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lines = (f"{variable}={value}\n" for variable, value in sorted(found.items()))
    write_private(path, "".join(lines))


def _key_variable(name: str) -> str:
    """Return the variable with the API key of a provider; return a name in capitals unchanged.

    Raise ConfigError if the provider needs no key.
    """
    if re.fullmatch(r"[A-Z][A-Z0-9_]+", name):
        return name
    entry = lookup(name)
    if not entry.key:
        raise ConfigError(f"{entry.name} needs no key; name a provider that needs one")
    return entry.key[0]
