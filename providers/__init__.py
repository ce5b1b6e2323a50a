"""Providers by name: rows of data, one file per wire, retries and failover.

`new("groq:llama-3.1-8b-instant")`, `new("anthropic,gemini")`, or `new()` for what GLUE_MODEL names.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from os import environ
from typing import TYPE_CHECKING, Any, TypeAlias

from glue.errors import ConfigError, MissingKey, UnknownProvider
from glue.lazy import lazy_names

if TYPE_CHECKING:
    from glue import Capabilities, Provider
    from glue.providers.catalog import Row
    from glue.providers.failover import with_failover as with_failover
    from glue.providers.http import HTTP as HTTP
    from glue.providers.http import Deadlines as Deadlines
    from glue.providers.http import HTTPResponse as HTTPResponse
    from glue.providers.offline import Offline as Offline
    from glue.providers.retry import with_escalation as with_escalation
    from glue.providers.retry import with_retries as with_retries
    from glue.providers.wire import ToolRules, Wire

__all__ = [
    "HTTP",
    "Deadlines",
    "HTTPResponse",
    "Offline",
    "capabilities",
    "default",
    "key_available",
    "known",
    "lookup",
    "new",
    "parse",
    "register",
    "tool_rules",
    "with_escalation",
    "with_failover",
    "with_retries",
]

# Takes the model (or "") and options, and returns a provider.
Factory: TypeAlias = "Callable[..., Provider]"

GROUP = "glue.providers"  # entry points of other packages
CLOUDS = ("aws", "google")  # kinds of `auth` whose credentials the wire itself looks for

_PLACE = re.compile(r"\{([^}]+)\}")

_registry: dict[str, tuple[Row, Factory]] = {}
_configured: dict[str, int] = {}  # the config file that was read, and as of when
_config_faults: list[str] = []  # why it could not be read
_aliases: dict[str, str] = {}  # the user's own names of models


def register(
    name: str,
    factory: Factory,
    *,
    key: Sequence[str] = (),
    model: str = "",
    window: int = 128_000,
    row: Row | None = None,
) -> None:
    """Make a provider known under a name; `factory(model, **options)` is called by `new`.

    Nothing is read or opened here. `key` names the variables that may hold its key.
    """
    from glue.providers.catalog import Row

    name = name.strip().lower()
    if not name or any(sign in name for sign in ":/, "):
        raise ValueError(f"a provider's name must not hold ':', '/', ',' or a space: {name!r}")
    _built_in()
    _registry[name] = (row or Row(name, wire="", base_url="", key=tuple(key), model=model, window=window), factory)


def new(spec: str = "", **options: Any) -> Provider:
    """Make a provider from "name", "name:model" or "name/model"; several, with commas, fail over.

    Options: `key`, `base_url`, `headers`, `wire`, `deadlines`, and `retries=False` for none. The
    caller closes what it gets with `aclose()`.
    """
    if not isinstance(spec, str):
        raise TypeError(f"a provider is named by a text such as 'openai:gpt-5.4-nano', not {spec!r}")
    specs = split(spec.strip() or default())
    if len(specs) > 1:
        from glue.providers.failover import named_chain

        return named_chain(specs, options)
    name, model = resolve(specs[0]) if specs else ("", "")
    _, factory = _find(name)
    return factory(model, **options)


def aliases() -> Mapping[str, str]:
    """Return the user's own names of models, from `[aliases]` in config.toml."""
    _load_config()
    return _aliases


def split(spec: str) -> list[str]:
    """Split names with commas, and put what it stands for in the place of each alias."""
    found: list[str] = []
    for name in filter(None, (part.strip() for part in spec.split(","))):
        found += [name] if _is_known(parse(name)[0]) else _aliases.get(name, name).split(",")
    return [name.strip() for name in found]


def parse(spec: str) -> tuple[str, str]:
    """Split "name:model" or "name/model" at the first of the two signs; the model may hold both."""
    spec = spec.strip()
    at = min((spec.index(sign) for sign in ":/" if sign in spec), default=len(spec))
    return spec[:at].strip().lower(), spec[at + 1 :].strip()


def resolve(spec: str) -> tuple[str, str]:
    """Split as `parse` does; a bare model name that exactly one vendor has means that vendor's provider."""
    spec = next(iter(split(spec)), "")
    name, model = parse(spec)
    if not _is_known(name):
        from glue.providers.models import vendors_of

        if len(vendors := vendors_of(spec.strip())) == 1:
            return vendors[0], spec.strip()
    return name, model


def lookup(name: str) -> Row:
    """Return what is known of a provider."""
    return _find(resolve(name)[0])[0]


def known() -> tuple[str, ...]:
    """Return the names that can be used, sorted: our rows, the user's own, what was registered, other packages'."""
    _built_in()
    _load_config()
    return tuple(sorted({*_registry, *plugins()}))


@functools.cache
def _points() -> Mapping[str, Any]:
    from importlib.metadata import entry_points

    return {point.name.lower(): point for point in entry_points(group=GROUP)}


