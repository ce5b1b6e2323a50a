"""The loop's log lines, as a listener: silent unless the logger `glue.loop` is switched on."""

from __future__ import annotations

import logging

from glue.events import ContinuationAttempt, ContinuationTerminated, Event, StopReasonObserved
from glue.limits import StopReason

logger = logging.getLogger("glue.loop")
logging.getLogger("glue").addHandler(logging.NullHandler())

_warned: set[tuple[str, str, str | None]] = set()


def log_event(event: Event) -> None:
    """Say what an operator should know."""
    if isinstance(event, StopReasonObserved):
        key = (event.provider, event.model, event.raw)
        if event.normalized is StopReason.UNKNOWN and key not in _warned:
            _warned.add(key)
            logger.warning("unknown stop reason %r from %s %s; taken as an end", event.raw, event.provider, event.model)
    elif isinstance(event, ContinuationAttempt):
        most = event.attempt + event.left
        logger.info("response truncated at max_tokens, continuing (%d/%d)", event.attempt, most)
    elif isinstance(event, ContinuationTerminated) and event.reason == "retry_limit":
        logger.info("continuation limit reached")
