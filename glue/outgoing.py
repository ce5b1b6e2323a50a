"""Whether requests may leave this process: tests forbid it."""

from __future__ import annotations

from collections.abc import Callable

# Called with the origin ("https://api.example.com") before each request; raises where none may be sent.
check: Callable[[str], None] | None = None
