"""The real clients of AG-UI and of the Vercel AI SDK: 100 runs each, and all of them end well."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(
        shutil.which("npm") is None or shutil.which("node") is None, reason="node or npm is missing"
    ),
]

SERVER = '''
import sys

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

import glue
from glue.permission import DeferAll
from glue.stores import MemoryStore
from glue.testing import Script, call, calls, fail, repeat, say
from glue.web import ag_ui, vercel

running = number = 0


@glue.tool
def weather(city: str) -> str:
    """Return the weather."""
    return f"{city}: dry"


@glue.tool
async def slow() -> str:
    """Wait until the client hangs up."""
    global running
    running += 1
    try:
        await anyio.sleep_forever()
    finally:
        running -= 1


@glue.tool(needs_permission=True, target="version")
def deploy(version: str) -> str:
    """Deploy."""
    return f"{version} is live"


def reply(request):
    global number
    number += 1
    last = request.messages[-1]
    if isinstance(last, glue.ToolMessage):
        return say(f"It says: {last.text}", thinking="Hm.", chunk=3)
    if "tools" in last.text:
        cities = [call("weather", {"city": city}, id=f"{city}{number}") for city in ("A", "B")]
        return calls(*cities, text="Looking.")
    if "deploy" in last.text:
        return calls(call("deploy", {"version": "1"}, id=f"d{number}"))
    if "slow" in last.text:
        return calls(call("slow", id=f"s{number}"))
    if "bad" in last.text:
        return calls(call("weather", {"town": 1}, id=f"b{number}"))
    if "fail" in last.text:
        return fail("overloaded", "busy")
    return say("Hello there.", thinking="Hm.", chunk=2)


agent = glue.Agent(
    Script(repeat(reply)), tools=[weather, slow, deploy], permission=DeferAll("ask")
)
store = MemoryStore()


async def answer_ag_ui(request):
    return await ag_ui(agent, request, store=store)


async def answer_vercel(request):
    return await vercel(agent, request, store=store)


async def count(request):
    return JSONResponse({"running": running})


app = Starlette(
    routes=[
        Route("/ag-ui", answer_ag_ui, methods=["POST"]),
        Route("/vercel", answer_vercel, methods=["POST"]),
        Route("/running", count),
    ]
)
print("ready", flush=True)
uvicorn.run(app, port=int(sys.argv[1]), log_level="warning")
'''


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_hundred_runs_of_each_client_have_no_fault_and_leave_no_run(tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text('{"private": true, "type": "module"}')
    install = ["npm", "install", "--no-audit", "--no-fund", "@ag-ui/client@1", "ai@6"]
    done = subprocess.run(install, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    if done.returncode:
        pytest.skip(f"npm could not fetch the clients: {done.stderr.strip()[-200:]}")
    shutil.copy(Path(__file__).parent / "clients.mjs", tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    command = [sys.executable, "-c", SERVER, str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            server.stdout.readline()
            while not is_listening(port):
                assert server.poll() is None
            run = ["node", "clients.mjs", f"http://127.0.0.1:{port}"]
            ran = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        finally:
            server.terminate()

    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)
    assert report["ag_ui"] == {"good": 100, "faults": []}
    assert report["vercel"] == {"good": 100, "faults": []}
    assert report["left"] == 0
