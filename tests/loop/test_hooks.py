"""`glue.loop.hooks`: which answer of several policies the loop uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import anyio
import pytest
from fakes.loop import RecordingJournal, assert_valid, queue

import glue
from glue import (
    AssistantMessage,
    Cancel,
    Limits,
    Message,
    Outcome,
    Request,
    Text,
    UserMessage,
    run,
    user,
)
from glue.events import ContextChanged, Event, GateApplied, Nudge, ToolEnd, TurnEnd
from glue.loop.state import State
from glue.loop.transcript import CONTINUE
from glue.policies import (
    AutoContinue,
    Change,
    Deliver,
    Delivery,
    FollowUp,
    Gate,
    Gates,
    Hook,
    Policy,
    Rewrite,
    Say,
    StallBudget,
    Steering,
    Stop,
)
from glue.policies.delivery import asks_back
from glue.stores import MemoryStore
from glue.testing import Script, call, calls, fail, repeat, say, shape

pytestmark = pytest.mark.anyio


@glue.tool
def noop(x: int = 0) -> str:
    """Return ok."""
    return "ok"


@glue.tool(terminates=True)
def submit(text: str) -> str:
    """Deliver."""
    return "delivered"


def texts(result: glue.RunResult[Any]) -> list[str]:
    return [message.text for message in result.messages if isinstance(message, glue.UserMessage)]


class Waits(Policy):
    """Wait for ever after the model has settled."""

    place = "guards"

    async def on_settle(self, state: Any, reply: Any) -> Any:
        await anyio.sleep_forever()

    async def before_request(self, state: Any, request: Request) -> Any:
        if state.requests:
            await anyio.sleep_forever()


async def test_s137_a_cancelled_scope_leaves_steering_in_its_source() -> None:
    waiting = ["and the tests?"]

    def take() -> list[str]:
        taken = waiting[:]
        waiting.clear()
        return taken

    with anyio.move_on_after(0.02):
        await run(Script("done", "more"), "go", policies=[FollowUp(take), Waits()])

    assert waiting == ["and the tests?"]


async def test_s137_a_policy_that_raises_leaves_steering_in_its_source() -> None:
    class Raises(Policy):
        place = "guards"

        def on_settle(self, state: Any, reply: Any) -> Hook:
            raise KeyError("bug")

    waiting = ["and the tests?"]
    source = FollowUp(lambda: [waiting.pop()] if waiting else [])

    with pytest.raises(KeyError):
        await run(Script("done"), "go", policies=[source, Raises()])

    assert waiting == ["and the tests?"]


async def test_s137_a_session_keeps_a_steering_message_until_it_is_stored() -> None:
    class Breaks(MemoryStore):
        def log(self, *args: Any, **keywords: Any) -> Any:
            log = super().log(*args, **keywords)
            append = log.append

            async def fail_on_steering(message: Any) -> None:
                if getattr(message, "origin", "") == "steering":
                    raise glue.errors.StoreError("disk full")
                await append(message)

            log.append = fail_on_steering  # type: ignore[method-assign]
            return log

    session = glue.Agent(Script("done", "more")).session("s", store=Breaks())
    session.steer("one")
    session.steer("two")

    with pytest.raises(glue.errors.StoreError):
        await session.run("go")

    assert list(session._steering) == ["one", "two"]


async def test_s140_an_async_source_is_awaited() -> None:
    waiting = ["psst"]

    async def take() -> list[str]:
        await anyio.lowlevel.checkpoint()
        return [waiting.pop()] if waiting else []

    provider = Script("x")

    result = await run(provider, "go", policies=[Steering(take)])

    assert texts(result) == ["go", "psst"]
    assert len(provider.requests) == 1


async def test_s138_a_policy_that_always_speaks_does_not_switch_off_the_guards() -> None:
    class Nag(Policy):
        def after_tools(self, state: Any, results: Any) -> Hook:
            return Say((user("look closer", origin="nudge"),))

    script = Script(repeat(calls(call("noop"))))

    result = await run(script, "go", tools=[noop], policies=[Nag()], limits=Limits(max_turns=40))

    assert result.outcome is Outcome.HALTED
    assert result.requests == 5


@pytest.mark.parametrize("nudges", [0, 1, 2])
async def test_s139_delivery_ranks_above_a_stall(nudges: int) -> None:
    script = Script(*["The result is 4."] * (nudges + 1))
    policies = [StallBudget(0), Delivery("submit", eager=True, nudges=nudges)]

    result = await run(script, "go", tools=[noop, submit], policies=policies)

    assert (result.outcome, result.delivered) == (Outcome.DONE, "The result is 4.")


async def test_a_stop_wins_over_a_message() -> None:
    class Speaks(Policy):
        def on_settle(self, state: Any, reply: Any) -> Hook:
            return Say((user("go on", origin="nudge"),))

    class Halts(Policy):
        def on_settle(self, state: Any, reply: Any) -> Hook:
            return Stop(Outcome.HALTED)

    result = await run(Script("x"), "go", policies=[Speaks(), Halts()])

    assert result.outcome is Outcome.HALTED
    assert texts(result) == ["go"]


async def test_an_unused_message_is_neither_counted_nor_announced() -> None:
    class First(Policy):
        def on_settle(self, state: Any, reply: Any) -> Hook:
            return None if state.requests > 1 else Say((user("first", origin="nudge"),))

    events: list[Event] = []
    script = Script("The result is 4.", calls(call("submit", {"text": "4"})))

    await run(
        script,
        "go",
        tools=[noop, submit],
        policies=[First(), Delivery("submit", eager=True)],
        on_event=events.append,
    )

    assert [event for event in events if isinstance(event, Nudge)] == []


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("The dialog asks 'do you want to save'.", False),
        ("What do you need? I can read files.", True),
        ("Shall I continue?", True),
        ("Shall I continue", False),
        ("Why does it fail? The cache is stale.", False),
        ("Which file do you mean? There are two.", True),
        ("I asked whether you would like tea. The answer was yes.", False),
        ('Should I use "a" or "b"?"', True),
        ("x" * 400 + "?", False),
    ],
)
def test_s141_a_question_to_the_user_needs_a_question_mark(text: str, asks: bool) -> None:
    assert asks_back(text) is asks


async def test_the_event_of_gates_lists_a_gate_without_an_opinion() -> None:
    events: list[Event] = []
    gates = Gates(
        Gate(name="silent", allow=lambda state: None), Gate(name="all", allow=["noop", "submit"])
    )

    await run(Script("x"), "go", tools=[noop, submit], policies=[gates], on_event=events.append)

    [applied] = [event for event in events if isinstance(event, GateApplied)]
    assert [(each.name, each.abstained, each.dropped) for each in applied.lists] == [
        ("silent", True, False),
        ("all", False, False),
    ]


async def test_the_event_of_a_changed_request_names_the_changed_messages() -> None:
    extra = user("extra")

    class Redacts(Policy):
        def before_request(self, state: Any, request: Request) -> Hook:
            first, *rest = request.messages
            changed = (glue.UserMessage(id=first.id, content=(glue.Text(text="***"),)),)
            return Change(glue.Request(messages=(*changed, *rest[1:], extra), tools=request.tools))

    events: list[Event] = []
    history = [user("secret"), user("old"), user("go")]

    await run(Script("x"), history, policies=[Redacts()], on_event=events.append)

    [changed] = [event for event in events if isinstance(event, ContextChanged)]
    assert changed.edited == (history[0].id,)
    assert changed.removed == (history[1].id,)
    assert changed.added == (extra.id,)


class AnswersOnce(Policy):
    """A policy that answers the first call of one hook, and records every call of it."""

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
async def test_s113_every_policy_is_called_and_the_highest_outcome_wins(hook: str) -> None:
    asked: list[str] = []
    policies = [
        AnswersOnce(hook, Stop(Outcome.STALLED), asked, "one"),
        AnswersOnce(hook, Stop(Outcome.HALTED), asked, "two"),
    ]

    result = await run(Script(calls("noop"), "x"), "go", tools=[noop], policies=policies)

    if hook == "before_request":  # the first stop ends the preparation of a request
        assert (result.outcome, asked) == ("stalled", ["one"])
    else:
        assert (result.outcome, asked) == ("halted", ["one", "two"])
    assert_valid(result.messages)


@pytest.mark.parametrize(
    ("hook", "turns"), [("before_request", 1), ("after_tools", 2), ("on_settle", 2)]
)
async def test_s113_a_message_of_a_policy_counts_as_a_turn_except_before_a_request(
    hook: str, turns: int
) -> None:
    asked: list[str] = []
    message = Say((user("psst", origin="nudge"),))
    provider = Script(calls("noop"), "x", "y")

    result = await run(
        provider,
        "go",
        tools=[noop],
        policies=[AnswersOnce(hook, message, asked, "one"), AnswersOnce(hook, None, asked, "two")],
    )

    assert result.turns == turns
    assert asked[0] == "one"
    assert asked.count("two") == asked.count("one")


class Redact(Policy):
    """A policy that replaces the password in each request."""

    def before_request(self, state: Any, request: Request) -> Hook:
        clean = tuple(
            replace(message, content=(Text(text=message.text.replace("hunter2", "*****")),))
            if isinstance(message, UserMessage)
            else message
            for message in request.messages
        )
        return Change(replace(request, messages=clean))


async def test_s119_a_changed_request_is_sent_and_the_transcript_stays() -> None:
    events: list[Event] = []
    provider = Script(say("a ", stop="max_tokens"), "b")

    result = await run(
        provider, "the password is hunter2", policies=[Redact()], on_event=events.append
    )

    for request in provider.requests:
        assert request.messages[0].text == "the password is *****"
    assert [message.text for message in provider.requests[1].messages[1:]] == ["a ", CONTINUE]
    assert result.messages[0].text == "the password is hunter2"
    changes = [event for event in events if isinstance(event, ContextChanged)]
    assert [event.policy for event in changes] == ["Redact", "Redact"]
    assert (changes[0].before, changes[0].after) == (6, 6)  # tokens


async def test_s119_the_event_of_a_changed_request_has_its_tokens_before_and_after() -> None:
    class Shorten(Policy):
        def before_request(self, state: Any, request: Request) -> Hook:
            return Change(replace(request, messages=[user("short")]))

    events: list[Event] = []

    await run(
        Script("x"), "a prompt of many words, " * 20, policies=[Shorten()], on_event=events.append
    )

    (change,) = [event for event in events if isinstance(event, ContextChanged)]
    assert change.before > 100 > change.after


async def test_s119_a_policy_gets_the_messages_and_may_return_a_request() -> None:
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
    # No event, because the messages are equal.
    assert not [event for event in events if isinstance(event, ContextChanged)]


async def test_s119_earlier_policies_change_a_rewritten_transcript_too() -> None:
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
    old: list[Message] = [
        user("one hunter2"),
        AssistantMessage(content=(Text(text="ok"),)),
        user("two hunter2"),
    ]

    await run(provider, old, policies=[Early(), Shorten()])

    assert [message.text for message in provider.requests[0].messages] == ["two *****"]


async def test_s120_one_policy_may_remove_tools_while_another_sends_a_message() -> None:
    class Bare(Policy):
        def before_request(self, state: Any, request: Request) -> Hook:
            return Change(replace(request, tools=()))

    provider = Script("x")

    await run(provider, "go", tools=[noop], policies=[Steering(queue("psst")), Bare()])

    assert provider.requests[0].tools == ()
    assert [message.text for message in provider.requests[0].messages] == ["go", "psst"]


async def test_s120_the_message_of_a_policy_follows_the_changed_messages() -> None:
    provider = Script("x")

    result = await run(provider, "hunter2", policies=[Redact(), Steering(queue("psst"))])

    assert [message.text for message in provider.requests[0].messages] == ["*****", "psst"]
    assert [message.text for message in result.messages] == ["hunter2", "psst", "x"]


async def test_s121_messages_of_two_sources_are_sent_with_the_next_request() -> None:
    provider = Script("x")

    result = await run(provider, "go", policies=[Steering(queue("one")), Steering(queue("two"))])

    assert [message.text for message in provider.requests[0].messages] == ["go", "one", "two"]
    assert shape(result.messages) == "u u u a"


async def test_s121_a_rewritten_transcript_keeps_the_steering_message() -> None:
    class Last(Policy):
        def before_request(self, state: Any, request: Request) -> Hook:
            return Rewrite(state.messages[-1:])

    provider = Script("x")
    old: list[Message] = [
        user("one"),
        AssistantMessage(content=(Text(text="ok"),)),
        user("two hunter2"),
    ]

    result = await run(provider, old, policies=[Steering(queue("psst")), Redact(), Last()])

    assert [message.text for message in provider.requests[0].messages] == ["two *****", "psst"]
    assert [message.text for message in result.messages] == ["two hunter2", "psst", "x"]


async def test_a_source_is_not_read_if_another_policy_stops_the_run() -> None:
    class Halt(Policy):
        def before_request(self, state: Any, request: Request) -> Hook:
            return Stop(Outcome.HALTED)

    source = queue("one")

    result = await run(Script(), "go", policies=[Steering(source), Halt()])

    assert [message.text for message in result.messages] == ["go"]
    assert source() == ["one"]


@pytest.mark.parametrize(
    "limits", [Limits(max_turns=1), Limits(max_requests=1), Limits(token_budget=1)]
)
async def test_s123_stall_and_delivery_are_decided_on_the_last_turn(limits: Limits) -> None:
    prompt = "g"  # one token by estimate, so that the budget is spent after the reply
    limits = replace(limits, token_budget=2) if limits.token_budget else limits

    stopped = await run(Script("some text"), prompt, policies=[StallBudget(0)], limits=limits)
    delivered = await run(
        Script("some text"), prompt, policies=[Delivery("deliver", eager=True)], limits=limits
    )

    assert stopped.outcome is Outcome.STALLED
    assert (delivered.outcome, delivered.delivered) == (Outcome.DONE, "some text")


async def test_s123_a_source_is_not_read_if_its_messages_cannot_be_sent() -> None:
    asked: list[str] = []
    limits = Limits(max_turns=1)

    def source() -> list[str]:
        asked.append("asked")
        return []

    await run(Script("x"), "go", policies=[FollowUp(source), Steering(source)], limits=limits)

    assert asked == ["asked"]  # only the steering, before the request


async def test_a_source_is_not_read_after_a_policy_has_cancelled_the_run() -> None:
    class Enough(Policy):
        def on_settle(self, state: Any, reply: AssistantMessage) -> Hook:
            state.cancel.cancel()
            return None

    waiting = queue("more")

    result = await run(Script("x"), "go", policies=[Enough(), FollowUp(waiting)])

    assert (result.outcome, waiting()) == (Outcome.CANCELLED, ["more"])


async def test_a_message_without_a_turn_left_is_dropped_and_the_next_policy_called() -> None:
    class Talk(Policy):
        def on_settle(self, state: Any, reply: Any) -> Hook:
            return Say((user("more", origin="nudge"),))

    result = await run(
        Script("x"), "go", policies=[Talk(), Delivery("d", eager=True)], limits=Limits(max_turns=1)
    )

    assert (result.outcome, result.delivered, shape(result.messages)) == (
        Outcome.DONE,
        "x",
        "u a t",
    )


async def test_a_hook_that_is_set_on_the_object_is_called() -> None:
    asked: list[str] = []
    policy = Policy()
    policy.on_settle = lambda state, reply: asked.append(reply.text)  # type: ignore[method-assign]

    await run(Script("fine"), "go", policies=[policy])

    assert asked == ["fine"]


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
async def test_s125_an_answer_that_a_hook_does_not_accept_is_a_type_error(
    hook: str, answer: Any
) -> None:
    class Odd(Policy):
        pass

    setattr(Odd, hook, lambda self, state, given: answer)

    with pytest.raises(TypeError, match=rf"Odd\.{hook} must return None or .*, not ") as caught:
        await run(Script(calls("noop"), "x"), "go", tools=[noop], policies=[Odd()])

    assert_valid(caught.value.result.messages)  # type: ignore[attr-defined]


@pytest.mark.parametrize("hook", ["before_request", "after_tools", "on_settle"])
async def test_s125_an_empty_say_has_no_effect(hook: str) -> None:
    policy: Any = Policy()
    setattr(policy, hook, lambda state, given: Say(()))

    result = await run(Script(calls("noop"), "x"), "go", tools=[noop], policies=[policy])

    assert (result.outcome, result.turns, shape(result.messages)) == (Outcome.DONE, 1, "u a t a")


class AnswersWith(Policy):
    """A policy whose answer before the first request is made by a function."""

    def __init__(self, make: Callable[[Request], Any]) -> None:
        self.make = make

    def before_request(self, state: Any, request: Request) -> Hook:
        answer: Hook = self.make(request)
        return answer


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda _: Change("text"), "Change takes a glue.Request, not 'text'"),  # type: ignore[arg-type]
        (
            lambda _: Rewrite("text"),  # type: ignore[arg-type]
            "AnswersWith: messages must be a list of glue messages, not 'text'",
        ),
        (lambda _: Rewrite([5]), "AnswersWith: messages must be a list of glue messages, not 5"),  # type: ignore[list-item]
        (
            lambda given: replace(given, messages="text"),
            "AnswersWith: messages must be a list of glue messages",
        ),
        (
            lambda given: replace(given, messages=None),
            "AnswersWith: messages must be a list of glue messages, not None",
        ),
        (
            lambda given: replace(given, messages=(user("a"), "b")),
            "AnswersWith: messages must be a list of glue messages, not 'b'",
        ),
        (
            # A generator could be read only once.
            lambda given: replace(given, messages=(each for each in given.messages)),
            "AnswersWith: messages must be a list of glue messages, not <generator",
        ),
        (lambda _: Say(5), "Say takes messages made by glue.user, not 5"),  # type: ignore[arg-type]
    ],
)
async def test_s125_an_answer_with_invalid_messages_is_a_type_error_that_names_the_policy(
    make: Callable[[Request], Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message) as caught:
        await run(Script(), "go", policies=[AnswersWith(make)])

    assert [message.text for message in caught.value.result.messages] == ["go"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("trigger", "reply"), [(ToolEnd, calls("noop")), (TurnEnd, "x")])
async def test_no_policy_is_called_after_a_cancel(trigger: type, reply: Any) -> None:
    asked: list[Any] = []
    cancel = Cancel()
    policy: Any = Policy()
    policy.after_tools = policy.on_settle = lambda state, given: asked.append(given)

    def listen(event: Event) -> None:
        if isinstance(event, trigger):
            cancel.cancel()

    result = await run(
        Script(reply), "go", tools=[noop], policies=[policy], on_event=listen, cancel=cancel
    )

    assert (result.outcome, asked) == ("cancelled", [])


class Hangs(Policy):
    """A policy that never answers one of the hooks."""

    def __init__(self, hook: str, act: Any) -> None:
        self.hook, self.act = hook, act

    async def _ask(self, hook: str) -> Any:
        if hook == self.hook:
            self.act()
            await anyio.sleep_forever()

    async def before_request(self, state: State, request: Request) -> Any:
        return await self._ask("before_request")

    async def on_reply(self, state: State, reply: AssistantMessage) -> Any:
        return await self._ask("on_reply")

    async def after_tools(self, state: State, results: Any) -> Any:
        return await self._ask("after_tools")

    async def on_settle(self, state: State, reply: AssistantMessage) -> Any:
        return await self._ask("on_settle")

    async def compact(self, state: State) -> Any:
        return await self._ask("compact")


HOOKS = {
    "before_request": "u",
    "on_reply": "u a t",
    "after_tools": "u a t",
    "on_settle": "u a t a",
    "compact": "u a t a",
}


@pytest.mark.parametrize("hook", HOOKS)
async def test_a_cancel_interrupts_a_hook_that_waits(hook: str) -> None:
    cancel = Cancel()
    provider = Script(
        calls("noop"),
        say("x", stop="max_tokens") if hook == "compact" else "x",
        fail("context_overflow"),
    )

    with anyio.fail_after(30):
        result = await run(
            provider, "go", tools=[noop], policies=[Hangs(hook, cancel.cancel)], cancel=cancel
        )

    assert (result.outcome, shape(result.messages)) == ("cancelled", HOOKS[hook])


@pytest.mark.parametrize("hook", [name for name in HOOKS if name != "compact"])
async def test_the_time_limit_interrupts_a_hook_that_waits(hook: str) -> None:
    with anyio.fail_after(30):
        result = await run(
            Script(calls("noop"), "x"),
            "go",
            tools=[noop],
            policies=[Hangs(hook, int)],
            limits=Limits(seconds=0.2),
        )

    assert (result.outcome, shape(result.messages)) == ("budget", HOOKS[hook])


async def test_every_nudge_is_emitted_as_an_event() -> None:
    events: list[Event] = []
    delivery = Delivery("deliver", eager=True, nudges=1, text="Hand it over.")
    announced = AutoContinue(1, "Do it.")

    await run(Script("T0", "T1"), "go", policies=[delivery], tools=[noop], on_event=events.append)
    await run(
        Script("I will now do it.", "x"),
        "go",
        policies=[announced],
        tools=[noop],
        on_event=events.append,
    )

    nudges = [(event.policy, event.text) for event in events if isinstance(event, Nudge)]
    assert nudges == [("delivery", "Hand it over."), ("auto_continue", "Do it.")]


async def test_messages_of_a_policy_stay_in_the_transcript_if_the_journal_fails() -> None:
    class Two(Policy):
        def before_request(self, state: State, request: Request) -> Hook:
            return Say((user("one", origin="steering"), user("two", origin="steering")))

    journal = RecordingJournal(failing=0)  # every write fails

    with pytest.raises(OSError, match="No space left") as caught:
        await run(Script("never"), "go", policies=[Two()], journal=journal)

    result = caught.value.result  # type: ignore[attr-defined]
    assert [message.text for message in result.messages] == ["go", "one", "two"]
    assert [message.text for message in result.new_messages] == ["go", "one", "two"]


async def test_a_policy_that_returns_the_same_request_changes_nothing() -> None:
    events: list[Event] = []
    asked: list[str] = []

    class Same(Policy):
        def before_request(self, state: State, request: Request) -> Hook:
            asked.append("same")
            return Change(replace(request, temperature=0.5))

    class Shorten(Policy):
        def before_request(self, state: State, request: Request) -> Hook:
            asked.append("shorten")
            return Rewrite(list(request.messages)) if len(asked) == 2 else None

    await run(Script("x"), "go", policies=[Same(), Shorten()], on_event=events.append)

    assert not [event for event in events if isinstance(event, ContextChanged)]
    assert asked == ["same", "shorten"]  # a policy that changed no message is not asked again
