"""Who may do what: a policy is asked before a tool that needs permission runs. No policy means no."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from anyio import Lock
    from anyio.lowlevel import RunVar

Scope: TypeAlias = Literal["call", "target", "session", "always"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionRequest:
    """What a tool is about to do, exactly as it will do it."""

    tool: str
    action: str  # what is remembered: the tool's name unless it says otherwise
    target: str = ""  # on what: a path, a command
    arguments: Mapping[str, Any]
    call_id: str = ""
    session_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Yes or no, why, and for how long.

    `call`: this once. `target`: this action on this target. `session`: this action in this session.
    `always`: this action, for as long as the policy lives.
    """

    allowed: bool
    reason: str = ""
    remember: Scope = "call"


def allow(remember: Scope = "call") -> Decision:
    """Say yes."""
    return Decision(allowed=True, remember=remember)


def deny(reason: str = "", remember: Scope = "call") -> Decision:
    """Say no; the model is told the reason."""
    return Decision(allowed=False, reason=reason, remember=remember)


class Permission(Protocol):
    """A policy. Whatever it raises counts as no."""

    def decide(self, request: PermissionRequest) -> Decision | Awaitable[Decision]: ...


class AllowAll:
    """Allow everything: for tests, and for tools that are harmless where they run."""

    def decide(self, request: PermissionRequest) -> Decision:
        return allow()


class DenyAll:
    """Refuse everything, with one reason."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason

    def decide(self, request: PermissionRequest) -> Decision:
        return deny(self.reason)


class Rules:
    """Decide by name: `Rules(allow=["write_file:docs/*"], deny=["shell"])`.

    A rule is an action, or `action:pattern` with shell wildcards for the target. A refusal wins over a
    permission; what no rule covers goes to `otherwise`. A pattern is no sandbox: `shell:git *` also
    matches `git log; rm -rf ~`.
    """

    def __init__(
        self, *, allow: Iterable[str] = (), deny: Iterable[str] = (), otherwise: Permission | None = None
    ) -> None:
        self.allowed, self.denied = tuple(allow), tuple(deny)
        self.otherwise: Permission = otherwise or DenyAll("no rule allows it")

    def decide(self, request: PermissionRequest) -> Decision | Awaitable[Decision]:
        for rule in self.denied:
            if _covers(rule, request):
                return deny(f"the rule {rule!r} forbids it")
        if any(_covers(rule, request) for rule in self.allowed):
            return allow()
        return self.otherwise.decide(request)


def _covers(rule: str, request: PermissionRequest) -> bool:
    action, colon, pattern = rule.partition(":")
    return fnmatchcase(request.action, action) and (not colon or fnmatchcase(request.target, pattern))


Answer: TypeAlias = Decision | bool
Asker: TypeAlias = Callable[[PermissionRequest], Answer | Awaitable[Answer]]


class Ask:
    """Ask a person through a callback, one question at a time, and remember the answer as it says.

    A plain function is called in a thread (it may wait at a terminal), an async one in the event loop.
    """

    def __init__(self, callback: Asker) -> None:
        self.callback = callback
        self.remembered: dict[tuple[str, str, str], Decision] = {}  # by scope, action, and target or session
        self._lock: RunVar[Lock] | None = None

    def forget(self) -> None:
        """Ask again from now on."""
        self.remembered.clear()

    async def decide(self, request: PermissionRequest) -> Decision:
        known = self._recall(request)
        if known is not None:
            return known
        async with self._turn():
            known = self._recall(request)  # answered while we waited for our turn
            if known is not None:
                return known
            decision = await self._ask(request)
            self._keep(request, decision)
            return decision

    def _recall(self, request: PermissionRequest) -> Decision | None:
        found = [self.remembered.get(key) for key in _keys(request).values()]
        return next((decision for decision in found if decision is not None), None)

    def _keep(self, request: PermissionRequest, decision: Decision) -> None:
        if decision.remember != "call":
            self.remembered[_keys(request)[decision.remember]] = decision

    def _turn(self) -> Lock:
        import anyio
        from anyio.lowlevel import RunVar

        if self._lock is None:
            self._lock = RunVar(f"glue-ask-{id(self)}")
        lock = self._lock.get(None)  # one for each event loop: an agent may serve several
        if lock is None:
            lock = anyio.Lock()
            self._lock.set(lock)
        return lock

    async def _ask(self, request: PermissionRequest) -> Decision:
        import inspect

        import anyio.to_thread

        answer: Any
        if inspect.iscoroutinefunction(self.callback) or inspect.iscoroutinefunction(type(self.callback).__call__):
            answer = self.callback(request)
        else:
            answer = await anyio.to_thread.run_sync(self.callback, request, abandon_on_cancel=True)
        if inspect.isawaitable(answer):
            answer = await answer
        return as_decision(answer)


def _keys(request: PermissionRequest) -> dict[str, tuple[str, str, str]]:
    return {
        "target": ("target", request.action, request.target),
        "session": ("session", request.action, request.session_id),
        "always": ("always", request.action, ""),
    }


def as_decision(answer: object) -> Decision:
    """Take a policy's answer; anything but a clear yes is a no."""
    if isinstance(answer, Decision):
        return answer
    if answer is True:
        return allow()
    return deny("" if answer is False else f"the policy answered {answer!r}, which is no decision")
