"""Helpers for tests of the file tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

Tools = dict[str, Any]


def write_tree(folder: Path, *names: str) -> None:
    """Write files below a folder; the text of each is "needle in NAME"."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"needle in {name}\n")
