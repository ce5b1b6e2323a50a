"""Reports of exceptions that the user's tools, hooks or listeners raise and the loop catches.

Such an exception does not end a run, so it must be visible somewhere else. If logging is configured
for `glue`, it is logged with its traceback; otherwise one line is written to stderr:

    glue: tool divide raised ZeroDivisionError: division by zero (app.py:12)
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from dataclasses import replace
from functools import cache

from glue.context import ToolResult, error_result
from glue.errors import GlueError, ToolError, innermost
from glue.text import one_line

_LINE_WIDTH = 400  # of a report on stderr
_OTHER_THREAD = (
    "a plain function runs in a thread of its own, and this connection belongs to another thread: "
    "open it with check_same_thread=False, open it inside the tool, "
    "or make the tool an async function"
)
_printed: set[str] = set()
_shows_notices = False  # whether the program shows `result.notice` itself


def failure_result(error: Exception, what: str = "") -> ToolResult:
    """Log or print a bug of a tool or hook, and return the error result for the model.

    `report_bug` ignores an exception that is not a bug, such as a ToolError. `what` names the
    function that raised the exception, as in "tool divide".
    """
    cause = innermost(error)
    result = error_result(str(cause) if isinstance(cause, ToolError) else cause)
    report_bug(what or "a tool call", error)
    return replace(result, traceback="".join(traceback.format_exception(error)))


def report_bug(what: str, error: Exception, *, once: bool = False) -> None:
    """Log an exception that is a bug, or print it to stderr if logging is not configured.

    Errors that are not bugs are ignored: a GlueError such as ToolError or UnsafePath, and an
    OSError that glue's own code raised, for example in `safe_open` because a file does not exist.
    If `once` is True, the same line is printed only once in a process.
    """
    cause = innermost(error)
    place, is_ours = _find_place(cause)
    if isinstance(cause, GlueError) or (isinstance(cause, OSError) and is_ours):
        return
    bound = type(cause).__module__ == "sqlite3" and "same thread" in str(cause)
    log = logging.getLogger("glue.tools")
    if _is_configured(log):
        if bound:
            log.warning(_OTHER_THREAD)
        log.warning("%s raised %s", what, type(cause).__name__, exc_info=error)
        return
    detail = f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__
    line = one_line(f"glue: {what} raised {detail}", _LINE_WIDTH) + (f" ({place})" if place else "")
    if bound:
        line += f"; {_OTHER_THREAD}"
    if once and line in _printed:
        return
    _printed.add(line)
    if sys.stderr is not None:
        print(line, file=sys.stderr, flush=True)


def warn_once(line: str) -> None:
    """Log a warning once in a process, or print it to stderr if logging is not configured.

    A line that was logged or printed before is ignored.
    """
    if line in _printed:
        return
    _printed.add(line)
    log = logging.getLogger("glue.notes")
    if _is_configured(log):
        log.warning("%s", line)
    elif sys.stderr is not None:
        print(f"glue: {line}", file=sys.stderr, flush=True)


def show_notices_yourself() -> None:
    """Suppress the warnings of `warn_of_notice` in this process: the caller shows the notices."""
    global _shows_notices
    _shows_notices = True


def warn_of_notice(text: str) -> None:
    """Log or print a notice about a reply, such as "no model wrote this", once in a process.

    Do nothing if the program shows `result.notice` itself, as the command `glue` does.
    """
    if not _shows_notices:
        warn_once(text)


def _find_place(error: BaseException) -> tuple[str, bool]:
    """Return the "file:line" to blame for an error, and whether glue's own code raised the error.

    The line is that of the innermost frame of user code. If every frame belongs to glue or to a
    library, the line is that of the innermost frame. If the error has no traceback, return "".
    Libraries do not count: an error in a library was raised by the code that called the library.
    """
    place, is_users, is_raised_by_us = "", False, True
    for frame, line in traceback.walk_tb(error.__traceback__):
        name = str(frame.f_globals.get("__name__", ""))
        path = frame.f_code.co_filename
        is_ours = name == "glue" or name.startswith("glue.")
        is_library = not is_ours and path.startswith((*_libraries(), "<frozen"))
        if not is_library:
            is_raised_by_us = is_ours
        if is_ours or is_library:
            place = place if is_users else f"{path}:{line}"
        else:
            place, is_users = f"{path}:{line}", True
    return place, is_raised_by_us


@cache
def _libraries() -> tuple[str, ...]:
    """Return the folders of the standard library and of installed packages."""
    import sysconfig  # start-up: only needed after an error

    paths = sysconfig.get_paths()
    return tuple(
        os.path.join(paths[name], "") for name in ("stdlib", "platstdlib", "purelib", "platlib")
    )


def _is_configured(log: logging.Logger) -> bool:
    """Return whether the user has given `log` a handler or has switched its warnings off.

    A NullHandler does not count. A handler of a parent counts if `log` propagates to the parent.
    """
    if not log.isEnabledFor(logging.WARNING):
        return True  # the user has switched the warnings off
    current: logging.Logger | None = log
    while current is not None:
        if any(not isinstance(handler, logging.NullHandler) for handler in current.handlers):
            return True
        current = current.parent if current.propagate else None
    return False
