"""What `glue providers` and `glue models` print: plain rows and their text."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from glue.errors import ConfigError, GlueError
from glue.providers import key_available, known, lookup, new
from glue.providers.prices import DATE, PRICES, price
from glue.providers.row import Row
from glue.providers.wrapper import close, opened
from glue.types import Done, Request, user


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a provider, or one of its models, can do; None where nothing is known."""

    provider: str
    model: str
    wire: str
    window: int | None  # tokens of context
    tools: bool
    images: bool
    local: bool
    input_price: float | None  # USD per million tokens
    output_price: float | None


def capabilities_of(row: Row, model: str = "") -> Capabilities:
    """Put together what is known of a row's model."""
    model = model or row.model
    prices = price(row.name, model)
    return Capabilities(
        provider=row.name,
        model=model,
        wire=row.wire,
        window=row.window if model == row.model else None,
        tools=row.quirks.tools,
        images=row.quirks.images,
        local=row.quirks.local,
        input_price=prices[0] if prices else None,
        output_price=prices[1] if prices else None,
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
