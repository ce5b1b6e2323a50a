"""Arguments of a call that arrive as values with a path each, as Vertex streams them."""

from __future__ import annotations

import re
from itertools import pairwise

from glue.types import Json

_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d{1,9})\]|\['([^']*)'\]|\[\"([^\"]*)\"\]")
_MOST_GAP = 1000  # elements that may be skipped in a list; no server does, a hostile one might
_VALUES = ("stringValue", "numberValue", "boolValue", "nullValue")


class PartialArguments:
    """Build the object that `[{jsonPath, stringValue, willContinue}, ...]` spells out."""

    def __init__(self) -> None:
        self.value: dict[str, Json] = {}

    def add(self, pieces: list[dict[str, Json]]) -> None:
        """Take the next pieces; raises ValueError, TypeError or KeyError where they make no sense."""
        for piece in pieces:
            place, last = _place(self.value, _steps(piece["jsonPath"]))
            name = next((name for name in _VALUES if name in piece), "stringValue")
            value = None if name == "nullValue" else piece.get(name, "")
            if isinstance(place[last], str) and isinstance(value, str):
                place[last] += value  # a path that comes again goes on
            else:
                place[last] = value


def _steps(path: str) -> list[str | int]:
    steps: list[str | int] = []
    at = 1
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None:
            raise ValueError(f"no path: {path!r}")
        number = found[2]
        steps.append(
            int(number) if number else next(name for name in (found[1], found[3], found[4]) if name is not None)
        )
        at = found.end()
    if not steps or path[0] != "$":
        raise ValueError(f"no path: {path!r}")
    return steps


def _place(root: Json, steps: list[str | int]) -> tuple[Json, str | int]:
    """Return the object or list that holds the last step, made on the way."""
    place = root
    for step, following in pairwise(steps):
        inner = _get(place, step)
        if not isinstance(inner, list if isinstance(following, int) else dict):
            inner = place[step] = [] if isinstance(following, int) else {}
        place = inner
    _get(place, steps[-1])
    return place, steps[-1]


def _get(place: Json, step: str | int) -> Json:
    if isinstance(step, str):
        return place.setdefault(step)
    if step > len(place) + _MOST_GAP:
        raise ValueError(f"a list of {len(place)} has no element {step}")
    place.extend([None] * (step + 1 - len(place)))
    return place[step]
