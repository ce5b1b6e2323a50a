"""Who may run what from a command line: flags, then the agent's own policy, then the person at the terminal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from glue.cli.output import Screen
from glue.errors import GlueError
from glue.permission import AllowAll, Ask, Decision, Permission, PermissionRequest, Rules, allow, deny
from glue.text import clean_text, one_line

KEYS = "[y]es, [n]o, [a]lways this, [s]ession: all of {action}"

_LARGEST = 1024 * 1024  # bytes of a file that are read for a diff
_MOST = 60  # lines of a diff that are shown


class Unattended:
    """Deny what nobody can be asked for, and name the flag that allows it."""

    def decide(self, request: PermissionRequest) -> Decision:
        return deny(f"nobody can be asked here; --allow {request.action} allows it, --yes allows everything")


def permission(
    own: Permission | None,
    *,
    allow: Iterable[str] = (),
    deny: Iterable[str] = (),
    yes: bool = False,
    ask: Callable[[PermissionRequest], Any] | None = None,
) -> Permission:
    """Make the policy of a run. `ask` is None where nobody can be asked."""
    allow, deny = tuple(allow), tuple(deny)
    otherwise: Permission
    if yes:
        otherwise = AllowAll()
    elif own is not None:
        otherwise = own
    else:
        otherwise = Ask(ask) if ask is not None else Unattended()
    return Rules(allow=allow, deny=deny, otherwise=otherwise) if allow or deny else otherwise


def question(request: PermissionRequest, screen: Screen) -> str:
    """Write what a tool is about to do, so that it can be judged."""
    # Whole and as it is: what is cut off or squeezed here would be allowed unseen.
    target = clean_text(request.target).replace("\n", "␊").replace("\t", "␉")
    what = f"{one_line(request.action)} {target}".strip()
    lines = [screen.paint(f"? {what}", "yellow")]
    change = _change(request)
    if change is not None:
        lines += _coloured(change, screen)
    for name, value in request.arguments.items():
        if change is not None and name in ("old", "new", "content", "edits"):
            continue
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        if text == request.target:
            continue
        shown = clean_text(text).splitlines() or [""]
        more = [f"    … {len(shown) - 12} more lines"] if len(shown) > 12 else []
        lines += [f"  {one_line(name)}:", *(f"    {_cut(line)}" for line in shown[:12]), *more]
    return "\n".join(lines)


def _change(request: PermissionRequest) -> list[str] | None:
    """Give what a call changes in a file as a diff, as the tool sees it, or of the piece that is replaced."""
    if request.touched is not None and request.touched.preview:
        return request.touched.preview.splitlines()
    old, new, content, path = (request.arguments.get(name) for name in ("old", "new", "content", "path"))
    if isinstance(content, str) and isinstance(path, str):
        old, new = _text(path), content
    if not isinstance(old, str) or not isinstance(new, str):
        return None
    from difflib import unified_diff

    return list(unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=2))[2:]


def _text(path: str) -> str | None:
    """Read a file that a tool of somebody else's is about to replace, where it lies below the working directory."""
    from glue.tools.fs import safe_open

    try:
        with safe_open(".", path) as file:
            return file.read(_LARGEST).decode("utf-8", "replace")
    except (OSError, GlueError):
        return None


def _coloured(change: list[str], screen: Screen) -> list[str]:
    colours = {"+": "green", "-": "red", "@": "cyan"}
    lines = []
    for line in change[:_MOST]:
        text = f"    {_cut(clean_text(line))}"
        lines.append(screen.paint(text, colours[line[0]]) if line[:1] in colours else text)
    more = [f"    … {len(change) - _MOST} more lines of the change"] if len(change) > _MOST else []
    return [*(lines or ["    (nothing changes)"]), *more]


def _cut(line: str) -> str:
    return line if len(line) <= 300 else f"{line[:300]}… {len(line) - 300} more characters"


def answer_of(text: str) -> Decision:
    """Understand an answer; anything but a clear yes is a no."""
    word = text.strip().lower()
    if word in ("y", "yes"):
        return allow()
    if word in ("a", "always"):
        return allow("target")
    if word in ("s", "session"):
        return allow("session")
    return deny("the user said no")


def keys(request: PermissionRequest) -> str:
    return KEYS.format(action=one_line(request.action)) + " > "
