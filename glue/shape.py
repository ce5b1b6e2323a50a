"""A schema together with the way from JSON to Python: for a tool's arguments, and for structured output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glue.faults import Faults, show
from glue.scalars import Build
from glue.types import Json
from glue.validate import Validator


class Shape:
    """A schema together with the way from JSON to Python; made once, then used for every value."""

    def __init__(self, schema: Mapping[str, Json], build: Build | None = None) -> None:
        self.schema = schema
        self.build = build
        self.validator = Validator(schema)
        self.fits = self.validator.check(schema)

    def read(self, value: Json) -> Any:
        """Coerce, validate and build; raises Faults."""
        if self.fits is None or not self.fits(value):
            from glue.coerce import coerce

            value = coerce(self.validator, value)
            faults = self.validator.faults(value)
            if faults is not None:
                raise faults
        if self.build is None:
            return value
        try:
            return self.build(value)
        except Faults:
            raise
        except Exception as error:  # a class may refuse a value in its own way
            raise Faults([((), f"got {show(value)}: {type(error).__name__}: {error}")]) from error
