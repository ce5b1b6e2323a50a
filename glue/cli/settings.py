"""Settings of the command line, from flags, GLUE_ variables, pyproject.toml and config.toml."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from glue.cli.header import glue_section
from glue.errors import ConfigError
from glue.paths import config_dir, parse_toml, read_text

# Each setting with its type in a file and a description of valid values. The variable of a setting
# is GLUE_ and its name in capitals.
SETTINGS: Mapping[str, tuple[type, str]] = {
    "model": (str, "provider and model, such as 'anthropic:claude-haiku-5-5'"),
    "tools": (list, "a list of built-in tools, such as ['fs', 'git']"),
    "allow": (list, "a list of tools that run without asking, such as ['write_file:docs/*']"),
    "deny": (list, "a list of tools that never run"),
    "max_turns": (int, "a whole number"),
    "max_requests": (int, "a whole number"),
    "token_budget": (int, "a whole number of tokens"),
    "usd_budget": (float, "a number of US dollars"),
    "seconds": (float, "a number of seconds"),
    "on_question": (str, "ask, defer or deny: what `glue run` does if a tool needs permission"),
    "sandbox": (
        str,
        "auto, require or off: run commands in a sandbox if one works, only there, or without",
    ),
    "network": (bool, "true or false: whether commands in the sandbox may use the network"),
    "questions": (str, "all or writes: which commands of the shell tool ask for permission"),
    "store": (str, "the folder, .db file or postgresql:// address that stores sessions"),
    "chat_days": (int, "a whole number of days for which chats without a name are kept"),
    "log": (bool, "true or false: whether runs are logged for `glue runs`"),
}
ON_QUESTION = ("ask", "defer", "deny")
SANDBOXES = ("auto", "require", "off")
QUESTIONS = ("all", "writes")
CHOICES = {"on_question": ON_QUESTION, "sandbox": SANDBOXES, "questions": QUESTIONS}
# Settings that a project may not set: its author would grant permissions to the project's content.
NOT_OF_A_PROJECT = ("providers", "allow", "sandbox", "network", "questions")
TABLES = ("review", "aliases")  # tables inside [tool.glue] that other modules read
_BOOLEANS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


class Setting(NamedTuple):
    """The value of a setting, and the flag, variable or file that it comes from."""

    value: Any
    source: str


def settings(
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] = os.environ,
    folder: str = ".",
) -> dict[str, Setting]:
    """Return the settings that have a value, by name, each with the source of its value.

    A flag wins over an environment variable, and a variable wins over a file. The project's
    pyproject.toml wins over the user's config.toml.
    """
    given = {name: value for name, value in (flags or {}).items() if value not in (None, (), "")}
    places: list[tuple[str, Mapping[str, Any]]] = [("flag", given)]
    for name in SETTINGS:
        text = environ.get(variable(name), "").strip()
        if text:
            places.append((variable(name), {name: parse_setting(name, text, variable(name))}))
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
    """Return the name of the environment variable of a setting, such as GLUE_MODEL."""
    return f"GLUE_{name.upper()}"


def user_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the user's config.toml, which may not exist."""
    return config_dir(environ) / "config.toml"


def find_project(folder: str = ".") -> Path | None:
    """Return the nearest pyproject.toml in `folder` or a folder above it, or None.

    The search ends at the top of the checkout; outside a checkout, at the root of the file system.
    """
    here = Path(folder).resolve()
    for place in (here, *here.parents):
        if (place / "pyproject.toml").is_file():
            return place / "pyproject.toml"
        if (place / ".git").exists():
            return None
    return None


