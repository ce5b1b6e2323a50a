"""Tool calls that arrive in fragments, as chat servers send them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from glue.providers import wire
from glue.types import Json, Opaque, ToolCall, ToolCallDelta, new_id


@dataclass(slots=True)
class Slot:
    position: int
    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    extra: dict[str, Json] | None = None


class Calls:
    """Join fragments to calls, whatever the server does to ids and indexes."""

    def __init__(self) -> None:
        self._slots: list[Slot] = []
        self._by_index: dict[object, Slot] = {}

    def __bool__(self) -> bool:
        return bool(self._slots)

    def add(self, fragments: list[Json]) -> list[ToolCallDelta]:
        """Take the fragments of one chunk."""
        deltas = []
        for fragment in fragments:
            function = fragment.get("function") or {}
            name, text = wire.text_of(function.get("name")), _argument_text(function.get("arguments"))
            slot = self._slot(fragment.get("index"), wire.text_of(fragment.get("id")), name)
            if text:
                slot.pieces.append(text)
            if fragment.get("extra_content"):
                slot.extra = {"extra_content": fragment["extra_content"]}
            deltas.append(ToolCallDelta(index=slot.position, id=slot.id, name=slot.name, arguments=text))
        return deltas

    def _slot(self, index: Json, call_id: str, name: str) -> Slot:
        # An index is a key, not a position: one server starts at 1, others send none or repeat 0.
        slot = self._by_index.get(index) if index is not None else self._slots[-1] if self._slots else None
        if index is None and call_id and slot is not None and (name or slot.id != call_id):
            slot = None
        if slot is not None and call_id and slot.id and slot.id != call_id:
            slot = None
        if slot is None:
            slot = Slot(len(self._slots))
            self._slots.append(slot)
        if index is not None:
            self._by_index[index] = slot
        slot.id = slot.id or call_id
        slot.name = slot.name or name
        return slot

    def parts(self, *, cut: bool, seed: str = "", wire_name: str = "openai_chat") -> list[ToolCall]:
        """Return the calls; of a reply that was cut, only what is whole counts as complete."""
        calls = []
        used: set[str] = set()
        for slot in self._slots:
            text = "".join(slot.pieces)
            is_last = slot is self._slots[-1]
            call_id = slot.id if slot.id and slot.id not in used else _made_up(seed, slot.position)
            used.add(call_id)
            calls.append(
                ToolCall(
                    id=call_id,
                    name=slot.name,
                    arguments=text,
                    complete=not cut or is_object(text) or not (text or is_last),
                    opaque=Opaque(wire=wire_name, data=slot.extra) if slot.extra else None,
                )
            )
        return calls


def is_object(text: str) -> bool:
    """Say whether a text is one whole JSON object."""
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _argument_text(value: Json) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else wire.dumps(value).decode()


def _made_up(seed: str, position: int) -> str:
    return "call_" + (wire.short_id(f"{seed} {position}", 20) if seed else new_id())
