"""The registry of providers: built-in providers, the user's, and providers of other packages."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, TypeAlias

# Opening a provider needs anyio and the HTTP client, listing names does not. So the functions that
# open are used as attributes of the package `providers`, which loads them at their first use.
from glue import Provider, providers
from glue.errors import ConfigError, MissingKey, UnknownProvider
from glue.provider import Capabilities, common
from glue.providers import config
from glue.providers.catalog import CLOUDS, ENTRIES, Entry
from glue.providers.models import VENDORS, models_of, vendors_of
from glue.providers.wire import capabilities_of

log = logging.getLogger("glue.failover")

# Takes the model (or "") and options, and returns a provider.
Factory: TypeAlias = Callable[..., Provider]

GROUP = "glue.providers"  # the entry-point group of other packages

_registry: dict[str, tuple[Entry, Factory]] = {}
_config_read: dict[str, int] = {}  # the config file that was read, and its time of change
_config_faults: list[str] = []  # why the config file could not be read
_aliases: dict[str, str] = {}  # the user's own names for models


def register(
    name: str,
    factory: Factory,
    *,
    key: Sequence[str] = (),
    model: str = "",
    window: int = 128_000,
    entry: Entry | None = None,
) -> None:
    """Register a provider under a name, so that `new` and the command line know it.

    >>> from glue.testing import Script
    >>> register("acme", lambda model, **options: Script("hi", name="acme", model=model))
    >>> new("acme:small").model
    'small'

    Nothing is read or opened until `new` is called.

    Args:
        name: the name, without ':', '/', ',' and spaces. A known name is replaced.
        factory: called by `new` as `factory(model, **options)`; returns a provider.
        key: the environment variables for the key; the first that is set is used.
        model: the default model.
        window: the context window of the default model in tokens.
        entry: everything known about the provider, instead of `key`, `model` and `window`.
    """
    name = name.strip().lower()
    if not name or any(sign in name for sign in ":/, "):
        raise ValueError(
            f"a provider's name must not be empty or contain ':', '/', ',' or a space: {name!r}"
        )
    _register_built_in()
    if entry is None:
        entry = Entry(name, wire="", base_url="", key=tuple(key), model=model, window=window)
    _registry[name] = (entry, factory)


def new(spec: str = "", **options: Any) -> Provider:
    """Return a provider for a name such as "anthropic" or "groq:llama-3.1-8b-instant".

    >>> new("offline").name
    'offline'
    >>> server = new("openai-compatible:qwen3", base_url="http://localhost:8080/v1", key="none")
    >>> server.model
    'qwen3'

    - "name:model" and "name/model" name a provider and a model; "name" uses the default model.
    - A model without a provider ("claude-haiku-4-5") is asked at its vendor, if it has only one.
    - Several names with commas become a failover list (`with_failover`) of the providers whose key
      is set: `new("anthropic,gemini:gemini-2.5-flash")`.
    - Without a name, GLUE_MODEL is used, or else the first provider whose key is set.

    Failed requests are repeated (`with_retries`). Nothing is sent before the first request, but a
    missing key raises MissingKey and an unknown name UnknownProvider. Close the provider with
    `aclose()`.

    Args:
        spec: the provider and its model, or several with commas.
        options: passed to the provider's factory. Built-in providers accept `key`, `base_url`,
            `headers`, `wire`, `deadlines`, `transport`, `tools`, and `retries=False` to raise
            every error at once. A failover list accepts `buffer=True` too (see `with_failover`).
    """
    if not isinstance(spec, str):
        raise TypeError(
            f"a provider is named by a string such as 'openai:gpt-5.4-nano', not {spec!r}"
        )
    specs = split(spec.strip() or default())
    if len(specs) > 1:
        return _failover_list(specs, **options)
    if options.pop("buffer", False):
        raise ConfigError(
            f"buffer needs several providers, such as new('{spec or 'anthropic'},gemini', "
            "buffer=True)"
        )
    name, model = resolve(specs[0]) if specs else ("", "")
    _, factory = _find(name)
    return factory(model, **options)


def _failover_list(specs: Sequence[str], *, buffer: bool = False, **options: Any) -> Provider:
    """Return a provider that tries, in order, the providers in `specs` whose key is set.

    Log a warning that names the providers without a key. Raise MissingKey if all of them have none.
    The failover list is retried as a whole, so that retries of one provider do not delay the next.
    """
    keyless = [spec for spec in specs if "key" not in options and not key_available(spec)]
    if len(keyless) == len(specs):
        variables = [variable for spec in specs for variable in lookup(spec).key]
        raise MissingKey(",".join(parse(spec)[0] for spec in specs), list(dict.fromkeys(variables)))
    if keyless:
        log.warning("providers left out because no key is set: %s", ", ".join(keyless))
    available = [spec for spec in specs if spec not in keyless]
    skipped = {resolve(spec)[0]: lookup(spec).key for spec in keyless}
    failover = providers.with_failover(
        *(new(spec, **{**options, "retries": False}) for spec in available),
        buffer=buffer,
        skipped=skipped,
    )
    return providers.with_retries(failover) if options.get("retries", True) else failover


def aliases() -> Mapping[str, str]:
    """Return the user's own names for models, from `[aliases]` in config.toml."""
    _load_config()
    return _aliases


