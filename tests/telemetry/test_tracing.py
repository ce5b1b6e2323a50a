"""Tracing: spans and metrics of runs, by the GenAI conventions."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from fakes.telemetry import PARENT, TRACE, Backend, attributes
from opentelemetry import trace

import glue
from glue import Agent, Outcome
from glue.messages import AssistantMessage
from glue.permission import DeferAll
from glue.policies import Policy
from glue.provider import Capabilities, Done, capabilities
from glue.providers import new, with_failover
from glue.providers.catalog import ENTRIES
from glue.providers.escalation import with_escalation
from glue.providers.retry import with_retries
from glue.telemetry import OpenTelemetry
from glue.telemetry.tracing import CONTENT, MAX_CONTENT
from glue.testing import Script, call, calls, fail, partial, repeat, say


async def no_sleep(seconds: float) -> None:
    await anyio.lowlevel.checkpoint()


@glue.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@glue.tool
def broken() -> str:
    """Fail."""
    raise LookupError("no such thing")


@glue.tool(needs_permission=True)
def gated() -> str:
    """Return done."""
    return "done"


USAGE = glue.Usage(input=100, output=10, cache_read=40, cache_write=5, reasoning=3, cost=0.25)


def rich() -> Agent[None, None]:
    """Return an agent whose run has parallel tools, a sub-agent, and every kind of attempt.

    The attempts are a retry, a failover, a repair and a continuation.
    """
    child = Agent(
        Script(say("from the child", usage=USAGE)), name="child", instructions="Be a child."
    )
    first = with_retries(
        Script(
            fail("overloaded", "busy", retry_after=0.01),
            fail("auth", "bad key"),
            name="one",
            model="m1",
        ),
        sleep=no_sleep,
    )
    second = Script(
        calls(
            call("add", {"a": 1, "b": 2}),
            call("broken"),
            call("gated"),
            call("child", {"prompt": "hi"}),
            usage=USAGE,
        ),
        calls(partial("add"), stop="max_tokens", usage=USAGE),
        say("half ", stop="max_tokens", usage=USAGE),
        say("and half", usage=USAGE),
        name="two",
        model="m2",
    )
    return Agent(
        with_failover(first, second),
        tools=[add, broken, gated, child.as_tool()],
        instructions="Be thorough.",
        name="parent",
        temperature=1,
        max_tokens=500,
    )


async def test_the_spans_of_a_run_form_one_tree(backend: Backend) -> None:
    result = await rich().session("s1").prompt("go", telemetry=backend.telemetry)

    assert result.outcome is Outcome.DONE
    parents = {(span.name, backend.parent(span)) for span in backend.spans}
    assert parents == {
        ("invoke_agent parent", ""),
        ("chat m1", "invoke_agent parent"),
        ("chat m2", "invoke_agent parent"),
        ("execute_tool add", "invoke_agent parent"),
        ("execute_tool broken", "invoke_agent parent"),
        ("execute_tool gated", "invoke_agent parent"),
        ("execute_tool child", "invoke_agent parent"),
        ("invoke_agent child", "execute_tool child"),
        ("chat script-1", "invoke_agent child"),
    }
    chats = backend.named("chat m")
    assert len(chats) == result.requests  # one for each attempt
    assert [attributes(span).get("error.type") for span in chats][:2] == ["overloaded", "auth"]
    assert [event.name for span in chats[:2] for event in span.events] == [
        "glue.retry",
        "glue.failover",
    ]
    assert attributes(chats[2])["gen_ai.provider.name"] == "two"
    (top,) = backend.named("invoke_agent parent")
    shown = attributes(top)
    assert shown["gen_ai.conversation.id"] == "s1"
    assert (shown["glue.outcome"], shown["glue.requests"]) == ("done", result.requests)
    assert shown["gen_ai.usage.input_tokens"] == 500  # including those of the sub-agent
    assert shown["glue.usage.cost"] == 1.25
    assert {event.name for event in top.events} == {
        "glue.tool_payload_repair",
        "glue.continuation_attempt",
        "glue.continuation_terminated",
    }
    (failed,) = backend.named("execute_tool broken")
    assert attributes(failed)["error.type"] == "LookupError"
    (denied,) = backend.named("execute_tool gated")
    assert attributes(denied)["error.type"] == "tool_error"  # the agent has no permission policy


async def test_metrics_have_the_names_of_the_conventions(backend: Backend) -> None:
    await rich().run("go", telemetry=backend.telemetry)

    points = backend.points()
    assert set(points) == {
        "gen_ai.client.operation.duration",
        "gen_ai.client.token.usage",
        "gen_ai.client.operation.time_to_first_chunk",
        "glue.continuations",
    }
    assert sum(point.value for point in points["glue.continuations"]) == 1
    tokens = {
        (point.attributes["gen_ai.provider.name"], point.attributes["gen_ai.token.type"]): point.sum
        for point in points["gen_ai.client.token.usage"]
    }
    assert tokens[("two", "input")] == 400
    assert tokens[("two", "output")] == 40
    assert tokens[("script", "input")] == 100
    kinds = {
        point.attributes.get("error.type") for point in points["gen_ai.client.operation.duration"]
    }
    assert kinds == {None, "overloaded", "auth"}
    await run_traced(backend, Script(repeat(say("a", stop="max_tokens"))))
    assert backend.points()["glue.truncation_exits"][0].attributes == {"glue.reason": "retry_limit"}


async def test_a_request_has_its_conversation_its_response_id_and_its_server(
    backend: Backend, loopback: Any
) -> None:
    chunk = {"id": "chatcmpl-7", "choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}]}
    body = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()
    server = loopback(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
        b"content-length: %d\r\n\r\n%s" % (len(body), body)
    )
    provider = glue.providers.new("openai:m", base_url=server.url, key="k", retries=False)

    await Agent(provider, telemetry=backend.telemetry).session("demo").run("go")
    await glue.provider.close(provider)

    (span,) = backend.named("chat")
    found = attributes(span)
    assert found["gen_ai.conversation.id"] == "demo"
    assert found["gen_ai.response.id"] == "chatcmpl-7"
    assert (found["server.address"], found["server.port"]) == ("127.0.0.1", server.port)


async def run_traced(backend: Backend, provider: Any, **options: Any) -> Any:
    return await Agent(provider, telemetry=backend.telemetry, **options).run("go", unwrap=False)


# The types that the registry of the conventions gives: model/gen-ai/registry.yaml, and error.type.
TYPES: dict[str, type | tuple[type, ...]] = {
    "error.type": str,
    "gen_ai.agent.name": str,
    "gen_ai.conversation.id": str,
    "gen_ai.input.messages": str,
    "gen_ai.operation.name": str,
    "gen_ai.output.messages": str,
    "gen_ai.output.type": str,
    "gen_ai.prompt.name": str,
    "gen_ai.provider.name": str,
    "gen_ai.request.max_tokens": int,
    "gen_ai.request.model": str,
    "gen_ai.request.stop_sequences": tuple,
    "gen_ai.request.stream": bool,
    "gen_ai.request.temperature": float,
    "gen_ai.response.finish_reasons": tuple,
    "gen_ai.response.id": str,
    "gen_ai.response.model": str,
    "gen_ai.response.time_to_first_chunk": float,
    "gen_ai.system_instructions": str,
    "gen_ai.token.type": str,
    "gen_ai.tool.call.arguments": str,
    "gen_ai.tool.call.id": str,
    "gen_ai.tool.call.result": str,
    "gen_ai.tool.definitions": str,
    "gen_ai.tool.description": str,
    "gen_ai.tool.name": str,
    "gen_ai.tool.type": str,
    "gen_ai.usage.cache_creation.input_tokens": int,
    "gen_ai.usage.cache_read.input_tokens": int,
    "gen_ai.usage.input_tokens": int,
    "gen_ai.usage.output_tokens": int,
    "gen_ai.usage.reasoning.output_tokens": int,
}


def registry() -> set[str]:
    from opentelemetry.semconv._incubating.attributes import error_attributes, gen_ai_attributes

    names = {**vars(gen_ai_attributes), **vars(error_attributes)}
    return {value for name, value in names.items() if name.isupper() and isinstance(value, str)}


async def test_attributes_have_the_names_and_types_of_the_published_registry() -> None:
    from opentelemetry.semconv._incubating.attributes.gen_ai_attributes import (
        GenAiOperationNameValues,
        GenAiOutputTypeValues,
    )
    from opentelemetry.semconv._incubating.metrics import gen_ai_metrics

    backend = Backend(content=True)
    refused = Agent(Script(say("no", stop="refusal")))
    for agent in (rich(), refused):
        await agent.run("go", telemetry=backend.telemetry, unwrap=False)
    await run_traced(backend, Script(fail("quota", "no money")), output={"type": "object"})

    known, seen = registry(), {}
    for span in backend.spans:
        for name, value in attributes(span).items():
            assert name.startswith("glue.") or name in known, name
            if not name.startswith("glue."):
                assert isinstance(value, TYPES[name]), (name, value)
                assert isinstance(value, bool) == (TYPES[name] is bool)
            seen[name] = value
    for name in (
        "gen_ai.tool.call.arguments",
        "gen_ai.system_instructions",
        "gen_ai.tool.definitions",
    ):
        assert name in seen
    operations = {attributes(span)["gen_ai.operation.name"] for span in backend.spans}
    assert operations <= {each.value for each in GenAiOperationNameValues}
    assert operations == {"invoke_agent", "chat", "execute_tool"}
    assert seen.get("gen_ai.output.type", "json") in {each.value for each in GenAiOutputTypeValues}
    published = {value for name, value in vars(gen_ai_metrics).items() if name.isupper()}
    for name, points in backend.points().items():
        assert name.startswith("glue.") or name in published
        for point in points:
            assert all(key.startswith("glue.") or key in known for key in point.attributes)
    kinds = {span.name.split()[0]: span.kind.name for span in backend.spans}
    assert kinds == {"invoke_agent": "INTERNAL", "chat": "CLIENT", "execute_tool": "INTERNAL"}


def test_provider_names_are_those_of_the_published_registry() -> None:
    from opentelemetry.semconv._incubating.attributes.gen_ai_attributes import (
        GenAiProviderNameValues,
    )

    # The name of Moonshot is newer than the package.
    published = {each.value for each in GenAiProviderNameValues} | {"moonshot_ai"}
    named = {row.otel for row in ENTRIES if row.otel}
    assert named <= published
    assert {
        "azure.ai.openai",
        "aws.bedrock",
        "gcp.gemini",
        "gcp.vertex_ai",
        "mistral_ai",
        "x_ai",
    } <= named


class Vendor(Script):
    """A provider whose name in the conventions is different."""

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(otel_names=((self.name, f"{self.name}_ai"),))


async def test_providers_in_a_failover_list_have_the_names_of_the_conventions(
    backend: Backend,
) -> None:
    one, two = Vendor(fail("auth", provider="one"), name="one"), Vendor("hi", name="two")

    await run_traced(backend, with_retries(with_failover(one, two, Script(name="own"))))
    await run_traced(backend, with_retries(Vendor("ho", name="three")))

    names = [attributes(span)["gen_ai.provider.name"] for span in backend.named("chat")]
    assert names == ["one_ai", "two_ai", "three_ai"]
    top = [attributes(span).get("gen_ai.provider.name") for span in backend.named("invoke_agent")]
    assert top == [None, "three_ai"]  # only the attempts of a failover list name a provider


def test_a_failover_list_knows_the_conventional_names_of_its_providers() -> None:
    failover = new("azure:m,openai:m,vertex:m", key="k", base_url="http://localhost:1")

    assert capabilities(failover).otel_names == (
        ("azure", "azure.ai.openai"),
        ("vertex", "gcp.vertex_ai"),
    )


async def test_a_refused_run_is_not_an_error_and_a_failed_run_is(backend: Backend) -> None:
    await run_traced(backend, Script(say("no", stop="refusal")), name="a")
    await run_traced(backend, Script(fail("quota", "no money")), name="b")

    (refused,), (failed,) = backend.named("invoke_agent a"), backend.named("invoke_agent b")
    assert attributes(refused)["glue.outcome"] == "refused"
    assert refused.status.status_code is trace.StatusCode.UNSET
    assert attributes(failed)["error.type"] == "quota"
    assert failed.status.status_code is trace.StatusCode.ERROR


async def test_a_permission_decision_is_an_event_of_the_tool_span(backend: Backend) -> None:
    model = Script(calls("gated"), calls("gated"), "end")
    answers = iter([True, False])

    await run_traced(
        backend, model, tools=[gated], permission=glue.Ask(lambda request: next(answers))
    )

    allowed, denied = backend.named("execute_tool gated")
    assert [
        dict(event.attributes or {})["glue.allowed"] for event in (*allowed.events, *denied.events)
    ] == [
        True,
        False,
    ]
    assert "error.type" not in attributes(allowed)
    assert attributes(denied)["error.type"] == "permission_denied"


async def test_a_permission_decision_in_a_sub_agent_is_an_event_of_the_inner_tool_only(
    backend: Backend,
) -> None:
    child = Agent(Script(calls("gated"), "no luck"), tools=[gated], name="child")
    model = Script(calls(call("child", {"prompt": "go"})), "end")

    await run_traced(backend, model, tools=[child.as_tool()], permission=glue.permission.DenyAll())

    (outer,), (inner,) = backend.named("execute_tool child"), backend.named("execute_tool gated")
    assert ([event.name for event in outer.events], [event.name for event in inner.events]) == (
        [],
        ["glue.permission"],
    )
    assert attributes(inner)["error.type"] == "permission_denied"
    assert "error.type" not in attributes(outer)


async def test_a_retry_with_more_tokens_has_a_span_of_its_own(backend: Backend) -> None:
    model = with_escalation(
        Script(say("cut", stop="max_tokens", usage=USAGE), say("whole", usage=USAGE))
    )

    await run_traced(backend, model, max_tokens=10)

    first, second = backend.named("chat")
    assert [event.name for event in first.events] == ["glue.escalation"]
    assert "error.type" not in attributes(first)
    assert (attributes(first)["glue.attempt"], attributes(second)["glue.attempt"]) == (1, 2)


async def test_a_cancellation_at_any_point_ends_every_span_once(backend: Backend) -> None:
    ended: list[int] = []
    done = False
    tick = 0
    while not done and tick < 400:
        backend.exporter.clear()
        cancel = glue.Cancel()

        async def strike(tick: int = tick, cancel: glue.Cancel = cancel) -> None:
            for _ in range(tick):
                await anyio.lowlevel.checkpoint()
            cancel.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(strike)
            result = await rich().run(
                "go", telemetry=backend.telemetry, cancel=cancel, unwrap=False
            )
            tasks.cancel_scope.cancel()
        done = result.outcome is Outcome.DONE
        starts = [span for span in backend.spans if span.end_time is None]
        assert not starts
        tops = backend.named("invoke_agent parent")
        assert len(tops) == 1
        assert attributes(tops[0])["glue.outcome"] == str(result.outcome)
        assert all(span.parent is not None for span in backend.spans if span is not tops[0])
        ended.append(len(backend.spans))
        tick += 1

    assert done
    assert len(set(ended)) > 3  # the run was cancelled at different places
    assert not trace.get_current_span().get_span_context().is_valid


async def test_spans_of_60_parallel_runs_have_the_right_parents(backend: Backend) -> None:
    async def one(number: int) -> None:
        @glue.tool
        async def wait() -> str:
            """Wait a little."""
            for _ in range(number % 7):
                await anyio.lowlevel.checkpoint()
            return str(number)

        child = Agent(Script(f"child {number}"), name=f"child-{number}")
        model = Script(calls("wait", call("helper", {"prompt": "x"})), say("end", chunk=1))
        agent = Agent(model, tools=[wait, child.as_tool("helper")], name=f"run-{number}")
        await agent.run("go", telemetry=backend.telemetry)

    async with anyio.create_task_group() as tasks:
        for number in range(60):
            tasks.start_soon(one, number)

    tops = {
        span.context.trace_id: span.name
        for span in backend.named("invoke_agent run-")
        if span.context
    }
    assert len(tops) == 60
    assert len(backend.spans) == 60 * 7
    for span in backend.named("invoke_agent child-"):
        assert span.context is not None
        assert tops[span.context.trace_id] == span.name.replace("child", "run")
        assert backend.parent(span) == "execute_tool helper"
    for span in backend.named("execute_tool"):
        assert span.context is not None
        assert backend.parent(span) == tops[span.context.trace_id]


async def test_a_span_created_by_a_tool_is_a_child_of_the_tool_span(backend: Backend) -> None:
    tracer = backend.tracer_provider.get_tracer("the user's")

    @glue.tool
    def threaded() -> str:
        """Work in a thread."""
        with tracer.start_as_current_span("query"):
            return "ok"

    await run_traced(backend, Script(calls("threaded"), "end"), tools=[threaded])

    (query,) = backend.named("query")
    assert backend.parent(query) == "execute_tool threaded"


SECRET = "sk-ant-api03-" + "a1B2" * 20


async def recorded(backend: Backend) -> str:
    """Return the attributes of all spans of a run whose tool returns a secret and a long text."""

    @glue.tool
    def leak() -> str:
        """Return a secret."""
        return f"key={SECRET} " + "x" * 20_000

    await run_traced(backend, Script(calls("leak"), "done"), tools=[leak])
    return json.dumps([attributes(span) for span in backend.spans])


async def test_content_is_not_recorded_by_default(backend: Backend) -> None:
    text = await recorded(backend)

    assert "xxxx" not in text
    assert "messages" not in text


async def test_recorded_content_is_masked_and_shortened() -> None:
    backend = Backend(content=True)

    text = await recorded(backend)

    assert SECRET not in text
    assert "key=" in text
    longest = max(len(str(value)) for span in backend.spans for value in attributes(span).values())
    assert longest < 10_000
    (_, last) = backend.named("chat")
    messages = json.loads(attributes(last)["gen_ai.input.messages"])
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
    assert messages[2]["parts"][0]["type"] == "tool_call_response"


async def test_only_the_last_messages_of_a_long_history_are_recorded() -> None:
    backend = Backend(content=True)
    history = [glue.user(f"{number} " + "y" * 8_000) for number in range(30)]

    await Agent(Script("ok"), telemetry=backend.telemetry).run("the last", message_history=history)

    (chat,) = backend.named("chat")
    text = attributes(chat)["gen_ai.input.messages"]
    assert len(text) <= MAX_CONTENT
    assert json.loads(text)[-1]["parts"][0]["content"] == "the last"


@pytest.mark.parametrize(
    ("value", "wanted"),
    [("", False), ("false", False), ("true", True), ("SPAN_ONLY", True), ("event_only", False)],
)
def test_a_variable_of_the_conventions_switches_content_on(
    monkeypatch: pytest.MonkeyPatch, value: str, wanted: bool
) -> None:
    monkeypatch.setenv(CONTENT, value)

    assert OpenTelemetry().content is wanted


async def test_a_run_continues_the_trace_of_the_environment(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEPARENT", PARENT)

    await run_traced(backend, Script("a"))

    (top,) = backend.named("invoke_agent")
    assert top.context is not None
    assert f"{top.context.trace_id:032x}" == TRACE


async def test_an_mcp_server_receives_the_trace(backend: Backend, tmp_path: Path) -> None:
    mcp = pytest.importorskip("glue.tools.mcp")
    pytest.importorskip("mcp", reason="the extra [mcp] is not installed")
    (tmp_path / "server.py").write_text(MCP_SERVER)

    async with mcp.connect_stdio(
        "demo", sys.executable, [str(tmp_path / "server.py")]
    ) as connection:
        model = Script(calls("demo__meta"), lambda request: request.messages[-1].text)
        agent = Agent(
            model, tools=connection.tools, permission=glue.AllowAll(), telemetry=backend.telemetry
        )
        result = await agent.run("go")

    (tool,) = backend.named("execute_tool demo__meta")
    assert tool.context is not None
    assert f"00-{tool.context.trace_id:032x}-" in result.text


# A server of the older protocol, which needs no SDK. It returns the _meta of the request.
MCP_SERVER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    result = None
    if asked["method"] == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "demo", "version": "1"}}
    elif asked["method"] == "tools/list":
        result = {"tools": [{"name": "meta", "inputSchema": {"type": "object", "properties": {}}}]}
    elif asked["method"] == "tools/call":
        result = {"content": [{"type": "text", "text": json.dumps(asked["params"].get("_meta"))}]}
    body = {"result": result} if result else {"error": {"code": -32601, "message": "unknown"}}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **body}), flush=True)
"""


