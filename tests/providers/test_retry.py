"""Repeating a request after a failure: when, how often, and after which wait."""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import anyio
import pytest
from fakes.examples import examples
from fakes.loop import no_sleep, noop

from glue import AssistantMessage, Cancel, Text, providers
from glue.errors import EmptyReply, FailoverError, ProviderError
from glue.events import Event
from glue.limits import Limits, Outcome
from glue.loop.run import run
from glue.messages import Request, Usage, user
from glue.provider import Attempt, Done, Provider, ProviderEvent, TextDelta, Thinking, ThinkingDelta
from glue.providers.retry import HINT, Retries, with_retries
from glue.testing import Reply, Script, call, calls, fail, repeat, say, shape

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


async def test_the_last_error_of_empty_replies_is_the_cause() -> None:
    last = fail("empty", "no choices", status=200)

    with pytest.raises(EmptyReply, match="no choices") as caught:
        await collect(wrapped(Script(repeat(last)), Sleeps()))

    assert caught.value.__cause__ is last
    assert (caught.value.status, caught.value.provider) == (200, last.provider)


@pytest.mark.parametrize(("named", "shown"), [("inner", "inner"), ("", "script")])
async def test_an_attempt_names_the_provider_that_failed(named: str, shown: str) -> None:
    error = ProviderError("slow", kind="timeout", provider=named)

    attempt, *_ = await collect(wrapped(Script(error, "ok"), Sleeps()))

    assert isinstance(attempt, Attempt)
    assert attempt.provider == shown


async def test_an_attempt_has_the_seconds_that_it_took() -> None:
    before = time.monotonic()

    attempt, *_ = await collect(wrapped(Script(fail("timeout"), "ok"), Sleeps()))

    assert isinstance(attempt, Attempt)
    assert 0 <= attempt.seconds <= time.monotonic() - before


async def test_the_usage_of_an_empty_reply_is_not_lost() -> None:
    script, sleeps = (
        Script(Reply(usage=Usage(input=7, output=1)), say("ok", usage=Usage(input=7, output=2))),
        Sleeps(),
    )

    result = await run(wrapped(script, sleeps), [ASK])

    assert (result.usage.input, result.usage.output) == (14, 3)


async def test_the_last_of_several_empty_replies_is_passed_on() -> None:
    script = Script(repeat(say("", usage=Usage(input=7))))

    events = await collect(wrapped(script, Sleeps()))

    assert [type(event) for event in events] == [Attempt, Attempt, Done]
    assert isinstance(done := events[-1], Done)
    assert done.message.usage == Usage(input=7)


class Silent:
    """A provider that sends its complete reply and no deltas."""

    name = "silent"

    def __init__(self) -> None:
        self.asked = 0

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        self.asked += 1
        yield Done(message=AssistantMessage(content=(Text(text="42"),)))


async def test_a_reply_without_deltas_is_complete() -> None:
    provider = Silent()

    events = await collect(wrapped(provider, Sleeps()))

    assert [type(event) for event in events] == [Done]
    assert provider.asked == 1


async def test_thinking_alone_is_an_empty_reply_and_is_asked_for_again() -> None:
    script, sleeps = Script(say("", thinking="hm"), "ok"), Sleeps()

    events = await collect(wrapped(script, sleeps))

    assert isinstance(done := events[-1], Done)
    assert (done.message.text, len(script.requests), sleeps) == ("ok", 2, [0.25])


async def test_an_error_after_thinking_alone_is_retried() -> None:
    # The wires set `emitted` for any piece, thinking included.
    error = ProviderError("busy", kind="transient", status=503, emitted=True)
    script, sleeps = (
        Script(Reply(content=say("", thinking="hm").content, error=error), "ok"),
        Sleeps(),
    )

    events = await collect(wrapped(script, sleeps))

    assert isinstance(events[-1], Done)
    assert len(script.requests) == 2


async def test_a_lost_reply_is_requested_again_with_a_hint_and_less_thinking() -> None:
    script, sleeps = Script(fail("transient"), "ok"), Sleeps()

    result = await run(wrapped(script, sleeps), [ASK], request=Request(reasoning="high"))

    assert (result.outcome, result.requests, sleeps) == (Outcome.DONE, 2, [0.5])
    assert [request.reasoning for request in script.requests] == ["high", "minimal"]
    assert [request.messages[-1].text for request in script.requests] == ["hello", HINT]
    assert HINT not in [message.text for message in result.messages]


