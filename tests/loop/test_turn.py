"""`glue.loop.turn`: the stream of a reply, and the batch of its tool calls."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from fakes.loop import (
    EventProvider,
    Queue,
    Quit,
    RecordingJournal,
    ReplyProvider,
    assert_valid,
    ends,
    names,
    no_sleep,
    noop,
    reply,
    results,
    run_cancelled_at,
    term,
    texts,
)

import glue
from glue import (
    AssistantMessage,
    Cancel,
    Context,
    Image,
    Limits,
    Outcome,
    Request,
    StopReason,
    Text,
    ToolCall,
    ToolError,
    ToolMessage,
    ToolResult,
    Usage,
    run,
    text_result,
    tool,
)
from glue.context import Host
from glue.errors import BudgetExceeded, EmptyReply, ProviderError
from glue.events import Event, LimitReached, MessageEnd, MessageStart, ToolEnd, ToolStart
from glue.messages import ToolSpec, new_id
from glue.policies import FollowUp, Steering
from glue.provider import Attempt, Done, Notice, ProviderEvent, TextDelta
from glue.providers import with_retries
from glue.providers.escalation import with_escalation
from glue.testing import Script, call, calls, fail, repeat, say, shape


class Crowd:
    """A counter of the tools that run at the same time."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.seen: list[tuple[str, int]] = []

    async def work(self, name: str) -> str:
        self.now += 1
        self.most = max(self.most, self.now)
        await anyio.wait_all_tasks_blocked()
        self.seen.append((name, self.now))
        self.now -= 1
        return name


@pytest.mark.parametrize(("limit", "most"), [(8, 8), (3, 3), (2, 2), (1, 1)])
async def test_calls_of_a_batch_run_at_once_up_to_the_limit(limit: int, most: int) -> None:
    crowd = Crowd()

    @tool
    async def work(n: int) -> str:
        """Work."""
        return await crowd.work(str(n))

    named = [call("work", {"n": n}) for n in range(10)]

    result = await run(
        Script(calls(*named), "x"), "go", tools=[work], limits=Limits(parallel_tools=limit)
    )

    assert crowd.most == most
    assert results(result.messages) == [str(n) for n in range(10)]


async def test_a_tool_marked_alone_runs_without_others() -> None:
    crowd = Crowd()

    @tool
    async def work() -> str:
        """Work."""
        return await crowd.work("work")

    @tool(alone=True)
    async def alone() -> str:
        """Work alone."""
        return await crowd.work("alone")

    await run(
        Script(calls("work", "work", "alone", "work", "work", "alone"), "x"),
        "go",
        tools=[work, alone],
    )

    assert [count for name, count in crowd.seen if name == "alone"] == [1, 1]
    assert [name for name, _ in crowd.seen] == ["work", "work", "alone", "work", "work", "alone"]
    assert crowd.most == 2


async def test_tool_end_events_follow_completion_and_results_the_order_of_calls() -> None:
    second_done = anyio.Event()
    events: list[Event] = []

    @tool
    async def first() -> str:
        """Wait for the second."""
        await second_done.wait()
        return "1"

    @tool
    async def second() -> str:
        """Return at once."""
        second_done.set()
        return "2"

    result = await run(
        Script(calls("first", "second"), "x"), "go", tools=[first, second], on_event=events.append
    )

    assert [event.message.text for event in events if isinstance(event, ToolEnd)] == ["2", "1"]
    assert results(result.messages) == ["1", "2"]
    assert {event.call.name for event in events if isinstance(event, ToolStart)} == {
        "first",
        "second",
    }


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_thousands_of_calls_run_as_one_batch() -> None:
    count = 2_000
    named = [call("noop", id="same") for _ in range(count)]

    result = await run(Script(calls(*named), "x"), "go", tools=[noop])

    assert (result.outcome, result.turns, len(result.messages)) == ("done", 1, count + 3)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "raed_file",
            "unknown tool 'raed_file'; did you mean read_file?; there are: list_dir, read_file",
        ),
        ("zzz", "unknown tool 'zzz'; there are: list_dir, read_file"),
    ],
)
async def test_the_result_of_an_unknown_tool_lists_similar_names(name: str, expected: str) -> None:
    @tool
    async def read_file() -> str:
        """Read."""
        return ""

    @tool
    async def list_dir() -> str:
        """List."""
        return ""

    result = await run(Script(calls(name), "x"), "go", tools=[read_file, list_dir])

    assert results(result.messages) == [expected]


