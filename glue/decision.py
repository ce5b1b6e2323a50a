"""Requests for permission, decisions on them, and calls that wait for a decision or a result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from glue.checks import check_text, show
from glue.codec import Json

Scope: TypeAlias = Literal["call", "target", "session", "always"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionTarget:
    """The files that a tool call affects, or the command that the call runs.

    Permission rules check the files and the command, and questions to the user show them.

    The function that is passed to `glue.tool` as `target=` returns a PermissionTarget or a string.
    """

    text: str  # shown to the user
    paths: tuple[str, ...] = ()  # paths of the files below the root, with links resolved
    command: str | tuple[str, ...] | None = None  # a shell line, or a program and its arguments
    folder: str = ""  # the working folder of the command
    conditions: str = ""  # how the command runs: its sandbox, and whether in the background
    preview: str = ""  # removed and added lines of a change
    mark: str = ""  # identifies the state of the target, such as a hash of the file
    folds: bool = False  # the file system ignores case and Unicode forms in names


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionRequest:
    """The question whether a tool may run, with exactly the arguments of the call."""

    tool: str
    action: str  # decisions are remembered for an action; by default the name of the tool
    target: str = ""  # a path or a command, for example
    arguments: Mapping[str, Any]
    call_id: str = ""
    # The id of the session, of the caller's session for a sub-agent, or of a run without a session.
    session_id: str = ""
    touched: PermissionTarget | None = None
    reason: str = ""  # why the rules do not decide, such as a rule that may forbid the call


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A decision on a permission request, its reason, and the calls for which it is remembered.

    `remember` is "call" for this call only, "target" for this action on this target, "session" for
    this action in this session, and "always" for this action as long as the policy object exists.
    `deferred` is True if no decision is possible now: the run ends `paused`.
    """

    allowed: bool
    reason: str = ""
    remember: Scope = "call"
    deferred: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCall:
    """A call that waits for a decision or a result.

    >>> for call in result.pending:  # doctest: +SKIP
    ...     print(call.id, call.tool, call.request.target)
    """

    id: str  # the key in `decisions`; "OUTER/INNER" for a call of a sub-agent
    tool: str
    arguments: Mapping[str, Json]
    # The question that a person sees. None for an external tool, which needs a result instead.
    request: PermissionRequest | None = None
    reason: str = ""
    path: tuple[str, ...] = ()  # the names of the sub-agents between the run and the call

    @property
    def summary(self) -> str:
        """One line about the call: the names of its sub-agents, the tool and the target."""
        target = self.request.target if self.request is not None else ""
        return " ".join(
            part for part in (*(f"{name}:" for name in self.path), self.tool, target) if part
        )


def allow(remember: Scope = "call") -> Decision:
    """Return a decision that allows the call, and later calls in the scope `remember`.

    The scope "call" is this call only.
    """
    _check_scope(remember)
    return Decision(allowed=True, remember=remember)


def deny(reason: str = "", remember: Scope = "call") -> Decision:
    """Return a decision that refuses the call, with a reason for the model.

    Later calls in the scope `remember` are refused too. The scope "call" is this call only.
    """
    check_text("reason", reason)
    _check_scope(remember)
    return Decision(allowed=False, reason=reason, remember=remember)


def defer(reason: str = "") -> Decision:
    """Return a decision that postpones the call until a person has decided.

    The run ends with the outcome `paused`. `agent.resume` or `session.resume` continues the run, in
    any process:

        result = await session.resume(decisions={call.id: glue.allow()})
    """
    check_text("reason", reason)
    return Decision(allowed=False, reason=reason, deferred=True)


def _check_scope(remember: object) -> None:
    if remember not in get_args(Scope):
        scopes = ", ".join(get_args(Scope))
        raise ValueError(f"remember must be one of {scopes}, not {show(remember)}")
