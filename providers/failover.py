"""A failover list: several providers as one, tried in order until one of them answers."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from math import inf

from glue import Provider, Request, StopReason
from glue.backoff import Backoff
from glue.checks import show
from glue.errors import ErrorKind, FailoverError, ProviderError
from glue.provider import (
    Attempt,
    Capabilities,
    Closeable,
    Done,
    Notice,
    ProviderEvent,
    TextDelta,
    ThinkingDelta,
    capabilities,
    close,
    common,
    opened,
)
from glue.providers.retry import attempt_of, is_empty, no_reply
from glue.settings import is_provider
from glue.signature import hinted

log = logging.getLogger("glue.failover")

# The cooldown of a provider whose server advises none.
COOLDOWN = Backoff(first=30.0, cap=300.0, jitter=0)
_TRANSIENT = ("transient", "timeout", "overloaded")


@hinted
def with_failover(
    *providers: Provider,
    on_refusal: bool = False,
    buffer: bool = False,
    clock: Callable[[], float] = time.monotonic,
    skipped: Mapping[str, Sequence[str]] | None = None,
) -> Failover:
    """Return a provider that asks several providers in order until one of them answers.

    >>> from glue.testing import Script
    >>> provider = with_failover(Script("one", name="a"), Script("two", name="b"))
    >>> provider.name
    'a,b'

    Each provider uses its own model. The first piece of a reply decides, thinking included: before
    it, an error or an empty reply switches to the next provider; after it, an error is raised. With
    `buffer=True` the pieces are held back until the reply is complete, so that a provider that
    fails in the middle of a reply is replaced too; nothing is shown before that.

    A provider that failed cools down, which means that later requests skip it:

    - wrong key or spent quota: for good;
    - rate limited: as long as the server advises, else 30 seconds;
    - unreachable, timed out or overloaded: as long as the server advises, else 30 seconds, doubled
      with each failure in a row up to 5 minutes.

    If every provider is cooling down, the providers that failed with a transient error are asked
    anyway. If all fail, FailoverError is raised with the attempts.

    Args:
        providers: the providers, in the order in which they are asked.
        on_refusal: whether a refusal of the model also switches to the next provider.
        buffer: whether the pieces of a reply are held back until it is complete.
        clock: returns the time in seconds.
        skipped: names of providers that were left out because no key is set, each with the
            variables for its key. The first request reports them as `Attempt` events.
    """
    return Failover(
        providers, on_refusal=on_refusal, buffer=buffer, clock=clock, skipped=skipped or {}
    )


class Failover(Closeable):
    """A provider that asks several providers in order until one answers; see `with_failover`."""

    def __init__(
        self,
        providers: Sequence[Provider],
        *,
        on_refusal: bool,
        buffer: bool,
        clock: Callable[[], float],
        skipped: Mapping[str, Sequence[str]],
    ) -> None:
        if not providers:
            raise ValueError("failover needs at least one provider")
        for provider in providers:
            if not is_provider(provider):
                raise TypeError(
                    f"failover takes providers, not {show(provider)}; "
                    "glue.providers.new makes a provider from a name"
                )
        self.providers = tuple(providers)
        self.name = ",".join(provider.name for provider in providers)
        self.model = ""
        self.skipped = tuple(skipped)
        self._unreported = [_skipped_attempt(*item) for item in skipped.items()]
        self._on_refusal = on_refusal
        self._buffer = buffer
        self._clock = clock
        # By the provider's position in the list.
        self._failures: dict[int, int] = {}  # transient failures in a row
        self._cold_until: dict[int, float] = {}  # infinite if the provider is left out for good
        self._reasons: dict[int, Attempt] = {}  # the failure that began the cooldown

    def __repr__(self) -> str:
        return f"Failover({', '.join(map(repr, self.providers))})"

    @property
    def capabilities(self) -> Capabilities:
        return common([capabilities(provider) for provider in self.providers])

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        if request.model:
            request = replace(request, model="")  # each provider uses its own
        failed: list[tuple[Attempt, ProviderError]] = []
        unreported, self._unreported = self._unreported, []
        for attempt in unreported:
            yield attempt
        order = self._order()
        for place, index in enumerate(order):
            provider = self.providers[index]
            started, committed, done = time.monotonic(), False, None
            held: list[ProviderEvent] = []  # the pieces of a reply that is not complete yet
            try:
                async with opened(provider, request) as events:
                    async for event in events:
                        if isinstance(event, Done):
                            done = event
                            break
                        if isinstance(event, (TextDelta, ThinkingDelta)) and not event.text:
                            continue  # a bare start; the next provider would start again
                        is_piece = not isinstance(event, (Attempt, Notice))
                        if is_piece and self._buffer:
                            held.append(event)
                            continue
                        committed = committed or is_piece
                        yield event
                if done is not None and (committed or not self._is_passed_on(done)):
                    self._failures.pop(index, None)
                    for piece in held:
                        yield piece
                    yield done
                    return
                error = no_reply(provider, request, done, committed)
            except ProviderError as caught:
                error = caught
            error.emitted = committed or (error.emitted and not self._buffer)
            if error.emitted or (error.kind == "content_filter" and not self._on_refusal):
                raise error
            cooldown = self._cool_down(index, error)
            attempt = attempt_of(error, provider, request, started, cooldown=cooldown)
            if cooldown:
                self._reasons[index] = attempt
            failed.append((attempt, error))
            if place + 1 < len(order):
                following = self.providers[order[place + 1]].name
                log.info("%s failed (%s), asking %s", provider.name, error.kind, following)
                yield attempt
        raise self._all_failed(failed, order)

    def _is_passed_on(self, done: Done) -> bool:
        """Return whether a reply is a failure: empty, or a refusal while `on_refusal` is set."""
        is_refusal = done.message.stop_reason is StopReason.REFUSAL
        return (self._on_refusal and is_refusal) or is_empty(done.message)

    def _order(self) -> list[int]:
        """Return the positions of the providers to ask, in order.

        They are the providers that are not cooling down. If every provider is cooling down, they
        are the providers whose last failure was transient.
        """
        now, every = self._clock(), range(len(self.providers))
        ready = [index for index in every if self._cold_until.get(index, 0.0) <= now]
        return ready or [
            index for index in every if index in self._failures and self._cold_until[index] < inf
        ]

    def _cool_down(self, index: int, error: ProviderError) -> float:
        """Start the cooldown of a provider after an error; return its seconds, or 0 if none starts.

        After a wrong key or a spent quota, the cooldown is infinite.
        """
        if error.kind in ("auth", "quota"):
            cooldown: float | None = inf
        elif error.kind == "rate_limited":
            self._failures.pop(index, None)
            cooldown = error.retry_after if error.retry_after is not None else COOLDOWN.delay(1)
        elif error.kind in _TRANSIENT:
            self._failures[index] = self._failures.get(index, 0) + 1
            cooldown = error.retry_after
            if cooldown is None:
                cooldown = COOLDOWN.delay(self._failures[index])
        else:
            return 0.0
        assert cooldown is not None  # COOLDOWN has no limit of attempts
        self._cold_until[index] = self._clock() + cooldown
        return cooldown

    def _all_failed(
        self, failed: Sequence[tuple[Attempt, ProviderError]], order: Sequence[int]
    ) -> FailoverError:
        """Return the error for a request that no provider answered."""
        attempts = [attempt for attempt, _ in failed]
        absent = [
            self._reasons[index] for index in range(len(self.providers)) if index not in order
        ]
        texts = [f"{name}: left out because no key is set" for name in self.skipped]
        for attempt in attempts:
            why = " ".join(attempt.detail.removeprefix(f"{attempt.provider}: ").split())
            texts.append(f"{attempt.provider}: {attempt.kind}" + (f", {why[:160]}" if why else ""))
        texts += [f"{attempt.provider}: skipped after {attempt.kind}" for attempt in absent]
        wait = min((until - self._clock() for until in self._cold_until.values()), default=inf)
        kinds: list[ErrorKind] = [failure.kind for _, failure in failed]
        kind: ErrorKind = "rate_limited" if wait < inf else "auth"
        if "context_overflow" in kinds:  # the caller can fix this, so no later failure may hide it
            kind = "context_overflow"
        elif kinds:
            kind = kinds[-1]
        error = FailoverError(
            f"every provider failed ({'; '.join(texts)})", kind=kind, attempts=attempts + absent
        )
        advised = [failure.retry_after is not None for _, failure in failed]
        if error.kind == "rate_limited" or (advised and all(advised)):
            error.retry_after = max(0.0, wait)
        if failed:
            last = failed[-1][1]
            error.__cause__, error.status, error.usage = last, last.status, last.usage
            error.retryable = any(failure.retryable for _, failure in failed)
            error.answered = any(failure.answered for _, failure in failed)
        return error

    async def aclose(self) -> None:
        for provider in self.providers:
            await close(provider)


def _skipped_attempt(name: str, variables: Sequence[str]) -> Attempt:
    """Return the Attempt that reports a provider which was left out because no key is set."""
    hint = f"; set {' or '.join(variables)}" if variables else ""
    detail = f"{name}: left out because no key is set{hint}"
    return Attempt(provider=name, kind="auth", detail=detail, cooldown=inf)
