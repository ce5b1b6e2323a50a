"""CPU time of one tool call (decode, validate, call), compared with json.loads and pydantic.

    python bench/tools.py

The cases alternate, and each figure is the best of many rounds. Compare the ratios: the
microseconds depend on the machine.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anyio

import glue
from glue.context import Spending

ROUNDS, CALLS = 200, 400
FLAT = '{"city": "Toronto", "days": 3, "metric": true}'
SLOPPY = '{"city": "Toronto", "days": "3", "metric": "true"}'
WRONG = '{"city": 7, "days": "many"}'
NESTED = '{"orders": [{"item": "tea", "count": 2}, {"item": "milk", "count": 1}], "note": "soon"}'


def forecast(city: str, days: int, metric: bool) -> str:
    """Return the forecast for a city."""
    return city


@dataclass
class Order:
    item: str
    count: int


def place(orders: list[Order], note: str) -> int:
    """Place orders."""
    return len(orders)


flat, nested = glue.tool(forecast), glue.tool(place)


def ours(tool: glue.Tool[..., Any], text: str) -> Callable[[], object]:
    return lambda: tool.function(**tool.signature.parse(text))


def bare(function: Callable[..., object], text: str) -> Callable[[], object]:
    return lambda: function(**json.loads(text))


def refused() -> None:
    try:
        flat.signature.parse(WRONG)
    except ValueError:
        return


def peers() -> dict[str, Callable[[], object]]:
    try:
        import pydantic
    except ImportError:
        return {}
    adapter: Any = pydantic.TypeAdapter
    one, two = adapter(forecast), adapter(place)
    return {
        "flat: pydantic, from text": lambda: one.validate_json(FLAT),
        "flat: json.loads, then pydantic": lambda: one.validate_python(json.loads(FLAT)),
        "flat, sloppy: pydantic, from text": lambda: one.validate_json(SLOPPY),
        "nested: pydantic, from text": lambda: two.validate_json(NESTED),
    }


def measure(cases: dict[str, Callable[[], object]]) -> dict[str, float]:
    best = dict.fromkeys(cases, float("inf"))
    for _ in range(ROUNDS):
        for name, case in cases.items():
            started = time.process_time()
            for _ in range(CALLS):
                case()
            best[name] = min(best[name], (time.process_time() - started) / CALLS * 1e6)
    return best


async def whole_calls() -> dict[str, float]:
    """Measure complete calls through `invoke`: an async tool, and a sync tool in a thread."""

    async def same(city: str, days: int, metric: bool) -> str:
        return city

    asked = glue.ToolCall(id="c", name="forecast", arguments=FLAT)
    context: glue.Context[Any] = glue.Context(
        call=asked,
        host=glue.context.Host(),
        cancel=glue.Cancel(),
        spending=Spending(),
        report=lambda *said: None,
    )
    best = {}
    for name, tool in (
        ("flat: whole call, async", glue.tool(same)),
        ("flat: whole call, in a thread", flat),
    ):
        rounds = []
        for _ in range(5):
            started = time.process_time()
            for _ in range(500):
                await tool.invoke(asked, context)
            rounds.append((time.process_time() - started) / 500 * 1e6)
        best[name] = min(rounds)
    return best


def main() -> None:
    refused()
    judge = flat.signature.shape.validator.judge()
    figures = measure(
        {
            "flat: json.loads and call": bare(forecast, FLAT),
            "flat: ours": ours(flat, FLAT),
            "flat, sloppy: ours": ours(flat, SLOPPY),
            "flat, wrong: ours, with the faults": refused,
            "nested: json.loads and call": bare(place, NESTED),
            "nested: ours": ours(nested, NESTED),
            **peers(),
        }
    )
    figures |= anyio.run(whole_calls)
    base = figures["flat: json.loads and call"]
    width = max(map(len, figures))
    print(f"{'decode + validate + call':{width}}  us/call  x json.loads and call (flat)")
    for name, spent in sorted(figures.items()):
        print(f"{name:{width}}  {spent:7.2f}  {spent / base:5.2f}")
    for case in ("flat", "flat, sloppy", "nested"):
        theirs = figures.get(f"{case}: pydantic, from text")
        if theirs:
            goal = ", goal: at most 2" if case == "flat" else ""
            print(f"{case}: ours / pydantic = {figures[f'{case}: ours'] / theirs:.2f}{goal}")
    same = flat.signature.shape.validator.judge() is judge
    print(f"validator: {'built once' if same else 'REBUILT'}")


if __name__ == "__main__":
    main()
