"""An OpenTelemetry backend in memory, for tests of spans and metrics."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from glue.telemetry import OpenTelemetry

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


class Backend:
    """The OpenTelemetry SDK, with spans and metrics in memory."""

    def __init__(self, content: bool = False) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self._names: dict[int, str] = {}  # of finished spans, by id
        self.tracer_provider = TracerProvider()
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meter_provider = MeterProvider(metric_readers=[self.reader])
        self.telemetry = OpenTelemetry(
            tracer_provider=self.tracer_provider,
            meter_provider=self.meter_provider,
            content=content,
        )

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    def named(self, prefix: str) -> list[ReadableSpan]:
        """Return the finished spans whose names begin with a prefix, in the order of their ends."""
        return sorted(
            (span for span in self.spans if span.name.startswith(prefix)),
            key=lambda span: span.end_time or 0,
        )

    def parent(self, span: ReadableSpan) -> str:
        """Return the name of the parent of a span, or "" if it has none."""
        if span.parent is None:
            return ""
        if span.parent.span_id not in self._names:
            self._names = {each.context.span_id: each.name for each in self.spans if each.context}
        return self._names[span.parent.span_id]

    def points(self) -> dict[str, list[Any]]:
        """Return the data points of all metrics, by the name of the metric."""
        data = self.reader.get_metrics_data()
        found: dict[str, list[Any]] = {}
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    found[metric.name] = list(metric.data.data_points)
        return found


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """Return the attributes of a span."""
    return dict(span.attributes or {})