async def test_the_span_of_a_paused_run_ends_with_its_outcome_and_is_not_an_error(
    backend: Backend,
) -> None:
    await run_traced(
        backend, Script(calls(call("gated"))), name="a", tools=[gated], permission=DeferAll()
    )

    [span] = backend.named("invoke_agent a")
    assert attributes(span)["glue.outcome"] == "paused"
    assert span.end_time is not None
    assert span.status.status_code is trace.StatusCode.UNSET


class Answering:
    """A provider with one reply, which arrives as a whole."""

    name, model = "answering", "m0"

    def __init__(self, base_url: Any = None, **fields: Any) -> None:
        self.http = SimpleNamespace(base_url=base_url)
        self.reply = AssistantMessage(content=(glue.Text(text="hi"),), **fields)

    async def stream(self, request: glue.Request) -> AsyncIterator[Any]:
        yield Done(message=self.reply)


@pytest.mark.parametrize(
    ("base_url", "server"),
    [
        ("https://api.example.com/v1", ("api.example.com", 443)),
        ("http://api.example.com", ("api.example.com", 80)),
        ("http://[::1]:8080", ("::1", 8080)),
        ("", (None, None)),
        (None, (None, None)),
        (lambda: "https://api.example.com", (None, None)),
    ],
)
async def test_a_request_names_the_host_and_port_of_its_provider(
    backend: Backend, base_url: Any, server: tuple[str | None, int | None]
) -> None:
    await run_traced(backend, Answering(base_url))

    found = attributes(backend.named("chat")[0])
    assert (found.get("server.address"), found.get("server.port")) == server


