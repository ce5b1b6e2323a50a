"""Writes providers/models.json (models, windows and prices) from the package genai-prices.

    make models        # in its own environment, because the package is not a dependency

Each model is one line, so that a diff shows the models that changed. The rules by which the package
matches names are kept: "=x" is the name x, "starts:x", "ends:x", "has:x" and "regex:x" describe
names, a list matches if one of its rules does, and {"all": [...]} if all of them do. The models of
a provider are in the order of the package, because the first one that matches counts.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

TARGET = Path(__file__).resolve().parent.parent / "providers" / "models.json"
# Our names of providers, and those in the package. Models are listed at their vendor only.
PROVIDERS = {
    "anthropic": "anthropic",
    "openai": "openai",
    "gemini": "google",
    "mistral": "mistral",
    "deepseek": "deepseek",
    "xai": "x-ai",
    "bedrock": "aws",
    "azure": "azure",
    "openrouter": "openrouter",
    "groq": "groq",
    "cerebras": "cerebras",
    "together": "together",
    "fireworks": "fireworks",
    "moonshot": "moonshotai",
    "zai": "zai",
    "perplexity": "perplexity",
}
PREFIX = {"fireworks": "accounts/fireworks/models/"}
# The models that `glue models` lists. The others are kept for their prices.
ONLY = {
    "gemini": r"gemini-|gemma-",
    "openrouter": r"(openai|anthropic|google|deepseek|qwen|x-ai|mistralai|meta-llama|moonshotai"
    r"|z-ai)/[^:]+$",
    "perplexity": r"sonar",
}
# Models without a context window are not listed here: most of them no longer exist.
WITH_WINDOW = ("openrouter", "together")
NO_CHAT = re.compile(
    r"embed|audio|tts|whisper|image|realtime|transcri|moderation|guard|rerank|live|veo|imagen"
    r"|orpheus|computer-use|ocr|banana|omni|robotics|sonic|lyria|palm|learnlm|voxtral|search"
    r"|^ft:|\.ft-|:extended|-vision|instruct-v0|titan"
    r"|^(ada|babbage|curie|davinci|text-davinci|claude-[v2]|gpt-3\.5-0301|gpt-4-32k|gpt-4\.5"
    r"|gemini-pro$|gemini-1|gemini-flash-1)"
)
# The announced last day of models, if the package does not contain it.
ENDS = {
    ("openai", "gpt-5-nano"): "2026-12-11",
    ("anthropic", "claude-sonnet-4-5"): "2026-11-30",
}
FIELDS = (
    "input_mtok",
    "output_mtok",
    "cache_read_mtok",
    "cache_write_mtok",
    "output_reasoning_mtok",
)
CLAUSES = {
    "ClauseEquals": ("equals", "="),
    "ClauseStartsWith": ("starts_with", "starts:"),
    "ClauseEndsWith": ("ends_with", "ends:"),
    "ClauseContains": ("contains", "has:"),
}


def main() -> None:
    from genai_prices import __version__
    from genai_prices.data import providers

    now = datetime.now(UTC)
    theirs = {provider.id: provider for provider in providers}
    ours = {source: name for name, source in PROVIDERS.items()}
    models: dict[str, list[dict[str, Any]]] = {}
    fallbacks: dict[str, list[str]] = {}
    for name, source in PROVIDERS.items():
        provider = theirs[source]
        models[name] = [row(name, model, now) for model in provider.models]
        others = [ours[each] for each in provider.fallback_model_providers or () if each in ours]
        if others:
            fallbacks[name] = others
    write(models, fallbacks, f"{now:%Y-%m-%d}", f"genai-prices {__version__}")
    for name, rows in models.items():
        listed = sum(1 for each in rows if not each.get("hidden"))
        print(f"{name:12} {listed:4} listed, {len(rows):4} in all")
    print(f"{sum(map(len, models.values()))} models, {TARGET.stat().st_size:,} bytes")


def row(provider: str, model: Any, now: datetime) -> dict[str, Any]:
    """Return the row of a model: its name, the rule for its names, window and prices."""
    name = PREFIX.get(provider, "") + model.id
    found: dict[str, Any] = {"name": name}
    match = rule(model.match)
    if match != f"={name.lower()}":
        found["match"] = match
    if model.context_window:
        found["window"] = model.context_window
    found |= prices(model, now)
    if model.id.endswith(":free"):
        found["price"] = found["price"] or [0.0, 0.0]
    if model.deprecated:
        found["deprecated"] = True
    if end := ENDS.get((provider, model.id)):
        found["ends"] = end
    wanted = re.match(ONLY.get(provider, ""), model.id) and not NO_CHAT.search(model.id)
    known = "window" in found or provider not in WITH_WINDOW
    if not wanted or not known or len(found["price"]) < 2:
        found["hidden"] = True
    return found


def rule(clause: Any) -> Any:
    """Convert a rule of the package to the form of models.json, in lower case."""
    kind = type(clause).__name__
    if kind in CLAUSES:
        field, sign = CLAUSES[kind]
        return sign + getattr(clause, field).lower()
    if kind == "ClauseRegex":
        return f"regex:{clause.regex}"
    if kind == "ClauseOr":
        return [rule(each) for each in clause.or_]
    if kind == "ClauseAnd":
        return {"all": [rule(each) for each in clause.and_]}
    raise TypeError(f"genai-prices has a new kind of rule, {kind}; add it here and to models.py")


def prices(model: Any, now: datetime) -> dict[str, Any]:
    """Return the price fields of a model: USD per million tokens, and the fee of a request.

    There are plain prices, prices of long prompts and prices at certain hours.
    """
    every = model.prices if isinstance(model.prices, list) else [model.prices]
    standard, hours = getattr(every[0], "prices", every[0]), []
    for each in every[1:]:
        constraint = each.constraint
        if hasattr(constraint, "start_time"):
            times = [constraint.start_time, constraint.end_time]
            hours.append([time.hour * 60 + time.minute for time in times] + listed(each.prices))
        elif constraint is None or constraint.active(now):
            standard = each.prices
    found: dict[str, Any] = {"price": listed(standard)}
    values = [getattr(standard, field, None) for field in FIELDS]
    starts = sorted({tier.start for value in values for tier in getattr(value, "tiers", ())})
    if starts:
        found["tiers"] = [
            [start, *plain([at(value, start) for value in values])] for start in starts
        ]
    if hours:
        found["hours"] = hours
    if fee := getattr(standard, "requests_kcount", None):
        found["fee"] = float(fee) / 1000
    return found


def listed(price: Any) -> list[float | None]:
    values = [getattr(price, field, None) for field in FIELDS]
    return plain([getattr(value, "base", value) for value in values])


def at(value: Any, start: int) -> Any:
    tiers = [tier.price for tier in getattr(value, "tiers", ()) if tier.start <= start]
    return tiers[-1] if tiers else getattr(value, "base", value)


def plain(values: list[Any]) -> list[float | None]:
    while values and values[-1] is None:
        values.pop()
    return [None if value is None else float(value) for value in values]


def write(
    models: dict[str, list[dict[str, Any]]],
    fallbacks: dict[str, list[str]],
    date: str,
    source: str,
) -> None:
    parts = []
    for name, rows in models.items():
        lines = ",\n".join(f"  {json.dumps(row, separators=(',', ':'))}" for row in rows)
        parts.append(f"{json.dumps(name)}: [\n{lines}\n]")
    head = (
        f'"date": {json.dumps(date)},\n"source": {json.dumps(source)},\n'
        f'"fallbacks": {json.dumps(fallbacks)},\n"models": '
    )
    TARGET.write_text("{\n" + head + "{\n" + ",\n".join(parts) + "\n}\n}\n")


if __name__ == "__main__":
    main()
