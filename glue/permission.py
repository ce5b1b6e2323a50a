"""Permission: policies that decide whether a tool that needs permission may run."""

from __future__ import annotations

import inspect
import json
import re
import unicodedata
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
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
    """The protocol of policies that decide whether a tool call may run, such as `Rules`."""

    def decide(self, request: PermissionRequest) -> Decision | Awaitable[Decision]:
        """Return the decision whether the tool may run.

        If the method raises an error, the call is refused.
        """


class AllowAll:
    """A policy that allows every tool call, but refuses the questions of MCP servers to the user.

    It is for tests and for harmless tools. Only a person can answer those questions.
    """

    def decide(self, request: PermissionRequest) -> Decision:
        if request.action.startswith("mcp-question:"):
            return deny(
                "glue.AllowAll cannot answer the question of an MCP server; "
                "use glue.Ask, which asks a person"
            )
        return allow()


class DenyAll:
    """A policy that refuses every call, with the same reason."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason

    def decide(self, request: PermissionRequest) -> Decision:
        return deny(self.reason)


class DeferAll:
    """A policy that defers every call: the run ends `paused` until a person has decided."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason

    def needs_person(self, request: PermissionRequest) -> bool:
        return True

    def decide(self, request: PermissionRequest) -> Decision:
        return defer(self.reason)


class Rules:
    """A policy that decides by rules such as "shell:git status", or else asks another policy.

    >>> rules = Rules(allow=["write_file:docs/*", "shell:git status"], deny=["shell:rm *"])
    >>> agent = Agent("openai", tools=tools, permission=rules)  # doctest: +SKIP

    A question of an MCP server has an action of its own, such as `mcp-question:files`. A rule of
    `allow` must name this action.

    A rule is an action, which is the name of a tool by default, or `action:pattern` with shell
    wildcards. For files, the pattern is compared with the path after resolving links. For a shell,
    a rule of `allow` applies to one plain command: a program and its words, without operators,
    redirections and expansions. A rule of `deny` refuses that command. Two kinds of lines are left
    to `otherwise`: lines that only mention the program of such a rule, and lines that are not one
    plain command.

    Args:
        allow: rules for calls that may run.
        deny: rules for calls that must not run. They win over `allow`.
        otherwise: the policy for calls that no rule matches, and for command lines to which a rule
            of `deny` may apply. If it is `AllowAll`, such command lines are refused. If it is None,
            all these calls are refused.
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
                raise TypeError(
                    f"a rule must be a text such as 'shell:git status', not {show(rule)}"
                )
        if otherwise is not None and not callable(getattr(otherwise, "decide", None)):
            raise TypeError(
                "the argument `otherwise` must be a permission policy, such as glue.AllowAll() "
                "or glue.Ask(function), "
                f"not {show(otherwise)}"
            )
        self.otherwise: Permission = otherwise or _NoRule()

    def check(self, tools: Iterable[Any]) -> None:
        """Raise ConfigError if a rule can never apply to a call.

        A rule can never apply if it matches no tool of the agent or of its sub-agents and no
        registered tool name (see `glue.toolnames`). A rule of `deny` can also never apply to a tool
        that does not ask for permission.
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
                    f"the rule {rule!r} has no effect, because {action} needs no permission;"
                    " to deny this tool, remove it from the agent"
                )
        inner = getattr(self.otherwise, "check", None)
        if inner is not None:
            inner(tools)

    def remember(self, request: PermissionRequest, decision: Decision) -> None:
        """Pass a decision to the policy `otherwise`, which stores it for later requests.

        A decision with the scope "call" is not stored. Raise ValueError if the policy cannot store
        decisions.
        """
        remember_decision(self.otherwise, request, decision)

    def needs_person(self, request: PermissionRequest) -> bool:
        """Return whether a person must be asked: no rule applies, and `otherwise` asks a person.

        If a rule of `deny` may apply, return False, so that the call is not tried in a sandbox
        before the person is asked.
        """
        decision, doubt, _, policy = self._follow(request)
        return decision is None and not doubt and needs_person(policy, request)

    def decide(self, request: PermissionRequest) -> Decision | Awaitable[Decision]:
        decision, doubt, hint, policy = self._follow(request)
        if decision is not None:
            return decision
        if doubt and isinstance(policy, AllowAll):
            return deny(doubt)
        reason = doubt or hint
        answer = policy.decide(replace(request, reason=reason))
        if isinstance(answer, Decision) and not answer.allowed and not answer.reason:
            return replace(answer, reason=reason)
        return answer

    def _follow(self, request: PermissionRequest) -> tuple[Decision | None, str, str, Permission]:
        """Return a decision or None, two reasons why rules may apply, and the next policy to ask.

        If these rules do not decide, those of `otherwise` are applied, if it is a `Rules` too.

        Returns:
            The decision of the rules, or None if they do not decide.
            The reason why a rule of `deny` may apply, or "".
            The reason why a rule of `allow` almost applies, or "".
            The policy that decides if the rules do not.
        """
        command = request.touched.command if request.touched is not None else None
        matcher = _Names(request) if command is None else _Command(command)
        doubt, hint = "", ""
        policy: Permission = self
        while isinstance(policy, Rules):
            for rule, pattern in _matching(policy.denied, request.action, denying=True):
                verdict = True if pattern is None else matcher.forbids(pattern)
                if verdict is True:
                    return deny(f"the rule {rule!r} forbids it"), doubt, hint, policy
                if verdict:
                    doubt = doubt or f"the rule {rule!r} may forbid it: {verdict}"
            # If a rule of `deny` may apply, only a person can allow the call.
            for rule, pattern in () if doubt else _matching(policy.allowed, request.action):
                if pattern is None or matcher.allows(pattern):
                    return allow(), doubt, hint, policy
                if matcher.nearly_allows(pattern):
                    hint = hint or (
                        f"the rule {rule!r} does not allow it: the line is not one plain command"
                    )
            policy = policy.otherwise
        return None, doubt, hint, policy


