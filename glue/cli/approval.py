"""Permission questions in the terminal: the text of a question, and the parsed answer."""

from __future__ import annotations

import sys
from difflib import unified_diff

from glue.cli.printer import value_text
from glue.cli.screen import Screen
from glue.decision import PendingCall
from glue.errors import GlueError
from glue.hidden import HIDDEN_CHARACTERS
from glue.permission import Decision, PermissionRequest, allow, deny
from glue.text import clean_text, one_line
from glue.tools.fs import safe_open

_MAX_FILE = 1024 * 1024  # bytes of a file that are read for a diff
_MAX_DIFF = 60  # lines of a diff that are shown
_MAX_LINES = 12  # lines of an argument that are shown
_MAX_LINE = 300  # characters of a line that are shown


def question(request: PermissionRequest, screen: Screen) -> str:
    """Return the text that asks for permission: the action, its target, the diff, the arguments."""
    # Never shorten the target: the user would allow a part that they cannot see. Show controls of
    # the reading direction, because a terminal may display a command in another order.
    marks = HIDDEN_CHARACTERS["bidirectional controls"]
    target = marks.sub(lambda mark: f"⟨U+{ord(mark[0]):04X}⟩", request.target)
    target = clean_text(target).replace("\n", "␊").replace("\t", "␉")
    lines = [screen.paint(f"? {one_line(request.action)} {target}".strip(), "yellow")]
    if request.reason:
        lines.append(f"  {clean_text(one_line(request.reason))}")
    change = change_of(request)
    if change is not None:
        lines += _coloured(change, screen)
    for name, value in request.arguments.items():
        text = value_text(value)
        is_in_diff = change is not None and name in ("old", "new", "content", "edits")
        if text == request.target or is_in_diff or _is_command(request, value):
            continue
        shown = clean_text(text).splitlines() or [""]
        lines += [f"  {one_line(name)}:", *(f"    {_cut(line)}" for line in shown[:_MAX_LINES])]
        if len(shown) > _MAX_LINES:
            lines.append(f"    … {len(shown) - _MAX_LINES} more lines")
    return "\n".join(lines)


def _is_command(request: PermissionRequest, value: object) -> bool:
    """Return whether `value` is the command of a request, and the target shows the whole command.

    Such an argument need not be shown again.
    """
    command = request.touched.command if request.touched is not None else None
    return isinstance(command, str) and command == value and command in request.target


def change_of(request: PermissionRequest) -> list[str] | None:
    """Return the diff of the file that a call would change, or None if no diff can be made.

    The diff is the tool's own preview if it has one. Otherwise it compares the file `path` with the
    argument `content`, or the argument `old` with `new`.
    """
    if request.touched is not None and request.touched.preview:
        return request.touched.preview.splitlines()
    old, new, content, path = (
        request.arguments.get(name) for name in ("old", "new", "content", "path")
    )
    if isinstance(content, str) and isinstance(path, str):
        try:  # a user's tool may name a file outside the working directory
            with safe_open(".", path) as file:
                old, new = file.read(_MAX_FILE).decode("utf-8", "replace"), content
        except (OSError, GlueError):
            return None
    if not isinstance(old, str) or not isinstance(new, str):
        return None
    return list(unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=2))[2:]


def _coloured(change: list[str], screen: Screen) -> list[str]:
    colours = {"+": "green", "-": "red", "@": "cyan"}
    lines = []
    for line in change[:_MAX_DIFF]:
        text = f"    {_cut(clean_text(line))}"
        lines.append(screen.paint(text, colours[line[0]]) if line[:1] in colours else text)
    if len(change) > _MAX_DIFF:
        lines.append(f"    … {len(change) - _MAX_DIFF} more lines of the change")
    return lines or ["    (the call changes nothing)"]


def _cut(line: str) -> str:
    if len(line) <= _MAX_LINE:
        return line
    return f"{line[:_MAX_LINE]}… {len(line) - _MAX_LINE} more characters"


def choices(request: PermissionRequest) -> str:
    """Return the line that lists the valid answers to a permission question."""
    action = one_line(request.action)
    return f"  [y]es, [n]o, [a]lways for this target, [s]ession: every {action} > "


def ask_yes_or_no(call: PendingCall, screen: Screen) -> Decision | str | None:
    """Ask the user for the decision on a pending call, or for its result; return None for later.

    Any text except yes and no decides later. For a call that another system answers, return the
    result that the user types.
    """
    if call.request is None:
        screen.write(
            screen.paint("  result of the call (press Enter to decide later) > ", "yellow")
        )
        return sys.stdin.readline().rstrip("\n") or None
    screen.write(screen.paint("  [y]es, [n]o, [l]ater > ", "yellow"))
    return parse_late_answer(sys.stdin.readline())


def parse_late_answer(text: str) -> Decision | None:
    """Return the decision for an answer of y, yes, n or no, or None for any other answer."""
    match text.strip().lower():
        case "y" | "yes":
            return allow()
        case "n" | "no":
            return deny("the user said no")
    return None


def parse_answer(text: str) -> Decision:
    """Return the decision that a user's answer means: y, a and s allow, everything else denies."""
    match text.strip().lower():
        case "y" | "yes":
            return allow()
        case "a" | "always":
            return allow("target")
        case "s" | "session":
            return allow("session")
    return deny("the user said no")
