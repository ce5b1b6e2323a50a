"""Context windows and prices of models, from the data file that `make models` writes."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from glue import Usage
from glue.messages import Json
from glue.providers.catalog import ENTRIES

VENDORS = tuple(entry.name for entry in ENTRIES if entry.is_vendor)
_MODELS_FROM = {entry.name: entry.models_from for entry in ENTRIES if entry.models_from}

# The date in gpt-4o-mini-2024-07-18 or claude-haiku-4-5-20251001.
_DATED = re.compile(r"[-@](\d{8}|\d{4}-\d\d-\d\d|\d{3,4})$")
_REGION = re.compile(r"^(?:us|us-gov|eu|apac|jp|au|ca)\.")


class Model(NamedTuple):
    """Facts about one model; prices in USD per million tokens.

    The order of prices is input, output, cached input, cache writes.
    """

    name: str
    window: int | None
    price: tuple[float | None, ...]
    # Prices of long prompts: each tier is a number of tokens and the prices above that number.
    tiers: tuple[tuple[float | None, ...], ...] = ()
    ends: str = ""  # the day on which the model is shut down, if known
    deprecated: bool = False

    def price_at(self, size: int) -> tuple[float | None, ...]:
        """Return the prices for a prompt of `size` tokens; a tier applies to the whole prompt."""
        return next(
            (tier[1:] for tier in reversed(self.tiers) if size > (tier[0] or 0)), self.price
        )


@functools.cache
def _file() -> dict[str, Json]:
    found: dict[str, Json] = json.loads(Path(__file__).with_name("models.json").read_bytes())
    return found


def date() -> str:
    """Return the day on which the data was written, as 2026-01-31."""
    day: str = _file()["date"]
    return day


def providers_with_models() -> list[str]:
    """Return the names of the providers whose models the data file lists, sorted."""
    return sorted(_file()["models"])


@functools.cache
def models_of(provider: str) -> Mapping[str, Model]:
    """Return the known models of a provider, by name in lower case."""
    entries = _file()["models"].get(provider, {})
    models = {}
    for name, entry in entries.items():
        tiers = tuple(tuple(tier) for tier in entry.get("tiers", ()))
        known = (
            entry.get("window"),
            tuple(entry["price"]),
            tiers,
            entry.get("ends", ""),
            entry.get("deprecated", False),
        )
        models[name.lower()] = Model(name, *known)
    return {**models_of(_MODELS_FROM[provider]), **models} if provider in _MODELS_FROM else models


@functools.lru_cache(maxsize=256)
def find(provider: str, model: str) -> Model | None:
    """Return the data of a model, or None if unknown; a date or region in its name is ignored."""
    models, model = models_of(provider), model.lower()
    plain = _DATED.sub("", model)
    local = _REGION.sub("", model)  # on Bedrock, the profile of a region may have its own price
    latest = (plain.removesuffix("-latest"), f"{plain}-latest")
    names = (model, plain, *latest, f"regional.{local}", local, f"global.{local}")
    return next((models[name] for name in names if name in models), None)


def vendors_of(model: str) -> list[str]:
    """Return the vendors that have a model of this name."""
    return [name for name in VENDORS if find(name, model) is not None]


def cost(provider: str, model: str, usage: Usage) -> float | None:
    """Return the cost of a reply in USD, or None if no price is known."""
    if is_free(provider):
        return 0.0
    known = find(provider, model)
    if known is None:
        return None
    plain, output, cached, written = (*known.price_at(usage.input), None, None)[:4]
    read, write = usage.cache_read or 0, usage.cache_write or 0
    # Some servers count a token both as read from and as written to the cache; it is paid once.
    write = max(0, min(write, usage.input - read))
    rest = max(0, usage.input - read - write)
    paid = rest * (plain or 0) + usage.output * (output or 0)
    # Cached tokens without a price of their own cost as much as plain input.
    paid += read * ((plain or 0) if cached is None else cached) + write * (
        (plain or 0) if written is None else written
    )
    return paid / 1_000_000


@functools.cache
def is_free(provider: str) -> bool:
    """Return whether a provider runs on this machine, so that its replies cost nothing."""
    return provider == "offline" or any(
        entry.name == provider
        and entry.quirks.local
        and entry.base_url.startswith("http://localhost")
        for entry in ENTRIES
    )
