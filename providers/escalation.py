"""Ask again with a higher output cap when a reply was cut by it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Literal

from glue.limits import StopReason
from glue.providers.wrapper import Wrapper, model_of
from glue.types import Attempt, Done, Provider, ProviderEvent, Request


def with_escalation(
    provider: Provider,
    *,
    ladder: Literal["double"] | int | Sequence[int] = "double",
    attempts: int = 2,
    ceiling: int | None = None,
) -> Escalation:
    """Raise `max_tokens` and ask again, at most `attempts` times, while a reply is cut by it.

    The ladder is "double", a step to add, or a list of caps. A request without a cap is left alone.
    The pieces of a reply that is thrown away have been seen by then: the report names its message.
    """
    return Escalation(provider, ladder, attempts, ceiling)


class Escalation(Wrapper):
    def __init__(
        self, provider: Provider, ladder: Literal["double"] | int | Sequence[int], attempts: int, ceiling: int | None
    ) -> None:
        super().__init__(provider)
        if isinstance(ladder, str) and ladder != "double":
            raise ValueError(f"the ladder must be 'double', a step or a list of caps, not {ladder!r}")
        if isinstance(ladder, int) and ladder < 1:
            raise ValueError(f"the step must be 1 or more, not {ladder}")
        self._ladder = ladder
        self._attempts = attempts
        self._ceiling = ceiling

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        left = self._attempts
        while True:
            started, done = time.monotonic(), None
            async with aclosing(self.open(request)) as events:
                async for event in events:
                    if isinstance(event, Done):
                        done = event
                        break
                    yield event
            if done is None:
                return
            cap = request.max_tokens
            higher = self._next(cap) if cap is not None and left > 0 and _was_cut(done) else None
            if higher is None:
                yield done
                return
            left -= 1
            yield Attempt(
                provider=done.message.provider or self.name,
                model=done.message.model or model_of(self.provider, request),
                kind="escalated",
                detail=f"cut at max_tokens={cap}, asking again with {higher}",
                seconds=time.monotonic() - started,
                usage=done.message.usage,
                previous_cap=cap,
                next_cap=higher,
                discarded=done.message.id,
            )
            request = replace(request, max_tokens=higher)

    def _next(self, cap: int) -> int | None:
        """Return the next cap, or None where the ladder or the ceiling gives no higher one."""
        if isinstance(self._ladder, int):
            higher: int | None = cap + self._ladder
        elif isinstance(self._ladder, str):
            higher = cap * 2
        else:
            higher = min((rung for rung in self._ladder if rung > cap), default=None)
        if higher is not None and self._ceiling is not None:
            higher = min(higher, self._ceiling)
        return higher if higher is not None and higher > cap else None


def _was_cut(done: Done) -> bool:
    return done.message.stop_reason is StopReason.MAX_TOKENS
