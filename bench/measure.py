"""Runs one contender on one work in this process, and prints CPU seconds and memory as JSON."""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
from typing import Any

import anyio
import work


def cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def peak() -> float:
    """Return the peak memory of this process in megabytes."""
    try:
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmHWM:"))
    except OSError:  # macOS counts in bytes
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 / 1024


async def perform(contender: Any, context: Any, todo: work.Work) -> None:
    seen = 0

    def count(text: str) -> None:
        nonlocal seen
        seen += 1

    async def one() -> None:
        text = await contender.run(context, todo.prompt, count)
        assert text.strip() == work.answer(todo.deltas).strip(), f"wrong answer: {text[:80]!r}"

    async with anyio.create_task_group() as group:
        for _ in range(todo.runs):
            group.start_soon(one)
    assert seen == todo.deltas * todo.runs, f"{seen} deltas seen"
    assert len(work.marks) == todo.turns * todo.runs, f"{len(work.marks)} calls made"


async def main(name: str, todo: work.Work) -> None:
    contender = importlib.import_module(name)
    context = await contender.setup(os.environ["BENCH_URL"])
    if todo.warm:
        await perform(contender, context, work.Work(turns=1))
        work.marks.clear()
    before = cpu()
    await perform(contender, context, todo)
    result = {"cpu": cpu() - before, "memory": peak()}
    if todo.turns >= 400:
        result["late"] = (work.marks[399] - work.marks[379]) / 20
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], work.WORKS[sys.argv[2]])
