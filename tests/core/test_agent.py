"""An Agent is one configured unit: it runs, streams, resumes, serves many at once and never changes."""

from __future__ import annotations

import io
import signal
import socket
import threading
import traceback
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from glue import (
    Agent,
    AllowAll,
    Cancel,
    Context,
    Event,
    File,
    Image,
    Limits,
    Outcome,
    Policy,
    ProviderError,
    Text,
    Tool,
    ToolMessage,
    Usage,
    UserMessage,
    tool,
    user,
)
from glue.errors import BudgetExceeded, Cancelled, ConfigError, InvalidContinuation, MaxTurnsExceeded
from glue.events import MessageEnd, RunEnd, RunStart, ToolUpdate
from glue.project import Role
from glue.prompts import Catalog
from glue.provider import TextDelta
from glue.providers import new
from glue.testing import Script, call, calls, fail, repeat, say, shape, use_provider


@tool
def weather(city: str) -> str:
    """Say what the weather is in a city."""
    return f"{city}: 21 degrees"


LOOK = calls(call("weather", {"city": "Toronto"}), text="Let me look.")


# Running ------------------------------------------------------------------------------------------


async def test_an_agent_runs_a_prompt_with_its_tools() -> None:
    script = Script(LOOK, "21 degrees.")
    agent = Agent(script, tools=[weather], instructions="Answer in one line.", max_tokens=99, temperature=0.5)

    result = await agent.run("Weather in Toronto?")

    assert result.text == "21 degrees."
    assert shape(result.messages) == "u a t a"
    assert result.output is None
    request = script.requests[0]
    assert (request.system, request.max_tokens, request.temperature) == ("Answer in one line.", 99, 0.5)
    assert [spec.name for spec in request.tools] == ["weather"]


async def test_a_run_that_went_wrong_raises_with_its_result() -> None:
    agent = Agent(Script(repeat(LOOK)), tools=[weather], limits=Limits(max_turns=2))

    with pytest.raises(MaxTurnsExceeded) as caught:
        await agent.run("go")

    assert caught.value.result is not None
    assert caught.value.result.outcome is Outcome.MAX_TURNS
    assert shape(caught.value.result.messages) == "u a t a t"


async def test_unwrap_false_returns_every_outcome() -> None:
    result = await Agent(Script(fail("auth"))).run("go", unwrap=False)

    assert result.outcome is Outcome.FAILED
    assert isinstance(result.error, ProviderError)


async def test_resume_goes_on_with_other_limits_and_no_new_prompt() -> None:
    agent = Agent(Script(LOOK, LOOK, "done"), tools=[weather], limits=Limits(max_turns=1))
    stopped = await agent.run("go", unwrap=False)

    result = await agent.resume(stopped, limits=Limits(max_turns=9))

    assert shape(result.messages) == "u a t a t a"
    assert result.text == "done"
    with pytest.raises(InvalidContinuation):
        await agent.resume(result)


@pytest.mark.parametrize(
    ("prompt", "parts"),
    [
        ("hi", [Text(text="hi")]),
        (Image(url="u"), [Image(url="u")]),
        (["look:", Image(url="u")], [Text(text="look:"), Image(url="u")]),
        ([File(media_type="application/pdf", data=b"x")], [File(media_type="application/pdf", data=b"x")]),
        (user("as a message"), [Text(text="as a message")]),
        ([user("as messages")], [Text(text="as messages")]),
    ],
)
async def test_a_prompt_may_be_text_parts_or_messages(prompt: Any, parts: list[Any]) -> None:
    script = Script("ok")

    await Agent(script).run(prompt)

    assert list(script.requests[0].messages[-1].content) == parts


@pytest.mark.parametrize("prompt", [3, None, [], [1], ["x", user("y")]])
async def test_any_other_prompt_is_refused_before_a_request(prompt: Any) -> None:
    script = Script("ok")

    with pytest.raises(TypeError, match="a prompt is a text, parts, or messages"):
        await Agent(script).run(prompt)

    assert script.requests == []