async def test_the_model_of_a_response_is_the_requested_model_if_the_reply_names_none(
    backend: Backend,
) -> None:
    await run_traced(backend, Answering())
    await run_traced(backend, Answering(model="m1", meta={"id": "r1"}, raw_stop_reason="stop"))
    await run_traced(backend, Answering(meta={"id": 7}))

    names = ("gen_ai.response.model", "gen_ai.response.id", "glue.stop_reason.raw")
    shown = [
        (span.name, *(attributes(span).get(name) for name in names))
        for span in backend.named("chat")
    ]
    assert shown == [
        ("chat m0", "m0", None, None),
        ("chat m0", "m1", "r1", "stop"),
        ("chat m0", "m0", None, None),
    ]


async def test_the_time_to_the_first_delta_is_part_of_the_request(backend: Backend) -> None:
    await run_traced(backend, Script(say("a long text", chunk=1)))
    await run_traced(backend, Answering())

    streamed, whole = backend.named("chat")
    assert streamed.end_time is not None
    assert streamed.start_time is not None
    seconds = attributes(streamed)["gen_ai.response.time_to_first_chunk"]
    assert 0 < seconds <= (streamed.end_time - streamed.start_time) / 1e9
    assert "gen_ai.response.time_to_first_chunk" not in attributes(whole)
    [point] = backend.points()["gen_ai.client.operation.time_to_first_chunk"]
    assert (point.count, point.sum) == (1, seconds)


