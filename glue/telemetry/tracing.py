"""Tracing: OpenTelemetry spans and metrics of runs, requests and tool calls.

Spans and metrics have the names and attributes of the GenAI conventions. Names that begin with
`glue.` are additions.
"""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from glue import __version__, events
from glue.context import AnyTool, Context, ToolResult, ToolWrapper
from glue.errors import ConfigError, ProviderError
from glue.events import Event, event_to_json
from glue.installing import install_command
from glue.limits import Outcome
from glue.listeners import join
from glue.messages import (
    AssistantMessage,
    Message,
    Part,
    Request,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    Usage,
)
from glue.permission import Decision, Permission, PermissionRequest, decide
from glue.provider import (
    Attempt,
    Done,
    Notice,
    Provider,
    ProviderEvent,
    Wrapper,
    capabilities,
    opened,
)
from glue.secrets import mask_secrets

try:
    from opentelemetry import context as otel_context
    from opentelemetry import metrics, propagate, trace
except ImportError as error:
    raise ConfigError(f"telemetry needs OpenTelemetry: {install_command('otel')}") from error

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from glue.loop.state import State

# The variable of the GenAI conventions that switches on recording of prompts, calls and results.
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_WITH_CONTENT = ("true", "1", "span_only", "span_and_event")
MAX_PART = 8_192  # characters of one recorded text
MAX_CONTENT = 65_536  # characters of one recorded attribute
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


