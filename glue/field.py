"""What `Annotated` may say of a parameter: a description, bounds, a pattern, examples."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from glue.faults import show
from glue.types import Json


class CannotDescribe(TypeError):
    """A type that no JSON schema describes."""


class Field:
    """Say more of a parameter than its type does: `Annotated[int, Field("pages", ge=1, le=50)]`."""

    __slots__ = ("description", "examples", "words")

    def __init__(
        self,
        description: str = "",
        *,
        ge: float | None = None,
        gt: float | None = None,
        le: float | None = None,
        lt: float | None = None,
        multiple_of: float | None = None,
        min_length: int | None = None,
        max_length: int | None = None,
        pattern: str | None = None,
        examples: Sequence[Json] = (),
    ) -> None:
        self.description = description
        self.examples = list(examples)
        self.words: dict[str, Json] = {
            name: value
            for name, value in (
                ("minimum", ge),
                ("exclusiveMinimum", gt),
                ("maximum", le),
                ("exclusiveMaximum", lt),
                ("multipleOf", multiple_of),
                ("min", min_length),
                ("max", max_length),
                ("pattern", pattern),
            )
            if value is not None
        }
        if pattern is not None:
            re.compile(pattern)

    def __repr__(self) -> str:
        return f"Field({self.description!r}, {self.words!r})"


def constrain(schema: dict[str, Json], field: Field) -> dict[str, Json]:
    """Add a Field's description, bounds and examples to a schema."""
    schema = dict(schema)
    if "anyOf" in schema:
        schema["anyOf"] = [dict(option) for option in schema["anyOf"]]
    for word, bound in field.words.items():
        parts = [part for part in schema.get("anyOf", [schema]) if _word(part, word)]
        if not parts:
            raise CannotDescribe(f"{word} says nothing of {show(schema)}")
        for part in parts:
            part[_word(part, word)] = bound
    if field.description:
        schema["description"] = field.description
    if field.examples:
        schema["examples"] = field.examples
    return schema


_NUMBERS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf")
_SIZES = {"string": "Length", "array": "Items", "object": "Properties"}


def _word(schema: Mapping[str, Json], word: str) -> str | None:
    kind = schema.get("type")
    if word in _NUMBERS:
        return word if kind in ("integer", "number") else None
    if word == "pattern":
        return word if kind == "string" else None
    return word + _SIZES[kind] if kind in _SIZES else None
