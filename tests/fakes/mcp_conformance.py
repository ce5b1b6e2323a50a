"""A client and a server for the conformance suite of MCP.

The client connects, calls every tool, and ends. The suite starts it with the URL of a server. The
variable MCP_CONFORMANCE_SCENARIO names the scenario, and MCP_CONFORMANCE_CONTEXT has the
credentials of some scenarios as JSON.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio

import glue
from fakes.mcp_servers import invoke
from glue.prompts import catalogs
from glue.testing import Script
from glue.tools import mcp

METADATA = "https://conformance-test.local/client-metadata.json"
# A browser that follows redirects by itself, for the module webbrowser.
BROWSER = f"{sys.executable} -c 'import sys, urllib.request as u; u.urlopen(sys.argv[1])' %s"


def oauth(scenario: str, given: Mapping[str, Any]) -> mcp.OAuth | bool:
    """Return the OAuth settings that a scenario needs, or False if it needs no sign-in."""
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
    """Answer a form of the server with the default values of its fields."""
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


def conformance_server(folder: Path) -> Any:
    """Return a server with the tools, prompts and resources that the suite expects by name."""
    from glue.tools.mcp.library import Library  # loads the SDK
    from glue.tools.mcp.server import make_server

    picture = glue.Image(media_type="image/png", data=b"\x89PNG")
    document = glue.File(media_type="application/pdf", data=b"%PDF", name="a.pdf")
    log = logging.getLogger("conformance")
    log.setLevel("INFO")

    @glue.tool
    def test_simple_text() -> str:
        """Return a text."""
        return "This is a simple text response for testing."

    @glue.tool
    def test_image_content() -> glue.Image:
        """Return a picture."""
        return picture

    @glue.tool
    def test_embedded_resource() -> glue.File:
        """Return a file."""
        return document

    @glue.tool
    def test_multiple_content_types() -> glue.ToolResult:
        """Return a text, a picture and a file."""
        return glue.ToolResult(content=(glue.Text(text="Several:"), picture, document))

    @glue.tool
    def test_tool_with_logging() -> str:
        """Write three log records."""
        for text in ("started", "processing", "completed"):
            log.info(text)
        return "done"

    @glue.tool
    async def test_tool_with_progress(context: glue.Context[None]) -> str:
        """Report progress three times."""
        for step in (0, 50, 100):
            context.progress(f"{step} of 100", {"progress": step, "total": 100})
        return "done"

    @glue.tool
    def test_error_handling() -> str:
        """Fail."""
        raise glue.ToolError("This tool intentionally returns an error for testing")

    tools: list[Any] = [
        test_simple_text,
        test_image_content,
        test_embedded_resource,
        test_multiple_content_types,
        test_tool_with_logging,
        test_tool_with_progress,
        test_error_handling,
    ]
    (folder / "prompts" / "test_simple_prompt").mkdir(parents=True)
    (folder / "prompts" / "test_simple_prompt" / "v1.md").write_text("A simple prompt.")
    library = Library(catalogs=catalogs(folder / "prompts"), root=str(folder))
    agent = glue.Agent(Script("x"), tools=tools, instructions="Be brief.")
    return make_server(agent, {tool.name: tool for tool in tools}, glue.AllowAll(), library)


if __name__ == "__main__":
    os.environ["BROWSER"] = BROWSER
    with tempfile.TemporaryDirectory() as state:
        os.environ["XDG_STATE_HOME"] = state
        anyio.run(main, sys.argv[1])
