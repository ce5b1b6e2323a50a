"""Gates: allow lists, priorities, required gates and conflicts."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
from fakes.loop import KeepLast, noop, term

from glue import Limits, run, tool
from glue.events import Event, GateApplied, GateConflict
from glue.messages import ToolMessage, user
from glue.policies import Gate, Gates
from glue.policies.gates import join
from glue.testing import Script, calls, fail, say


@tool
async def read() -> str:
    """Read."""
    return "ok"


@tool
async def write() -> str:
    """Write."""
    return "ok"


async def offered(*gates: Gate, choice: str = "auto") -> tuple[list[str], str, list[Event]]:
    """Return the tools and the tool choice of a request, and the events of its run."""
    events: list[Event] = []
    script = Script("x")
    await run(
        script,
        "go",
        tools=[read, write],
        limits=Limits(tool_choice=choice),
        policies=[Gates(*gates)],
        on_event=events.append,
    )
    (request,) = script.requests
    return [spec.name for spec in request.tools], request.tool_choice, events


async def test_a_request_offers_only_the_tools_that_all_gates_allow() -> None:
    tools, _, events = await offered(
        Gate(name="a", allow=["read", "write"]), Gate(name="b", allow=["read", "other"])
    )

    assert tools == ["read"]
    (applied,) = (event for event in events if isinstance(event, GateApplied))
    assert (applied.gates, applied.allowed) == (("a", "b"), ("read",))


async def test_a_gate_whose_function_returns_none_does_not_apply() -> None:
    tools, _, events = await offered(Gate(name="a", allow=lambda state: None))

    assert tools == ["read", "write"]
    assert not any(isinstance(event, GateApplied) for event in events)


async def test_the_function_of_a_gate_gets_the_state_of_the_run() -> None:
    seen: list[int] = []

    def allow(state: Any) -> list[str]:
        seen.append(state.turns)
        return ["write"]

    tools, _, _ = await offered(Gate(name="a", allow=allow))

    assert (tools, seen) == (["write"], [0])


async def test_the_gate_with_the_highest_priority_wins_a_conflict() -> None:
    tools, _, events = await offered(
        Gate(name="low", allow=["read"], priority=1), Gate(name="high", allow=["write"], priority=2)
    )

    assert tools == ["write"]
    assert [event.winner for event in events if isinstance(event, GateConflict)] == ["high"]


async def test_a_required_gate_overrules_gates_of_lower_priority_that_are_not_required() -> None:
    tools, _, events = await offered(
        Gate(name="must", allow=["write"], priority=2, required=True),
        Gate(name="may", allow=["read"], priority=1, reason="quiet"),
    )

    assert tools == ["write"]
    assert not any(isinstance(event, GateConflict) for event in events)
    (applied,) = (event for event in events if isinstance(event, GateApplied))
    assert [(each.name, each.dropped, each.reason) for each in applied.lists] == [
        ("must", False, ""),
        ("may", True, "quiet"),
    ]


async def test_a_required_gate_that_removes_no_tool_overrules_none() -> None:
    tools, _, _ = await offered(
        Gate(name="must", allow=["read", "write"], priority=2, required=True),
        Gate(name="may", allow=["read"], priority=1),
    )

    assert tools == ["read"]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [("write", "auto"), ("read", "read"), ("required", "required"), ("none", "none")],
)
async def test_a_tool_choice_that_a_gate_makes_impossible_becomes_auto(
    choice: str, expected: str
) -> None:
    _, sent, _ = await offered(Gate(name="a", allow=["read"]), choice=choice)

    assert sent == expected


async def test_a_required_tool_becomes_auto_if_no_tool_is_left() -> None:
    tools, sent, _ = await offered(Gate(name="a", allow=[]), choice="required")

    assert (tools, sent) == ([], "auto")


@pytest.mark.parametrize(
    ("votes", "winner"),
    [
        ([("b", 1, {"x"}), ("a", 2, {"y"})], "a"),
        ([("b", 1, {"x"}), ("a", 1, {"y", "z"})], "b"),
        ([("b", 1, {"x"}), ("a", 1, {"y"})], "a"),
        ([("b", 1, {"x"}), ("a", 1, {"x", "y"})], ""),
        ([("b", 1, set()), ("a", 1, set())], ""),
    ],
    ids=["priority", "shorter list", "first name", "no conflict", "no tool at all"],
)
def test_conflicts_are_decided_by_priority_then_length_then_name(
    votes: list[tuple[str, int, set[str]]], winner: str
) -> None:
    gates = [(Gate(name=name, allow=[], priority=rank), frozenset(x)) for name, rank, x in votes]

    assert join(gates)[1] == winner


@pytest.mark.parametrize("names", ["read", 3, None])
def test_an_allow_list_must_be_a_list_of_names(names: Any) -> None:
    with pytest.raises(TypeError, match="gate 'a' must allow a list of tools' names"):
        Gate(name="a", allow=names)


def test_gates_takes_only_gates() -> None:
    with pytest.raises(TypeError, match=r"Gates takes glue\.policies\.Gate objects, not 'read'"):
        Gates("read")  # type: ignore[arg-type]


def gate(*names: str, name: str = "g", priority: int = 0, required: bool = False) -> Gate:
    return Gate(name=name, allow=names, priority=priority, required=required)


@tool
async def info() -> str:
    """Return information."""
    return "i"


async def gated(*gates: Gate, tools: Collection[Any] = ()) -> tuple[list[str], list[Event]]:
    events: list[Event] = []
    provider = Script("x")
    await run(
        provider,
        "go",
        tools=tools or [noop, term, info],
        policies=[Gates(*gates)],
        on_event=events.append,
    )
    return [spec.name for spec in provider.requests[0].tools], events


async def test_s096_the_gate_with_the_higher_priority_wins_a_conflict() -> None:
    names, events = await gated(
        gate("noop", name="b", priority=100), gate("term", name="r", priority=10)
    )

    assert names == ["noop"]
    assert [event.winner for event in events if isinstance(event, GateConflict)] == ["b"]


@pytest.mark.parametrize(
    ("gates", "winner"),
    [
        ([gate("noop", "info", name="a"), gate("term", name="b")], "b"),
        ([gate("noop", name="b"), gate("term", name="a")], "a"),
        ([gate("noop", name="a"), gate(name="b")], "b"),
    ],
)
async def test_s096_equal_priorities_are_decided_by_the_shorter_list_then_by_name(
    gates: list[Gate], winner: str
) -> None:
    _, events = await gated(*gates)

    assert [event.winner for event in events if isinstance(event, GateConflict)] == [winner]


async def test_s096_the_events_of_gates_list_each_gate_with_tools_and_reason() -> None:
    events: list[Event] = []
    gates = Gates(
        Gate(name="phase", allow=["noop"], priority=100, reason="planning"),
        Gate(name="quiet", allow=[], priority=10),
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


async def test_s097_a_required_gate_drops_advisory_gates_of_lower_priority() -> None:
    required = gate("noop", "term", name="required", priority=5, required=True)

    below, _ = await gated(required, gate("noop", name="advisory"))
    above, _ = await gated(required, gate("noop", name="advisory", priority=6))
    beside, _ = await gated(required, gate("noop", name="advisory", priority=5))
    idle, _ = await gated(
        gate("noop", "term", "info", name="r", priority=5, required=True), gate("noop", name="a")
    )

    assert (below, above, beside, idle) == (["noop", "term"], ["noop"], ["noop"], ["noop"])


async def test_s097_the_event_of_gates_lists_a_dropped_gate() -> None:
    events: list[Event] = []
    gates = Gates(
        Gate(name="must", allow=["noop"], priority=5, required=True), Gate(name="may", allow=["x"])
    )

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


async def test_s098_gates_that_allow_nothing_send_no_tools() -> None:
    names, events = await gated(gate(name="a"), gate(name="b"))

    assert names == []
    assert [(e.gates, e.allowed) for e in events if isinstance(e, GateApplied)] == [
        (("a", "b"), ())
    ]
    assert not [event for event in events if isinstance(event, GateConflict)]


async def test_a_call_of_a_tool_that_a_gate_removed_gets_an_error_result() -> None:
    gates = Gates(
        gate("noop", "term", name="a"),
        gate("noop", "info", name="b"),
        Gate(name="c", allow=lambda _: None),
    )
    provider = Script(calls("info"), "x")

    result = await run(provider, "go", tools=[noop, term, info], policies=[gates])

    assert [spec.name for spec in provider.requests[0].tools] == ["noop"]
    assert isinstance(answer := result.messages[2], ToolMessage)
    assert answer.is_error
    assert answer.text == "tool 'info' is not available now; there are: noop"


@pytest.mark.parametrize(
    ("choice", "allowed", "sent"),
    [
        ("noop", ["term"], "auto"),
        ("noop", ["noop"], "noop"),
        ("noop", [], "auto"),
        ("required", ["term"], "required"),
        ("required", [], "auto"),
        ("none", ["term"], "none"),
        ("none", [], "none"),
        ("auto", ["term"], "auto"),
    ],
)
async def test_a_tool_choice_is_sent_only_if_the_gates_allow_it(
    choice: str, allowed: list[str], sent: str
) -> None:
    provider = Script("x")
    limits = Limits(tool_choice=choice)

    await run(provider, "go", tools=[noop, term], limits=limits, policies=[Gates(gate(*allowed))])

    assert provider.requests[0].tool_choice == sent


async def test_a_gate_applies_to_the_continuation_of_a_reply() -> None:
    provider = Script(say("a", stop="max_tokens"), "b")

    await run(provider, "go", tools=[noop, term], policies=[Gates(gate("term"))])

    assert [[spec.name for spec in request.tools] for request in provider.requests] == [
        ["term"],
        ["term"],
    ]


async def test_a_gate_applies_after_a_compaction() -> None:
    provider = Script(fail("context_overflow"), "x")

    await run(
        provider,
        [user("x" * 99), user("a"), user("b"), user("c")],
        tools=[noop],
        policies=[KeepLast(3), Gates(Gate(name="g", allow=()))],
    )

    assert [request.tools for request in provider.requests] == [(), ()]


def test_a_gate_is_advisory_and_has_priority_zero_by_default() -> None:
    made = Gate(name="g", allow=())

    assert (made.priority, made.required, Gates().place) == (0, False, "gates")


async def test_a_gate_whose_function_returns_a_text_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="gate 'g' must allow a list of tools' names, not 'noop'"):
        await run(
            Script(),
            "go",
            tools=[noop],
            policies=[Gates(Gate(name="g", allow=lambda state: "noop"))],
        )
