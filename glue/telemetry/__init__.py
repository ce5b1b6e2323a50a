"""Telemetry of runs: counts in memory, or spans and metrics of OpenTelemetry.

Spans and metrics follow the GenAI conventions of OpenTelemetry. They are off by default. To switch
them on, set `GLUE_OTEL=1`, call `instrument()`, or pass `telemetry=True` to an agent:

    agent = Agent("anthropic", telemetry=True)

`Metrics` counts in memory and needs no further package:

    metrics = Metrics()
    agent.run_sync("Weather in Oslo?", on_event=metrics)

The loop contains no telemetry. A listener receives the events of a run, and wrappers around the
provider, the tools and the permission create the spans.
"""

from typing import TYPE_CHECKING

from glue.lazy import lazy_names
from glue.telemetry.instrumentation import (
    continued,
    inject,
    instrument,
    telemetry_of,
    uninstrument,
)
from glue.telemetry.metrics import Histogram, Metrics

if TYPE_CHECKING:
    from glue.telemetry.export import setup
    from glue.telemetry.tracing import OpenTelemetry

__all__ = [
    "Histogram",
    "Metrics",
    "OpenTelemetry",
    "continued",
    "inject",
    "instrument",
    "setup",
    "telemetry_of",
    "uninstrument",
]

# These need optional dependencies.
__getattr__, __dir__ = lazy_names(__name__, {"tracing": "OpenTelemetry", "export": "setup"})
