"""Settings of a review."""

from __future__ import annotations

from typing import Any

import pytest

from glue.agents.review.change.config import make, why_not
from glue.agents.review.records import ReviewedChange
from glue.errors import ConfigError


@pytest.mark.parametrize(
    ("change", "config", "reason"),
    [
        (ReviewedChange(title="[skip-review] x"), {}, "the title contains"),
        (ReviewedChange(labels=("skip-review",)), {}, "it has the label"),
        (ReviewedChange(draft=True), {"skip_drafts": True}, "it is a draft"),
        (ReviewedChange(author="bot"), {"skip_authors": ["bot"]}, "changes by bot"),
        (ReviewedChange(title="Draft: x"), {"skip_titles": ["draft:"]}, "the title contains"),
        (ReviewedChange(title="[skip-review] x"), {"skip_titles": ["draft:"]}, ""),
        (ReviewedChange(labels=("later",)), {"skip_labels": ["later"]}, "it has the label later"),
        (ReviewedChange(title="x", draft=True), {}, ""),
    ],
)
def test_changes_are_skipped_by_title_label_author_or_draft(
    change: ReviewedChange, config: dict[str, Any], reason: str
) -> None:
    assert why_not(change, make(config)).startswith(reason)


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        ({"fail_on": "loud"}, "fail_on must be one of"),
        ({"max_turns": -1}, "max_turns must be a whole number"),
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
