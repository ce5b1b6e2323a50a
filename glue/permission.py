"""Permission: policies that decide whether a tool that needs permission may run."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from posixpath import normpath
from typing import Any, Protocol, TypeAlias

import anyio
from anyio import Lock
from anyio.lowlevel import RunVar

from glue import shellwords
from glue.checks import check_list, show
from glue.decision import Decision, PermissionRequest, PermissionTarget, allow, defer, deny
from glue.errors import ConfigError
from glue.globs import matches_text
from glue.signature import hinted
from glue.tasks import in_thread
from glue.toolnames import registered_tool_names

MAX_WORDS = 500  # words of a command that rules are compared with; longer commands are unclear

__all__ = [
    "AllowAll",
    "Ask",
    "Decision",
    "DeferAll",
    "DenyAll",
    "Permission",
    "PermissionRequest",
    "PermissionTarget",
    "Rules",
    "allow",
    "defer",
    "deny",
]


class Permission(Protocol):
    """A policy that decides whether a tool may run."""

    def decide(self, request: PermissionRequest) -> Decision | Awaitable[Decision]:
        """Return whether the tool may run. If this raises an exception, the call is refused."""


class AllowAll:
    """A policy that allows every call, for tests and for harmless tools."""

    def decide(self, request: PermissionRequest) -> Decision:
        return allow()


class DenyAll:
    """A policy that refuses every call, with the same reason."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason

    def decide(self, request: PermissionRequest) -> Decision:
        return deny(self.reason)