def split(spec: str) -> list[str]:
    """Split a list of providers at commas, and replace each alias by the names that it means."""
    found: list[str] = []
    for name in filter(None, (part.strip() for part in spec.split(","))):
        found += [name] if _is_known(parse(name)[0]) else _aliases.get(name, name).split(",")
    return [name.strip() for name in found]


def parse(spec: str) -> tuple[str, str]:
    """Split "name:model" or "name/model" at the first ':' or '/'; return name and model.

    The name is in lower case. The model may contain ':' and '/'; it is "" if the spec has neither.
    """
    spec = spec.strip()
    at = min((spec.index(sign) for sign in ":/" if sign in spec), default=len(spec))
    return spec[:at].strip().lower(), spec[at + 1 :].strip()


def resolve(spec: str) -> tuple[str, str]:
    """Return the name of the provider and the model of a spec such as "groq:llama" or an alias.

    For a list, that is the first of its providers. A model name without a provider belongs to its
    vendor if exactly one vendor has such a model.
    """
    spec = next(iter(split(spec)), "")
    name, model = parse(spec)
    if not _is_known(name):
        vendors = vendors_of(spec.strip())
        if len(vendors) == 1:
            return vendors[0], spec.strip()
    return name, model


def lookup(name: str) -> Entry:
    """Return the catalog entry of a provider: its wire, base URL, key variables, default model.

    >>> lookup("anthropic").key
    ('ANTHROPIC_API_KEY',)

    The name may include a model ("groq:llama-3.1-8b-instant") or be an alias. Raise
    UnknownProvider with suggestions if there is no such provider.
    """
    return _find(resolve(name)[0])[0]


def check_names(spec: str) -> None:
    """Raise UnknownProvider unless each name in a spec is a provider, an alias or a known model.

    A model without a provider must belong to exactly one vendor. A model after a provider is not
    checked. Nothing is opened, no key is needed, and no other
    package is loaded.
    """
    for each in split(spec):
        name = resolve(each)[0]
        if not _is_known(name):
            _find(name)


def known() -> tuple[str, ...]:
    """Return the names of all providers, sorted.

    >>> "openai" in known()
    True

    The names include built-in providers, providers in the user's config.toml, registered
    providers, and providers that other packages offer through the entry-point group
    `glue.providers`.
    """
    _register_built_in()
    _load_config()
    return tuple(sorted({*_registry, *plugins()}))


@functools.cache
def _entry_points() -> Mapping[str, Any]:
    # Imported here because it costs several milliseconds, and most programs use built-in names.
    from importlib.metadata import entry_points

    return {point.name.lower(): point for point in entry_points(group=GROUP)}


def plugins() -> tuple[str, ...]:
    """Return the names of the providers that other packages offer and that are not loaded yet."""
    return tuple(name for name in _entry_points() if name not in _registry)


def key_available(name: str, environ: Mapping[str, str] | None = None) -> bool:
    """Return whether a provider has its key or login, or needs none."""
    environ = os.environ if environ is None else environ
    entry = lookup(name)
    if not entry.key or entry.quirks.local or any(environ.get(each) for each in entry.key):
        return True
    module = entry.auth if entry.auth in CLOUDS else entry.login
    if not module:
        return False
    return bool(import_module(f"glue.providers.{module}").has_credentials(environ))


def is_stand_in(model: object) -> bool:
    """Return whether a model is "offline:stand-in", which answers if the user has set no key."""
    return isinstance(model, str) and parse(model) == ("offline", "stand-in")


def capabilities(spec: str) -> Capabilities:
    """Return the capabilities and prices of a model, or of the default model of a provider.

    >>> capabilities("anthropic:claude-haiku-4-5").window
    200000

    For several names with commas, the result has the capabilities that all of them share, the
    highest price and the smallest window.
    """
    specs = [resolve(part) for part in split(spec)]
    return common([capabilities_of(lookup(name), model) for name, model in specs])


def default(environ: Mapping[str, str] | None = None, *, otherwise: str = "") -> str:
    """Return the default model: GLUE_MODEL, or the first provider with a key, or `otherwise`.

    Raise MissingKey if there is none of these. The name of a provider stands for its default model.

    `otherwise="offline:stand-in"` is for programs that people try without a key: a stand-in answers
    on a terminal, and everywhere else the missing key is an error when the model is first used.
    """
    environ = os.environ if environ is None else environ
    if named := environ.get("GLUE_MODEL", "").strip():
        return named
    for name, entry in _entries_with_key():
        if any(environ.get(variable) for variable in entry.key):
            return name
    if otherwise:
        return otherwise
    raise no_key()


