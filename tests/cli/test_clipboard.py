"""The clipboard, with programs in a folder of the test."""

from __future__ import annotations

import base64
import io
import os
from pathlib import Path

from glue.cli.clipboard import copy_text
from glue.cli.screen import Screen


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def program(folder: Path, name: str, code: int = 0) -> dict[str, str]:
    path = folder / name
    path.write_text(f"#!/bin/sh\n/bin/cat > {folder / 'copied'}\nexit {code}\n")
    path.chmod(0o755)
    return {"PATH": str(folder)}


def test_a_program_of_the_desktop_gets_the_text(tmp_path: Path) -> None:
    environ = {**program(tmp_path, "wl-copy"), "WAYLAND_DISPLAY": "wayland-0"}

    used = copy_text("Grüße\n", Screen(io.StringIO()), environ)

    assert used == "wl-copy"
    assert (tmp_path / "copied").read_text() == "Grüße\n"


def test_a_program_without_its_desktop_or_that_fails_is_skipped(tmp_path: Path) -> None:
    environ = {**program(tmp_path, "wl-copy"), **program(tmp_path, "pbcopy", code=1)}

    assert copy_text("text", Screen(io.StringIO()), environ) == ""


def test_without_a_program_the_terminal_is_asked() -> None:
    file = Terminal()

    used = copy_text("Grüße", Screen(file, {"TERM": "xterm"}), {"PATH": os.devnull})

    assert used == "OSC 52"
    assert base64.b64decode(file.getvalue()[7:-1]).decode() == "Grüße"
