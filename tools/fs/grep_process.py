"""Search files with a worker process, which can be killed if a pattern takes too long.

A regular expression may run for hours, and Python cannot interrupt it in a thread. The worker runs
`glue.tools.fs.search`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import glue
from glue.errors import ToolError
from glue.tasks import StopFlag
from glue.tools.fs.files import lines_that_fit
from glue.tools.fs.root import Root
from glue.tools.fs.search import REFUSED
from glue.tools.process import run

SECONDS = 3.0
MEMORY = 400 * 1024 * 1024
OUTPUT = 4 * 1024 * 1024
RESULT = 200 * 1024
HOME = Path(glue.__file__).absolute().parents[1]  # the folder that contains the package
PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv[1]); from glue.tools.fs.search import main; main()"
)


def grep(
    root: Root, query: dict[str, object], stop: StopFlag | None = None, seconds: float = SECONDS
) -> str:
    """Run a grep query in a worker process; return the hits and notes as text for the model.

    The worker starts without site-packages and without the environment variables of this process.
    """
    if not sys.executable:
        raise ToolError("grep needs a Python interpreter, but sys.executable is not set")
    limits = {"seconds": seconds - 0.4, "memory": MEMORY}
    order = json.dumps({**query, **limits, "fd": root.fd, "spellings": root.spellings})
    finished = run(
        [sys.executable, "-I", "-S", "-B", "-c", PROGRAM, str(HOME)],
        env={"LC_ALL": "C.UTF-8"},
        cwd="/",
        deadline=seconds,
        cap=OUTPUT,
        feed=order.encode(),
        pass_fds=(root.fd,),
        stop=stop,
    )
    # The last piece is empty, or incomplete because the worker was killed.
    lines, messages = (
        each.decode("utf-8", "replace").split("\n")[:-1] for each in (finished.out, finished.err)
    )
    notes = messages
    if finished.reason == "deadline":
        notes.append(
            f"the search was stopped after {seconds:g} s: simplify the pattern or narrow the path"
        )
    elif finished.code == REFUSED and not finished.reason:
        raise ToolError("\n".join(messages))
    elif finished.code and not finished.reason:
        reason = finished.err.decode("utf-8", "replace").strip()[-300:]
        raise ToolError(f"grep failed: {reason or finished.code}")
    shown = lines_that_fit(lines, RESULT)
    if len(shown) < len(lines):
        notes.append("the other hits are too long to show: narrow the pattern or the path")
    return "\n".join([*(shown if lines else ["no match"]), *(f"[{note}]" for note in notes)])
