"""A client for the conformance suite of MCP: it connects, calls every tool, and ends.

The suite starts it with the URL of a server. The variable MCP_CONFORMANCE_SCENARIO names the
scenario, and MCP_CONFORMANCE_CONTEXT has the credentials of some scenarios as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

import anyio

from fakes.mcp_servers import invoke
from glue.tools import mcp

METADATA = "https://conformance-test.local/client-metadata.json"
# A browser that follows redirects by itself, for the module webbrowser.
BROWSER = f"{sys.executable} -c 'import sys, urllib.request as u; u.urlopen(sys.argv[1])' %s"


def oauth(scenario: str, given: Mapping[str, Any]) -> mcp.OAuth | bool:
    """Return the sign-in that a scenario needs."""
    if not scenario.startswith("auth/"):
        return False
    fields: dict[str, Any] = {
        "client_id": given.get("client_id", ""),
        "client_secret": given.get("client_secret", ""),
        "private_key": given.get("private_key_pem", ""),
        "algorithm": given.get("signing_algorithm", "RS256"),
    }
    if scenario.startswith("auth/client-credentials"):
        return mcp.OAuth(grant="client_credentials", **fields)
    return mcp.OAuth(metadata_url="" if fields["client_id"] else METADATA, **fields)


async def accept(question: mcp.Question) -> dict[str, Any]:
    """Accept a form with its defaults."""
    return {}


async def main(url: str) -> None:
    scenario = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    given = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    sign_in = oauth(scenario, given)
    async with mcp.connect_http("demo", url, oauth=sign_in, elicit=accept) as connection:
        for tool in connection.tools:
            listed = tool.spec.parameters.get("properties", {})
            values = {"string": "x", "boolean": True, "integer": 2, "number": 2}
            arguments: dict[str, Any] = {
                name: values.get(part.get("type", ""), 1) for name, part in listed.items()
            }
            if tool.name.endswith("json_schema_echo"):  # sends a schema back as it was read
                arguments = {"schema": connection.tools[0].spec.parameters}
            for own in given.get("toolCalls") or [{}]:
                if not own or tool.name.endswith(f"__{own.get('name')}"):
                    result = await invoke(tool, own.get("arguments", arguments))
                    print(tool.name, result.text[:200])


if __name__ == "__main__":
    os.environ["BROWSER"] = BROWSER
    with tempfile.TemporaryDirectory() as state:
        os.environ["XDG_STATE_HOME"] = state
        anyio.run(main, sys.argv[1])