async def test_a_refused_tool_call_is_retried_with_the_servers_error() -> None:
    refused = fail("invalid_request", "missing 'name'", status=400, code="tool_use_failed")
    script, sleeps = Script(repeat(refused)), Sleeps()

    result = await run(wrapped(script, sleeps), [ASK], request=Request(reasoning="high"))

    assert (result.outcome, result.requests, sleeps) == (Outcome.FAILED, 3, [0.0, 0.0])
    assert [request.reasoning for request in script.requests] == ["high"] * 3
    assert "missing 'name'" in script.requests[1].messages[-1].text
    assert [message.text for message in result.messages] == ["hello"]
    other = Script(repeat(fail("invalid_request", status=400, body="{}")))
    assert (await run(wrapped(other, sleeps), [ASK])).requests == 1


async def test_an_error_that_only_quotes_a_refused_call_is_not_retried() -> None:
    body = '{"error":{"code":"invalid_prompt","message":"the last reply said tool_use_failed"}}'
    script = Script(repeat(fail("invalid_request", status=400, code="invalid_prompt", body=body)))

    assert (await run(wrapped(script, Sleeps()), [ASK])).requests == 1


@pytest.mark.parametrize(("kind", "requests"), [("transient", 1), ("timeout", 1), ("protocol", 2)])
async def test_a_lost_reply_that_is_marked_as_not_retryable_is_not_requested_again(
    kind: Any, requests: int
) -> None:
    script = Script(repeat(fail(kind, retryable=False)))

    assert (await run(wrapped(script, Sleeps()), [ASK])).requests == requests


@pytest.mark.parametrize("kind", ["transient", "timeout", "protocol"])
async def test_a_lost_reply_is_requested_twice_in_all(kind: Any) -> None:
    script, sleeps = Script(repeat(fail(kind))), Sleeps()

    result = await run(wrapped(script, sleeps), [ASK])

    assert (result.outcome, result.requests, sleeps) == (Outcome.FAILED, 2, [0.5])


async def test_the_second_attempt_does_not_raise_the_effort() -> None:
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


