"""`glue keys`: keys of providers in a file that only its owner can read; the environment goes before it."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import click

from glue.errors import ConfigError
from glue.paths import config_dir

_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*?)\s*")


def keys_file() -> Path:
    return config_dir() / "keys.env"


def load_keys() -> None:
    """Put the stored keys into the environment, where it does not name them itself."""
    path = keys_file()
    if not path.is_file():
        return
    if path.stat().st_mode & 0o077:
        raise ConfigError(f"{path} can be read by others; chmod 600 {path}")
    _put(_read(path))


def read_env(path: str | None) -> None:
    """Do the same with a file that --env names."""
    if path:
        _put(_read(Path(path)))


def _put(found: Mapping[str, str]) -> None:
    for name, value in found.items():
        os.environ.setdefault(name, value)


def _read(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'not a text'}") from None
    found = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise ConfigError(f"{path}, line {number}: not NAME=value")
        value = match[2]
        quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
        found[match[1]] = value[1:-1] if quoted else value
    return found


def _stored() -> dict[str, str]:
    return _read(keys_file()) if keys_file().is_file() else {}


def _write(found: Mapping[str, str]) -> None:
    path = keys_file()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fd, name = tempfile.mkstemp(prefix=".keys-", dir=path.parent)  # made with 0600
    with open(fd, "w", encoding="utf-8") as file:
        file.writelines(f"{variable}={value}\n" for variable, value in sorted(found.items()))
    os.replace(name, path)


@click.group(invoke_without_command=True)
@click.pass_context
def keys(ctx: click.Context) -> None:
    """Store, list and remove keys of providers. The environment goes before what is stored."""
    if ctx.invoked_subcommand is None:
        show_list(as_json=False)


@keys.command(name="set")
@click.argument("name")
def set_(name: str) -> None:
    """Store the key of a provider, or of a variable such as OPENAI_API_KEY; it is asked for, or read from stdin."""
    variable = _variable(name)
    is_terminal = sys.stdin is not None and sys.stdin.isatty()
    value = click.prompt(variable, hide_input=True, err=True) if is_terminal else sys.stdin.readline()
    value = str(value).strip()
    if not value or not value.isascii() or not value.isprintable() or " " in value:
        raise ConfigError("a key is one word of printable ASCII letters; nothing was stored")
    _write({**_stored(), variable: value})
    click.echo(f"{variable} is stored in {keys_file()}", err=True)


@keys.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(as_json: bool) -> None:
    """List the variables that hold a key, and where each is from; never the keys."""
    show_list(as_json=as_json)


@keys.command()
def path() -> None:
    """Print where keys are stored."""
    click.echo(keys_file())


@keys.command()
@click.argument("name")
def remove(name: str) -> None:
    """Remove a stored key."""
    variable, stored = _variable(name), _stored()
    if variable not in stored:
        raise ConfigError(f"{variable} is not stored; there are: {', '.join(sorted(stored)) or 'none'}")
    _write({name: value for name, value in stored.items() if name != variable})


def show_list(*, as_json: bool) -> None:
    from glue.providers import known, lookup

    stored = _stored()
    variables = {key for name in known() for key in lookup(name).key} | set(stored)
    rows = []
    for variable in sorted(variables):
        value = os.environ.get(variable, "")
        if value or variable in stored:
            source = "stored" if value == stored.get(variable) else "environment"
            rows.append({"name": variable, "source": source})
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        click.echo(f"{row['name']:<28} {row['source']}")
    if not rows:
        click.echo("no keys; `glue keys set PROVIDER` stores one", err=True)


def _variable(name: str) -> str:
    """Give the variable of a provider, or the name of a variable as it is."""
    if re.fullmatch(r"[A-Z][A-Z0-9_]+", name):
        return name
    from glue.providers import lookup

    row = lookup(name)
    if not row.key:
        raise ConfigError(f"{row.name} needs no key")
    return row.key[0]
