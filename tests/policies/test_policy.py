"""The base class of policies: copies for each run, and the values that hooks return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import anyio
import pytest

from glue import Agent, Context, Limits, Outcome, RunResult, run, tool, user
from glue.messages import Request
from glue.policies import (
    AutoContinue,
    Delivery,
    FollowUp,
    Gate,
    Gates,
    Hook,
    Policy,
    RefusalDetector,
    Say,
    StallBudget,
    Steering,
    Stop,
    nudge,
    start_policies,
)
from glue.testing import Script, calls

RUNS = 5


class Ask(Policy):
    """Ask the model again twice in each run, and collect its texts."""

    def __init__(self) -> None:
        self.asked = 0
        self.texts: list[str] = []

    def start(self) -> Self:
        policy = super().start()
        policy.texts = []
        return policy

    def on_settle(self, state: Any, reply: Any) -> Hook:
        self.texts.append(reply.text)
        if self.asked == 2:
            return Stop(Outcome.DONE, meta={"texts": list(self.texts)})
        self.asked += 1
        return nudge("again")


async def run_together(
    policy: Policy, replies: tuple[Any, ...], limits: Limits | None = None
) -> list[RunResult[Any]]:
    """Run one agent several times at once; every run gets the same replies from its own script."""
    results: list[RunResult[Any]] = []
    started = 0
    all_there = anyio.Event()

    @tool
    async def meet(context: Context[Any]) -> str:
        """Wait until every run has called this tool."""
        nonlocal started
        started += 1
        if started >= RUNS:
            all_there.set()
        await all_there.wait()
        return "met"

    agent = Agent(Script("unused"), tools=[meet], policies=[policy])

    async def one() -> None:
        script = Script(calls("meet"), *replies)
        results.append(await agent.run("go", model=script, limits=limits, unwrap=False))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            for _ in range(RUNS):
                tasks.start_soon(one)
    return results


async def test_counters_and_lists_of_a_policy_are_not_shared_between_runs_at_the_same_time() -> (
    None
):
    policy = Ask()

    results = await run_together(policy, ("a", "b", "c"))

    assert [result.meta for result in results] == [{"texts": ["a", "b", "c"]}] * RUNS
    assert (policy.asked, policy.texts) == (0, [])


@pytest.mark.parametrize(
    ("make", "replies", "outcome", "text", "requests"),
    [
        (lambda: AutoContinue(2), ("I will now read.",) * 2 + ("Done.",), "done", "Done.", 4),
        (lambda: Delivery("submit", eager=True), ("It is 42.",) * 3, "done", "It is 42.", 4),
        (lambda: StallBudget(0), ("Hm.",), "stalled", "Hm.", 2),
        (lambda: RefusalDetector(), ("I can't help with that.",), "refused", None, 2),
        (lambda: Gates(Gate(name="g", allow=["meet"])), ("Done.",), "done", "Done.", 2),
    ],
    ids=["auto_continue", "delivery", "stall", "refusal", "gates"],
)
async def test_ready_made_policies_count_for_each_run_if_one_agent_runs_many_times_at_once(
    make: Callable[[], Policy],
    replies: tuple[str, ...],
    outcome: str,
    text: str | None,
    requests: int,
) -> None:
    results = await run_together(make(), replies)

    assert [result.outcome for result in results] == [Outcome(outcome)] * RUNS
    assert [result.requests for result in results] == [requests] * RUNS
    if text is not None:
        assert [result.text for result in results] == [text] * RUNS


async def test_guards_count_for_each_run_if_one_agent_runs_many_times_at_once() -> None:
    limits = Limits(repeat_nudge=2, repeat_halt=3)

    results = await run_together(Policy(), (calls("meet"),) * 2, limits)

    assert [result.outcome for result in results] == [Outcome.HALTED] * RUNS


@pytest.mark.parametrize("kind", [Steering, FollowUp])
async def test_policies_with_a_source_share_it_between_runs(
    kind: Callable[[Callable[[], list[str]]], Policy],
) -> None:
    waiting = ["one", "two"]
    policy = kind(lambda: [waiting.pop(0)] if waiting else [])
    agent = Agent(Script("a", "b", "c", "d"), policies=[policy])

    first = await agent.run("go")
    second = await agent.run("go")

    said = [message.text for result in (first, second) for message in result.new_messages]
    assert [text for text in said if text in ("one", "two")] == ["one", "two"]


async def test_a_policy_with_slots_is_copied_too() -> None:
    counted: list[int] = []

    @dataclass(slots=True)
    class Slotted(Policy):
        seen: int = 0
        names: list[str] = field(default_factory=list)

        def before_request(self, state: Any, request: Request) -> Hook:
            self.seen += 1
            counted.append(self.seen)
            return None

    agent = Agent(Script("a", "b"), policies=[Slotted()])

    await agent.run("one")
    await agent.run("two")

    assert counted == [1, 1]


async def test_the_copy_for_a_run_is_shallow() -> None:
    class Log(Policy):
        def __init__(self) -> None:
            self.requests: list[int] = []

        def before_request(self, state: Any, request: Request) -> Hook:
            self.requests.append(len(request.messages))
            return None

    policy = Log()

    for _ in range(2):
        await run(Script("x"), "go", policies=[policy])

    assert policy.requests == [1, 1]


async def test_a_policy_that_returns_itself_from_start_serves_all_runs() -> None:
    class Shared(Policy):
        count = 0

        def start(self) -> Self:
            return self

        def before_request(self, state: Any, request: Request) -> Hook:
            self.count += 1
            return None

    policy = Shared()

    for _ in range(2):
        await run(Script("x"), "go", policies=[policy])

    assert policy.count == 2


def test_a_policy_without_init_takes_no_arguments() -> None:
    with pytest.raises(TypeError, match="takes no arguments"):
        Policy("x")  # type: ignore[call-arg]


def test_nudge_returns_one_message_of_the_loop() -> None:
    said = nudge("Are you sure?")

    assert isinstance(said, Say)
    assert [(message.text, message.origin) for message in said.messages] == [
        ("Are you sure?", "nudge")
    ]


def test_start_policies_sorts_by_place_and_keeps_the_order_within_a_place() -> None:
    first, second = Ask(), AutoContinue()

    started = start_policies([second, first, StallBudget(1)])

    assert [type(policy).__name__ for policy in started] == [
        "Budgets",
        "Grace",
        "StallBudget",
        "Ask",
        "AutoContinue",
        "Guards",
    ]


def test_a_policy_class_instead_of_an_object_is_rejected_with_a_hint() -> None:
    with pytest.raises(TypeError, match=r"make one: Ask\(\)"):
        start_policies([Ask])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"Policy objects, not 3$"):
        start_policies([3])  # type: ignore[list-item]


def test_a_place_that_is_not_in_the_order_is_rejected() -> None:
    class Lost(Policy):
        place = "nowhere"

    with pytest.raises(ValueError, match=r"must be one of refusal, .*guards, not 'nowhere'"):
        start_policies([Lost()])


def test_s125_an_outcome_given_as_text_becomes_the_enum() -> None:
    assert Stop("budget").outcome is Outcome.BUDGET  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'tired' is not a valid Outcome"):
        Stop("tired")  # type: ignore[arg-type]


def test_s125_say_rejects_objects_that_are_not_messages() -> None:
    assert [message.text for message in Say(user("x")).messages] == ["x"]  # type: ignore[arg-type]
    for wrong in ("x", ("x",), [1]):
        with pytest.raises(TypeError, match="Say takes messages"):
            Say(wrong)  # type: ignore[arg-type]


def test_s125_say_takes_one_message_or_several() -> None:
    one, other = user("a"), user("b")

    assert Say(one).messages == (one,)  # type: ignore[arg-type]
    assert Say(each for each in (one, other)).messages == (one, other)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Gate(name="g", allow="noop"),
            "gate 'g' must allow a list of tools' names, not 'noop'",
        ),
        (lambda: Gate(name="g", allow=5), "gate 'g' must allow a list of tools' names, not 5"),  # type: ignore[arg-type]
        (
            lambda: Gates([Gate(name="g", allow=["noop"])]),  # type: ignore[arg-type]
            "Gates takes glue.policies.Gate objects, not ",
        ),
        (
            lambda: Delivery("deliver", terminal="info"),
            "terminal must be a list of tools' names, not 'info'",
        ),
        (
            lambda: Steering("hurry"),  # type: ignore[arg-type]
            "Steering takes a function that returns the waiting messages, not 'hurry'",
        ),
        (
            lambda: FollowUp(["more"]),  # type: ignore[arg-type]
            "FollowUp takes a function that returns the waiting messages, not ",
        ),
    ],
)
def test_a_policy_made_with_a_wrong_argument_is_a_type_error(
    make: Callable[[], object], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        make()


async def test_objects_in_a_list_that_a_policy_was_given_are_shared_between_runs() -> None:
    class Switch:
        on = False

        def is_on(self) -> bool:
            return self.on

    class Watching(Policy):
        def __init__(self, switches: list[Switch]) -> None:
            self.switches, self.asks = tuple(switches), [switch.is_on for switch in switches]

        def on_settle(self, state: Any, reply: Any) -> Hook:
            given[0].on = True  # during the run
            seen.append((self.switches[0].on, self.asks[0]()))
            return None

    given, seen = [Switch()], list[tuple[bool, bool]]()

    await run(Script("a"), "go", policies=[Watching(given)])

    assert seen == [(True, True)]
