"""The documentation is correct: its blocks run and print the shown text, its links exist."""

from __future__ import annotations

import ast
import configparser
import importlib.util
import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from fakes.pages import without_shell
from fakes.zygote import Zygote

from glue import Agent, Limits, Outcome, providers

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
COMMAND_PAGES = sorted((ROOT / "docs" / "commands").glob("*.md"))
BLOCK = re.compile(
    r"^(?P<fence>```+)(?P<info>[^\n]*)\n(?P<body>.*?)^(?P=fence)[ ]*$", re.DOTALL | re.MULTILINE
)
# Console blocks whose commands are run, and whose output is compared with the shown one.
SHOWN = re.compile(
    r"^<!-- run(?: in a checkout)? -->\n```console\n(.*?)^```$", re.DOTALL | re.MULTILINE
)
UPDATE = "\nto update the pages: pytest tests/test_docs.py -k marked --snapshot-update"
# Values that differ from run to run: durations (in tables with one digit), dates.
VARIES = re.compile(r"\b\d+(?:\.\d+)? m?s\b|\b\d+\.\d(?=  )|\b\d{4}-\d\d-\d\d(?: \d\d:\d\d)?")
# Pages with code of other toolkits, which is not run here. tests/durable runs the Celery program.
FOREIGN = ("migration", "scale-engines")
RUN = ("python", 'python title="glue"')
DOCKERFILE = {"FROM", "ARG", "RUN", "USER", "WORKDIR", "COPY", "EXPOSE", "CMD"}

# Runs before the blocks of a page: replaces the models, so that no block needs a key.
PRELUDE = """
import ast, inspect, sys, types
import anyio, glue
from glue.overrides import provider_names
from glue.testing import Script, call, calls, repeat, say

def answer(request):
    names = {tool.name for tool in request.tools}
    said = "21 degrees, dry."
    if "final_answer" in names:
        usage = glue.Usage(input=80, output=20, cost=0.0)
        return calls(call("final_answer", {"city": "Toronto", "degrees": 21}), usage=usage)
    if "weather" in names and isinstance(request.messages[-1], glue.UserMessage):
        usage = glue.Usage(input=80, output=20, cost=0.0)
        return calls(call("weather", {"city": "Toronto"}), usage=usage)
    return say(said, usage=glue.Usage(input=110, output=8, cost=0.0))

provider_names.set(lambda name: Script(repeat(answer), name=name))
page = types.ModuleType("page")  # not __main__, so that `agent.cli()` stays quiet
sys.modules["page"] = page

def run(number, name, line, code):
    print(f"<<<{number}>>>", flush=True)
    made = compile("\\n" * (line - 1) + code, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    value = eval(made, page.__dict__)
    if inspect.iscoroutine(value):
        anyio.run(lambda: value)
"""

