"""`glue config`: show and change settings."""

from __future__ import annotations

import click

from glue.cli.bundles import check_bundles
from glue.cli.keys import used_variable
from glue.cli.settings import (
    SETTINGS,
    Setting,
    find_project,
    parse_setting,
    settings,
    user_file,
    write_setting,
)
from glue.cli.tables import json_option, print_json, print_rows
from glue.errors import ConfigError
from glue.providers import default, lookup, split
from glue.stores import store_path
from glue.text import suggest


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def config(ctx: click.Context, as_json: bool) -> None:
    """Show every setting, its value and where it comes from. `glue config set` changes one.

    An option of a command wins over a GLUE_ variable, a variable wins over [tool.glue] in
    pyproject.toml, and pyproject.toml wins over config.toml.
    """
    if ctx.invoked_subcommand is not None:
        return
    set_somewhere = settings()
    found = {name: set_somewhere.get(name, Setting(None, "")) for name in SETTINGS}
    if found["model"].value is None:
        found["model"] = _default_model()
    if found["store"].value is None:
        found["store"] = Setting(str(store_path()), "default")
    if as_json:
        print_json(
            {
                name: {"value": each.value, "source": each.source or None}
                for name, each in found.items()
            }
        )
        return

    def cells(row: tuple[str, Setting]) -> tuple[object, ...]:
        name, (value, source) = row
        shown = ", ".join(value) if isinstance(value, tuple) else value
        return (
            name,
            "" if shown is None else str(shown),
            source or f"not set: {SETTINGS[name][1]}",
        )

    print_rows(list(found.items()), ("setting", "value", "from"), cells, False)
    is_missing = "" if user_file().is_file() else " (does not exist)"
    click.echo(f"\nproject file: {find_project() or 'none'}", err=True)
    click.echo(f"user file:    {user_file()}{is_missing}", err=True)


def _default_model() -> Setting:
    try:
        variable = used_variable(lookup(default()))
        return Setting(default(), f"default, because {variable} is set")
    except ConfigError:
        return Setting(None, "not set, and no API key is set either")


# A value may begin with a dash.
@config.command(name="set", context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("value")
def set_setting(name: str, value: str) -> None:
    """Write a setting to config.toml. Separate the items of a list with commas."""
    plain = name.replace("-", "_")
    if plain not in SETTINGS:
        raise ConfigError(f"unknown setting {name!r}; {suggest(plain, SETTINGS)}")
    if not value.strip():
        raise ConfigError(
            f"{plain} must be {SETTINGS[plain][1]}; `glue config unset {plain}` removes it"
        )
    parsed = parse_setting(plain, value.strip(), "config.toml")
    if plain == "model":
        for each in split(parsed):
            lookup(each)  # raises ConfigError for a wrong name
    elif plain == "tools":
        check_bundles(parsed)
    write_setting(plain, parsed)


@config.command()
@click.argument("name")
def unset(name: str) -> None:
    """Remove a setting from config.toml."""
    write_setting(name.replace("-", "_"), None)


@config.command(name="path")
def config_path() -> None:
    """Print the path of config.toml."""
    click.echo(user_file())