async def test_the_span_of_a_retry_begins_after_the_delay(backend: Backend) -> None:
    busy = fail("overloaded", "busy", retry_after=5.0)

    await run_traced(backend, with_retries(Script(busy, "hi"), sleep=no_sleep))

    first, second = sorted(backend.named("chat"), key=lambda span: attributes(span)["glue.attempt"])
    assert first.end_time is not None
    assert second.start_time is not None
    assert second.start_time - first.end_time >= 4e9
    assert [dict(event.attributes or {}) for event in first.events] == [
        {"glue.kind": "overloaded", "glue.delay": 5.0}
    ]
    durations = [point.sum for point in backend.points()["gen_ai.client.operation.duration"]]
    assert min(durations) >= 0


class Native(Script):
    """A provider that can force a reply to match a JSON schema."""

    capabilities = Capabilities(takes_output=lambda schema, *, tools=False: True)


async def test_a_structured_answer_is_requested_as_json(backend: Backend) -> None:
    await run_traced(backend, Native('{"n": 1}'), output={"type": "object"})
    await run_traced(backend, Script("hi"), reasoning="low")

    first, second = (attributes(span) for span in backend.named("chat"))
    assert first["gen_ai.output.type"] == "json"
    assert "gen_ai.output.type" not in second
    assert second["glue.request.reasoning"] == "low"
    assert "gen_ai.request.temperature" not in second


