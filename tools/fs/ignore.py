"""What .gitignore files leave out."""

from __future__ import annotations

from collections.abc import Sequence

from glue.tools.fs.glob import MAX_PATTERN, Glob

MAX_FILE = 64 * 1024
MAX_RULES = 1000


class Rules:
    """The rules of one .gitignore, for paths relative to its directory; the last rule that fits decides."""

    __slots__ = ("depth", "named", "others")

    def __init__(self, text: str, depth: int) -> None:
        self.depth = depth  # how many components lie above
        self.named: dict[str, list[tuple[int, bool, bool]]] = {}  # plain names: no need to try each rule
        self.others: list[tuple[int, bool, bool, bool, Glob]] = []
        for number, line in enumerate(text.splitlines()[:MAX_RULES]):
            self._add(number, line)

    def _add(self, number: int, line: str) -> None:
        line = line.rstrip("\r\n")
        while line.endswith(" ") and not line.endswith("\\ "):
            line = line[:-1]
        if not line or line.startswith("#") or len(line) > MAX_PATTERN:
            return
        keep = line.startswith("!")
        line = line[1:] if keep else line
        folder = line.endswith("/")
        line = line.rstrip("/") if folder else line
        if not line:
            return
        if "/" in line:
            self.others.append((number, keep, folder, True, Glob(line.removeprefix("/"))))
        elif any(char in "*?[\\" for char in line):
            self.others.append((number, keep, folder, False, Glob(line)))
        else:
            self.named.setdefault(line, []).append((number, keep, folder))

    def judge(self, names: Sequence[str], is_folder: bool) -> bool | None:
        """Say whether a path is ignored; None where no rule speaks of it."""
        best, verdict = -1, None
        last = names[-1]
        for number, keep, folder in self.named.get(last, ()):
            if number > best and (is_folder or not folder):
                best, verdict = number, not keep
        for number, keep, folder, anchored, glob in reversed(self.others):
            if number < best:
                break
            if (is_folder or not folder) and glob.matches(names[self.depth :] if anchored else [last]):
                return not keep
        return verdict


def ignored(rules: Sequence[Rules], names: Sequence[str], is_folder: bool) -> bool:
    """Ask the nearest .gitignore first, then those above it."""
    for layer in reversed(rules):
        verdict = layer.judge(names, is_folder)
        if verdict is not None:
            return verdict
    return False