# The folder in which the blocks run: a small checkout with a branch of one commit.
FILES = {
    "README.md": "# Shop\n",
    "prompts/review/v1.md": "Review the change.\n",
    "prompts/review/v2.md": "Review the change. Quote the line you mean.\n",
    "roles/reviewer.md": "You review changes.\n",
    "src/shop.py": "def total(prices):\n    return sum(prices)\n",
}
CHANGED = {
    "src/shop.py": "def total(prices, seen=[]):\n"
    "    seen.append(len(prices))\n    return sum(prices)\n"
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block: its line, its language, and the text block that directly follows."""

    line: int
    info: str
    body: str
    says: str | None


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    found = list(BLOCK.finditer(text))
    made = []
    for match, after in zip(found, [*found[1:], None], strict=False):
        near = (
            after is not None
            and after["info"] == "text"
            and not text[match.end() : after.start()].strip()
        )
        says = after["body"] if near and after is not None else None
        made.append(
            Block(
                line=text.count("\n", 0, match.start()) + 2,
                info=match["info"],
                body=match["body"],
                says=says,
            )
        )
    return made


def of(*kinds: str) -> Iterator[tuple[Path, Block]]:
    return ((page, block) for page in PAGES for block in blocks(page) if block.info in kinds)


def ids(page: object) -> str:
    return page.stem if isinstance(page, Path) else ""


@pytest.mark.parametrize("page", dict.fromkeys(page for page, _ in of(*RUN)), ids=ids)
def test_the_blocks_of_a_page_run_and_print_the_shown_text(
    page: Path, tmp_path: Path, checkout: Path, zygote: Zygote
) -> None:
    code = [block for block in blocks(page) if block.info in RUN]
    lines = [
        f"run({n}, {page.name!r}, {block.line}, {block.body!r})" for n, block in enumerate(code)
    ]
    command = [sys.executable, "-c", "\n".join([PRELUDE, *lines])]
    shutil.copytree(checkout, tmp_path / "shop")

    environ = {**environment(tmp_path), "GLUE_MODEL": "anthropic"}  # servers need a model to start
    exit_code, out, errors = zygote.run(command, tmp_path / "shop", environ)

    assert exit_code == 0, errors
    printed = re.split(r"<<<\d+>>>\n", out)[1:]
    for block, what in zip(code, printed, strict=True):
        if block.says is not None:
            assert plain(what) == plain(block.says), f"{page.name}:{block.line}"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create the checkout; the blocks run in copies of it."""
    folder = tmp_path_factory.mktemp("docs") / "shop"
    git(folder.parent, "init", "-q", "-b", "main", "--template=", folder.name)
    for files, branch in ((FILES, "main"), (CHANGED, "seen")):
        if branch != "main":
            git(folder, "checkout", "-q", "-b", branch)
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        git(folder, "add", ".")
        git(
            folder,
            "-c",
            "user.name=Ada",
            "-c",
            "user.email=ada@example.com",
            "commit",
            "-q",
            "-m",
            branch,
        )
    return folder


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=folder, env=environment(folder), check=True, timeout=60)


def environment(home: Path) -> dict[str, str]:
    """Return the variables that a program needs to start, without keys."""
    keep = {
        name: os.environ[name] for name in ("PATH", "LANG", "VIRTUAL_ENV") if name in os.environ
    }
    return {**keep, "HOME": str(home), "PYTHONUTF8": "1", "GIT_CONFIG_NOSYSTEM": "1"}


def plain(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


def test_python_blocks_that_are_not_run_show_other_toolkits() -> None:
    for page in PAGES:
        for block in blocks(page):
            if re.match(r"(python|py|pycon)\b", block.info) and block.info not in RUN:
                assert page.stem in FOREIGN, f"{page.name}:{block.line} is not run"
                ast.parse(block.body)


@pytest.mark.parametrize(("kind", "read"), [("toml", tomllib.loads), ("json", json.loads)])
def test_json_and_toml_blocks_can_be_parsed(kind: str, read: object) -> None:
    assert callable(read)
    for page, block in of(kind):
        try:
            read(block.body)
        except ValueError as error:
            pytest.fail(f"{page.name}:{block.line}: {error}")


def test_every_block_names_its_language() -> None:
    for page in PAGES:
        for block in blocks(page):
            assert block.info.strip(), f"{page.name}:{block.line}"


def test_links_between_pages_exist() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+?)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


# Words that people type into the search of the site. The title or a heading of a page has each.
SEARCHED = """
    API key, approval, batch, budget, cache, cancel, cassette, certificate, chat, compaction, cost,
    cron, Docker, environment variable, error, evaluation, exit code, failover, FastAPI,
    GitHub Actions, GitLab, glossary, image, installation, JSON schema, Kubernetes, Lambda,
    local model, logging, MCP, migration, Ollama, OpenTelemetry, PDF, permission, Postgres, price,
    prompt caching, prompt injection, provider, proxy, queue, rate limit, reasoning, resume, retry,
    review, sandbox, search, session, settings, Slack, SQLite, Starlette, streaming,
    structured output, sub-agent, systemd, telemetry, temperature, testing, timeout, token limit,
    tool, troubleshooting, webhook, worker
"""