async def test_the_text_of_a_nudge_is_not_recorded(backend: Backend) -> None:
    await run_traced(backend, Native("no JSON", '{"n": 1}'), output={"type": "object"})

    (top,) = backend.named("invoke_agent")
    assert [(event.name, dict(event.attributes or {})) for event in top.events] == [
        ("glue.nudge", {"glue.policy": "output"})
    ]


async def test_a_failed_request_has_the_usage_and_model_of_its_error(backend: Backend) -> None:
    lost = fail("transient", "cut", provider="p", model="m9", usage=USAGE)

    await run_traced(backend, Script(lost))

    (chat,) = backend.named("chat")
    assert chat.name == "chat m9"
    assert attributes(chat)["gen_ai.usage.input_tokens"] == 100
    assert attributes(chat)["error.type"] == "transient"
    assert not chat.events  # the exception itself is not recorded, because it may have content


async def test_durations_are_shorter_than_their_spans(backend: Backend) -> None:
    model = Script(calls("gated"), "end")

    await run_traced(backend, model, tools=[gated], permission=glue.AllowAll())

    (tool,) = backend.named("execute_tool")
    (event,) = tool.events
    assert tool.end_time is not None
    assert tool.start_time is not None
    waited = dict(event.attributes or {})["glue.seconds"]
    assert isinstance(waited, float)
    assert 0 <= waited <= (tool.end_time - tool.start_time) / 1e9
    total = sum(point.sum for point in backend.points()["gen_ai.client.operation.duration"])
    (top,) = backend.named("invoke_agent")
    assert top.end_time is not None
    assert top.start_time is not None
    assert 0 < total <= (top.end_time - top.start_time) / 1e9


