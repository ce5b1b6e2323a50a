"""Tests of the registry of tool names."""

from __future__ import annotations

import pytest

import glue
from glue.toolnames import register_tool_names, registered_tool_names


def test_a_rule_may_name_a_registered_tool_that_the_agent_does_not_have() -> None:
    rules = glue.Rules(deny=["launch_rocket"])

    with pytest.raises(glue.errors.ConfigError, match="names no known tool"):
        rules.check([])
    register_tool_names("launch_rocket")
    rules.check([])

    assert "launch_rocket" in registered_tool_names()


def test_registering_a_name_twice_keeps_one_entry() -> None:
    register_tool_names("dock")
    before = registered_tool_names()

    register_tool_names("dock")

    assert registered_tool_names() == before
