"""What a rule sees: one changed file with both of its sides, and the project around it."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import cached_property
from pathlib import PurePosixPath

from glue.agents.review.findings.anchor import MIN_QUOTE
from glue.agents.review.findings.rules.source import Block, Source, functions, read
from glue.agents.review.records import Bundle, FileDiff, Hunk, Line

_LANGUAGES = {
    **dict.fromkeys((".py", ".pyi"), "python"),
    **dict.fromkeys((".js", ".jsx", ".ts", ".tsx", ".mjs", ".cjs", ".mts", ".cts"), "js"),
    ".go": "go",
}
_TEST = re.compile(
    r"(?:^|/)(?:\w*_?tests?|__tests__|__mocks__|spec|specs|testdata|\w*fixtures?_*|e2e|cypress)/"
    r"|(?:^|/)(?:test_[^/]+|conftest)\.py$|_test\.(?:go|py)$|\.(?:test|spec|stories)\.[cm]?[jt]sx?$",
    re.IGNORECASE,
)
_DOC = re.compile(r"\.(?:md|markdown|rst|adoc|txt)$", re.IGNORECASE)
_GENERATED = re.compile(
    r"(?:^|/)(?:vendor|node_modules|third_party|dist|build)/|\.min\.(?:js|css)$|\.pb\.go$|_pb2(?:_grpc)?\.py$"
    r"|\.(?:snap|lock|map)$|(?:^|/)(?:package-lock\.json|go\.sum|pnpm-lock\.yaml)$|\.generated\.",
    re.IGNORECASE,
)
_MARK = re.compile(r"code generated .{0,80}do not edit|@generated\b", re.IGNORECASE)
_PAIRED = 0.55  # how alike a deleted and an added line must be to count as one edited line
_FEW = 20  # files of a repository that is too young to be blamed for having no tests
_LONG = 2_000  # characters of a line that people do not write
_HUGE = 600_000  # characters of a file
_LARGE = 400  # lines of one change block above which pairing is not tried


@dataclass(frozen=True, slots=True)
class Edit:
    """Deleted lines and the added lines that took their place, with the line that follows them."""

    hunk: Hunk
    removed: tuple[Line, ...]
    added: tuple[Line, ...]
    after: Line | None  # the next line on the RIGHT side, for findings about pure deletions
    before: Line | None


@dataclass(frozen=True)
class View:
    """One changed file. Only reviewed text has a view: no binary, generated or deleted file."""

    file: FileDiff
    head: str
    base: str
    partial: bool = False  # the head text is not known; what is here was put together from the hunks

    @property
    def path(self) -> str:
        return self.file.path

    @cached_property
    def language(self) -> str:
        """The language whose rules apply; none for what no person wrote, such as a file of very long lines."""
        if len(self.head) > _HUGE or max(map(len, self.head.split("\n"))) > _LONG:
            return ""
        return language(self.path)

    @cached_property
    def is_test(self) -> bool:
        return is_test(self.path)

    @cached_property
    def is_doc(self) -> bool:
        return is_doc(self.path)

    @cached_property
    def source(self) -> Source:
        return read(self.head, self.language)

    @cached_property
    def functions(self) -> tuple[Block, ...]:
        if self.language == "python":
            return tuple(_python_functions(self.source, self.tree)) if self.tree is not None else ()
        return functions(self.source, self.language)

    @cached_property
    def tree(self) -> ast.Module | None:
        """The Python syntax tree, None where the file is not Python or does not parse."""
        return _parse(self.head) if self.language == "python" and not self.partial else None

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of the tree, walked once for all rules."""
        return tuple(ast.walk(self.tree)) if self.tree is not None else ()

    @cached_property
    def added(self) -> frozenset[int]:
        return frozenset(line.new for line in self.file.added if line.new is not None)

    @cached_property
    def edits(self) -> tuple[Edit, ...]:
        return tuple(edit for hunk in self.file.hunks for edit in _edits(hunk))

    @cached_property
    def pairs(self) -> tuple[tuple[Line, Line], ...]:
        """Lines that were edited: the old one and the new one."""
        return tuple(pair for edit in self.edits for pair in _pair(edit.removed, edit.added))

    def touches(self, start: int, end: int | None = None) -> bool:
        """Whether some line of the range was added."""
        return any(number in self.added for number in range(start, (end or start) + 1))

    def function_at(self, number: int) -> Block | None:
        """The innermost function around a line."""
        around = [block for block in self.functions if block.start <= number <= block.end]
        return min(around, key=lambda block: block.end - block.start, default=None)

    def place(self, start: int, end: int) -> tuple[int, int] | None:
        """Clip a range to the lines of one hunk that may carry a comment and hold enough text to quote."""
        best: list[int] = []
        for hunk in self.file.hunks:
            lines = [number for number in hunk.commentable if start <= number <= end]
            added = [number for number in lines if number in self.added]
            if len(added) > sum(number in self.added for number in best) or (lines and not best):
                best, around = lines, hunk.commentable
        if not best:
            return None
        first, last = best[0], best[-1]
        while self._ink(first, last) < MIN_QUOTE:
            if last + 1 in around:
                last += 1
            elif first - 1 in around:
                first -= 1
            else:
                return None
        return first, last

    def quote(self, start: int, end: int) -> str:
        return "\n".join(self.source.line(number) for number in range(start, end + 1))

    def _ink(self, start: int, end: int) -> int:
        return sum(not char.isspace() for char in self.quote(start, end))