def test_metrics_advise_the_buckets_of_the_conventions(backend: Backend) -> None:
    backend.telemetry.tokens.record(1)
    backend.telemetry.duration.record(1)

    points = backend.points()
    tokens = points["gen_ai.client.token.usage"][0].explicit_bounds
    seconds = points["gen_ai.client.operation.duration"][0].explicit_bounds
    assert tuple(tokens) == tuple(4**power for power in range(14))
    assert (seconds[0], seconds[-1], len(seconds)) == (0.01, 81.92, 14)


async def test_events_of_the_loop_have_their_fields_without_unknown_values(
    backend: Backend,
) -> None:
    model = Script(calls(partial("add"), stop="max_tokens"), "sorry")

    await run_traced(backend, model, tools=[add])

    (top,) = backend.named("invoke_agent")
    shown = [(event.name, dict(event.attributes or {})) for event in top.events]
    cut = {"glue.issue": "cut_off", "glue.tool": "add", "glue.attempted": True}
    gone = {**cut, "glue.issue": "abandoned", "glue.success": False}
    assert shown == [("glue.tool_payload_repair", cut), ("glue.tool_payload_repair", gone)]


async def test_a_list_of_an_event_is_recorded_as_texts(backend: Backend) -> None:
    class Hint(Policy):
        def before_request(self, state: Any, request: glue.Request) -> Any:
            hint = glue.UserMessage(id="hint", content=(glue.Text(text="be brief"),))
            return replace(request, messages=(*request.messages, hint))

    await run_traced(backend, Script("hi"), policies=[Hint()])

    (top,) = backend.named("invoke_agent")
    (event,) = top.events
    found = dict(event.attributes or {})
    assert (event.name, found["glue.policy"]) == ("glue.context_changed", "Hint")
    assert found["glue.added"] == ("hint",)
    assert "glue.removed" not in found


