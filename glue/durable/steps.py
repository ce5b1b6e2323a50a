"""Model requests and tool calls as checkpointed steps: wrappers around a provider and a tool, for any engine."""

from __future__ import annotations

import asyncio  # noqa: TID251 # the engines there are run on it, and a step is a task
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol, TypeAlias, cast

import anyio

from glue import errors
from glue.codec import from_json, to_json
from glue.context import AnyTool, Context, ToolResult, ToolWrapper, error_result, failed
from glue.errors import PROVIDER_ERROR_FIELDS, EmptyReply, ProviderError
from glue.messages import AssistantMessage, Json, Request, ToolCall, Usage, message_from_json, message_to_json
from glue.provider import Attempt, Done, Provider, ProviderEvent, Wrapper, opened
from glue.subagent import child_usage

Body: TypeAlias = Callable[[], Awaitable[Json]]

INTERRUPTED = (
    "interrupted: the machine was lost while this call ran; it may or may not have had its effect, and was not repeated"
)


class Checkpoints(Protocol):
    """All that is asked of an engine: steps that are kept, numbered in the order in which they begin."""

    async def step(self, name: str, body: Body) -> Json:
        """Run the body and keep what it returns before giving it back; what was kept is not run again."""


class DurableProvider(Wrapper):
    """A provider whose replies are kept: a run that goes on elsewhere does not ask for them again."""

    def __init__(self, provider: Provider, checkpoints: Checkpoints) -> None:
        super().__init__(provider)
        self.checkpoints = checkpoints

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        send, receive = anyio.create_memory_object_stream[ProviderEvent](float("inf"))
        asked = False

        async def ask() -> Json:
            nonlocal asked
            asked = True
            return await _ask(self.provider, request, send.send_nowait)

        async def work() -> Json:
            with send:
                return await self.checkpoints.step("model", ask)

        task = asyncio.ensure_future(work())
        try:
            async for event in receive:  # the pieces of the reply, while they come; none of one that was kept
                yield event
            kept = await task
        finally:
            receive.close()
            await _end(task)
        if not asked:
            for attempt in kept["attempts"]:
                yield from_json(Attempt, attempt)
        if "error" in kept:
            raise decode_error(kept["error"])
        if "message" in kept:
            yield Done(message=cast(AssistantMessage, message_from_json(kept["message"])))


async def _ask(provider: Provider, request: Request, tell: Callable[[ProviderEvent], None]) -> Json:
    attempts: list[Json] = []
    try:
        async with opened(provider, request) as events:
            async for event in events:
                if isinstance(event, Done):
                    return {"message": message_to_json(event.message), "attempts": attempts}
                if isinstance(event, Attempt):
                    attempts.append(to_json(event))
                tell(event)
    except ProviderError as error:  # part of the run like any reply
        return {"error": encode_error(error), "attempts": attempts}
    return {"error": encode_error(EmptyReply(provider=provider.name)), "attempts": attempts}


class DurableTool(ToolWrapper):
    """A tool whose results are kept.

    A call that was under way when its machine was lost is not repeated, unless the tool is idempotent.
    """

    def __init__(self, tool: AnyTool, checkpoints: Checkpoints, slots: anyio.Semaphore) -> None:
        super().__init__(tool)
        self.checkpoints, self.slots = checkpoints, slots

    async def invoke(self, call: ToolCall, context: Context[Any]) -> ToolResult:
        # Both steps begin here and now, so that their numbers do not depend on which call is quicker.
        claim = None if getattr(self.tool, "idempotent", False) else asyncio.ensure_future(self._claim(call.name))
        ran = False

        async def act() -> Json:
            nonlocal ran
            ran = True
            if claim is None:
                async with self.slots:
                    return to_json(await self._call(call, context))
            if not await claim:
                return to_json(error_result(INTERRUPTED))
            try:
                return to_json(await self._call(call, context))
            finally:
                self.slots.release()

        result = asyncio.ensure_future(self.checkpoints.step(f"tool {call.name}", act))
        tasks = [result] if claim is None else [claim, result]
        try:
            made = from_json(ToolResult, await result)
            if not ran and (usage := child_usage(made)) is not None:
                context.spending.spend(usage=usage)  # a sub-agent that ran before
            return made
        finally:
            await _end(*tasks)

    async def _claim(self, name: str) -> bool:
        """Note that the call begins; False where an earlier execution did."""
        ours = False

        async def claim() -> Json:
            nonlocal ours
            await self.slots.acquire()
            ours = True
            return True

        try:
            await self.checkpoints.step(f"call {name}", claim)
        except BaseException:
            if ours:
                self.slots.release()
            raise
        return ours

    async def _call(self, call: ToolCall, context: Context[Any]) -> ToolResult:
        try:
            return await self.tool.invoke(call, context)
        except Exception as error:  # kept as the loop would tell it to the model
            return failed(error)


async def _end(*tasks: asyncio.Future[Any]) -> None:
    """Cancel what has not ended, and wait until it has."""
    for task in tasks:
        task.cancel()
    with anyio.CancelScope(shield=True):
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # seen: whoever awaited it has raised it


def encode_error(error: BaseException) -> Json:
    """Encode an error with what callers and the loop ask of it."""
    fields = {name: getattr(error, name) for name in PROVIDER_ERROR_FIELDS if getattr(error, name, None) is not None}
    usage, attempts = getattr(error, "usage", None), getattr(error, "attempts", ())
    return {
        "class": type(error).__name__,
        "message": str(error),
        "fields": fields,
        **({"usage": to_json(usage)} if usage is not None else {}),
        **({"attempts": [to_json(attempt) for attempt in attempts]} if attempts else {}),
    }


def decode_error(data: Json) -> errors.GlueError:
    """Make the same error again, of the nearest class that is known."""
    cls = getattr(errors, data["class"], None)
    if not (isinstance(cls, type) and issubclass(cls, errors.GlueError)):
        cls = errors.RunError
    error = cast(Any, cls.__new__(cls, data["message"]))
    for name in PROVIDER_ERROR_FIELDS if issubclass(cls, ProviderError) else ():
        setattr(error, name, data["fields"].get(name))
    for name, value in data["fields"].items():
        setattr(error, name, value)
    if issubclass(cls, ProviderError):
        error.usage = from_json(Usage, data["usage"]) if "usage" in data else None
        error.attempts = tuple(from_json(Attempt, attempt) for attempt in data.get("attempts", ()))
    return cast(errors.GlueError, error)
