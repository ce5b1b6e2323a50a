# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
# ///
"""Sort tickets by team, once a night: `python nightly_map.py tickets.csv sorted.jsonl`.

If it is killed or a provider fails, the same command continues: finished rows are not run again.
"""

import argparse
import csv
import json
import sys
from collections import Counter
from enum import Enum
from pathlib import Path

import anyio

import glue
from glue.providers import default


class Team(Enum):
    BILLING = "billing"
    SHIPPING = "shipping"
    SUPPORT = "support"


async def main(agent: glue.Agent[None, Team], source: Path, target: Path) -> int:
    counts: Counter[str] = Counter()
    part = target.with_name(f"{target.name}.part")
    with source.open(newline="") as lines, part.open("w") as out:
        rows = glue.map(
            agent,
            csv.DictReader(lines),
            template="Which team? {subject}: {body}",
            state=f"{target}.state.db",
            resume=True,
            retries=3,
            usd_budget=2.0,
        )
        async for row in rows:
            counts[row.output if row.complete else "failed"] += 1
            if row.complete:
                out.write(json.dumps({"id": row.id, "team": row.output}) + "\n")
            else:
                print(f"{row.id}: {row.outcome}: {row.error}", file=sys.stderr)
    part.replace(target)  # other programs see the old file or the whole new one
    print(", ".join(f"{team}: {count}" for team, count in sorted(counts.items())))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Sort tickets by team.")
    parser.add_argument("source", type=Path, help="the input: CSV with id, subject, body")
    parser.add_argument("target", type=Path, help="the output: JSONL with id, team")
    given = parser.parse_args()
    try:
        sorter = glue.Agent(default(), output=Team, limits=glue.Limits(max_turns=4))
        sys.exit(anyio.run(main, sorter, given.source, given.target))
    except (glue.GlueError, OSError) as error:
        sys.exit(f"error: {error}")
