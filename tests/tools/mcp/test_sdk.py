"""Tests of loading the SDK."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import pytest

from glue.errors import ConfigError


def test_an_sdk_that_is_too_old_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", ModuleType("mcp"))
    monkeypatch.delitem(sys.modules, "glue.tools.mcp.sdk", raising=False)

    with pytest.raises(ConfigError, match="need the package mcp, version 2 or later"):
        importlib.import_module("glue.tools.mcp.sdk")