LONG = "x" * 8_192


@pytest.mark.parametrize(
    ("text", "recorded"),
    [(LONG, LONG), (LONG + "yz", f"{LONG} [2 characters more]")],
    ids=["whole", "cut"],
)
async def test_a_long_text_is_recorded_with_the_number_of_missing_characters(
    text: str, recorded: str
) -> None:
    backend = Backend(content=True)

    await Agent(Script("ok"), telemetry=backend.telemetry).run(text)

    (chat,) = backend.named("chat")
    [message] = json.loads(attributes(chat)["gen_ai.input.messages"])
    assert message == {"role": "user", "parts": [{"type": "text", "content": recorded}]}
    assert not attributes(chat).keys() & {"gen_ai.system_instructions", "gen_ai.tool.definitions"}


@pytest.mark.parametrize(("surplus", "kept"), [(0, 9), (1, 8)])
async def test_messages_are_recorded_as_far_as_they_fit(surplus: int, kept: int) -> None:
    backend = Backend(content=True)
    empty = json.dumps({"role": "user", "parts": [{"type": "text", "content": ""}]})
    size = (MAX_CONTENT - 2) // 9 - 2 - len(empty)
    rest = MAX_CONTENT - 2 - 9 * (size + 2 + len(empty))
    texts = ["a" * (size + rest + surplus), *["b" * size] * 8]
    *history, last = map(glue.user, texts)

    await Agent(Script("ok"), telemetry=backend.telemetry).run([last], message_history=history)

    (chat,) = backend.named("chat")
    text = attributes(chat)["gen_ai.input.messages"]
    assert len(json.loads(text)) == kept
    assert len(text) <= MAX_CONTENT