class _NoRule:
    """The default of `otherwise` in `Rules`: a policy that refuses every call."""

    def decide(self, request: PermissionRequest) -> Decision:
        return deny(request.reason or "no rule allows it")


def _matching(
    rules: Iterable[str], action: str, *, denying: bool = False
) -> Iterator[tuple[str, str | None]]:
    """Yield the rules for an action, each with its pattern, or with None if it has no pattern.

    A rule of `allow` must name an action that is not a tool, such as `mcp-question:files`. If
    `denying`, a wildcard in the rule may match such an action too.
    """
    for rule in rules:
        name, colon, pattern = rule.partition(":")
        if names_special(action, rule):
            yield rule, None
        elif (":" not in action or denying) and matches_text(action, name):
            yield rule, pattern if colon else None


def names_special(action: str, rule: str) -> bool:
    """Return whether a rule matches an action that is not a tool, such as `mcp-question:files`.

    Only the part of the rule after the colon may have wildcards, so that a rule about tools such as
    `*` never matches.
    """
    kind, colon, subject = action.partition(":")
    named, _, pattern = rule.partition(":")
    return bool(colon) and named == kind and matches_text(subject, pattern or "*")


def _nested(tools: Iterable[Any]) -> Iterator[Any]:
    """Yield each tool. After a tool that runs a sub-agent, also yield the tools of that agent."""
    for tool in tools:
        yield tool
        agent = getattr(tool, "agent", None)
        if agent is not None:
            yield from _nested(agent.settings.tools or ())


class _Names:
    """Compares rule patterns with the paths of a request, or with its target if it has no paths."""

    def __init__(self, request: PermissionRequest) -> None:
        touched = request.touched
        paths = touched.paths if touched is not None else ()
        target, normal = request.target, normpath(request.target) if request.target else ""
        has_dots = any(part in (".", "..") for part in target.split("/"))
        # A target may be a path such as docs/../src. A rule allows the call if it matches all names
        # of `to_allow`, and forbids the call if it matches any name of `to_forbid`.
        self.to_allow = paths or ((target, normal) if has_dots else (target,))
        self.to_forbid = paths or (target, normal)
        self.fold = fold_name if touched is not None and touched.folds else str

    def allows(self, pattern: str) -> bool:
        return all(self._matches(name, pattern) for name in self.to_allow)

    def nearly_allows(self, pattern: str) -> bool:
        return False

    def forbids(self, pattern: str) -> bool | str:
        return any(self._matches(name, pattern) for name in self.to_forbid)

    def _matches(self, name: str, pattern: str) -> bool:
        return matches_text(self.fold(name), self.fold(pattern))


