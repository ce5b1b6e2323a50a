"""Calls of tools: from the model's text to a result. Only cancellation leaves by an exception."""

from __future__ import annotations

import contextlib
import inspect
import json
import logging
import os
import re
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

import anyio
import anyio.to_thread

from glue.codec import to_plain
from glue.context import Context, ToolResult, error_result, failed, text_result
from glue.dataclass import dataclass
from glue.function.validation import ValidationError
from glue.messages import File, Image, Opaque, Text, ToolCall
from glue.permission import PermissionRequest, PermissionTarget, decide, deny
from glue.tasks import caller, in_thread

if TYPE_CHECKING:
    from glue.function.decorator import Tool

_PARTS = (Text, Image, File, Opaque)
_log = logging.getLogger("glue.tools")


class Step:
    """One call on its way: the tool's name, the arguments as Python objects, and the context."""

    __slots__ = ("arguments", "call", "context")

    def __init__(self, call: ToolCall, arguments: dict[str, Any], context: Context[Any]) -> None:
        self.call = call
        self.arguments = arguments
        self.context = context

    @property
    def name(self) -> str:
        return self.call.name


async def invoke(tool: Tool[..., Any], call: ToolCall, context: Context[Any]) -> ToolResult:
    """Parse, validate, ask, run and report one call."""
    if not call.complete:
        return error_result("the call was cut off before its end and was not run; send it again, whole")
    try:
        arguments = tool.signature.parse(call.arguments)
    except ValidationError as error:
        return error_result(str(error))
    except Exception as error:  # a ready schema that is none
        return failed(error)
    if context.host.hooks or tool.needs_permission:
        result = await _guarded(tool, Step(call, arguments, context))
    else:
        result = await _run(tool, arguments, context)
    limit = tool.max_output
    if limit is not None and any(isinstance(part, Text) and len(part.text) > limit for part in result.content):
        result = await anyio.to_thread.run_sync(_capped, result, limit, abandon_on_cancel=True)
    else:
        result = _capped(result, None)
    if tool.terminates and not result.is_error and not result.terminate:
        result = replace(result, terminate=True)
    return result


async def _run(tool: Tool[..., Any], arguments: dict[str, Any], context: Context[Any]) -> ToolResult:
    """Run the function under its time limit; what it raises becomes an error result."""
    name = tool.spec.name
    try:
        if tool.timeout is None:
            return as_result(name, await _called(tool, arguments, context))
        with anyio.move_on_after(tool.timeout):
            return as_result(name, await _called(tool, arguments, context))
        return error_result(f"{name} timed out after {tool.timeout:g} seconds")
    except Exception as error:
        return failed(error, name)


async def _called(tool: Tool[..., Any], arguments: dict[str, Any], context: Context[Any]) -> Any:
    positional, named = tool.signature.split(arguments)
    live = [True]
    if tool.signature.takes_context:
        positional = [context if tool.is_async else _threaded(context, live), *positional]
    if tool.is_async:
        return await tool.function(*positional, **named)

    def boxed() -> tuple[Any] | Exception:
        # Carried by hand: an event loop hands on neither a StopIteration nor, on trio, a coroutine.
        try:
            return (tool.function(*positional, **named),)
        except Exception as error:
            return error

    try:
        value = await in_thread(boxed)
    finally:
        live.clear()
    return failed(value, tool.spec.name) if isinstance(value, Exception) else await _settled(value[0])


def _threaded(context: Context[Any], live: list[bool]) -> Context[Any]:
    """The same context for use in a thread: progress is reported in the event loop, and not after the end."""
    call = caller()

    def report(*said: Any) -> None:
        call(lambda: context.report(*said) if live else None)

    return replace(context, report=report)


async def _settled(value: Any) -> Any:
    """Wait for a value if it has to be waited for."""
    return await value if inspect.isawaitable(value) else value


