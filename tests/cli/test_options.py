"""Options of a run, and the settings that result from flags, headers, code and files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glue import Limits
from glue.cli.options import Sources, describe_confinement
from glue.cli.settings import SETTINGS
from glue.limits import BUDGETS
from glue.tools.sandbox import find_backend

Cli = Callable[..., Any]


ECHO = """
from glue import Agent, tool
from glue.testing import Script, repeat

@tool
def look(city: str) -> str:
    \"\"\"Look at a city.\"\"\"
    return city

@tool
def save(city: str) -> str:
    \"\"\"Save a city.\"\"\"
    return city

def tell(request):
    names = ",".join(tool.name for tool in request.tools)
    sampling = f"{request.temperature}|{request.max_tokens}"
    return f"{request.system}|{sampling}|{request.reasoning}|{names}"

agent = Agent(Script(repeat(tell)), tools=[look, save], instructions="Own.")
"""


def add_settings(path: str, *lines: str) -> None:
    """Write a [tool.glue] section into the header of an agent file."""
    section = "".join(f"# {line}\n" for line in ("[tool.glue]", *lines))
    text = Path(path).read_text()
    Path(path).write_text(text.replace("# ///\nfrom", f"{section}# ///\nfrom"))


@pytest.fixture
def echo(cli: Cli) -> Callable[..., str]:
    Path("echo.py").write_text(ECHO)

    def run(*options: str) -> str:
        ran = cli("run", "echo.py", *options, "hi")
        assert ran.code == 0, ran.err
        return str(ran.out.strip())

    return run


def test_without_a_user_to_ask_the_denial_names_the_flag(cli: Cli, agent: str) -> None:
    ran = cli("run", agent, "save it")

    assert "permission denied: save a.txt: no user can be asked; --allow save allows it" in ran.err
    assert ran.out.startswith("3: permission denied")
    assert "--session NAME --on-question defer lets a person answer later" in ran.err


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (("--on-question", "defer"), "needs a session, which stores the calls that wait"),
        (("--on-question", "ask"), "--on-question ask needs a terminal"),
        (("--on-question", "later"), "'later' is not one of 'ask', 'defer', 'deny'"),
    ],
)
def test_on_question_without_an_effect_is_refused(
    cli: Cli, agent: str, flags: tuple[str, ...], error: str
) -> None:
    ran = cli("run", agent, "save it", *flags)

    assert (ran.code, ran.out) == (2, "")
    assert error in ran.err


def test_on_question_does_not_replace_the_policy_of_an_agent(cli: Cli) -> None:
    Path("own.py").write_text(
        ECHO.replace("tools=[", "permission=AllowAll(), tools=[").replace(
            "import Agent", "import AllowAll, Agent"
        )
    )

    ran = cli("run", "own.py", "-s", "x", "--on-question", "defer", "hi")

    assert ran.code == 2
    assert "the agent has its own permission policy" in ran.err


def test_the_setting_on_question_applies_to_runs_that_have_a_session(cli: Cli, agent: str) -> None:
    cli("config", "set", "on-question", "defer")

    assert cli("run", agent, "save it").out.startswith("3: permission denied")
    assert cli("run", agent, "-s", "x", "save it").code == 6
    assert cli("run", agent, "-s", "y", "--on-question", "deny", "save it").code == 0
    assert "must be ask, defer or deny" in cli("config", "set", "on_question", "perhaps").err


@pytest.mark.parametrize(
    "flags", [("--yes",), ("--allow", "save"), ("--allow", "save:*.txt"), ("--allow", "s*")]
)
def test_a_flag_allows_a_tool(cli: Cli, agent: str, flags: tuple[str, ...]) -> None:
    assert cli("run", agent, "save it", *flags).out.startswith("3: saved a.txt")


@pytest.mark.parametrize(
    "flags", [("--allow", "save:*.md"), ("--allow", "shell"), ("--yes", "--deny", "save")]
)
def test_a_tool_that_no_flag_allows_is_denied(cli: Cli, agent: str, flags: tuple[str, ...]) -> None:
    assert cli("run", agent, "save it", *flags).out.startswith("3: permission denied")


def test_a_rule_that_names_no_tool_is_refused(cli: Cli, agent: str) -> None:
    ran = cli("run", agent, "save it", "--allow", "svae")

    assert ran.code == 2
    assert "the rule 'svae' names no known tool" in ran.err


def test_tools_are_a_list_in_a_file_and_separated_by_commas_on_the_command_line(cli: Cli) -> None:
    Path("pyproject.toml").write_text('[tool.glue]\ntools = ["fs", "git"]\n')

    configured = cli("chat", "-m", "offline", "--no-save", input="/tools\n").err
    given = cli("chat", "-m", "offline", "--no-save", "--tools", " git, ", input="/tools\n").err

    assert "- read_file: " in configured
    assert "- git_blame: " in configured
    assert "- read_file: " not in given
    assert "- git_blame: " in given


def test_the_header_of_a_file_allows_tools_and_sets_limits(cli: Cli, agent: str) -> None:
    add_settings(agent, 'allow = ["save"]', "max_turns = 2")

    assert cli("run", agent, "save it").out.startswith("3: saved a.txt")
    assert cli("run", agent, "loop").code == 3
    assert "of 2" in cli("run", agent, "loop").err
    assert "of 1" in cli("run", agent, "loop", "--max-turns", "1").err


def test_a_flag_wins_over_the_header_and_the_header_over_the_code(cli: Cli, agent: str) -> None:
    add_settings(agent, 'model = "offline"')

    assert "stand-in" in cli("run", agent, "hi").out
    assert "unknown provider 'nope'" in cli("run", agent, "-m", "nope", "hi").err


def test_a_denial_in_the_header_holds_despite_flags(cli: Cli, agent: str) -> None:
    add_settings(agent, 'deny = ["save"]')

    assert cli("run", agent, "save it", "--yes").out.startswith("3: permission denied")


def test_every_option_of_a_request_is_sent(echo: Callable[..., str]) -> None:
    given = (
        "--system",
        "Be brief.",
        "--temperature",
        "0.5",
        "--max-tokens",
        "99",
        "--reasoning",
        "low",
        "--tools",
        "look",
    )

    assert echo(*given) == "Be brief.|0.5|99|low|look"
    assert echo() == "Own.|None|None|None|look,save"
    assert echo("--no-tools") == "Own.|None|None|None|"
    for level in ("none", "minimal", "low", "medium", "high", "xhigh", "max"):
        assert f"|{level}|" in echo("--reasoning", level)


def test_instructions_come_from_a_file_or_the_prompt_catalog(
    echo: Callable[..., str], cli: Cli
) -> None:
    Path("system.txt").write_text("From a file.")
    Path("prompts").mkdir()
    Path("prompts/v1.md").write_text("First.")
    Path("prompts/v2.md").write_text("Second.")

    assert echo("--system", "@system.txt").startswith("From a file.|")
    assert echo("--system", "@@system.txt").startswith("@system.txt|")
    assert echo("-t", "./prompts").startswith("Second.|")
    assert echo("-t", "./prompts@v1").startswith("First.|")
    assert "use one of them" in cli("run", "echo.py", "-t", "./prompts", "--system", "x", "hi").err
    assert "unknown prompt 'nope'" in cli("run", "echo.py", "-t", "nope", "hi").err


@pytest.mark.parametrize("name", BUDGETS)
def test_a_limit_has_the_same_name_as_flag_setting_and_parameter(name: str, cli: Cli) -> None:
    assert name in SETTINGS
    assert name in Limits.__dataclass_fields__
    assert f"--{name.replace('_', '-')}" in cli("run", "--help").out


def test_a_limit_on_the_command_line_wins_over_a_function_of_the_agent(cli: Cli) -> None:
    Path("bounded.py").write_text(
        "import glue\nfrom glue.testing import Script\n"
        "agent = glue.Agent(Script('hi'), limits=lambda: glue.Limits(max_turns=0))\n"
    )

    assert cli("run", "bounded.py", "hi").code == 3
    assert cli("run", "bounded.py", "--max-turns", "1", "hi").out == "hi\n"


def test_a_budget_smaller_than_the_prompt_is_reported_as_too_small(cli: Cli) -> None:
    ran = cli("run", "-m", "offline", "--token-budget", "0", "Hello, you there!")

    assert ran.code == 3
    assert ran.err == (
        "glue: the budget of 0 tokens is too small: the prompt has 5 tokens; --token-budget N "
        "raises the limit; a run with -s NAME is stored and can be continued\n"
    )


def test_a_blank_model_is_refused_with_the_right_form(cli: Cli) -> None:
    ran = cli("run", "-m", "  ", "hi")

    assert ran.code == 2
    assert (
        ran.err
        == "glue: model must be a name such as 'openai:gpt-5.4-nano', or a provider, not ' '\n"
    )


COMMAND = """
from glue import Agent
from glue.testing import Script, call, calls, repeat