class PlainTool:
    """A tool with only the required attributes."""

    alone = False
    advisory = False

    def __init__(self, act: Any, name: str = "plain") -> None:
        self.spec = ToolSpec(name=name)
        self.act = act

    async def invoke(self, call: ToolCall, context: Context[Any]) -> ToolResult:
        return self.act(context)  # type: ignore[no-any-return]


async def test_at_most_three_similar_names_are_listed() -> None:
    tools = [PlainTool(None, name=f"read_file_{letter}") for letter in "abcd"]

    result = await run(Script(calls("read_file_e"), "x"), "go", tools=tools)

    hint = results(result.messages)[0].split(";")[1]
    assert hint.count("read_file") == 3


@pytest.mark.parametrize(
    ("count", "listed"),
    [(40, "t38, t39"), (41, "t38, t39 and 1 more"), (45, "t38, t39 and 5 more")],
)
async def test_up_to_forty_tools_are_listed_for_an_unknown_name(count: int, listed: str) -> None:
    tools = [PlainTool(None, name=f"t{number:02}") for number in range(count)]

    result = await run(Script(calls("xyz"), "x"), "go", tools=tools)

    (text,) = results(result.messages)
    assert text.startswith("unknown tool 'xyz'; there are: t00, t01, ")
    assert text.endswith(f", {listed}")


async def test_a_run_detaches_everything_from_its_cancel_token() -> None:
    class Counted(Cancel):
        attached = 0

        def attach(self, action: Any) -> None:
            Counted.attached += 1
            super().attach(action)

        def detach(self, action: Any) -> None:
            Counted.attached -= 1
            super().detach(action)

    await run(
        Script(calls("plain"), "x"),
        "go",
        tools=[PlainTool(lambda _: text_result("ok"))],
        cancel=Counted(),
    )

    assert Counted.attached == 0


async def test_an_exception_of_a_tool_becomes_an_error_result() -> None:
    def wrong(context: Context[Any]) -> ToolResult:
        raise ToolError("say it better")

    def bug(context: Context[Any]) -> ToolResult:
        raise KeyError("x")

    events: list[Event] = []

    rejected = await run(Script(calls("plain"), "x"), "go", tools=[PlainTool(wrong)])
    failed = await run(
        Script(calls("plain"), "x"), "go", tools=[PlainTool(bug)], on_event=events.append
    )

    assert results(rejected.messages) == ["say it better"]
    assert results(failed.messages) == ["KeyError: 'x'"]
    (end,) = [event for event in events if isinstance(event, ToolEnd)]
    assert "Traceback" in end.traceback
    assert end.message.is_error
    assert 0 <= end.seconds < 60


async def test_an_exception_of_a_tool_is_logged_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
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


async def test_a_return_value_that_is_not_a_tool_result_becomes_an_error_result() -> None:
    result = await run(
        Script(calls("plain", "plain"), "x"), "go", tools=[PlainTool(lambda _: "ok")]
    )

    assert (
        results(result.messages)
        == ["TypeError: tool 'plain' must return a glue.ToolResult, not 'ok'"] * 2
    )


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
async def test_s132_a_result_with_invalid_content_or_meta_becomes_an_error_result(
    content: Any, meta: Any
) -> None:
    @tool
    async def invalid() -> Any:
        """Return an invalid result."""
        return ToolResult(content=content, meta=meta)

    result = await run(Script(calls("invalid"), "x"), "go", tools=[invalid])

    assert (result.outcome, result.messages[2].is_error) == (Outcome.DONE, True)  # type: ignore[union-attr]
    assert "of a ToolResult" in result.messages[2].text


async def test_the_context_of_a_tool_has_session_run_call_limits_and_spending() -> None:
    seen: list[Context[Any]] = []

    def look(context: Context[Any]) -> ToolResult:
        seen.append(context)
        return ToolResult(content=(Text(text="ok"),))

    host = Host(session_id="s", deps={"a": 1}, run_id="r")
    limits = Limits(max_turns=5)

    await run(
        Script(calls(call("plain", id="c1")), calls("plain"), "x"),
        "go",
        tools=[PlainTool(look)],
        host=host,
        limits=limits,
    )
    await run(
        Script(calls("plain"), "x"), "go", tools=[PlainTool(look)], limits=Limits(max_turns=None)
    )

    await run(Script(calls("plain")), "go", tools=[PlainTool(look)], limits=Limits(max_turns=1))

    first, second, third, last = seen
    assert (first.session_id, first.run_id, first.deps, first.call.id) == ("s", "r", {"a": 1}, "c1")
    assert (first.turns_left, second.turns_left, third.turns_left, last.turns_left) == (
        4,
        3,
        None,
        0,
    )
    assert first.limits is limits
    assert not first.cancelled
    assert first.spending.requests == 3


