"""The small examples run, with a script instead of a model or with a server on the loopback.

The programs of the cookbook and of the tutorial have tests of their own.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from fakes.pages import FILE
from fakes.zygote import Zygote

from glue import Usage
from glue.testing import Script, call, calls, say, use_provider

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
OURS = (
    "approval",
    "approve_later",
    "failover",
    "hello",
    "remember",
    "streaming",
    "structured",
    "subagents",
)


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Remove arguments, keys and settings of the user who runs the tests."""
    monkeypatch.setattr(sys, "argv", ["example.py"])
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in list(os.environ):
        if name.endswith("_API_KEY") or name.startswith(("GLUE_", "XDG_")):
            monkeypatch.delenv(name)


def play(name: str) -> None:
    with suppress(SystemExit):
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")


def run(name: str, script: Script) -> None:
    with use_provider(script):
        play(name)
    script.assert_used_up()


def test_every_example_is_tested_here_or_in_the_cookbook() -> None:
    pages = {page.stem.replace("-", "_") for page in (ROOT / "docs" / "cookbook").glob("*.md")}
    files = {path.stem for path in EXAMPLES.glob("*.py")}

    assert files == {path.stem for path in SMALL} | (pages - {"index"})


@pytest.mark.parametrize("name", OURS)
def test_an_example_is_one_file_with_its_dependencies(name: str) -> None:
    text = (EXAMPLES / f"{name}.py").read_text()

    assert re.match(r"# /// script\n(# .*\n)*# dependencies = \[\"glue-agents\"\]\n# ///\n", text)


def test_hello_prints_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    run("hello", Script(calls(call("weather", {"city": "Toronto"})), "Toronto has 21 degrees."))

    assert capsys.readouterr().out == "Toronto has 21 degrees.\n"


def test_streaming_prints_text_and_events(capsys: pytest.CaptureFixture[str]) -> None:
    ask_oslo = calls(call("population", {"city": "Oslo"}))
    ask_toronto = calls(call("population", {"city": "Toronto"}))
    answer = say("2,794,356.", chunk=3, usage=Usage(output=7))

    run("streaming", Script(ask_oslo, say("717,710.", chunk=2), ask_toronto, answer))

    captured = capsys.readouterr()
    assert captured.err == "[tool] population\n"
    assert captured.out.startswith('717,710.\n(population {"city": "Toronto"})\n2,794,356.\n')
    assert captured.out.endswith("1 tool turn(s)\n")


REMEMBER = """
import runpy, sys
from glue.testing import Script, use_provider

def answer(request):
    return " / ".join(message.text for message in request.messages)

with use_provider(Script(answer)):
    runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""


def test_remember_continues_the_conversation(tmp_path: Path, zygote: Zygote) -> None:
    def once(prompt: str) -> str:
        command = [sys.executable, "-c", REMEMBER, str(EXAMPLES / "remember.py"), prompt]
        code, out, errors = zygote.run(command, tmp_path)
        assert code == 0, errors
        return out

    assert once("My name is Ada.") == "My name is Ada.\n"
    assert once("What is my name?") == "My name is Ada. / My name is Ada. / What is my name?\n"
    assert (tmp_path / ".glue" / "demo.jsonl").exists()


def test_structured_prints_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    ticket = {
        "title": "Export does nothing",
        "severity": "high",
        "steps": ["Open a report", "Press Export"],
    }

    run(
        "structured",
        Script(calls(call("final_answer", {**ticket, "severity": "urgent"})), json.dumps(ticket)),
    )

    assert json.loads(capsys.readouterr().out) == ticket


def test_subagents_call_the_researcher(capsys: pytest.CaptureFixture[str]) -> None:
    script = Script(
        calls(call("researcher", {"prompt": "Oslo"}), usage=Usage(input=1, cost=0.0)),
        calls(call("read_notes", {"city": "Oslo"}), usage=Usage(input=10, cost=0.0)),
        say("Founded around 1040.", usage=Usage(input=100, cost=0.0)),
        say("Oslo is old.", usage=Usage(input=1000, cost=0.0)),
    )

    run("subagents", script)

    assert capsys.readouterr().out == "Oslo is old.\n"


@pytest.mark.parametrize(("answer", "saved"), [("y", True), ("n", False), ("a", True)])
def test_approval_asks_before_the_file_is_saved(
    answer: str,
    saved: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[str] = []

    def reply(question: str) -> str:
        asked.append(question)
        return answer

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("builtins.input", reply)

    run("approval", Script(calls(call("save", {"name": "haiku.txt", "text": "sticky"})), "Done."))

    assert asked == ["May I save haiku.txt? [y]es, [n]o, [a]lways: "]
    assert (tmp_path / "haiku.txt").exists() == saved
    assert capsys.readouterr().out == "Done.\n"


@contextmanager
def server(status: int, body: bytes, kind: str) -> Iterator[str]:
    """Serve the same response to every request, on the loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{http.server_address[1]}/v1"
        http.shutdown()
        thread.join()


