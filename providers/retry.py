"""A wrapper for providers that repeats a request after a failure that may be temporary.

A request is repeated only while the caller has seen no text and no tool call. Thinking and blank
text may have been shown already: they are shown again by the next attempt.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import anyio

from glue import AssistantMessage, Provider, Request, StopReason, user
from glue.backoff import Backoff
from glue.errors import EmptyReply, ProviderError
from glue.loop.transcript import has_content
from glue.provider import Done, TextDelta, ToolCallDelta, Wrapper, opened

if TYPE_CHECKING:
    from glue.provider import Attempt, ProviderEvent

Sleep: TypeAlias = Callable[[float], Awaitable[object]]

# Sent with the next attempt and never stored.
HINT = (
    "The last answer was lost before any of it arrived. Please answer again, briefly if possible."
)
REFUSED = (
    "Your tool call was refused before it ran ({error}). "
    "Call again with arguments that fit, or answer without it."
)

# Why a request is repeated. "unanswered": no reply began, because the server is busy or cannot be
# reached. "empty": the reply was empty. "lost": the reply broke before any output. "call": the
# server refused a tool call of the model.
_Cause: TypeAlias = Literal["unanswered", "empty", "lost", "call"]
_BACKOFFS: dict[_Cause, Backoff] = {
    "empty": Backoff(first=0.25, cap=0.5, attempts=3, jitter=0),
    "lost": Backoff(first=0.5, cap=0.5, attempts=2, jitter=0),
    "call": Backoff(first=0.0, cap=0.0, attempts=3),
}
_COMPLETE = (StopReason.END_TURN, StopReason.TOOL_USE, StopReason.UNKNOWN)


def with_retries(
    provider: Provider,
    *,
    attempts: int = 5,
    first: float = 2.0,
    cap: float = 30.0,
    sleep: Sleep | None = None,
    jitter: Callable[[], float] | None = None,
) -> Retries:
    """Return a provider that repeats a failed request if the failure may be temporary.

    >>> from glue.testing import Script
    >>> provider = with_retries(Script("hello"), attempts=3, first=1.0)
    >>> provider.name
    'script'

    The number of attempts and the waits depend on the failure:

    - No reply began (connection refused or reset, DNS or TLS failure, rate limited, overloaded,
      HTTP 5xx, timeout before the response): `attempts` attempts in all with the same request. The
      wrapper waits as long as the server advises, else `first` seconds, doubled each time up to
      `cap`. If the server advises more than `cap` seconds, the error is raised at once. With the
      defaults, a server that cannot be reached is tried for at least 22 seconds.
    - The reply is empty: three attempts.
    - The reply began and broke before any output: two attempts, the second with a hint and less
      reasoning.
    - The server refused the model's tool call: three attempts that quote the server's error.

    Nothing is repeated once text or a tool call was passed on. Providers made by `new` have this
    wrapper already; `new(..., retries=False)` leaves it out.

    Args:
        provider: the provider to wrap.
        attempts: attempts in all while no reply begins, the first one included.
        first: seconds to wait after the first of these failures.
        cap: seconds to wait at most.
        sleep: awaited with the seconds to wait; None is `anyio.sleep`.
        jitter: returns a number from 0 to 1; a quarter of it is taken off each wait.
    """
    backoff = Backoff(first=first, cap=cap, attempts=attempts, random=jitter)
    return Retries(provider, backoff, anyio.sleep if sleep is None else sleep)


class Retries(Wrapper):
    """A provider that repeats failed requests by the rules that `with_retries` describes."""

    def __init__(self, provider: Provider, backoff: Backoff, sleep: Sleep) -> None:
        super().__init__(provider)
        self._backoffs: dict[_Cause, Backoff] = {**_BACKOFFS, "unanswered": backoff}
        self._sleep = sleep

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        failures: Counter[_Cause] = Counter()
        while True:
            started, emitted, done = time.monotonic(), False, None
            try:
                async with opened(self.provider, request) as events:
                    async for event in events:
                        if isinstance(event, Done):
                            done = event
                            break
                        emitted = emitted or _is_output(event)
                        yield event
                if done is not None and (emitted or not is_empty(done.message)):
                    yield done
                    return
                error = no_reply(self.provider, request, done, emitted)
            except ProviderError as caught:
                error = caught
            error.emitted = error.emitted or emitted
            cause = None if emitted else _cause(error)
            delay = None if cause is None else self._delay(cause, error, failures)
            if delay is None:
                if done is not None:
                    yield done  # the loop reports the empty reply; its usage is on the message
                    return
                raise _final(error)
            yield attempt_of(error, self.provider, request, started, delay=delay)
            await self._sleep(delay)
            request = _adapted(request, cause, error)

    def _delay(
        self, cause: _Cause, error: ProviderError, failures: Counter[_Cause]
    ) -> float | None:
        """Count a failure; return the seconds before the next attempt, or None to give up."""
        failures[cause] += 1
        advised = error.retry_after if cause == "unanswered" else None
        return self._backoffs[cause].delay(failures[cause], advised)


def _is_output(event: ProviderEvent) -> bool:
    """Return whether an event is output, after which the request must not be repeated.

    Thinking, blank text, attempts and notices are not.
    """
    if isinstance(event, TextDelta):
        return bool(event.text.strip())
    return isinstance(event, ToolCallDelta)


def _adapted(request: Request, cause: _Cause | None, error: ProviderError) -> Request:
    """Return the request for the next attempt: unchanged, or with a hint for the model.

    If the reply was lost, the request also asks for less reasoning.
    """
    if cause == "call":
        hint = user(REFUSED.format(error=error), origin="nudge")
        return replace(request, messages=(*request.messages, hint))
    if cause != "lost":
        return request
    hint = user(HINT, origin="nudge")
    level = request.reasoning
    if level in ("medium", "high", "xhigh", "max"):
        level = "minimal"  # long reasoning may be why the connection broke
    return replace(request, messages=(*request.messages, hint), reasoning=level)


def attempt_of(
    error: ProviderError, provider: Provider, request: Request, started: float, **more: Any
) -> Attempt:
    """Return the Attempt event for a failed attempt that began at `started` (monotonic seconds)."""
    from glue.provider import Attempt  # start-up: most requests succeed

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
    """Return the model that a request names, or the provider's default model."""
    return request.model or getattr(provider, "model", "")


