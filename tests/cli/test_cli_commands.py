"""The commands that list, show and check: what they print, and what they say to a mistake."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glue.cli.app import COMMANDS

Cli = Callable[..., Any]
THERE = [name for name, home, _ in COMMANDS if name != "review"]


def test_help_lists_the_commands_in_the_order_people_need_them(cli: Cli) -> None:
    ran = cli("--help")
    lines = [line.split()[0] for line in ran.out.partition("Commands:")[2].splitlines() if line.strip()]

    assert ran.code == 0
    assert lines == [name for name, _, _ in COMMANDS]
    assert lines[:3] == ["new", "run", "chat"]


def test_the_module_is_the_command() -> None:
    ran = subprocess.run([sys.executable, "-m", "glue", "--version"], capture_output=True, text=True, timeout=60)

    assert (ran.returncode, ran.stdout.startswith("glue, version ")) == (0, True)


def test_glue_alone_shows_the_help(cli: Cli) -> None:
    ran = cli()

    assert ran.code == 0
    assert ran.out == cli("--help").out


@pytest.mark.parametrize(
    "args", [("providers",), ("run", "-m", "offline", "hi"), ("run", "-m", "offline", "--json", "hi")]
)
def test_a_full_disk_is_one_line(args: tuple[str, ...]) -> None:
    program = str(Path(sys.executable).parent / "glue")
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full here")

    with open("/dev/full", "w") as full:
        ran = subprocess.run([program, *args], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)

    assert (ran.returncode, ran.stderr) == (1, "glue: No space left on device\n")


@pytest.mark.parametrize("args", ["providers", "run -m offline hi", "run -m offline --json hi"])
def test_a_closed_output_is_no_traceback(args: str) -> None:
    program = str(Path(sys.executable).parent / "glue")

    ran = subprocess.run(f"{program} {args} >&-", shell=True, stderr=subprocess.PIPE, text=True, timeout=60)

    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("name", THERE)
def test_every_command_has_help_and_refuses_an_unknown_option(cli: Cli, name: str) -> None:
    told, wrong = cli(name, "--help"), cli(name, "--nonsense")

    assert told.code == 0
    assert told.out.startswith(f"Usage: glue {name}")
    assert (wrong.code, wrong.out, wrong.err.count("\n")) == (2, "", 1)
    assert re.search(f"see `glue {name}( list)? --help`", wrong.err)


def test_help_and_lists_load_no_http_client() -> None:
    code = (
        "import sys\nfrom glue.cli.app import main\n"
        "for args in (['--help'], ['providers'], ['models']):\n"
        "    try:\n        main(args)\n    except SystemExit:\n        pass\n"
        "heavy = ('httpx', 'httpcore', 'httpcore2', 'ssl', 'anyio', 'jsonschema')\n"
        "print([name for name in heavy if name in sys.modules])"
    )

    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout

    assert out.splitlines()[-1] == "[]"


# Providers and models -----------------------------------------------------------------------------


def test_providers_are_a_table(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "not" + "-a-key")

    lines = cli("providers").out.splitlines()
    rows = {row["name"]: row for row in json.loads(cli("providers", "--json").out)}
    (groq,) = (line.split() for line in lines if line.startswith("groq "))

    assert lines[0].split() == ["name", "wire", "key", "default", "model", "window"]
    assert groq[:4] == ["groq", "openai_chat", "GROQ_API_KEY", "set"]
    assert rows["groq"]["key_set"] is True
    assert rows["anthropic"]["key_set"] is False
    assert rows["offline"]["key_set"] is None


BODY = b'data: {"choices": [{"index": 0, "delta": {"content": "ok"}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
REPLY = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n%s" % (len(BODY), BODY)
REFUSAL = b"HTTP/1.1 401 No\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


def test_a_check_sends_one_request_and_says_what_happened(
    cli: Cli, loopback: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = loopback(REPLY)
    monkeypatch.setenv("GROQ_API_KEY", "not" + "-a-key")
    monkeypatch.setenv("GROQ_BASE_URL", server.url)

    ran = cli("providers", "--check", "groq")

    assert ran.code == 0
    assert ran.out.startswith("groq: openai/gpt-oss-20b answered 'ok' in ")
    assert ran.out.count("\n") == 1
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (b"401", "groq: HTTP 401; is GROQ_API_KEY right?"),
        (b"404", "groq: HTTP 404; `glue models groq --server` lists its models"),
    ],
)
def test_a_refused_key_or_model_says_what_to_look_at(
    cli: Cli, loopback: Any, monkeypatch: pytest.MonkeyPatch, status: bytes, said: str
) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "k" * 20)
    monkeypatch.setenv("GROQ_BASE_URL", loopback(REFUSAL.replace(b"401", status)).url)

    ran = cli("run", "-m", "groq", "hi")

    assert (ran.code, ran.err) == (2, f"glue: {said}\n")
    assert f"glue: {said}\n" in cli("chat", "-m", "groq", input="hi\n").err


def test_a_check_tells_mistakes_from_hosts_that_do_not_answer(
    cli: Cli, loopback: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = loopback(REFUSAL)
    cases = [
        ("nope", "", "", 2, "unknown provider 'nope'"),
        ("groq", "", "", 2, "no key; set GROQ_API_KEY"),
        ("groq", "k" * 20, "nonsense", 2, "is no base URL"),
        ("groq", "k" * 20, refusing.url, 2, "401"),
        ("groq", "k" * 20, "http://127.0.0.1:9", 1, "cannot connect to 127.0.0.1:9"),
    ]
    for name, key, url, code, said in cases:
        monkeypatch.setenv("GROQ_API_KEY", key)
        monkeypatch.setenv("GROQ_BASE_URL", url)

        ran = cli("providers", "--check", name)

        assert (ran.code, ran.out, ran.err.count("\n")) == (code, "", 1), ran
        assert said in ran.err


def test_models_have_prices(cli: Cli) -> None:
    ran, one = cli("models"), cli("models", "anthropic")

    assert "anthropic:claude-haiku-4-5" in ran.out
    assert "USD per million tokens" in ran.out
    assert all(line.startswith(("model", "anthropic:", "USD")) for line in one.out.splitlines())
    assert json.loads(cli("models", "--json", "groq").out)[0]["model"].startswith("groq:")
    assert cli("models", "nope").code == 2


# Prompts, tools, files ----------------------------------------------------------------------------


def test_prompts_are_listed_shown_and_compared(cli: Cli) -> None:
    folder = Path("prompts/greet")
    folder.mkdir(parents=True)
    (folder / "v1.md").write_text("Hello.\n")
    (folder / "v2.md").write_text("Good day.\n")

    assert "review" in cli("prompts").out
    assert "v1, v2*" in cli("prompts", "--from", "prompts").out
    assert cli("prompts", "show", "greet", "--from", "prompts").out == "Good day.\n"
    assert cli("prompts", "show", "greet", "v1", "--from", "prompts").out == "Hello.\n"
    assert "-Hello.\n+Good day.\n" in cli("prompts", "diff", "greet", "v1", "v2", "--from", "prompts").out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("prompts", "show", "nope"), "there is no prompt 'nope'; there are: review"),
        (("prompts", "show", "review", "v99"), "has no version 'v99'; there are: v1"),
        (("prompts", "--from", "nowhere"), "prompts cannot be read from 'nowhere': No such file or directory\n"),
        (("tools", "check", "broken.py"), "glue: broken.py, line 1: invalid syntax\n"),
        (("tools", "check", "nope.py"), "no such file: nope.py"),
        (("tools", "check", "no.such.module"), "cannot import no.such.module"),
        (("tools", "check", "."), "give a dotted name or a .py file"),
        (("config", "set", "model", "nope"), "unknown provider 'nope'"),
        (("config", "set", "tools", "fs,nope"), "there are no tools 'nope'; there are: fs, edit"),
        (("config", "set", "max_turns", "x"), "config.toml: max_turns must be a whole number, not 'x'"),
        (("config", "set", "usd_budget", "-1"), "usd_budget must be a number of US dollars, not -1.0"),
        (("view", "messages.json", "-o", "no/folder/x.html"), "no/folder/x.html cannot be written: No such file"),
        (("chat", "-s", "", "-m", "offline"), "--session needs a name"),
        (("inspect", "nope.py"), "nope.py cannot be read: No such file"),
        (("inspect", "odd.py"), "odd.py: dependencies must be a list, not 1"),
        (("sessions", "show", "nope"), "there is no session 'nope'"),
        (("sessions", "rm", "nope", "--yes"), "there is no session 'nope'"),
        (("sessions", "--store", "file.txt"), "the store file.txt is a file"),
        (("replay", "file.txt"), "file.txt is no cassette"),
        (("replay", "nope.jsonl"), "nope.jsonl cannot be read"),
        (("completion", "tcsh"), "'tcsh' is not one of"),
        (("doctor", "--provider", "nope"), "unknown provider 'nope'"),
        (("chat", "nope.py"), "there is no file nope.py"),
        (("chat", "-m", "nope"), "unknown provider 'nope'"),
        (("chat", "-m", "openai"), "openai: no key; set OPENAI_API_KEY"),
        (("chat", "-c", "-m", "offline"), "there is no conversation to continue"),
    ],
)
def test_a_mistake_is_one_line_and_code_2(cli: Cli, args: tuple[str, ...], said: str) -> None:
    Path("file.txt").write_text("nothing of interest")
    Path("broken.py").write_text("def (\n")
    Path("odd.py").write_text("# /// script\n# dependencies = 1\n# ///\n")
    Path("messages.json").write_text('[{"v": 1, "role": "user", "content": [{"type": "text", "text": "hi"}]}]')

    ran = cli(*args, input="hello\n")

    assert ran.code == 2
    assert ran.err.count("\n") == 1, ran.err
    assert ran.err.startswith("glue: ")
    assert said in ran.err


def test_tools_are_checked(cli: Cli) -> None:
    Path("mine.py").write_text("from glue import tool\n@tool\ndef plain(x: str) -> str:\n    return x\n")

    ran = cli("tools", "check", "mine.py")

    assert ran.code == 1
    assert "plain: has no description; write a docstring" in ran.out
    assert "1 tool, 2 to mend" in ran.err
    assert len(json.loads(cli("tools", "check", "--json", "mine.py").out)) == 2
    assert "fs " in cli("tools").out


def test_tools_are_checked_in_a_file_that_imports_its_neighbour(cli: Cli) -> None:
    Path("work").mkdir()
    Path("work/neighbour_of_tools.py").write_text("NAME = 'act'\n")
    Path("work/mine.py").write_text(
        "from glue import tool\nfrom neighbour_of_tools import NAME\n"
        "@tool(name=NAME)\ndef plain() -> None:\n    'Act.'\n"
    )

    ran = cli("tools", "check", "work/mine.py")

    assert (ran.code, ran.err) == (0, "1 tool, nothing to mend\n")


def test_inspect_runs_nothing(cli: Cli) -> None:
    Path("mine.py").write_text(
        '# /// script\n# dependencies = ["glue-agents", "httpx"]\n# [tool.glue]\n# model = "groq"\n'
        '# tools = ["fs"]\n# ///\n"""Does things."""\nopen("ran", "w")\n'
        "from glue import Agent, tool\n@tool(needs_permission=True)\ndef save(x: str) -> str:\n"
        '    """Save it."""\n    return x\nagent = Agent("groq")\n'
    )

    text, data = cli("inspect", "mine.py"), json.loads(cli("inspect", "mine.py", "--json").out)

    assert not Path("ran").exists()
    assert data["settings"] == {"model": "groq", "tools": ["fs"]}
    assert data["dependencies"] == ["glue-agents", "httpx"]
    assert data["agents"] == [{"name": "agent", "model": "'groq'", "line": 14}]
    assert data["tools"] == [{"name": "save", "description": "Save it.", "needs_permission": True}]
    assert "save: Save it., needs permission" in text.out


# Sessions -----------------------------------------------------------------------------------------


@pytest.fixture
def kept(cli: Cli) -> Cli:
    cli("run", "-m", "offline", "-s", "first", "Where is Oslo?")
    cli("run", "-m", "offline", "-s", "second", "Where is \x1b[31mBergen?")
    return cli


def test_sessions_are_listed_the_last_first(kept: Cli) -> None:
    lines = kept("sessions").out.splitlines()[1:]

    assert [line.split()[2] for line in lines] == ["second", "first"]
    assert "Where is ␛[31mBergen?" in lines[0]
    assert [row["id"] for row in json.loads(kept("sessions", "list", "--json").out)] == ["second", "first"]


def test_a_session_is_shown_searched_and_exported(kept: Cli) -> None:
    shown = kept("sessions", "show", "second").out
    found = kept("sessions", "search", "oslo")
    data = json.loads(kept("sessions", "export", "first").out)
    kept("sessions", "export", "first", "-f", "md", "-o", "first.md")

    assert shown.startswith("user\nWhere is ␛[31mBergen?\n\nassistant (offline:offline)\n")
    assert found.out == "session  role  found\nfirst    user  Where is [Oslo]?\n"
    assert kept("sessions", "search", "toronto").code == 1
    assert kept("sessions", "search", "toronto").err == "no message holds all of these words\n"
    assert data["messages"][0]["content"][0]["text"] == "Where is Oslo?"
    assert Path("first.md").read_text().startswith("## User\n\nWhere is Oslo?\n\n## Assistant\n")
    assert len(kept("sessions", "export", "first", "-f", "jsonl").out.splitlines()) == 2
    assert kept("sessions", "export", "second", "-f", "md").out.startswith("## User\n\nWhere is ␛[31mBergen?\n")


def test_a_file_name_in_an_error_does_nothing_to_the_terminal(cli: Cli) -> None:
    assert cli("run", "-m", "offline", "-a", "a\x1b[2J", "hi").err.startswith("glue: --attach a␛[2J cannot be read")


def test_a_session_is_removed_only_when_that_is_meant(kept: Cli) -> None:
    refused = kept("sessions", "rm", "first")

    assert refused.code == 2
    assert "--yes removes without asking" in refused.err
    assert kept("sessions", "rm", "-y", "first").code == 0
    assert "first" not in kept("sessions").out


def test_no_sessions_says_where_it_looked(cli: Cli) -> None:
    ran = cli("sessions")

    assert (ran.code, ran.out) == (0, "")
    assert ".local/state/glue/sessions" in ran.err


# Doctor -------------------------------------------------------------------------------------------


def test_the_doctor_finds_a_healthy_machine(cli: Cli) -> None:
    ran = cli("doctor")
    names = [line.split()[1] for line in ran.out.splitlines()]

    assert ran.code == 0, ran.out
    for name in ("python", "glue", "http", "settings", "keys", "model", "git", "store", "proxy", "certificates"):
        assert name in names


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("GLUE_MODEL", "nope:x", "unknown provider 'nope'"),
        ("GLUE_MAX_TURNS", "many", "max_turns must be a whole number"),
        ("GROQ_API_KEY", "abcdefgh\n", "GROQ_API_KEY holds a space, a line end"),
        ("HTTPS_PROXY", "proxy:80", "HTTPS_PROXY is no address; it must look like http://host:port"),
        ("SSL_CERT_FILE", "/nonexistent/ca.pem", "SSL_CERT_FILE names /nonexistent/ca.pem; which is not there"),
        ("PATH", "/nonexistent", "git"),
    ],
)
def test_the_doctor_says_what_to_do(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str
) -> None:
    monkeypatch.setenv(variable, value)

    ran = cli("doctor")
    bad = [line for line in ran.out.splitlines() if line.startswith("!!")]

    assert ran.code == 1
    assert any(said in line for line in bad), bad


def test_the_doctor_finds_a_damaged_store(kept: Cli) -> None:
    folder = Path(os.environ["HOME"]) / ".local/state/glue/sessions"
    (folder / "broken.jsonl").write_bytes(b"\x00\x00\x00\n")

    ran = kept("doctor")

    assert ran.code == 1
    assert "1 of its files are no conversations" in ran.out


def test_the_doctor_reaches_out_only_when_asked(cli: Cli, loopback: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server = loopback(REPLY)
    monkeypatch.setenv("GROQ_API_KEY", "not" + "-a-key")
    monkeypatch.setenv("GROQ_BASE_URL", server.url)

    quiet = cli("doctor")
    before = server.connections
    reached, failed = cli("doctor", "--reach"), cli("doctor", "--provider", "llamacpp")

    assert (quiet.code, before) == (0, 0)
    assert "ok  reach groq     answers" in reached.out
    assert server.seen == []
    assert failed.code == 1
    assert "!!  reach llamacpp" in failed.out


# Completion ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed(cli: Cli, shell: str) -> None:
    ran = cli("completion", shell)

    assert ran.code == 0
    assert "_GLUE_COMPLETE" in ran.out


def test_the_shell_completes_commands_options_and_providers() -> None:
    program = str(Path(sys.executable).parent / "glue")

    def complete(words: str, at: int) -> list[str]:
        env = {
            "PATH": os.environ["PATH"],
            "_GLUE_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(at),
        }
        out = subprocess.run([program], env=env, capture_output=True, text=True, timeout=60, check=True).stdout
        return [line.split(",")[1] for line in out.splitlines()]

    assert complete("glue re", 1) == ["review", "replay"]
    assert "--show-wire" in complete("glue run --sh", 2)
    assert complete("glue run -m gro", 3) == ["groq"]


# The page -----------------------------------------------------------------------------------------

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text()


def test_the_page_names_every_command_option_and_setting() -> None:
    from glue.cli.config import SETTINGS, variable
    from glue.cli.options import run_options

    def nothing() -> None: ...

    options = [name for option in run_options(nothing).__click_params__ for name in option.opts]  # type: ignore[attr-defined]

    for name, _, _ in COMMANDS:
        assert f"`glue {name}" in PAGE, name
    for name in (*options, *SETTINGS, *map(variable, SETTINGS)):
        assert name in ("--quiet", "--verbose") or f"`{name}" in PAGE, name


def test_the_page_has_every_event_with_its_fields() -> None:
    from dataclasses import fields
    from typing import get_args

    from glue.events import Event, RequestStart, snake

    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", PAGE.partition("## Events as JSON")[2], re.MULTILINE))

    assert list(rows) == [snake(event.__name__) for event in get_args(Event)]
    for event in get_args(Event):
        if event is not RequestStart:
            assert re.findall(r"`(\w+)`", rows[snake(event.__name__)]) == [field.name for field in fields(event)]


def test_the_users_config_may_name_providers_and_a_projects_may_not(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glue.providers._registry", {})
    monkeypatch.setattr("glue.providers._configured", {})
    config = Path(os.environ["HOME"]) / ".config" / "glue" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[providers.nearby]\nbase_url = "http://127.0.0.1:9/v1"\nmodel = "m"\n')

    ran = cli("run", "-m", "nearby", "hi")
    Path("pyproject.toml").write_text('[tool.glue.providers.nearby]\nbase_url = "http://evil.example/v1"\n')
    refused = cli("run", "-m", "nearby", "hi")

    assert "nearby: cannot connect to 127.0.0.1:9" in ran.err
    assert (refused.code, "'providers' is not taken from a project" in refused.err) == (2, True)


def test_models_are_listed_with_windows_prices_and_ends_and_asked_of_a_server(
    cli: Cli, loopback: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = rb'{"data":[{"id":"one"},{"id":"two\u001b[2J"}]}'
    server = loopback(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
    monkeypatch.setenv("VLLM_BASE_URL", server.url)

    listed = cli("models", "openai").out
    rows = json.loads(cli("models", "openai", "--json").out)

    nano = next(line for line in listed.splitlines() if line.startswith("openai:gpt-5-nano "))
    assert " ".join(nano.split()) == "openai:gpt-5-nano 400,000 0.05 0.4 0.005 ends 2026-12-11"
    assert next(row for row in rows if row["default"])["model"] == "openai:gpt-5.4-nano"
    assert cli("models", "vllm", "--server").out == "one\ntwo␛[2J\n"
    assert json.loads(cli("models", "vllm", "--server", "--json").out) == ["one", "two\x1b[2J"]
    assert "prices" in cli("doctor").out
