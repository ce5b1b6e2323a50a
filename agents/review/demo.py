"""`make demo`: a small repository with planted bugs, and the review as it would be posted. No key, no network."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from shutil import get_terminal_size

import anyio

from glue import one_line
from glue.agents.review import records
from glue.agents.review.cassette import RunFile
from glue.agents.review.change.collect import collect
from glue.agents.review.delivery import outputs, render
from glue.agents.review.delivery.forges.forge import Where
from glue.agents.review.delivery.publish import publish, shown
from glue.agents.review.delivery.report import Report
from glue.agents.review.findings.model import review
from glue.agents.review.records import Change
from glue.tools.git import Repo, find_git

BEFORE = {
    "README.md": "# Larder\n\nKeeps track of what is in the larder.\n\n    GET /items    list what there is\n",
    "larder/store.py": '''"""What is in the larder."""

import sqlite3


def connect(path: str) -> sqlite3.Connection:
    return sqlite3.connect(path)


def items(db: sqlite3.Connection, limit: int = 50) -> list[tuple[str, int]]:
    return db.execute("SELECT name, amount FROM items ORDER BY name LIMIT ?", (limit,)).fetchall()


def latest(entries: list[str], count: int) -> list[str]:
    return entries[-count:] if count else []
''',
    "tests/test_store.py": """from larder.store import connect, items, latest


def test_items_are_sorted() -> None:
    db = connect(":memory:")
    db.execute("CREATE TABLE items (name TEXT, amount INTEGER)")
    db.execute("INSERT INTO items VALUES ('rice', 2), ('beans', 1)")

    assert items(db) == [("beans", 1), ("rice", 2)]


def test_latest_gives_exactly_as_many_as_asked_for() -> None:
    assert latest(["a", "b", "c"], 2) == ["b", "c"]
""",
}
AFTER = {
    "larder/store.py": '''"""What is in the larder."""

import sqlite3


def connect(path: str) -> sqlite3.Connection:
    return sqlite3.connect(path)


def items(db: sqlite3.Connection, limit: int = 50) -> list[tuple[str, int]]:
    return db.execute("SELECT name, amount FROM items ORDER BY name LIMIT ?", (limit,)).fetchall()


def find(db: sqlite3.Connection, name: str, seen: list[str] = []) -> list[tuple[str, int]]:
    seen.append(name)
    query = f"SELECT name, amount FROM items WHERE name LIKE '%{name}%'"
    return db.execute(query).fetchall()


def latest(entries: list[str], count: int) -> list[str]:
    start = len(entries) - count - 1
    return entries[start:]


def amount(db: sqlite3.Connection, name: str) -> int:
    try:
        return int(db.execute("SELECT amount FROM items WHERE name = ?", (name,)).fetchone()[0])
    except Exception:
        return 0
''',
    "tests/test_store.py": """import pytest

from larder.store import connect, find, items, latest


def test_items_are_sorted() -> None:
    db = connect(":memory:")
    db.execute("CREATE TABLE items (name TEXT, amount INTEGER)")
    db.execute("INSERT INTO items VALUES ('rice', 2), ('beans', 1)")

    assert items(db) == [("beans", 1), ("rice", 2)]
    assert find(db, "ric") == [("rice", 2)]


@pytest.mark.skip(reason="fails since the last change")
def test_latest_gives_exactly_as_many_as_asked_for() -> None:
    assert latest(["a", "b", "c"], 2) == ["b", "c"]
""",
}


def main(folder: str = "", page: Path | None = None) -> int:
    """Build the repository, review it, show what would be posted, and say where the files are."""
    home = Path(folder or tempfile.mkdtemp(prefix="glue-review-demo-"))
    repo, out = home / "larder", home / "review"
    out.mkdir(parents=True)
    build(repo)
    change = Change(
        mode="pull_request",
        forge="github",
        repo="example/larder",
        number=7,
        title="Find items by name",
        author="newcomer",
        base_ref="main",
        head_ref="find-items",
    )
    bundle = collect(repo, base="main", head="find-items", change=change)
    record = RunFile(seed="demo", bundle=bundle)
    with Repo(repo) as objects:
        run = anyio.run(lambda: review(bundle, repo=objects, record=record))
    place = Where(forge="github", api="https://api.github.com", repo="example/larder", number=7)
    published = publish(bundle, run, {}, place=place, dry=True, blind=True)
    records.save(bundle, out / "bundle.json")
    records.save(run, out / "findings.json")
    record.save(out / "run.jsonl")
    (out / "requests.jsonl").write_text(shown(published.requests, place.api), encoding="utf-8")
    for form, name in (("markdown", "review.md"), ("sarif", "review.sarif"), ("json", "review.json")):
        (out / name).write_text(outputs.render(published.report, form), encoding="utf-8")
    _say(published.report, out, page)
    return 0


def _say(report: Report, out: Path, page: Path | None) -> None:
    """Print what was found, the comment that would be posted, and where the rest is."""
    room = max(get_terminal_size().columns - 40, 40)
    print()
    for item in report.items:
        severity = _painted(f"{item.finding.severity:<9}", "33" if item.finding.severity == "medium" else "31")
        print(f"  {_painted(f'{item.where:<24}', '36')} {severity} {one_line(item.finding.title, room)}")
        print(_painted(f"  {'':<34} {one_line(item.finding.body.partition('. ')[0], room)}", "2"))
    print("\nThe comment it would post, and five more at their lines:\n")
    comment = render.sticky(report).partition("### Fix instructions")[0]
    for line in comment.strip().splitlines()[1:]:
        if line.strip():
            print(f"  | {one_line(line, room + 34)}")
    print(f"\n  full report       {out / 'review.md'}")
    print(f"  requests, JSON    {out / 'requests.jsonl'}")
    print(f"  findings, JSON    {out / 'review.json'}")
    if page is not None:
        print(f"  the agent's run   {page}")


def _painted(text: str, colour: str) -> str:
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb" or not sys.stdout.isatty()
    return text if plain else f"\x1b[{colour}m{text}\x1b[0m"


def build(repo: Path) -> None:
    """Make the repository: a main branch, and a branch with the planted bugs."""
    _commit(repo, BEFORE, "Add the larder", new=True)
    _git(repo, "checkout", "-q", "-b", "find-items")
    _commit(repo, AFTER, "Find items by name")


def _commit(repo: Path, files: dict[str, str], message: str, new: bool = False) -> None:
    for name, text in files.items():
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        (repo / name).write_text(text, encoding="utf-8")
    if new:
        _git(repo, "init", "-q", "-b", "main")
    _git(repo, "add", "--all")
    _git(repo, "commit", "-q", "-m", message)


def _git(repo: Path, *args: str) -> None:
    # Nothing of the user's own git settings takes part: no signing, no hooks, no templates.
    names = dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "demo")
    mails = dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "demo@example.com")
    dates = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), "2024-01-01T00:00:00Z")
    quiet = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "HOME": os.fspath(repo), "LC_ALL": "C"}
    env = {"PATH": os.environ.get("PATH", os.defpath), **quiet, **names, **mails, **dates}
    argv = [find_git(), "-c", "init.templateDir=", "-c", "core.hooksPath=/dev/null", *args]
    subprocess.run(argv, cwd=repo, env=env, check=True, timeout=30, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())
