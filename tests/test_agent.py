"""Agents run, resume, serve many tasks and threads at once, and never change."""

from __future__ import annotations

import io
import pickle
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from fakes.zygote import Zygote

import glue
from glue import (
    Agent,
    Cancel,
    File,
    Image,
    Limits,
    Outcome,
    Text,
    Tool,
    tool,
    user,
)
from glue.errors import (
    Cancelled,
    ConfigError,
    InvalidContinuation,
    MaxTurnsExceeded,
    ProviderError,
    UnknownProvider,
)
from glue.events import Event, RunEnd, RunStart
from glue.policies import Policy
from glue.prompts import Prompt
from glue.providers import new
from glue.testing import Script, call, calls, fail, repeat, say, shape, use_provider


@tool
def weather(city: str) -> str:
    """Return the weather in a city."""
    return f"{city}: 21 degrees"


LOOK = calls(call("weather", {"city": "Toronto"}), text="Let me look.")


async def test_an_agent_runs_a_prompt_with_its_tools() -> None:
    script = Script(LOOK, "21 degrees.")
    agent = Agent(
        script, tools=[weather], instructions="Answer in one line.", max_tokens=99, temperature=0.5
    )

    result = await agent.run("Weather in Toronto?")

    assert result.text == "21 degrees."
    assert shape(result.messages) == "u a t a"
    assert result.output is None
    request = script.requests[0]
    assert (request.system, request.max_tokens, request.temperature) == (
        "Answer in one line.",
        99,
        0.5,
    )
    assert [spec.name for spec in request.tools] == ["weather"]


async def test_a_failed_run_raises_an_error_with_its_result() -> None:
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


async def test_resume_continues_with_other_limits_and_without_a_new_prompt() -> None:
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
        (Image(url="https://u"), [Image(url="https://u")]),
        (["look:", Image(url="https://u")], [Text(text="look:"), Image(url="https://u")]),
        (
            [File(media_type="application/pdf", data=b"x")],
            [File(media_type="application/pdf", data=b"x")],
        ),
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

    with pytest.raises(
        TypeError, match=r"prompt must be a text, parts such as glue.Image, or messages"
    ):
        await Agent(script).run(prompt)

    assert script.requests == []


async def test_message_history_continues_any_transcript() -> None:
    script = Script("one", "two")
    agent = Agent(script)
    first = await agent.run("a")

    second = await agent.run("b", message_history=first.messages)

    assert shape(second.messages) == "u a u a"
    assert [message.text for message in second.new_messages] == ["b", "two"]


async def test_settings_of_a_call_take_precedence_over_the_agent() -> None:
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


def test_a_wrong_setting_raises_when_the_agent_is_created() -> None:
    with pytest.raises(TypeError, match="model must be a name"):
        Agent("")
    with pytest.raises(TypeError, match="model must be a name"):
        Agent(3)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"made by glue\.tool"):
        Agent(Script(), tools=[len])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="'weather' is there twice"):
        Agent(Script(), tools=[weather, weather])


async def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(
        TypeError, match=r"does not take 'max_turns'; use limits=glue.Limits\(max_turns=3\)"
    ):
        await Agent(Script("x")).run("x", max_turns=3)  # type: ignore[call-overload]
    with pytest.raises(
        TypeError,
        match=r"does not take 'store'; open a session: agent\.session\(id, store=",
    ):
        Agent(Script("x"), store=".glue")  # type: ignore[call-overload]


async def test_a_policy_class_and_a_stream_outside_its_block_are_refused() -> None:
    class Quiet(Policy):
        pass

    with pytest.raises(TypeError, match=r"write Quiet\(\) instead of Quiet"):
        await Agent(Script("x"), policies=[Quiet]).run("x")  # type: ignore[list-item]
    with pytest.raises(RuntimeError, match="inside the block `async with"):
        await anext(Agent(Script("x")).stream("x"))


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("limits", "; pass 'limits' to the call, to a session or to a new Agent"),
        ("output", "; pass 'output' to the call or to a new Agent"),
        ("deps", "; pass 'deps' to the call"),
        ("store", "; pass 'store' to a session"),
        ("roles", "; pass 'roles' to a new Agent"),
        ("colour", ", and has no setting 'colour'"),
        ("run", ", and has no setting 'run'"),
    ],
)
def test_an_assignment_to_an_agent_names_the_calls_that_take_the_value(
    name: str, advice: str
) -> None:
    with pytest.raises(AttributeError) as caught:
        setattr(Agent(Script()), name, "x")

    assert str(caught.value) == f"an Agent is immutable{advice}"


def test_an_agent_is_immutable() -> None:
    agent = Agent(Script(), name="a")

    with pytest.raises(AttributeError, match="immutable"):
        agent.name = "b"
    with pytest.raises(AttributeError, match="immutable; create a new Agent"):
        del agent.name
    with pytest.raises(AttributeError):
        agent.settings.model = "x"  # type: ignore[misc]


