"""Settings and keys of the command line: flags, environment variables, files; `glue config` and `glue keys`."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import click

from glue.cli.app import ListGroup
from glue.errors import ConfigError
from glue.paths import config_dir, parse_toml, read_text, write_private
from glue.text import suggest

# Each setting with the form it has in a file and what it must be. As a variable it is GLUE_ and its name in capitals.
SETTINGS: Mapping[str, tuple[type, str]] = {
    "model": (str, "provider and model, such as 'anthropic:claude-haiku-5-5'"),
    "tools": (list, "a list of ready-made tools, such as ['fs', 'git']"),
    "allow": (list, "a list of tools that need not ask, such as ['write_file:docs/*']"),
    "deny": (list, "a list of tools that are never allowed"),
    "max_turns": (int, "a whole number"),
    "max_requests": (int, "a whole number"),
    "token_budget": (int, "a whole number of tokens"),
    "usd_budget": (float, "a number of US dollars"),
    "seconds": (float, "a number of seconds"),
    "store": (str, "the folder, the .db file or the postgresql:// address that keeps sessions"),
    "log": (bool, "true or false: whether runs are logged for `glue runs`"),
}
TABLES = ("review", "aliases")  # tables inside [tool.glue] that are read elsewhere
_WORDS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


class Setting(NamedTuple):
    value: Any
    source: str


def settings(
    flags: Mapping[str, Any] | None = None, environ: Mapping[str, str] = os.environ, folder: str = "."
) -> dict[str, Setting]:
    """Give every setting that is made somewhere, each from the first place that makes it."""
    given = {name: value for name, value in (flags or {}).items() if value not in (None, (), "")}
    places: list[tuple[str, Mapping[str, Any]]] = [("flag", given)]
    said = {name: environ.get(variable(name), "").strip() for name in SETTINGS}
    places += [(variable(name), {name: _parse(name, text, variable(name))}) for name, text in said.items() if text]
    if (project := find_project(folder)) is not None:
        places.append((str(project), read_file(project, trusted=False)))
    if (own := user_file(environ)).is_file():
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
    text = read_text(path)
    if "glue" not in text and path.name == "pyproject.toml":
        return {}
    data = parse_toml(text, str(path))
    table = glue_section(data) if "tool" in data or not trusted else data
    if isinstance(table, dict):
        for name in () if trusted else ("providers", "allow"):
            if name in table:
                raise ConfigError(f"{path}: {name!r} is not taken from a project; set it in {user_file()}")
        table = {name: value for name, value in table.items() if name != "providers"}  # glue.providers reads them
    values = checked(table, str(path))
    store = values.get("store", "")
    if not trusted and (os.path.isabs(store) or ".." in Path(store).parts):
        raise ConfigError(f"{path}: 'store' must stay inside the project, not {store!r}")
    return values


def _is_toml(text: str) -> bool:
    with suppress(ConfigError):
        parse_toml(text, "")
        return True
    return False


def glue_section(data: Mapping[str, Any]) -> Any:
    """Give what stands in `[tool.glue]`."""
    tool = data.get("tool", {})
    return tool.get("glue", {}) if isinstance(tool, dict) else {}


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
    form, what = SETTINGS[name]
    right = {
        bool: isinstance(value, bool),
        str: isinstance(value, str) and bool(value.strip()),
        list: isinstance(value, list) and all(isinstance(item, str) for item in value),
        int: isinstance(value, int) and not isinstance(value, bool) and value >= 0,
        float: isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < float("inf"),
    }[form]
    if not right:
        raise ConfigError(f"{where}: {name} must be {what}, not {value!r}")
    return tuple(value) if form is list else float(value) if form is float else value


def _parse(name: str, text: str, where: str) -> Any:
    """Read a setting from a text; a list is parted by commas."""
    form, value = SETTINGS[name][0], text
    if form is bool:
        return _checked(name, _WORDS.get(text.lower(), text), where)
    if form is list:
        return _checked(name, [part.strip() for part in text.split(",") if part.strip()], where)
    with suppress(ValueError):  # what is no number is refused as any other value
        value = form(text)
    return _checked(name, value, where)


# The header of an agent file ----------------------------------------------------------------------

# As the specification gives it: a block of comments between `# /// script` and `# ///`.
_BLOCK = re.compile(r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$")
MOST = 8 * 1024 * 1024


def read_source(path: str | os.PathLike[str]) -> str:
    """Read an agent file without running it."""
    try:
        with open(path, "rb") as file:
            return file.read(MOST).decode("utf-8", "replace").replace("\r\n", "\n")
    except OSError as error:
        raise ConfigError(f"{os.fspath(path)} cannot be read: {error.strerror}") from error


def parse_header(text: str, name: str = "the file") -> dict[str, Any]:
    """Give the metadata of a file: `requires-python`, `dependencies`, `tool`; empty where it has none."""
    if "# /// script" not in text:
        return {}
    found = [match for match in _BLOCK.finditer(text) if match["type"] == "script"]
    if not found:
        return {}
    if len(found) > 1:
        raise ConfigError(f"{name} has several `# /// script` blocks; one is allowed")
    lines = found[0]["content"].splitlines(keepends=True)
    block = "".join(line[2:] if line.startswith("# ") else line[1:] for line in lines)
    return parse_toml(block, f"{name}: the `# /// script` block")


def glue_table(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Give the checked `[tool.glue]` table of a file's header."""
    header = parse_header(read_source(path), os.fspath(path))
    return checked(glue_section(header), f"{Path(path).name}, [tool.glue]")