def plugins() -> tuple[str, ...]:
    """Return the names that other packages offer and that are not loaded yet."""
    return tuple(name for name in _points() if name not in _registry)


def key_available(name: str, environ: Mapping[str, str] = environ) -> bool:
    """Say whether a provider's key is set, or none is needed."""
    row = lookup(name)
    if not row.key or row.quirks.local or any(environ.get(variable) for variable in row.key):
        return True
    if row.auth not in CLOUDS:
        return False
    return bool(import_module(f"glue.providers.{row.auth}").has_credentials(environ))


def capabilities(spec: str) -> Capabilities:
    """Return what a provider, or one model of it, can do and costs; of several, what all of them can."""
    from glue.provider import common
    from glue.providers.models import capabilities_of

    specs = [resolve(part) for part in split(spec)]
    found = [capabilities_of(lookup(name), model) for name, model in specs]
    return found[0] if len(found) == 1 else common(found)


def default(environ: Mapping[str, str] = environ, *, otherwise: str = "") -> str:
    """Return GLUE_MODEL, or the first provider whose key is set, or else `otherwise`."""
    if named := environ.get("GLUE_MODEL", "").strip():
        return named
    _built_in()
    variables = []
    for name, (row, _) in _registry.items():
        if row.key and not row.quirks.local:
            if any(environ.get(variable) for variable in row.key):
                return name
            variables.append(row.key[0])
    if otherwise:
        return otherwise
    raise ConfigError(
        f"no model is named and no key is set; set GLUE_MODEL, or a key such as {', '.join(variables[:3])}; "
        "'offline' needs none"
    )


def _is_known(name: str) -> bool:
    _built_in()
    if name not in _registry:
        _load_config()
    return name in _registry or name in _points()


def _find(name: str) -> tuple[Row, Factory]:
    if _is_known(name) and name not in _registry:
        _load_plugin(name)
    if name in _registry:
        return _registry[name]
    from difflib import get_close_matches

    from glue.providers.models import VENDORS, find, models_of

    names = known()
    models = {model: f"{vendor}:{found.name}" for vendor in VENDORS for model, found in models_of(vendor).items()}
    exact = [f"{each}:{name}" for each in names if find(each, name)][:3]
    close = (
        exact
        or get_close_matches(name, names, 3, 0.65)
        or [models[each] for each in get_close_matches(name, models, 3, 0.75)]
    )
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    faults = "".join(f"{fault}; " for fault in _config_faults)
    raise UnknownProvider(f"unknown provider {name!r}; {faults}{hint}there are: {', '.join(names)}", name, close)


def _built_in() -> None:
    if not _registry:
        from glue.providers.catalog import ROWS, Row

        for row in ROWS:
            _registry[row.name] = (row, functools.partial(_open, row))
        _registry["offline"] = (Row("offline", wire="", base_url="", model="offline"), _offline)


def _offline(model: str = "", **options: Any) -> Provider:
    from glue.providers.offline import Offline

    return Offline(model=model or "offline", **{name: value for name, value in options.items() if name == "rules"})


def _load_plugin(name: str) -> None:
    """Load what another package offers under a name: a module that registers itself, or a factory."""
    point = _points()[name]
    try:
        loaded = point.load()
    except Exception as error:
        package = point.dist.name if point.dist is not None else point.value
        raise ConfigError(f"{name}: the package {package} cannot be loaded: {type(error).__name__}: {error}") from error
    if name not in _registry and callable(loaded):
        register(name, loaded)
    if name not in _registry:
        raise ConfigError(f"{name}: {point.value} registers no provider of this name")


def _load_config() -> None:
    """Take the user's own providers and aliases from config.toml of the user's folder, never from a checkout's."""
    from glue.paths import config_dir, parse_toml, read_text

    path = config_dir() / "config.toml"
    try:
        stamp = path.stat().st_mtime_ns
    except (FileNotFoundError, NotADirectoryError):
        stamp = 0  # there is none
    except OSError:
        stamp = -1
    if _configured == {str(path): stamp}:
        return
    _configured.clear()
    _aliases.clear()
    _config_faults.clear()
    config: dict[str, Any] = {}
    try:
        config = parse_toml(read_text(path), str(path)) if stamp else {}
    except ConfigError as error:
        _config_faults.append(str(error))  # told with a name that is unknown; the others need no file
    tables, own = config.get("providers", {}), config.get("aliases", {})
    if not isinstance(tables, dict):
        raise ConfigError(f"{path}: 'providers' must be tables such as [providers.acme]")
    _aliases.update({name: str(spec) for name, spec in own.items()} if isinstance(own, dict) else {})
    for name, table in tables.items():
        row = _own_row(name.strip().lower(), table, f"{path}: [providers.{name}]")
        try:
            register(row.name, functools.partial(_open, row), row=row)
        except ValueError as error:
            raise ConfigError(f"{path}: {error}") from None
    _configured[str(path)] = stamp


