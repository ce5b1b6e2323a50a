"""An editor that drives `glue acp` in a process and checks every frame against the schema."""

from __future__ import annotations

import contextlib
import json
import queue
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fakes.acp_schema import check, definition
from fakes.zygote import Forked

GLUE = [sys.executable, "-c", "from glue.cli.app import main; main()"]
PREAMBLE = """
import anyio
import glue
from glue.testing import Reply, Script, call, calls, fail, repeat, say
from glue import Usage
from glue.provider import Done, TextDelta

print("noise on standard output")

@glue.tool
def noop() -> str:
    '''Do nothing.'''
    return "ok"

@glue.tool
def echo(n: int) -> int:
    '''Say it again.'''
    return n

@glue.tool(needs_permission=True)
def danger(what: str) -> str:
    '''Do something dangerous.'''
    return f"did {what}"

@glue.tool
async def forever(context: glue.Context) -> str:
    '''Never end.'''
    context.progress("at work")
    await anyio.sleep_forever()

class Stuck:
    name = "stuck"
    async def stream(self, request):
        yield TextDelta(text="first ")
        await anyio.sleep_forever()

def made(model, **options):
    return glue.Agent(model, tools=[noop, echo, danger, forever], **options)
"""

KNOWN = """
from glue.provider import Capabilities

class Known(Script):
    capabilities = Capabilities(window=128_000)
"""
READY = """
from glue import FileStore
from glue.acp.editor import ready_agent
from glue.acp.server import serve
from glue.cli.servers import run, take_stdout
streams = take_stdout()
from glue.providers import register
from glue.testing import Script, call, calls
register("scripted", lambda model, **options: Script({steps}))
run(serve, ready_agent("scripted", "coding"), *streams, FileStore("store"))
"""


class Editor:
    """An editor that is connected to one `glue acp` process."""

    def __init__(self, process: Forked) -> None:
        self.process = process
        self.frames: list[dict[str, Any]] = []
        self.methods: dict[Any, str] = {}
        self.answers: dict[str, Callable[[dict[str, Any]], Any]] = {}
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._errors: list[bytes] = []
        self._last = 0
        self._threads = [
            threading.Thread(target=self._pump, daemon=True),
            threading.Thread(target=self._listen, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _pump(self) -> None:
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def _listen(self) -> None:
        self._errors.extend(self.process.stderr)

    @property
    def stderr(self) -> str:
        return b"".join(self._errors).decode()

    def write(self, data: bytes) -> None:
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def line(self, method: str, params: Any, *, notice: bool = False) -> tuple[int, bytes]:
        """Return the id and the bytes of a request or notification, without sending it."""
        frame: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
        if not notice:
            self._last += 1
            frame["id"] = self._last
            self.methods[self._last] = method
        return self._last, json.dumps(frame).encode() + b"\n"

    def send(self, method: str, params: Any) -> int:
        number, line = self.line(method, params)
        self.write(line)
        return number

    def notify(self, method: str, params: Any) -> None:
        self.write(self.line(method, params, notice=True)[1])

    def next(self) -> dict[str, Any]:
        """Read one frame of the server, check it, and answer it if the test has set an answer."""
        line = self._lines.get(timeout=60)
        assert line.endswith(b"\n"), f"the server ended: {self.stderr}"
        frame: dict[str, Any] = json.loads(line)
        self.frames.append(frame)
        self.check(frame)
        method = frame.get("method", "")
        if "id" in frame and method in self.answers:
            result = self.answers[method](frame["params"])
            self.write(
                json.dumps({"jsonrpc": "2.0", "id": frame["id"], "result": result}).encode() + b"\n"
            )
        return frame

    def check(self, frame: dict[str, Any]) -> None:
        assert frame["jsonrpc"] == "2.0"
        if "method" in frame:
            assert set(frame) <= {"jsonrpc", "id", "method", "params"}
            check(
                definition(frame["method"], "Request" if "id" in frame else "Notification"),
                frame["params"],
            )
        elif "error" in frame:
            assert set(frame) == {"jsonrpc", "id", "error"}
            check("Error", frame["error"])
        else:
            assert set(frame) == {"jsonrpc", "id", "result"}
            check(definition(self.methods[frame["id"]], "Response"), frame["result"])

    def answer(self, number: int | str | None) -> dict[str, Any]:
        """Read frames until the request `number` is answered, and return the answer."""
        while True:
            frame = self.next()
            if "method" not in frame and frame["id"] == number:
                return frame

    def until(self, wanted: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        while not wanted(frame := self.next()):
            pass
        return frame

    def ask(self, method: str, params: Any) -> Any:
        frame = self.answer(self.send(method, params))
        assert "error" not in frame, frame
        return frame["result"]

    def error(self, method: str, params: Any) -> dict[str, Any]:
        """Send a request that must fail, and return its error."""
        error: dict[str, Any] = self.answer(self.send(method, params))["error"]
        return error

    def start(self, cwd: Path, **more: Any) -> str:
        self.ask("initialize", {"protocolVersion": 1, "clientCapabilities": more.pop("client", {})})
        return str(
            self.ask("session/new", {"cwd": str(cwd), "mcpServers": [], **more})["sessionId"]
        )

    def prompt(self, session: str, text: str = "go") -> Any:
        return self.ask("session/prompt", words(session, text))

    def updates(self, kind: str = "") -> list[dict[str, Any]]:
        found = [
            frame["params"]["update"]
            for frame in self.frames
            if frame.get("method") == "session/update"
        ]
        return [update for update in found if not kind or update["sessionUpdate"] == kind]

    def questions(self) -> list[dict[str, Any]]:
        """Return the parameters of every permission request that the server sent."""
        return [
            frame["params"]
            for frame in self.frames
            if frame.get("method") == "session/request_permission"
        ]

    def text(self) -> str:
        return "".join(update["content"]["text"] for update in self.updates("agent_message_chunk"))

    def close(self) -> int:
        """Close the connection, wait until the process ends, and return its exit code."""
        self.process.stdin.close()
        code = self.process.wait(timeout=30)
        for thread in self._threads:
            thread.join(10)
        return code

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        for thread in self._threads:
            thread.join(10)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def words(session: str, text: str = "go") -> dict[str, Any]:
    return {"sessionId": session, "prompt": [{"type": "text", "text": text}]}


def choose(option: str) -> Callable[[dict[str, Any]], Any]:
    return lambda params: {"outcome": {"outcome": "selected", "optionId": option}}


Open = Callable[..., Editor]
