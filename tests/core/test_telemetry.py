"""Metrics count from events alone; OpenTelemetry gets spans and metrics by the GenAI conventions."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import anyio
import pytest

import glue
from glue import Agent, Limits, Outcome, run, telemetry
from glue.errors import ConfigError
from glue.provider import Capabilities, capabilities
from glue.providers import new, with_failover
from glue.providers.catalog import ROWS
from glue.providers.retry import with_escalation, with_retries
from glue.telemetry import CONTENT, Histogram, Metrics, OpenTelemetry
from glue.testing import Script, call, calls, fail, partial, repeat, say

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")

from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


async def test_continuations_and_their_ends_are_counted() -> None:
    metrics = Metrics()

    await run(Script(say("a", stop="max_tokens"), "b"), "go", on_event=metrics)
    await run(Script(repeat(say("a", stop="max_tokens"))), "go", on_event=metrics.listener())
    await run(Script("x"), "go", on_event=metrics)

    assert metrics.continuations == {("script", "script-1"): 4}
    assert metrics.truncation_exits == {"retry_limit": 1}
    assert metrics.outcomes == {"done": 2, "truncated": 1}
    assert metrics.attempts_per_run.counts == [1, 1, 0, 1, 0, 0, 0]
    assert (metrics.attempts_per_run.count, metrics.attempts_per_run.total) == (3, 4)
    assert metrics.seconds_per_continued_run.count == 2


async def test_a_truncation_without_a_chain_is_counted() -> None:
    metrics = Metrics()

    for script in (Script(say("", stop="max_tokens")), Script(calls(partial("x"), stop="max_tokens"))):
        await run(script, "go", on_event=metrics, limits=Limits(continuation_tool_repair_attempts=0))

    assert metrics.truncation_exits == {"not_continued": 2}


def test_a_histogram_counts_at_or_below_a_bound() -> None:
    histogram = Histogram((1, 2))

    for value in (0, 1, 1.5, 2, 3):
        histogram.observe(value)

    assert histogram.counts == [2, 2, 1]


# OpenTelemetry ------------------------------------------------------------------------------------


class Backend:
    """The SDK, keeping everything in memory."""

    def __init__(self, content: bool = False) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self._names: dict[int, str] = {}  # of the spans that have ended
        self.tracer_provider = TracerProvider()
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meter_provider = MeterProvider(metric_readers=[self.reader])
        self.telemetry = OpenTelemetry(
            tracer_provider=self.tracer_provider, meter_provider=self.meter_provider, content=content
        )

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    def named(self, prefix: str) -> list[ReadableSpan]:
        return sorted(
            (span for span in self.spans if span.name.startswith(prefix)), key=lambda span: span.end_time or 0
        )

    def parent(self, span: ReadableSpan) -> str:
        if span.parent is None:
            return ""
        if span.parent.span_id not in self._names:
            self._names = {each.context.span_id: each.name for each in self.spans if each.context}
        return self._names[span.parent.span_id]

    def points(self) -> dict[str, list[Any]]:
        data = self.reader.get_metrics_data()
        found: dict[str, list[Any]] = {}
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    found[metric.name] = list(metric.data.data_points)
        return found


@pytest.fixture
def backend() -> Iterator[Backend]:
    made = Backend()
    yield made
    made.tracer_provider.shutdown()
    made.meter_provider.shutdown()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


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
    """Do something that is asked about."""
    return "done"


USAGE = glue.Usage(input=100, output=10, cache_read=40, cache_write=5, reasoning=3, cost=0.25)


def rich() -> Agent[None, None]:
    """An agent that meets tools in parallel, a sub-agent, a retry, a failover, a repair and a continuation."""
    child = Agent(Script(say("from the child", usage=USAGE)), name="child", instructions="Be a child.")
    first = with_retries(
        Script(fail("overloaded", "busy", retry_after=0.01), fail("auth", "bad key"), name="one", model="m1"),
        sleep=no_sleep,
    )
    second = Script(
        calls(
            call("add", {"a": 1, "b": 2}), call("broken"), call("gated"), call("child", {"prompt": "hi"}), usage=USAGE
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


async def test_a_rich_run_is_one_tree(backend: Backend) -> None:
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
    assert [event.name for span in chats[:2] for event in span.events] == ["glue.retry", "glue.failover"]
    assert attributes(chats[2])["gen_ai.provider.name"] == "two"
    (top,) = backend.named("invoke_agent parent")
    shown = attributes(top)
    assert shown["gen_ai.conversation.id"] == "s1"
    assert (shown["glue.outcome"], shown["glue.requests"]) == ("done", result.requests)
    assert shown["gen_ai.usage.input_tokens"] == 500  # the child's included
    assert shown["glue.usage.cost"] == 1.25
    assert {event.name for event in top.events} == {
        "glue.tool_payload_repair",
        "glue.continuation_attempt",
        "glue.continuation_terminated",
    }
    (failed,) = backend.named("execute_tool broken")
    assert attributes(failed)["error.type"] == "LookupError"
    (denied,) = backend.named("execute_tool gated")
    assert attributes(denied)["error.type"] == "tool_error"  # no policy was there to ask


async def test_metrics_by_the_conventions(backend: Backend) -> None:
    await rich().run("go", telemetry=backend.telemetry)

    points = backend.points()
    assert set(points) == {
        "gen_ai.client.operation.duration",
        "gen_ai.client.token.usage",
        "gen_ai.client.operation.time_to_first_chunk",
        "glue.continuations",
    }
    tokens = {
        (point.attributes["gen_ai.provider.name"], point.attributes["gen_ai.token.type"]): point.sum
        for point in points["gen_ai.client.token.usage"]
    }
    assert tokens[("two", "input")] == 400
    assert tokens[("two", "output")] == 40
    assert tokens[("script", "input")] == 100
    kinds = {point.attributes.get("error.type") for point in points["gen_ai.client.operation.duration"]}
    assert kinds == {None, "overloaded", "auth"}
    await run_traced(backend, Script(repeat(say("a", stop="max_tokens"))))
    assert backend.points()["glue.truncation_exits"][0].attributes == {"glue.reason": "retry_limit"}


async def run_traced(backend: Backend, provider: Any, **options: Any) -> Any:
    return await Agent(provider, telemetry=backend.telemetry, **options).run("go", unwrap=False)


# Of the conventions' registry: model/gen-ai/registry.yaml, and error.type of the general one.
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


async def test_names_and_types_are_those_of_the_published_registry() -> None:
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
    for name in ("gen_ai.tool.call.arguments", "gen_ai.system_instructions", "gen_ai.tool.definitions"):
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


def test_provider_names_are_those_of_the_registry() -> None:
    from opentelemetry.semconv._incubating.attributes.gen_ai_attributes import GenAiProviderNameValues

    published = {each.value for each in GenAiProviderNameValues} | {"moonshot_ai"}  # newer than the package
    named = {row.otel for row in ROWS if row.otel}
    assert named <= published
    assert {"azure.ai.openai", "aws.bedrock", "gcp.gemini", "gcp.vertex_ai", "mistral_ai", "x_ai"} <= named


class Vendor(Script):
    """A model whose provider is known to the conventions under another name."""

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(otel_names=((self.name, f"{self.name}_ai"),))


async def test_a_provider_has_the_name_of_the_conventions_also_inside_a_chain(backend: Backend) -> None:
    one, two = Vendor(fail("auth", provider="one"), name="one"), Vendor("hi", name="two")

    await run_traced(backend, with_retries(with_failover(one, two, Script(name="own"))))
    await run_traced(backend, with_retries(Vendor("ho", name="three")))

    names = [attributes(span)["gen_ai.provider.name"] for span in backend.named("chat")]
    assert names == ["one_ai", "two_ai", "three_ai"]
    top = [attributes(span).get("gen_ai.provider.name") for span in backend.named("invoke_agent")]
    assert top == [None, "three_ai"]  # of a chain the members are told apart


def test_providers_by_name_say_how_the_conventions_call_them() -> None:
    chain = new("azure:m,openai:m,vertex:m", key="k", base_url="http://localhost:1")

    assert capabilities(chain).otel_names == (("azure", "azure.ai.openai"), ("vertex", "gcp.vertex_ai"))


async def test_a_refusal_and_a_failure(backend: Backend) -> None:
    await run_traced(backend, Script(say("no", stop="refusal")), name="a")
    await run_traced(backend, Script(fail("quota", "no money")), name="b")

    (refused,), (failed,) = backend.named("invoke_agent a"), backend.named("invoke_agent b")
    assert attributes(refused)["glue.outcome"] == "refused"
    assert refused.status.status_code is trace.StatusCode.UNSET
    assert attributes(failed)["error.type"] == "quota"
    assert failed.status.status_code is trace.StatusCode.ERROR


async def test_a_permission_wait_is_an_event_of_the_tool(backend: Backend) -> None:
    model = Script(calls("gated"), calls("gated"), "end")
    answers = iter([True, False])

    await run_traced(backend, model, tools=[gated], permission=glue.Ask(lambda request: next(answers)))

    allowed, denied = backend.named("execute_tool gated")
    assert [dict(event.attributes or {})["glue.allowed"] for event in (*allowed.events, *denied.events)] == [
        True,
        False,
    ]
    assert "error.type" not in attributes(allowed)
    assert attributes(denied)["error.type"] == "permission_denied"


async def test_a_permission_wait_of_a_sub_agent_is_an_event_of_its_own_tool_alone(backend: Backend) -> None:
    child = Agent(Script(calls("gated"), "no luck"), tools=[gated], name="child")
    model = Script(calls(call("child", {"prompt": "go"})), "end")

    await run_traced(backend, model, tools=[child.as_tool()], permission=glue.DenyAll())

    (outer,), (inner,) = backend.named("execute_tool child"), backend.named("execute_tool gated")
    assert ([event.name for event in outer.events], [event.name for event in inner.events]) == ([], ["glue.permission"])
    assert attributes(inner)["error.type"] == "permission_denied"
    assert "error.type" not in attributes(outer)


async def test_a_larger_cap_ends_one_span_and_begins_another(backend: Backend) -> None:
    model = with_escalation(Script(say("cut", stop="max_tokens", usage=USAGE), say("whole", usage=USAGE)))

    await run_traced(backend, model, max_tokens=10)

    first, second = backend.named("chat")
    assert [event.name for event in first.events] == ["glue.escalation"]
    assert "error.type" not in attributes(first)
    assert (attributes(first)["glue.attempt"], attributes(second)["glue.attempt"]) == (1, 2)


async def test_a_cancel_at_every_await_ends_every_span_once(backend: Backend) -> None:
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
            result = await rich().run("go", telemetry=backend.telemetry, cancel=cancel, unwrap=False)
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
    assert len(set(ended)) > 3  # it was cut at different places
    assert not trace.get_current_span().get_span_context().is_valid


async def test_200_runs_at_once_have_the_right_parents(backend: Backend) -> None:
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
        for number in range(200):
            tasks.start_soon(one, number)

    tops = {span.context.trace_id: span.name for span in backend.named("invoke_agent run-") if span.context}
    assert len(tops) == 200
    assert len(backend.spans) == 200 * 7
    for span in backend.named("invoke_agent child-"):
        assert span.context is not None
        assert tops[span.context.trace_id] == span.name.replace("child", "run")
        assert backend.parent(span) == "execute_tool helper"
    for span in backend.named("execute_tool"):
        assert span.context is not None
        assert backend.parent(span) == tops[span.context.trace_id]


async def test_a_span_of_the_tool_itself_is_below_the_tool(backend: Backend) -> None:
    tracer = backend.tracer_provider.get_tracer("the user's")

    @glue.tool
    def threaded() -> str:
        """Work in a thread."""
        with tracer.start_as_current_span("query"):
            return "ok"

    await run_traced(backend, Script(calls("threaded"), "end"), tools=[threaded])

    (query,) = backend.named("query")
    assert backend.parent(query) == "execute_tool threaded"


# Content ------------------------------------------------------------------------------------------

SECRET = "sk-ant-api03-" + "a1B2" * 20


async def said(backend: Backend) -> str:
    @glue.tool
    def leak() -> str:
        """Give a secret."""
        return f"key={SECRET} " + "x" * 20_000

    await run_traced(backend, Script(calls("leak"), "done"), tools=[leak])
    return json.dumps([attributes(span) for span in backend.spans])


async def test_content_is_left_out_by_default(backend: Backend) -> None:
    text = await said(backend)

    assert "xxxx" not in text
    assert "messages" not in text


async def test_content_is_masked_and_capped() -> None:
    backend = Backend(content=True)

    text = await said(backend)

    assert SECRET not in text
    assert "key=" in text
    longest = max(len(str(value)) for span in backend.spans for value in attributes(span).values())
    assert longest < 10_000
    (_, last) = backend.named("chat")
    messages = json.loads(attributes(last)["gen_ai.input.messages"])
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
    assert messages[2]["parts"][0]["type"] == "tool_call_response"


async def test_of_a_long_history_the_last_messages_are_kept() -> None:
    backend = Backend(content=True)
    history = [glue.user(f"{number} " + "y" * 8_000) for number in range(30)]

    await Agent(Script("ok"), telemetry=backend.telemetry).run("the last", message_history=history)

    (chat,) = backend.named("chat")
    text = attributes(chat)["gen_ai.input.messages"]
    assert len(text) <= telemetry.MAX_CONTENT
    assert json.loads(text)[-1]["parts"][0]["content"] == "the last"


@pytest.mark.parametrize(
    ("value", "wanted"), [("", False), ("false", False), ("true", True), ("SPAN_ONLY", True), ("event_only", False)]
)
def test_the_conventions_variable_opts_in(monkeypatch: pytest.MonkeyPatch, value: str, wanted: bool) -> None:
    monkeypatch.setenv(CONTENT, value)

    assert OpenTelemetry().content is wanted


# On and off ---------------------------------------------------------------------------------------


async def test_instrument_traces_every_run_and_false_none(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLUE_OTEL", raising=False)
    telemetry.instrument(tracer_provider=backend.tracer_provider, meter_provider=backend.meter_provider)
    try:
        await Agent(Script("a"), name="on").run("go")
        await Agent(Script("a"), name="off", telemetry=False).run("go")
        assert os.environ["GLUE_OTEL"] == "1"
    finally:
        telemetry.uninstrument()
    await Agent(Script("a"), name="after").run("go")

    assert [span.name for span in backend.named("invoke_agent")] == ["invoke_agent on"]
    assert "GLUE_OTEL" not in os.environ


async def test_the_bare_loop_is_traced_too_as_the_review_bot_uses_it(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GLUE_OTEL", raising=False)
    telemetry.instrument(tracer_provider=backend.tracer_provider)
    try:
        with telemetry.continued({"traceparent": PARENT}):
            await run(Script(calls("add", "add"), "end"), "go", tools=[add])
        await Agent(Script("a"), name="once").run("go")
    finally:
        telemetry.uninstrument()
    await run(Script("a"), "go")

    bare, agent = backend.named("invoke_agent")
    assert bare.context is not None
    assert (f"{bare.context.trace_id:032x}", bare.name, agent.name) == (TRACE, "invoke_agent", "invoke_agent once")
    assert len(backend.spans) == 2 + 3 + 2  # runs, requests, tools: none of them twice


def test_off_imports_nothing() -> None:
    code = (
        "import glue, sys\nfrom glue.testing import Script\nglue.Agent(Script('a')).run_sync('go')\n"
        "print([name for name in sys.modules if 'opentelemetry' in name or name == 'glue.telemetry'])"
    )
    environ = {name: value for name, value in os.environ.items() if name != "GLUE_OTEL"}

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environ, timeout=60)

    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_without_the_package_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "opentelemetry"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)

    with pytest.raises(ConfigError, match=re.escape("pip install 'glue-agents[otel]'")):
        OpenTelemetry()
    with pytest.raises(ConfigError, match="pip install opentelemetry-sdk"):
        telemetry.setup()


# At exit ------------------------------------------------------------------------------------------

SCRIPT = """
import glue
from glue import telemetry
from glue.testing import Script, calls

