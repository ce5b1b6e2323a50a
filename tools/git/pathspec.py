"""Pathspecs: the patterns that select files in a git command."""

from __future__ import annotations

import re
from collections.abc import Iterable

from glue.globs import Glob

# The forms that `build_pathspec` and `literal_pathspec` return.
KNOWN = re.compile(r":\((?:exclude,)?(?:glob|top,literal)\)", re.DOTALL)


def build_pathspec(includes: Iterable[str] = (), excludes: Iterable[str] = ()) -> list[str]:
    """Return the pathspecs that select files by patterns, to pass to git after `--`.

    A pattern without `/` matches at any depth, `**` matches several folders, and the name of a
    folder matches all files in it. Empty patterns are ignored.

    >>> build_pathspec(["src/*.py"], ["test_*"])[:2]
    [':(glob)src/*.py', ':(glob)src/*.py/**']
    """
    wanted = [spec for pattern in includes if pattern.strip() for spec in _specs(pattern, "glob")]
    unwanted = [
        spec for pattern in excludes if pattern.strip() for spec in _specs(pattern, "exclude,glob")
    ]
    if unwanted and not wanted:
        wanted = [":(glob)**"]  # git needs a pattern to exclude from
    return wanted + unwanted


def literal_pathspec(path: str, exclude: bool = False) -> str:
    """Return the pathspec of one file or folder; wildcards in the path are ordinary characters."""
    return f":({'exclude,' if exclude else ''}top,literal){path}"


def _specs(pattern: str, magic: str) -> list[str]:
    if "/" in pattern.rstrip("/"):
        pattern = pattern.removeprefix("./").lstrip("/")
    else:
        pattern = f"**/{pattern}"
    pattern = pattern.rstrip("/")
    if not pattern.strip("*/"):
        return [f":({magic})**"]
    if pattern.endswith("/**"):
        return [f":({magic}){pattern}"]
    return [f":({magic}){pattern}", f":({magic}){pattern}/**"]


class Scope:
    """The files that patterns include and exclude. Git gets `pathspec`; `covers` checks a path.

    >>> scope = Scope(["src"], ["*.lock"])
    >>> scope.covers("src/app/main.py"), scope.covers("src/poetry.lock"), scope.covers("README.md")
    (True, False, False)
    """

    def __init__(self, includes: Iterable[str] = (), excludes: Iterable[str] = ()) -> None:
        for name, patterns in (("includes", includes), ("excludes", excludes)):
            if isinstance(patterns, str):
                raise TypeError(
                    f"{name} must be a list of patterns, such as [{patterns!r}], not a string"
                )
        self.pathspec = tuple(build_pathspec(includes, excludes))
        self.included = [_glob(spec) for spec in self.pathspec if spec.startswith(":(glob)")]
        self.excluded = [_glob(spec) for spec in self.pathspec if spec.startswith(":(exclude")]

    def __repr__(self) -> str:
        return f"Scope({', '.join(self.pathspec)})"

    def covers(self, path: str) -> bool:
        """Return whether a file is included and not excluded."""
        names = path.split("/")
        if any(glob.matches(names) for glob in self.excluded):
            return False
        return not self.included or any(glob.matches(names) for glob in self.included)


def _glob(spec: str) -> Glob:
    return Glob(spec.partition(")")[2], strict=True)


EVERYTHING = Scope()
