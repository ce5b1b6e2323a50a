"""LOOP scenarios 100 to 104 and 108 to 115: refusals, cancellation, guards, resuming, hooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import pytest

from glue import Cancel, Context, Limits, Message, Outcome, Policy, Say, Stop, StopReason, run, run_continue, tool
from glue.errors import Cancelled, GuardHalted
from glue.events import Event, Guardrail, Nudge, ToolStart, TurnEnd
from glue.loop.state import State
from glue.loop.transcript import CONTINUE
from glue.messages import AssistantMessage, ToolMessage, UserMessage, user
from glue.policies import AutoContinue, Hook, RefusalDetector, looks_like_refusal
from glue.policies.steering import announces
from glue.provider import TextDelta
from glue.testing import Script, call, calls, fail, repeat, say, shape


@tool
async def noop() -> str:
    """Do nothing."""
    return "ok"


@tool
async def broken() -> str:
    """Fail."""
    raise RuntimeError("broken")


async def test_s100_a_refused_run_leaves_the_context() -> None:
    first = await run(Script(calls("noop"), say("no", stop="refusal")), "bad", tools=[noop])
    later = Script("x")

    await run(later, [*first.messages, user("good")])

    assert (first.outcome, first.stop_reason, shape(first.messages)) == ("refused", "refusal", "u a t a")
    assert (first.error, first.outcome.exit_code) == (None, 5)
    assert all(message.excluded for message in first.messages)
    assert [message.text for message in later.requests[0].messages] == ["good"]


async def test_s100_a_content_filter_is_a_refusal() -> None:
    result = await run(Script(fail("content_filter")), "bad")

    assert (result.outcome, result.error) == ("refused", None)


async def test_s100_calls_beside_a_refusal_are_not_kept() -> None:
    result = await run(Script(calls("noop", text="no", stop="refusal")), "bad", tools=[noop])

    assert (shape(result.messages), result.text) == ("u a", "no")


PHRASES = """I can't help with that.
I cannot assist with this request.
I'm sorry, but I can't do that.
I am sorry, but I cannot provide instructions for that.
I won't help you write malware.
I will not assist with that.
I'm unable to help with this.
I am unable to comply with that request.
I'm not able to provide that information.
I must decline this request.
I must refuse.
I have to decline.
I decline to answer that.
I refuse to do that.
This request violates our content policy.
That request goes against my guidelines.
That is against my programming.
It violates the usage policies.
I'm not comfortable helping with that.
I am not comfortable providing this.
As an AI, I can't do that.
As an AI language model, I cannot engage in that.
I don't feel comfortable with this.
I do not feel comfortable writing that.
That is not something I can help with.
I'd rather not discuss that.
My guidelines prevent me from doing so.
Unable to assist with that request.
Sorry, can't help with that.
I could not fulfil that request.
I am not allowed to share that.
I\u2019m sorry, but I won\u2019t do this.""".splitlines()


@pytest.mark.parametrize("phrase", PHRASES)
@pytest.mark.parametrize("case", [str, str.upper, str.lower])
def test_s101_short_refusals_are_recognised(phrase: str, case: Any) -> None:
    assert looks_like_refusal(case(phrase))


def test_s101_helpful_texts_are_no_refusals() -> None:
    assert len(PHRASES) >= 30
    assert not looks_like_refusal("I can't help with that. " + "But here is what you can do instead. " * 20)
    assert not looks_like_refusal("Here is the function you asked for: it opens the file and reads it.")
    assert not looks_like_refusal("I can't reproduce the bug; tests pass.")
    assert not looks_like_refusal("")


@pytest.mark.parametrize("text", ["I can't reproduce the bug; tests pass", "I can't help with that."])
async def test_s102_the_detector_is_off_by_default(text: str) -> None:
    result = await run(Script(text), "go")

    assert (result.outcome, result.text, result.stop_reason) == ("done", text, "end_turn")


async def test_s103_the_detector_ends_a_run() -> None:
    result = await run(Script("I can't help with that."), "go", policies=[RefusalDetector()])

    assert (result.outcome, result.stop_reason, result.meta) == ("refused", "refusal", {"refusal": "detector"})
    assert isinstance(last := result.messages[-1], AssistantMessage)
    assert last.stop_reason is StopReason.REFUSAL


def valid(messages: Sequence[Message]) -> bool:
    """Check that each call has exactly one result, directly after it, and nothing is empty."""
    waiting: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.excluded:
                continue
            if not waiting or waiting.pop(0) != message.call_id:
                return False
        elif waiting:
            return False
        elif isinstance(message, AssistantMessage):
            if not message.content or not all(part.complete for part in message.calls):
                return False
            waiting = [part.id for part in message.calls]
    return not waiting


async def cancelled_at(trigger: type, provider: Script, tools: Sequence[Any] = (noop,)) -> Any:
    cancel = Cancel()

    def listen(event: Event) -> None:
        if isinstance(event, trigger):
            cancel.cancel()

    result = await run(provider, "go", tools=tools, on_event=listen, cancel=cancel)
    assert provider.open_streams == 0
    return result


async def test_s104_cancelled_before_the_first_request() -> None:
    cancel = Cancel()
    cancel.cancel()

    result = await run(provider := Script(), "go", cancel=cancel)

    assert (result.outcome, shape(result.messages), provider.requests) == ("cancelled", "u", [])
    assert isinstance(result.error, Cancelled)
    assert result.outcome.exit_code == 130
    assert result.stop_reason is StopReason.CANCELLED


async def test_s104_cancelled_in_the_stream() -> None:
    result = await cancelled_at(TextDelta, Script(say("hello world", chunk=5)))

    assert (result.outcome, result.text, shape(result.messages)) == ("cancelled", "hello", "u a")
    assert result.messages[-1].stop_reason is StopReason.CANCELLED


async def test_s104_the_text_of_a_cancelled_reply_is_its_own() -> None:
    cancel = Cancel()

    def listen(event: Event) -> None:
        if isinstance(event, TextDelta) and event.text == "hello":
            cancel.cancel()

    provider = Script(calls("noop", text="first"), say("hello world", chunk=5))
    result = await run(provider, "go", tools=[noop], on_event=listen, cancel=cancel)

    assert (result.text, shape(result.messages)) == ("hello", "u a t a")


async def test_s104_cancelled_in_a_tool() -> None:
    started = anyio.Event()

    @tool
    async def hang() -> str:
        """Never return."""
        started.set()
        await anyio.sleep_forever()
        return ""

    cancel = Cancel()
    provider = Script(calls("noop", "hang", "hang"))
    results: list[Any] = []

    async def go() -> None:
        results.append(await run(provider, "go", tools=[noop, hang], cancel=cancel))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(go)
        await started.wait()
        await anyio.wait_all_tasks_blocked()
        cancel.cancel()

    result = results[0]
    assert (result.outcome, shape(result.messages)) == ("cancelled", "u a t t t")
    assert result.messages[1].stop_reason is StopReason.CANCELLED
    assert provider.open_streams == 0
    assert [m.is_error for m in result.messages[2:]] == [False, True, True]
    assert [m.text for m in result.messages[2:]] == ["ok", "cancelled", "cancelled"]
    assert valid(result.messages)


async def test_s104_cancelled_in_a_permission_wait() -> None:
    from glue.context import Host

    waiting = anyio.Event()

    class Never:
        async def decide(self, *question: Any, **details: Any) -> Any:
            waiting.set()
            await anyio.sleep_forever()

        __call__ = decide

    @tool(needs_permission=True)
    async def delete() -> str:
        """Delete everything."""
        raise AssertionError("ran without permission")

    cancel = Cancel()
    results: list[Any] = []

    async def go() -> None:
        host = Host(permission=Never())
        results.append(await run(Script(calls("delete")), "go", tools=[delete], cancel=cancel, host=host))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(go)
        await waiting.wait()
        cancel.cancel()

    assert (results[0].outcome, shape(results[0].messages)) == ("cancelled", "u a t")
    assert valid(results[0].messages)


async def test_s104_cancelled_after_the_last_reply() -> None:
    result = await cancelled_at(TurnEnd, Script("bye"))

    assert (result.outcome, result.text, shape(result.messages)) == ("cancelled", "bye", "u a")


async def test_s104_cancelled_between_the_reply_and_its_tools() -> None:
    result = await cancelled_at(ToolStart, Script(calls("noop", "noop")))

    assert (result.outcome, shape(result.messages)) == ("cancelled", "u a t t")
    assert valid(result.messages)


async def test_a_provider_that_says_cancelled_ends_the_run() -> None:
    result = await run(Script(say("par", stop="cancelled")), "go")

    assert (result.outcome, result.text, shape(result.messages)) == ("cancelled", "par", "u a")


async def test_s108_the_same_call_three_times_gets_a_word() -> None:
    events: list[Event] = []
    same = calls(call("noop"))
    provider = Script(same, same, same, calls("broken"), same, same, "done")

    result = await run(provider, "go", tools=[noop, broken], on_event=events.append)

    assert result.outcome is Outcome.DONE
    assert [(e.kind, e.count, e.action) for e in events if isinstance(e, Guardrail)] == [("repeat", 3, "nudge")]
    assert shape(result.messages) == "u a t a t a t u+ a t a t a t a"


async def test_s109_the_same_call_for_ever_is_halted() -> None:
    result = await run(provider := Script(repeat(calls(call("noop", id="c")))), "go", tools=[noop])

    assert (result.outcome, len(provider.requests)) == ("halted", 5)
    assert isinstance(result.error, GuardHalted)
    assert (result.error.kind, result.error.count) == ("repeat", 5)
    assert valid(result.messages)
    assert isinstance(result.messages[-1], ToolMessage)
    assert result.stop_reason is StopReason.TOOL_USE
    assert result.outcome.exit_code == 3


async def test_s109_other_arguments_are_other_calls() -> None:
    @tool
    async def read(page: int) -> str:
        """Read a page."""
        return "text"

    steps = [calls(call("read", {"page": n})) for n in range(8)]

    result = await run(Script(*steps, "end"), "go", tools=[read])

    assert shape(result.messages).count("u+") == 0


async def test_s110_turns_of_errors_get_a_word_and_are_halted() -> None:
    steps = [calls(call("broken", {"n": n}), call("broken", {"n": -n})) for n in range(9)]

    result = await run(provider := Script(*steps), "go", tools=[broken])

    assert (result.outcome, len(provider.requests)) == ("halted", 6)
    assert isinstance(result.error, GuardHalted)
    assert (result.error.kind, result.error.count) == ("errors", 6)
    assert [m.origin for m in result.messages if isinstance(m, UserMessage)] == ["user", "nudge"]


async def test_s110_one_good_result_clears_the_errors() -> None:
    bad, good = calls("broken", "broken"), calls("broken", "noop")

    result = await run(Script(bad, bad, good, bad, bad, good, bad, bad, "end"), "go", tools=[noop, broken])

    assert (result.outcome, shape(result.messages).count("u+")) == ("done", 0)


async def test_guards_may_be_off() -> None:
    limits = Limits(repeat_nudge=None, repeat_halt=None, error_nudge=None, error_halt=None, max_turns=9)

    result = await run(Script(repeat(calls(call("broken")))), "go", tools=[broken], limits=limits)

    assert (result.outcome, shape(result.messages).count("u+")) == ("max_turns", 0)


async def test_s103_a_reply_with_calls_is_no_refusal() -> None:
    provider = Script(calls("noop", text="I can't help with that. Let me look."), "x")

    result = await run(provider, "go", tools=[noop], policies=[RefusalDetector()])

    assert (result.outcome, shape(result.messages)) == ("done", "u a t a")


async def test_s111_who_has_no_tools_announces_nothing() -> None:
    result = await run(Script("I will now edit the file."), "go", policies=[AutoContinue()])

    assert (result.outcome, result.requests) == ("done", 1)


async def test_s111_an_announcement_is_followed_up() -> None:
    policy = AutoContinue()

    one = await run(Script("I will now edit the file.", "done"), "go", tools=[noop], policies=[policy])
    none = await run(Script("Let me know if you need more."), "go", tools=[noop], policies=[policy])
    events: list[Event] = []
    most = await run(Script(repeat("I'll now start.")), "go", tools=[noop], policies=[policy], on_event=events.append)

    assert [shape(result.messages) for result in (one, none, most)] == ["u a u+ a", "u a", "u a u+ a u+ a"]
    assert most.outcome is Outcome.DONE
    assert [event.policy for event in events if isinstance(event, Nudge)] == ["auto_continue"] * 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I will now look." + " " * 284 + ".", False),  # only the last 300 characters count
        ("I will now look." + " " * 283 + ".", True),
        ("I\u2019m going to look at it.", True),
        ("Next, I'll run the tests.", True),
        ("Let me check the file.", True),
        ("I will now stop. Let me know how it goes.", False),
        ("The file is fixed.", False),
        ("", False),
    ],
)
def test_s111_what_an_announcement_is(text: str, expected: bool) -> None:
    assert announces(text) is expected


async def test_s112_a_resumed_run_keeps_the_earlier_tag() -> None:
    first = await run(Script(repeat(calls("noop"))), "go", tools=[noop], limits=Limits(max_turns=2))

    second = await run_continue(Script(repeat(calls("noop"))), first.messages, tools=[noop], limits=Limits(max_turns=1))

    assert shape(second.messages) == "u a t a t a t"
    tags = [message.stop_reason for message in second.messages if isinstance(message, AssistantMessage)]
    assert tags == ["tool_use", "max_turns", "max_turns"]


class Answers(Policy):
    """Answer a hook, and note that it was asked."""

    def __init__(self, hook: str, answer: Any, asked: list[str], name: str) -> None:
        self.hook, self.answer, self.asked, self.name = hook, answer, asked, name

    def _ask(self, hook: str) -> Hook:
        if hook != self.hook:
            return None
        self.asked.append(self.name)
        answer, self.answer = self.answer, None
        return answer  # type: ignore[no-any-return]

    def before_request(self, state: State, request: Any) -> Hook:
        return self._ask("before_request")

    def on_reply(self, state: State, reply: Any) -> Hook:
        return self._ask("on_reply")

    def after_tools(self, state: State, results: Any) -> Hook:
        return self._ask("after_tools")

    async def on_settle(self, state: State, reply: Any) -> Any:
        return self._ask("on_settle")


@pytest.mark.parametrize("hook", ["before_request", "on_reply", "after_tools", "on_settle"])
async def test_s113_the_first_answer_wins(hook: str) -> None:
    asked: list[str] = []
    policies = [Answers(hook, Stop(Outcome.HALTED), asked, "one"), Answers(hook, Stop(Outcome.STALLED), asked, "two")]

    result = await run(Script(calls("noop"), "x"), "go", tools=[noop], policies=policies)

    assert (result.outcome, asked) == ("halted", ["one"])
    assert valid(result.messages)


@pytest.mark.parametrize(("hook", "turns"), [("before_request", 1), ("after_tools", 2), ("on_settle", 2)])
async def test_s113_what_is_said_counts_a_turn_except_before_a_request(hook: str, turns: int) -> None:
    asked: list[str] = []
    said = Say((user("psst", origin="nudge"),))
    provider = Script(calls("noop"), "x", "y")

    result = await run(
        provider, "go", tools=[noop], policies=[Answers(hook, said, asked, "one"), Answers(hook, None, asked, "two")]
    )

    assert result.turns == turns
    assert asked[0] == "one"
    speaks_alone = hook != "before_request"  # there all are asked, and all who want to speak do
    assert asked.count("two") == asked.count("one") - speaks_alone


class Log:
    """A journal that keeps what it was told."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.told: list[str] = []

    async def append(self, message: Message) -> None:
        await anyio.lowlevel.checkpoint()
        self.messages.append(message)
        self.told.append(f"append {shape([message])}")

    async def insert(self, message: Message, before: str) -> None:
        self.told.append("insert")

    async def amend(self, id: str, fields: Mapping[str, Any]) -> None:
        self.told.append(f"amend {dict(fields)}")

    async def drop(self, ids: Sequence[str]) -> None:
        self.messages = [message for message in self.messages if message.id not in ids]
        self.told.append(f"drop {len(ids)}")

    async def exclude(self, ids: Sequence[str]) -> None:
        self.told.append(f"exclude {len(ids)}")


