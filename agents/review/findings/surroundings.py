"""The code around a change, for the prompt: callers and existing tests of the changed functions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from glue.agents.review.change.collect import file_text
from glue.agents.review.change.languages import functions, is_doc, is_test, language
from glue.agents.review.records import Bundle
from glue.errors import GitError
from glue.tools.git import GrepHit, Repo

MAX_FUNCTIONS = 8  # changed functions whose callers and tests are shown
CALLS = 5  # callers of each
TESTS = 4  # tests of each
_SPECIAL = re.compile(r"__|(?:constructor|initialize|main|toString)$")
_IMPORT = re.compile(r"\b(?:import|from|require|require_relative|use|include)\b")
# Files whose folder is the name of the module.
_FOLDER_MODULES = ("__init__", "index", "mod", "main")
# The name of a test that is a call with a text: it("works", ...), describe 'x' do.
_CALLED_TEST = re.compile(
    r"\s*(?:it|test|describe|context|specify)\w*\W+[\"'`](?P<name>[^\"'`\n]+)"
)


@dataclass(frozen=True, slots=True)
class ChangedFunction:
    """A function with changed lines, and the file that defines it."""

    name: str
    path: str


def surroundings(bundle: Bundle, repo: Repo | None) -> str:
    """Return the callers and existing tests of the changed functions, or "" if none are known."""
    head = bundle.change.head_sha
    if repo is None or not head:
        return ""
    callers: list[str] = []
    tests: dict[str, None] = {}
    for function in list(changed_functions(bundle))[:MAX_FUNCTIONS]:
        try:
            hits = repo.grep(rf"\b{re.escape(function.name)}\b", head, limit=400)
            calls = _calls(function, hits, head, repo)
            callers += [f"  {hit.path}:{hit.line}: {hit.text.strip()[:200]}" for hit in calls]
            tests |= dict.fromkeys(_tests(function, hits, head, repo))
        except GitError:
            continue
    parts = []
    if tests:
        title = "Existing tests that name the changed functions:"
        parts.append("\n".join([title, *(f"  {row}" for row in tests)]))
    if callers:
        parts.append("\n".join(["Other calls of the changed functions:", *callers]))
    return "\n\n".join(parts)


def changed_functions(bundle: Bundle) -> Iterator[ChangedFunction]:
    """Yield each function with an added line or next to a deleted line, once.

    Names that are too short to be searched for, special methods and tests are left out.
    """
    found: set[str] = set()
    for file in bundle.files:
        if is_test(file.path):
            continue
        text = bundle.head.get(file.path, "")
        touched = {line.new for line in file.added if line.new is not None}
        for hunk in file.hunks:
            at = hunk.new_start
            for line in hunk.lines:
                at = line.new if line.new is not None else at
                touched |= {at} if line.kind == "-" else set()
        for function in functions(text):
            is_touched = any(function.start <= line <= function.end for line in touched)
            is_plain = len(function.name) > 3 and not _SPECIAL.match(function.name)
            if is_touched and is_plain and function.name not in found:
                found.add(function.name)
                yield ChangedFunction(function.name, file.path)


def _calls(function: ChangedFunction, hits: list[GrepHit], head: str, repo: Repo) -> list[GrepHit]:
    """Return the lines that call a function.

    If several functions have its name, a call in another file counts only if that file imports the
    function or its module.
    """
    name = re.escape(function.name)
    # Ruby calls methods without brackets.
    bare = rf"|\.{name}\b(?!\s*=[^=])" if language(function.path) == "ruby" else ""
    called = re.compile(rf"(?<![\w$]){name}\s*\({bare}")
    defined = re.compile(
        rf"\b(?:def|defp|func|function|fn|fun)\s+(?:\([^)]*\)\s*)?(?:self\.)?{name}\b"
        rf"|^[\w\s<>\[\],.]*\b{name}\s*\([^;]*\)[^;(){{}}]*\{{\s*$"
    )
    kind = language(function.path)
    code = [hit for hit in hits if language(hit.path) == kind and not is_doc(hit.path)]
    is_unique = sum(bool(defined.search(hit.text)) for hit in code) <= 1
    calls: list[GrepHit] = []
    imports: dict[str, bool] = {}
    for hit in code:
        is_call = called.search(hit.text) and not defined.search(hit.text)
        is_comment = hit.text.lstrip().startswith(("#", "//", "*", "/*", ":", "- ", ".. "))
        if not is_call or is_comment or is_test(hit.path):
            continue
        if hit.path != function.path and not is_unique:
            if hit.path not in imports:
                text = file_text(repo, head, hit.path) or ""
                imports[hit.path] = _imports(function, hit, text)
            if not imports[hit.path]:
                continue
        calls.append(hit)
    # Calls in other files are shown first: those in the same file may be in the diff.
    calls.sort(key=lambda hit: hit.path == function.path)
    return calls[:CALLS]


def _imports(function: ChangedFunction, hit: GrepHit, text: str) -> bool:
    """Return whether a file imports a function, its module or its package."""
    path = PurePosixPath(function.path)
    module = path.parent.name if path.stem in _FOLDER_MODULES else path.stem
    if language(function.path) == "go":
        same_package = PurePosixPath(hit.path).parent == path.parent
        return (
            same_package or re.search(rf"\b{re.escape(path.parent.name)}\.", hit.text) is not None
        )
    wanted = re.compile(rf"\b(?:{re.escape(module)}|{re.escape(function.name)})\b")
    rows = (row for row in text.split("\n") if _IMPORT.search(row))
    return any(wanted.search(row) for row in rows)


def _tests(function: ChangedFunction, hits: list[GrepHit], head: str, repo: Repo) -> Iterator[str]:
    """Yield path, line and name of the tests whose code names a function."""
    count = 0
    texts: dict[str, str] = {}
    for hit in hits:
        if not is_test(hit.path) or not language(hit.path):
            continue
        if hit.path not in texts:
            texts[hit.path] = file_text(repo, head, hit.path) or ""
        test = _test_around(texts[hit.path], hit.line)
        if test is None:
            continue
        line, name = test
        yield f"{hit.path}:{line}: {name[:120]}"
        count += 1
        if count >= TESTS:
            return


def _test_around(text: str, line: int) -> tuple[int, str] | None:
    """Return the line and name of the test that contains a line, or None."""
    around = [
        one
        for one in functions(text)
        if one.start <= line <= one.end and re.match(r"[Tt]est", one.name)
    ]
    if around:
        return around[-1].header, around[-1].name
    rows = text.split("\n")
    for at in range(min(line, len(rows)), 0, -1):
        if match := _CALLED_TEST.match(rows[at - 1]):
            return at, match["name"]
    return None
