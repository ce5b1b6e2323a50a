"""Many runs with `map`, and durable runs on DBOS that another process can resume."""

from glue.durable.batch import MapRun, map  # noqa: A004
from glue.durable.engine import Durable
from glue.durable.rates import Rate
from glue.durable.rows import MapRow

__all__ = ["Durable", "MapRow", "MapRun", "Rate", "map"]