@dataclass(frozen=True)
class Project:
    """The whole change. `search` finds a literal text in the files of the head, where there is a repository."""

    bundle: Bundle
    views: tuple[View, ...]
    search: Callable[[str], tuple[str, ...]] | None = None  # text -> paths that hold it
    words: frozenset[str] = field(default=frozenset())

    @cached_property
    def has_tests(self) -> bool | None:
        """Whether the repository has tests; None where that cannot be said: no list of files, or hardly any file."""
        paths = [*self.bundle.paths, *(file.path for file in self.bundle.files)]
        if any(is_test(path) for path in paths):
            return True
        return False if len(self.bundle.paths) > _FEW else None

    @cached_property
    def tests_touched(self) -> bool:
        return any(is_test(file.path) for file in self.bundle.files if file.status != "deleted")

    @cached_property
    def added(self) -> str:
        """All added lines of the change as one text."""
        return "\n".join(line.text for file in self.bundle.files for line in file.added)

    @cached_property
    def said(self) -> str:
        """What the author says of the change."""
        change = self.bundle.change
        return "\n".join((change.title, change.body, *(commit.message for commit in change.commits))).lower()

    def code_views(self) -> Iterator[View]:
        return (view for view in self.views if view.language and not view.is_test)

    def mentions(self, text: str) -> bool | None:
        """Whether code at the head holds a text; None where that cannot be known."""
        if any(text in head for path, head in self.bundle.head.items() if not is_doc(path)):
            return True
        if self.search is None:
            return None
        return any(not is_doc(path) for path in self.search(text))


def project(bundle: Bundle, search: Callable[[str], tuple[str, ...]] | None = None) -> Project:
    """Make the views of a bundle; files that were left out of the review have none."""
    left_out = {skip.path for skip in bundle.skipped}
    views = []
    for file in bundle.files:
        if file.path in left_out or not file.hunks or file.symlink or file.submodule or file.status == "deleted":
            continue
        head = bundle.head.get(file.path)
        text = _from_hunks(file) if head is None else head
        if is_generated(file.path, text):
            continue
        base = bundle.base.get(file.old_path or file.path, "")
        views.append(View(file, text, base, partial=head is None))
    return Project(bundle, tuple(views), search)


def language(path: str) -> str:
    return _LANGUAGES.get(PurePosixPath(path).suffix.lower(), "")


def is_test(path: str) -> bool:
    return _TEST.search(path) is not None


def is_doc(path: str) -> bool:
    return _DOC.search(path) is not None


def is_generated(path: str, head: str = "") -> bool:
    return _GENERATED.search(path) is not None or _MARK.search(head[:600]) is not None


def _parse(text: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a bad escape in the reviewed file is not our warning
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _python_functions(source: Source, tree: ast.Module) -> Iterator[Block]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            start, end = source.starts[node.lineno - 1], node.end_lineno or node.lineno
            stop = source.starts[end] if end < len(source.starts) else len(source.text)
            header = source.text[start : source.starts[node.body[0].lineno - 1]]
            yield Block(node.name, node.lineno, end, header, source.code[start:stop], start)


def _from_hunks(file: FileDiff) -> str:
    """The head as far as the hunks show it, every line at its own number."""
    lines: list[str] = []
    for line in (line for hunk in file.hunks for line in hunk.lines):
        if line.new is not None and line.new < 1_000_000:
            lines += [""] * (line.new - len(lines))
            lines[line.new - 1] = line.text
    return "\n".join(lines)


def _edits(hunk: Hunk) -> Iterator[Edit]:
    removed: list[Line] = []
    added: list[Line] = []
    before: Line | None = None
    for line in (*hunk.lines, None):
        if line is not None and line.kind == "-":
            if added:  # git may print + before - where blocks meet
                yield Edit(hunk, tuple(removed), tuple(added), line if line.new else None, before)
                removed, added = [], []
            removed.append(line)
        elif line is not None and line.kind == "+":
            added.append(line)
        else:
            if removed or added:
                yield Edit(hunk, tuple(removed), tuple(added), line, before)
                removed, added = [], []
            before = line


def _pair(removed: tuple[Line, ...], added: tuple[Line, ...]) -> Iterator[tuple[Line, Line]]:
    if not removed or not added or len(removed) > _LARGE or len(added) > _LARGE:
        return
    free = list(added)
    # One line that took the place of one line is its edit even where much of it is new.
    enough = _PAIRED if len(removed) + len(added) > 2 else _PAIRED - 0.15
    for old in removed:
        if not old.text.strip():
            continue
        scores = [(_alike(old.text, new.text), -index) for index, new in enumerate(free)]
        score, index = max(scores, default=(0.0, 0))
        if score >= enough:
            yield old, free.pop(-index)


def _alike(one: str, other: str) -> float:
    one, other = one.strip(), other.strip()
    if not one or not other or len(one) > 500 or len(other) > 500:
        return 0.0
    matcher = SequenceMatcher(None, one, other, autojunk=False)
    if matcher.real_quick_ratio() < _PAIRED - 0.15 or matcher.quick_ratio() < _PAIRED - 0.15:
        return 0.0
    return matcher.ratio()
