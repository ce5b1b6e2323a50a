"""Failover: when the next provider is asked, and which providers cool down."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import pytest

from glue import Agent
from glue.errors import FailoverError, ProviderError
from glue.limits import Outcome
from glue.loop.run import run
from glue.messages import Request, Usage, user
from glue.provider import Attempt, Done, Provider, ProviderEvent, TextDelta
from glue.providers.failover import with_failover
from glue.providers.retry import with_retries
from glue.testing import Reply, Script, call, calls, fail, repeat, say

ASK = user("hello")


async def collect(provider: Provider, request: Request | None = None) -> list[ProviderEvent]:
    async with aclosing(provider.stream(request or Request(messages=(ASK,)))) as events:  # type: ignore[type-var]
        return [event async for event in events]


def pair(*steps: Any, second: Any = "from b") -> tuple[Script, Script]:
    return Script(*steps, name="a", model="a-1"), Script(repeat(second), name="b", model="b-1")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    "kind", ["auth", "quota", "rate_limited", "overloaded", "transient", "timeout", "protocol"]
)
async def test_an_error_before_any_output_switches_to_the_next_provider(kind: Any) -> None:
    a, b = pair(fail(kind, provider="a"))

    result = await run(with_failover(a, b), [ASK])

    assert (result.text, result.outcome, result.requests) == ("from b", Outcome.DONE, 2)
    assert [(attempt.provider, attempt.kind) for attempt in result.attempts] == [("a", kind)]


@pytest.mark.parametrize(
    "step", [Reply(), Reply(terminal=False), fail("empty"), Reply(usage=Usage(input=5))]
)
async def test_an_empty_stream_switches_to_the_next_provider(step: Any) -> None:
    a, b = pair(step)

    result = await run(with_failover(a, b), [ASK])

    assert (result.text, [attempt.kind for attempt in result.attempts]) == ("from b", ["empty"])


@pytest.mark.parametrize("begun", [say("half"), say("", thinking="hm"), calls(call("noop"))])
async def test_an_error_after_the_first_piece_is_raised(begun: Reply) -> None:
    a, b = pair(Reply(content=begun.content, error=fail("overloaded")))

    with pytest.raises(ProviderError) as caught:
        await collect(with_failover(a, b))

    assert (caught.value.kind, caught.value.emitted, b.requests) == ("overloaded", True, [])


async def test_an_error_after_empty_deltas_switches_to_the_next_provider() -> None:
    class Starts(Script):
        async def stream(self, request: Request) -> Any:
            yield TextDelta(text="")
            raise fail("overloaded")

    b = Script("from b", name="b")

    events = await collect(with_failover(Starts(name="a"), b))

    assert [type(event) for event in events] == [Attempt, TextDelta, Done]


async def test_a_refusal_is_returned() -> None:
    a, b = pair(Reply(stop="refusal"))

    result = await run(with_failover(a, b), [ASK])

    assert (result.outcome, b.requests) == (Outcome.REFUSED, [])
    assert result.error is None


async def test_an_ordinary_reply_is_returned_although_a_refusal_would_switch() -> None:
    a, b = pair("from a")

    events = await collect(with_failover(a, b, on_refusal=True, buffer=True))

    assert isinstance(done := events[-1], Done)
    assert (done.message.text, b.requests) == ("from a", [])


@pytest.mark.parametrize("step", [Reply(stop="refusal"), fail("content_filter")])
async def test_a_refusal_switches_to_the_next_provider_if_asked_to(step: Any) -> None:
    a, b = pair(step)

    result = await run(with_failover(a, b, on_refusal=True), [ASK])

    assert (result.text, result.attempts[0].kind) == ("from b", "content_filter")


async def test_a_content_filter_error_is_raised() -> None:
    a, b = pair(fail("content_filter"))

    with pytest.raises(ProviderError) as caught:
        await collect(with_failover(a, b))

    assert (caught.value.kind, b.requests) == ("content_filter", [])


@pytest.mark.parametrize("kind", ["auth", "quota"])
async def test_a_provider_without_access_is_left_out_from_then_on(kind: Any) -> None:
    a, b = pair(fail(kind, provider="a"))
    failover = with_failover(a, b)

    await collect(failover)
    events = await collect(failover)

    assert (len(a.requests), len(b.requests)) == (1, 2)
    assert not [event for event in events if isinstance(event, Attempt)]


async def test_a_rate_limited_provider_cools_down_for_as_long_as_it_advises() -> None:
    clock = Clock()
    a, b = pair(fail("rate_limited", retry_after=12.0), "from a")
    failover = with_failover(a, b, clock=clock)

    await collect(failover)
    clock.now = 11.9
    await collect(failover)
    assert len(a.requests) == 1
    clock.now = 12.0
    await collect(failover)

    assert len(a.requests) == 2


async def test_a_rate_limited_provider_without_advice_cools_down_for_thirty_seconds() -> None:
    a, b = pair(fail("rate_limited"))

    attempt, *_ = await collect(with_failover(a, b))

    assert isinstance(attempt, Attempt)
    assert attempt.cooldown == 30.0


@pytest.mark.parametrize("kind", ["transient", "timeout", "overloaded"])
async def test_an_unreachable_provider_cools_down_longer_each_time_and_is_asked_first_again(
    kind: Any,
) -> None:
    clock = Clock()
    a, b = pair(fail(kind), fail(kind), "from a", fail(kind))
    failover = with_failover(a, b, clock=clock)

    cooldowns = []
    for clock.now in (0.0, 29.0, 30.0, 89.0, 90.0, 91.0):
        cooldowns += [
            event.cooldown for event in await collect(failover) if isinstance(event, Attempt)
        ]

    assert (len(a.requests), len(b.requests)) == (4, 5)
    assert cooldowns == [30.0, 60.0, 30.0]


async def test_if_all_providers_cool_down_those_with_transient_errors_are_asked_anyway() -> None:
    a, b = pair(fail("transient"), "from a", second=fail("timeout"))
    failover = with_failover(a, b)

    with pytest.raises(FailoverError):
        await collect(failover)
    events = await collect(failover)

    assert isinstance(events[-1], Done)
    assert events[-1].message.text == "from a"


async def test_a_rate_limited_provider_is_not_asked_anyway_although_it_was_unreachable_before() -> (
    None
):
    clock = Clock()
    a = Script(fail("transient"), fail("rate_limited"), "from a", name="a")
    failover = with_failover(a, clock=clock)

    for clock.now in (0.0, 30.0, 31.0):
        with pytest.raises(FailoverError):
            await collect(failover)

    assert len(a.requests) == 2


async def test_the_log_names_the_provider_that_failed_and_the_next_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "glue.failover")
    a, b = pair(fail("timeout"))

    await collect(with_failover(a, b))

    assert caplog.messages == ["a failed (timeout), asking b"]


@pytest.mark.parametrize(
    ("detail", "shown"),
    [
        ("", "a: timeout"),
        ("no\n reply", "a: timeout, no reply"),
        ("x" * 161, f"a: timeout, {'x' * 160}"),
    ],
)
async def test_the_reason_of_each_attempt_is_one_short_line(detail: str, shown: str) -> None:
    failover = with_failover(Script(fail("timeout", detail, provider="a"), name="a"))

    with pytest.raises(FailoverError) as caught:
        await collect(failover)

    assert str(caught.value) == f"failover: every provider failed ({shown})"


async def test_an_invalid_request_starts_no_cooldown() -> None:
    a, b = pair(fail("invalid_request"), "from a")
    failover = with_failover(a, b)

    await collect(failover)
    await collect(failover)

    assert (len(a.requests), len(b.requests)) == (2, 1)


async def test_when_all_fail_the_error_lists_every_attempt() -> None:
    a, b = pair(fail("auth", provider="a"), second=fail("overloaded", provider="b", status=503))

    with pytest.raises(FailoverError) as caught:
        await collect(with_failover(a, b))

    error = caught.value
    assert [(attempt.provider, attempt.kind) for attempt in error.attempts] == [
        ("a", "auth"),
        ("b", "overloaded"),
    ]
    assert (error.kind, error.status, error.retryable) == ("overloaded", 503, True)
    assert "a: auth" in str(error)
    assert "b: overloaded" in str(error)


async def test_the_result_lists_each_failed_attempt_once() -> None:
    a, b = pair(fail("auth", provider="a"), second=fail("quota", provider="b"))

    result = await run(with_failover(a, b), [ASK])

    assert isinstance(result.error, FailoverError)
    assert [attempt.provider for attempt in result.attempts] == ["a", "b"]


async def test_an_overflow_is_not_hidden_by_a_later_failure() -> None:
    a, b = pair(fail("context_overflow"), second=fail("auth"))

    with pytest.raises(FailoverError) as caught:
        await collect(with_failover(a, b))

    assert caught.value.kind == "context_overflow"


@pytest.mark.parametrize(("second", "advised"), [(8.0, 8.0), (None, None)])
async def test_if_all_providers_advise_a_wait_the_failover_error_does_too(
    second: float | None, advised: float | None
) -> None:
    a, b = pair(fail("overloaded", retry_after=20.0), second=fail("overloaded", retry_after=second))

    with pytest.raises(FailoverError) as caught:
        await collect(with_failover(a, b, clock=Clock()))

    assert caught.value.retry_after == advised


async def test_if_all_providers_cool_down_the_error_has_the_wait() -> None:
    clock = Clock()
    a, b = pair(
        fail("rate_limited", retry_after=20.0), second=fail("rate_limited", retry_after=8.0)
    )
    failover = with_failover(a, b, clock=clock)

    with pytest.raises(FailoverError):
        await collect(failover)
    clock.now = 1.0
    with pytest.raises(FailoverError) as caught:
        await collect(failover)

    assert (caught.value.kind, caught.value.retry_after) == ("rate_limited", 7.0)
    assert (len(a.requests), len(b.requests)) == (1, 1)


async def test_if_all_providers_are_left_out_no_request_is_sent() -> None:
    a, b = pair(fail("auth"), second=fail("quota"))
    failover = with_failover(a, b)

    for _ in range(2):
        with pytest.raises(FailoverError) as caught:
            await collect(failover)

    assert (len(a.requests), len(b.requests), caught.value.retryable) == (1, 1, False)


async def test_each_provider_uses_its_own_model() -> None:
    a, b = pair(fail("overloaded"))

    result = await run(with_failover(a, b), [ASK], request=Request(model="a-1"))

    assert [request.model for request in (*a.requests, *b.requests)] == ["", ""]
    assert result.messages[-1].model == "b-1"  # type: ignore[union-attr]
    assert result.attempts[0].model == "a-1"


async def test_a_failover_list_is_retried_as_a_whole() -> None:
    slept = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.now += seconds

    clock = Clock()
    a = Script(fail("rate_limited", status=429, retry_after=20.0), "from a", name="a")
    b = Script(fail("rate_limited", status=429, retry_after=8.0), "from b", name="b")

    result = await run(with_retries(with_failover(a, b, clock=clock), sleep=sleep), [ASK])

    assert (result.text, slept) == ("from b", [8.0])


async def test_closing_the_list_closes_all_providers() -> None:
    closed = []

    class Closable(Script):
        async def aclose(self) -> None:
            closed.append(self.name)

    async with with_failover(Closable(name="a"), Closable(name="b")):
        pass

    assert closed == ["a", "b"]


def test_failover_without_providers_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        with_failover()


async def test_the_error_lists_providers_that_were_left_out_and_why_the_others_failed() -> None:
    failover = with_failover(
        Script(fail("transient", "cannot connect", provider="b"), name="b"), skipped={"a": ()}
    )

    with pytest.raises(FailoverError) as caught:
        async for _ in failover.stream(Request(messages=(user("hi"),))):
            pass

    assert str(caught.value).endswith(
        "(a: left out because no key is set; b: transient, cannot connect)"
    )


async def test_providers_that_were_left_out_are_reported_once() -> None:
    failover = with_failover(
        Script(repeat("hello"), name="b"), skipped={"a": (), "groq": ("GROQ_API_KEY",)}
    )

    first, second = await collect(failover), await collect(failover)

    told = [event.detail for event in first if isinstance(event, Attempt)]
    assert told == [
        "a: left out because no key is set",
        "groq: left out because no key is set; set GROQ_API_KEY",
    ]
    assert not any(isinstance(event, Attempt) for event in second)


async def test_each_failure_of_a_failover_list_is_reported_once() -> None:
    providers = with_failover(Script(fail("auth", "one")), Script(fail("auth", "two")))

    result = await Agent(providers).run("go", unwrap=False)

    assert [attempt.detail for attempt in result.attempts] == ["script: one", "script: two"]


# Buffering


BROKEN = Reply(content=say("one two three", chunk=4).content, error=fail("transient", status=503))


async def test_s160_a_provider_that_dies_in_the_middle_is_replaced_if_replies_are_buffered() -> (
    None
):
    a, b = pair(BROKEN)

    events = await collect(with_failover(a, b, buffer=True))

    assert [type(event).__name__ for event in events] == ["Attempt", "TextDelta", "Done"]
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["from b"]


async def test_s160_without_buffering_the_partial_text_was_shown_and_the_run_fails() -> None:
    a, b = pair(BROKEN)
    shown: list[str] = []

    def listen(event: Any) -> None:
        shown.extend([event.text] if isinstance(event, TextDelta) else [])

    result = await run(with_failover(a, b), [ASK], on_event=listen)

    assert (result.outcome, len(b.requests)) == (Outcome.FAILED, 0)
    assert "".join(shown) == "one two three"


async def test_a_buffered_reply_is_passed_on_piece_by_piece_when_it_is_complete() -> None:
    a, b = pair(say("one two", chunk=4))

    events = await collect(with_failover(a, b, buffer=True))

    texts = [event.text for event in events if isinstance(event, TextDelta)]
    assert (texts, len(b.requests)) == (["one ", "two"], 0)


async def test_an_error_of_a_wire_after_output_counts_as_before_it_if_buffered() -> None:
    error = ProviderError("lost", kind="transient", emitted=True)
    a, b = pair(Reply(content=say("half").content, error=error))

    result = await run(with_failover(a, b, buffer=True), [ASK])

    assert (result.text, [attempt.kind for attempt in result.attempts]) == ("from b", ["transient"])
