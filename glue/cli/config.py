"""Settings of the command line: flags, then environment variables, then files; and `glue config`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click

from glue.errors import ConfigError
from glue.paths import config_dir
from glue.text import suggest

# Each setting with the form it has in a file. As a variable it is GLUE_ and its name in capitals.
SETTINGS: Mapping[str, type] = {
    "model": str,
    "tools": list,
    "allow": list,
    "deny": list,
    "max_turns": int,
    "max_requests": int,
    "token_budget": int,
    "usd_budget": float,
    "seconds": float,
    "store": str,
    "log": bool,
}
WHAT: Mapping[str, str] = {
    "model": "provider and model, such as 'anthropic:claude-haiku-4-5'",
    "tools": "a list of ready-made tools, such as ['fs', 'git']",
    "allow": "a list of tools that need not ask, such as ['write_file:docs/*']",
    "deny": "a list of tools that are never allowed",
    "max_turns": "a whole number",
    "max_requests": "a whole number",
    "token_budget": "a whole number of tokens",
    "usd_budget": "a number of US dollars",
    "seconds": "a number of seconds",
    "store": "the folder, or the .db file, that keeps sessions",
    "log": "true or false: whether runs are logged for `glue runs`",
}
TABLES = ("review", "aliases")  # tables inside [tool.glue] that are read elsewhere


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
    if isinstance(table, dict) and "providers" in table:
        if not trusted:
            raise ConfigError(f"{path}: 'providers' is not taken from a project; set it in {user_file()}")
        table = {name: value for name, value in table.items() if name != "providers"}  # glue.providers reads them
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
        bool: isinstance(value, bool),
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
        if form is bool:
            value = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}.get(
                text.lower(), text
            )
        elif form is list:
            value = [part.strip() for part in text.split(",") if part.strip()]
        elif form is not str:
            try:
                value = form(text)
            except ValueError:
                pass  # said below
        values[name] = _checked(name, value, variable(name))
    return values


@click.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def config(ctx: click.Context, as_json: bool) -> None:
    """Print every setting, what it is and where that came from; `config set` writes one.

    Flags go before GLUE_ variables, these before [tool.glue] of pyproject.toml, that before config.toml.
    """
    if ctx.invoked_subcommand is None:
        show_settings(as_json)


@config.command(name="set")
@click.argument("name")
@click.argument("value")
def set_(name: str, value: str) -> None:
    """Write a setting to config.toml; a list is parted by commas."""
    plain = name.replace("-", "_")
    if plain not in SETTINGS:
        raise ConfigError(f"there is no setting {name!r}; {suggest(plain, SETTINGS)}")
    parsed = from_environment({variable(plain): value})
    if plain not in parsed:
        raise ConfigError(f"{plain} must be {WHAT[plain]}; `glue config unset {plain}` removes it")
    write_setting(plain, parsed[plain])


@config.command()
@click.argument("name")
def unset(name: str) -> None:
    """Remove a setting from config.toml."""
    write_setting(name.replace("-", "_"), None)


@config.command()
def path() -> None:
    """Print where config.toml is."""
    click.echo(user_file())


def write_setting(name: str, value: Any, table: str = "") -> None:
    """Set one name in the user's config.toml, its other lines as they are; None removes it."""
    path = user_file()
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    starts = [at for at, line in enumerate(lines) if line.lstrip().startswith("[")] + [len(lines)]
    begin, end = 0, starts[0]
    if table:
        begin = next((at + 1 for at in starts[:-1] if lines[at].strip() == f"[{table}]"), -1)
        if begin < 0:
            lines += ["", f"[{table}]"] if lines else [f"[{table}]"]
            begin = len(lines)
            starts.append(begin)
        end = next((at for at in sorted(starts) if at >= begin), len(lines))
    is_there = [at for at in range(begin, end) if re.match(rf"\s*\"?{re.escape(name)}\"?\s*=", lines[at])]
    if value is None and not is_there:
        raise ConfigError(f"{name} is not set in {path}")
    for at in reversed(is_there):
        del lines[at]
    if value is not None:
        text = json.dumps(list(value) if isinstance(value, tuple) else value)
        lines.insert(is_there[0] if is_there else begin, f"{name} = {text}")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def aliases() -> dict[str, str]:
    """Give the user's own names of models."""
    import tomllib

    path = user_file()
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8")).get("aliases", {}) if path.is_file() else {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}


def resolve_alias(spec: Any) -> Any:
    """Put the model in the place of each alias in a name, or a list of names with commas."""
    if not isinstance(spec, str) or not user_file().is_file():
        return spec
    known = aliases()
    return ",".join(known.get(name.strip(), name) for name in spec.split(","))


def show_settings(as_json: bool) -> None:
    from glue.cli.output import print_table
    from glue.cli.sessions import store_path

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
    rows = []
    for name in SETTINGS:
        value = values[name]
        shown = ", ".join(value) if isinstance(value, tuple) else str(value) if value is not None else ""
        rows.append((name, shown, sources[name] or f"not set: {WHAT[name]}"))
    print_table(rows, ("setting", "value", "from"))
    project = find_project()
    click.echo(f"\nproject file: {project or 'none here'}", err=True)
    own = user_file()
    click.echo(f"user file:    {own}{'' if own.is_file() else ' (not there)'}", err=True)


def _default_model() -> tuple[str | None, str]:
    from glue.providers import default, lookup

    try:
        name = default()
    except ConfigError:
        return None, "not set: no key is set either"
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