def read_file(path: Path, *, trusted: bool = True) -> dict[str, Any]:
    """Return the checked settings in `[tool.glue]` of a pyproject.toml, or in a config.toml.

    A project file is not trusted: the author of a checkout may not be its user. So
    it can neither grant permissions, nor change the sandbox, nor define providers, nor store
    sessions outside the project.
    """
    text = read_text(path)
    if "glue" not in text and path.name == "pyproject.toml":
        return {}
    data = parse_toml(text, str(path))
    table = glue_section(data) if "tool" in data or not trusted else data
    if isinstance(table, dict):
        for name in NOT_OF_A_PROJECT:
            if name in table and not trusted:
                raise ConfigError(
                    f"{path}: the setting {name!r} is not accepted from a project; "
                    f"set it in {user_file()}"
                )
        # The catalog of providers reads their table itself.
        table = {name: value for name, value in table.items() if name != "providers"}
    values = check_settings(table, str(path))
    store = values.get("store", "")
    is_outside = (
        os.path.isabs(store)
        or store.startswith("~")
        or ".." in Path(store).parts
        or "://" in store  # the address of a database
    )
    if is_outside and not trusted:
        raise ConfigError(
            f"{path}: 'store' must be a path inside the project, not {store!r}; "
            f"set another store in {user_file()}"
        )
    return values


def check_settings(table: Any, where: str) -> dict[str, Any]:
    """Return the settings of a TOML table; raise ConfigError for an unknown or invalid setting.

    The error names the file (`where`), the setting and the valid form.
    """
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: must be a table, not {table!r}")
    values: dict[str, Any] = {}
    for name, value in table.items():
        plain = name.replace("-", "_")
        if plain in SETTINGS:
            values[plain] = _check(plain, value, where)
        elif name not in TABLES:
            names = ", ".join(SETTINGS)
            raise ConfigError(f"{where}: unknown setting {name!r}; settings: {names}")
    return values


def _check(name: str, value: Any, where: str) -> Any:
    form, description = SETTINGS[name]
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    is_valid = {
        bool: isinstance(value, bool),
        str: isinstance(value, str) and bool(value.strip()),
        list: isinstance(value, list) and all(isinstance(item, str) for item in value),
        int: is_number and isinstance(value, int) and value >= 0,
        float: is_number and 0 <= value < float("inf"),
    }[form]
    if not is_valid or (name in CHOICES and value not in CHOICES[name]):
        raise ConfigError(f"{where}: the setting {name} must be {description}, not {value!r}")
    if form is list:
        return tuple(value)
    return float(value) if form is float else value


def parse_setting(name: str, text: str, where: str) -> Any:
    """Return the checked value of a setting given as text; commas separate items of a list."""
    form, value = SETTINGS[name][0], text
    if form is bool:
        return _check(name, _BOOLEANS.get(text.lower(), text), where)
    if form is list:
        return _check(name, [part.strip() for part in text.split(",") if part.strip()], where)
    with suppress(ValueError):  # _check refuses a text that is not a number
        value = form(text)
    return _check(name, value, where)


def write_setting(name: str, value: Any, table: str = "") -> None:
    """Set a name in the user's config.toml, or remove it if `value` is None; keep all other lines.

    `table` is the TOML table of the name, "" for the top of the file. Raise ConfigError if the name
    is not set and should be removed, or if its form in the file cannot be changed here.
    """
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
        at = _remove_assignment(lines, name, at)
    value = list(value) if isinstance(value, tuple) else value
    if value is not None:
        lines.insert(at, f"{name} = {json.dumps(value)}")
    text = "\n".join(lines).lstrip("\n") + "\n"
    after = parse_toml(text, str(path))
    if (after.get(table, {}) if table else after).get(name) != value:
        raise ConfigError(
            f"{name} cannot be changed in {path} because of how it is written there; edit the file"
        )
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.write_text(text, encoding="utf-8")


def _remove_assignment(lines: list[str], name: str, start: int) -> int:
    """Delete the first assignment of a name, and return its index, or `len(lines)` if none exists.

    The search begins at the index `start` of `lines`. An assignment may have several lines.
    """
    assignment = re.compile(rf"\s*[\"']?{re.escape(name)}[\"']?\s*=")
    numbers = range(start, len(lines))
    at = next((number for number in numbers if assignment.match(lines[number])), len(lines))
    end = at + 1
    while end < len(lines) and not _is_toml("\n".join(lines[at:end])):  # a value of several lines
        end += 1
    del lines[at:end]
    return at


def _is_toml(text: str) -> bool:
    with suppress(ConfigError):
        parse_toml(text, "")
        return True
    return False
