"""Writes providers/models.json (models, windows and prices) from the package genai-prices.

    make models        # in its own environment, because the package is not a dependency

Each model is one line, so that a diff shows the models that changed.
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
ONLY = {
    "gemini": r"gemini-|gemma-",
    "openrouter": r"(openai|anthropic|google|deepseek|qwen|x-ai|mistralai|meta-llama|moonshotai"
    r"|z-ai)/[^:]+$",
    "perplexity": r"sonar",
}
# Models without a context window are left out here: most of them no longer exist.
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
FIELDS = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok")


def main() -> None:
    from genai_prices import __version__
    from genai_prices.data import providers

    now = datetime.now(UTC)
    theirs = {provider.id: provider for provider in providers}
    models: dict[str, dict[str, Any]] = {}
    for name, source in PROVIDERS.items():
        rows = {}
        for model in theirs[source].models:
            row = read(model, now)
            wanted = re.match(ONLY.get(name, ""), model.id) and not NO_CHAT.search(model.id)
            if row is not None and wanted and ("window" in row or name not in WITH_WINDOW):
                if end := ENDS.get((name, model.id)):
                    row["ends"] = end
                rows[PREFIX.get(name, "") + model.id] = row
        models[name] = dict(sorted(rows.items()))
    write(models, f"{now:%Y-%m-%d}", f"genai-prices {__version__}")
    for name, rows in models.items():
        print(f"{name:12} {len(rows):4}")
    print(f"{'in all':12} {sum(map(len, models.values())):4}  {TARGET.stat().st_size:,} bytes")


def read(model: Any, now: datetime) -> dict[str, Any] | None:
    """Return the row of a model: window, USD per million tokens, and prices of long prompts."""
    prices = vars(model.get_prices(now))
    found = [prices.get(field) for field in FIELDS]
    if found[0] is None or found[1] is None:
        return None
    row: dict[str, Any] = {}
    if model.context_window:
        row["window"] = model.context_window
    row["price"] = plain([getattr(value, "base", value) for value in found])
    starts = sorted({tier.start for value in found for tier in getattr(value, "tiers", ())})
    if starts:
        row["tiers"] = [[start, *plain([at(value, start) for value in found])] for start in starts]
    if model.deprecated:
        row["deprecated"] = True
    return row


def at(value: Any, start: int) -> Any:
    tiers = [tier.price for tier in getattr(value, "tiers", ()) if tier.start <= start]
    return tiers[-1] if tiers else getattr(value, "base", value)


def plain(values: list[Any]) -> list[float | None]:
    while values and values[-1] is None:
        values.pop()
    return [None if value is None else float(value) for value in values]


def write(models: dict[str, dict[str, Any]], date: str, source: str) -> None:
    parts = []
    for name, rows in models.items():
        lines = ",\n".join(
            f"  {json.dumps(model)}: {json.dumps(row)}" for model, row in rows.items()
        )
        parts.append(f"{json.dumps(name)}: {{\n{lines}\n}}")
    head = f'"date": {json.dumps(date)},\n"source": {json.dumps(source)},\n"models": '
    TARGET.write_text("{\n" + head + "{\n" + ",\n".join(parts) + "\n}\n}\n")


if __name__ == "__main__":
    main()