def answer(request):
    last = request.messages[-1]
    if type(last).__name__ == "UserMessage":
        return calls(call("shell", {"command": last.text}))
    return last.text + "|" + ",".join(tool.name for tool in request.tools)

agent = Agent(Script(repeat(answer)))
"""


@pytest.fixture
def command(cli: Cli) -> Callable[..., Any]:
    """Run a command line through the shell tool of `glue run`."""
    Path("command.py").write_text(COMMAND)
    return lambda line, *flags: cli("run", "command.py", "--tools", "shell", *flags, line)


def test_commands_run_in_the_sandbox_that_the_flags_and_settings_name(
    cli: Cli, command: Callable[..., Any]
) -> None:
    best = find_backend()
    name = f"sandbox: {best.name}, {{}}" if best is not None else "no sandbox"

    assert f"shell ls [{name.format('no network')}]" in command("ls").err
    assert f"shell ls [{name.format('with network')}]" in command("ls", "--network").err
    assert "shell ls [no sandbox]" in command("ls", "--sandbox", "off").err
    ran = command("ls", "--sandbox", "require")
    assert ran.code == (0 if best is not None else 2)
    cli("config", "set", "sandbox", "off")
    assert "shell ls [no sandbox]" in command("ls").err
    assert f"[{name.format('no network')}]" in command("ls", "--sandbox", "auto").err
    assert command("echo hi", "--yes").out.startswith("hi\n[exit code 0]|shell,shell_job")


@pytest.mark.parametrize(("mode", "required"), [(None, False), ("auto", False), ("require", True)])
def test_only_the_mode_require_needs_a_sandbox_that_works(
    cli: Cli, mode: str | None, required: bool
) -> None:
    options = Sources({"model": "offline", "sandbox": mode}).shell_options()

    assert options["sandbox"].required is required


def test_a_command_that_only_reads_runs_without_a_question_if_wanted(
    cli: Cli, command: Callable[..., Any]
) -> None:
    if find_backend() is None:
        pytest.skip("no sandbox works here")
    cli("config", "set", "questions", "writes")

    assert command("echo hi").out.startswith("hi\n[exit code 0; it ran in a sandbox")
    assert "permission denied" in command("touch new").err
    assert not Path("new").exists()
    command("touch new", "--yes")
    assert Path("new").exists()


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (("--sandbox", "off"), "--sandbox has no effect without the built-in shell tool"),
        (("--network",), "--network has no effect"),
        (("--tools", "shell", "--sandbox", "off", "--network"), "--network needs a sandbox"),
        (("--tools", "shell", "--sandbox", "off", "--questions", "writes"), "needs a sandbox"),
        (("--sandbox", "on"), "'on' is not one of 'auto', 'require', 'off'"),
    ],
)
def test_a_flag_about_commands_without_an_effect_is_refused(
    cli: Cli, agent: str, flags: tuple[str, ...], error: str
) -> None:
    ran = cli("run", agent, *flags, "hi")

    assert (ran.code, ran.out) == (2, "")
    assert error in ran.err


def test_a_model_gets_all_tools_of_the_bundles(cli: Cli) -> None:
    given = {"tools": "fs,shell", "model": "offline"}

    tools = Sources(given).overrides()["tools"]

    assert [tool.spec.name for tool in tools][-2:] == ["shell", "shell_job"]


def test_a_line_about_the_sandbox_warns_if_there_is_none() -> None:
    assert describe_confinement("sandbox: x") == "sandbox: x"
    assert "read the provider keys of this program" in describe_confinement("no sandbox")


def test_a_denial_without_a_user_names_the_rule_that_may_forbid_the_command(
    command: Callable[..., Any],
) -> None:
    ran = command("env rm x", "--allow", "shell", "--deny", "shell:rm *")

    assert "the rule 'shell:rm *' may forbid it: the line contains rm, and no user" in ran.err


UNPRICED = """\
# /// script
# [tool.glue]
# usd_budget = 0.5
# ///
from glue import Agent
from glue.provider import Capabilities
from glue.testing import Script, repeat

