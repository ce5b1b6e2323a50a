"""Where two edges of the loop meet: a killed run that is resumed, junk inside an answer, a listener that quits."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from glue import (
    Agent,
    AssistantMessage,
    Attempt,
    Cancel,
    Done,
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
    ToolCall,
    ToolMessage,
    ToolResult,
    Usage,
    run,
    tool,
    user,
    with_retries,
)
from glue.errors import BudgetExceeded, ContextOverflow, GuardHalted, InvalidContinuation
from glue.events import Event, MessageEnd, Nudge, RunEnd
from glue.loop.transcript import CONTINUE
from glue.policies import (
    AutoContinue,
    Change,
    Delivery,
    FollowUp,
    Gate,
    Gates,
    Hook,
    RefusalDetector,
    Rewrite,
    StallBudget,
    Steering,
)
from glue.testing import Script, call, calls, fail, say, shape


@tool
async def noop() -> str:
    """Do nothing."""
    return "ok"


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages]


async def kept(store: MemoryStore, *messages: Message) -> None:
    """Write what a killed process has left."""
    async with store.log("s") as log:
        await log.extend(messages)


HALF = AssistantMessage(content=(Text(text="part one "),), stop_reason=StopReason.MAX_TOKENS)
ASKED = user(CONTINUE, origin="continue")


# Killed, and resumed ------------------------------------------------------------------------------


async def test_s127_a_chain_that_was_killed_is_one_answer_when_it_is_resumed() -> None:
    store, script = MemoryStore(), Script("part two")
    await kept(store, user("go"), HALF, ASKED)

    result = await Agent(script).session("s", store=store).resume()

    assert result.text == "part one part two"
    assert texts(script.requests[0].messages) == ["go", "part one ", CONTINUE]
    assert await store.load("s") == result.messages


async def test_s127_a_resumed_chain_that_was_killed_is_not_asked_twice() -> None:
    store, script = MemoryStore(), Script(say(HALF.text, stop="max_tokens"), fail("auth"), "part two")
    session = Agent(script).session("s", store=store)
    assert (await session.prompt("go", unwrap=False)).outcome is Outcome.FAILED
    await kept(store, ASKED)  # a resumed run got as far as this

    result = await session.resume()

    assert texts(script.requests[-1].messages) == ["go", "part one ", CONTINUE]
    assert result.text == "part one part two"


@pytest.mark.parametrize("origin", ["continue", "repair", "nudge", "wrap_up"])
async def test_a_prompt_of_ours_that_a_killed_run_left_is_dropped_before_a_new_one(origin: str) -> None:
    store, script = MemoryStore(), Script("fine")
    await kept(store, user("go"), HALF, user("said by the loop", origin=origin))

    result = await Agent(script).session("s", store=store).prompt("something new")

    assert texts(script.requests[0].messages) == ["go", "part one ", "something new"]
    assert texts(result.new_messages) == ["something new", "fine"]
    assert await store.load("s") == result.messages


async def test_what_a_person_said_to_a_killed_run_is_not_dropped() -> None:
    store, script = MemoryStore(), Script("fine")
    await kept(store, user("go"), HALF, user("hurry", origin="steering"))

    await Agent(script).session("s", store=store).prompt("something new")

    assert texts(script.requests[0].messages) == ["go", "part one ", "hurry", "something new"]


async def test_a_pause_that_was_cut_is_carried_on_and_nobody_speaks_between() -> None:
    script = Script(say("one ", stop="pause_turn"), "two", "three")
    session = Agent(script).session("s")
    cut = await session.prompt("go", limits=Limits(max_turns=1), unwrap=False)
    assert cut.outcome is Outcome.MAX_TURNS
    session.steer("hurry")

    result = await session.resume(limits=Limits(max_turns=3))

    assert [event.text for event in script.requests[1].messages] == ["go", "one "]
    assert texts(result.messages) == ["go", "one ", "two", "hurry", "three"]
    assert result.text == "three"
    assert (await Agent(Script("two")).resume(cut)).text == "one two"


async def test_s128_an_earlier_prompt_that_failed_is_no_part_of_the_next_run() -> None:
    failed = await run(Script(fail("auth")), "one")

    second = await run(Script(say("no", stop="refusal")), [*failed.messages, user("two")])
    assert texts(second.new_messages) == ["two", "no"]
    assert [message.excluded for message in second.messages] == [False, True, True]

    third = await run(Script("fine"), [*second.messages[:2], user("three"), user("and four")])
    assert texts(third.new_messages) == ["three", "and four", "fine"]  # nor is one that is left out


async def test_s128_what_was_steered_as_a_message_is_no_prompt() -> None:
    session = Agent(Script(lambda _: hurry(), fail("auth"), say("no", stop="refusal")), tools=[noop]).session("s")

    def hurry() -> Any:
        session.steer(user("hurry"))
        session.steer(user("as it is", origin="host"))
        return calls("noop")

    await session.prompt("go", unwrap=False)
    result = await session.resume()

    assert texts(result.messages) == ["go", "", "ok", "hurry", "as it is", "no"]
    assert all(message.excluded for message in result.messages)  # the run begins with its prompt
    assert result.messages[4].origin == "host"  # type: ignore[union-attr]


# Policies -----------------------------------------------------------------------------------------


class Answers(Policy):
    """Answers what it was told to, before the first request."""

    def __init__(self, make: Callable[[Request], Any]) -> None:
        self.make = make

    def before_request(self, state: Any, request: Request) -> Hook:
        answer: Hook = self.make(request)
        return answer


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda _: Change("junk"), "Change takes a glue.Request, not 'junk'"),  # type: ignore[arg-type]
        (lambda _: Rewrite("junk"), "Answers: messages must be a list of glue messages, not 'junk'"),  # type: ignore[arg-type]
        (lambda _: Rewrite([5]), "Answers: messages must be a list of glue messages, not 5"),  # type: ignore[list-item]
        (lambda given: replace(given, messages="junk"), "Answers: messages must be a list of glue messages"),
        (lambda given: replace(given, messages=None), "Answers: messages must be a list of glue messages, not None"),
        (
            lambda given: replace(given, messages=(user("a"), "b")),
            "Answers: messages must be a list of glue messages, not 'b'",
        ),
        (
            lambda given: replace(given, messages=(each for each in given.messages)),  # could be read only once
            "Answers: messages must be a list of glue messages, not <generator",
        ),
        (lambda _: Say(5), "Say takes messages made by glue.user, not 5"),  # type: ignore[arg-type]
    ],
)
async def test_s125_junk_inside_an_answer_is_named(make: Callable[[Request], Any], message: str) -> None:
    with pytest.raises(TypeError, match=message) as caught:
        await run(Script(), "go", policies=[Answers(make)])

    assert texts(caught.value.result.messages) == ["go"]  # type: ignore[attr-defined]


def test_s125_what_is_said_may_be_one_message_or_any_number() -> None:
    one, other = user("a"), user("b")

    assert Say(one).messages == (one,)  # type: ignore[arg-type]
    assert Say(each for each in (one, other)).messages == (one, other)  # type: ignore[arg-type]


async def test_the_state_of_a_policy_with_slots_is_never_shared_between_runs() -> None:
    counted: list[int] = []

    @dataclass(slots=True)
    class Slotted(Policy):
        seen: list[str] = field(default_factory=list)

        def before_request(self, state: Any, request: Request) -> Hook:
            self.seen.append("request")
            counted.append(len(self.seen))
            return None

    agent = Agent(Script("a", "b"), policies=[Slotted()])
    await agent.run("one")
    await agent.run("two")

    assert counted == [1, 1]


async def test_an_object_that_a_policy_made_is_its_runs_own_and_one_that_it_was_given_is_shared() -> None:
    @dataclass
    class Count:
        seen: int = 0

    class Counting(Policy):
        def __init__(self, total: Count) -> None:
            self.total, self.own, self.lock = total, Count(), threading.Lock()
            self.both = [self.total, self.own]
            self.count = self.own_count

        def own_count(self) -> None:
            self.own.seen += 1

        def before_request(self, state: Any, request: Request) -> Hook:
            self.count()
            self.total.seen += 1
            counted.append((self.own.seen, self.total.seen, self.both[0] is self.total and self.both[1] is self.own))
            return None

    counted: list[tuple[int, int, bool]] = []
    agent = Agent(Script("a", "b"), policies=[Counting(Count())])
    await agent.run("one")
    await agent.run("two")

    assert counted == [(1, 1, True), (1, 2, True)]


@pytest.mark.parametrize("attempts", [0, 3])
async def test_s131_a_cut_reply_that_overshoots_the_budget_in_dollars_ends_the_run_as_that(attempts: int) -> None:
    script = Script(say("half", stop="max_tokens", usage=Usage(output=9, cost=2.0)))

    result = await run(script, "go", limits=Limits(usd_budget=1.0, continuation_max_attempts=attempts))

    assert (result.outcome, result.stop_reason, result.text) == (Outcome.BUDGET, StopReason.TOKEN_BUDGET, "half")
    assert isinstance(result.error, BudgetExceeded)
    assert shape(result.messages) == "u a"
    assert result.notice == ""


async def test_s063_a_compactor_whose_model_fails_does_not_shrink() -> None:
    class Fails:
        async def compact(self, messages: Sequence[Message], state: Any) -> Sequence[Message] | None:
            raise fail("overloaded")

    result = await Agent(Script(fail("context_overflow")), compaction=Fails()).run("go", unwrap=False)

    assert result.outcome is Outcome.CONTEXT_WINDOW
    assert isinstance(result.error, ContextOverflow)
    with pytest.raises(InvalidContinuation):
        await Agent(Script()).resume(result)


# Junk and quitters --------------------------------------------------------------------------------


class Gives:
    """A provider that plays events, the last of which may be an error."""

    name = "gives"

    def __init__(self, *events: Any) -> None:
        self.events = events

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        for event in self.events:
            if isinstance(event, Exception):
                raise event
            yield event


@pytest.mark.parametrize("content", ["text", None, 5, ("text",), (Text(text="a"), None), (Text(text=None),)])  # type: ignore[arg-type]
async def test_s132_the_content_of_a_reply_that_is_no_parts_is_named(content: Any) -> None:
    with pytest.raises(TypeError, match="the content of a reply of gives must be parts") as caught:
        await run(Gives(Done(message=AssistantMessage(content=content))), "go")

    assert texts(caught.value.result.messages) == ["go"]  # type: ignore[attr-defined]


async def test_s132_the_parts_of_a_reply_may_be_a_list() -> None:
    parts: Any = [Text(text="fine")]
    result = await run(Gives(Done(message=AssistantMessage(content=parts))), "go")

    assert result.messages[-1].content == (Text(text="fine"),)
    assert ToolResult(content=parts).content == (Text(text="fine"),)


@pytest.mark.parametrize("given", [{"id": None, "name": "a"}, {"id": "1", "name": None}])
def test_s132_a_call_has_an_id_and_a_name(given: Any) -> None:
    with pytest.raises(TypeError, match="the id and the name of a ToolCall are texts, not"):
        ToolCall(**given, arguments="{}")


async def test_s132_a_delta_without_a_text_does_not_hide_what_went_wrong() -> None:
    events: list[Event] = []
    junk: Any = None

    with pytest.raises(ZeroDivisionError) as caught:
        provider = Gives(TextDelta(text="half"), TextDelta(text=junk), ZeroDivisionError())
        await run(provider, "go", on_event=events.append)

    assert caught.value.result.text == "half"  # type: ignore[attr-defined]
    assert [event.message.text for event in events if isinstance(event, MessageEnd)] == ["go", "half"]


KINDS = "RunStart MessageStart TurnStart RequestStart TextDelta MessageEnd ToolStart ToolEnd TurnEnd RunEnd".split()


@pytest.mark.parametrize("always", [False, True])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_listener_that_quits_ends_the_run_well(kind: str, always: bool) -> None:
    heard: list[Event] = []

    def listen(event: Event) -> None:
        again = kind in [type(each).__name__ for each in heard]
        heard.append(event)
        if type(event).__name__ == kind and (always or not again):
            raise SystemExit(len(heard))

    with pytest.raises(SystemExit) as caught:
        await run(Script(calls("noop", "noop"), "x"), "go", tools=[noop], on_event=listen)

    result = caught.value.result  # type: ignore[attr-defined]
    first = next(at for at, event in enumerate(heard, 1) if type(event).__name__ == kind)
    assert caught.value.code == first  # the first error wins
    assert [type(event) for event in heard].count(RunEnd) == 1
    answered = [message.call_id for message in result.messages if hasattr(message, "call_id")]
    asked = [part.id for message in result.messages if isinstance(message, AssistantMessage) for part in message.calls]
    assert answered == asked


class Ends(Policy):
    """Calls the run done at a hook, the given time that it is asked."""

    def __init__(self, hook: str, time: int) -> None:
        self.time = time
        setattr(self, hook, self._answer)

    def start(self) -> Ends:
        return self

    def _answer(self, state: Any, given: Any) -> Hook:
        self.time -= 1
        return Stop(Outcome.DONE) if self.time == 0 else None


@pytest.mark.parametrize(
    ("hook", "time"),
    [("on_reply", 1), ("before_request", 2), ("on_reply", 2), ("before_request", 3), ("after_tools", 1)],
)
async def test_a_run_that_a_policy_calls_done_cannot_be_resumed(hook: str, time: int) -> None:
    script = Script(say("half", stop="max_tokens"), calls("noop"), "never")
    result = await run(script, "go", tools=[noop], policies=[Ends(hook, time)])
    assert result.outcome is Outcome.DONE

    with pytest.raises(InvalidContinuation, match="the model has answered"):
        await Agent(Script()).resume(result)
    with pytest.raises(InvalidContinuation):
        await Agent(Script(), policies=[Ends("before_request", 1)]).resume(result)


async def test_a_resumed_run_that_a_policy_calls_done_cannot_be_resumed_again() -> None:
    cut = await run(Script(calls("noop")), "go", tools=[noop], limits=Limits(max_turns=1))

    result = await Agent(Script(), policies=[Ends("before_request", 1)]).resume(cut)

    assert (result.outcome, result.new_messages) == (Outcome.DONE, ())
    with pytest.raises(InvalidContinuation, match="the model has answered"):
        await Agent(Script()).resume(result)


@pytest.mark.parametrize(("waiting", "said"), [("hurry", ["hurry"]), (user("hurry"), ["hurry"]), (None, []), ((), [])])
async def test_a_source_may_give_one_message_or_none(waiting: Any, said: list[str]) -> None:
    given = [waiting]
    source = Steering(lambda: given.pop() if given else None)

    result = await run(Script("x"), "go", policies=[source])

    assert texts(result.messages) == ["go", *said, "x"]


@pytest.mark.parametrize("junk", ["text", [5], 5])
async def test_junk_of_a_compactor_is_named(junk: Any) -> None:
    class Junk:
        async def compact(self, messages: Sequence[Message], state: Any) -> Any:
            return junk

    with pytest.raises(TypeError, match="what Junk keeps must be a list of glue messages, not") as caught:
        await Agent(Script(fail("context_overflow")), compaction=Junk()).run("go")
    assert texts(caught.value.result.messages) == ["go"]  # type: ignore[attr-defined]


async def test_s109_the_same_arguments_are_the_same_however_they_are_spelled() -> None:
    @tool
    async def look(at: int = 0, deep: bool = False) -> str:
        """Look."""
        return "ok"

    spelled = ['{"at": 1, "deep": true}', '{"deep":true,"at":1}', '{ "at":1,"deep" : true}']
    script = [calls(call("look", spelled[number % 3])) for number in range(5)]
    result = await run(Script(*script), "go", tools=[look])
    assert isinstance(result.error, GuardHalted)
    assert (result.error.kind, result.error.count) == ("repeat", 5)

    bad = ["{", '{"', "", "{}", "{ }"]  # half JSON is itself, and no arguments are none
    result = await run(Script(*(calls(call("look", each)) for each in bad), "x"), "go", tools=[look])
    assert result.outcome is Outcome.DONE


async def test_calls_of_one_id_are_numbered() -> None:
    ids = ["a", "a", "a_2", "a"]
    parts = tuple(ToolCall(id=each, name="noop", arguments="{}") for each in ids)
    reply = AssistantMessage(content=parts, stop_reason=StopReason.TOOL_USE)

    result = await run(Gives(Done(message=reply)), "go", tools=[noop], limits=Limits(max_turns=1))

    named = [each.call_id for each in result.messages if isinstance(each, ToolMessage)]
    assert named == ["a", "a_2", "a_2_2", "a_3"]
    assert named == [part.id for part in result.messages[1].calls]  # type: ignore[union-attr]


@pytest.mark.parametrize(("tools", "there"), [([noop], r"\('noop'\)"), ([], r"\(none was given\)")])
async def test_a_choice_of_a_tool_that_is_not_there_names_those_that_are(tools: Any, there: str) -> None:
    with pytest.raises(ValueError, match=f"'none' or a tool {there}, not 'read'"):
        await run(Script(), "go", tools=tools, limits=Limits(tool_choice="read"))


async def test_s100_a_refused_run_is_left_out_from_the_first_message_of_its_prompt_on() -> None:
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


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Gate(name="g", allow="noop"), "gate 'g' must allow a list of tools' names, not 'noop'"),
        (lambda: Gate(name="g", allow=5), "gate 'g' must allow a list of tools' names, not 5"),  # type: ignore[arg-type]
        (lambda: Gates([Gate(name="g", allow=["noop"])]), "Gates takes glue.policies.Gate objects, not "),  # type: ignore[arg-type]
        (lambda: Delivery("deliver", terminal="info"), "terminal must be a list of tools' names, not 'info'"),
        (lambda: Steering("hurry"), "Steering takes a function that gives what is waiting, not 'hurry'"),  # type: ignore[arg-type]
        (lambda: FollowUp(["more"]), "FollowUp takes a function that gives what is waiting, not "),  # type: ignore[arg-type]
    ],
)
def test_a_policy_that_is_made_of_junk_says_so(make: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make()


async def test_a_gate_whose_function_gives_a_text_is_named() -> None:
    with pytest.raises(TypeError, match="gate 'g' must allow a list of tools' names, not 'noop'"):
        await run(Script(), "go", tools=[noop], policies=[Gates(Gate(name="g", allow=lambda state: "noop"))])


async def test_every_nudge_is_told() -> None:
    events: list[Event] = []
    delivery, announced = Delivery("deliver", eager=True, nudges=1, text="Hand it over."), AutoContinue(1, "Do it.")

    await run(Script("T0", "T1"), "go", policies=[delivery], tools=[noop], on_event=events.append)
    await run(Script("I will now do it.", "x"), "go", policies=[announced], tools=[noop], on_event=events.append)

    told = [(event.policy, event.text) for event in events if isinstance(event, Nudge)]
    assert told == [("delivery", "Hand it over."), ("auto_continue", "Do it.")]


async def test_a_refusal_ranks_above_the_budget_that_it_has_spent() -> None:
    script = Script(say("I can't help with that.", usage=Usage(output=9, cost=2.0)))

    result = await run(script, "go", policies=[RefusalDetector()], limits=Limits(usd_budget=1.0))

    assert (result.outcome, result.error) == (Outcome.REFUSED, None)


@pytest.mark.parametrize(("cancels", "told"), [(False, "not run: the run ended (halted)"), (True, "cancelled")])
async def test_a_call_that_a_policy_kept_from_running_says_why(cancels: bool, told: str) -> None:
    token = Cancel()

    class Halts(Policy):
        def on_reply(self, state: Any, reply: AssistantMessage) -> Hook:
            if cancels:
                token.cancel()
            return Stop(Outcome.HALTED)

    result = await run(Script(calls("noop", "noop")), "go", tools=[noop], policies=[Halts()], cancel=token)

    assert texts(result.messages[2:]) == [told, told]


async def test_s072_a_try_that_failed_is_told_though_no_request_is_left_for_the_next() -> None:
    events: list[Event] = []
    provider = with_retries(Script(fail("empty"), "never"))

    result = await run(provider, "go", limits=Limits(max_requests=1), on_event=events.append)

    assert result.outcome is Outcome.MAX_TURNS
    assert [event for event in events if isinstance(event, Attempt)] == list(result.attempts)
    assert [attempt.kind for attempt in result.attempts] == ["empty"]


@pytest.mark.parametrize("stop", ["refusal", "error", "cancelled", "context_window"])
async def test_a_reply_of_calls_alone_that_ends_the_run_is_not_stored_empty(stop: str) -> None:
    result = await run(Script(calls("noop", stop=stop)), "go", tools=[noop])

    assert shape(result.messages) == "u"
    assert not result.complete


async def test_a_prompt_of_ours_that_could_not_be_taken_back_is_not_sent_with_the_next_one() -> None:
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


@pytest.mark.parametrize("budget", ["1", -1, True, 1.0, None])
def test_a_stall_budget_is_a_whole_number(budget: Any) -> None:
    with pytest.raises(ValueError, match="budget must be a whole number of 0 or more, not"):
        StallBudget(budget)


async def test_an_answer_of_thinking_alone_is_not_delivered() -> None:
    result = await run(Script("<think>hm</think>"), "go", tools=[noop], policies=[Delivery("noop")])

    assert (result.outcome, result.delivered) == (Outcome.DONE, None)


async def test_what_a_policy_says_is_no_prompt_of_the_callers_however_it_is_made() -> None:
    class Again(Policy):
        def after_tools(self, state: Any, results: Any) -> Hook:
            return Say((user("look closer"),))

    script = Script(calls("noop"), say("no", stop="refusal"))
    cut = await run(script, "go", tools=[noop], policies=[Again()], limits=Limits(max_turns=2))
    script = Script(calls("noop"), say("no", stop="refusal"))
    refused = await run(script, "go", tools=[noop], policies=[Again()])

    assert shape(cut.messages) == "u a t"  # not answered, and taken back
    assert shape(refused.messages) == "u a t u+ a"
    assert all(message.excluded for message in refused.messages)


async def test_what_stands_in_a_list_that_a_policy_was_given_is_shared_too() -> None:
    class Switch:
        on = False

        def is_on(self) -> bool:
            return self.on

    class Watching(Policy):
        def __init__(self, switches: list[Switch]) -> None:
            self.switches, self.asks = tuple(switches), [switch.is_on for switch in switches]

        def on_settle(self, state: Any, reply: Any) -> Hook:
            given[0].on = True  # while the run goes
            seen.append((self.switches[0].on, self.asks[0]()))
            return None

    given, seen = [Switch()], list[tuple[bool, bool]]()
    await run(Script("a"), "go", policies=[Watching(given)])

    assert seen == [(True, True)]
