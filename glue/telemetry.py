"""Telemetry of runs: counts in memory, and OpenTelemetry spans and metrics by the GenAI conventions.

    metrics = Metrics(); agent.run(prompt, on_event=metrics)      # counts, to be read when you like
    Agent(..., telemetry=True), GLUE_OTEL=1, or instrument()       # spans and metrics, where OpenTelemetry is set up

The loop does not know of it: a listener hears the events; wrappers of provider, tool and permission hold the spans.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from glue import events
from glue.context import AnyTool, Context, Host, ToolResult, ToolWrapper
from glue.errors import ConfigError, ProviderError
from glue.events import Event, RunResult, event_to_json, join
from glue.limits import Outcome
from glue.messages import AssistantMessage, Message, Part, Request, Text, Thinking, ToolCall, ToolMessage, Usage
from glue.options import Options
from glue.permission import Decision, Permission, PermissionRequest, decide
from glue.provider import Attempt, Done, Provider, ProviderEvent, Wrapper, capabilities, opened
from glue.secrets import mask_secrets

if TYPE_CHECKING:
    from opentelemetry.trace import Span

__all__ = ["Histogram", "Metrics", "OpenTelemetry", "instrument", "setup", "uninstrument"]

ATTEMPT_BUCKETS = (0, 1, 2, 3, 5, 10)
SECOND_BUCKETS = (0.5, 1, 2, 5, 10, 30, 60, 120, 300)


class Histogram:
    """Counts of values at or below each bound; the last bucket takes the rest."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        index = next((i for i, bound in enumerate(self.bounds) if value <= bound), len(self.bounds))
        self.counts[index] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self.counts)


class Metrics:
    """Give each run a `listener()`; the object itself serves runs that go one after another."""

    def __init__(self) -> None:
        self.continuations: Counter[tuple[str, str]] = Counter()  # by provider and model
        self.truncation_exits: Counter[str] = Counter()  # by reason, completed ones left out
        self.outcomes: Counter[Outcome] = Counter()
        self.attempts_per_run = Histogram(ATTEMPT_BUCKETS)
        self.seconds_per_continued_run = Histogram(SECOND_BUCKETS)
        self._listener = self.listener()

    def __call__(self, event: Event) -> None:
        self._listener(event)

    def listener(self) -> Callable[[Event], None]:
        """Make a listener for one run, which may go beside others."""
        attempts, ended = 0, False

        def listen(event: Event) -> None:
            nonlocal attempts, ended
            if isinstance(event, events.RunStart):
                attempts, ended = 0, False
            elif isinstance(event, events.ContinuationAttempt):
                attempts += 1
                self.continuations[event.provider, event.model] += 1
            elif isinstance(event, events.ContinuationTerminated) and event.reason != "completed":
                ended = True
                self.truncation_exits[event.reason] += 1
            elif isinstance(event, events.RunEnd):
                if event.outcome is Outcome.TRUNCATED and not ended:  # nothing of it could be continued
                    self.truncation_exits["not_continued"] += 1
                self.outcomes[event.outcome] += 1
                self.attempts_per_run.observe(attempts)
                if attempts:
                    self.seconds_per_continued_run.observe(event.seconds)

        return listen


# OpenTelemetry ------------------------------------------------------------------------------------

CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"  # the conventions' own opt-in
MAX_PART, MAX_CONTENT = 8_192, 65_536  # characters of one text, and of one attribute
_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_TOKENS = tuple(4**power for power in range(14))
_USAGE = {
    "gen_ai.usage.input_tokens": "input",
    "gen_ai.usage.output_tokens": "output",
    "gen_ai.usage.cache_read.input_tokens": "cache_read",
    "gen_ai.usage.cache_creation.input_tokens": "cache_write",
    "gen_ai.usage.reasoning.output_tokens": "reasoning",
    "glue.usage.cost": "cost",
}
_shared: OpenTelemetry | None = None


def instrument(*, tracer_provider: Any = None, meter_provider: Any = None, content: bool | None = None) -> None:
    """Trace every run from here on, in this process and (as `GLUE_OTEL=1`) in those it starts."""
    global _shared
    _shared = OpenTelemetry(tracer_provider=tracer_provider, meter_provider=meter_provider, content=content)
    os.environ["GLUE_OTEL"] = "1"


def uninstrument() -> None:
    """Trace no more runs but those of agents that ask for it."""
    global _shared
    _shared = None
    os.environ.pop("GLUE_OTEL", None)