def headings() -> list[str]:
    """Return the titles and headings of the site, in lower case and without marks."""
    pages = (BLOCK.sub("", page.read_text()) for page in PAGES if "docs" in page.parts)
    found = [heading for text in pages for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)]
    return [heading.lower().replace("`", "") for heading in found]


def forms(word: str) -> str:
    """Return a pattern for a word and its forms: retry, retries; resume, resuming."""
    stem = re.sub(r"(y|e)$", "", word.lower())
    return rf"\b{re.escape(stem)}(y|ys|e|s|es|ies|ing|ling)?\b"


def test_a_heading_contains_each_word_that_people_search_for() -> None:
    found = headings()
    words = [" ".join(word.split()) for word in SEARCHED.split(",")]

    assert [word for word in words if not any(re.search(forms(word), each) for each in found)] == []


def test_paragraphs_are_short() -> None:
    """A paragraph or an item of a list has at most 80 words; decisions are not guides."""
    for page in PAGES:
        if "docs" in page.parts and "adr" not in page.parts:
            text = BLOCK.sub("", page.read_text())
            for part in re.split(r"\n\s*\n|\n(?=- |\d+\. |\|)", text):
                words = len(part.split())
                assert words <= 80 or part.lstrip().startswith("|"), f"{page.name}: {part[:60]}"


def test_the_pictures_are_small_and_shown_with_a_description() -> None:
    text = "".join(page.read_text() for page in PAGES)
    pictures = sorted((ROOT / "docs" / "pictures").iterdir())

    assert pictures
    for path in pictures:
        assert path.stat().st_size < 120_000, path.name
        assert re.search(rf"!\[\w[^]]+\]\([./]*pictures/{path.name}\)", text), path.name


def test_every_page_is_in_the_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    there = [
        str(page.relative_to(ROOT / "docs")) for page in PAGES if (ROOT / "docs") in page.parents
    ]

    assert sorted(re.findall(r"[\w/-]+\.md", menu)) == sorted(there)


def test_the_table_of_outcomes_matches_the_code() -> None:
    table = re.findall(
        r"^\| `(\w+)` \| (yes|no) \| (?:`(\w+)`|the provider's own) \|.*?\| (\d+) \|",
        (ROOT / "docs" / "loop.md").read_text(),
        re.MULTILINE,
    )

    assert table == [
        (end.value, "yes" if end.complete else "no", end.tag or "", str(end.exit_code))
        for end in Outcome
    ]


def test_every_scenario_of_the_loop_has_a_test_and_every_numbered_test_a_scenario() -> None:
    page = (ROOT / "docs" / "loop-scenarios.md").read_text()
    rows = [int(number) for number in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)]
    tested: set[int] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        for name in re.findall(
            r"^(?:async )?def test_((?:s\d{3}_)+)", path.read_text(), re.MULTILINE
        ):
            tested.update(int(number) for number in re.findall(r"\d{3}", name))

    assert rows == sorted(set(rows))
    assert tested == set(rows)


def test_the_table_of_limits_lists_all_of_them() -> None:
    table = (
        (ROOT / "docs" / "loop.md").read_text().partition("\n## Limits\n")[2].partition("\n## ")[0]
    )
    first = "".join(line.split("|")[1] for line in table.splitlines() if line.startswith("|"))

    assert re.findall(r"`(\w+)`", first) == list(Limits.__dataclass_fields__)


