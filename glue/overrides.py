"""Context variables with which tests and recordings replace providers and check requests."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

# If set, this function is called instead of `glue.providers.new` to create a provider by name.
provider_names: ContextVar[Callable[[str], Any] | None] = ContextVar(
    "glue.provider_names", default=None
)
# If set, this function is called before each HTTP request with the origin of the URL, such as
# "https://api.example.com". It may raise an exception to prevent the request.
check_origin: ContextVar[Callable[[str], None] | None] = ContextVar(
    "glue.check_origin", default=None
)
