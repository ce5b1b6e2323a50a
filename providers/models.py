"""Facts about models: context windows, prices, reasoning levels, and features they accept.

Two data files contain the facts: `models.json` (windows and prices; `make models` writes it) and
`facts.json` (accepted features; edited by hand). Only this module reads the files.
"""

from __future__ import annotations

import functools
import json
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from glue import Usage
from glue.messages import Json
from glue.providers.catalog import ENTRIES, Entry, Quirks

VENDORS = tuple(entry.name for entry in ENTRIES if entry.is_vendor)
_MODELS_FROM = {entry.name: entry.models_from for entry in ENTRIES if entry.models_from}

# The date in gpt-4o-mini-2024-07-18 or claude-haiku-4-5-20251001.
_DATED = r"[-@](\d{8}|\d{4}-\d\d-\d\d|\d{3,4})$"  # compiled at its first use
_COMPACT_DATE = re.compile(r"(?<=[-@])(20\d\d)([01]\d)([0-3]\d)(?!\d)")
_DAY = 24 * 60


class Model(NamedTuple):
    """The window and the prices of one model. Prices are in USD per million tokens.

    The order of prices is input, output, cached input, cache writes, reasoning.
    """

    name: str
    window: int | None
    price: tuple[float | None, ...]
    # Prices of long prompts: each tier is a number of tokens and the prices above that number.
    tiers: tuple[tuple[float | None, ...], ...] = ()
    # Prices at certain hours: the first and the last minute of the day in UTC, and the prices.
    hours: tuple[tuple[float | None, ...], ...] = ()
    fee: float = 0.0  # USD for each request
    ends: str = ""  # the day on which the model is shut down, if known
    deprecated: bool = False
    hidden: bool = False  # not a chat model, or not listed for another reason

    def price_at(self, size: int, minute: int = -1) -> tuple[float | None, ...]:
        """Return the prices for a prompt of `size` tokens at a minute of the day in UTC.

        The price of a tier applies to all tokens of the prompt. A minute of -1 means that no
        special hours apply.
        """
        for start, end, *prices in self.hours:
            if (start or 0) <= minute < (end or _DAY):
                return tuple(prices)
        return next(
            (tier[1:] for tier in reversed(self.tiers) if size > (tier[0] or 0)), self.price
        )

    def is_retired(self, today: str = "") -> bool:
        """Return whether the model is deprecated, or is shut down on the day `today` or earlier.

        An empty `today` means the current day in UTC.
        """
        return self.deprecated or bool(self.ends and self.ends <= (today or _today()))


class _Table:
    """The models of one provider, and the rules that decide which model a name means."""

    def __init__(self, rows: Sequence[dict[str, Json]]) -> None:
        self.models: list[Model] = []
        self._exact: dict[str, int] = {}  # the position of the first model with exactly this name
        self._rules: list[tuple[int, Json]] = []  # all other rules, in the order of the models
        for index, row in enumerate(rows):
            name = row["name"]
            self.models.append(_model(row))
            rules = row.get("match", f"={name.lower()}")
            for rule in rules if isinstance(rules, list) else [rules]:
                if isinstance(rule, str) and rule.startswith("="):
                    self._exact.setdefault(rule[1:], index)
                else:
                    self._rules.append((index, rule))

    def find(self, name: str) -> Model | None:
        """Return the first model with a rule that matches `name`, or None.

        `name` must be in lower case.
        """
        index = self._exact.get(name, len(self.models))
        for at, rule in self._rules:
            if at >= index:
                break
            if _matches(rule, name):
                index = at  # later rules belong to this model or to later ones
        return self.models[index] if index < len(self.models) else None


def _model(row: dict[str, Json]) -> Model:
    return Model(
        row["name"],
        row.get("window"),
        tuple(row["price"]),
        tuple(tuple(tier) for tier in row.get("tiers", ())),
        tuple(tuple(hours) for hours in row.get("hours", ())),
        row.get("fee", 0.0),
        row.get("ends", ""),
        row.get("deprecated", False),
        row.get("hidden", False),
    )


