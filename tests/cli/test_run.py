"""`glue run` and `Agent.cli`: answers on stdout, the rest on stderr, outcomes as exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipapp
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]


REFUSAL = b"HTTP/1.1 401 No\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


SECRET = "sec" + "ret-0123456789"


def glue(*args: str, input: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    """Run the installed command."""
    program = str(Path(sys.executable).parent / "glue")
    clean = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **env}
    return subprocess.run(
        [program, *args], input=input, env=clean, capture_output=True, text=True, timeout=60
    )


LOUD = """
from glue import Agent, tool
from glue.testing import Script, call, calls

@tool
def loud() -> str:
    print("noise")
    return "done"

@tool
async def leave() -> str:
    raise SystemExit(7)

agent = Agent(Script(calls(call("loud")), calls(call("leave")), "never"), tools=[loud, leave])
"""


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (b"401", "groq: HTTP 401; is GROQ_API_KEY right?"),
        (b"404", "groq: HTTP 404; `glue models groq --server` lists its models"),
    ],
)
def test_a_refused_key_or_model_is_followed_by_a_hint(
    cli: Cli, loopback: Any, monkeypatch: pytest.MonkeyPatch, status: bytes, error: str
) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "k" * 20)
    monkeypatch.setenv("GROQ_BASE_URL", loopback(REFUSAL.replace(b"401", status)).url)

    ran = cli("run", "-m", "groq", "hi")

    assert (ran.code, ran.err) == (2, f"glue: {error}\n")
    assert f"glue: {error}\n" in cli("chat", "-m", "groq", input="hi\n").err


@pytest.mark.parametrize(("status", "code"), [(401, 2), (404, 2), (400, 1)])
def test_a_refused_key_or_model_exits_with_2(
    cli: Cli, loopback: Any, monkeypatch: pytest.MonkeyPatch, status: int, code: int
) -> None:
    body = b'{"error": {"message": "no"}}'
    head = b"HTTP/1.1 %d No\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    server = loopback(head % (status, len(body)) + body)
    monkeypatch.setenv("GROQ_BASE_URL", f"{server.url}/v1")
    monkeypatch.setenv("GROQ_API_KEY", SECRET)

    ran = cli("run", "-m", "groq", "hi")

    assert ran.code == code
    assert ran.err.startswith("glue: groq: ")
    assert ran.err.count("\n") == 1


def test_a_pipe_that_was_not_read_is_mentioned(cli: Cli, agent: str) -> None:
    ran = glue("run", agent, "explain", input="some diff")

    assert "add - to the prompt to read it" in ran.stderr


def test_an_agent_in_a_zipapp_runs_without_its_header(cli: Cli, agent: str) -> None:
    Path("app").mkdir()
    Path(agent).rename("app/__main__.py")
    zipapp.create_archive("app", "app.pyz")

    ran = subprocess.run(
        [sys.executable, "app.pyz", "hello"], capture_output=True, text=True, timeout=60
    )

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "1: hello ␛[31m\n", "")


def test_only_the_answer_goes_to_stdout(cli: Cli, agent: str) -> None:
    ran = cli("run", agent, "--yes", "save it")

    assert ran.out == "3: saved a.txt ␛[31m\n"
    assert "· save(name=a.txt)  ok" in ran.err


def test_quiet_prints_only_the_answer(cli: Cli, agent: str) -> None:
    assert cli("run", agent, "--yes", "-q", "save it").err == ""


def test_verbose_prints_tool_results(cli: Cli, agent: str) -> None:
    assert "    saved a.txt" in cli("run", agent, "--yes", "-v", "save it").err


def test_usage_is_printed_on_stderr(cli: Cli) -> None:
    ran = cli("run", "-m", "offline", "--usage", "hi")

    assert "0 tokens in, 0 out, $0.0000, 1 request" in ran.err
    assert ran.err.strip().endswith("done")


def test_json_is_one_event_per_line_and_ends_with_the_result(cli: Cli, agent: str) -> None:
    ran = cli("run", agent, "--json", "--yes", "save it")
    events = [json.loads(line) for line in ran.out.splitlines()]
    types = [event["type"] for event in events]

    assert types[0] == "run_start"
    assert types[-2:] == ["run_end", "result"]
    assert [event["call"]["name"] for event in events if event["type"] == "tool_start"] == ["save"]
    assert events[-1]["text"] == "3: saved a.txt \x1b[31m"
    assert events[-1]["outcome"] == "done"
    assert events[-1]["exit_code"] == 0
    assert "\x1b" not in ran.out
    assert ran.err == ""


def test_a_tool_prints_to_stderr_and_its_exit_code_is_the_exit_code(cli: Cli) -> None:
    Path("loud.py").write_text(LOUD)

    ran = glue("run", "loud.py", "--json", "hi")

    assert all(json.loads(line)["type"] for line in ran.stdout.splitlines())
    assert (ran.returncode, ran.stderr) == (7, "noise\n")
    assert glue("chat", "loud.py", input="hi\n").returncode == 7


def test_structured_output_is_printed_as_json(cli: Cli) -> None:
    Path("shape.py").write_text(
        "from dataclasses import dataclass\nfrom glue import Agent\n"
        "from glue.testing import Script\n"
        "@dataclass\nclass Point:\n    x: int\n    name: str\n"
        'agent = Agent(Script(\'Here: {"x": "3", "name": "é"}\'), output=Point)\n'
    )

    assert json.loads(cli("run", "shape.py", "go").out) == {"x": 3, "name": "é"}


def test_a_schema_on_the_command_line_makes_the_answer_an_object(cli: Cli) -> None:
    ran = cli("run", "-m", "offline", "--schema", "city: str, degrees: int", "Oslo has 21 degrees")

    assert ran.code == 0, ran.err
    assert set(json.loads(ran.out)) == {"city", "degrees"}


@pytest.mark.parametrize(
    ("prompt", "options", "code", "error"),
    [
        ("loop", ("--max-turns", "2", "--yes"), 3, "max_turns reached: 2 of 2"),
        ("refuse", (), 5, ""),
        ("hello", ("--seconds", "0"), 3, "budget of 0 seconds"),
    ],
)
def test_each_outcome_has_its_exit_code(
    cli: Cli, agent: str, prompt: str, options: tuple[str, ...], code: int, error: str
) -> None:
    ran = cli("run", agent, prompt, *options)

    assert ran.code == code
    assert error in ran.err


def test_an_interrupt_cancels_the_run_and_exits_with_130(cli: Cli, agent: str) -> None:
    program = str(Path(sys.executable).parent / "glue")
    line = [program, "run", agent, "-v", "--json", "wait"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert any('"request_start"' in line for line in iter(run.stdout.readline, ""))
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=60)

    assert run.returncode == 130
    assert json.loads(out.splitlines()[-1])["outcome"] == "cancelled"
    assert "Traceback" not in err


def test_a_session_is_continued_by_name_or_as_the_most_recent(cli: Cli, agent: str) -> None:
    assert cli("run", agent, "-s", "demo", "one").out.startswith("1: one")
    assert cli("run", agent, "-s", "demo", "two").out.startswith("3: two")
    assert cli("run", agent, "-c", "three").out.startswith("5: three")
    assert (Path.home() / ".local/state/glue/sessions/demo.jsonl").exists()


@pytest.mark.parametrize("store", ["kept", "kept.db"])
def test_sessions_are_stored_where_store_names(cli: Cli, agent: str, store: str) -> None:
    cli("run", agent, "-s", "demo", "--store", store, "one")

    assert Path(store).exists()
    assert cli("run", agent, "-c", "--store", store, "two").out.startswith("3: two")


def test_continue_without_a_session_is_refused(cli: Cli, agent: str) -> None:
    ran = cli("run", agent, "-c", "hello")

    assert ran.code == 2
    assert "no session to continue" in ran.err


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (("run",), "the prompt is empty"),
        (("run", "-m", "grok", "hi"), "unknown provider 'grok'; did you mean groq"),
        (("run", "-m", "openai", "hi"), "openai: no key; set OPENAI_API_KEY"),
        (("run", "hi"), "no model is named and no key is set"),
        (("run", "nope.py", "hi"), "the file nope.py does not exist"),
        (("run", "-m", "offline", "@nope.txt"), "@nope.txt cannot be read: No such file"),
        (("run", "-m", "offline", "@."), "@. cannot be read"),
        (
            ("run", "-m", "offline", "--tools", "fs,nope", "hi"),
            "unknown tools 'nope'; choose from: fs, edit",
        ),
        (
            ("run", "-m", "offline", "--max-turns", "x", "hi"),
            "must be a whole number of 0 or more, or 'none' for no limit, not 'x'",
        ),
        (("run", "-m", "offline", "--seconds", "nan", "hi"), "must be a number of 0 or more"),
        (("run", "-m", "offline", "--as-curl", "hi"), "--as-curl needs --show-wire"),
        (("run", "-m", "offline", "-s", "a", "-c", "hi"), "use one of them"),
        (("run", "-m", "offline", "-q", "-v", "hi"), "exclude each other"),
        (("run", "-m", "offline", "--replay", "nope.jsonl", "hi"), "nope.jsonl cannot be read"),
        (
            ("run", "-m", "offline", "--record", "no/folder/x", "hi"),
            "the folder no/folder does not exist",
        ),
        (
            ("run", "-m", "offline", "--temperature", "nan", "hi"),
            "temperature must be a number of 0 or more",
        ),
        (
            ("run", "-m", "offline", "--schema", "no.json", "hi"),
            "--schema no.json cannot be read: No such file",
        ),
        (
            ("run", "-m", "offline", "--schema", '{"type": "objekt"}', "hi"),
            "--schema must be a JSON schema; wrong at type",
        ),
        (
            ("run", "-m", "offline", "--schema", '{"$ref": "#/nowhere"}', "hi"),
            "--schema must be a JSON schema; wrong at $ref: the target #/nowhere does not exist",
        ),
        (("run", "-m", "offline", "--schema", "", "hi"), "--schema: '' is not 'name: type'"),
        (("run", "-m", "offline", "-s", "", "hi"), "--session needs a name"),
        (
            ("run", "-m", "offline", "-s", "x" * 300, "hi"),
            "a session id must be a string of 1 to 200 bytes",
        ),
        (("run", "--nonsense", "hi"), "No such option"),
        (("nonsense",), "unknown command 'nonsense'"),
        (("rnu",), "did you mean run?"),
    ],
)
def test_a_mistake_prints_one_line_and_exits_with_2(
    cli: Cli, args: tuple[str, ...], error: str
) -> None:
    ran = cli(*args)

    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.startswith("glue: ")
    assert ran.err.count("\n") == 1
    assert error in ran.err


def test_an_agent_file_has_the_same_command_line(cli: Cli, zygote: Any, agent: str) -> None:
    line = [sys.executable, agent, "--allow", "save", "--json", "save it"]

    ran = subprocess.run(line, input="", capture_output=True, text=True, timeout=60, check=False)
    execute = f"import runpy; runpy.run_path({agent!r}, run_name='__main__')"
    _, told, _ = zygote.run([sys.executable, "-c", execute, "--help"], Path.cwd())
    code, _, error = zygote.run([sys.executable, "-c", execute, "--nope"], Path.cwd())

    assert json.loads(ran.stdout.splitlines()[-1])["text"].startswith("3: saved")
    assert "agent.py [OPTIONS] [PROMPT]..." in told
    for option in (
        "-m,",
        "-s,",
        "-c,",
        "--max-turns",
        "--usd-budget",
        "--seconds",
        "--json",
        "--usage",
        "--show-wire",
    ):
        assert option in told
    assert (code, error.count("\n")) == (2, 1)


def test_the_installed_command_runs(cli: Cli, agent: str) -> None:
    ran = glue("run", agent, "hello", "-vv")
    broken = glue("run", "-m", "nope", "hi", GLUE_DEBUG="1")

    assert ran.stdout == "1: hello ␛[31m\n"
    assert ran.returncode == 0
    assert broken.returncode == 1
    assert "Traceback" in broken.stderr


def test_characters_that_stdout_cannot_encode_are_escaped(cli: Cli, agent: str) -> None:
    Path("prompts/greet").mkdir(parents=True)
    Path("prompts/greet/v1.md").write_text("漢\n")

    assert glue("run", agent, "é", PYTHONIOENCODING="ascii").stdout == "1: \\xe9 \\u241b[31m\n"
    assert (
        glue("prompts", "show", "greet", "--from", "prompts", PYTHONIOENCODING="latin-1").stdout
        == "\\u6f22\n"
    )


def test_a_run_that_reached_a_limit_is_continued_by_its_session(cli: Cli, agent: str) -> None:
    ran = cli("run", agent, "-s", "my notes", "--yes", "--max-turns", "2", "loop: save it")

    assert ran.err.splitlines()[-1].endswith(
        "; continue with -s 'my notes' --max-turns N \"Continue.\""
    )


@pytest.mark.parametrize(("terminal", "shown"), [("dumb", "\\u00e9"), ("xterm", "é")])
def test_an_answer_object_is_ascii_on_a_dumb_terminal(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, terminal: str, shown: str
) -> None:
    monkeypatch.setenv("TERM", terminal)
    Path("agent.py").write_text(
        "from glue import Agent\nfrom glue.testing import Script, call, calls\n"
        "agent = Agent(Script(calls(call('final_answer', {'name': 'é'}))))\n"
    )

    ran = cli("run", "agent.py", "--schema", "name: str", "hi")

    assert ran.out == f'{{\n  "name": "{shown}"\n}}\n', ran.err


def test_flags_that_contradict_each_other_are_refused(cli: Cli) -> None:
    for flags, fault in (
        (("--as-curl",), "--as-curl needs --show-wire; add --show-wire"),
        (("--record", "a", "--replay", "b"), "--record and --replay exclude each other"),
        (("-s", "x", "-c"), "--session names a session, --continue takes the most recent"),
        (("-s", ""), "--session needs a name"),
    ):
        ran = cli("run", "-m", "offline", *flags, "hi")
        assert (ran.code, ran.out) == (2, "")
        assert fault in ran.err
