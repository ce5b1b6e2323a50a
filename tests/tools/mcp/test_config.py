"""Tests of reading the configuration of MCP servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from glue.errors import ConfigError
from glue.tools import mcp


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({}, 'needs "mcpServers"'),
        ({"mcpServers": []}, 'needs "mcpServers"'),
        ({"mcpServers": {"a": 7}}, "must be an object"),
        ({"mcpServers": {"a": {}}}, "needs either a command or a url"),
        ({"mcpServers": {"a": {"command": "x", "url": "y"}}}, "needs either a command or a url"),
        ({"mcpServers": {"a": {"command": "x", "args": "-v"}}}, "args must be a list"),
        ({"mcpServers": {"a": {"command": 7}}}, "a text was expected"),
        (
            {"mcpServers": {"a": {"url": "x", "headers": {"k": "${NO_SUCH}"}}}},
            "needs the variable NO_SUCH",
        ),
    ],
)
def test_an_invalid_configuration_is_an_error(content: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        mcp.read_config(content, {})


def test_variables_are_replaced_and_headers_are_not_in_the_repr() -> None:
    given = {
        "url": "${BASE:-https://mcp.example}/x",
        "headers": {"Authorization": "Bearer ${TOKEN}"},
    }

    (config,) = mcp.read_config({"mcpServers": {"a": given}}, {"TOKEN": "hush"})

    assert (config.url, config.headers) == (
        "https://mcp.example/x",
        {"Authorization": "Bearer hush"},
    )
    assert "hush" not in repr(config)


def test_a_file_that_is_missing_or_not_json_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{")

    with pytest.raises(ConfigError, match=r"a\.json is not JSON"):
        mcp.read_config(tmp_path / "a.json")
    with pytest.raises(ConfigError, match=r"b\.json could not be read: No such file"):
        mcp.read_config(tmp_path / "b.json")


TOKEN = "a-token-of-some-length"
