"""Fixtures for tests of telemetry."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fakes.telemetry import Backend

if find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None:
    collect_ignore = ["test_export.py", "test_instrumentation.py", "test_tracing.py"]


@pytest.fixture
def backend() -> Iterator[Backend]:
    """Return an OpenTelemetry backend in memory, which does not record content."""
    from fakes.telemetry import Backend  # needs opentelemetry-sdk, which is optional

    made = Backend()
    yield made
    made.tracer_provider.shutdown()
    made.meter_provider.shutdown()
