# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
# ///
"""Questions about CSV files: `python csv_questions.py "Which columns are in sales.csv?"`.

The model sees column names and sums, not the whole table. Only files below the current folder can
be read.
"""

import csv
import io
from collections import defaultdict

from glue import Agent, ToolError, tool
from glue.providers import default
from glue.tools import safe_open


def read(file: str, *needed: str) -> list[dict[str, str]]:
    """Return the rows of a CSV file; raise ToolError if it cannot be opened or lacks a column."""
    try:
        content = safe_open(".", file)
    except OSError as error:
        raise ToolError(f"{file}: {error.strerror}") from None
    with io.TextIOWrapper(content, "utf-8-sig", newline="") as text:
        table = csv.DictReader(text, restval="")
        names = table.fieldnames or []
        if missing := [name for name in needed if name not in names]:
            raise ToolError(f"{missing[0]!r} is not a column; {file} has: {', '.join(names)}")
        return list(table)


@tool(read_only=True)
def columns(file: str) -> dict[str, list[str]]:
    """Return the columns of a CSV file, each with up to three of its values."""
    rows = read(file)
    return {name: [row[name] for row in rows[:3]] for name in (rows[0] if rows else ())}


@tool(read_only=True)
def total(file: str, amount: str, by: str) -> dict[str, float]:
    """Add up the numbers in the column `amount`, for each value of the column `by`."""
    totals: dict[str, float] = defaultdict(float)
    for number, row in enumerate(read(file, amount, by), 2):
        try:
            totals[row[by]] += float(row[amount])
        except ValueError:
            raise ToolError(f"line {number}: {row[amount]!r} is not a number") from None
    return totals


agent = Agent(
    default(otherwise="offline:stand-in"),
    tools=[columns, total],
    instructions="Answer from the table alone, in one line. Look at the columns first.",
)

if __name__ == "__main__":
    agent.cli()
