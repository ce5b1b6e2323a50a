"""A scripted provider: what a model would say, written down. For our tests and for yours."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer of a scripted model."""

    content: tuple[Part, ...] = ()
    stop: str = "end_turn"
    raw: str | None = None
    usage: Usage | None = None
    chunk: int = 0  # characters per delta; 0 sends a text whole
    delay: float = 0.0  # seconds before the first delta
    terminal: bool = True  # False: the stream ends without its terminal mark
    error: Exception | None = None  # raised after the content was streamed

    def pieces(self, text: str) -> Iterator[str]:
        """Part a text into the pieces that are streamed."""
        size = self.chunk or len(text)
        return (text[start : start + size] for start in range(0, len(text), size))


ScriptStep: TypeAlias = "str | Reply | Exception | Attempt | Repeat | Callable[[Request], ScriptStep]"


@dataclass(frozen=True, slots=True)
class Repeat:
    """A step that repeats for ever."""

    step: ScriptStep


def say(text: str = "", *, stop: str = "end_turn", thinking: str = "", **options: Any) -> Reply:
    """Answer with text; `thinking` comes before it."""
    parts: list[Part] = [Thinking(text=thinking)] if thinking else []
    if text:
        parts.append(Text(text=text))
    return Reply(content=tuple(parts), stop=stop, **options)


def call(name: str, arguments: Any = None, *, id: str = "", complete: bool = True) -> ToolCall:
    """Name a tool; a string is sent as it is, anything else as JSON."""
    text = arguments if isinstance(arguments, str) else json.dumps({} if arguments is None else arguments)
    return ToolCall(id=id or f"call_{next(_ids)}", name=name, arguments=text, complete=complete)


def partial(name: str, arguments: str = '{"') -> ToolCall:
    """Name a tool, cut off in the middle of its arguments."""
    return call(name, arguments, complete=False)


def calls(*named: ToolCall | str, text: str = "", stop: str = "tool_use", **options: Any) -> Reply:
    """Answer with calls, after an optional text."""
    parts: list[Part] = [Text(text=text)] if text else []
    parts += [call(item) if isinstance(item, str) else item for item in named]
    return Reply(content=tuple(parts), stop=stop, **options)


def fail(kind: ErrorKind, message: str = "scripted failure", **details: Any) -> ProviderError:
    """Fail with a typed error."""
    return ProviderError(message, kind=kind, provider=details.pop("provider", "script"), **details)


def repeat(step: ScriptStep) -> Repeat:
    """Give the same answer for ever."""
    return Repeat(step)


_ids = itertools.count(1)


class Script:
    """A provider that plays steps in order and keeps the requests it got.

    A step is a text, a `Reply` (see `say` and `calls`), an exception to raise, a function of the
    request that returns a step, or `repeat(step)`. A request past the end is an AssertionError.
    """

    def __init__(self, *steps: ScriptStep, name: str = "script", model: str = "script-1") -> None:
        self.name = name
        self.model = model
        self.requests: list[Request] = []
        self.open_streams = 0
        self._steps = list(steps)

    @property
    def left(self) -> int:
        """How many steps have not been played; a repeated one never counts."""
        return sum(not isinstance(step, Repeat) for step in self._steps)

    def assert_used_up(self) -> None:
        """Fail unless every step was played."""
        if self.left:
            raise AssertionError(f"{self.name}: {self.left} of the scripted steps were not asked for: {self._steps!r}")

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        kept = request.messages if isinstance(request.messages, Messages) else tuple(request.messages)
        self.requests.append(replace(request, messages=kept))
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
            raise AssertionError(f"{self.name}: request {len(self.requests)} has no scripted step")
        step = self._steps[0]
        if isinstance(step, Repeat):
            step = step.step
        else:
            del self._steps[0]
        while not isinstance(step, (str, Reply, Exception)):
            if not callable(step):
                raise TypeError(f"a step must be a text, a Reply, an exception or a function, not {step!r}")
            step = step(request)
        return say(step) if isinstance(step, str) else step


def shape(messages: Iterable[Message]) -> str:
    """Draw a transcript: u user, a assistant, t tool result; u+ is a message of the loop's own."""
    letters = []
    for message in messages:
        if isinstance(message, UserMessage):
            letters.append("u" if message.origin in HUMAN_ORIGINS else "u+")
        else:
            letters.append("a" if isinstance(message, AssistantMessage) else "t")
    return " ".join(letters)
