"""What holds at the edges of the loop: endings, policies that meet, resuming, junk (rows 117 to 132)."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import anyio
import pytest

from glue import (
    Agent,
    AssistantMessage,
    Done,
    Image,
    Limits,
    MemoryStore,
    Message,
    Outcome,
    Policy,
    ProviderEvent,
    Request,
    Say,
    Stop,
    StopReason,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
    run,
    run_continue,
    tool,
    user,
)
from glue.errors import Cancelled, InvalidContinuation, ProviderError, StoreError
from glue.events import (
    ContextChanged,
    Event,
    GateApplied,
    GateConflict,
    MessageEnd,
    MessageStart,
    RunEnd,
    RunStart,
    ToolEnd,
    ToolStart,
)
from glue.loop.transcript import CONTINUE
from glue.policies import Change, Deliver, Delivery, FollowUp, Gate, Gates, Hook, Rewrite, StallBudget, Steering
from glue.provider import Attempt
from glue.providers.retry import with_retries
from glue.testing import Script, call, calls, fail, repeat, say, shape


class Quit(BaseException):
    """What is no Exception, and not known to anyone."""


@tool
async def noop() -> str:
    """Do nothing."""
    return "ok"


def ends(events: Sequence[Event]) -> list[str]:
    return [str(event.outcome) for event in events if isinstance(event, RunEnd)]


def assert_answered(messages: Sequence[Message]) -> None:
    waiting: list[str] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            assert not waiting
            waiting = [part.id for part in message.calls]
        elif not isinstance(message, UserMessage):
            assert waiting.pop(0) == message.call_id
        else:
            assert not waiting
    assert not waiting


class Book:
    """A journal that keeps what it is told, and fails at one of its writes."""

    def __init__(self, failing: int | None = None, error: Exception | None = None) -> None:
        self.messages: list[Message] = []
        self.writes = 0
        self.failing, self.error = failing, error or OSError(28, "No space left on device")

    def _write(self) -> None:
        self.writes += 1
        if self.writes - 1 == self.failing:
            raise self.error

    async def append(self, message: Message) -> None:
        await anyio.lowlevel.checkpoint()
        self._write()
        self.messages.append(message)

    async def insert(self, message: Message, before: str) -> None:
        self._write()
        at = next(i for i, kept in enumerate(self.messages) if kept.id == before)
        self.messages.insert(at, message)

    async def amend(self, id: str, fields: Any) -> None:
        self._write()
        at = next(i for i, kept in enumerate(self.messages) if kept.id == id)
        changed = {**fields, "stop_reason": StopReason(fields["stop_reason"])}
        self.messages[at] = replace(self.messages[at], **changed)

    async def drop(self, ids: Sequence[str]) -> None:
        self._write()
        self.messages = [kept for kept in self.messages if kept.id not in ids]

    async def exclude(self, ids: Sequence[str]) -> None:
        self._write()
        self.messages = [replace(kept, excluded=True) if kept.id in ids else kept for kept in self.messages]


# Endings ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [SystemExit(2), KeyboardInterrupt(), Quit("now")])
@pytest.mark.parametrize("threaded", [True, False])
@pytest.mark.parametrize("alone", [True, False])
async def test_s117_what_is_no_exception_leaves_every_call_answered(
    error: BaseException, threaded: bool, alone: bool
) -> None:
    @tool(name="leave")
    def in_a_thread() -> str:
        """Leave."""
        raise error

    @tool(name="leave")
    async def in_the_loop() -> str:
        """Leave."""
        raise error

    @tool
    async def wait() -> str:
        """Wait for ever."""
        await anyio.sleep_forever()
        return ""

    events: list[Event] = []
    journal = Book()
    leave: Any = in_a_thread if threaded else in_the_loop
    batch = calls("noop", "leave") if alone else calls("wait", "leave", "noop")
    limits = Limits(parallel_tools=1 if alone else 8)

    with pytest.raises(type(error)) as caught:
        await run(
            Script(batch), "go", tools=[noop, wait, leave], limits=limits, on_event=events.append, journal=journal
        )

    assert caught.value is error
    result = caught.value.result  # type: ignore[attr-defined]
    assert shape(result.messages) == ("u a t t" if alone else "u a t t t")
    assert_answered(result.messages)
    assert journal.messages == list(result.messages[1:])
    assert ends(events) == [str(result.outcome)]
    assert result.outcome is (Outcome.CANCELLED if isinstance(error, KeyboardInterrupt) else Outcome.FAILED)
    texts = {message.text for message in result.messages if message.text}
    assert any(type(error).__name__ in text for text in texts)
    started = [event.call.id for event in events if isinstance(event, ToolStart)]
    assert sorted(started) == sorted(event.call.id for event in events if isinstance(event, ToolEnd))


async def test_s117_the_first_of_two_wins() -> None:
    @tool
    async def leave() -> str:
        """Go."""
        raise SystemExit(3)

    @tool
    async def follow() -> str:
        """Go too, when it is cancelled."""
        try:
            await anyio.sleep_forever()
        finally:
            raise Quit

    with pytest.raises(SystemExit) as caught:
        await run(Script(calls("follow", "leave")), "go", tools=[leave, follow])

    assert_answered(caught.value.result.messages)  # type: ignore[attr-defined]


@pytest.mark.parametrize("where", ["provider", "before_request", "on_reply", "after_tools", "on_settle", "finish"])
async def test_a_bug_propagates_with_the_result(where: str) -> None:
    def fail(*given: Any) -> None:
        raise ZeroDivisionError(where)

    broken: Policy = type("Broken", (Policy,), {where: fail})()
    events: list[Event] = []
    script = Script(calls("noop"), ZeroDivisionError("provider")) if where == "provider" else Script(calls("noop"), "x")

    with pytest.raises(ZeroDivisionError, match=where) as caught:
        await run(script, "go", tools=[noop], policies=[broken], on_event=events.append)

    result = caught.value.result  # type: ignore[attr-defined]
    assert (result.outcome, ends(events)) == (Outcome.FAILED, ["failed"])
    assert_answered(result.messages)
    assert result.messages[0].text == "go"


@pytest.mark.parametrize("text", ["go", "ok"])
async def test_an_estimator_that_fails_ends_the_run_as_any_other_bug(text: str) -> None:
    def estimator(given: str) -> int:
        return 1 // (given != text)

    events: list[Event] = []
    script = Script(calls("noop", "noop"), "x")

    with pytest.raises(ZeroDivisionError) as caught:
        await run(script, "go", tools=[noop], limits=Limits(estimator=estimator), on_event=events.append)

    assert ends(events) == ["failed"]
    assert [event.message.text for event in events if isinstance(event, MessageEnd)][:1] == ["go"]
    assert_answered(caught.value.result.messages)  # type: ignore[attr-defined]


async def test_a_hook_that_was_put_on_the_object_is_asked_too() -> None:
    asked: list[str] = []
    policy = Policy()
    policy.on_settle = lambda state, reply: asked.append(reply.text)  # type: ignore[method-assign]

    await run(Script("fine"), "go", policies=[policy])

    assert asked == ["fine"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), OSError(5, "EIO"), StoreError("torn")])
async def test_s118_a_store_that_fails_says_so_with_the_paid_reply(error: Exception) -> None:
    whole = Book()
    script = [calls("noop", "noop"), say("part", stop="max_tokens"), say("end")]
    limits = Limits(max_requests=2)
    done = await run(Script(*script), "go", tools=[noop], limits=limits, journal=whole)
    assert done.outcome is Outcome.MAX_TURNS

    for failing in range(whole.writes):
        events: list[Event] = []
        journal = Book(failing, error)
        with pytest.raises(type(error)) as caught:
            await run(Script(*script), "go", tools=[noop], limits=limits, on_event=events.append, journal=journal)

        assert caught.value is error
        result = caught.value.result  # type: ignore[attr-defined]
        assert len(ends(events)) == 1
        assert_answered(result.messages)
        assert result.messages[1].calls  # the reply that was paid for
        assert journal.writes == failing + 1  # nothing after what is missing
        stored = [type(message) for message in journal.messages]
        expected = [AssistantMessage, *[type(m) for m in done.messages[2:]], UserMessage]
        assert stored == expected[: len(stored)]


async def test_the_first_error_wins_over_one_of_the_store() -> None:
    journal = Book(failing=1)

    with pytest.raises(ZeroDivisionError) as caught:
        await run(Script(calls("noop"), ZeroDivisionError()), "go", tools=[noop], journal=Book())
    assert caught.value.result.outcome is Outcome.FAILED  # type: ignore[attr-defined]
    with pytest.raises(OSError, match="No space"):
        await run(Script(calls("noop"), ZeroDivisionError()), "go", tools=[noop], journal=journal)


async def test_a_scope_that_is_cancelled_during_a_write_ends_the_run_before_the_next_request() -> None:
    class Slow(Book):
        blocks = True

        async def append(self, message: Message) -> None:
            await super().append(message)
            if message.text == "ok":
                scope.cancel()

    provider = Script(calls("noop"), "x")
    with anyio.CancelScope() as scope:
        await run(provider, "go", tools=[noop], journal=Slow())

    assert scope.cancelled_caught
    assert len(provider.requests) == 1


async def test_a_cancelled_scope_hands_the_result_on() -> None:
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


async def test_an_overlong_prompt_does_not_poison_what_follows() -> None:
    first = await run(Script("hello"), "hi")
    overlong = await run(Script(fail("context_overflow")), [*first.messages, user("x" * 999)])
    provider = Script("fine")

    last = await run(provider, [*overlong.messages, user("short")])

    assert overlong.outcome is Outcome.CONTEXT_WINDOW
    assert [message.excluded for message in overlong.messages] == [False, False, True]
    assert "left out of later requests" in overlong.notice
    assert [message.text for message in provider.requests[0].messages] == ["hi", "hello", "short"]
    assert last.outcome is Outcome.DONE


async def test_the_text_of_a_reply_that_stopped_in_an_error_is_kept() -> None:
    result = await run(Script(say("half", stop="error")), "go")

    assert (result.outcome, result.text, shape(result.messages)) == (Outcome.FAILED, "half", "u a")
    assert isinstance(result.error, ProviderError)


# Policies -----------------------------------------------------------------------------------------


class Redact(Policy):
    """Never send the secret."""

    def before_request(self, state: Any, request: Request) -> Hook:
        clean = tuple(
            replace(message, content=(Text(text=message.text.replace("hunter2", "*****")),))
            if isinstance(message, UserMessage)
            else message
            for message in request.messages
        )
        return Change(replace(request, messages=clean))


async def test_s119_what_a_policy_puts_into_a_request_is_sent_and_the_transcript_stays() -> None:
    events: list[Event] = []
    provider = Script(say("a ", stop="max_tokens"), "b")

    result = await run(provider, "the password is hunter2", policies=[Redact()], on_event=events.append)

    for request in provider.requests:
        assert request.messages[0].text == "the password is *****"
    assert [message.text for message in provider.requests[1].messages[1:]] == ["a ", CONTINUE]
    assert result.messages[0].text == "the password is hunter2"
    changes = [event for event in events if isinstance(event, ContextChanged)]
    assert [event.policy for event in changes] == ["Redact", "Redact"]
    assert (changes[0].before, changes[0].after) == (6, 6)  # tokens


async def test_s119_a_change_is_told_with_its_tokens_before_and_after() -> None:
    class Shorten(Policy):
        def before_request(self, state: Any, request: Request) -> Hook:
            return Change(replace(request, messages=[user("short")]))

    events: list[Event] = []
    await run(Script("x"), "a prompt of many words, " * 20, policies=[Shorten()], on_event=events.append)

    (change,) = [event for event in events if isinstance(event, ContextChanged)]
    assert change.before > 100 > change.after


async def test_s119_a_policy_sees_the_real_messages_and_may_answer_with_a_request() -> None:
    seen: list[int] = []

    class Look(Policy):
        def before_request(self, state: Any, request: Request) -> Any:
            seen.append(len(request.messages))
            return replace(request, system="be brief", messages=[*request.messages])

    events: list[Event] = []
    provider = Script(calls("noop"), "x")
    await run(provider, "go", tools=[noop], policies=[Look()], on_event=events.append)

    assert seen == [1, 3]
    assert [request.system for request in provider.requests] == ["be brief"] * 2
    assert not [event for event in events if isinstance(event, ContextChanged)]  # the messages are the same


async def test_s119_a_rewritten_transcript_is_changed_by_those_who_came_before() -> None:
    class Early(Redact):
        place = "gates"

    class Shorten(Policy):
        def __init__(self) -> None:
            self.done = False

        def before_request(self, state: Any, request: Request) -> Hook:
            if self.done:
                return None
            self.done = True
            return Rewrite(state.messages[-1:])

    provider = Script("x")
    old: list[Message] = [user("one hunter2"), AssistantMessage(content=(Text(text="ok"),)), user("two hunter2")]
    await run(provider, old, policies=[Early(), Shorten()])

    assert [message.text for message in provider.requests[0].messages] == ["two *****"]


async def test_s121_what_was_said_is_not_lost_when_the_transcript_is_rewritten() -> None:
    class Last(Policy):
        def before_request(self, state: Any, request: Request) -> Hook:
            return Rewrite(state.messages[-1:])  # always

    provider = Script("x")
    old: list[Message] = [user("one"), AssistantMessage(content=(Text(text="ok"),)), user("two hunter2")]
    result = await run(provider, old, policies=[Steering(queue("psst")), Redact(), Last()])

    assert [message.text for message in provider.requests[0].messages] == ["two *****", "psst"]
    assert [message.text for message in result.messages] == ["two hunter2", "psst", "x"]


async def test_s120_a_gate_and_a_word_both_happen() -> None:
    class Bare(Policy):
        def before_request(self, state: Any, request: Request) -> Hook:
            return Change(replace(request, tools=()))

    provider = Script("x")
    await run(provider, "go", tools=[noop], policies=[Steering(queue("psst")), Bare()])

    assert provider.requests[0].tools == ()
    assert [message.text for message in provider.requests[0].messages] == ["go", "psst"]


async def test_s120_what_is_said_comes_behind_changed_messages() -> None:
    provider = Script("x")
    result = await run(provider, "hunter2", policies=[Redact(), Steering(queue("psst"))])

    assert [message.text for message in provider.requests[0].messages] == ["*****", "psst"]
    assert [message.text for message in result.messages] == ["hunter2", "psst", "x"]


def queue(*texts: str) -> Any:
    waiting = list(texts)

    def source() -> list[str]:
        taken = waiting[:]
        waiting.clear()
        return taken

    return source


async def test_s121_two_sources_both_reach_the_next_request() -> None:
    provider = Script("x")

    result = await run(provider, "go", policies=[Steering(queue("one")), Steering(queue("two"))])

    assert [message.text for message in provider.requests[0].messages] == ["go", "one", "two"]
    assert shape(result.messages) == "u u u a"


async def test_what_was_taken_from_a_source_is_kept_when_another_policy_stops() -> None:
    class Halt(Policy):
        def before_request(self, state: Any, request: Request) -> Hook:
            return Stop(Outcome.HALTED)

    result = await run(Script(), "go", policies=[Steering(queue("one")), Halt()])

    assert [message.text for message in result.messages] == ["go", "one"]


async def test_s122_steering_that_comes_during_the_last_reply_is_answered_in_this_run() -> None:
    waiting: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, TextDelta) and event.text == "done":
            waiting.append("and the tests?")

    def source() -> list[str]:
        taken = waiting[:]
        waiting.clear()
        return taken

    result = await run(Script("done", "green"), "go", policies=[Steering(source)], on_event=listen)

    assert (result.requests, result.text, shape(result.messages)) == (2, "green", "u a u a")


@pytest.mark.parametrize("limits", [Limits(max_turns=1), Limits(max_requests=1), Limits(token_budget=1)])
async def test_s123_what_needs_no_further_turn_is_asked_on_the_last_one(limits: Limits) -> None:
    prompt = "g"  # one token by estimate, so that the budget is spent after the reply
    limits = replace(limits, token_budget=2) if limits.token_budget else limits
    stopped = await run(Script("some text"), prompt, policies=[StallBudget(0)], limits=limits)
    delivered = await run(Script("some text"), prompt, policies=[Delivery("deliver", eager=True)], limits=limits)

    assert stopped.outcome is Outcome.STALLED
    assert (delivered.outcome, delivered.delivered) == (Outcome.DONE, "some text")


async def test_s123_nothing_is_taken_from_a_source_that_cannot_be_sent() -> None:
    asked: list[str] = []
    limits = Limits(max_turns=1)

    def source() -> list[str]:
        asked.append("asked")
        return []

    await run(Script("x"), "go", policies=[FollowUp(source), Steering(source)], limits=limits)

    assert asked == ["asked"]  # by the steering, before the one request


async def test_nothing_is_taken_from_a_source_when_a_policy_has_cancelled_the_run() -> None:
    class Enough(Policy):
        def on_settle(self, state: Any, reply: AssistantMessage) -> Hook:
            state.cancel.cancel()
            return None

    waiting = queue("more")
    result = await run(Script("x"), "go", policies=[Enough(), FollowUp(waiting)])

    assert (result.outcome, waiting()) == (Outcome.CANCELLED, ["more"])


async def test_a_word_that_cannot_be_taken_is_left_and_the_next_policy_asked() -> None:
    class Talk(Policy):
        def on_settle(self, state: Any, reply: Any) -> Hook:
            return Say((user("more", origin="nudge"),))

    result = await run(Script("x"), "go", policies=[Talk(), Delivery("d", eager=True)], limits=Limits(max_turns=1))

    assert (result.outcome, result.delivered, shape(result.messages)) == (Outcome.DONE, "x", "u a t")


async def test_s124_delivery_begins_anew_after_a_batch() -> None:
    provider = Script("early", calls("noop"), "late", "later", "latest")

    result = await run(
        provider, "go", tools=[noop], policies=[Delivery("deliver", eager=True, nudges=2)], limits=Limits(max_turns=9)
    )

    assert (result.delivered, result.requests) == ("late", 5)


async def test_a_question_is_delivered_where_there_is_nothing_else() -> None:
    policy = Delivery("deliver", eager=True, nudges=1)

    result = await run(Script("Shall I?", "Shall I go on?"), "go", tools=[noop], policies=[policy])

    assert result.delivered == "Shall I go on?"


async def test_nothing_is_delivered_where_no_tool_was_offered() -> None:
    result = await run(Script("p"), "go", policies=[Delivery("deliver")])

    assert (result.outcome, result.delivered) == (Outcome.DONE, None)


async def test_delivery_without_eager_does_not_nudge() -> None:
    result = await run(Script("plain"), "go", tools=[noop], policies=[Delivery("deliver")])

    assert (result.outcome, result.delivered, result.requests) == (Outcome.DONE, None, 1)


@pytest.mark.parametrize("length", [400, 600])
async def test_a_long_answer_that_ends_in_a_question_is_an_answer(length: int) -> None:
    text = ("The report. " * 50)[: length - 14] + "Shall I go on?"

    result = await run(Script(text), "go", tools=[noop], policies=[Delivery("deliver", eager=True, nudges=0)])

    assert result.delivered == text


@pytest.mark.parametrize(
    ("hook", "answer"),
    [
        ("before_request", "no"),
        ("before_request", Deliver("t", "x")),
        ("on_reply", Say((user("x"),))),
        ("on_reply", "stop"),
        ("after_tools", Change(Request())),
        ("on_settle", Rewrite(())),
        ("on_settle", False),
    ],
)
async def test_s125_an_answer_that_a_hook_does_not_take_names_hook_and_policy(hook: str, answer: Any) -> None:
    class Odd(Policy):
        pass

    setattr(Odd, hook, lambda self, state, given: answer)

    with pytest.raises(TypeError, match=rf"Odd\.{hook} must answer None or .*, not ") as caught:
        await run(Script(calls("noop"), "x"), "go", tools=[noop], policies=[Odd()])

    assert_answered(caught.value.result.messages)  # type: ignore[attr-defined]


def test_s125_an_outcome_as_text_is_taken_as_the_enum() -> None:
    assert Stop("budget").outcome is Outcome.BUDGET  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'tired' is not a valid Outcome"):
        Stop("tired")  # type: ignore[arg-type]


@pytest.mark.parametrize("hook", ["before_request", "after_tools", "on_settle"])
async def test_s125_to_say_no_message_is_to_say_nothing(hook: str) -> None:
    policy: Any = Policy()
    setattr(policy, hook, lambda state, given: Say(()))

    result = await run(Script(calls("noop"), "x"), "go", tools=[noop], policies=[policy])

    assert (result.outcome, result.turns, shape(result.messages)) == (Outcome.DONE, 1, "u a t a")


def test_s125_what_is_said_is_messages() -> None:
    assert [message.text for message in Say(user("x")).messages] == ["x"]  # type: ignore[arg-type]
    for wrong in ("x", ("x",), [1]):
        with pytest.raises(TypeError, match="Say takes messages"):
            Say(wrong)  # type: ignore[arg-type]


async def test_the_state_of_a_policy_is_never_shared_between_runs() -> None:
    class Counts(Policy):
        def __init__(self, log: list[int]) -> None:
            self.seen: list[str] = []
            self.by_name: dict[str, list[int]] = {"x": []}
            self.log = log

        def on_settle(self, state: Any, reply: Any) -> Hook:
            self.seen.append("x")
            self.by_name["x"].append(1)
            self.log.append(len(self.seen) + len(self.by_name["x"]))
            return None

    log: list[int] = []
    policy = Counts(log)
    for _ in range(3):
        await run(Script("x"), "go", policies=[policy])

    assert log == [2, 2, 2]  # what it was given is the caller's
    assert policy.seen == []


async def test_s096_the_events_of_gates_say_who_wanted_what_and_why() -> None:
    events: list[Event] = []
    gates = Gates(
        Gate(name="phase", allow=["noop"], priority=100, reason="planning"), Gate(name="quiet", allow=[], priority=10)
    )
    provider = Script("x")

    await run(provider, "go", tools=[noop], policies=[gates], on_event=events.append)

    assert [spec.name for spec in provider.requests[0].tools] == ["noop"]
    (conflict,) = [event for event in events if isinstance(event, GateConflict)]
    (applied,) = [event for event in events if isinstance(event, GateApplied)]
    assert (conflict.winner, applied.allowed) == ("phase", ("noop",))
    for event in (conflict, applied):
        assert [(each.name, each.allowed, each.priority, each.reason) for each in event.lists] == [
            ("phase", ("noop",), 100, "planning"),
            ("quiet", (), 10, ""),
        ]


async def test_s097_a_dropped_gate_is_in_the_event_too() -> None:
    events: list[Event] = []
    gates = Gates(Gate(name="must", allow=["noop"], priority=5, required=True), Gate(name="may", allow=["x"]))

    @tool
    async def x() -> str:
        """Be x."""
        return ""

    await run(Script("x"), "go", tools=[noop, x], policies=[gates], on_event=events.append)

    (applied,) = [event for event in events if isinstance(event, GateApplied)]
    assert applied.gates == ("must",)
    assert [(each.name, each.dropped, each.required) for each in applied.lists] == [
        ("must", False, True),
        ("may", True, False),
    ]


# Replies ------------------------------------------------------------------------------------------


class Thinker:
    """A provider that thinks, says nothing, and answers at the next try."""

    name = "thinker"

    def __init__(self) -> None:
        self.asked = 0

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        self.asked += 1
        yield ThinkingDelta(text="hm")
        if self.asked > 1:
            yield TextDelta(text="42")
        said: tuple[Any, ...] = (Text(text="42"),) if self.asked > 1 else ()
        yield Done(message=AssistantMessage(content=(Thinking(text="hm"), *said)))


async def test_s126_a_reply_of_reasoning_alone_is_asked_for_again() -> None:
    events: list[Event] = []
    provider = Thinker()

    async def sleep(seconds: float) -> None:
        pass

    result = await run(with_retries(provider, sleep=sleep), "go", on_event=events.append)

    assert (result.outcome, result.text, provider.asked) == (Outcome.DONE, "42", 2)
    assert [event.kind for event in events if isinstance(event, Attempt)] == ["empty"]


@pytest.mark.parametrize(
    "script",
    [
        [say("abc", chunk=1), "x"],
        [say("abc", chunk=1, terminal=False)],
        [say("", stop="end_turn")],
        [say("no", stop="refusal")],
        [calls("noop", text="one"), fail("transient")],
        [say("a", stop="max_tokens"), fail("transient")],
        [say("", stop="pause_turn"), "x"],
    ],
)
async def test_every_message_that_starts_ends(script: list[Any]) -> None:
    events: list[Event] = []

    await run(Script(*script), "go", tools=[noop], on_event=events.append, limits=Limits(max_turns=3))

    started = [event.id for event in events if isinstance(event, MessageStart)]
    assert started == [event.message.id for event in events if isinstance(event, MessageEnd)]
    assert isinstance(events[0], RunStart)
    assert isinstance(events[1], MessageStart)


class Whole:
    """A provider that answers with one message as it is."""

    name = "whole"

    def __init__(self, *messages: Any) -> None:
        self.messages = list(messages)

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        yield Done(message=self.messages.pop(0))


def reply(*parts: Any, stop: Any = "end_turn") -> Any:
    return AssistantMessage(content=parts, stop_reason=stop)


@pytest.mark.parametrize(
    ("content", "meta"),
    [
        ("text", None),
        (None, None),
        (["text"], None),
        ((Text(text=5),), None),  # type: ignore[arg-type]
        ((Text(text="x"),), {"when": object()}),
        ((), ["x"]),
    ],
)
async def test_s132_a_junk_result_is_an_error_result(content: Any, meta: Any) -> None:
    @tool
    async def junk() -> Any:
        """Give junk."""
        return ToolResult(content=content, meta=meta)

    result = await run(Script(calls("junk"), "x"), "go", tools=[junk])

    assert (result.outcome, result.messages[2].is_error) == (Outcome.DONE, True)  # type: ignore[union-attr]
    assert "of a ToolResult must be" in result.messages[2].text


@pytest.mark.parametrize(("given", "taken", "raw"), [("end_turn", "end_turn", None), ("zzz", "unknown", "zzz")])
async def test_s132_a_stop_reason_as_text_is_taken_as_the_enum(given: str, taken: str, raw: str | None) -> None:
    result = await run(Whole(reply(Text(text="x"), stop=given)), "go")

    last = result.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert (last.stop_reason is StopReason(taken), last.raw_stop_reason) == (True, raw)


async def test_s132_duplicate_ids_of_calls_are_renamed() -> None:
    twice = ToolCall(id="a", name="noop", arguments="{}")
    other = ToolCall(id="a_2", name="noop", arguments="{}")

    result = await run(Whole(reply(twice, other, twice), reply(Text(text="x"))), "go", tools=[noop])

    assert [message.call_id for message in result.messages if hasattr(message, "call_id")] == ["a", "a_2", "a_3"]
    assert_answered(result.messages)


async def test_s132_junk_of_a_provider_is_named() -> None:
    class Nameless:
        async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
            yield Done(message=reply(Text(text="x")))

    with pytest.raises(TypeError, match="provider must have a name"):
        await run(Nameless(), "go")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"whole must end in Done\(message=glue.AssistantMessage"):
        await run(Whole({"role": "assistant"}), "go")
    with pytest.raises(TypeError, match="arguments of a ToolCall are JSON text"):
        ToolCall(id="a", name="noop", arguments={"x": 1})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"Image takes keywords \(media_type=, data=, url=.*\), not 'x.png'"):
        Image("x.png")  # type: ignore[call-arg]


def test_s132_junk_of_a_caller_is_named() -> None:
    agent = Agent(Script("x"))

    with pytest.raises(TypeError, match=r"store must be a store such as glue.FileStore\('.glue'\)"):
        agent.session(store=".glue")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="temperature must be a number"):
        Agent(Script(), temperature="hot")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="temperature must be a number"):
        agent.session(temperature="hot")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="reasoning must be one of"):
        Agent(Script(), reasoning="huge")  # type: ignore[call-overload]

    async def listener(event: Event) -> None:
        pass

    with pytest.raises(TypeError, match="on_event must be a plain function"):
        agent.run_sync("x", on_event=listener)
    with pytest.raises(TypeError, match="must be a plain function"):
        agent.session().subscribe(listener)


# Resuming -----------------------------------------------------------------------------------------


async def test_s127_resume_after_a_request_limit_inside_a_chain() -> None:
    first = await run(Script(say("part one ", stop="max_tokens")), "go", limits=Limits(max_requests=1))
    provider = Script("part two")

    result = await run_continue(provider, first.messages)

    assert shape(first.messages) == "u a"
    assert [message.text for message in provider.requests[0].messages] == ["go", "part one ", CONTINUE]
    assert (shape(result.messages), result.text, result.outcome) == ("u a u+ a", "part one part two", Outcome.DONE)


async def test_s127_resume_after_a_cut_call() -> None:
    cut = calls(call("noop", {}, complete=False), stop="max_tokens")
    first = await run(Script(cut), "go", tools=[noop], limits=Limits(max_requests=1))

    result = await run_continue(Script(calls("noop"), "x"), first.messages, tools=[noop])

    assert shape(result.messages) == "u a u+ a t a"
    assert "cut off by the token limit" in result.messages[2].text


async def test_s127_a_resumed_repair_is_still_one_reply() -> None:
    broken = calls(call("noop", {}, complete=False), text="I look: ", stop="max_tokens")
    first = await run(Script(broken), "go", tools=[noop], limits=Limits(max_requests=1))
    provider = Script("no need", "fine")

    result = await run_continue(provider, first.messages, tools=[noop], policies=[Steering(queue("psst"))])

    assert [message.text for message in provider.requests[0].messages][-1].startswith("Your last reply was cut off")
    assert [message.text for message in result.messages[-3:]] == ["no need", "psst", "fine"]
    alone = await run_continue(Script("no need"), first.messages, tools=[noop])
    assert alone.text == "I look: no need"


@pytest.mark.parametrize("script", [[fail("transient")], [calls("noop"), fail("transient")]])
async def test_s127_resume_after_a_failed_request(script: list[Any]) -> None:
    first = await run(Script(*script), "go", tools=[noop])

    result = await run_continue(Script("x"), first.messages, tools=[noop])

    assert first.outcome is Outcome.FAILED
    assert (result.outcome, result.messages[: len(first.messages)]) == (Outcome.DONE, first.messages)
    assert shape(result.messages) == shape(first.messages) + " a"


async def test_s127_a_nudge_is_said_again_though_steering_came_behind_it() -> None:
    class Nag(Policy):
        def after_tools(self, state: Any, results: Any) -> Hook:
            return Say((user("look closer", origin="nudge"),))

        def before_request(self, state: Any, request: Request) -> Hook:
            return Stop(Outcome.BUDGET) if state.requests else None

    waiting = Steering(lambda: ["psst"] if provider.requests else [])
    provider = Script(calls("noop"), "x")
    first = await run(provider, "go", tools=[noop], policies=[Nag(), waiting])

    await run_continue(provider, first.messages, tools=[noop])

    assert [message.text for message in first.messages[2:]] == ["ok", "psst"]
    assert [message.text for message in provider.requests[1].messages[2:]] == ["ok", "psst", "look closer"]


async def test_s127_the_wrap_up_message_is_not_said_again() -> None:
    first = await run(Script(calls("noop"), fail("auth")), "go", tools=[noop], limits=Limits(max_turns=2, grace=1))

    result = await run_continue(Script("x"), first.messages, tools=[noop])

    assert (shape(first.messages), shape(result.messages)) == ("u a t", "u a t a")


async def test_s127_resume_after_a_failure_inside_a_chain() -> None:
    first = await run(Script(say("one ", stop="max_tokens"), fail("transient")), "go")

    result = await run_continue(Script("two"), first.messages)

    assert (result.text, shape(result.messages)) == ("one two", "u a u+ a")


async def test_s127_resume_after_a_nudge_that_spent_the_budget() -> None:
    class Nag(Policy):
        def on_settle(self, state: Any, reply: AssistantMessage) -> Hook:
            nudges = (user("really? " * 20, origin="nudge"), user("think again", origin="nudge"))
            return Say(nudges) if reply.text == "yes" else None

    first = await run(Script("yes"), "go", policies=[Nag()], limits=Limits(token_budget=20))
    provider = Script("yes, really")

    result = await run_continue(provider, first.messages)

    assert (first.outcome, shape(first.messages)) == (Outcome.BUDGET, "u a")
    assert [message.text for message in provider.requests[0].messages[-2:]] == ["really? " * 20, "think again"]
    assert shape(result.messages) == "u a u+ u+ a"


async def test_resume_after_a_pause_and_after_half_a_reply() -> None:
    paused = await run(Script(repeat(say("a ", stop="pause_turn"))), "go", limits=Limits(max_turns=1))
    assert shape((await run_continue(Script("b"), paused.messages)).messages) == "u a a"

    partial = [user("go"), reply(Text(text="half a "), stop=StopReason.CANCELLED)]
    result = await run_continue(Script("reply"), partial)
    assert (shape(result.messages), result.text) == ("u a u+ a", "half a reply")


@pytest.mark.parametrize("before", [(), (fail("auth"),)])
@pytest.mark.parametrize("script", ["x", say("no", stop="refusal"), calls("leave")])
async def test_what_ended_cannot_be_resumed(script: Any, before: tuple[Any, ...]) -> None:
    @tool
    async def leave() -> ToolResult:
        """End the run."""
        return ToolResult(content=(Text(text="bye"),), terminate=True)

    store = MemoryStore()
    agent = Agent(Script(*before, script, "next"), tools=[leave])
    session = agent.session("s", store=store)
    for _ in before:
        await session.prompt("this fails", unwrap=False)
    ended = await session.prompt("go")

    with pytest.raises(InvalidContinuation):
        await agent.resume(ended)
    with pytest.raises(InvalidContinuation):
        await agent.session("s", store=store).resume()
    assert (await session.prompt("more")).text == "next"


@pytest.mark.parametrize("last", [fail("content_filter"), say("no", stop="refusal"), fail("context_overflow")])
async def test_a_resumed_run_is_excluded_from_its_prompt_on(last: Any) -> None:
    provider = Script(fail("auth"), fail("auth"), last, "fine")
    session = Agent(provider).session()
    for prompt in ("one", "two"):
        await session.prompt(prompt, unwrap=False)

    await session.resume(unwrap=False)
    await session.prompt("three")

    assert next(message.text for message in session.messages if message.excluded) == "two"
    assert [message.text for message in provider.requests[-1].messages] == ["one", "three"]


async def test_a_run_on_a_transcript_that_was_cut_is_excluded_from_its_prompt_on() -> None:
    cut = await run(Script(calls("noop"), fail("auth")), [user("one"), user("two")], tools=[noop])

    result = await run(Script(say("no", stop="refusal")), cut.messages, tools=[noop])

    assert [message.excluded for message in result.messages] == [False, True, True, True, True]


async def test_a_resumed_run_that_has_a_reply_is_not_left_out_when_it_grows_too_long() -> None:
    session = Agent(Script(calls("noop"), fail("auth"), fail("context_overflow")), tools=[noop]).session()
    await session.prompt("go", unwrap=False)

    result = await session.resume(unwrap=False)

    assert (result.outcome, result.notice) == (Outcome.CONTEXT_WINDOW, "")
    assert not any(message.excluded for message in result.messages)


async def test_a_call_that_a_killed_run_left_open_is_answered_when_it_is_resumed() -> None:
    killed = [user("go"), reply(call("noop", id="a"), call("noop", id="b"), stop=StopReason.TOOL_USE)]
    journal = Book()

    result = await run_continue(Script("x"), killed, tools=[noop], journal=journal)

    assert shape(result.messages) == "u a t t a"
    assert_answered(result.messages)
    assert [message.text for message in journal.messages[:2]] == ["no result was recorded for this call"] * 2


# Tools --------------------------------------------------------------------------------------------


async def test_a_tool_that_raises_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    @tool
    async def broken() -> str:
        """Fail."""
        raise ZeroDivisionError("by hand")

    with caplog.at_level(logging.WARNING, "glue.tools"):
        result = await run(Script(calls("broken"), "x"), "go", tools=[broken])

    (record,) = caplog.records
    assert (record.name, record.levelname, record.getMessage()) == (
        "glue.tools",
        "WARNING",
        "tool broken raised ZeroDivisionError",
    )
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError
    assert result.messages[2].text == "ZeroDivisionError: by hand"


async def test_usage_and_outcome_of_the_last_event_are_those_of_the_result() -> None:
    events: list[Event] = []
    child = Agent(Script(say("found", usage=Usage(input=100, output=10, cost=0.5))), name="child")
    script = Script(
        calls(call("child", {"prompt": "look"}), usage=Usage(input=1, output=1, cost=0.1)),
        say("x", usage=Usage(input=1, output=1, cost=0.1)),
    )

    result = await Agent(script, tools=[child.as_tool()]).run("go", on_event=events.append)

    end = events[-1]
    assert isinstance(end, RunEnd)
    assert end.usage == result.usage
    assert result.usage.input == 102
    assert result.cost == pytest.approx(0.7)
    failed = await Agent(Script(repeat("no json")), output=int).run("go", on_event=events.append, unwrap=False)
    assert isinstance(end := events[-1], RunEnd)
    assert (end.outcome, failed.outcome) == (Outcome.FAILED, Outcome.FAILED)


async def test_a_provider_that_says_cancelled_ends_the_run() -> None:
    result = await run(Script(say("half", stop="cancelled")), "go")

    assert (result.outcome, result.text) == (Outcome.CANCELLED, "half")
    assert isinstance(result.error, Cancelled)