async def test_every_kind_of_part_is_recorded_without_its_bytes() -> None:
    backend = Backend(content=True)
    picture = glue.Image(media_type="image/png", data=b"secret bytes")
    script = Script(
        calls(call("add", {"a": 1, "b": 2}, id="c1"), text="Adding."), say("3", thinking="hm")
    )

    await Agent(script, tools=[add], telemetry=backend.telemetry).run(["look", picture])

    first, second = backend.named("chat")
    user, asked, result = json.loads(attributes(second)["gen_ai.input.messages"])
    assert user["parts"] == [{"type": "text", "content": "look"}, {"type": "image"}]
    assert asked == {
        "role": "assistant",
        "parts": [
            {"type": "text", "content": "Adding."},
            {"type": "tool_call", "id": "c1", "name": "add", "arguments": '{"a": 1, "b": 2}'},
        ],
    }
    assert result["parts"] == [{"type": "tool_call_response", "id": "c1", "response": "3"}]
    [answered] = json.loads(attributes(second)["gen_ai.output.messages"])
    assert answered == {
        "role": "assistant",
        "parts": [{"type": "reasoning", "content": "hm"}, {"type": "text", "content": "3"}],
        "finish_reason": "end_turn",
    }
    assert json.loads(attributes(first)["gen_ai.tool.definitions"])[0]["name"] == "add"
    (ran,) = backend.named("execute_tool")
    assert attributes(ran)["gen_ai.tool.call.result"] == "3"
    assert attributes(ran)["gen_ai.tool.call.arguments"] == '{"a": 1, "b": 2}'


async def test_a_current_span_is_the_parent_instead_of_the_environment(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEPARENT", PARENT)

    with backend.tracer_provider.get_tracer("mine").start_as_current_span("mine"):
        await run_traced(backend, Script("a"))

    (top,) = backend.named("invoke_agent")
    assert backend.parent(top) == "mine"


def test_a_continued_trace_ends_with_its_block(backend: Backend) -> None:
    with backend.telemetry.continued({"traceparent": PARENT, "limits": 3}):
        inside = trace.get_current_span().get_span_context()
    outside = trace.get_current_span().get_span_context()

    assert f"{inside.trace_id:032x}" == TRACE
    assert not outside.is_valid


async def test_a_failed_call_was_denied_only_if_a_policy_denied_it(backend: Backend) -> None:
    agent = Agent(
        Script(calls(call("broken"), call("gated")), "ok"),
        tools=[broken, gated],
        permission=glue.Rules(deny=["gated"]),
    )

    await agent.run("go", telemetry=backend.telemetry)

    errors = {span.name: attributes(span)["error.type"] for span in backend.named("execute_tool ")}
    assert errors == {
        "execute_tool broken": "LookupError",
        "execute_tool gated": "permission_denied",
    }


async def test_the_arguments_of_a_call_are_recorded_only_with_content() -> None:
    for content in (False, True):
        backend = Backend(content=content)
        agent = Agent(Script(calls(call("add", {"a": 1, "b": 2})), "ok"), tools=[add])

        await agent.run("go", telemetry=backend.telemetry)

        (span,) = backend.named("execute_tool add")
        assert ("gen_ai.tool.call.arguments" in attributes(span)) is content
