"""Models: windows and prices from a data file that `make models` writes, tables of them, and what a server has."""

from __future__ import annotations

import functools
import json
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from glue import Capabilities, Request, Usage, user
from glue.errors import ConfigError, GlueError
from glue.messages import Json
from glue.provider import ask, close
from glue.providers import key_available, known, lookup, new, plugins, wire_class
from glue.providers.catalog import ROWS, Row

VENDORS = tuple(row.name for row in ROWS if row.is_vendor)
_MODELS_FROM = {row.name: row.models_from for row in ROWS if row.models_from}

_DATED = re.compile(r"[-@](\d{8}|\d{4}-\d\d-\d\d|\d{3,4})$")  # gpt-4o-mini-2024-07-18, claude-haiku-4-5-20251001
_REGION = re.compile(r"^(?:us|us-gov|eu|apac|jp|au|ca)\.")
_FREE = (0.0, 0.0)


class Model(NamedTuple):
    """What is known of one model; prices are USD per million tokens: input, output, cached input, cache writes."""

    name: str
    window: int | None
    price: tuple[float | None, ...]
    tiers: tuple[tuple[float | None, ...], ...] = ()  # for prompts above the first number of each
    ends: str = ""  # the day on which it is shut down, where that is known
    deprecated: bool = False

    def price_at(self, size: int) -> tuple[float | None, ...]:
        """Return the prices for a prompt of so many tokens; a tier holds for all of them."""
        return next((tier[1:] for tier in reversed(self.tiers) if size > (tier[0] or 0)), self.price)


@functools.cache
def _file() -> dict[str, Json]:
    found: dict[str, Json] = json.loads(Path(__file__).with_name("models.json").read_bytes())
    return found


def date() -> str:
    """Say of which day the data is."""
    day: str = _file()["date"]
    return day


@functools.cache
def models_of(provider: str) -> Mapping[str, Model]:
    """Return the models of a provider that the data knows, by their names in lower case."""
    rows = _file()["models"].get(provider, {})
    models = {}
    for name, row in rows.items():
        tiers = tuple(tuple(tier) for tier in row.get("tiers", ()))
        known = (row.get("window"), tuple(row["price"]), tiers, row.get("ends", ""), row.get("deprecated", False))
        models[name.lower()] = Model(name, *known)
    return {**models_of(_MODELS_FROM[provider]), **models} if provider in _MODELS_FROM else models


@functools.lru_cache(maxsize=256)
def find(provider: str, model: str) -> Model | None:
    """Return what is known of a model; a dated name, or one of a region, is that of the plain one."""
    models, model = models_of(provider), model.lower()
    plain = _DATED.sub("", model)
    local = _REGION.sub("", model)  # of Bedrock, where a profile of a region has its own price
    latest = (plain.removesuffix("-latest"), f"{plain}-latest")
    names = (model, plain, *latest, f"regional.{local}", local, f"global.{local}")
    return next((models[name] for name in names if name in models), None)


def vendors_of(model: str) -> list[str]:
    """Return the vendors whose own provider has a model of this name."""
    return [name for name in VENDORS if find(name, model) is not None]


def cost(provider: str, model: str, usage: Usage) -> float | None:
    """Return what a reply cost in USD, or None where no price is known."""
    if _is_free(provider):
        return 0.0
    known = find(provider, model)
    if known is None:
        return None
    plain, output, cached, written = (*known.price_at(usage.input), None, None)[:4]
    read, write = usage.cache_read or 0, usage.cache_write or 0
    # Some servers count a token as read and as written; it is paid for once.
    write = max(0, min(write, usage.input - read))
    rest = max(0, usage.input - read - write)
    paid = rest * (plain or 0) + usage.output * (output or 0)
    # What a vendor does not price apart costs as much as plain input.
    paid += read * ((plain or 0) if cached is None else cached) + write * ((plain or 0) if written is None else written)
    return paid / 1_000_000


