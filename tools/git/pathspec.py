"""Pathspecs from include and exclude patterns."""

from __future__ import annotations

from collections.abc import Iterable


def build_pathspec(includes: Iterable[str] = (), excludes: Iterable[str] = ()) -> list[str]:
    """Turn patterns into pathspecs for git, to stand behind `--`.

    A pattern without `/` fits at any depth, `**` spans folders, and a folder stands for all that is in it.
    Excludes alone get a catch-all include before them; nothing gives nothing, and so do empty patterns.
    """
    wanted = [spec for pattern in includes if pattern.strip() for spec in _specs(pattern, "glob")]
    unwanted = [spec for pattern in excludes if pattern.strip() for spec in _specs(pattern, "exclude,glob")]
    if unwanted and not wanted:
        wanted = [":(glob)**"]
    return wanted + unwanted


def literal_pathspec(path: str, exclude: bool = False) -> str:
    """Name one path and nothing else, whatever characters it holds."""
    return f":({'exclude,' if exclude else ''}top,literal){path}"


def _specs(pattern: str, magic: str) -> list[str]:
    pattern = pattern.removeprefix("./").lstrip("/") if "/" in pattern.rstrip("/") else f"**/{pattern}"
    pattern = pattern.rstrip("/")
    if not pattern.strip("*/"):
        return [f":({magic})**"]
    if pattern.endswith("/**"):
        return [f":({magic}){pattern}"]
    return [f":({magic}){pattern}", f":({magic}){pattern}/**"]