def test_run_sync_in_a_script() -> None:
    assert Agent(Script("hi")).run_sync("x").text == "hi"


def test_a_traceback_of_run_sync_does_not_show_library_errors() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    provider = new(
        "openai-compatible:m", base_url=f"http://127.0.0.1:{port}/v1", key="x", retries=False
    )

    with pytest.raises(ProviderError, match="cannot connect") as caught:
        Agent(provider).run_sync("x")

    shown = "".join(traceback.format_exception(caught.value))
    assert shown.count("Traceback") == 1
    assert caught.value.__context__ is not None  # for who looks


async def test_run_sync_inside_a_running_event_loop() -> None:
    """As in a notebook: the loop of this thread is running."""
    assert Agent(Script(LOOK, "hi"), tools=[weather]).run_sync("x").text == "hi"


async def test_run_sync_inside_a_loop_is_cancelled_by_an_interrupt() -> None:
    """An interrupt of a notebook's cell ends the run in the other thread."""
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


async def test_run_sync_raises_the_error_of_the_run() -> None:
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


async def test_writers_get_text_and_tools() -> None:
    out, log, events = io.StringIO(), io.StringIO(), list[Event]()

    await Agent(Script(LOOK, say("21 degrees.", chunk=3)), tools=[weather]).run(
        "x", stream=out, tool_log=log, on_event=events.append
    )

    assert out.getvalue() == "Let me look.\n21 degrees."
    assert log.getvalue() == "[tool] weather\n"
    assert isinstance(events[0], RunStart)
    assert isinstance(events[-1], RunEnd)


async def test_the_parts_of_a_cut_reply_are_written_on_one_line() -> None:
    out = io.StringIO()

    result = await Agent(Script(say("one, ", stop="max_tokens"), "two")).run("x", stream=out)

    assert out.getvalue() == result.text == "one, two"


class Broken(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError("disk full")


async def test_an_error_of_a_writer_does_not_end_the_run() -> None:
    out = io.StringIO()

    def complain(event: Event) -> None:
        raise RuntimeError("no")

    result = await Agent(Script(LOOK, "ok"), tools=[weather]).run(
        "x", stream=Broken(), tool_log=Broken(), on_event=complain
    )
    await Agent(Script("heard")).run("x", stream=out, on_event=complain)

    assert result.text == "ok"
    assert out.getvalue() == "heard"


async def test_an_agent_opens_its_provider_at_the_first_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GROQ_API_KEY", raising=False)
    agent = Agent("groq:x")

    with pytest.raises(ConfigError, match="GROQ_API_KEY"):
        await agent.run("x")


@pytest.mark.parametrize("name", ["opnai:x", "openai:x,antropic"])
def test_a_misspelt_provider_is_refused_when_the_agent_is_made(name: str) -> None:
    with pytest.raises(UnknownProvider, match="did you mean"):
        Agent(name)


def test_a_name_is_not_checked_while_another_function_opens_names() -> None:
    with use_provider(lambda name: Script(f"I am {name}")):
        assert Agent("anything").run_sync("x").text == "I am anything"


async def test_an_agent_closes_the_providers_that_it_opened() -> None:
    closed = []

    class Closing(Script):
        async def aclose(self) -> None:
            closed.append(self.name)

    agent = Agent("offline")
    agent._opened["offline"] = Closing("hi", name="named")

    async with agent:
        assert (await agent.run("x")).text == "hi"

    assert closed == ["named"]
    with use_provider(lambda name: Script(f"I am {name}")):
        assert (await agent.run("x")).text == "I am offline"


def test_the_repr_of_an_agent_has_its_name_or_model() -> None:
    assert repr(Agent("openai:x")) == "Agent('openai:x')"
    assert repr(Agent(Script(name="s"))) == "Agent('s')"
    assert repr(Agent(Script(), name="n")) == "Agent('n')"


def test_a_tool_can_be_called_as_a_function() -> None:

    assert isinstance(weather, Tool)
    assert weather("Oslo") == "Oslo: 21 degrees"


@tool
async def pause() -> str:
    """Pause, so that other tasks run."""
    await anyio.lowlevel.checkpoint()
    return "ok"


BLOCKED = """
import threading, sys
import anyio, asyncio, glue
from glue.testing import Script, calls

@glue.tool
def hang() -> str:
    "Hang."
    print("hanging", flush=True)
    threading.Event().wait()

@glue.tool(needs_permission=True)
def act() -> str:
    "Act."

permission = glue.Ask(lambda request: hang.function())
agent = glue.Agent(Script(calls("hang")), tools=[hang, act], permission=permission)
async def main():
    await agent.run("go")
async def blocking():
    agent.run_sync("go")
"""


RUNS = (
    'agent.run_sync("go")',
    "asyncio.run(main())",
    'anyio.run(main, backend="trio")',
    "asyncio.run(blocking())",
    'anyio.run(blocking, backend="trio")',
)


@pytest.mark.parametrize(
    "blocked", ["hang", "act"]
)  # a tool, and a function that decides on permission
@pytest.mark.parametrize("last", RUNS)
def test_one_interrupt_ends_a_script_whose_sync_tool_is_blocked(
    last: str, blocked: str, tmp_path: Path, zygote: Zygote
) -> None:
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n" + BLOCKED + last
    )
    code = code.replace('calls("hang")', f'calls("{blocked}")')
    child = zygote.start([sys.executable, "-c", code], tmp_path)
    with child.stdin, child.stdout, child.stderr:
        assert child.stdout.readline() == b"hanging\n"
        child.send_signal(signal.SIGINT)

        assert child.wait(20) != 0

        assert child.stderr.read().rstrip().endswith(b"KeyboardInterrupt")


