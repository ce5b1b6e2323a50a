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
        ({"mcpServers": {"a": {}}}, "needs a command or a url"),
        ({"mcpServers": {"a": {"command": "x", "url": "y"}}}, "has both a command and a url"),
        ({"mcpServers": {"a": {"command": "x", "args": "-v"}}}, "args must be a list of texts"),
        ({"mcpServers": {"a": {"command": "x", "args": ["-v", 7]}}}, r"args\[1\] must be a text"),
        ({"mcpServers": {"a": {"command": 7}}}, "command must be a text, not a number"),
        ({"mcpServers": {"a": {"url": 7}}}, "url must be a text, not a number"),
        ({"mcpServers": {"a": {"command": "x", "cwd": 7}}}, "cwd must be a text, not a number"),
        (
            {"mcpServers": {"a": {"command": "x", "env": ["K=v"]}}},
            "env must be an object, not a list",
        ),
        ({"mcpServers": {"a": {"command": "x", "env": {"K": 7}}}}, r"env\.K must be a text"),
        ({"mcpServers": {"a": {"url": "x", "headers": {"K": 7}}}}, r"headers\.K must be a text"),
        ({"mcpServers": {"a": {"url": "x", "includeTools": "*"}}}, "includeTools must be a list"),
        ({"mcpServers": {"a": {"url": "x", "excludeTools": [7]}}}, r"excludeTools\[0\] must be"),
        (
            {"mcpServers": {"a": {"url": "x", "headers": {"k": "${NO_SUCH}"}}}},
            "needs the variable NO_SUCH",
        ),
    ],
)
def test_an_invalid_configuration_is_an_error(content: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        mcp.read_config(content, {})


@pytest.mark.parametrize(
    "given",
    [
        ["Bearer hush"],
        {"command": ["hush"]},
        {"url": "x", "headers": ["Authorization: Bearer hush"]},
        {"url": "x", "headers": {"Authorization": ["Bearer hush"]}},
        {"command": "x", "env": "TOKEN=hush"},
        {"command": "x", "args": "--token hush"},
        {"url": "x", "oauth": "hush"},
        {"url": "x", "oauth": {"clientSecret": ["hush"]}},
    ],
)
def test_the_error_of_an_invalid_value_does_not_contain_the_value(given: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        mcp.read_config({"mcpServers": {"a": given}}, {})

    assert "server 'a'" in str(caught.value)
    assert "hush" not in str(caught.value)


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


def test_the_sign_in_and_the_tools_of_a_server_are_read() -> None:
    given = {
        "url": "https://mcp.example",
        "includeTools": ["read_*"],
        "excludeTools": ["read_secret"],
        "oauth": {
            "clientId": "ci",
            "clientSecret": "${SECRET}",
            "grant": "client_credentials",
            "issuer": "https://auth.example",
            "port": 8765,
        },
    }

    (config,) = mcp.read_config({"mcpServers": {"a": given}}, {"SECRET": "hush"})

    assert (config.include, config.exclude) == (("read_*",), ("read_secret",))
    assert config.oauth == mcp.OAuth(
        client_id="ci",
        client_secret="hush",
        grant="client_credentials",
        issuer="https://auth.example",
        port=8765,
    )
    assert "hush" not in repr(config)


@pytest.mark.parametrize(
    ("oauth", "why"),
    [
        ("yes", "oauth must be true or an object"),
        ({"clientID": "x"}, "unknown name 'clientID' in oauth; did you mean clientId"),
        ({"clientSecret": "x"}, "a client_secret needs a client_id"),
        ({"privateKey": "x"}, "a private_key needs a client_id"),
        ({"grant": "password"}, "grant must be browser or client_credentials"),
        (
            {"grant": "client_credentials", "clientId": "x"},
            "needs a client_id, and also a client_secret",
        ),
        ({"port": "80"}, r"oauth\.port must be a whole number, not a text"),
        ({"clientId": 7}, r"oauth\.clientId must be a text, not a number"),
    ],
)
def test_an_invalid_sign_in_is_an_error_that_names_the_server(oauth: Any, why: str) -> None:
    given = {"url": "https://mcp.example", "oauth": oauth}

    with pytest.raises(ConfigError, match=f"server 'a'.*{why}"):
        mcp.read_config({"mcpServers": {"a": given}}, {})


def test_a_server_that_is_disabled_is_left_out() -> None:
    given = {
        "off": {"command": "x", "disabled": True},
        "on": {"command": "y", "disabled": False},
        "odd": {"command": "z", "disabled": "yes"},
    }

    assert [each.name for each in mcp.read_config({"mcpServers": given}, {})] == ["on", "odd"]
    assert [each.name for each in mcp.read_config({"servers": given}, {})] == ["on", "odd"]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"command": "x", "url": "y"}, "has both a command and a url"),
        ({}, "needs a command or a url"),
        ({"command": ["x"]}, "command must be a text, not a list"),
        ({"command": "x", "args": "y"}, "args must be a list of texts, not a text"),
        ({"command": "x", "args": ["y", None]}, r"args\[1\] must be a text, not null"),
        ({"command": "x", "env": {"A": True}}, r"env\.A must be a text, not a boolean"),
        ({"command": "x", "env": [1]}, "env must be an object, not a list"),
        ({"command": "x", "cwd": {"a": 1}}, "cwd must be a text, not an object"),
        ({"command": "x ${A}"}, "needs the variable A, which is not set"),
        ({"url": "x", "oauth": 1}, "oauth must be true or an object, not a number"),
        ({"url": "x", "oauth": {"port": True}}, r"oauth\.port must be a whole number, not a bool"),
    ],
)
def test_a_wrong_setting_is_named_with_its_place(given: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=f"server 'a'.*{why}") as caught:
        mcp.read_config({"mcpServers": {"a": given}}, {})

    assert str(caught.value).count("the MCP configuration") == 1


def test_the_defaults_of_a_server() -> None:
    (files, web) = mcp.read_config(
        {"mcpServers": {"files": {"command": "x"}, "web": {"url": "y", "type": "sse"}}}, {}
    )

    assert (files.sse, files.oauth, files.cwd, files.args) == (False, False, None, ())
    assert (web.sse, web.oauth) == (True, False)
    assert (mcp.OAuth().grant, mcp.OAuth().port) == ("browser", 0)
