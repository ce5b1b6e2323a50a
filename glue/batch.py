"""Running the calls of one reply: several at once, results in the order they were asked for."""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio

from glue.context import AnyTool, Context, ToolResult, error_result
from glue.errors import ToolError
from glue.events import ToolEnd, ToolStart, ToolUpdate
from glue.state import State, watched
from glue.types import ToolCall, ToolMessage


@dataclass(slots=True)
class Batch:
    """The calls of one reply and what came of them."""

    calls: Sequence[ToolCall]
    results: list[ToolResult | None]
    messages: list[ToolMessage]
    started: dict[int, float] = field(default_factory=dict)  # when each call that was started was

    def vote(self, state: State, dropped: int) -> bool:
        """Tell whether the run ends here: every result that counts says so, and none is missing."""
        counted = [
            result
            for call, result in zip(self.calls, self.results, strict=True)
            if not ((tool := state.tools.get(call.name)) and tool.advisory)
        ]
        return bool(counted) and not dropped and all(r and r.terminate and not r.is_error for r in counted)


async def run_batch(state: State, calls: Sequence[ToolCall]) -> Batch:
    """Run every call; those that a cancellation cut short get an error result that says so."""
    batch = Batch(calls, [None] * len(calls), [])
    messages: list[ToolMessage | None] = [None] * len(calls)
    with watched(state):
        try:
            await _run_groups(state, batch, messages)
        finally:
            # Also when the enclosing scope is cancelled: the caller stores what there is.
            for index, call in enumerate(calls):
                if messages[index] is None:
                    messages[index] = cancelled = _message(call, error_result("cancelled"))
                    if index in batch.started:
                        _ended(state, batch, index, cancelled)
            batch.messages = [message for message in messages if message is not None]
            state.pending = list(batch.messages)
    return batch


async def _run_groups(state: State, batch: Batch, messages: list[ToolMessage | None]) -> None:
    limit = state.limits.parallel_tools
    for group in _groups(state, batch.calls):
        if len(group) == 1 or limit == 1:
            for index in group:
                await _run_one(state, batch, messages, index)
            continue
        slots = anyio.Semaphore(limit)

        async def one(index: int, slots: anyio.Semaphore = slots) -> None:
            async with slots:
                await _run_one(state, batch, messages, index)

        async with anyio.create_task_group() as tasks:
            for index in group:
                tasks.start_soon(one, index)


def _groups(state: State, calls: Sequence[ToolCall]) -> list[list[int]]:
    """Cut a batch where a tool must run alone."""
    groups: list[list[int]] = [[]]
    for index, call in enumerate(calls):
        tool = state.tools.get(call.name)
        if tool is not None and tool.alone:
            groups += [[index], []]
        else:
            groups[-1].append(index)
    return [group for group in groups if group]


async def _run_one(state: State, batch: Batch, messages: list[ToolMessage | None], index: int) -> None:
    call = batch.calls[index]
    await anyio.lowlevel.checkpoint_if_cancelled()  # a tool that never waits would not notice
    state.emit(ToolStart(call=call))
    batch.started[index] = time.monotonic()
    result = await _invoke(state, call)
    batch.results[index] = result
    messages[index] = message = _message(call, result)
    _ended(state, batch, index, message, result.traceback)


def _ended(state: State, batch: Batch, index: int, message: ToolMessage, traceback: str = "") -> None:
    seconds = time.monotonic() - batch.started[index]
    state.emit(ToolEnd(call=batch.calls[index], message=message, seconds=seconds, traceback=traceback))


async def _invoke(state: State, call: ToolCall) -> ToolResult:
    tool = state.tools.get(call.name)
    if tool is None or call.name not in state.offered:
        return error_result(_unavailable(state, call.name, tool))
    try:
        result = await tool.invoke(call, _context(state, call))
        if not isinstance(result, ToolResult):
            raise TypeError(f"tool {call.name!r} must return a glue.ToolResult, not {result!r}")
        return result
    except ToolError as error:
        return error_result(str(error))
    except Exception as error:
        result = error_result(error)
        return ToolResult(content=result.content, is_error=True, traceback=traceback.format_exc())


def _unavailable(state: State, name: str, tool: AnyTool | None) -> str:
    offered = sorted(state.offered)
    there = ", ".join(offered) or "none"
    if tool is not None:
        return f"tool {name!r} is not available now; there are: {there}"
    from difflib import get_close_matches

    close = get_close_matches(name, offered, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    return f"unknown tool {name!r}{hint}; there are: {there}"


def _context(state: State, call: ToolCall) -> Context[Any]:
    def report(text: str, data: Any, event: Any) -> None:
        state.emit(ToolUpdate(call_id=call.id, name=call.name, text=text, data=data, event=event))

    most = state.limits.max_turns
    return Context(
        call=call,
        host=state.host,
        cancel=state.cancel,
        purse=state.purse,
        report=report,
        limits=state.limits,
        turns_left=None if most is None else max(most - state.turns, 0),
    )


def _message(call: ToolCall, result: ToolResult) -> ToolMessage:
    return ToolMessage(
        call_id=call.id, name=call.name, content=result.content, is_error=result.is_error, meta=result.meta
    )