model = Script(repeat("hi"), name="acme", model="big")
model.capabilities = Capabilities(provider="acme", model="big")
agent = Agent(model)
"""


def test_a_budget_without_a_price_is_refused_and_none_switches_it_off(cli: Cli) -> None:
    Path("unpriced.py").write_text(UNPRICED)

    refused = cli("run", "unpriced.py", "hi")
    ran = cli("run", "unpriced.py", "--usd-budget", "none", "hi")

    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "no price is known for acme:big" in refused.err
    assert "--usd-budget none" in refused.err
    assert (ran.code, ran.out) == (0, "hi\n")


@pytest.fixture
def project(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a checkout with AGENTS.md and a skill; the current folder is below its top."""
    top = Path("repo").absolute()
    (top / ".agents" / "skills" / "rhyme").mkdir(parents=True)
    (top / ".git").mkdir()
    (top / "below").mkdir()
    (top / "AGENTS.md").write_text("Answer in rhyme.")
    skill = "---\ndescription: how to rhyme\n---\nRhyme well.\n"
    (top / ".agents" / "skills" / "rhyme" / "SKILL.md").write_text(skill)
    (top / "below" / "agent.py").write_text(
        "from glue import Agent\nfrom glue.testing import Script, repeat\n"
        "def answer(request):\n"
        "    return f'{request.system!r} {[tool.name for tool in request.tools]}'\n"
        "agent = Agent(Script(repeat(answer)), instructions='Be brief.', name='mine')\n"
    )
    monkeypatch.chdir(top / "below")
    return top