def as_result(name: str, value: Any) -> ToolResult:
    """Make a result of whatever a tool returned."""
    if isinstance(value, ToolResult):
        return value
    if isinstance(value, str):
        return text_result(value)
    if value is None:
        return text_result("(no output)")
    if isinstance(value, _PARTS):
        return ToolResult(content=(value,))
    if isinstance(value, (list, tuple)) and any(isinstance(item, _PARTS) for item in value):
        parts = tuple(Text(text=item) if isinstance(item, str) else item for item in value)
        if all(isinstance(part, _PARTS) for part in parts):
            return ToolResult(content=parts)
    try:
        return text_result(json.dumps(to_plain(value, _refuse), ensure_ascii=False))
    except (TypeError, ValueError, RecursionError) as error:
        return error_result(f"the tool {name} returned {type(value).__name__}, which is no text, JSON or part: {error}")


def _refuse(value: Any) -> Any:
    raise TypeError(f"{type(value).__name__} has no JSON form")


class Skip:
    """Do not run the tool; this is its result."""

    def __init__(self, result: ToolResult | str) -> None:
        self.result = text_result(result) if isinstance(result, str) else result


class Replace:
    """Run the tool with other arguments: Python objects, as its function takes them."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.arguments = arguments


class Abort:
    """Do not run the tool (or drop what it gave), and end the run as cancelled."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


Before: TypeAlias = Callable[[Step], "Skip | Replace | Abort | Awaitable[Skip | Replace | Abort | None] | None"]
After: TypeAlias = Callable[[Step, ToolResult], "ToolResult | Abort | Awaitable[ToolResult | Abort | None] | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolHook:
    """Functions to call before and after each tool; both may be async, None means nothing to say.

    Hooks add up: each sees what those before it left. The first `Skip` or `Abort` decides.
    """

    before: Before | None = None
    after: After | None = None


async def _guarded(tool: Tool[..., Any], step: Step) -> ToolResult:
    """Ask the hooks, ask for permission for what they leave, run, and let the hooks see the result."""
    hooks = step.context.host.hooks
    result: ToolResult | None = None
    for hook in hooks:
        answer = await _answer(hook, "before", step)
        if isinstance(answer, Skip):
            result = answer.result
            break
        if isinstance(answer, Replace):
            step.arguments = dict(answer.arguments)
    if result is None and tool.needs_permission:
        result = await _ask(tool, step)
    if result is None:
        result = await _run(tool, step.arguments, step.context)
    for hook in hooks:
        answer = await _answer(hook, "after", step, result)
        if isinstance(answer, Skip):
            return answer.result
        if isinstance(answer, ToolResult):
            result = answer
    return result


async def _answer(hook: Any, side: str, *given: Any) -> Any:
    """Call one side of a hook; where it ends the call, by a failure or an Abort, the result stands in a Skip."""
    function = getattr(hook, side, None)
    if function is None:
        return None
    try:
        answer = await _settled(function(*given))
    except Exception as error:
        return Skip(failed(error))  # a guard that fails must not let the call through
    if isinstance(answer, Abort):
        given[0].context.cancel.cancel()
        return Skip(error_result(answer.reason))
    return answer


async def _ask(tool: Tool[..., Any], step: Step) -> ToolResult | None:
    """Ask the policy for permission; None is a yes."""
    policy = step.context.host.permission
    try:
        request = _request(tool, step)
        decision = deny("no permission policy is set") if policy is None else await decide(policy, request)
    except Exception as error:
        return replace(failed(error), content=error_result(f"{tool.spec.name}: permission denied: {error}").content)
    if decision.allowed:
        return None
    what = f"{request.action} {request.target}".strip()
    return error_result(f"permission denied: {what}" + (f": {decision.reason}" if decision.reason else ""))


def _request(tool: Tool[..., Any], step: Step) -> PermissionRequest:
    target: Any = tool.target
    if callable(target):
        target = target(step.arguments)
    elif target:
        default = tool.spec.parameters["properties"][target].get("default", "")
        target = step.arguments.get(target, default)
    touched = target if isinstance(target, PermissionTarget) else None
    return PermissionRequest(
        tool=step.call.name,
        action=tool.action,
        target=touched.text if touched is not None else str(target),
        arguments=step.arguments,
        call_id=step.call.id,
        session_id=step.context.scope,
        touched=touched,
    )


def _capped(result: ToolResult, limit: int | None) -> ToolResult:
    """Make each text encodable and cut it at the cap; results that need neither are passed on as they are."""
    content = []
    for part in result.content:
        if isinstance(part, Text):
            text = part.text
            if not text.isascii():
                text = text.encode("utf-8", "replace").decode()  # lone surrogates would break every wire
            if limit is not None:
                text = cap(text, limit)
            part = part if text == part.text else replace(part, text=text)
        content.append(part)
    return result if content == list(result.content) else replace(result, content=tuple(content))


class Spool:
    """Private files for the whole of texts that were cut, removed when the process ends.

    A text is addressed as `spool:NAME`, which `read_file` can page. Names are random, so that a model can read only
    what it was told of. Without a directory given, a temporary one is made at first use.
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None, *, keep: int = 256) -> None:
        self._given = None if directory is None else os.fspath(directory)
        self._made = ""
        self._owner = 0
        self._names: deque[str] = deque()
        self._keep = keep

    @property
    def directory(self) -> str:
        """The directory's path; it exists afterwards."""
        if self._given is not None:
            os.makedirs(self._given, mode=0o700, exist_ok=True)
            return self._given
        if not self._made or self._owner != os.getpid():  # a forked child must not share its parent's
            import atexit
            import tempfile

            self._made, self._owner = tempfile.mkdtemp(prefix="glue-"), os.getpid()
            atexit.register(_remove, self._made, self._owner)
        return self._made

    def write(self, text: str) -> str:
        """Keep a text and return its address."""
        name = f"{os.urandom(8).hex()}.txt"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
        with open(os.open(os.path.join(self.directory, name), flags, 0o600), "wb") as file:
            file.write(text.encode("utf-8", "replace"))
        self._names.append(name)
        while len(self._names) > self._keep:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self.directory, self._names.popleft()))
        return f"spool:{name}"

    def open(self, address: str) -> BinaryIO:
        """Open a text by its address; FileNotFoundError for anything else."""
        found = re.fullmatch(r"spool:([0-9a-f]{16}\.txt)", address)
        if found is None:
            raise FileNotFoundError(f"no such text: {address!r}")
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
        try:
            return open(os.open(os.path.join(self.directory, found[1]), flags), "rb")
        except OSError:
            raise FileNotFoundError(f"no such text: {address!r}; it may have been dropped") from None


