"""Checked by the type checkers, never run: tools keep their signatures, and deps are checked."""

from __future__ import annotations

from typing import Any, assert_type

import glue


class Deps:
    name: str = ""


@glue.tool
def plain(city: str, days: int = 3) -> str:
    return city * days


@glue.tool(timeout=5, needs_permission="write", target="path")
async def informed(context: glue.Context[Deps], path: str) -> int:
    assert_type(context.deps, Deps)
    context.deps.missing  # type: ignore[attr-defined]  # noqa: B018
    return len(path)


class Shop:
    @glue.tool
    def sell(self, item: str) -> float:
        return float(len(item))


async def check(context: glue.Context[Deps], other: glue.Context[int], shop: Shop) -> None:
    assert_type(plain("Rome", days=2), str)
    plain(3)  # type: ignore[arg-type]
    plain("Rome", hours=2)  # type: ignore[call-arg]
    plain()  # type: ignore[call-arg]

    assert_type(await informed(context, "a"), int)
    await informed(other, "a")  # type: ignore[arg-type]

    assert_type(shop.sell("tea"), float)
    shop.sell(3)  # type: ignore[arg-type]
    shop.sell()  # type: ignore[call-arg]

    glue.tool(timeout="soon")  # type: ignore[call-overload]
    tools: list[glue.Tool[..., Any]] = [plain, informed, shop.sell]
    ready: glue.Tool[..., int] = glue.Tool.from_schema("n", "", {}, lambda arguments: 3)
    tools.append(ready)
