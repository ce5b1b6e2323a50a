"""A sub-agent has its own transcript, and the permission, budget and cancellation of its parent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from glue import (
    Agent,
    AllowAll,
    Cancel,
    Context,
    Limits,
    Outcome,
    ToolHook,
    ToolMessage,
    ToolResult,
    Usage,
    UserMessage,
    tool,
)
from glue.errors import (
    BudgetExceeded,
    Cancelled,
)
from glue.events import Event, MessageEnd, RunStart, ToolEnd, ToolUpdate
from glue.permission import DenyAll
from glue.provider import TextDelta
from glue.providers.offline import NOTICE, STAND_IN
from glue.testing import Script, call, calls, fail, repeat, say, shape


@tool
def weather(city: str) -> str:
    """Return the weather in a city."""
    return f"{city}: 21 degrees"


LOOK = calls(call("weather", {"city": "Toronto"}), text="Let me look.")


def helper(*steps: Any, **options: Any) -> Agent[None, None]:
    return Agent(Script(*steps, name="helper"), name="helper", **options)


def ask_helper(text: str = "do it") -> Any:
    return calls(call("helper", {"prompt": text}))


async def test_a_sub_agent_answers_with_a_fresh_transcript() -> None:
    script = Script("first", "second", name="helper")
    child = Agent(script, name="helper", instructions="You help.")
    parent = Agent(
        Script(ask_helper("one"), ask_helper("two"), "done"),
        tools=[child.as_tool(description="Help.")],
    )

    result = await parent.run("x")

    assert [message.text for message in result.messages if isinstance(message, ToolMessage)] == [
        "first",
        "second",
    ]
    assert [len(request.messages) for request in script.requests] == [1, 1]
    assert script.requests[1].messages[0].text == "two"
    assert script.requests[0].system == "You help."


async def test_the_events_of_a_sub_agent_are_nested() -> None:
    events: list[Event] = []
    parent = Agent(Script(ask_helper(), "done"), tools=[helper(say("ab", chunk=1)).as_tool()])

    await parent.run("x", on_event=events.append)

    nested = [event.event for event in events if isinstance(event, ToolUpdate)]
    assert isinstance(nested[0], RunStart)
    assert [event.text for event in nested if isinstance(event, TextDelta)] == ["a", "b"]
    assert sum(isinstance(event, RunStart) for event in events) == 1


async def test_the_usage_of_sub_agents_is_counted_once() -> None:
    one = Usage(input=10, output=1, cost=0.5)
    grandchild = Agent(Script(say("deep", usage=one)), name="deep")
    child = Agent(
        Script(calls(call("deep", {"prompt": "x"}), usage=one), say("up", usage=one)),
        name="helper",
        tools=[grandchild.as_tool()],
    )
    asked = calls(call("helper", {"prompt": "x"}), usage=one)
    parent = Agent(Script(asked, say("done", usage=one)), tools=[child.as_tool()])

    result = await parent.run("x")

    assert (result.usage.input, result.usage.output, result.cost) == (50, 5, 2.5)


async def test_a_sub_agent_spends_from_its_parents_budget() -> None:
    spendthrift = Script(repeat(calls("weather", usage=Usage(input=1, output=60))), name="helper")
    child = Agent(spendthrift, name="helper", tools=[weather])
    parent = Agent(
        Script(repeat(ask_helper())), tools=[child.as_tool()], limits=Limits(token_budget=100)
    )

    result = await parent.run("x", unwrap=False)

    assert result.outcome is Outcome.BUDGET
    assert isinstance(result.error, BudgetExceeded)
    assert len(spendthrift.requests) == 2
    assert "did not finish (budget)" in next(
        m.text for m in result.messages if isinstance(m, ToolMessage)
    )


async def test_a_failure_of_a_sub_agent_is_an_error_result_for_its_parent() -> None:
    child = helper(say("half an answer", stop="max_tokens"), fail("auth", "bad key"))
    parent = Agent(
        Script(ask_helper(), calls(call("helper", {"task": 1})), "done"), tools=[child.as_tool()]
    )

    result = await parent.run("x")

    failed, mistaken = [message for message in result.messages if isinstance(message, ToolMessage)]
    assert failed.is_error
    assert "did not finish (failed): script: bad key\nSo far it said: half an answer" in failed.text
    assert mistaken.is_error
    assert "prompt: expected a string" in mistaken.text
    assert "prompt: expected a string" in mistaken.text


@tool(needs_permission=True)
def dangerous() -> str:
    """Return at once."""
    return "done it"


async def test_a_sub_agent_asks_its_parents_permission() -> None:
    def parent(**options: Any) -> Agent[None, None]:
        child = Agent(Script(calls("dangerous"), "ok"), name="helper", tools=[dangerous])
        return Agent(Script(ask_helper(), "done"), tools=[child.as_tool()], **options)

    async def nested_results(agent: Agent[None, None]) -> list[str]:
        seen: list[str] = []

        def listen(event: Event) -> None:
            inner = event.event if isinstance(event, ToolUpdate) else None
            if isinstance(inner, MessageEnd) and isinstance(inner.message, UserMessage):
                return
            if inner is not None and type(inner).__name__ == "ToolEnd":
                seen.append(inner.message.text)

        await agent.run("x", on_event=listen)
        return seen

    assert "permission denied" in (await nested_results(parent()))[0]
    assert await nested_results(parent(permission=AllowAll())) == ["done it"]


async def test_cancelling_the_parent_cancels_the_sub_agent() -> None:
    cancel = Cancel()
    child_script = Script(say("slow", delay=60))
    parent = Agent(Script(ask_helper()), tools=[Agent(child_script, name="helper").as_tool()])

    def stop(event: Event) -> None:
        if isinstance(event, ToolUpdate) and type(event.event).__name__ == "RequestStart":
            cancel.cancel()

    with pytest.raises(Cancelled) as caught:
        await parent.run("x", cancel=cancel, on_event=stop)

    assert child_script.open_streams == 0
    assert caught.value.result is not None
    assert shape(caught.value.result.messages) == "u a t"


async def test_a_sub_agent_returns_structured_output_as_json() -> None:
    @dataclass
    class Forecast:
        city: str
        degrees: int

    child = Agent(Script('{"city": "Toronto", "degrees": 21}'), name="helper", output=Forecast)
    parent = Agent(Script(ask_helper(), "done"), tools=[child.as_tool()])

    result = await parent.run("x")

    assert result.messages[2].text == '{"city": "Toronto", "degrees": 21}'


def test_a_sub_agent_needs_a_name() -> None:
    with pytest.raises(ValueError, match="needs a name"):
        Agent(Script()).as_tool()
    assert Agent(Script()).as_tool("x").spec.name == "x"


async def test_a_sub_agent_runs_with_a_context_made_by_the_caller() -> None:
    asked = call("inner", {"prompt": "hi"})

    result = await Agent(Script("hello")).as_tool("inner").invoke(asked, Context(call=asked))

    assert (result.text, result.is_error) == ("hello", False)


async def test_the_notice_of_a_sub_agent_is_for_people_and_not_for_the_model() -> None:
    child = Agent("offline", name="helper", output=int)
    plain = Agent("offline", name="plain")
    parent = Agent(
        Script(calls(call("helper", {"prompt": "x"}), call("plain", {"prompt": "x"})), "done"),
        tools=[child.as_tool(description="Help."), plain.as_tool(description="Help.")],
    )

    result = await parent.run("x")

    texts = [message.text for message in result.messages if isinstance(message, ToolMessage)]
    assert texts == ["1", STAND_IN]
    assert result.notice == NOTICE


async def test_the_model_is_told_that_the_answer_of_a_sub_agent_is_cut() -> None:
    cut = say("half", stop="max_tokens")
    parent = Agent(
        Script(ask_helper(), "done"),
        tools=[helper(repeat(cut)).as_tool(description="Help.")],
    )

    result = await parent.run("x")

    [message] = [each for each in result.messages if isinstance(each, ToolMessage)]
    assert message.text.endswith("The answer is incomplete: the model reached its output limit.")


async def test_the_result_of_a_sub_agent_is_described_for_the_program() -> None:
    usage = Usage(input=3, output=4, cost=0.5, extra={"tier": "flex"})
    ends: list[ToolMessage] = []

    def collect(event: Event) -> None:
        if isinstance(event, ToolEnd):
            ends.append(event.message)

    parent = Agent(Script(ask_helper(), "done"), tools=[helper(say("ok", usage=usage)).as_tool()])
    await parent.run("x", on_event=collect)

    [message] = ends
    assert message.meta == {
        "agent": "helper",
        "outcome": "done",
        "usage": {"input": 3, "output": 4, "cost": 0.5},
    }


async def test_a_sub_agent_that_said_nothing_is_not_quoted() -> None:
    parent = Agent(Script(ask_helper(), "done"), tools=[helper(fail("auth", "bad key")).as_tool()])

    result = await parent.run("x")

    assert result.messages[2].text == "the agent did not finish (failed): script: bad key"


async def test_letters_of_other_languages_are_not_escaped_for_the_parent() -> None:
    child = Agent(Script('{"value": "Z\u00fcrich"}'), name="helper", output=str)
    parent = Agent(Script(ask_helper(), "done"), tools=[child.as_tool()])

    assert (await parent.run("x")).messages[2].text == '"Z\u00fcrich"'


async def test_two_sub_agents_run_at_the_same_time() -> None:
    met = [anyio.Event(), anyio.Event()]

    @tool
    async def meet(number: int) -> str:
        """Wait for the other one."""
        met[number].set()
        await met[1 - number].wait()
        return "met"

    def child(number: int) -> Any:
        script = Script(calls(call("meet", {"number": number})), "ok")
        return Agent(script, name=f"helper{number}", tools=[meet]).as_tool()

    both = calls(call("helper0", {"prompt": "x"}), call("helper1", {"prompt": "x"}))
    with anyio.fail_after(5):
        result = await Agent(Script(both, "done"), tools=[child(0), child(1)]).run("x")

    assert result.text == "done"


async def test_a_run_continues_after_a_sub_agent_beside_a_tool_that_asks_to_end_it() -> None:
    @tool
    def leave() -> ToolResult:
        """Ask to end the run."""
        return ToolResult(content=(), terminate=True)

    both = calls(call("helper", {"prompt": "x"}), call("leave", {}))
    parent = Agent(Script(both, "done"), tools=[helper("ok").as_tool(), leave])

    assert (await parent.run("x")).text == "done"


async def test_a_sub_agent_has_the_deps_of_its_parent_unless_it_has_its_own() -> None:
    seen: list[object] = []

    @tool
    async def look(context: Context[Any]) -> str:
        """Look at the deps."""
        seen.append(context.deps)
        return ""

    child = Agent(
        Script(repeat(calls("look"))), name="helper", tools=[look], limits=Limits(max_turns=1)
    )
    parent: Agent[Any, Any] = Agent(Script(ask_helper(), "done"), tools=[child.as_tool()])
    await parent.run("x", deps="of the parent")

    assert seen == ["of the parent"]


async def test_a_sub_agent_with_a_permission_and_hooks_uses_its_own() -> None:
    ran: list[str] = []
    own, of_parent = (
        ToolHook(before=lambda step, name=name: ran.append(name))  # type: ignore[misc]
        for name in ("own", "parent")
    )
    child = helper(calls("dangerous"), "ok", tools=[dangerous], permission=AllowAll(), hooks=[own])
    script = Script(ask_helper(), "done")
    parent = Agent(script, tools=[child.as_tool()], permission=DenyAll(), hooks=[of_parent])

    await parent.run("x")

    assert ran == ["own"]
    assert child.settings.model.requests[-1].messages[-1].text == "done it"  # type: ignore[union-attr]
