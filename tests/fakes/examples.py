"""The number of random examples of a property test."""

from __future__ import annotations

import os


def examples(count: int) -> int:
    """Return a third of `count`, or `count` if `make soak` has set GLUE_ALL_EXAMPLES."""
    return count if os.environ.get("GLUE_ALL_EXAMPLES") else count // 3
