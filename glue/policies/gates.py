"""Gates: allow lists decide which tools a request offers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from glue.events import GateApplied, GateConflict, GateList
from glue.messages import Request
from glue.policies import Change, Hook, Policy

if TYPE_CHECKING:
    from glue.loop.state import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """An allow list. `allow` may be a function of the state; None means that it has no opinion now."""

    name: str
    allow: Collection[str] | Callable[[State], Collection[str] | None]
    priority: int = 0
    required: bool = False  # drops advisory gates of lower priority while it suppresses something
    reason: str = ""  # for whoever reads the events

    def __post_init__(self) -> None:
        if not callable(self.allow):
            self._check(self.allow)

    def allowed(self, state: State) -> frozenset[str] | None:
        names = self.allow(state) if callable(self.allow) else self.allow
        return None if names is None else frozenset(self._check(names))

    def _check(self, names: object) -> Collection[str]:
        if isinstance(names, str) or not isinstance(names, Collection):
            raise TypeError(f"gate {self.name!r} must allow a list of tools' names, not {names!r}")
        return names


class Gates(Policy):
    """Narrow the tools of each request. A permission is never a gate."""

    place = "gates"

    def __init__(self, *gates: Gate) -> None:
        if wrong := [gate for gate in gates if not isinstance(gate, Gate)]:
            raise TypeError(f"Gates takes glue.policies.Gate objects, not {wrong[0]!r}")
        self.gates = gates

    def before_request(self, state: State, request: Request) -> Hook:
        asked = [(gate, allow) for gate in self.gates if (allow := gate.allowed(state)) is not None]
        if not asked:
            return None
        tools = frozenset(spec.name for spec in request.tools)
        above = [gate.priority for gate, allow in asked if gate.required and tools - allow]
        active = [
            each for each in asked if each[0].required or each[0].priority >= max(above, default=each[0].priority)
        ]
        allowed, winner = join(active)
        names = tuple(gate.name for gate, _ in active)
        lists = tuple(
            GateList(
                name=gate.name,
                allowed=tuple(sorted(allow)),
                priority=gate.priority,
                required=gate.required,
                reason=gate.reason,
                dropped=(gate, allow) not in active,
            )
            for gate, allow in asked
        )
        if winner:
            state.emit(GateConflict(winner=winner, gates=names, lists=lists))
        kept = tuple(spec for spec in request.tools if spec.name in allowed)
        state.emit(GateApplied(gates=names, allowed=tuple(spec.name for spec in kept), lists=lists))
        return Change(replace(request, tools=kept, tool_choice=_choice(request.tool_choice, allowed, bool(kept))))


def join(active: Sequence[tuple[Gate, frozenset[str]]]) -> tuple[frozenset[str], str]:
    """Intersect; where nothing is left, one gate wins: by priority, then the smaller set, then by name.

    Returns the names and the winner, empty where there was no conflict.
    """
    allowed = frozenset.intersection(*(allow for _, allow in active))
    if allowed or not any(allow for _, allow in active):
        return allowed, ""
    winner, allow = min(active, key=lambda item: (-item[0].priority, len(item[1]), item[0].name))
    return allow, winner.name


def _choice(choice: str, allowed: frozenset[str], any_left: bool) -> str:
    """Keep a forced choice only while it can be followed."""
    if choice in ("auto", "none") or (any_left and (choice == "required" or choice in allowed)):
        return choice
    return "auto"
