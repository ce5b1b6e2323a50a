"""`glue new`: every template runs unchanged with every provider, and never invents an answer."""

from __future__ import annotations

import itertools
import json
import os
import pty
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.wires import NAMES, played

from glue.cli.header import parse_header, read_glue_section, read_source
from glue.cli.new import PROMPTS
from glue.providers import lookup

Cli = Callable[..., Any]


TICKET = '{"title": "Export", "severity": "low", "steps": ["Press it."]}'
MISSING = "no model is named and no key is set; set GLUE_MODEL, or a key such as ANTHROPIC_API_KEY"


@pytest.fixture(scope="module")
def branch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a repository with a branch, and return its folder .git."""
    folder = tmp_path_factory.mktemp("checkout")
    for line in (
        "init -qb main --template=",
        "commit -qm one --allow-empty",
        "checkout -qb more",
        "commit -qm two --allow-empty",
    ):
        subprocess.run(
            ["git", "-c", "user.name=me", "-c", "user.email=me@localhost", *line.split()],
            cwd=folder,
            check=True,
        )
    return folder / ".git"


@pytest.fixture
def checkout(cli: Cli, branch: Path) -> None:
    """Make the current folder a checkout with a branch, which the review template needs."""
    shutil.copytree(branch, ".git")


def bare(**variables: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **variables}


# Runs a file as `python FILE ARGS...` does, in a process that the zygote has forked.
RUN = "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"


@pytest.mark.parametrize("template", PROMPTS)
def test_a_template_in_a_pipe_needs_a_key(
    cli: Cli, checkout: None, zygote: Any, template: str
) -> None:
    made = cli("new", "mine.py", "--template", template)

    command = [sys.executable, "-c", RUN, "mine.py", PROMPTS[template]]
    code, out, err = zygote.run(command, Path.cwd(), bare())

    assert (made.code, made.out) == (0, "mine.py\n")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert MISSING in err


@pytest.mark.parametrize("template", PROMPTS)
def test_on_a_terminal_a_stand_in_answers_and_says_so(
    cli: Cli, checkout: None, zygote: Any, template: str
) -> None:
    cli("new", "mine.py", "--template", template)

    command = [sys.executable, "-c", RUN, "mine.py", PROMPTS[template]]
    code, shown = zygote.run_in_terminal(command, Path.cwd(), bare(TERM="dumb"))

    if template == "structured":  # an object that a stand-in invents looks like a model's
        assert (code, shown.count("\n")) == (2, 1)
        assert MISSING in shown
    else:
        assert code == 0, shown
        assert "offline stand-in, not a model" in shown
        assert "glue: the offline stand-in answered, not a model; set a key such as" in shown
        assert "·" in shown or "\\xb7" in shown  # a tool was called


def test_in_ci_a_terminal_does_not_count(cli: Cli) -> None:
    cli("new", "mine.py")

    ours, theirs = pty.openpty()
    ran = subprocess.run(
        [sys.executable, "mine.py", "Weather in Oslo?"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=bare(TERM="dumb", CI="true"),
        timeout=60,
    )
    shown = os.read(ours, 4096).decode()
    os.close(ours)
    os.close(theirs)

    assert ran.returncode == 2
    assert MISSING in shown


@pytest.mark.parametrize("template", PROMPTS)
def test_a_template_runs_with_the_stand_in_that_the_user_names(
    cli: Cli, checkout: None, template: str
) -> None:
    cli("new", "mine.py", "--template", template)

    ran = cli("run", "mine.py", "-m", "offline", PROMPTS[template], "--json")

    result = json.loads(ran.out.splitlines()[-1])
    assert (ran.code, result["model"]) == (0, "offline")
    assert "not a model" in result["notice"]


def some_pairs() -> Iterator[tuple[str, list[str]]]:
    """Yield each provider with the template for objects, and with one of the others in turn."""
    others = itertools.cycle(template for template in PROMPTS if template != "structured")
    for name in NAMES:
        yield name, ["structured", next(others)]


@pytest.mark.parametrize(
    ("name", "templates"),
    [
        *(pytest.param(name, some, id=name) for name, some in some_pairs()),
        *(
            pytest.param(name, list(PROMPTS), id=f"{name}-all", marks=pytest.mark.soak)
            for name in NAMES
        ),
    ],
)
def test_every_provider_runs_templates_with_its_key_and_refuses_without(
    cli: Cli,
    checkout: None,
    monkeypatch: pytest.MonkeyPatch,
    loopback: Any,
    name: str,
    templates: list[str],
) -> None:
    entry = lookup(name)
    server = loopback(played(name, text=TICKET))
    variable = f"{name.upper().replace('-', '_')}_BASE_URL"
    monkeypatch.setenv(variable, f"{server.url}/v1")
    monkeypatch.setenv("GLUE_MODEL", name if entry.model else f"{name}:some-model")
    for template in templates:
        prompt = PROMPTS[template]
        cli("new", f"{template}_agent.py", "-t", template)
        needs_key = bool(entry.key) and not entry.quirks.local
        for key in ("not" + "-a-real-key", "") if needs_key else ("",):
            with monkeypatch.context() as patch:
                if key:
                    patch.setenv(entry.key[0], key)
                before = len(server.seen)

                ran = cli("run", f"{template}_agent.py", prompt)

            asked = len(server.seen) - before
            if key or not needs_key:
                assert (ran.code, asked) == (0, 1), (template, ran.err)
                assert json.loads(ran.out) == json.loads(TICKET)
            else:
                assert (ran.code != 0, ran.out, asked) == (True, "", 0), (template, ran)
                assert entry.key[0] in ran.err


@pytest.mark.parametrize("template", PROMPTS)
def test_a_template_has_a_valid_header(cli: Cli, template: str) -> None:
    cli("new", "mine.py", "-t", template)

    assert parse_header(read_source("mine.py"))["dependencies"] == ["glue-agents"]
    # A budget in dollars would refuse every model whose price is not known.
    assert set(read_glue_section("mine.py")) == {"max_turns"}
    text = Path("mine.py").read_text()
    assert "NAME.py" not in text
    assert re.search(r'"""[^"]*mine\.py', text)
    assert cli("tools", "check", "mine.py").code == 0
    assert "agent = Agent(" in cli("inspect", "mine.py").out.replace("agent          ", "")


def test_a_template_uses_the_model_whose_key_is_set(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, loopback: Callable[..., Any]
) -> None:
    server = loopback(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
    cli("new", "mine.py")
    monkeypatch.setenv("GROQ_API_KEY", "not" + "-a-key")
    monkeypatch.setenv("GROQ_BASE_URL", f"{server.url}/v1")

    ran = cli("run", "mine.py", "hi")

    assert ran.code == 2
    assert "groq: HTTP 401; is GROQ_API_KEY right?" in ran.err
    assert [request.headers["authorization"] for request in server.seen] == ["Bearer not-a-key"]


def test_the_next_steps_are_printed_on_stderr(cli: Cli) -> None:
    ran = cli("new", "mine")

    assert ran.out == "mine.py\n"
    assert 'python mine.py "What is the weather in Toronto?"' in ran.err
    assert "set a key such as ANTHROPIC_API_KEY" in ran.err


@pytest.mark.parametrize(
    ("template", "command"),
    [
        ("tool", 'glue run mine.py "What is the weather in Toronto?"'),
        ("chat", "glue chat mine.py"),
        ("review", 'glue run mine.py "Review this branch."'),
    ],
)
def test_the_command_after_the_template_fits_it(cli: Cli, template: str, command: str) -> None:
    ran = cli("new", "mine", "-t", template)

    assert f"or:         {command}\n" in ran.err
    assert ("compare:" in ran.err) is False


def test_an_existing_file_is_overwritten_only_with_force(cli: Cli) -> None:
    Path("mine.py").write_text("precious")

    ran = cli("new", "mine.py")

    assert ran.code == 2
    assert "exists already; --force overwrites it" in ran.err
    assert Path("mine.py").read_text() == "precious"
    assert cli("new", "mine.py", "--force").code == 0
    assert stat.S_ISREG(Path("mine.py").stat().st_mode)


def test_the_template_eval_has_cases_that_can_be_evaluated_at_once(cli: Cli) -> None:
    made = cli("new", "mine.py", "-t", "eval")
    again = cli("new", "mine.py", "-t", "eval")

    ran = cli("eval", "mine.py", "mine.jsonl", "-m", "offline", "--at-least", "1", "-q")

    assert "compare:    glue eval mine.py mine.jsonl -m NAME -m NAME" in made.err
    assert "mine.py exists already" in again.err
    assert ran.code == 0, ran.out
    assert "4/4" in ran.out


def test_nothing_is_written_if_the_cases_exist(cli: Cli) -> None:
    Path("mine.jsonl").write_text("precious")

    ran = cli("new", "mine.py", "-t", "eval")

    assert ran.code == 2
    assert "mine.jsonl exists already; --force overwrites it" in ran.err
    assert not Path("mine.py").exists()
    assert Path("mine.jsonl").read_text() == "precious"


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (("new",), "Missing argument"),
        (("new", "no/folder/x.py"), "no/folder/x.py cannot be written"),
        (("new", "x.py", "-t", "nope"), "'nope' is not one of"),
        (("new", ".py"), "is not a file name"),
        (("new", "glue.py"), "glue.py would shadow the module glue"),
        (("new", "json"), "json.py would shadow the module json"),
    ],
)
def test_a_mistake_prints_one_line_and_exits_with_2(
    cli: Cli, args: tuple[str, ...], error: str
) -> None:
    ran = cli(*args)

    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert error in ran.err


def test_the_commands_to_try_a_new_agent_are_printed(
    cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    without = cli("new", "hello")
    monkeypatch.setenv("GLUE_MODEL", "offline")
    compared, chat = cli("new", "mine.py", "-t", "eval"), cli("new", "talk.py", "-t", "chat")

    weather = '"What is the weather in Toronto?"'
    assert without.out == "hello.py\n"
    assert without.err.splitlines()[-1].startswith("the model:  none, because no key is set; ")
    assert compared.err.splitlines() == [
        f"run it:     python mine.py {weather}",
        f"or:         glue run mine.py {weather}",
        "compare:    glue eval mine.py mine.jsonl -m NAME -m NAME",
        "the model:  offline (-m or GLUE_MODEL selects another)",
    ]
    assert chat.err.splitlines()[:2] == [
        'run it:     python talk.py "What day is it today?"',
        "or:         glue chat talk.py",
    ]
