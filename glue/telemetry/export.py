"""`setup`, which configures the OpenTelemetry SDK to export spans and metrics of runs."""

from __future__ import annotations

import logging
import os
import sys

from glue.errors import ConfigError
from glue.telemetry.instrumentation import instrument

try:
    from opentelemetry import metrics, trace
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import (
        ConsoleMetricExporter,
        MetricReader,
        PeriodicExportingMetricReader,
    )
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
except ImportError as error:
    raise ConfigError(
        "sending telemetry needs the OpenTelemetry SDK:"
        " pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"
    ) from error

# A program waits at its end until all spans are sent. This limits the wait if no collector runs.
_TIMEOUT_SECONDS = 3.0


def setup() -> None:
    """Configure the OpenTelemetry SDK if the application has not, and trace runs from now on.

    Spans and metrics are sent to a collector by OTLP over HTTP, unless the standard OTEL_*
    variables choose otherwise. If the application has configured the SDK already, its configuration
    is used. Runs are traced as by `instrument`.
    """
    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        _configure()
    instrument()


def _configure() -> None:
    name = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "glue"}
    resource = Resource.create(name)
    timeout = None if _has_timeout() else _TIMEOUT_SECONDS
    tracer_provider = TracerProvider(resource=resource)
    readers: list[MetricReader] = []

    spans = _exporter("TRACES")
    if spans == "otlp":
        tracer_provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(timeout=timeout)))
    elif spans == "console":
        console = ConsoleSpanExporter(out=sys.stderr)
        tracer_provider.add_span_processor(BatchSpanProcessor(console))

    measurements = _exporter("METRICS")
    if measurements == "otlp":
        readers.append(PeriodicExportingMetricReader(OTLPMetricExporter(timeout=timeout)))
    elif measurements == "console":
        readers.append(PeriodicExportingMetricReader(ConsoleMetricExporter(out=sys.stderr)))

    # The SDK logs an error if no collector runs. That must not disturb the output of a program.
    logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
    trace.set_tracer_provider(tracer_provider)
    metrics.set_meter_provider(MeterProvider(resource=resource, metric_readers=readers))


def _has_timeout() -> bool:
    prefix = "OTEL_EXPORTER_OTLP"
    return any(name.startswith(prefix) and name.endswith("TIMEOUT") for name in os.environ)


def _exporter(signal: str) -> str:
    """Return the value of OTEL_{signal}_EXPORTER: "console", "none", or "otlp", the default.

    `signal` is "TRACES" or "METRICS". Raise ConfigError if the variable has another value.
    """
    kind = os.environ.get(f"OTEL_{signal}_EXPORTER", "otlp").strip()
    if kind not in ("otlp", "console", "none"):
        raise ConfigError(f"OTEL_{signal}_EXPORTER must be otlp, console or none, not {kind!r}")
    return kind
