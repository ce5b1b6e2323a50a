"""`glue config`: what holds, and where it came from."""

from __future__ import annotations

import json

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def config(as_json: bool) -> None:
    """Print every setting, what it is and where that came from.

    Flags go before GLUE_ variables, these before [tool.glue] of pyproject.toml, that before config.toml.
    """
    from glue.commands.keeping import store_path
    from glue.config import SETTINGS, WHAT, find_project, settings, user_file
    from glue.terminal import one_line

    found = settings()
    values = {name: found[name].value if name in found else None for name in SETTINGS}
    sources = {name: found[name].source if name in found else "" for name in SETTINGS}
    if values["model"] is None:
        values["model"], sources["model"] = _default_model()
    if values["store"] is None:
        values["store"], sources["store"] = str(store_path()), "default"
    if as_json:
        click.echo(json.dumps({name: {"value": values[name], "source": sources[name] or None} for name in SETTINGS}))
        return
    for name in SETTINGS:
        value = values[name]
        shown = ", ".join(value) if isinstance(value, tuple) else "-" if value is None else str(value)
        click.echo(f"{name:<12}{one_line(shown):<36}  {sources[name] or 'not set: ' + WHAT[name]}".rstrip())
    project = find_project()
    click.echo(f"\nproject file: {project or 'none here'}", err=True)
    own = user_file()
    click.echo(f"user file:    {own}{'' if own.is_file() else ' (not there)'}", err=True)


def _default_model() -> tuple[str | None, str]:
    from glue.errors import ConfigError
    from glue.providers import default, lookup

    try:
        name = default()
    except ConfigError:
        return None, "not set: no key is set either"
    import os

    variable = next((key for key in lookup(name).key if os.environ.get(key)), "")
    return name, f"default, as {variable} is set"