async def test_progress_reported_by_a_tool_is_emitted_as_an_event() -> None:
    events: list[Event] = []

    @tool
    async def work(context: Context[None]) -> str:
        """Work."""
        context.progress("half", {"done": 0.5})
        return "ok"

    await run(Script(calls("work"), "x"), "go", tools=[work], on_event=events.append)

    updates = [(e.text, e.data) for e in events if type(e).__name__ == "ToolUpdate"]  # type: ignore[union-attr]
    assert updates == [("half", {"done": 0.5})]


async def test_the_time_limit_ends_a_batch() -> None:
    @tool
    async def hang() -> str:
        """Never return."""
        await anyio.sleep_forever()
        return ""

    @tool
    async def quick() -> str:
        """Return at once."""
        return "ok"

    result = await run(
        Script(calls("quick", "hang"), "x"), "go", tools=[quick, hang], limits=Limits(seconds=0.05)
    )

    assert (result.outcome, shape(result.messages)) == ("budget", "u a t t")
    assert results(result.messages) == ["ok", "cancelled"]
    assert isinstance(last := result.messages[1], AssistantMessage)
    assert last.stop_reason == "token_budget"


async def test_a_cancelled_tool_gets_an_end_event() -> None:
    events: list[Event] = []
    cancel = Cancel()

    @tool
    async def hang() -> str:
        """Never return."""
        cancel.cancel()
        await anyio.sleep_forever()
        return ""

    script = Script(calls(call("hang", id="a"), call("hang", id="b")))

    await run(
        script,
        "go",
        tools=[hang],
        on_event=events.append,
        cancel=cancel,
        limits=Limits(parallel_tools=1),
    )

    assert [event.call.id for event in events if isinstance(event, ToolStart)] == ["a"]
    assert [(e.call.id, e.message.text) for e in events if isinstance(e, ToolEnd)] == [
        ("a", "cancelled")
    ]


async def test_s104_a_cancelled_batch_keeps_its_results_and_answers_the_other_calls() -> None:
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
    assert_valid(result.messages)


async def test_s104_a_cancel_ends_the_wait_for_a_permission() -> None:
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
        results.append(
            await run(Script(calls("delete")), "go", tools=[delete], cancel=cancel, host=host)
        )

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(go)
        await waiting.wait()
        cancel.cancel()

    assert (results[0].outcome, shape(results[0].messages)) == ("cancelled", "u a t")
    assert_valid(results[0].messages)


async def test_s104_a_run_cancelled_at_the_start_of_a_tool_answers_every_call() -> None:
    result = await run_cancelled_at(ToolStart, Script(calls("noop", "noop")))

    assert (result.outcome, shape(result.messages)) == ("cancelled", "u a t t")
    assert_valid(result.messages)


async def test_no_tool_is_started_after_a_cancel() -> None:
    ran: list[str] = []

    @tool(alone=True)
    async def first(context: Context[None]) -> str:
        """Cancel the run, and return."""
        context.cancel.cancel()
        return "ok"

    @tool(alone=True)
    async def second() -> str:
        """Record the call."""
        ran.append("second")
        return "ok"

    result = await run(Script(calls("first", "second")), "go", tools=[first, second])

    assert (result.outcome, ran) == ("cancelled", [])
    assert [message.text for message in result.messages[2:]] == ["ok", "cancelled"]


