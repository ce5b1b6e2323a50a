"""What is wrong with a value that a model sent, said one line per fault."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, TypeAlias

Path: TypeAlias = tuple[str | int, ...]


class Faults(ValueError):
    """One or more faults; each has the path to the value and a text."""

    def __init__(self, faults: Iterable[tuple[Path, str]]) -> None:
        self.faults = tuple((path, clean(text.replace("\n", " "))[:500]) for path, text in faults)
        super().__init__("\n".join(self.lines))

    @property
    def lines(self) -> list[str]:
        return [f"{where(path)}: {text}" if path else text for path, text in self.faults]

    def below(self, key: str | int) -> Faults:
        """The same faults, seen from one level up."""
        return Faults(((key, *path), text) for path, text in self.faults)


def where(path: Path) -> str:
    """Write a path as code would: `orders[2].price`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            name = clean(step[:80])
            text += f".{name}" if text else name
    return text


def show(value: Any, limit: int = 80) -> str:
    """Write a JSON value on one line, cut where it is long."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = repr(value)
    text = clean(text)
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"


def clean(text: str) -> str:
    """Make a text fit for one line of UTF-8: lone surrogates and control characters are replaced."""
    if text.isascii() and text.isprintable():
        return text
    text = text.encode("utf-8", "replace").decode()
    return "".join(char if char.isprintable() or char == " " else "�" for char in text)
