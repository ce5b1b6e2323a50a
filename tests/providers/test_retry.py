"""One policy for trying again: LOOP rows 55 to 61, and what issue 4 says of waiting."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import anyio
import pytest

from glue.errors import EmptyReply, FailoverError, ProviderError
from glue.limits import Limits, Outcome
from glue.loop.run import run
from glue.messages import Request, Usage, user
from glue.provider import Attempt, Done, Provider, ProviderEvent, TextDelta
from glue.providers.retry import HINT, Retries, with_retries
from glue.testing import Reply, Script, call, calls, fail, repeat, say

ASK = user("hello")


class Sleeps(list[float]):
    async def __call__(self, seconds: float) -> None:
        self.append(seconds)
        await anyio.lowlevel.checkpoint()


def wrapped(provider: Provider, sleeps: Sleeps, **options: Any) -> Retries:
    return with_retries(provider, sleep=sleeps, jitter=lambda: 0.0, **options)


async def collect(provider: Provider, request: Request | None = None) -> list[ProviderEvent]:
    async with aclosing(provider.stream(request or Request(messages=(ASK,)))) as events:  # type: ignore[type-var]
        return [event async for event in events]


@pytest.mark.parametrize("first", [fail("empty"), Reply(), Reply(terminal=False), say(" \n")])
async def test_an_empty_reply_is_asked_for_again_after_a_quarter_second(first: Any) -> None:
    script, sleeps = Script(first, "ok"), Sleeps()

    result = await run(wrapped(script, sleeps), [ASK])

    assert (result.outcome, result.requests, sleeps) == (Outcome.DONE, 2, [0.25])
    assert [attempt.kind for attempt in result.attempts] == ["empty"]


async def test_three_empty_replies_end_the_run() -> None:
    script, sleeps = Script(repeat(fail("empty"))), Sleeps()

    result = await run(wrapped(script, sleeps), [ASK])

    assert (result.outcome, result.requests, sleeps) == (Outcome.FAILED, 3, [0.25, 0.5])
    assert isinstance(result.error, EmptyReply)


async def test_the_usage_of_an_empty_reply_is_not_lost() -> None:
    script, sleeps = Script(Reply(usage=Usage(input=7, output=1)), say("ok", usage=Usage(input=7, output=2))), Sleeps()

    result = await run(wrapped(script, sleeps), [ASK])

    assert (result.usage.input, result.usage.output) == (14, 3)


async def test_thinking_alone_is_an_empty_reply_and_is_asked_for_again() -> None:
    script, sleeps = Script(say("", thinking="hm"), "ok"), Sleeps()

    events = await collect(wrapped(script, sleeps))

    assert isinstance(done := events[-1], Done)
    assert (done.message.text, len(script.requests), sleeps) == ("ok", 2, [0.25])


async def test_an_error_behind_thinking_alone_is_tried_again() -> None:
    # The wires say of any piece, thinking included, that it was emitted.
    error = ProviderError("busy", kind="transient", status=503, emitted=True)
    script, sleeps = Script(Reply(content=say("", thinking="hm").content, error=error), "ok"), Sleeps()

    events = await collect(wrapped(script, sleeps))

    assert isinstance(events[-1], Done)
    assert len(script.requests) == 2


async def test_an_answer_lost_on_the_way_is_asked_for_with_a_hint_and_less_thinking() -> None:
    script, sleeps = Script(fail("transient"), "ok"), Sleeps()

    result = await run(wrapped(script, sleeps), [ASK], request=Request(reasoning="high"))

    assert (result.outcome, result.requests, sleeps) == (Outcome.DONE, 2, [0.5])
    assert [request.reasoning for request in script.requests] == ["high", "minimal"]
    assert [request.messages[-1].text for request in script.requests] == ["hello", HINT]
    assert HINT not in [message.text for message in result.messages]


async def test_a_call_that_the_server_refused_is_asked_for_with_what_it_said() -> None:
    refused = fail("invalid_request", "missing 'name'", status=400, code="tool_use_failed")
    script, sleeps = Script(repeat(refused)), Sleeps()

    result = await run(wrapped(script, sleeps), [ASK], request=Request(reasoning="high"))

    assert (result.outcome, result.requests, sleeps) == (Outcome.FAILED, 3, [0.0, 0.0])
    assert [request.reasoning for request in script.requests] == ["high"] * 3
    assert "missing 'name'" in script.requests[1].messages[-1].text
    assert [message.text for message in result.messages] == ["hello"]
    other = Script(repeat(fail("invalid_request", status=400, body="{}")))
    assert (await run(wrapped(other, sleeps), [ASK])).requests == 1


async def test_words_about_a_refused_call_are_no_refused_call() -> None:
    body = '{"error":{"code":"invalid_prompt","message":"the last reply said tool_use_failed"}}'
    script = Script(repeat(fail("invalid_request", status=400, code="invalid_prompt", body=body)))

    assert (await run(wrapped(script, Sleeps()), [ASK])).requests == 1


@pytest.mark.parametrize("kind", ["transient", "timeout", "protocol"])
async def test_it_is_asked_for_twice_in_all(kind: Any) -> None:
    script, sleeps = Script(repeat(fail(kind))), Sleeps()

    result = await run(wrapped(script, sleeps), [ASK])

    assert (result.outcome, result.requests, sleeps) == (Outcome.FAILED, 2, [0.5])


async def test_little_thinking_stays_little() -> None:
    script = Script(fail("timeout"), "ok")

    await run(wrapped(script, Sleeps()), [ASK], request=Request(reasoning="low"))

    assert [request.reasoning for request in script.requests] == ["low", "low"]


async def test_a_cancel_ends_a_wait_at_once() -> None:
    script = Script(fail("rate_limited", status=429, retry_after=20.0), "ok")

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:

            async def sleep(seconds: float) -> None:
                group.cancel_scope.cancel()
                await anyio.sleep(seconds)

            await run(with_retries(script, sleep=sleep), [ASK])

    assert len(script.requests) == 1


async def test_a_busy_server_is_waited_for_longer_each_time() -> None:
    script, sleeps = Script(repeat(fail("overloaded", status=529))), Sleeps()

    with pytest.raises(ProviderError):
        await collect(wrapped(script, sleeps, attempts=7))

    assert sleeps == [2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


async def test_the_wait_is_spread_and_never_above_the_cap() -> None:
    script, sleeps = Script(repeat(fail("transient", status=500))), Sleeps()

    with pytest.raises(ProviderError):
        await collect(with_retries(script, sleep=sleeps, attempts=40))

    assert 1.5 <= sleeps[0] <= 2
    assert max(sleeps) <= 30
    assert len(set(sleeps)) > 20


async def test_the_servers_advice_comes_first() -> None:
    script, sleeps = Script(fail("rate_limited", status=429, retry_after=7.5), "ok"), Sleeps()

    events = await collect(wrapped(script, sleeps))

    assert sleeps == [7.5]
    assert [event.delay for event in events if isinstance(event, Attempt)] == [7.5]


async def test_advice_above_the_cap_ends_it_at_once() -> None:
    script, sleeps = Script(fail("rate_limited", status=429, retry_after=30.5), "ok"), Sleeps()

    with pytest.raises(ProviderError) as caught:
        await collect(wrapped(script, sleeps))

    assert (sleeps, caught.value.retry_after) == ([], 30.5)


@pytest.mark.parametrize(
    "kind", ["auth", "quota", "invalid_request", "not_found", "context_overflow", "content_filter"]
)
async def test_what_no_wait_mends_costs_one_request(kind: Any) -> None:
    script, sleeps = Script(fail(kind, status=400), "ok"), Sleeps()

    with pytest.raises(ProviderError):
        await collect(wrapped(script, sleeps))

    assert (len(script.requests), sleeps) == (1, [])


async def test_the_servers_word_that_it_is_useless_is_believed() -> None:
    script, sleeps = Script(fail("rate_limited", status=429, retryable=False), "ok"), Sleeps()

    with pytest.raises(ProviderError):
        await collect(wrapped(script, sleeps))

    assert (len(script.requests), sleeps) == (1, [])


@pytest.mark.parametrize("reply", [say("half"), calls(call("noop"))])
async def test_nothing_is_tried_again_once_something_was_seen(reply: Reply) -> None:
    broken = Reply(content=reply.content, error=fail("transient", status=503))
    script, sleeps = Script(broken, "ok"), Sleeps()

    with pytest.raises(ProviderError) as caught:
        await collect(wrapped(script, sleeps))

    assert (len(script.requests), sleeps, caught.value.emitted) == (1, [], True)


async def test_a_stream_without_an_end_is_an_error_once_something_was_seen() -> None:
    script = Script(Reply(content=say("half").content, terminal=False), "ok")

    with pytest.raises(ProviderError) as caught:
        await collect(wrapped(script, Sleeps()))

    assert (caught.value.kind, caught.value.emitted) == ("protocol", True)


async def test_each_failed_try_is_reported_before_the_wait() -> None:
    order: list[str] = []

    async def sleep(seconds: float) -> None:
        order.append("sleep")

    script = Script(fail("overloaded", status=503, usage=Usage(input=3)), "ok")
    provider = with_retries(script, sleep=sleep)
    async with aclosing(provider.stream(Request(messages=(ASK,)))) as events:  # type: ignore[type-var]
        async for event in events:
            order.append(type(event).__name__)
            if isinstance(event, Attempt):
                assert (event.provider, event.model, event.kind) == ("script", "script-1", "overloaded")
                assert event.usage == Usage(input=3)

    assert order == ["Attempt", "sleep", "TextDelta", "Done"]


async def test_a_retry_counts_as_a_request() -> None:
    script = Script(fail("empty"), fail("empty"), "ok")

    result = await run(wrapped(script, Sleeps()), [ASK], limits=Limits(max_requests=2))

    assert (result.outcome, len(script.requests)) == (Outcome.MAX_TURNS, 2)


async def test_the_inner_stream_is_closed_whatever_happens() -> None:
    script = Script(fail("empty"), say("a long answer", chunk=1))

    async with aclosing(wrapped(script, Sleeps()).stream(Request(messages=(ASK,)))) as events:  # type: ignore[type-var]
        async for event in events:
            if isinstance(event, TextDelta):
                break

    assert script.open_streams == 0


async def test_closing_the_wrapper_closes_the_provider() -> None:
    closed = []

    class Closable(Script):
        async def aclose(self) -> None:
            closed.append(True)

    async with with_retries(Closable("x")):
        pass

    assert closed == [True]


async def test_a_failed_chain_keeps_its_own_error() -> None:
    error = FailoverError("all failed", kind="empty", attempts=[])
    script = Script(repeat(error))

    with pytest.raises(FailoverError):
        await collect(wrapped(script, Sleeps()))

    assert len(script.requests) == 3
