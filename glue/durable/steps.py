"""Durable steps: a provider and a tool whose results an engine stores.

An engine stores the result of each step. When a run is executed again, for example by another
process after a crash, the steps that have a stored result return it instead of running.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 # DBOS runs only on asyncio, and a step is an asyncio task
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol, TypeAlias, cast

import anyio

from glue.codec import from_json, to_json
from glue.context import AnyTool, Context, ToolResult, ToolWrapper, error_result
from glue.errorcodec import decode_error, encode_error
from glue.errors import EmptyReply, ProviderError
from glue.failures import failure_result
from glue.messages import (
    AssistantMessage,
    Json,
    Request,
    ToolCall,
    message_from_json,
    message_to_json,
)
from glue.provider import Attempt, Done, Provider, ProviderEvent, Wrapper, opened
from glue.subagent import child_usage

Body: TypeAlias = Callable[[], Awaitable[Json]]

INTERRUPTED = (
    "interrupted: the machine was lost while this call ran;"
    " it may or may not have had its effect, and was not repeated"
)


class Checkpoints(Protocol):
    """The storage for the results of steps, which an engine implements.

    Steps are numbered in the order in which they begin. A run must begin the same steps in the same
    order each time, so that the number finds the stored result.
    """

    async def step(self, name: str, body: Body) -> Json:
        """Return the stored result of a step, or run the body and store and return its result."""


class DurableProvider(Wrapper):
    """A provider whose replies are stored, so that a resumed run does not request them again."""

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
            # A reply that was stored by an earlier execution has no deltas.
            async for event in receive:
                yield event
            stored = await task
        finally:
            receive.close()
            await _end(task)
        if not asked:
            for attempt in stored["attempts"]:
                yield from_json(Attempt, attempt)
        if "error" in stored:
            raise decode_error(stored["error"])
        if "message" in stored:
            yield Done(message=cast(AssistantMessage, message_from_json(stored["message"])))


async def _ask(
    provider: Provider, request: Request, forward: Callable[[ProviderEvent], None]
) -> Json:
    """Send a request, forward its deltas, and return the reply or the error as JSON."""
    attempts: list[Json] = []
    try:
        async with opened(provider, request) as events:
            async for event in events:
                if isinstance(event, Done):
                    return {"message": message_to_json(event.message), "attempts": attempts}
                if isinstance(event, Attempt):
                    attempts.append(to_json(event))
                forward(event)
    except ProviderError as error:
        # Stored like a reply, so that a resumed run gets the same error.
        return {"error": encode_error(error), "attempts": attempts}
    return {"error": encode_error(EmptyReply(provider=provider.name)), "attempts": attempts}


class DurableTool(ToolWrapper):
    """A tool whose results are stored.

    A call that was interrupted by the loss of its machine is not repeated, unless the tool is
    idempotent: the model gets the result `INTERRUPTED`. To detect this, a call that is not
    idempotent consists of two steps. The first step stores that the call has begun; the second
    stores its result.

    Args:
        tool: the tool to call.
        checkpoints: the storage for the results of steps.
        slots: limits how many calls run at the same time.
    """

    def __init__(self, tool: AnyTool, checkpoints: Checkpoints, slots: anyio.Semaphore) -> None:
        super().__init__(tool)
        self.checkpoints, self.slots = checkpoints, slots

    async def invoke(self, call: ToolCall, context: Context[Any]) -> ToolResult:
        # Both steps begin before anything is awaited. Otherwise the numbers of the steps would
        # depend on which of several calls is quicker.
        claim: asyncio.Task[bool] | None = None
        if not getattr(self.tool, "idempotent", False):
            claim = asyncio.ensure_future(self._claim(call.name))
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
            decoded = from_json(ToolResult, await result)
            usage = child_usage(decoded)
            if not ran and usage is not None:
                # A sub-agent ran in an earlier execution. Its usage counts in this one too.
                context.spending.spend(usage=usage)
            return decoded
        finally:
            await _end(*tasks)

    async def _claim(self, name: str) -> bool:
        """Store that the call begins. Return False if it began in an earlier execution.

        If it returns True, the caller must release a slot after the call.
        """
        claimed = False

        async def claim() -> Json:
            nonlocal claimed
            await self.slots.acquire()
            claimed = True
            return True

        try:
            await self.checkpoints.step(f"call {name}", claim)
        except BaseException:
            if claimed:
                self.slots.release()
            raise
        return claimed

    async def _call(self, call: ToolCall, context: Context[Any]) -> ToolResult:
        try:
            return await self.tool.invoke(call, context)
        except Exception as error:  # stored as the result that the loop would make of it
            return failure_result(error, f"tool {call.name}")


async def _end(*tasks: asyncio.Future[Any]) -> None:
    """Cancel the tasks that still run, and wait until all have ended."""
    for task in tasks:
        task.cancel()
    with anyio.CancelScope(shield=True):
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # marks it as retrieved; the code that awaited the task raised it