@pytest.mark.parametrize("error", [SystemExit(2), KeyboardInterrupt(), Quit("now")])
@pytest.mark.parametrize("threaded", [True, False])
@pytest.mark.parametrize("alone", [True, False])
async def test_s117_a_base_exception_of_a_tool_leaves_a_result_for_every_call(
    error: BaseException, threaded: bool, alone: bool
) -> None:
    @tool(name="leave")
    def in_a_thread() -> str:
        """Raise the error."""
        raise error

    @tool(name="leave")
    async def in_the_loop() -> str:
        """Raise the error."""
        raise error

    @tool
    async def wait() -> str:
        """Wait for ever."""
        await anyio.sleep_forever()
        return ""

    events: list[Event] = []
    journal = RecordingJournal()
    leave: Any = in_a_thread if threaded else in_the_loop
    batch = calls("noop", "leave") if alone else calls("wait", "leave", "noop")
    limits = Limits(parallel_tools=1 if alone else 8)

    with pytest.raises(type(error)) as caught:
        await run(
            Script(batch),
            "go",
            tools=[noop, wait, leave],
            limits=limits,
            on_event=events.append,
            journal=journal,
        )

    assert caught.value is error
    result = caught.value.result  # type: ignore[attr-defined]
    assert shape(result.messages) == ("u a t t" if alone else "u a t t t")
    assert_valid(result.messages)
    assert journal.messages == list(result.messages[1:])
    assert ends(events) == [str(result.outcome)]
    assert result.outcome is (
        Outcome.CANCELLED if isinstance(error, KeyboardInterrupt) else Outcome.FAILED
    )
    assert any(type(error).__name__ in text for text in texts(result.messages))
    started = [event.call.id for event in events if isinstance(event, ToolStart)]
    assert sorted(started) == sorted(
        event.call.id for event in events if isinstance(event, ToolEnd)
    )


async def test_s117_the_first_of_two_base_exceptions_is_raised() -> None:
    @tool
    async def leave() -> str:
        """Raise SystemExit."""
        raise SystemExit(3)

    @tool
    async def follow() -> str:
        """Raise another exception when the call is cancelled."""
        try:
            await anyio.sleep_forever()
        finally:
            raise Quit

    with pytest.raises(SystemExit) as caught:
        await run(Script(calls("follow", "leave")), "go", tools=[leave, follow])

    assert_valid(caught.value.result.messages)  # type: ignore[attr-defined]


async def test_s081_a_vote_to_end_wins_over_steering_and_follow_up() -> None:
    steering, follow_up = Queue("steer"), Queue("more")

    result = await run(
        Script(calls("term")),
        "go",
        tools=[term],
        policies=[Steering(steering), FollowUp(follow_up)],
    )

    assert (result.requests, result.outcome, steering.polls, follow_up.polls) == (1, "done", 1, 0)
    assert shape(result.messages) == "u u a t"
    assert result.stop_reason is StopReason.TOOL_USE


async def test_s082_a_vote_to_end_must_be_unanimous() -> None:
    result = await run(Script(calls("term", "noop"), "x"), "go", tools=[term, noop])

    assert result.requests == 2


@tool(advisory=True)
async def hint() -> ToolResult:
    """Return a hint."""
    return ToolResult(content=(Text(text="hm"),))


@tool(terminates=True)
async def broken() -> str:
    """Fail, although a result would end the run."""
    raise RuntimeError("broken")


@pytest.mark.parametrize(
    ("named", "requests"),
    [
        (("term", "hint"), 1),
        (("hint",), 2),
        (("term", "nope"), 2),
        (("broken",), 2),
        (("term", "term"), 1),
    ],
)
async def test_s083_advisory_unknown_and_failing_tools_cannot_end_a_run(
    named: tuple[str, ...], requests: int
) -> None:
    result = await run(Script(calls(*named), "x"), "go", tools=[term, hint, broken])

    assert result.requests == requests


async def test_a_vote_to_end_wins_over_the_time_limit() -> None:
    @tool(terminates=True)
    async def late() -> str:
        """End the run after its time limit."""
        current[0] = Limits(seconds=0)
        return "bye"

    current = [Limits(seconds=60)]

    result = await run(Script(calls("late")), "go", tools=[late], limits=lambda: current[0])

    assert result.outcome is Outcome.DONE


async def test_message_events_have_the_id_of_the_stored_message() -> None:
    events: list[Event] = []

    result = await run(Script(say("abc", chunk=1)), "go", on_event=events.append)

    started = [event.id for event in events if isinstance(event, MessageStart)]
    assert started == [message.id for message in result.messages]
    assert names(events).count("TextDelta") == 3