async def test_the_wait_for_a_busy_server_doubles() -> None:
    script, sleeps = Script(repeat(fail("overloaded", status=529))), Sleeps()

    with pytest.raises(ProviderError):
        await collect(wrapped(script, sleeps, attempts=7))

    assert sleeps == [2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


async def test_a_busy_server_is_asked_five_times_in_all_by_default() -> None:
    script, sleeps = Script(repeat(fail("overloaded", status=529))), Sleeps()

    with pytest.raises(ProviderError):
        await collect(wrapped(script, sleeps))

    assert (len(script.requests), sleeps) == (5, [2.0, 4.0, 8.0, 16.0])


async def test_the_wait_has_jitter_and_is_never_above_the_cap() -> None:
    script, sleeps = Script(repeat(fail("transient", status=500))), Sleeps()

    with pytest.raises(ProviderError):
        await collect(with_retries(script, sleep=sleeps, attempts=40))

    assert 1.5 <= sleeps[0] <= 2
    assert max(sleeps) <= 30
    assert len(set(sleeps)) > 20


async def test_the_advised_wait_replaces_the_backoff() -> None:
    script, sleeps = Script(fail("rate_limited", status=429, retry_after=7.5), "ok"), Sleeps()

    events = await collect(wrapped(script, sleeps))

    assert sleeps == [7.5]
    assert [event.delay for event in events if isinstance(event, Attempt)] == [7.5]


async def test_an_advised_wait_is_ignored_if_a_reply_had_begun() -> None:
    script, sleeps = Script(fail("transient", retry_after=7.5), "ok"), Sleeps()

    await collect(wrapped(script, sleeps))

    assert sleeps == [0.5]


async def test_a_wrapper_without_a_sleep_function_really_waits() -> None:
    refused = fail("invalid_request", status=400, code="tool_use_failed")  # waits for 0 seconds

    events = await collect(with_retries(Script(refused, "ok")))

    assert isinstance(events[-1], Done)


async def test_an_advised_wait_above_the_cap_raises_at_once() -> None:
    script, sleeps = Script(fail("rate_limited", status=429, retry_after=30.5), "ok"), Sleeps()

    with pytest.raises(ProviderError) as caught:
        await collect(wrapped(script, sleeps))

    assert (sleeps, caught.value.retry_after) == ([], 30.5)


@pytest.mark.parametrize(
    "kind", ["auth", "quota", "invalid_request", "not_found", "context_overflow", "content_filter"]
)
async def test_permanent_errors_are_not_retried(kind: Any) -> None:
    script, sleeps = Script(fail(kind, status=400), "ok"), Sleeps()

    with pytest.raises(ProviderError):
        await collect(wrapped(script, sleeps))

    assert (len(script.requests), sleeps) == (1, [])


async def test_an_error_that_is_marked_as_not_retryable_is_not_retried() -> None:
    script, sleeps = Script(fail("rate_limited", status=429, retryable=False), "ok"), Sleeps()

    with pytest.raises(ProviderError):
        await collect(wrapped(script, sleeps))

    assert (len(script.requests), sleeps) == (1, [])


@pytest.mark.parametrize("reply", [say("half"), calls(call("noop"))])
async def test_nothing_is_retried_after_output_was_emitted(reply: Reply) -> None:
    broken = Reply(content=reply.content, error=fail("transient", status=503))
    script, sleeps = Script(broken, "ok"), Sleeps()

    with pytest.raises(ProviderError) as caught:
        await collect(wrapped(script, sleeps))

    assert (len(script.requests), sleeps, caught.value.emitted) == (1, [], True)


async def test_a_stream_without_a_final_event_is_an_error_after_output() -> None:
    script = Script(Reply(content=say("half").content, terminal=False), "ok")

    with pytest.raises(ProviderError) as caught:
        await collect(wrapped(script, Sleeps()))

    assert (caught.value.kind, caught.value.emitted) == ("protocol", True)


async def test_each_failed_attempt_is_reported_before_the_wait() -> None:
    order: list[str] = []

    async def sleep(seconds: float) -> None:
        order.append("sleep")

    script = Script(fail("overloaded", status=503, usage=Usage(input=3)), "ok")
    provider = with_retries(script, sleep=sleep)
    async with aclosing(provider.stream(Request(messages=(ASK,)))) as events:  # type: ignore[type-var]
        async for event in events:
            order.append(type(event).__name__)
            if isinstance(event, Attempt):
                assert (event.provider, event.model, event.kind) == (
                    "script",
                    "script-1",
                    "overloaded",
                )
                assert event.usage == Usage(input=3)

    assert order == ["Attempt", "sleep", "TextDelta", "Done"]


async def test_a_retry_counts_as_a_request() -> None:
    script = Script(fail("empty"), fail("empty"), "ok")

    result = await run(wrapped(script, Sleeps()), [ASK], limits=Limits(max_requests=2))

    assert (result.outcome, len(script.requests)) == (Outcome.MAX_TURNS, 2)


async def test_the_inner_stream_is_closed_after_an_early_end() -> None:
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


async def test_a_failed_failover_list_keeps_its_own_error() -> None:
    error = FailoverError("all failed", kind="empty", attempts=[])
    script = Script(repeat(error))

    with pytest.raises(FailoverError):
        await collect(wrapped(script, Sleeps()))

    assert len(script.requests) == 3


async def test_s055_an_empty_reply_is_requested_again() -> None:
    sleeps = Sleeps()
    provider = Script(fail("empty"), "ok")

    result = await run(with_retries(provider, sleep=sleeps), "go")

    assert (result.requests, sleeps, result.outcome) == (2, [0.25], "done")
    assert [attempt.kind for attempt in result.attempts] == ["empty"]


@pytest.mark.parametrize("empty", [fail("empty"), say("")])
async def test_s056_three_empty_replies_are_a_failure(empty: Any) -> None:
    sleeps = Sleeps()

    result = await run(with_retries(Script(repeat(empty)), sleep=sleeps), "go")

    assert (result.requests, sleeps, result.outcome) == (3, [0.25, 0.5], "failed")
    assert isinstance(result.error, EmptyReply)
    assert shape(result.messages) == "u"


async def test_s057_a_stream_without_a_final_event_is_an_empty_reply() -> None:
    sleeps = Sleeps()

    result = await run(with_retries(Script(say("", terminal=False), "ok"), sleep=sleeps), "go")

    assert (result.requests, sleeps, result.outcome) == (2, [0.25], "done")


class Thinker:
    """A provider that sends only thinking at first, and an answer at the next request."""

    name = "thinker"

    def __init__(self) -> None:
        self.asked = 0

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        self.asked += 1
        yield ThinkingDelta(text="hm")
        if self.asked > 1:
            yield TextDelta(text="42")
        answer: tuple[Any, ...] = (Text(text="42"),) if self.asked > 1 else ()
        yield Done(message=AssistantMessage(content=(Thinking(text="hm"), *answer)))


async def test_s126_a_reply_with_only_reasoning_is_requested_again() -> None:
    events: list[Event] = []
    provider = Thinker()

    result = await run(with_retries(provider, sleep=no_sleep), "go", on_event=events.append)

    assert (result.outcome, result.text, provider.asked) == (Outcome.DONE, "42", 2)
    assert [event.kind for event in events if isinstance(event, Attempt)] == ["empty"]


def lost_reply() -> ProviderError:
    return fail("transient", "the connection broke before any output")


async def test_s058_a_lost_reply_is_requested_again_with_less_reasoning_and_a_hint() -> None:
    sleeps = Sleeps()
    provider = Script(lost_reply(), "ok")

    result = await run(
        with_retries(provider, sleep=sleeps), "go", request=Request(reasoning="high")
    )

    assert (result.requests, sleeps, result.outcome) == (2, [0.5], "done")
    assert [request.reasoning for request in provider.requests] == ["high", "minimal"]
    assert [len(request.messages) for request in provider.requests] == [1, 2]
    assert provider.requests[1].messages[-1].text == HINT
    assert shape(result.messages) == "u a"
    assert all(message.text != HINT for message in result.messages)


async def test_s059_a_lost_reply_is_requested_twice_in_all() -> None:
    result = await run(with_retries(Script(repeat(lost_reply())), sleep=no_sleep), "go")

    assert (result.requests, result.outcome) == (2, "failed")


async def test_s060_low_reasoning_is_not_changed_by_a_retry() -> None:
    provider = Script(lost_reply(), "ok")

    await run(with_retries(provider, sleep=no_sleep), "go", request=Request(reasoning="low"))

    assert [request.reasoning for request in provider.requests] == ["low", "low"]


async def test_s061_a_cancel_ends_the_wait_before_a_retry() -> None:
    cancel = Cancel()

    async def sleep(seconds: float) -> None:
        cancel.cancel()
        await anyio.sleep_forever()

    result = await run(
        with_retries(Script(repeat(fail("empty"))), sleep=sleep), "go", cancel=cancel
    )

    assert (result.outcome, result.requests) == ("cancelled", 2)


async def test_s072_a_retry_counts_as_a_request() -> None:
    provider = Script(fail("empty"), calls("noop"), calls("noop"))

    result = await run(
        with_retries(provider, sleep=no_sleep), "go", tools=[noop], limits=Limits(max_requests=3)
    )

    assert (result.requests, result.outcome, shape(result.messages)) == (
        3,
        "max_turns",
        "u a t a t",
    )


async def test_s072_no_retry_is_made_if_no_request_is_left() -> None:
    provider = Script(repeat(fail("empty")))

    result = await run(with_retries(provider, sleep=no_sleep), "go", limits=Limits(max_requests=1))

    assert (result.outcome, len(provider.requests), provider.open_streams) == ("max_turns", 1, 0)


# By what was lost, over real connections


def reply_of(text: str) -> bytes:
    chunk = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": "stop"}]}
    body = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body


class Outage:
    """A clock, and a server that begins to listen when the clock reaches a time."""

    def __init__(self, loopback: Any, seconds: float) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = listener.getsockname()[1]
        self.now, self._end, self._loopback = 0.0, seconds, loopback
        self.server: Any = None

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now >= self._end and self.server is None:
            self.server = self._loopback(reply_of("here again"), port=self.port)


def chat_at(url: str) -> Any:
    return providers.new("openai-compatible:m", base_url=url, key="none", retries=False)


async def test_s157_an_outage_of_ten_seconds_is_survived(loopback: Any) -> None:
    for seed in range(examples(100)):
        outage = Outage(loopback, 10.0)
        jitter = random.Random(seed).random
        provider = with_retries(
            chat_at(f"http://127.0.0.1:{outage.port}"), sleep=outage.sleep, jitter=jitter
        )

        result = await run(provider, [ASK], request=Request(reasoning="high"))

        assert (result.outcome, result.text) == (Outcome.DONE, "here again")
        assert {attempt.kind for attempt in result.attempts} == {"transient"}
        await provider.aclose()
        outage.server.close()


async def test_s158_a_reset_before_the_response_repeats_the_same_body(loopback: Any) -> None:
    server = loopback(lambda connection: False, reply_of("ok"))
    sleeps = Sleeps()
    provider = wrapped(chat_at(server.url), sleeps)

    result = await run(provider, [ASK], request=Request(reasoning="high"))
    await provider.aclose()

    first, second = (seen.body for seen in server.seen)
    assert (result.text, sleeps) == ("ok", [2.0])
    assert first == second
    assert json.loads(first)["reasoning_effort"] == "high"


async def test_a_timeout_before_the_response_repeats_the_same_body(loopback: Any) -> None:
    release = threading.Event()
    server = loopback(lambda connection: release.wait(20) and False, reply_of("ok"))
    sleeps = Sleeps()
    provider = providers.new(
        "openai-compatible:m",
        base_url=server.url,
        key="none",
        retries=False,
        deadlines=providers.Deadlines(read=0.05),
    )

    result = await run(wrapped(provider, sleeps), [ASK])
    release.set()
    await provider.aclose()  # type: ignore[attr-defined]

    assert (result.text, [attempt.kind for attempt in result.attempts]) == ("ok", ["timeout"])
    assert server.seen[0].body == server.seen[1].body


async def test_a_reply_that_began_and_broke_is_repeated_with_a_hint(loopback: Any) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 900\r\n\r\n"

    def broken(connection: socket.socket) -> bool:
        connection.sendall(head + b": wait\n\n")
        return False

    server = loopback(broken, reply_of("ok"))
    provider = wrapped(chat_at(server.url), Sleeps())

    result = await run(provider, [ASK], request=Request(reasoning="high"))
    await provider.aclose()

    assert result.text == "ok"
    second = json.loads(server.seen[1].body)
    assert (second["messages"][-1]["content"], second["reasoning_effort"]) == (HINT, "low")


async def test_s159_an_idle_connection_that_the_server_closes_is_replaced_at_once(
    loopback: Any,
) -> None:
    # The server reads the second request on the old connection and closes it without a word.
    answers: list[Any] = [reply_of("one"), lambda connection: False, reply_of("two")]
    server = loopback(*answers)
    sleeps = Sleeps()
    provider = wrapped(chat_at(server.url), sleeps)

    first = await run(provider, [ASK])
    second = await run(provider, [ASK])
    await provider.aclose()

    assert (first.text, second.text, sleeps) == ("one", "two", [])
    assert (second.attempts, second.requests) == ((), 1)
    assert (len(server.seen), server.connections) == (3, 2)
    assert server.seen[1].body == server.seen[2].body


async def test_a_failed_list_of_unreachable_providers_is_repeated_unchanged(loopback: Any) -> None:
    outage = Outage(loopback, 3.0)
    servers = [chat_at(f"http://127.0.0.1:{outage.port}") for _ in range(2)]
    provider = with_retries(providers.with_failover(*servers), sleep=outage.sleep)

    result = await run(provider, [ASK])
    await provider.aclose()

    assert result.text == "here again"
    assert json.loads(outage.server.seen[0].body)["messages"] == [
        {"role": "user", "content": "hello"}
    ]
