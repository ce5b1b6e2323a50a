"""The `glue` command: its help, its exit codes, and failures as one line on stderr."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import click
import pytest

from glue.cli.app import COMMANDS, commands, main
from glue.cli.settings import SETTINGS, variable
from glue.events import Event, RequestStart
from glue.events.union import snake

Cli = Callable[..., Any]


THERE = [name for name, home, _ in COMMANDS if name != "review"]


DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_help_lists_the_commands_in_the_order_of_the_table(cli: Cli) -> None:
    ran = cli("--help")
    lines = [
        line.split()[0] for line in ran.out.partition("Commands:")[2].splitlines() if line.strip()
    ]

    assert ran.code == 0
    assert lines == [name for name, _, _ in COMMANDS]
    assert lines[:3] == ["new", "run", "chat"]


def test_python_dash_m_glue_runs_the_command() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "glue", "--version"], capture_output=True, text=True, timeout=60
    )

    assert (ran.returncode, ran.stdout.startswith("glue, version ")) == (0, True)


def test_glue_without_arguments_prints_the_help(cli: Cli) -> None:
    ran = cli()

    assert ran.code == 0
    assert ran.out == cli("--help").out


@pytest.mark.parametrize(
    "args",
    [("providers",), ("run", "-m", "offline", "hi"), ("run", "-m", "offline", "--json", "hi")],
)
def test_a_full_disk_prints_one_line_and_exits_with_1(args: tuple[str, ...]) -> None:
    program = str(Path(sys.executable).parent / "glue")
    if not os.path.exists("/dev/full"):
        pytest.skip("this system does not have /dev/full")

    with open("/dev/full", "w") as full:
        ran = subprocess.run(
            [program, *args], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )

    assert (ran.returncode, ran.stderr) == (1, "glue: No space left on device\n")


@pytest.mark.parametrize(
    "args", ["providers", "run -q -m offline hi", "run -q -m offline --json hi"]
)
def test_a_closed_stdout_prints_no_traceback(args: str) -> None:
    program = str(Path(sys.executable).parent / "glue")

    ran = subprocess.run(
        f"{program} {args} >&-", shell=True, stderr=subprocess.PIPE, text=True, timeout=60
    )

    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize(
    ("stream", "shown"),
    [
        (io.TextIOWrapper(io.BytesIO(), encoding="latin-1"), "Grüße \\u2192\n"),
        (io.StringIO(), "Grüße →\n"),
    ],
)
def test_characters_that_stdout_cannot_encode_are_escaped(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, stream: io.TextIOBase, shown: str
) -> None:
    Path("greet").mkdir()
    Path("greet/v1.md").write_text("Grüße →\n", "utf-8")
    monkeypatch.setattr(sys, "stdout", stream)

    ran = cli("prompts", "show", "greet", "--from", ".")

    stream.seek(0)
    assert (ran.code, ran.err, stream.read()) == (0, "", shown)


@pytest.mark.parametrize("name", THERE)
def test_every_command_has_help_and_refuses_an_unknown_option(cli: Cli, name: str) -> None:
    told, wrong = cli(name, "--help"), cli(name, "--nonsense")

    assert told.code == 0
    assert told.out.startswith(f"Usage: glue {name}")
    assert (wrong.code, wrong.out, wrong.err.count("\n")) == (2, "", 1)
    assert re.search(rf"(; |\? )see `glue {name}( list| run)? --help`", wrong.err)


def test_help_and_lists_load_no_http_client() -> None:
    code = (
        "import sys\nfrom glue.cli.app import main\n"
        "for args in (['--help'], ['providers'], ['models']):\n"
        "    try:\n        main(args)\n    except SystemExit:\n        pass\n"
        "heavy = ('httpx', 'httpcore', 'httpcore2', 'ssl', 'anyio', 'jsonschema')\n"
        "print([name for name in heavy if name in sys.modules])"
    )

    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout

    assert out.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (("prompts", "show", "nope"), "unknown prompt 'nope'; prompts: review"),
        (("prompts", "show", "review", "v99"), "has no version 'v99'; there are: v1"),
        (
            ("prompts", "--from", "nowhere"),
            "prompts cannot be read from 'nowhere': No such file or directory\n",
        ),
        (("tools", "check", "broken.py"), "glue: broken.py, line 1: invalid syntax\n"),
        (("tools", "check", "nope.py"), "the file nope.py does not exist"),
        (("tools", "check", "no.such.module"), "cannot import no.such.module"),
        (("tools", "check", "."), "give a dotted name or a .py file"),
        (("config", "set", "model", "nope"), "unknown provider 'nope'"),
        (
            ("config", "set", "tools", "fs,nope"),
            "unknown tools 'nope'; choose from: fs, edit",
        ),
        (
            ("config", "set", "max_turns", "x"),
            "config.toml: the setting max_turns must be a whole number, not 'x'",
        ),
        (
            ("config", "set", "usd_budget", "-1"),
            "usd_budget must be a number of US dollars, not -1.0",
        ),
        (
            ("view", "messages.json", "-o", "no/folder/x.html"),
            "no/folder/x.html cannot be written: No such file",
        ),
        (("chat", "-s", "", "-m", "offline"), "--session needs a name"),
        (("inspect", "nope.py"), "nope.py cannot be read: No such file"),
        (("inspect", "odd.py"), "odd.py: dependencies must be a list, not 1"),
        (("sessions", "show", "nope"), "there is no session 'nope'"),
        (("sessions", "rm", "nope", "--yes"), "there is no session 'nope'"),
        (("sessions", "--store", "file.txt"), "the store file.txt is a file"),
        (("replay", "file.txt"), "file.txt is not a cassette"),
        (("replay", "nope.jsonl"), "nope.jsonl cannot be read"),
        (("completion", "tcsh"), "'tcsh' is not one of"),
        (("doctor", "--provider", "nope"), "unknown provider 'nope'"),
        (("chat", "nope.py"), "the file nope.py does not exist"),
        (("chat", "-m", "nope"), "unknown provider 'nope'"),
        (("chat", "-m", "openai"), "openai: no key; set OPENAI_API_KEY"),
        (("chat", "-c", "-m", "offline"), "no session to continue"),
    ],
)
def test_a_mistake_prints_one_line_and_exits_with_2(
    cli: Cli, args: tuple[str, ...], error: str
) -> None:
    Path("file.txt").write_text("nothing of interest")
    Path("broken.py").write_text("def (\n")
    Path("odd.py").write_text("# /// script\n# dependencies = 1\n# ///\n")
    Path("messages.json").write_text(
        '[{"v": 1, "role": "user", "content": [{"type": "text", "text": "hi"}]}]'
    )

    ran = cli(*args, input="hello\n")

    assert ran.code == 2
    assert ran.err.count("\n") == 1, ran.err
    assert ran.err.startswith("glue: ")
    assert error in ran.err


@pytest.mark.parametrize(
    ("args", "input", "error"),
    [
        (("sessions", "show", ""), "", "session"),
        (("run", "-m", "offline", "@/dev/urandom"), "", "larger than 16 MB"),
        (("run", "-m", "offline", "-"), "\0\1\2", "stdin is not text"),
        (("new", "."), "", "not a file name"),
        (("new", ".."), "", "not a file name"),
        (("view", "last"), "", "no logged run 'last'"),
    ],
)
def test_unusual_input_prints_one_line_and_exits_with_2(
    cli: Cli, args: tuple[str, ...], input: str, error: str
) -> None:
    ran = cli(*args, input=input)

    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert error in ran.err
    assert "Traceback" not in ran.err


def test_with_json_the_last_line_on_stdout_reports_the_failure(cli: Cli) -> None:
    for args in (
        ("run", "--json", "--nonsense"),
        ("run", "--json", "-m", "nobody:x", "hi"),
        ("view", "--json", "x"),
    ):
        ran = cli(*args)
        last = json.loads(ran.out.splitlines()[-1])
        assert (last["type"], last["exit_code"]) == ("error", ran.code)
        assert last["error"]["message"]


def test_json_as_the_first_word_of_the_command_line_is_respected(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["glue", "--json", "run"])

    with pytest.raises(SystemExit):
        main()

    assert json.loads(capsys.readouterr().out)["type"] == "error"


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (("rum",), "unknown command 'rum'; did you mean run? see `glue --help`"),
        (("tools", "check"), "Missing argument 'MODULE|FILE.py...'; see `glue tools check --help`"),
    ],
)
def test_the_help_is_named_after_a_question_or_a_statement(
    cli: Cli, args: tuple[str, ...], error: str
) -> None:
    assert cli(*args).err == f"glue: {error}\n"


def test_an_interrupt_while_an_agent_file_is_loaded_exits_with_130(cli: Cli) -> None:
    Path("agent.py").write_text("raise KeyboardInterrupt\n")

    ran = cli("run", "agent.py", "hi")

    assert (ran.code, ran.out, ran.err.strip()) == (130, "", "glue: cancelled")


def test_control_characters_in_an_error_message_are_replaced(cli: Cli) -> None:
    assert cli("run", "-m", "offline", "-a", "a\x1b[2J", "hi").err.startswith(
        "glue: --attach a␛[2J cannot be read"
    )


def test_the_pages_in_docs_name_every_command_and_setting() -> None:
    commands, settings = ((DOCS / name).read_text() for name in ("cli.md", "settings.md"))

    for name, _, _ in COMMANDS:
        assert f"`glue {name}" in commands, name
    for name in (*SETTINGS, *map(variable, SETTINGS)):
        assert f"`{name}`" in settings, name


def test_the_page_in_docs_lists_every_event_with_its_fields() -> None:
    page = (DOCS / "json-events.md").read_text().partition("## Event types")[2]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", page, re.MULTILINE))

    assert list(rows) == [snake(event.__name__) for event in get_args(Event)]
    for event in get_args(Event):
        if event is not RequestStart:
            assert re.findall(r"`(\w+)`", rows[snake(event.__name__)]) == [
                field.name for field in fields(event)
            ]


# The modules of optional extras; a plain installation has none of them.
OPTIONAL = """
    azure botocore dbos google httpcore2 httpx2 markdown_it mcp mcp_types opentelemetry
    prompt_toolkit psycopg pydantic pypdf rich socksio starlette uvicorn xllamacpp
