"""Tests with the reference servers and the inspector of the protocol, which are downloaded."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fakes.mcp_servers import MAIN, SHAPED, use

from glue.messages import Image
from glue.tools import mcp


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("node or npm is missing")
    folder = tmp_path_factory.mktemp("npm")
    (folder / "package.json").write_text('{"private": true}')
    names = (
        "server-everything",
        "server-filesystem",
        "server-memory",
        "server-sequential-thinking",
        "inspector",
    )
    packages = [f"@modelcontextprotocol/{name}" for name in names]
    done = subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund", *packages],
        cwd=folder,
        capture_output=True,
        timeout=300,
    )
    if done.returncode:
        pytest.skip(f"npm could not fetch the servers: {done.stderr.decode()[-200:]}")
    return folder / "node_modules" / ".bin"


@pytest.mark.soak
async def test_the_reference_server_everything_works(reference: Path) -> None:
    seen: list[Any] = []

    async with mcp.connect_stdio("demo", str(reference / "mcp-server-everything")) as connection:
        names = {tool.name for tool in connection.tools}
        said = await use(connection, "echo", message="hello")
        wrong = await use(connection, "echo")
        drawn = await use(connection, "get-tiny-image")
        long = await use(connection, "trigger-long-running-operation", seen, duration=1, steps=2)
        weather = await use(connection, "get-structured-content", location="Chicago")

    assert "demo__get-tiny-image" in names
    assert "hello" in said.text
    assert wrong.is_error
    assert any(isinstance(part, Image) for part in drawn.content)
    assert not long.is_error
    assert [data["progress"] for _, data in seen] == [1, 2]
    assert "temperature" in (weather.meta or {})["structured"]


@pytest.mark.soak
async def test_the_reference_server_filesystem_works(reference: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("inside")

    async with mcp.connect_stdio(
        "demo", str(reference / "mcp-server-filesystem"), [str(tmp_path)]
    ) as connection:
        read = await use(connection, "read_text_file", path=str(tmp_path / "a.txt"))
        outside = await use(connection, "read_text_file", path="/etc/hostname")

    assert read.text == "inside"
    assert outside.is_error


@pytest.mark.soak
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_reference_servers_memory_and_sequential_thinking_work(
    reference: Path, tmp_path: Path
) -> None:
    entity = {"name": "Ada", "entityType": "person", "observations": ["wrote the first program"]}
    thought: dict[str, Any] = {
        "thought": "one",
        "nextThoughtNeeded": False,
        "thoughtNumber": 1,
        "totalThoughts": 1,
    }
    memory = {"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")}

    async with mcp.connect_stdio(
        "demo", str(reference / "mcp-server-memory"), env=memory
    ) as connection:
        await use(connection, "create_entities", entities=[entity])
        found = await use(connection, "search_nodes", query="Ada")
    async with mcp.connect_stdio(
        "demo", str(reference / "mcp-server-sequential-thinking")
    ) as connection:
        thinking = await use(connection, "sequentialthinking", **thought)

    assert "first program" in found.text
    assert not thinking.is_error


@pytest.fixture(scope="module")
def python_servers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the reference servers in Python; they need an environment with an older SDK."""
    folder = tmp_path_factory.mktemp("servers")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=120)
    packages = ["mcp-server-git", "mcp-server-time", "mcp-server-fetch"]
    done = subprocess.run(
        [folder / "bin/pip", "install", "-q", *packages], capture_output=True, timeout=600
    )
    if done.returncode:
        pytest.skip(f"pip could not fetch the servers: {done.stderr.decode()[-200:]}")
    return folder / "bin"


@pytest.mark.soak
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_reference_servers_git_time_and_fetch_work(
    python_servers: Path, tmp_path: Path, web: str
) -> None:
    subprocess.run(["git", "init", "-q", "-b", "main", str(tmp_path)], check=True)

    async with mcp.connect_stdio("demo", str(python_servers / "mcp-server-git")) as connection:
        status = await use(connection, "git_status", repo_path=str(tmp_path))
    async with mcp.connect_stdio("demo", str(python_servers / "mcp-server-time")) as connection:
        now = await use(connection, "get_current_time", timezone="Europe/Oslo")
    fetch = str(python_servers / "mcp-server-fetch")
    async with mcp.connect_stdio(
        "demo", fetch, ["--ignore-robots-txt", "--allow-private-ips"]
    ) as connection:
        fetched = await use(connection, "fetch", url=web)
        prompts = mcp.Servers([connection]).prompts

    assert "main" in status.text
    assert "Europe/Oslo" in now.text
    assert "405" in fetched.text
    assert list(prompts) == ["demo:fetch"]


@pytest.mark.soak
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_inspector_works_with_glue_mcp(reference: Path, tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(SHAPED)
    server = [*MAIN, "mcp", str(tmp_path / "agent.py")]
    inspector = [str(reference / "mcp-inspector"), "--cli", *server]

    def ask(*words: str) -> Any:
        done = subprocess.run([*inspector, *words], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    tools = ask("--method", "tools/list")["tools"]
    called = ask("--method", "tools/call", "--tool-name", "weather", "--tool-arg", "city=Oslo")
    resources = ask("--method", "resources/list")["resources"]

    assert [tool["name"] for tool in tools] == ["weather", "danger", "forecast"]
    assert called["structuredContent"] == {"city": "Oslo", "degrees": 21}
    assert resources[0]["uri"] == "glue://agent/instructions"
