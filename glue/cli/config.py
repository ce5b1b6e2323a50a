"""Settings of the command line: flags, then environment variables, then files; and `glue config`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click

from glue.errors import ConfigError
from glue.paths import config_dir

# Each setting with the form it has in a file. As a variable it is GLUE_ and its name in capitals.
SETTINGS: Mapping[str, type] = {
    "model": str,
    "tools": list,
    "allow": list,
    "deny": list,
    "max_turns": int,
    "budget_usd": float,
    "timeout": float,
    "store": str,
}
WHAT: Mapping[str, str] = {
    "model": "provider and model, such as 'anthropic:claude-haiku-4-5'",
    "tools": "a list of ready-made tools, such as ['fs', 'git']",
    "allow": "a list of tools that need not ask, such as ['write_file:docs/*']",
    "deny": "a list of tools that are never allowed",
    "max_turns": "a whole number",
    "budget_usd": "a number of US dollars",
    "timeout": "a number of seconds",
    "store": "the folder, or the .db file, that keeps sessions",
}
TABLES = ("review",)  # tables inside [tool.glue] that belong to others


class Setting(NamedTuple):
    value: Any
    source: str


def settings(
    flags: Mapping[str, Any] | None = None, environ: Mapping[str, str] = os.environ, folder: str = "."
) -> dict[str, Setting]:
    """Give every setting that is made somewhere, each from the first place that makes it."""
    places: list[tuple[str, Mapping[str, Any]]] = []
    given = {name: value for name, value in (flags or {}).items() if value not in (None, (), "")}
    places.append(("flag", given))
    places += [(variable(name), {name: value}) for name, value in from_environment(environ).items()]
    project = find_project(folder)
    if project is not None:
        places.append((str(project), read_file(project, trusted=False)))
    own = user_file(environ)
    if own.is_file():
        places.append((str(own), read_file(own)))
    found: dict[str, Setting] = {}
    for source, values in places:
        for name, value in values.items():
            found.setdefault(name, Setting(value, source))
    return found


def variable(name: str) -> str:
    return f"GLUE_{name.upper()}"


def user_file(environ: Mapping[str, str] = os.environ) -> Path:
    return config_dir(environ) / "config.toml"


def find_project(folder: str = ".") -> Path | None:
    """Find the nearest pyproject.toml, here or above, up to the top of the checkout."""
    here = Path(folder).resolve()
    for place in (here, *here.parents):
        if (place / "pyproject.toml").is_file():
            return place / "pyproject.toml"
        if (place / ".git").exists():
            return None
    return None


def read_file(path: Path, *, trusted: bool = True) -> dict[str, Any]:
    """Read `[tool.glue]` of a pyproject.toml, or all of a config.toml.

    A project may not grant itself permissions: whoever wrote the checkout need not be who runs glue in it.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if "glue" not in text and path.name == "pyproject.toml":
        return {}
    import tomllib

    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is no valid TOML: {error}") from None
    tool = data.get("tool", {})
    table = (tool.get("glue", {}) if isinstance(tool, dict) else {}) if "tool" in data or not trusted else data
    values = checked(table, str(path))
    if not trusted:
        _check_untrusted(values, path)
    return values


def _check_untrusted(values: Mapping[str, Any], path: Path) -> None:
    if "allow" in values:
        raise ConfigError(f"{path}: 'allow' is not taken from a project; give --allow, or set it in {user_file()}")
    store = values.get("store", "")
    if os.path.isabs(store) or ".." in Path(store).parts:
        raise ConfigError(f"{path}: 'store' must stay inside the project, not {store!r}")


def checked(table: Any, where: str) -> dict[str, Any]:
    """Check a table of settings; a fault says where, what, and what would be right."""
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: must be a table, not {table!r}")
    values: dict[str, Any] = {}
    for name, value in table.items():
        plain = name.replace("-", "_")
        if plain in SETTINGS:
            values[plain] = _checked(plain, value, where)
        elif name not in TABLES:
            raise ConfigError(f"{where}: there is no setting {name!r}; there are: {', '.join(SETTINGS)}")
    return values


def _checked(name: str, value: Any, where: str) -> Any:
    form = SETTINGS[name]
    right = {
        str: isinstance(value, str) and bool(value.strip()),
        list: isinstance(value, list) and all(isinstance(item, str) for item in value),
        int: isinstance(value, int) and not isinstance(value, bool) and value >= 0,
        float: isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < float("inf"),
    }[form]
    if not right:
        raise ConfigError(f"{where}: {name} must be {WHAT[name]}, not {value!r}")
    return tuple(value) if form is list else float(value) if form is float else value


def from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """Read the GLUE_ variables; lists are parted by commas."""
    values: dict[str, Any] = {}
    for name, form in SETTINGS.items():
        text = environ.get(variable(name), "").strip()
        if not text:
            continue
        value: Any = text
        if form is list:
            value = [part.strip() for part in text.split(",") if part.strip()]
        elif form is not str:
            try:
                value = form(text)
            except ValueError:
                pass  # said below
        values[name] = _checked(name, value, variable(name))
    return values


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def config(as_json: bool) -> None:
    """Print every setting, what it is and where that came from.

    Flags go before GLUE_ variables, these before [tool.glue] of pyproject.toml, that before config.toml.
    """
    from glue.cli.sessions import store_path
    from glue.text import one_line

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


HOW = {
    "bash": 'eval "$(glue completion bash)"     # in ~/.bashrc',
    "zsh": 'eval "$(glue completion zsh)"      # in ~/.zshrc',
    "fish": "glue completion fish | source      # in ~/.config/fish/config.fish",
}


@click.command()
@click.argument("shell", type=click.Choice(tuple(HOW)))
def completion(shell: str) -> None:
    """Print a completion script for your shell.

    \b
    eval "$(glue completion bash)"     # in ~/.bashrc
    eval "$(glue completion zsh)"      # in ~/.zshrc
    glue completion fish | source      # in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    from glue.cli.app import commands

    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"there is no completion for {shell}")
    made = found(commands, {}, "glue", "_GLUE_COMPLETE")
    # Not source(): for bash that starts a shell to ask for its version.
    click.echo(made.source_template % made.source_vars())