@glue.tool
def noop() -> str:
    'Do nothing.'
    return 'ok'

telemetry.setup()
for _ in range(5):
    glue.Agent(Script(calls('noop'), 'end'), tools=[noop]).run_sync('go')
"""


class Collector(BaseHTTPRequestHandler):
    spans: ClassVar[list[str]] = []
    traces: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/v1/traces":
            request = ExportTraceServiceRequest.FromString(body)
            scopes = [scope for resource in request.resource_spans for scope in resource.scope_spans]
            found = [span for scope in scopes for span in scope.spans]
            self.spans.extend(span.name for span in found)
            self.traces.extend(span.trace_id.hex() for span in found)
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


def finished(command: list[str], endpoint: str, timeout: str = "1") -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_TIMEOUT": timeout}
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, env=environ, timeout=60)


GLUE_RUN = ["-c", "from glue.cli.app import main; main()", "run", "-m", "offline", "--otel", "hi"]


@pytest.mark.parametrize(("command", "spans"), [(["-c", SCRIPT], 20), (GLUE_RUN, 2)])
def test_nothing_is_lost_at_exit(command: list[str], spans: int) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the OTLP exporter is not installed")
    Collector.spans.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = finished(command, f"http://127.0.0.1:{server.server_port}")
        server.shutdown()

    assert (done.returncode, done.stderr) == (0, "")
    assert len(Collector.spans) == spans


def test_a_collector_that_is_down_is_no_warning() -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the OTLP exporter is not installed")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    done = finished(["-c", SCRIPT], f"http://127.0.0.1:{port}", timeout="0.1")

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_exporter_that_nobody_knows_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "zipkin")

    with pytest.raises(ConfigError, match="OTEL_TRACES_EXPORTER must be otlp, console or none"):
        telemetry.setup()


# Context in and out -------------------------------------------------------------------------------


async def test_a_run_goes_on_with_the_trace_of_the_environment(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEPARENT", PARENT)

    await run_traced(backend, Script("a"))

    (top,) = backend.named("invoke_agent")
    assert top.context is not None
    assert f"{top.context.trace_id:032x}" == TRACE


async def test_a_request_carries_the_trace_in_and_out(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLUE_OTEL", raising=False)
    assert telemetry.inject({}) == {}
    telemetry.instrument(tracer_provider=backend.tracer_provider)
    try:
        with telemetry.continued({"traceparent": PARENT, "limits": {}}):
            carrier = telemetry.inject({})
            await Agent(Script("a")).run("go")
        with telemetry.continued(None), telemetry.continued({"traceparent": "nonsense"}):
            assert telemetry.inject({}) == {}
    finally:
        telemetry.uninstrument()

    assert carrier["traceparent"] == PARENT
    (top,) = backend.named("invoke_agent")
    assert top.context is not None
    assert f"{top.context.trace_id:032x}" == TRACE


AGENT = """
import glue
from glue.testing import Script, calls

