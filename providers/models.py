"""List prices in USD per million tokens, of the date below. A model that is not here has no known cost."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any

from glue.errors import ConfigError, GlueError
from glue.messages import Json, Request, Usage, user
from glue.provider import Capabilities, Done
from glue.providers import key_available, known, lookup, new, wire_class
from glue.providers.catalog import Row

DATE = "2026-08-08"

# provider: {model: (input, output, cached input, written to the cache)}; what a vendor does not
# price apart costs as much as plain input. Vendors change prices: the date says how old these are.
PRICES: dict[str, dict[str, tuple[float, ...]]] = {
    "openai": {
        "gpt-5": (1.25, 10.0, 0.125),
        "gpt-5-mini": (0.25, 2.0, 0.025),
        "gpt-5-nano": (0.05, 0.4, 0.005),
        "gpt-4.1": (2.0, 8.0, 0.5),
        "gpt-4.1-mini": (0.4, 1.6, 0.1),
        "gpt-4.1-nano": (0.1, 0.4, 0.025),
        "gpt-4o": (2.5, 10.0, 1.25),
        "gpt-4o-mini": (0.15, 0.6, 0.075),
        "o3": (2.0, 8.0, 0.5),
        "o4-mini": (1.1, 4.4, 0.275),
    },
    "azure": {"gpt-4o-mini": (0.165, 0.66, 0.0825)},
    "anthropic": {
        "claude-haiku-4-5": (1.0, 5.0, 0.1, 1.25),
        "claude-sonnet-4-5": (3.0, 15.0, 0.3, 3.75),
        "claude-opus-4-5": (5.0, 25.0, 0.5, 6.25),
    },
    "gemini": {
        "gemini-2.5-pro": (1.25, 10.0, 0.125),
        "gemini-2.5-flash": (0.3, 2.5, 0.03),
        "gemini-2.5-flash-lite": (0.1, 0.4, 0.01),
    },
    "bedrock": {"amazon.nova-micro-v1:0": (0.035, 0.14, 0.00875)},
    "openrouter": {"openai/gpt-oss-20b": (0.02, 0.1)},
    "groq": {"llama-3.1-8b-instant": (0.05, 0.08)},
    "mistral": {"mistral-small-latest": (0.06, 0.18)},
    "deepseek": {"deepseek-v4-flash": (0.14, 0.28)},
    "xai": {"grok-4-fast-non-reasoning": (0.2, 0.5)},
    "cerebras": {"llama3.1-8b": (0.1, 0.1)},
    "together": {"openai/gpt-oss-20b": (0.05, 0.2)},
    "fireworks": {"accounts/fireworks/models/gpt-oss-20b": (0.07, 0.3)},
    "moonshot": {"moonshot-v1-8k": (0.2, 2.0)},
    "alibaba": {"qwen-turbo": (0.05, 0.2)},
    "zai": {"glm-4.5-flash": (0.0, 0.0)},
    "perplexity": {"sonar": (1.0, 1.0)},
    "deepinfra": {"openai/gpt-oss-20b": (0.04, 0.15)},
    "sambanova": {"Meta-Llama-3.1-8B-Instruct": (0.1, 0.2)},
    "offline": {"offline": (0.0, 0.0)},
}
PRICES["vertex"] = PRICES["gemini"]

_DATED = re.compile(r"[-@](\d{8}|\d{4}-\d\d-\d\d|\d{3})$")  # gpt-4o-mini-2024-07-18, claude-haiku-4-5-20251001


def price(provider: str, model: str) -> tuple[float, ...] | None:
    """Return a model's prices; a dated name has those of the plain one."""
    models = PRICES.get(provider, {})
    return models.get(model) or models.get(_DATED.sub("", model))


def cost(provider: str, model: str, usage: Usage) -> float | None:
    """Return what a reply cost in USD, or None where no price is known."""
    prices = price(provider, model)
    if prices is None:
        return None
    plain, output = prices[:2]
    cached = prices[2] if len(prices) > 2 else plain
    written = prices[3] if len(prices) > 3 else plain
    read, write = usage.cache_read or 0, usage.cache_write or 0
    # Some servers count a token as read and as written; it is paid for once.
    write = max(0, min(write, usage.input - read))
    rest = max(0, usage.input - read - write)
    return (rest * plain + read * cached + write * written + usage.output * output) / 1_000_000


