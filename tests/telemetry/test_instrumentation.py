"""Instrumentation: which runs are traced, and traces that continue over processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from fakes.telemetry import PARENT, TRACE, Backend

import glue
from glue import Agent, run, telemetry
from glue.testing import Script, calls, repeat


@glue.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_instrument_traces_every_run_except_with_telemetry_false(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GLUE_OTEL", raising=False)
    telemetry.instrument(
        tracer_provider=backend.tracer_provider, meter_provider=backend.meter_provider
    )
    try:
        await Agent(Script("a"), name="on").run("go")
        await Agent(Script("a"), name="off", telemetry=False).run("go")
        assert os.environ["GLUE_OTEL"] == "1"
    finally:
        telemetry.uninstrument()
    await Agent(Script("a"), name="after").run("go")

    assert [span.name for span in backend.named("invoke_agent")] == ["invoke_agent on"]
    assert "GLUE_OTEL" not in os.environ


async def test_runs_of_the_bare_loop_are_traced_too(
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
    assert (f"{bare.context.trace_id:032x}", bare.name, agent.name) == (
        TRACE,
        "invoke_agent",
        "invoke_agent once",
    )
    assert len(backend.spans) == 2 + 3 + 2  # runs, requests and tools, each once


def test_opentelemetry_is_not_imported_if_telemetry_is_off() -> None:
    code = (
        "import glue, sys\n"
        "from glue.testing import Script\n"
        "glue.Agent(Script('a')).run_sync('go')\n"
        "telemetry = ('opentelemetry', 'glue.telemetry')\n"
        "print([name for name in sys.modules if name.startswith(telemetry)])\n"
    )
    environ = {name: value for name, value in os.environ.items() if name != "GLUE_OTEL"}

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environ, timeout=60
    )

    assert (done.stdout.strip(), done.stderr) == ("[]", "")


async def test_a_traceparent_is_read_from_and_added_to_a_mapping(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_the_trace_of_the_environment_is_passed_on_if_there_is_no_other(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GLUE_OTEL", raising=False)
    monkeypatch.setenv("TRACEPARENT", PARENT)
    monkeypatch.setenv("TRACESTATE", "a=1")
    given = {"traceparent": PARENT, "tracestate": "a=1"}
    own = f"00-{'1' * 32}-{'2' * 16}-01"

    assert telemetry.inject({}) == given
    assert telemetry.inject({"traceparent": own}) == {"traceparent": own}
    monkeypatch.delenv("TRACESTATE")
    assert telemetry.inject({"x": 1}) == {"x": 1, "traceparent": PARENT}

    telemetry.instrument(tracer_provider=backend.tracer_provider)
    try:
        with telemetry.continued({"traceparent": own}):
            assert telemetry.inject({}) == {"traceparent": own}
    finally:
        telemetry.uninstrument()


@pytest.mark.parametrize(
    ("value", "is_on"), [("1", True), ("yes", True), ("0", False), ("", False)]
)
def test_a_trace_is_continued_only_if_tracing_is_switched_on(
    monkeypatch: pytest.MonkeyPatch, value: str, is_on: bool
) -> None:
    monkeypatch.setenv("GLUE_OTEL", value)
    try:
        with telemetry.continued({"traceparent": PARENT}):
            assert telemetry.inject({}) == ({"traceparent": PARENT} if is_on else {})
    finally:
        telemetry.uninstrument()


def test_the_current_trace_is_passed_on_if_a_variable_has_switched_tracing_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from opentelemetry import trace

    context = trace.SpanContext(int(TRACE, 16), 7, is_remote=False, trace_flags=trace.TraceFlags(1))
    found: list[dict[str, Any]] = []
    for value in ("0", "1"):
        monkeypatch.setenv("GLUE_OTEL", value)
        try:
            with trace.use_span(trace.NonRecordingSpan(context)):
                found.append(telemetry.inject({}))
        finally:
            telemetry.uninstrument()

    assert found == [{}, {"traceparent": f"00-{TRACE}-{7:016x}-01"}]


async def test_a_durable_run_continues_the_trace_of_its_caller(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GLUE_OTEL", raising=False)
    telemetry.instrument(tracer_provider=backend.tracer_provider)
    try:
        async with Agent(Script("a"), name="kept").durable(
            engine=f"sqlite:///{tmp_path}/d.db", name="t"
        ) as durable:
            with telemetry.continued({"traceparent": PARENT}):
                await durable.run("go")
    finally:
        telemetry.uninstrument()

    (top,) = backend.named("invoke_agent kept")
    assert top.context is not None
    assert f"{top.context.trace_id:032x}" == TRACE


async def test_the_rows_of_a_map_continue_the_trace_of_its_caller(
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

    traces = {
        f"{span.context.trace_id:032x}"
        for span in backend.named("invoke_agent each")
        if span.context
    }
    assert (count, traces) == (2, {TRACE})


async def test_a_row_of_a_queue_continues_the_trace_of_the_environment(
    backend: Backend, engine: str, loopback: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from glue.durable.queue import QueueEngine
    from glue.durable.tables import engine_store
    from glue.durable.worker import Worker

    monkeypatch.setenv("TRACEPARENT", PARENT)
    chunk = {"id": "chatcmpl-7", "choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}]}
    body = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n"
    server = loopback(head % len(body) + body)
    provider = glue.providers.new("openai:m", base_url=server.url, key="k", retries=False)
    agent = Agent(provider, name="kept")
    telemetry.instrument(tracer_provider=backend.tracer_provider)
    try:
        job = glue.map(agent, ["go"], engine=QueueEngine(engine, "rows", poll=0.01))
        async with (
            Worker(agent, store=engine_store(engine), queue="rows") as worker,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(worker.work)
            (row,) = [row async for row in job]
            worker.stop()
    finally:
        telemetry.uninstrument()
        await glue.provider.close(provider)

    (top,) = backend.named("invoke_agent")
    (chat,) = backend.named("chat")
    assert top.context is not None
    assert f"{top.context.trace_id:032x}" == TRACE
    assert (top.attributes or {})["gen_ai.conversation.id"] == row.session
    found = dict(chat.attributes or {})
    assert found["gen_ai.conversation.id"] == row.session
    assert found["gen_ai.response.id"] == "chatcmpl-7"
    assert (found["server.address"], found["server.port"]) == ("127.0.0.1", server.port)