""".split()


def test_every_command_loads_and_a_run_works_without_optional_packages(tmp_path: Path) -> None:
    program = f"""
import sys
for name in {OPTIONAL!r}:
    sys.modules[name] = None  # importing it raises ImportError
from glue.cli.app import COMMANDS, main

helps = [[each.name, "--help"] for each in COMMANDS]
for arguments in [*helps, ["run", "-m", "offline", "-q", "hi"]]:
    try:
        main(arguments)
    except SystemExit as end:
        if end.code:
            sys.exit(f"glue {{arguments[0]}}: exit code {{end.code}}")
"""

    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )

    assert (ran.returncode, ran.stderr) == (0, "")
    assert "stand-in" in ran.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("command", "option", "shown"),
    [
        ("run", "--temperature", "x>=0"),
        ("run", "--max-tokens", "x>=1"),
        ("map", "--concurrency", "default: 8; x>=1"),
        ("map", "--retries", "default: 1; x>=0"),
        ("map", "--usd-budget", "x>=0"),
        ("map", "--token-budget", "x>=0"),
        ("map", "--max-turns", "x>=0"),
        ("map", "--seconds", "x>=0"),
        ("map", "--patience", "default: 600.0; x>=0"),
        ("eval run", "--repeat", "default: 1; x>=1"),
        ("eval run", "--at-least", "0<=x<=1"),
        ("eval run", "--output", "default: eval.jsonl"),
        ("worker", "--concurrency", "default: 8; x>=1"),
        ("worker", "--global-concurrency", "x>=1"),
        ("worker", "--patience", "default: 600.0; x>=0"),
        ("worker", "--poll", "default: 5, or 0.2 for SQLite] [x>=0.01"),
        ("worker", "--lease", "default: 10.0; x>=1"),
        ("worker", "--grace", "default: 30.0; x>=0"),
        ("queue list", "--every", "default: 2.0; x>=0.1"),
        ("runs", "--limit", "default: 20; x>=1"),
        ("sessions search", "--limit", "default: 20; x>=1"),
        ("sessions export", "--format", "default: json"),
        ("serve", "--host", "default: 127.0.0.1"),
        ("new", "--template", "default: tool"),
        ("acp", "--tools", "default: coding"),
    ],
)
def test_the_help_shows_the_default_and_the_range_of_an_option(
    cli: Cli, command: str, option: str, shown: str
) -> None:
    text = " ".join(cli(*command.split(), "--help").out.partition("Options:")[2].split())

    about = re.split(r" --?[a-z-]+[ ,]", f" {text}".partition(f" {option} ")[2])[0]

    assert f"[{shown}]" in about


def leaves(group: click.Group, *words: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command of a group with its words, and those of its groups."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from leaves(command, *words, name)
        else:
            yield (*words, name), command


def test_exactly_the_options_that_may_be_repeated_are_marked_in_the_help() -> None:
    wrong = []
    for words, command in leaves(commands):
        if words[0] == "review":
            continue
        for option in command.params:
            if isinstance(option, click.Option):
                is_marked = "Repeatable" in (option.help or "")
                if is_marked is not option.multiple:
                    wrong.append(f"{' '.join(words)} {option.opts[-1]}")

    assert wrong == []


@pytest.mark.parametrize(
    ("args", "error"),
    [
        ("map agent.py in.jsonl", "Missing option '-o' / '--output'"),
        ("worker agent.py --engine sqlite:///q.db", "Missing option '--queue'"),
        ("worker agent.py --queue q", "Missing option '--engine'"),
        ("queue", "Missing option '--engine'"),
        ("queue prune --engine sqlite:///q.db", "Missing option '--older'"),
        ("sessions prune", "Missing option '--older'"),
        ("sessions search", "Missing argument 'WORDS...'"),
        ("sessions rm", "Missing argument 'NAMES...'"),
        ("tools check", "Missing argument 'MODULE|FILE.py...'"),
        ("map agent.py in.jsonl -o folder", "File 'folder' is a directory"),
        ("run --record folder hi", "File 'folder' is a directory"),
        ("run --replay folder hi", "File 'folder' is a directory"),
        ("replay folder", "File 'folder' is a directory"),
        ("sessions export x -o folder", "File 'folder' is a directory"),
        ("eval agent.py cases.jsonl --baseline folder", "File 'folder' is a directory"),
        ("eval agent.py cases.jsonl --record agent.py", "Directory 'agent.py' is a file"),
        ("eval agent.py cases.jsonl --replay agent.py", "Directory 'agent.py' is a file"),
        ("eval agent.py cases.jsonl --replay none", "Directory 'none' does not exist"),
        ("eval diff folder folder", "File 'folder' is a directory"),
        ("eval diff none none", "File 'none' does not exist"),
        ("eval diff agent.py none", "File 'none' does not exist"),
        ("eval diff agent.py folder", "File 'folder' is a directory"),
        ("serve folder", "File 'folder' is a directory"),
        ("serve none.py", "File 'none.py' does not exist"),
        ("acp folder", "File 'folder' is a directory"),
        ("acp none.py", "File 'none.py' does not exist"),
        ("mcp folder", "File 'folder' is a directory"),
        ("mcp none.py", "File 'none.py' does not exist"),
        ("mcp agent.py --files agent.py", "Directory 'agent.py' is a file"),
        ("mcp agent.py --files none", "Directory 'none' does not exist"),
    ],
)
def test_a_missing_or_unfitting_file_or_option_is_named(cli: Cli, args: str, error: str) -> None:
    Path("folder").mkdir()
    Path("agent.py").touch()

    ran = cli(*args.split())

    assert (ran.code, ran.out) == (2, "")
    assert error in ran.err