@glue.tool(needs_permission=True)
def gated() -> str:
    'Ask first.'
    return 'ok'

agent = glue.Agent(Script(calls('gated'), 'end'), tools=[gated], name='served')
"""
META = {"_meta": {"traceparent": PARENT}}


class Served:
    """A server on standard input and output, asked line by line."""

    def __init__(self, folder: Path, *command: str, endpoint: str) -> None:
        (folder / "agent.py").write_text(AGENT)
        environ = {**os.environ, "GLUE_OTEL": "1", "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
        line = [sys.executable, "-c", "from glue.cli.app import main; main()", *command]
        self.process = subprocess.Popen(
            line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder, env=environ, text=True
        )
        self.asked: list[dict[str, Any]] = []

    def send(self, **frame: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **frame}) + "\n")
        self.process.stdin.flush()

    def ask(self, id: int, method: str, **params: Any) -> Any:
        self.send(id=id, method=method, params=params)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            frame = json.loads(line)
            if frame.get("method") == "session/request_permission":
                self.asked.append(frame["params"])
                selected = {"outcome": {"outcome": "selected", "optionId": "allow_once"}}
                self.send(id=frame["id"], result=selected)
            elif frame.get("id") == id and "method" not in frame:
                assert "result" in frame, frame
                return frame["result"]
        raise AssertionError("the server ended")

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.read()
        self.process.wait(30)
        self.process.stdout.close()


def through_acp(served: Served, folder: Path) -> None:
    served.ask(1, "initialize", protocolVersion=1)
    session = served.ask(2, "session/new", cwd=str(folder), mcpServers=[])["sessionId"]
    served.ask(3, "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "go"}], **META)
    assert served.asked[0]["_meta"]["traceparent"].startswith(f"00-{TRACE}-")


def through_mcp(served: Served, folder: Path) -> None:
    client = {"name": "test", "version": "1"}
    served.ask(1, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=client)
    served.send(method="notifications/initialized")
    served.ask(2, "tools/call", name="served", arguments={"prompt": "go"}, **META)


@pytest.mark.parametrize("server", ["acp", "mcp"])
def test_servers_go_on_with_the_trace_of_a_request(server: str, tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the OTLP exporter is not installed")
    Collector.spans.clear()
    Collector.traces.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        command = ("acp", "agent.py", "--store", "store") if server == "acp" else ("mcp", "agent.py")
        served = Served(tmp_path, *command, endpoint=f"http://127.0.0.1:{collector.server_port}")
        (through_acp if server == "acp" else through_mcp)(served, tmp_path)
        served.close()
        collector.shutdown()

    assert "invoke_agent served" in Collector.spans
    assert Collector.traces[Collector.spans.index("invoke_agent served")] == TRACE


async def test_an_mcp_server_hears_of_the_trace(backend: Backend, tmp_path: Path) -> None:
    mcp = pytest.importorskip("glue.tools.mcp")
    pytest.importorskip("mcp", reason="the extra [mcp] is not installed")
    (tmp_path / "server.py").write_text(MCP_SERVER)

    async with mcp.connect_stdio("demo", sys.executable, [str(tmp_path / "server.py")]) as connection:
        model = Script(calls("demo__meta"), lambda request: request.messages[-1].text)
        agent = Agent(model, tools=connection.tools, permission=glue.AllowAll(), telemetry=backend.telemetry)
        result = await agent.run("go")

    (tool,) = backend.named("execute_tool demo__meta")
    assert tool.context is not None
    assert f"00-{tool.context.trace_id:032x}-" in result.text


# Of the older protocol, which needs no SDK: it gives back what it was told besides.
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


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # DBOS runs on no other
async def test_a_durable_run_goes_on_with_the_trace_of_who_asked(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("dbos", reason="the extra [dbos] is not installed")
    monkeypatch.delenv("GLUE_OTEL", raising=False)
    telemetry.instrument(tracer_provider=backend.tracer_provider)
    try:
        async with Agent(Script("a"), name="kept").durable(engine=f"sqlite:///{tmp_path}/d.db", name="t") as durable:
            with telemetry.continued({"traceparent": PARENT}):
                await durable.run("go")
    finally:
        telemetry.uninstrument()

    (top,) = backend.named("invoke_agent kept")
    assert top.context is not None
    assert f"{top.context.trace_id:032x}" == TRACE


async def test_the_rows_of_a_map_go_on_with_the_trace_of_who_asked(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GLUE_OTEL", raising=False)
    telemetry.instrument(tracer_provider=backend.tracer_provider)
    try:
        with telemetry.continued({"traceparent": PARENT}):
            async with glue.map(Agent(Script(repeat("a")), name="each"), ["one", "two"]) as rows:
                count = len([row async for row in rows])
    finally:
        telemetry.uninstrument()

    traces = {f"{span.context.trace_id:032x}" for span in backend.named("invoke_agent each") if span.context}
    assert (count, traces) == (2, {TRACE})