class DeferAll:
    """A policy that decides nothing: the run waits for a decision on every call."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason

    def decide(self, request: PermissionRequest) -> Decision:
        return defer(self.reason)


class Rules:
    """A policy that decides by rules.

    >>> rules = Rules(allow=["write_file:docs/*", "shell:git diff*"], deny=["shell:rm *"])
    >>> agent = Agent("openai", tools=tools, permission=rules)  # doctest: +SKIP

    A rule is an action, which is the name of a tool by default, or `action:pattern` with shell
    wildcards. For files, the pattern is compared with the path after resolving links. For a shell,
    a rule of `allow` applies if the line is one simple command that matches. A rule of `deny`
    applies if any command of the line matches.

    Args:
        allow: rules for calls that may run.
        deny: rules for calls that must not run. They win over `allow`.
        otherwise: the policy for calls that no rule matches, and for command lines that cannot be
            parsed. By default they are refused.
    """

    @hinted
    def __init__(
        self,
        *,
        allow: Iterable[str] = (),
        deny: Iterable[str] = (),
        otherwise: Permission | None = None,
    ) -> None:
        for name, rules in (("allow", allow), ("deny", deny)):
            if isinstance(rules, str):
                raise TypeError(
                    f"{name} must be a list of rules, such as [{rules!r}], not a string"
                )
            check_list(name, rules, "['read_file']")
        self.allowed, self.denied = tuple(allow), tuple(deny)
        for rule in (*self.allowed, *self.denied):
            if not isinstance(rule, str):
                raise TypeError(f"a rule must be a text such as 'shell:git *', not {show(rule)}")
        if otherwise is not None and not callable(getattr(otherwise, "decide", None)):
            raise TypeError(
                "otherwise must be an object such as glue.AllowAll() or glue.Ask(function), "
                f"not {show(otherwise)}"
            )
        self.otherwise: Permission = otherwise or DenyAll("no rule allows it")

    def check(self, tools: Iterable[Any]) -> None:
        """Raise ConfigError if a rule can never apply.

        This is so if no tool of the agent or of its sub-agents and no registered tool name (see
        `glue.toolnames`) fits the rule, or if `deny` names a tool that does not ask for permission.
        """
        asks = {
            each.spec.name: each.action if getattr(each, "needs_permission", False) else ""
            for each in _nested(tools)
        }
        known = registered_tool_names() | set(asks) | set(filter(None, asks.values()))
        for rule in (*self.allowed, *self.denied):
            action = rule.partition(":")[0]
            if not any(matches_text(each, action) for each in known):
                raise ConfigError(
                    f"the rule {rule!r} names no known tool; there are: {', '.join(sorted(known))}"
                )
            if rule in self.denied and asks.get(action) == "":
                raise ConfigError(
                    f"the rule {rule!r} has no effect: {action} does not ask for permission;"
                    " remove the tool instead"
                )
        inner = getattr(self.otherwise, "check", None)
        if inner is not None:
            inner(tools)

    def remember(self, request: PermissionRequest, decision: Decision) -> None:
        """Store a decision in the policy `otherwise`, which decides if no rule matches."""
        remember_decision(self.otherwise, request, decision)

    def decide(self, request: PermissionRequest) -> Decision | Awaitable[Decision]:
        command = request.touched.command if request.touched is not None else None
        matcher = _Names(request) if command is None else _Commands(command)
        return self._decide(request, matcher, "")

    def _decide(
        self, request: PermissionRequest, matcher: _Names | _Commands, unclear: str
    ) -> Decision | Awaitable[Decision]:
        """Return the decision of the rules, or the decision of `otherwise` if no rule matches.

        `unclear` is the reason why a rule of `deny` may match. If it is not empty, rules of `allow`
        are ignored and `AllowAll` denies, so that only a person can allow the call.
        """
        for rule in self.denied:
            action, colon, pattern = rule.partition(":")
            if not matches_text(request.action, action):
                continue
            verdict = matcher.forbids(pattern) if colon else True
            if verdict is True:
                return deny(f"the rule {rule!r} forbids it")
            if verdict is None:
                unclear = f"the rule {rule!r} may forbid it: {matcher.unclear}"
        for rule in self.allowed if not unclear else ():
            action, colon, pattern = rule.partition(":")
            if matches_text(request.action, action) and (not colon or matcher.allows(pattern)):
                return allow()
        if isinstance(self.otherwise, Rules):
            return self.otherwise._decide(request, matcher, unclear)
        if unclear and isinstance(self.otherwise, AllowAll):
            return deny(unclear)
        return self.otherwise.decide(request)


def _nested(tools: Iterable[Any]) -> Iterator[Any]:
    """Yield each tool, and for a tool that runs an agent also the tools of that agent."""
    for tool in tools:
        yield tool
        agent = getattr(tool, "agent", None)
        if agent is not None:
            yield from _nested(agent.settings.tools or ())


class _Names:
    """A matcher of rule patterns against the paths of a request, or against its target."""

    unclear = ""

    def __init__(self, request: PermissionRequest) -> None:
        paths = request.touched.paths if request.touched is not None else ()
        target, normal = request.target, normpath(request.target) if request.target else ""
        has_dots = any(part in (".", "..") for part in target.split("/"))
        # A target may be a path such as docs/../src. A rule allows the call if it matches all names
        # of `to_allow`, and forbids the call if it matches any name of `to_forbid`.
        self.to_allow = paths or ((target, normal) if has_dots else (target,))
        self.to_forbid = paths or (target, normal)

    def allows(self, pattern: str) -> bool:
        return all(matches_text(name, pattern) for name in self.to_allow)

    def forbids(self, pattern: str) -> bool | None:
        return any(matches_text(name, pattern) for name in self.to_forbid)


class _Commands:
    """A matcher of rule patterns against the commands of a shell line."""

    def __init__(self, command: str | tuple[str, ...]) -> None:
        self.line = shellwords.parse(command)
        self.unclear = self.line.unclear or "only the shell knows the value of a word in it"
        # For each command: the program, its name, whether a word is unknown, and its spellings.
        self.spellings: list[tuple[str, str, bool, set[str]]] = []
        for found in self.line.commands:
            words = (shellwords.program(found.words) or found.words)[:MAX_WORDS]
            name = words[0].text.rpartition("/")[2]
            rest = [word.text for word in words[1:]]
            plain = " ".join([words[0].text, *rest]), " ".join([name, *rest])
            hidden = len(found.words) > MAX_WORDS or any(word.opaque or word.glob for word in words)
            texts = {shellwords.join(found.words[:MAX_WORDS]), shellwords.join(words), *plain}
            self.spellings.append((words[0].text, name, hidden, texts))

    def allows(self, pattern: str) -> bool:
        commands = self.line.commands
        plain = self.line.plain and not commands[0].opaque and len(commands[0].words) <= MAX_WORDS
        return plain and matches_text(commands[0].text, pattern)

    def forbids(self, pattern: str) -> bool | None:
        """Return True if a command matches `pattern`, False if none can match, else None."""
        first, blank, _ = pattern.partition(" ")
        may_match = bool(self.line.unclear)
        for program, name, hidden, texts in self.spellings:
            if any(matches_text(text, pattern) for text in texts) or (
                not blank and matches_text(name, pattern)
            ):
                return True
            may_match |= hidden and (matches_text(name, first) or matches_text(program, first))
        return None if may_match else False


Answer: TypeAlias = Decision | bool
Asker: TypeAlias = Callable[[PermissionRequest], Answer | Awaitable[Answer]]


class Ask:
    """A policy that asks a person through a callback, one question at a time.

    >>> def ask(request: PermissionRequest) -> bool:
    ...     return input(f"{request.tool} {request.target}? ") == "y"
    >>> agent = Agent("openai", tools=tools, permission=Ask(ask))  # doctest: +SKIP

    The callback returns True, False, or a Decision that can be remembered for further calls. A
    plain function runs in a thread, so it may block; an async function runs in the event loop.
    """

    def __init__(self, callback: Asker) -> None:
        if not callable(callback):
            raise TypeError(
                f"Ask takes a function that is called with the request, not {show(callback)}"
            )
        self.callback = callback
        # The keys are scope, action, and target or session.
        self.remembered: dict[tuple[str, str, str], Decision] = {}
        self._lock: RunVar[Lock] | None = None

    def forget(self) -> None:
        """Forget all remembered decisions."""
        self.remembered.clear()

    async def decide(self, request: PermissionRequest) -> Decision:
        keys = _keys(request)
        remembered = self._recall(keys)
        if remembered is not None:
            return remembered
        async with self._question_lock():
            decision = self._recall(keys)  # perhaps remembered while this call waited
            if decision is None:
                decision = await self._ask(request)
                self.remember(request, decision)
            return decision

    def remember(self, request: PermissionRequest, decision: Decision) -> None:
        """Store a decision for later requests, unless it is for this call only."""
        if decision.remember != "call":
            self.remembered[_keys(request)[decision.remember]] = decision

    def _recall(self, keys: Mapping[str, tuple[str, str, str]]) -> Decision | None:
        return next((self.remembered[key] for key in keys.values() if key in self.remembered), None)

    def _question_lock(self) -> Lock:
        """Return the lock of the current event loop that is held while a question is open."""
        if self._lock is None:
            self._lock = RunVar(f"glue-ask-{id(self)}")
        lock = self._lock.get(None)
        if lock is None:
            lock = anyio.Lock()
            self._lock.set(lock)
        return lock

    async def _ask(self, request: PermissionRequest) -> Decision:
        answer: Any
        functions = (self.callback, type(self.callback).__call__)
        if any(map(inspect.iscoroutinefunction, functions)):
            answer = self.callback(request)
        else:
            answer = await in_thread(self.callback, request)
        return await as_decision(answer)


def _keys(request: PermissionRequest) -> dict[str, tuple[str, str, str]]:
    """Return the keys of a request in `Ask.remembered`, by scope: target, session, always."""
    touched = request.touched
    if touched is not None and (touched.paths or touched.command is not None):
        target = json.dumps([touched.paths, touched.command, touched.folder])
    else:
        target = json.dumps([request.target, request.arguments], sort_keys=True, default=repr)
    return {
        "target": ("target", request.action, target),
        "session": ("session", request.action, request.session_id),
        "always": ("always", request.action, ""),
    }


async def decide(policy: Permission, request: PermissionRequest) -> Decision:
    """Return the decision of `policy` on a request. The policy may be async."""
    return await as_decision(policy.decide(request))


def remember_decision(
    policy: Permission | None, request: PermissionRequest, decision: Decision
) -> None:
    """Store a decision in `policy` for later requests, unless it is for one call only.

    Raise ValueError if the decision is for more calls and the policy cannot remember decisions.
    """
    if decision.remember == "call":
        return
    remember = getattr(policy, "remember", None)
    if remember is None:
        raise ValueError(
            f"{type(policy).__name__} cannot remember a decision for {decision.remember!r};"
            " use glue.allow(), or permission=glue.Ask(...)"
        )
    remember(request, decision)


async def as_decision(answer: object) -> Decision:
    """Return the Decision for an answer of a policy or a callback; await it if needed.

    True allows the call. Any answer other than True or a Decision refuses it.
    """
    if inspect.isawaitable(answer):
        answer = await answer
    if isinstance(answer, Decision):
        return answer
    if answer is True:
        return allow()
    return deny(
        "" if answer is False else f"the policy answered {answer!r}, which is not a decision"
    )
