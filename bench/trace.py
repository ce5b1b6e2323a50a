"""Count the files and functions that one prompt or one review runs through.

    python bench/trace.py [prompt|review] [--root CHECKOUT] [--list]

`prompt` runs `python hello.py "hi"` with one tool call and a server on loopback. `review` runs
`glue review` without a model on a branch with two planted bugs. Calls into this repository are
counted, imports are not. `--root` traces another checkout; set `PYTHONPATH` to that checkout.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import runpy
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

HELLO = '''
from glue import Agent, tool

@tool
def weather(city: str) -> str:
    """Return the weather in a city."""
    return f"{city}: 21 degrees, dry"

agent = Agent("groq:bench", tools=[weather])

if __name__ == "__main__":
    agent.cli()
'''
BEFORE = "def last(entries, count):\n    return entries[-count:] if count else []\n"
AFTER = (
    "import pdb\n\n\ndef last(entries, count):\n    pdb.set_trace()\n    return entries[-count:]\n"
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("way", nargs="?", choices=["prompt", "review"], default="prompt")
    parser.add_argument(
        "--root", type=Path, default=Path(__file__).resolve().parents[1], help="the checkout"
    )
    parser.add_argument(
        "--list", action="store_true", help="print each file with its number of functions"
    )
    given = parser.parse_args()
    trace = Trace(given.root.resolve())
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        (_prompt if given.way == "prompt" else _review)(trace)
    files = {file for file, _ in trace.functions}
    print(f"{given.way}: {len(files)} files, {len(trace.functions)} functions,", end=" ")
    print(f"{trace.switches} switches of file")
    agents, prompts = trace.settings["agent"], trace.settings["prompt"]
    print(f"settings records: {prompts} built for the prompt, {agents} when agents were created")
    for file in sorted(files) if given.list else ():
        print(f"{sum(where == file for where, _ in trace.functions):>5}  {file}")


class Trace:
    """A profile function that counts the calls into files below a folder."""

    def __init__(self, root: Path) -> None:
        self.root = f"{root}{os.sep}"
        self.functions: set[tuple[str, str]] = set()
        self.switches = 0
        self.settings = {"agent": 0, "prompt": 0}  # records built, by the place that builds them
        self._last = ""
        self._importing = 0
        self._names: dict[str, str] = {}

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]

    def __call__(self, frame: Any, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and not self._importing and _builds_settings(frame):
            self.settings["agent" if _in_agent(frame) else "prompt"] += 1
        if code.co_name == "<module>" and frame.f_globals.get("__name__") != "__main__":
            self._importing += (event == "call") - (event == "return")
        if (
            event != "call"
            or self._importing
            or code.co_name in ("<module>", "<lambda>", "<genexpr>", "<listcomp>", "<dictcomp>")
        ):
            return
        file = self._file(code.co_filename)
        if not file:
            return
        self.functions.add((file, code.co_qualname))
        if file != self._last:
            self.switches += 1
            self._last = file

    def _file(self, name: str) -> str:
        if name not in self._names:
            real = os.path.realpath(name)
            inside = (
                real.startswith(self.root) and f"{os.sep}." not in real and "/bench/" not in real
            )
            self._names[name] = real[len(self.root) :] if inside else ""
        return self._names[name]


def _builds_settings(frame: Any) -> bool:
    """Return whether a frame builds a record of settings, which was a dataclass in older checkouts.

    A named tuple is built by a lambda with the parameter `_cls`.
    """
    name = frame.f_code.co_name
    if name == "__init__":
        return _kind(frame) in ("Settings", "Options")
    made = frame.f_locals.get("_cls") if name == "<lambda>" else None
    return getattr(made, "__name__", "") == "Settings"


def _kind(frame: Any) -> str:
    """Return the name of the class whose method a frame runs."""
    return type(frame.f_locals.get("self")).__name__


def _in_agent(frame: Any) -> bool:
    """Return whether a frame was called while an agent was being created."""
    while (frame := frame.f_back) is not None:
        if frame.f_code.co_name == "__init__" and _kind(frame) == "Agent":
            return True
    return False


def _prompt(trace: Trace) -> None:
    server = HTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ |= {
        "GROQ_API_KEY": "gsk-none",
        "GROQ_BASE_URL": f"http://127.0.0.1:{server.server_port}/v1",
    }
    Path("hello.py").write_text(HELLO)
    sys.argv = ["hello.py", "hi"]
    said = _run(trace, lambda: runpy.run_path("hello.py", run_name="__main__"))
    assert "dry" in said, said


def _review(trace: Trace) -> None:
    for command in (["init", "-qb", "main"], ["checkout", "-qb", "change"]):
        subprocess.run(["git", *command], check=True)
        Path("last.py").write_text(BEFORE if "init" in command else AFTER)
        author = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"]
        subprocess.run(["git", "add", "-A"], check=True)
        subprocess.run(["git", *author, "commit", "-qm", "a change"], check=True)
    from glue.cli.app import main as glue

    said = _run(
        trace, lambda: glue(["review", "--base", "main", "--fail-on", "never", "--no-post"])
    )
    assert "last.py" in said, said


def _run(trace: Trace, work: Any) -> str:
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit), trace.on():
        work()
    out.flush()
    return out.buffer.getvalue().decode()  # type: ignore[attr-defined]


class Model(BaseHTTPRequestHandler):
    """A model server that calls the tool once and then answers."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if b'"tool_call_id"' in body:
            delta: dict[str, Any] = {"content": "It is dry."}
        else:
            function = {"name": "weather", "arguments": '{"city": "Oslo"}'}
            delta = {
                "tool_calls": [
                    {"index": 0, "id": "call_1", "type": "function", "function": function}
                ]
            }
        finish = {
            "index": 0,
            "delta": {},
            "finish_reason": "stop" if "content" in delta else "tool_calls",
        }
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        events = [
            {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
            {"choices": [finish], "usage": usage},
        ]
        shared = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "bench"}
        text = (
            "".join(f"data: {json.dumps({**shared, **each})}\n\n" for each in events)
            + "data: [DONE]\n\n"
        )
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


if __name__ == "__main__":
    main()
