"""Single-file agents run with uv, with a wheel of glue that is built here."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.soak

ROOT = Path(__file__).resolve().parents[1]
# The examples that need neither arguments nor an extra.
NAMES = "approval approve_later failover hello remember streaming structured subagents swap".split()
EXAMPLES = [ROOT / "examples" / f"{name}.py" for name in NAMES]
GLUE = (sys.executable, "-c", "from glue.cli.app import main; main()")
# The answer of the model: a text for one example, an object for another.
TICKET = '{"title": "Export does nothing", "severity": "high", "steps": []}'


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel of glue and collect those of its dependencies, so that uv needs no index."""
    folder = tmp_path_factory.mktemp("wheels")
    copy = folder / "copy"
    subprocess.run(
        ["git", "-C", str(ROOT), "checkout-index", "-a", f"--prefix={copy}/"], check=True
    )
    done = tried(sys.executable, "-m", "pip", "wheel", "-q", "-w", str(folder), str(copy))
    if done.returncode:
        pytest.skip(f"the wheels cannot be built or downloaded here: {last(done.stderr)}")
    return folder


@pytest.fixture(scope="module")
def uv(tmp_path_factory: pytest.TempPathFactory) -> str:
    if found := shutil.which("uv"):
        return found
    folder = tmp_path_factory.mktemp("uv")
    venv.create(folder, with_pip=True)
    done = tried(str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "uv")
    if done.returncode:
        pytest.skip(f"uv cannot be installed here: {last(done.stderr)}")
    return str(folder / "bin" / "uv")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def tried(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


def last(text: str) -> str:
    return (text.strip().splitlines() or ["it says nothing"])[-1]


@pytest.fixture
def run(
    uv: str, wheels: Path, cache: Path, tmp_path: Path
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run one file with uv, in an empty folder and an environment without keys."""

    def start(file: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        ours = [
            "--offline",
            "--no-index",
            "--find-links",
            str(wheels),
            "--python",
            sys.executable,
            "--cache-dir",
            str(cache),
        ]
        return subprocess.run(
            [uv, "run", "-q", *ours, "--script", str(file), *arguments],
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return start


def answer(text: str, *, anthropic: bool) -> bytes:
    """Return a streamed reply in one of two wire formats."""
    if anthropic:
        events: list[dict[str, Any]] = [
            {
                "type": "message_start",
                "message": {"id": "1", "usage": {"input_tokens": 9, "output_tokens": 1}},
            },
            {
                "type": "content_block_start",
                "index": 0,
                "content_block": {"type": "text", "text": ""},
            },
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": text},
            },
            {"type": "content_block_stop", "index": 0},
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn"},
                "usage": {"output_tokens": 5},
            },
            {"type": "message_stop"},
        ]
        lines = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events]
    else:
        choices = [({"content": text}, None), ({}, "stop")]
        chunks = [
            {"choices": [{"index": 0, "delta": delta, "finish_reason": end}]}
            for delta, end in choices
        ]
        lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks] + ["data: [DONE]\n\n"]
    body = "".join(lines).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n%s" % (
        len(body),
        body,
    )


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_an_example_runs_with_uv(
    file: Path, run: Callable[..., Any], loopback: Callable[..., Any]
) -> None:
    claude = loopback(answer(TICKET, anthropic=True))
    groq = loopback(answer(TICKET, anthropic=False))

    done = run(
        file,
        ANTHROPIC_API_KEY="not" + "-a-key",
        ANTHROPIC_BASE_URL=claude.url,
        GROQ_API_KEY="not" + "-a-key",
        GROQ_BASE_URL=f"{groq.url}/v1",
    )

    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "Export does nothing" in done.stdout


def test_the_first_example_of_the_readme_runs_with_uv(
    run: Callable[..., Any], loopback: Callable[..., Any], tmp_path: Path
) -> None:
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block is not None
    file = tmp_path / "weather.py"
    file.write_text(block[1])
    claude = loopback(answer("No, it is dry.", anthropic=True))

    asked = run(
        file,
        "Do I need an umbrella?",
        ANTHROPIC_API_KEY="not" + "-a-key",
        ANTHROPIC_BASE_URL=claude.url,
    )
    offline = run(file, "-m", "offline", "Anything")
    keyless = run(file, "Anything")

    assert (asked.returncode, asked.stdout) == (0, "No, it is dry.\n")
    assert offline.returncode == 0
    assert "stand-in" in offline.stdout
    assert (keyless.returncode, keyless.stdout) == (2, "")
    assert "ANTHROPIC_API_KEY" in keyless.stderr
    assert "Traceback" not in keyless.stderr


@pytest.mark.parametrize("template", ["tool", "chat", "review", "structured", "subagents"])
def test_a_file_of_glue_new_runs_with_uv(
    template: str, run: Callable[..., Any], tmp_path: Path
) -> None:
    subprocess.run([*GLUE, "new", "made.py", "--template", template], cwd=tmp_path, check=True)

    done = run(tmp_path / "made.py", "Hello")

    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