async def test_message_history_continues_any_transcript() -> None:
    script = Script("one", "two")
    agent = Agent(script)
    first = await agent.run("a")

    second = await agent.run("b", message_history=first.messages)

    assert shape(second.messages) == "u a u a"
    assert [message.text for message in second.new_messages] == ["b", "two"]


async def test_what_a_call_says_goes_before_the_agent() -> None:
    script, other = Script("one"), Script("two")
    agent = Agent(script, instructions="wide", max_tokens=5, tools=[weather])

    result = await agent.run("x", model=other, instructions="narrow", max_tokens=7, tools=[])

    assert result.text == "two"
    assert script.requests == []
    request = other.requests[0]
    assert (request.system, request.max_tokens, request.tools) == ("narrow", 7, ())


async def test_a_cancel_token_ends_the_run() -> None:
    cancel = Cancel()
    agent = Agent(Script(say("slow", delay=60)))

    with pytest.raises(Cancelled):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.lowlevel.checkpoint)
            cancel.cancel()
            try:
                await agent.run("x", cancel=cancel)
            except Cancelled as error:
                caught = error
        raise caught


def test_a_mistaken_setting_is_an_error_at_once() -> None:
    with pytest.raises(TypeError, match="model must be a name"):
        Agent("")
    with pytest.raises(TypeError, match="model must be a name"):
        Agent(3)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"made by glue\.tool"):
        Agent(Script(), tools=[len])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="'weather' is there twice"):
        Agent(Script(), tools=[weather, weather])


async def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(TypeError, match="no option 'max_turns'; give limits="):
        await Agent(Script("x")).run("x", max_turns=3)  # type: ignore[call-overload]
    with pytest.raises(
        TypeError, match=r"no option 'store'; a conversation has one: agent\.session\(id, store=\.\.\.\)"
    ):
        Agent(Script("x"), store=".glue")  # type: ignore[call-overload]


async def test_a_policy_that_was_not_made_and_a_stream_that_was_not_entered_are_named() -> None:
    class Quiet(Policy):
        pass

    with pytest.raises(TypeError, match=r"make one: Quiet\(\)"):
        await Agent(Script("x"), policies=[Quiet]).run("x")  # type: ignore[list-item]
    with pytest.raises(RuntimeError, match="inside `async with"):
        await anext(Agent(Script("x")).stream("x"))


def test_an_agent_is_immutable() -> None:
    agent = Agent(Script(), name="a")

    with pytest.raises(AttributeError, match="immutable"):
        agent.name = "b"
    with pytest.raises(AttributeError, match="immutable"):
        del agent.name
    with pytest.raises(AttributeError):
        agent.settings.model = "x"  # type: ignore[misc]


# Not async ------------------------------------------------------------------------------------------


def test_run_sync_in_a_script() -> None:
    assert Agent(Script("hi")).run_sync("x").text == "hi"


def test_an_error_of_run_sync_is_shown_without_those_of_the_libraries_below() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    provider = new("openai-compatible:m", base_url=f"http://127.0.0.1:{port}/v1", key="x", retries=False)

    with pytest.raises(ProviderError, match="cannot connect") as caught:
        Agent(provider).run_sync("x")

    shown = "".join(traceback.format_exception(caught.value))
    assert shown.count("Traceback") == 1
    assert caught.value.__context__ is not None  # for who looks


async def test_run_sync_inside_a_running_event_loop() -> None:
    """As in a notebook: the loop of this thread is running."""
    assert Agent(Script(LOOK, "hi"), tools=[weather]).run_sync("x").text == "hi"


async def test_run_sync_inside_a_loop_is_cancelled_by_an_interrupt() -> None:
    """As when a notebook's cell is interrupted: the run in the other thread ends, and nothing is left over."""
    ended: list[str] = []

    @tool
    async def hang() -> str:
        """Wait until cancelled."""
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("tool")
        return ""

    with pytest.raises(KeyboardInterrupt), interruptible():
        Agent(Script(calls("hang")), tools=[hang]).run_sync("x")

    assert ended == ["tool"]


