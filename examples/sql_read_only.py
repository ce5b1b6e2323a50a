# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
# ///
"""Questions to a SQLite database: `DATABASE=shop.db python sql_read_only.py "Which items sell?"`.

SQLite itself refuses everything that is not reading, so a clever or hostile query changes nothing.
"""

import os
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

from glue import Agent, ToolError, tool
from glue.providers import default

DATABASE = Path(os.environ.get("DATABASE", "shop.db"))
READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ}
READING |= {sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
SECONDS, ROWS, BYTES = 5, 100, 1_000_000


def run(sql: str) -> list[tuple[object, ...]]:
    """Run one SQL statement that only reads; return the column names and at most 100 rows."""
    end = time.monotonic() + SECONDS
    try:
        with closing(sqlite3.connect(f"{DATABASE.resolve().as_uri()}?mode=ro", uri=True)) as db:
            db.set_authorizer(lambda action, *_: action not in READING)  # 0 allows, 1 denies
            db.set_progress_handler(lambda: time.monotonic() > end, 10_000)
            db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, BYTES)
            rows = db.execute(sql)
            return [tuple(name for name, *_ in rows.description), *rows.fetchmany(ROWS)]
    except (sqlite3.Error, sqlite3.Warning) as error:
        raise ToolError(f"SQLite: {error}") from None


@tool(read_only=True)
def schema() -> str:
    """Return the CREATE statements of all tables, indexes, views and triggers."""
    return "\n".join(
        str(sql) for (sql,) in run("SELECT sql FROM sqlite_master WHERE sql NOT NULL")[1:]
    )


@tool(read_only=True)
def query(sql: str) -> list[tuple[object, ...]]:
    """Run one SELECT statement; the first row has the names of the columns."""
    return run(sql)


agent = Agent(
    default(otherwise="offline:stand-in"),
    tools=[schema, query],
    instructions="Answer in one line. Read the schema before the first query.",
)

if __name__ == "__main__":
    if not DATABASE.is_file():
        sys.exit(f"error: the database {DATABASE} does not exist; name one: DATABASE=FILE")
    agent.cli()
