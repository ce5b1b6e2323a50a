"""Random edits by `edit_file`, compared with an oracle: made, refused, or made wrongly.

    python bench/edit.py [--count 20000] [--seed 1]

A refusal is due if the file does not contain the quote, or contains it more than once.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from fakes.edits import KINDS, Case, agrees, cases

from glue.errors import ToolError
from glue.tools.fs.edit import Replacement, edit_all

COLUMNS = ("made", "refused, due", "refused, not due", "WRONG")


def judge(case: Case) -> str:
    """Return the column in which one edit is counted."""
    try:
        done = edit_all(case.content, [Replacement(old=old, new=new) for old, new in case.edits])
    except ToolError:
        return "refused, not due" if case.unique and case.expected is not None else "refused, due"
    return "made" if agrees(case, done.content) else "WRONG"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    counts = Counter((case.kind, judge(case)) for case in cases(given.seed, given.count))
    print(f"{'':18}" + "".join(f"{name:>18}" for name in COLUMNS))
    for kind in KINDS:
        print(f"{kind:18}" + "".join(f"{counts[kind, name]:>18,}" for name in COLUMNS))
    wrong = sum(counts[kind, "WRONG"] for kind in KINDS)
    print(f"{given.count:,} edits, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