def telemetry_of(setting: bool | OpenTelemetry | None) -> OpenTelemetry | None:
    """Give what traces a run with this setting; None where it is not to be traced."""
    global _shared
    if isinstance(setting, OpenTelemetry):
        return setting
    if not setting:
        return None
    _shared = _shared or OpenTelemetry()
    return _shared


def setup() -> None:
    """Configure the SDK by the standard OTEL_* variables, send to OTLP over HTTP, and trace every run."""
    try:
        from opentelemetry import metrics, trace
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
    except ImportError as error:
        raise ConfigError(
            "sending telemetry needs the SDK: pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"
        ) from error
    if not isinstance(trace.get_tracer_provider(), TracerProvider):  # else the application has set it up
        named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "glue"}
        resource = Resource.create(named)
        logging.getLogger("opentelemetry").addHandler(logging.NullHandler())  # a collector that is down is no warning
        # A run waits at its end for what is still to be sent: not for long where nobody listens.
        given = any(name.startswith("OTEL_EXPORTER_OTLP") and name.endswith("TIMEOUT") for name in os.environ)
        timeout = None if given else 3.0
        tracer, readers = TracerProvider(resource=resource), []
        if (kind := _exporter("TRACES")) != "none":
            spans = OTLPSpanExporter(timeout=timeout) if kind == "otlp" else ConsoleSpanExporter(out=sys.stderr)
            tracer.add_span_processor(BatchSpanProcessor(spans))
        if (kind := _exporter("METRICS")) != "none":
            exporter = OTLPMetricExporter(timeout=timeout) if kind == "otlp" else ConsoleMetricExporter(out=sys.stderr)
            readers.append(PeriodicExportingMetricReader(exporter))
        trace.set_tracer_provider(tracer)
        metrics.set_meter_provider(MeterProvider(resource=resource, metric_readers=readers))
    instrument()


def _exporter(signal: str) -> str:
    kind = os.environ.get(f"OTEL_{signal}_EXPORTER", "otlp").strip()
    if kind not in ("otlp", "console", "none"):
        raise ConfigError(f"OTEL_{signal}_EXPORTER must be otlp, console or none, not {kind!r}")
    return kind


def inject(carrier: dict[str, Any]) -> dict[str, Any]:
    """Add the current trace context, as W3C `traceparent`, where there is one and runs are traced."""
    if _shared is not None:
        from opentelemetry.propagate import inject as put

        put(carrier)
    return carrier


@contextmanager
def continued(carrier: object) -> Iterator[None]:
    """Go on with the trace whose `traceparent` a request brought, where runs are traced."""
    telemetry = telemetry_of(os.environ.get("GLUE_OTEL", "") not in ("", "0"))
    if telemetry is None or not isinstance(carrier, Mapping) or "traceparent" not in carrier:
        yield
        return
    from opentelemetry import context
    from opentelemetry.propagate import extract

    token = context.attach(extract({key: value for key, value in carrier.items() if isinstance(value, str)}))
    try:
        yield
    finally:
        context.detach(token)


