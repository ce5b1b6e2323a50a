"""`Script`: a provider with replies that a test defines, and helpers that create the replies."""

from __future__ import annotations

import inspect
import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, get_args

import anyio

from glue.errors import ErrorKind, ProviderError
from glue.limits import StopReason
from glue.messages import (
    HUMAN_ORIGINS,
    AssistantMessage,
    Message,
    Messages,
    Part,
    Request,
    Text,
    Thinking,
    ToolCall,
    Usage,
    UserMessage,
)
from glue.provider import Attempt, Done, ProviderEvent, deltas
from glue.text import count


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A reply of a scripted model, usually created by `say` or `calls`."""

    content: tuple[Part, ...] = ()
    stop: str = "end_turn"  # the stop reason
    raw: str | None = None  # the raw stop reason; None means the same as `stop`
    usage: Usage | None = None
    chunk: int = 0  # characters per delta; 0 sends a text in one delta
    delay: float = 0.0  # seconds before each delta
    terminal: bool = True  # False ends the stream without the complete message
    error: Exception | None = None  # raised after the content is streamed

    def pieces(self, text: str) -> Iterator[str]:
        """Yield a text in pieces of `chunk` characters, or whole if `chunk` is 0."""
        size = self.chunk or len(text)
        return (text[start : start + size] for start in range(0, len(text), size))


ScriptStep: TypeAlias = (
    "str | Reply | Exception | Attempt | Repeat | Callable[[Request], ScriptStep]"
)


@dataclass(frozen=True, slots=True)
class Repeat:
    """The last step of a script, which answers every further request; created by `repeat`."""

    step: ScriptStep


def say(text: str = "", *, stop: str = "end_turn", thinking: str = "", **options: Any) -> Reply:
    """Return a scripted reply with thinking and then a text; each is left out if it is empty.

    The options are the fields of `Reply`, such as `usage` and `chunk`.
    """
    parts: list[Part] = [Thinking(text=thinking)] if thinking else []
    if text:
        parts.append(Text(text=text))
    return Reply(content=tuple(parts), stop=stop, **options)


def call(name: str, arguments: Any = None, *, id: str = "", complete: bool = True) -> ToolCall:
    """Return a ToolCall of the tool `name`, to put into a scripted reply.

    The arguments are encoded as JSON. A string is used unchanged, so that it may be invalid JSON.
    """
    text = arguments
    if not isinstance(arguments, str):
        text = json.dumps({} if arguments is None else arguments)
    return ToolCall(id=id or f"call_{next(_ids)}", name=name, arguments=text, complete=complete)


def partial(name: str, arguments: str = '{"') -> ToolCall:
    """Return a call of the tool `name` that was cut off in the middle of its arguments."""
    return call(name, arguments, complete=False)


def calls(*named: ToolCall | str, text: str = "", stop: str = "tool_use", **options: Any) -> Reply:
    """Return a scripted reply with tool calls. If `text` is not empty, it precedes the calls.

    A call is given by the name of the tool, or created by `call`. The options are the fields of
    `Reply`.
    """
    parts: list[Part] = [Text(text=text)] if text else []
    parts += [call(item) if isinstance(item, str) else item for item in named]
    return Reply(content=tuple(parts), stop=stop, **options)


def fail(kind: ErrorKind, message: str = "scripted failure", **details: Any) -> ProviderError:
    """Return a ProviderError. As a step of a script, it is raised in place of a reply.

    The details are the parameters of `ProviderError`, such as `status` and `retry_after`. Raise
    ValueError if `kind` is not a kind of error.
    """
    kinds = get_args(ErrorKind)
    if kind not in kinds:
        raise ValueError(f"kind must be one of {', '.join(kinds)}, not {kind!r}")
    return ProviderError(message, kind=kind, provider=details.pop("provider", "script"), **details)


def repeat(step: ScriptStep) -> Repeat:
    """Return a step of a script that answers every further request with `step`."""
    return Repeat(step)


_ids = itertools.count(1)


class Script:
    """A provider for tests that answers each request with the next of its scripted steps.

        script = Script(calls(call("weather", {"city": "Oslo"})), "It rains.")
        result = Agent(script, tools=[weather]).run_sync("Weather in Oslo?")
        assert result.text == "It rains."
        assert len(script.requests) == 2

    A step is a text, a `Reply` (see `say` and `calls`), an exception to raise (see `fail`), a
    function that takes the request and returns a step, or `repeat(step)`. A request after the last
    step raises AssertionError. `requests` has all requests so far.
    """

    def __init__(self, *steps: ScriptStep, name: str = "script", model: str = "script-1") -> None:
        self.name = name
        self.model = model
        self.requests: list[Request] = []
        self.open_streams = 0
        self._steps = list(steps)

    @property
    def left(self) -> int:
        """The number of steps that were not used yet. Steps made by `repeat` do not count."""
        return sum(not isinstance(step, Repeat) for step in self._steps)

    def assert_used_up(self) -> None:
        """Raise AssertionError if a step was not used. Steps made by `repeat` do not count."""
        if self.left:
            unused = [step for step in self._steps if not isinstance(step, Repeat)]
            raise AssertionError(
                f"{self.name}: {count(self.left, 'scripted step')} not used: {unused!r}"
            )

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        messages = request.messages
        if not isinstance(messages, Messages):
            messages = tuple(messages)  # a list could change after the request
        self.requests.append(replace(request, messages=messages))
        step = self._next(request)
        self.open_streams += 1
        try:
            await anyio.lowlevel.checkpoint()
            if isinstance(step, Exception):
                raise step
            for event in deltas(step.content, pieces=step.pieces):
                if step.delay:
                    await anyio.sleep(step.delay)
                yield event
            await anyio.lowlevel.checkpoint()
            if step.error is not None:
                raise step.error
            if step.terminal:
                message = AssistantMessage(
                    content=step.content,
                    stop_reason=StopReason(step.stop),
                    raw_stop_reason=step.raw if step.raw is not None else step.stop,
                    usage=step.usage,
                    provider=self.name,
                    model=request.model or self.model,
                )
                yield Done(message=message)
        finally:
            self.open_streams -= 1

    def _next(self, request: Request) -> Reply | Exception:
        if not self._steps:
            raise AssertionError(
                f"{self.name}: request {len(self.requests)} comes after the last scripted step"
            )
        step = self._steps[0]
        if isinstance(step, Repeat):
            step = step.step
        else:
            del self._steps[0]
        while not isinstance(step, (str, Reply, Exception)):
            if inspect.iscoroutine(step):
                step.close()  # otherwise Python warns that it was never awaited
                raise TypeError("a step that is a function of the request must not be async")
            if not callable(step):
                raise TypeError(
                    f"a step must be a text, a Reply, an exception or a function, not {step!r}"
                )
            step = step(request)
        return say(step) if isinstance(step, str) else step


def shape(messages: Iterable[Message]) -> str:
    """Return the roles of messages as letters, such as "u a t a"; the loop's messages are "u+".

    "u" is a prompt of the user, "u+" is a user message that the loop added, "a" is a message of
    the assistant, and "t" is a tool result.

    >>> shape([UserMessage(content=()), AssistantMessage(content=())])
    'u a'
    """
    letters = []
    for message in messages:
        if isinstance(message, UserMessage):
            letters.append("u" if message.origin in HUMAN_ORIGINS else "u+")
        else:
            letters.append("a" if isinstance(message, AssistantMessage) else "t")
    return " ".join(letters)
