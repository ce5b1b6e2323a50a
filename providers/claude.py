"""Facts about Claude models, as data, for the two wires that carry them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from glue.messages import AssistantMessage, Effort, Json
from glue.providers.catalog import Row
from glue.providers.encoding import is_own, lower

BUDGETS: dict[str, int] = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16_000, "xhigh": 24_000, "max": 32_000}

_LEVELS = ("none", "low", "medium", "high")


class Claude(NamedTuple):
    max_output: int  # a cap that the model accepts, for requests that name none
    thinking: Literal["", "budget", "adaptive"]
    sampling: bool  # whether it takes a temperature
    output: bool  # whether it takes a schema for its answer
    levels: tuple[str, ...] = ()  # of adaptive thinking; with a budget all levels are told apart

    @property
    def efforts(self) -> tuple[str, ...]:
        return ("none", *BUDGETS) if self.thinking == "budget" else self.levels


# By version, newest first; a model has the facts of the first row that is not newer than itself.
_FACTS = (
    ((4, 7), Claude(32_000, "adaptive", False, True, (*_LEVELS, "xhigh", "max"))),
    ((4, 6), Claude(32_000, "adaptive", True, True, (*_LEVELS, "max"))),
    ((4, 5), Claude(32_000, "budget", True, True)),
    ((3, 7), Claude(32_000, "budget", True, False)),
    ((3, 5), Claude(8_192, "", True, False)),
    ((0, 0), Claude(4_096, "", True, False)),
)
# Other vendors serve their own models on Anthropic's wire.
_OTHER = Claude(8_192, "budget", True, False)

_NAME = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
_SUFFIX = re.compile(r"(?:-latest|[-@]20\d{6}|-v\d+(?::\d+)?|-0)+$")


def facts(model: str) -> Claude:
    """Return what is known of a model by its name."""
    if "claude" not in model:
        return _OTHER
    found = _NAME.search(model)
    if found is None:
        return _FACTS[0][1]  # a name without a version is a newer one
    version = (int(found[1]), int(found[2] or 0))
    return next(known for since, known in _FACTS if version >= since)


def family(model: str) -> str:
    """Strip a name of region, vendor, date and revision: what is left must agree for a signature to be valid."""
    start = model.find("claude")
    return _SUFFIX.sub("", model[max(start, 0) :])


def is_signed(message: AssistantMessage, row: Row, model: str) -> bool:
    """Say whether the signatures in a reply are valid for a model."""
    return is_own(message, row) and family(message.model) == family(model)


def thinking(known: Claude, effort: Effort | None, max_tokens: int) -> dict[str, Json]:
    """Return the fields that ask for thinking; empty where nothing is to be said."""
    if effort is None or not known.thinking:
        return {}
    if effort == "none":
        return {"thinking": {"type": "disabled"}} if known.thinking == "adaptive" else {}
    if known.thinking == "adaptive":
        level = lower(effort, known.levels)
        # Without `display` the newer models send signatures and no text.
        return {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": level}}
    budget = min(BUDGETS[effort], max_tokens // 2)  # the answer needs room below the same cap
    return {"thinking": {"type": "enabled", "budget_tokens": budget}} if budget >= BUDGETS["minimal"] else {}


# What its grammar compiler refuses; we check these after the reply anyway.
_DROPPED = frozenset(
    (
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength"),
        *("pattern", "maxItems", "uniqueItems", "minProperties", "maxProperties"),
        *("default", "examples", "title", "$schema"),
    )
)


def output_schema(schema: Json) -> Json | None:
    """Return a schema in the dialect of structured output, or None where it cannot be said in it."""
    try:
        return _dialect(schema)
    except ValueError:
        return None


def _dialect(schema: Json) -> Json:
    if isinstance(schema, list):
        return [_dialect(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    result = dict(_keywords(schema))
    if schema.get("type") == "object" or "properties" in schema:
        # An object of free keys has no closed form.
        if schema.get("additionalProperties") not in (None, False) or not schema.get("properties"):
            raise ValueError("open object")
        result["additionalProperties"] = False
    if result.get("minItems", 0) not in (0, 1):
        del result["minItems"]
    return result


def _keywords(schema: Mapping[str, Json]) -> Iterator[tuple[str, Json]]:
    for name, value in schema.items():
        if name in ("properties", "$defs", "definitions") and isinstance(value, Mapping):
            yield name, {key: _dialect(inner) for key, inner in value.items()}
        elif name in ("enum", "const", "required", "description", "type"):
            yield name, value
        elif name not in _DROPPED:
            yield name, _dialect(value)
