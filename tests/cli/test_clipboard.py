"""The clipboard, with programs in a folder of the test."""

from __future__ import annotations

import base64
import io
import os
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    ("name", "variable", "arguments"),
    [
        ("xclip", "DISPLAY", "-selection clipboard"),
        ("xsel", "DISPLAY", "--clipboard --input"),
        ("tmux", "TMUX", "load-buffer -w -"),
        ("pbcopy", "", ""),
    ],
)
def test_each_program_gets_its_arguments(
    tmp_path: Path, name: str, variable: str, arguments: str
) -> None:
    environ = program(tmp_path, name)
    path = tmp_path / name
    path.write_text(path.read_text().replace("exit", f'echo "$*" > {tmp_path}/arguments\nexit'))

    used = copy_text("text", Screen(io.StringIO()), {**environ, variable: "set"})
    without = copy_text("text", Screen(io.StringIO()), environ)

    assert used == name
    assert without == ("" if variable else name)
    assert (tmp_path / "arguments").read_text() == f"{arguments}\n"
    assert (tmp_path / "copied").read_text() == "text"


def test_a_dumb_terminal_is_not_asked() -> None:
    file = Terminal()

    assert copy_text("text", Screen(file, {"TERM": "dumb"}), {"PATH": os.devnull}) == ""
    assert file.getvalue() == ""


def test_a_program_that_cannot_be_started_is_skipped(tmp_path: Path) -> None:
    environ = program(tmp_path, "pbcopy")
    (tmp_path / "pbcopy").write_text("#!/nonexistent/shell\n")

    assert copy_text("text", Screen(io.StringIO()), environ) == ""
