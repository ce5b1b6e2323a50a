"""Kinds of pull requests against a forge: nothing to read, outages, odd file names, re-runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import anyio
import pytest
from fakes.checkouts import call as git
from fakes.forge import FakeForge
from fakes.review import FOUND, invoke, work_in_larder

from glue import providers
from glue.agents.review.change.collect import collect
from glue.agents.review.delivery import outputs
from glue.agents.review.delivery.publish import Published, publish
from glue.agents.review.findings.dedupe import EarlierReview
from glue.agents.review.findings.model import review
from glue.agents.review.records import Bundle, ReviewedChange, ReviewRun
from glue.testing import Script, call, calls

PICTURE = bytes(range(256))
OLD = "def total(prices):\n    return sum(prices)\n"
NEW = "def total(prices):\n    count = len(prices)\n    return sum(prices) / count\n"
DONE = calls(call("finish_review", {"summary": "The change computes a mean. I read all of it."}))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main", "--template=")
    (folder / "shop.py").write_text(OLD)
    (folder / "run.sh").write_text("echo 1\n")
    (folder / "poetry.lock").write_text("a = 1\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    git(folder, "checkout", "-qb", "work")
    return folder


def commit(root: Path) -> Bundle:
    """Commit everything, and return the change of the branch as a pull request."""
    git(root, "add", "-A")
    git(root, "commit", "-qm", "Update", "--allow-empty")
    change = ReviewedChange(mode="pull_request", forge="github", repo="octo/demo", number=1)
    return collect(root, base="main", head="work", change=change)


def reviewed(bundle: Bundle, *replies: Any, **options: Any) -> ReviewRun:
    return anyio.run(partial(review, bundle, providers=[Script(*replies)], **options))


def posted(bundle: Bundle, run: ReviewRun) -> tuple[Published, FakeForge]:
    with FakeForge("github") as forge:
        head, base = bundle.change.head_sha, bundle.change.base_sha
        forge.pull(bundle.diff, head=head, base=base)
        return publish(bundle, run, forge.environ, sleep=lambda seconds: None), forge


def add_picture(root: Path) -> None:
    (root / "logo.png").write_bytes(PICTURE)


def change_lock_file(root: Path) -> None:
    (root / "poetry.lock").write_text("a = 2\n")


def rename(root: Path) -> None:
    (root / "shop.py").rename(root / "store.py")


def change_mode(root: Path) -> None:
    (root / "run.sh").chmod(0o755)


def add_generated(root: Path) -> None:
    (root / "app.min.js").write_text("var a=1\n")


def change_nothing(root: Path) -> None:
    """Leave an empty commit."""


@pytest.mark.parametrize(
    "edit",
    [add_picture, change_lock_file, rename, change_mode, add_generated, change_nothing],
    ids=lambda edit: edit.__name__,
)
def test_change_with_nothing_to_read_passes_without_a_request(
    root: Path, edit: Callable[[Path], None]
) -> None:
    edit(root)
    bundle = commit(root)

    run = reviewed(bundle)  # the script has no replies, so a request would fail
    done, forge = posted(bundle, run)

    assert (run.codes, run.tries, done.verdict.exit_code) == ((), (), 0)
    assert "nothing to read" in outputs.terminal(done.report)
    assert (forge.pulls[1].comments, forge.pulls[1].inline) == ([], [])


def test_too_large_file_alone_is_not_reported_as_nothing_to_read(root: Path) -> None:
    (root / "huge.py").write_text("x = 1\n" * 30_000)
    bundle = commit(root)

    done, _ = posted(bundle, reviewed(bundle))

    assert not done.report.clean
    assert "0 % of the change" in outputs.terminal(done.report)


NAMES = ["a b.py", "it's.py", 'say "hi" now.py', "two  blanks .py", "back\\slash.py", "tick`s.py"]


@pytest.mark.parametrize("name", NAMES)
def test_finding_in_a_file_with_an_odd_name_is_posted_on_its_line(root: Path, name: str) -> None:
    git(root, "checkout", "-q", "main")
    (root / name).write_text(OLD)
    git(root, "add", "-A")
    git(root, "commit", "-qm", "odd name")
    git(root, "checkout", "-q", "-B", "work")
    (root / name).write_text(NEW)
    bundle = commit(root)

    run = reviewed(bundle, calls(call("report_finding", FOUND | {"path": name})), DONE)
    _, forge = posted(bundle, run)

    ((path, line),) = [(row["path"], row["line"]) for row in forge.pulls[1].inline]
    assert (path, line) == (name, 3)


def first_review(root: Path) -> tuple[Bundle, ReviewRun]:
    (root / "shop.py").write_text(NEW)
    bundle = commit(root)
    return bundle, reviewed(bundle, calls(call("report_finding", FOUND)), DONE)


def test_rerun_without_new_hunks_keeps_provider_findings_and_summary(root: Path) -> None:
    bundle, run = first_review(root)

    again = reviewed(bundle, earlier=EarlierReview(bundle, run))  # no request
    third = reviewed(bundle, earlier=EarlierReview(bundle, again))

    for later in (again, third):
        assert (later.provider, later.model, later.summary) == (
            run.provider,
            run.model,
            run.summary,
        )
        assert [finding.title for finding in later.findings] == [FOUND["title"]]
        assert (later.turns, later.cost, later.coverage.percent) == (0, 0.0, 100.0)


def test_rebase_without_new_hunks_keeps_provider_and_findings(root: Path) -> None:
    bundle, run = first_review(root)
    git(root, "checkout", "-q", "main")
    (root / "other.py").write_text("x = 1\n")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "other")
    git(root, "checkout", "-q", "work")
    git(root, "rebase", "-q", "main")
    moved = collect(root, base="main", head="work", change=replace(bundle.change, title=""))

    again = reviewed(moved, earlier=EarlierReview(bundle, run))

    assert moved.change.head_sha != bundle.change.head_sha
    assert again.provider == run.provider
    assert [finding.title for finding in again.findings] == [FOUND["title"]]


def test_summary_of_an_increment_names_the_findings_that_are_still_open(root: Path) -> None:
    bundle, run = first_review(root)
    (root / "more.py").write_text("def double(x):\n    return 2 * x\n")
    following = commit(root)
    quiet = calls(call("finish_review", {"summary": "A new function. I found nothing wrong."}))

    later = reviewed(following, quiet, earlier=EarlierReview(bundle, run))
    done, _ = posted(following, later)

    assert done.report.summary.startswith("1 finding of an earlier review is still open: 1 high.")
    assert "New since the earlier review: A new function." in done.report.summary


def test_picture_after_a_review_does_not_ask_the_model_again(root: Path) -> None:
    bundle, run = first_review(root)
    add_picture(root)

    later = reviewed(commit(root), earlier=EarlierReview(bundle, run))

    assert (later.provider, later.codes) == (run.provider, ())
    assert len(later.findings) == 1


class _Failing(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(500)
        self.end_headers()
        self.wfile.write(b'{"error": {"message": "the disk is full"}}')

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


@pytest.fixture
def failing_server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Failing) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()


async def test_outages_say_what_happened(root: Path, failing_server: str) -> None:
    (root / "shop.py").write_text(NEW)
    bundle = commit(root)
    texts = []
    for address in (failing_server, "http://127.0.0.1:9/v1"):
        openai: Any = providers.new("openai:gpt-5", key="none", base_url=address, retries=False)
        done = publish(bundle, await review(bundle, providers=[openai]), {}, post=False)
        await openai.aclose()
        assert (done.verdict.exit_code, len(done.report.codes)) == (3, 1)
        texts.append(outputs.terminal(done.report))

    assert "500" in texts[0]
    assert "the disk is full" in texts[0]
    assert "cannot connect to 127.0.0.1:9" in texts[1]


def test_refused_reports_are_counted_with_the_reason(root: Path) -> None:
    (root / "shop.py").write_text(NEW)
    bundle = commit(root)
    wrong = FOUND | {"quote": "this code is nowhere in the change", "line": None}
    other = wrong | {"title": "Another", "body": "A quite different matter, not in the code."}

    run = reviewed(
        bundle, calls(call("report_finding", wrong)), calls(call("report_finding", other)), DONE
    )
    done, forge = posted(bundle, run)

    assert (done.verdict.exit_code, forge.pulls[1].comments) == (3, [])
    assert "every report of the model was refused" in done.verdict.reasons[0]
    assert any(
        notice.startswith("2 reports of the model were refused: the quoted code is not in")
        for notice in done.report.notices
    )


def test_refused_reports_are_counted_next_to_accepted_findings(root: Path) -> None:
    (root / "shop.py").write_text(NEW)
    bundle = commit(root)
    wrong = FOUND | {
        "quote": "this code is nowhere in the change",
        "title": "Another",
        "body": "A quite different matter, not in the code.",
    }

    run = reviewed(
        bundle, calls(call("report_finding", FOUND)), calls(call("report_finding", wrong)), DONE
    )
    _, forge = posted(bundle, run)

    assert len(forge.pulls[1].inline) == 1
    assert "1 report of the model was refused" in forge.pulls[1].comments[0]["body"]


def test_change_that_nothing_understands_is_not_called_read(root: Path) -> None:
    (root / "main.rs").write_text("fn main() { panic!() }\n")
    bundle = commit(root)

    run = anyio.run(review, bundle)
    done, forge = posted(bundle, run)

    assert (run.coverage.percent, done.report.clean, done.verdict.exit_code) == (0.0, False, 0)
    assert "no findings, 0 % of the change analysed" in outputs.terminal(done.report)
    assert forge.pulls[1].comments == []


def test_results_of_ruff_with_absolute_paths_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = work_in_larder(tmp_path, monkeypatch)
    (root / "larder" / "odd.py").write_text("import os\nimport sys\nx = [1,2 ]\n")
    log = tmp_path / "ruff.sarif"
    options = "check --isolated --select F,E,I --exit-zero --output-format sarif -o"
    argv = [sys.executable, "-m", "ruff", *options.split(), str(log), "larder/odd.py"]
    subprocess.run(argv, cwd=root, check=True, capture_output=True)

    code, text = invoke("--dirty", "--paths", "larder/odd.py", "--sarif", str(log))

    assert "file:///" in log.read_text()
    assert "imported but unused" in text
    assert code == 0  # nothing of it is high