def no_key() -> MissingKey:
    """Return the error for a program that names no model while no key is set."""
    variables = [entry.key[0] for _, entry in _entries_with_key()]
    return MissingKey(
        "",
        variables,
        "no model is named and no key is set; set GLUE_MODEL, or a key such as "
        f"{', '.join(variables[:3])} (`glue providers` lists all keys); "
        "GLUE_MODEL=offline needs no key",
    )


def _entries_with_key() -> list[tuple[str, Entry]]:
    _register_built_in()
    entries = ((name, entry) for name, (entry, _) in _registry.items())
    return [(name, entry) for name, entry in entries if entry.key and not entry.quirks.local]


def _is_known(name: str) -> bool:
    _register_built_in()
    if name not in _registry:
        _load_config()
    return name in _registry or name in _entry_points()


def _find(name: str) -> tuple[Entry, Factory]:
    if _is_known(name) and name not in _registry:
        _load_plugin(name)
    if name in _registry:
        return _registry[name]
    names = known()
    close = _similar(name, (*names, *_aliases))
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    faults = "".join(f"{fault}; " for fault in _config_faults)
    raise UnknownProvider(
        f"unknown provider {name!r}; {faults}{hint}there are: {', '.join(names)}", name, close
    )


def _similar(name: str, names: Sequence[str]) -> list[str]:
    """Return up to three names of providers or models that the user may have meant."""
    exact = [f"{provider}:{name}" for provider in names if name in models_of(provider)][:3]
    if exact:
        return exact
    from difflib import get_close_matches  # for start-up time: only a wrong name needs it

    if close := get_close_matches(name, names, 3, 0.65):
        return close
    models = {
        model: f"{vendor}:{found.name}"
        for vendor in VENDORS
        for model, found in models_of(vendor).items()
    }
    return [models[model] for model in get_close_matches(name, models, 3, 0.75)]


def _register_built_in() -> None:
    if not _registry:
        for entry in ENTRIES:
            _registry[entry.name] = (entry, functools.partial(_open, entry))
        offline = Entry("offline", wire="", base_url="", model="offline")
        _registry["offline"] = (offline, _open_offline)


def _open(entry: Entry, model: str = "", **options: Any) -> Provider:
    return providers.open_entry(entry, model, **options)


def _open_offline(model: str = "", **options: Any) -> Provider:
    if is_stand_in(f"offline:{model}"):
        return providers.StandIn(no_key())
    # The options of servers (key, headers ...) are ignored.
    rules = {name: value for name, value in options.items() if name == "rules"}
    return providers.Offline(model=model or "offline", **rules)


def _load_plugin(name: str) -> None:
    """Load and register the provider that another package offers as an entry point.

    The entry point is a module that registers the provider, or a factory. Raise ConfigError if it
    cannot be loaded.
    """
    point = _entry_points()[name]
    try:
        loaded = point.load()
    except Exception as error:
        package = point.dist.name if point.dist is not None else point.value
        raise ConfigError(
            f"{name}: the package {package} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    if name not in _registry and callable(loaded):
        register(name, loaded)
    if name not in _registry:
        raise ConfigError(
            f"{name}: the entry point {point.value} does not register a provider named {name!r}"
        )


def _load_config() -> None:
    """Register the providers and store the aliases of config.toml if the file has changed.

    A file that cannot be read or parsed is reported only if an unknown name is asked for. Raise
    ConfigError if a provider or the table of aliases is invalid.
    """
    path, stamp = config.locate()
    if _config_read == {str(path): stamp}:
        return
    _config_read.clear()
    _aliases.clear()
    _config_faults.clear()
    try:
        tables = config.read(path) if stamp else {}
    except ConfigError as error:
        # Reported if an unknown name is asked for; the built-in names need no file.
        _config_faults.append(str(error))
        tables = {}
    entries = config.own_entries(path, tables.get("providers", {}))
    own_aliases = tables.get("aliases", {})
    is_table = isinstance(own_aliases, dict)
    if not is_table or not all(isinstance(spec, str) for spec in own_aliases.values()):
        example = 'quick = "openai:gpt-5.4-nano"'
        raise ConfigError(f"{path}: 'aliases' must be a table of texts, such as {example}")
    _aliases.update(own_aliases)
    for entry in entries:
        try:
            register(entry.name, functools.partial(_open, entry), entry=entry)
        except ValueError as error:
            raise ConfigError(f"{path}: {error}") from None
    _config_read[str(path)] = stamp
