"""Tests of the names that glue.tools offers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from glue.tools.fs import safe_open


def test_every_public_name_can_be_imported() -> None:
    from glue import tools

    for name in tools.__all__:
        assert getattr(tools, name)
    callback: Callable[..., Any] = tools.safe_open
    assert callback is safe_open