async def test_a_reply_without_deltas_has_a_message_start_event() -> None:
    events: list[Event] = []

    result = await run(ReplyProvider(reply(Text(text="hi"))), "go", on_event=events.append)

    started = [event.id for event in events if isinstance(event, MessageStart)]
    assert started == [message.id for message in result.messages]


async def test_a_notice_of_a_provider_is_emitted_and_logged_before_the_reply_starts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    notice = Notice(provider="fake", text=f"the model is slow today ({new_id()})")
    events: list[Event] = []

    result = await run(
        EventProvider(notice, TextDelta(text="hi"), Done(message=reply(Text(text="hi")))),
        "go",
        on_event=events.append,
    )

    assert result.text == "hi"
    assert [record.getMessage() for record in caplog.records] == [f"fake: {notice.text}"]
    about = [each for each in events if isinstance(each, (Notice, MessageStart, TextDelta))]
    assert about[1] == notice
    assert names(about) == ["MessageStart", "Notice", "MessageStart", "TextDelta"]


async def test_a_listener_that_drains_is_awaited_after_each_delta() -> None:
    class Paced:
        seen = drained = 0

        def __call__(self, event: Event) -> None:
            self.seen += isinstance(event, TextDelta)

        async def drain(self) -> None:
            self.drained += 1
            assert self.drained == self.seen

    paced = Paced()
    deltas = [TextDelta(text=text) for text in "abc"]

    await run(EventProvider(*deltas, Done(message=reply(Text(text="abc")))), "go", on_event=paced)

    assert paced.drained == paced.seen == 3


async def test_calls_with_equal_ids_are_numbered() -> None:
    ids = ["a", "a", "a_2", "a"]
    parts = tuple(ToolCall(id=each, name="noop", arguments="{}") for each in ids)
    batch = reply(*parts, stop=StopReason.TOOL_USE)

    result = await run(ReplyProvider(batch), "go", tools=[noop], limits=Limits(max_turns=1))

    named = [each.call_id for each in result.messages if isinstance(each, ToolMessage)]
    assert named == ["a", "a_2", "a_2_2", "a_3"]
    assert named == [part.id for part in result.messages[1].calls]  # type: ignore[union-attr]


async def test_s132_duplicate_ids_of_calls_are_renamed() -> None:
    twice = ToolCall(id="a", name="noop", arguments="{}")
    other = ToolCall(id="a_2", name="noop", arguments="{}")

    result = await run(
        ReplyProvider(reply(twice, other, twice), reply(Text(text="x"))), "go", tools=[noop]
    )

    assert [message.call_id for message in result.messages if hasattr(message, "call_id")] == [
        "a",
        "a_2",
        "a_3",
    ]
    assert_valid(result.messages)


@pytest.mark.parametrize(
    ("given", "taken", "raw"), [("end_turn", "end_turn", None), ("zzz", "unknown", "zzz")]
)
async def test_s132_a_stop_reason_given_as_text_becomes_the_enum(
    given: str, taken: str, raw: str | None
) -> None:
    result = await run(ReplyProvider(reply(Text(text="x"), stop=given)), "go")

    last = result.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert (last.stop_reason is StopReason(taken), last.raw_stop_reason) == (True, raw)


async def test_s132_an_invalid_provider_or_reply_is_a_type_error_that_names_it() -> None:
    class Nameless:
        async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
            yield Done(message=reply(Text(text="x")))

    with pytest.raises(TypeError, match="provider must have a name"):
        await run(Nameless(), "go")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"stream of fake must end in Done\(message=glue"):
        await run(ReplyProvider({"role": "assistant"}), "go")

    with pytest.raises(TypeError, match="arguments of a ToolCall must be the JSON text"):
        ToolCall(id="a", name="noop", arguments={"x": 1})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"Image\(\) takes only keyword arguments"):
        Image("x.png")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "content",
    ["text", None, 5, ("text",), (Text(text="a"), None), (Text(text=None),)],  # type: ignore[arg-type]
)
async def test_s132_reply_content_that_is_not_parts_is_a_type_error(content: Any) -> None:
    with pytest.raises(TypeError, match="the content of a reply of fake must be parts") as caught:
        await run(EventProvider(Done(message=AssistantMessage(content=content))), "go")

    assert texts(caught.value.result.messages) == ["go"]  # type: ignore[attr-defined]


