"""The code around a change, for the prompt: callers and existing tests of the changed functions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from glue.agents.review.change.collect import file_text
from glue.agents.review.change.languages import functions, is_doc, is_test, language
from glue.agents.review.findings.related_tests import NAME, related_tests
from glue.agents.review.records import Bundle
from glue.errors import GitError
from glue.text import count as counted
from glue.tools.git import GrepHit, Repo

MAX_FUNCTIONS = 8  # changed functions whose callers are shown
CALLS = 5  # callers of each
CALLS_OF_CALLERS = 2  # callers of each function that calls a changed one
MAX_HITS = 4_000  # lines that name a function
_CONSTRUCTORS = frozenset(("__init__", "__new__", "__post_init__", "constructor", "initialize"))
_SPECIAL = re.compile(r"__\w+__$|(?:main|toString)$")
# An import, also one over several lines in brackets.
_IMPORT = re.compile(
    r"(?m)^[ \t]*(?:(?:import|from|use|include|require|require_relative)\b"
    r"|(?:const|let|var|export)\b[^\n]*?\b(?:require|from)\b)"
    r"[^\n({]*(?:\([^)]*\)|\{[^}]*\})?[^\n]*"
)
_NAME = re.compile(r"[\w$]+")
# A line of a comment, of a docstring with marked-up code, or of a list of exported names.
_PROSE = re.compile(r"\s*(?:#|//|\*|/\*|:|- |\.\. |>>> |\.\.\. |[\"'][\w$]+[\"'],?$)|.*``")
_LONG_STRING = re.compile(r"(\"{3}|'{3}).*?\1", re.DOTALL)
# Files whose folder is the name of the module.
_FOLDER_MODULES = ("__init__", "index", "mod", "main")


@dataclass(frozen=True, slots=True)
class ChangedFunction:
    """A function with changed lines: the name that its callers use, its file and its class."""

    name: str
    path: str
    owner: str = ""


def surroundings(bundle: Bundle, repo: Repo | None) -> str:
    """Return a text for the prompt that lists tests and callers of the changed functions.

    Return "" if none are found, or without a repository.
    """
    head = bundle.change.head_sha
    if repo is None or not head:
        return ""
    parts = []
    try:
        tests, unread = related_tests(bundle, repo)
        if tests:
            left_out = f" ({counted(unread, 'test file')} not searched)" if unread else ""
            title = f"Existing tests closest to the change, best match first{left_out}:"
            rows = (f"  {test.path}:{test.line}: {test.name[:NAME]}" for test in tests)
            parts.append("\n".join([title, *rows]))
        if callers := list(dict.fromkeys(Callers(bundle, repo).rows())):
            parts.append("\n".join(["Other calls of the changed functions:", *callers]))
    except GitError:
        pass  # a review without this part is better than none
    return "\n\n".join(parts)


def changed_functions(bundle: Bundle) -> Iterator[ChangedFunction]:
    """Yield the changed functions, but only the first of several with the same name.

    A function is changed if it has an added line, or if a line in it was deleted.
    A constructor is called by the name of its class. Names that are too short to be searched for,
    other special methods and tests are left out.
    """
    found: set[str] = set()
    for file in bundle.files:
        if is_test(file.path):
            continue
        for function in functions(bundle.head.get(file.path, "")):
            is_touched = any(function.start <= line <= function.end for line in file.touched)
            is_constructor = function.name in _CONSTRUCTORS and function.owner
            name = function.owner if is_constructor else function.name
            is_plain = len(name) > 2 and not _SPECIAL.match(name)
            if is_touched and is_plain and name not in found:
                found.add(name)
                yield ChangedFunction(name, file.path, "" if is_constructor else function.owner)


class Callers:
    """A search for calls of the changed functions, in the head version of the repository."""

    def __init__(self, bundle: Bundle, repo: Repo) -> None:
        self.bundle, self.repo = bundle, repo
        self.texts: dict[str, str] = {}

    def rows(self) -> Iterator[str]:
        """Find the calls of the changed functions, and yield a line of text for each call.

        The line has the path, the line number, the calling function and the code. If a function is
        called only in its own file, callers of its callers in other files are yielded too.
        """
        changed = list(changed_functions(self.bundle))[:MAX_FUNCTIONS]
        searched = {function.name for function in changed}
        for function in changed:
            calls = self.calls(function)
            yield from map(self._row, calls)
            if any(hit.path != function.path for hit in calls):
                continue
            for name in dict.fromkeys(map(self._function_around, calls)):
                if not name or name in searched or _SPECIAL.match(name):
                    continue
                searched.add(name)
                further = self.calls(ChangedFunction(name, function.path))
                outside = [hit for hit in further if hit.path != function.path][:CALLS_OF_CALLERS]
                yield from (f"{self._row(hit)}  ({name} calls {function.name})" for hit in outside)

    def calls(self, function: ChangedFunction) -> list[GrepHit]:
        """Return the lines that call a function or, if there are none, that use it as a value.

        A value is an argument, a decorator or an element of a list. Tests are left out, and at most
        CALLS lines are returned. If several functions have its name, a line in another file counts
        only if that file imports the function, its class or its module.
        """
        name = re.escape(function.name)
        kind = language(function.path)
        # Ruby calls methods without brackets; some C styles have a blank before the bracket.
        bare = rf"|\.{name}\b(?!\s*=[^=])" if kind == "ruby" else ""
        called = re.compile(rf"(?<![\w$]){name}{' ?' if kind == 'c' else ''}\({bare}")
        # An argument, a decorator, or an element of a list; a method follows its object.
        start = r"[\w$]\." if function.owner else r"(?:^\s*|[(\[,={@]\s*)(?:[\w$]+\.)*"
        used = re.compile(rf"{start}{name}\s*(?:[,)\]}}]|$)")
        defined = re.compile(
            rf"\b(?:def|defp|func|function|fn|fun|class|struct|interface|impl|trait)\s+"
            rf"(?:\([^)]*\)\s*)?(?:self\.)?{name}\b"
            rf"|^[\w\s<>\[\],.]*\b{name}\s*\([^;]*\)[^;(){{}}]*\{{\s*$"
        )
        hits = self.repo.grep(rf"\b{name}\b", self.bundle.change.head_sha, limit=MAX_HITS)
        code = [hit for hit in hits if language(hit.path) == kind and not is_doc(hit.path)]
        is_unique = sum(bool(defined.search(hit.text)) for hit in code) <= 1
        uses = [
            hit
            for hit in code
            if not (is_test(hit.path) or defined.search(hit.text) or self._is_other_text(hit))
            and (hit.path == function.path or is_unique or self._imports(function, hit))
        ]
        calls = [hit for hit in uses if called.search(hit.text)]
        others = [hit for hit in uses if used.search(hit.text)]
        # Lines in other files are shown first: those in the same file may be in the diff.
        return sorted(calls or others, key=lambda hit: hit.path == function.path)[:CALLS]

    def _is_other_text(self, hit: GrepHit) -> bool:
        """Return whether a line is an import, a comment or docstring, or a changed line."""
        file = self.bundle.file(hit.path)
        if _PROSE.match(hit.text) or (file is not None and hit.line in file.touched):
            return True
        text = self._text(hit.path)
        spans = [*_IMPORT.finditer(text)]
        spans += _LONG_STRING.finditer(text) if language(hit.path) == "python" else []
        before = (text.count("\n", 0, span.start()) + 1 for span in spans)
        rows = zip(before, spans, strict=True)
        return any(first <= hit.line <= first + span[0].count("\n") for first, span in rows)

    def _imports(self, function: ChangedFunction, hit: GrepHit) -> bool:
        """Return whether the file of `hit` imports `function`, or its class, module or package.

        In Go, return whether the file is in the package, or the line contains `package.`.
        """
        path = PurePosixPath(function.path)
        if language(function.path) == "go":
            is_same = PurePosixPath(hit.path).parent == path.parent
            qualified = rf"\b{re.escape(path.parent.name)}\."
            return is_same or re.search(qualified, hit.text) is not None
        module = path.parent.name if path.stem in _FOLDER_MODULES else path.stem
        wanted = {function.name, function.owner, module}
        # A package can export the function under its own name: `package.function(...)`.
        wanted |= {name for name in path.parent.parts if f"{name}.{function.name}" in hit.text}
        statements = (match[0] for match in _IMPORT.finditer(self._text(hit.path)))
        return any(not wanted.isdisjoint(_NAME.findall(row)) for row in statements)

    def _row(self, hit: GrepHit) -> str:
        function = self._function_around(hit)
        where = f"{hit.path}:{hit.line}" + (f" in {function}" if function else "")
        return f"  {where}: {hit.text.strip()[:200]}"

    def _function_around(self, hit: GrepHit) -> str:
        """Return the name of the function that contains a line, or "" if no function does."""
        around = [
            one for one in functions(self._text(hit.path)) if one.header < hit.line <= one.end
        ]
        return around[-1].name if around else ""

    def _text(self, path: str) -> str:
        if path not in self.texts:
            self.texts[path] = file_text(self.repo, self.bundle.change.head_sha, path) or ""
        return self.texts[path]