class OpenTelemetry:
    """Spans and metrics of runs by the GenAI conventions. Needs the extra `glue-agents[otel]`.

    Prompts, arguments and results are recorded only with `content`, or where the conventions' variable says so.
    """

    def __init__(self, *, tracer_provider: Any = None, meter_provider: Any = None, content: bool | None = None) -> None:
        try:
            from opentelemetry import context, metrics, trace
        except ImportError as error:
            raise ConfigError("telemetry needs the extra: pip install 'glue-agents[otel]'") from error
        from glue import __version__

        if content is None:
            content = os.environ.get(CONTENT, "").lower() in ("true", "1", "span_only", "span_and_event")
        self.content, self.attach, self.detach = content, context.attach, context.detach
        self.tracer = trace.get_tracer("glue", __version__, tracer_provider)
        meter = metrics.get_meter("glue", __version__, meter_provider)
        self.duration, self.first_chunk, self.tokens = (
            meter.create_histogram(f"gen_ai.client.{name}", unit, explicit_bucket_boundaries_advisory=buckets)
            for name, unit, buckets in (
                ("operation.duration", "s", _SECONDS),
                ("operation.time_to_first_chunk", "s", _SECONDS),
                ("token.usage", "{token}", _TOKENS),
            )
        )
        self.continuations = meter.create_counter("glue.continuations")
        self.truncation_exits = meter.create_counter("glue.truncation_exits")

    def traced(self, drive: Callable[..., Awaitable[RunResult[Any]]]) -> Callable[..., Awaitable[RunResult[Any]]]:
        """Wrap the loop: a span around each run, current while it lasts, and one for each request and tool in it."""

        async def run(provider: Provider, history: Any, prompt: Any, options: Options, **more: Any) -> RunResult[Any]:
            host = options.host or Host()
            identity = host.identity or {}
            agent = str(identity.get("agent", ""))
            otel_names = dict(capabilities(provider).otel_names)
            attributes = {
                "gen_ai.operation.name": "invoke_agent",
                **_model(otel_names, provider.name, getattr(provider, "model", "")),
                "gen_ai.agent.name": agent,
                "gen_ai.conversation.id": host.session_id,
                "gen_ai.prompt.name": identity.get("prompt"),
                "glue.prompt.version": identity.get("prompt_version"),
                "glue.run.id": host.run_id,
            }
            with self._span(f"invoke_agent {agent}".strip(), _known(attributes), context=_parent()) as span:
                traced = replace(
                    options,
                    tools=[_TracedTool(self, tool) for tool in options.tools or ()],
                    on_event=join((options.on_event, functools.partial(self._listen, span, otel_names))),
                    host=replace(host, telemetry=self),
                )
                result = await drive(_TracedProvider(self, provider, otel_names), history, prompt, traced, **more)
                if result.stop_reason is not None:
                    span.set_attribute("gen_ai.response.finish_reasons", (str(result.stop_reason),))
                if result.outcome is Outcome.FAILED:
                    _fail(span, str(getattr(result.error, "kind", "") or type(result.error).__qualname__))
                return result

        return run

    def _listen(self, span: Span, otel_names: Mapping[str, str], event: Event) -> None:
        """Write what a run says between its requests as events of its span, and its end as attributes."""
        if isinstance(event, events.Explanation):
            data = event_to_json(event)
            name = data.pop("type")
            data.pop("text", None)  # what a nudge says is content
            for key, value in data.items():
                if isinstance(value, list):
                    data[key] = tuple(map(str, value))
                elif value is not None and not isinstance(value, (str, bool, int, float)):
                    data[key] = str(value)
            span.add_event(f"glue.{name}", _known({f"glue.{key}": value for key, value in data.items()}))
        if isinstance(event, events.ContinuationAttempt):
            self.continuations.add(1, _model(otel_names, event.provider, event.model))
        elif isinstance(event, events.ContinuationTerminated) and event.reason != "completed":
            self.truncation_exits.add(1, {"glue.reason": event.reason})
        elif isinstance(event, events.RunEnd):
            counts = {"glue.turns": event.turns, "glue.requests": event.requests}
            span.set_attributes({"glue.outcome": str(event.outcome), **counts, **_usage(event.usage)})
            if event.outcome is Outcome.FAILED:
                _fail(span, "failed")

    @contextmanager
    def _span(self, name: str, attributes: Mapping[str, Any], context: Any = None) -> Iterator[Span]:
        with self.tracer.start_as_current_span(
            name, context, attributes=attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield span
            except Exception as error:
                _fail(span, type(error).__qualname__)
                raise
            except BaseException:
                span.set_attribute("glue.outcome", "cancelled")
                raise


def _parent() -> Any:
    """Give the context that a run belongs to: the current span, else that of the environment (CI, a worker)."""
    from opentelemetry.propagate import extract
    from opentelemetry.trace import get_current_span

    if "TRACEPARENT" not in os.environ or get_current_span().get_span_context().is_valid:
        return None
    return extract({name.lower(): os.environ[name] for name in ("TRACEPARENT", "TRACESTATE") if name in os.environ})


def _fail(span: Span, kind: str) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR))


def _known(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None and value not in ("", ())}


def _model(otel_names: Mapping[str, str], provider: str, model: str) -> dict[str, Any]:
    """Name provider and model; a provider that the conventions do not know keeps its own name."""
    name = "" if "," in provider else otel_names.get(provider, provider)  # of a chain the members are told apart
    return _known({"gen_ai.provider.name": name, "gen_ai.request.model": model})


def _usage(usage: Usage) -> dict[str, Any]:
    return _known({key: getattr(usage, name) for key, name in _USAGE.items()})