async def test_s132_the_parts_of_a_reply_may_be_a_list() -> None:
    parts: Any = [Text(text="fine")]

    result = await run(EventProvider(Done(message=AssistantMessage(content=parts))), "go")

    assert result.messages[-1].content == (Text(text="fine"),)
    assert ToolResult(content=parts).content == (Text(text="fine"),)


async def test_s132_a_delta_without_text_does_not_hide_the_error_of_the_provider() -> None:
    events: list[Event] = []
    no_text: Any = None
    provider = EventProvider(TextDelta(text="half"), TextDelta(text=no_text), ZeroDivisionError())

    with pytest.raises(ZeroDivisionError) as caught:
        await run(provider, "go", on_event=events.append)

    assert caught.value.result.text == "half"  # type: ignore[attr-defined]
    assert [event.message.text for event in events if isinstance(event, MessageEnd)] == [
        "go",
        "half",
    ]


class FailsAtOnce:
    """A provider whose `stream` raises an error when it is called."""

    name = "plain"

    def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        raise fail("auth")


async def test_an_error_raised_before_the_stream_begins_is_a_failed_outcome() -> None:
    result = await run(FailsAtOnce(), "go")

    assert (result.outcome, shape(result.messages)) == ("failed", "u")


async def test_s057_a_stream_without_a_final_event_or_text_is_an_empty_reply() -> None:
    result = await run(Script(say("", terminal=False)), "go")

    assert isinstance(result.error, EmptyReply)


async def test_a_stream_that_ends_after_some_text_is_a_protocol_error() -> None:
    result = await run(Script(say("half an", terminal=False)), "go")

    assert isinstance(result.error, ProviderError)
    assert (result.error.kind, result.error.emitted, shape(result.messages)) == (
        "protocol",
        True,
        "u",
    )


@pytest.mark.parametrize("kind", ["transient", "content_filter", "context_overflow"])
async def test_the_text_of_a_reply_that_failed_is_discarded(kind: Any) -> None:
    events: list[Event] = []

    result = await run(Script(say("half an", error=fail(kind))), "go", on_event=events.append)

    ended = [event.message for event in events if isinstance(event, MessageEnd)]
    assert (shape(result.messages), result.text) == ("u", "")
    assert [(message.text, (message.meta or {}).get("discarded")) for message in ended] == [
        ("go", None),
        ("half an", True),
    ]


async def test_s104_a_reply_cancelled_while_streaming_keeps_its_text() -> None:
    result = await run_cancelled_at(TextDelta, Script(say("hello world", chunk=5)))

    assert (result.outcome, result.text, shape(result.messages)) == ("cancelled", "hello", "u a")
    assert result.messages[-1].stop_reason is StopReason.CANCELLED


async def test_s104_the_result_of_a_cancelled_reply_has_only_its_own_text() -> None:
    cancel = Cancel()

    def listen(event: Event) -> None:
        if isinstance(event, TextDelta) and event.text == "hello":
            cancel.cancel()

    provider = Script(calls("noop", text="first"), say("hello world", chunk=5))

    result = await run(provider, "go", tools=[noop], on_event=listen, cancel=cancel)

    assert (result.text, shape(result.messages)) == ("hello", "u a t a")


async def test_a_cancelled_reply_without_deltas_keeps_its_text_and_no_call() -> None:
    message = AssistantMessage(
        content=(Text(text="half"), call("noop")),
        stop_reason=AssistantMessage(content=()).stop_reason,
    )
    cancel = Cancel()

    def listen(event: Event) -> None:
        if type(event).__name__ == "RequestStart":
            cancel.cancel()

    result = await run(ReplyProvider(message), "go", tools=[noop], cancel=cancel, on_event=listen)

    assert (result.outcome, result.text, shape(result.messages)) == ("cancelled", "half", "u a")


async def test_a_cancelled_reply_is_stored_with_the_id_of_its_events() -> None:
    cancel, events = Cancel(), list[Event]()

    def listen(event: Event) -> None:
        events.append(event)
        if isinstance(event, TextDelta):
            cancel.cancel()

    result = await run(Script(say("hello world", chunk=5)), "go", cancel=cancel, on_event=listen)

    started = [event.id for event in events if isinstance(event, MessageStart)]
    ended = [event.message.id for event in events if isinstance(event, MessageEnd)]
    assert started == ended == [message.id for message in result.messages]


