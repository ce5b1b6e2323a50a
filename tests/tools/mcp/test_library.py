"""Tests of the prompts and resources that `glue mcp` offers."""

from __future__ import annotations

import base64
import json
import os
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

    assert [argument.required for argument in listed.arguments or ()] == [False]
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
    assert set(listed[1:]) == {"glue://files/docs/a%20b.md", "glue://files/logo.png"}
    assert [each.uri_template for each in templates] == [
        "glue://files/{+path}",
        "glue://sessions/{id}",
    ]
    assert (text.text, text.mime_type) == ("# A", "text/markdown")
    assert base64.b64decode(picture.blob) == b"\x89PNG\xff"
    assert picture.mime_type == "image/png"
    assert suggested.completion.values == ["docs/a b.md"]


async def test_files_with_unusual_names_are_resources(library: Library) -> None:
    Path(library.root, '"a"\n.txt').write_text("quoted")
    Path(library.root, "[b].txt").write_text("in brackets")
    Path(library.root, os.fsdecode(b"\xff.txt")).touch()

    async with connect(library) as client:
        listed = [resource.uri for resource in (await client.list_resources()).resources]
        texts: list[Any] = [(await client.read_resource(uri)).contents[0] for uri in listed]

    assert "glue://files/%22a%22%0A.txt" in listed
    assert {"quoted", "in brackets"} <= {text.text for text in texts if hasattr(text, "text")}
    assert not any("FF" in uri for uri in listed)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # 1001 files are enough once
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


async def test_a_file_of_one_mib_can_be_read_and_a_larger_one_not(library: Library) -> None:
    Path(library.root, "large").write_bytes(b"x" * 1024 * 1024)
    Path(library.root, "larger").write_bytes(b"x" * (1024 * 1024 + 1))

    read: Any = (await library.read("glue://files/large")).contents[0]
    with pytest.raises(MCPError, match=r"glue://files/larger is larger than 1 MiB$"):
        await library.read("glue://files/larger")

    assert len(read.text) == 1024 * 1024


async def test_the_error_for_a_resource_has_the_reason(library: Library) -> None:
    with pytest.raises(MCPError, match=r"cannot be read: No such file or directory$"):
        await library.read("glue://files/missing")
    with pytest.raises(MCPError, match=r"cannot be read: .*\.\."):
        await library.read("glue://files/../secret")


async def test_a_library_without_a_store_has_no_sessions() -> None:
    library = Library(instructions="Be brief.")
    reference = ResourceTemplateReference(uri="glue://sessions/{id}")

    with pytest.raises(MCPError, match="there is no such resource"):
        await library.read("glue://sessions/first")
    assert (await library.complete(reference, "id", "")).completion.values == []


async def test_an_address_that_is_neither_file_nor_session_is_refused(library: Library) -> None:
    for uri in ("glue://nothing", "first", "glue://agent/instructions"):
        with pytest.raises(MCPError, match="there is no such resource"):
            await library.read(uri)


async def test_sessions_are_suggested_by_their_beginning(library: Library) -> None:
    store = library.store
    assert store is not None
    for name in ("first", "fifth", "second"):
        await glue.Agent(Script("hello")).session(name, store=store).run("Say hello.")
    reference = ResourceTemplateReference(uri="glue://sessions/{id}")

    found = (await library.complete(reference, "id", "fi")).completion
    nothing = ResourceTemplateReference(uri="glue://nothing/{id}")

    assert sorted(found.values) == ["fifth", "first"]
    assert (await library.complete(nothing, "id", "")).completion.values == []


async def test_only_versions_of_prompts_that_exist_are_suggested(library: Library) -> None:
    async def suggest(prompt: str, name: str) -> list[str]:
        reference = PromptReference(name=prompt)
        return (await library.complete(reference, name, "")).completion.values

    assert await suggest("review", "version") == ["v1", "v2"]
    assert await suggest("review", "other") == []
    assert await suggest("missing", "version") == []


@pytest.mark.parametrize(("number", "has_more"), [(98, False), (99, True)])
async def test_at_most_a_hundred_values_are_suggested(
    library: Library, number: int, has_more: bool
) -> None:
    for each in range(number):  # besides two files
        Path(library.root, f"{each}.txt").touch()
    reference = ResourceTemplateReference(uri="glue://files/{+path}")

    found = (await library.complete(reference, "path", "")).completion

    assert (len(found.values), found.total, found.has_more) == (100, number + 2, has_more)


async def test_at_most_200_files_are_listed_with_their_types(library: Library) -> None:
    for each in range(250):
        Path(library.root, f"{each}.txt").touch()

    listed = [each for each in await library.resources() if each.uri.startswith("glue://files/")]

    assert len(listed) == 200
    assert {each.mime_type for each in listed if each.name.endswith(".txt")} == {"text/plain"}


async def test_files_that_git_ignores_are_not_listed(library: Library) -> None:
    Path(library.root, ".gitignore").write_text("*.key\n")
    Path(library.root, "secret.key").touch()

    listed = [each.name for each in await library.resources()]

    assert "logo.png" in listed
    assert "secret.key" not in listed


async def test_nothing_is_announced_that_is_not_there() -> None:
    async with Client(make_server(glue.Agent(Script("x")), {}, glue.AllowAll())) as client:
        capabilities = client.server_capabilities

    assert capabilities is not None
    assert (capabilities.prompts, capabilities.resources, capabilities.completions) == (
        None,
        None,
        None,
    )
