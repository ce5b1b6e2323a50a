"""The events of a run, one JSON object a line as `--json` prints them, as a transcript."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from glue.codec import message_from_json
from glue.errors import StoreError
from glue.types import AssistantMessage, Attempt, Json
from glue.view.escape import count, seconds
from glue.view.model import Entry, Note, Transcript, attempts_of
from glue.view.sources import WANTED, entry_of

# Events that say why the run went as it did; the others are shown as messages, or are pieces of these.
_TOLD = frozenset(
    "continuation_attempt continuation_terminated tool_payload_repair output_cap_escalated compacted wrap_up"
    " limit_reached guardrail gate_conflict".split()
)
_ENDED = "The run ended: "


def read_events(path: Path, text: str) -> Transcript:
    """Read events; a kind that only a newer version knows is passed over."""
    entries: list[Entry | Note] = []
    attempts: list[Attempt] = []
    known = 0
    for event in _events(path, text):
        kind = event["type"]
        known += kind in ("run_start", "message_end", "run_end", "result")
        if kind == "attempt":
            attempts += attempts_of([event])
        elif kind == "message_end":
            entries.append(_with(entry_of(message_from_json(event["message"])), attempts))
        elif kind == "tool_end":
            said = event.get("seconds")
            took = float(said) if isinstance(said, (int, float)) else None
            entries.append(entry_of(message_from_json(event["message"]), seconds=took))
        elif kind in _TOLD:
            entries.append(Note(kind="event", text=_told(event)))
        elif kind == "result" or (kind == "run_end" and "outcome" in event):
            if entries and isinstance(last := entries[-1], Note) and last.text.startswith(_ENDED):
                entries.pop()  # the result says the same and more
            entries.append(_end(event, attempts))
    if not known:
        raise StoreError(f"{path} holds nothing that can be shown; wanted is {WANTED}")
    return Transcript(title=path.name, source="events of a run", entries=tuple(entries))


def _events(path: Path, text: str) -> Iterator[Mapping[str, Json]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            event = json.loads(line)
        except ValueError:
            raise StoreError(f"{path}, line {number}: not JSON") from None
        if isinstance(event, Mapping) and isinstance(event.get("type"), str):
            yield event


def _with(entry: Entry, attempts: list[Attempt]) -> Entry:
    if not attempts or not isinstance(entry.message, AssistantMessage):
        return entry
    tried = tuple(attempts)
    attempts.clear()
    return replace(entry, attempts=tried)


def _told(event: Mapping[str, Json]) -> str:
    values = ", ".join(f"{key} {value}" for key, value in event.items() if key != "type" and value not in (None, ""))
    return f"{str(event['type']).replace('_', ' ')}: {values}"


def _end(event: Mapping[str, Json], attempts: list[Attempt]) -> Note:
    tried = tuple(attempts)
    attempts.clear()
    outcome = str(event.get("outcome"))
    error = event.get("error")
    why = f": {error.get('message')}" if isinstance(error, Mapping) else ""
    took = [count(event["requests"], "request")] if isinstance(event.get("requests"), int) else []
    took += [seconds(event["seconds"])] if isinstance(event.get("seconds"), (int, float)) else []
    failed = outcome not in ("done", "wrapped_up")
    return Note(
        kind="failed" if failed else "event", text=f"{_ENDED}{', '.join([outcome, *took])}{why}", attempts=tried
    )