async def test_the_time_limit_ends_a_reply_and_keeps_its_text() -> None:
    closed: list[bool] = []

    class Hangs:
        name = "hangs"

        async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
            try:
                yield TextDelta(text="a")
                await anyio.sleep_forever()
            finally:
                closed.append(True)

    events: list[Event] = []

    result = await run(Hangs(), "go", limits=Limits(seconds=0.3), on_event=events.append)

    assert (result.outcome, result.text, shape(result.messages)) == ("budget", "a", "u a")
    assert isinstance(result.error, BudgetExceeded)
    assert (result.error.kind, result.error.limit) == ("seconds", 0.3)
    assert 0.3 <= result.error.used < 300
    assert [(event.kind, event.max) for event in events if isinstance(event, LimitReached)] == [
        ("seconds", 0.3)
    ]
    assert result.stop_reason is StopReason.TOKEN_BUDGET
    assert closed == [True]


async def test_the_usage_of_a_discarded_reply_is_estimated_if_it_is_not_reported() -> None:
    provider = Script(say("x" * 400, stop="max_tokens"), say("yyyy", usage=Usage(output=1)))

    result = await run(with_escalation(provider), "go", request=Request(max_tokens=10))

    assert result.usage.output == 101


async def test_the_usage_of_a_call_is_estimated_if_it_is_not_reported() -> None:
    long_call = calls(call("noop", {"text": "x" * 4000}))

    result = await run(
        Script(repeat(long_call)), "go", tools=[noop], limits=Limits(token_budget=1000)
    )

    assert (result.outcome, result.requests) == ("budget", 1)


async def test_the_usage_of_a_failed_reply_is_estimated_if_it_is_not_reported() -> None:
    estimated = await run(Script(say("x" * 40, error=fail("transient"))), "go")
    reported = await run(
        Script(say("x" * 40, error=fail("transient", usage=Usage(output=3)))), "go"
    )

    assert (estimated.outcome, estimated.usage.output, reported.usage.output) == ("failed", 10, 3)


async def test_the_usage_of_a_cancelled_reply_is_estimated_once() -> None:
    cancel = Cancel()

    def listen(event: Event) -> None:
        if isinstance(event, TextDelta):
            cancel.cancel()

    result = await run(Script(say("x" * 40, chunk=20)), "go", cancel=cancel, on_event=listen)

    assert (result.text, result.usage.output) == ("x" * 20, 5)


async def test_s072_a_failed_attempt_is_reported_although_no_request_is_left() -> None:
    events: list[Event] = []
    provider = with_retries(Script(fail("empty"), "never"))

    result = await run(provider, "go", limits=Limits(max_requests=1), on_event=events.append)

    assert result.outcome is Outcome.MAX_TURNS
    assert [event for event in events if isinstance(event, Attempt)] == list(result.attempts)
    assert [attempt.kind for attempt in result.attempts] == ["empty"]


async def test_a_failed_attempt_is_reported_and_stored_with_the_reply() -> None:
    events: list[Event] = []
    provider = Script(fail("empty", "nothing came"), say("ok"))

    result = await run(with_retries(provider, sleep=no_sleep), "go", on_event=events.append)

    reported = [event for event in events if isinstance(event, Attempt)]
    assert [(attempt.kind, attempt.delay) for attempt in reported] == [("empty", 0.25)]
    last = result.messages[-1]
    assert last.meta is not None
    (stored,) = last.meta["attempts"]
    assert (stored["kind"], stored["provider"], stored["delay"]) == ("empty", "script", 0.25)
    assert stored["seconds"] == round(reported[0].seconds, 6)
    assert "usage" not in stored
    assert "next_cap" not in stored


async def test_the_wait_for_a_permission_is_not_counted_as_time_of_the_tool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, skipped = time.monotonic, [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: real() + skipped[0])
    ended: list[ToolEnd] = []

    class Slow:
        async def decide(self, *question: Any, **details: Any) -> Any:
            skipped[0] += 100.0  # the user makes coffee
            return glue.allow()

    @tool(needs_permission=True)
    async def delete() -> str:
        """Delete everything."""
        skipped[0] += 2.0
        return "deleted"

    def listen(event: Event) -> None:
        if isinstance(event, ToolEnd):
            ended.append(event)

    host = Host(permission=Slow())
    await run(Script(calls("delete"), "ok"), "go", tools=[delete], host=host, on_event=listen)

    assert 2.0 <= ended[0].seconds < 50.0
