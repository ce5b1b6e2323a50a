"""Settings of the command line: one name each, keys in a file, aliases, everyday options."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from glue import Agent, ConfigError, Image, Limits, Outcome, RunError, Text
from glue.cli.config import SETTINGS, user_file
from glue.cli.options import read_attachment, read_schema
from glue.cli.output import Screen, table
from glue.errors import BudgetExceeded
from glue.limits import BUDGETS
from glue.messages import Usage
from glue.providers import aliases, capabilities, lookup, split
from glue.testing import Script, say

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
    return f"{request.system}|{request.temperature}|{request.max_tokens}|{request.reasoning}|{names}"

agent = Agent(Script(repeat(tell)), tools=[look, save], instructions="Own.")
"""


@pytest.fixture(autouse=True)
def environ() -> Iterator[None]:
    """Give back the environment as it was: keys are put into it."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def echo(cli: Cli) -> Callable[..., str]:
    Path("echo.py").write_text(ECHO)

    def run(*options: str) -> str:
        ran = cli("run", "echo.py", *options, "hi")
        assert ran.code == 0, ran.err
        return str(ran.out.strip())

    return run


def test_every_option_of_a_request_reaches_it(echo: Callable[..., str]) -> None:
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


def test_instructions_come_from_a_file_or_the_catalog(echo: Callable[..., str], cli: Cli) -> None:
    Path("system.txt").write_text("From a file.")
    Path("prompts").mkdir()
    Path("prompts/v1.md").write_text("First.")
    Path("prompts/v2.md").write_text("Second.")

    assert echo("--system", "@system.txt").startswith("From a file.|")
    assert echo("--system", "@@system.txt").startswith("@system.txt|")
    assert echo("-t", "./prompts").startswith("Second.|")
    assert echo("-t", "./prompts@v1").startswith("First.|")
    assert "use one of them" in cli("run", "echo.py", "-t", "./prompts", "--system", "x", "hi").err
    assert "there is no prompt 'nope'" in cli("run", "echo.py", "-t", "nope", "hi").err


@pytest.mark.parametrize("name", BUDGETS)
def test_a_limit_has_one_name_everywhere(name: str, cli: Cli) -> None:
    assert name in SETTINGS
    assert name in Limits.__dataclass_fields__
    assert f"--{name.replace('_', '-')}" in cli("run", "--help").out


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [("budget_usd", "usd_budget"), ("timeout", "seconds"), ("max_turn", "max_turns")],
)
def test_a_near_name_of_a_limit_is_suggested(wrong: str, hint: str) -> None:
    with pytest.raises(TypeError, match=f"there is no limit '{wrong}'; did you mean {hint}?"):
        Limits(**{wrong: 1})  # type: ignore[arg-type]


def test_a_limit_of_the_command_line_goes_over_a_function_of_the_agent(cli: Cli) -> None:
    Path("bounded.py").write_text(
        "import glue\nfrom glue.testing import Script\n"
        "agent = glue.Agent(Script('hi'), limits=lambda: glue.Limits(max_turns=0))\n"
    )

    assert cli("run", "bounded.py", "hi").code == 3
    assert cli("run", "bounded.py", "--max-turns", "1", "hi").out == "hi\n"


def test_a_budget_that_the_prompt_exceeds_is_not_called_spent(cli: Cli) -> None:
    ran = cli("run", "-m", "offline", "--token-budget", "0", "Hello, you there!")

    assert (ran.code, ran.err) == (3, "glue: the budget of 0 tokens is too small: the prompt has 5 tokens\n")


def test_a_model_of_blanks_says_what_a_model_is(cli: Cli) -> None:
    ran = cli("run", "-m", "  ", "hi")

    assert ran.code == 2
    assert ran.err == "glue: model must be a name such as 'openai:gpt-5.4-nano', or a provider, not ' '\n"


def test_a_near_name_of_an_option_is_suggested() -> None:
    with pytest.raises(TypeError, match=r"an agent has no option 'system'; did you mean instructions\?"):
        Agent("offline", system="Be brief.")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"no option 'max_turns'; give limits=glue.Limits\(max_turns=...\)"):
        Agent("offline").run_sync("hi", max_turns=3)  # type: ignore[call-overload]


def test_a_budget_is_printed_as_people_write_it() -> None:
    agent = Agent(Script(say("x", usage=Usage(input=1, output=1, cost=0.2))), limits=Limits(usd_budget=0.05))

    with pytest.raises(RunError) as raised:
        agent.run_sync("hi", unwrap=True, limits=Limits(usd_budget=0.0))
    assert str(BudgetExceeded("usd", 0.05, 0.2)) == "the budget of $0.05 is spent: $0.20 used"
    assert str(BudgetExceeded("tokens", 1, 1)) == "the budget of 1 token is spent: 1 token used"
    assert str(BudgetExceeded("tokens", 20000, 20001)) == "the budget of 20,000 tokens is spent: 20,001 tokens used"
    assert "$0.00" in str(raised.value)
    assert raised.value.result.outcome is Outcome.BUDGET  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("given", "properties"),
    [
        ("name: str, age: int", {"name": {"type": "string"}, "age": {"type": "integer"}}),
        ("name, ok bool", {"name": {"type": "string"}, "ok": {"type": "boolean"}}),
        ("tags: list[float]", {"tags": {"type": "array", "items": {"type": "number"}}}),
    ],
)
def test_a_schema_is_written_in_one_line(given: str, properties: dict[str, Any]) -> None:
    schema = read_schema(given)

    assert schema["properties"] == properties
    assert schema["required"] == list(properties)


def test_a_schema_of_a_file_and_a_wrong_one(tmp_path: Path) -> None:
    path = tmp_path / "person.json"
    path.write_text('{"type": "object", "properties": {"name": {"type": "string"}}}')

    assert read_schema(str(path))["properties"] == {"name": {"type": "string"}}
    with pytest.raises(ConfigError, match="is no 'name: type'; the types are: str, int"):
        read_schema("name: text")


def test_an_object_is_printed_from_the_shell(cli: Cli) -> None:
    ran = cli("run", "-m", "offline", "--schema", "city: str, degrees: int", "Oslo has 21 degrees")

    assert ran.code == 0, ran.err
    assert set(json.loads(ran.out)) == {"city", "degrees"}


def test_attachments(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    (tmp_path / "a.txt").write_text("words")

    assert read_attachment(str(tmp_path / "a.png")) == Image(media_type="image/png", data=b"\x89PNG")
    assert read_attachment(str(tmp_path / "a.txt")) == Text(text="words")
    assert read_attachment("https://example.com/a.webp?x=1") == Image(
        media_type="image/webp", url="https://example.com/a.webp?x=1"
    )
    with pytest.raises(ConfigError, match="only the address of a picture"):
        read_attachment("https://example.com/page.html")


def test_variables_come_from_a_file_where_they_are_not_set(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("my.env").write_text("# mine\nexport GLUE_MODEL=offline\nOTHER='a b'\n")
    monkeypatch.setenv("OTHER", "mine")

    ran = cli("run", "--env", "my.env", "hi")

    assert ran.code == 0, ran.err
    assert os.environ["OTHER"] == "mine"
    Path("bad.env").write_text("no equals sign\n")
    assert "bad.env, line 1: not NAME=value" in cli("run", "--env", "bad.env", "hi").err
    Path("bad.env").write_text("A=\0\n")
    assert "bad.env, line 1: not NAME=value" in cli("run", "--env", "bad.env", "hi").err


def test_a_key_is_stored_for_its_owner_alone_and_never_shown(cli: Cli) -> None:
    assert cli("keys", "set", "openai", input="sk-a-secret-key-1\n").code == 0
    path = Path(cli("keys", "path").out.strip())

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    listed = cli("keys", "list")
    assert listed.out.split() == ["OPENAI_API_KEY", "stored"]
    assert json.loads(cli("keys", "list", "--json").out) == [{"name": "OPENAI_API_KEY", "source": "stored"}]
    assert "sk-a-secret" not in listed.out + listed.err + cli("doctor").out + cli("config").out
    assert "set" in next(line for line in cli("providers").out.splitlines() if line.startswith("openai "))
    assert cli("keys", "remove", "OPENAI_API_KEY").code == 0
    assert path.read_text() == ""


def test_the_environment_goes_before_a_stored_key(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("keys", "set", "OPENAI_API_KEY", input="sk-stored\n")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-environment")

    assert cli("keys").out.split() == ["OPENAI_API_KEY", "environment"]
    assert os.environ["OPENAI_API_KEY"] == "sk-environment"


def test_keys_that_others_can_read_are_refused(cli: Cli) -> None:
    cli("keys", "set", "openai", input="sk-1\n")
    path = Path(cli("keys", "path").out.strip())
    path.chmod(0o644)

    ran = cli("providers")

    assert (ran.code, "can be read by others" in ran.err) == (2, True)


def test_an_alias_names_a_model(cli: Cli) -> None:
    assert cli("models", "alias", "fast", "offline").code == 0

    assert aliases() == {"fast": "offline"}
    assert split("fast, openai:fast") == ["offline", "openai:fast"]
    assert (lookup("fast").name, capabilities("fast").window) == ("offline", capabilities("offline").window)
    assert Agent("fast").run_sync("hi").text.startswith("This is the offline stand-in")
    assert "offline: offline answered" in cli("providers", "--check", "fast").out
    assert cli("run", "-m", "fast", "hi").code == 0
    assert "fast = offline" in cli("models").out
    assert cli("models", "unalias", "fast").code == 0
    assert aliases() == {}
    assert "cannot be an alias" in cli("models", "alias", "openai", "offline").err
    assert "unknown provider" in cli("models", "alias", "quick", "nobody:x").err


def test_a_file_of_settings_that_is_no_text_is_one_line(cli: Cli) -> None:
    user_file().parent.mkdir(parents=True)
    user_file().write_bytes(b"\xff\xfe")

    for args in (("config",), ("config", "set", "log", "true"), ("models", "alias", "fast", "offline")):
        assert cli(*args).err == f"glue: {user_file()} cannot be read: not a text\n"


def test_a_setting_is_written_beside_what_is_there(cli: Cli) -> None:
    user_file().parent.mkdir(parents=True)
    user_file().write_text("# mine\nmodel = 'offline'\n\n[aliases]\nfast = 'groq'\n")

    for name, value in (("log", "true"), ("max-turns", "7"), ("model", "offline:x"), ("allow", "a,b")):
        assert cli("config", "set", name, value).code == 0

    text = user_file().read_text()
    assert "# mine\n" in text
    assert aliases() == {"fast": "groq"}
    found = json.loads(cli("config", "--json").out)
    assert (found["log"]["value"], found["max_turns"]["value"], found["model"]["value"]) == (True, 7, "offline:x")
    assert found["allow"]["value"] == ["a", "b"]
    assert cli("config", "unset", "log").code == 0
    assert "log" not in user_file().read_text()
    assert "did you mean max_turns?" in cli("config", "set", "max_turn", "7").err
    assert "max_turns must be a whole number" in cli("config", "set", "max_turns", "many").err


def test_a_setting_that_spans_lines_is_replaced_and_removed_whole(cli: Cli) -> None:
    user_file().parent.mkdir(parents=True)
    user_file().write_text('allow = [\n  "a", # mine\n  "b",\n]\nlog = true\n\n[aliases]\nallow = "groq"\n')

    assert cli("config", "set", "allow", "c").code == 0
    assert user_file().read_text() == 'allow = ["c"]\nlog = true\n\n[aliases]\nallow = "groq"\n'
    user_file().write_text('deny = [\n  "a",\n]\nlog = true\n')
    assert cli("config", "unset", "deny").code == 0
    assert user_file().read_text() == "log = true\n"


def test_a_setting_is_never_written_where_it_would_not_be_read(cli: Cli) -> None:
    user_file().parent.mkdir(parents=True)
    user_file().write_text('aliases = {fast = "groq"}\n')

    ran = cli("models", "alias", "quick", "offline")

    assert (ran.code, "in a way that only you can change" in ran.err) == (2, True)
    assert user_file().read_text() == 'aliases = {fast = "groq"}\n'
    user_file().write_text("model = \n")
    assert "is no valid TOML" in cli("config", "set", "log", "true").err


def test_a_log_of_runs_is_kept_only_where_it_is_switched_on(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("run", "-m", "offline", "not logged")
    assert "no runs are logged" in cli("runs").err

    monkeypatch.setenv("GLUE_LOG", "1")
    cli("run", "-m", "offline", "what is logged")
    cli("run", "-m", "offline", "and this")

    rows = json.loads(cli("runs", "--json").out)
    assert [row["prompt"] for row in rows] == ["and this", "what is logged"]
    assert rows[1]["model"] == "offline:offline"
    assert rows[1]["outcome"] == "done"
    assert "what is logged" in cli("runs").out
    page = Path(cli("view", "last").out.strip()).read_text()
    assert "and this" in page
    assert cli("view", rows[1]["id"]).code == 0
    log = Path(os.environ["HOME"]) / ".local/state/glue/runs" / f"{rows[0]['id']}.jsonl"
    log.write_text(log.read_text().replace('"provider": "offline"', '"provider": 7'))
    assert [row["outcome"] for row in json.loads(cli("runs", "--json").out)] == ["damaged", "done"]


def test_json_ends_with_an_error_for_a_wrong_option_too(cli: Cli) -> None:
    for args in (("run", "--json", "--nonsense"), ("run", "--json", "-m", "nobody:x", "hi"), ("view", "--json", "x")):
        ran = cli(*args)
        last = json.loads(ran.out.splitlines()[-1])
        assert (last["type"], last["exit_code"]) == ("error", ran.code)
        assert last["error"]["message"]


@pytest.mark.parametrize(
    ("args", "input", "said"),
    [
        (("sessions", "show", ""), "", "session"),
        (("run", "-m", "offline", "@/dev/urandom"), "", "larger than 16 MB"),
        (("run", "-m", "offline", "-"), "\0\1\2", "stdin is no text"),
        (("new", "."), "", "no name for a file"),
        (("new", ".."), "", "no name for a file"),
        (("view", "last"), "", "no logged run 'last'"),
    ],
)
def test_odd_input_is_one_line(cli: Cli, args: tuple[str, ...], input: str, said: str) -> None:
    ran = cli(*args, input=input)

    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert said in ran.err
    assert "Traceback" not in ran.err


def test_a_closed_stdout_is_no_traceback(tmp_path: Path) -> None:
    line = f"{sys.executable} -m glue.cli.app providers >&-"

    ran = subprocess.run(["sh", "-c", line], capture_output=True, text=True, cwd=tmp_path, check=False)

    assert "Traceback" not in ran.stderr


LISTINGS = """
providers, models, runs, config, keys list, sessions list, prompts list, tools list
keys, sessions, prompts, tools, sessions --store elsewhere
"""


@pytest.mark.parametrize("command", LISTINGS.strip().replace("\n", ", ").split(", "))
def test_every_listing_is_also_json(cli: Cli, command: str) -> None:
    ran = cli(*command.split(), "--json")

    assert ran.code == 0, ran.err
    assert isinstance(json.loads(ran.out), (list, dict))


class Narrow(Screen):
    def __init__(self, columns: int) -> None:
        self.is_terminal, self._columns = True, columns

    @property
    def width(self) -> int:
        return self._columns


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_a_table_fits_the_terminal(columns: int) -> None:
    from glue.providers.models import provider_rows
    from glue.text import columns as width

    rows = [tuple(row.values()) for row in provider_rows({})]
    lines = table(
        [*rows, ("日本語" * 10, "a", "b", True, "c", 1)], ("name", "wire", "key", "", "model", ">n"), Narrow(columns)
    )

    assert max(map(width, lines)) <= columns
    assert len(lines) == len(rows) + 2


def test_what_matters_less_is_left_out_where_it_does_not_fit() -> None:
    rows = [("a-name-that-matters", "x" * 30, 1_000_000)]

    assert table(rows, ("name", "detail?", ">n"), Narrow(40)) == [
        "name                         n",
        "a-name-that-matters  1,000,000",
    ]
    assert "x" * 30 in table(rows, ("name", "detail?", ">n"), Narrow(80))[1]


def test_a_long_text_is_cut_before_what_matters_is_left_out() -> None:
    rows = [("2026-01-01 10:00", "long " * 40, "m" * 30)]

    assert table(rows, ("when?", "prompt…", "model?"), Narrow(60)) == [
        "when              prompt",
        "2026-01-01 10:00  " + "long " * 8 + "l…",
    ]


def test_the_table_of_providers_says_which_keys_are_set(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "AIza-a-secret")

    text = cli("providers").out

    lines = {line.split()[0]: " ".join(line.split()) for line in text.splitlines()}
    assert lines["gemini"] == "gemini gemini GOOGLE_API_KEY set gemini-3.1-flash-lite 1,000,000"
    assert lines["anthropic"] == "anthropic anthropic ANTHROPIC_API_KEY not set claude-haiku-5-5 1,000,000"
    assert lines["ollama"].startswith("ollama openai_chat OLLAMA_API_KEY not needed")
    assert "a-secret" not in text


def test_the_table_of_models_has_prices_and_their_date(cli: Cli) -> None:
    from glue.providers.models import date

    text = cli("models").out

    assert "anthropic:claude-haiku-4-5" in text
    assert date() in text
    assert {row.split(":")[0] for row in cli("models", "groq").out.splitlines()[1:-1]} <= {"groq"}
