"""Functions that switch tracing on and off, and that pass a trace on to other processes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glue.telemetry.tracing import OpenTelemetry

# Created by `instrument`, or for the first run with telemetry=True.
_shared: OpenTelemetry | None = None


def instrument(
    *, tracer_provider: Any = None, meter_provider: Any = None, content: bool | None = None
) -> None:
    """Trace runs from now on, here and in processes started later, unless `telemetry=False`.

    Agents with `telemetry=False` are not traced. The parameters are those of `OpenTelemetry`. The
    environment variable GLUE_OTEL is set to 1, and started processes inherit it.
    """
    global _shared
    _shared = _open(tracer_provider=tracer_provider, meter_provider=meter_provider, content=content)
    os.environ["GLUE_OTEL"] = "1"


def uninstrument() -> None:
    """Undo `instrument`. Agents with `telemetry=True` are still traced."""
    global _shared
    _shared = None
    os.environ.pop("GLUE_OTEL", None)


def telemetry_of(setting: bool | OpenTelemetry | None) -> OpenTelemetry | None:
    """Return the tracer for a run with `telemetry=setting`, or None if the run is not traced.

    True selects the tracer of `instrument`, which is created if there is none. A tracer is
    returned unchanged.
    """
    global _shared
    if not isinstance(setting, bool):
        return setting
    if not setting:
        return None
    _shared = _shared or _open()
    return _shared


def inject(carrier: dict[str, Any]) -> dict[str, Any]:
    """Add the W3C `traceparent` of the current trace to a mapping, and return the mapping.

    Without a current trace, the value of the environment variable TRACEPARENT is added, which CI or
    a parent process may have set. If the variable is not set either, nothing is added.
    """
    telemetry = _shared or telemetry_of(_is_switched_on())
    if telemetry is not None:
        telemetry.inject(carrier)
    for name in ("TRACEPARENT", "TRACESTATE") if "traceparent" not in carrier else ():
        if name in os.environ:
            carrier[name.lower()] = os.environ[name]
    return carrier


def _is_switched_on() -> bool:
    return os.environ.get("GLUE_OTEL", "") not in ("", "0")


@contextmanager
def continued(carrier: object) -> Iterator[None]:
    """Continue the trace whose `traceparent` is in `carrier`, during a `with` block.

    Do nothing if `carrier` is not a mapping with a `traceparent`, or if tracing is switched off.
    """
    telemetry = telemetry_of(_is_switched_on())
    if telemetry is None or not isinstance(carrier, Mapping) or "traceparent" not in carrier:
        yield
        return
    with telemetry.continued(carrier):
        yield


def _open(**options: Any) -> OpenTelemetry:
    from glue.telemetry.tracing import OpenTelemetry  # needs opentelemetry, heavy and optional

    return OpenTelemetry(**options)
