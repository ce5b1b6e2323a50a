"""Records of a review as JSON files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fakes.larder import git

from glue.agents.review import storage
from glue.agents.review.change.collect import collect
from glue.agents.review.records import Bundle, Finding, ReviewRun
from glue.codec import to_json
from glue.errors import ConfigError


def test_a_bundle_with_odd_names_and_bytes_is_read_back_unchanged(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    git(root, "commit", "-q", "--allow-empty", "-m", "start")
    git(root, "checkout", "-q", "-b", "feature")
    (root / 'caf\u00e9 "x".py').write_bytes(b"name = '\xff'\r\n")
    git(root, "add", "--all")
    git(root, "commit", "-q", "-m", "change")
    bundle = collect(root)

    storage.save(bundle, tmp_path / "bundle.json")

    assert len(bundle.files) == 1
    assert storage.load(Bundle, tmp_path / "bundle.json") == bundle


@pytest.mark.parametrize("cls", [Bundle, ReviewRun])
def test_record_of_another_version_is_refused(tmp_path: Path, cls: type[object]) -> None:
    path = tmp_path / "x.json"
    storage.save(cls(), path)
    data = json.loads(path.read_text())
    assert data["version"] == 1
    path.write_text(json.dumps({**data, "version": 2}))

    with pytest.raises(ConfigError, match=r"x\.json has version 2; this program reads version 1"):
        storage.load(cls, path)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"findings": 3}, r"^ReviewRun\.findings must be"),
        ([], "^ReviewRun must be"),
        ({"other": 1}, "^ReviewRun.*other"),
    ],
)
def test_data_that_is_not_a_record_is_refused_with_its_name(data: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        storage.from_json(ReviewRun, data)
    with pytest.raises(ConfigError, match=problem.replace("ReviewRun", "a file")):
        storage.from_json(ReviewRun, data, "a file")


def test_other_records_have_no_version() -> None:
    finding = Finding(path="a.py", quote="x", title="Wrong", body="It is.")

    assert storage.from_json(Finding, to_json(finding)) == finding
    with pytest.raises(ConfigError, match=r"Finding.*version"):
        storage.from_json(Finding, {**to_json(finding), "version": 2})


@pytest.mark.parametrize(
    ("text", "problem"), [("{", "x.json is not JSON: "), (None, "cannot read .*x.json: No such")]
)
def test_file_that_cannot_be_read_is_refused(
    tmp_path: Path, text: str | None, problem: str
) -> None:
    path = tmp_path / "x.json"
    if text is not None:
        path.write_text(text)

    with pytest.raises(ConfigError, match=problem):
        storage.load(ReviewRun, path)


def test_file_is_indented_by_one_space(tmp_path: Path) -> None:
    storage.save(ReviewRun(summary="caf\u00e9"), tmp_path / "x.json")

    assert (tmp_path / "x.json").read_bytes().startswith(b'{\n "summary": "caf\\u00e9"')


def test_figures_that_a_file_leaves_out_are_zero() -> None:
    tried = {"tries": [{"provider": "a"}], "provider": "a"}
    run = storage.from_json(ReviewRun, {"version": 1, **tried})
    bundle = storage.from_json(Bundle, {"version": 1, "change": {"title": "x"}})

    (attempt,) = run.tries
    assert (run.turns, run.tokens_in, run.tokens_out, run.seconds) == (0, 0, 0, 0.0)
    assert (attempt.turns, attempt.tokens_in, attempt.tokens_out, attempt.seconds) == (0, 0, 0, 0.0)
    assert (run.cost, attempt.cost) == (None, None)
    assert bundle.change.older_comments == 0
