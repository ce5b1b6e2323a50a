"""The picture in the README is drawn from the output of a terminal."""

from __future__ import annotations

import importlib.util
import xml.etree.ElementTree as xml
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def picture() -> ModuleType:
    spec = importlib.util.spec_from_file_location("picture", ROOT / "bench" / "picture.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def texts(svg: str) -> list[tuple[str, str | None, str | None]]:
    found = xml.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    return [(item.text or "", item.get("fill"), item.get("font-weight")) for item in found]


def test_colours_are_drawn_and_other_escape_codes_are_ignored(picture: ModuleType) -> None:
    sent = "a \x1b[31;1mbad & <b>\x1b[0m c\x1b[2K\x1b[?25l\r\x1b[36mover\x1b[39m it"

    assert texts(picture.draw("plain\n" + sent, 40)) == [
        ("plain", None, None),
        ("over", picture.COLOURS[36], None),
        ("it", None, None),
    ]
    assert ("bad & <b>", picture.COLOURS[31], "bold") in texts(
        picture.draw(sent.split("\r")[0], 40)
    )


def test_long_lines_are_wrapped_at_the_edge_of_the_screen(picture: ModuleType) -> None:
    assert [text for text, _, _ in texts(picture.draw("abcdefgh  ij", 4))] == ["abcd", "efgh", "ij"]


def test_the_command_runs_in_a_terminal(picture: ModuleType) -> None:
    said = picture.played(["sh", "-c", "test -t 1 && stty size"], 77)

    assert said.split() == ["40", "77"]


def test_the_picture_in_the_readme_shows_the_demo() -> None:
    svg = (ROOT / "docs" / "demo.svg").read_text()

    said = [text for text, _, _ in texts(svg)]
    assert said[0] == "$ make demo"
    assert any("Undefined name" in text for text in said)
    assert len(svg) < 20_000
    assert "](docs/demo.svg)" in (ROOT / "README.md").read_text()