async def test_s114_a_cancelled_scope_leaves_a_valid_log_and_goes_on() -> None:
    started = anyio.Event()

    @tool
    async def hang() -> str:
        """Never return."""
        started.set()
        await anyio.sleep_forever()
        return ""

    journal = Log()
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
    assert journal.told[-1] == "amend {'stop_reason': 'cancelled'}"


async def test_s115_limits_raised_while_running_count_at_the_next_request() -> None:
    current = [Limits(max_turns=1)]

    @tool
    async def more() -> str:
        """Raise the limit."""
        current[0] = Limits(max_turns=3)
        return "ok"

    result = await run(Script(calls("more"), "x"), "go", tools=[more], limits=lambda: current[0])

    assert (result.outcome, result.turns) == ("done", 1)


async def test_the_journal_is_told_of_everything() -> None:
    journal = Log()
    provider = Script(say("part", stop="max_tokens"))

    await run(provider, "go", limits=Limits(max_requests=1), journal=journal)

    unsent = [{"origin": "continue", "text": CONTINUE}]
    amended = {"stop_reason": "max_turns", "meta": {"unsent": unsent}}
    assert journal.told == ["append a", "append u+", "drop 1", f"amend {amended}"]


async def test_a_refusal_is_excluded_in_the_journal() -> None:
    journal = Log()

    await run(Script(say("no", stop="refusal")), "go", journal=journal)

    assert journal.told == ["append a", "exclude 2"]