def test_project_gives_the_model_agents_md_and_the_skills_of_the_checkout(
    cli: Cli, project: Path
) -> None:
    plain = cli("run", "agent.py", "hi")
    ran = cli("run", "agent.py", "--project", "hi")

    assert plain.out == "'Be brief.' []\n"
    assert "Be brief." in ran.out
    assert "Answer in rhyme." in ran.out
    assert "rhyme: how to rhyme" in ran.out
    assert ran.out.endswith("['skill']\n")


def test_a_chat_inside_a_checkout_uses_the_project_and_says_so(cli: Cli, project: Path) -> None:
    used = cli("chat", "agent.py", input="hi\n")
    without = cli("chat", "agent.py", "--no-project", input="hi\n")

    assert "Answer in rhyme." in used.out
    note = (
        f"the model gets AGENTS.md and 1 skill of {project}; --no-project leaves out these files\n"
    )
    assert used.err.count(note) == 1
    assert without.out == "'Be brief.' []\n"
    assert "AGENTS.md" not in without.err


@pytest.mark.parametrize(
    ("removed", "shown"), [("AGENTS.md", "1 skill"), (".agents/skills/rhyme/SKILL.md", "AGENTS.md")]
)
def test_a_project_may_have_only_skills_or_only_agents_md(
    cli: Cli, project: Path, removed: str, shown: str
) -> None:
    (project / removed).unlink()

    ran = cli("chat", "agent.py", "--project", input="hi\n")

    assert f"the model gets {shown} of {project}; " in ran.err
    assert ("Answer in rhyme." in ran.out) is (shown == "AGENTS.md")
    assert ("rhyme: how to rhyme" in ran.out) is (shown == "1 skill")


def test_project_without_project_files_is_an_error(cli: Cli) -> None:
    ran = cli("run", "-m", "offline", "--project", "hi")

    assert (ran.code, ran.out) == (2, "")
    assert "has neither AGENTS.md nor .agents/skills/NAME/SKILL.md" in ran.err