@contextmanager
def interruptible() -> Iterator[None]:
    """Interrupt as Python does by default, whatever the event loop of the test has installed."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


async def test_run_sync_in_a_worker_thread() -> None:
    agent = Agent(Script("hi"))

    result = await anyio.to_thread.run_sync(lambda: agent.run_sync("x"))

    assert result.text == "hi"


async def test_run_sync_raises_what_the_run_raised() -> None:
    with pytest.raises(ProviderError):
        Agent(Script(fail("auth"))).run_sync("x")


def test_one_agent_serves_many_threads() -> None:
    agent = Agent(Script(repeat(lambda request: f"to {request.messages[-1].text}")))
    answers: dict[int, str] = {}

    def work(number: int) -> None:
        answers[number] = agent.run_sync(str(number)).text

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert answers == {number: f"to {number}" for number in range(8)}


async def test_one_agent_serves_many_tasks() -> None:
    agent = Agent(Script(repeat(lambda request: f"to {request.messages[-1].text}")))
    answers = {}

    async def work(number: int) -> None:
        answers[number] = (await agent.run(str(number))).text

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(work, number)

    assert answers == {number: f"to {number}" for number in range(20)}


# Listening ------------------------------------------------------------------------------------------


async def test_writers_get_text_and_tools() -> None:
    out, log, events = io.StringIO(), io.StringIO(), list[Event]()

    await Agent(Script(LOOK, say("21 degrees.", chunk=3)), tools=[weather]).run(
        "x", stream=out, tool_log=log, on_event=events.append
    )

    assert out.getvalue() == "Let me look.\n21 degrees."
    assert log.getvalue() == "[tool] weather\n"
    assert isinstance(events[0], RunStart)
    assert isinstance(events[-1], RunEnd)


async def test_the_parts_of_a_cut_reply_stay_on_one_line() -> None:
    out = io.StringIO()

    result = await Agent(Script(say("one, ", stop="max_tokens"), "two")).run("x", stream=out)

    assert out.getvalue() == result.text == "one, two"


class Broken(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError("disk full")


async def test_a_writers_error_never_breaks_a_run() -> None:
    out = io.StringIO()

    def complain(event: Event) -> None:
        raise RuntimeError("no")

    result = await Agent(Script(LOOK, "ok"), tools=[weather]).run(
        "x", stream=Broken(), tool_log=Broken(), on_event=complain
    )
    await Agent(Script("heard")).run("x", stream=out, on_event=complain)

    assert result.text == "ok"
    assert out.getvalue() == "heard"


async def test_a_stream_gives_events_and_then_the_result() -> None:
    agent = Agent(Script(LOOK, say("abc", chunk=1)), tools=[weather])

    async with agent.stream("x") as events:
        seen = [event async for event in events]

    assert isinstance(seen[0], RunStart)
    assert isinstance(seen[-1], RunEnd)
    assert [event.text for event in seen if isinstance(event, TextDelta)] == ["Let me look.", "a", "b", "c"]
    assert events.result.text == "abc"


async def test_a_stream_waits_for_its_reader() -> None:
    ahead = 0

    def counted(request: Any) -> Any:
        return say("x" * 50, chunk=1)

    class Counting(Script):
        async def stream(self, request: Any) -> Any:
            nonlocal ahead
            async with aclosing(super().stream(request)) as inner:  # type: ignore[type-var]
                async for event in inner:
                    ahead += 1
                    yield event

    read = 0
    async with Agent(Counting(counted)).stream("x") as events:
        async for event in events:
            if isinstance(event, TextDelta):
                read += 1
                await anyio.wait_all_tasks_blocked()
                assert ahead <= read + 2


async def test_leaving_a_stream_early_cancels_the_run() -> None:
    script = Script(say("x" * 50, chunk=1))

    async with Agent(script).stream("x") as events:
        async for event in events:
            if isinstance(event, TextDelta):
                break

    assert script.open_streams == 0
    with pytest.raises(Cancelled):
        _ = events.result


async def test_an_error_in_the_block_of_a_stream_comes_out_as_it_is() -> None:
    script = Script(say("x" * 50, chunk=1))

    with pytest.raises(KeyError, match="mine"):
        async with Agent(script).stream("x") as events:
            await anext(events)
            raise KeyError("mine")

    assert script.open_streams == 0


async def test_a_stream_of_a_failing_run_raises_at_its_end() -> None:
    last: Event | None = None

    with pytest.raises(ProviderError, match="scripted failure"):
        async with Agent(Script(fail("auth"))).stream("x") as events:
            async for event in events:
                last = event

    assert isinstance(last, RunEnd)


async def test_the_result_of_a_stream_is_not_there_before_its_end() -> None:
    async with Agent(Script("x")).stream("x") as events:
        with pytest.raises(RuntimeError, match="has not ended"):
            _ = events.result
        async for _ in events:
            pass


# Deps -----------------------------------------------------------------------------------------------


@dataclass
class Deps:
    unit: str


@tool
async def measure(context: Context[Deps]) -> str:
    """Measure."""
    return f"21 {context.deps.unit}"


async def test_deps_reach_the_tools_and_are_checked() -> None:
    agent = Agent(Script(calls("measure"), "ok", repeat("ok")), tools=[measure], deps_type=Deps)

    result = await agent.run("x", deps=Deps("degrees"))

    assert result.messages[2].text == "21 degrees"
    with pytest.raises(TypeError, match="needs deps of the type Deps; none was given"):
        await agent.run("x")
    with pytest.raises(TypeError, match="got str"):
        await agent.run("x", deps="degrees")  # type: ignore[call-overload]


# Names of providers ---------------------------------------------------------------------------------


async def test_an_agent_by_name_opens_nothing_until_it_runs() -> None:
    agent = Agent("no-such-provider:x")

    with pytest.raises(ConfigError, match="no-such-provider"):
        await agent.run("x")


# Sub-agents -----------------------------------------------------------------------------------------


def helper(*steps: Any, **options: Any) -> Agent[None, None]:
    return Agent(Script(*steps, name="helper"), name="helper", **options)


def ask_helper(text: str = "do it") -> Any:
    return calls(call("helper", {"prompt": text}))


async def test_a_sub_agent_answers_with_a_fresh_transcript() -> None:
    script = Script("first", "second", name="helper")
    child = Agent(script, name="helper", instructions="You help.")
    parent = Agent(Script(ask_helper("one"), ask_helper("two"), "done"), tools=[child.as_tool(description="Help.")])

    result = await parent.run("x")

    assert [message.text for message in result.messages if isinstance(message, ToolMessage)] == ["first", "second"]
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
    parent = Agent(Script(repeat(ask_helper())), tools=[child.as_tool()], limits=Limits(token_budget=100))

    result = await parent.run("x", unwrap=False)

    assert result.outcome is Outcome.BUDGET
    assert isinstance(result.error, BudgetExceeded)
    assert len(spendthrift.requests) == 2
    assert "did not finish (budget)" in next(m.text for m in result.messages if isinstance(m, ToolMessage))


async def test_what_goes_wrong_in_a_sub_agent_is_told_to_the_parent() -> None:
    child = helper(say("half an answer", stop="max_tokens"), fail("auth", "bad key"))
    parent = Agent(Script(ask_helper(), calls(call("helper", {"task": 1})), "done"), tools=[child.as_tool()])

    result = await parent.run("x")

    failed, mistaken = [message for message in result.messages if isinstance(message, ToolMessage)]
    assert failed.is_error
    assert "did not finish (failed): script: bad key\nSo far it said: half an answer" in failed.text
    assert mistaken.is_error
    assert "prompt: expected a text" in mistaken.text


@tool(needs_permission=True)
def dangerous() -> str:
    """Do something."""
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


async def test_a_sub_agent_hands_up_structured_output_as_json() -> None:
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


# Prompts, roles, projects -----------------------------------------------------------------------------


async def test_a_versioned_prompt_can_be_traced_from_result_and_transcript(tmp_path: Path) -> None:
    (tmp_path / "v1.md").write_text("Be kind.")
    (tmp_path / "v2.md").write_text("Be brief.")
    catalog = Catalog(tmp_path, name="manner")
    script, events = Script("a", "b"), list[Event]()

    chosen = await Agent(script, instructions=catalog.get("v1")).run("x", on_event=events.append)
    default = await Agent(script, instructions=catalog).run("x")

    assert [request.system for request in script.requests] == ["Be kind.", "Be brief."]
    identity = catalog.get("v1").identity
    assert chosen.meta is not None
    assert identity.items() <= chosen.meta.items()
    assert chosen.messages[0].meta == identity
    assert isinstance(events[0], RunStart)
    assert events[0].identity == identity
    assert default.meta is not None
    assert default.meta["prompt_version"] == "v2"


async def test_roles_set_instructions_and_model_where_they_are_given(tmp_path: Path) -> None:
    (tmp_path / "critic.md").write_text("---\ndescription: finds faults\nmodel: other\n---\n\nFind faults.\n")
    (tmp_path / "plain.md").write_text("Be plain.")
    script = Script(repeat("ok"))
    agent = Agent(script, instructions="wide", roles=tmp_path)

    await agent.run("x", role="plain")
    await agent.run("x", role="plain", instructions="narrow")
    assert [request.system for request in script.requests] == ["Be plain.", "narrow"]
    with pytest.raises(ConfigError, match="other"):
        await agent.run("x", role="critic")
    await agent.run("x", role="critic", model=script)
    assert script.requests[-1].system == "Find faults."
    with pytest.raises(ConfigError, match="no role 'x'; there are: critic, plain"):
        await agent.run("x", role="x")
    given = Agent(script, roles={"r": Role(name="r", instructions="R")}, role="r")
    await given.run("x")
    assert script.requests[-1].system == "R"


async def test_project_context_is_opt_in_and_capped(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("Use tabs.")
    skill = tmp_path / ".agents" / "skills" / "deploy"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: deploy\ndescription: How to deploy.\n---\nPush the button.\n")
    script = Script("ok", calls(call("skill", {"name": "deploy"})), calls(call("skill", {"name": "x"})), "ok", "ok")

    await Agent(script, instructions="Hi.").run("x")
    result = await Agent(script, instructions="Hi.", project=tmp_path).run("x")

    assert script.requests[0].system == "Hi."
    assert script.requests[1].system == (
        "Hi.\n\nUse tabs.\n\nSkills you can read with the tool `skill`:\n- deploy: How to deploy."
    )
    found, unknown = [message for message in result.messages if isinstance(message, ToolMessage)]
    assert found.text == "Push the button."
    assert unknown.text == 'name: got "x", expected one of "deploy"'
    (tmp_path / "AGENTS.md").write_text("x" * 100_000)
    await Agent(script, project=tmp_path).run("x")
    assert len(script.requests[-1].system) < 33_000
    assert "the rest is left out" in script.requests[-1].system


async def test_a_project_file_that_is_a_link_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "AGENTS.md").symlink_to(tmp_path / "secret")
    script = Script("ok")

    await Agent(script, project=tmp_path).run("x")

    assert script.requests[0].system == ""


# Odds and ends ----------------------------------------------------------------------------------------


async def test_an_agent_closes_what_it_opened_by_name() -> None:
    closed = []

    class Closing(Script):
        async def aclose(self) -> None:
            closed.append(self.name)

    agent = Agent("named")
    agent._opened["named"] = Closing("hi", name="named")

    async with agent:
        assert (await agent.run("x")).text == "hi"

    assert closed == ["named"]
    with use_provider(lambda name: Script(f"I am {name}")):
        assert (await agent.run("x")).text == "I am named"


def test_an_agent_says_what_it_is() -> None:
    assert repr(Agent("openai:x")) == "Agent('openai:x')"
    assert repr(Agent(Script(name="s"))) == "Agent('s')"
    assert repr(Agent(Script(), name="n")) == "Agent('n')"


def test_the_tool_keeps_being_a_function() -> None:

    assert isinstance(weather, Tool)
    assert weather("Oslo") == "Oslo: 21 degrees"


async def test_a_sub_agent_may_be_called_with_a_context_that_was_made_by_hand() -> None:
    asked = call("inner", {"prompt": "hi"})

    result = await Agent(Script("hello")).as_tool("inner").invoke(asked, Context(call=asked))

    assert (result.text, result.is_error) == ("hello", False)
