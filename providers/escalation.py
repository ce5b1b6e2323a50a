"""A wrapper for providers: if a reply is cut off, ask again with a higher `max_tokens`."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from glue import Provider, Request, StopReason
from glue.provider import Attempt, Done, ProviderEvent, Wrapper, opened
from glue.providers.retry import model_of

Ladder: TypeAlias = Literal["double"] | int | Sequence[int]


def with_escalation(
    provider: Provider, *, ladder: Ladder = "double", attempts: int = 2, ceiling: int | None = None
) -> Escalation:
    """Return a provider that asks again with a higher `max_tokens` if a reply was cut off.

    >>> from glue.testing import Script
    >>> provider = with_escalation(Script("hello"), ladder=[4096, 16_384], ceiling=10_000)
    >>> provider.name
    'script'

    A request without `max_tokens` is passed on unchanged. The deltas of a cut-off reply are
    streamed before it is discarded; the `Attempt` event has the id of the discarded message.

    Args:
        provider: the provider to wrap.
        ladder: how `max_tokens` grows: "double", a number of tokens to add, or a list of limits.
        attempts: how often a request is repeated at most, for one reply.
        ceiling: the highest cap to ask for.
    """
    return Escalation(provider, ladder, attempts, ceiling)


class Escalation(Wrapper):
    """A provider that asks again with a higher `max_tokens` if a reply was cut off.

    `with_escalation` creates it.
    """

    def __init__(
        self, provider: Provider, ladder: Ladder, attempts: int, ceiling: int | None
    ) -> None:
        super().__init__(provider)
        if isinstance(ladder, str) and ladder != "double":
            raise ValueError(
                "ladder must be 'double', a number of tokens to add or a list of limits,"
                f" not {ladder!r}"
            )
        if isinstance(ladder, int) and ladder < 1:
            raise ValueError(
                f"ladder must be at least 1, the number of tokens to add, not {ladder}"
            )
        self._ladder = ladder
        self._attempts = attempts
        self._ceiling = ceiling

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        left = self._attempts
        while True:
            started, done = time.monotonic(), None
            async with opened(self.provider, request) as events:
                async for event in events:
                    if isinstance(event, Done):
                        done = event
                        break
                    yield event
            if done is None:
                return
            cap, was_cut = request.max_tokens, done.message.stop_reason is StopReason.MAX_TOKENS
            higher = self._next(cap) if cap is not None and left > 0 and was_cut else None
            if higher is None:
                yield done
                return
            left -= 1
            yield Attempt(
                provider=done.message.provider or self.name,
                model=done.message.model or model_of(self.provider, request),
                kind="escalated",
                detail=f"reply cut off at max_tokens={cap}, asking again with {higher}",
                seconds=time.monotonic() - started,
                usage=done.message.usage,
                previous_cap=cap,
                next_cap=higher,
                discarded=done.message.id,
            )
            request = replace(request, max_tokens=higher)

    def _next(self, cap: int) -> int | None:
        """Return the next higher `max_tokens` up to the ceiling, or None if none is higher."""
        if isinstance(self._ladder, int):
            higher: int | None = cap + self._ladder
        elif isinstance(self._ladder, str):
            higher = cap * 2
        else:
            higher = min((rung for rung in self._ladder if rung > cap), default=None)
        if higher is not None and self._ceiling is not None:
            higher = min(higher, self._ceiling)
        return higher if higher is not None and higher > cap else None
