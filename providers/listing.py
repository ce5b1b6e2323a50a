"""Tables of providers and models for the command line, and requests that check a server."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from glue import Request, user
from glue.errors import ConfigError, GlueError
from glue.messages import Effort
from glue.provider import ask, close
from glue.providers.encoding import lower
from glue.providers.models import facts, find, models_of, providers_with_models
from glue.providers.registry import key_available, known, lookup, new, plugins


def list_providers(environ: Mapping[str, str] = os.environ) -> list[dict[str, Any]]:
    """Return a list with a dict for each provider: wire, key variable, default model and window.

    The keys are name, wire, key (its variable), key_set (None if no key is needed), model (the
    default) and window.
    """
    return [_provider(name, environ) for name in known()]


def _provider(name: str, environ: Mapping[str, str]) -> dict[str, Any]:
    if name in plugins():
        columns = ("key", "key_set", "model", "window")
        return {"name": name, "wire": "plugin", **dict.fromkeys(columns)}
    entry = lookup(name)
    is_needed = bool(entry.key) and not entry.quirks.local
    found = next((variable for variable in entry.key if environ.get(variable)), None)
    model = find(name, entry.model)
    window = model.window if model is not None else None
    return {
        "name": name,
        "wire": entry.wire or "-",
        "key": found or (entry.key[0] if entry.key else None),
        "key_set": key_available(name, environ) if is_needed or found else None,
        "model": entry.model or None,
        "window": window or (entry.window if entry.model else None),
    }


def list_models(
    provider: str = "", words: Sequence[str] = (), level: Effort | None = None
) -> list[dict[str, Any]]:
    """Return a row, as a dict, for each known model of a provider, or of all providers.

    Prices are in USD per million tokens. If `words` are given, the name of the model must contain
    all of them. If a reasoning level is given, "becomes" is the level that the model gets instead.
    """
    rows: list[dict[str, Any]] = []
    wanted = [word.lower() for word in words]
    for name in [provider] if provider else providers_with_models():
        entry = lookup(name)
        default = entry.model.lower()
        for model in models_of(name).values():
            if not all(word in f"{name}:{model.name}".lower() for word in wanted):
                continue
            price = (*model.price, None, None)
            efforts = facts(entry, model.name).efforts
            rows.append(
                {
                    "model": f"{name}:{model.name}",
                    "input": price[0],
                    "output": price[1],
                    "cached": price[2],
                    "window": model.window,
                    "default": model.name.lower() == default,
                    "tiers": [list(tier) for tier in model.tiers],
                    "ends": model.ends or None,
                    "deprecated": model.deprecated,
                    "retired": model.is_retired(),
                    "reasoning": list(efforts),
                    "becomes": lower(level, efforts),
                }
            )
    return rows


async def server_models(spec: str, **options: Any) -> list[str]:
    """Ask a provider's server for its models, and return their names."""
    provider: Any = new(
        spec if lookup(spec).model or ":" in spec else f"{spec}:any", retries=False, **options
    )
    try:
        if not hasattr(provider, "models"):
            raise ConfigError(f"{provider.name}: this provider cannot list its models")
        found: list[str] = await provider.models()
        return found
    finally:
        await close(provider)


async def check(spec: str, **options: Any) -> tuple[int, str]:
    """Send one small request to a provider; return an exit status and a line with the result."""
    started, provider = time.monotonic(), None
    try:
        provider = new(spec, retries=False, **options)
        message = await ask(provider, Request(messages=(user("Say ok."),), max_tokens=64))
        if message is None:
            return 1, f"{provider.name}: no reply"
        said, seconds = " ".join(message.text.split())[:60], time.monotonic() - started
        return 0, f"{provider.name}: {message.model} answered {said!r} in {seconds:.1f} s"
    except ConfigError as error:
        return 2, str(error)
    except GlueError as error:
        return (2 if getattr(error, "kind", "") in ("auth", "not_found") else 1), str(error)
    finally:
        await close(provider)