# `glue config` ------------------------------------------------------------------------------------


@click.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def config(ctx: click.Context, as_json: bool) -> None:
    """Print every setting, what it is and where that came from; `config set` writes one.

    Flags go before GLUE_ variables, these before [tool.glue] of pyproject.toml, that before config.toml.
    """
    if ctx.invoked_subcommand is not None:
        return
    from glue.cli.output import print_json, print_rows
    from glue.stores import store_path

    made = settings()
    found = {name: made.get(name, Setting(None, "")) for name in SETTINGS}
    if found["model"].value is None:
        from glue.providers import default, lookup

        try:
            key = next((key for key in lookup(default()).key if os.environ.get(key)), "")
            found["model"] = Setting(default(), f"default, as {key} is set")
        except ConfigError:
            found["model"] = Setting(None, "not set: no key is set either")
    if found["store"].value is None:
        found["store"] = Setting(str(store_path()), "default")
    if as_json:
        print_json({name: {"value": each.value, "source": each.source or None} for name, each in found.items()})
        return

    def cells(row: tuple[str, Setting]) -> tuple[object, ...]:
        name, (value, source) = row
        shown = ", ".join(value) if isinstance(value, tuple) else str(value) if value is not None else ""
        return name, shown, source or f"not set: {SETTINGS[name][1]}"

    print_rows(list(found.items()), ("setting", "value", "from"), cells, False)
    click.echo(f"\nproject file: {find_project() or 'none here'}", err=True)
    click.echo(f"user file:    {user_file()}{'' if user_file().is_file() else ' (not there)'}", err=True)


@config.command(name="set", context_settings={"ignore_unknown_options": True})  # a value may begin with -
@click.argument("name")
@click.argument("value")
def set_setting(name: str, value: str) -> None:
    """Write a setting to config.toml; a list is parted by commas."""
    plain = name.replace("-", "_")
    if plain not in SETTINGS:
        raise ConfigError(f"there is no setting {name!r}; {suggest(plain, SETTINGS)}")
    if not value.strip():
        raise ConfigError(f"{plain} must be {SETTINGS[plain][1]}; `glue config unset {plain}` removes it")
    parsed = _parse(plain, value.strip(), "config.toml")
    if plain == "model":
        from glue.providers import lookup, split

        for each in split(parsed):
            lookup(each)  # a wrong name is said now
    elif plain == "tools":
        from glue.cli.catalog import check_bundles

        check_bundles(parsed)
    write_setting(plain, parsed)


@config.command()
@click.argument("name")
def unset(name: str) -> None:
    """Remove a setting from config.toml."""
    write_setting(name.replace("-", "_"), None)


@config.command(name="path")
def config_path() -> None:
    """Print where config.toml is."""
    click.echo(user_file())


