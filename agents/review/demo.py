"""`make demo`: a small repository with planted bugs, and the review as it would be posted. No key, no network."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path
from shutil import get_terminal_size
from typing import Any

import anyio

from glue import one_line
from glue.agents.review import records
from glue.agents.review.cassette import RunFile
from glue.agents.review.change.collect import collect
from glue.agents.review.delivery import outputs
from glue.agents.review.delivery.forges import Where
from glue.agents.review.delivery.publish import publish, shown
from glue.agents.review.delivery.report import Report
from glue.agents.review.findings.analysers import find_ruff
from glue.agents.review.findings.model import review
from glue.agents.review.records import Change
from glue.tools.git import find_git

# What is written: its file, and what it is called.
FILES = {
    "terminal": ("review.txt", "full report"),
    "html": ("review.html", "as a page"),
    "json": ("review.json", "as JSON"),
    "sarif": ("review.sarif", "as SARIF"),
}


def main(folder: str = "", page: Path | None = None) -> int:
    """Build the repository, review it, show what would be posted, and say where the files are."""
    home = Path(folder or tempfile.mkdtemp(prefix="glue-review-demo-"))
    repo, out = home / "larder", home / "review"
    out.mkdir(parents=True)
    build(repo)
    pull: dict[str, Any] = {"forge": "github", "repo": "example/larder", "number": 7}
    told: dict[str, Any] = {
        "title": "Find items by name",
        "author": "newcomer",
        "base_ref": "main",
        "head_ref": "find-items",
    }
    change = Change(mode="pull_request", **pull, **told)
    bundle = collect(repo, base="main", head="find-items", change=change)
    record = RunFile(seed="demo", bundle=bundle)
    run = anyio.run(lambda: review(bundle, record=record))
    place = Where(api="https://api.github.com", **pull)
    published = publish(bundle, run, {}, place=place, dry=True, blind=True)
    records.save(bundle, out / "bundle.json")
    records.save(run, out / "findings.json")
    record.save(out / "run.jsonl")
    (out / "requests.jsonl").write_text(shown(published.requests, place.api), encoding="utf-8")
    for form, (name, _) in FILES.items():
        (out / name).write_text(outputs.render(published.report, form), encoding="utf-8")
    _say(published.report, out, page)
    return 0


def _say(report: Report, out: Path, page: Path | None) -> None:
    """Print what was found, the comment that would be posted, and where the rest is."""
    room = max(get_terminal_size().columns, 60)
    print(f"{len(report.items)} findings in a change with planted bugs, without a model\n")
    for item in report.items:
        severity = item.finding.severity
        head = one_line(outputs.title(item), room - len(item.where) - len(severity) - 6)
        print(f"  {_painted(item.where, '36')}  {_painted(severity, '33' if severity == 'medium' else '31')}  {head}")
        print(_painted(f"      {one_line(item.finding.body.partition('. ')[0], room - 6)}", "2"))
    if not find_ruff():
        print("  and more with ruff: pip install 'glue-agents[review]'")
    print("\nThe one comment it would post; medium and above also stand at their lines:\n")
    body = outputs.sticky(report).split("-->\n", 1)[1].split("<details><summary>Fix", 1)[0]
    for line in filter(str.strip, body.splitlines()):
        print(f"  | {one_line(line, room - 4)}")
    print()
    for name, called in FILES.values():
        print(f"  {called:<18}{out / name}")
    print(f"  {'the requests':<18}{out / 'requests.jsonl'}")
    if page is not None:
        print(f"  {'the run above':<18}{page}")


def _painted(text: str, colour: str) -> str:
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb" or not sys.stdout.isatty()
    return text if plain else f"\x1b[{colour}m{text}\x1b[0m"


def build(repo: Path) -> None:
    """Make the repository: a main branch, and a branch with the planted bugs."""
    repo.mkdir(parents=True, exist_ok=True)
    git(repo, "init", "-q", "-b", "main")
    git(repo, "fast-import", "--quiet", input=files("glue.agents.review").joinpath("demo.fast-import").read_bytes())
    git(repo, "checkout", "-q", "find-items")


def git(repo: Path, *args: str, input: bytes = b"") -> None:
    """Run git with nothing of the user's own settings: no signing, no hooks, no templates."""
    names = dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "demo")
    mails = dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "demo@example.com")
    dates = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), "2024-01-01T00:00:00Z")
    quiet = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "HOME": os.fspath(repo), "LC_ALL": "C"}
    env = {"PATH": os.environ.get("PATH", os.defpath), **quiet, **names, **mails, **dates}
    argv = [find_git(), "-c", "init.templateDir=", "-c", "core.hooksPath=/dev/null", *args]
    subprocess.run(argv, cwd=repo, env=env, check=True, timeout=30, input=input)


if __name__ == "__main__":
    sys.exit(main())