def fold_name(name: str) -> str:
    """Return a file name in one case and one Unicode form, for comparisons with other names."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())


class _Command:
    """Compares rule patterns with a shell command."""

    def __init__(self, command: str | tuple[str, ...]) -> None:
        self.words = shellwords.read(command)
        is_line = self.words is None and isinstance(command, str)
        self.text = str(command) if is_line else " ".join(self.words or command)

    def allows(self, pattern: str) -> bool:
        return self.words is not None and matches_text(shellwords.join(self.words), pattern)

    def nearly_allows(self, pattern: str) -> bool:
        """Return whether the line is not a plain command but starts with the pattern's first word.

        The first word of the pattern may have wildcards, and is compared with the first word of the
        line.
        """
        first = self.text.split()[:1]
        return self.words is None and matches_text("".join(first), pattern.partition(" ")[0])

    def forbids(self, pattern: str) -> bool | str:
        """Return True if the pattern matches the command, False if not, a reason if it may match.

        The reason is a text, such as "the line is not one plain command". A reason is returned if
        the line may contain a command that the pattern matches.
        """
        program, *others = pattern.split() or [""]
        if self.words is not None:
            name = self.words[0].rpartition("/")[2]
            texts = shellwords.join(self.words), shellwords.join([name, *self.words[1:]])
            alone = name if " " not in pattern.strip() else ""  # the pattern `rm` means `rm ...`
            if any(matches_text(text, pattern) for text in (*texts, alone) if text):
                return True
        required = [part for word in others for part in re.split(r"[*?\[\]]+", word) if part]
        folded = self.text.casefold()
        if shellwords.names(self.text, program) and all(
            part.casefold() in folded for part in required
        ):
            return f"the line contains {' and '.join([program, *required])}"
        if variable := shellwords.code_variable(self.text):
            return f"the line sets {variable}, which can make a program run code"
        if self.words is None and not required:
            return "the line is not one plain command"
        if shellwords.may_hide(self.words or self.text, program.rpartition("/")[2]):
            return "special characters may hide a command"
        return False


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
        # A key consists of the scope, the action, and the target or session. See `_keys`.
        self.remembered: dict[tuple[str, str, str], Decision] = {}
        self._lock: RunVar[Lock] | None = None

    def forget(self) -> None:
        """Forget all remembered decisions."""
        self.remembered.clear()

    def needs_person(self, request: PermissionRequest) -> bool:
        """Return True if a person must be asked: no decision on the request is remembered."""
        return self._recall(_keys(request)) is None

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
        """Store a decision for later requests, unless its scope is "call"."""
        if decision.remember != "call":
            self.remembered[_keys(request)[decision.remember]] = decision

    def _recall(self, keys: Mapping[str, tuple[str, str, str]]) -> Decision | None:
        return next((self.remembered[key] for key in keys.values() if key in self.remembered), None)

    def _question_lock(self) -> Lock:
        """Return the lock that lets only one question be open at a time in this event loop."""
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
    """Return the keys under which `Ask.remembered` can have a decision on a request, by scope.

    The result is a dict with a key for each of the scopes "target", "session" and "always".
    """
    touched = request.touched
    if touched is not None and (touched.paths or touched.command is not None):
        target = json.dumps([touched.paths, touched.command, touched.folder, touched.conditions])
    else:
        target = json.dumps([request.target, request.arguments], sort_keys=True, default=repr)
    return {
        "target": ("target", request.action, target),
        "session": ("session", request.action, request.session_id),
        "always": ("always", request.action, ""),
    }


async def decide(policy: Permission, request: PermissionRequest) -> Decision:
    """Return the decision of `policy` on a request, after awaiting it if the policy is async."""
    return await as_decision(policy.decide(request))


def needs_person(policy: Permission | None, request: PermissionRequest) -> bool:
    """Return whether only a person can decide on a request.

    This is the answer of the policy's method `needs_person`. Without this method, return False;
    without a policy, return True.
    """
    method = getattr(policy, "needs_person", None)
    return policy is None or (method is not None and bool(method(request)))


def remember_decision(
    policy: Permission | None, request: PermissionRequest, decision: Decision
) -> None:
    """Store a decision in `policy` for later requests, unless its scope is "call".

    Raise ValueError if the policy cannot store decisions.
    """
    if decision.remember == "call":
        return
    remember = getattr(policy, "remember", None)
    if remember is None:
        raise ValueError(
            f"{type(policy).__name__} cannot remember a decision for {decision.remember!r};"
            " decide only this call with glue.allow() or glue.deny(reason), or use"
            " permission=glue.Ask(...), which remembers decisions"
        )
    remember(request, decision)


async def as_decision(answer: object) -> Decision:
    """Convert an answer to a Decision: True allows the call, and any other value refuses the call.

    A Decision is returned unchanged. The answer is that of a policy or of the callback of `Ask`,
    and is awaited if it is awaitable.
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