def write_setting(name: str, value: Any, table: str = "") -> None:
    """Set one name in the user's config.toml, its other lines as they are; None removes it."""
    path = user_file()
    lines = read_text(path).splitlines() if path.exists() else []
    before, head = parse_toml("\n".join(lines), str(path)), f"[{table}]"
    if table and table not in before and value is not None:
        lines += ["", head]
        before[table] = {}
    section: Mapping[str, Any] = before.get(table, {}) if table else before
    if value is None and name not in section:
        raise ConfigError(f"{name} is not set in {path}")
    at = lines.index(head) + 1 if head in lines else 0
    if name in section:
        is_old = re.compile(rf"\s*[\"']?{re.escape(name)}[\"']?\s*=")
        at = next((number for number in range(at, len(lines)) if is_old.match(lines[number])), len(lines))
        end = at + 1
        while end < len(lines) and not _is_toml("\n".join(lines[at:end])):  # its value may span lines
            end += 1
        del lines[at:end]
    value = list(value) if isinstance(value, tuple) else value
    if value is not None:
        lines.insert(at, f"{name} = {json.dumps(value)}")
    text = "\n".join(lines).lstrip("\n") + "\n"
    after = parse_toml(text, str(path))
    if (after.get(table, {}) if table else after).get(name) != value:
        raise ConfigError(f"{path}: {name} is written in a way that only you can change")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.write_text(text, encoding="utf-8")


# Keys, and `glue keys` ----------------------------------------------------------------------------

_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_]\w*)\s*=\s*([^\0]*?)\s*")


def keys_file() -> Path:
    return config_dir() / "keys.env"


def load_keys() -> None:
    """Put the stored keys into the environment; only their owner may be able to read them."""
    path = keys_file()
    if path.is_file():
        if path.stat().st_mode & 0o077:
            raise ConfigError(f"{path} can be read by others; chmod 600 {path}")
        load_env(path)


def load_env(path: Path) -> None:
    """Put the variables of a file into the environment, where it does not name them itself."""
    for name, value in _read_env(path).items():
        os.environ.setdefault(name, value)


def _read_env(path: Path) -> dict[str, str]:
    found = {}
    for number, line in enumerate(read_text(path).splitlines(), 1):
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
    return _read_env(keys_file()) if keys_file().is_file() else {}


def _write_keys(found: Mapping[str, str]) -> None:
    path = keys_file()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_private(path, "".join(f"{variable}={value}\n" for variable, value in sorted(found.items())))


@click.group(cls=ListGroup)
def keys() -> None:
    """Store, list and remove keys of providers. The environment goes before what is stored."""


@keys.command(name="set")
@click.argument("name")
def set_key(name: str) -> None:
    """Store a key, of a provider or a variable. It is asked for, or read from stdin."""
    variable = _key_variable(name)
    is_terminal = sys.stdin is not None and sys.stdin.isatty()
    value = click.prompt(variable, hide_input=True, err=True) if is_terminal else sys.stdin.readline()
    value = str(value).strip()
    if not value or not value.isascii() or not value.isprintable() or " " in value:
        raise ConfigError("a key is one word of printable ASCII letters; nothing was stored")
    _write_keys({**_stored(), variable: value})
    click.echo(f"{variable} is stored in {keys_file()}", err=True)


@keys.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_keys(as_json: bool) -> None:
    """List the variables that hold a key, never the keys."""
    from glue.providers import known, lookup

    stored = _stored()
    rows = []
    for variable in sorted({key for name in known() for key in lookup(name).key} | set(stored)):
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


@keys.command(name="path")
def keys_path() -> None:
    """Print where keys are stored."""
    click.echo(keys_file())


@keys.command()
@click.argument("name")
def remove(name: str) -> None:
    """Remove a stored key."""
    variable, stored = _key_variable(name), _stored()
    if stored.pop(variable, None) is None:
        raise ConfigError(f"{variable} is not stored; there are: {', '.join(sorted(stored)) or 'none'}")
    _write_keys(stored)


def _key_variable(name: str) -> str:
    """Give the variable of a provider, or the name of a variable as it is."""
    if re.fullmatch(r"[A-Z][A-Z0-9_]+", name):
        return name
    from glue.providers import lookup

    row = lookup(name)
    if not row.key:
        raise ConfigError(f"{row.name} needs no key")
    return row.key[0]
