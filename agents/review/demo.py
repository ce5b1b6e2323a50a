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
from glue.agents.review.delivery import outputs
from glue.agents.review.delivery.forges import Where
from glue.agents.review.delivery.publish import publish, shown
from glue.agents.review.delivery.report import Report
from glue.agents.review.findings.analysers import find_ruff
from glue.agents.review.findings.model import review
from glue.agents.review.records import Change
from glue.tools.git import find_git

_STORE = '''"""What is in the larder."""

import sqlite3
import threading
import urllib.request


class Larder:
    """Items and how many there are of each."""

    def __init__(self, path: str) -> None:
        self.db = sqlite3.connect(path, check_same_thread=False)
        self.lock = threading.Lock()

    def take(self, name: str, count: int) -> int:
        with self.lock:
            left = self.amount(name) - count
            if left < 0:
                raise ValueError(f"there are only {left + count} of {name}")
            self.db.execute("UPDATE items SET amount = ? WHERE name = ?", (left, name))
            self.db.commit()
        return left

    def amount(self, name: str) -> int:
        row = self.db.execute("SELECT amount FROM items WHERE name = ?", (name,)).fetchone()
        if row is None:
            return 0
        return int(row[0])


def prices(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=10) as answer:
        return answer.read()
'''
_TESTS = """from larder.store import Larder


def larder() -> Larder:
    made = Larder(":memory:")
    made.db.execute("CREATE TABLE items (name TEXT, amount INTEGER)")
    made.db.execute("INSERT INTO items VALUES ('rice', 2)")
    return made


def test_what_is_taken_is_gone() -> None:
    assert larder().take("rice", 1) == 1


def test_nobody_takes_more_than_there_is() -> None:
    assert larder().amount("beans") == 0
"""
BEFORE = {
    "README.md": "# Larder\n\nKeeps track of what is in the larder.\n",
    "larder/store.py": _STORE,
    "tests/test_store.py": _TESTS,
}
# Planted: the lock, a check and a timeout are gone, a default is shared, a name exists nowhere, a test compares and
# drops the result, and another does not run any more.
AFTER = {
    "larder/store.py": _STORE.replace(
        """        with self.lock:
            left = self.amount(name) - count
            if left < 0:
                raise ValueError(f"there are only {left + count} of {name}")
            self.db.execute("UPDATE items SET amount = ? WHERE name = ?", (left, name))
            self.db.commit()
        return left
""",
        """        left = self.amount(name) - count
        if left < 0:
            raise ValueError(f"there are only {left + count} of {name}")
        self.db.execute("UPDATE items SET amount = ? WHERE name = ?", (left, name))
        self.db.commit()
        return left

    def find(self, part: str, seen: list[str] = []) -> list[str]:
        seen.append(part)
        rows = self.db.execute("SELECT name FROM items WHERE name LIKE ?", (f"%{part}%",))
        return [name for (name,) in rows][:limit]
""",
    )
    .replace(
        """        if row is None:
            return 0
""",
        "",
    )
    .replace("urlopen(address, timeout=10)", "urlopen(address)"),
    "tests/test_store.py": "import pytest\n\n"
    + _TESTS.replace("    assert larder().take", "    larder().take").replace(
        "def test_nobody", '@pytest.mark.skip(reason="fails since the last change")\ndef test_nobody'
    ),
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
    run = anyio.run(lambda: review(bundle, record=record))
    place = Where(forge="github", api="https://api.github.com", repo="example/larder", number=7)
    published = publish(bundle, run, {}, place=place, dry=True, blind=True)
    records.save(bundle, out / "bundle.json")
    records.save(run, out / "findings.json")
    record.save(out / "run.jsonl")
    (out / "requests.jsonl").write_text(shown(published.requests, place.api), encoding="utf-8")
    for form, name in FILES.items():
        (out / name).write_text(outputs.render(published.report, form), encoding="utf-8")
    _say(published.report, out, page)
    return 0


FILES = {"terminal": "review.txt", "html": "review.html", "json": "review.json", "sarif": "review.sarif"}


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
    names = {"terminal": "full report", "html": "as a page", "json": "as JSON", "sarif": "as SARIF"}
    print()
    for form, name in FILES.items():
        print(f"  {names[form]:<18}{out / name}")
    print(f"  {'the requests':<18}{out / 'requests.jsonl'}")
    if page is not None:
        print(f"  {'the run above':<18}{page}")


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