class _TracedPermission:
    """Writes how long a permission was waited for, and the answer, on the span of the call that needs it."""

    def __init__(self, span: Span, permission: Permission) -> None:
        self.span, self.denied = span, False
        self.permission = permission
        if isinstance(permission, _TracedPermission):  # a sub-agent asks whom the run above asks
            self.permission = permission.permission

    async def decide(self, request: PermissionRequest) -> Decision:
        began = time.monotonic()
        decision = await decide(self.permission, request)
        self.denied = not decision.allowed
        seconds = time.monotonic() - began
        self.span.add_event("glue.permission", {"glue.allowed": decision.allowed, "glue.seconds": seconds})
        return decision


class _TracedTool(ToolWrapper):
    """A tool with a span for each call, current while it runs."""

    def __init__(self, telemetry: OpenTelemetry, tool: AnyTool) -> None:
        super().__init__(tool)
        self._telemetry = telemetry

    async def invoke(self, call: ToolCall, context: Context[Any]) -> ToolResult:
        spec, content = self.spec, self._telemetry.content
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": spec.name,
            "gen_ai.tool.call.id": call.id,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.description": spec.description[:MAX_PART],
            "gen_ai.tool.call.arguments": _masked(call.arguments) if content else None,
        }
        with self._telemetry._span(f"execute_tool {spec.name}", _known(attributes)) as span:
            permission: Any = context.host.permission
            if permission is not None:
                permission = _TracedPermission(span, permission)
                context = replace(context, host=replace(context.host, permission=permission))
            result = await self.tool.invoke(call, context)
            if result.is_error:  # named by the last line of its traceback
                last = result.traceback.strip().rpartition("\n")[2].partition(":")[0].strip()
                kind = last if last.replace(".", "").isidentifier() else "tool_error"
                _fail(span, "permission_denied" if permission is not None and permission.denied else kind)
            if content:
                span.set_attribute("gen_ai.tool.call.result", _masked(result.text))
            return result


class _TracedProvider(Wrapper):
    """A provider with a span for each attempt to answer a request, current at every step of the stream."""

    def __init__(self, telemetry: OpenTelemetry, provider: Provider, otel_names: Mapping[str, str]) -> None:
        super().__init__(provider)
        self._telemetry, self._otel_names = telemetry, otel_names

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        telemetry = self._telemetry
        names = (self.name, request.model or getattr(self.provider, "model", ""))
        attempt = _ChatSpan(telemetry, self._otel_names, request, names)
        async with opened(self.provider, request) as stream:
            try:
                while True:
                    token = telemetry.attach(attempt.context)  # not while the reader has the event
                    try:
                        event = await anext(stream, None)
                    finally:
                        telemetry.detach(token)
                    if event is None:
                        break
                    if isinstance(event, Done):
                        attempt.answer(event.message)
                    elif isinstance(event, Attempt):
                        attempt.retry(event, is_chain="," in self.name)
                        attempt = _ChatSpan(
                            telemetry, self._otel_names, request, names, attempt.number + 1, event.delay
                        )
                    else:
                        attempt.chunk()
                    yield event
                attempt.end("protocol")  # nothing where the reply was whole
            except ProviderError as error:
                attempt.end(error.kind, error.usage, error.provider, error.model)
                raise
            except Exception as error:
                attempt.end(type(error).__qualname__)
                raise
            except BaseException:
                attempt.end("cancelled")
                raise


