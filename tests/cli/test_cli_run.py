"""`glue run` and `agent.cli()`: prompts in, answers on stdout, the rest on stderr, outcomes as exit codes."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import zipapp
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]

AGENT = '''\
# /// script
# dependencies = ["glue-agents"]
# ///
from glue import Agent, tool
from glue.testing import Script, call, calls, repeat, say

@tool(needs_permission=True, target="name")
def save(name: str, text: str = "") -> str:
    """Save a text.

    Args:
        name: of the file
        text: what to write
    """
    return f"saved {name}"

def answer(request):
    last = request.messages[-1]
    if "save" in last.text and last.__class__.__name__ == "UserMessage":
        return calls(call("save", {"name": "a.txt"}), text="One moment.")
    if "loop" in request.messages[0].text:
        return calls(call("save", {"name": f"{len(request.messages)}.txt"}))
    if "refuse" in last.text:
        return say("No.", stop="refusal")
    if "wait" in last.text:
        return say("waiting for ever", delay=600)
    return f"{len(request.messages)}: {last.text} \\x1b[31m"

agent = Agent(Script(repeat(answer)), tools=[save])

if __name__ == "__main__":
    agent.cli()
'''


@pytest.fixture
def agent(cli: Cli) -> str:
    Path("agent.py").write_text(AGENT)
    return "agent.py"


def glue(*args: str, input: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    """Run the installed command."""
    program = str(Path(sys.executable).parent / "glue")
    clean = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **env}
    return subprocess.run([program, *args], input=input, env=clean, capture_output=True, text=True, timeout=60)


# Prompts ------------------------------------------------------------------------------------------


def test_the_prompt_is_the_words_on_the_command_line(cli: Cli, agent: str) -> None:
    ran = cli("run", agent, "hello", "there")

    assert (ran.code, ran.out, ran.err) == (0, "1: hello there ␛[31m\n", "")


def test_without_words_the_prompt_is_stdin(cli: Cli, agent: str) -> None:
    assert cli("run", agent, input="from a pipe").out == "1: from a pipe ␛[31m\n"


def test_a_dash_is_stdin_and_an_at_sign_a_file(cli: Cli, agent: str) -> None:
    Path("note.txt").write_text("a note")

    ran = cli("run", agent, "read", "@note.txt", "-", input="and this")

    assert ran.out == "1: read\n\na note\n\nand this ␛[31m\n"


def test_two_at_signs_are_one(cli: Cli, agent: str) -> None:
    assert cli("run", agent, "@@ada", "hi").out == "1: @ada hi ␛[31m\n"


def test_a_picture_goes_as_a_picture(cli: Cli) -> None:
    Path("a.png").write_bytes(b"\x89PNG")
    Path("see.py").write_text(
        "from glue import Agent\nfrom glue.testing import Script, repeat\n"
        "agent = Agent(Script(repeat(lambda r: repr(r.messages[-1].content[1].media_type))))\n"
    )

    assert cli("run", "see.py", "what is this?", "@a.png").out == "'image/png'\n"


def test_an_agent_in_a_zipapp_runs_without_its_header(cli: Cli) -> None:
    Path("app").mkdir()
    Path("app/__main__.py").write_text(AGENT)
    zipapp.create_archive("app", "app.pyz")

    ran = subprocess.run([sys.executable, "app.pyz", "hello"], capture_output=True, text=True, timeout=60)

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "1: hello ␛[31m\n", "")


# Answers ------------------------------------------------------------------------------------------


def test_only_the_answer_goes_to_stdout(cli: Cli, agent: str) -> None:
    ran = cli("run", agent, "--yes", "save it")

    assert ran.out == "3: saved a.txt ␛[31m\n"
    assert "· save(name=a.txt)  ok" in ran.err


def test_quiet_says_only_the_answer(cli: Cli, agent: str) -> None:
    assert cli("run", agent, "--yes", "-q", "save it").err == ""


def test_verbose_shows_results(cli: Cli, agent: str) -> None:
    assert "    saved a.txt" in cli("run", agent, "--yes", "-v", "save it").err


def test_usage_is_said_on_stderr(cli: Cli) -> None:
    ran = cli("run", "-m", "offline", "--usage", "hi")

    assert "0 tokens in, 0 out, $0.0000, 1 request" in ran.err
    assert ran.err.strip().endswith("done")


def test_json_is_one_event_a_line_and_ends_with_the_result(cli: Cli, agent: str) -> None:
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


def test_what_a_tool_prints_is_no_event_and_its_exit_is_the_exit(cli: Cli) -> None:
    Path("loud.py").write_text(LOUD)

    ran = glue("run", "loud.py", "--json", "hi")

    assert all(json.loads(line)["type"] for line in ran.stdout.splitlines())
    assert (ran.returncode, ran.stderr) == (7, "noise\n")
    assert glue("chat", "loud.py", input="hi\n").returncode == 7


def test_structured_output_is_printed_as_json(cli: Cli) -> None:
    Path("shape.py").write_text(
        "from dataclasses import dataclass\nfrom glue import Agent\nfrom glue.testing import Script\n"
        "@dataclass\nclass Point:\n    x: int\n    name: str\n"
        'agent = Agent(Script(\'Here: {"x": "3", "name": "é"}\'), output=Point)\n'
    )

    assert json.loads(cli("run", "shape.py", "go").out) == {"x": 3, "name": "é"}


# Exit codes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "options", "code", "said"),
    [
        ("loop", ("--max-turns", "2", "--yes"), 3, "max_turns reached: 2 of 2"),
        ("refuse", (), 5, ""),
        ("hello", ("--seconds", "0"), 3, "budget of 0 seconds"),
    ],
)
def test_the_outcome_is_the_exit_code(
    cli: Cli, agent: str, prompt: str, options: tuple[str, ...], code: int, said: str
) -> None:
    ran = cli("run", agent, prompt, *options)

    assert ran.code == code
    assert said in ran.err


def test_an_interrupt_cancels_and_leaves_with_130(cli: Cli, agent: str) -> None:
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


# Permissions --------------------------------------------------------------------------------------


def test_where_nobody_can_be_asked_the_denial_names_the_flag(cli: Cli, agent: str) -> None:
    ran = cli("run", agent, "save it")

    assert "permission denied: save a.txt: nobody can be asked here; --allow save allows it" in ran.err
    assert ran.out.startswith("3: permission denied")


@pytest.mark.parametrize("flags", [("--yes",), ("--allow", "save"), ("--allow", "save:*.txt"), ("--allow", "s*")])
def test_flags_allow(cli: Cli, agent: str, flags: tuple[str, ...]) -> None:
    assert cli("run", agent, "save it", *flags).out.startswith("3: saved a.txt")


@pytest.mark.parametrize("flags", [("--allow", "save:*.md"), ("--allow", "shell"), ("--yes", "--deny", "save")])
def test_what_no_flag_covers_is_denied(cli: Cli, agent: str, flags: tuple[str, ...]) -> None:
    assert cli("run", agent, "save it", *flags).out.startswith("3: permission denied")


def test_a_flag_that_names_no_tool_is_a_mistake(cli: Cli, agent: str) -> None:
    ran = cli("run", agent, "save it", "--allow", "svae")

    assert ran.code == 2
    assert "the rule 'svae' names no known tool" in ran.err


def test_the_header_of_a_file_allows_and_limits(cli: Cli, agent: str) -> None:
    header = '# [tool.glue]\n# allow = ["save"]\n# max_turns = 2\n# ///\nfrom'
    Path(agent).write_text(AGENT.replace("# ///\nfrom", header))

    assert cli("run", agent, "save it").out.startswith("3: saved a.txt")
    assert cli("run", agent, "loop").code == 3
    assert "of 2" in cli("run", agent, "loop").err
    assert "of 1" in cli("run", agent, "loop", "--max-turns", "1").err


def test_a_flag_goes_before_the_header_and_that_before_the_code(cli: Cli, agent: str) -> None:
    Path(agent).write_text(AGENT.replace("# ///\nfrom", '# [tool.glue]\n# model = "offline"\n# ///\nfrom'))

    assert "stand-in" in cli("run", agent, "hi").out
    assert "unknown provider 'nope'" in cli("run", agent, "-m", "nope", "hi").err


def test_a_refusal_in_the_header_stands_beside_flags(cli: Cli, agent: str) -> None:
    Path(agent).write_text(AGENT.replace("# ///\nfrom", '# [tool.glue]\n# deny = ["save"]\n# ///\nfrom'))

    assert cli("run", agent, "save it", "--yes").out.startswith("3: permission denied")


# Sessions -----------------------------------------------------------------------------------------


def test_a_session_goes_on(cli: Cli, agent: str) -> None:
    assert cli("run", agent, "-s", "demo", "one").out.startswith("1: one")
    assert cli("run", agent, "-s", "demo", "two").out.startswith("3: two")
    assert cli("run", agent, "-c", "three").out.startswith("5: three")
    assert (Path.home() / ".local/state/glue/sessions/demo.jsonl").exists()


@pytest.mark.parametrize("store", ["kept", "kept.db"])
def test_a_store_can_be_named(cli: Cli, agent: str, store: str) -> None:
    cli("run", agent, "-s", "demo", "--store", store, "one")

    assert Path(store).exists()
    assert cli("run", agent, "-c", "--store", store, "two").out.startswith("3: two")


def test_there_must_be_something_to_continue(cli: Cli, agent: str) -> None:
    ran = cli("run", agent, "-c", "hello")

    assert ran.code == 2
    assert "there is no conversation to continue" in ran.err


# Recordings and the wire --------------------------------------------------------------------------


def test_a_recorded_run_plays_back(cli: Cli, agent: str) -> None:
    first = cli("run", agent, "--yes", "--record", "cassette.jsonl", "save it")
    Path(agent).write_text(AGENT.replace("def answer(request):", "def answer(request):\n    raise SystemError"))

    again = cli("run", agent, "--yes", "--replay", "cassette.jsonl", "save it")

    assert again.out == first.out
    assert cli("replay", "cassette.jsonl", agent, "--yes").out == first.out
    assert "· save" in cli("replay", "cassette.jsonl").err
    other = cli("run", agent, "--yes", "--replay", "cassette.jsonl", "something else")
    assert other.code == 1
    assert "departs from the cassette" in other.err


def test_a_damaged_cassette_is_one_line(cli: Cli, agent: str) -> None:
    cli("run", agent, "--yes", "--record", "cassette.jsonl", "save it")
    text = Path("cassette.jsonl").read_text()

    for old, new, args in (
        ('"done", "message"', '"done", "m"', ()),
        ('"content": [', '"content": 5, "x": [', (agent,)),
    ):
        Path("damaged.jsonl").write_text(text.replace(old, new))
        ran = cli("replay", "damaged.jsonl", *args)
        assert (ran.code, ran.err.startswith("glue: damaged.jsonl is damaged: ")) == (2, True), ran.err


BODY = b'data: {"choices": [{"index": 0, "delta": {"content": "Hi."}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
REPLY = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n%s" % (len(BODY), BODY)
SECRET = "sec" + "ret-0123456789"


def test_recording_and_replaying_a_named_model_needs_its_key_once(
    cli: Cli, loopback: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = loopback(REPLY)
    monkeypatch.setenv("GROQ_BASE_URL", f"{server.url}/v1")
    monkeypatch.setenv("GROQ_API_KEY", SECRET)
    assert cli("run", "-m", "groq", "--record", "cassette.jsonl", "hello").out == "Hi.\n"
    monkeypatch.delenv("GROQ_API_KEY")

    assert cli("run", "-m", "groq", "--replay", "cassette.jsonl", "hello").out == "Hi.\n"
    assert len(server.seen) == 1
    assert SECRET not in Path("cassette.jsonl").read_text()


def test_a_recording_of_structured_output_plays_back_as_it_was_asked(
    cli: Cli, loopback: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = BODY.replace(b"Hi.", b'{\\"x\\": 3}')
    server = loopback(REPLY.replace(BODY, body).replace(b"%d" % len(BODY), b"%d" % len(body)))
    monkeypatch.setenv("GROQ_BASE_URL", f"{server.url}/v1")
    monkeypatch.setenv("GROQ_API_KEY", SECRET)
    Path("shape.py").write_text(
        "from dataclasses import dataclass\nfrom glue import Agent\n@dataclass\nclass Point:\n    x: int\n"
        "agent = Agent('groq', output=Point)\n"
    )
    assert json.loads(cli("run", "shape.py", "--record", "cassette.jsonl", "go").out) == {"x": 3}
    assert b"json_schema" in server.seen[0].body
    monkeypatch.delenv("GROQ_API_KEY")

    assert json.loads(cli("run", "shape.py", "--replay", "cassette.jsonl", "go").out) == {"x": 3}


def test_the_wire_is_shown_with_keys_masked(cli: Cli, loopback: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server = loopback(REPLY)
    monkeypatch.setenv("GROQ_BASE_URL", f"{server.url}/v1")
    monkeypatch.setenv("GROQ_API_KEY", SECRET)

    monkeypatch.setenv("OTHER_TOKEN", SECRET[::-1])

    ran = cli("run", "-m", "groq", "--show-wire", f"my key is {SECRET}")
    other = cli("run", "-m", "groq", "--show-wire", f"the other is {SECRET[::-1]}")

    assert SECRET[::-1] not in other.err
    assert ran.out == "Hi.\n"
    assert f"POST {server.url}/v1/chat/completions\n" in ran.err
    assert "authorization: Bearer ***\n" in ran.err
    assert '"content": "my key is ***"' in ran.err
    assert SECRET not in ran.err


def test_the_curl_command_sends_the_same_request(cli: Cli, loopback: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server = loopback(REPLY)
    monkeypatch.setenv("GROQ_BASE_URL", f"{server.url}/v1")
    monkeypatch.setenv("GROQ_API_KEY", SECRET)

    ran = cli("run", "-m", "groq", "-q", "--show-wire", "--as-curl", 'it\'s "quoted" $HOME')

    words = shlex.split(ran.err.replace("\\\n", ""))
    assert SECRET not in ran.err
    assert words[:3] == ["curl", "-N", f"{server.url}/v1/chat/completions"]
    assert words[words.index("--data-raw") + 1].encode() == server.seen[0].body
    assert "authorization: Bearer $GROQ_API_KEY" in words


def test_a_provider_without_a_wire_says_so(cli: Cli) -> None:
    assert "nothing went over a wire" in cli("run", "-m", "offline", "--show-wire", "hi").err


@pytest.mark.parametrize(("status", "code"), [(401, 2), (404, 2), (400, 1)])
def test_a_refused_key_is_the_users_mistake(
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


# Mistakes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("run",), "the prompt is empty"),
        (("run", "-m", "grok", "hi"), "unknown provider 'grok'; did you mean groq"),
        (("run", "-m", "openai", "hi"), "openai: no key; set OPENAI_API_KEY"),
        (("run", "hi"), "no model is named and no key is set"),
        (("run", "nope.py", "hi"), "there is no file nope.py"),
        (("run", "-m", "offline", "@nope.txt"), "@nope.txt cannot be read: No such file"),
        (("run", "-m", "offline", "@."), "@. cannot be read"),
        (("run", "-m", "offline", "--tools", "fs,nope", "hi"), "there are no tools 'nope'; there are: fs, edit"),
        (("run", "-m", "offline", "--max-turns", "x", "hi"), "'x' is not a valid integer"),
        (("run", "-m", "offline", "--seconds", "nan", "hi"), "seconds must be"),
        (("run", "-m", "offline", "--as-curl", "hi"), "--as-curl needs --show-wire"),
        (("run", "-m", "offline", "-s", "a", "-c", "hi"), "give one of them"),
        (("run", "-m", "offline", "-q", "-v", "hi"), "exclude each other"),
        (("run", "-m", "offline", "--replay", "nope.jsonl", "hi"), "nope.jsonl cannot be read"),
        (("run", "-m", "offline", "--record", "no/folder/x", "hi"), "there is no folder"),
        (("run", "-m", "offline", "--temperature", "nan", "hi"), "temperature must be a number of 0 or more"),
        (("run", "-m", "offline", "--schema", "no.json", "hi"), "--schema no.json cannot be read: No such file"),
        (
            ("run", "-m", "offline", "--schema", '{"type": "objekt"}', "hi"),
            "--schema must be a JSON schema; wrong at type",
        ),
        (
            ("run", "-m", "offline", "--schema", '{"$ref": "#/nowhere"}', "hi"),
            "--schema must be a JSON schema; wrong at $ref: there is no #/nowhere",
        ),
        (("run", "-m", "offline", "--schema", "", "hi"), "--schema: '' is no 'name: type'"),
        (("run", "-m", "offline", "-s", "", "hi"), "--session needs a name"),
        (("run", "-m", "offline", "-s", "x" * 300, "hi"), "a session id is a text of 1 to 200 bytes"),
        (("run", "--nonsense", "hi"), "No such option"),
        (("nonsense",), "no command 'nonsense'"),
        (("rnu",), "did you mean run?"),
    ],
)
def test_a_mistake_is_one_line_and_code_2(cli: Cli, args: tuple[str, ...], said: str) -> None:
    ran = cli(*args)

    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.startswith("glue: ")
    assert ran.err.count("\n") == 1
    assert said in ran.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", "defines no agent"),
        ("from glue import Agent\na = Agent('offline')\nb = Agent('offline')", "several agents (a, b)"),
        ("def (", "line 1"),
        ("import nonsense_package", "needs 'nonsense_package', which is not installed; `uv run bad.py`"),
        ("\n\n1 / 0", "bad.py, line 3: ZeroDivisionError"),
        ("# /// script\n# x =\n# ///\nfrom glue import Agent\nagent = Agent('offline')", "no valid TOML"),
        ("from glue import Agent\nagent = Agent('offline', deps_type=int)", "needs deps (int)"),
    ],
)
def test_a_file_that_is_no_agent_is_said_in_one_line(cli: Cli, text: str, said: str) -> None:
    Path("bad.py").write_text(text)

    ran = cli("run", "bad.py", "hi")

    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert said in ran.err


# The installed command ----------------------------------------------------------------------------


def test_an_agent_file_has_the_same_command_line(cli: Cli, agent: str) -> None:
    line = [sys.executable, agent, "--allow", "save", "--json", "save it"]

    ran = subprocess.run(line, input="", capture_output=True, text=True, timeout=60, check=False)
    told = subprocess.run([sys.executable, agent, "--help"], capture_output=True, text=True, timeout=60, check=False)
    wrong = subprocess.run([sys.executable, agent, "--nope"], capture_output=True, text=True, timeout=60, check=False)

    assert json.loads(ran.stdout.splitlines()[-1])["text"].startswith("3: saved")
    assert "agent.py [OPTIONS] [PROMPT]..." in told.stdout
    for option in ("-m,", "-s,", "-c,", "--max-turns", "--usd-budget", "--seconds", "--json", "--usage", "--show-wire"):
        assert option in told.stdout
    assert wrong.returncode == 2
    assert wrong.stderr.count("\n") == 1


def test_the_installed_command_runs(cli: Cli, agent: str) -> None:
    ran = glue("run", agent, "hello", "-vv")
    broken = glue("run", "-m", "nope", "hi", GLUE_DEBUG="1")

    assert ran.stdout == "1: hello ␛[31m\n"
    assert ran.returncode == 0
    assert broken.returncode == 1
    assert "Traceback" in broken.stderr


def test_a_narrow_encoding_does_not_end_a_run(cli: Cli, agent: str) -> None:
    Path("prompts/greet").mkdir(parents=True)
    Path("prompts/greet/v1.md").write_text("漢\n")

    assert glue("run", agent, "é", PYTHONIOENCODING="ascii").stdout == "1: \\xe9 \\u241b[31m\n"
    assert glue("prompts", "show", "greet", "--from", "prompts", PYTHONIOENCODING="latin-1").stdout == "\\u6f22\n"


def test_a_piped_stdin_that_was_not_read_is_mentioned(cli: Cli, agent: str) -> None:
    ran = glue("run", agent, "explain", input="some diff")

    assert "add - to the prompt to include it" in ran.stderr
