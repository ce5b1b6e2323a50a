"""Gates: allow lists that decide which tools a request offers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from glue.events import GateApplied, GateConflict, GateList
from glue.messages import Request
from glue.policies.actions import Change, Hook
from glue.policies.policy import Policy

if TYPE_CHECKING:
    from glue.loop.state import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """An allow list for `Gates`: the tools that a request may offer to the model.

    `allow` may be a function that is called with the state of the run before each request. If the
    function returns None, the gate does not apply to that request.
    """

    name: str
    allow: Collection[str] | Callable[[State], Collection[str] | None]
    priority: int = 0
    # If a required gate removes a tool, gates of lower priority that are not required are ignored.
    required: bool = False
    reason: str = ""  # appears in the events

    def __post_init__(self) -> None:
        if not callable(self.allow):
            self._check(self.allow)

    def allowed(self, state: State) -> frozenset[str] | None:
        """Return the names of the allowed tools, or None if the gate does not apply now."""
        names = self.allow(state) if callable(self.allow) else self.allow
        return None if names is None else frozenset(self._check(names))

    def _check(self, names: object) -> Collection[str]:
        if isinstance(names, str) or not isinstance(names, Collection):
            raise TypeError(f"gate {self.name!r} must allow a list of tools' names, not {names!r}")
        return names


Vote: TypeAlias = tuple[Gate, frozenset[str]]  # a gate and the tools that it allows now


class Gates(Policy):
    """A policy that offers the model only the tools that all gates allow.

        def planning(state):
            return ["read_file"] if state.turns < 3 else None

        agent = Agent(
            "openai:gpt-5.4-nano",
            tools=[read_file, write_file],
            policies=[Gates(Gate(name="plan first", allow=planning))],
        )

    If the gates have no tool in common, the gate with the highest priority decides alone.

    A gate hides tools that do not help the model now. A gate is not a protection: use a permission
    for that.
    """

    place = "gates"

    def __init__(self, *gates: Gate) -> None:
        if wrong := [gate for gate in gates if not isinstance(gate, Gate)]:
            raise TypeError(f"Gates takes glue.policies.Gate objects, not {wrong[0]!r}")
        self.gates = gates

    def before_request(self, state: State, request: Request) -> Hook:
        asked = [(gate, gate.allowed(state)) for gate in self.gates]
        votes = [(gate, allow) for gate, allow in asked if allow is not None]
        if not votes:
            return None
        active = _drop_overruled(votes, frozenset(spec.name for spec in request.tools))
        allowed, winner = join(active)
        names = tuple(gate.name for gate, _ in active)
        kept_gates = [gate for gate, _ in active]
        lists = tuple(_report(gate, allow, gate in kept_gates) for gate, allow in asked)
        if winner:
            state.emit(GateConflict(winner=winner, gates=names, lists=lists))
        kept = tuple(spec for spec in request.tools if spec.name in allowed)
        state.emit(GateApplied(gates=names, allowed=tuple(spec.name for spec in kept), lists=lists))
        choice = _choice(request.tool_choice, allowed, bool(kept))
        return Change(replace(request, tools=kept, tool_choice=choice))


def _drop_overruled(votes: Sequence[Vote], tools: frozenset[str]) -> list[Vote]:
    """Return the votes without optional gates that rank below a required gate that hides a tool.

    Gates rank by their priority. A vote is a gate with the tools that it allows. A gate hides a
    tool if it does not allow all of `tools`.
    """
    restricting = [gate.priority for gate, allow in votes if gate.required and tools - allow]
    if not restricting:
        return list(votes)
    return [vote for vote in votes if vote[0].required or vote[0].priority >= max(restricting)]


def join(votes: Sequence[Vote]) -> tuple[frozenset[str], str]:
    """Return the tools to offer, and the name of the gate that decided alone, or "" if none did.

    The tools are those that all gates allow, and the name is "". But if the gates have no tool in
    common, one gate decides alone: the gate with the highest priority,
    then with the fewest tools, then with the first name in the alphabet. If no gate allows any
    tool, return no tools and "".
    """
    allowed = frozenset.intersection(*(allow for _, allow in votes))
    if allowed or not any(allow for _, allow in votes):
        return allowed, ""
    winner, allow = min(votes, key=lambda vote: (-vote[0].priority, len(vote[1]), vote[0].name))
    return allow, winner.name


def _report(gate: Gate, allow: frozenset[str] | None, is_active: bool) -> GateList:
    return GateList(
        name=gate.name,
        allowed=tuple(sorted(allow or ())),
        priority=gate.priority,
        required=gate.required,
        reason=gate.reason,
        dropped=allow is not None and not is_active,
        abstained=allow is None,
    )


def _choice(choice: str, allowed: frozenset[str], any_left: bool) -> str:
    """Return `choice`, or "auto" if `choice` demands a tool that is not offered."""
    if choice in ("auto", "none") or (any_left and (choice == "required" or choice in allowed)):
        return choice
    return "auto"