def _own_row(name: str, table: Any, where: str) -> Row:
    from dataclasses import asdict

    from glue.providers.catalog import PLAIN, row_of

    kinds: dict[str, Any] = {"wire": str, "base_url": str, "key": (str, list), "model": str, "window": int, "auth": str}
    kinds["quirks"] = dict
    if not isinstance(table, dict) or not isinstance(table.get("base_url"), str):
        raise ConfigError(f'{where}: base_url is missing, such as "https://host/v1"')
    _check_kinds(table, kinds, where)
    quirks = {name: list if isinstance(value, tuple) else type(value) for name, value in asdict(PLAIN).items()}
    _check_kinds(table.get("quirks", {}), quirks, f"{where}: quirks")
    key = table.get("key", [])
    own = {**table, "key": [key] if isinstance(key, str) else key}
    own["quirks"] = {"local": not key, **table.get("quirks", {})}
    wire_class(table.get("wire", "openai_chat"))
    return row_of(name, own)


def _check_kinds(fields: Mapping[str, Any], kinds: Mapping[str, Any], where: str) -> None:
    for field, value in fields.items():
        if field not in kinds:
            raise ConfigError(f"{where}: {field!r} is unknown; there are: {', '.join(kinds)}")
        if not isinstance(value, kinds[field]):
            kind = "no text" if kinds[field] is str else "of the wrong kind"
            raise ConfigError(f"{where}: {field} is {kind}")


# From a row to a provider --------------------------------------------------------------------------


def _open(
    row: Row,
    model: str = "",
    *,
    key: str | None = None,
    base_url: str | None = None,
    headers: Mapping[str, str] | None = None,
    wire: str = "",
    deadlines: Deadlines | None = None,
    retries: bool = True,
    engine: str = "",
) -> Provider:
    """Make a provider of a row."""
    from glue.providers.http import HTTP
    from glue.providers.retry import with_retries

    if key is None:
        variables = row.key[:1] if row.auth in CLOUDS else row.key  # the others the wire itself makes use of
        key = next((environ[name].strip() for name in variables if environ.get(name, "").strip()), "")
    url = base_url or find_base_url(row, environ)
    if not key and row.key and not row.quirks.local and row.auth not in CLOUDS:
        raise MissingKey(row.name, row.key)
    if not (model or row.model):
        raise ConfigError(f"{row.name}: which model? name it as {row.name}:MODEL")
    if wire or (row.elsewhere and url != row.base_url):
        row = replace(row, wire=wire or row.elsewhere)
    bearer = row.auth in ("bearer", *CLOUDS)
    auth = {"authorization": f"Bearer {key}"} if bearer else {row.auth: key}
    http = HTTP(
        url,
        provider=row.name,
        headers={**(auth if key else {}), **(headers or {})},
        secrets=[key, *(headers or {}).values()],
        deadlines=deadlines,
        engine=engine,
    )
    provider = wire_class(row.wire)(row, http, model)
    return with_retries(provider) if retries else provider


def find_base_url(row: Row, environ: Mapping[str, str]) -> str:
    """Return NAME_BASE_URL where it is set, else the row's own with the variables in it filled in."""
    own = row.name.upper().replace("-", "_") + "_BASE_URL"
    for variable in (own, *row.base_url_env):
        if environ.get(variable):
            return environ[variable]

    def fill(place: re.Match[str]) -> str:
        names = place[1].split("|")
        for name in names:
            if environ.get(name):
                return environ[name].rstrip("/")
        if row.auth == "aws" or "AWS_REGION" in names:
            from glue.providers.aws import find_region

            if region := find_region(environ):
                return region
        if not names[-1].isupper():
            return names[-1]
        raise ConfigError(f"{row.name}: no address; set {' or '.join(names)}, or give base_url")

    # Google has no regional host for its global location.
    return _PLACE.sub(fill, row.base_url).replace("://global-", "://")


def wire_class(name: str) -> type[Wire]:
    """Import a wire and return its provider class."""
    from glue.providers.catalog import ROWS
    from glue.providers.wire import Wire

    if name not in (wires := sorted({row.wire for row in ROWS})):
        raise ConfigError(f"there is no wire {name!r}; there are: {', '.join(wires)}")
    module = import_module(f"glue.providers.{name}")
    found = (value for value in vars(module).values() if isinstance(value, type) and issubclass(value, Wire))
    return next(value for value in found if value.__module__ == module.__name__)


def tool_rules() -> dict[str, ToolRules]:
    """Return what each wire is known to refuse in a tool."""
    from glue.providers.catalog import ROWS

    wires = {row.wire: wire_class(row.wire) for row in ROWS}
    return {name: wire.tool_rules for name, wire in sorted(wires.items()) if "tool_rules" in vars(wire)}


__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "retry": "with_escalation with_retries",
        "http": "HTTP HTTPResponse Deadlines",
        "failover": "with_failover",
        "offline": "Offline",
    },
)
