"""The demo of `make demo`: an agent in ten lines, then a review of planted bugs, without a key.

No model is asked: the replies in `tests/fakes/larder.replies.json` were written for this change and
are played back through the real tools, gate, second look and output. They show what a review looks
like, not how good a particular model is.

python bench/demo.py [FOLDER]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from shutil import get_terminal_size
from typing import Any

import anyio

from glue.agents.review import storage
from glue.agents.review.change.collect import collect
from glue.agents.review.delivery import outputs
from glue.agents.review.delivery.forges.forge import PullRequestRef
from glue.agents.review.delivery.publish import format_requests, publish
from glue.agents.review.delivery.report import Report
from glue.agents.review.findings.analysers import find_ruff
from glue.agents.review.findings.model import review
from glue.agents.review.records import ReviewedChange
from glue.agents.review.runfile import RunFile
from glue.cli.screen import Screen
from glue.text import one_line
from glue.tools.git import Repo

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from fakes import larder

AGENT = '''\
import glue

@glue.tool
def weather(city: str) -> str:
    """Return the weather in a city."""
    return f"{city}: 21 degrees, dry"

agent = glue.Agent("offline", tools=[weather])  # or "anthropic", "ollama:qwen3", ...
agent.cli()
'''
PROMPT = "What is the weather in Toronto, and in Oslo?"
# The outputs of the review: for each format, the file and its description.
FILES = {
    "terminal": ("review.txt", "full report"),
    "html": ("review.html", "as a page"),
    "json": ("review.json", "as JSON"),
}


def main(folder: str = "") -> int:
    screen = Screen(sys.stdout)
    home = Path(folder or tempfile.mkdtemp(prefix="glue-demo-"))
    home.mkdir(parents=True, exist_ok=True)
    screen.line("1. An agent is a file of ten lines", "bold")
    (home / "agent.py").write_text(AGENT)
    for line in AGENT.rstrip().splitlines():
        screen.line(f"  {line}", "dim")
    screen.line("")
    screen.line(f'$ python agent.py --usage "{PROMPT}"', "cyan")
    page = run_agent(home)
    screen.line("")
    screen.line(
        "2. The review bot reads a pull request; replies written for the demo play the model",
        "bold",
    )
    review_larder(home / "pull-request", page)
    return 0


def run_agent(home: Path) -> Path:
    """Run the ten-line agent as a user would, and return the path of its log as an HTML page."""
    glue = Path(sys.executable).parent / "glue"
    kept = {
        name: os.environ[name]
        for name in ("PATH", "TERM", "LANG", "NO_COLOR", "COLUMNS")
        if name in os.environ
    }
    env = {
        **kept,
        "HOME": str(home),
        "XDG_STATE_HOME": str(home / "state"),
        "GLUE_LOG": "1",
        "PYTHONUTF8": "1",
    }
    line = [sys.executable, "agent.py", "--usage", PROMPT]
    subprocess.run(line, cwd=home, env=env, check=True, stdin=subprocess.DEVNULL)
    page = home / "agent.html"
    view = [str(glue), "view", "last", "-o", str(page)]
    subprocess.run(view, cwd=home, env=env, check=True, stdout=subprocess.DEVNULL)
    return page


def review_larder(home: Path, page: Path) -> None:
    """Build a repository, review its change, and print the findings and the written files."""
    repo, out = home / "larder", home / "review"
    out.mkdir(parents=True)
    larder.build(repo)
    pull: dict[str, Any] = {"forge": "github", "repo": "example/larder", "number": 7}
    told: dict[str, Any] = {
        "title": "Find items by name",
        "author": "newcomer",
        "base_ref": "main",
        "head_ref": "find-items",
    }
    change = ReviewedChange(mode="pull_request", **pull, **told)
    bundle = collect(repo, base="main", head="find-items", change=change)
    record = RunFile(seed="demo", bundle=bundle)
    with Repo(repo) as objects:
        asked = [larder.recorded_model()]
        run = anyio.run(
            lambda: review(
                bundle, providers=asked, repo=objects, record=record, second_look="always"
            )
        )
    place = PullRequestRef(api="https://api.github.com", **pull)
    published = publish(bundle, run, {}, place=place, dry=True, blind=True)
    storage.save(bundle, out / "bundle.json")
    storage.save(run, out / "findings.json")
    record.save(out / "run.jsonl")
    (out / "requests.jsonl").write_text(
        format_requests(published.requests, place.api), encoding="utf-8"
    )
    for form, (name, _) in FILES.items():
        (out / name).write_text(outputs.render(published.report, form), encoding="utf-8")
    _print_report(published.report, out, page)


def _print_report(report: Report, out: Path, page: Path) -> None:
    """Print the findings, the comment that would be posted, and the paths of all files."""
    room = max(get_terminal_size().columns, 60)
    by_model = sum(not item.finding.rule for item in report.items)
    print(
        f"{len(report.items)} findings in a change with planted bugs: {by_model} of the played"
        f" model, {len(report.items) - by_model} of analysers and rules\n"
    )
    for item in report.items:
        severity = item.finding.severity
        head = one_line(outputs.title(item), room - len(item.where) - len(severity) - 6)
        colour = "33" if severity == "medium" else "31"
        print(f"  {_painted(item.where, '36')}  {_painted(severity, colour)}  {head}")
        print(_painted(f"      {one_line(item.finding.body.partition('. ')[0], room - 6)}", "2"))
    if not find_ruff():
        print("  and more with ruff: pip install 'glue-agents[review]'")
    print(
        "\nThe one comment it would post; findings of medium and above are also at their lines:\n"
    )
    body = outputs.sticky(report).split("-->\n", 1)[1].split("<details><summary>Fix", 1)[0]
    for line in filter(str.strip, body.splitlines()):
        print(f"  | {one_line(line, room - 4)}")
    print()
    for name, called in FILES.values():
        print(f"  {called:<18}{out / name}")
    print(f"  {'the requests':<18}{out / 'requests.jsonl'}")
    print(f"  {'the run above':<18}{page}")


def _painted(text: str, colour: str) -> str:
    plain = (
        os.environ.get("NO_COLOR")
        or os.environ.get("TERM", "dumb") == "dumb"
        or not sys.stdout.isatty()
    )
    return text if plain else f"\x1b[{colour}m{text}\x1b[0m"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
