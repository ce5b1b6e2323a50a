"""Many runs, and runs that survive the machine: `map`, and durable runs on DBOS."""

from glue.durable.batch import Map, map  # noqa: A004
from glue.durable.engine import Durable
from glue.durable.rates import Rate
from glue.durable.rows import MapRow

__all__ = ["Durable", "Map", "MapRow", "Rate", "map"]
