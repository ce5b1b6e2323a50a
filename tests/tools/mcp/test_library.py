"""Tests of the prompts and resources that `glue mcp` offers."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp_types import PromptReference, ResourceTemplateReference

import glue
from glue.prompts import catalogs
from glue.testing import Script
from glue.tools.mcp.library import Library
from glue.tools.mcp.server import make_server


@pytest.fixture
def library(tmp_path: Path) -> Library:
    for version, text in (("v1", "Review it."), ("v2", "Review it well.")):
        (tmp_path / "prompts" / "review").mkdir(parents=True, exist_ok=True)
        (tmp_path / "prompts" / "review" / f"{version}.md").write_text(text)
    (tmp_path / "files" / "docs").mkdir(parents=True)
    (tmp_path / "files" / "docs" / "a b.md").write_text("# A")
    (tmp_path / "files" / "logo.png").write_bytes(b"\x89PNG\xff")
    (tmp_path / "secret").write_text("outside")
    (tmp_path / "files" / "link").symlink_to(tmp_path / "secret")
    return Library(
        catalogs=catalogs(tmp_path / "prompts"),
        root=str(tmp_path / "files"),
        store=glue.FileStore(tmp_path / "store"),
    )


def connect(library: Library) -> Client:
    agent = glue.Agent(Script("hello"), instructions="Be brief.")
    return Client(make_server(agent, {}, glue.AllowAll(), library))


async def test_prompts_are_offered_by_version(library: Library) -> None:
    async with connect(library) as client:
        (listed,) = (await client.list_prompts()).prompts
        newest: Any = await client.get_prompt("review")
        older: Any = await client.get_prompt("review", {"version": "v1"})
        suggested = await client.complete(
            PromptReference(name="review"), {"name": "version", "value": "v"}
        )
        errors = []
        for name, arguments in (("x", {}), ("review", {"version": "v9"}), ("review", {"a": "b"})):
            with pytest.raises(MCPError) as raised:
                await client.get_prompt(name, arguments)
            errors.append(raised.value.message)

    assert (listed.name, listed.description) == ("review", "Versions: v1, v2; the default is v2.")
    assert newest.messages[0].content.text.strip() == "Review it well."
    assert older.messages[0].content.text.strip() == "Review it."
    assert suggested.completion.values == ["v1", "v2"]
    assert errors == [
        "the prompt 'x' does not exist; there are: review",
        "prompt 'review' has no version 'v9'; there are: v1, v2",
        "the prompt 'review' has no argument 'a'; it has: version",
    ]


async def test_files_below_the_root_are_resources_and_no_others(library: Library) -> None:
    async with connect(library) as client:
        listed = [resource.uri for resource in (await client.list_resources()).resources]
        templates = (await client.list_resource_templates()).resource_templates
        text: Any = (await client.read_resource("glue://files/docs/a%20b.md")).contents[0]
        picture: Any = (await client.read_resource("glue://files/logo.png")).contents[0]
        suggested = await client.complete(
            ResourceTemplateReference(uri="glue://files/{+path}"), {"name": "path", "value": "do"}
        )
        for outside in ("../secret", "%2e%2e/secret", "link", "docs", "missing"):
            with pytest.raises(MCPError, match="cannot be read"):
                await client.read_resource(f"glue://files/{outside}")

    assert listed[0] == "glue://agent/instructions"
    assert {"glue://files/docs/a%20b.md", "glue://files/logo.png"} <= {*listed}
    assert [each.uri_template for each in templates] == [
        "glue://files/{+path}",
        "glue://sessions/{id}",
    ]
    assert (text.text, text.mime_type) == ("# A", "text/markdown")
    assert base64.b64decode(picture.blob) == b"\x89PNG\xff"
    assert picture.mime_type == "image/png"
    assert suggested.completion.values == ["docs/a b.md"]


async def test_suggested_paths_are_files_even_if_there_are_too_many(library: Library) -> None:
    for number in range(1001):
        Path(library.root, f"{number}.txt").touch()

    async with connect(library) as client:
        suggested = await client.complete(
            ResourceTemplateReference(uri="glue://files/{+path}"), {"name": "path", "value": ""}
        )

    assert suggested.completion.total == 1000


async def test_sessions_of_a_store_are_resources(library: Library) -> None:
    store = library.store
    assert store is not None
    await glue.Agent(Script("hello")).session("first", store=store).run("Say hello.")

    async with connect(library) as client:
        listed = {resource.uri: resource for resource in (await client.list_resources()).resources}
        read: Any = (await client.read_resource("glue://sessions/first")).contents[0]
        with pytest.raises(MCPError, match="cannot be read"):
            await client.read_resource("glue://sessions/missing")

    assert listed["glue://sessions/first"].title == "Say hello."
    assert [message["role"] for message in json.loads(read.text)] == ["user", "assistant"]


async def test_nothing_is_announced_that_is_not_there() -> None:
    async with Client(make_server(glue.Agent(Script("x")), {}, glue.AllowAll())) as client:
        capabilities = client.server_capabilities

    assert capabilities is not None
    assert (capabilities.prompts, capabilities.resources, capabilities.completions) == (
        None,
        None,
        None,
    )
