"""edit_file against an oracle: random files, random edits, quotes that are exact, off or stale."""

from __future__ import annotations

import os
from collections import Counter

from fakes.edits import KINDS, agrees, cases

from glue.errors import ToolError
from glue.tools.fs.edit import Replacement, edit_all

COUNT = int(os.environ.get("GLUE_EDITS", "2000"))


def test_random_edits_are_made_as_quoted_or_refused() -> None:
    counts: Counter[str] = Counter()
    for case in cases(20_261_116, COUNT):
        try:
            done = edit_all(case.content, [Replacement(old=old, new=new) for old, new in case.edits])
        except ToolError:
            counts["refused, not due"] += case.unique and case.expected is not None
            continue
        assert agrees(case, done.content), case
        counts[case.kind] += 1

    assert not [kind for kind in ("stale line", "line left out", "line too many") if counts[kind]]
    made = sum(counts[kind] for kind in KINDS)
    assert made > 0.65 * COUNT
    assert counts["refused, not due"] < 0.01 * COUNT  # where one depth does not tell how wide the steps are
