"""Permission policies: one is asked before a tool that needs permission runs. No policy means no."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from posixpath import normpath
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from glue.dataclass import dataclass
from glue.errors import ConfigError

if TYPE_CHECKING:
    from anyio import Lock
    from anyio.lowlevel import RunVar


MAX_WORDS = 500  # of a command that are held against a pattern; what is longer is asked about

Scope: TypeAlias = Literal["call", "target", "session", "always"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionTarget:
    """What a call touches, for rules and for people: a tool's `target=` may return it instead of a text."""

    text: str  # as it is shown
    paths: tuple[str, ...] = ()  # of a file: each of its names below the root, links resolved
    command: str | tuple[str, ...] | None = None  # of a shell: the line, or a program and its arguments
    folder: str = ""  # where the command runs
    preview: str = ""  # of a change: the lines that go and come


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionRequest:
    """What a tool is about to do, exactly as it will do it."""

    tool: str
    action: str  # what is remembered: the tool's name unless it says otherwise
    target: str = ""  # on what: a path, a command
    arguments: Mapping[str, Any]
    call_id: str = ""
    session_id: str = ""  # the conversation's, that of a sub-agent's caller; the run's where there is none
    touched: PermissionTarget | None = None


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
    """Decides whether a tool may run. Whatever it raises counts as no."""

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

    A rule is an action, or `action:pattern` with shell wildcards. For files the pattern is held against the names
    that a path leads to; for a shell it allows one simple command, and forbids any command of a line. A refusal wins
    over a permission; what no rule covers goes to `otherwise`, and so does a command line that cannot be told apart.
    """

    def __init__(
        self, *, allow: Iterable[str] = (), deny: Iterable[str] = (), otherwise: Permission | None = None
    ) -> None:
        for name, rules in (("allow", allow), ("deny", deny)):
            if isinstance(rules, str):
                raise TypeError(f"{name} must be a list of rules, such as [{rules!r}], not a text")
        self.allowed, self.denied = tuple(allow), tuple(deny)
        self.otherwise: Permission = otherwise or DenyAll("no rule allows it")

    def check(self, tools: Iterable[Any], ready_made: Iterable[str] = ()) -> None:
        """Refuse a rule that names none of these tools: a misspelt one would never be heard of again.

        Rules may also name `ready_made` tools, which an agent need not have.
        """
        asks = {
            each.spec.name: each.action if getattr(each, "needs_permission", False) else "" for each in _nested(tools)
        }
        known = {*ready_made} | {name for names in asks.items() for name in names if name}
        for rule in (*self.allowed, *self.denied):
            action = rule.partition(":")[0]
            if not any(fnmatchcase(each, action) for each in known):
                raise ConfigError(f"the rule {rule!r} names no known tool; there are: {', '.join(sorted(known))}")
            if rule in self.denied and asks.get(action) == "":
                raise ConfigError(f"the rule {rule!r} would do nothing: {action} asks for no permission; leave it out")
        inner = getattr(self.otherwise, "check", None)
        if inner is not None:
            inner(tools, ready_made)

    def decide(self, request: PermissionRequest) -> Decision | Awaitable[Decision]:
        command = request.touched.command if request.touched is not None else None
        return self._decide(request, _Names(request) if command is None else _Commands(command), "")

    def _decide(
        self, request: PermissionRequest, judge: _Names | _Commands, unclear: str
    ) -> Decision | Awaitable[Decision]:
        """Refuse, allow or hand on; what may be forbidden is handed on until somebody can be asked."""
        for rule in self.denied:
            action, colon, pattern = rule.partition(":")
            if not fnmatchcase(request.action, action):
                continue
            verdict = judge.forbids(pattern) if colon else True
            if verdict is True:
                return deny(f"the rule {rule!r} forbids it")
            if verdict is None:
                unclear = f"whether the rule {rule!r} forbids it cannot be told: {judge.unclear}"
        for rule in self.allowed if not unclear else ():
            action, colon, pattern = rule.partition(":")
            if fnmatchcase(request.action, action) and (not colon or judge.allows(pattern)):
                return allow()
        if isinstance(self.otherwise, Rules):
            return self.otherwise._decide(request, judge, unclear)
        if unclear and isinstance(self.otherwise, AllowAll):
            return deny(unclear)
        return self.otherwise.decide(request)


def _nested(tools: Iterable[Any]) -> Iterator[Any]:
    """Give tools, and those of the agents among them."""
    for tool in tools:
        yield tool
        agent = getattr(tool, "agent", None)
        if agent is not None:
            yield from _nested(agent.settings.tools or ())


class _Names:
    """Rules over names: a path, or a text that may be one."""

    unclear = ""

    def __init__(self, request: PermissionRequest) -> None:
        paths = request.touched.paths if request.touched is not None else ()
        target, plain = request.target, normpath(request.target) if request.target else ""
        dotted = any(part in (".", "..") for part in target.split("/"))
        self.names = paths or ((target, plain) if dotted else (target,))
        self.spellings = paths or (target, plain)

    def allows(self, pattern: str) -> bool:
        return all(fnmatchcase(name, pattern) for name in self.names)

    def forbids(self, pattern: str) -> bool | None:
        return any(fnmatchcase(name, pattern) for name in self.spellings)


class _Commands:
    """Rules over the commands of a shell line."""

    def __init__(self, command: str | tuple[str, ...]) -> None:
        from glue import shellwords

        self.line = shellwords.parse(command)
        self.unclear = self.line.unclear or "a word of it is known to the shell alone"
        self.spellings: list[tuple[str, str, bool, set[str]]] = []  # program, its name, is some of it hidden, texts
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
        return plain and fnmatchcase(commands[0].text, pattern)

    def forbids(self, pattern: str) -> bool | None:
        """True where some command fits, None where one may."""
        first, blank, _ = pattern.partition(" ")
        open_ = bool(self.line.unclear)
        for program, name, hidden, texts in self.spellings:
            if any(fnmatchcase(text, pattern) for text in texts) or (not blank and fnmatchcase(name, pattern)):
                return True
            open_ |= hidden and (fnmatchcase(name, first) or fnmatchcase(program, first))
        return None if open_ else False


Answer: TypeAlias = Decision | bool
Asker: TypeAlias = Callable[[PermissionRequest], Answer | Awaitable[Answer]]


class Ask:
    """Ask a person through a callback, one question at a time, and remember the answer as it says.

    A plain function is called in a thread (it may wait at a terminal), an async one in the event loop.
    """

    def __init__(self, callback: Asker) -> None:
        if not callable(callback):
            raise TypeError(f"Ask takes a function of the request, not {callback!r}")
        self.callback = callback
        self.remembered: dict[tuple[str, str, str], Decision] = {}  # by scope, action, and target or session
        self._lock: RunVar[Lock] | None = None

    def forget(self) -> None:
        """Ask again from now on."""
        self.remembered.clear()

    async def decide(self, request: PermissionRequest) -> Decision:
        keys = _keys(request)
        if (known := self._recall(keys)) is not None:
            return known
        async with self._turn():
            decision = self._recall(keys)  # answered while we waited for our turn
            if decision is None:
                decision = await self._ask(request)
                if decision.remember != "call":
                    self.remembered[keys[decision.remember]] = decision
            return decision

    def _recall(self, keys: Mapping[str, tuple[str, str, str]]) -> Decision | None:
        return next((self.remembered[key] for key in keys.values() if key in self.remembered), None)

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

        from glue.tasks import in_thread

        answer: Any
        if inspect.iscoroutinefunction(self.callback) or inspect.iscoroutinefunction(type(self.callback).__call__):
            answer = self.callback(request)
        else:
            answer = await in_thread(self.callback, request)  # left behind when the run is cancelled or interrupted
        return await _decision(answer)


def _keys(request: PermissionRequest) -> dict[str, tuple[str, str, str]]:
    """Give what an answer is remembered by in each scope."""
    import json

    touched = request.touched  # the file, the command and its folder, or else the whole arguments
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
    """Ask a policy, and wait for its answer where it has to be waited for."""
    return await _decision(policy.decide(request))


async def _decision(answer: object) -> Decision:
    """Take an answer; anything but a clear yes is a no."""
    import inspect

    if inspect.isawaitable(answer):
        answer = await answer
    if isinstance(answer, Decision):
        return answer
    if answer is True:
        return allow()
    return deny("" if answer is False else f"the policy answered {answer!r}, which is no decision")