def _matches(rule: Json, name: str) -> bool:
    if isinstance(rule, dict):
        return all(_matches(each, name) for each in rule["all"])
    if isinstance(rule, list):
        return any(_matches(each, name) for each in rule)
    kind, _, text = rule.partition(":")
    if kind == "starts":
        return name.startswith(text)
    if kind == "ends":
        return name.endswith(text)
    if kind == "has":
        return text in name
    return re.search(text, name) is not None if kind == "regex" else rule == f"={name}"


def _read(file: str) -> str:
    return Path(__file__).with_name(file).read_text(encoding="utf-8")


@functools.cache
def _file() -> str:
    return _read("models.json")


def _value(name: str) -> Json:
    """Return the value of a top-level key of models.json, or None if the key does not exist.

    Only this value is parsed, because the whole file takes some milliseconds. A key is at the start
    of a line.
    """
    text, key = _file(), f'\n"{name}": '
    start = text.find(key)
    return json.JSONDecoder().raw_decode(text, start + len(key))[0] if start >= 0 else None


def date() -> str:
    """Return the day on which models.json was written, such as "2026-01-31"."""
    day: str = _value("date")
    return day


@functools.cache
def _fallbacks() -> dict[str, list[str]]:
    """Return for each provider the other providers whose models `find` searches next, in order.

    `find` searches them for a model that is missing in the table of the provider itself. A provider
    without fallbacks is not in the dict.
    """
    found: dict[str, list[str]] = _value("fallbacks")
    for name, source in _MODELS_FROM.items():
        found[name] = [source, *found.get(source, ()), *found.get(name, ())]
    return found


@functools.cache
def _table(provider: str) -> _Table:
    return _Table(_value(provider) or ())


def providers_with_models() -> list[str]:
    """Return the sorted names of the providers that have models in models.json."""
    return sorted(re.findall(r'\n"([^"]+)": \[\n', _file()))


@functools.cache
def models_of(provider: str) -> Mapping[str, Model]:
    """Return a mapping from lower-case names to the models of a provider that are not hidden."""
    models = {model.name.lower(): model for model in _table(provider).models if not model.hidden}
    source = _MODELS_FROM.get(provider)
    return {**models_of(source), **models} if source else models


@functools.lru_cache(maxsize=256)
def find(provider: str, model: str) -> Model | None:
    """Return the window and prices of a model of a provider, or None if the model is unknown.

    The rules of models.json also match names with a date, a region or the prefix of a vendor, such
    as `us.anthropic.`.
    """
    name = model.lower()
    dashed = _COMPACT_DATE.sub(r"\1-\2-\3", name)
    for each in dict.fromkeys((name, dashed)):
        for source in (provider, *_fallbacks().get(provider, ())):
            if (found := _table(source).find(each)) is not None:
                return found
    return None


def vendors_of(model: str) -> list[str]:
    """Return the vendors that list a model under this name, or under a variant of the name.

    The variants are the name without its date, and that name with and without "-latest".
    """
    name = model.lower()
    plain = re.sub(_DATED, "", name)
    names = (name, plain, plain.removesuffix("-latest"), f"{plain}-latest")
    return [vendor for vendor in VENDORS if any(each in models_of(vendor) for each in names)]


def cost(provider: str, model: str, usage: Usage, now: float | None = None) -> float | None:
    """Return the cost of a reply in USD, or None if no price is known."""
    if is_free(provider):
        return 0.0
    known = find(provider, model)
    if known is None:
        return None
    minute = -1
    if known.hours:
        minute = int((time.time() if now is None else now) / 60) % _DAY
    prices = (*known.price_at(usage.input, minute), None, None, None, None, None)
    plain, output, cached, written, thought = prices[:5]
    if plain is None or output is None:
        return None
    read, write = usage.cache_read or 0, usage.cache_write or 0
    # Some servers count a token both as read from and as written to the cache; it is paid once.
    write = max(0, min(write, usage.input - read))
    rest = max(0, usage.input - read - write)
    paid = rest * plain + usage.output * output
    # Cached tokens without a price of their own cost as much as plain input.
    paid += read * (plain if cached is None else cached)
    paid += write * (plain if written is None else written)
    if thought is not None:
        paid += (usage.reasoning or 0) * (thought - output)
    return paid / 1_000_000 + known.fee