@pytest.mark.parametrize("code", [3, 0])
async def test_run_sync_inside_an_event_loop_raises_the_system_exit_of_a_tool(code: int) -> None:
    @tool
    def leave() -> str:
        """Leave."""
        raise SystemExit(code)

    with pytest.raises(SystemExit) as caught:
        Agent(Script(calls("leave")), tools=[leave]).run_sync("go")

    assert caught.value.code == code
    assert shape(caught.value.result.messages) == "u a t"  # type: ignore[attr-defined]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_interrupt_of_run_sync_carries_the_result(backend: str) -> None:
    last = """
try:
    agent.run_sync("go")
except KeyboardInterrupt as error:
    print(error.result.outcome, len(error.result.messages), flush=True)
"""
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n" + BLOCKED + last
    )
    if backend == "trio":
        code = code.replace('agent.run_sync("go")', 'anyio.run(main, backend="trio")')
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "hanging\n"
    child.send_signal(signal.SIGINT)

    assert child.communicate(timeout=20)[0] == "cancelled 3\n"


def test_a_long_transcript_does_not_slow_run_sync() -> None:
    shown = []

    class Said(str):
        def __repr__(self) -> str:
            shown.append(self)  # asyncio calls repr of the value that a task returns
            return "old"

    history = [glue.UserMessage(content=(glue.Text(text=Said("old")),))]

    assert Agent(Script("x")).run_sync("go", message_history=history).text == "x"
    assert shown == []


def test_an_error_of_run_sync_does_not_show_errors_of_the_async_library() -> None:
    with pytest.raises(ProviderError) as caught:
        Agent(Script(fail("auth"))).run_sync("go")

    seen: list[BaseException] = []
    error: BaseException | None = caught.value
    while error is not None:
        seen.append(error)
        error = error.__cause__ or error.__context__
    assert not [each for each in seen if "AsyncLibrary" in type(each).__name__]


@tool
def top(x: int) -> str:
    """Be at the top of a module."""
    return str(x)


def test_agents_tools_and_prompts_survive_a_pickle() -> None:
    agent = Agent(
        "openai:x", tools=[top], limits=Limits(max_turns=3), name="a", instructions="Be brief."
    )

    again = pickle.loads(pickle.dumps(agent))

    assert (again.name, again.settings) == (agent.name, agent.settings)
    assert pickle.loads(pickle.dumps(top)) is top
    prompt = Prompt("Be brief.", name="brief", version="v1")
    kept = pickle.loads(pickle.dumps(prompt))
    assert (kept, kept.identity) == (prompt, prompt.identity)


def test_s132_a_wrong_argument_of_agent_or_session_is_an_error_that_names_it() -> None:
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


@pytest.mark.parametrize("model", [None, "", 5, Script])
def test_an_agent_needs_a_model(model: Any) -> None:
    with pytest.raises(TypeError, match="model must be a name such as"):
        Agent(model)


def test_the_name_the_description_and_the_prompt_of_an_agent_are_texts() -> None:
    agent: Any = Agent(Script("x"), name="helper")
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: agent.as_tool(name=5), "name must be a text"),
        (lambda: agent.as_tool(description=5), "description must be a text"),
        (lambda: agent.cli(prompt=5), "prompt must be a text"),
    ]

    for form, said in wrong:
        with pytest.raises(TypeError, match=said):
            form()
    assert agent.as_tool().spec.description == "Hand a task to the agent helper."
    assert agent.as_tool("other", "Help.").spec.name == "other"


def test_a_session_refuses_a_second_prompt_unless_it_has_a_queue() -> None:
    assert not Agent(Script("x")).session().queue
    assert Agent(Script("x")).session(queue=True).queue


async def test_a_plain_tool_may_run_another_agent() -> None:
    @tool
    def ask() -> str:
        """Ask another agent, and read its events."""
        answer = Agent(Script("one")).run_sync("x").text
        with Agent(Script("two")).stream_sync("x") as events:
            list(events)
        return f"{answer} and {events.result.text}"

    result = await Agent(Script(calls("ask"), "done"), tools=[ask]).run("x")

    assert result.messages[2].text == "one and two"
