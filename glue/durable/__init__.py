"""Runs on many inputs (`map`) or one (`run_row`), and runs that survive a crash (`Durable`)."""

from glue.durable.batch import MapRun, map  # noqa: A004
from glue.durable.ledger import Rate
from glue.durable.rows import MapRow, Row
from glue.durable.runner import run_row, run_row_sync
from glue.durable.runs import Durable

__all__ = ["Durable", "MapRow", "MapRun", "Rate", "Row", "map", "run_row", "run_row_sync"]