def is_empty(message: AssistantMessage) -> bool:
    """Return whether a reply counts as complete but has neither content nor tool calls."""
    is_complete = message.stop_reason in _COMPLETE
    return is_complete and not message.calls and not has_content(message.content)


def no_reply(
    provider: Provider, request: Request, done: Done | None, committed: bool
) -> ProviderError:
    """Return the error for a stream that ended without a usable reply."""
    model = model_of(provider, request)
    if done is not None and done.message.stop_reason is StopReason.REFUSAL:
        error: ProviderError = ProviderError(
            "the model refused to answer",
            kind="content_filter",
            provider=provider.name,
            model=model,
        )
    elif committed:
        return ProviderError(
            "the stream ended without a final event",
            kind="protocol",
            provider=provider.name,
            model=model,
        )
    else:
        error = EmptyReply(provider=provider.name, model=model)
    error.usage = done.message.usage if done is not None else None
    return error


def _cause(error: ProviderError) -> _Cause | None:
    """Return why a request may be repeated after an error, or None if it must not be repeated."""
    from glue.providers.errors import is_refused_call  # start-up: most requests succeed

    if error.kind == "empty":
        return "empty"
    if is_refused_call(error):
        return "call"
    broke = error.answered and error.status is None
    if broke and error.kind in ("transient", "timeout", "protocol"):
        return "lost" if error.retryable or error.kind == "protocol" else None
    return "unanswered" if error.retryable else None


def _final(error: ProviderError) -> ProviderError:
    """Convert an error of the kind "empty" to an EmptyReply; return any other error unchanged."""
    if type(error) is not ProviderError or error.kind != "empty":
        return error
    empty = EmptyReply(str(error), model=error.model)
    empty.provider, empty.status, empty.usage = error.provider, error.status, error.usage
    empty.__cause__ = error
    return empty
