"""The clipboard: copy a text with a program of the desktop, or through the terminal."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from collections.abc import Mapping

from glue.cli.screen import Screen

# Programs that copy stdin to the clipboard. Each is used only if its variable is set; "" is none.
_PROGRAMS = (
    ("WAYLAND_DISPLAY", ("wl-copy",)),
    ("DISPLAY", ("xclip", "-selection", "clipboard")),
    ("DISPLAY", ("xsel", "--clipboard", "--input")),
    ("", ("pbcopy",)),
    ("", ("clip.exe",)),
    ("TMUX", ("tmux", "load-buffer", "-w", "-")),
)
_SECONDS = 5.0  # timeout of a program


def copy_text(text: str, out: Screen, environ: Mapping[str, str] = os.environ) -> str:
    """Copy a text to the clipboard; return the program or protocol used, or "" if none works.

    If no program works, the terminal is asked with the escape sequence OSC 52. This also works over
    SSH, but its effect cannot be checked. Return "" if stdout is not a terminal that knows escape
    sequences.
    """
    for variable, program in _PROGRAMS:
        path = shutil.which(program[0], path=environ.get("PATH"))
        if (
            path is not None
            and (not variable or environ.get(variable))
            and _run(path, program, text)
        ):
            return program[0]
    if not out.is_terminal or out.is_dumb:
        return ""
    out.write(f"\x1b]52;c;{base64.b64encode(text.encode()).decode()}\x07")
    return "OSC 52"


def _run(path: str, program: tuple[str, ...], text: str) -> bool:
    """Pass a text to a clipboard program; return whether the program ended with exit code 0.

    The program may leave a process in the background that serves the text.
    """
    try:
        done = subprocess.run(
            [path, *program[1:]],
            input=text.encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
