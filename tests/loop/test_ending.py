"""`glue.loop.ending`: the result, the journal and the transcript after any end of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import anyio
import pytest
from fakes.loop import (
    EventProvider,
    KeepLast,
    RecordingJournal,
    ReplyProvider,
    assert_valid,
    ends,
    noop,
    texts,
)

from glue import (
    Agent,
    Cancel,
    Limits,
    Outcome,
    Request,
    StopReason,
    ToolResult,
    Usage,
    failures,
    resume,
    run,
    text_result,
    tool,
)
from glue.errors import FailoverError
from glue.events import Event, MessageEnd, RunEnd
from glue.loop.state import State
from glue.loop.transcript import CONTINUE
from glue.messages import AssistantMessage, Text, ToolMessage, new_id, user
from glue.policies import Hook, Policy, Rewrite, Say, Stop
from glue.provider import Attempt, TextDelta
from glue.testing import Script, call, calls, fail, repeat, say, shape


async def test_s100_the_messages_of_a_refused_run_are_excluded_from_later_requests() -> None:
    first = await run(Script(calls("noop"), say("no", stop="refusal")), "bad", tools=[noop])
    later = Script("x")

    await run(later, [*first.messages, user("good")])

    assert (first.outcome, first.stop_reason, shape(first.messages)) == (
        "refused",
        "refusal",
        "u a t a",
    )
    assert (first.error, first.outcome.exit_code) == (None, 5)
    assert all(message.excluded for message in first.messages)
    assert [message.text for message in later.requests[0].messages] == ["good"]


async def test_s100_a_refused_run_is_excluded_from_the_first_message_of_its_prompt() -> None:
    script = Script("before", say("no", stop="refusal"))
    session = Agent(script).session("s")

    await session.prompt("kept")

    result = await session.prompt([user("look at this"), user("and do it")])

    assert [(message.text, message.excluded) for message in result.messages] == [
        ("kept", False),
        ("before", False),
        ("look at this", True),
        ("and do it", True),
        ("no", True),
    ]


async def test_a_prompt_that_is_too_long_is_excluded_from_later_requests() -> None:
    first = await run(Script("hello"), "hi")
    overlong = await run(Script(fail("context_overflow")), [*first.messages, user("x" * 999)])
    provider = Script("fine")

    last = await run(provider, [*overlong.messages, user("short")])

    assert overlong.outcome is Outcome.CONTEXT_WINDOW
    assert [message.excluded for message in overlong.messages] == [False, False, True]
    assert "left out of later requests" in overlong.notice
    assert [message.text for message in provider.requests[0].messages] == ["hi", "hello", "short"]
    assert last.outcome is Outcome.DONE


@pytest.mark.parametrize(
    "last", [fail("content_filter"), say("no", stop="refusal"), fail("context_overflow")]
)
async def test_a_resumed_run_that_is_refused_is_excluded_from_its_prompt_on(last: Any) -> None:
    provider = Script(fail("auth"), fail("auth"), last, "fine")
    session = Agent(provider).session()

    for prompt in ("one", "two"):
        await session.prompt(prompt, unwrap=False)

    await session.resume(unwrap=False)
    await session.prompt("three")

    assert next(message.text for message in session.messages if message.excluded) == "two"
    assert [message.text for message in provider.requests[-1].messages] == ["one", "three"]


async def test_a_run_that_continues_a_failed_run_is_excluded_from_its_prompt_on() -> None:
    cut = await run(Script(calls("noop"), fail("auth")), [user("one"), user("two")], tools=[noop])

    result = await run(Script(say("no", stop="refusal")), cut.messages, tools=[noop])

    assert [message.excluded for message in result.messages] == [False, True, True, True, True]


async def test_an_overflow_does_not_exclude_a_resumed_run_that_has_a_reply() -> None:
    session = Agent(
        Script(calls("noop"), fail("auth"), fail("context_overflow")), tools=[noop]
    ).session()

    await session.prompt("go", unwrap=False)

    result = await session.resume(unwrap=False)

    assert (result.outcome, result.notice) == (Outcome.CONTEXT_WINDOW, "")
    assert not any(message.excluded for message in result.messages)


async def test_s128_an_earlier_prompt_that_failed_is_not_part_of_the_next_run() -> None:
    failed = await run(Script(fail("auth")), "one")

    second = await run(Script(say("no", stop="refusal")), [*failed.messages, user("two")])
    third = await run(Script("fine"), [*second.messages[:2], user("three"), user("and four")])

    assert texts(second.new_messages) == ["two", "no"]
    assert [message.excluded for message in second.messages] == [False, True, True]
    assert texts(third.new_messages) == ["three", "and four", "fine"]


async def test_s128_a_steered_message_is_not_a_prompt() -> None:
    session = Agent(
        Script(lambda _: hurry(), fail("auth"), say("no", stop="refusal")), tools=[noop]
    ).session("s")

    def hurry() -> Any:
        session.steer(user("hurry"))
        session.steer(user("as it is", origin="host"))
        return calls("noop")

    await session.prompt("go", unwrap=False)
    result = await session.resume()

    assert texts(result.messages) == ["go", "", "ok", "hurry", "as it is", "no"]
    assert all(message.excluded for message in result.messages)  # the run begins with its prompt
    assert result.messages[4].origin == "host"  # type: ignore[union-attr]


async def test_a_message_of_a_policy_is_not_a_prompt_of_the_caller() -> None:
    class Again(Policy):
        def after_tools(self, state: Any, results: Any) -> Hook:
            return Say((user("look closer"),))

    script = Script(calls("noop"), say("no", stop="refusal"))
    cut = await run(script, "go", tools=[noop], policies=[Again()], limits=Limits(max_turns=2))
    script = Script(calls("noop"), say("no", stop="refusal"))

    refused = await run(script, "go", tools=[noop], policies=[Again()])

    assert shape(cut.messages) == "u a t"  # the message was not sent, and is removed
    assert shape(refused.messages) == "u a t u+ a"
    assert all(message.excluded for message in refused.messages)


class Trim(Policy):
    """A policy that rewrites the transcript with short tool results."""

    in_chain = True

    def before_request(self, state: State, request: Request) -> Any:
        short = (Text(text="..."),)
        return Rewrite(
            [
                replace(m, content=short) if isinstance(m, ToolMessage) else replace(m)
                for m in state.messages
            ]
        )


@pytest.mark.parametrize(
    ("last", "limits"),
    [(say("no", stop="refusal"), Limits()), (calls("noop"), Limits(max_turns=2))],
    ids=["no", "max"],
)
async def test_the_end_tags_and_excludes_messages_in_both_lists_of_the_result(
    last: Any, limits: Limits
) -> None:
    result = await run(
        Script(calls("noop"), last), "go", tools=[noop], policies=[Trim()], limits=limits
    )

    for messages in (result.messages, result.new_messages):
        assert {message.excluded for message in messages} == {result.outcome is Outcome.REFUSED}
        replies = [message for message in messages if isinstance(message, AssistantMessage)]
        assert replies[-1].stop_reason == result.stop_reason
    assert (result.messages[2].text, result.new_messages[2].text) == ("...", "ok")


async def test_s112_a_resumed_run_keeps_the_stop_reason_of_the_earlier_end() -> None:
    first = await run(Script(repeat(calls("noop"))), "go", tools=[noop], limits=Limits(max_turns=2))

    second = await resume(
        Script(repeat(calls("noop"))), first.messages, tools=[noop], limits=Limits(max_turns=1)
    )

    assert shape(second.messages) == "u a t a t a t"
    tags = [
        message.stop_reason for message in second.messages if isinstance(message, AssistantMessage)
    ]
    assert tags == ["tool_use", "max_turns", "max_turns"]


async def test_after_a_compaction_the_text_of_the_result_is_only_the_answer() -> None:
    provider = Script(calls("noop", text="Looking. "), fail("context_overflow"), "Found.")

    result = await run(provider, [user("x" * 99), user("go")], tools=[noop], policies=[KeepLast(3)])

    assert (result.outcome, result.text) == ("done", "Found.")


async def test_a_chain_is_joined_after_a_compaction() -> None:
    provider = Script(say("part one ", stop="max_tokens"), fail("context_overflow"), "part two")

    result = await run(provider, [user("x" * 99), user("go")], policies=[KeepLast(3)])

    assert result.text == "part one part two"


@pytest.mark.parametrize(
    ("cancels", "expected"), [(False, "not run: the run ended (halted)"), (True, "cancelled")]
)
async def test_the_result_of_a_call_that_a_policy_stopped_states_the_reason(
    cancels: bool, expected: str
) -> None:
    token = Cancel()

    class Halts(Policy):
        def on_reply(self, state: Any, reply: AssistantMessage) -> Hook:
            if cancels:
                token.cancel()
            return Stop(Outcome.HALTED)

    result = await run(
        Script(calls("noop", "noop")), "go", tools=[noop], policies=[Halts()], cancel=token
    )

    assert texts(result.messages[2:]) == [expected, expected]


async def test_the_end_event_has_the_usage_and_outcome_of_the_result() -> None:
    events: list[Event] = []
    child = Agent(Script(say("found", usage=Usage(input=100, output=10, cost=0.5))), name="child")
    script = Script(
        calls(call("child", {"prompt": "look"}), usage=Usage(input=1, output=1, cost=0.1)),
        say("x", usage=Usage(input=1, output=1, cost=0.1)),
    )

    failed_events: list[Event] = []

    result = await Agent(script, tools=[child.as_tool()]).run("go", on_event=events.append)
    failed = await Agent(Script(repeat("no json")), output=int).run(
        "go", on_event=failed_events.append, unwrap=False
    )

    end = events[-1]
    assert isinstance(end, RunEnd)
    assert 0 <= end.seconds == result.seconds < 3600
    assert end.usage == result.usage
    assert result.usage.input == 102
    assert result.cost == pytest.approx(0.7)
    assert isinstance(end := failed_events[-1], RunEnd)
    assert (end.outcome, failed.outcome) == (Outcome.FAILED, Outcome.FAILED)


@pytest.mark.parametrize(
    "where", ["provider", "before_request", "on_reply", "after_tools", "on_settle", "finish"]
)
async def test_an_exception_of_a_provider_or_policy_carries_the_result(where: str) -> None:
    def fail(*given: Any) -> None:
        raise ZeroDivisionError(where)

    broken: Policy = type("Broken", (Policy,), {where: fail})()
    events: list[Event] = []
    script = (
        Script(calls("noop"), ZeroDivisionError("provider"))
        if where == "provider"
        else Script(calls("noop"), "x")
    )

    with pytest.raises(ZeroDivisionError, match=where) as caught:
        await run(script, "go", tools=[noop], policies=[broken], on_event=events.append)

    result = caught.value.result  # type: ignore[attr-defined]
    assert (result.outcome, ends(events)) == (Outcome.FAILED, ["failed"])
    assert result.error is None  # it is raised, and is not an error of glue
    assert_valid(result.messages)
    assert result.messages[0].text == "go"


@pytest.mark.parametrize("text", ["go", "ok"])
async def test_an_exception_of_the_estimator_carries_the_result(text: str) -> None:
    def estimator(given: str) -> int:
        return 1 // (given != text)

    events: list[Event] = []
    script = Script(calls("noop", "noop"), "x")

    with pytest.raises(ZeroDivisionError) as caught:
        await run(
            script, "go", tools=[noop], limits=Limits(estimator=estimator), on_event=events.append
        )

    assert ends(events) == ["failed"]
    assert [event.message.text for event in events if isinstance(event, MessageEnd)][:1] == ["go"]
    assert_valid(caught.value.result.messages)  # type: ignore[attr-defined]


async def test_a_policy_that_raises_leaves_a_valid_transcript() -> None:
    class Broken(Policy):
        async def on_reply(self, state: State, reply: AssistantMessage) -> Any:
            await anyio.lowlevel.checkpoint()
            kept.append(state)
            raise ZeroDivisionError

    kept: list[State] = []
    events: list[Event] = []

    with pytest.raises(ZeroDivisionError):
        await run(
            Script(calls("noop")), "go", tools=[noop], policies=[Broken()], on_event=events.append
        )

    assert shape(kept[0].messages) == "u a t"
    assert type(events[-1]).__name__ == "RunEnd"


KINDS = (
    "RunStart MessageStart TurnStart RequestStart TextDelta "
    "MessageEnd ToolStart ToolEnd TurnEnd RunEnd"
).split()


@pytest.mark.parametrize("always", [False, True])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_listener_that_raises_system_exit_leaves_a_valid_result(
    kind: str, always: bool
) -> None:
    seen: list[Event] = []

    def listen(event: Event) -> None:
        again = kind in [type(each).__name__ for each in seen]
        seen.append(event)
        if type(event).__name__ == kind and (always or not again):
            raise SystemExit(len(seen))

    with pytest.raises(SystemExit) as caught:
        await run(Script(calls("noop", "noop"), "x"), "go", tools=[noop], on_event=listen)

    result = caught.value.result  # type: ignore[attr-defined]
    first = next(at for at, event in enumerate(seen, 1) if type(event).__name__ == kind)
    assert caught.value.code == first  # the first error wins
    assert [type(event) for event in seen].count(RunEnd) == 1
    answered = [message.call_id for message in result.messages if hasattr(message, "call_id")]
    asked = [
        part.id
        for message in result.messages
        if isinstance(message, AssistantMessage)
        for part in message.calls
    ]
    assert answered == asked


async def test_a_listener_that_raises_does_not_end_the_run() -> None:
    def listen(event: Event) -> None:
        raise RuntimeError("no")

    result = await run(Script("x"), "go", on_event=listen)

    assert result.outcome is Outcome.DONE


async def test_an_exception_of_a_provider_leaves_a_valid_journal() -> None:
    journal = RecordingJournal()

    with pytest.raises(ZeroDivisionError):
        await run(Script(calls("noop"), ZeroDivisionError()), "go", tools=[noop], journal=journal)

    assert shape(journal.messages) == "a t"


async def test_s114_a_cancelled_scope_leaves_a_valid_journal_and_raises() -> None:
    started = anyio.Event()

    @tool
    async def hang() -> str:
        """Never return."""
        started.set()
        await anyio.sleep_forever()
        return ""

    journal = RecordingJournal()
    returned = False

    async with anyio.create_task_group() as tasks:

        async def go() -> None:
            nonlocal returned
            await run(Script(calls("noop", "hang")), "go", tools=[noop, hang], journal=journal)
            returned = True

        tasks.start_soon(go)
        await started.wait()
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()

    assert not returned
    assert shape(journal.messages) == "a t t"
    assert [m.text for m in journal.messages[1:]] == ["ok", "cancelled"]
    assert journal.operations[-1] == "amend {'stop_reason': 'cancelled'}"


async def test_the_exception_of_a_cancelled_scope_carries_the_result() -> None:
    caught: list[BaseException] = []

    @tool
    async def wait() -> str:
        """Wait."""
        scope.cancel()
        await anyio.sleep_forever()
        return ""

    with anyio.CancelScope() as scope:
        try:
            await run(Script(calls("wait")), "go", tools=[wait])
        except anyio.get_cancelled_exc_class() as error:
            caught.append(error)
            raise

    assert shape(caught[0].result.messages) == "u a t"  # type: ignore[attr-defined]


async def test_the_first_of_a_provider_error_and_a_journal_error_is_raised() -> None:
    steps = (calls("noop"), ZeroDivisionError())
    whole, full = RecordingJournal(), RecordingJournal(failing=1)

    with pytest.raises(ZeroDivisionError) as caught:
        await run(Script(*steps), "go", tools=[noop], journal=whole)
    with pytest.raises(OSError, match="No space"):
        await run(Script(*steps), "go", tools=[noop], journal=full)

    assert caught.value.result.outcome is Outcome.FAILED  # type: ignore[attr-defined]


async def test_a_refusal_is_excluded_in_the_journal() -> None:
    journal = RecordingJournal()

    await run(Script(say("no", stop="refusal")), "go", journal=journal)

    assert journal.operations == ["append a", "exclude 2"]


async def test_a_prompt_of_the_loop_that_could_not_be_removed_is_not_sent_later() -> None:
    script = Script(say("half", stop="max_tokens"), fail("auth"), "fine")
    session = Agent(script).session("s")
    writer: Any = session._log._writer
    write = writer.write

    def full(records: Sequence[Any]) -> None:
        if any(record["type"] == "drop" for record in records):
            raise OSError(28, "No space left on device")
        write(records)

    writer.write = full

    with pytest.raises(OSError, match="No space left"):
        await session.prompt("go")

    assert session.messages[-1].text == CONTINUE
    writer.write = write

    await session.prompt("new")

    assert texts(script.requests[-1].messages) == ["go", "half", "new"]


async def test_the_text_of_a_run_cancelled_in_a_continued_reply_keeps_the_first_part() -> None:
    stop = Cancel()

    def cancel(event: Event) -> None:
        if isinstance(event, TextDelta) and event.text.startswith("two"):
            stop.cancel()

    result = await run(
        Script(say("one ", stop="max_tokens"), say("two three", chunk=4)),
        "go",
        cancel=stop,
        on_event=cancel,
    )

    assert result.outcome is Outcome.CANCELLED
    assert result.text.startswith("one two")


async def test_each_notice_of_a_reply_or_a_sub_agent_is_in_the_result_and_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "_shows_notices", False)  # commands of other tests have set it
    first, second = (f"no model wrote this ({new_id()})" for _ in range(2))

    @tool
    async def child() -> ToolResult:
        """Run a sub-agent."""
        return replace(text_result("ok"), meta={"agent": "child", "notice": second})

    @tool
    async def plain() -> ToolResult:
        """Return a notice that is not one of a sub-agent."""
        return replace(text_result("ok"), meta={"notice": "not shown"})

    asked = AssistantMessage(
        content=(call("child"), call("plain")),
        stop_reason=StopReason.TOOL_USE,
        meta={"notice": first},
    )
    answer = AssistantMessage(content=(Text(text="x"),), meta={"notice": first})
    result = await run(ReplyProvider(asked, answer), "go", tools=[child, plain])

    assert result.notice == f"{first}; {second}"
    assert caplog.messages == [first, second]


async def test_the_attempts_of_a_failover_list_are_in_the_result_once() -> None:
    tried = [Attempt(provider=name, kind="transient") for name in ("a", "b")]
    error = FailoverError("all failed", kind="transient", attempts=tried)

    result = await run(EventProvider(tried[0], error), "go")

    assert result.attempts == tuple(tried)