def test_failover_asks_the_next_provider(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chunk = {
        "choices": [
            {"index": 0, "delta": {"content": "The next one answers."}, "finish_reason": None}
        ]
    }
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    lines = (
        b"".join(b"data: %s\n\n" % json.dumps(each).encode() for each in (chunk, end))
        + b"data: [DONE]\n\n"
    )
    refusal = json.dumps(
        {"error": {"message": "bad key", "type": "invalid_request_error"}}
    ).encode()

    with (
        server(401, refusal, "application/json") as openai,
        server(200, lines, "text/event-stream") as groq,
    ):
        for name, url in (("OPENAI", openai), ("GROQ", groq)):
            monkeypatch.setenv(f"{name}_BASE_URL", url)
            monkeypatch.setenv(f"{name}_API_KEY", "not" + "-a-key")
        play("failover")

    captured = capsys.readouterr()
    assert captured.out == "The next one answers.\n"
    assert "openai" in captured.err
    assert "bad key" in captured.err


# As a user would run them: no key, no network, an empty environment


def by_hand(
    zygote: Zygote, path: Path, folder: Path, *args: str, **variables: str
) -> tuple[int, str, str]:
    """Run an example in a forked process; return its exit code, output and errors."""
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "GLUE_MODEL": "offline", **variables}
    line = [sys.executable, "-c", FILE, str(path), *args]
    return zygote.run(line, folder, env, stdin="y\n" if args and "-m" not in args else "")


SMALL = [EXAMPLES / f"{name}.py" for name in (*OURS, "swap")]
PATHS = [path for path in SMALL if path.stem != "approve_later"]


def test_one_process_asks_and_another_answers(tmp_path: Path, zygote: Zygote) -> None:
    path = EXAMPLES / "approve_later.py"

    asked, shown, answered, again = (
        by_hand(zygote, path, tmp_path, command) for command in ("ask", "show", "yes", "show")
    )

    assert asked[:2] == (6, "waits: publish Hello\n")
    assert shown[1] == "call_1: publish Hello (an editor decides)\n"
    assert answered[0] == 0
    assert "published 'Hello'" in answered[1]
    assert again[1] == ""


def test_an_example_runs_in_a_new_process(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GLUE_MODEL": "offline"}
    line = [sys.executable, str(EXAMPLES / "hello.py")]

    ran = subprocess.run(
        line, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )

    assert ran.returncode == 0, ran.stderr
    assert "weather" in ran.stdout + ran.stderr


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_an_example_runs_to_the_end_and_calls_a_tool(
    path: Path, tmp_path: Path, zygote: Zygote
) -> None:
    # Without a prompt, this example would read the prompt from stdin.
    words = ('Save the text "paper" as haiku.txt',) if path.stem == "approval" else ()
    code, out, errors = by_hand(zygote, path, tmp_path, *words)

    assert code == 0, errors
    assert out.strip()
    assert re.search(r"·|\[tool\]|->|weather|population|count_messages", errors + out)
    assert "Traceback" not in errors


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.stem)
def test_an_example_accepts_another_model(path: Path, tmp_path: Path, zygote: Zygote) -> None:
    for args, variables in ((("-m", "nobody:x"), {}), ((), {"GLUE_MODEL": "nobody:x"})):
        code, _, errors = by_hand(zygote, path, tmp_path, *args, **variables)

        assert code != 0
        assert "unknown provider 'nobody'" in errors
