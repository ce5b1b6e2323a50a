"""Programs that name their model, run without it: the name is kept, the provider is another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import glue.agent
from glue.types import Provider


@contextmanager
def stand_in(provider: Provider | Callable[[str], Provider]) -> Iterator[None]:
    """Let agents that name their model ask this provider, or the one a function gives for the name."""
    before = glue.agent.opener
    if isinstance(provider, Provider):
        chosen: Provider = provider
        glue.agent.opener = lambda name: chosen
    else:
        glue.agent.opener = provider
    try:
        yield
    finally:
        glue.agent.opener = before