@functools.cache
def _is_free(provider: str) -> bool:
    return provider == "offline" or any(
        row.name == provider and row.quirks.local and row.base_url.startswith("http://localhost") for row in ROWS
    )


def capabilities_of(row: Row, model: str = "") -> Capabilities:
    """Put together what is known of a row's model."""
    model = model or row.model
    found = find(row.name, model)
    price = _FREE if _is_free(row.name) else found.price if found else (None, None)
    window = found.window if found else None
    wire = wire_class(row.wire).encoder(Request(), row, model) if row.wire else None
    return Capabilities(
        provider=row.name,
        model=model,
        window=window or (row.window if model == row.model else None),
        tools=row.quirks.tools,
        images=row.quirks.images,
        files=row.quirks.files if wire else (),
        efforts=wire.efforts if wire else (),
        local=row.quirks.local,
        otel_names=((row.name, row.otel),) if row.otel else (),
        input_price=price[0],
        output_price=price[1],
        takes_output=wire.takes_output if wire else lambda schema, *, tools=False: False,
    )


# Listings -----------------------------------------------------------------------------------------


def provider_rows(environ: Mapping[str, str] = os.environ) -> list[dict[str, Any]]:
    """List every provider: name, wire, key variable, whether it is set, default model, context window."""
    rows: list[dict[str, Any]] = []
    for name in known():
        if name in plugins():
            rows.append({"name": name, "wire": "plugin", "key": None, "key_set": None, "model": None, "window": None})
            continue
        row = lookup(name)
        needed = bool(row.key) and not row.quirks.local
        found = next((variable for variable in row.key if environ.get(variable)), None)
        known_model = find(name, row.model)
        rows.append(
            {
                "name": name,
                "wire": row.wire or "-",
                "key": found or (row.key[0] if row.key else None),
                "key_set": None if not needed and found is None else key_available(name, environ),
                "model": row.model or None,
                "window": (known_model and known_model.window) or (row.window if row.model else None),
            }
        )
    return rows


def model_rows(provider: str = "") -> list[dict[str, Any]]:
    """List every model that is known, of one provider or of all; prices in USD per million tokens."""
    rows = []
    for name in [provider] if provider else sorted(_file()["models"]):
        default = lookup(name).model.lower()
        for model in models_of(name).values():
            price = (*model.price, None, None)
            row = {"model": f"{name}:{model.name}", "input": price[0], "output": price[1], "cached": price[2]}
            row |= {"window": model.window, "default": model.name.lower() == default}
            rows.append({**row, "tiers": [list(tier) for tier in model.tiers], "ends": model.ends or None})
            rows[-1]["deprecated"] = model.deprecated
    return rows


# Asking servers -----------------------------------------------------------------------------------


async def server_models(spec: str, **options: Any) -> list[str]:
    """Ask a server which models it has."""
    provider: Any = new(spec if lookup(spec).model or ":" in spec else f"{spec}:any", retries=False, **options)
    try:
        if not hasattr(provider, "models"):
            raise ConfigError(f"{provider.name}: this provider cannot list its models")
        found: list[str] = await provider.models()
        return found
    finally:
        await close(provider)


async def check(spec: str, **options: Any) -> tuple[int, str]:
    """Send one tiny request and say in one line what happened; returns the exit code as well."""
    started, provider = time.monotonic(), None
    try:
        provider = new(spec, retries=False, **options)
        message = await ask(provider, Request(messages=(user("Say ok."),), max_tokens=64))
        if message is None:
            return 1, f"{provider.name}: no answer"
        said, seconds = " ".join(message.text.split())[:60], time.monotonic() - started
        return 0, f"{provider.name}: {message.model} answered {said!r} in {seconds:.1f} s"
    except ConfigError as error:
        return 2, str(error)
    except GlueError as error:
        return (2 if getattr(error, "kind", "") in ("auth", "not_found") else 1), str(error)
    finally:
        await close(provider)
