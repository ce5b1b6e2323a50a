"""Records of a review as JSON files."""

from __future__ import annotations

from pathlib import Path

from fakes.larder import git

from glue.agents.review import storage
from glue.agents.review.change.collect import collect
from glue.agents.review.records import Bundle


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
