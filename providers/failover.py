"""Several providers as one: the next is asked when one fails before it has said anything."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from glue import Attempt, Capabilities, Done, Provider, ProviderEvent, Request, StopReason, TextDelta, ThinkingDelta
from glue.errors import ConfigError, ErrorKind, FailoverError, MissingKey, ProviderError
from glue.provider import Closeable, capabilities, close, common, opened
from glue.providers import key_available, lookup, new, parse, resolve
from glue.providers.retry import Retries, attempt_of, is_empty, no_reply, with_retries

log = logging.getLogger("glue.failover")

REST = 30.0  # seconds that a provider rests which is busy or dead and does not say for how long; doubled each time
MOST_REST = 300.0
_DEAD = ("transient", "timeout", "overloaded")


def with_failover(
    *providers: Provider,
    on_refusal: bool = False,
    clock: Callable[[], float] = time.monotonic,
    skipped: Sequence[str] = (),
) -> Failover:
    """Ask each provider in turn, with its own model, until one answers.

    The first piece of an answer commits, thinking included; an error or an empty stream before that
    falls through, a refusal only with `on_refusal`. A provider that fails with auth or quota is left
    out from then on; one that is rate limited rests for as long as it advises, one that is dead for
    half a minute and longer each time. Where all rest, the dead are asked all the same.
    """
    return Failover(providers, on_refusal=on_refusal, clock=clock, skipped=skipped)


class Failover(Closeable):
    def __init__(
        self, providers: Sequence[Provider], *, on_refusal: bool, clock: Callable[[], float], skipped: Sequence[str]
    ) -> None:
        if not providers:
            raise ValueError("failover needs at least one provider")
        for provider in providers:
            if not callable(getattr(provider, "stream", None)):
                raise TypeError(f"failover takes providers, not {provider!r}; glue.providers.new makes one of a name")
        self.providers = tuple(providers)
        self.name = ",".join(provider.name for provider in providers)
        self.model = ""
        self.skipped = tuple(skipped)  # names that were left out for want of a key
        self._on_refusal = on_refusal
        self._clock = clock
        self._untold = self.skipped
        self._dead: dict[int, int] = {}  # how often each one was found dead in a row
        self._rest: dict[int, float] = {}  # until when each one rests; for ever where it has to be left out
        self._why: dict[int, Attempt] = {}

    def __repr__(self) -> str:
        return f"Failover({', '.join(map(repr, self.providers))})"

    @property
    def capabilities(self) -> Capabilities:
        return common([capabilities(provider) for provider in self.providers])

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        if request.model:
            request = replace(request, model="")  # each uses its own
        failed: list[tuple[Attempt, ProviderError]] = []
        untold, self._untold = self._untold, ()
        for spec in untold:
            yield _keyless(spec)
        turn = self._turn()
        for place, index in enumerate(turn):
            provider = self.providers[index]
            started, committed, done = time.monotonic(), False, None
            try:
                async with opened(provider, request) as events:
                    async for event in events:
                        if isinstance(event, Done):
                            done = event
                            break
                        if isinstance(event, (TextDelta, ThinkingDelta)) and not event.text:
                            continue  # a bare start; the next provider would start again
                        committed = committed or not isinstance(event, Attempt)
                        yield event
                refused = done is not None and self._on_refusal and done.message.stop_reason is StopReason.REFUSAL
                if done is not None and (committed or not (refused or is_empty(done.message))):
                    self._dead.pop(index, None)
                    yield done
                    return
                error = no_reply(provider, request, done, committed)
            except ProviderError as caught:
                error = caught
            error.emitted = error.emitted or committed
            if error.emitted or (error.kind == "content_filter" and not self._on_refusal):
                raise error
            rest = self._put_to_rest(index, error)
            attempt = attempt_of(error, provider, request, started, rest=rest)
            if rest:
                self._why[index] = attempt
            failed.append((attempt, error))
            if place + 1 < len(turn):
                log.info("%s failed (%s), asking %s", provider.name, error.kind, self.providers[turn[place + 1]].name)
                yield attempt
        raise self._all_failed(failed, turn)

    def _turn(self) -> list[int]:
        now, every = self._clock(), range(len(self.providers))
        ready = [index for index in every if self._rest.get(index, 0.0) <= now]
        return ready or [index for index in every if index in self._dead and self._rest[index] < inf]

    def _put_to_rest(self, index: int, error: ProviderError) -> float:
        """Leave a provider out for a while where asking it again at once makes no sense; return the seconds."""
        if error.kind in ("auth", "quota"):
            rest = inf
        elif error.kind == "rate_limited":
            self._dead.pop(index, None)
            rest = REST if error.retry_after is None else error.retry_after
        elif error.kind in _DEAD:
            self._dead[index] = self._dead.get(index, 0) + 1
            rest = min(MOST_REST, REST * 2.0 ** (self._dead[index] - 1))
            rest = rest if error.retry_after is None else error.retry_after
        else:
            return 0.0
        self._rest[index] = self._clock() + rest
        return rest

    def _all_failed(self, failed: Sequence[tuple[Attempt, ProviderError]], turn: Sequence[int]) -> FailoverError:
        attempts = [attempt for attempt, _ in failed]
        absent = [self._why[index] for index in range(len(self.providers)) if index not in turn]
        texts = [f"{name}: left out for want of a key" for name in self.skipped]
        for attempt in attempts:
            why = " ".join(attempt.detail.removeprefix(f"{attempt.provider}: ").split())
            texts.append(f"{attempt.provider}: {attempt.kind}" + (f", {why[:160]}" if why else ""))
        texts += [f"{attempt.provider}: left out since {attempt.kind}" for attempt in absent]
        wait = min((until - self._clock() for until in self._rest.values()), default=inf)
        kinds: list[ErrorKind] = [failure.kind for _, failure in failed]
        kind: ErrorKind = kinds[-1] if kinds else "rate_limited" if wait < inf else "auth"
        if "context_overflow" in kinds:  # what the caller can mend, so no later failure may hide it
            kind = "context_overflow"
        error = FailoverError(f"every provider failed ({'; '.join(texts)})", kind=kind, attempts=attempts + absent)
        advised = [failure.retry_after is not None for _, failure in failed]
        if error.kind == "rate_limited" or (advised and all(advised)):
            error.retry_after = max(0.0, wait)
        if failed:
            last = failed[-1][1]
            error.__cause__, error.status, error.usage = last, last.status, last.usage
            error.retryable = any(failure.retryable for _, failure in failed)
        return error

    async def aclose(self) -> None:
        for provider in self.providers:
            await close(provider)


def _keyless(spec: str) -> Attempt:
    """Report a provider that was left out of a chain."""
    try:
        name, variables = resolve(spec)[0], lookup(spec).key
    except ConfigError:  # a name that only the caller knows
        name, variables = spec, ()
    hint = f"; set {' or '.join(variables)}" if variables else ""
    return Attempt(provider=name, kind="auth", detail=f"{name}: left out for want of a key{hint}", rest=inf)


def named_chain(specs: Sequence[str], options: Mapping[str, Any]) -> Retries | Failover:
    """Make a chain of those that have a key; it is tried again as a whole, so that none holds up the next."""
    for spec in specs:
        lookup(spec)  # a wrong name is a mistake, whichever keys are set
    keyless = [spec for spec in specs if "key" not in options and not key_available(spec)]
    if len(keyless) == len(specs):
        variables = [variable for spec in specs for variable in lookup(spec).key]
        raise MissingKey(",".join(parse(spec)[0] for spec in specs), list(dict.fromkeys(variables)))
    if keyless:
        log.warning("left out for want of a key: %s", ", ".join(keyless))
    providers = [new(spec, **{**options, "retries": False}) for spec in specs if spec not in keyless]
    chain = with_failover(*providers, skipped=keyless)
    return with_retries(chain) if options.get("retries", True) else chain