async def test_a_bug_in_a_provider_propagates_and_leaves_a_valid_log() -> None:
    journal = Log()

    with pytest.raises(ZeroDivisionError):
        await run(Script(calls("noop"), ZeroDivisionError()), "go", tools=[noop], journal=journal)

    assert shape(journal.messages) == "a t"


async def test_a_listener_that_fails_does_not_break_the_run() -> None:
    def listen(event: Event) -> None:
        raise RuntimeError("no")

    assert (await run(Script("x"), "go", on_event=listen)).outcome is Outcome.DONE


async def test_a_tool_may_report_its_progress() -> None:
    events: list[Event] = []

    @tool
    async def work(context: Context[None]) -> str:
        """Work."""
        context.progress("half", {"done": 0.5})
        return "ok"

    await run(Script(calls("work"), "x"), "go", tools=[work], on_event=events.append)

    updates = [(e.text, e.data) for e in events if type(e).__name__ == "ToolUpdate"]  # type: ignore[union-attr]
    assert updates == [("half", {"done": 0.5})]


class Summed(Policy):
    """A compactor that puts a summary in the place of all but the last message."""

    async def compact(self, state: State) -> Sequence[Message]:
        return [user("short", origin="summary"), state.messages[-1]]


async def test_a_compaction_is_written_to_the_journal() -> None:
    journal = Log()
    long: list[Message] = [user("a" * 400), AssistantMessage(content=user("b" * 400).content), user("now")]

    await run(Script(fail("context_overflow"), "ok"), long, policies=[Summed()], journal=journal)

    assert journal.told == ["exclude 2", "insert", "append a"]


async def test_a_compaction_that_keeps_nothing_is_appended_to_the_journal() -> None:
    class Alone(Policy):
        async def compact(self, state: Any) -> Any:
            return (user("all in short"),)

    journal = Log()
    provider = Script(fail("context_overflow"), "ok")

    result = await run(provider, [user("a" * 400), user("now")], policies=[Alone()], journal=journal)

    assert journal.told == ["exclude 2", "append u", "append a"]
    assert [message.text for message in provider.requests[-1].messages] == ["all in short"]
    assert shape(result.messages) == "u a"
