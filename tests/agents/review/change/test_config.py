"""Settings of a review."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from glue.agents.review.change.config import GENERATED_FILES, Config, make, matches, skip, why_not
from glue.agents.review.records import ChangeCommit, ReviewedChange
from glue.errors import ConfigError


@pytest.mark.parametrize(
    ("change", "config", "reason"),
    [
        (ReviewedChange(title="[skip-review] x"), {}, "the title contains"),
        (ReviewedChange(labels=("skip-review",)), {}, "the change has the label"),
        (ReviewedChange(draft=True), {"skip_drafts": True}, "the change is a draft"),
        (ReviewedChange(author="bot"), {"skip_authors": ["bot"]}, "changes by bot"),
        (ReviewedChange(title="Draft: x"), {"skip_titles": ["draft:"]}, "the title contains"),
        (ReviewedChange(title="[skip-review] x"), {"skip_titles": ["draft:"]}, ""),
        (
            ReviewedChange(labels=("later",)),
            {"skip_labels": ["later"]},
            "the change has the label later",
        ),
        (ReviewedChange(title="x", draft=True), {}, ""),
        (ReviewedChange(title="x"), {"skip_drafts": True}, ""),
        (ReviewedChange(author="ann"), {"skip_authors": ["bot"]}, ""),
        (ReviewedChange(author=""), {"skip_authors": [""]}, ""),
    ],
)
def test_changes_are_skipped_by_title_label_author_or_draft(
    change: ReviewedChange, config: dict[str, Any], reason: str
) -> None:
    found = why_not(change, make(config))

    assert found.startswith(reason)
    assert bool(found) is bool(reason)


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        ({"fail_on": "loud"}, "fail_on must be one of"),
        ({"max_turns": -1}, "max_turns must be a whole number of 0 or more, not -1"),
        ({"max_seconds": -0.5}, "max_seconds must be a number of 0 or more, not -0.5"),
        ({"colour": 1}, "unknown setting 'colour'; the settings are: chunk_tokens, "),
        ({"samples": 0}, "samples must be 1 or more"),
        ({"include": "x"}, "include must be a list"),
        ({"max_usd": "1"}, "max_usd must be a number"),
        ({"skip_drafts": 1}, "skip_drafts must be true or false"),
        ({"paths": ["x"]}, "paths must be a table"),
    ],
)
def test_wrong_settings_are_refused_with_their_name(data: dict[str, object], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        make(data)


def test_limits_in_the_documentation_are_the_defaults() -> None:
    page = Path(__file__).parents[4].joinpath("docs/review.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```toml\n(include = .*?)```", page, re.DOTALL)
    shown = make(tomllib.loads(text))
    names = "fail_on min_severity min_confidence max_findings second_look samples max_turns"
    names += " max_tokens max_seconds chunk_tokens"

    for name in names.split():
        assert getattr(Config(), name) == getattr(shown, name), name


@pytest.mark.parametrize(
    ("glob", "matching", "others"),
    [
        ("*.py", ["a.py", "src/app/a.py"], ["a.pyi", "src/a.py.txt"]),
        ("a?.py", ["ab.py", "src/ab.py"], ["a.py", "a/.py"]),
        ("docs", ["docs", "docs/a.md", "src/docs/deep/a.md"], ["docs.md", "mydocs/a.md"]),
        ("docs*", ["docs.md", "src/docs.md", "docs/a.md"], ["a/mydocs.md", "README.md"]),
        ("docs/", ["docs/a.md", "src/docs/a.md"], ["docs.md"]),
        ("src/*.py", ["src/a.py"], ["src/app/a.py", "lib/src/a.py"]),
        ("/src/a.py", ["src/a.py"], ["lib/src/a.py"]),
        ("src", ["src/a.py"], ["source/a.py"]),
        ("gen/**", ["gen/a.py", "gen/deep/a.py"], ["gen", "src/gen/a.py"]),
        ("**/gen/**", ["gen/a.py", "src/gen/deep/a.py"], ["gen", "src/gen", "gene/a.py"]),
        ("src/**/test_*.py", ["src/test_a.py", "src/x/y/test_a.py"], ["test_a.py", "src/a.py"]),
        ("**", ["a.py", "src/a.py"], []),
        ("", [], ["a.py"]),
    ],
)
def test_globs_have_the_meaning_of_gitignore(
    glob: str, matching: list[str], others: list[str]
) -> None:
    assert [path for path in (*matching, *others) if matches(path, (glob,))] == matching


def test_a_path_matches_if_one_of_several_globs_matches() -> None:
    globs = ("*.md", "", "gen/**")

    assert matches("a.md", globs)
    assert matches("gen/a.py", globs)
    assert not matches("a.py", globs)
    assert not matches("a.py", ())


@pytest.mark.parametrize(
    "path",
    [
        *("vendor/a.go", "src/vendor/deep/a.go", "node_modules/x/a.js", "web/dist/app.js"),
        *("go.sum", "api/Cargo.lock", "static/app.min.js", "proto/a.pb.go", "proto/a_pb2.py"),
    ],
)
def test_generated_files_are_left_out_at_any_depth_unless_the_settings_replace_the_list(
    path: str,
) -> None:
    left_out = skip(path, make({}))

    assert left_out is not None
    assert (left_out.kind, left_out.reason) == ("excluded", "generated or excluded by config")
    assert skip(path, make({"exclude": []})) is None
    assert matches(path, GENERATED_FILES)


def test_files_outside_the_included_globs_are_left_out_with_the_reason() -> None:
    config = make({"include": ["src"], "exclude": ["*.sql"]})

    reasons = {path: skip(path, config) for path in ("src/a.py", "docs/a.md", "src/a.sql")}

    assert reasons["src/a.py"] is None
    assert [out.reason for out in reasons.values() if out] == [
        "not included by config",
        "generated or excluded by config",
    ]


@pytest.mark.parametrize(("lines", "kind"), [(20_000, ""), (20_001, "too_large")])
def test_file_with_too_many_changed_lines_is_left_out(lines: int, kind: str) -> None:
    left_out = skip("a.py", make({}), lines=lines)

    assert (left_out.kind if left_out else "") == kind
    assert left_out is None or left_out.lines == lines


def test_secret_file_is_blocked_by_its_new_or_old_name() -> None:
    for path, old in ((".env", ""), ("settings.txt", ".env")):
        left_out = skip(path, make({}), old_path=old, lines=3)
        assert left_out is not None
        assert (left_out.kind, left_out.lines) == ("blocked", 3)
    unread = skip(".env", make({}))
    assert unread is not None
    assert unread.lines == 0


def test_only_the_newest_commit_can_skip_the_review() -> None:
    skipped = ChangeCommit(sha="1" * 40, message="Fix\n\n[Skip-Review]")
    other = ChangeCommit(sha="2" * 40, message="Fix")

    assert why_not(ReviewedChange(commits=(skipped, other)), make({})) == (
        "the message of the last commit contains '[skip-review]'"
    )
    assert why_not(ReviewedChange(commits=(other, skipped)), make({})) == ""
