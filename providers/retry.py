"""Wrappers that ask again: after a failure that may pass, or with a higher cap; never after the caller saw content."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import anyio

from glue import (
    AssistantMessage,
    Attempt,
    Done,
    Provider,
    ProviderEvent,
    Request,
    StopReason,
    TextDelta,
    ThinkingDelta,
    user,
)
from glue.errors import EmptyReply, ProviderError
from glue.loop.transcript import has_content
from glue.provider import Wrapper, opened


def attempt_of(error: ProviderError, provider: Provider, request: Request, started: float, **more: Any) -> Attempt:
    """Report a try that failed."""
    return Attempt(
        provider=error.provider or provider.name,
        model=error.model or model_of(provider, request),
        kind=error.kind,
        detail=str(error),
        seconds=time.monotonic() - started,
        usage=error.usage,
        **more,
    )


def model_of(provider: Provider, request: Request) -> str:
    return request.model or getattr(provider, "model", "")


Sleep: TypeAlias = Callable[[float], Awaitable[object]]

HINT = "The last answer was lost on the way before anything of it arrived. Please answer again; be brief if you can."
REFUSED = (
    "Your tool call was refused before it ran ({error}). Call again with arguments that fit, or answer without it."
)

_Class: TypeAlias = Literal["busy", "empty", "lost", "call"]
_TRIES = {"empty": (3, 0.25), "lost": (2, 0.5), "call": (3, 0.0)}  # in all, and seconds after the first
_STOPS = (StopReason.END_TURN, StopReason.TOOL_USE, StopReason.UNKNOWN)


def with_retries(
    provider: Provider,
    *,
    attempts: int = 5,
    first: float = 2.0,
    cap: float = 30.0,
    sleep: Sleep = anyio.sleep,
    jitter: Callable[[], float] | None = None,
) -> Retries:
    """Try again what may pass.

    A busy server is asked up to `attempts` times in all, after the wait that it advises, else after
    `first` seconds, doubled each time up to `cap`; advice above `cap` ends it at once. An empty
    reply is asked for three times, an answer that was lost on the way twice, and a call that the
    server itself refused three times, with what it said.
    """
    return Retries(provider, attempts=attempts, first=first, cap=cap, sleep=sleep, jitter=jitter)


class Retries(Wrapper):
    def __init__(
        self,
        provider: Provider,
        *,
        attempts: int,
        first: float,
        cap: float,
        sleep: Sleep,
        jitter: Callable[[], float] | None,
    ) -> None:
        super().__init__(provider)
        self._attempts, self._first, self._cap = attempts, first, cap
        self._sleep, self._jitter = sleep, jitter

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        tries: Counter[_Class] = Counter()
        while True:
            started, emitted, done = time.monotonic(), False, None
            try:
                async with opened(self.provider, request) as events:
                    async for event in events:
                        if isinstance(event, Done):
                            done = event
                            break
                        blank = isinstance(event, TextDelta) and not event.text.strip()
                        if not blank and not isinstance(event, (Attempt, ThinkingDelta)):
                            emitted = True  # neither blanks nor thinking commit to a try
                        yield event
                if done is not None and (emitted or not is_empty(done.message)):
                    yield done
                    return
                error = no_reply(self.provider, request, done, emitted)
            except ProviderError as caught:
                error = caught
            error.emitted = error.emitted or emitted
            delay = None if emitted else self._delay(error, tries)
            if delay is None:
                if done is not None:
                    yield done  # the loop says that it is empty; what it cost is on it
                    return
                raise _final(error)
            yield attempt_of(error, self.provider, request, started, delay=delay)
            await self._sleep(delay)
            which, level = _class(error), request.reasoning
            if which in ("lost", "call"):
                # A hint, which is sent and never stored, and less thinking, which may be what took too long.
                if which == "lost" and level in ("medium", "high", "xhigh", "max"):
                    level = "minimal"
                hint = user(HINT if which == "lost" else REFUSED.format(error=error), origin="nudge")
                request = replace(request, messages=(*request.messages, hint), reasoning=level)

    def _delay(self, error: ProviderError, tries: Counter[_Class]) -> float | None:
        """Return the seconds to wait before the next try, or None to give up."""
        which = _class(error)
        if which is None:
            return None
        tries[which] += 1
        if which == "busy":
            return self._busy_delay(tries[which], error.retry_after)
        most, first = _TRIES[which]
        return first * tries[which] if tries[which] < most else None

    def _busy_delay(self, tried: int, advised: float | None) -> float | None:
        if tried >= self._attempts:
            return None
        if advised is not None:
            return advised if advised <= self._cap else None
        from random import random

        wait = min(self._cap, self._first * 2.0 ** (tried - 1))
        return wait * (1 - (self._jitter or random)() / 4)  # so that many clients do not come back at once


def is_empty(message: AssistantMessage) -> bool:
    """Say whether a reply that claims to be whole holds nothing."""
    return message.stop_reason in _STOPS and not message.calls and not has_content(message.content)


def no_reply(provider: Provider, request: Request, done: Done | None, committed: bool) -> ProviderError:
    """Return the error of a stream that gave no answer."""
    model = model_of(provider, request)
    if done is not None and done.message.stop_reason is StopReason.REFUSAL:
        error: ProviderError = ProviderError("refused", kind="content_filter", provider=provider.name, model=model)
    elif committed:
        return ProviderError(
            "the stream ended without a final event", kind="protocol", provider=provider.name, model=model
        )
    else:
        error = EmptyReply(provider=provider.name, model=model)
    error.usage = done.message.usage if done is not None else None
    return error


def _class(error: ProviderError) -> _Class | None:
    from glue.providers.errors import is_refused_call  # its tables are needed only where something failed

    if error.kind == "empty":
        return "empty"
    if is_refused_call(error):
        return "call"
    if error.status is None and error.kind in ("transient", "timeout", "protocol"):
        return "lost" if error.retryable or error.kind == "protocol" else None
    return "busy" if error.retryable else None


def _final(error: ProviderError) -> ProviderError:
    if type(error) is not ProviderError or error.kind != "empty":
        return error
    empty = EmptyReply(str(error), model=error.model)
    empty.provider, empty.status, empty.usage = error.provider, error.status, error.usage
    empty.__cause__ = error
    return empty


Ladder: TypeAlias = Literal["double"] | int | Sequence[int]


def with_escalation(
    provider: Provider, *, ladder: Ladder = "double", attempts: int = 2, ceiling: int | None = None
) -> Escalation:
    """Raise `max_tokens` and ask again, at most `attempts` times, while a reply is cut by it.

    The ladder is "double", a step to add, or a list of caps. A request without a cap is left alone.
    The pieces of a reply that is thrown away have been seen by then: the report names its message.
    """
    return Escalation(provider, ladder, attempts, ceiling)


class Escalation(Wrapper):
    def __init__(self, provider: Provider, ladder: Ladder, attempts: int, ceiling: int | None) -> None:
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