def test_the_page_about_providers_lists_every_provider() -> None:
    page = (ROOT / "docs" / "providers.md").read_text()
    section = page.partition("\n## All providers\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"[a-z][a-z0-9-]+", section))

    assert not set(providers.known()) - named - {"offline"}


def commands() -> Iterator[tuple[str, list[str]]]:
    """Yield the commands that the pages show, as lists of words."""
    for page, block in of("console"):
        for number, line in enumerate(block.body.splitlines(), block.line):
            for part in re.split(
                r" [|&]+ |;", line.removeprefix("$ ") if line.startswith("$ ") else ""
            ):
                words = shlex.split(re.sub(r" \d?>+ ?\S+", "", part), comments=True)
                while words and "=" in words[0]:
                    del words[0]
                if words:
                    yield f"{page.name}:{number}", words


def ours() -> Iterator[tuple[str, list[str]]]:
    """Yield the shown commands of glue; an agent file has the options of `glue run`."""
    for where, words in commands():
        if words[0].rsplit("/")[-1] == "glue":
            yield where, words[1:]
        elif words[0] == "python" and words[1].endswith(".py") and "/" not in words[1]:
            yield where, ["run", *words[1:]]


def steps(block: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a console block with the output shown below it."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


@pytest.mark.parametrize(
    "page", [page for page in PAGES if SHOWN.search(page.read_text())], ids=ids
)
def test_the_marked_commands_of_a_page_print_the_shown_output(
    page: Path, tmp_path: Path, checkout: Path, zygote: Zygote, request: pytest.FixtureRequest
) -> None:
    folder = shutil.copytree(checkout, tmp_path / "shop")
    if "<!-- run in a checkout -->" not in page.read_text():
        shutil.rmtree(folder)
        folder.mkdir()
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environ = {**environment(tmp_path), "PATH": path, "LC_ALL": "C.UTF-8"}

    for block in SHOWN.findall(page.read_text()):
        for command, shown in steps(block):
            printed = run(command, folder, environ, zygote)
            if not matches(shown, printed) and request.config.option.update_snapshots:
                text = page.read_text()
                page.write_text(text.replace(f"$ {command}\n{shown}", f"$ {command}\n{printed}"))
            else:
                assert matches(shown, printed), f"{page.name}: {command}\n{printed}{UPDATE}"


def run(command: str, folder: Path, environ: dict[str, str], zygote: Zygote) -> str:
    """Run a command and return its output and errors; pipes and redirections need a real shell."""
    start, variables = without_shell(command)
    if start:
        return zygote.run(start, folder, {**environ, **variables}, merged=True)[1]
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    ).stdout


def matches(shown: str, printed: str) -> bool:
    """Return whether an output has the shown form, in which `...` represents any text."""
    parts = [re.escape(part) for part in VARIES.sub("#", shown.strip()).split("...")]
    pattern = re.sub(r"(\\ )+", r"[ ]+", "(?s:.*)".join(parts))
    return re.fullmatch(pattern, VARIES.sub("#", printed.strip())) is not None


def test_every_command_has_a_page_with_an_example_its_options_and_its_exit_codes() -> None:
    from glue.cli.app import COMMANDS

    assert [page.stem for page in COMMAND_PAGES] == sorted(command.name for command in COMMANDS)
    for page in COMMAND_PAGES:
        text = page.read_text()
        assert text.startswith(f"# glue {page.stem}\n"), page.name
        assert f"<!-- options: {page.stem} -->" in text, page.name
        assert {"## Example", "## Options", "## Exit codes"} <= {*text.splitlines()}, page.name


def test_the_make_targets_in_pages_exist() -> None:
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    shown = [words[1] for _, words in commands() if words[0] == "make"]

    assert shown
    for target in (
        *shown,
        *re.findall(r"`make (\w+)`", "".join(page.read_text() for page in PAGES)),
    ):
        assert target in targets


def test_the_commands_in_pages_exist() -> None:
    for where, words in ours():
        check_command(where, words)


def check_command(where: str, words: list[str]) -> None:
    """Fail if glue has no such command, or the command has no such option."""
    import click

    from glue.cli.app import commands as glue

    command: click.Command = glue
    context = click.Context(glue, info_name="glue")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name = words.pop(0)
        found = command.get_command(context, name)
        if found is None and getattr(command, "takes_name", False):
            name, found = "list", command.get_command(context, "list")
        assert found is not None, f"{where}: there is no command {name}"
        command, context = found, click.Context(found, parent=context, info_name=name)
    if isinstance(command, click.Group) and "list" in command.commands and words:
        command = command.commands["list"]  # the default command of the group
    known = {
        option
        for each in command.get_params(context)
        for option in (*each.opts, *each.secondary_opts)
    }
    for word in words:
        if word.startswith("-") and word != "-":
            assert word.partition("=")[0] in known, f"{where}: {word}"


def lists(value: object) -> Iterator[list[str]]:
    """Yield the commands in a YAML document: lists that begin with `glue` or run it in a shell."""
    if isinstance(value, list) and value and value[0] == "glue":
        yield value
    elif isinstance(value, list) and value[:2] == ["sh", "-c"]:
        yield shlex.split(value[2].removeprefix("exec "))
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from lists(each)


def test_the_files_for_deployment_can_be_parsed_and_start_commands_that_exist() -> None:
    page = ROOT / "docs" / "deployment.md"
    started = []
    for block in blocks(page):
        if block.info == "yaml":
            started += list(lists(yaml.safe_load(block.body)))
        elif block.info == "dockerfile":
            steps = block.body.replace("\\\n", "").splitlines()
            assert {step.split()[0] for step in steps} <= DOCKERFILE
            started += [json.loads(step[4:]) for step in steps if step.startswith("CMD ")]
        elif block.info in ("ini", "text"):
            for line in re.findall(
                r"(?:ExecStart=|&& )(?:flock -n \S+ )?\S*/(glue .*)", block.body
            ):
                started.append(shlex.split(line))
        if block.info == "ini":
            configparser.ConfigParser().read_string(block.body)

    assert [words[1] for words in started] == ["serve", "worker", "worker", "map", "map", "worker"]
    for words in started:
        check_command(page.name, words[1:])


def test_the_reference_describes_every_parameter_of_an_agent() -> None:
    page = (ROOT / "docs" / "api.md").read_text()
    table = page.partition("| parameter of `Agent` |")[2].partition("\n\n")[0]
    described = re.findall(
        r"`(\w+)`", "\n".join(row.split("|")[1] for row in table.splitlines()[2:])
    )

    assert sorted(described) == sorted(inspect.signature(Agent).parameters)


@pytest.fixture(scope="module")
def reference() -> Any:
    """Load docs/reference.py, which is not part of a package."""
    spec = importlib.util.spec_from_file_location("reference", ROOT / "docs" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_shows_only_literal_defaults(
    reference: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "made-up-key")

    def start(
        name: str, tries: int = 3, environ: Any = os.environ, sleep: Any = plain, size: Any = ()
    ) -> None: ...

    shown = str(reference.signature(start))

    assert shown == (
        "(name: str, tries: int = 3, environ: Any = ..., sleep: Any = ..., size: Any = ()) -> None"
    )


def test_no_entry_of_the_reference_shows_the_machine_that_builds_the_site(
    reference: Any, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "api.md").read_text()
    names = re.findall(r"^::: (\S+)", page, re.MULTILINE)

    (tmp_path / "api.md").write_text("\n".join(reference.describe(name) for name in names))

    assert names
    assert reference.find_leaks(tmp_path) == []


def test_a_site_that_shows_an_environment_or_an_address_is_reported_without_its_text(
    reference: Any, tmp_path: Path
) -> None:
    (tmp_path / "cookbook").mkdir()
    (tmp_path / "good.md").write_text("environ: a mapping\n")
    (tmp_path / "cookbook" / "bad.md").write_text("# Bad\nenviron({'KEY': 'secret'})\n")
    (tmp_path / "bad.html").write_text(f"<p>{object()!r}</p>")

    assert reference.find_leaks(tmp_path) == ["bad.html:1", "cookbook/bad.md:2"]


def test_the_reference_lists_properties_members_of_enums_and_kinds_of_errors(
    reference: Any,
) -> None:
    result = reference.describe("glue.result.RunResult")
    outcome = reference.describe("glue.limits.Outcome")
    errors = reference.describe("glue.errors")

    for each in ("cost: float | None", "model: str", "reply: AssistantMessage", "complete: bool"):
        assert f"\nRunResult.{each}\n" in result
    for end in Outcome:
        assert f"\nOutcome.{end.name} = {end.value!r}\n" in outcome
    assert "\nOutcome.exit_code: int\n" in outcome
    assert "\nErrorKind = Literal['auth', 'quota', " in errors