class _ChatSpan:
    """The span of one attempt, which may have to wait before it begins."""

    def __init__(
        self,
        telemetry: OpenTelemetry,
        otel_names: Mapping[str, str],
        request: Request,
        names: tuple[str, str],
        number: int = 1,
        delay: float = 0.0,
    ) -> None:
        from opentelemetry.trace import SpanKind, set_span_in_context

        attributes = {
            "gen_ai.operation.name": "chat",
            **_model(otel_names, *names),
            "gen_ai.request.max_tokens": request.max_tokens,
            "gen_ai.request.temperature": None if request.temperature is None else float(request.temperature),
            "gen_ai.request.stop_sequences": request.stop,
            "gen_ai.request.stream": request.stream,
            "gen_ai.output.type": "json" if request.output_schema is not None else None,
            "glue.request.reasoning": request.reasoning,
            "glue.attempt": number,
        }
        if telemetry.content:
            system = [{"type": "text", "content": _masked(request.system)}] if request.system else None
            tools = [{"type": "function", "name": tool.name, "description": tool.description} for tool in request.tools]
            attributes |= {
                "gen_ai.system_instructions": json.dumps(system) if system else None,
                "gen_ai.input.messages": _messages(request.messages),
                "gen_ai.tool.definitions": _fitting(tools) if tools else None,
            }
        self.number, self._telemetry, self._otel_names, self._names = number, telemetry, otel_names, names
        self._began, self._ended = time.monotonic() + delay, False
        self._first: float | None = None  # seconds until the first piece of the reply
        self._span = telemetry.tracer.start_span(
            f"chat {names[1]}".strip(),
            kind=SpanKind.CLIENT,
            attributes=_known(attributes),
            start_time=time.time_ns() + int(delay * 1e9),
        )
        self.context = set_span_in_context(self._span)

    def chunk(self) -> None:
        if self._first is None:
            self._first = time.monotonic() - self._began

    def answer(self, message: AssistantMessage) -> None:
        model = self._names[1] or message.model
        attributes = {
            "gen_ai.response.finish_reasons": (str(message.stop_reason),),
            "gen_ai.response.model": message.model or model,
            "glue.stop_reason.raw": message.raw_stop_reason,
        }
        if self._telemetry.content:
            attributes["gen_ai.output.messages"] = _messages([message], str(message.stop_reason))
        self._span.set_attributes(_known(attributes))
        self.end("", message.usage, message.provider, model)

    def retry(self, attempt: Attempt, *, is_chain: bool) -> None:
        """End the span of an attempt that another one follows."""
        if attempt.next_cap is not None:
            name, error = "escalation", ""
        else:
            name, error = "failover" if is_chain and not attempt.delay else "retry", attempt.kind
        self._span.add_event(f"glue.{name}", _known({"glue.kind": attempt.kind, "glue.delay": attempt.delay}))
        self.end(error, attempt.usage, attempt.provider, attempt.model)

    def end(self, error: str, usage: Usage | None = None, provider: str = "", model: str = "") -> None:
        """End the span, once, and count what it took."""
        if self._ended:
            return
        self._ended = True
        names = provider or self._names[0], model or self._names[1]
        shared = {"gen_ai.operation.name": "chat", **_model(self._otel_names, *names)}
        span, telemetry = self._span, self._telemetry
        span.set_attributes(shared)
        span.update_name(f"chat {names[1]}".strip())
        if self._first is not None:
            span.set_attribute("gen_ai.response.time_to_first_chunk", self._first)
            telemetry.first_chunk.record(self._first, shared)
        if usage is not None:
            span.set_attributes(_usage(usage))
            telemetry.tokens.record(usage.input, {**shared, "gen_ai.token.type": "input"})
            telemetry.tokens.record(usage.output, {**shared, "gen_ai.token.type": "output"})
        if error == "cancelled":
            span.set_attribute("glue.outcome", error)
        elif error:
            _fail(span, error)
            shared["error.type"] = error
        telemetry.duration.record(max(time.monotonic() - self._began, 0.0), shared)
        span.end()


# Content ------------------------------------------------------------------------------------------


def _messages(messages: Sequence[Message], finish_reason: str = "") -> str:
    """Write messages in the conventions' form, the last ones where not all of them fit."""
    shown: list[dict[str, Any]] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            response = {"type": "tool_call_response", "id": message.call_id, "response": _masked(message.text)}
            shown.append({"role": "tool", "parts": [response]})
            continue
        role = "assistant" if isinstance(message, AssistantMessage) else "user"
        shown.append({"role": role, "parts": [_part(part) for part in message.content]})
    if finish_reason:
        shown[-1]["finish_reason"] = finish_reason
    return _fitting(shown)


def _part(part: Part) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "content": _masked(part.text)}
    if isinstance(part, Thinking):
        return {"type": "reasoning", "content": _masked(part.text)}
    if isinstance(part, ToolCall):
        return {"type": "tool_call", "id": part.id, "name": part.name, "arguments": _masked(part.arguments)}
    return {"type": type(part).__name__.lower()}  # bytes are left out


def _masked(text: str) -> str:
    text = mask_secrets(text)
    return text if len(text) <= MAX_PART else f"{text[:MAX_PART]} [{len(text) - MAX_PART} characters more]"


def _fitting(items: Sequence[Any]) -> str:
    kept: list[str] = []
    size = 2
    for item in reversed(items):
        text = json.dumps(item, ensure_ascii=False)
        size += len(text) + 2
        if size > MAX_CONTENT and kept:
            break
        kept.append(text)
    return f"[{', '.join(reversed(kept))}]"