def _remove(directory: str, owner: int) -> None:
    import shutil

    if owner == os.getpid():
        shutil.rmtree(directory, ignore_errors=True)


# What tools write to, and what fs.read_file opens: one for the process, unless a run is given its own.
current_spool: ContextVar[Spool] = ContextVar("glue.spool", default=Spool())  # noqa: B039


def cap(text: str, limit: int, spool: Spool | None = None) -> str:
    """Keep two thirds of a long text from its start and one from its end, and say where the whole of it is."""
    if len(text) <= limit:
        return text
    try:
        address = (current_spool.get() if spool is None else spool).write(text)
    except OSError:
        address = ""
    first, last = limit - limit // 3, limit // 3
    head, tail = text[:first], text[len(text) - last :]
    if (end := head.rfind("\n")) > first * 3 // 4:  # at line breaks, where there are some nearby
        head = head[:end]
    if 0 <= (end := tail.find("\n")) < last // 4:
        tail = tail[end + 1 :]
    note = f"[{len(text) - len(head) - len(tail):,} of {len(text):,} characters left out"
    if address:
        line = head.count("\n") + 1 + text.startswith("\n", len(head))  # the first line that is not shown whole
        note += f"; the whole text is {address}: read_file pages it, offset {line} goes on here"
    return f"{head}\n{note}]\n{tail}"
