"""Search files for a pattern, in a process that can be killed: a pattern may run for ever and holds the GIL."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field

import glue
from glue.errors import ToolError
from glue.tools.fs.read import show
from glue.tools.fs.root import Root
from glue.tools.process import Stop, run

SECONDS = 3.0
MEMORY = 400 * 1024 * 1024
OUTPUT = 4 * 1024 * 1024
RESULT = 200 * 1024


@dataclass(slots=True)
class Found:
    """What a search brought up."""

    lines: list[str] = field(default_factory=list)
    hits: int = 0
    files: int = 0
    notes: list[str] = field(default_factory=list)


def grep(root: Root, query: dict[str, object], stop: Stop | None = None) -> str:
    """Run a query (see worker.py) and write out its hits."""
    if not sys.executable:
        raise ToolError("grep needs a Python interpreter of its own, and sys.executable names none")
    home = os.path.dirname(os.path.dirname(os.path.abspath(glue.__file__)))
    worker = os.path.join(os.path.dirname(os.path.abspath(__file__)), "worker.py")
    given = {"fd": root.fd, "spellings": root.spellings, "home": home, "seconds": SECONDS - 0.4, "memory": MEMORY}
    order = json.dumps({**query, **given})
    finished = run(
        [sys.executable, "-I", "-S", "-B", worker],
        env={"LC_ALL": "C.UTF-8"},
        cwd="/",
        deadline=SECONDS,
        cap=OUTPUT,
        feed=order.encode(),
        pass_fds=(root.fd,),
        stop=stop,
    )
    found = _gather(finished.out)
    if finished.reason == "deadline":
        found.notes.append(f"stopped after {SECONDS:g} s: simplify the pattern or narrow the path")
    elif finished.code and not finished.reason:
        raise ToolError(f"grep failed: {finished.err.decode('utf-8', 'replace').strip()[-300:] or finished.code}")
    return _write(found)


def _gather(out: bytes) -> Found:
    found = Found()
    for line in out.split(b"\n")[:-1]:  # the last piece is empty, or was cut off when the worker was killed
        record = json.loads(line)
        if "error" in record:
            raise ToolError(record["error"])
        if "done" in record:
            found.notes.extend(record["done"])
            continue
        found.files += 1
        found.hits += record["hits"]
        name = show(record["path"])
        for number, mark, text in record["lines"]:
            found.lines.append("--" if number < 0 else f"{name}{mark}{number}{mark} {text}")
    return found


def _write(found: Found) -> str:
    text: list[str] = []
    size = 0
    for line in found.lines:
        size += len(line.encode("utf-8", "replace")) + 1
        if size > RESULT:
            found.notes.append("too much to show: narrow the pattern or the path")
            break
        text.append(line)
    if not found.hits:
        text.append("no match")
    text.extend(f"[{note}]" for note in found.notes)
    return "\n".join(text).encode("utf-8", "replace").decode()