def capabilities_of(row: Row, model: str = "") -> Capabilities:
    """Put together what is known of a row's model."""
    model = model or row.model
    prices = price(row.name, model)

    def takes_output(schema: Json, *, tools: bool = False) -> bool:
        return bool(row.wire) and wire_class(row.wire).takes_output(schema, row, model, tools=tools)

    return Capabilities(
        provider=row.name,
        model=model,
        window=row.window if model == row.model else None,
        tools=row.quirks.tools,
        images=("image/*",) if row.quirks.images else (),
        local=row.quirks.local,
        input_price=prices[0] if prices else None,
        output_price=prices[1] if prices else None,
        takes_output=takes_output,
    )


def provider_rows(environ: Mapping[str, str] = os.environ) -> list[dict[str, Any]]:
    """List every provider: name, wire, key variable, whether it is set, default model, context window."""
    rows = []
    for name in known():
        row = lookup(name)
        needed = bool(row.key) and not row.quirks.local
        found = next((variable for variable in row.key if environ.get(variable)), None)
        rows.append(
            {
                "name": name,
                "wire": row.wire or "-",
                "key": found or (row.key[0] if row.key else None),
                "key_set": None if not needed and found is None else key_available(name, environ),
                "model": row.model or None,
                "window": row.window if row.model else None,
            }
        )
    return rows


def model_rows() -> list[dict[str, Any]]:
    """List every model with a known price, in USD per million tokens."""
    rows = []
    for name in known():
        row = lookup(name)
        for model, prices in sorted(PRICES.get(name, {}).items()):
            rows.append(
                {
                    "model": f"{name}:{model}",
                    "input": prices[0],
                    "output": prices[1],
                    "cached": prices[2] if len(prices) > 2 else None,
                    "window": row.window if model == row.model else None,
                    "default": model == row.model,
                }
            )
    return rows


def providers_text(environ: Mapping[str, str] = os.environ) -> str:
    """Draw the table of providers."""
    words = {True: "set", False: "not set", None: "not needed"}
    lines = [("name", "wire", "key", "", "default model", "window")]
    for row in provider_rows(environ):
        window = f"{row['window']:,}" if row["window"] else "-"
        lines.append((row["name"], row["wire"], row["key"] or "-", words[row["key_set"]], row["model"] or "-", window))
    return _table(lines)


def models_text() -> str:
    """Draw the table of prices."""
    lines = [("model", "input", "output", "cached", "")]
    for row in model_rows():
        cached = "-" if row["cached"] is None else f"{row['cached']:g}"
        mark = "default" if row["default"] else ""
        lines.append((row["model"], f"{row['input']:g}", f"{row['output']:g}", cached, mark))
    return (
        f"{_table(lines)}\nUSD per million tokens, list prices of {DATE}; any other model may be named, without a cost."
    )


def _table(lines: Sequence[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


async def check(spec: str, **options: Any) -> tuple[int, str]:
    """Send one tiny request and say in one line what happened; returns the exit code as well."""
    from glue.providers.retry import close, opened

    started = time.monotonic()
    try:
        provider = new(spec, retries=False, **options)
    except ConfigError as error:
        return 2, str(error)
    try:
        request = Request(messages=(user("Say ok."),), max_tokens=64)
        async with aclosing(opened(provider, request)) as events:
            async for event in events:
                if isinstance(event, Done):
                    said = " ".join(event.message.text.split())[:60]
                    seconds = time.monotonic() - started
                    return 0, f"{provider.name}: {event.message.model} answered {said!r} in {seconds:.1f} s"
    except ConfigError as error:
        return 2, str(error)
    except GlueError as error:
        return (2 if getattr(error, "kind", "") in ("auth", "not_found") else 1), str(error)
    finally:
        await close(provider)
    return 1, f"{provider.name}: no answer"