@functools.cache
def is_free(provider: str) -> bool:
    """Return whether a provider runs on this machine, so that its replies cost nothing."""
    return provider == "offline" or any(
        entry.name == provider
        and entry.quirks.local
        and entry.base_url.startswith("http://localhost")
        for entry in ENTRIES
    )


def _today() -> str:
    return time.strftime("%Y-%m-%d", time.gmtime())


# Features that a model accepts


class Facts(NamedTuple):
    """The features that a model accepts; the defaults suit an unknown model."""

    # The reasoning levels that the model distinguishes; empty if it cannot reason.
    efforts: tuple[str, ...] = ()
    # How Claude and Gemini are asked to reason: with a budget of tokens, with a level, or with
    # Claude's adaptive thinking; "" if not at all.
    thinking: Literal["", "budget", "level", "adaptive"] = ""
    least_budget: int = 0  # the smallest budget of tokens for reasoning
    max_output: int = 8192  # `max_tokens` if the wire requires it and the request sets none
    sampling: bool = True  # whether the model accepts a temperature
    # Whether a tool may be forced while the model thinks. If not, a forced tool switches thinking
    # off: the request leaves it out or, if the model thinks by default, disables it.
    forced_thinking: bool = True
    thinks: bool = False  # whether the model thinks by default
    output: bool = True  # whether the reply can be forced to fit a schema
    output_with_tools: bool = True  # whether it can be forced in a request with tools too
    encrypted: bool = True  # Responses: whether encrypted reasoning may be asked for
    images: tuple[str, ...] = ()  # the media types that are sent as images
    files: tuple[str, ...] = ()  # if empty, text files are sent as text


@functools.cache
def _facts_file() -> dict[str, Json]:
    found: dict[str, Json] = json.loads(_read("facts.json"))
    return found


def facts(entry: Entry, model: str) -> Facts:
    """Return the features that a model accepts, from facts.json and the quirks of its provider."""
    return _facts(entry.name, entry.models_from, entry.wire, entry.quirks, model)


@functools.lru_cache(maxsize=256)
def _facts(name: str, source: str, wire: str, quirks: Quirks, model: str) -> Facts:
    model = model.lower()
    found: dict[str, Any] = {}
    for rule in _facts_file()["rules"]:
        if (
            ("at" not in rule or name in rule["at"] or source in rule["at"])
            and ("wires" not in rule or wire in rule["wires"])
            and _fits(rule, model)
        ):
            found = {**rule, **found}  # the first rule that names a fact decides it
    found = {"images": quirks.images, "files": quirks.files, "efforts": quirks.efforts, **found}
    if not quirks.reasoning:
        found["efforts"] = ()
    known: dict[str, Any] = {}
    for field in Facts._fields:
        if field in found:
            value = found[field]
            known[field] = tuple(value) if isinstance(value, list) else value
    return Facts(**known)


def _fits(rule: dict[str, Json], model: str) -> bool:
    """Return whether a rule of facts.json applies to a model: by name, family and version."""
    if "match" in rule and not re.search(rule["match"], model):
        return False
    if "family" not in rule:
        return True
    if rule["family"] not in model:
        return False
    found = re.search(_facts_file()["versions"][rule["family"]], model)
    # A name without a version, such as gemini-flash-latest, belongs to a new model.
    version = [int(number or 0) for number in found.groups()] if found else [99]
    since: list[int] = rule.get("since", [])
    return version >= since