class OpenTelemetry:
    """A tracer that creates spans and metrics of runs. It needs the extra `glue-agents[otel]`.

        telemetry = OpenTelemetry(tracer_provider=provider)
        agent = Agent("anthropic", telemetry=telemetry)

    Args:
        tracer_provider: creates the spans; if None, the global tracer provider.
        meter_provider: records the metrics; if None, the global meter provider.
        content: True records prompts, arguments and results, with secrets masked. None leaves the
            choice to the variable OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT.
    """

    def __init__(
        self,
        *,
        tracer_provider: Any = None,
        meter_provider: Any = None,
        content: bool | None = None,
    ) -> None:
        if content is None:
            content = os.environ.get(CONTENT, "").lower() in _WITH_CONTENT
        self.content = content
        self.tracer = trace.get_tracer("glue", __version__, tracer_provider)
        meter = metrics.get_meter("glue", __version__, meter_provider)

        def histogram(name: str, unit: str, buckets: Sequence[float]) -> metrics.Histogram:
            return meter.create_histogram(name, unit, explicit_bucket_boundaries_advisory=buckets)

        client = "gen_ai.client"
        self.duration = histogram(f"{client}.operation.duration", "s", _SECONDS)
        self.first_chunk = histogram(f"{client}.operation.time_to_first_chunk", "s", _SECONDS)
        self.tokens = histogram(f"{client}.token.usage", "{token}", _TOKENS)
        self.continuations = meter.create_counter("glue.continuations")
        self.truncation_exits = meter.create_counter("glue.truncation_exits")

    def inject(self, carrier: dict[str, Any]) -> None:
        """Add the W3C `traceparent` of the current trace to `carrier`, if there is a trace."""
        propagate.inject(carrier)

    @contextmanager
    def continued(self, carrier: Mapping[str, Any]) -> Iterator[None]:
        """Continue the trace whose `traceparent` is in `carrier`, during a `with` block."""
        texts = {key: value for key, value in carrier.items() if isinstance(value, str)}
        token = otel_context.attach(propagate.extract(texts))
        try:
            yield
        finally:
            otel_context.detach(token)

    @contextmanager
    def traced(self, state: State) -> Iterator[None]:
        """Create spans for a run, its requests and its tool calls during a `with` block.

        Each attempt at a request gets a span of its own. For this purpose, the provider, the tools
        and the listener in `state` are replaced by wrappers.
        """
        host, provider = state.host, state.provider
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
        name = f"invoke_agent {agent}".strip()
        with self._span(name, _known(attributes), context=_parent()) as span:
            state.provider = _TracedProvider(self, provider, otel_names, host.session_id)
            state.tools = {name: _TracedTool(self, tool) for name, tool in state.tools.items()}
            listen = functools.partial(self._listen, span, otel_names)
            state.on_event = join((state.on_event, listen))
            state.host = replace(host, telemetry=self)
            yield
            result = state.result
            if result is None:
                return
            if result.stop_reason is not None:
                span.set_attribute("gen_ai.response.finish_reasons", (str(result.stop_reason),))
            if result.outcome is Outcome.FAILED:
                kind = getattr(result.error, "kind", "") or type(result.error).__qualname__
                _fail(span, str(kind))

    def _listen(self, span: Span, otel_names: Mapping[str, str], event: Event) -> None:
        """Add an event to the span of its run: a step such as a compaction, or the totals.

        A step in `events.Explanation` becomes an event of the span. The end of the run adds the
        outcome and the totals. Continued replies are also counted in the metrics. Other events are
        ignored.
        """
        if isinstance(event, events.Explanation):
            data = event_to_json(event)
            name = data.pop("type")
            data.pop("text", None)  # the text of a nudge is content, which is not recorded here
            named = {
                f"glue.{key}": tuple(map(str, value)) if isinstance(value, list) else value
                for key, value in data.items()
            }
            span.add_event(f"glue.{name}", _known(named))
        if isinstance(event, events.ContinuationAttempt):
            self.continuations.add(1, _model(otel_names, event.provider, event.model))
        elif isinstance(event, events.ContinuationTerminated) and event.reason != "completed":
            self.truncation_exits.add(1, {"glue.reason": event.reason})
        elif isinstance(event, events.RunEnd):
            counts = {"glue.turns": event.turns, "glue.requests": event.requests}
            span.set_attributes(
                {"glue.outcome": str(event.outcome), **counts, **_usage(event.usage)}
            )
            if event.outcome is Outcome.FAILED:
                _fail(span, "failed")

    @contextmanager
    def _span(
        self, name: str, attributes: Mapping[str, Any], context: Any = None
    ) -> Iterator[Span]:
        with self.tracer.start_as_current_span(
            name,
            context,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
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
    """Return the trace context in TRACEPARENT, or None if it is not set or a span is current.

    CI or a parent process may have set this environment variable. A current span is the parent
    instead.
    """
    if "TRACEPARENT" not in os.environ or trace.get_current_span().get_span_context().is_valid:
        return None
    names = [name for name in ("TRACEPARENT", "TRACESTATE") if name in os.environ]
    return propagate.extract({name.lower(): os.environ[name] for name in names})


def _fail(span: Span, kind: str) -> None:
    """Mark a span as failed, with `kind` as the type of the error."""
    span.set_attribute("error.type", kind)
    span.set_status(trace.Status(trace.StatusCode.ERROR))


def _known(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the attributes without values that are None or empty."""
    return {
        name: value
        for name, value in attributes.items()
        if value is not None and value not in ("", ())
    }


def _model(otel_names: Mapping[str, str], provider: str, model: str) -> dict[str, Any]:
    """Return the span attributes that name a provider and a model.

    `otel_names` maps names of providers to the names in the GenAI conventions. Other providers keep
    their names. A failover list gets no provider name, because each attempt names the provider that
    was tried.
    """
    name = "" if "," in provider else otel_names.get(provider, provider)
    return _known({"gen_ai.provider.name": name, "gen_ai.request.model": model})


def _server(provider: Provider) -> dict[str, Any]:
    """Return the span attributes for the host and port of a provider; {} if it has no base URL."""
    address = _text(getattr(getattr(provider, "http", None), "base_url", None))
    if not address:
        return {}
    parts = urlsplit(address)
    port = parts.port or {"https": 443, "http": 80}.get(parts.scheme)
    return {"server.address": parts.hostname, "server.port": port}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _usage(usage: Usage) -> dict[str, Any]:
    return _known({key: getattr(usage, name) for key, name in _USAGE.items()})


class _TracedPermission:
    """A permission that records each decision and its duration in the span of a tool call."""

    def __init__(self, span: Span, permission: Permission) -> None:
        self.span, self.denied = span, False
        self.permission = permission
        if isinstance(permission, _TracedPermission):
            # This is the policy of the run that called a sub-agent. The decision belongs only to
            # the span of the sub-agent's call.
            self.permission = permission.permission

    async def decide(self, request: PermissionRequest) -> Decision:
        began = time.monotonic()
        decision = await decide(self.permission, request)
        self.denied = not decision.allowed
        seconds = time.monotonic() - began
        self.span.add_event(
            "glue.permission", {"glue.allowed": decision.allowed, "glue.seconds": seconds}
        )
        return decision


class _TracedTool(ToolWrapper):
    """A tool that creates a span for each call, which is the current span while the tool runs."""

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
            if result.is_error:
                is_denied = permission is not None and permission.denied
                _fail(span, "permission_denied" if is_denied else _error_class(result.traceback))
            if content:
                span.set_attribute("gen_ai.tool.call.result", _masked(result.text))
            return result


def _error_class(traceback: str) -> str:
    """Return the name of the exception class at the end of a traceback, or "tool_error" if none."""
    name = traceback.strip().rpartition("\n")[2].partition(":")[0].strip()
    return name if name.replace(".", "").isidentifier() else "tool_error"


class _TracedProvider(Wrapper):
    """A provider that creates a span for each attempt at a request."""

    def __init__(
        self,
        telemetry: OpenTelemetry,
        provider: Provider,
        otel_names: Mapping[str, str],
        conversation: str,
    ) -> None:
        super().__init__(provider)
        self._telemetry, self._otel_names = telemetry, otel_names
        self._shared = {"gen_ai.conversation.id": conversation, **_server(provider)}

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        names = (self.name, request.model or getattr(self.provider, "model", ""))
        new_span = functools.partial(
            _ChatSpan, self._telemetry, self._otel_names, request, names, self._shared
        )
        attempt = new_span()
        async with opened(self.provider, request) as stream:
            try:
                while True:
                    # The span is the current span only while the provider works, not while the
                    # caller handles an event.
                    token = otel_context.attach(attempt.context)
                    try:
                        event = await anext(stream, None)
                    finally:
                        otel_context.detach(token)
                    if event is None:
                        break
                    if isinstance(event, Done):
                        attempt.answer(event.message)
                    elif isinstance(event, Attempt):
                        attempt.retry(event, in_failover_list="," in self.name)
                        attempt = new_span(attempt.number + 1, event.delay)
                    elif not isinstance(event, Notice):
                        attempt.chunk()
                    yield event
                attempt.end("protocol")  # without effect if the reply was complete
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
    """The span of one attempt at a request. The span begins `delay` seconds from now."""

    def __init__(
        self,
        telemetry: OpenTelemetry,
        otel_names: Mapping[str, str],
        request: Request,
        names: tuple[str, str],
        shared: Mapping[str, Any],
        number: int = 1,
        delay: float = 0.0,
    ) -> None:
        temperature = request.temperature
        attributes = {
            **shared,
            "gen_ai.operation.name": "chat",
            **_model(otel_names, *names),
            "gen_ai.request.max_tokens": request.max_tokens,
            "gen_ai.request.temperature": None if temperature is None else float(temperature),
            "gen_ai.request.stop_sequences": request.stop,
            "gen_ai.request.stream": request.stream,
            "gen_ai.output.type": "json" if request.output_schema is not None else None,
            "glue.request.reasoning": request.reasoning,
            "glue.attempt": number,
        }
        if telemetry.content:
            attributes |= _content(request)
        self.number, self._telemetry = number, telemetry
        self._otel_names, self._names = otel_names, names
        self._began, self._ended = time.monotonic() + delay, False
        self._first: float | None = None  # seconds until the first delta of the reply
        self._span = telemetry.tracer.start_span(
            f"chat {names[1]}".strip(),
            kind=trace.SpanKind.CLIENT,
            attributes=_known(attributes),
            start_time=time.time_ns() + int(delay * 1e9),
        )
        self.context = trace.set_span_in_context(self._span)

    def chunk(self) -> None:
        """Record the time of the first delta. Further calls have no effect."""
        if self._first is None:
            self._first = time.monotonic() - self._began

    def answer(self, message: AssistantMessage) -> None:
        """Add the attributes of a complete reply to the span, and end the span."""
        model = self._names[1] or message.model
        attributes = {
            "gen_ai.response.finish_reasons": (str(message.stop_reason),),
            "gen_ai.response.id": _text((message.meta or {}).get("id")),
            "gen_ai.response.model": message.model or model,
            "glue.stop_reason.raw": message.raw_stop_reason,
        }
        if self._telemetry.content:
            attributes["gen_ai.output.messages"] = _messages([message], str(message.stop_reason))
        self._span.set_attributes(_known(attributes))
        self.end("", message.usage, message.provider, model)

    def retry(self, attempt: Attempt, *, in_failover_list: bool) -> None:
        """Add an event with the reason for the next attempt to the span, and end the span."""
        name, error = "retry", attempt.kind
        if attempt.next_cap is not None:
            name, error = "escalation", ""
        elif in_failover_list and not attempt.delay:
            name = "failover"
        attributes = _known({"glue.kind": attempt.kind, "glue.delay": attempt.delay})
        self._span.add_event(f"glue.{name}", attributes)
        self.end(error, attempt.usage, attempt.provider, attempt.model)

    def end(
        self, error: str, usage: Usage | None = None, provider: str = "", model: str = ""
    ) -> None:
        """End the span, and record its duration, usage and error. Further calls have no effect."""
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


def _content(request: Request) -> dict[str, Any]:
    """Return the span attributes with the system prompt, messages and tools of a request."""
    system = [{"type": "text", "content": _masked(request.system)}] if request.system else None
    tools = [
        {"type": "function", "name": tool.name, "description": tool.description}
        for tool in request.tools
    ]
    return {
        "gen_ai.system_instructions": json.dumps(system) if system else None,
        "gen_ai.input.messages": _messages(request.messages),
        "gen_ai.tool.definitions": _fitting(tools) if tools else None,
    }


def _messages(messages: Sequence[Message], finish_reason: str = "") -> str:
    """Return messages as JSON in the form of the GenAI conventions, with secrets masked.

    If the JSON is too long for an attribute, the first messages are left out.
    """
    shown: list[dict[str, Any]] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            response = {
                "type": "tool_call_response",
                "id": message.call_id,
                "response": _masked(message.text),
            }
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
        return {
            "type": "tool_call",
            "id": part.id,
            "name": part.name,
            "arguments": _masked(part.arguments),
        }
    return {"type": type(part).__name__.lower()}  # the bytes of images and files are left out


def _masked(text: str) -> str:
    """Return a text with secrets masked. Cut it after `MAX_PART` characters and add a note."""
    text = mask_secrets(text)
    if len(text) <= MAX_PART:
        return text
    return f"{text[:MAX_PART]} [{len(text) - MAX_PART} characters more]"


def _fitting(items: Sequence[Any]) -> str:
    """Return `items` as a JSON list. The first items are left out if the list is too long."""
    kept: list[str] = []
    size = 2
    for item in reversed(items):
        text = json.dumps(item, ensure_ascii=False)
        size += len(text) + 2
        if size > MAX_CONTENT and kept:
            break
        kept.append(text)
    return f"[{', '.join(reversed(kept))}]"
